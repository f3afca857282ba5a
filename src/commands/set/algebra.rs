//! SINTER, SUNION, SDIFF and the commands derived from them.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::set::{found_reply, positive};
use crate::config::Events;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KEYS_RO, KeySpec, Makes, Row, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::set::algebra::{self, Found, Op};
use crate::types::set::prebuild;
use bytes::Bytes;

const READS: Flags = Flags::READONLY.or(Flags::HEAVY);
const COUNTS: Flags = READS.or(Flags::MOVABLEKEYS);
const STORES: Flags = Flags::WRITE.or(Flags::DENYOOM).or(Flags::HEAVY);

const NUMBERED: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Keynum { step: 1 } }];
const SOURCES: KeySpec =
    KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Range { last: -1, step: 1 } };
const STORED: &[KeySpec] = &[one(&["OW", "update"]), SOURCES];
/// In Redis, only SINTERSTORE is marked as reading its destination.
const INTER_STORED: &[KeySpec] = &[one(&["RW", "update"]), SOURCES];

const COUNT_SYNTAX: &str = "numkeys key [key ...] [LIMIT limit]";
const APPROX_SYNTAX: &str = "numkeys key [key ...] [APPROX] [LIMIT limit]";

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[SDIFF, SDIFFCARD, SDIFFSTORE, SINTER, SINTERCARD, SINTERSTORE, SUNION, SUNIONCARD, SUNIONSTORE];

const SDIFF: Command = Command::new(
    Row::new(Group::Set, "sdiff", -2, "1.0.0")
        .flags(READS)
        .keys(KEYS_RO)
        .syntax("key [key ...]")
        .summary("Returns the members of the first set that no other set has.")
        .tips(&["nondeterministic_output_order"]),
    handler!(sdiff),
);

async fn sdiff(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Op::Diff).await
}
const SINTER: Command = Command::new(
    Row::new(Group::Set, "sinter", -2, "1.0.0")
        .flags(READS)
        .keys(KEYS_RO)
        .syntax("key [key ...]")
        .summary("Returns the members that all sets have.")
        .tips(&["nondeterministic_output_order"]),
    handler!(sinter),
);

async fn sinter(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Op::Inter).await
}
const SUNION: Command = Command::new(
    Row::new(Group::Set, "sunion", -2, "1.0.0")
        .flags(READS)
        .keys(KEYS_RO)
        .syntax("key [key ...]")
        .summary("Returns the members that any of the sets has.")
        .tips(&["nondeterministic_output_order"]),
    handler!(sunion),
);

async fn sunion(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    answer(cx, args, Op::Union).await
}
const SDIFFCARD: Command = Command::new(
    Row::new(Group::Set, "sdiffcard", -3, "8.10.0")
        .flags(COUNTS)
        .keys(NUMBERED)
        .syntax(COUNT_SYNTAX)
        .summary("Counts the members of the first set that no other set has."),
    handler!(sdiffcard),
);

async fn sdiffcard(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    count_members(cx, args, Op::Diff).await
}
const SINTERCARD: Command = Command::new(
    Row::new(Group::Set, "sintercard", -3, "7.0.0")
        .flags(COUNTS)
        .keys(NUMBERED)
        .syntax(COUNT_SYNTAX)
        .summary("Counts the members that all sets have."),
    handler!(sintercard),
);

async fn sintercard(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    count_members(cx, args, Op::Inter).await
}
const SUNIONCARD: Command = Command::new(
    Row::new(Group::Set, "sunioncard", -3, "8.10.0")
        .flags(COUNTS)
        .keys(NUMBERED)
        .syntax(APPROX_SYNTAX)
        .summary("Counts the members that any of the sets has."),
    handler!(sunioncard),
);

async fn sunioncard(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    count_members(cx, args, Op::Union).await
}
const SDIFFSTORE: Command = Command::new(
    Row::new(Group::Set, "sdiffstore", -3, "1.0.0")
        .flags(STORES)
        .keys(STORED)
        .syntax("destination key [key ...]")
        .summary("Stores the members of the first set that no other set has.")
        .makes(Makes::Difference),
    handler!(sdiffstore),
);

async fn sdiffstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store_members(cx, args, Op::Diff).await
}
const SINTERSTORE: Command = Command::new(
    Row::new(Group::Set, "sinterstore", -3, "1.0.0")
        .flags(STORES)
        .keys(INTER_STORED)
        .syntax("destination key [key ...]")
        .summary("Stores the members that all sets have.")
        .makes(Makes::Intersection),
    handler!(sinterstore),
);

async fn sinterstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store_members(cx, args, Op::Inter).await
}
const SUNIONSTORE: Command = Command::new(
    Row::new(Group::Set, "sunionstore", -3, "1.0.0")
        .flags(STORES)
        .keys(STORED)
        .syntax("destination key [key ...]")
        .summary("Stores the members that any of the sets has.")
        .makes(Makes::Union),
    handler!(sunionstore),
);

async fn sunionstore(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    store_members(cx, args, Op::Union).await
}

/// Opens all keys before deciding anything: a wrong type is an error even if the result is empty anyway.
async fn combine(cx: &Cx<'_>, s: &Scope<'_>, op: Op, keys: &[Bytes], limit: Option<u64>) -> Result<Found> {
    let mut slots: Vec<Slot> = Vec::with_capacity(keys.len());
    for key in keys {
        let slot = cx.look_up(s, key).await?;
        slot.set()?;
        slots.push(slot);
    }
    let sets = slots.iter().map(Slot::set).collect::<Result<Vec<_>>>()?;
    algebra::combine(s, op, &sets, limit).await
}

async fn answer(cx: &mut Cx<'_>, args: Args<'_>, op: Op) -> Result<Reply> {
    let s = cx.scope()?;
    let found = combine(cx, &s, op, args.rest(), None).await?;
    found_reply(cx, &s, found).await
}

async fn store_members(cx: &mut Cx<'_>, mut args: Args<'_>, op: Op) -> Result<Reply> {
    let s = cx.scope()?;
    let target = args.next()?;
    let mut slot = object::open(&s, target, Read::Serializable).await?;
    let existed = slot.exists();
    let stored = match prebuilt::result(cx.prebuilt) {
        Some(built) => prebuild::put(&s, &mut slot, built).await?,
        None => {
            let found = combine(cx, &s, op, args.rest(), None).await?;
            algebra::store(&s, &mut slot, found).await?
        }
    };
    match (stored, op) {
        (0, _) if existed => s.notify(Events::GENERIC, "del", target),
        (0, _) => {}
        (_, Op::Inter) => s.notify(Events::SET, "sinterstore", target),
        (_, Op::Union) => s.notify(Events::SET, "sunionstore", target),
        (_, Op::Diff) => s.notify(Events::SET, "sdiffstore", target),
    }
    Ok(Reply::Int(stored.cast_signed()))
}

async fn count_members(cx: &mut Cx<'_>, mut args: Args<'_>, op: Op) -> Result<Reply> {
    let keys = numbered_keys(&mut args)?;
    let mut limit = 0;
    while !args.is_empty() {
        if args.len() > 1 && args.keyword("LIMIT") {
            limit = positive(args.next()?, "ERR LIMIT can't be negative")?;
        } else if op != Op::Union || !args.keyword("APPROX") {
            return Err(SYNTAX.into());
        }
    }
    let s = cx.scope()?;
    let limit = (limit > 0).then_some(limit);
    let found = combine(cx, &s, op, keys, limit).await?.len();
    Ok(Reply::Int(limit.map_or(found, |limit| found.min(limit)).cast_signed()))
}

fn numbered_keys<'a>(args: &mut Args<'a>) -> Result<&'a [Bytes]> {
    let n = parse_i64(args.next()?).filter(|n| *n > 0);
    let n = n.ok_or(ReplyError::new("ERR numkeys should be greater than 0"))?;
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    if n > args.len() {
        return Err(ReplyError::new("ERR Number of keys can't be greater than number of args").into());
    }
    Ok(args.take(n)?)
}
