//! XCLAIM and XAUTOCLAIM: a consumer takes over entries that are pending for others.

use super::pending::nothing_there;
use super::{KEY_DELETED, WRITES_FAST, entries, id_reply, ids};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::{MAX_QUOTED, parse_i64, quoted_up_to};
use crate::spec::{Count, Group as Family, InGroup, KEY_RW, Row};
use crate::store::key_after;
use crate::types::stream::claim::{Asking, Claim};
use crate::types::stream::consumers::Asked;
use crate::types::stream::entry::Entry;
use crate::types::stream::groups::{self, Group, Place};
use crate::types::stream::{Id, StreamRep};
use bytes::Bytes;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[XAUTOCLAIM, XCLAIM];

const NO_COUNT: ReplyError = ReplyError::new("ERR COUNT must be > 0");
/// Redis multiplies it by the bytes of an id.
const MOST_COUNT: i64 = i64::MAX / 16;

/// A number of an option, whose error names it.
fn number(raw: &[u8], what: &str, command: &str) -> ArgResult<i64> {
    parse_i64(raw).ok_or_else(|| ReplyError::of(format!("ERR Invalid {what} argument for {command}")))
}

/// The least time since the last delivery.
fn min_idle(raw: &[u8], command: &str) -> ArgResult<u64> {
    Ok(u64::try_from(number(raw, "min-idle-time", command)?).unwrap_or(0))
}

/// The stream under a key, and one of its groups. `on_place`: whether the group's last delivered id matters.
async fn find(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    key: &Bytes,
    (name, on_place): (&[u8], bool),
) -> Result<Option<(StreamRep, Group)>> {
    let slot = cx.counted(s, groups::open(s, key).await?);
    let Some(rep) = slot.stream()? else { return Ok(None) };
    let group = match on_place {
        true => groups::find(s, rep.oid, name).await?,
        false => groups::find_alive(s, rep.oid, name).await?,
    };
    Ok(group.map(|group| (*rep, group)))
}

const XCLAIM: Command = Command::new(
    Row::new(Family::Stream, "xclaim", -6, "5.0.0")
        .in_group(InGroup::Claimed)
        .flags(WRITES_FAST)
        .keys(KEY_RW)
        .syntax("key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]")
        .types(&[("min-idle-time", "string"), ("ms", "integer"), ("lastid", "string")])
        .summary("Makes a consumer the owner of pending entries, as if they were delivered to it.")
        .tips(&["nondeterministic_output"]),
    handler!(xclaim),
);

/// What XCLAIM asks for.
struct Wanted {
    ids: Vec<Id>,
    claim: Claim,
    last: Id,
}

impl Wanted {
    fn parse(args: &mut Args<'_>, now: u64) -> ArgResult<Self> {
        let min_idle = min_idle(args.next()?, "XCLAIM")?;
        let mut ids = Vec::new();
        while let Some(id) = args.peek().and_then(|raw| ids::parse(raw, 0).ok()) {
            ids.push(id);
            args.next()?;
        }
        let (mut time, mut count, mut last) = (None, None, Id::MIN);
        let (mut force, mut just_id) = (false, false);
        while !args.is_empty() {
            let has_value = args.len() > 1;
            match () {
                () if args.keyword("FORCE") => force = true,
                () if args.keyword("JUSTID") => just_id = true,
                () if has_value && args.keyword("IDLE") => {
                    let idle = number(args.next()?, "IDLE option", "XCLAIM")?;
                    time = Some(now.cast_signed().wrapping_sub(idle));
                }
                () if has_value && args.keyword("TIME") => {
                    time = Some(number(args.next()?, "TIME option", "XCLAIM")?);
                }
                () if has_value && args.keyword("RETRYCOUNT") => {
                    count = Some(number(args.next()?, "RETRYCOUNT option", "XCLAIM")?);
                }
                () if has_value && args.keyword("LASTID") => last = ids::parse(args.next()?, 0)?,
                () => return Err(unknown(args.next()?)),
            }
        }
        // A time that has not come, or never was, counts as now.
        let time = time.and_then(|time| u64::try_from(time).ok()).map_or(now, |time| time.min(now));
        let count = count.and_then(|count| u64::try_from(count).ok());
        Ok(Wanted { ids, claim: Claim { min_idle, time, count, force, just_id }, last })
    }
}

fn unknown(option: &[u8]) -> ReplyError {
    ReplyError::of(format!("ERR Unrecognized XCLAIM option '{}'", quoted_up_to(option, MAX_QUOTED)))
}

async fn xclaim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, name, consumer) = (args.next()?, args.next()?, args.next()?);
    let s = cx.scope()?;
    let on_place = args.rest().iter().any(|arg| arg.eq_ignore_ascii_case(b"LASTID"));
    let found = find(cx, &s, key, (name, on_place)).await?;
    let (rep, group) = found.ok_or_else(|| nothing_there(key, name))?;
    let Wanted { ids, claim, last } = Wanted::parse(&mut args, s.now)?;
    let at = Place { oid: rep.oid, group: group.number };
    let mut asking = Asking { rep: &rep, at, asked: Asked::find(&s, at, consumer).await? };
    let most = cx.most_kept().min(cx.server.config.get().proto_max_bulk_len) as u64;
    let weigh = |bytes: u64| match cx.light(bytes) {
        Ok(()) if bytes > most => Err(StoreError::ReplyTooLarge(bytes as usize).into()),
        weighed => weighed,
    };
    let claimed = asking.claim(&s, &claim, &ids, weigh).await?;
    asking.asked.write(&s, key, at, consumer)?;
    if claim.force || claim.time < s.now {
        // Who claims the entries that were delivered longest ago looks for them in a snapshot, but reads this row.
        let row = s.db.group(rep.oid, name);
        s.tx.add_write_conflict(&row, &key_after(&row))?;
    }
    if last > group.last {
        groups::put(&s, rep.oid, name, &Group { last, ..group })?;
    }
    Ok(said(claimed.entries, claim.just_id))
}

/// Entries, or their ids alone.
fn said(found: Vec<Entry>, just_id: bool) -> Reply {
    if just_id { ids_reply(found.iter().map(|entry| entry.id)) } else { entries(&found) }
}

fn ids_reply(ids: impl Iterator<Item = Id>) -> Reply {
    Reply::Array(ids.map(id_reply).collect())
}

const XAUTOCLAIM: Command = Command::new(
    Row::new(Family::Stream, "xautoclaim", -6, "6.2.0")
        .in_group(InGroup::Consumer)
        .flags(WRITES_FAST)
        .keys(KEY_DELETED)
        .syntax("key group consumer min-idle-time start [COUNT count] [JUSTID]")
        .types(&[("min-idle-time", "string"), ("start", "string")])
        .count(Count::Option)
        .summary(
            "Makes a consumer the owner of entries that have been pending for long, one call after another.",
        )
        .tips(&["nondeterministic_output"]),
    handler!(xautoclaim),
);

async fn xautoclaim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, name, consumer) = (args.next()?, args.next()?, args.next()?);
    let min_idle = min_idle(args.next()?, "XAUTOCLAIM")?;
    let start = ids::span(args.next()?, b"+")?.0;
    let (mut count, mut just_id) = (100, false);
    while !args.is_empty() {
        if args.len() > 1 && args.keyword("COUNT") {
            let n = parse_i64(args.next()?).filter(|n| (1..=MOST_COUNT).contains(n));
            count = n.ok_or(NO_COUNT)?.cast_unsigned();
        } else if args.keyword("JUSTID") {
            just_id = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let s = cx.scope()?;
    let found = find(cx, &s, key, (name, false)).await?;
    let (rep, group) = found.ok_or_else(|| nothing_there(key, name))?;
    let at = Place { oid: rep.oid, group: group.number };
    let claim = Claim { min_idle, time: s.now, count: None, force: false, just_id };
    let mut asking = Asking { rep: &rep, at, asked: Asked::find(&s, at, consumer).await? };
    let claimed = asking.claim_from(&s, &claim, (start, count), |bytes| cx.light(bytes)).await?;
    asking.asked.write(&s, key, at, consumer)?;
    let next = id_reply(claimed.next.unwrap_or(Id::MIN));
    let deleted = ids_reply(claimed.deleted.into_iter());
    Ok(Reply::Array(vec![next, said(claimed.entries, just_id), deleted]))
}
