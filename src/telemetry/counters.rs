//! Counters, and rates derived from them.

use super::latency::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A relaxed counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    /// Resets it to zero.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Keys that read commands looked up, as Redis counts them: found (`keyspace_hits`), or not
/// (`keyspace_misses`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    /// Found.
    pub(crate) hits: u64,
    /// Missing, or expired.
    pub(crate) misses: u64,
}

/// The lookups of one attempt. They are added to the totals once the attempt succeeds, so that none counts
/// twice.
#[derive(Debug, Default)]
pub(crate) struct LookupTally {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl LookupTally {
    /// Counts a lookup. Only one task counts at a time, so a load and a store suffice.
    pub(crate) fn count(&self, found: bool) {
        let cell = if found { &self.hits } else { &self.misses };
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    /// The lookups since [`LookupTally::take`].
    pub(crate) fn seen(&self) -> Lookups {
        Lookups { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
    /// Drops the lookups counted after `seen`.
    pub(crate) fn back_to(&mut self, seen: Lookups) {
        (*self.hits.get_mut(), *self.misses.get_mut()) = (seen.hits, seen.misses);
    }
    /// Takes the lookups since the last call.
    pub(crate) fn take(&mut self) -> Lookups {
        let mut take = |cell: fn(&mut Self) -> &mut AtomicU64| std::mem::take(cell(self).get_mut());
        Lookups { hits: take(|t| &mut t.hits), misses: take(|t| &mut t.misses) }
    }
}

/// Calls that access rules refused.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    /// Because of the command.
    pub(crate) commands: Count,
    /// Because of a key.
    pub(crate) keys: Count,
    /// Because of a channel.
    pub(crate) channels: Count,
}

/// The statistics of one row.
#[derive(Debug)]
pub(crate) struct CommandStats {
    /// `get`, `client|id`.
    pub(crate) label: String,
    /// Latencies of calls while `latency-tracking` was on.
    pub(crate) latency: Histogram,
    /// The other calls, and their nanoseconds.
    untracked: Count,
    untracked_nanos: Count,
    /// Calls that a gate refused.
    pub(crate) rejected: Count,
    /// Calls that ran and replied with an error.
    pub(crate) failed: Count,
}

impl CommandStats {
    /// The statistics of the row `label`.
    pub(crate) fn new(label: String) -> Self {
        CommandStats {
            label,
            latency: Histogram::default(),
            untracked: Count::default(),
            untracked_nanos: Count::default(),
            rejected: Count::default(),
            failed: Count::default(),
        }
    }
    /// Counts a call; if `tracked`, its latency too.
    pub(crate) fn record(&self, took: Duration, tracked: bool) {
        if tracked {
            return self.latency.record(took);
        }
        self.untracked.add(1);
        self.untracked_nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    /// Calls that ran.
    pub(crate) fn calls(&self) -> u64 {
        self.latency.count() + self.untracked.get()
    }
    /// Their total time.
    pub(crate) fn nanos(&self) -> u64 {
        self.latency.sum().wrapping_add(self.untracked_nanos.get())
    }
    /// Resets all to zero.
    pub(crate) fn reset(&self) {
        self.latency.reset();
        self.untracked.reset();
        self.untracked_nanos.reset();
        self.rejected.reset();
        self.failed.reset();
    }
}

/// Samples kept for a rate: the newest and the oldest bound the window.
const SAMPLES: usize = 16;
/// The least time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Commands and bytes at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Monotonic time.
    pub(crate) at: Duration,
    /// Commands so far.
    pub(crate) commands: u64,
    /// Bytes read so far.
    pub(crate) input: u64,
    /// Bytes written so far.
    pub(crate) output: u64,
}

/// The last samples, for `instantaneous_ops_per_sec` and similar fields.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: Vec<Sample>,
}

impl Rates {
    /// Adds a sample, unless the last one is recent.
    pub(crate) fn sample(&mut self, sample: Sample) {
        if self.samples.last().is_some_and(|last| sample.at < last.at + SAMPLE_EVERY) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.remove(0);
        }
        self.samples.push(sample);
    }
    /// The rate of `what` per second over the window; 0 with fewer than two samples.
    pub(crate) fn per_second(&self, what: impl Fn(&Sample) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else { return 0.0 };
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        if seconds > 0.0 { what(last).saturating_sub(what(first)) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spans_the_last_samples() {
        let mut rates = Rates::default();
        assert_eq!(rates.per_second(|s| s.commands), 0.0);
        for ms in (0..5000).step_by(50) {
            rates.sample(Sample { at: Duration::from_millis(ms), commands: ms * 3, ..Sample::default() });
        }
        assert_eq!(rates.samples.len(), SAMPLES);
        assert_eq!(rates.per_second(|s| s.commands).round(), 3000.0);
    }
}
