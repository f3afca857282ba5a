//! Bitmaps: strings read and changed bit by bit. BITFIELD is in `bitfield.rs`. Semantics and texts are Redis 7.0's, those of BITOP's newer operations
//! 8.2's.

use super::args::{ArgResult, Args, parse_i64};
use super::bitfield::{bitfield, bitfield_ro};
use super::cx::Cx;
use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KEY_RO, KeySpec, Row, one};
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::record::Str;
use crate::store::Read;
use crate::types::object;
use crate::types::string::combine::{self, BitOp};
use crate::types::string::{bits, len};

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const CHANGED: &[KeySpec] = &[one(&["RW", "access", "update"])];
const FIELDS: &[KeySpec] = &[one(&["RW", "access", "update", "variable_flags"])];
const COMBINED: &[KeySpec] = &[
    KeySpec { flags: &["OW", "update"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } },
    KeySpec { flags: &["RO", "access"], begin: 3, find: FindKeys::Range { last: -1, step: 1 } },
];

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "bitcount",
        arity: -2,
        flags: Flags::READONLY,
        keys: KEY_RO,
        group: Group::Bitmap,
        since: "2.6.0",
        syntax: "key [range: start end [unit: BYTE | BIT]]",
        summary: "Counts the ones in a string.",
        run: handler!(bitcount),
        subs: &[],
    },
    Row {
        name: "bitfield",
        arity: -2,
        flags: WRITES,
        keys: FIELDS,
        group: Group::Bitmap,
        since: "3.2.0",
        syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]]",
        summary: "Reads and changes integers of any width inside a string.",
        run: handler!(bitfield),
        subs: &[],
    },
    Row {
        name: "bitfield_ro",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: KEY_RO,
        group: Group::Bitmap,
        since: "6.0.0",
        syntax: "key [get-block: GET encoding offset [GET encoding offset ...]]",
        summary: "Reads integers of any width inside a string.",
        run: handler!(bitfield_ro),
        subs: &[],
    },
    Row {
        name: "bitop",
        arity: -4,
        flags: WRITES,
        keys: COMBINED,
        group: Group::Bitmap,
        since: "2.6.0",
        syntax: "<operation: AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
        summary: "Stores the combination of strings bit by bit.",
        run: handler!(bitop),
        subs: &[],
    },
    Row {
        name: "bitpos",
        arity: -3,
        flags: Flags::READONLY,
        keys: KEY_RO,
        group: Group::Bitmap,
        since: "2.8.7",
        syntax: "key bit [range: start [end-unit-block: end [unit: BYTE | BIT]]]",
        summary: "Finds the first bit that is one, or zero.",
        run: handler!(bitpos),
        subs: &[],
    },
    Row {
        name: "getbit",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        keys: KEY_RO,
        group: Group::Bitmap,
        since: "2.2.0",
        syntax: "key offset",
        summary: "Returns a bit of a string.",
        run: handler!(getbit),
        subs: &[],
    },
    Row {
        name: "setbit",
        arity: 4,
        flags: WRITES,
        keys: CHANGED,
        group: Group::Bitmap,
        since: "2.2.0",
        syntax: "key offset value",
        summary: "Changes a bit of a string and returns what it was.",
        run: handler!(setbit),
        subs: &[],
    },
];

const BAD_OFFSET: ReplyError = ReplyError::new("ERR bit offset is not an integer or out of range");
const BAD_BIT: ReplyError = ReplyError::new("ERR bit is not an integer or out of range");

/// A bit's place, inside the longest string. `width`: `#n` stands for the n-th field of so many bits.
pub(super) fn offset(cx: &Cx<'_>, raw: &[u8], width: Option<u32>) -> ArgResult<u64> {
    let (raw, factor) = match (raw, width) {
        ([b'#', raw @ ..], Some(width)) => (raw, i64::from(width)),
        (raw, _) => (raw, 1),
    };
    let at = parse_i64(raw).and_then(|n| n.checked_mul(factor)).and_then(|n| u64::try_from(n).ok());
    let longest = cx.server.config.get().proto_max_bulk_len as u64;
    at.filter(|at| at / 8 < longest).ok_or(BAD_OFFSET)
}

async fn setbit(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, at) = (args.next()?, offset(cx, args.next()?, None)?);
    let new =
        parse_i64(args.next()?).and_then(|n| u64::try_from(n).ok()).filter(|n| *n <= 1).ok_or(BAD_BIT)?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = bits::field(&s, slot.string()?, at, 1).await?;
    let inside = slot.string()?.is_some_and(|value| at / 8 < len(value));
    if !inside || old != new {
        bits::set_field(&s, &mut slot, at, 1, new).await?;
        s.tell(Events::STRING, "setbit", key);
    }
    Ok(Reply::Int(old as i64))
}

async fn getbit(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, at) = (args.next()?, offset(cx, args.next()?, None)?);
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    Ok(Reply::Int(bits::field(&s, slot.string()?, at, 1).await? as i64))
}

/// BYTE or BIT: how many bits an index counts.
fn unit(args: &mut Args<'_>) -> ArgResult<u64> {
    let unit = match () {
        () if args.is_empty() || args.keyword("BYTE") => 8,
        () if args.keyword("BIT") => 1,
        () => return Err(SYNTAX),
    };
    args.end()?;
    Ok(unit)
}

/// Indexes with both ends included (negative: from the end of `total`) as half-open indexes. Empty where start > end.
fn range(start: i64, end: i64, total: u64) -> (u64, u64) {
    let absolute = |i: i64| if i < 0 { (total as i64).saturating_add(i).max(0) } else { i } as u64;
    let (start, end) = (absolute(start), absolute(end).saturating_add(1).min(total));
    (start.min(end), end)
}

async fn bitcount(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    let Some(value) = slot.string()? else { return Ok(Reply::Int(0)) };
    let (from, to) = match args.len() {
        0 => (0, len(value) * 8),
        2 | 3 => {
            let (start, end) = (args.int()?, args.int()?);
            if start < 0 && end < 0 && start > end {
                return Ok(Reply::Int(0));
            }
            let unit = unit(&mut args)?;
            let (start, end) = range(start, end, len(value) * 8 / unit);
            (start * unit, end * unit)
        }
        _ => return Err(SYNTAX.into()),
    };
    Ok(Reply::Int(bits::count(&s, value, from, to).await? as i64))
}

/// Without an end, the string counts as followed by zeroes.
async fn bitpos(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, bit) = (args.next()?, args.int()?);
    if bit != 0 && bit != 1 {
        return Err(ReplyError::new("ERR The bit argument must be 1 or 0.").into());
    }
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    let Some(value) = slot.string()? else { return Ok(Reply::Int(-bit)) };
    let (from, to, open) = span(args, len(value))?;
    let found = bits::position(&s, value, bit == 1, from, to).await?;
    Ok(Reply::Int(match found {
        Some(at) => at as i64,
        None if open && bit == 0 && from < to => to as i64,
        None => -1,
    }))
}

/// BITPOS' range in bits, and whether no end was given.
fn span(mut args: Args<'_>, bytes: u64) -> ArgResult<(u64, u64, bool)> {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let start = if args.is_empty() { 0 } else { args.int()? };
    let end = args.peek();
    let unit =
        if end.is_some() { unit(&mut Args::new(args.rest().get(1..).unwrap_or_default()))? } else { 8 };
    let last = end.map_or(Ok(-1), |raw| parse_i64(raw).ok_or(NOT_INTEGER))?;
    let (from, to) = range(start, last, bytes * 8 / unit);
    Ok((from * unit, to * unit, end.is_none()))
}

/// The operation of this name.
pub(super) fn operation(name: &[u8]) -> Option<BitOp> {
    Some(match name.to_ascii_lowercase().as_slice() {
        b"and" => BitOp::And,
        b"or" => BitOp::Or,
        b"xor" => BitOp::Xor,
        b"not" => BitOp::Not,
        b"diff" => BitOp::Diff,
        b"diff1" => BitOp::Diff1,
        b"andor" => BitOp::AndOr,
        b"one" => BitOp::One,
        _ => return None,
    })
}

async fn bitop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let name = args.next()?;
    let op = operation(name).ok_or(SYNTAX)?;
    let target = args.next()?;
    if op == BitOp::Not && args.len() != 1 {
        return Err(ReplyError::new("ERR BITOP NOT must be called with a single source key.").into());
    }
    if op.needs_two() && args.len() < 2 {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let error = format!("ERR BITOP {name} must be called with at least two source keys.");
        return Err(ReplyError::of(error).into());
    }
    let s = cx.scope()?;
    let mut sources: Vec<Option<Str>> = Vec::with_capacity(args.len());
    for key in args.rest() {
        sources.push(cx.look_up(&s, key).await?.string()?.cloned());
    }
    cx.light(combine::weight(&sources))?;
    let mut slot = object::open(&s, target, Read::Serializable).await?;
    let existed = slot.exists();
    let len = combine::combine(&s, cx.staged, &mut slot, op, &sources).await?;
    match len {
        0 if existed => s.tell(Events::GENERIC, "del", target),
        0 => {}
        _ => s.tell(Events::STRING, "set", target),
    }
    Ok(Reply::Int(len as i64))
}
