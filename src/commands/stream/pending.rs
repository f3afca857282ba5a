//! XACK and XPENDING: entries that were delivered and not acknowledged yet.

use super::{ITEM, READS, Size, WRITES_FAST, id_reply, ids};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Group as Family, InGroup, KEY_RO, KEY_RW, Row};
use crate::store::Read;
use crate::types::stream::Id;
use crate::types::stream::consumers::{self, Consumer};
use crate::types::stream::entry::ROW;
use crate::types::stream::groups::{self, Place};
use crate::types::stream::pending::{self, Ledger, Pending, Walk};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use tokio::task::coop::consume_budget;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[XACK, XPENDING];

/// Pending entries read at once.
pub(super) const STEP: usize = 1000;

/// The error of a command whose key or group does not exist.
pub(super) fn nothing_there(key: &[u8], group: &[u8]) -> ReplyError {
    ReplyError::of(format!("NOGROUP No such key '{}' or consumer group '{}'", quoted(key), quoted(group)))
}

/// A group of the stream under a key, whichever entries it has delivered.
pub(super) async fn find_group(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    key: &Bytes,
    group: &[u8],
) -> Result<Option<Place>> {
    let slot = cx.counted(s, groups::open(s, key).await?);
    let Some(oid) = slot.stream()?.map(|rep| rep.oid) else { return Ok(None) };
    Ok(groups::find_alive(s, oid, group).await?.map(|group| Place { oid, group: group.number }))
}

const XACK: Command = Command::new(
    Row::new(Family::Stream, "xack", -4, "5.0.0")
        .in_group(InGroup::Pending)
        .flags(WRITES_FAST)
        .keys(KEY_RW)
        .syntax("key group id [id ...]")
        .summary("Acknowledges entries that were delivered to a group. Returns the number of those that were pending."),
    handler!(xack),
);

async fn xack(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, group) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let Some(at) = find_group(cx, &s, key, group).await? else { return Ok(Reply::Int(0)) };
    let ids = args.rest().iter().map(|raw| ids::parse(raw, 0)).collect::<ArgResult<Vec<Id>>>()?;
    cx.light((ids.len() as u64).saturating_mul(ROW))?;
    let (mut ledger, mut n) = (Ledger::new(at), 0);
    for some in ids.chunks(STEP) {
        pending::fetch(&s, at, some.iter().copied()).await?;
        for id in some {
            if let Some(old) = pending::get(&s, at, *id).await? {
                ledger.remove(&s, *id, old.consumer)?;
                n += 1;
            }
            consume_budget().await;
        }
    }
    ledger.settle(&s)?;
    Ok(Reply::Int(n))
}

const XPENDING: Command = Command::new(
    Row::new(Family::Stream, "xpending", -3, "5.0.0")
        .in_group(InGroup::Name)
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key group [[IDLE min-idle-time] start end count [consumer]]")
        .types(&[("start", "string"), ("end", "string")])
        .summary("Returns how many entries of a group are pending, and for whom; or some of them.")
        .tips(&["nondeterministic_output"]),
    handler!(xpending),
);

/// What XPENDING asks for.
#[derive(Debug)]
struct Asked<'a> {
    min_idle: u64,
    span: (Id, Id),
    count: u64,
    consumer: Option<&'a Bytes>,
}

impl<'a> Asked<'a> {
    fn parse(args: &mut Args<'a>) -> ArgResult<Option<Self>> {
        if args.is_empty() {
            return Ok(None);
        }
        if !(3..=6).contains(&args.len()) {
            return Err(SYNTAX);
        }
        let mut min_idle = 0;
        if args.keyword("IDLE") {
            min_idle = u64::try_from(args.int()?).unwrap_or(0);
            if args.len() < 3 {
                return Err(SYNTAX);
            }
        }
        let (start, end) = (args.next()?, args.next()?);
        let count = u64::try_from(args.int()?).unwrap_or(0);
        let span = ids::span(start, end)?;
        let consumer = if args.is_empty() { None } else { Some(args.next()?) };
        Ok(Some(Asked { min_idle, span, count, consumer }))
    }
}

async fn xpending(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, group) = (args.next()?, args.next()?);
    let asked = Asked::parse(&mut args)?;
    let s = cx.scope()?;
    let at = find_group(cx, &s, key, group).await?.ok_or_else(|| nothing_there(key, group))?;
    match asked {
        None => summary(cx, &s, at).await,
        Some(asked) => some(cx, &s, at, &asked).await,
    }
}

/// How many are pending, the first and the last, and how many for each consumer that has some.
async fn summary(cx: &Cx<'_>, s: &Scope<'_>, at: Place) -> Result<Reply> {
    let n = pending::count(s, at, Read::Serializable).await?;
    let end = async |reverse| {
        let page = pending::page(s, at, (Id::MIN, Id::MAX), (1, reverse)).await?;
        Result::Ok(page.entries.first().map_or(Reply::Nil, |(id, _)| id_reply(*id)))
    };
    let (first, last) = (end(false).await?, end(true).await?);
    if n == 0 {
        return Ok(Reply::Array(vec![Reply::Int(0), Reply::Nil, Reply::Nil, Reply::NilArray]));
    }
    let (mut parts, mut size, mut passed) = (Vec::new(), Size::default(), 0);
    let counts = pending::counts(s, at, |bytes| cx.light(bytes)).await?;
    let add = |name: Bytes, consumer: Consumer| {
        passed += name.len() as u64 + ROW;
        cx.light(passed)?;
        if let Some(n) = counts.get(&consumer.number).filter(|n| **n > 0) {
            size.add_named(cx, &name)?;
            parts.push(Reply::Array(vec![Reply::Bulk(name), Reply::text(n.to_string())]));
        }
        Ok(())
    };
    consumers::each(s, at, Read::Serializable, add).await?;
    Ok(Reply::Array(vec![Reply::Int(n.cast_signed()), first, last, Reply::Array(parts)]))
}

/// The names of the consumers of some pending entries, by their numbers. A snapshot: a consumer never changes its name, and its
/// pending entries go with it.
async fn names(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    at: Place,
    found: &[(Id, Pending)],
) -> Result<HashMap<u64, Bytes>> {
    let wanted: HashSet<u64> = found.iter().map(|(_, pending)| pending.consumer).collect();
    let (mut names, mut size, mut passed) = (HashMap::new(), Size::default(), 0);
    let add = |name: Bytes, consumer: Consumer| {
        passed += name.len() as u64 + ROW;
        cx.light(passed)?;
        if wanted.contains(&consumer.number) {
            size.add_named(cx, &name)?;
            names.insert(consumer.number, name);
        }
        Ok(())
    };
    if !wanted.is_empty() {
        consumers::each(s, at, Read::Snapshot, add).await?;
    }
    Ok(names)
}

async fn some(cx: &Cx<'_>, s: &Scope<'_>, at: Place, asked: &Asked<'_>) -> Result<Reply> {
    let consumer = match asked.consumer {
        None => None,
        Some(name) => match consumers::find(s, at, name).await? {
            None => return Ok(Reply::Array(Vec::new())),
            Some(consumer) => Some((consumer.number, name)),
        },
    };
    let step = STEP.min(asked.count as usize);
    let mut walk = match consumer {
        None => Walk::new(at, asked.span, step),
        Some((number, _)) => Walk::of(at, number, asked.span, step),
    };
    let (mut found, mut size, mut seen) = (Vec::new(), Size::default(), 0);
    while (found.len() as u64) < asked.count
        && let Some((id, pending)) = walk.next(s).await?
    {
        seen += 1;
        cx.light(seen * ROW)?;
        if pending.idle(s.now) >= asked.min_idle {
            size.add(cx, ITEM)?;
            found.push((id, pending));
        }
    }
    let names = match consumer {
        Some((number, name)) => HashMap::from([(number, name.clone())]),
        None => names(cx, s, at, &found).await?,
    };
    for (_, pending) in &found {
        size.add(cx, names.get(&pending.consumer).map_or(0, Bytes::len) as u64)?;
    }
    let entry = |(id, pending): (Id, Pending)| {
        let name = names.get(&pending.consumer).cloned().unwrap_or_default();
        let (idle, count) = (pending.idle(s.now), pending.count);
        let numbers = [idle, count].map(|n| Reply::Int(n.cast_signed()));
        Reply::Array([id_reply(id), Reply::Bulk(name)].into_iter().chain(numbers).collect())
    };
    Ok(Reply::Array(found.into_iter().map(entry).collect()))
}
