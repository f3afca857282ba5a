//! What commands that wait share: their flags, their keys, and their timeout: seconds, with a fraction.

use super::float;
use crate::error::ReplyError;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, KeySpec, Row, Waits, block};
use bytes::Bytes;
use std::time::Duration;

pub(crate) const BLOCKS: Flags = Flags::WRITE.or(Flags::BLOCKING);
/// The type of the argument.
pub(crate) const TIMEOUT: &[(&str, &str)] = &[("timeout", "double")];
/// Keys whose values lose something: all arguments but the last.
pub(crate) const TAKEN: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "delete"], begin: 1, find: FindKeys::Range { last: -2, step: 1 } }];
/// The same: as many as the second argument says.
pub(crate) const TAKEN_NUMBERED: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "delete"], begin: 2, find: FindKeys::Keynum { step: 1 } }];

const NO_NUMBER: ReplyError = ReplyError::new("ERR timeout is not a float or out of range");
const NO_INTEGER: ReplyError = ReplyError::new("ERR timeout is not an integer or out of range");
const NEGATIVE: ReplyError = ReplyError::new("ERR timeout is negative");
const TOO_LONG: ReplyError = ReplyError::new("ERR timeout is out of range");
/// Redis adds the time to the clock, in 63 bits of milliseconds.
const LONGEST_MS: f64 = (i64::MAX - (1 << 42)) as f64;

/// The timeout that an argument states; None: for ever.
pub(crate) fn timeout(raw: &[u8]) -> Result<Option<Duration>, ReplyError> {
    let number = float::parse(raw).ok_or(NO_NUMBER)?;
    let is_negative = raw.first() == Some(&b'-');
    let seconds: f64 = match number.is_finite() {
        true => number.to_fixed().parse().map_err(|_| NO_NUMBER)?,
        false => f64::INFINITY,
    };
    // A time below a millisecond is one, as in Redis.
    let ms = (seconds.abs() * 1000.0).ceil();
    match () {
        () if is_negative && (seconds != 0.0 || ms > 0.0) => Err(NEGATIVE),
        () if ms >= LONGEST_MS => Err(TOO_LONG),
        () => Ok((ms > 0.0).then(|| Duration::from_millis(ms as u64))),
    }
}

/// The timeout that an option BLOCK states; None: for ever.
pub(crate) fn milliseconds(raw: &[u8]) -> Result<Option<Duration>, ReplyError> {
    let ms = parse_i64(raw).ok_or(NO_INTEGER)?;
    let ms = u64::try_from(ms).map_err(|_| NEGATIVE)?;
    if ms as f64 >= LONGEST_MS {
        return Err(TOO_LONG);
    }
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// The timeout of a call that waits. None: the call does not wait, or its timeout is none.
pub(crate) fn of(row: &Row, argv: &[Bytes]) -> Option<Option<Duration>> {
    let raw = match row.waits {
        Waits::No => None,
        Waits::First => argv.get(1),
        Waits::Last => argv.last(),
        Waits::Block => return block(argv).and_then(|raw| milliseconds(raw).ok()),
    };
    timeout(raw?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As redis-server 8.6 answers.
    #[test]
    fn timeouts() {
        let ms = |n| Ok(Some(Duration::from_millis(n)));
        for (raw, wanted) in [
            ("0", Ok(None)),
            ("0.0", Ok(None)),
            ("-0", Ok(None)),
            ("1", ms(1000)),
            ("0.01", ms(10)),
            ("0.0001", ms(1)),
            ("1e-9", ms(1)),
            ("0x1p-10", ms(1)),
            ("1.5", ms(1500)),
            ("3600", ms(3_600_000)),
            ("-1", Err(NEGATIVE)),
            ("-0.001", Err(NEGATIVE)),
            ("-inf", Err(NEGATIVE)),
            ("inf", Err(TOO_LONG)),
            ("1e300", Err(TOO_LONG)),
            ("9223372036854775", Err(TOO_LONG)),
            ("nan", Err(NO_NUMBER)),
            ("x", Err(NO_NUMBER)),
            ("", Err(NO_NUMBER)),
            (" 1", Err(NO_NUMBER)),
            ("1 ", Err(NO_NUMBER)),
        ] {
            assert_eq!(timeout(raw.as_bytes()), wanted, "{raw}");
        }
    }
}
