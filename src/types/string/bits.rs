//! Strings as arrays of bits: bit 0 is the most significant bit of byte 0. Whatever the length, an operation
//! reads only the bytes it needs; bytes beyond the string count as zeroes.

use super::walk::{Stretch, Walk};
use super::{len, read_range, set_range};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::types::object::Slot;
use crate::types::string::Str;
use bytes::Bytes;

/// The bytes `from..to` of a string, at most 16, padded with zeroes.
async fn word(s: &Scope<'_>, value: Option<&Str>, from: u64, to: u64) -> Result<u128> {
    let mut raw = [0; 16];
    if let Some(value) = value {
        let bytes = read_range(s, value, from, to).await?;
        raw.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from);
    }
    Ok(u128::from_be_bytes(raw))
}

/// The `bits` (1 to 64) bits from bit `offset` on, as a number.
pub(crate) async fn field(s: &Scope<'_>, value: Option<&Str>, offset: u64, bits: u32) -> Result<u64> {
    let first = offset / 8;
    let word = word(s, value, first, first + 9).await?;
    Ok(((word << (offset % 8)) >> (128 - bits)) as u64)
}

/// Writes the low `bits` (1 to 64) bits of `number` at bit `offset`; the string grows if necessary.
pub(crate) async fn set_field(
    s: &Scope<'_>,
    slot: &mut Slot,
    offset: u64,
    bits: u32,
    number: u64,
) -> Result<()> {
    let (first, end) = (offset / 8, (offset + u64::from(bits)).div_ceil(8));
    let old = word(s, slot.string()?, first, end).await?;
    let shift = 128 - bits - (offset % 8) as u32;
    let mask = (u128::MAX >> (128 - bits)) << shift;
    let new = (old & !mask) | ((u128::from(number) << shift) & mask);
    let patch = new.to_be_bytes().into_iter().take((end - first) as usize).collect::<Vec<u8>>();
    set_range(s, &[], slot, first, &patch.into()).await?;
    Ok(())
}

/// Extends the string with zeroes to at least `bytes` bytes. Returns true if it was shorter or missing.
pub(crate) async fn grow(s: &Scope<'_>, slot: &mut Slot, bytes: u64) -> Result<bool> {
    if bytes == 0 || slot.string()?.is_some_and(|value| len(value) >= bytes) {
        return Ok(false);
    }
    set_range(s, &[], slot, bytes - 1, &Bytes::from_static(&[0])).await?;
    Ok(true)
}

/// The number of ones among the bits `from..to`, which must be inside the string.
pub(crate) async fn count(s: &Scope<'_>, value: &Str, from: u64, to: u64) -> Result<u64> {
    if from >= to {
        return Ok(0);
    }
    let mut ones = 0;
    let mut walk = Walk::new(s.db, value, from / 8, to.div_ceil(8));
    while let Some(stretch) = walk.next(s.tx).await? {
        if let Stretch::Bytes(bytes) = stretch {
            ones += ones_in(&bytes);
        }
    }
    // The first and the last byte may be only partly in the range.
    let (before, after) = ((from % 8) as u32, ((8 - to % 8) % 8) as u32);
    for (at, bits) in [(from - from % 8, before), (to, after)] {
        if bits > 0 {
            ones -= u64::from(field(s, Some(value), at, bits).await?.count_ones());
        }
    }
    Ok(ones)
}

fn ones_in(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: u64 = words.iter().map(|w| u64::from(u64::from_le_bytes(*w).count_ones())).sum();
    of_words + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}

/// The position of the first `bit` among the bits `from..to`, which must be inside the string. Reads no
/// further.
pub(crate) async fn position(
    s: &Scope<'_>,
    value: &Str,
    bit: bool,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let mut walk = Walk::new(s.db, value, from / 8, to.div_ceil(8)).hopeful();
    let mut skip = (from % 8) as u32;
    loop {
        let at = walk.at();
        let found = match walk.next(s.tx).await? {
            None => return Ok(None),
            Some(Stretch::Bytes(bytes)) => first_in(&bytes, bit, skip),
            Some(Stretch::Zeroes(_)) if bit => None,
            Some(Stretch::Zeroes(_)) => Some(u64::from(skip)),
        };
        if let Some(found) = found {
            return Ok(Some(at * 8 + found).filter(|found| *found < to));
        }
        skip = 0;
    }
}

/// The position of the first `bit` in `bytes`, skipping the first `skip` (0 to 7) bits.
fn first_in(bytes: &[u8], bit: bool, skip: u32) -> Option<u64> {
    // Search for ones: in the bytes or in their complement.
    let flip = if bit { 0 } else { 0xff };
    let (first, rest) = bytes.split_first()?;
    let begin = (first ^ flip) & (0xff >> skip);
    if begin != 0 {
        return Some(u64::from(begin.leading_zeros()));
    }
    let (blocks, _) = rest.as_chunks::<64>();
    let far = blocks.iter().take_while(|block| block.iter().all(|b| *b == flip)).count() * 64;
    let near = rest.get(far..)?.iter().position(|b| *b != flip)?;
    let byte = rest.get(far + near)? ^ flip;
    Some((1 + far + near) as u64 * 8 + u64::from(byte.leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn slow(bytes: &[u8], bit: bool, skip: u32) -> Option<u64> {
        let is = |at: &u64| (bytes[(*at / 8) as usize] >> (7 - at % 8)) & 1 == u8::from(bit);
        (u64::from(skip)..bytes.len() as u64 * 8).find(is)
    }

    #[test]
    fn finds_and_counts_as_bit_by_bit() {
        let mut rng = crate::env::Env::seeded(0, 7).rng();
        for length in 0..200 {
            let background = if rng.below(2) == 0 { 0 } else { 0xff };
            let mut bytes = vec![background; length];
            for _ in 0..rng.below(3) {
                if let Some(b) = bytes.get_mut(rng.below(length.max(1) as u64) as usize) {
                    *b = rng.below(256) as u8;
                }
            }
            let skip = rng.below(8) as u32;
            for bit in [false, true] {
                assert_eq!(first_in(&bytes, bit, skip), slow(&bytes, bit, skip), "{bytes:?} {bit} {skip}");
            }
            assert_eq!(ones_in(&bytes), bytes.iter().map(|b| u64::from(b.count_ones())).sum::<u64>());
        }
    }
}
