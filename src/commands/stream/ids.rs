//! The ids of entries as clients write them.

use crate::commands::args::ArgResult;
use crate::error::{ReplyError, Result};
use crate::keyspace::Scope;
use crate::spec::words::parse_i64;
use crate::spec::{ReadOption, read_option};
use crate::types::stream::add::Wanted;
use crate::types::stream::range::{self, Span};
use crate::types::stream::{Id, StreamRep};
use bytes::Bytes;

/// An argument is not an id.
pub(crate) const INVALID: ReplyError =
    ReplyError::new("ERR Invalid stream ID specified as stream command argument");
/// Bytes of an argument, at most.
const LONGEST: usize = 127;

/// A number, as Redis reads it: space and a sign may precede its digits.
fn number(raw: &[u8]) -> Option<u64> {
    let raw = raw.trim_ascii_start();
    let digits = raw.strip_prefix(b"+").unwrap_or(raw);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |n, byte| match byte {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// The two numbers of an id; the second as it is written.
fn split(raw: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    if raw.len() > LONGEST {
        return None;
    }
    let raw = raw.split(|byte| *byte == 0).next().unwrap_or(raw);
    match raw.iter().position(|byte| *byte == b'-') {
        None => Some((number(raw)?, None)),
        Some(at) => Some((number(raw.get(..at)?)?, raw.get(at + 1..))),
    }
}

/// An id, whose second number is `missing` unless it is given.
pub(crate) fn parse(raw: &[u8], missing: u64) -> ArgResult<Id> {
    let found = || {
        let (ms, seq) = split(raw).filter(|_| raw != b"-" && raw != b"+")?;
        Some(Id::new(ms, seq.map_or(Some(missing), number)?))
    };
    found().ok_or(INVALID)
}

/// The same; `-` is the smallest and `+` the largest id.
pub(crate) fn parse_any(raw: &[u8], missing: u64) -> ArgResult<Id> {
    match raw {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        raw => parse(raw, missing),
    }
}

/// The ids from the first to the second argument, each of which an opening parenthesis excludes.
pub(crate) fn span(from: &[u8], to: &[u8]) -> ArgResult<Span> {
    let bound = |raw: &[u8], missing| match raw {
        [b'(', rest @ ..] if !rest.is_empty() => Ok((parse(rest, missing)?, true)),
        raw => Ok((parse_any(raw, missing)?, false)),
    };
    let (from, is_open) = bound(from, 0)?;
    let from = if is_open { from.next() } else { Some(from) };
    let from = from.ok_or(ReplyError::new("ERR invalid start ID for the interval"))?;
    let (to, is_open) = bound(to, u64::MAX)?;
    let to = if is_open { to.previous() } else { Some(to) };
    Ok((from, to.ok_or(ReplyError::new("ERR invalid end ID for the interval"))?))
}

/// The id that XADD gives an entry.
pub(crate) fn wanted(raw: &[u8]) -> ArgResult<Wanted> {
    if raw == b"*" {
        return Ok(Wanted::Now);
    }
    match split(raw) {
        Some((ms, Some(b"*"))) => Ok(Wanted::At(ms)),
        _ => parse(raw, 0).map(Wanted::This),
    }
}

/// Whether an id of XREAD names the end of its stream: `$`, what comes from now on; `+`, that and the last entry.
pub(crate) fn is_end(raw: &[u8]) -> bool {
    matches!(raw, b"$" | b"+")
}

/// The id that such a name means: entries behind it are read.
pub(crate) async fn end(s: &Scope<'_>, rep: Option<&StreamRep>, raw: &[u8]) -> Result<Id> {
    let Some(rep) = rep else { return Ok(Id::MIN) };
    if raw != b"+" {
        return Ok(rep.last);
    }
    let last = range::end(s, rep, (Id::MIN, Id::MAX), true).await?;
    Ok(last.and_then(Id::previous).unwrap_or(Id::MIN))
}

/// Since when an entry must be pending for a call of XREADGROUP to claim it, in milliseconds.
pub(crate) fn min_idle(argv: &[Bytes]) -> Option<u64> {
    let raw = read_option(ReadOption::Claim, argv)?.first()?;
    parse_i64(raw).and_then(|ms| u64::try_from(ms).ok())
}

/// The group that a call of XREADGROUP names.
pub(crate) fn group(argv: &[Bytes]) -> Option<&Bytes> {
    read_option(ReadOption::Group, argv)?.first()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As redis-server 7.0 answers.
    #[test]
    fn ids_are_read_as_redis_does() {
        for (raw, wanted) in [
            ("5", Some((5, 9))),
            ("5-7", Some((5, 7))),
            ("5-", None),
            ("-5", None),
            ("+5-+7", Some((5, 7))),
            ("007-08", Some((7, 8))),
            ("", None),
            ("18446744073709551615-18446744073709551615", Some((u64::MAX, u64::MAX))),
            ("18446744073709551616-1", None),
            ("-", None),
            ("+", None),
            ("5-7-8", None),
            ("5--7", None),
            ("5-*", None),
            ("5x", None),
            (" 5", Some((5, 9))),
            ("5 ", None),
            ("$", None),
            ("*", None),
        ] {
            let id = wanted.map(|(ms, seq)| Id::new(ms, seq));
            assert_eq!(parse(raw.as_bytes(), 9).ok(), id, "{raw}");
        }
        assert_eq!(parse(&[b'1'; LONGEST + 1], 0), Err(INVALID));
    }

    #[test]
    fn spans_may_exclude_their_ends() {
        let span = |from: &str, to: &str| span(from.as_bytes(), to.as_bytes()).ok();
        assert_eq!(span("-", "+"), Some((Id::MIN, Id::MAX)));
        assert_eq!(span("1", "2"), Some((Id::new(1, 0), Id::new(2, u64::MAX))));
        assert_eq!(span("(1", "(2"), Some((Id::new(1, 1), Id::new(2, u64::MAX - 1))));
        assert_eq!(span("(1-0", "(2-0"), Some((Id::new(1, 1), Id::new(1, u64::MAX))));
        for (from, to) in [("(-", "+"), ("-", "(+"), ("-", "(0-0"), ("(", "+")] {
            assert_eq!(span(from, to), None, "{from} {to}");
        }
        assert_eq!(span("(18446744073709551615", "+"), Some((Id::new(u64::MAX, 1), Id::MAX)));
    }

    #[test]
    fn new_ids_may_leave_numbers_open() {
        for (raw, expected) in [
            ("*", Some(Wanted::Now)),
            ("5-*", Some(Wanted::At(5))),
            ("5", Some(Wanted::This(Id::new(5, 0)))),
            ("5-7", Some(Wanted::This(Id::new(5, 7)))),
            ("5-**", None),
            ("-", None),
            ("$", None),
        ] {
            assert_eq!(wanted(raw.as_bytes()).ok(), expected, "{raw}");
        }
    }
}
