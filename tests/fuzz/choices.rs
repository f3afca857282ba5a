//! The source of a generator's decisions: a seed, or bytes chosen by a coverage-guided fuzzer.

use crate::support::rng::Rng;

/// Decides what comes next.
pub enum Choices<'a> {
    /// By a generator.
    Seeded(Rng),
    /// By bytes; after their end every decision is 0.
    Given(&'a [u8]),
}

impl Choices<'_> {
    /// The same seed makes the same decisions.
    pub fn seeded(seed: u64) -> Self {
        Choices::Seeded(Rng::new(seed))
    }

    /// In `0..n`. Consumes as few of the given bytes as `n` needs, so that a changed byte changes one
    /// decision.
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

    /// Whether the given bytes are used up.
    pub fn is_over(&self) -> bool {
        matches!(self, Choices::Given([]))
    }
}

/// The next `width` bytes as a number; fewer at the end.
fn taken(bytes: &mut &[u8], width: usize) -> u64 {
    let (now, later) = bytes.split_at(width.min(bytes.len()));
    *bytes = later;
    now.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}
