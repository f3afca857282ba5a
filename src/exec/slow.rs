//! Records slow commands for the slow log and the latency monitor. Costs two comparisons if nothing was slow.

use crate::dispatch::Call;
use crate::server::redact::redacted;
use crate::server::{ClientState, Server};
use crate::spec::Flags;
use crate::telemetry::slowlog::{SlowCommand, cut};
use crate::telemetry::spikes::Sample;
use std::time::Duration;

/// Records that `calls` of `client` ran together and took `took`. The options are read afterwards, so that
/// the CONFIG SET that turns the slow log off is not logged.
pub(crate) fn note(server: &Server, client: &ClientState, calls: &[Call], took: Duration) {
    let config = server.config.get();
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if u64::try_from(config.slowlog_log_slower_than).is_ok_and(|least| micros >= least) {
        keep(server, client, calls, micros, config.slowlog_max_len);
    }
    if is_spike(took, config.latency_monitor_threshold) {
        let fast = calls.iter().all(|c| c.row.flags.has(Flags::FAST));
        add(server, if fast { "fast-command" } else { "command" }, took);
    }
}

/// Records that `event` took `took`.
pub(crate) fn note_event(server: &Server, event: &'static str, took: Duration) {
    if is_spike(took, server.config.get().latency_monitor_threshold) {
        add(server, event, took);
    }
}

fn is_spike(took: Duration, threshold: u64) -> bool {
    threshold > 0 && took.as_millis() >= u128::from(threshold)
}

fn add(server: &Server, event: &'static str, took: Duration) {
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    server.telemetry.spikes.add(event, Sample { at: server.env.clock.now_ms() / 1000, took });
}

fn keep(server: &Server, client: &ClientState, calls: &[Call], took: u64, most: usize) {
    let at = server.env.clock.now_ms() / 1000;
    let kept: Vec<&Call> = calls.iter().filter(|c| !c.row.flags.has(Flags::SKIP_SLOWLOG)).collect();
    // Entries that would be pushed out at once get no number.
    let latest = kept.get(kept.len().saturating_sub(most)..).unwrap_or_default();
    let commands = latest.iter().map(|call| SlowCommand {
        id: 0,
        at,
        took,
        argv: cut(&redacted(server.table, &call.argv)),
        addr: client.handle.addr.clone(),
        name: client.name.clone(),
    });
    server.telemetry.slow.add(commands, most);
}
