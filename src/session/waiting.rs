//! Commands that wait until there is something to have (BLPOP and its relatives): see [`crate::exec::Wait`].
//!
//! While a client waits, its later requests stay unread by the session, and its connection delivers messages and
//! notices that it has left. A pause that holds the command keeps it waiting.

use super::Session;
use super::pause::{LOOK, holds};
use crate::dispatch::Call;
use crate::exec::Wait;
use crate::server::ReplyMode;
use crate::server::reply::Reply;
use crate::server::waiters::Aside;
use std::time::Duration;

/// A command that waits, and whether its reply is sent.
pub(super) struct Waiting {
    wait: Wait,
    mode: ReplyMode,
}

impl Waiting {
    pub(super) fn call(&self) -> &Call {
        self.wait.call()
    }
}

impl Session {
    /// Runs a call that waits, or begins to.
    pub(super) async fn wait(&mut self, call: Call, timeout: Option<Duration>) {
        let mode = self.begin_reply();
        let wait = Wait::new(self.executor.server(), &self.client, call, timeout);
        self.go_on(Box::new(Waiting { wait, mode })).await;
    }

    /// Whether a command waits: call [`Session::called`], then [`Session::resume`].
    pub(crate) fn is_blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns once the waiting command may have its reply, and no pause holds it. Cancel safe.
    pub(crate) async fn called(&self) {
        let Some(Waiting { wait, .. }) = self.waiting.as_deref() else { return };
        wait.called(self.executor.server(), || self.held(wait.call())).await;
    }

    /// How long a pause holds a waiting command, or until it is to be asked for again.
    fn held(&self, call: &Call) -> Option<Duration> {
        let server = self.executor.server();
        let (_, end) = server.pause.now(&server.env.clock).filter(|(kind, _)| holds(server, *kind, call))?;
        Some(end.saturating_sub(server.env.clock.monotonic()).min(LOOK))
    }

    /// Lets the turn of the waiting command pass while its connection is stuck: see [`Session::is_back`].
    pub(crate) fn aside(&self) -> Option<Aside> {
        Some(self.waiting.as_ref()?.wait.ticket().aside())
    }

    /// The connection is no longer stuck: the command waits again, behind the others.
    pub(crate) fn is_back(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.wait.ticket().enter_again();
        }
    }

    /// Runs the waiting command again. Afterwards either its reply is among [`Session::replies`], or it waits on.
    pub(crate) async fn resume(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        if self.begin_to_run() {
            self.take_turn(waiting).await;
        } else {
            self.client.handle.set_blocked(false);
        }
        self.client.handle.set_busy(false);
    }

    async fn take_turn(&mut self, waiting: Box<Waiting>) {
        self.executor.server().acl.refresh(&mut self.rights, &self.client.user);
        if self.checked != self.rights.generation() && waiting.wait.may_run(self.executor.server()) {
            self.checked = self.rights.generation();
            if let Some(denied) = self.denial(waiting.call()) {
                return self.end_waiting(&waiting, denied);
            }
        }
        self.go_on(waiting).await;
    }

    async fn go_on(&mut self, mut waiting: Box<Waiting>) {
        let executor = self.executor.clone();
        let is_held = self.held(waiting.call()).is_some();
        match waiting.wait.go_on(&executor, &mut self.client, is_held).await {
            Some(reply) => self.end_waiting(&waiting, reply),
            None => {
                self.client.handle.set_blocked(true);
                self.waiting = Some(waiting);
            }
        }
    }

    fn end_waiting(&mut self, waiting: &Waiting, reply: Reply) {
        self.client.handle.set_blocked(false);
        if waiting.mode == ReplyMode::On {
            self.weight = reply.weight();
            self.replies.push(reply);
        }
        self.end_reply();
        self.client.handle.set_argv(self.taken());
    }
}
