//! Registers of six bits each, from the low bits of the first byte on.

use super::REGISTERS;

const BITS: usize = 6;
const MASK: u16 = (1 << BITS) - 1;
/// Bytes of all registers.
pub(super) const SIZE: usize = REGISTERS * BITS / 8;

/// All ranks.
pub(super) fn ranks(body: &[u8]) -> impl Iterator<Item = u8> + '_ {
    // Three bytes are four registers.
    body.as_chunks::<3>().0.iter().flat_map(|[a, b, c]| {
        let word = u32::from_le_bytes([*a, *b, *c, 0]);
        [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & MASK as u8)
    })
}

/// The bytes of these ranks.
pub(super) fn encode(ranks: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut body = vec![0; SIZE];
    ranks.enumerate().for_each(|(at, rank)| _ = raise(&mut body, at, rank));
    body
}

/// Raises a register. True where it was lower.
pub(super) fn raise(body: &mut [u8], register: usize, rank: u8) -> bool {
    let (byte, shift) = (register * BITS / 8, register * BITS % 8);
    let next = body.get(byte + 1).copied().unwrap_or(0);
    let Some(first) = body.get_mut(byte) else { return false };
    let word = u16::from_le_bytes([*first, next]);
    let rank = u16::from(rank) & MASK;
    if rank <= word >> shift & MASK {
        return false;
    }
    let [low, high] = (word & !(MASK << shift) | rank << shift).to_le_bytes();
    *first = low;
    if let Some(next) = body.get_mut(byte + 1) {
        *next = high;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_touch_each_other() {
        let mut rng = crate::env::Env::seeded(0, 5).rng();
        let mut body = vec![0; SIZE];
        let mut model = vec![0u8; REGISTERS];
        for _ in 0..100_000 {
            let (at, rank) = (rng.below(REGISTERS as u64) as usize, rng.below(64) as u8);
            assert_eq!(raise(&mut body, at, rank), rank > model[at]);
            model[at] = model[at].max(rank);
        }
        assert_eq!(ranks(&body).collect::<Vec<_>>(), model);
        assert_eq!(encode(model.iter().copied()), body);
    }
}
