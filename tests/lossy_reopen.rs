//! Hazard: with `appendfsync everysec` and `no`, a store reopened after a failed sync has lost its last
//! commits, and the server still remembers data from them: an id given out twice shows one key the members of
//! another.
//!
//! At each reopening the disk loses what was written to the log after its last sync.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, START, units};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tern::env::{Clock, Env};
use tern::error::{Error, StoreError};
use tern::exec::Unit;
use tern::keyspace::dictionary::collector::{Phase, State};
use tern::keyspace::dictionary::ids::BLOCK;
use tern::keyspace::keys::{Prefix, root};
use tern::keyspace::packed::Packed;
use tern::keyspace::{Keyspace, Scope};
use tern::server::reply::Reply;
use tern::store::faulty::FaultRates;
use tern::store::local::{DiskFaults, Local, LocalOptions};
use tern::store::{Fsync, Read, Store, Tx};
use tern::types::object;
use tern::types::prebuilt::{Builder, Row};
use tern::types::set::collect::grace::Waiting;
use tern::types::set::collect::{Collector, Halt, Pace, Step};
use tern::types::set::stream::Pieces;
use tern::types::set::{self, prebuild};
use tern::types::string::walk::Stretch;

const LEASE: u64 = 60_000;
const SEED: u64 = 7;

/// A seed whose server leases its first block of the same shard as that of `seed`.
async fn like(seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions { fsync: Fsync::No, ..LocalOptions::new(Clock::System) };
    let store = Store::Local(Local::open(dir.path(), options).unwrap());
    let shard = async |seed| {
        let space = Keyspace::open(store.clone(), &Env::seeded(START, seed), 1).await.unwrap();
        space.ids.take(&store.begin(), 1).await.unwrap()[0] >> 54
    };
    let wanted = shard(seed).await;
    for other in seed + 1.. {
        if shard(other).await == wanted {
            return other;
        }
    }
    unreachable!()
}

/// A server on a store that syncs only on request.
struct World {
    c: Cluster,
    store: Store,
    disk: Arc<DiskFaults>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(DiskFaults::default());
        disk.forget_unsynced();
        let mut options = LocalOptions::new(Clock::System);
        (options.fsync, options.faults) = (Fsync::No, Some(disk.clone()));
        let store = Store::Local(Local::open(dir.path(), options).unwrap());
        let mut c = Cluster::on(store.clone());
        c.join(Env::seeded(START, SEED)).await;
        let world = World { c, store, disk, _dir: dir };
        world.sync().await;
        world
    }

    /// A commit that `tern check` accepts.
    async fn put(&self, n: u64) -> Result<u64, StoreError> {
        let tx = self.store.begin();
        tx.set(&root::lane(u64::MAX, 0), &n.to_le_bytes()).unwrap();
        tx.commit().await
    }

    /// Makes all commits so far durable.
    async fn sync(&self) {
        self.store.set_fsync(Fsync::Always);
        self.put(1).await.unwrap();
        self.store.set_fsync(Fsync::No);
    }

    /// Makes the disk fail and lose unsynced data.
    async fn lose(&self, policy: Fsync) {
        match policy {
            Fsync::EverySec => self.disk.fail_next_sync(),
            _ => self.disk.fail_next_write(),
        }
        self.store.set_fsync(policy);
        let _ = self
            .put(2)
            .await_while(async {
                self.until_read_only(true).await;
                self.disk.heal()
            })
            .await;
        self.until_read_only(false).await;
        self.store.set_fsync(Fsync::No);
    }

    async fn until_read_only(&self, expected: bool) {
        let reached = async {
            while self.store.stats().refusal.is_some() != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
    }

    async fn scope<'a>(&'a self, tx: &'a Tx) -> Scope<'a> {
        let catalog = self.c.space(0).catalog.load(tx).await.unwrap();
        let (db, round) = (catalog.prefix(0).unwrap(), catalog.round);
        Scope {
            tx,
            db,
            number: 0,
            now: START,
            round,
            space: self.c.space(0),
            outbox: None,
            uncounted: None,
            life: Default::default(),
        }
    }

    async fn db(&self) -> Prefix {
        self.scope(&self.store.begin()).await.db
    }
}

trait AwaitWhile: Future + Sized {
    async fn await_while(self, other: impl Future) -> Self::Output {
        tokio::join!(self, other).0
    }
}
impl<F: Future> AwaitWhile for F {}

fn word(n: usize) -> Bytes {
    Bytes::from(format!("member:{n}"))
}

fn words(from: usize, n: usize) -> Vec<Bytes> {
    (from..from + n).map(word).collect()
}

fn argv(line: &str, members: &[Bytes]) -> Vec<Bytes> {
    line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).chain(members.iter().cloned()).collect()
}

impl World {
    async fn sadd(&self, n: usize, key: &str, members: &[Bytes]) {
        let added = self.c.run(n, argv(&format!("SADD {key}"), members)).await;
        assert_eq!(added, Reply::Int(members.len() as i64), "SADD {key}");
    }

    async fn smembers(&self, n: usize, key: &str) -> BTreeSet<Bytes> {
        match self.c.line(n, &format!("SMEMBERS {key}")).await {
            Reply::Set(items) => items
                .into_iter()
                .map(|item| {
                    let Reply::Bulk(bytes) = item else { panic!("{item:?}") };
                    bytes
                })
                .collect(),
            Reply::Members(members) => {
                let (mut pieces, mut piece, mut all) =
                    (Pieces::new(*members), Packed::default(), BTreeSet::new());
                while !pieces.is_done() {
                    pieces.next(&self.store, &mut piece).await.unwrap();
                    for member in piece.iter() {
                        all.insert(Bytes::copy_from_slice(member));
                    }
                }
                all
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn members_of_another_key(policy: Fsync) {
    let mut w = World::new().await;
    w.sadd(0, "lost", &words(0, 200)).await;
    w.lose(policy).await;
    assert_eq!(w.smembers(0, "lost").await, BTreeSet::new(), "the disk must lose unsynced data");
    w.sadd(0, "a", &words(1000, 300)).await;
    w.sadd(0, "b", &words(2000, 300)).await;
    // Another server draws the same block for the first members that it creates.
    w.c.join(Env::seeded(START, like(SEED).await)).await;
    w.sadd(1, "c", &words(3000, 900)).await;
    for (key, from, n) in [("a", 1000, 300), ("b", 2000, 300), ("c", 3000, 900)] {
        assert_eq!(w.smembers(0, key).await, words(from, n).into_iter().collect(), "SMEMBERS {key}");
    }
    w.c.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_shows_the_members_of_another_after_a_failed_sync_every_second() {
    members_of_another_key(Fsync::EverySec).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_shows_the_members_of_another_after_a_failed_write_without_syncs() {
    members_of_another_key(Fsync::No).await;
}

/// The block of a lost lease is leased again: leftover ids of it must not be used, nor by a transaction from
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_lost_lease_are_not_given_out() {
    let w = World::new().await;
    let ids = &w.c.space(0).ids;
    let first = ids.take(&w.store.begin(), 10).await.unwrap();
    w.lose(Fsync::No).await;
    let again = ids.take(&w.store.begin(), 10).await.unwrap();
    let leased = w.store.begin().get(&root::lease((again[0] >> 54) as u8), Read::Snapshot).await;
    let next = u64::from_le_bytes(leased.unwrap().unwrap()[..].try_into().unwrap());
    assert!(next > again[0] / BLOCK % (1 << 38), "{again:?} after {first:?}");
    // Nothing is lost here, so a lease stays valid.
    w.sync().await;
    w.lose(Fsync::No).await;
    assert_eq!(ids.take(&w.store.begin(), 1).await.unwrap(), [again[9] + 1]);
}

/// A lease commits while the transaction that needs ids holds its snapshot, for which a reopening waits. So
/// when that commit fails, the transaction must end, or both wait for ever. Whoever runs it tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_does_not_wait_for_a_store_that_waits_for_its_transaction() {
    let w = World::new().await;
    w.disk.fail_next_write();
    let take = async {
        let tx = w.store.begin();
        tx.get(&root::lease(0), Read::Snapshot).await.unwrap();
        w.c.space(0).ids.take(&tx, 1).await
    };
    let heal = async {
        w.until_read_only(true).await;
        w.disk.heal();
    };
    let taken = tokio::time::timeout(Duration::from_secs(20), take.await_while(heal)).await;
    let taken = taken.expect("the store must not wait for ever");
    assert_eq!(taken, Err(StoreError::TooOld.into()));
    w.until_read_only(false).await;
    w.sadd(0, "words", &words(0, 200)).await;
    assert_eq!(w.smembers(0, "words").await.len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_policy_syncs_what_was_written_under_the_old_one() {
    let w = World::new().await;
    let row = root::lane(u64::MAX, 0);
    let read = async || w.store.begin().get(&row, Read::Snapshot).await.unwrap().unwrap();
    for (n, synced) in [(7_u64, false), (8, true)] {
        w.put(n).await.unwrap();
        if synced {
            w.store.set_fsync(Fsync::Always);
            w.store.set_fsync(Fsync::No);
        }
        w.lose(Fsync::No).await;
        let expected = if synced { n } else { 1 };
        assert_eq!(read().await, expected.to_le_bytes()[..]);
    }
}

/// A client that does not read its reply keeps a transaction, for which a reopening waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_nobody_reads_does_not_keep_the_store_from_reopening() {
    let w = World::new().await;
    let (long, fields) = (Bytes::from(vec![b'x'; 400_000]), words(0, 4000));
    w.c.run(0, argv("SET s", std::slice::from_ref(&long))).await;
    w.c.run(0, argv("HSET h", &fields)).await;
    w.sync().await;
    let (string, hash) = (w.c.line(0, "GET s").await, w.c.line(0, "HGETALL h").await);
    let (Reply::Long(mut string), Reply::Items(hash)) = (string, hash) else { panic!("not read while sent") };
    w.lose(Fsync::No).await;
    // What had been synced is still there, and the same; a newer transaction reads it within a second.
    let (mut bytes, mut n, mut piece) = (0, 0, Packed::default());
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match string.next().await {
            Ok(Some(Stretch::Bytes(some))) => bytes += some.len(),
            Ok(None) => break,
            Err(Error::Store(StoreError::TooOld)) if tokio::time::Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    loop {
        match hash.next(&mut piece).await {
            Ok(()) if piece.is_empty() => break,
            Ok(()) => n += piece.len(),
            Err(Error::Store(StoreError::TooOld)) if tokio::time::Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    assert_eq!((bytes, n), (long.len(), fields.len()));
}

/// Its `g` row was synced with the first step; its second step was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_lost_rows_is_not_taken_over() {
    let w = World::new().await;
    let db = w.db().await;
    let row = |builder: &Builder<'_>, n| {
        let (db, oid) = builder.place();
        [Row { key: db.piece(oid, n), at: None, bytes: vec![7; 1000].into() }]
    };
    for unsynced in [false, true] {
        let mut builder = Builder::new(w.c.space(0), db, Vec::new(), LEASE);
        builder.write(&row(&builder, 0)).await.unwrap();
        w.sync().await;
        if unsynced {
            builder.write(&row(&builder, 1)).await.unwrap();
        } else {
            w.put(3).await.unwrap();
        }
        w.lose(Fsync::No).await;
        if unsynced {
            assert_eq!(builder.write(&row(&builder, 2)).await, Err(StoreError::Conflict));
        }
        let built = builder.done(3000);
        let tx = w.store.begin();
        let s = w.scope(&tx).await;
        assert_eq!(built.try_take(&s, &s).await, Ok(false));
    }
}

/// SADD of very many members interns them before its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_ids_interned_ahead_are_not_added() {
    let w = World::new().await;
    let members = words(0, 600);
    let ids = prebuild::intern(w.c.space(0), &[&members]).await.unwrap().remove(0);
    w.lose(Fsync::No).await;
    let tx = w.store.begin();
    let s = w.scope(&tx).await;
    let mut slot = object::open_members(&s, &Bytes::from("a")).await.unwrap();
    assert_eq!(set::add_ids(&s, &mut slot, &members, &ids).await, Err(Error::Store(StoreError::Conflict)));
}

/// N of a set counts its changes: the same count comes again with other members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_lost_write_fails_its_transaction() {
    let w = World::new().await;
    w.sadd(0, "s", &words(0, 600)).await;
    w.sync().await;
    w.sadd(0, "s", &[word(1000)]).await;
    let watches = w.c.members[0].exec.watch(0, &[Bytes::from("s")]).await.unwrap();
    w.lose(Fsync::No).await;
    w.sadd(0, "s", &[word(2000)]).await;
    let unit = Unit { watches, exec: true, ..units::pipeline(&["SADD saw-1000 yes"]) };
    let done = w.c.members[0].exec.run(unit).await;
    assert_eq!(done.replies, None);
}

/// The ids of a reply under way may belong to other members when they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_under_way_is_not_ended_with_other_members() {
    let w = World::new().await;
    w.sadd(0, "s", &words(0, 20_000)).await;
    let Reply::Members(members) = w.c.line(0, "SMEMBERS s").await else { panic!("not streamed") };
    let (mut pieces, mut piece) = (Pieces::new(*members), Packed::default());
    pieces.next(&w.store, &mut piece).await.unwrap();
    assert!(!pieces.is_done());
    // The members may have reached a table meanwhile: something must be lost.
    w.put(3).await.unwrap();
    w.lose(Fsync::No).await;
    let Err(Error::Reply(e)) = pieces.next(&w.store, &mut piece).await else {
        panic!("the reply must end with an error")
    };
    assert!(e.0.contains("has lost its last commits"), "{}", e.0);
}

/// An epoch of the collector that is lost comes again, and servers wait for their replies again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn being_done_with_a_lost_epoch_does_not_cover_its_successor() {
    let w = World::new().await;
    let (space, pace) = (w.c.space(0), Pace { grace: Duration::from_secs(10), ..Pace::default() });
    let state = State { phase: Phase::Grace, epoch: 3, ..State::default() };
    let mut waiting = Waiting::default();
    let streamed =
        async || w.store.begin().get(&root::streamed(w.c.id(0)), Read::Snapshot).await.unwrap().is_some();
    for _ in 0..2 {
        waiting.look(space, &pace, &w.store.begin(), &state).await.unwrap();
        assert!(!streamed().await, "its transactions may still read the candidates");
        w.c.advance(pace.grace * 2);
        waiting.look(space, &pace, &w.store.begin(), &state).await.unwrap();
        assert!(streamed().await);
        w.lose(Fsync::No).await;
    }
}

/// Begins a cycle whose first phase rests for about `rest`, and loses commits, not its claim. False if the
/// phase ended before.
async fn a_phase_sees_the_loss(w: &World, collector: &Collector<'_>, rest: Duration) -> bool {
    collector.abandon().await.unwrap();
    collector.begin().await.unwrap();
    let turn = async || State::read(&w.store.begin(), Read::Snapshot).await.unwrap().turn;
    let begun = turn().await;
    w.sync().await;
    w.put(3).await.unwrap();
    let lost = AtomicBool::new(false);
    let phase = async { (collector.step().await, lost.load(Relaxed)) };
    let lose = async {
        while turn().await == begun {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // What the phase is reading seems to take this long, and it rests as long.
        w.c.advance(rest);
        w.sync().await;
        w.put(4).await.unwrap();
        w.lose(Fsync::No).await;
        lost.store(true, Relaxed);
    };
    match phase.await_while(lose).await {
        (Err(Halt::Lost), _) => true,
        (Ok(Step::Worked), false) => false,
        ended => panic!("{ended:?}"),
    }
}

/// The facts that a collector phase found in sets may be lost, with its turn: another phase of the same turn
/// may follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_phase_restarts_if_the_store_lost_commits() {
    let w = World::new().await;
    for n in 0..200 {
        w.sadd(0, &format!("s{n}"), &words(n * 130, 130)).await;
    }
    let collector = Collector::new(w.c.space(0), Pace { share: 50, ..Pace::default() });
    w.c.faulty.set_rates(FaultRates { delay: 1.0, ..FaultRates::default() });
    let mut rest = Duration::from_secs(1);
    while !a_phase_sees_the_loss(&w, &collector, rest).await {
        rest *= 2;
        assert!(rest < Duration::from_secs(60), "no phase lasted until the store had lost commits");
    }
    w.c.faulty.set_rates(FaultRates::default());
    collector.step().await.unwrap();
    w.c.assert_sound().await;
}
