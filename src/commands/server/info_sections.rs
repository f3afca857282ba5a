//! The sections of INFO. Fields have Redis' names if they have the same meaning; fields without a meaning
//! here are left out.

use crate::commands::REDIS_VERSION;
use crate::keyspace::cluster::instances::Instance;
use crate::keyspace::dictionary::collector::State;
use crate::server::Server;
use crate::server::subscribers::SubscriptionKind;
use crate::store::ClusterStatus;
use crate::telemetry::offences::Offence;
use crate::telemetry::process;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Writes `name:value` lines.
macro_rules! lines {
    ($out:expr, $title:literal, $($name:literal: $value:expr),* $(,)?) => {{
        $out.push_str(concat!("# ", $title, "\r\n"));
        // Writing into a String cannot fail.
        $(let _ = write!($out, concat!($name, ":{}\r\n"), $value);)*
    }};
}

/// A number of bytes in Redis' human-readable form.
fn human(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes as f64 / *size as f64),
        None => format!("{bytes}B"),
    }
}

pub(super) fn server(out: &mut String, server: &Server) {
    let settings = server.config.get();
    let uptime = server.env.clock.monotonic().saturating_sub(server.telemetry.started).as_secs();
    let path = |p: Option<std::path::PathBuf>| p.map(|p| p.display().to_string()).unwrap_or_default();
    let file = server.config.file().and_then(|f| std::path::absolute(f).ok());
    lines!(out, "Server",
        "redis_version": REDIS_VERSION,
        "redis_mode": "standalone",
        "tern_version": env!("CARGO_PKG_VERSION"),
        "os": process::system(),
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "process_supervised": "no",
        "run_id": server.telemetry.run_id,
        "tcp_port": if settings.port == 0 { settings.tls_port } else { settings.port },
        "server_time_usec": server.env.clock.now_us(),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "hz": settings.hz,
        "configured_hz": settings.hz,
        "executable": path(std::env::current_exe().ok()),
        "config_file": path(file),
    );
}

pub(super) fn clients(out: &mut String, server: &Server) {
    let clients = server.clients.staying();
    lines!(out, "Clients",
        "connected_clients": clients.len(),
        "cluster_connections": 0,
        "maxclients": server.config.get().maxclients,
        "blocked_clients": clients.iter().filter(|c| c.is_blocked()).count(),
        "tracking_clients": server.tracking.totals().clients,
        "pubsub_clients": clients.iter().filter(|c| c.is_subscribed()).count(),
        "watching_clients": clients.iter().filter(|c| c.is_watching()).count(),
        "total_blocking_keys": server.waiters.keys(),
        "total_blocking_keys_on_nokey": 0,
    );
}

/// `used_memory` is the resident memory: no other number is correct for all allocators in the process.
pub(super) fn memory(out: &mut String, server: &Server) {
    let (p, store) = (process::read(), server.store.stats());
    let (scripts, script_bytes) = server.scripts.size();
    let (libraries, functions) = server.libraries.size();
    lines!(out, "Memory",
        "used_memory": p.rss,
        "used_memory_human": human(p.rss),
        "used_memory_rss": p.rss,
        "used_memory_rss_human": human(p.rss),
        "used_memory_peak": p.peak,
        "used_memory_peak_human": human(p.peak),
        "used_memory_store": store.memory_bytes,
        "used_memory_store_human": human(store.memory_bytes),
        "total_system_memory": p.machine,
        "total_system_memory_human": human(p.machine),
        "maxmemory": 0,
        "maxmemory_human": "0B",
        "maxmemory_policy": "noeviction",
        "number_of_cached_scripts": scripts,
        "number_of_functions": functions,
        "number_of_libraries": libraries,
        "used_memory_lua": 0,
        "used_memory_lua_human": "0B",
        "used_memory_vm_total": 0,
        "used_memory_scripts": script_bytes,
        "used_memory_scripts_human": human(script_bytes as u64),
        "mem_fragmentation_ratio": "1.00",
        "mem_clients_slaves": 0,
        "mem_clients_normal": server.clients.all().iter().map(|c| c.memory()).sum::<u64>(),
        "mem_allocator": "mimalloc",
    );
}

/// When the last backup ended, in seconds since 1970, for LASTSAVE and INFO. 0: no server knows of any
/// backup, because no command makes one yet, and external ones (`tern copy`, a cluster's own backup) are not
/// reported to it. Durable writes are no backup: an alarm about the age of the last backup must fire.
pub(super) const LAST_BACKUP: i64 = 0;

/// Here the store takes the place of Redis' append-only file: writes are in its log before they are
/// acknowledged.
pub(super) fn persistence(out: &mut String, server: &Server) {
    let store = server.store.stats();
    lines!(out, "Persistence",
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": 0,
        "rdb_bgsave_in_progress": 0,
        "rdb_last_save_time": LAST_BACKUP,
        "rdb_last_bgsave_status": "ok",
        "rdb_last_bgsave_time_sec": -1, // never
        "rdb_current_bgsave_time_sec": -1,
        "rdb_saves": 0,
        "aof_enabled": 1,
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1, // never
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": if store.refusal.is_some() { "err" } else { "ok" },
        "aof_current_size": store.disk_bytes,
    );
}

pub(super) fn stats(out: &mut String, server: &Server) {
    let (t, tracked) = (&server.telemetry, server.tracking.totals());
    let (ops, input, output) = {
        let rates = t.rates.lock();
        (rates.per_second(|s| s.commands), rates.per_second(|s| s.input), rates.per_second(|s| s.output))
    };
    lines!(out, "Stats",
        "total_connections_received": t.connections.get(),
        "total_commands_processed": t.total_commands(),
        "instantaneous_ops_per_sec": ops.round() as u64,
        "total_net_input_bytes": t.input.get(),
        "total_net_output_bytes": t.output.get(),
        "total_net_repl_input_bytes": 0,
        "total_net_repl_output_bytes": 0,
        "instantaneous_input_kbps": format!("{:.2}", input / 1024.0),
        "instantaneous_output_kbps": format!("{:.2}", output / 1024.0),
        "rejected_connections": t.refused.get(),
        "sync_full": 0,
        "sync_partial_ok": 0,
        "sync_partial_err": 0,
        "expired_subkeys": t.expired_fields.get(),
        "expired_keys": t.expired.get(),
        "migrate_cached_sockets": 0, // MIGRATE is refused
        "idempotent_repeats": t.repeats.get(),
        "idempotent_forgotten": t.forgotten.get(),
        "evicted_keys": 0,
        "evicted_clients": 0,
        "evicted_scripts": 0,
        "total_eviction_exceeded_time": 0,
        "current_eviction_exceeded_time": 0,
        "latest_fork_usec": 0,
        "total_forks": 0,
        "keyspace_hits": t.hits.get(),
        "keyspace_misses": t.misses.get(),
        "acl_access_denied_auth": t.offences.count(Offence::Password),
        "acl_access_denied_cmd": t.denials.commands.get(),
        "acl_access_denied_key": t.denials.keys.get(),
        "acl_access_denied_channel": t.denials.channels.get(),
        "pubsub_channels": server.subscribers.names(SubscriptionKind::Channel),
        "pubsub_patterns": server.subscribers.names(SubscriptionKind::Pattern),
        "pubsubshard_channels": server.subscribers.names(SubscriptionKind::Shard),
        "tracking_total_keys": tracked.keys,
        "tracking_total_items": tracked.items,
        "tracking_total_prefixes": tracked.prefixes,
        "client_query_buffer_limit_disconnections": t.offences.count(Offence::Requests),
        "client_output_buffer_limit_disconnections": t.offences.count(Offence::Replies),
        "total_error_replies": t.errors().iter().map(|(_, n)| n).sum::<u64>(),
        "unexpected_error_replies": t.panics.get(),
    );
}

pub(super) fn replication(out: &mut String, server: &Server) {
    lines!(out, "Replication",
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": server.telemetry.run_id,
        "master_replid2": "0000000000000000000000000000000000000000",
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 0,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    );
}

pub(super) fn cpu(out: &mut String) {
    let p = process::read();
    lines!(out, "CPU",
        "used_cpu_sys": format!("{:.6}", p.system),
        "used_cpu_user": format!("{:.6}", p.user),
        "used_cpu_sys_children": "0.000000", // no child processes
        "used_cpu_user_children": "0.000000",
    );
}

pub(super) fn modules(out: &mut String) {
    lines!(out, "Modules",);
}

pub(super) fn cluster(out: &mut String) {
    lines!(out, "Cluster", "cluster_enabled": 0);
}

pub(super) fn commandstats(out: &mut String, server: &Server) {
    lines!(out, "Commandstats",);
    for c in &server.telemetry.commands {
        let (calls, rejected, failed) = (c.calls(), c.rejected.get(), c.failed.get());
        if calls + rejected == 0 {
            continue;
        }
        let usec = c.nanos() as f64 / 1000.0;
        let each = if calls > 0 { usec / calls as f64 } else { 0.0 };
        let _ = write!(
            out,
            "cmdstat_{}:calls={calls},usec={usec:.0},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}\r\n",
            c.label,
        );
    }
    // A command that is not implemented has not run either.
    for (name, rejected) in server.telemetry.all_missing() {
        let _ = write!(
            out,
            "cmdstat_{name}:calls=0,usec=0,usec_per_call=0.00,rejected_calls={rejected},failed_calls=0\r\n"
        );
    }
}

pub(super) fn errorstats(out: &mut String, server: &Server) {
    lines!(out, "Errorstats",);
    for (code, n) in server.telemetry.errors() {
        let _ = write!(out, "errorstat_{code}:count={n}\r\n");
    }
}

pub(super) fn latencystats(out: &mut String, server: &Server) {
    lines!(out, "Latencystats",);
    if !server.config.get().latency_tracking {
        return;
    }
    for c in server.telemetry.commands.iter().filter(|c| c.latency.count() > 0) {
        let usec = |percent| c.latency.percentile(percent) as f64 / 1000.0;
        let (p50, p99, p999) = (usec(50.0), usec(99.0), usec(99.9));
        let _ =
            write!(out, "latency_percentiles_usec_{}:p50={p50:.3},p99={p99:.3},p99.9={p999:.3}\r\n", c.label);
    }
}

/// A database's numbers in INFO.
pub(super) struct KeyspaceRow {
    /// Its number.
    pub(crate) db: u8,
    /// Keys, some of which may have expired without being removed yet.
    pub(crate) keys: i64,
    /// Keys with an expiry, as far as they were counted.
    pub(crate) expires: usize,
}

/// `avg_ttl` is 0, as in Redis before its first sample, because nothing is sampled. Exporters read `expires`
/// by position, so it is never left out: if there are more than were counted, it is the number counted.
pub(super) fn keyspace(out: &mut String, rows: &[KeyspaceRow]) {
    lines!(out, "Keyspace",);
    for KeyspaceRow { db, keys, expires } in rows {
        let _ = write!(out, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n");
    }
}

/// The members of chunked sets: their number, and the number that are unused.
pub(super) fn dictionary(out: &mut String, server: &Server, read: Option<(u64, State)>) {
    let Some((leased, state)) = read else { return };
    let _ = write!(
        out,
        "dictionary:ids_leased={leased},ids_live={},ids_dead={},ids_collected={},epoch={},phase={},sets_read={}\r\n",
        state.live,
        state.dead,
        state.collected,
        state.epoch,
        state.phase.name(),
        server.space.collector.sets.load(Ordering::Relaxed),
    );
}

/// The progress of the dictionary's collection. Sets and candidates are what this server has done in the
/// phase, if it runs it; delayed commands are its own.
pub(super) fn collection(out: &mut String, server: &Server, read: Option<(u64, State)>) {
    let Some((leased, state)) = read else { return };
    let (notes, backpressure) = (&server.space.collector, &server.space.backpressure);
    let _ = write!(
        out,
        "dictionary_ids_leased:{leased}\r\ndictionary_ids_live:{}\r\ndictionary_ids_dead:{}\r\n\
         dictionary_ids_collected:{}\r\ndictionary_gc_cycles:{}\r\ndictionary_gc_epoch:{}\r\n\
         dictionary_gc_phase:{}\r\ndictionary_gc_owner:{:016x}\r\ndictionary_gc_condemned:{}\r\n\
         dictionary_gc_swept:{}\r\ndictionary_gc_sets_read:{}\r\ndictionary_gc_candidates:{}\r\n\
         dictionary_gc_delayed:{}\r\ndictionary_gc_delayed_us:{}\r\n",
        state.live,
        state.dead,
        state.collected,
        state.cycles,
        state.epoch,
        state.phase.name(),
        state.owner,
        state.candidates,
        state.swept,
        notes.sets.load(Ordering::Relaxed),
        notes.candidates.load(Ordering::Relaxed),
        backpressure.delayed.load(Ordering::Relaxed),
        backpressure.delayed_us.load(Ordering::Relaxed),
    );
}

pub(super) fn tern(out: &mut String, server: &Server) {
    let (t, store, settings) = (&server.telemetry, server.store.stats(), server.config.get());
    let (batches, units) = (t.batches.count(), t.units.get());
    let ratio = |some: u64, all: u64| if all > 0 { some as f64 / all as f64 } else { 0.0 };
    lines!(out, "Tern",
        "store": settings.store,
        "lanes": settings.lane_count(),
        "batches": batches,
        "batched_units": units,
        "units_per_batch": format!("{:.2}", ratio(units, batches)),
        "batch_usec_p50": t.batches.percentile(50.0) / 1000,
        "batch_usec_p99": t.batches.percentile(99.0) / 1000,
        "batch_retries": t.retries.get(),
        "batch_conflicts": t.conflicts.get(),
        "batch_unknown": t.unknown.get(),
        "panics": t.panics.get(),
        "tasks": process::tasks(),
        "store_commits": store.commits,
        "store_conflicts": store.conflicts,
        "store_conflicts_per_commit": format!("{:.4}", ratio(store.conflicts, store.commits)),
        "store_batches": store.batches,
        "store_syncs": store.syncs,
        "store_write_usec": store.write_micros,
        "store_sync_usec": store.sync_micros,
        "store_disk_bytes": store.disk_bytes,
        "store_memory_bytes": store.memory_bytes,
        "store_read_only": u8::from(store.refusal.is_some()),
        "store_refusal": store.refusal.as_deref().unwrap_or_default().escape_default(),
        "replies_sending": server.space.sending.count(),
        "replies_sending_oldest_ms": server.space.sending.oldest().map_or(0, |since| {
            server.env.clock.monotonic().saturating_sub(since).as_millis()
        }),
        "instance": format_args!("{:016x}", server.space.instances.id()),
        "instances_alive": server.space.instances.living(),
    );
    if let Some(n) = store.network {
        let _ = write!(
            out,
            "store_read_versions:{}\r\nstore_keys_read:{}\r\nstore_ranges_read:{}\r\nstore_unknown:{}\r\nstore_too_old:{}\r\n",
            n.read_versions, n.keys_read, n.ranges_read, n.unknown, n.too_old,
        );
    }
    for s in server.space.instances.seen() {
        let Instance { address, version, started, .. } = &s.row;
        let silent = s.silent.as_millis();
        let _ = write!(
            out,
            "instance_{:016x}:address={address},version={version},started={started},silent_ms={silent}\r\n",
            s.id,
        );
    }
}

/// A FoundationDB cluster's report about itself; `store_cluster_available:0` also if it does not answer.
pub(super) fn store_cluster(out: &mut String, cluster: Option<ClusterStatus>) {
    let Some(c) = cluster else { return };
    let _ = write!(
        out,
        "store_cluster_available:{}\r\nstore_cluster_healthy:{}\r\nstore_cluster_state:{}\r\n\
         store_cluster_redundancy:{}\r\nstore_cluster_engine:{}\r\nstore_cluster_processes:{}\r\n\
         store_cluster_tolerated_failures:{}\r\n",
        u8::from(c.available),
        u8::from(c.healthy),
        c.state,
        c.redundancy,
        c.engine,
        c.processes,
        c.tolerated,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_people() {
        let shown = [0, 1023, 1024, 1_039_832, 25_276_510_208].map(human);
        assert_eq!(shown, ["0B", "1023B", "1.00K", "1015.46K", "23.54G"]);
    }
}
