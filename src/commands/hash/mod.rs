//! Hash commands.

mod expiry;
mod extended;
mod numbers;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::contents::{On, read_kept};
use crate::commands::cx::Cx;
use crate::commands::generic::elements::{ElementScan, no_elements};
use crate::commands::generic::scan::Scanned;
use crate::config::Events;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::keyspace::keys::MAX_FIELD;
use crate::lifecycle::idempotency::MAX_REPLY;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Count, Fields, Flags, Group, KEY_META, KEY_RO, KEY_RW, KeySpec, Makes, Row, one};
use crate::store::Read;
use crate::types::contents::Parts;
use crate::types::hash::stream;
use crate::types::hash::{self, Few, Found, HashRep, Limits, sample, scan as walk};
use crate::types::items::Items;
use crate::types::{object, prebuilt};
use bytes::Bytes;
pub(crate) use expiry::COMMANDS as EXPIRY;
pub(crate) use extended::COMMANDS as EXTENDED;
pub(crate) use numbers::COMMANDS as NUMBERS;
use std::collections::HashMap;

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = READS.or(Flags::FAST);
const FAST_WRITE: Flags = Flags::WRITE.or(Flags::FAST);
const SETS: Flags = FAST_WRITE.or(Flags::DENYOOM);

const INSERTED: &[KeySpec] = &[one(&["RW", "insert"])];
const DELETED: &[KeySpec] = &[one(&["RW", "delete"])];

/// Approximate bytes of a field in memory, for [`Cx::light`].
const ROW: u64 = 64;
/// Pairs that are never too heavy for a lane.
const FEW: usize = 256;

/// The commands of this family that do not calculate.
pub(crate) const COMMANDS: &[Command] = &[
    HDEL, HEXISTS, HGET, HGETALL, HKEYS, HLEN, HMGET, HMSET, HRANDFIELD, HSCAN, HSET, HSETNX, HSTRLEN, HVALS,
];

fn limits(cx: &Cx<'_>) -> Limits {
    Limits::of(&cx.server.config.get())
}

/// Refuses the arguments of a lane that would keep other units waiting.
fn light_fields(cx: &Cx<'_>, arguments: &[Bytes]) -> Result<()> {
    if arguments.len() <= FEW {
        return Ok(());
    }
    cx.light(arguments.iter().map(|part| part.len() as u64 + ROW).sum())
}

const HSET: Command = Command::new(
    Row::new(Group::Hash, "hset", -4, "2.0.0")
        .flags(SETS)
        .keys(KEY_RW)
        .syntax("key <data: field value> [field value ...]")
        .fields(Fields::Alternate)
        .makes(Makes::FieldsSet)
        .summary("Sets fields of a hash; creates it if the key does not exist."),
    handler!(hset),
);

async fn hset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(set(cx, args, "hset").await?.cast_signed()))
}

const HMSET: Command = Command::new(
    Row::new(Group::Hash, "hmset", -4, "2.0.0")
        .flags(SETS)
        .keys(KEY_RW)
        .syntax("key <data: field value> [field value ...]")
        .fields(Fields::Alternate)
        .makes(Makes::FieldsSet)
        .summary("Sets fields of a hash.")
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs"),
    handler!(hmset),
);

async fn hmset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set(cx, args, "hmset").await?;
    Ok(Reply::Ok)
}

async fn set(cx: &mut Cx<'_>, mut args: Args<'_>, name: &str) -> Result<u64> {
    let key = args.next()?;
    let (pairs, rest) = args.rest().as_chunks();
    if !rest.is_empty() {
        return Err(ReplyError::of(format!("ERR wrong number of arguments for '{name}' command")).into());
    }
    if pairs.len() > FEW {
        cx.light(pairs.iter().flatten().map(|part| part.len() as u64 + ROW).sum())?;
    }
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let new = match prebuilt::result(cx.prebuilt) {
        Some(built) => Box::pin(hash::prebuild::put_changed(&s, &mut slot, built)).await?,
        None => hash::set(&s, &mut slot, limits(cx), pairs).await?,
    };
    s.notify(Events::HASH, "hset", key);
    Ok(new)
}

const HSETNX: Command = Command::new(
    Row::new(Group::Hash, "hsetnx", 4, "2.0.0")
        .flags(SETS)
        .keys(INSERTED)
        .syntax("key field value")
        .fields(Fields::One)
        .makes(Makes::FieldsSet)
        .summary("Sets a field of a hash if it does not exist."),
    handler!(hsetnx),
);

async fn hsetnx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, field, value) = (args.next()?, args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    if hash::length(&s, slot.hash()?, field).await?.is_some() {
        return Ok(Reply::Int(0));
    }
    match prebuilt::result(cx.prebuilt) {
        Some(built) => drop(Box::pin(hash::prebuild::put_changed(&s, &mut slot, built)).await?),
        None => {
            hash::set(&s, &mut slot, limits(cx), &[[field.clone(), value.clone()]]).await?;
        }
    }
    s.notify(Events::HASH, "hset", key);
    Ok(Reply::Int(1))
}

const HGET: Command = Command::new(
    Row::new(Group::Hash, "hget", 3, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key field")
        .fields(Fields::One)
        .summary("Returns the value of a field of a hash."),
    handler!(hget),
);

async fn hget(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let Some(found) = hash::find(&s, slot.hash()?, args.next()?).await? else { return Ok(Reply::Nil) };
    cx.light(found.len())?;
    Ok(Reply::Bulk(found.read(&s).await?))
}

const HMGET: Command = Command::new(
    Row::new(Group::Hash, "hmget", -3, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key field [field ...]")
        .fields(Fields::All)
        .summary("Returns the values of several fields of a hash."),
    handler!(hmget),
);

async fn hmget(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let values = values(cx, &s, slot.hash()?, args.rest()).await?;
    Ok(Reply::Array(values.into_iter().map(Reply::bulk_or_nil).collect()))
}

/// The value of each of `fields`. Those of a field that is named several times share their memory.
async fn values(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    rep: Option<&HashRep>,
    fields: &[Bytes],
) -> Result<Vec<Option<Bytes>>> {
    let found = hash::find_many(s, rep, fields).await?;
    let (mut known, mut bytes) = (HashMap::new(), 0);
    for (field, found) in fields.iter().zip(&found) {
        if let Some(Found::Long(_)) = found
            && known.insert(field, None).is_none()
        {
            bytes += found.as_ref().map_or(0, Found::len);
        }
    }
    cx.light(bytes)?;
    let mut values = Vec::with_capacity(fields.len());
    for (field, found) in fields.iter().zip(found) {
        values.push(match (found, known.get_mut(field)) {
            (None, _) => None,
            (Some(_), Some(Some(value))) => Some(Bytes::clone(value)),
            (Some(found), place) => {
                let value = found.read(s).await?;
                if let Some(place) = place {
                    *place = Some(value.clone());
                }
                Some(value)
            }
        });
    }
    Ok(values)
}

const HDEL: Command = Command::new(
    Row::new(Group::Hash, "hdel", -3, "2.0.0")
        .flags(FAST_WRITE)
        .keys(DELETED)
        .syntax("key field [field ...]")
        .fields(Fields::All)
        .makes(Makes::FieldsRemoved)
        .summary("Removes fields from a hash; removing the last one deletes the key."),
    handler!(hdel),
);

async fn hdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, args.next()?).await?;
    let removed = match prebuilt::result(cx.prebuilt) {
        Some(built) => Box::pin(hash::prebuild::put_changed(&s, &mut slot, built)).await?,
        None => hash::remove(&s, &mut slot, args.rest()).await?,
    };
    if removed > 0 {
        s.notify(Events::HASH, "hdel", &slot.key);
        if !slot.exists() {
            s.notify(Events::GENERIC, "del", &slot.key);
        }
    }
    Ok(Reply::Int(removed.cast_signed()))
}

const HLEN: Command = Command::new(
    Row::new(Group::Hash, "hlen", 2, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the number of fields of a hash."),
    handler!(hlen),
);

async fn hlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    Ok(Reply::Int(hash::len(&s, slot.hash()?, Read::Serializable).await?.cast_signed()))
}

const HSTRLEN: Command = Command::new(
    Row::new(Group::Hash, "hstrlen", 3, "3.2.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key field")
        .fields(Fields::One)
        .summary("Returns the length of the value of a field, in bytes."),
    handler!(hstrlen),
);

async fn hstrlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let length = hash::length(&s, slot.hash()?, args.next()?).await?;
    Ok(Reply::Int(length.unwrap_or(0).cast_signed()))
}

const HEXISTS: Command = Command::new(
    Row::new(Group::Hash, "hexists", 3, "2.0.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key field")
        .fields(Fields::One)
        .summary("Returns whether a hash has a field."),
    handler!(hexists),
);

async fn hexists(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    Ok(hash::length(&s, slot.hash()?, args.next()?).await?.is_some().into())
}

const HGETALL: Command = Command::new(
    Row::new(Group::Hash, "hgetall", 2, "2.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns all fields of a hash and their values.")
        .tips(&["nondeterministic_output_order"]),
    handler!(hgetall),
);

async fn hgetall(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    every(cx, args, Parts::Pairs).await
}

/// The reply of a command that returns all fields; many are read while they are sent.
async fn every(cx: &Cx<'_>, mut args: Args<'_>, parts: Parts) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let rep = slot.hash()?;
    let name: &[u8] = match parts {
        Parts::Pairs => b"hgetall",
        Parts::Fields => b"hkeys",
        Parts::Values => b"hvals",
    };
    let mut each = 0;
    let few = async {
        Ok(match hash::all_of_few(&s, rep, parts).await? {
            Few::All(found) => Some(found),
            Few::More(bytes) => {
                each = bytes;
                None
            }
        })
    };
    if let Some(found) = read_kept(&s, &slot, (name, &[], On::Value), few).await? {
        return Ok(Reply::Packed(parts.shape(), found));
    }
    if cx.may_stream
        && let Some(found) = stream::find(&s, &slot, parts, each).await?
        && let Some(items) = Items::open(&s, &slot, found, cx.most_kept()).await?
    {
        return Ok(Reply::Items(items.into()));
    }
    cx.light(hash::len(&s, rep, Read::Snapshot).await? * ROW)?;
    let most = if cx.may_stream { usize::MAX } else { MAX_REPLY };
    Ok(Reply::Packed(parts.shape(), hash::packed(&s, rep, parts, most).await?.into()))
}

const HKEYS: Command = Command::new(
    Row::new(Group::Hash, "hkeys", 2, "2.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns all fields of a hash.")
        .tips(&["nondeterministic_output_order"]),
    handler!(hkeys),
);

async fn hkeys(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    every(cx, args, Parts::Fields).await
}

const HVALS: Command = Command::new(
    Row::new(Group::Hash, "hvals", 2, "2.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the values of all fields of a hash.")
        .tips(&["nondeterministic_output_order"]),
    handler!(hvals),
);

async fn hvals(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    every(cx, args, Parts::Values).await
}

const HRANDFIELD: Command = Command::new(
    Row::new(Group::Hash, "hrandfield", -2, "6.2.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key [options: count [WITHVALUES]]")
        .summary("Returns random fields of a hash; a negative count allows repetitions.")
        .count(Count::Second)
        .tips(&["nondeterministic_output"]),
    handler!(hrandfield),
);

async fn hrandfield(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mut rng = cx.rng.fork();
    let key = args.next()?;
    let (count, with_values) = match args.rest() {
        [] => (None, false),
        [count] => (Some(counted(count)?), false),
        [count, word] => {
            let count = counted(count)?;
            if !word.eq_ignore_ascii_case(b"WITHVALUES") {
                return Err(SYNTAX.into());
            }
            if count.unsigned_abs() > i64::MAX as u64 / 2 {
                return Err(ReplyError::new("ERR value is out of range").into());
            }
            (Some(count), true)
        }
        [count, ..] => {
            counted(count)?;
            return Err(SYNTAX.into());
        }
    };
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, key).await?;
    let Some(rep) = slot.hash()? else {
        return Ok(if count.is_some() { Reply::Array(Vec::new()) } else { Reply::Nil });
    };
    let drawn = match count.unwrap_or(1) {
        n if n < 0 && n.unsigned_abs() > MAX_REPEATED => {
            return Err(ReplyError::of(format!(
                "ERR HRANDFIELD returns at most {MAX_REPEATED} fields with repetitions"
            ))
            .into());
        }
        n if n < 0 => sample::repeated(&s, rep, n.unsigned_abs(), with_values, &mut rng).await?,
        n => sample::distinct(&s, rep, n.unsigned_abs(), with_values, &mut rng).await?,
    };
    match count {
        None => Ok(Reply::bulk_or_nil(drawn.get(0).map(|[field, _]| field.clone()))),
        Some(_) if drawn.len() > PLAIN => Ok(Reply::Drawn(drawn.into())),
        Some(_) if with_values => Ok(Reply::Pairs(
            drawn
                .iter()
                .map(|[field, value]| (Reply::Bulk(field.clone()), Reply::Bulk(value.clone())))
                .collect(),
        )),
        Some(_) => Ok(Reply::bulks(drawn.iter().map(|[field, _]| field.clone()))),
    }
}

/// The most draws for which each string of a reply is a value of its own.
const PLAIN: usize = 2048;

/// The most fields that HRANDFIELD returns with repetitions: limited by memory, not by Redis' 63 bits.
const MAX_REPEATED: u64 = 10_000_000;

fn counted(raw: &[u8]) -> Result<i64> {
    let count = parse_i64(raw).ok_or(crate::error::NOT_INTEGER)?;
    if count == i64::MIN {
        let most = i64::MAX;
        let line = format!("ERR value is out of range, value must between {} and {most}", -most);
        return Err(ReplyError::of(line).into());
    }
    Ok(count)
}

const HSCAN: Command = Command::new(
    Row::new(Group::Hash, "hscan", -3, "2.8.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key cursor [MATCH pattern] [COUNT count] [NOVALUES]")
        .summary("Iterates over the fields of a hash, a page per call.")
        .count(Count::Option)
        .tips(&["nondeterministic_output"]),
    handler!(hscan),
);

async fn hscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let opened = ElementScan::open::<HashRep>(cx, &s, &mut args, Scanned::Fields).await?;
    let Some((slot, call)) = opened else { return Ok(no_elements()) };
    let (next, pairs) = walk::scan(&s, slot.hash()?, call.at(), call.with_values()).await?;
    let elements = pairs.into_iter().map(|[field, value]| (field, call.with_values().then_some(value)));
    call.page(MAX_FIELD, next, elements).await
}
