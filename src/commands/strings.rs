//! String commands. SET and its relatives that expire are in `strings_set.rs`, arithmetic is in `strings_numbers.rs`.

use super::args::Args;
use super::cx::Cx;
use super::reply::Reply;
use super::strings_numbers as numbers;
use super::strings_set::{getdel, getex, getset, psetex, set, setex, setnx};
use super::table::{FindKeys, one};
use super::table::{Flags, Group, KEY_META, KEY_OW, KEY_RO, KEY_RW, KEYS_RO, KeySpec, PAIRS_OW, Row};
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::keyspace::record::Str;
use crate::store::Read;
use crate::types::{object, string};
use bytes::Bytes;

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const WRITES_FAST: Flags = WRITES.or(Flags::FAST);
const READS_FAST: Flags = Flags::READONLY.or(Flags::FAST);

const SET_KEY: &[KeySpec] = &[one(&["RW", "access", "update", "variable_flags"])];
const CHANGED: &[KeySpec] = &[one(&["RW", "access", "update"])];
const TAKEN: &[KeySpec] = &[one(&["RW", "access", "delete"])];
const APPENDED: &[KeySpec] = &[one(&["RW", "insert"])];
const INSERTED: &[KeySpec] = &[one(&["OW", "insert"])];
const PAIRS_INSERTED: &[KeySpec] =
    &[KeySpec { flags: &["OW", "insert"], begin: 1, find: FindKeys::Range { last: -1, step: 2 } }];

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "append",
        arity: 3,
        flags: WRITES_FAST,
        keys: APPENDED,
        group: Group::String,
        since: "2.0.0",
        syntax: "key value",
        summary: "Appends to a string, which is created where the key is missing.",
        run: handler!(append),
        subs: &[],
    },
    Row {
        name: "decr",
        arity: 2,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key",
        summary: "Subtracts one from an integer.",
        run: handler!(numbers::decr),
        subs: &[],
    },
    Row {
        name: "decrby",
        arity: 3,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key decrement",
        summary: "Subtracts a number from an integer.",
        run: handler!(numbers::decrby),
        subs: &[],
    },
    Row {
        name: "get",
        arity: 2,
        flags: READS_FAST,
        keys: KEY_RO,
        group: Group::String,
        since: "1.0.0",
        syntax: "key",
        summary: "Returns the string value of a key.",
        run: handler!(get),
        subs: &[],
    },
    Row {
        name: "getdel",
        arity: 2,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: TAKEN,
        group: Group::String,
        since: "6.2.0",
        syntax: "key",
        summary: "Returns a string and removes its key.",
        run: handler!(getdel),
        subs: &[],
    },
    Row {
        name: "getex",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        keys: CHANGED,
        group: Group::String,
        since: "6.2.0",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        summary: "Returns a string and changes when it expires.",
        run: handler!(getex),
        subs: &[],
    },
    Row {
        name: "getrange",
        arity: 4,
        flags: Flags::READONLY,
        keys: KEY_RO,
        group: Group::String,
        since: "2.4.0",
        syntax: "key start end",
        summary: "Returns a part of a string.",
        run: handler!(getrange),
        subs: &[],
    },
    Row {
        name: "getset",
        arity: 3,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key value",
        summary: "Sets a string and returns the one before.",
        run: handler!(getset),
        subs: &[],
    },
    Row {
        name: "incr",
        arity: 2,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key",
        summary: "Adds one to an integer.",
        run: handler!(numbers::incr),
        subs: &[],
    },
    Row {
        name: "incrby",
        arity: 3,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key increment",
        summary: "Adds a number to an integer.",
        run: handler!(numbers::incrby),
        subs: &[],
    },
    Row {
        name: "incrbyfloat",
        arity: 3,
        flags: WRITES_FAST,
        keys: CHANGED,
        group: Group::String,
        since: "2.6.0",
        syntax: "key increment",
        summary: "Adds a floating point number.",
        run: handler!(numbers::incrbyfloat),
        subs: &[],
    },
    Row {
        name: "mget",
        arity: -2,
        flags: READS_FAST,
        keys: KEYS_RO,
        group: Group::String,
        since: "1.0.0",
        syntax: "key [key ...]",
        summary: "Returns several strings.",
        run: handler!(mget),
        subs: &[],
    },
    Row {
        name: "mset",
        arity: -3,
        flags: WRITES,
        keys: PAIRS_OW,
        group: Group::String,
        since: "1.0.1",
        syntax: "<data: key value> [key value ...]",
        summary: "Sets several strings at once.",
        run: handler!(mset),
        subs: &[],
    },
    Row {
        name: "msetnx",
        arity: -3,
        flags: WRITES,
        keys: PAIRS_INSERTED,
        group: Group::String,
        since: "1.0.1",
        syntax: "<data: key value> [key value ...]",
        summary: "Sets several strings if none of the keys exists.",
        run: handler!(msetnx),
        subs: &[],
    },
    Row {
        name: "psetex",
        arity: 4,
        flags: WRITES,
        keys: KEY_OW,
        group: Group::String,
        since: "2.6.0",
        syntax: "key milliseconds value",
        summary: "Sets a string that expires after milliseconds.",
        run: handler!(psetex),
        subs: &[],
    },
    Row {
        name: "set",
        arity: -3,
        flags: WRITES,
        keys: SET_KEY,
        group: Group::String,
        since: "1.0.0",
        syntax: "key value [condition: NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        summary: "Sets a string, on conditions and with an expiry if asked for.",
        run: handler!(set),
        subs: &[],
    },
    Row {
        name: "setex",
        arity: 4,
        flags: WRITES,
        keys: KEY_OW,
        group: Group::String,
        since: "2.0.0",
        syntax: "key seconds value",
        summary: "Sets a string that expires after seconds.",
        run: handler!(setex),
        subs: &[],
    },
    Row {
        name: "setnx",
        arity: 3,
        flags: WRITES_FAST,
        keys: INSERTED,
        group: Group::String,
        since: "1.0.0",
        syntax: "key value",
        summary: "Sets a string if the key does not exist.",
        run: handler!(setnx),
        subs: &[],
    },
    Row {
        name: "setrange",
        arity: 4,
        flags: WRITES,
        keys: KEY_RW,
        group: Group::String,
        since: "2.2.0",
        syntax: "key offset value",
        summary: "Overwrites a part of a string.",
        run: handler!(setrange),
        subs: &[],
    },
    Row {
        name: "strlen",
        arity: 2,
        flags: READS_FAST,
        keys: KEY_META,
        group: Group::String,
        since: "2.2.0",
        syntax: "key",
        summary: "Returns the length of a string in bytes.",
        run: handler!(strlen),
        subs: &[],
    },
    Row {
        name: "substr",
        arity: 4,
        flags: Flags::READONLY,
        keys: KEY_RO,
        group: Group::String,
        since: "1.0.0",
        syntax: "key start end",
        summary: "Returns a part of a string: GETRANGE's old name.",
        run: handler!(getrange),
        subs: &[],
    },
];

async fn get(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    cx.bulk(&s, &slot).await
}

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

async fn mset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    write_pairs(cx, pairs(&args, "mset")?).await?;
    Ok(Reply::Ok)
}

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
        string::write(&s, cx.staged, &mut slot, value, None).await?;
        s.tell(Events::STRING, "set", key);
    }
    Ok(())
}

async fn strlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let slot = cx.look_up(&cx.scope()?, args.next()?).await?;
    Ok(Reply::Int(slot.string()?.map_or(0, string::len) as i64))
}

async fn getrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, start, end) = (args.next()?, args.int()?, args.int()?);
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    let empty = Str::Inline(Bytes::new());
    let value = slot.string()?.unwrap_or(&empty);
    let (start, end) = clamp(start, end, string::len(value));
    cx.bulk_range(&s, &slot, value, (start, end)).await
}

/// GETRANGE's indexes (negative: from the end, the last one included) as a half-open range inside `len`.
fn clamp(start: i64, end: i64, len: u64) -> (u64, u64) {
    if start < 0 && end < 0 && start > end {
        return (0, 0);
    }
    let absolute = |i: i64| if i < 0 { (len as i64).saturating_add(i).max(0) } else { i } as u64;
    (absolute(start), absolute(end).saturating_add(1).min(len))
}

async fn append(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, tail) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = slot.string()?;
    if old.is_none() && tail.len() <= string::INLINE_MAX {
        // As SET: also in the eyes of OBJECT ENCODING.
        string::write(&s, &[], &mut slot, tail, None).await?;
        s.tell(Events::STRING, "append", key);
        return Ok(Reply::Int(tail.len() as i64));
    }
    let len = old.map_or(0, string::len);
    check_length(cx, len, tail)?;
    let len = string::set_range(&s, cx.staged, &mut slot, len, tail).await?;
    s.tell(Events::STRING, "append", key);
    Ok(Reply::Int(len as i64))
}

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
    let len = string::set_range(&s, cx.staged, &mut slot, offset, patch).await?;
    s.tell(Events::STRING, "setrange", key);
    Ok(Reply::Int(len as i64))
}

fn check_length(cx: &Cx<'_>, offset: u64, patch: &Bytes) -> Result<()> {
    if offset.saturating_add(patch.len() as u64) > cx.server.config.get().proto_max_bulk_len as u64 {
        return Err(TOO_LONG.into());
    }
    Ok(())
}

const TOO_LONG: ReplyError = ReplyError::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
