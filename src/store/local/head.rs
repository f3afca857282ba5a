//! The first bytes of a key, to be compared without it.
//!
//! Most of the time that an ordered list of a hundred thousand keys takes is spent waiting for the bytes of the keys that
//! it compares. With the first bytes of each key in the list itself, few others are read: the rows of an object begin
//! with the same 20 bytes or so, and differ behind them in a hash, a score or an id.

/// The first bytes of a key in numbers that are compared as the bytes are, with zeros behind a shorter key. If those of two
/// keys are equal, the keys must be compared: one that ends within them may be followed by zeros in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head([u64; 4]);

impl Head {
    /// That of `key`.
    pub(super) fn of(key: &[u8]) -> Self {
        let mut head = [0; 4];
        for (number, bytes) in head.iter_mut().zip(key.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *number = u64::from_be_bytes(padded);
        }
        Head(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;

    #[test]
    fn is_in_the_order_of_the_keys() {
        let mut rng = Rng::seeded(7);
        // Short ones of few letters, and long ones that differ in the last of them.
        let mut key = || {
            let same = [0, 0, 7, 30, 40][rng.below(5) as usize];
            let letters = (0..rng.below(6)).map(|_| [0, 1, 0xff][rng.below(3) as usize]);
            [vec![3; same], letters.collect::<Vec<u8>>()].concat()
        };
        for _ in 0..20_000 {
            let (a, b) = (key(), key());
            assert_eq!(Head::of(&a).cmp(&Head::of(&b)).then_with(|| a.cmp(&b)), a.cmp(&b), "{a:?} {b:?}");
        }
    }
}
