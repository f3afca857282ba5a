//! The metrics in the OpenMetrics text format, built from the counters on request.

use super::Telemetry;
use super::latency::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::Result;

/// Bounds of the exposed buckets, as powers of two of nanoseconds: 1 µs to 17 s, a factor of 4 each.
const TIME_BITS: [u32; 13] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];
/// Bounds of the exposed buckets of batch sizes: below 2 to below 4096 units.
const SIZE_BITS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const NANOS: f64 = 1e9;
/// Tern's version, and whether it supports FoundationDB.
const BUILD: [(&str, &str); 2] =
    [("version", env!("CARGO_PKG_VERSION")), ("fdb", if cfg!(feature = "fdb") { "1" } else { "0" })];

/// A number with its name and a one-sentence description.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Without the prefix `tern_` and without `_total`.
    pub(crate) name: &'static str,
    /// One sentence.
    pub(crate) help: &'static str,
    /// Its value.
    pub(crate) value: Value,
}

/// The kind of a number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    /// Only grows.
    Counter(f64),
    /// Goes up and down.
    Gauge(f64),
}

impl Figure {
    /// A counter.
    pub(crate) fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Figure { name, help, value: Value::Counter(value as f64) }
    }
    /// A counter of seconds, from microseconds.
    pub(crate) fn micros(name: &'static str, help: &'static str, micros: u64) -> Self {
        Figure { name, help, value: Value::Counter(micros as f64 / 1e6) }
    }
    /// A gauge.
    pub(crate) fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Figure { name, help, value: Value::Gauge(value as f64) }
    }
}

/// A histogram's state.
#[derive(Debug)]
struct Distribution {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Distribution {
    fn of(histogram: &Histogram, bits: &[u32], unit: f64) -> Self {
        let (steps, rest) = histogram.by_powers(bits.iter().copied());
        let count = rest + steps.iter().map(|(_, n)| n).sum::<u64>();
        let buckets = steps.into_iter().map(|(limit, n)| (limit as f64 / unit, n));
        Distribution {
            sum: histogram.sum() as f64 / unit,
            count,
            buckets: buckets.chain([(f64::MAX, rest)]).collect(),
        }
    }
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count, &self.buckets, None)
    }
}

#[derive(Debug)]
struct CommandFigures {
    label: String,
    latency: Distribution,
    failed: u64,
    rejected: u64,
}

/// A snapshot of all metrics.
#[derive(Debug)]
struct Exposition {
    figures: Vec<Figure>,
    commands: Vec<CommandFigures>,
    errors: Vec<(String, u64)>,
    missing: Vec<(&'static str, u64)>,
    offences: Vec<(&'static str, u64)>,
    batches: Distribution,
    batch_sizes: Distribution,
}

/// The text of all metrics: `telemetry`'s and the figures of other modules (store, clients, process).
pub(crate) fn text(telemetry: &Telemetry, others: Vec<Figure>) -> String {
    let mut registry = Registry::with_prefix("tern");
    registry.register_collector(Box::new(Exposition::of(telemetry, others)));
    let mut out = String::new();
    match prometheus_client::encoding::text::encode(&mut out, &registry) {
        Ok(()) => out,
        Err(_) => String::from("# EOF\n"),
    }
}

fn figures(t: &Telemetry) -> Vec<Figure> {
    let f = Figure::counter;
    vec![
        f("connections", "Connections accepted.", t.connections.get()),
        f("connections_refused", "Connections refused.", t.refused.get()),
        f("input_bytes", "Bytes read from clients.", t.input.get()),
        f("output_bytes", "Bytes written to clients.", t.output.get()),
        f("expired_keys", "Keys removed because they had expired.", t.expired.get()),
        f("expired_subkeys", "Fields of hashes removed because they had expired.", t.expired_fields.get()),
        f("keyspace_hits", "Keys that read commands found.", t.hits.get()),
        f("keyspace_misses", "Keys that read commands did not find.", t.misses.get()),
        f("idempotent_repeats", "Retries answered with the reply kept under an id.", t.repeats.get()),
        f("idempotent_forgotten", "Ids deleted because of their age.", t.forgotten.get()),
        f("batched_units", "Pipeline windows and transactions in committed batches.", t.units.get()),
        f("batch_conflicts", "Transactions retried after a conflict.", t.conflicts.get()),
        f("batch_retries", "Transactions retried for any reason.", t.retries.get()),
        f("batch_unknown", "Commits whose result was unknown at first.", t.unknown.get()),
        f("panics", "Handlers and tasks that panicked.", t.panics.get()),
    ]
}

impl Exposition {
    fn of(t: &Telemetry, others: Vec<Figure>) -> Self {
        let commands = t.commands.iter().map(|c| CommandFigures {
            label: c.label.clone(),
            latency: Distribution::of(&c.latency, &TIME_BITS, NANOS),
            failed: c.failed.get(),
            rejected: c.rejected.get(),
        });
        Exposition {
            figures: figures(t).into_iter().chain(others).collect(),
            commands: commands.filter(|c| c.latency.count + c.rejected + c.failed > 0).collect(),
            errors: t.errors(),
            missing: t.all_missing(),
            offences: t.offences.all().collect(),
            batches: Distribution::of(&t.batches, &TIME_BITS, NANOS),
            batch_sizes: Distribution::of(&t.batch_sizes, &SIZE_BITS, 1.0),
        }
    }

    fn commands(&self, e: &mut DescriptorEncoder<'_>) -> Result {
        let kind = MetricType::Histogram;
        let mut family =
            e.encode_descriptor("command_seconds", "Duration of commands, by name.", None, kind)?;
        for c in &self.commands {
            c.latency.encode(family.encode_family(&[("command", c.label.as_str())])?)?;
        }
        let failed = self.commands.iter().map(|c| (c.label.as_str(), c.failed));
        counters(e, "commands_failed", "Commands that replied with an error.", "command", failed)?;
        let rejected = self.commands.iter().map(|c| (c.label.as_str(), c.rejected));
        counters(e, "commands_rejected", "Commands rejected before they ran.", "command", rejected)?;
        let missing = self.missing.iter().copied();
        let help = "Redis commands that clients sent and that this server does not implement.";
        counters(e, "commands_missing", help, "command", missing)?;
        let errors = self.errors.iter().map(|(code, n)| (code.as_str(), *n));
        counters(e, "errors", "Errors sent to clients, by code.", "code", errors)?;
        let offences = self.offences.iter().copied();
        counters(e, "offences", "Offences of clients, by kind.", "kind", offences)
    }
}

/// A family of counters with one label.
fn counters<'a>(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) -> Result {
    let mut family = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, n) in values {
        ConstCounter::new(n).encode(family.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}

impl Collector for Exposition {
    fn encode(&self, mut e: DescriptorEncoder<'_>) -> Result {
        for f in &self.figures {
            match f.value {
                Value::Counter(v) => {
                    let family = e.encode_descriptor(f.name, f.help, None, MetricType::Counter)?;
                    ConstCounter::new(v).encode(family)?;
                }
                Value::Gauge(v) => {
                    let family = e.encode_descriptor(f.name, f.help, None, MetricType::Gauge)?;
                    ConstGauge::new(v).encode(family)?;
                }
            }
        }
        let mut build =
            e.encode_descriptor("build", "The version and build of this server.", None, MetricType::Info)?;
        build.encode_info(&BUILD)?;
        self.commands(&mut e)?;
        let kind = MetricType::Histogram;
        self.batches.encode(e.encode_descriptor(
            "batch_seconds",
            "Duration of a batch, from begin to commit.",
            None,
            kind,
        )?)?;
        let sizes = e.encode_descriptor("batch_units", "Units in a batch.", None, kind)?;
        self.batch_sizes.encode(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::telemetry::Outcome;
    use crate::telemetry::offences::Offence;
    use std::time::Duration;

    #[test]
    fn the_text_says_what_was_counted() {
        let t = Telemetry::new(vec!["get".into(), "client|id".into()], &Env::seeded(0, 1));
        t.command(0, Duration::from_micros(3), true, Outcome::Done);
        t.command(0, Duration::from_secs(40), true, Outcome::Failed);
        t.rejected(1);
        t.error("WRONGTYPE");
        t.missing("vadd");
        t.on_batch(3, Duration::from_millis(2));
        t.on_connect();
        t.offences.add(Offence::Password, Duration::ZERO);
        let text = text(&t, vec![Figure::gauge("clients", "Connected.", 7)]);
        for line in [
            "tern_connections_total 1.0",
            "tern_clients 7.0",
            "tern_command_seconds_count{command=\"get\"} 2",
            "tern_command_seconds_bucket{le=\"0.000004096\",command=\"get\"} 1",
            "tern_command_seconds_bucket{le=\"17.179869184\",command=\"get\"} 1",
            "tern_command_seconds_bucket{le=\"+Inf\",command=\"get\"} 2",
            "tern_commands_failed_total{command=\"get\"} 1",
            "tern_commands_rejected_total{command=\"client|id\"} 1",
            "tern_commands_missing_total{command=\"vadd\"} 1",
            "tern_errors_total{code=\"WRONGTYPE\"} 1",
            "tern_offences_total{kind=\"password\"} 1",
            "tern_batch_units_bucket{le=\"2.0\"} 0",
            "tern_batch_units_bucket{le=\"4.0\"} 1",
            "tern_batch_seconds_count 1",
            concat!("tern_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",fdb=\"0\"} 1"),
            "# EOF",
        ] {
            let line =
                if cfg!(feature = "fdb") { line.replace("fdb=\"0\"", "fdb=\"1\"") } else { line.into() };
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
