//! Strings as arrays of bits: bit 0 is the most significant bit of byte 0. Whatever the length, only the bytes that an
//! operation is about are read, and all others count as zeroes where there is no string.
//!
//! Limit: [`combine`] writes its result in the command's transaction, so more than about 10 MB that are not zero are
//! [`StoreError::TooLarge`](crate::error::StoreError::TooLarge).

use super::{INLINE_MAX, PIECE, cuts, len, read_range, set_range};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::record::{Str, Value};
use crate::store::MAX_TRANSACTION;
use crate::types::object::{self, Slot};
use bytes::Bytes;

/// Bytes read at once.
const WINDOW: u64 = 1 << 20;

/// Bytes `from..to` of a string, in parts of at most `window` bytes.
fn windows(from: u64, to: u64, window: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = usize::try_from(window).unwrap_or(usize::MAX);
    (from..to).step_by(step).map(move |at| (at, at.saturating_add(window).min(to)))
}

/// The first bytes of a string from byte `from` to `to`, at most 16, followed by zeroes.
async fn word(s: &Scope<'_>, value: Option<&Str>, from: u64, to: u64) -> Result<u128> {
    let mut raw = [0; 16];
    if let Some(value) = value {
        let bytes = read_range(s, value, from, to).await?;
        raw.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from);
    }
    Ok(u128::from_be_bytes(raw))
}

/// The `bits` (1 to 64) bits from bit `offset` on as a number.
pub async fn field(s: &Scope<'_>, value: Option<&Str>, offset: u64, bits: u32) -> Result<u64> {
    let first = offset / 8;
    let word = word(s, value, first, first + 9).await?;
    Ok(((word << (offset % 8)) >> (128 - bits)) as u64)
}

/// Writes the low `bits` (1 to 64) bits of `number` from bit `offset` on; the string grows as far as they reach.
pub async fn set_field(s: &Scope<'_>, slot: &mut Slot, offset: u64, bits: u32, number: u64) -> Result<()> {
    let (first, end) = (offset / 8, (offset + u64::from(bits)).div_ceil(8));
    let old = word(s, slot.string()?, first, end).await?;
    let shift = 128 - bits - (offset % 8) as u32;
    let mask = (u128::MAX >> (128 - bits)) << shift;
    let new = (old & !mask) | ((u128::from(number) << shift) & mask);
    let patch = new.to_be_bytes().into_iter().take((end - first) as usize).collect::<Vec<u8>>();
    set_range(s, &[], slot, first, &patch.into()).await?;
    Ok(())
}

/// Makes the string at least `bytes` long, with zeroes. True where it was shorter or missing.
pub async fn grow(s: &Scope<'_>, slot: &mut Slot, bytes: u64) -> Result<bool> {
    if bytes == 0 || slot.string()?.is_some_and(|value| len(value) >= bytes) {
        return Ok(false);
    }
    set_range(s, &[], slot, bytes - 1, &Bytes::from_static(&[0])).await?;
    Ok(true)
}

/// Number of ones among the bits `from..to`, which must be inside the string.
pub async fn count(s: &Scope<'_>, value: &Str, from: u64, to: u64) -> Result<u64> {
    if from >= to {
        return Ok(0);
    }
    let mut ones = 0;
    for (at, end) in windows(from / 8, to.div_ceil(8), WINDOW) {
        ones += ones_in(&read_range(s, value, at, end).await?);
    }
    // The first and the last byte may lie in the range in part.
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

/// The first `bit` among the bits `from..to`, which must be inside the string. Reads no further than it.
pub async fn position(s: &Scope<'_>, value: &Str, bit: bool, from: u64, to: u64) -> Result<Option<u64>> {
    let (first, end) = (from / 8, to.div_ceil(8));
    let near = first.saturating_add(PIECE as u64).min(end);
    for (at, end) in windows(first, near, WINDOW).chain(windows(near, end, WINDOW)) {
        let bytes = read_range(s, value, at, end).await?;
        let skip = if at == first { (from % 8) as u32 } else { 0 };
        if let Some(found) = first_in(&bytes, bit, skip) {
            let found = at * 8 + found;
            return Ok(Some(found).filter(|found| *found < to));
        }
    }
    Ok(None)
}

/// The first `bit` in `bytes`, not among the first `skip` (0 to 7) bits.
fn first_in(bytes: &[u8], bit: bool, skip: u32) -> Option<u64> {
    // Looked for are ones: in the bytes, or in their complement.
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

/// BITOP's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOp {
    /// Ones where all have ones.
    And,
    /// Ones where any has one.
    Or,
    /// Ones where an odd number have ones.
    Xor,
    /// Ones where the only source has zeroes.
    Not,
}

/// Makes `target` the combination of `sources`, as long as the longest; shorter ones go on with zeroes. Without a byte
/// the key is removed. Its expiry goes. Returns the length in bytes.
pub async fn combine(s: &Scope<'_>, target: &mut Slot, op: BitOp, sources: &[Option<Str>]) -> Result<u64> {
    let total = sources.iter().flatten().map(len).max().unwrap_or(0);
    if total == 0 {
        object::remove(s, target)?;
        return Ok(0);
    }
    object::check_name(&target.key)?;
    let value = if total <= INLINE_MAX as u64 {
        Str::Made { bytes: combined(s, op, sources, 0, total).await?.into(), raw: true }
    } else {
        let oid = s.space.fresh.oid();
        for (at, end) in windows(0, total, WINDOW) {
            let bytes = combined(s, op, sources, at, end).await?;
            // A missing piece is zeroes.
            for (n, _, part) in cuts(at, &bytes).filter(|(.., part)| part.iter().any(|b| *b != 0)) {
                s.tx.set(&s.db.piece(oid, n), part)?;
            }
            if s.tx.size() > MAX_TRANSACTION {
                return Err(StoreError::TooLarge.into());
            }
        }
        Str::Pieces { oid, len: total }
    };
    object::put(s, target, Value::Str(value), None)?;
    Ok(total)
}

/// The bytes `from..to` of the combination.
async fn combined(s: &Scope<'_>, op: BitOp, sources: &[Option<Str>], from: u64, to: u64) -> Result<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    for source in sources {
        let mut bytes = match source {
            Some(value) => read_range(s, value, from, to).await?.to_vec(),
            None => Vec::new(),
        };
        bytes.resize((to - from) as usize, 0);
        let Some(out) = &mut out else {
            out = Some(bytes);
            continue;
        };
        for (to, from) in out.iter_mut().zip(&bytes) {
            match op {
                BitOp::And => *to &= from,
                BitOp::Or => *to |= from,
                BitOp::Xor | BitOp::Not => *to ^= from,
            }
        }
    }
    let mut out = out.unwrap_or_default();
    if op == BitOp::Not {
        out.iter_mut().for_each(|b| *b = !*b);
    }
    Ok(out)
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
