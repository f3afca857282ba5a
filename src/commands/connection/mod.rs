//! Commands about the connection, except those that the session runs itself.

pub(super) mod auth;
pub(crate) mod client;
mod client_kill;
mod client_pause;

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::Protocol;
use crate::server::reply::Reply;
use crate::spec::{Effect, Flags, Group, Row};

/// Redis' text, including its grammar.
const NOT_INT32: ReplyError =
    ReplyError::new("ERR value is out of range, value must between -2147483648 and 2147483647");

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[ECHO, PING, SELECT];

const ECHO: Command = Command::new(
    Row::new(Group::Connection, "echo", 2, "1.0.0")
        .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
        .syntax("message")
        .summary("Returns the message."),
    handler!(echo),
);

async fn echo(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Bulk(args.next()?.clone()))
}

const PING: Command = Command::new(
    Row::new(Group::Connection, "ping", -1, "1.0.0")
        .flags(Flags::FAST.or(Flags::WHILE_SUBSCRIBED))
        .syntax("[message]")
        .summary("Returns PONG, or the message, to show that the server answers.")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(ping),
);

/// A subscriber in RESP2 gets `pong` and the message as an array, because it only reads arrays.
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

const SELECT: Command = Command::new(
    Row::new(Group::Connection, "select", 2, "1.0.0")
        .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
        .syntax("index")
        .summary("Selects the database of this connection.")
        .effect(Effect::Selects),
    handler!(select),
);

async fn select(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let index = i32::try_from(args.int()?).map_err(|_| NOT_INT32)?;
    let db = u8::try_from(index).ok().filter(|db| cx.prefix(*db).is_ok());
    cx.client.db = db.ok_or(ReplyError::new("ERR DB index is out of range"))?;
    cx.client.publish();
    Ok(Reply::Ok)
}
