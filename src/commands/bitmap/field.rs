//! BITFIELD: a list of operations on integers of 1 to 64 bits inside a string. All operations are parsed
//! before the first one runs.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::bitmap::offset;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, KEY_RO, KeySpec, Row, Variable, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::string::{self, PIECE, bits};

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const FIELDS: &[KeySpec] = &[one(&["RW", "access", "update", "variable_flags"])];

const BAD_TYPE: ReplyError = ReplyError::new(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);

/// How to handle a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// Keep the low bits.
    Wrap,
    /// Use the nearest number that fits.
    Sat,
    /// Write nothing, reply nil.
    Fail,
}

/// `i8`, `u63`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldType {
    signed: bool,
    bits: u32,
}

impl FieldType {
    fn parse(raw: &[u8]) -> ArgResult<Self> {
        let (signed, bits) = match raw {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return Err(BAD_TYPE),
        };
        let bits = bits.split(|b| *b == 0).next().and_then(parse_i64).and_then(|n| u32::try_from(n).ok());
        let most = if signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=most).contains(bits)).ok_or(BAD_TYPE)?;
        Ok(FieldType { signed, bits })
    }

    /// The number that these bits represent.
    fn number(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.signed { i128::from((bits << unused).cast_signed() >> unused) } else { i128::from(bits) }
    }

    /// The low bits of `n` as a number.
    fn wrap(self, n: i128) -> i128 {
        self.number(n as u64 & (u64::MAX >> (64 - self.bits)))
    }

    /// Redis' view of a signed operand of SET: its comparison with the largest number that fits overflows for
    /// the lowest operands, so that they count as too large, and SAT replaces them by that number. The low
    /// bits are kept.
    fn compared(self, n: i64) -> i128 {
        let max = (1i128 << (self.bits - 1)) - 1;
        let overflows = self.bits < 64 && max - i128::from(n) > i128::from(i64::MAX);
        i128::from(n) + if overflows { 1 << 64 } else { 0 }
    }

    /// `n`, adjusted if it does not fit. None: nothing is written.
    fn fit(self, n: i128, overflow: Overflow) -> Option<i128> {
        let (min, max) = match (self.signed, self.bits) {
            (true, bits) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            (false, bits) => (0, (1i128 << bits) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&n) => Some(n),
            Overflow::Wrap => Some(self.wrap(n)),
            Overflow::Sat => Some(n.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

/// An operation on a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    IncrBy(i64, Overflow),
}

#[derive(Debug, Clone, Copy)]
struct Op {
    kind: FieldType,
    offset: u64,
    action: Action,
}

impl Op {
    fn writes(&self) -> bool {
        self.action != Action::Get
    }

    /// The length that a string needs to hold the field, in bytes.
    fn reach(&self) -> u64 {
        (self.offset + u64::from(self.kind.bits)).div_ceil(8)
    }
}

fn parse(cx: &Cx<'_>, mut args: Args<'_>) -> ArgResult<Vec<Op>> {
    let (mut ops, mut overflow) = (Vec::new(), Overflow::Wrap);
    while !args.is_empty() {
        let left = args.len() - 1;
        if left >= 1 && args.keyword("OVERFLOW") {
            overflow = match args.next()?.to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Sat,
                b"fail" => Overflow::Fail,
                _ => return Err(ReplyError::new("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let action: fn(i64, Overflow) -> Action = match () {
            () if left >= 2 && args.keyword("GET") => |_, _| Action::Get,
            () if left >= 3 && args.keyword("SET") => Action::Set,
            () if left >= 3 && args.keyword("INCRBY") => Action::IncrBy,
            () => return Err(SYNTAX),
        };
        let kind = FieldType::parse(args.next()?)?;
        let offset = offset(cx, args.next()?, Some(kind.bits))?;
        let reads = action(0, overflow) == Action::Get;
        let operand = if reads { 0 } else { parse_i64(args.next()?).ok_or(NOT_INTEGER)? };
        ops.push(Op { kind, offset, action: action(operand, overflow) });
    }
    Ok(ops)
}

pub(super) const BITFIELD: Command = Command::new(
    Row::new(Group::Bitmap, "bitfield", -2, "3.2.0")
        .flags(WRITES)
        .keys(FIELDS)
        .syntax(
            "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | \
             INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | \
             FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]]",
        )
        .summary("Reads and changes integers of any width inside a string.")
        .variable(Variable::Operations),
    handler!(bitfield),
);

async fn bitfield(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let ops = parse(cx, args)?;
    let s = cx.scope()?;
    let reach = ops.iter().filter(|op| op.writes()).map(Op::reach).max();
    let mut slot = match reach {
        None => cx.look_up(&s, key).await?,
        Some(_) => object::open(&s, key, Read::Serializable).await?,
    };
    let len = slot.string()?.map_or(0, string::len).max(reach.unwrap_or(0));
    cx.light(len.min(PIECE as u64) * ops.len() as u64)?;
    let mut changed = match reach {
        Some(reach) => bits::grow(&s, &mut slot, reach).await?,
        None => false,
    };
    let mut replies = Vec::with_capacity(ops.len());
    for op in ops {
        replies.push(run(&s, &mut slot, op, &mut changed).await?);
    }
    if changed {
        s.notify(Events::STRING, "setbit", key);
    }
    Ok(Reply::Array(replies))
}

pub(super) const BITFIELD_RO: Command = Command::new(
    Row::new(Group::Bitmap, "bitfield_ro", -2, "6.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key [get-block: GET encoding offset [GET encoding offset ...]]")
        .summary("Reads integers of any width inside a string."),
    handler!(bitfield_ro),
);

async fn bitfield_ro(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let ops = parse(cx, args)?;
    if ops.iter().any(Op::writes) {
        return Err(ReplyError::new("ERR BITFIELD_RO only supports the GET subcommand").into());
    }
    let s = cx.scope()?;
    let mut slot = cx.look_up(&s, key).await?;
    slot.string()?;
    let mut replies = Vec::with_capacity(ops.len());
    for op in ops {
        replies.push(run(&s, &mut slot, op, &mut false).await?);
    }
    Ok(Reply::Array(replies))
}

/// SET returns the old number, INCRBY the new one. An unchanged number is not written.
async fn run(
    s: &Scope<'_>,
    slot: &mut Slot,
    Op { kind, offset, action }: Op,
    changed: &mut bool,
) -> Result<Reply> {
    let old = kind.number(bits::field(s, slot.string()?, offset, kind.bits).await?);
    let new = match action {
        Action::Get => return Ok(Reply::Int(old as i64)),
        // As in Redis: a negative operand is a large unsigned number.
        Action::Set(n, overflow) if !kind.signed => kind.fit(i128::from(n.cast_unsigned()), overflow),
        Action::Set(n, overflow) => kind.fit(kind.compared(n), overflow),
        Action::IncrBy(by, overflow) => kind.fit(old + i128::from(by), overflow),
    };
    let Some(new) = new else { return Ok(Reply::Nil) };
    if new != old {
        bits::set_field(s, slot, offset, kind.bits, new as u64).await?;
        *changed = true;
    }
    let answer = if matches!(action, Action::Set(..)) { old } else { new };
    Ok(Reply::Int(answer as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit() {
        let i8 = FieldType::parse(b"i8").unwrap();
        assert_eq!([127, 128, -128, -129, 300].map(|n| i8.wrap(n)), [127, -128, -128, 127, 44]);
        assert_eq!([128, -129].map(|n| i8.fit(n, Overflow::Sat)), [Some(127), Some(-128)]);
        assert_eq!(i8.fit(128, Overflow::Fail), None);
        assert_eq!(
            [i64::MIN + 127, i64::MIN + 128].map(|n| i8.fit(i8.compared(n), Overflow::Sat)),
            [Some(127), Some(-128)]
        );
        let u2 = FieldType::parse(b"u2").unwrap();
        assert_eq!([3, 4, -1].map(|n| u2.wrap(n)), [3, 0, 3]);
        let i64 = FieldType::parse(b"i64").unwrap();
        assert_eq!(i64.wrap(i128::from(i64::MAX) + 1), i128::from(i64::MIN));
        for raw in [&b"u64"[..], b"i65", b"i0", b"I8", b"8", b"", b"u", b"i+1"] {
            assert_eq!(FieldType::parse(raw), Err(BAD_TYPE));
        }
    }
}
