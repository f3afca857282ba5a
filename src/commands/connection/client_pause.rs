//! CLIENT PAUSE and UNPAUSE. Which commands wait, and for how long, is in [`crate::server::pause`].

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::connection::client::OPEN;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::pause::Paused;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Effect, Flags, Group, Row};
use std::time::Duration;

pub(super) const CLIENT_PAUSE: Command = Command::new(
    Row::new(Group::Connection, "pause", -3, "3.0.0")
        .flags(OPEN.or(Flags::ADMIN))
        .syntax("timeout [mode: WRITE | ALL]")
        .summary("Suspends commands from all clients of this server, or only their writes.")
        .effect(Effect::Pauses),
    handler!(pause),
);

async fn pause(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let timeout = args.next()?;
    let kind = match args.rest() {
        [] => Paused::All,
        [word] if word.eq_ignore_ascii_case(b"write") => Paused::Writes,
        [word] if word.eq_ignore_ascii_case(b"all") => Paused::All,
        [_] => return Err(ReplyError::new("ERR CLIENT PAUSE mode must be WRITE or ALL").into()),
        _ => return Err(args.no_such_form().into()),
    };
    let ms = parse_i64(timeout).ok_or(ReplyError::new("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| ReplyError::new("ERR timeout is negative"))?;
    if i64::try_from(cx.now.saturating_add(ms)).is_err() {
        return Err(ReplyError::new("ERR timeout is out of range").into());
    }
    if ms > 0 {
        cx.server.pause.begin(kind, Duration::from_millis(ms), &cx.server.env.clock);
    }
    Ok(Reply::Ok)
}

pub(super) const CLIENT_UNPAUSE: Command = Command::new(
    Row::new(Group::Connection, "unpause", 2, "6.2.0")
        .flags(OPEN.or(Flags::ADMIN))
        .summary("Resumes clients after CLIENT PAUSE.")
        .effect(Effect::Resumes),
    handler!(unpause),
);

async fn unpause(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    cx.server.pause.end();
    Ok(Reply::Ok)
}
