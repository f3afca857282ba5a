//! MONITOR. The lines sent to its clients are in [`crate::server::monitor`].

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, Row};

/// The command.
pub(crate) const COMMANDS: &[Command] = &[MONITOR];

const MONITOR: Command = Command::new(
    Row::new(Group::Server, "monitor", 1, "1.0.0")
        .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE))
        .summary("Sends this connection every command that the server runs, until RESET or until it closes."),
    handler!(monitor),
);

async fn monitor(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    if cx.client.in_exec {
        return Err(ReplyError::new("ERR MONITOR isn't allowed for DENY BLOCKING client").into());
    }
    cx.server.monitors.add(&cx.client.mailbox);
    Ok(Reply::Ok)
}
