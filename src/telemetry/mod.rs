//! Telemetry: clients, counters, latencies, the log, the metrics.
//!
//! Everything here is relaxed atomics: no other state depends on a counter, so it needs no order. The hot
//! path of a command is two additions (its latency bucket and its time); sums are computed on request.

pub(crate) mod counters;
pub mod http;
pub(crate) mod latency;
pub mod log;
pub(crate) mod offences;
pub(crate) mod process;
pub(crate) mod prometheus;
pub mod slowlog;
pub(crate) mod spikes;

use crate::env::Env;
use crate::error::StoreError;
use counters::{CommandStats, Count, Lookups, Rates};
use latency::Histogram;
use offences::Offences;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most error codes counted by name; further ones are counted as `OTHER`.
const MAX_ERROR_CODES: usize = 128;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It succeeded.
    Done,
    /// It ran and replied with an error.
    Failed,
}

/// Counters and latencies of one server.
#[derive(Debug)]
pub struct Telemetry {
    /// Per row, in the order of the table.
    pub(crate) commands: Vec<CommandStats>,
    /// Connections accepted.
    pub(crate) connections: Count,
    /// Connections refused (`maxclients`, protected mode).
    pub(crate) refused: Count,
    /// Bytes read from clients.
    pub(crate) input: Count,
    /// Bytes written to clients.
    pub(crate) output: Count,
    /// Keys removed because they had expired.
    pub expired: Count,
    /// Fields of hashes removed because they had expired, without those that went with their key.
    pub expired_fields: Count,
    /// Keys that read commands found.
    pub hits: Count,
    /// Keys that read commands did not find.
    pub misses: Count,
    /// Commands under an id that were answered with the kept reply.
    pub repeats: Count,
    /// Ids deleted because of their age.
    pub forgotten: Count,
    /// Units in committed batches.
    pub(crate) units: Count,
    /// Transactions retried after a conflict.
    pub(crate) conflicts: Count,
    /// Transactions retried for any reason.
    pub(crate) retries: Count,
    /// Commits whose result was unknown at first.
    pub(crate) unknown: Count,
    /// Handlers and tasks that panicked.
    pub panics: Count,
    /// Offences of clients.
    pub(crate) offences: Offences,
    /// Time of batches from begin to commit. Its count is the number of batches.
    pub(crate) batches: Histogram,
    /// Units per batch, as a distribution.
    pub(crate) batch_sizes: Histogram,
    /// Samples for the rates in INFO.
    pub(crate) rates: Mutex<Rates>,
    /// Refusals by access rules.
    pub(crate) denials: counters::Denials,
    /// SLOWLOG.
    pub slow: slowlog::SlowLog,
    /// LATENCY's events.
    pub(crate) spikes: spikes::Spikes,
    /// The level of the log.
    pub log: log::LogControl,
    /// 40 hexadecimal digits that identify this run of the server.
    pub(crate) run_id: String,
    /// Monotonic time of the start.
    pub(crate) started: Duration,
    errors: Mutex<BTreeMap<String, u64>>,
    missing: Mutex<BTreeMap<&'static str, u64>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry::new(Vec::new(), &Env::system())
    }
}

impl Telemetry {
    /// `labels`: the labels of all rows in the order of the table.
    pub(crate) fn new(labels: Vec<String>, env: &Env) -> Self {
        let mut rng = env.rng();
        let id = format!("{:032x}{:016x}", rng.u128(), rng.u64());
        Telemetry {
            commands: labels.into_iter().map(CommandStats::new).collect(),
            connections: Count::default(),
            refused: Count::default(),
            input: Count::default(),
            output: Count::default(),
            expired: Count::default(),
            expired_fields: Count::default(),
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
    /// Records that the row at `index` ran for `took`; `tracked` is the setting `latency-tracking`. Errors
    /// are also counted by code, with [`Telemetry::error`].
    pub(crate) fn command(&self, index: usize, took: Duration, tracked: bool, outcome: Outcome) {
        let Some(stats) = self.commands.get(index) else { return };
        stats.record(took, tracked);
        if outcome == Outcome::Failed {
            stats.failed.add(1);
        }
    }
    /// Records that a gate refused the row at `index`: it did not run.
    pub(crate) fn rejected(&self, index: usize) {
        if let Some(stats) = self.commands.get(index) {
            stats.rejected.add(1);
        }
    }
    /// Records that an error with this code (`ERR`, `WRONGTYPE`) was sent to a client.
    pub(crate) fn error(&self, code: &str) {
        let mut errors = self.errors.lock();
        if let Some(n) = errors.get_mut(code) {
            *n += 1;
            return;
        }
        let code = if errors.len() < MAX_ERROR_CODES { code } else { "OTHER" };
        *errors.entry(code.to_owned()).or_default() += 1;
    }
    /// Errors sent, sorted by code.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        self.errors.lock().iter().map(|(code, n)| (code.clone(), *n)).collect()
    }
    /// Records that a client sent a Redis command that this server does not implement.
    pub(crate) fn missing(&self, name: &'static str) {
        *self.missing.lock().entry(name).or_default() += 1;
    }
    /// The counts of [`Telemetry::missing`], sorted by name.
    pub(crate) fn all_missing(&self) -> Vec<(&'static str, u64)> {
        self.missing.lock().iter().map(|(name, n)| (*name, *n)).collect()
    }
    /// The number of commands that ran.
    pub(crate) fn total_commands(&self) -> u64 {
        self.commands.iter().map(CommandStats::calls).sum()
    }
    /// The label of the row at `index`; `NULL` if there is none, as in CLIENT LIST.
    pub(crate) fn label(&self, index: usize) -> &str {
        self.commands.get(index).map_or("NULL", |c| c.label.as_str())
    }
    /// Records an accepted connection.
    pub(crate) fn on_connect(&self) {
        self.connections.add(1);
    }
    /// Records a refused connection.
    pub(crate) fn on_refuse(&self) {
        self.refused.add(1);
    }
    /// Records `n` bytes from a client.
    pub(crate) fn on_read(&self, n: usize) {
        self.input.add(n as u64);
    }
    /// Records `n` bytes to a client.
    pub(crate) fn on_write(&self, n: usize) {
        self.output.add(n as u64);
    }
    /// Records that so many expired keys and expired fields of hashes were removed.
    pub(crate) fn on_expired(&self, keys: u64, fields: u64) {
        self.expired.add(keys);
        self.expired_fields.add(fields);
    }
    /// Records the lookups of a unit that was answered.
    pub(crate) fn on_lookups(&self, lookups: Lookups) {
        for (count, n) in [(&self.hits, lookups.hits), (&self.misses, lookups.misses)] {
            if n > 0 {
                count.add(n);
            }
        }
    }
    /// Records that a command under an id was answered with the kept reply. A retried attempt counts again.
    pub(crate) fn on_repeat(&self) {
        self.repeats.add(1);
    }
    /// Records that `n` ids were deleted because of their age.
    pub(crate) fn on_forgotten(&self, n: u64) {
        self.forgotten.add(n);
    }
    /// Records a panic of a handler or a task.
    pub(crate) fn on_panic(&self) {
        self.panics.add(1);
    }
    /// Records that a transaction is retried because of `e`.
    pub(crate) fn on_retry(&self, e: &StoreError) {
        self.retries.add(1);
        match e {
            StoreError::Conflict => self.conflicts.add(1),
            StoreError::Unknown => self.unknown.add(1),
            _ => {}
        }
    }
    /// Records that a batch of `units` was committed after `took`.
    pub(crate) fn on_batch(&self, units: usize, took: Duration) {
        self.units.add(units as u64);
        self.batches.record(took);
        self.batch_sizes.record_value(units as u64);
    }
    /// CONFIG RESETSTAT: resets everything except the run's identity.
    pub(crate) fn reset(&self) {
        let counts = [
            &self.connections,
            &self.refused,
            &self.input,
            &self.output,
            &self.expired,
            &self.expired_fields,
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
