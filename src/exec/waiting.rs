//! Calls that wait for a key to have something (BLPOP and its relatives).
//!
//! A call that waits runs again and again, as a unit of its own, until it gets something: outside of a transaction
//! its handler answers nil where there is nothing. In between, the client is in the queues of its keys
//! ([`crate::server::waiters`]), where it was entered before it looked for the first time.
//!
//! Whoever is responsible for a key looks at it in a small transaction, which reads the key's record, and has the store
//! watch it if there is nothing. Any change after the version of that read fires the watch: of this server or another,
//! by whatever command. What may exist without a change of the record is a key of a database that was swapped or
//! flushed, so the place of the database is watched, too, once for all keys; and a member of a value that was emptied by
//! several transactions together, so that none of them removed its record: then its number of members is watched. One or
//! two watches a key, kind and server, whoever waits; for streams, each reader has its own, and each group of consumers,
//! whose row is watched as well ([`super::goal`]).
//!
//! Who takes one of several elements invites those behind it, once its own call is queued: they run theirs at once, in the
//! same order, and share its commit.
//!
//! First come, first served, among the clients of one server that wait for a key. A push is answered before who waits has
//! run its call, so a client that does not wait may be faster. So may one that begins to wait while the push commits,
//! one whose time ends, and one that has waited for other keys as well, and whose turn it is there. Servers of a
//! cluster look at the same time.

use super::goal::{self, Goal};
use super::looking::Looker;
use super::unit::Unit;
use super::{Done, Executor};
use crate::dispatch::{Call, PANICKED};
use crate::error::{ReplyError, Result};
use crate::server::reply::Reply;
use crate::server::waiters::{Invitation, Ticket, Unblock, Wanted};
use crate::server::{ClientState, Server};
use crate::spec::{Count, Group, Row, Waits, waited_keys};
use crate::telemetry::Outcome;
use crate::types::Kind;
use parking_lot::Mutex;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

const UNBLOCKED: ReplyError = ReplyError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");

/// The most keys that a call waits for, named more than once or not.
const MOST_KEYS: usize = 4096;
const TOO_MANY: ReplyError = ReplyError::new(
    "ERR a command can wait for at most 4096 keys: wait for the others on another connection",
);

/// The type of value that a command waits for.
fn kind_of(row: &Row) -> Option<Kind> {
    match row.group {
        Group::List => Some(Kind::List),
        Group::SortedSet => Some(Kind::Zset),
        Group::Stream => Some(Kind::Stream),
        Group::String
        | Group::Bitmap
        | Group::HyperLogLog
        | Group::Geo
        | Group::Set
        | Group::Hash
        | Group::Generic
        | Group::Connection
        | Group::Transactions
        | Group::Server
        | Group::Pubsub
        | Group::Scripting
        | Group::Cluster => None,
    }
}

/// A call that waits.
pub struct Wait {
    call: Call,
    looker: Arc<Looker>,
    /// By the monotonic clock. None: it waits for ever.
    deadline: Option<Duration>,
    /// Whether it has been called and has not looked since.
    is_called: AtomicBool,
    /// The task that looks, since it was called. It goes on while the connection reads or delivers, so that a client
    /// that receives much gets to the end of a look, too.
    look: Mutex<JoinSet<Result<Option<Invitation>>>>,
    /// Whether it was called since the task began.
    rang: AtomicBool,
    /// What it has found, for the call to take.
    found: Mutex<Option<Result<Invitation>>>,
    /// Whether the call has run: then it may end without running once more.
    has_run: bool,
    /// Whether it names more keys than a call waits for: it looks once.
    has_too_many: bool,
}

impl Wait {
    /// A client that has sent a call which waits for at most `timeout` (None: for ever).
    pub fn new(server: &Server, client: &ClientState, call: Call, timeout: Option<Duration>) -> Self {
        let mut keys = waited_keys(call.row, &call.argv);
        let has_too_many = keys.len() > MOST_KEYS;
        if has_too_many {
            keys.clear();
        }
        let kind = kind_of(call.row);
        let goal = Goal::of(&call, kind);
        let wanted = Wanted { db: client.db, kind, whose: goal.whose(client.id) };
        let ticket = server.waiters.enter(client.id, wanted, &keys);
        let deadline = timeout.map(|timeout| server.env.clock.monotonic().saturating_add(timeout));
        let looker = Looker::new(ticket, goal);
        let (is_called, look, rang, found, has_run) = Default::default();
        Wait { call, looker, deadline, is_called, look, rang, found, has_run, has_too_many }
    }

    /// The call.
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// The places in the queues.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.looker.ticket
    }

    /// Whether its time is over, or CLIENT UNBLOCK has ended it.
    fn is_over(&self, server: &Server) -> bool {
        let is_late = self.deadline.is_some_and(|at| server.env.clock.monotonic() >= at);
        is_late || self.ticket().is_unblocked()
    }

    /// Whether [`Wait::go_on`] may run the call.
    pub(crate) fn may_run(&self, server: &Server) -> bool {
        !(self.ticket().is_unblocked() || self.has_run && self.is_over(server))
    }

    /// Returns once [`Wait::go_on`] may have an answer. `held`: how long the call may not run (a pause). Cancel safe: so
    /// whoever waits for it can be told meanwhile that the client has left, and takes nothing for it.
    pub async fn called(&self, server: &Arc<Server>, held: impl Fn() -> Option<Duration>) {
        loop {
            let mut left = self.deadline.map(|at| at.saturating_sub(server.env.clock.monotonic()));
            if self.is_called.load(Ordering::Relaxed) {
                match held() {
                    Some(pause) => left = Some(left.map_or(pause, |left| left.min(pause))),
                    // Boxed, because every connection's task reserves space for everything that it may await.
                    None if Box::pin(self.has_something(server, left)).await => return,
                    None => continue,
                }
            }
            if let Some(due) = self.looker.due() {
                let due = due.saturating_sub(server.env.clock.monotonic());
                left = Some(left.map_or(due, |left| left.min(due)));
            }
            let rang = match left {
                None => {
                    self.ticket().called().await;
                    true
                }
                Some(left) => tokio::time::timeout(left, self.ticket().called()).await.is_ok(),
            };
            self.looker.look_if_due(server.env.clock.monotonic());
            if rang {
                self.is_called.store(true, Ordering::Relaxed);
            }
            if self.is_over(server) {
                return;
            }
        }
    }

    /// Looks, once it was called. Whether [`Wait::go_on`] has something to do.
    async fn has_something(&self, server: &Arc<Server>, left: Option<Duration>) -> bool {
        if !self.ticket().has_looked() || self.ticket().is_invited() {
            return true;
        }
        let mut found = pin!(self.found(server));
        let mut late = pin!(async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => pending().await,
            }
        });
        loop {
            tokio::select! {
                biased;
                found = &mut found => {
                    let found = found.transpose();
                    let has_found = found.is_some();
                    *self.found.lock() = found;
                    self.is_called.store(self.rang.load(Ordering::Relaxed), Ordering::Relaxed);
                    return has_found || self.is_over(server);
                }
                () = &mut late => return true,
                () = self.ticket().called() => {
                    self.rang.store(true, Ordering::Relaxed);
                    if self.is_over(server) || self.ticket().is_invited() {
                        return true;
                    }
                }
            }
        }
    }

    /// What the look finds that has begun, or that begins. Cancel safe.
    async fn found(&self, server: &Arc<Server>) -> Result<Option<Invitation>> {
        let found = poll_fn(|cx| {
            let mut look = self.look.lock();
            if look.is_empty() {
                self.rang.store(false, Ordering::Relaxed);
                look.spawn(self.looker.clone().find_patiently(server.clone()));
            }
            look.poll_join_next(cx)
        });
        match found.await {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => Err(PANICKED.into()),
        }
    }

    /// The answer, if there is one by now. None: wait on. `is_held`: the call may not run (a pause). Not cancel safe:
    /// what was taken would be lost.
    pub async fn go_on(
        &mut self,
        executor: &Executor,
        client: &mut ClientState,
        is_held: bool,
    ) -> Option<Reply> {
        // Whoever calls from now on is heard by the next look.
        *self.look.get_mut() = JoinSet::new();
        self.is_called.store(false, Ordering::Relaxed);
        if let Some(how) = self.ticket().wake() {
            return Some(self.unblocked(executor, how));
        }
        let is_late = self.is_over(executor.server());
        if is_late && (self.has_run || is_held) {
            return Some(self.unblocked(executor, Unblock::TimedOut));
        }
        if is_held {
            self.is_called.store(true, Ordering::Relaxed);
        } else if let Some(answer) = self.take(executor, client, is_late).await {
            return Some(answer);
        }
        if is_late {
            return Some(self.unblocked(executor, Unblock::TimedOut));
        }
        self.ticket().sleep();
        None
    }

    /// The answer of a call that has waited in vain.
    fn unblocked(&self, executor: &Executor, how: Unblock) -> Reply {
        match how {
            Unblock::TimedOut => self.counted(executor, Reply::NilArray),
            Unblock::Failed => self.counted(executor, Reply::Error(UNBLOCKED)),
        }
    }

    /// Counts an answer that no unit has given.
    fn counted(&self, executor: &Executor, reply: Reply) -> Reply {
        let telemetry = &executor.server().telemetry;
        let outcome = match &reply {
            Reply::Error(e) => {
                telemetry.error(e.code());
                Outcome::Failed
            }
            _ => Outcome::Done,
        };
        let tracked = executor.server().config.get().latency_tracking;
        telemetry.command(self.call.row.index, Duration::ZERO, tracked, outcome);
        reply
    }

    async fn take(&mut self, executor: &Executor, client: &mut ClientState, is_late: bool) -> Option<Reply> {
        let found = self.found.lock().take();
        let invitation = match (self.ticket().invitation(), found) {
            (None, Some(Ok(found))) => Some(found),
            (None, Some(Err(e))) => return Some(self.counted(executor, Reply::Error(e.into_reply()))),
            (None, None) if self.ticket().has_looked() => return None,
            (None, None) if !is_late && self.is_behind(executor).await => return None,
            (invitation, _) => invitation,
        };
        let is_first = !std::mem::replace(&mut self.has_run, true);
        if is_first && let Err(e) = self.resolve(executor.server()).await {
            return Some(self.counted(executor, Reply::Error(e.into_reply())));
        }
        self.ticket().looks();
        let reply = {
            let mut run = pin!(self.run(executor, client, is_first));
            match poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await {
                Poll::Ready(reply) => reply,
                Poll::Pending => {
                    // The call is queued: what the next ones do comes behind it.
                    let invitation = invitation.filter(|_| self.takes_one());
                    invitation.into_iter().for_each(|invitation| self.ticket().invite(invitation));
                    run.await
                }
            }
        };
        if !matches!(reply, Reply::Nil | Reply::NilArray) {
            return Some(reply);
        }
        if self.has_too_many {
            return Some(self.counted(executor, Reply::Error(TOO_MANY)));
        }
        // The store does not watch its keys yet.
        self.ticket().call();
        None
    }

    /// From now on, the call asks for what comes behind the ends that its streams have now.
    async fn resolve(&mut self, server: &Server) -> Result<()> {
        if self.ticket().wanted().kind == Some(Kind::Stream) {
            Box::pin(goal::resolve(server, self.ticket().wanted().db, &mut self.call)).await?;
            self.looker.aim(Goal::of(&self.call, Some(Kind::Stream)));
        }
        Ok(())
    }

    /// Boxed, so that no connection's task reserves space for it.
    async fn is_behind(&self, executor: &Executor) -> bool {
        Box::pin(self.looker.is_behind(executor.server())).await
    }

    /// Whether it takes at most one element. A call that takes many may take them all, and may turn out to be work for
    /// outside of its lane, where those that were invited would overtake it.
    fn takes_one(&self) -> bool {
        self.call.row.waits == Waits::Last || Count::Option.of(&self.call.argv).is_none()
    }

    async fn run(&self, executor: &Executor, client: &mut ClientState, is_first: bool) -> Reply {
        let calls = vec![self.call.clone()];
        let unit =
            Unit { calls, client: Box::new(client.clone()), watches: Vec::new(), exec: false, id: None };
        let Done { client: after, replies, .. } = executor.run_waiting(unit, is_first).await;
        *client = *after;
        replies.and_then(|mut replies| replies.pop()).unwrap_or(Reply::NilArray)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Not only once the task that looks has ended.
        self.ticket().leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::{World, call, unit};
    use crate::server::waiters::PAUSE;

    /// A client whose look finds what its call does not get rests, as one does whose watches end at once.
    #[tokio::test]
    async fn who_looks_in_vain_rests() {
        let w = World::new().await;
        let mut client = ClientState::new(Default::default(), true);
        for line in ["xgroup create k g $ mkstream", "xgroup create k other $", "xadd k 1-1 a b"] {
            w.exec.run(unit(&[line])).await;
        }
        w.exec.run(unit(&["xreadgroup group g c streams k >"])).await;
        let line = call("xreadgroup group g c block 0 streams k >");
        let mut wait = Wait::new(&w.server, &client, line, None);
        assert_eq!(wait.go_on(&w.exec, &mut client, false).await, None);
        let wrong = call("xreadgroup group other c block 0 streams k >");
        wait.looker.aim(Goal::of(&wrong, Some(Kind::Stream)));
        let began = std::time::Instant::now();
        for _ in 0..40 {
            wait.called(&w.server, || None).await;
            assert_eq!(wait.go_on(&w.exec, &mut client, false).await, None);
        }
        // The first of them do not rest.
        let took = began.elapsed();
        assert!(took >= 20 * PAUSE, "{took:?}");
    }
}
