//! LATENCY: latency distributions of all commands, and the latency monitor's events (`telemetry::spikes`).

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Flags, Group, Row};
use crate::telemetry::counters::CommandStats;
use crate::telemetry::spikes::{Sample, Series};
use crate::{handler, help};
use std::collections::HashSet;
use std::fmt::Write;

/// The container.
pub(crate) const COMMANDS: &[Command] = &[LATENCY];

const SUBS: &[Command] = &[
    LATENCY_DOCTOR,
    LATENCY_GRAPH,
    help!("latency", Group::Server, "2.8.13"),
    LATENCY_HISTOGRAM,
    LATENCY_HISTORY,
    LATENCY_LATEST,
    LATENCY_RESET,
];

const LATENCY: Command = Command::container(
    Row::new(Group::Server, "latency", -2, "2.8.13")
        .summary("Reports the latency of commands and of background work."),
    SUBS,
);

/// The steps of a histogram, as powers of two of nanoseconds: 1 microsecond to 18 minutes.
const STEPS: std::ops::RangeInclusive<u32> = 10..=40;
/// Columns and rows of a graph.
const WIDTH: usize = 80;
const HEIGHT: u64 = 4;

fn number(n: u64) -> Reply {
    Reply::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

const LATENCY_HISTOGRAM: Command = Command::new(
    Row::new(Group::Server, "histogram", -2, "7.0.0")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .syntax("[command [command ...]]")
        .summary("Returns the cumulative distribution of each command's latency, in microseconds.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    handler!(histogram),
);

/// A container's name includes its subcommands. As in Redis, values measured before `latency-tracking no` are
/// still shown.
async fn histogram(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let names: HashSet<Vec<u8>> = args.rest().iter().map(|name| name.to_ascii_lowercase()).collect();
    let meant = |label: &str| {
        let container = label.split('|').next().unwrap_or_default();
        names.contains(label.as_bytes()) || names.contains(container.as_bytes())
    };
    let named = |stats: &&CommandStats| args.is_empty() || meant(&stats.label);
    let ran = cx.server.telemetry.commands.iter().filter(named).filter(|stats| stats.latency.count() > 0);
    Ok(Reply::Map(ran.map(|stats| (Reply::text(stats.label.clone()), distribution(stats))).collect()))
}

/// Cumulative calls at each step, omitting steps without additional calls.
fn distribution(stats: &CommandStats) -> Reply {
    let (steps, rest) = stats.latency.by_powers(STEPS);
    let (mut sum, mut reached) = (0, Vec::new());
    let last = steps.last().map_or(0, |(limit, _)| *limit);
    for (limit, n) in steps.into_iter().chain([(last.saturating_mul(2), rest)]).filter(|(_, n)| *n > 0) {
        sum += n;
        reached.push((number((limit - 1) / 1000), number(sum)));
    }
    Reply::Map(vec![
        (Reply::bulk_static("calls"), number(sum)),
        (Reply::bulk_static("histogram_usec"), Reply::Map(reached)),
    ])
}

const LATENCY_LATEST: Command = Command::new(
    Row::new(Group::Server, "latest", 2, "2.8.13")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .summary("Returns the latest and the longest latency of each event.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    handler!(latest),
);

async fn latest(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let one = |(event, series): (&'static str, Series)| {
        let last = series.samples.back().copied().unwrap_or(Sample { at: 0, took: 0 });
        Reply::Array(vec![
            Reply::bulk_static(event),
            number(last.at),
            number(last.took),
            number(series.longest),
        ])
    };
    Ok(Reply::Array(cx.server.telemetry.spikes.all().into_iter().map(one).collect()))
}

const LATENCY_HISTORY: Command = Command::new(
    Row::new(Group::Server, "history", 3, "2.8.13")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .syntax("event")
        .summary("Returns the latency samples of an event.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    handler!(history),
);

async fn history(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let series = cx.server.telemetry.spikes.of(args.next()?).map(|(_, series)| series).unwrap_or_default();
    let samples = series.samples.iter().map(|s| Reply::Array(vec![number(s.at), number(s.took)]));
    Ok(Reply::Array(samples.collect()))
}

const LATENCY_RESET: Command = Command::new(
    Row::new(Group::Server, "reset", -2, "2.8.13")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .syntax("[event [event ...]]")
        .summary("Resets the latency samples of all events, or of those given. Returns the number of events reset.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(reset),
);

async fn reset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.server.telemetry.spikes.reset(args.rest()) as i64))
}

const LATENCY_GRAPH: Command = Command::new(
    Row::new(Group::Server, "graph", 3, "2.8.13")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .syntax("event")
        .summary("Draws a graph of an event's latency.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    handler!(graph),
);

async fn graph(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let event = args.next()?;
    let Some((name, series)) = cx.server.telemetry.spikes.of(event) else {
        let event = quoted(event);
        return Err(ReplyError::of(format!("ERR No samples available for event '{event}'")).into());
    };
    Ok(Reply::verbatim(draw(name, &series, cx.now / 1000)))
}

/// One column per sample, the latest on the right; below it, read downwards, how long ago it was.
fn draw(event: &str, series: &Series, now: u64) -> String {
    let skip = series.samples.len().saturating_sub(WIDTH);
    let shown: Vec<Sample> = series.samples.iter().skip(skip).copied().collect();
    let (low, high) = shown.iter().fold((u64::MAX, 0), |(l, h), s| (l.min(s.took), h.max(s.took)));
    let mut out = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.longest);
    out += &("-".repeat(WIDTH) + "\n");
    let level = |s: &Sample| (s.took - low) * HEIGHT / (high - low + 1);
    for row in (0..HEIGHT).rev() {
        let line: String = shown.iter().map(|s| mark(level(s), row)).collect();
        out += &(line.trim_end().to_owned() + "\n");
    }
    let ages: Vec<String> = shown.iter().map(|s| age(now.saturating_sub(s.at))).collect();
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let line: String = ages.iter().map(|a| a.chars().nth(row).unwrap_or(' ')).collect();
        out += &("\n".to_owned() + line.trim_end());
    }
    out + "\n"
}

fn mark(level: u64, row: u64) -> char {
    match level.cmp(&row) {
        std::cmp::Ordering::Greater => '|',
        std::cmp::Ordering::Equal => '_',
        std::cmp::Ordering::Less => ' ',
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

const LATENCY_DOCTOR: Command = Command::new(
    Row::new(Group::Server, "doctor", 2, "2.8.13")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .summary("Reports in plain words what was slow, and what may help.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    handler!(doctor),
);

async fn doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let config = cx.server.config.get();
    let events = cx.server.telemetry.spikes.all();
    if events.is_empty() {
        let text = match config.latency_monitor_threshold {
            0 => {
                "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> makes it record whatever takes \
                  longer; LATENCY HISTOGRAM works without it.\n"
            }
            _ => "No event has exceeded latency-monitor-threshold since the last reset.\n",
        };
        return Ok(Reply::verbatim(text));
    }
    let mut out = format!("Events that took longer than {} ms:\n", config.latency_monitor_threshold);
    for (event, series) in events {
        let n = series.samples.len() as u64;
        let average = series.samples.iter().map(|s| s.took).sum::<u64>() / n.max(1);
        let seconds = if n == 1 { "second" } else { "seconds" };
        let _ = writeln!(
            out,
            "- {event}: in {n} {seconds}, {average} ms on average, {} ms at most. {}",
            series.longest,
            advice(event)
        );
    }
    Ok(Reply::verbatim(out))
}

fn advice(event: &str) -> &'static str {
    match event {
        "fast-command" => {
            "These commands do little themselves: look at the store (INFO tern: batch_usec, store_sync_usec) and at the \
             machine's load."
        }
        "command" => {
            "SLOWLOG GET shows which. Commands on large sets, KEYS and SORT read everything they return; commits of \
             large writes take as long as the disk does."
        }
        _ => "Background work, which shares the store with commands.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_a_column_a_sample() {
        let samples = [(100, 10), (150, 49), (160, 20)].map(|(at, took)| Sample { at, took });
        let text = draw("command", &Series { samples: samples.into(), longest: 77 }, 165);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "command - high 49 ms, low 10 ms (all time high 77 ms)");
        assert_eq!(&lines[2..], [" _", " |", " |_", "_||", "", "115", "m5s", " s"], "{text}");
    }
}
