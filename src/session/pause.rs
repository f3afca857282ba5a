//! CLIENT PAUSE: paused commands wait here before they run. Errors and QUEUED are sent at once.

use super::transaction::Multi;
use super::{Next, Session};
use crate::commands::binding::{Run, SessionOp};
use crate::commands::registry::run_of;
use crate::dispatch::Call;
use crate::script;
use crate::server::Server;
use crate::server::pause::Paused;
use crate::spec::{Effect, Flags};
use std::time::Duration;

/// Interval at which a waiting client checks whether it was killed.
pub(super) const LOOK: Duration = Duration::from_millis(50);

impl Session {
    /// Whether [`Session::run`] may wait, for a pause to end or for a key: earlier replies have to be written first.
    pub(crate) fn is_held(&self) -> bool {
        if self.window.len() == 0 && matches!(self.next, Some(Next::Wait(..))) {
            return true;
        }
        let server = self.executor.server();
        let pause = server.pause.now(&server.env.clock);
        pause.is_some_and(|(kind, _)| self.not_held(kind).is_none())
    }

    /// Waits while none of the requests taken may run. Returns how many calls of the window may then run, by
    /// the user's rights at that time.
    pub(super) async fn wait_out_pause(&mut self) -> usize {
        let server = self.executor.server().clone();
        loop {
            self.recheck();
            let Some((kind, end)) = server.pause.now(&server.env.clock) else { break };
            if let Some(may_run) = self.not_held(kind) {
                self.client.handle.set_blocked(false);
                return may_run;
            }
            self.client.handle.set_blocked(true);
            let left = end.saturating_sub(server.env.clock.monotonic());
            let _ = tokio::time::timeout(left.min(LOOK), server.pause.changed()).await;
            if self.client.handle.is_killed() {
                break;
            }
        }
        self.client.handle.set_blocked(false);
        usize::MAX
    }

    /// The number of calls of the window that may run now; None if nothing may.
    fn not_held(&self, kind: Paused) -> Option<usize> {
        let held = match &self.next {
            _ if self.window.len() > 0 => {
                return self.window.not_held(|call| holds(self.executor.server(), kind, call));
            }
            Some(Next::Alone(call) | Next::Wait(call, _)) => holds(self.executor.server(), kind, call),
            Some(Next::Op(SessionOp::Exec, _)) if kind == Paused::Writes => {
                let writes = |multi: &Multi| {
                    multi.calls().iter().any(|call| holds(self.executor.server(), kind, call))
                };
                self.multi.as_ref().is_some_and(writes)
            }
            Some(Next::Op(..)) => kind == Paused::All,
            None => false,
        };
        (!held).then_some(usize::MAX)
    }
}

impl super::Window {
    /// The number of calls before the first held one; None if the first call is held and no reply is due
    /// before it.
    fn not_held(&self, held: impl Fn(&Call) -> bool) -> Option<usize> {
        let free = self.calls.iter().position(held).unwrap_or(usize::MAX);
        let due = self.fixed.first().is_some_and(|(at, _)| *at == 0);
        (free > 0 || due).then_some(free)
    }
}

pub(super) fn holds(server: &Server, kind: Paused, call: &Call) -> bool {
    match kind {
        Paused::All => call.row.effect != Effect::Resumes,
        Paused::Writes => {
            // SCRIPT LOAD keeps no data.
            let has_data = call.row.flags.has(Flags::WRITE) || call.row.flags.has(Flags::READONLY);
            let may_write = match run_of(call.row) {
                Run::Handler(_) => call.row.is_write() && has_data,
                Run::Script(op) => call.row.is_write() && !script::only_reads(server, op, call),
                _ => false,
            };
            call.id.is_some() || may_write || call.row.flags.has(Flags::PUBLISHES)
        }
    }
}
