//! CLIENT. Changes of the client's state are published to the registry at once, so that other connections see
//! them.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::{Command, Run, SessionOp};
use crate::commands::connection::client_kill;
use crate::commands::connection::client_pause;
use crate::commands::cx::{Cx, LONGEST_RUN};
use crate::error::{ReplyError, Result, SYNTAX};
use crate::server::ReplyMode;
use crate::server::clients::ClientHandle;
use crate::server::pace::Pace;
use crate::server::reply::Reply;
use crate::server::tracking::Choice;
use crate::server::waiters::Unblock;
use crate::spec::words::{parse_i64, quoted};
use crate::spec::{Effect, Flags, Group, Row};
use crate::{handler, help};
use bytes::Bytes;

pub(super) const OPEN: Flags = Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE);
/// The container.
pub(crate) const COMMANDS: &[Command] = &[CLIENT];

const SUBS: &[Command] = &[
    CLIENT_CACHING,
    CLIENT_GETNAME,
    CLIENT_GETREDIR,
    help!("client", Group::Connection, "5.0.0"),
    CLIENT_ID,
    CLIENT_INFO,
    client_kill::CLIENT_KILL,
    CLIENT_LIST,
    CLIENT_NO_EVICT,
    CLIENT_NO_TOUCH,
    client_pause::CLIENT_PAUSE,
    CLIENT_REPLY,
    CLIENT_SETINFO,
    CLIENT_SETNAME,
    CLIENT_TRACKING,
    CLIENT_TRACKINGINFO,
    CLIENT_UNBLOCK,
    client_pause::CLIENT_UNPAUSE,
];

const CLIENT: Command = Command::container(
    Row::new(Group::Connection, "client", -2, "2.4.0")
        .flags(Flags::KEEPS_CACHING)
        .summary("Inspects and manages connections."),
    SUBS,
);

const CLIENT_CACHING: Command = Command::new(
    Row::new(Group::Connection, "caching", 3, "6.0.0")
        .flags(OPEN)
        .syntax("<mode: YES | NO>")
        .summary("Sets whether the server tracks the keys that the next command or transaction reads."),
    Run::Session(SessionOp::Caching),
);

const CLIENT_TRACKING: Command = Command::new(
    Row::new(Group::Connection, "tracking", -3, "6.0.0")
        .flags(OPEN)
        .syntax(
            "<status: ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] \
             [OPTIN] [OPTOUT] [NOLOOP]",
        )
        .summary("Turns on invalidation messages about the keys that this connection caches."),
    Run::Session(SessionOp::Tracking),
);

const CLIENT_ID: Command = Command::new(
    Row::new(Group::Connection, "id", 2, "5.0.0")
        .flags(OPEN)
        .summary("Returns the id of this connection, which is never reused."),
    handler!(id),
);

async fn id(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.client.id as i64))
}

const CLIENT_GETNAME: Command = Command::new(
    Row::new(Group::Connection, "getname", 2, "2.6.9")
        .flags(OPEN)
        .summary("Returns the name of this connection."),
    handler!(getname),
);

async fn getname(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let name = cx.client.name.clone();
    Ok(Reply::bulk_or_nil(Some(name).filter(|n| !n.is_empty())))
}

const CLIENT_SETNAME: Command = Command::new(
    Row::new(Group::Connection, "setname", 3, "2.6.9")
        .flags(OPEN)
        .syntax("connection-name")
        .summary("Sets the name of this connection."),
    handler!(setname),
);

async fn setname(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.name = printable(args.next()?, "Client names")?;
    cx.client.publish();
    Ok(Reply::Ok)
}

const CLIENT_SETINFO: Command = Command::new(
    Row::new(Group::Connection, "setinfo", 4, "7.2.0")
        .flags(OPEN)
        .syntax("<attr: LIB-NAME libname | LIB-VER libver>")
        .summary("Sets the name or version of the client's library.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(setinfo),
);

async fn setinfo(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let option = args.next()?;
    let value = args.next()?;
    // The error repeats it as it was written.
    let name = quoted(option);
    match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => cx.client.lib_name = printable(value, &name)?,
        b"lib-ver" => cx.client.lib_ver = printable(value, &name)?,
        _ => {
            return Err(ReplyError::of(format!("ERR Unrecognized option '{name}'")).into());
        }
    }
    cx.client.publish();
    Ok(Reply::Ok)
}

/// The most bytes of a client's name, and of its library's. CLIENT LIST shows all clients' names in one
/// reply.
const LONGEST_NAME: usize = 1024;

/// Checks a name. Names are shown in lines of words, so they contain neither spaces nor control characters.
pub(crate) fn printable(raw: &[u8], what: &str) -> ArgResult<Bytes> {
    if raw.len() > LONGEST_NAME {
        let len = raw.len();
        return Err(ReplyError::of(format!(
            "ERR {what} cannot be longer than {LONGEST_NAME} bytes: this one has {len}"
        )));
    }
    if raw.iter().all(u8::is_ascii_graphic) {
        return Ok(Bytes::copy_from_slice(raw));
    }
    Err(ReplyError::of(format!("ERR {what} cannot contain spaces, newlines or special characters.")))
}

fn on_off(args: &mut Args<'_>) -> Result<bool> {
    match args.next()?.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(SYNTAX.into()),
    }
}

const CLIENT_NO_EVICT: Command = Command::new(
    Row::new(Group::Connection, "no-evict", 3, "7.0.0")
        .flags(OPEN.or(Flags::ADMIN))
        .syntax("<enabled: ON | OFF>")
        .summary("Protects this connection from being evicted for its memory."),
    handler!(no_evict),
);

async fn no_evict(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.no_evict = on_off(&mut args)?;
    cx.client.publish();
    Ok(Reply::Ok)
}

const CLIENT_NO_TOUCH: Command = Command::new(
    Row::new(Group::Connection, "no-touch", 3, "7.2.0")
        .flags(OPEN)
        .syntax("<enabled: ON | OFF>")
        .summary("Keeps this connection's reads from updating keys' access times."),
    handler!(no_touch),
);

async fn no_touch(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.no_touch = on_off(&mut args)?;
    cx.client.publish();
    Ok(Reply::Ok)
}

const CLIENT_REPLY: Command = Command::new(
    Row::new(Group::Connection, "reply", 3, "3.2.0")
        .flags(OPEN)
        .syntax("<action: ON | OFF | SKIP>")
        .summary("Turns replies to this connection on or off.")
        .effect(Effect::Mutes),
    handler!(reply),
);

/// OFF and SKIP are not answered themselves.
async fn reply(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let mode = args.next()?;
    let was_off = cx.client.reply == ReplyMode::Off;
    match mode.to_ascii_lowercase().as_slice() {
        b"on" => {
            cx.client.reply = ReplyMode::On;
            return Ok(Reply::Ok);
        }
        b"off" => cx.client.reply = ReplyMode::Off,
        b"skip" if was_off => {}
        b"skip" => cx.client.reply = ReplyMode::SkipNext,
        _ => return Err(SYNTAX.into()),
    }
    Ok(Reply::None)
}

const CLIENT_INFO: Command = Command::new(
    Row::new(Group::Connection, "info", 2, "6.2.0")
        .flags(OPEN)
        .summary("Describes this connection, as CLIENT LIST does.")
        .tips(&["nondeterministic_output"]),
    handler!(info),
);

async fn info(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let line = line(cx, &cx.client.handle);
    Ok(Reply::verbatim(line))
}

fn line(cx: &Cx<'_>, client: &ClientHandle) -> String {
    client.line(cx.server.env.clock.monotonic(), &cx.server.telemetry) + "\n"
}

/// Steps of work ([`Pace`]) per line of CLIENT LIST.
const LINE: usize = 1 << 10;
/// Steps of work to find a client by its id.
const FOUND: usize = 1 << 6;

const CLIENT_LIST: Command = Command::new(
    Row::new(Group::Connection, "list", -2, "2.4.0")
        .flags(OPEN.or(Flags::ADMIN))
        .syntax("[TYPE <client-type: NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]")
        .summary("Lists connections, one per line.")
        .categories(&["dangerous"])
        .tips(&["nondeterministic_output"]),
    handler!(list),
);

async fn list(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (mut clients, mut pace) = (cx.server.clients.staying(), Pace::default());
    if args.keyword("TYPE") {
        let raw = args.next()?;
        args.end()?;
        let kind = ClientKind::parse(raw)?;
        clients.retain(|c| kind.is(c));
    } else if args.keyword("ID") {
        clients.clear();
        for id in ids(&mut args)? {
            clients.extend(cx.server.clients.get(id).filter(|client| !client.is_killed()));
            pace.spend(FOUND).await;
        }
    }
    args.end()?;
    let mut lines = String::new();
    for client in clients {
        lines += &line(cx, &client);
        pace.spend(LINE).await;
    }
    Ok(Reply::verbatim(lines))
}

/// One or more ids, to the end. Ids start at 1.
fn ids(args: &mut Args<'_>) -> Result<Vec<u64>> {
    let mut ids = vec![one_id(args)?];
    while !args.is_empty() {
        ids.push(one_id(args)?);
    }
    Ok(ids)
}

fn one_id(args: &mut Args<'_>) -> Result<u64> {
    let id = parse_i64(args.next()?).ok_or(ReplyError::new("ERR Invalid client ID"))?;
    Ok(u64::try_from(id).unwrap_or_default())
}

/// Classes of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// None of the others.
    Normal,
    /// Subscribed.
    Pubsub,
    /// Masters and replicas, which Tern does not have.
    Replication,
}

impl ClientKind {
    /// Parses a class name in any case.
    pub(super) fn parse(raw: &[u8]) -> Result<Self> {
        match raw.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(ClientKind::Normal),
            b"pubsub" => Ok(ClientKind::Pubsub),
            b"master" | b"slave" | b"replica" => Ok(ClientKind::Replication),
            _ => {
                let raw = quoted(raw);
                Err(ReplyError::of(format!("ERR Unknown client type '{raw}'")).into())
            }
        }
    }
    /// Whether `client` is of this class.
    pub(super) fn is(self, client: &ClientHandle) -> bool {
        self == if client.is_subscribed() { ClientKind::Pubsub } else { ClientKind::Normal }
    }
}

const CLIENT_GETREDIR: Command = Command::new(
    Row::new(Group::Connection, "getredir", 2, "6.0.0").flags(OPEN).summary(
        "Returns the id of the connection that gets the invalidations: 0 for this one, -1 if \
             tracking is off.",
    ),
    handler!(getredir),
);

async fn getredir(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.client.handle.redirect()))
}

const CLIENT_TRACKINGINFO: Command = Command::new(
    Row::new(Group::Connection, "trackinginfo", 2, "6.2.0")
        .flags(OPEN)
        .summary("Returns the tracking settings of this connection."),
    handler!(trackinginfo),
);

async fn trackinginfo(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let (mode, handle) = (cx.client.tracking, &cx.client.handle);
    let (optin, optout) = (mode.choice == Choice::OptIn, mode.choice == Choice::OptOut);
    let flags = [
        (!mode.on, "off"),
        (mode.on, "on"),
        (mode.bcast, "bcast"),
        (optin, "optin"),
        (optin && mode.caching, "caching-yes"),
        (optout, "optout"),
        (optout && mode.caching, "caching-no"),
        (mode.noloop, "noloop"),
        (handle.is_broken(), "broken_redirect"),
    ];
    let set = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| Reply::bulk_static(name));
    Ok(Reply::Map(vec![
        (Reply::bulk_static("flags"), Reply::Set(set.collect())),
        (Reply::bulk_static("redirect"), Reply::Int(handle.redirect())),
        (
            Reply::bulk_static("prefixes"),
            Reply::bulks(cx.server.tracking.prefixes(cx.client.id).iter().cloned()),
        ),
    ]))
}

const CLIENT_UNBLOCK: Command = Command::new(
    Row::new(Group::Connection, "unblock", -3, "5.0.0")
        .flags(OPEN.or(Flags::ADMIN))
        .syntax("client-id [unblock-type: TIMEOUT | ERROR]")
        .summary("Unblocks a client in a blocking command."),
    handler!(unblock),
);

async fn unblock(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    if args.len() > 2 {
        return Err(args.no_such_form().into());
    }
    // The reason is checked first.
    let mut id = args;
    args.next()?;
    let how = match () {
        () if args.is_empty() || args.keyword("TIMEOUT") => Some(Unblock::TimedOut),
        () if args.keyword("ERROR") => Some(Unblock::Failed),
        () => None,
    };
    let Some(how) = how else {
        return Err(ReplyError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR").into());
    };
    let Ok(client) = u64::try_from(id.int()?) else { return Ok(Reply::Int(0)) };
    let is_unblocked = match cx.server.waiters.unblock(client, how) {
        Some(is_unblocked) => is_unblocked,
        None => {
            cx.may_wait()?;
            let waiters = &cx.server.waiters;
            let settled = tokio::time::timeout(LONGEST_RUN, waiters.unblock_settled(client, how));
            settled.await.unwrap_or(false)
        }
    };
    Ok(Reply::Int(is_unblocked.into()))
}
