//! What an operator sees: clients, counters, latencies, the log, the metrics.
//!
//! Everything here is relaxed atomics: a counter is never the reason for anything else, so it needs no order. The hot path of
//! a command is two additions (its latency bucket and its time); sums are made when somebody asks.

pub mod counters;
pub mod http;
pub mod latency;
pub mod log;
pub mod offences;
pub mod process;
pub mod prometheus;
pub mod slowlog;
pub mod spikes;

use crate::env::Env;
use crate::error::StoreError;
use counters::{CommandStats, Count, Lookups, Rates};
use latency::Histogram;
use offences::Offences;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most error codes that are counted by name; what is new beyond them is counted as `OTHER`.
const MAX_ERROR_CODES: usize = 128;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered.
    Done,
    /// It ran and answered an error.
    Failed,
}

/// Counters and latencies of one server.
#[derive(Debug)]
pub struct Telemetry {
    /// By row, in the order of the table.
    pub commands: Vec<CommandStats>,
    /// Connections accepted.
    pub connections: Count,
    /// Connections refused (`maxclients`, protected mode).
    pub refused: Count,
    /// Bytes read from clients.
    pub input: Count,
    /// Bytes written to clients.
    pub output: Count,
    /// Keys removed because their time had come.
    pub expired: Count,
    /// Keys that reading commands found.
    pub hits: Count,
    /// Keys that reading commands did not find.
    pub misses: Count,
    /// Commands under an id that were answered with what they had answered before.
    pub repeats: Count,
    /// Ids forgotten because of their age.
    pub forgotten: Count,
    /// Units in committed batches.
    pub units: Count,
    /// Transactions run again after a conflict.
    pub conflicts: Count,
    /// Transactions run again for any reason.
    pub retries: Count,
    /// Commits whose result was unknown at first.
    pub unknown: Count,
    /// Handlers and tasks that panicked.
    pub panics: Count,
    /// What misbehaving clients did.
    pub offences: Offences,
    /// Time from the begin to the commit of a batch. Its count is the number of batches.
    pub batches: Histogram,
    /// Units a batch, as a distribution.
    pub batch_sizes: Histogram,
    /// Samples for the rates in INFO.
    pub rates: Mutex<Rates>,
    /// What the access rules refused.
    pub denials: counters::Denials,
    /// SLOWLOG.
    pub slow: slowlog::SlowLog,
    /// LATENCY's events.
    pub spikes: spikes::Spikes,
    /// Level of the log.
    pub log: log::LogControl,
    /// 40 hexadecimal digits that name this run of the server.
    pub run_id: String,
    /// Monotonic time of the start.
    pub started: Duration,
    errors: Mutex<BTreeMap<String, u64>>,
    missing: Mutex<BTreeMap<&'static str, u64>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry::new(Vec::new(), &Env::system())
    }
}

impl Telemetry {
    /// `labels`: the names of all rows in the order of the table.
    pub fn new(labels: Vec<String>, env: &Env) -> Self {
        let mut rng = env.rng();
        let id = format!("{:032x}{:016x}", rng.u128(), rng.u64());
        Telemetry {
            commands: labels.into_iter().map(CommandStats::new).collect(),
            connections: Count::default(),
            refused: Count::default(),
            input: Count::default(),
            output: Count::default(),
            expired: Count::default(),
            hits: Count::default(),
            misses: Count::default(),
            repeats: Count::default(),
            forgotten: Count::default(),
            units: Count::default(),
            conflicts: Count::default(),
            retries: Count::default(),
            unknown: Count::default(),
            panics: Count::default(),
            offences: Offences::default(),
            batches: Histogram::default(),
            batch_sizes: Histogram::default(),
            rates: Mutex::default(),
            denials: counters::Denials::default(),
            slow: slowlog::SlowLog::default(),
            spikes: spikes::Spikes::default(),
            log: log::LogControl::default(),
            run_id: id.chars().take(40).collect(),
            started: env.clock.monotonic(),
            errors: Mutex::default(),
            missing: Mutex::default(),
        }
    }
    /// With the control of a log that was started.
    pub fn with_log(self, log: log::LogControl) -> Self {
        Telemetry { log, ..self }
    }
    /// The row at `index` ran for `took`; `tracked`: as `latency-tracking` says. Errors are counted by code with [`Telemetry::error`] besides.
    pub fn command(&self, index: usize, took: Duration, tracked: bool, outcome: Outcome) {
        let Some(stats) = self.commands.get(index) else { return };
        stats.record(took, tracked);
        if outcome == Outcome::Failed {
            stats.failed.add(1);
        }
    }
    /// A gate refused the row at `index`: it did not run.
    pub fn rejected(&self, index: usize) {
        if let Some(stats) = self.commands.get(index) {
            stats.rejected.add(1);
        }
    }
    /// An error with this code (`ERR`, `WRONGTYPE`) was sent to a client.
    pub fn error(&self, code: &str) {
        let mut errors = self.errors.lock();
        if let Some(n) = errors.get_mut(code) {
            *n += 1;
            return;
        }
        let code = if errors.len() < MAX_ERROR_CODES { code } else { "OTHER" };
        *errors.entry(code.to_owned()).or_default() += 1;
    }
    /// Errors sent, by code, in the codes' order.
    pub fn errors(&self) -> Vec<(String, u64)> {
        self.errors.lock().iter().map(|(code, n)| (code.clone(), *n)).collect()
    }
    /// A client sent a command of Redis that this server does not have.
    pub fn missing(&self, name: &'static str) {
        *self.missing.lock().entry(name).or_default() += 1;
    }
    /// What [`Telemetry::missing`] counted, in the names' order.
    pub fn all_missing(&self) -> Vec<(&'static str, u64)> {
        self.missing.lock().iter().map(|(name, n)| (*name, *n)).collect()
    }
    /// Commands that ran.
    pub fn total_commands(&self) -> u64 {
        self.commands.iter().map(CommandStats::calls).sum()
    }
    /// The label of the row at `index`; `NULL` where there is none, as CLIENT LIST says it.
    pub fn label(&self, index: usize) -> &str {
        self.commands.get(index).map_or("NULL", |c| c.label.as_str())
    }
    /// A connection was accepted.
    pub fn on_connect(&self) {
        self.connections.add(1);
    }
    /// A connection was refused.
    pub fn on_refuse(&self) {
        self.refused.add(1);
    }
    /// `n` bytes came from a client.
    pub fn on_read(&self, n: usize) {
        self.input.add(n as u64);
    }
    /// `n` bytes went to a client.
    pub fn on_write(&self, n: usize) {
        self.output.add(n as u64);
    }
    /// `n` keys were removed because their time had come.
    pub fn on_expired(&self, n: u64) {
        self.expired.add(n);
    }
    /// The lookups of a unit that was answered.
    pub fn on_lookups(&self, lookups: Lookups) {
        for (count, n) in [(&self.hits, lookups.hits), (&self.misses, lookups.misses)] {
            if n > 0 {
                count.add(n);
            }
        }
    }
    /// A command under an id was answered with what it had answered before. An attempt that is run again counts again.
    pub fn on_repeat(&self) {
        self.repeats.add(1);
    }
    /// `n` ids were forgotten because of their age.
    pub fn on_forgotten(&self, n: u64) {
        self.forgotten.add(n);
    }
    /// A handler or a task panicked.
    pub fn on_panic(&self) {
        self.panics.add(1);
    }
    /// A transaction is run again because of `e`.
    pub fn on_retry(&self, e: &StoreError) {
        self.retries.add(1);
        match e {
            StoreError::Conflict => self.conflicts.add(1),
            StoreError::Unknown => self.unknown.add(1),
            _ => {}
        }
    }
    /// A batch of `units` was committed after `took`.
    pub fn on_batch(&self, units: usize, took: Duration) {
        self.units.add(units as u64);
        self.batches.record(took);
        self.batch_sizes.record_value(units as u64);
    }
    /// CONFIG RESETSTAT: everything but the run's identity starts again from zero.
    pub fn reset(&self) {
        let counts = [
            &self.connections,
            &self.refused,
            &self.input,
            &self.output,
            &self.expired,
            &self.hits,
            &self.misses,
            &self.repeats,
            &self.forgotten,
            &self.units,
            &self.conflicts,
            &self.retries,
            &self.unknown,
            &self.denials.commands,
            &self.denials.keys,
            &self.denials.channels,
        ];
        counts.into_iter().for_each(Count::reset);
        self.commands.iter().for_each(CommandStats::reset);
        self.offences.reset();
        self.batches.reset();
        self.batch_sizes.reset();
        self.errors.lock().clear();
        self.missing.lock().clear();
        *self.rates.lock() = Rates::default();
    }
}
