//! Breaches of the assumptions behind strict serializability, one at a time. Each must make some history
//! fail.

use super::breaches::*;
use super::generate::Group;
use super::ranked_breaches::*;
use super::stream_breaches::*;
use super::world::{Plan, Sweep};
use crate::cluster::Cluster;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use std::sync::Arc;
use std::time::Duration;
use tern::keyspace::Scope;
use tern::keyspace::dictionary::collector::Round;
use tern::store::faulty::FaultRates;
use tern::store::tamper::Tamper;
use tern::store::{RangeOptions, Read};
use tern::types::object;

/// The real sweep of expired keys.
pub fn honest_sweep(cluster: Arc<Cluster>, server: usize, shard: u8) -> BoxFuture<'static, ()> {
    async move {
        // If the store fails, the next sweep retries.
        let _ = tern::lifecycle::expire::sweep(cluster.space(server), 0, shard, 10, &mut Default::default())
            .await;
    }
    .boxed()
}

/// A sweep that removes keys that the index named a moment ago, without reading their records again.
fn sweep_without_recheck(cluster: Arc<Cluster>, server: usize, shard: u8) -> BoxFuture<'static, ()> {
    async move {
        let space = cluster.space(server);
        let tx = space.store.begin();
        let Ok(catalog) = space.catalog.load(&tx).await else { return };
        let db = catalog.prefix(0).unwrap();
        let now = space.clock.now_ms();
        let (from, to) = (db.expiry_from(shard, 0), db.expiry_from(shard, now + 1));
        let Ok(due) = tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await else { return };
        tokio::time::sleep(Duration::from_micros(700)).await;
        let tx = space.store.begin();
        let s = Scope {
            tx: &tx,
            db,
            number: 0,
            now,
            round: Round::default(),
            space,
            outbox: None,
            uncounted: None,
            life: Default::default(),
        };
        for (row, _) in &due.pairs {
            let (_, key) = db.decode_expiry(row).unwrap();
            let Ok(mut slot) = object::open(&s, &key, Read::Serializable).await else { return };
            if slot.exists() || slot.stored_expiry().is_some() {
                object::remove(&s, &mut slot).unwrap();
            }
        }
        let _ = tx.commit().await;
    }
    .boxed()
}

/// A fold (the only reader of single deltas as snapshots) takes added members for removed ones.
struct FoldLosesDeltas;
impl Tamper for FoldLosesDeltas {
    fn answer(&self, key: &[u8], read: Read, value: Option<Bytes>) -> Option<Bytes> {
        let delta = tag(key) == b'S' && read == Read::Snapshot && value.as_deref() == Some(b"+");
        if delta { Some(Bytes::from_static(b"-")) } else { value }
    }
}

/// The common part of the mutations' plans.
fn plan(groups: &'static [Group], tamper: Option<Arc<dyn Tamper>>, sweep: Sweep) -> Plan {
    Plan {
        servers: 2,
        clients: 4,
        steps: 40,
        pipeline: 1,
        groups,
        rates: FaultRates { delay: 0.2, ..FaultRates::default() },
        give_up: 0,
        tamper,
        own_times: false,
        sweep,
        embedded: false,
        marked: true,
    }
}

fn with(groups: &'static [Group], tamper: Arc<dyn Tamper>) -> Plan {
    plan(groups, Some(tamper), honest_sweep)
}

/// Clients that wait.
pub fn waiting(tamper: Option<Arc<dyn Tamper>>) -> Plan {
    Plan { marked: false, ..plan(&[Group::Waiting], tamper, honest_sweep) }
}

/// Mutations of watched keys that expire.
fn watched_expiring() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "EXEC compares what expires without a conflict",
            with(&[Group::WatchedExpiring], Compared::without_conflict()),
        ),
        (
            "EXEC takes a watched key that has expired for alive",
            with(&[Group::WatchedExpiring], Compared::at_no_time()),
        ),
        (
            "PERSIST of a watched key is not seen",
            with(&[Group::WatchedExpiring], Arc::new(PersistUnseen::default())),
        ),
        (
            "EXEC relies on a watched key that others have seen expire",
            Plan { own_times: true, steps: 100, ..plan(&[Group::WatchedExpiring], None, honest_sweep) },
        ),
    ]
}

/// Mutations of sorted sets.
fn ranked() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "a member of a sorted set is read without a conflict",
            with(&[Group::Ranked], Arc::new(NoScoreConflict)),
        ),
        (
            "the number of a sorted set's members is read without a conflict",
            with(&[Group::Counted], Arc::new(NoCountConflict)),
        ),
        ("a rank is read without a conflict", with(&[Group::Counted], Arc::new(NoRankConflict::default()))),
        (
            "members are counted where a range was divided meanwhile",
            Plan { steps: 120, ..with(&[Group::Counted], Arc::new(NoMoveConflict)) },
        ),
        (
            "a watched sorted set is compared without a conflict",
            with(&[Group::WatchedRanked], Arc::new(NoCountConflict)),
        ),
    ]
}

/// Mutations of streams.
fn streams() -> Vec<(&'static str, Plan)> {
    let plan = |tamper| Plan { steps: 60, ..with(&[Group::Streams], tamper) };
    vec![
        ("a group is read without a conflict: two consumers get an entry", plan(Arc::new(NoGroupConflict))),
        ("what is pending is read without a conflict", plan(Arc::new(NoPendingConflict))),
        ("a stream is read without a conflict", plan(Arc::new(NoReadConflict))),
        (
            "entries are delivered that are deleted, and not those that are added",
            plan(Arc::new(NoEntryConflict)),
        ),
        ("the stream of a group goes unseen", plan(Arc::new(NoLifeConflict))),
    ]
}

/// Reads of a field of a hash do not conflict.
pub struct NoFieldConflict;
impl Tamper for NoFieldConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b'H' { Read::Snapshot } else { read }
    }
}

/// Each mutation, with a plan under which it should show.
pub fn all() -> Vec<(&'static str, Plan)> {
    let pinned = |plan: Plan| Plan { embedded: true, ..plan };
    let unknown = FaultRates { unknown_applied: 0.2, ..FaultRates::default() };
    let mut all = vec![
        ("a read conflict is dropped", with(&[Group::Counters], Arc::new(NoReadConflict))),
        (
            "a version is published before its snapshot",
            pinned(with(&[Group::Counters], Arc::new(VersionBeforeSnapshot))),
        ),
        (
            "the lane key is skipped on unknown commits",
            Plan { rates: unknown, ..with(&[Group::Counters], Arc::new(LaneKeySkipped)) },
        ),
        (
            "a fold loses deltas",
            Plan { clients: 3, steps: 120, ..with(&[Group::Chunked], Arc::new(FoldLosesDeltas)) },
        ),
        ("WATCH ignores the revision", with(&[Group::Watched], Arc::new(WatchWithoutRevision))),
        ("an absent key comes and goes unseen", with(&[Group::Watched], Arc::new(GhostsForEver))),
        (
            "expiry does not read the record again",
            Plan { steps: 150, ..plan(&[Group::Expiring], None, sweep_without_recheck) },
        ),
        (
            "a transaction relies on a key that others have seen expire",
            Plan { own_times: true, steps: 100, ..plan(&[Group::Expiring], None, honest_sweep) },
        ),
        ("the read version is stale", pinned(with(&[Group::Registers], Arc::new(StaleReadVersion)))),
        ("commits are answered before they are done", with(&[Group::Registers], Arc::new(AnswerBeforeSync))),
        (
            "a database's place is read without a conflict",
            with(&[Group::Databases], Arc::new(NoDirectoryConflict)),
        ),
        (
            "a watched set is compared without a conflict",
            with(&[Group::WatchedSets], Arc::new(NoCountConflict)),
        ),
        (
            "a watched hash is compared without a conflict",
            with(&[Group::WatchedHashes], Arc::new(NoCountConflict)),
        ),
        ("a field of a hash is read without a conflict", with(&[Group::Hashes], Arc::new(NoFieldConflict))),
        ("a list is read without a conflict", with(&[Group::Lists], Arc::new(NoReadConflict))),
        (
            "a watched list is compared without a conflict",
            with(&[Group::WatchedLists], Arc::new(WatchWithoutRevision)),
        ),
        ("PERSIST does not conflict with what expires", with(&[Group::Expiring], Arc::new(NoReadConflict))),
        ("a long string is read without a conflict", with(&[Group::Long], Arc::new(NoReadConflict))),
        ("a long string's last piece is forgotten", with(&[Group::Long], Arc::new(PieceUnseen))),
        ("a chunk is rewritten without a conflict", with(&[Group::Large], Arc::new(NoChunkConflict))),
        ("large sets are combined without a conflict", with(&[Group::Large], Arc::new(NoCountConflict))),
        (
            "an id is looked for without a conflict",
            Plan { steps: 120, ..with(&[Group::Once], Arc::new(NoIdempotencyConflict)) },
        ),
    ];
    all.extend(watched_expiring());
    all.extend(ranked());
    all.extend(streams());
    all
}
