//! Commands about the server: time, role, shutdown, and what other servers have and this one says about itself.

use super::args::{Args, parse_i64};
use super::cx::{AfterReply, Cx};
use super::info_sections::LAST_BACKUP;
use super::reply::Reply;
use super::table::{Flags, Group, Row, Run};
use crate::config::AppendFsync;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::handler;
use crate::store::Store;
use bytes::Bytes;

const ADMIN: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE);
const SAVES: Flags = Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::NO_ASYNC_LOADING);
const OPEN: Flags = Flags::LOADING.or(Flags::STALE);
const BASE: Row = Row {
    name: "",
    arity: 1,
    flags: OPEN,
    keys: &[],
    group: Group::Server,
    since: "1.0.0",
    syntax: "",
    summary: "",
    run: Run::Container,
    subs: &[],
};
const NO_SNAPSHOTS: Run = Run::Refuse(
    "ERR There are no snapshot files: every write is in the store before it is acknowledged, as appendfsync says",
);
const NO_MASTER: ReplyError = ReplyError::new(
    "ERR This server replicates no other: the store replicates, and any server on it can be written to",
);
/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "bgrewriteaof",
        flags: SAVES,
        summary: "Rewrites Redis' log. There is none.",
        run: NO_SNAPSHOTS,
        ..BASE
    },
    Row {
        name: "bgsave",
        arity: -1,
        flags: SAVES,
        syntax: "[SCHEDULE]",
        summary: "Writes a snapshot file. There are none.",
        run: NO_SNAPSHOTS,
        ..BASE
    },
    Row {
        name: "lastsave",
        flags: OPEN.or(Flags::FAST),
        summary: "Returns when the last backup ended, in seconds since 1970; 0 where none is known.",
        run: handler!(lastsave),
        ..BASE
    },
    Row {
        name: "replicaof",
        arity: 3,
        flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::NO_ASYNC_LOADING),
        since: "5.0.0",
        syntax: "<args: <host-port: host port> | <no-one: NO ONE>>",
        summary: "NO ONE, which this server follows, is OK; another one is refused.",
        run: handler!(replicaof),
        ..BASE
    },
    Row {
        name: "role",
        flags: Flags::NOSCRIPT.or(OPEN).or(Flags::FAST),
        since: "2.8.12",
        summary: "Returns the role in replication: a master without replicas.",
        run: handler!(role),
        ..BASE
    },
    Row {
        name: "save",
        flags: SAVES.or(Flags::NO_MULTI),
        summary: "Writes a snapshot file. There are none.",
        run: NO_SNAPSHOTS,
        ..BASE
    },
    Row {
        name: "shutdown",
        arity: -1,
        flags: ADMIN.or(Flags::NO_MULTI).or(Flags::ALLOW_BUSY),
        syntax: "[save-selector: NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        summary: "Finishes what runs, then stops the server.",
        run: handler!(shutdown),
        ..BASE
    },
    Row {
        name: "slaveof",
        arity: 3,
        flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::STALE).or(Flags::NO_ASYNC_LOADING),
        syntax: "<args: <host-port: host port> | <no-one: NO ONE>>",
        summary: "Is REPLICAOF's old name.",
        run: handler!(replicaof),
        ..BASE
    },
    Row {
        name: "time",
        flags: OPEN.or(Flags::FAST),
        since: "2.6.0",
        summary: "Returns the server's time: seconds and microseconds.",
        run: handler!(time),
        ..BASE
    },
    Row {
        name: "wait",
        arity: 3,
        flags: Flags::BLOCKING,
        group: Group::Generic,
        since: "3.0.0",
        syntax: "numreplicas timeout",
        summary: "Returns how many replicas have all writes: none, at once.",
        run: handler!(wait),
        ..BASE
    },
    Row {
        name: "waitaof",
        arity: 4,
        flags: Flags::BLOCKING,
        group: Group::Generic,
        since: "7.2.0",
        syntax: "numlocal numreplicas timeout",
        summary: "Returns on how many disks all writes are for certain: this server's, and its replicas', at once.",
        run: handler!(waitaof),
        ..BASE
    },
];

async fn time(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let now = cx.server.env.clock.now_us();
    Ok(Reply::Array(vec![
        Reply::text((now / 1_000_000).to_string()),
        Reply::text((now % 1_000_000).to_string()),
    ]))
}

async fn role(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(vec![Reply::bulk_static("master"), Reply::Int(0), Reply::Array(Vec::new())]))
}

async fn lastsave(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(LAST_BACKUP))
}

async fn replicaof(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (host, port) = (args.next()?, args.next()?);
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Reply::Ok);
    }
    let port = parse_i64(port).filter(|port| (0..=65_535).contains(port));
    port.ok_or(ReplyError::new("ERR Invalid master port"))?;
    Err(NO_MASTER.into())
}

/// Redis would wait until the timeout; no replica will ever come, so nothing is gained by it.
async fn wait(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    args.int()?;
    let timeout = args.int().map_err(|_| ReplyError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(ReplyError::new("ERR timeout is negative").into());
    }
    Ok(Reply::Int(0))
}

/// A write is acknowledged when it is durable, but for what `appendfsync` allows the embedded engine. Nothing is waited
/// for: what is not durable then becomes so by itself.
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

/// The words only matter where there is a file to save; here they may not contradict each other.
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
    tracing::info!(client = cx.client.id, addr = cx.client.handle.addr, "shutdown was asked for");
    cx.server.stop.send_replace(true);
    cx.client.after_reply = AfterReply::Close;
    Ok(Reply::None)
}
