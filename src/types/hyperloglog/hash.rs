//! The register and rank of an element: MurmurHash64A with Redis' seed. With any other hash, strings from
//! Redis would give wrong counts.

use super::REGISTERS;

const SEED: u64 = 0xadc8_3b19;
const M: u64 = 0xc6a4_a793_5bd1_e995;
const R: u32 = 47;
/// Bits of the hash that determine the rank.
const RANK_BITS: u32 = 64 - REGISTERS.trailing_zeros();

/// An element's register and rank (1 to 51).
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element);
    let register = hash as usize % REGISTERS;
    let rest = hash >> REGISTERS.trailing_zeros() | 1 << RANK_BITS;
    (register, rest.trailing_zeros() as u8 + 1)
}

/// Austin Appleby's function (public domain), words in little-endian order.
fn murmur64a(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    // Redis' length is a C int.
    let mut hash = SEED ^ (bytes.len() as i32 as u64).wrapping_mul(M);
    for word in words {
        let k = u64::from_le_bytes(*word).wrapping_mul(M);
        hash = (hash ^ (k ^ k >> R).wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let last = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of redis-server 7.0.15 for `PFADD k <element>`, `PFDEBUG DECODE k`.
    #[test]
    fn places_are_those_of_redis() {
        for (element, register, rank) in PLACES {
            assert_eq!(place(element.as_bytes()), (*register, *rank), "{element}");
        }
    }

    const PLACES: &[(&str, usize, u8)] = &[
        ("", 5938, 2),
        ("a", 12711, 2),
        ("b", 15780, 1),
        ("hello", 9216, 1),
        ("12345678", 10579, 3),
        ("123456789", 9293, 2),
        ("a somewhat longer element, of more than forty-four bytes", 10031, 2),
        ("0", 13225, 4),
        ("-1", 11014, 2),
        ("\u{fc}n\u{ef}", 2791, 2),
    ];
}
