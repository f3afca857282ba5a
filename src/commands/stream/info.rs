//! XINFO: what a stream, its groups and their consumers are.

use super::groups::{READ, no_group};
use super::pending::STEP;
use super::{ITEM, READS, Size, entries, fields, id_reply};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{NO_SUCH_KEY, Result};
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::{Group as Family, Row};
use crate::store::Read;
use crate::types::stream::consumers::{self, Consumer};
use crate::types::stream::entry::{Entry, ROW};
use crate::types::stream::groups::{self, Group, Place};
use crate::types::stream::pending::{self, Walk};
use crate::types::stream::{Id, StreamRep, range};
use crate::{handler, help};
use bytes::Bytes;
use std::collections::HashMap;

/// The container.
pub(crate) const COMMANDS: &[Command] = &[XINFO];

const SUBS: &[Command] =
    &[XINFO_CONSUMERS, XINFO_GROUPS, help!("xinfo", Family::Stream, "5.0.0"), XINFO_STREAM];

const XINFO: Command = Command::container(
    Row::new(Family::Stream, "xinfo", -2, "5.0.0").summary("Describes streams, groups and consumers."),
    SUBS,
);

/// Entries, and pending ones of each group and consumer, that XINFO STREAM FULL returns unless told otherwise.
const FEW: u64 = 10;

fn int(n: u64) -> Reply {
    Reply::Int(n.cast_signed())
}

fn map(parts: Vec<(&'static str, Reply)>) -> Reply {
    Reply::Map(parts.into_iter().map(|(name, value)| (Reply::bulk_static(name), value)).collect())
}

async fn look_up(cx: &Cx<'_>, s: &Scope<'_>, key: &Bytes) -> Result<StreamRep> {
    let slot = cx.look_up(s, key).await?;
    Ok(*slot.stream()?.ok_or(NO_SUCH_KEY)?)
}

const XINFO_STREAM: Command = Command::new(
    Row::new(Family::Stream, "stream", -3, "5.0.0")
        .flags(READS)
        .keys(READ)
        .syntax("key [FULL [COUNT count]]")
        .summary("Describes a stream; in full with its first entries, and all groups and consumers."),
    handler!(stream),
);

async fn stream(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let s = cx.scope()?;
    let rep = look_up(cx, &s, key).await?;
    if args.is_empty() {
        return short(cx, &s, &rep).await;
    }
    let wrong = args.no_such_form();
    if !args.keyword("FULL") || !args.is_empty() && (args.len() != 2 || !args.keyword("COUNT")) {
        return Err(wrong.into());
    }
    let count = if args.is_empty() { FEW } else { u64::try_from(args.int()?).unwrap_or(FEW) };
    full(cx, &s, &rep, if count == 0 { u64::MAX } else { count }).await
}

/// What both forms begin with. Redis' tree has a key for every node of entries, and a node for each key besides its root.
fn head(cx: &Cx<'_>, rep: &StreamRep) -> Vec<(&'static str, Reply)> {
    let each = match cx.server.config.get().stream_node_max_entries {
        0 => u64::MAX,
        each => each as u64,
    };
    let keys = rep.len.div_ceil(each);
    vec![
        ("length", int(rep.len)),
        ("radix-tree-keys", int(keys)),
        ("radix-tree-nodes", int(keys + 1)),
        ("last-generated-id", id_reply(rep.last)),
        ("max-deleted-entry-id", id_reply(rep.max_deleted)),
        ("entries-added", int(rep.added)),
        ("recorded-first-entry-id", id_reply(rep.first)),
    ]
}

async fn short(cx: &Cx<'_>, s: &Scope<'_>, rep: &StreamRep) -> Result<Reply> {
    let mut size = Size::default();
    let mut parts = head(cx, rep);
    let (mut n, mut passed) = (0, 0);
    let count = |name: Bytes, _| {
        (n, passed) = (n + 1, passed + name.len() as u64 + ROW);
        cx.light(passed)
    };
    groups::each(s, rep.oid, count).await?;
    parts.push(("groups", int(n)));
    for (name, reverse) in [("first-entry", false), ("last-entry", true)] {
        let found = read(cx, s, rep, (1, reverse), &mut size).await?;
        let found = match found.first() {
            None => Reply::Nil,
            Some(entry) => Reply::Array(vec![id_reply(entry.id), fields(entry)?]),
        };
        parts.push((name, found));
    }
    Ok(map(parts))
}

async fn read(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    rep: &StreamRep,
    which: (u64, bool),
    size: &mut Size,
) -> Result<Vec<Entry>> {
    range::read(s, rep, (Id::MIN, Id::MAX), which, |bytes| size.add(cx, bytes)).await
}

async fn full(cx: &Cx<'_>, s: &Scope<'_>, rep: &StreamRep, count: u64) -> Result<Reply> {
    let (mut parts, mut size) = (head(cx, rep), Size::default());
    let found = read(cx, s, rep, (count.min(rep.len), false), &mut size).await?;
    parts.push(("entries", entries(&found)));
    let mut all = Vec::new();
    for (name, group) in all_groups((cx, &mut size), s, rep).await? {
        all.push(group_in_full((cx, &mut size), s, rep, (name, group), count).await?);
    }
    parts.push(("groups", Reply::Array(all)));
    Ok(map(parts))
}

/// The groups, which are part of the reply.
async fn all_groups(
    (cx, size): (&Cx<'_>, &mut Size),
    s: &Scope<'_>,
    rep: &StreamRep,
) -> Result<Vec<(Bytes, Group)>> {
    let mut all = Vec::new();
    let add = |name: Bytes, group| {
        size.add_named(cx, &name)?;
        all.push((name, group));
        Ok(())
    };
    groups::each(s, rep.oid, add).await?;
    Ok(all)
}

/// The consumers, which are part of the reply.
async fn all_consumers(
    (cx, size): (&Cx<'_>, &mut Size),
    s: &Scope<'_>,
    at: Place,
) -> Result<Vec<(Bytes, Consumer)>> {
    let mut all = Vec::new();
    let add = |name: Bytes, consumer| {
        size.add_named(cx, &name)?;
        all.push((name, consumer));
        Ok(())
    };
    consumers::each(s, at, Read::Serializable, add).await?;
    Ok(all)
}

async fn group_in_full(
    (cx, size): (&Cx<'_>, &mut Size),
    s: &Scope<'_>,
    rep: &StreamRep,
    (name, group): (Bytes, Group),
    count: u64,
) -> Result<Reply> {
    let at = Place { oid: rep.oid, group: group.number };
    let all = all_consumers((cx, size), s, at).await?;
    let names: HashMap<u64, Bytes> = all.iter().map(|(name, of)| (of.number, name.clone())).collect();
    let step = STEP.min(count as usize);
    let (mut walk, mut found) = (Walk::new(at, (Id::MIN, Id::MAX), step), Vec::new());
    while (found.len() as u64) < count
        && let Some((id, pending)) = walk.next(s).await?
    {
        let name = names.get(&pending.consumer).cloned().unwrap_or_default();
        size.add(cx, name.len() as u64 + ITEM)?;
        found.push(Reply::Array(vec![
            id_reply(id),
            Reply::Bulk(name),
            int(pending.time),
            int(pending.count),
        ]));
    }
    let counts = pending::counts(s, at, |bytes| cx.light(bytes)).await?;
    let mut owners = Vec::with_capacity(all.len());
    for (name, consumer) in all {
        let n = counts.get(&consumer.number).copied().unwrap_or(0);
        owners.push(consumer_in_full((cx, size), s, at, (name, consumer, n), count).await?);
    }
    let mut parts = vec![("name", Reply::Bulk(name))];
    parts.extend(progress(rep, &group));
    parts.push(("pel-count", int(pending::count(s, at, Read::Serializable).await?)));
    parts.push(("pending", Reply::Array(found)));
    parts.push(("consumers", Reply::Array(owners)));
    Ok(map(parts))
}

/// How far a group is.
fn progress(rep: &StreamRep, group: &Group) -> [(&'static str, Reply); 3] {
    [
        ("last-delivered-id", id_reply(group.last)),
        ("entries-read", group.read.map_or(Reply::Nil, int)),
        ("lag", group.lag(rep).map_or(Reply::Nil, Reply::Int)),
    ]
}

async fn consumer_in_full(
    (cx, size): (&Cx<'_>, &mut Size),
    s: &Scope<'_>,
    at: Place,
    (name, consumer, n): (Bytes, Consumer, u64),
    count: u64,
) -> Result<Reply> {
    let step = STEP.min(count as usize);
    let (mut walk, mut found) = (Walk::of(at, consumer.number, (Id::MIN, Id::MAX), step), Vec::new());
    while n > 0
        && (found.len() as u64) < count
        && let Some((id, pending)) = walk.next(s).await?
    {
        size.add(cx, ITEM)?;
        found.push(Reply::Array(vec![id_reply(id), int(pending.time), int(pending.count)]));
    }
    Ok(map(vec![
        ("name", Reply::Bulk(name)),
        ("seen-time", int(consumer.seen)),
        ("active-time", consumer.active.map_or(Reply::Int(-1), int)),
        ("pel-count", int(n)),
        ("pending", Reply::Array(found)),
    ]))
}

const XINFO_GROUPS: Command = Command::new(
    Row::new(Family::Stream, "groups", 3, "5.0.0")
        .flags(READS)
        .keys(READ)
        .syntax("key")
        .summary("Returns the groups of a stream, and how far each is."),
    handler!(groups_of),
);

async fn groups_of(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let s = cx.scope()?;
    let rep = look_up(cx, &s, key).await?;
    let (mut all, mut passed) = (Vec::new(), 0);
    for (name, group) in all_groups((cx, &mut Size::default()), &s, &rep).await? {
        let (at, mut n) = (Place { oid: rep.oid, group: group.number }, 0);
        let count = |name: Bytes, _| {
            (n, passed) = (n + 1, passed + name.len() as u64 + ROW);
            cx.light(passed)
        };
        consumers::each(&s, at, Read::Serializable, count).await?;
        let mut parts = vec![("name", Reply::Bulk(name)), ("consumers", int(n))];
        parts.push(("pending", int(pending::count(&s, at, Read::Serializable).await?)));
        parts.extend(progress(&rep, &group));
        all.push(map(parts));
    }
    Ok(Reply::Array(all))
}

const XINFO_CONSUMERS: Command = Command::new(
    Row::new(Family::Stream, "consumers", 4, "5.0.0")
        .flags(READS)
        .keys(READ)
        .syntax("key group")
        .summary("Returns the consumers of a group, how many entries are pending for each, and since when they were idle.")
        .tips(&["nondeterministic_output"]),
    handler!(consumers_of),
);

async fn consumers_of(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, name) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let rep = look_up(cx, &s, key).await?;
    let group = groups::find_alive(&s, rep.oid, name).await?.ok_or_else(|| no_group(key, name))?;
    let at = Place { oid: rep.oid, group: group.number };
    let all = all_consumers((cx, &mut Size::default()), &s, at).await?;
    let counts = pending::counts(&s, at, |bytes| cx.light(bytes)).await?;
    let consumer = |(name, consumer): (Bytes, Consumer)| {
        let since = |ms: u64| int(s.now.saturating_sub(ms));
        map(vec![
            ("name", Reply::Bulk(name)),
            ("pending", int(counts.get(&consumer.number).copied().unwrap_or(0))),
            ("idle", since(consumer.seen)),
            ("inactive", consumer.active.map_or(Reply::Int(-1), since)),
        ])
    };
    Ok(Reply::Array(all.into_iter().map(consumer).collect()))
}
