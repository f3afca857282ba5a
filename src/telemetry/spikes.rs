//! The latency monitor: for each event what took longer than `latency-monitor-threshold`, at most one sample a second.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Samples kept of one event.
const KEPT: usize = 160;

/// What happened at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Milliseconds.
    pub took: u64,
}

/// What is known of one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// The oldest first; the longest of each second.
    pub samples: VecDeque<Sample>,
    /// Milliseconds of the longest since the last reset.
    pub longest: u64,
}

/// The events that took long.
#[derive(Debug, Default)]
pub struct Spikes(Mutex<BTreeMap<&'static str, Series>>);

impl Spikes {
    /// `event` took long.
    pub fn add(&self, event: &'static str, sample: Sample) {
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
    /// All events, in their names' order.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        self.0.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }
    /// What is known of `event`.
    pub fn of(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        self.all().into_iter().find(|(name, _)| name.as_bytes() == event)
    }
    /// Forgets all events, or those that are named. Returns how many.
    pub fn reset(&self, named: &[bytes::Bytes]) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| !named.is_empty() && !named.iter().any(|name| name == event.as_bytes()));
        before - events.len()
    }
}
