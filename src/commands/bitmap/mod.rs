//! Bitmaps: strings read and changed bit by bit. BITFIELD is in `field.rs`. Semantics and texts are Redis
//! 7.0's; those of BITOP's newer operations are 8.2's.

mod field;

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KEY_CHANGED, KEY_RO, KeySpec, Makes, Row};
use crate::store::Read;
use crate::types::object;
use crate::types::string::Str;
use crate::types::string::combine::{self, BitOp};
use crate::types::string::{bits, len};

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const COMBINED: &[KeySpec] = &[
    KeySpec { flags: &["OW", "update"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } },
    KeySpec { flags: &["RO", "access"], begin: 3, find: FindKeys::Range { last: -1, step: 1 } },
];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[BITCOUNT, field::BITFIELD, field::BITFIELD_RO, BITOP, BITPOS, GETBIT, SETBIT];

const BAD_OFFSET: ReplyError = ReplyError::new("ERR bit offset is not an integer or out of range");
const BAD_BIT: ReplyError = ReplyError::new("ERR bit is not an integer or out of range");

/// A bit offset within the longest string. With `width`, `#n` is the n-th field of that many bits.
pub(super) fn offset(cx: &Cx<'_>, raw: &[u8], width: Option<u32>) -> ArgResult<u64> {
    let (raw, factor) = match (raw, width) {
        ([b'#', raw @ ..], Some(width)) => (raw, i64::from(width)),
        (raw, _) => (raw, 1),
    };
    let at = parse_i64(raw).and_then(|n| n.checked_mul(factor)).and_then(|n| u64::try_from(n).ok());
    let longest = cx.server.config.get().proto_max_bulk_len as u64;
    at.filter(|at| at / 8 < longest).ok_or(BAD_OFFSET)
}

const SETBIT: Command = Command::new(
    Row::new(Group::Bitmap, "setbit", 4, "2.2.0")
        .flags(WRITES)
        .keys(KEY_CHANGED)
        .syntax("key offset value")
        .summary("Sets or clears a bit of a string, and returns the old bit.")
        .types(&[("value", "integer")]),
    handler!(setbit),
);

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
        s.notify(Events::STRING, "setbit", key);
    }
    Ok(Reply::Int(old as i64))
}

const GETBIT: Command = Command::new(
    Row::new(Group::Bitmap, "getbit", 3, "2.2.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key offset")
        .summary("Returns a bit of a string."),
    handler!(getbit),
);

async fn getbit(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, at) = (args.next()?, offset(cx, args.next()?, None)?);
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    Ok(Reply::Int(bits::field(&s, slot.string()?, at, 1).await? as i64))
}

/// BYTE or BIT: the number of bits that an index counts.
fn unit(args: &mut Args<'_>) -> ArgResult<u64> {
    let unit = match () {
        () if args.is_empty() || args.keyword("BYTE") => 8,
        () if args.keyword("BIT") => 1,
        () => return Err(SYNTAX),
    };
    args.end()?;
    Ok(unit)
}

/// Inclusive indexes (negative: from the end of `total`) as half-open ones. Empty if start > end.
fn range(start: i64, end: i64, total: u64) -> (u64, u64) {
    let absolute = |i: i64| if i < 0 { (total as i64).saturating_add(i).max(0) } else { i } as u64;
    let (start, end) = (absolute(start), absolute(end).saturating_add(1).min(total));
    (start.min(end), end)
}

const BITCOUNT: Command = Command::new(
    Row::new(Group::Bitmap, "bitcount", -2, "2.6.0")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key [range: start end [unit: BYTE | BIT]]")
        .summary("Counts the set bits in a string."),
    handler!(bitcount),
);

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

const BITPOS: Command = Command::new(
    Row::new(Group::Bitmap, "bitpos", -3, "2.8.7")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key bit [range: start [end-unit-block: end [unit: BYTE | BIT]]]")
        .summary("Finds the first set or clear bit in a string."),
    handler!(bitpos),
);

/// Without an end argument, the string counts as followed by zeroes.
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

/// The operation with this name.
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

const BITOP: Command = Command::new(
    Row::new(Group::Bitmap, "bitop", -4, "2.6.0")
        .flags(WRITES)
        .keys(COMBINED)
        .syntax("<operation: AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]")
        .summary("Combines strings bit by bit and stores the result.")
        .makes(Makes::Bits),
    handler!(bitop),
);

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
    let len = combine::combine(&s, cx.prebuilt, &mut slot, op, &sources).await?;
    match len {
        0 if existed => s.notify(Events::GENERIC, "del", target),
        0 => {}
        _ => s.notify(Events::STRING, "set", target),
    }
    Ok(Reply::Int(len as i64))
}
