//! Commands about the server: time, role, shutdown, and commands about replication and snapshots, which Tern
//! does not have.

pub(super) mod acl;
pub(crate) mod command;
mod command_docs;
mod command_info;
pub mod config;
pub(crate) mod debug;
pub mod info;
mod info_sections;
pub(super) mod latency;
pub(super) mod lolwut;
pub(crate) mod memory;
pub(super) mod monitor;
pub(super) mod refused;
pub(super) mod slowlog;
pub mod syntax;

use crate::commands::args::Args;
use crate::commands::binding::{Command, Run};
use crate::commands::cx::Cx;
use crate::commands::server::info_sections::LAST_BACKUP;
use crate::config::AppendFsync;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::AfterReply;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Effect, Flags, Group, Row};
use crate::store::Store;
use bytes::Bytes;

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);
const SAVES: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::NO_ASYNC_LOADING);
const OPEN: Flags = Flags::LOADING.or(Flags::STALE);
const NO_SNAPSHOTS: Run = Run::Refuse(
    "ERR snapshot files are not supported: every write reaches the store before it is acknowledged, as appendfsync defines. For a backup, stop the server and run tern copy",
);
const NO_MASTER: ReplyError = ReplyError::new(
    "ERR replication is not supported: the store replicates, and any server on it accepts writes",
);
/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[BGREWRITEAOF, BGSAVE, LASTSAVE, REPLICAOF, ROLE, SAVE, SHUTDOWN, SLAVEOF, TIME, WAIT, WAITAOF];

const BGREWRITEAOF: Command = Command::new(
    Row::new(Group::Server, "bgrewriteaof", 1, "1.0.0")
        .flags(SAVES)
        .summary("Rewrites the append-only file. Refused: Tern has none."),
    NO_SNAPSHOTS,
);

const BGSAVE: Command = Command::new(
    Row::new(Group::Server, "bgsave", -1, "1.0.0")
        .flags(SAVES)
        .syntax("[SCHEDULE]")
        .summary("Writes a snapshot file. Refused: Tern has none."),
    NO_SNAPSHOTS,
);

const SAVE: Command = Command::new(
    Row::new(Group::Server, "save", 1, "1.0.0")
        .flags(SAVES.or(Flags::NO_MULTI))
        .summary("Writes a snapshot file. Refused: Tern has none."),
    NO_SNAPSHOTS,
);

const TIME: Command = Command::new(
    Row::new(Group::Server, "time", 1, "2.6.0")
        .flags(OPEN.or(Flags::FAST))
        .summary("Returns the server's time: seconds and microseconds.")
        .tips(&["nondeterministic_output"]),
    handler!(time),
);

async fn time(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let now = cx.server.env.clock.now_us();
    Ok(Reply::Array(vec![
        Reply::text((now / 1_000_000).to_string()),
        Reply::text((now % 1_000_000).to_string()),
    ]))
}

const ROLE: Command = Command::new(
    Row::new(Group::Server, "role", 1, "2.8.12")
        .flags(Flags::NOSCRIPT.or(OPEN).or(Flags::FAST))
        .summary("Returns the role in replication: a master without replicas.")
        .categories(&["admin", "dangerous"]),
    handler!(role),
);

async fn role(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(vec![Reply::bulk_static("master"), Reply::Int(0), Reply::Array(Vec::new())]))
}

const LASTSAVE: Command = Command::new(
    Row::new(Group::Server, "lastsave", 1, "1.0.0")
        .flags(OPEN.or(Flags::FAST))
        .summary("Returns the Unix time of the last snapshot: always 0.")
        .categories(&["admin", "dangerous"])
        .tips(&["nondeterministic_output"]),
    handler!(lastsave),
);

async fn lastsave(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(LAST_BACKUP))
}

const REPLICAOF: Command = Command::new(
    Row::new(Group::Server, "replicaof", 3, "5.0.0")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::NO_ASYNC_LOADING))
        .syntax("<args: <host-port: host port> | <no-one: NO ONE>>")
        .summary("Accepts NO ONE, which is always the case; refuses any other master."),
    handler!(replicaof),
);

const SLAVEOF: Command = Command::new(
    Row::new(Group::Server, "slaveof", 3, "1.0.0")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::NO_ASYNC_LOADING))
        .syntax("<args: <host-port: host port> | <no-one: NO ONE>>")
        .summary("The old name of REPLICAOF.")
        .deprecated("5.0.0", "REPLICAOF"),
    handler!(replicaof),
);

async fn replicaof(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (host, port) = (args.next()?, args.next()?);
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Reply::Ok);
    }
    let port = parse_i64(port).filter(|port| (0..=65_535).contains(port));
    port.ok_or(ReplyError::new("ERR Invalid master port"))?;
    Err(NO_MASTER.into())
}

const WAIT: Command = Command::new(
    Row::new(Group::Generic, "wait", 3, "3.0.0")
        .flags(Flags::BLOCKING)
        .syntax("numreplicas timeout")
        .summary("Returns the number of replicas that have all writes: 0, immediately.")
        .categories(&["connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    handler!(wait),
);

/// Redis would wait until the timeout; no replica can ever come, so waiting is pointless.
async fn wait(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    args.int()?;
    let timeout = args.int().map_err(|_| ReplyError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(ReplyError::new("ERR timeout is negative").into());
    }
    Ok(Reply::Int(0))
}

const WAITAOF: Command = Command::new(
    Row::new(Group::Generic, "waitaof", 4, "7.2.0")
        .flags(Flags::BLOCKING)
        .syntax("numlocal numreplicas timeout")
        .summary(
            "Returns, immediately, how many copies on disk are certain to have all writes: this \
             server's, and its replicas'.",
        )
        .categories(&["connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    handler!(waitaof),
);

/// An acknowledged write is durable, except as `appendfsync` allows on the embedded engine. It does not wait:
/// any remaining writes become durable on their own.
async fn waitaof(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let local = args.int()?;
    if !(0..=1).contains(&local) {
        return Err(ReplyError::new("ERR value is out of range, value must between 0 and 1").into());
    }
    let positive = ReplyError::new("ERR value is out of range, must be positive");
    args.int().ok().filter(|replicas| *replicas >= 0).ok_or(positive)?;
    wait(cx, Args::new(&[Bytes::from_static(b"0"), args.next()?.clone()])).await?;
    let server = cx.server;
    let lags =
        matches!(server.store, Store::Local(_)) && server.config.get().appendfsync != AppendFsync::Always;
    Ok(Reply::Array(vec![Reply::Int(i64::from(!lags)), Reply::Int(0)]))
}

const SHUTDOWN: Command = Command::new(
    Row::new(Group::Server, "shutdown", -1, "1.0.0")
        .flags(ADMIN.or(Flags::NO_MULTI).or(Flags::ALLOW_BUSY))
        .syntax("[save-selector: NOSAVE | SAVE] [NOW] [FORCE] [ABORT]")
        .summary("Waits for running commands, then stops the server.")
        .effect(Effect::Closes),
    handler!(shutdown),
);

/// The options only matter with a snapshot file to save; here they just must not contradict each other.
async fn shutdown(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (mut save, mut nosave, mut abort, mut others) = (false, false, false, false);
    while !args.is_empty() {
        match args.next()?.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"abort" => abort = true,
            b"now" | b"force" => others = true,
            _ => return Err(SYNTAX.into()),
        }
    }
    if save && nosave || abort && (save || nosave || others) {
        return Err(SYNTAX.into());
    }
    if abort {
        return Err(ReplyError::new("ERR No shutdown in progress.").into());
    }
    tracing::info!(client = cx.client.id, addr = cx.client.handle.addr, "shutdown requested");
    cx.server.stop.send_replace(true);
    cx.client.after_reply = AfterReply::Close;
    Ok(Reply::None)
}
