//! INFO: selects the sections. `info_sections.rs` writes them.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::server::info_sections::{self as sections, KeyspaceRow};
use crate::error::{Error, Result, StoreResult};
use crate::handler;
use crate::keyspace::dictionary::collector::State;
use crate::keyspace::dictionary::leases;
use crate::keyspace::keys::{Prefix, SHARDS};
use crate::server::Server;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, Row};
use crate::store::{RangeOptions, Read, Tx};
use crate::telemetry::counters::Sample;
use crate::telemetry::process;
use crate::telemetry::prometheus::{self, Figure};
use bytes::Bytes;

/// The command.
pub(crate) const COMMANDS: &[Command] = &[INFO];

/// Sections in display order, and whether INFO without arguments includes them.
const SECTIONS: &[(&str, bool)] = &[
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("latencystats", false),
    ("cluster", true),
    ("keyspace", true),
    ("tern", true),
];

/// Whether `section` was requested.
fn wanted(asked: &[Bytes], section: &str, by_default: bool) -> bool {
    let is = |word: &Bytes, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    asked.is_empty() && by_default
        || asked.iter().any(|a| {
            is(a, section) || is(a, "all") || is(a, "everything") || (is(a, "default") && by_default)
        })
}

const INFO: Command = Command::new(
    Row::new(Group::Server, "info", -1, "1.0.0")
        .flags(Flags::LOADING.or(Flags::STALE))
        .syntax("[section [section ...]]")
        .summary("Returns information and statistics about the server.")
        .categories(&["dangerous"])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(info),
);

async fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    sample(cx.server);
    let mut out = String::new();
    for (section, _) in SECTIONS.iter().filter(|(name, default)| wanted(args.rest(), name, *default)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        match *section {
            "server" => sections::server(&mut out, cx.server),
            "clients" => sections::clients(&mut out, cx.server),
            "memory" => sections::memory(&mut out, cx.server),
            "persistence" => sections::persistence(&mut out, cx.server),
            "stats" => sections::stats(&mut out, cx.server),
            "replication" => sections::replication(&mut out, cx.server),
            "cpu" => sections::cpu(&mut out),
            "commandstats" => sections::commandstats(&mut out, cx.server),
            "errorstats" => sections::errorstats(&mut out, cx.server),
            "latencystats" => sections::latencystats(&mut out, cx.server),
            "cluster" => sections::cluster(&mut out),
            "keyspace" => {
                sections::keyspace(&mut out, &keyspace(cx).await?);
                sections::dictionary(&mut out, cx.server, dictionary(cx).await?);
            }
            "tern" => {
                sections::tern(&mut out, cx.server);
                sections::collection(&mut out, cx.server, dictionary(cx).await?);
                sections::store_cluster(&mut out, cx.server.store.cluster().await);
            }
            _ => sections::modules(&mut out),
        }
    }
    Ok(Reply::verbatim(out))
}

/// Takes a sample for the rates. Called several times a second by the server, and by INFO itself.
pub fn sample(server: &Server) {
    let t = &server.telemetry;
    t.rates.lock().sample(Sample {
        at: server.env.clock.monotonic(),
        commands: t.total_commands(),
        input: t.input.get(),
        output: t.output.get(),
    });
}

/// Databases that hold keys. Empty if the store cannot be read, because that is when an operator needs INFO.
async fn keyspace(cx: &Cx<'_>) -> Result<Vec<KeyspaceRow>> {
    let mut rows = Vec::new();
    for (db, prefix) in cx.catalog.prefixes() {
        match keyspace_row(cx.tx, db, prefix).await {
            Ok(row) => rows.extend(row),
            Err(Error::Store(e)) if !e.is_retryable() => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    }
    Ok(rows)
}

/// The number of leased ids, and the state of the dictionary's collection; None if the store cannot be read.
async fn dictionary(cx: &Cx<'_>) -> Result<Option<(u64, State)>> {
    let read = async {
        let leased = leases::leased(cx.tx).await?;
        StoreResult::Ok((leased, State::read(cx.tx, Read::Snapshot).await?))
    };
    match read.await {
        Ok(read) => Ok(Some(read)),
        Err(e) if !e.is_retryable() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The most rows of the expiry index that are read to count them: INFO reports no larger number.
const MAX_EXPIRY_ROWS: usize = 10_000;

async fn keyspace_row(tx: &Tx, db: u8, prefix: Prefix) -> Result<Option<KeyspaceRow>> {
    let (from, to) = (prefix.key_count(0), prefix.key_count(SHARDS));
    let counts = tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await?;
    let counts = counts.pairs.iter().filter_map(|(_, raw)| raw.first_chunk());
    let keys = counts.map(|raw| i64::from_le_bytes(*raw)).sum::<i64>();
    if keys <= 0 {
        return Ok(None);
    }
    let (from, to) = (prefix.expiry_from(0, 0), prefix.expiry_from(SHARDS, 0));
    let options = RangeOptions { limit: MAX_EXPIRY_ROWS, ..RangeOptions::default() };
    let found = tx.get_range(&from, &to, options, Read::Snapshot).await?;
    let expires = found.pairs.iter().filter(|(_, value)| value.is_empty()).count();
    Ok(Some(KeyspaceRow { db, keys, expires }))
}

/// The text of `metrics-port`.
pub fn metrics(server: &Server) -> String {
    prometheus::text(&server.telemetry, figures(server))
}

fn figures(server: &Server) -> Vec<Figure> {
    let (store, process) = (server.store.stats(), process::read());
    let (f, g) = (Figure::counter, Figure::gauge);
    let uptime = server.env.clock.monotonic().saturating_sub(server.telemetry.started);
    let mut figures = vec![
        g("connected_clients", "Connected clients.", server.clients.len() as u64),
        g("instances_alive", "Live servers on the store.", server.space.instances.living() as u64),
        g("uptime_seconds", "Seconds since the server started.", uptime.as_secs()),
        g("resident_memory_bytes", "Resident memory of the process.", process.rss),
        g("tasks", "Tasks of the async runtime.", process::tasks()),
        f("store_commits", "Transactions with writes that committed.", store.commits),
        f("store_conflicts", "Commits rejected with a conflict.", store.conflicts),
        f("store_batches", "Batches written by the committer.", store.batches),
        f("store_syncs", "Syncs of the log.", store.syncs),
        Figure::micros("store_write_seconds", "Time spent writing batches.", store.write_micros),
        Figure::micros("store_sync_seconds", "Time spent syncing the log.", store.sync_micros),
        g("store_disk_bytes", "Bytes on disk.", store.disk_bytes),
        g("store_memory_bytes", "Memory of the store's tables and caches, in bytes.", store.memory_bytes),
        g("store_read_only", "1 while writes are refused.", u64::from(store.refusal.is_some())),
    ];
    if let Some(n) = store.network {
        figures.extend([
            f("store_read_versions", "Transactions that got a read version.", n.read_versions),
            f("store_keys_read", "Keys fetched by point reads.", n.keys_read),
            f("store_ranges_read", "Pages fetched by range reads.", n.ranges_read),
            f("store_unknown", "Commits whose result is unknown.", n.unknown),
            f("store_too_old", "Reads and commits rejected as too old or because of load.", n.too_old),
        ]);
    }
    figures
}
