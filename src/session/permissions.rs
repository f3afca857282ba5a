//! Denied permissions of a session's user: the replies, and the entries in ACL LOG.

use super::{Next, Session, Window};
use crate::commands::binding::Run;
use crate::commands::registry::{run_of, table};
use crate::dispatch::Call;
use crate::error::ReplyError;
use crate::server::acl::Denied;
use crate::server::reply::Reply;
use crate::spec::{Entry, Form, PREFIX};
use bytes::Bytes;

impl Session {
    /// The reply to a request that the user may not make of this row.
    pub(super) fn deny(&mut self, row: &'static Entry, denied: &Denied, argv: &[Bytes]) -> Reply {
        if row.form != Form::Prefix {
            return self.deny_as(row, Some(run_of(row)), denied, label_of(argv));
        }
        // The command behind the prefix decides, as if that command itself were denied.
        let run = run_by(argv.get(PREFIX..).unwrap_or_default());
        self.deny_as(row, run, denied, &row.label)
    }

    /// `label` is the command's name; `run` is what the request would have run.
    fn deny_as(&mut self, row: &'static Entry, run: Option<Run>, denied: &Denied, label: &str) -> Reply {
        let server = self.executor.server();
        server.refused(
            &self.client,
            &self.client.user,
            Some(denied),
            &Bytes::copy_from_slice(label.as_bytes()),
        );
        server.telemetry.error("NOPERM");
        server.telemetry.rejected(row.index);
        let error = ReplyError::of(match denied {
            Denied::Command => format!("NOPERM this user has no permissions to run the '{label}' command"),
            Denied::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            }
            Denied::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
        });
        self.refuse(run, error)
    }

    /// Checks the requests that were taken and have not run again if users have changed since: a request may
    /// have waited for long.
    pub(super) fn recheck(&mut self) {
        self.executor.server().acl.refresh(&mut self.rights, &self.client.user);
        let checked = std::mem::replace(&mut self.checked, self.rights.generation());
        if checked == self.checked || self.rights.restricted().is_none() {
            return;
        }
        let Window { calls, fixed, .. } = std::mem::take(&mut self.window);
        let mut fixed = fixed.into_iter().peekable();
        for (at, call) in calls.into_iter().enumerate() {
            while let Some((_, reply)) = fixed.next_if(|(before, _)| *before <= at) {
                self.fix(reply);
            }
            match self.denial(&call) {
                Some(reply) => self.fix(reply),
                None => self.push(call),
            };
        }
        for (_, reply) in fixed {
            self.fix(reply);
        }
        if let Some(Next::Op(_, call) | Next::Alone(call) | Next::Wait(call, _)) = &self.next {
            let call = call.clone();
            if let Some(reply) = self.denial(&call) {
                self.next = None;
                self.fix(reply);
            }
        }
    }

    /// The reply to a call that passed the gates but that the user may no longer run.
    pub(super) fn denial(&mut self, call: &Call) -> Option<Reply> {
        let user = self.rights.restricted()?;
        if let Err(denied) = user.check(call.row, &call.argv, call.names) {
            return Some(self.deny_as(call.row, Some(run_of(call.row)), &denied, &call.row.label));
        }
        let (id, prefix) = (call.id.clone()?, table().prefix()?);
        let name = Bytes::from_static(prefix.name.as_bytes());
        let denied = user.check(prefix, &[name, id], 1).err()?;
        Some(self.deny_as(prefix, Some(run_of(call.row)), &denied, &prefix.label))
    }

    /// The reply to a queued call that the user might run when it was queued but may no longer.
    pub(super) fn no_longer_allowed(&self, call: &Call) -> Option<Reply> {
        let user = self.rights.restricted()?;
        let denied = user.check(call.row, &call.argv, call.names).err()?;
        let label = Bytes::copy_from_slice(call.row.label.as_bytes());
        let server = self.executor.server();
        server.refused(&self.client, &self.client.user, Some(&denied), &label);
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

/// The code that would run the command in `argv`.
fn run_by(argv: &[Bytes]) -> Option<Run> {
    table().resolve(argv)?.ok().map(|(row, _)| run_of(row))
}

/// The full name of the command in `argv`, or of the command behind an id.
fn label_of(argv: &[Bytes]) -> &'static str {
    match table().resolve(argv) {
        Some(Ok((row, 1))) if row.form == Form::Prefix => label_of(argv.get(PREFIX..).unwrap_or_default()),
        Some(Ok((row, _))) => &row.label,
        _ => "",
    }
}
