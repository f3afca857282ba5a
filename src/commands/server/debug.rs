//! DEBUG: for tests. Only if `enable-debug-command` allows it, because it can do harm on purpose: see
//! `dispatch::gate`.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{NO_SUCH_KEY, ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::server::{AfterReply, Protocol};
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, Row};
use crate::store::Read;
use crate::types::object;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The command. As in Redis it is not a container: the command itself rejects wrong subcommands.
pub(crate) const COMMANDS: &[Command] = &[DEBUG];

/// The longest DEBUG SLEEP: a typo must not block a connection for years.
const MAX_SLEEP: f64 = 3600.0;

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DICTIONARY-GC",
    "    Starts a collection of the members that are no longer in any set. INFO tern shows its progress.",
    "ERROR <string>",
    "    Replies with this error.",
    "LOG <message>",
    "    Writes a message to the log.",
    "OBJECT <key>",
    "    Shows how a value is stored.",
    "PANIC [CONNECTION]",
    "    Panics in this command, or in this connection's task.",
    "PROTOCOL <type>",
    "    Replies with a value of a type: string, integer, double, null, array, set, map, attrib, push, verbatim, true, false, bignum.",
    "RELOAD [option ...]",
    "    Drops this server's caches of the store. LOADAOF does the same.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Turns the job that removes expired keys off or on.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Whether scripts may call commands that are refused to scripts.",
    "SLEEP <seconds>",
    "    Replies after that time.",
    "HELP",
    "    Prints this help.",
];

/// Panics, because a client with permission asked for it.
#[expect(clippy::panic, reason = "tests see that a panic harms nobody else")]
pub(crate) fn fail(why: &'static str) -> ! {
    std::panic::panic_any(why)
}

const DEBUG: Command = Command::new(
    Row::new(Group::Server, "debug", -2, "1.0.0")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::PROTECTED))
        .syntax(
            "<DICTIONARY-GC | ERROR message | HELP | LOG message | OBJECT key | PANIC [CONNECTION] \
             | PROTOCOL type | RELOAD | SET-ACTIVE-EXPIRE <0 | 1> \
             | SET-DISABLE-DENY-SCRIPTS <0 | 1> | SLEEP seconds>",
        )
        .summary("Commands for testing and debugging, allowed by enable-debug-command.")
        .for_systems(),
    handler!(debug),
);

async fn debug(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let sub = args.next()?;
    match (sub.to_ascii_lowercase().as_slice(), args.rest()) {
        (b"help", []) => Ok(Reply::Array(HELP.iter().map(|line| Reply::Simple((*line).into())).collect())),
        (b"dictionary-gc", []) => {
            cx.server.space.collector.wanted.store(true, Ordering::Relaxed);
            Ok(Reply::Ok)
        }
        (b"error", [line]) => Err(ReplyError::of(String::from_utf8_lossy(line).into_owned()).into()),
        (b"log", [line]) => {
            tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(line));
            Ok(Reply::Ok)
        }
        (b"object", [_]) => object(cx, args).await,
        (b"panic", []) => fail("DEBUG PANIC"),
        (b"panic", [what]) if what.eq_ignore_ascii_case(b"connection") => {
            cx.client.after_reply = AfterReply::Panic;
            Ok(Reply::Ok)
        }
        (b"protocol", [kind]) => sample(kind, cx.client.protocol),
        (b"reload" | b"loadaof", _) => {
            cx.server.space.forget();
            Ok(Reply::Ok)
        }
        (b"set-active-expire", [on]) => {
            let on = parse_i64(on).is_some_and(|n| n != 0);
            cx.server.active_expire.store(on, Ordering::Relaxed);
            Ok(Reply::Ok)
        }
        (b"set-disable-deny-scripts", [on]) => {
            let on = parse_i64(on).is_some_and(|n| n != 0);
            cx.server.scripts.may_call_all.store(on, Ordering::Relaxed);
            Ok(Reply::Ok)
        }
        (b"sleep", [_]) => {
            let seconds = args.float()?.clamp(0.0, MAX_SLEEP);
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            Ok(Reply::Ok)
        }
        _ => Err(args.no_such_form().into()),
    }
}

#[expect(clippy::approx_constant, reason = "Redis' sample")]
/// Redis' samples, with which client libraries test their parsers.
fn sample(kind: &[u8], protocol: Protocol) -> Result<Reply> {
    let text = Reply::bulk_static;
    let three = || (0..3).map(Reply::Int).collect();
    Ok(match kind.to_ascii_lowercase().as_slice() {
        b"string" => text("Hello World"),
        b"integer" => Reply::Int(12345),
        b"double" => Reply::Double(3.141),
        b"null" => Reply::Nil,
        b"array" => Reply::Array(three()),
        b"set" => Reply::Set(three()),
        b"map" => Reply::Map((0..3).map(|n| (Reply::Int(n), Reply::Bool(n == 1))).collect()),
        b"attrib" => {
            let popular = Reply::Array(vec![text("key:123"), Reply::Int(90)]);
            let pairs = vec![(text("key-popularity"), popular)];
            Reply::Several(vec![Reply::Attributes(pairs), text("Some real reply following the attribute")])
        }
        b"push" if protocol == Protocol::Resp2 => {
            return Err(ReplyError::new("ERR RESP2 is not supported by this command").into());
        }
        b"push" => {
            let push = Reply::Push(vec![text("server-cpu-usage"), Reply::Int(42)]);
            Reply::Several(vec![push, text("Some real reply following the push reply")])
        }
        b"verbatim" => Reply::verbatim("This is a verbatim\nstring"),
        b"true" => Reply::Bool(true),
        b"false" => Reply::Bool(false),
        b"bignum" => Reply::BigNumber("1234567999999999999999999999999999999".into()),
        _ => {
            let known = "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false";
            return Err(ReplyError::of(format!(
                "ERR Wrong protocol type name. Please use one of the following: {known}"
            ))
            .into());
        }
    })
}

/// In Redis' format, which tests parse. Tern has no address, reference count or LRU clock to report.
async fn object(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.only_read = true;
    let s = cx.scope()?;
    let slot = object::open(&s, args.next()?, Read::Snapshot).await?;
    let Some(record) = slot.record() else { return Err(NO_SUCH_KEY.into()) };
    let (encoding, length) = (record.value.encoding(), record.value.memory(&s).await?);
    let line = format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:0 lru_seconds_idle:0"
    );
    Ok(Reply::Simple(line.into()))
}
