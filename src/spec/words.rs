//! Parses arguments as numbers, and quotes them in errors.

use std::borrow::Cow;

/// The most bytes of a name or argument that an error quotes.
pub(crate) const MAX_QUOTED: usize = 128;

/// An argument as an error quotes it: up to its first NUL, because Redis prints it as a C string.
pub(crate) fn quoted(raw: &[u8]) -> Cow<'_, str> {
    quoted_up_to(raw, usize::MAX)
}

/// Like [`quoted`], with at most `max` bytes.
pub(crate) fn quoted_up_to(raw: &[u8], max: usize) -> Cow<'_, str> {
    let raw = raw.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(raw.get(..max).unwrap_or(raw))
}

/// Redis' `string2ll`: an optional minus, no plus, no leading zeros, no spaces, the whole input.
pub fn parse_i64(raw: &[u8]) -> Option<i64> {
    let (negative, digits) = match raw {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut n: u64 = 0; // of 19 digits
    for d in digits {
        if !d.is_ascii_digit() {
            return None;
        }
        n = n * 10 + u64::from(d - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(n) } else { i64::try_from(n).ok() }
}

/// C's `atoi`: spaces, a sign, then digits up to the first other byte; 0 if there are none.
pub fn atoi(raw: &[u8]) -> i32 {
    let raw = raw.trim_ascii_start();
    let (negative, digits) = match raw {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = digits.iter().take_while(|d| d.is_ascii_digit()).map(|d| i64::from(d - b'0'));
    // Truncated to an int like in C; a value beyond a long counts as the largest or smallest long.
    let sign = if negative { -1 } else { 1 };
    digits.fold(0i64, |n, digit| n.saturating_mul(10).saturating_add(sign * digit)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atoi_as_c_does_it() {
        let short = [("7", 7), (" +7x", 7), ("-3", -3), ("", 0), ("x", 0), ("007", 7)];
        let long = [("99999999999999999999", -1), ("-9223372036854775808", 0), ("-99999999999999999999", 0)];
        for (raw, n) in short.into_iter().chain(long) {
            assert_eq!(atoi(raw.as_bytes()), n, "{raw:?}");
        }
    }

    #[test]
    fn integers_as_redis_reads_them() {
        for (raw, n) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_i64(raw.as_bytes()), Some(n));
        }
        for raw in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "1.0",
            "123456789012345678901",
        ] {
            assert_eq!(parse_i64(raw.as_bytes()), None, "{raw}");
        }
    }
}
