//! Commands about the connection, but for those that the session runs itself.

use super::args::Args;
use super::cx::{Cx, Protocol};
use super::reply::Reply;
use super::table::{Flags, Group, Row, Run};
use crate::error::{ReplyError, Result};
use crate::handler;

const BASE: Row = Row {
    name: "",
    arity: 0,
    flags: Flags::FAST,
    keys: &[],
    group: Group::Connection,
    since: "1.0.0",
    syntax: "",
    summary: "",
    run: Run::Container,
    subs: &[],
};
/// Redis' words, its grammar too.
const NOT_INT32: ReplyError =
    ReplyError::new("ERR value is out of range, value must between -2147483648 and 2147483647");

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "echo",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
        syntax: "message",
        summary: "Returns the message.",
        run: handler!(echo),
        ..BASE
    },
    Row {
        name: "ping",
        arity: -1,
        syntax: "[message]",
        summary: "Returns PONG, or the message: shows that the server answers.",
        run: handler!(ping),
        ..BASE
    },
    Row {
        name: "select",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
        syntax: "index",
        summary: "Selects the database of this connection.",
        run: handler!(select),
        ..BASE
    },
];

async fn echo(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Bulk(args.next()?.clone()))
}

/// A subscriber in RESP2 gets `pong` and the message as an array: it reads nothing else than arrays.
async fn ping(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let message = match args.rest() {
        [] => None,
        [message] => Some(message.clone()),
        _ => return Err(ReplyError::new("ERR wrong number of arguments for 'ping' command").into()),
    };
    if cx.client.handle.is_subscribed() && cx.client.protocol == Protocol::Resp2 {
        return Ok(Reply::Array(vec![Reply::bulk_static("pong"), Reply::Bulk(message.unwrap_or_default())]));
    }
    Ok(message.map_or(Reply::Simple("PONG".into()), Reply::Bulk))
}

async fn select(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let index = i32::try_from(args.int()?).map_err(|_| NOT_INT32)?;
    let db = u8::try_from(index).ok().filter(|db| cx.prefix(*db).is_ok());
    cx.client.db = db.ok_or(ReplyError::new("ERR DB index is out of range"))?;
    cx.client.publish();
    Ok(Reply::Ok)
}
