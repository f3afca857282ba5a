//! How Redis writes doubles in replies.

/// The largest double that Redis writes as an integer.
const LARGEST_INTEGER: u64 = 1 << 62;

/// The shortest digits that give `d` back, formatted as in Redis 7.2 (`fpconv_dtoa`): plain up to 21 digits
/// before the point and 6 zeros after it, otherwise with an exponent. Integers are written with all of their digits.
/// (Redis' Grisu2 writes one digit more than it needs of some numbers of 16 or 17 digits.)
pub(crate) fn text(d: f64) -> String {
    if d.is_nan() || d.is_infinite() {
        let text = if d.is_nan() { "nan" } else { "inf" };
        return if d.is_sign_negative() && !d.is_nan() { format!("-{text}") } else { text.into() };
    }
    let integer = d as i64;
    if integer as f64 == d && integer.unsigned_abs() <= LARGEST_INTEGER {
        return if d == 0.0 && d.is_sign_negative() { "-0".into() } else { integer.to_string() };
    }
    let scientific = format!("{d:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let last = exponent + 1 - count;
    let plain = if last >= 0 { exponent.abs() < count + 7 } else { last > -7 || exponent.abs() < 4 };
    if plain {
        format!("{d}")
    } else {
        format!("{digits}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn doubles_as_redis_writes_them() {
        for (d, text) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (3.0, "3"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (3e15, "3000000000000000"),
            (261_538_484_179_221_216.0, "261538484179221216"),
            (-4.5e18, "-4500000000000000000"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (9.3e18, "9.3e+18"),
            (1e21, "1e+21"),
            (123_456_789.125, "123456789.125"),
            (1e-9, "1e-9"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(super::text(d), text);
        }
    }
}
