//! Registers of six bits each, starting at the low bits of the first byte.

use super::REGISTERS;

const BITS: usize = 6;
const MASK: u16 = (1 << BITS) - 1;
/// The size of all registers in bytes.
pub(super) const SIZE: usize = REGISTERS * BITS / 8;

/// The ranks of four registers.
fn unpack([a, b, c]: [u8; 3]) -> [u8; 4] {
    [a & 0x3f, a >> 6 | (b & 0x0f) << 2, b >> 4 | (c & 0x03) << 4, c >> 2]
}

fn pack([p, q, r, s]: [u8; 4]) -> [u8; 3] {
    [p | q << 6, q >> 2 | r << 4, r >> 4 | s << 2]
}

/// Raises the registers to those of `body`.
///
/// For long HyperLogLogs, PFCOUNT and PFMERGE consist of this and of counting registers, so both take several
/// registers at a time.
pub(super) fn merge_into(body: &[u8], ranks: &mut [u8; REGISTERS]) {
    for (ours, theirs) in ranks.as_chunks_mut::<4>().0.iter_mut().zip(body.as_chunks::<3>().0) {
        if *theirs != [0; 3] {
            let ([p, q, r, s], [a, b, c, d]) = (*ours, unpack(*theirs));
            *ours = [p.max(a), q.max(b), r.max(c), s.max(d)];
        }
    }
}

/// Encodes these ranks.
pub(super) fn encode(ranks: &[u8; REGISTERS]) -> Vec<u8> {
    ranks.as_chunks::<4>().0.iter().flat_map(|four| pack(*four)).collect()
}

/// Raises a register. Returns true if it was lower.
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
        let model: &[u8; REGISTERS] = model[..].try_into().unwrap();
        let mut ranks = [0; REGISTERS];
        merge_into(&body, &mut ranks);
        assert_eq!(&ranks, model);
        assert_eq!(encode(model), body);
        ranks[7..].fill(50);
        merge_into(&body, &mut ranks);
        assert!(
            ranks
                .iter()
                .zip(model)
                .enumerate()
                .all(|(at, (got, had))| { *got == if at < 7 { *had } else { 50.max(*had) } })
        );
    }
}
