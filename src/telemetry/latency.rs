//! A histogram with logarithmic buckets: 8 per power of two, so a percentile is exact to an eighth.
//!
//! Recording takes two relaxed additions; the count is the sum of the buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bits of a value that select the bucket within its power of two.
const SUB_BITS: u32 = 3;
/// Buckets per power of two.
const SUBS: u64 = 1 << SUB_BITS;
/// Values from 2^MAX_BITS on share the last bucket: 18 minutes in nanoseconds.
const MAX_BITS: u32 = 40;
const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) << SUB_BITS) as usize + 1;

/// A distribution of values: nanoseconds, or sizes.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram {{ count: {}, sum: {} }}", self.count(), self.sum())
    }
}

impl Histogram {
    /// Adds a time.
    pub(crate) fn record(&self, took: Duration) {
        self.record_value(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    /// Adds a value.
    pub(crate) fn record_value(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }
    /// The number of values.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }
    /// Their sum.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
    /// The upper bound of the bucket in which the percentile lies; 0 without values.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.count() as f64 * percent / 100.0).ceil().max(1.0);
        let mut seen = 0;
        for (n, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen as f64 >= rank {
                return upper_bound(n);
            }
        }
        0
    }
    /// The number of values between each power of two and the previous one, then the number of the rest.
    /// `bits` ascend.
    pub(crate) fn by_powers(&self, bits: impl IntoIterator<Item = u32>) -> (Vec<(u64, u64)>, u64) {
        let buckets =
            self.buckets.iter().enumerate().map(|(n, b)| (upper_bound(n), b.load(Ordering::Relaxed)));
        let mut buckets = buckets.peekable();
        let mut steps = Vec::new();
        for limit in bits.into_iter().map(|bits| 1u64 << bits) {
            let mut n = 0;
            while let Some((_, count)) = buckets.next_if(|(upper, _)| *upper < limit) {
                n += count;
            }
            steps.push((limit, n));
        }
        (steps, buckets.map(|(_, count)| count).sum())
    }
    /// Resets it to zero.
    pub(crate) fn reset(&self) {
        self.buckets.iter().for_each(|b| b.store(0, Ordering::Relaxed));
        self.sum.store(0, Ordering::Relaxed);
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUBS {
        return value as usize;
    }
    let power = value.ilog2();
    if power >= MAX_BITS {
        return BUCKETS - 1;
    }
    let sub = (value >> (power - SUB_BITS)) & (SUBS - 1);
    (u64::from(power - SUB_BITS + 1) * SUBS + sub) as usize
}

/// The largest value of bucket `n`.
fn upper_bound(n: usize) -> u64 {
    let (power, sub) = (n as u64 / SUBS, n as u64 % SUBS);
    match power {
        0 => sub,
        power => ((SUBS + sub + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_ordered() {
        let mut last = 0;
        for value in 0..200_000u64 {
            let n = bucket_of(value);
            assert!(n == last || n == last + 1, "{value}");
            assert!(value <= upper_bound(n) && (n == 0 || value > upper_bound(n - 1)), "{value}");
            last = n;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of((1 << MAX_BITS) - 1), BUCKETS - 2);
    }

    #[test]
    fn percentiles_are_exact_to_an_eighth() {
        let h = Histogram::default();
        assert_eq!(h.percentile(50.0), 0);
        (1..=10_000u64).for_each(|v| h.record_value(v));
        assert_eq!((h.count(), h.sum()), (10_000, 50_005_000));
        for (percent, exact) in [(50.0, 5000.0), (99.0, 9900.0), (99.9, 9990.0)] {
            let p = h.percentile(percent) as f64;
            assert!(p >= exact && p <= exact * 1.125, "{percent}: {p}");
        }
        assert_eq!(h.by_powers([4, 10]), (vec![(16, 15), (1024, 1008)], 8977));
        h.reset();
        assert_eq!((h.count(), h.sum()), (0, 0));
    }
}
