//! The latency monitor: for each event, the times longer than `latency-monitor-threshold`, at most one sample
//! a second.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Samples kept per event.
const KEPT: usize = 160;

/// A sample of an event's latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its time, in seconds since the Unix epoch.
    pub(crate) at: u64,
    /// Its latency in milliseconds.
    pub(crate) took: u64,
}

/// The samples of one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Series {
    /// Oldest first; the longest of each second.
    pub(crate) samples: VecDeque<Sample>,
    /// The longest latency since the last reset, in milliseconds.
    pub(crate) longest: u64,
}

/// The events that exceeded the threshold.
#[derive(Debug, Default)]
pub(crate) struct Spikes(Mutex<BTreeMap<&'static str, Series>>);

impl Spikes {
    /// Adds a sample of `event`.
    pub(crate) fn add(&self, event: &'static str, sample: Sample) {
        let mut events = self.0.lock();
        let series = events.entry(event).or_default();
        series.longest = series.longest.max(sample.took);
        match series.samples.back_mut().filter(|last| last.at == sample.at) {
            Some(last) => last.took = last.took.max(sample.took),
            None => series.samples.push_back(sample),
        }
        if series.samples.len() > KEPT {
            series.samples.pop_front();
        }
    }
    /// All events, sorted by name.
    pub(crate) fn all(&self) -> Vec<(&'static str, Series)> {
        self.0.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }
    /// The samples of `event`.
    pub(crate) fn of(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        self.all().into_iter().find(|(name, _)| name.as_bytes() == event)
    }
    /// Removes all events, or the named ones. Returns their number.
    pub(crate) fn reset(&self, named: &[bytes::Bytes]) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| !named.is_empty() && !named.iter().any(|name| name == event.as_bytes()));
        before - events.len()
    }
}
