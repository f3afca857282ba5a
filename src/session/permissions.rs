//! What the user of a session may not do, told and kept.

use super::Session;
use super::gate::label;
use crate::commands::acl::Denied;
use crate::commands::reply::Reply;
use crate::commands::table::{self, PREFIX, Row, Run};
use crate::error::ReplyError;
use crate::exec::Call;
use bytes::Bytes;

impl Session {
    /// The reply to a request whose row the user may not run so.
    pub(super) fn deny(&mut self, row: &'static Row, denied: &Denied, argv: &[Bytes]) -> Reply {
        let label = match row.run {
            Run::Prefix => row.name.to_owned(),
            _ => label_of(argv),
        };
        let server = self.executor.server();
        server.refused(&self.client, &self.client.user, Some(denied), &Bytes::from(label.clone()));
        server.telemetry.error("NOPERM");
        server.telemetry.rejected(table::index_of(row));
        let error = ReplyError::of(match denied {
            Denied::Command => format!("NOPERM this user has no permissions to run the '{label}' command"),
            Denied::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            }
            Denied::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
        });
        let run = match row.run {
            // What it stands in front of decides, as where that is denied itself.
            Run::Prefix => run_of(argv.get(PREFIX..).unwrap_or_default()),
            run => Some(run),
        };
        self.refuse(run, error)
    }

    /// The reply to a queued call that the user might run when it was queued and may not now.
    pub(super) fn no_longer_allowed(&self, call: &Call) -> Option<Reply> {
        let user = self.rights.restricted()?;
        let denied = user.check(call.row, &call.argv, call.names).err()?;
        let label = label(call.row, call.names, &call.argv);
        let server = self.executor.server();
        server.refused(&self.client, &self.client.user, Some(&denied), &Bytes::from(label));
        server.telemetry.error("NOPERM");
        let why = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        let line = format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {why}"
        );
        Some(Reply::Error(ReplyError::of(line)))
    }
}

/// What runs the command in `argv`.
fn run_of(argv: &[Bytes]) -> Option<Run> {
    table::resolve(argv)?.ok().map(|(row, _)| row.run)
}

/// The full name of the command in `argv`, of that behind an id where there is one.
fn label_of(argv: &[Bytes]) -> String {
    match table::resolve(argv) {
        Some(Ok((row, 1))) if matches!(row.run, Run::Prefix) => {
            label_of(argv.get(PREFIX..).unwrap_or_default())
        }
        Some(Ok((row, names))) => label(row, names, argv),
        _ => String::new(),
    }
}
