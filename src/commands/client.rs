//! CLIENT. What changes the client's state is published to the registry at once, so that other connections see it.

use super::args::{ArgResult, Args, parse_i64, quoted};
use super::cx::{Cx, ReplyMode};
use super::pace::Pace;
use super::reply::Reply;
use super::table::{Flags, Group, Row, Run, SessionOp};
use super::tracking::Choice;
use crate::error::{ReplyError, Result, SYNTAX};
use crate::telemetry::clients::ClientHandle;
use crate::{handler, help};
use bytes::Bytes;

const OPEN: Flags = Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE);
const BASE: Row = Row {
    name: "client",
    arity: -2,
    flags: OPEN,
    keys: &[],
    group: Group::Connection,
    since: "2.4.0",
    syntax: "",
    summary: "Looks at and changes connections.",
    run: Run::Container,
    subs: &[],
};

/// The container's row.
pub const ROWS: &[Row] = &[Row { flags: Flags::NONE, subs: SUBS, ..BASE }];

const SUBS: &[Row] = &[
    Row {
        name: "caching",
        arity: 3,
        since: "6.0.0",
        syntax: "<mode: YES | NO>",
        summary: "Says whether what the next command or transaction reads is to be remembered for this connection's cache.",
        run: Run::Session(SessionOp::Caching),
        ..BASE
    },
    Row {
        name: "getname",
        arity: 2,
        since: "2.6.9",
        summary: "Returns the name of this connection.",
        run: handler!(getname),
        ..BASE
    },
    Row {
        name: "getredir",
        arity: 2,
        since: "6.0.0",
        summary: "Returns where invalidations go: the number of a connection, 0 for this one, -1 where tracking is off.",
        run: handler!(getredir),
        ..BASE
    },
    help!("client", Group::Connection, "5.0.0"),
    Row {
        name: "id",
        arity: 2,
        since: "5.0.0",
        summary: "Returns the number of this connection, which no other has had.",
        run: handler!(id),
        ..BASE
    },
    Row {
        name: "info",
        arity: 2,
        since: "6.2.0",
        summary: "Returns this connection's line of CLIENT LIST.",
        run: handler!(info),
        ..BASE
    },
    Row {
        name: "kill",
        arity: -3,
        flags: OPEN.or(Flags::ADMIN),
        syntax: "<ip:port | [ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [USER username] [ADDR addr] \
                 [LADDR laddr] [SKIPME <YES | NO>] [MAXAGE maxage]>",
        summary: "Closes connections.",
        run: handler!(super::client_kill::kill),
        ..BASE
    },
    Row {
        name: "list",
        arity: -2,
        flags: OPEN.or(Flags::ADMIN),
        syntax: "[TYPE <client-type: NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        summary: "Describes connections, a line each.",
        run: handler!(list),
        ..BASE
    },
    Row {
        name: "no-evict",
        arity: 3,
        flags: OPEN.or(Flags::ADMIN),
        since: "7.0.0",
        syntax: "<enabled: ON | OFF>",
        summary: "Protects this connection from being closed for its memory.",
        run: handler!(no_evict),
        ..BASE
    },
    Row {
        name: "no-touch",
        arity: 3,
        since: "7.2.0",
        syntax: "<enabled: ON | OFF>",
        summary: "Keeps this connection's reads from counting as uses of a key.",
        run: handler!(no_touch),
        ..BASE
    },
    Row {
        name: "pause",
        arity: -3,
        flags: OPEN.or(Flags::ADMIN),
        since: "3.0.0",
        syntax: "timeout [mode: WRITE | ALL]",
        summary: "Makes the commands of all clients of this server wait, or only those that write.",
        run: handler!(super::pause::pause),
        ..BASE
    },
    Row {
        name: "reply",
        arity: 3,
        since: "3.2.0",
        syntax: "<action: ON | OFF | SKIP>",
        summary: "Says whether this connection gets replies.",
        run: handler!(reply),
        ..BASE
    },
    Row {
        name: "setinfo",
        arity: 4,
        since: "7.2.0",
        syntax: "<attr: LIB-NAME libname | LIB-VER libver>",
        summary: "Tells the name or the version of the client's library.",
        run: handler!(setinfo),
        ..BASE
    },
    Row {
        name: "setname",
        arity: 3,
        since: "2.6.9",
        syntax: "connection-name",
        summary: "Names this connection.",
        run: handler!(setname),
        ..BASE
    },
    Row {
        name: "tracking",
        arity: -3,
        since: "6.0.0",
        syntax: "<status: ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
        summary: "Tells this connection, or another, which keys of its cache have changed.",
        run: Run::Session(SessionOp::Tracking),
        ..BASE
    },
    Row {
        name: "trackinginfo",
        arity: 2,
        since: "6.2.0",
        summary: "Returns how this connection tracks keys.",
        run: handler!(trackinginfo),
        ..BASE
    },
    Row {
        name: "unblock",
        arity: -3,
        flags: OPEN.or(Flags::ADMIN),
        since: "5.0.0",
        syntax: "client-id [unblock-type: TIMEOUT | ERROR]",
        summary: "Ends a blocking command of another connection. There are none, so it finds none.",
        run: handler!(unblock),
        ..BASE
    },
    Row {
        name: "unpause",
        arity: 2,
        flags: OPEN.or(Flags::ADMIN),
        since: "6.2.0",
        summary: "Ends what CLIENT PAUSE began.",
        run: handler!(super::pause::unpause),
        ..BASE
    },
];

async fn id(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.client.id as i64))
}

async fn getname(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let name = cx.client.name.clone();
    Ok(Reply::bulk_or_nil(Some(name).filter(|n| !n.is_empty())))
}

async fn setname(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.name = printable(args.next()?, "Client names")?;
    cx.client.publish();
    Ok(Reply::Ok)
}

async fn setinfo(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let option = args.next()?;
    let value = args.next()?;
    // An error repeats it as it was written.
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

/// Bytes of a client's name, and of its library's. CLIENT LIST shows those of all clients in one answer.
const LONGEST_NAME: usize = 1024;

/// A name as it is kept. Names are shown in lines of words, so they hold neither spaces nor control characters.
pub fn printable(raw: &[u8], what: &str) -> ArgResult<Bytes> {
    if raw.len() > LONGEST_NAME {
        let len = raw.len();
        return Err(ReplyError::of(format!(
            "ERR {what} cannot be longer than {LONGEST_NAME} bytes: this has {len}"
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

async fn no_evict(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.no_evict = on_off(&mut args)?;
    cx.client.publish();
    Ok(Reply::Ok)
}

async fn no_touch(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    cx.client.no_touch = on_off(&mut args)?;
    cx.client.publish();
    Ok(Reply::Ok)
}

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

async fn info(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let line = line(cx, &cx.client.handle);
    Ok(Reply::Verbatim(Bytes::from(line)))
}

fn line(cx: &Cx<'_>, client: &ClientHandle) -> String {
    client.line(cx.server.env.clock.monotonic(), &cx.server.telemetry) + "\n"
}

/// Steps of work ([`Pace`]) that a line of CLIENT LIST takes.
const LINE: usize = 1 << 10;
/// ... and finding a client by its id.
const CLIENT: usize = 1 << 6;

async fn list(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (mut clients, mut pace) = (cx.server.clients.all(), Pace::default());
    if args.keyword("TYPE") {
        let raw = args.next()?;
        args.end()?;
        let kind = Kind::parse(raw)?;
        clients.retain(|c| kind.is(c));
    } else if args.keyword("ID") {
        clients.clear();
        for id in ids(&mut args)? {
            clients.extend(cx.server.clients.get(id));
            pace.spend(CLIENT).await;
        }
    }
    args.end()?;
    let mut lines = String::new();
    for client in clients {
        lines += &line(cx, &client);
        pace.spend(LINE).await;
    }
    Ok(Reply::Verbatim(Bytes::from(lines)))
}

/// One or more ids, to the end. Nobody has one below 1.
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
pub(super) enum Kind {
    /// Neither of the others.
    Normal,
    /// Subscribed.
    Pubsub,
    /// Masters and replicas: there are none.
    Replication,
}

impl Kind {
    /// From its name in any case.
    pub(super) fn parse(raw: &[u8]) -> Result<Self> {
        match raw.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Kind::Normal),
            b"pubsub" => Ok(Kind::Pubsub),
            b"master" | b"slave" | b"replica" => Ok(Kind::Replication),
            _ => {
                let raw = quoted(raw);
                Err(ReplyError::of(format!("ERR Unknown client type '{raw}'")).into())
            }
        }
    }
    /// Whether `client` is one.
    pub(super) fn is(self, client: &ClientHandle) -> bool {
        self == if client.is_subscribed() { Kind::Pubsub } else { Kind::Normal }
    }
}

async fn getredir(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Int(cx.client.handle.redirect()))
}

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

async fn unblock(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    if args.len() > 2 {
        return Err(args.no_such_form().into());
    }
    // The reason is judged first.
    let mut id = args;
    args.next()?;
    if !args.is_empty() && !args.keyword("TIMEOUT") && !args.keyword("ERROR") {
        return Err(ReplyError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR").into());
    }
    id.int()?;
    Ok(Reply::Int(0))
}
