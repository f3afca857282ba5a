//! Set commands on one or two keys. Set algebra is in `algebra.rs`.

pub(super) mod algebra;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::generic::elements::{ElementScan, no_elements};
use crate::commands::generic::scan::Scanned;
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::keyspace::dictionary::ids::MAX_MEMBER;
use crate::lifecycle::idempotency::MAX_REPLY;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Count, FindKeys, Flags, Group, KEY_META, KEY_RO, KEY_TAKEN, KeySpec, Makes, Row, one};
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::set::algebra::Found;
use crate::types::set::sample::Drawn;
use crate::types::set::{self, SetRep, sample, scan as walk};
use bytes::Bytes;

const WRITES_FAST: Flags = Flags::WRITE.or(Flags::FAST);
const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = READS.or(Flags::FAST);

const INSERTED: &[KeySpec] = &[one(&["RW", "insert"])];
const DELETED: &[KeySpec] = &[one(&["RW", "delete"])];
const MOVED: &[KeySpec] = &[
    one(&["RW", "access", "delete"]),
    KeySpec { flags: &["RW", "insert"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } },
];

/// The most members that SRANDMEMBER returns with repetitions: limited by memory, not by Redis' 63 bits.
const MAX_REPEATED: u64 = 10_000_000;

/// The most members that a command reads in its own transaction; for more, the reply holds ids, which are
/// read as they are sent.
const AT_ONCE: u64 = 256;
/// What a member that is returned weighs at least.
const ROW: u64 = 64;

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[SADD, SCARD, SISMEMBER, SMEMBERS, SMISMEMBER, SMOVE, SPOP, SRANDMEMBER, SREM, SSCAN];

async fn open(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    object::open_members(s, key).await
}

const SADD: Command = Command::new(
    Row::new(Group::Set, "sadd", -3, "1.0.0")
        .flags(WRITES_FAST.or(Flags::DENYOOM))
        .keys(INSERTED)
        .syntax("key member [member ...]")
        .summary("Adds members to a set; creates it if the key does not exist.")
        .names_members()
        .makes(Makes::Added),
    handler!(sadd),
);

async fn sadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = cx.memo.open_members(&s, args.next()?).await?;
    let added = match (prebuilt::result(cx.prebuilt), prebuilt::ids(cx.prebuilt)) {
        (Some(built), _) => Box::pin(set::prebuild::put_changed(&s, &mut slot, built)).await?,
        (None, Some(ids)) => Box::pin(set::add_ids(&s, &mut slot, args.rest(), ids)).await?,
        (None, None) => set::add_noting(&s, &mut slot, args.rest(), cx.memo).await?,
    };
    if added > 0 {
        s.notify(Events::SET, "sadd", &slot.key);
    }
    Ok(Reply::Int(added.cast_signed()))
}

const SREM: Command = Command::new(
    Row::new(Group::Set, "srem", -3, "1.0.0")
        .flags(WRITES_FAST)
        .keys(DELETED)
        .syntax("key member [member ...]")
        .summary("Removes members from a set; removing the last one deletes the key.")
        .names_members()
        .makes(Makes::Removed),
    handler!(srem),
);

async fn srem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = open(&s, args.next()?).await?;
    let removed = match (prebuilt::result(cx.prebuilt), prebuilt::ids(cx.prebuilt)) {
        (Some(built), _) => Box::pin(set::prebuild::put_changed(&s, &mut slot, built)).await?,
        (None, Some(ids)) => Box::pin(set::remove_ids(&s, &mut slot, args.rest(), ids)).await?,
        (None, None) => set::remove(&s, &mut slot, args.rest()).await?,
    };
    if removed > 0 {
        notify_removed(&s, &slot, "srem");
    }
    Ok(Reply::Int(removed.cast_signed()))
}

/// Publishes that members were removed, and perhaps the key with them. If several commands remove the last
/// members concurrently, possibly none of them sees the key go.
fn notify_removed(s: &Scope<'_>, slot: &Slot, event: &'static str) {
    s.notify(Events::SET, event, &slot.key);
    if !slot.exists() {
        s.notify(Events::GENERIC, "del", &slot.key);
    }
}

const SCARD: Command = Command::new(
    Row::new(Group::Set, "scard", 2, "1.0.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the number of members of a set."),
    handler!(scard),
);

async fn scard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    Ok(Reply::Int(set::card(&s, slot.set()?).await?.cast_signed()))
}

const SISMEMBER: Command = Command::new(
    Row::new(Group::Set, "sismember", 3, "1.0.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key member")
        .summary("Returns whether a set has a member.")
        .names_members(),
    handler!(sismember),
);

async fn sismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    Ok(set::contains(&s, slot.set()?, args.next()?, cx.memo).await?.into())
}

const SMISMEMBER: Command = Command::new(
    Row::new(Group::Set, "smismember", -3, "6.2.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key member [member ...]")
        .summary("Returns, for each of several members, whether a set has it.")
        .names_members(),
    handler!(smismember),
);

async fn smismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let found = set::contains_many(&s, slot.set()?, args.rest()).await?;
    Ok(Reply::Array(found.into_iter().map(Reply::from).collect()))
}

const SMEMBERS: Command = Command::new(
    Row::new(Group::Set, "smembers", 2, "1.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns all members of a set.")
        .tips(&["nondeterministic_output_order"]),
    handler!(smembers),
);

async fn smembers(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    found_reply(cx, &s, set::found(&s, slot.set()?).await?).await
}

/// The reply of a command that has found members; many are read while they are sent.
pub(super) async fn found_reply(cx: &Cx<'_>, s: &Scope<'_>, found: Found) -> Result<Reply> {
    if found.ids.len() <= AT_ONCE {
        return Ok(set_reply(found.members(s).await?));
    }
    if cx.may_stream {
        return Ok(Reply::Members(Box::new(found.stream(s).await?)));
    }
    cx.light(found.ids.len() * ROW)?;
    Ok(set_reply(found.members_within(s, MAX_REPLY).await?))
}

/// An unordered reply of members.
fn set_reply(members: Vec<Bytes>) -> Reply {
    Reply::Set(members.into_iter().map(Reply::Bulk).collect())
}

const SMOVE: Command = Command::new(
    Row::new(Group::Set, "smove", 4, "1.0.0")
        .flags(WRITES_FAST)
        .keys(MOVED)
        .syntax("source destination member")
        .summary("Moves a member from one set to another."),
    handler!(smove),
);

async fn smove(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let (source, target, member) = (args.next()?, args.next()?, args.rest());
    let mut from = open(&s, source).await?;
    if from.set()?.is_none() {
        return Ok(Reply::Int(0));
    }
    let mut to = open(&s, target).await?;
    to.set()?;
    if source == target {
        return Ok(set::contains_many(&s, from.set()?, member).await?.contains(&true).into());
    }
    object::check_name(target)?;
    if set::remove(&s, &mut from, member).await? == 0 {
        return Ok(Reply::Int(0));
    }
    notify_removed(&s, &from, "srem");
    if set::add(&s, &mut to, member).await? > 0 {
        s.notify(Events::SET, "sadd", target);
    }
    Ok(Reply::Int(1))
}

const SPOP: Command = Command::new(
    Row::new(Group::Set, "spop", -2, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_TAKEN)
        .syntax("key [count]")
        .summary("Removes random members from a set and returns them.")
        .count(Count::Second)
        .tips(&["nondeterministic_output"]),
    handler!(spop),
);

async fn spop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut rng = cx.rng.fork();
    let s = cx.scope()?;
    let key = args.next()?;
    let count = match args.rest() {
        [] => None,
        [count] => Some(positive(count, "ERR value is out of range, must be positive")?),
        _ => return Err(SYNTAX.into()),
    };
    let mut slot = open(&s, key).await?;
    let popped = sample::pop(&s, &mut slot, count.unwrap_or(1), &mut rng).await?;
    if !popped.is_empty() {
        notify_removed(&s, &slot, "spop");
    }
    drawn_reply(cx, &s, popped, count.map(|_| set_reply as fn(_) -> _)).await
}

/// The reply of drawn members: one, or whatever `many` makes of them. Many are read while they are sent.
async fn drawn_reply(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    drawn: Drawn,
    many: Option<fn(Vec<Bytes>) -> Reply>,
) -> Result<Reply> {
    let Some(many) = many else {
        let member = drawn.members(s).await?.into_iter().next();
        return Ok(Reply::bulk_or_nil(member));
    };
    if drawn.len() as u64 <= AT_ONCE {
        return Ok(many(drawn.members(s).await?));
    }
    if cx.may_stream {
        return Ok(drawn.stream(s).await?.map_or_else(many, |members| Reply::Members(members.into())));
    }
    cx.light(drawn.len() as u64 * ROW)?;
    Ok(many(drawn.members_within(s, MAX_REPLY).await?))
}

/// A count of 0 or more, or the error `line`.
pub(super) fn positive(raw: &[u8], line: &'static str) -> Result<u64> {
    let n = parse_i64(raw).and_then(|n| u64::try_from(n).ok());
    Ok(n.ok_or(ReplyError::new(line))?)
}

const SRANDMEMBER: Command = Command::new(
    Row::new(Group::Set, "srandmember", -2, "1.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key [count]")
        .summary("Returns random members of a set; a negative count allows repetitions.")
        .count(Count::Second)
        .tips(&["nondeterministic_output"]),
    handler!(srandmember),
);

async fn srandmember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut rng = cx.rng.fork();
    let s = cx.scope()?;
    let key = args.next()?;
    let count = match args.rest() {
        [] => None,
        [count] => Some(parse_i64(count).ok_or(NOT_INTEGER)?),
        _ => return Err(SYNTAX.into()),
    };
    if count == Some(i64::MIN) {
        return Err(ReplyError::of(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        ))
        .into());
    }
    let slot = cx.look_up_members(&s, key).await?;
    let rep = slot.set()?;
    let members = match count.unwrap_or(1) {
        n if n < 0 && n.unsigned_abs() > MAX_REPEATED && rep.is_some() => {
            return Err(ReplyError::of(format!(
                "ERR SRANDMEMBER returns at most {MAX_REPEATED} members with repetitions"
            ))
            .into());
        }
        n if n < 0 => sample::repeated(&s, rep, n.unsigned_abs(), &mut rng, cx.memo).await?,
        n => sample::distinct(&s, rep, n.unsigned_abs(), &mut rng, cx.memo).await?,
    };
    drawn_reply(cx, &s, members, count.map(|_| Reply::bulks as fn(Vec<Bytes>) -> _)).await
}

const SSCAN: Command = Command::new(
    Row::new(Group::Set, "sscan", -3, "2.8.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key cursor [MATCH pattern] [COUNT count]")
        .summary("Iterates over the members of a set, a page per call.")
        .count(Count::Option)
        .tips(&["nondeterministic_output"]),
    handler!(sscan),
);

async fn sscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let opened = ElementScan::open::<SetRep>(cx, &s, &mut args, Scanned::Members).await?;
    let Some((slot, call)) = opened else { return Ok(no_elements()) };
    let (cursor, count) = call.at();
    let (next, members) = walk::scan(&s, slot.set()?, cursor, count).await?;
    call.page(MAX_MEMBER, next, members.into_iter().map(|member| (member, None))).await
}
