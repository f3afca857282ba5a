//! XREADGROUP: entries of streams that a group shares among its consumers.
//!
//! A handler answers nil if there is nothing new. Who waits, and runs it again, is `exec::waiting`. Inside a transaction nobody
//! waits.

use super::read::Asked;
use super::{entries, fields, id_reply, ids};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Count, FindKeys, Flags, Group as Family, InGroup, KeySpec, Row, Waits};
use crate::store::Read;
use crate::types::stream::claim::{Asking, MOST, Weight};
use crate::types::stream::consumers;
use crate::types::stream::entry::{self, Entry};
use crate::types::stream::groups::{self, Group, Place};
use crate::types::stream::pending::{self, Pending};
use crate::types::stream::{Id, StreamRep};
use bytes::Bytes;

const STREAMS: &[KeySpec] = &[KeySpec { flags: &["RO", "access"], begin: 4, find: FindKeys::Streams }];

/// XREADGROUP.
pub(super) const XREADGROUP: Command = Command::new(
    Row::new(Family::Stream, "xreadgroup", -7, "5.0.0")
        .in_group(InGroup::Delivered)
        .flags(Flags::WRITE.or(Flags::BLOCKING).or(Flags::MOVABLEKEYS))
        .syntax("GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]")
        .types(&[("milliseconds", "integer"), ("min-idle-time", "integer")])
        .keys(STREAMS)
        .waits(Waits::Block)
        .count(Count::Option)
        .summary("Delivers new entries of streams to a consumer of a group, or its own again; waits until there is one."),
    handler!(xreadgroup),
);

/// The entries that a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that the group has not delivered yet.
    New,
    /// The consumer's own that are pending, behind an id.
    Behind(Id),
}

/// The error of a key or group that does not exist.
fn missing(key: &[u8], group: &[u8]) -> ReplyError {
    let (key, group) = (quoted(key), quoted(group));
    ReplyError::of(format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    ))
}

fn which(raw: &[u8]) -> ArgResult<Which> {
    let meaningless = |id: &str| {
        ReplyError::of(format!(
            "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just return an empty result set."
        ))
    };
    match raw {
        b">" => Ok(Which::New),
        b"$" => Err(meaningless("$")),
        b"+" => Err(meaningless("+")),
        raw => Ok(Which::Behind(ids::parse(raw, 0)?)),
    }
}

/// A stream that is read.
struct Stream<'a> {
    key: &'a Bytes,
    rep: StreamRep,
    which: Which,
    group: Group,
}

impl Stream<'_> {
    /// Bytes of the pending entries that a claim looks at.
    async fn looked(&self, s: &Scope<'_>, wanted: &Asked<'_>) -> Result<u64> {
        if self.which != Which::New || wanted.claim.is_none() {
            return Ok(0);
        }
        let at = Place { oid: self.rep.oid, group: self.group.number };
        let looked = pending::count(s, at, Read::Snapshot).await?.min(pending::LOOKED as u64);
        Ok(looked.saturating_mul(entry::ROW))
    }

    /// Bytes of the entries that it may deliver, about.
    async fn weight(&self, s: &Scope<'_>, wanted: &Asked<'_>) -> Result<u64> {
        let at = Place { oid: self.rep.oid, group: self.group.number };
        let again = match self.which {
            Which::New if wanted.claim.is_none() => 0,
            Which::New | Which::Behind(_) => pending::count(s, at, Read::Snapshot).await?,
        };
        let has_new = self.which == Which::New && self.group.last < self.rep.last;
        let n = again.saturating_add(if has_new { self.rep.len } else { 0 });
        entry::bytes(s, &self.rep, n.min(wanted.count).min(MOST)).await
    }
}

async fn xreadgroup(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let wanted = Asked::parse(args, true)?;
    let (group, consumer) = wanted.group.ok_or(SYNTAX)?;
    let s = cx.scope()?;
    let mut streams = Vec::with_capacity(wanted.keys.len());
    for (key, id) in wanted.keys.iter().zip(wanted.ids) {
        let slot = cx.counted(&s, groups::open(&s, key).await?);
        let rep = *slot.stream()?.ok_or_else(|| missing(key, group))?;
        let group = groups::find_alive(&s, rep.oid, group).await?.ok_or_else(|| missing(key, group))?;
        streams.push(Stream { key, rep, which: which(id)?, group });
    }
    // What comes first shows what it weighs before anything is written; what may come then is estimated.
    let mut later = 0;
    for stream in &streams {
        later += stream.looked(&s, &wanted).await?;
    }
    for stream in streams.iter().skip(usize::from(wanted.claim.is_none())) {
        later += stream.weight(&s, &wanted).await?;
    }
    cx.light(later)?;
    let mut weight = Weight::new(|bytes| cx.light(later.saturating_add(bytes)));
    let mut found = Vec::new();
    for stream in &streams {
        // What is left out comes with the next call.
        if weight.is_full(&s) {
            break;
        }
        if let Some(entries) = serve(&s, (&wanted, group, consumer), stream, &mut weight).await? {
            found.push((Reply::Bulk(stream.key.clone()), entries));
        }
    }
    Ok(if found.is_empty() { Reply::NilArray } else { Reply::Keyed(found) })
}

/// The entries of one stream. None if there is nothing new.
async fn serve<F: Fn(u64) -> Result<()> + Send>(
    s: &Scope<'_>,
    (wanted, name, consumer): (&Asked<'_>, &Bytes, &Bytes),
    Stream { key, rep, which, .. }: &Stream<'_>,
    weight: &mut Weight<F>,
) -> Result<Option<Reply>> {
    let group = match which {
        Which::New => groups::find(s, rep.oid, name).await?,
        Which::Behind(_) => groups::find_alive(s, rep.oid, name).await?,
    };
    let group = group.ok_or_else(|| missing(key, name))?;
    let at = Place { oid: rep.oid, group: group.number };
    let mut asking = Asking { rep, at, asked: consumers::Asked::find(s, at, consumer).await? };
    let found = match which {
        Which::New => match wanted.claim {
            None => {
                let how = (wanted.count, wanted.no_ack);
                let found = asking.deliver(s, (name, group), how, weight).await?;
                (!found.is_empty()).then(|| entries(&found))
            }
            Some(min_idle) => {
                let mut found = asking.claim_idle(s, (min_idle, wanted.count), weight).await?;
                weight.written();
                let how = (wanted.count - found.len() as u64, wanted.no_ack);
                let new = asking.deliver(s, (name, group), how, weight).await?;
                let unread = Pending { consumer: 0, time: s.now, count: 0 };
                found.extend(new.into_iter().map(|entry| (entry, unread)));
                let said = found.into_iter().map(|found| claimed(s, &found)).collect::<Result<Vec<_>>>()?;
                (!said.is_empty()).then_some(Reply::Array(said))
            }
        },
        Which::Behind(id) => Some(entries(&match id.next() {
            Some(from) => asking.again(s, from, wanted.count, weight).await?,
            None => Vec::new(),
        })),
    };
    weight.written();
    asking.asked.write(s, key, at, consumer)?;
    Ok(found)
}

/// An entry, for how long it was pending, and how often it had been delivered.
fn claimed(s: &Scope<'_>, (entry, old): &(Entry, Pending)) -> Result<Reply> {
    let numbers = [old.idle(s.now), old.count].map(|n| Reply::Int(n.cast_signed()));
    let parts = [id_reply(entry.id), fields(entry)?].into_iter().chain(numbers);
    Ok(Reply::Array(parts.collect()))
}
