//! Mutants of a corpus. Blind to coverage: see `main.rs`.

use crate::support::rng::Rng;

/// Longest mutant in bytes.
const LONGEST: usize = 64 << 10;
/// Bytes that decoders treat in a special way.
const SPECIAL: [u8; 16] =
    [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xfe, 0xff, b'\r', b'\n', b'$', b'*', b'"'];

pub struct Mutator {
    rng: Rng,
    pub corpus: Vec<Vec<u8>>,
}

impl Mutator {
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        assert!(!corpus.is_empty());
        Mutator { rng: Rng::new(seed), corpus }
    }

    /// One to eight changes to one of the corpus.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.corpus[self.rng.below(self.corpus.len())].clone();
        for _ in 0..=self.rng.below(8) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let rng = &mut self.rng;
        let at = rng.below(input.len() + 1);
        let span = at..(at + rng.below(9)).min(input.len());
        match rng.below(9) {
            0 => input.truncate(at),
            1 => input.insert(at, rng.next() as u8),
            2 => drop(input.drain(span)),
            3 => {
                let copy = input[span].to_vec();
                input.splice(at..at, copy);
            }
            4 => {
                let other = &self.corpus[rng.below(self.corpus.len())];
                let from = rng.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            5 => {
                let word = rng.next() >> rng.below(64);
                let bytes = if rng.one_in(2) { word.to_le_bytes() } else { word.to_be_bytes() };
                let width = [1, 2, 4, 8][rng.below(4)];
                input.iter_mut().skip(at).zip(&bytes[..width]).for_each(|(to, from)| *to = *from);
            }
            kind => {
                let Some(byte) = input.get_mut(at) else { return };
                *byte = match kind {
                    6 => *byte ^ 1 << rng.below(8),
                    7 => SPECIAL[rng.below(SPECIAL.len())],
                    _ => byte.wrapping_add(rng.below(5) as u8).wrapping_sub(2),
                };
            }
        }
    }
}
