//! Member ids: 64 bits that stand for a set's member.
//!
//! ```text
//! 10 | n + 2^61 (62 bits)                 the canonical decimal integer n, -2^61 <= n < 2^61: no dictionary
//! 00 | shard:8 | block:38 | offset:16     any other member, interned
//! ```
//! Integer ids keep the order of their integers, and consecutive integers have consecutive ids: dense
//! bitmaps. An interned id is never reused ([`super::interner`]).

use crate::store::MAX_VALUE;
use bytes::Bytes;

/// The longest member, in bytes, that can be interned: it is one value of the store.
pub const MAX_MEMBER: usize = MAX_VALUE;
/// The number of ids in a lease: one Roaring container.
pub const BLOCK: u64 = 1 << 16;
/// The smallest id of an integer.
pub const FIRST_INTEGER: u64 = 0b10 << 62;
const HALF: i64 = 1 << 61;

/// The id of a canonical decimal integer (as `string2ll` reads and prints it) of less than 62 bits.
pub fn integer_id(member: &[u8]) -> Option<u64> {
    let (negative, digits) = match member {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [b'0'] if !negative => {}
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut n: u64 = 0;
    for d in digits {
        n = n * 10 + u64::from(d.is_ascii_digit().then(|| d - b'0')?);
    }
    let n = i64::try_from(n).ok()?;
    let n = if negative { -n } else { n };
    (-HALF..HALF).contains(&n).then(|| FIRST_INTEGER + (n + HALF).cast_unsigned())
}

/// The integer that an id stands for; None if the id is interned.
pub fn integer_of(id: u64) -> Option<i64> {
    id.checked_sub(FIRST_INTEGER).map(|n| n.cast_signed() - HALF)
}

/// The member that an integer's id stands for.
pub fn integer_text(id: u64) -> Option<Bytes> {
    integer_of(id).map(|n| Bytes::copy_from_slice(itoa::Buffer::new().format(n).as_bytes()))
}
