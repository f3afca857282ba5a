//! The score of a member: a double that is a number, and the bytes that sort as it does.
//!
//! Redis compares scores as C does: -0 equals 0, so members with these scores are ordered by their names. The
//! place of a member therefore has one zero; which of the two a score is, its row says beside it.

use std::cmp::Ordering;

/// A score: not NaN.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score(f64);

/// The bit of the sign.
const SIGN: u64 = 1 << 63;

impl Score {
    /// None for NaN.
    pub fn new(number: f64) -> Option<Self> {
        (!number.is_nan()).then_some(Score(number))
    }

    /// The number.
    pub fn number(self) -> f64 {
        self.0
    }

    /// A number that sorts as the score does.
    pub(crate) fn sortable(self) -> u64 {
        // Also turns -0 into 0.
        let bits = (self.0 + 0.0).to_bits();
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }

    /// The score whose sortable number this is. None if there is none.
    pub(crate) fn from_sortable(sortable: u64) -> Option<Self> {
        let bits = if sortable & SIGN == 0 { !sortable } else { sortable ^ SIGN };
        Score::new(f64::from_bits(bits)).filter(|score| score.sortable() == sortable)
    }

    /// Whether it is the zero with a minus sign.
    pub(crate) fn is_negative_zero(self) -> bool {
        self.0 == 0.0 && self.0.is_sign_negative()
    }

    /// Its bytes in a member's row.
    pub(crate) fn encode(self) -> [u8; 8] {
        self.0.to_bits().to_le_bytes()
    }

    /// The score with these bytes. None if there is none.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        Score::new(f64::from_bits(u64::from_le_bytes(raw.try_into().ok()?)))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sortable().cmp(&other.sortable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeroes_are_equal_and_told_apart() {
        let [plus, minus] = [0.0, -0.0].map(|zero| Score::new(zero).unwrap());
        assert!(plus == minus && minus.is_negative_zero() && !plus.is_negative_zero());
        assert!(Score::decode(&minus.encode()).unwrap().is_negative_zero());
        assert!(Score::new(f64::NAN).is_none() && Score::decode(&f64::NAN.to_le_bytes()).is_none());
        assert!(Score::from_sortable(0).is_none() && Score::from_sortable(u64::MAX).is_none());
        assert!(Score::from_sortable(!(-0f64).to_bits()).is_none(), "the place of no score");
    }

    proptest! {
        #[test]
        fn bytes_sort_as_numbers(mut numbers in proptest::collection::vec(any::<f64>(), 2..30)) {
            numbers.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 5e-324]);
            let scores: Vec<Score> = numbers.into_iter().filter_map(Score::new).collect();
            for a in &scores {
                prop_assert_eq!(Score::from_sortable(a.sortable()), Some(*a));
                prop_assert_eq!(Score::decode(&a.encode()).unwrap().number().to_bits(), a.number().to_bits());
                for b in &scores {
                    prop_assert_eq!(a.cmp(b), a.number().partial_cmp(&b.number()).unwrap());
                }
            }
        }
    }
}
