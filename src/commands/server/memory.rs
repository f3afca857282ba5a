//! MEMORY: what can be said truly of a server whose values are not in memory.

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
use bytes::Bytes;

const OF_KEY: &[KeySpec] =
    &[KeySpec { flags: &["RO"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } }];

/// The container.
pub const COMMANDS: &[Command] = &[MEMORY];

const SUBS: &[Command] = &[
    MEMORY_DOCTOR,
    help!("memory", Group::Server, "4.0.0"),
    MEMORY_MALLOC_STATS,
    MEMORY_PURGE,
    MEMORY_STATS,
    MEMORY_USAGE,
];

const MEMORY: Command =
    Command::container(Row::new(Group::Server, "memory", -2, "4.0.0").summary("Looks at memory."), SUBS);

const MEMORY_DOCTOR: Command = Command::new(
    Row::new(Group::Server, "doctor", 2, "4.0.0").summary("Says where memory goes.").tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    handler!(doctor),
);

async fn doctor(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (store, process) = (cx.server.store.stats(), process::read());
    let text = format!(
        "Values are in the store ({} bytes on disk), memory holds caches: {} bytes resident, {} of them the store's.\n",
        store.disk_bytes, process.rss, store.memory_bytes
    );
    Ok(Reply::Verbatim(text.into()))
}

const MEMORY_MALLOC_STATS: Command = Command::new(
    Row::new(Group::Server, "malloc-stats", 2, "4.0.0")
        .summary("Would show the allocator's own report: ours has none.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(malloc_stats),
);

async fn malloc_stats(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Verbatim(Bytes::from_static(b"Stats not supported for the current allocator")))
}

const MEMORY_PURGE: Command = Command::new(
    Row::new(Group::Server, "purge", 2, "4.0.0")
        .summary("Asks the allocator to give memory back: ours does so by itself.")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(purge),
);

/// As Redis does with an allocator that it cannot ask.
async fn purge(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Ok)
}

const MEMORY_STATS: Command = Command::new(
    Row::new(Group::Server, "stats", 2, "4.0.0")
        .summary("Returns what memory is used for, in bytes.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    handler!(stats),
);

/// Redis' names where the meaning is the same. `total.allocated` is the resident memory: see INFO.
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

/// Bytes of a record beside its key and value: version, tag, flags, revision, expiry, and the key's prefix and hash.
const RECORD: u64 = 30;
const MEMORY_USAGE: Command = Command::new(
    Row::new(Group::Server, "usage", -3, "4.0.0")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key [SAMPLES count]")
        .summary("Returns about how many bytes of the store a key and its value take."),
    handler!(usage),
);

/// An estimate from what the record and the cardinality say: nothing is sampled, so SAMPLES changes nothing.
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
