//! String commands. SET and its relatives with an expiry are in `set.rs`, arithmetic is in `numbers.rs`.

mod compare;
mod increx;
mod lcs;
pub(super) mod numbers;
pub(super) mod set;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{
    FindKeys, Flags, Group, KEY_META, KEY_RO, KEY_RW, KEYS_RO, KeySpec, Makes, PAIRS_OW, Row, one,
};
use crate::store::Read;
use crate::types::string::Str;
use crate::types::{object, string};
use bytes::Bytes;

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const WRITES_FAST: Flags = WRITES.or(Flags::FAST);
const READS_FAST: Flags = Flags::READONLY.or(Flags::FAST);

const APPENDED: &[KeySpec] = &[one(&["RW", "insert"])];
const PAIRS_INSERTED: &[KeySpec] =
    &[KeySpec { flags: &["OW", "insert"], begin: 1, find: FindKeys::Range { last: -1, step: 2 } }];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[
    APPEND,
    numbers::DECR,
    numbers::DECRBY,
    GET,
    set::GETDEL,
    set::GETEX,
    GETRANGE,
    set::GETSET,
    numbers::INCR,
    numbers::INCRBY,
    numbers::INCRBYFLOAT,
    MGET,
    MSET,
    MSETNX,
    set::PSETEX,
    set::SET,
    set::SETEX,
    set::SETNX,
    SETRANGE,
    STRLEN,
    SUBSTR,
    compare::DELEX,
    compare::DELIFEQ,
    compare::DIGEST,
    increx::INCREX,
    lcs::LCS,
    set::MSETEX,
];

const GET: Command = Command::new(
    Row::new(Group::String, "get", 2, "1.0.0")
        .flags(READS_FAST)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the string value of a key."),
    handler!(get),
);

async fn get(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    cx.bulk(&s, &slot).await
}

const MGET: Command = Command::new(
    Row::new(Group::String, "mget", -2, "1.0.0")
        .flags(READS_FAST)
        .keys(KEYS_RO)
        .syntax("key [key ...]")
        .summary("Returns several strings.")
        .tips(&["request_policy:multi_shard"]),
    handler!(mget),
);

async fn mget(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut replies = Vec::with_capacity(args.len());
    for key in args.rest() {
        let slot = cx.look_up(&s, key).await?;
        replies.push(match slot.string() {
            Ok(Some(_)) => cx.bulk(&s, &slot).await?,
            _ => Reply::Nil,
        });
    }
    Ok(Reply::Array(replies))
}

const MSET: Command = Command::new(
    Row::new(Group::String, "mset", -3, "1.0.1")
        .flags(WRITES)
        .keys(PAIRS_OW)
        .syntax("<data: key value> [key value ...]")
        .summary("Sets several strings at once.")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    handler!(mset),
);

async fn mset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    write_pairs(cx, pairs(&args, "mset")?).await?;
    Ok(Reply::Ok)
}

const MSETNX: Command = Command::new(
    Row::new(Group::String, "msetnx", -3, "1.0.1")
        .flags(WRITES)
        .keys(PAIRS_INSERTED)
        .syntax("<data: key value> [key value ...]")
        .summary("Sets several strings if none of the keys exists.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"]),
    handler!(msetnx),
);

async fn msetnx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let pairs = pairs(&args, "msetnx")?;
    let s = cx.scope()?;
    for (key, _) in pairs.clone() {
        if object::open(&s, key, Read::Serializable).await?.exists() {
            return Ok(Reply::Int(0));
        }
    }
    write_pairs(cx, pairs).await?;
    Ok(Reply::Int(1))
}

fn pairs<'a>(
    args: &Args<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a Bytes, &'a Bytes)> + Clone + use<'a>> {
    if !args.len().is_multiple_of(2) {
        return Err(ReplyError::of(format!("ERR wrong number of arguments for '{name}' command")).into());
    }
    Ok(args.rest().chunks_exact(2).filter_map(|pair| pair.first().zip(pair.get(1))))
}

/// All or nothing: names are checked before the first write.
async fn write_pairs<'a>(
    cx: &Cx<'_>,
    pairs: impl Iterator<Item = (&'a Bytes, &'a Bytes)> + Clone,
) -> Result<()> {
    let s = cx.scope()?;
    pairs.clone().try_for_each(|(key, _)| object::check_name(key))?;
    for (key, value) in pairs {
        let mut slot = object::open(&s, key, Read::Serializable).await?;
        string::write(&s, cx.prebuilt, &mut slot, value, None).await?;
        s.notify(Events::STRING, "set", key);
    }
    Ok(())
}

const STRLEN: Command = Command::new(
    Row::new(Group::String, "strlen", 2, "2.2.0")
        .flags(READS_FAST)
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the length of a string in bytes."),
    handler!(strlen),
);

async fn strlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let slot = cx.look_up(&cx.scope()?, args.next()?).await?;
    Ok(Reply::Int(slot.string()?.map_or(0, string::len) as i64))
}

const GETRANGE: Command = Command::new(
    Row::new(Group::String, "getrange", 4, "2.4.0")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key start end")
        .summary("Returns part of a string."),
    handler!(getrange),
);

const SUBSTR: Command = Command::new(
    Row::new(Group::String, "substr", 4, "1.0.0")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key start end")
        .summary("Returns part of a string: the old name of GETRANGE.")
        .deprecated("2.0.0", "GETRANGE"),
    handler!(getrange),
);

async fn getrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, start, end) = (args.next()?, args.int()?, args.int()?);
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    let empty = Str::Inline(Bytes::new());
    let value = slot.string()?.unwrap_or(&empty);
    let (start, end) = clamp(start, end, string::len(value));
    cx.bulk_range(&s, &slot, value, (start, end)).await
}

/// GETRANGE's indexes (negative: from the end, inclusive) as a half-open range inside `len`.
fn clamp(start: i64, end: i64, len: u64) -> (u64, u64) {
    if start < 0 && end < 0 && start > end {
        return (0, 0);
    }
    let absolute = |i: i64| if i < 0 { (len as i64).saturating_add(i).max(0) } else { i } as u64;
    (absolute(start), absolute(end).saturating_add(1).min(len))
}

const APPEND: Command = Command::new(
    Row::new(Group::String, "append", 3, "2.0.0")
        .flags(WRITES_FAST)
        .keys(APPENDED)
        .syntax("key value")
        .summary("Appends to a string; creates it if the key does not exist.")
        .makes(Makes::Appended),
    handler!(append),
);

async fn append(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, tail) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = slot.string()?;
    if old.is_none() && tail.len() <= string::INLINE_MAX {
        // Like SET, including for OBJECT ENCODING.
        string::write(&s, &[], &mut slot, tail, None).await?;
        s.notify(Events::STRING, "append", key);
        return Ok(Reply::Int(tail.len() as i64));
    }
    let len = old.map_or(0, string::len);
    check_length(cx, len, tail)?;
    let len = string::set_range(&s, cx.prebuilt, &mut slot, len, tail).await?;
    s.notify(Events::STRING, "append", key);
    Ok(Reply::Int(len as i64))
}

const SETRANGE: Command = Command::new(
    Row::new(Group::String, "setrange", 4, "2.2.0")
        .flags(WRITES)
        .keys(KEY_RW)
        .syntax("key offset value")
        .summary("Overwrites part of a string.")
        .makes(Makes::Patched),
    handler!(setrange),
);

async fn setrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, offset, patch) = (args.next()?, args.int()?, args.next()?);
    let offset = u64::try_from(offset).map_err(|_| ReplyError::new("ERR offset is out of range"))?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let len = slot.string()?.map_or(0, string::len);
    if patch.is_empty() {
        return Ok(Reply::Int(len as i64));
    }
    check_length(cx, offset, patch)?;
    let len = string::set_range(&s, cx.prebuilt, &mut slot, offset, patch).await?;
    s.notify(Events::STRING, "setrange", key);
    Ok(Reply::Int(len as i64))
}

fn check_length(cx: &Cx<'_>, offset: u64, patch: &Bytes) -> Result<()> {
    if offset.saturating_add(patch.len() as u64) > cx.server.config.get().proto_max_bulk_len as u64 {
        return Err(TOO_LONG.into());
    }
    Ok(())
}

const TOO_LONG: ReplyError = ReplyError::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
