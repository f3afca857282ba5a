//! Estimates the number of elements from the histogram of ranks, without the original estimator's bias for
//! small and large numbers: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches",
//! arXiv:1702.01284.
//!
//! Floating-point operations are in the same order as in Redis, so that the last digit is the same.

use super::REGISTERS;

/// The highest rank.
const HIGHEST: usize = 51;
/// The result for a number that a C `long long` cannot hold: 2^63.
const TOO_MANY: f64 = 9_223_372_036_854_775_808.0;
/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The number of registers of each rank.
pub(super) struct Histogram([u32; HIGHEST + 1]);

impl Histogram {
    pub(crate) fn new() -> Self {
        Histogram([0; HIGHEST + 1])
    }

    /// Counts `registers` registers of one rank. Higher ranks occur only in damaged strings.
    pub(crate) fn add(&mut self, rank: u8, registers: u32) {
        if let Some(count) = self.0.get_mut(usize::from(rank)) {
            *count += registers;
        }
    }

    /// The histogram of these registers.
    pub(crate) fn of(ranks: &[u8; REGISTERS]) -> Self {
        let mut histogram = Histogram::new();
        for eight in ranks.as_chunks::<8>().0 {
            if *eight == [0; 8] {
                histogram.add(0, 8);
            } else {
                eight.iter().for_each(|rank| histogram.add(*rank, 1));
            }
        }
        histogram
    }
}

/// Estimates the number of elements.
pub(super) fn cardinality(Histogram(histogram): &Histogram) -> u64 {
    let m = REGISTERS as f64;
    let [none, ranks @ .., highest] = histogram;
    let mut z = m * tau((m - f64::from(*highest)) / m);
    for count in ranks.iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(f64::from(*none) / m);
    let estimated = (ALPHA * m * m / z).round();
    if estimated < TOO_MANY { estimated as u64 } else { TOO_MANY as u64 }
}

/// x + sum over k of x^(2^k) * 2^(k-1).
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if before == sum {
            return sum;
        }
    }
}

/// (1 - x - sum over k of (1 - x^(2^-k))^2 * 2^-k) / 3.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * power;
        if before == sum {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes() {
        let all = REGISTERS as u32;
        let cardinality = |counts: &[(u8, u32)]| {
            let mut histogram = Histogram::new();
            counts.iter().for_each(|(rank, registers)| histogram.add(*rank, *registers));
            super::cardinality(&histogram)
        };
        assert_eq!(cardinality(&[(0, all)]), 0);
        assert_eq!(cardinality(&[(0, all - 1), (1, 1)]), 1);
        assert_eq!(cardinality(&[(0, all - 100), (3, 100)]), 100);
        assert_eq!(cardinality(&[(51, all)]), 1 << 63);
        assert_eq!(cardinality(&[(63, all)]), 1 << 63, "a rank that no element has");
    }
}
