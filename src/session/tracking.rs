//! CLIENT TRACKING and CLIENT CACHING: they affect the commands after them, so they never share a window with
//! the commands before.
//!
//! Inside MULTI they take effect before the transaction begins, because its reads must already be tracked:
//! this tracks slightly more than Redis does, never less. If EXEC does not run, they have no effect.

use super::Session;
use crate::commands::binding::{Run, SessionOp};
use crate::commands::registry::run_of;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::keyspace::cluster::messages::TRACKS;
use crate::server::reply::Reply;
use crate::server::tracking::{Choice, Mode, Tracker, TrackingOptions, check_caching};
use bytes::Bytes;

/// A client's tracking state before its transaction.
pub(super) struct Before {
    mode: Mode,
    tracker: Option<Tracker>,
}

fn ok_or_error(result: Result<()>) -> Reply {
    result.map_or_else(|e| Reply::Error(e.into_reply()), |()| Reply::Ok)
}

/// Whether a session command is one of these two.
pub(super) fn is_of_tracking(call: &Call) -> bool {
    matches!(run_of(call.row), Run::Session(SessionOp::Tracking | SessionOp::Caching))
}

impl Session {
    pub(super) async fn tracking(&mut self, args: &[Bytes]) -> Reply {
        ok_or_error(self.switch_tracking(args).await)
    }

    async fn switch_tracking(&mut self, args: &[Bytes]) -> Result<()> {
        let server = self.executor.server().clone();
        let client = &self.client.handle;
        let options = TrackingOptions::parse(args, |id| server.tracking.may_redirect(id, client))?;
        if !options.mode.on {
            self.forget_tracking();
            return Ok(());
        }
        options.check(self.client.tracking, &server.tracking.prefixes(self.client.id))?;
        let log = &server.space.bus;
        let (_interest, missed) = (log.interest(), log.missed());
        let since = log.listen(TRACKS).await?;
        self.client.tracking = options.mode;
        server.tracking.switch_on(&self.client.mailbox, options, since);
        if log.missed() != missed {
            self.closing = true;
        }
        Ok(())
    }

    pub(super) fn caching(&mut self, args: &[Bytes]) -> Reply {
        let checked = check_caching(args, self.client.tracking);
        self.client.tracking.caching |= checked.is_ok();
        ok_or_error(checked.map_err(Error::from))
    }

    /// Turns tracking off.
    pub(super) fn forget_tracking(&mut self) {
        if self.client.tracking.on {
            self.client.tracking = Mode::default();
            self.executor.server().tracking.set(self.client.id, None);
        }
    }

    /// Answers, before a transaction runs, those of its `calls` that are about tracking. Also returns the
    /// state before them, if there are any.
    pub(super) async fn track_ahead(&mut self, calls: &[Call]) -> (Vec<Reply>, Option<Before>) {
        if calls.is_empty() {
            return (Vec::new(), None);
        }
        let mode = self.client.tracking;
        let before = Before { mode, tracker: self.executor.server().tracking.get(self.client.id) };
        let mut replies = Vec::new();
        for call in calls {
            let args = call.argv.get(call.names..).unwrap_or_default();
            replies.push(match run_of(call.row) {
                Run::Session(SessionOp::Caching) => self.caching(args),
                _ => self.tracking(args).await,
            });
        }
        if self.client.tracking.choice == Choice::OptOut {
            self.client.tracking.caching = mode.caching;
        }
        (replies, Some(before))
    }

    /// Restores the state after a transaction that did not run.
    pub(super) fn track_as(&mut self, before: Option<Before>) {
        if let Some(Before { mode, tracker }) = before {
            self.client.tracking = mode;
            self.executor.server().tracking.set(self.client.id, tracker);
        }
    }
}
