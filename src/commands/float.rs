//! The numbers of INCRBYFLOAT: C's `long double` on x86-64 (80 bits), parsed and printed exactly as Redis
//! does.
//!
//! Redis parses with `strtold`, adds with the x87 unit and prints `%.17Lf` without trailing zeros. Parsing
//! and adding are `rustc_apfloat`'s (correctly rounded, as glibc's); printing is exact integer arithmetic,
//! rounded half to even. Limits that Redis' sources set: input below 5 KiB, no leading space, no NaN, no
//! underflow to zero.

use num_bigint::BigUint;
use rustc_apfloat::ieee::{Double, X87DoubleExtended};
use rustc_apfloat::{Float, Round};

/// The longest input: Redis copies it into a buffer of 5 KiB.
const MAX_INPUT: usize = 5 * 1024 - 1;
/// Digits after the decimal point.
const DIGITS: usize = 17;

/// An 80-bit number, possibly infinite, never NaN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongDouble(X87DoubleExtended);

/// Redis' `string2ld`. None: not a number.
pub(crate) fn parse(raw: &[u8]) -> Option<LongDouble> {
    if raw.len() > MAX_INPUT {
        return None;
    }
    let (negative, rest) = match raw {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let number = match rest {
        [b'0', b'x' | b'X', hex @ ..] => parse_hex(hex)?,
        _ if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") => {
            X87DoubleExtended::INFINITY
        }
        _ => parse_decimal(rest)?,
    };
    Some(LongDouble(if negative { -number } else { number }))
}

/// The result of C's `strtod` for a hexadecimal number, after its sign and `0x`.
pub(crate) fn parse_hex_double(raw: &[u8]) -> Option<f64> {
    let number: Double = parse_hex(raw)?;
    u64::try_from(number.to_bits()).ok().map(f64::from_bits)
}

/// Splits `mantissa[e|p exponent]`; None if the mantissa has no digit, two points or other bytes, or the
/// exponent has no digit.
fn scan(raw: &[u8], digit: fn(&u8) -> bool, mark: u8) -> Option<(&str, Option<&str>)> {
    let text = std::str::from_utf8(raw).ok()?;
    let (mantissa, exponent) = match text.find([mark as char, mark.to_ascii_uppercase() as char]) {
        Some(at) => (text.get(..at)?, Some(text.get(at + 1..)?)),
        None => (text, None),
    };
    let digits = mantissa.bytes().filter(digit).count();
    let points = mantissa.bytes().filter(|b| *b == b'.').count();
    let exponent_ok = exponent.is_none_or(|e| {
        let unsigned = e.strip_prefix(['+', '-']).unwrap_or(e);
        !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit())
    });
    (digits > 0 && points <= 1 && digits + points == mantissa.len() && exponent_ok)
        .then_some((mantissa, exponent))
}

fn parse_decimal(raw: &[u8]) -> Option<X87DoubleExtended> {
    let (mantissa, exponent) = scan(raw, u8::is_ascii_digit, b'e')?;
    rounded(&format!("{mantissa}e{}", bounded(exponent)), mantissa)
}

/// Parses the text after `0x`.
fn parse_hex<F: Float>(raw: &[u8]) -> Option<F> {
    let (mantissa, exponent) = scan(raw, u8::is_ascii_hexdigit, b'p')?;
    rounded(&format!("0x{mantissa}p{}", bounded(exponent)), mantissa)
}

/// The exponent, limited to a size that no input of [`MAX_INPUT`] digits can bring back into range.
fn bounded(exponent: Option<&str>) -> i64 {
    let Some(text) = exponent else { return 0 };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.trim_start_matches('0');
    sign * if digits.len() > 6 { 999_999 } else { digits.parse().unwrap_or(0) }
}

/// Parses, and rejects what `strtold` reports as out of range: overflow, and underflow to zero.
fn rounded<F: Float>(text: &str, mantissa: &str) -> Option<F> {
    let zero = mantissa.bytes().all(|b| matches!(b, b'0' | b'.'));
    if zero {
        return Some(F::ZERO);
    }
    let number = F::from_str_r(text, Round::NearestTiesToEven).ok()?.value;
    number.is_finite_non_zero().then_some(number)
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.0.partial_cmp(&other.0)
    }
}

impl LongDouble {
    /// Zero.
    pub(crate) const ZERO: LongDouble = LongDouble(X87DoubleExtended::ZERO);
    /// The largest finite number.
    pub(crate) fn highest() -> LongDouble {
        LongDouble(X87DoubleExtended::largest())
    }
    /// The lowest finite number.
    pub(crate) fn lowest() -> LongDouble {
        LongDouble::highest().negated()
    }

    /// True if the number is not infinite.
    pub(crate) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The number with its sign inverted.
    pub(crate) fn negated(self) -> LongDouble {
        LongDouble(-self.0)
    }

    /// The sum; None if it is infinite or not a number.
    pub(crate) fn plus(self, other: LongDouble) -> Option<LongDouble> {
        let sum = (self.0 + other.0).value;
        sum.is_finite().then_some(LongDouble(sum))
    }

    /// `%.17Lf` without trailing zeros or point; minus zero is `0`. For finite numbers.
    pub(crate) fn to_fixed(self) -> String {
        let bits = self.0.to_bits();
        let mantissa = BigUint::from(bits as u64);
        let biased = (bits >> 64) as i32 & 0x7fff;
        let scaled = scale(mantissa * BigUint::from(10u32).pow(DIGITS as u32), biased.max(1) - 16383 - 63);
        let mut text = format!("{:0>1$}", scaled.to_string(), DIGITS + 1);
        text.insert(text.len() - DIGITS, '.');
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if bits >> 79 & 1 == 1 && text != "0" { format!("-{text}") } else { text.to_owned() }
    }
}

/// `n * 2^exponent`, rounded half to even.
fn scale(n: BigUint, exponent: i32) -> BigUint {
    let down = u64::from(exponent.min(0).unsigned_abs());
    if down == 0 {
        return n << exponent.unsigned_abs();
    }
    let floor = &n >> down;
    let half = n.bit(down - 1);
    let below = n.trailing_zeros().is_some_and(|zeros| zeros < down - 1);
    if half && (below || floor.bit(0)) { floor + 1u32 } else { floor }
}
