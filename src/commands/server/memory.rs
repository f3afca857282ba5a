//! MEMORY: what can truthfully be reported by a server whose values are not in memory.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{Result, SYNTAX};
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::store::Read;
use crate::telemetry::process;
use crate::types::object;
use crate::{handler, help};

const OF_KEY: &[KeySpec] =
    &[KeySpec { flags: &["RO"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } }];

/// The container.
pub(crate) const COMMANDS: &[Command] = &[MEMORY];

const SUBS: &[Command] = &[
    MEMORY_DOCTOR,
    help!("memory", Group::Server, "4.0.0"),
    MEMORY_MALLOC_STATS,
    MEMORY_PURGE,
    MEMORY_STATS,
    MEMORY_USAGE,
];

const MEMORY: Command =
    Command::container(Row::new(Group::Server, "memory", -2, "4.0.0").summary("Reports memory usage."), SUBS);

const MEMORY_DOCTOR: Command = Command::new(
    Row::new(Group::Server, "doctor", 2, "4.0.0")
        .summary("Reports in plain words what memory is used for.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(doctor),
);

async fn doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (store, process) = (cx.server.store.stats(), process::read());
    let text = format!(
        "Values are in the store ({} bytes on disk); memory holds caches: {} bytes resident, {} of them in the store.\n",
        store.disk_bytes, process.rss, store.memory_bytes
    );
    Ok(Reply::verbatim(text))
}

const MEMORY_MALLOC_STATS: Command = Command::new(
    Row::new(Group::Server, "malloc-stats", 2, "4.0.0")
        .summary("Returns the allocator's report: not supported by Tern's allocator.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(malloc_stats),
);

async fn malloc_stats(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::verbatim("Stats not supported for the current allocator"))
}

const MEMORY_PURGE: Command = Command::new(
    Row::new(Group::Server, "purge", 2, "4.0.0")
        .summary("Does nothing: Tern's allocator returns memory to the system on its own.")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(purge),
);

/// OK, as in Redis with an allocator that has no such function.
async fn purge(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Ok)
}

const MEMORY_STATS: Command = Command::new(
    Row::new(Group::Server, "stats", 2, "4.0.0")
        .summary("Returns memory usage by purpose, in bytes.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(stats),
);

/// Redis' names for equal meanings. `total.allocated` is the resident memory: see INFO.
async fn stats(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (store, process) = (cx.server.store.stats(), process::read());
    let clients = cx.server.clients.all().iter().map(|c| c.memory()).sum::<u64>();
    let figures = [
        ("peak.allocated", process.peak),
        ("total.allocated", process.rss),
        ("clients.normal", clients),
        ("store.memory", store.memory_bytes),
        ("store.disk", store.disk_bytes),
    ];
    Ok(Reply::Map(figures.map(|(name, n)| (Reply::bulk_static(name), Reply::Int(n as i64))).into()))
}

/// Bytes of a record in addition to its key and value: version, tag, flags, revision, expiry, and the key's
/// prefix and hash.
const RECORD: u64 = 30;
const MEMORY_USAGE: Command = Command::new(
    Row::new(Group::Server, "usage", -3, "4.0.0")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key [SAMPLES count]")
        .summary("Estimates the bytes that a key and its value take in the store."),
    handler!(usage),
);

/// An estimate from the record and the cardinality: nothing is sampled, so SAMPLES has no effect.
async fn usage(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    while args.keyword("SAMPLES") {
        if args.int()? < 0 {
            return Err(SYNTAX.into());
        }
    }
    args.end()?;
    let scope = cx.scope()?;
    let slot = object::open(&scope, key, Read::Snapshot).await?;
    let Some(record) = slot.record() else { return Ok(Reply::Nil) };
    let value = record.value.memory(&scope).await?;
    Ok(Reply::Int((RECORD + key.len() as u64 + value) as i64))
}
