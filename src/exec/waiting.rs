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
//! two watches a key, kind and server, whoever waits.
//!
//! Who takes one of several elements invites those behind it, once its own call is queued: they run theirs at once, in the
//! same order, and share its commit.
//!
//! First come, first served, among the clients of one server that wait for a key. A push is answered before who waits has
//! run its call, so a client that does not wait may be faster. So may one that begins to wait while the push commits,
//! one whose time ends, and one that has waited for other keys as well, and whose turn it is there. Servers of a
//! cluster look at the same time.

use super::unit::Unit;
use super::{Done, Executor};
use crate::dispatch::Call;
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Prefix, root};
use crate::server::reply::Reply;
use crate::server::waiters::{AT_ONCE, Invitation, Open, PAUSE, Ticket, Unblock, Wanted};
use crate::server::{ClientState, Server};
use crate::spec::{Count, Group, Row, Waits, waited_keys};
use crate::store::{Read, Tx, Watch};
use crate::telemetry::Outcome;
use crate::types::Kind;
use crate::types::object::{self, Slot};
use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::task::yield_now;

/// Watches that end at once so many times in a row do not watch.
const MANY: u32 = 16;

const UNBLOCKED: ReplyError = ReplyError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");

/// Keys that one transaction looks at.
const PIECE: usize = 128;

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
    ticket: Ticket,
    /// By the monotonic clock. None: it waits for ever.
    deadline: Option<Duration>,
    /// Whether it has been called and has not looked since.
    is_called: AtomicBool,
    /// What it has found since it was called, for the call to take.
    found: Mutex<Option<Result<Invitation>>>,
    /// Whether the call has run: then it may end without running once more.
    has_run: bool,
    /// Whether it names more keys than a call waits for: it looks once.
    has_too_many: bool,
    looks: Mutex<Looks>,
}

/// When the store began to watch the keys, and how often that ended at once, in vain.
#[derive(Debug, Default)]
struct Looks {
    watched_at: Duration,
    in_vain: u32,
}

impl Wait {
    /// A client that has sent a call which waits for at most `timeout` (None: for ever).
    pub fn new(server: &Server, client: &ClientState, call: Call, timeout: Option<Duration>) -> Self {
        let mut keys = waited_keys(call.row, &call.argv);
        let has_too_many = keys.len() > MOST_KEYS;
        if has_too_many {
            keys.clear();
        }
        let wanted = Wanted { db: client.db, kind: kind_of(call.row) };
        let ticket = server.waiters.enter(client.id, wanted, &keys);
        let deadline = timeout.map(|timeout| server.env.clock.monotonic().saturating_add(timeout));
        let (is_called, found, has_run, looks) = Default::default();
        Wait { call, ticket, deadline, is_called, found, has_run, has_too_many, looks }
    }

    /// The call.
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// The places in the queues.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Whether its time is over, or CLIENT UNBLOCK has ended it.
    fn is_over(&self, server: &Server) -> bool {
        let is_late = self.deadline.is_some_and(|at| server.env.clock.monotonic() >= at);
        is_late || self.ticket.is_unblocked()
    }

    /// Whether [`Wait::go_on`] may run the call.
    pub(crate) fn may_run(&self, server: &Server) -> bool {
        !(self.ticket.is_unblocked() || self.has_run && self.is_over(server))
    }

    /// Returns once [`Wait::go_on`] may have an answer. `held`: how long the call may not run (a pause). Cancel safe: so
    /// whoever waits for it can be told meanwhile that the client has left, and takes nothing for it.
    pub async fn called(&self, server: &Server, held: impl Fn() -> Option<Duration>) {
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
            let rang = match left {
                None => {
                    self.ticket.called().await;
                    true
                }
                Some(left) => tokio::time::timeout(left, self.ticket.called()).await.is_ok(),
            };
            if rang {
                self.is_called.store(true, Ordering::Relaxed);
            }
            if self.is_over(server) {
                return;
            }
        }
    }

    /// Looks, once it was called. Whether [`Wait::go_on`] has something to do.
    async fn has_something(&self, server: &Server, left: Option<Duration>) -> bool {
        if !self.ticket.has_looked() || self.ticket.is_invited() {
            return true;
        }
        let mut rang = false;
        let mut found = pin!(self.find_in_turn(server));
        let mut late = pin!(async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => pending().await,
            }
        });
        let found = loop {
            tokio::select! {
                biased;
                found = &mut found => break found.transpose(),
                () = &mut late => break None,
                () = self.ticket.called() => {
                    if self.is_over(server) || self.ticket.is_invited() {
                        break None;
                    }
                    rang = true;
                }
            }
        };
        let has_found = found.is_some();
        *self.found.lock() = found;
        if has_found || self.is_over(server) || self.ticket.is_invited() {
            return true;
        }
        self.is_called.store(rang, Ordering::Relaxed);
        false
    }

    /// As [`Wait::find_patiently`]. Those with many open keys look one after another, while others run.
    async fn find_in_turn(&self, server: &Server) -> Result<Option<Invitation>> {
        let many = self.ticket.opened() > PIECE;
        let _turn = if many { Some(server.waiters.turn_for_many().await) } else { None };
        self.find_patiently(server).await
    }

    /// The answer, if there is one by now. None: wait on. `is_held`: the call may not run (a pause). Not cancel safe:
    /// what was taken would be lost.
    pub async fn go_on(
        &mut self,
        executor: &Executor,
        client: &mut ClientState,
        is_held: bool,
    ) -> Option<Reply> {
        self.is_called.store(false, Ordering::Relaxed);
        if let Some(how) = self.ticket.wake() {
            return Some(self.unblocked(executor, how));
        }
        let is_late = self.is_over(executor.server());
        if is_late && (self.has_run || is_held) {
            return Some(self.unblocked(executor, Unblock::TimedOut));
        }
        if let Some(answer) = self.look(executor, client, is_late).await {
            return Some(answer);
        }
        if is_late {
            return Some(self.unblocked(executor, Unblock::TimedOut));
        }
        self.ticket.sleep();
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

    async fn look(&mut self, executor: &Executor, client: &mut ClientState, is_late: bool) -> Option<Reply> {
        let found = self.found.lock().take();
        let invitation = match (self.ticket.invitation(), found) {
            (None, Some(Ok(found))) => Some(found),
            (None, Some(Err(e))) => return Some(self.counted(executor, Reply::Error(e.into_reply()))),
            (None, None) if self.ticket.has_looked() => return None,
            (None, None) if !is_late && self.is_behind(executor.server()).await => return None,
            (invitation, _) => invitation,
        };
        let is_first = !std::mem::replace(&mut self.has_run, true);
        self.ticket.looks();
        let reply = {
            let mut run = pin!(self.run(executor, client, is_first));
            match poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await {
                Poll::Ready(reply) => reply,
                Poll::Pending => {
                    // The call is queued: what the next ones do comes behind it.
                    let invitation = invitation.filter(|_| self.takes_one());
                    invitation.into_iter().for_each(|invitation| self.ticket.invite(invitation));
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
        self.ticket.call();
        None
    }

    /// Whether it takes at most one element. A call that takes many may take them all, and may turn out to be work for
    /// outside of its lane, where those that were invited would overtake it.
    fn takes_one(&self) -> bool {
        self.call.row.waits == Waits::Last || Count::Option.of(&self.call.argv).is_none()
    }

    async fn run(&self, executor: &Executor, client: &mut ClientState, is_first: bool) -> Reply {
        let calls = vec![self.call.clone()];
        let unit = Unit { calls, client: client.clone(), watches: Vec::new(), exec: false, id: None };
        let Done { client: after, replies, .. } = executor.run_waiting(unit, is_first).await;
        *client = after;
        replies.and_then(|mut replies| replies.pop()).unwrap_or(Reply::NilArray)
    }

    /// As [`Wait::find`]. Asks a store that does not answer again, as long as for a command. Rests if watches end at
    /// once, again and again: a store that refuses writes, or that has too many, ends them.
    async fn find_patiently(&self, server: &Server) -> Result<Option<Invitation>> {
        let clock = &server.env.clock;
        let began = clock.monotonic();
        let rests = {
            let looks = &mut *self.looks.lock();
            let is_vain = began.saturating_sub(looks.watched_at) < AT_ONCE;
            looks.in_vain = if is_vain { looks.in_vain + 1 } else { 0 };
            looks.in_vain > MANY
        };
        if rests {
            tokio::time::sleep(PAUSE).await;
        }
        loop {
            let found = self.find(server).await;
            self.looks.lock().watched_at = clock.monotonic();
            match found {
                Ok(Some(_)) => self.looks.lock().in_vain = 0,
                Err(Error::Store(e))
                    if (e.is_retryable() || e.is_away())
                        && clock.monotonic() < began + server.config.get().store_timeout() =>
                {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok(None) | Err(_) => {}
            }
            return found;
        }
    }

    async fn prefix(&self, server: &Server, tx: &Tx) -> Result<Prefix> {
        let place = server.space.catalog.load(tx).await?.place(self.ticket.wanted().db);
        let gone = || StoreError::Unavailable("the database catalog has not been read yet".into());
        Ok(place.ok_or_else(gone)?.prefix)
    }

    async fn slots(&self, s: &Scope<'_>, keys: impl Iterator<Item = &Bytes>) -> Result<Vec<Slot>> {
        try_join_all(keys.map(|key| object::open(s, key, Read::Snapshot))).await
    }

    /// The first of the keys that has something, and how many elements.
    async fn seen<'a>(&self, s: &Scope<'_>, slots: &'a [Slot]) -> Result<Option<(&'a Bytes, u64)>> {
        for slot in slots {
            let value = slot.record().map(|record| &record.value);
            if let Some(value) = value.filter(|value| Some(value.kind()) == self.ticket.wanted().kind) {
                return Ok(Some((&slot.key, value.len(s, Read::Snapshot).await?)));
            }
        }
        Ok(None)
    }

    /// Whether those before it have yet to look. They may not even have heard yet that a key has something: watches
    /// of a cluster take a while. Then they hear it from this client.
    async fn is_behind(&self, server: &Server) -> bool {
        if self.ticket.is_behind() {
            return true;
        }
        let keys = self.ticket.keys_of_others();
        if keys.is_empty() {
            return false;
        }
        let seen = async {
            for keys in keys.chunks(PIECE) {
                let tx = server.store.begin();
                let s = server.space.scope(&tx, self.prefix(server, &tx).await?);
                let slots = self.slots(&s, keys.iter()).await?;
                if let Some((key, _)) = self.seen(&s, &slots).await? {
                    return Ok(Some(key.clone()));
                }
                yield_now().await;
            }
            Result::Ok(None)
        };
        match seen.await {
            Ok(Some(key)) => self.ticket.open(&key),
            // They may have heard meanwhile.
            Ok(None) => {}
            // A store that does not answer says so to the call itself.
            Err(_) => return false,
        }
        self.ticket.is_behind()
    }

    /// Looks at the keys for which this client is responsible. None: none of them has anything, and the store watches
    /// them.
    async fn find(&self, server: &Server) -> Result<Option<Invitation>> {
        let mut keys = self.ticket.open_keys().into_iter();
        loop {
            let piece: Vec<Open> = keys.by_ref().take(PIECE).collect();
            if piece.is_empty() {
                return Ok(None);
            }
            if let Some(found) = self.find_among(server, piece).await? {
                return Ok(Some(found));
            }
            yield_now().await;
        }
    }

    async fn find_among(&self, server: &Server, keys: Vec<Open>) -> Result<Option<Invitation>> {
        let tx = server.store.begin();
        let prefix = self.prefix(server, &tx).await?;
        let s = server.space.scope(&tx, prefix);
        let slots = self.slots(&s, keys.iter().map(|open| &open.key)).await?;
        if let Some((key, elements)) = self.seen(&s, &slots).await? {
            return Ok(Some(Invitation::of(key.clone(), elements)));
        }
        let version = tx.read_version().await?;
        let place = match self.ticket.place_is_watched(version) {
            true => None,
            false => Some(tx.watch(&root::database(self.ticket.wanted().db))?),
        };
        let watch = |(open, slot): (Open, &Slot)| -> Result<_> {
            let mut watches = vec![tx.watch(&prefix.record(&open.key))?];
            let emptied = slot.stored().map(|record| &record.value).filter(|_| !slot.exists());
            let emptied = emptied.filter(|value| Some(value.kind()) == self.ticket.wanted().kind);
            if let Some(oid) = emptied.and_then(|value| value.counter()) {
                watches.push(tx.watch(&prefix.count(oid))?);
            }
            Ok((open, watches))
        };
        let watches: Vec<(Open, Vec<Watch>)> =
            keys.into_iter().zip(&slots).map(watch).collect::<Result<_>>()?;
        tx.commit().await?;
        if let Some(place) = place {
            self.ticket.watched_place(version, place, server.env.clock.clone());
        }
        for (open, watches) in watches {
            self.ticket.watched(open, watches);
        }
        Ok(None)
    }
}
