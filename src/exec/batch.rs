//! One transaction and the units that run in it.

use super::Watched;
use super::prebuild::Prebuilds;
use super::tracked;
use super::unit::{Done, Forced, Job, Unit, runs_script};
use crate::commands::binding::{Named, Run};
use crate::commands::registry::run_of;
use crate::commands::{stream as streams, zset as zsets};
use crate::dispatch::Call;
use crate::dispatch::{Noted, PANICKED, Runner};
use crate::env::Rng;
use crate::error::{Error, StoreError};
use crate::keyspace::catalog::Catalog;
use crate::keyspace::cluster::messages::Message;
use crate::keyspace::dictionary::backpressure;
use crate::keyspace::keys::scripts::{LibraryRow, ScriptRow};
use crate::keyspace::keys::{IdempotencyName, root};
use crate::keyspace::uncounted::Uncounted;
use crate::lifecycle::watched;
use crate::server::reply::Reply;
use crate::server::{AfterReply, ClientState, Server};
use crate::spec::{Flags, keys_of};
use crate::store::{Read, Tx};
use crate::telemetry::counters::Lookups;
use crate::types::zset::{self, Ahead};
use crate::types::{hash, set, stream};
use bytes::Bytes;
use futures_util::future::{join_all, join4};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of replies after which a pipeline's unit ends. Replies are held until their unit has committed:
/// without this bound, a client that asks for one large value a hundred times would make the server hold a
/// hundred copies.
const MAX_HELD: usize = 1 << 20;
/// Bytes that a transaction may write before nothing more joins it.
const MAX_BYTES: usize = 1 << 20;
/// How long a unit may hold its lane while others wait, but for the calls between two looks at the clock.
const LONG: Duration = Duration::from_millis(50);
/// The clock is looked at behind every fourth call: a look takes a hundredth of the time of a SET.
const LOOKS: usize = 4;
/// Rows that a prefetch asks for at once: more than the usual batch names. Asking does not yield, and sixty
/// thousand requests at once held other clients for a second in a debug build.
const ASKED_AT_ONCE: usize = 2048;
/// The most calls of one EXEC that are refused on their own.
const MOST_REFUSED: usize = 16;

/// Why a transaction is abandoned.
#[derive(Debug, Clone)]
pub(super) enum Halt {
    /// The store failed with this error.
    Store(StoreError),
    /// A call failed in the store after it may have written: its reply is now fixed; run the others again.
    Rerun,
    /// A call is too heavy for the lane: its unit must run elsewhere.
    TooHeavy,
    /// Counts of sorted sets could not move together: each call has to move its own, and the one that fails gets the error.
    Uncounted,
    /// Other servers cleared this server's rows, so the outcome of an open attempt can no longer be known.
    Forgotten,
}

impl From<StoreError> for Halt {
    fn from(e: StoreError) -> Self {
        Halt::Store(e)
    }
}

/// One transaction and what has run in it.
pub(super) struct Batch<'a> {
    pub(super) runner: Runner<'a>,
}

impl<'a> Batch<'a> {
    /// Creates a batch on a new transaction that began after the timeline said `now`.
    pub(super) async fn new(server: &'a Server, tx: &'a Tx, now: u64, rng: Rng) -> Result<Self, Halt> {
        Ok(Batch { runner: Runner::new(server, tx, now, rng).await.map_err(halt)? })
    }

    /// Creates a batch with a catalog that the transaction has not read: for calls about the server while the
    /// store is unavailable.
    pub(super) fn with_catalog(server: &'a Server, tx: &'a Tx, rng: Rng, catalog: Arc<Catalog>) -> Self {
        Batch { runner: Runner::with_catalog(server, tx, rng, catalog) }
    }

    /// Creates another batch on the same transaction, for units that run concurrently.
    pub(super) fn sibling(&self, rng: Rng) -> Self {
        Batch { runner: self.runner.sibling(rng) }
    }

    /// Reads concurrently what the handlers are going to need, so that the transaction can serve it from its
    /// cache: the records of all keys, the idempotency records of all ids, the state of the named members and fields
    /// in their sets, hashes and sorted sets, and what calls about groups read of streams. The number of round trips
    /// does not depend on the number of units, unless they name very many keys. Failures surface when a handler reads.
    pub(super) async fn prefetch(&self, units: impl Iterator<Item = &Unit>) {
        let mut rows = BTreeSet::new();
        let mut sets: BTreeMap<(u8, &Bytes), Vec<&[Bytes]>> = BTreeMap::new();
        let mut hashes: BTreeMap<(u8, &Bytes), Vec<&Bytes>> = BTreeMap::new();
        let mut ranks: BTreeMap<(u8, &Bytes), Vec<(&Bytes, Ahead)>> = BTreeMap::new();
        let mut groups: BTreeMap<(u8, &Bytes), Vec<stream::Ahead<'_>>> = BTreeMap::new();
        for unit in units {
            let Some(db) = self.runner.catalog.prefix(unit.client.db) else { continue };
            rows.extend(self.records(unit).await);
            for call in &unit.calls {
                let keys = keys_of(call.row, &call.argv).unwrap_or_default();
                let members = call.row.members(&call.argv);
                if let Some(key) = keys.first().filter(|_| !members.is_empty()) {
                    sets.entry((unit.client.db, *key)).or_default().push(members);
                }
                let mut fields = call.row.fields.of(&call.argv).peekable();
                if let Some(key) = keys.first().filter(|_| fields.peek().is_some()) {
                    hashes.entry((unit.client.db, *key)).or_default().extend(fields);
                }
                let mut ranked = zsets::ahead(call.row, &call.argv).peekable();
                if let Some(key) = keys.first().filter(|_| ranked.peek().is_some()) {
                    ranks.entry((unit.client.db, *key)).or_default().extend(ranked);
                }
                for (key, asked) in streams::ahead(call.row, &call.argv) {
                    groups.entry((unit.client.db, key)).or_default().push(asked);
                }
                rows.extend(keys.into_iter().map(|k| db.record(k)));
                match run_of(call.row) {
                    Run::Script(op) if op.named == Named::Function => rows.insert(LibraryRow::Epoch.key()),
                    Run::Script(_) => rows.insert(ScriptRow::Epoch.key()),
                    _ => false,
                };
            }
        }
        let has_more = !(sets.is_empty() && hashes.is_empty() && ranks.is_empty() && groups.is_empty());
        if rows.len() > 1 || has_more {
            let rows: Vec<Vec<u8>> = rows.into_iter().collect();
            for some in rows.chunks(ASKED_AT_ONCE) {
                join_all(some.iter().map(|row| self.runner.tx.get(row, Read::Snapshot))).await;
            }
            let sets = join_all(sets.iter().map(|((db, key), members)| self.prefetch_set(*db, key, members)));
            let hashes = hashes.iter().map(|((db, key), fields)| self.prefetch_hash(*db, key, fields));
            let ranks = ranks.iter().map(|((db, key), asked)| self.prefetch_zset(*db, key, asked));
            let groups = groups.iter().map(|((db, key), asked)| self.prefetch_groups(*db, key, asked));
            join4(sets, join_all(hashes), join_all(ranks), join_all(groups)).await;
        }
    }

    /// The idempotency records of a unit's ids.
    async fn records(&self, unit: &Unit) -> Vec<Vec<u8>> {
        let mut ids = unit.ids().peekable();
        if ids.peek().is_none() {
            return Vec::new();
        }
        let Ok(secret) = self.runner.server.space.secret().await else { return Vec::new() };
        let owner = secret.owner(&unit.client.user);
        let sizes = [root::idempotency_size(owner), root::all_idempotency_size().to_vec()];
        ids.map(|id| root::idempotency_record(IdempotencyName { owner: Some(owner), id }))
            .chain(sizes)
            .collect()
    }

    async fn prefetch_set(&self, db: u8, key: &Bytes, calls: &[&[Bytes]]) {
        if let Some(scope) = self.runner.scope(db) {
            let _ = set::prefetch(&scope, key, calls).await;
        }
    }

    async fn prefetch_hash(&self, db: u8, key: &Bytes, fields: &[&Bytes]) {
        if let Some(scope) = self.runner.scope(db) {
            let _ = hash::prefetch(&scope, key, fields).await;
        }
    }

    async fn prefetch_zset(&self, db: u8, key: &Bytes, asked: &[(&Bytes, Ahead)]) {
        if let Some(scope) = self.runner.scope(db) {
            let _ = zset::prefetch(&scope, key, asked).await;
        }
    }

    async fn prefetch_groups(&self, db: u8, key: &Bytes, asked: &[stream::Ahead<'_>]) {
        if let Some(scope) = self.runner.scope(db) {
            let _ = stream::prefetch(&scope, key, asked).await;
        }
    }

    /// Runs a job's unit on a copy of its client.
    pub(super) async fn run_job(&mut self, job: &mut Job, prebuilds: &Prebuilds) -> Result<Done, Halt> {
        let (done, made) = backpressure::counting(self.run_copy(job, prebuilds)).await;
        Ok(Done { made, ..done? })
    }

    async fn run_copy(&mut self, job: &mut Job, prebuilds: &Prebuilds) -> Result<Done, Halt> {
        if let Some(id) = &job.unit.id {
            return self.exec_once(id, &job.unit, &mut job.forced, prebuilds).await;
        }
        let mut client = job.unit.client.clone();
        let replies = self.run_unit(&job.unit, &mut client, &mut job.forced, prebuilds).await?;
        Ok(Done::new(client, replies, self.take_lookups()).noting(self.take_noted()))
    }

    /// Moves the counts of sorted sets that the units have changed.
    pub(super) async fn settle(&self) -> Result<(), Halt> {
        match self.runner.settle().await {
            Ok(()) => Ok(()),
            Err(Error::Store(e)) if ends_attempt(&e) => Err(e.into()),
            Err(_) => Err(Halt::Uncounted),
        }
    }

    /// Whether counts have moved together.
    pub(super) fn has_counted(&self) -> bool {
        self.runner.uncounted.as_ref().is_some_and(Uncounted::is_used)
    }

    /// Takes the lookups of the units that ran since the last call.
    pub(super) fn take_lookups(&mut self) -> Lookups {
        self.runner.lookups.take()
    }

    /// Takes what the scripts of the units that ran since the last call have called.
    pub(super) fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.runner.noted)
    }

    /// The number of messages that the units have queued so far.
    pub(super) fn published(&self) -> usize {
        self.runner.outbox.len()
    }

    /// Takes the messages of the units that ran since the last call.
    pub(super) fn take_messages(&mut self) -> Vec<Message> {
        self.runner.outbox.take()
    }

    /// Runs a unit. `forced` holds the replies of calls that must not run (again). A pipeline's unit ends
    /// early, with fewer replies than calls, if its replies exceed [`MAX_HELD`], if it has held its lane for
    /// [`LONG`], before a call that is too heavy for the lane, and after such a call or one that waited for other
    /// clients, whose writes this transaction may not see. It does not end before a call that acted on the server in an
    /// earlier attempt.
    pub(super) async fn run_unit(
        &mut self,
        unit: &Unit,
        client: &mut ClientState,
        forced: &mut Forced,
        prebuilds: &Prebuilds,
    ) -> Result<Option<Vec<Reply>>, Halt> {
        if !self.unchanged(&unit.watches).await? {
            return Ok(None);
        }
        client.in_exec = unit.exec;
        (self.runner.may_stream, self.runner.may_prebuild) = (unit.id.is_none(), forced.may_prebuild);
        let (server, in_lane) = (self.runner.server, self.runner.in_lane);
        let (mut held, began) = (Held::new(unit, server), in_lane.then(|| server.env.clock.monotonic()));
        for (n, call) in unit.calls.iter().enumerate() {
            // Only a lane hands a call back.
            let marks = || (self.runner.lookups.seen(), self.runner.outbox.len());
            let before = if in_lane { marks() } else { Default::default() };
            let reply = match forced.reply_of(n, client) {
                Some(reply) => self.without_running(call, reply),
                None => match self.call_once(call, client, prebuilds.get(n).map_or(&[], Vec::as_slice)).await
                {
                    Some(Ok(reply)) => {
                        if acts_on_the_server(call) && !self.runner.only_read && unit.calls.len() > 1 {
                            forced.acted.push((n, reply.clone(), client.clone()));
                        }
                        reply
                    }
                    Some(Err(Error::Reply(e))) => Reply::Error(e),
                    Some(Err(Error::TooHeavy)) if comes_back(unit, n, call, forced) => {
                        self.runner.lookups.back_to(before.0);
                        self.runner.outbox.back_to(before.1);
                        break;
                    }
                    Some(Err(Error::TooHeavy)) => return Err(Halt::TooHeavy),
                    Some(Err(Error::Store(e))) if self.ends(&e) => return Err(self.ended(e)),
                    Some(Err(Error::Store(e @ StoreError::TooLarge))) if fails_all(unit, call, forced) => {
                        return Err(e.into());
                    }
                    // An EXEC whose reply cannot be kept under its id does nothing.
                    Some(Err(Error::Store(e @ StoreError::ReplyTooLarge(_)))) if unit.id.is_some() => {
                        forced.unit = Some(Error::from(e).into_reply());
                        return Err(Halt::Rerun);
                    }
                    // The call's writes must not be committed: the other calls run again without it.
                    failed => {
                        let error = failed.and_then(Result::err).map_or(PANICKED, Error::into_reply);
                        forced.calls.push((n, Reply::Error(error)));
                        return Err(Halt::Rerun);
                    }
                },
            };
            held.push(reply);
            tracked::ran(call, unit.exec, &mut client.tracking);
            let looks = n % LOOKS == LOOKS - 1 || runs_script(call);
            let is_long = looks && began.is_some_and(|began| server.env.clock.monotonic() - began > LONG);
            if is_long && unit.exec && n + 1 < unit.calls.len() {
                return Err(Halt::TooHeavy);
            }
            let ends = is_long || forced.is_heavy || self.has_enough(&held, prebuilds);
            if ends && !unit.exec && forced.may_end_before(n + 1) {
                break;
            }
        }
        client.in_exec = false;
        if held.is_too_much() {
            client.after_reply = AfterReply::Excess(held.bytes);
        }
        Ok(Some(held.replies))
    }

    /// Whether an error of a call concerns the transaction: it may be about counts that other calls have left.
    fn ends(&self, e: &StoreError) -> bool {
        ends_attempt(e) || self.runner.uncounted.as_ref().is_some_and(Uncounted::has_failed)
    }

    /// What follows from such an error.
    fn ended(&self, e: StoreError) -> Halt {
        if ends_attempt(&e) { e.into() } else { Halt::Uncounted }
    }

    /// Whether a pipeline's unit should end behind the last call.
    fn has_enough(&self, held: &Held, prebuilds: &Prebuilds) -> bool {
        // What was built for the rest would be built again.
        let is_full = prebuilds.is_empty() && is_full(self.runner.tx);
        held.bytes > MAX_HELD || is_full || self.runner.waited
    }

    async fn unchanged(&self, watches: &[Watched]) -> Result<bool, Halt> {
        for w in watches {
            if w.generation != self.runner.tx.generation().await? {
                return Ok(false);
            }
            let Some(place) = self.runner.catalog.place(w.db) else { return Ok(false) };
            let scope = self.runner.scope_at(place.prefix, w.db);
            if !watched::is_as(&scope, place.swaps, &w.key, w.seen).await.map_err(halt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Why a batch is abandoned whose commit has failed: counts that move together may make it too large.
pub(super) fn refused(e: StoreError, has_counted: bool) -> Halt {
    if e == StoreError::TooLarge && has_counted { Halt::Uncounted } else { e.into() }
}

/// Whether nothing more should join a transaction: others wait while it commits.
pub(super) fn is_full(tx: &Tx) -> bool {
    tx.size() > MAX_BYTES || tx.nears_large()
}

/// Replies held until the end of a unit.
struct Held {
    replies: Vec<Reply>,
    /// Size of all replies, including dropped ones.
    bytes: usize,
    /// For an EXEC, the hard `client-output-buffer-limit`.
    most: usize,
}

impl Held {
    fn new(unit: &Unit, server: &Server) -> Self {
        let hard = server.config.get().client_output_buffer_limit.normal.hard;
        // A reply kept under an id must fit into the transaction.
        let bounded = unit.exec && unit.id.is_none() && hard > 0;
        let most = if bounded { hard } else { usize::MAX };
        Held { replies: Vec::with_capacity(unit.calls.len()), bytes: 0, most }
    }

    fn is_too_much(&self) -> bool {
        self.bytes > self.most
    }

    /// Adds a reply. Beyond the limit, replies are dropped: the commands go on, as in Redis, but the
    /// connection is going to be closed.
    fn push(&mut self, reply: Reply) {
        let before = self.is_too_much();
        self.bytes += reply.weight();
        if self.is_too_much() && !before {
            self.replies.fill(Reply::None);
        }
        self.replies.push(if self.is_too_much() { Reply::None } else { reply });
    }
}

/// Whether a call may change state outside the store: clients, options, logs.
fn acts_on_the_server(call: &Call) -> bool {
    call.row.flags.has(Flags::ADMIN) && !call.row.is_write()
}

/// Whether `call`, which exceeds what is left of the transaction, fails the whole attempt: if its result can
/// still be prebuilt, and in an EXEC. In an EXEC, a call too large for any transaction is instead refused on
/// its own, up to [`MOST_REFUSED`] times, because each refusal reruns the rest.
fn fails_all(unit: &Unit, call: &Call, forced: &Forced) -> bool {
    let can_be_prebuilt = call.can_be_prebuilt();
    let alone = can_be_prebuilt && forced.calls.len() < MOST_REFUSED;
    forced.may_prebuild && (can_be_prebuilt || unit.exec) || unit.exec && !alone
}

/// Whether an error concerns the transaction rather than one command.
pub(super) fn ends_attempt(e: &StoreError) -> bool {
    e.is_retryable() || e.may_have_committed() || e.is_away() || matches!(e, StoreError::ReadOnly(_))
}

fn halt(e: Error) -> Halt {
    match e {
        Error::Store(e) => Halt::Store(e),
        Error::Reply(e) | Error::Undone(e) => Halt::Store(StoreError::Corrupt(e.0.into_owned())),
        Error::TooHeavy => Halt::TooHeavy,
    }
}

/// Whether call `n`, which is too heavy for the lane, and the rest come back as a unit of their own, which counts their
/// lookups and messages. A script may have written before a call of its own was too heavy.
fn comes_back(unit: &Unit, n: usize, call: &Call, forced: &Forced) -> bool {
    n > 0 && !unit.exec && forced.may_end_before(n) && !runs_script(call)
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
        forced.may_prebuild = true;
        assert_eq!([0, 1].map(|n| fails(&pipeline, n, &forced)), [false, true], "it is prebuilt first");
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
