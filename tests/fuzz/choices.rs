//! Where a generator's decisions come from: a seed, or the bytes that a coverage-guided fuzzer has chosen.

use crate::support::rng::Rng;

/// What is decided next.
pub enum Choices<'a> {
    /// By a generator.
    Seeded(Rng),
    /// By bytes; behind their end all is 0.
    Given(&'a [u8]),
}

impl Choices<'_> {
    /// The same seed decides the same.
    pub fn seeded(seed: u64) -> Self {
        Choices::Seeded(Rng::new(seed))
    }

    /// In `0..n`. Takes as few of the given bytes as `n` needs, so that a changed byte is one changed decision.
    pub fn below(&mut self, n: usize) -> usize {
        let width = if n <= 1 << 8 { 1 } else { 4 };
        match self {
            Choices::Seeded(rng) => rng.below(n),
            Choices::Given(bytes) => (taken(bytes, width) % n as u64) as usize,
        }
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        match self {
            Choices::Seeded(rng) => rng.next(),
            Choices::Given(bytes) => taken(bytes, 8),
        }
    }

    /// Whether the given bytes have been used up.
    pub fn is_over(&self) -> bool {
        matches!(self, Choices::Given([]))
    }
}

/// The next `width` bytes as a number, and fewer at the end.
fn taken(bytes: &mut &[u8], width: usize) -> u64 {
    let (now, later) = bytes.split_at(width.min(bytes.len()));
    *bytes = later;
    now.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}
