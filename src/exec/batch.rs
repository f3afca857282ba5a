//! One transaction and the units that run in it.

use super::staging::Prepared;
use super::{Call, Done, Forced, Job, Unit, Watched};
use crate::commands::args::Args;
use crate::commands::binding::Run;
use crate::commands::cx::Cx;
use crate::commands::registry::run_of;
use crate::env::Rng;
use crate::error::{Error, ReplyError, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::brake;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::keys::{Prefix, ReceiptName, root};
use crate::keyspace::life::Lives;
use crate::keyspace::messages::{Message, Outbox};
use crate::server::reply::Reply;
use crate::server::{AfterReply, ClientState, Server};
use crate::spec::{Flags, keys_of};
use crate::store::{Read, Tx};
use crate::telemetry::counters::{LookupTally, Lookups};
use crate::types::memo::Memo;
use crate::types::staged::Staged;
use crate::types::{set, watched};
use bytes::Bytes;
use futures_util::future::{FutureExt, join_all};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of replies after which a pipeline's unit ends: they are held until it has committed. Without this bound a client that
/// asks for one large value a hundred times makes the server hold a hundred of them.
const MAX_HELD: usize = 1 << 20;
/// How long a unit may hold its lane, where others wait.
const LONG: Duration = Duration::from_millis(50);
/// Calls of one EXEC that are refused alone, at most.
const MOST_REFUSED: usize = 16;

/// Why a transaction is given up.
#[derive(Debug, Clone)]
pub(super) enum Halt {
    /// The store said so.
    Store(StoreError),
    /// A call failed in the store after it may have written: its answer is fixed now, run the others again.
    Rerun,
    /// A call is too heavy for the lane: its unit runs elsewhere.
    TooHeavy,
    /// This server's rows were cleared by others: whether an attempt was applied cannot be known any more.
    Forgotten,
}

impl From<StoreError> for Halt {
    fn from(e: StoreError) -> Self {
        Halt::Store(e)
    }
}

/// The answer of a handler that panicked. The panic hook has logged it.
const PANICKED: ReplyError = ReplyError::new("ERR internal error: the command failed, see the server's log");

/// One transaction.
pub(super) struct Batch<'a> {
    pub(super) server: &'a Server,
    pub(super) tx: &'a Tx,
    catalog: Arc<Catalog>,
    pub(super) lives: Lives,
    rng: Rng,
    lookups: LookupTally,
    memo: Memo,
    outbox: Outbox,
    /// False while a unit runs whose answers are kept under its id.
    may_stream: bool,
    /// The last call has only read, whatever its row says.
    only_read: bool,
    /// Whether a call that turns out to be heavy is moved to where nobody queues behind it.
    pub(super) in_lane: bool,
}

impl<'a> Batch<'a> {
    /// On a transaction that has just begun, after the timeline said `now`.
    pub(super) async fn new(server: &'a Server, tx: &'a Tx, now: u64, rng: Rng) -> Result<Self, Halt> {
        let catalog = server.space.catalog.load(tx).await.map_err(halt)?;
        let sure = server.env.timeline.now();
        let lives = Lives::new(now, sure);
        tx.runs_at(now, sure);
        Ok(Batch { lives, ..Batch::with(server, tx, rng, catalog) })
    }

    /// With a catalog that the transaction has not read: for what is about the server, while the store is away.
    pub(super) fn with(server: &'a Server, tx: &'a Tx, rng: Rng, catalog: Arc<Catalog>) -> Self {
        let outbox = server.outbox(&catalog);
        Batch {
            server,
            tx,
            catalog,
            lives: Lives::new(server.env.timeline.now(), 0),
            rng,
            lookups: LookupTally::default(),
            memo: Memo::default(),
            outbox,
            may_stream: true,
            only_read: false,
            in_lane: false,
        }
    }

    /// Another one on the same transaction, for units that run beside each other.
    pub(super) fn sibling(&self, rng: Rng) -> Self {
        let (catalog, lookups, memo) = (self.catalog.clone(), LookupTally::default(), Memo::default());
        let outbox = self.server.outbox(&catalog);
        Batch {
            server: self.server,
            tx: self.tx,
            catalog,
            lives: self.lives.again(),
            rng,
            lookups,
            memo,
            outbox,
            may_stream: true,
            only_read: false,
            in_lane: false,
        }
    }

    /// Reads what the handlers are going to ask for, all at once, so that they are answered from the transaction: the
    /// records of all keys, the receipts of all ids, and how the named members stand to their sets. What that costs in
    /// round trips does not depend on the number of units. Failures come back when a handler reads.
    pub(super) async fn prefetch(&self, units: impl Iterator<Item = &Unit>) {
        let mut rows = BTreeSet::new();
        let mut sets: BTreeMap<(u8, &Bytes), Vec<&[Bytes]>> = BTreeMap::new();
        for unit in units {
            let Some(db) = self.catalog.prefix(unit.client.db) else { continue };
            rows.extend(self.receipts(unit).await);
            for call in &unit.calls {
                let keys = keys_of(call.row, &call.argv).unwrap_or_default();
                let members = call.row.members(&call.argv);
                if let Some(key) = keys.first().filter(|_| !members.is_empty()) {
                    sets.entry((unit.client.db, *key)).or_default().push(members);
                }
                rows.extend(keys.into_iter().map(|k| db.record(k)));
            }
        }
        if rows.len() > 1 || !sets.is_empty() {
            join_all(rows.iter().map(|row| self.tx.get(row, Read::Snapshot))).await;
            join_all(sets.iter().map(|((db, key), members)| self.prefetch_set(*db, key, members))).await;
        }
    }

    /// The rows that are asked for because of a unit's ids.
    async fn receipts(&self, unit: &Unit) -> Vec<Vec<u8>> {
        let mut ids = unit.ids().peekable();
        if ids.peek().is_none() {
            return Vec::new();
        }
        let Ok(secret) = self.server.space.secret().await else { return Vec::new() };
        let owner = secret.owner(&unit.client.user);
        let sizes = [root::receipts_size(owner), root::all_receipts_size().to_vec()];
        ids.map(|id| root::receipt(ReceiptName { owner: Some(owner), id })).chain(sizes).collect()
    }

    async fn prefetch_set(&self, db: u8, key: &Bytes, calls: &[&[Bytes]]) {
        if let Some(scope) = self.scope(db) {
            let _ = set::prefetch(&scope, key, calls).await;
        }
    }

    fn scope(&self, number: u8) -> Option<Scope<'_>> {
        Some(self.scope_at(self.catalog.prefix(number)?, number))
    }

    fn scope_at(&self, db: Prefix, number: u8) -> Scope<'_> {
        let (tx, now, round, space) = (self.tx, self.lives.now, self.catalog.round, &self.server.space);
        Scope { tx, db, number, now, round, space, outbox: None, life: self.lives.life() }
    }

    /// Runs a job's unit on a copy of its client. `staged`: see [`super::staging`].
    pub(super) async fn job(&mut self, job: &mut Job, staged: &Prepared) -> Result<Done, Halt> {
        let (done, made) = brake::counting(self.run(job, staged)).await;
        Ok(Done { made, ..done? })
    }

    async fn run(&mut self, job: &mut Job, staged: &Prepared) -> Result<Done, Halt> {
        if let Some(id) = &job.unit.id {
            return self.exec_once(id, &job.unit, &mut job.forced, staged).await;
        }
        let mut client = job.unit.client.clone();
        let replies = self.unit(&job.unit, &mut client, &mut job.forced, staged).await?;
        Ok(Done::new(client, replies, self.take_lookups()))
    }

    /// The lookups of the units that ran since the last call.
    pub(super) fn take_lookups(&mut self) -> Lookups {
        self.lookups.take()
    }

    /// How many messages the units tell so far.
    pub(super) fn told(&self) -> usize {
        self.outbox.len()
    }

    /// What the units tell that ran since the last call.
    pub(super) fn take_messages(&mut self) -> Vec<Message> {
        self.outbox.take()
    }

    /// Runs a unit. `forced` holds the answers of calls that must not run (again). A pipeline's unit ends early where its
    /// replies are many bytes ([`MAX_HELD`]), where it holds its lane for [`LONG`], before a call that is too heavy for the lane, and behind one:
    /// then there are fewer replies than calls. It does not end before a call that has acted on the server in an earlier attempt.
    pub(super) async fn unit(
        &mut self,
        unit: &Unit,
        client: &mut ClientState,
        forced: &mut Forced,
        staged: &Prepared,
    ) -> Result<Option<Vec<Reply>>, Halt> {
        if !self.unchanged(&unit.watches).await? {
            return Ok(None);
        }
        client.in_exec = unit.exec;
        self.may_stream = unit.id.is_none();
        let (mut held, began) = (Held::new(unit, self.server), self.server.env.clock.monotonic());
        for (n, call) in unit.calls.iter().enumerate() {
            // Only a lane gives a call back.
            let before =
                if self.in_lane { (self.lookups.seen(), self.outbox.len()) } else { Default::default() };
            let reply = match forced.call(n, client) {
                Some(reply) => reply,
                None => match self.call_once(call, client, staged.get(n).map_or(&[], Vec::as_slice)).await {
                    Some(Ok(reply)) => {
                        if acts_on_the_server(call) && !self.only_read && unit.calls.len() > 1 {
                            forced.acted.push((n, reply.clone(), client.clone()));
                        }
                        reply
                    }
                    Some(Err(Error::Reply(e))) => Reply::Error(e),
                    // It and what follows come back as a unit of their own: what it has looked up is counted and told there.
                    Some(Err(Error::TooHeavy)) if n > 0 && !unit.exec && forced.may_end_before(n) => {
                        self.lookups.back_to(before.0);
                        self.outbox.back_to(before.1);
                        break;
                    }
                    Some(Err(Error::TooHeavy)) => return Err(Halt::TooHeavy),
                    Some(Err(Error::Store(e))) if ends_attempt(&e) => return Err(e.into()),
                    Some(Err(Error::Store(e @ StoreError::TooLarge))) if fails_all(unit, call, forced) => {
                        return Err(e.into());
                    }
                    // An EXEC whose answer cannot be kept under its id does nothing.
                    Some(Err(Error::Store(e @ StoreError::ReplyTooLarge(_)))) if unit.id.is_some() => {
                        forced.unit = Some(Error::from(e).into_reply());
                        return Err(Halt::Rerun);
                    }
                    // What it wrote must not be committed: the others run again without it.
                    failed => {
                        let error = failed.and_then(Result::err).map_or(PANICKED, Error::into_reply);
                        forced.calls.push((n, Reply::Error(error)));
                        return Err(Halt::Rerun);
                    }
                },
            };
            held.push(reply);
            let is_long = self.in_lane && self.server.env.clock.monotonic() - began > LONG;
            if is_long && unit.exec && n + 1 < unit.calls.len() {
                return Err(Halt::TooHeavy);
            }
            let is_enough = held.bytes > MAX_HELD || forced.is_heavy || is_long;
            if is_enough && !unit.exec && forced.may_end_before(n + 1) {
                break;
            }
        }
        client.in_exec = false;
        if held.is_too_much() {
            client.after_reply = AfterReply::Excess(held.bytes);
        }
        Ok(Some(held.replies))
    }

    /// Runs a call, whatever its id. None where the handler panicked.
    pub(super) async fn call(
        &mut self,
        call: &Call,
        client: &mut ClientState,
        staged: &[Staged],
    ) -> Option<Result<Reply, Error>> {
        let Run::Handler(run) = run_of(call.row) else {
            return Some(Err(ReplyError::new("ERR this command cannot run here").into()));
        };
        let mut cx = Cx {
            tx: self.tx,
            catalog: self.catalog.clone(),
            client,
            server: self.server,
            lives: &self.lives,
            now: self.lives.now,
            rng: &mut self.rng,
            staged,
            may_stream: self.may_stream && call.id.is_none(),
            only_read: false,
            in_lane: self.in_lane,
            lookups: &self.lookups,
            memo: &self.memo,
            outbox: &self.outbox,
        };
        self.outbox.speaks(cx.client.id);
        let args = Args::behind(call.names, &call.argv);
        let result = AssertUnwindSafe(run(&mut cx, args)).catch_unwind().await;
        (self.catalog, self.only_read) = (cx.catalog, cx.only_read);
        if result.is_err() {
            self.server.telemetry.on_panic();
        }
        result.ok()
    }

    async fn unchanged(&self, watches: &[Watched]) -> Result<bool, Halt> {
        for w in watches {
            if w.generation != self.tx.generation().await? {
                return Ok(false);
            }
            let Some(place) = self.catalog.place(w.db) else { return Ok(false) };
            let scope = self.scope_at(place.prefix, w.db);
            if !watched::is_as(&scope, place.swaps, &w.key, w.seen).await.map_err(halt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Replies that wait for the end of a unit.
struct Held {
    replies: Vec<Reply>,
    /// What they weigh, dropped ones too.
    bytes: usize,
    /// For an EXEC the hard `client-output-buffer-limit`.
    most: usize,
}

impl Held {
    fn new(unit: &Unit, server: &Server) -> Self {
        let hard = server.config.get().client_output_buffer_limit.normal.hard;
        // What is kept under an id has to fit the transaction.
        let bounded = unit.exec && unit.id.is_none() && hard > 0;
        let most = if bounded { hard } else { usize::MAX };
        Held { replies: Vec::with_capacity(unit.calls.len()), bytes: 0, most }
    }

    fn is_too_much(&self) -> bool {
        self.bytes > self.most
    }

    /// Beyond the limit the connection is going to be closed: the commands run on, as in Redis, and nobody hears of them.
    fn push(&mut self, reply: Reply) {
        let before = self.is_too_much();
        self.bytes += reply.weight();
        if self.is_too_much() && !before {
            self.replies.fill(Reply::None);
        }
        self.replies.push(if self.is_too_much() { Reply::None } else { reply });
    }
}

/// Whether a call may change what is no part of the store: clients, options, logs.
fn acts_on_the_server(call: &Call) -> bool {
    call.row.flags.has(Flags::ADMIN) && !call.row.is_write()
}

/// Whether this attempt fails because `call` exceeds what is left of its transaction: where what it makes can still be built, and an
/// EXEC. There a call that no transaction may hold is refused alone, where there are few of them: each costs another run of all.
fn fails_all(unit: &Unit, call: &Call, forced: &Forced) -> bool {
    let can_be_built = call.can_be_built();
    let alone = can_be_built && forced.calls.len() < MOST_REFUSED;
    forced.may_build && (can_be_built || unit.exec) || unit.exec && !alone
}

/// Whether an error is about the transaction rather than about one command.
pub(super) fn ends_attempt(e: &StoreError) -> bool {
    e.is_retryable()
        || matches!(e, StoreError::Unknown | StoreError::ReadOnly(_) | StoreError::Unavailable(_))
}

fn halt(e: Error) -> Halt {
    match e {
        Error::Store(e) => Halt::Store(e),
        Error::Reply(e) => Halt::Store(StoreError::Corrupt(e.0.into_owned())),
        Error::TooHeavy => Halt::TooHeavy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::unit;

    fn held(most: usize) -> Held {
        Held { replies: Vec::new(), bytes: 0, most }
    }

    #[test]
    fn replies_beyond_the_limit_are_dropped_and_counted() {
        let reply = || Reply::Bulk(Bytes::from(vec![b'x'; 1000]));
        let one = reply().weight();
        let mut held = held(2 * one);
        (0..2).for_each(|_| held.push(reply()));
        assert!(!held.is_too_much() && held.replies == [reply(), reply()]);
        (0..2).for_each(|_| held.push(reply()));
        assert!(held.is_too_much() && held.bytes == 4 * one);
        assert_eq!(held.replies, [const { Reply::None }; 4]);
    }

    #[test]
    fn what_is_too_large_fails_its_call_alone_where_that_can_help() {
        let mut forced = Forced::default();
        let fails = |unit: &Unit, n: usize, forced: &Forced| fails_all(unit, &unit.calls[n], forced);
        let pipeline = unit(&["SET k v", "SUNIONSTORE d a b"]);
        let exec = Unit { exec: true, ..unit(&["SET k v", "SUNIONSTORE d a b"]) };
        assert_eq!([0, 1].map(|n| fails(&pipeline, n, &forced)), [false, false]);
        assert_eq!([0, 1].map(|n| fails(&exec, n, &forced)), [true, false]);
        forced.may_build = true;
        assert_eq!([0, 1].map(|n| fails(&pipeline, n, &forced)), [false, true], "it is built first");
        assert_eq!([0, 1].map(|n| fails(&exec, n, &forced)), [true, true]);
        forced = Forced { calls: vec![(0, Reply::Nil); MOST_REFUSED], ..Forced::default() };
        assert!(fails(&exec, 1, &forced), "too many have failed alone");
        assert!(!fails(&pipeline, 1, &forced));
    }

    #[test]
    fn what_acts_on_the_server() {
        let acts = |line| acts_on_the_server(&unit(&[line]).calls[0]);
        for line in
            ["CLIENT KILL ID 3", "CONFIG SET timeout 1", "SLOWLOG RESET", "LATENCY RESET", "ACL DELUSER u"]
        {
            assert!(acts(line), "{line}");
        }
        for line in ["SET k v", "BITCOUNT k", "PUBLISH c m", "FLUSHALL", "CLIENT ID"] {
            assert!(!acts(line), "{line}");
        }
    }

    #[test]
    fn members_are_those_behind_the_key() {
        let of = |line| {
            let call = unit(&[line]).calls.remove(0);
            call.row.members(&call.argv).len()
        };
        assert_eq!(["SADD s a b", "SREM s a", "SISMEMBER s a", "SMISMEMBER s a b"].map(of), [2, 1, 1, 2]);
        assert_eq!(["SMOVE s t a", "GET s", "SPOP s"].map(of), [0; 3]);
    }
}
