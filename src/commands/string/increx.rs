//! INCREX (Redis 8.8): increments a number within bounds, and sets an expiry with it.
//!
//! A result outside the bounds or the type's range leaves key and expiry unchanged: the reply is the old
//! value and 0. With SATURATE the result is the bound instead, and the reply says how much was added. A value
//! that was already outside, and would stay outside on the same side, is never moved.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::float::{self, LongDouble};
use crate::commands::string::set::{Ttl, store};
use crate::config::Events;
use crate::error::{NOT_FLOAT, NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::Protocol;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, KEY_CHANGED, Row};
use crate::store::Read;
use crate::types::Value;
use crate::types::object::{self, Slot};
use crate::types::string;
use crate::types::string::Str;
use bytes::Bytes;
use std::cmp::Ordering;

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);

const ENX_ALONE: ReplyError = ReplyError::new("ERR ENX flag requires an expiration");
const BOUNDS_CROSS: ReplyError = ReplyError::new("ERR LBOUND can't be greater than UBOUND");
const NO_FINITE: ReplyError = ReplyError::new("ERR increment would produce NaN or Infinity");

/// The unparsed arguments: their order is free, and the type that determines how they are parsed may come
/// last.
#[derive(Default)]
struct IncrexOptions<'a> {
    by_int: Option<&'a Bytes>,
    by_float: Option<&'a Bytes>,
    lower: Option<&'a Bytes>,
    upper: Option<&'a Bytes>,
    saturate: bool,
    ttl: Ttl<'a>,
    only_without: bool,
}

impl<'a> IncrexOptions<'a> {
    fn parse(mut args: Args<'a>) -> ArgResult<Self> {
        let mut options = IncrexOptions::default();
        while !args.is_empty() {
            if args.keyword("SATURATE") {
                options.saturate = true;
            } else if args.keyword("ENX") {
                options.only_without = true;
            } else if !options.value(&mut args)?
                && !options.ttl.option(&mut args, ("PERSIST", Ttl::Persist))?
            {
                return Err(SYNTAX);
            }
        }
        if options.by_int.is_some() && options.by_float.is_some() {
            return Err(SYNTAX);
        }
        match options.ttl {
            Ttl::Default if options.only_without => Err(ENX_ALONE),
            Ttl::Persist if options.only_without => Err(SYNTAX),
            _ => Ok(options),
        }
    }

    /// Parses an option with a number; false if the next argument is no such option.
    fn value(&mut self, args: &mut Args<'a>) -> ArgResult<bool> {
        let IncrexOptions { by_int, by_float, lower, upper, .. } = self;
        for (word, place) in [("BYINT", by_int), ("BYFLOAT", by_float), ("LBOUND", lower), ("UBOUND", upper)]
        {
            if args.keyword(word) {
                let value = args.next()?;
                return if place.replace(value).is_none() { Ok(true) } else { Err(SYNTAX) };
            }
        }
        Ok(false)
    }
}

/// A type that INCREX counts in.
trait Number: Copy + PartialOrd {
    const NO_NUMBER: ReplyError;
    const ZERO: Self;
    fn lowest() -> Self;
    fn highest() -> Self;

    fn read(raw: &[u8]) -> Option<Self>;
    /// None: beyond [`Number::lowest`] or [`Number::highest`].
    fn plus(self, other: Self) -> Option<Self>;
    fn minus(self, other: Self) -> Self;
    fn text(self) -> Bytes;
    fn value(self) -> Str;
    fn reply(self, protocol: Protocol) -> Reply;
}

impl Number for i64 {
    const NO_NUMBER: ReplyError = NOT_INTEGER;
    const ZERO: Self = 0;

    fn lowest() -> Self {
        i64::MIN
    }
    fn highest() -> Self {
        i64::MAX
    }
    fn read(raw: &[u8]) -> Option<Self> {
        parse_i64(raw)
    }
    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
    fn text(self) -> Bytes {
        itoa::Buffer::new().format(self).to_owned().into()
    }
    fn value(self) -> Str {
        Str::Inline(self.text())
    }
    fn reply(self, _: Protocol) -> Reply {
        Reply::Int(self)
    }
}

impl Number for LongDouble {
    const NO_NUMBER: ReplyError = NOT_FLOAT;
    const ZERO: Self = LongDouble::ZERO;

    fn lowest() -> Self {
        LongDouble::lowest()
    }
    fn highest() -> Self {
        LongDouble::highest()
    }
    fn read(raw: &[u8]) -> Option<Self> {
        float::parse(raw)
    }
    fn plus(self, other: Self) -> Option<Self> {
        LongDouble::plus(self, other)
    }
    fn minus(self, other: Self) -> Self {
        LongDouble::plus(self, other.negated()).unwrap_or(LongDouble::ZERO)
    }
    fn text(self) -> Bytes {
        self.to_fixed().into()
    }
    fn value(self) -> Str {
        Str::Made { bytes: self.text(), raw: false }
    }
    fn reply(self, protocol: Protocol) -> Reply {
        let text = self.text();
        let double = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        match (protocol, double) {
            (Protocol::Resp3, Some(double)) => Reply::Double(double),
            _ => Reply::Bulk(text),
        }
    }
}

/// The result of a step, and the amount added. None: refused.
fn step<N: Number>(old: N, by: N, (lower, upper): (N, N), saturate: bool) -> Option<(N, N)> {
    let sum = old.plus(by);
    // Beyond the type's range counts as beyond the bound on that side.
    let up = by.partial_cmp(&N::ZERO) == Some(Ordering::Greater);
    let over = sum.map_or(up, |sum| sum > upper);
    let under = sum.map_or(!up, |sum| sum < lower);
    let new = match (over, under) {
        (false, false) => sum?,
        _ if !saturate || (over && old > upper) || (under && old < lower) => return None,
        (true, _) => upper,
        _ => lower,
    };
    Some((new, new.minus(old)))
}

pub(super) const INCREX: Command = Command::new(
    Row::new(Group::String, "increx", -2, "8.8.0")
        .flags(WRITES.or(Flags::FAST))
        .keys(KEY_CHANGED)
        .syntax(
            "key [BYFLOAT float | BYINT integer] [SATURATE] [LBOUND lowerbound] [UBOUND upperbound] \
             [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | \
             PERSIST] [ENX]",
        )
        .summary("Adds to a number within bounds, and sets its expiry."),
    handler!(increx),
);

async fn increx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let options = IncrexOptions::parse(args)?;
    match options.by_float {
        Some(by) => {
            let by = LongDouble::read(by).ok_or(NOT_FLOAT)?;
            if !by.is_finite() {
                return Err(NO_FINITE.into());
            }
            run(cx, key, by, &options).await
        }
        None => {
            let by = options.by_int.map_or(Some(1), |raw| parse_i64(raw)).ok_or(NOT_INTEGER)?;
            run(cx, key, by, &options).await
        }
    }
}

async fn run<N: Number>(cx: &Cx<'_>, key: &Bytes, by: N, options: &IncrexOptions<'_>) -> Result<Reply> {
    let bound = |raw: Option<&Bytes>, none| raw.map_or(Some(none), |raw| N::read(raw)).ok_or(N::NO_NUMBER);
    let bounds = (bound(options.lower, N::lowest())?, bound(options.upper, N::highest())?);
    if bounds.0 > bounds.1 {
        return Err(BOUNDS_CROSS.into());
    }
    let expiry = options.ttl.resolve(cx.now, "increx")?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = match slot.string()?.map(string::inline) {
        None => N::ZERO,
        Some(raw) => raw.and_then(|raw| N::read(raw)).ok_or(N::NO_NUMBER)?,
    };
    let protocol = cx.client.protocol;
    let Some((new, added)) = step(old, by, bounds, options.saturate) else {
        return Ok(Reply::Array(vec![old.reply(protocol), N::ZERO.reply(protocol)]));
    };
    let expiry = life(&slot, options, expiry);
    if expiry.is_some_and(|at| at <= cx.now) {
        store(cx, &mut slot, &new.text(), expiry, true).await?;
    } else {
        let timed = expiry.is_some() && expiry != slot.expire_at();
        object::put(&s, &mut slot, Value::Str(new.value()), expiry)?;
        let event = if options.by_float.is_some() { "incrbyfloat" } else { "incrby" };
        s.notify(Events::STRING, event, key);
        if timed {
            s.notify(Events::GENERIC, "expire", key);
        }
    }
    Ok(Reply::Array(vec![new.reply(protocol), added.reply(protocol)]))
}

/// The key's new expiry; `given`: the one that the options set.
fn life(slot: &Slot, options: &IncrexOptions<'_>, given: Option<u64>) -> Option<u64> {
    match options.ttl {
        Ttl::Persist => None,
        Ttl::Set(..) if !options.only_without || slot.expire_at().is_none() => given,
        _ => slot.expire_at(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let all = (i64::MIN, i64::MAX);
        assert_eq!(step(5, 3, all, false), Some((8, 3)));
        assert_eq!(step(i64::MAX, 1, all, false), None);
        assert_eq!(step(i64::MAX - 1, 5, all, true), Some((i64::MAX, 1)));
        assert_eq!(step(i64::MIN + 1, -5, all, true), Some((i64::MIN, -1)));
        assert_eq!(step(5, 10, (0, 10), false), None);
        assert_eq!(step(5, 10, (0, 10), true), Some((10, 5)));
        assert_eq!(step(10, 1, (0, 10), true), Some((10, 0)), "at the bound");
        assert_eq!(step(5, -10, (0, 10), true), Some((0, -5)));
        // It was outside before.
        assert_eq!(step(200, 100, (0, 100), true), None);
        assert_eq!(step(200, -50, (0, 100), true), None, "still outside");
        assert_eq!(step(200, -150, (0, 100), false), Some((50, -150)));
        assert_eq!(step(200, -500, (0, 100), true), Some((0, -200)), "beyond the other bound");
    }
}
