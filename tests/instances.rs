//! Hazard: a server is declared dead because clocks differ or no server was watching; a dead one's leases
//! stay for ever; or a returning one applies a write twice because others removed the rows that record it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, HOUR, START};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;
use tern::env::Env;
use tern::keyspace::Keyspace;
use tern::keyspace::cluster::instances::Instance;
use tern::keyspace::keys::root;
use tern::lifecycle::reclaim::reclaim;
use tern::server::reply::Reply;
use tern::store::faulty::{FaultRates, Outage};
use tern::types::string::prebuild;

const LEASE: u64 = 60_000;

/// More beats than it takes to declare a server dead.
fn long(c: &Cluster) -> u32 {
    let pace = c.space(0).instances.pace();
    u32::try_from(pace.dead.as_millis() / pace.beat.as_millis()).unwrap() + 2
}

async fn rows(c: &Cluster, n: usize) -> (usize, usize) {
    let (instance, lanes) = (root::instance(c.id(n)), root::lanes_of(c.id(n)));
    let count = async |from: &[u8]| c.keys(from, &tern::store::prefix_end(from)).await.len();
    (count(&instance).await, count(&lanes).await)
}

/// Whoever retries without end holds no transaction meanwhile: a store that reopens would wait for it.
#[tokio::test]
async fn a_server_leaves_a_store_that_fails() {
    for seed in 0..20 {
        let c = Cluster::new(1).await;
        let space = c.members[0].server.clone();
        let late = FaultRates { unknown_late: 0.3, ..FaultRates::default() };
        c.faulty.set_rates(FaultRates { too_old_read: 0.4, conflict: 0.3, ..late });
        // In a task of its own: transactions are counted by task.
        let left = tokio::spawn(async move { space.space.instances.leave().await }).await;
        c.faulty.set_rates(FaultRates::default());
        assert_eq!(left.expect("no panic"), Ok(()), "{seed}");
        assert_eq!(rows(&c, 0).await, (0, 0));
    }
}

#[tokio::test]
async fn a_server_that_beats_is_alive_whatever_its_clock_says() {
    let c = Cluster::new(3).await;
    assert_eq!(c.beats(long(&c), &[0, 1, 2], &[0, 1, 2]).await, [0u64; 0]);
    for n in 0..3 {
        assert_eq!(c.space(n).instances.living(), 3, "in the view of server {n}");
    }
    let rows = c.space(0).instances.seen();
    let hours: Vec<u64> = rows.iter().map(|s| s.row.at / HOUR).collect();
    assert!(hours.iter().max() >= hours.iter().min().map(|h| h + 2).as_ref(), "the clocks must differ");
}

/// Its rows are read on the way; that read may be too old, like the commit.
#[tokio::test]
async fn a_leaving_server_is_gone_whatever_must_be_retried() {
    let c = Cluster::new(2).await;
    assert_eq!(c.line(1, "INCR n").await, Reply::Int(1));
    c.faulty.set_rates(FaultRates { too_old_read: 0.9, too_old_commit: 0.5, ..FaultRates::default() });
    assert_eq!(c.space(1).instances.leave().await, Ok(()));
    c.faulty.set_rates(FaultRates::default());
    assert_eq!(rows(&c, 1).await, (0, 0));
    c.assert_sound().await;
}

#[tokio::test]
async fn a_silent_server_loses_its_share_then_its_rows() {
    let c = Cluster::new(2).await;
    assert_eq!(c.line(1, "INCR n").await, Reply::Int(1));
    assert_eq!(rows(&c, 1).await, (1, 1));
    c.beats(2, &[0, 1], &[0]).await;
    assert_eq!(c.space(0).instances.living(), 2);
    assert_eq!(c.beats(5, &[0], &[0]).await, [0u64; 0], "a short silence is not death");
    assert_eq!(c.space(0).instances.living(), 1);
    c.bury(0).await;
    assert_eq!(rows(&c, 1).await, (1, 1));
    assert_eq!(c.beats(long(&c), &[0], &[0]).await, [c.id(1)]);
    c.bury(0).await;
    assert_eq!(rows(&c, 1).await, (0, 0));
    assert_eq!(rows(&c, 0).await.0, 1, "live servers must keep their shares");
    c.assert_sound().await;
}

#[tokio::test]
async fn unobserved_time_does_not_count_as_silence() {
    let c = Cluster::new(2).await;
    c.beats(2, &[0, 1], &[0]).await;
    c.advance(Duration::from_millis(HOUR));
    assert!(c.space(0).instances.observe().await.unwrap().is_empty());
    assert_eq!(c.space(0).instances.living(), 2);
}

#[tokio::test]
async fn a_heartbeat_stops_the_removal_of_a_server() {
    let c = Cluster::new(2).await;
    c.beats(long(&c), &[0], &[0]).await;
    let dead = c.space(0).instances.observe().await.unwrap();
    c.space(1).beat().await.unwrap();
    assert!(!c.space(0).instances.bury(&dead[0]).await.unwrap());
    assert_eq!(rows(&c, 1).await.0, 1);
}

#[tokio::test]
async fn a_clean_stop_leaves_no_rows_and_no_late_beat() {
    let c = Cluster::new(2).await;
    c.line(1, "INCR n").await;
    c.space(1).instances.leave().await.unwrap();
    c.space(1).beat().await.unwrap();
    assert_eq!(rows(&c, 1).await, (0, 0));
}

#[tokio::test]
async fn a_returning_server_registers_anew() {
    let c = Cluster::new(2).await;
    let before = c.space(1).instances.epoch();
    c.beats(long(&c), &[0], &[0]).await;
    c.bury(0).await;
    c.space(1).beat().await.unwrap();
    assert_eq!(rows(&c, 1).await.0, 1);
    assert_ne!(c.space(1).instances.epoch(), before);
    c.assert_sound().await;
}

/// Machines that start in the same state, or a broken random generator.
#[tokio::test]
async fn a_server_that_draws_the_name_of_another_draws_again() {
    let mut c = Cluster::empty();
    for _ in 0..3 {
        c.join(Env::seeded(START, 7)).await;
    }
    let ids: BTreeSet<u64> = (0..3).map(|n| c.id(n)).collect();
    assert_eq!(ids.len(), 3, "{ids:x?}");
    for n in 0..3 {
        assert_eq!(rows(&c, n).await.0, 1);
        let members: Vec<String> = (0..300).map(|m| format!("{n}:{m}")).collect();
        assert_eq!(c.line(n, &format!("SADD s{n} {}", members.join(" "))).await, Reply::Int(300));
    }
    for n in 0..3 {
        assert_eq!(c.line(n, &format!("SCARD s{}", (n + 1) % 3)).await, Reply::Int(300));
        assert_eq!(c.line(n, &format!("SISMEMBER s{n} {n}:299")).await, Reply::Int(1));
    }
    c.beats(3, &[0, 1, 2], &[0]).await;
    assert_eq!(c.space(0).instances.living(), 3);
    c.assert_sound().await;
}

/// Both read that the row is absent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_registrations_of_one_name_have_one_winner() {
    let c = Cluster::empty();
    for seed in 0..20 {
        // What one of them has drawn besides: otherwise each takes the other's registration for its own.
        let open = async |drawn: usize| {
            let space = Keyspace::open(c.store.clone(), &Env::seeded(START, seed), 1).await.unwrap();
            for _ in 0..drawn {
                let _ = space.fresh.oid();
            }
            (space.register().await.unwrap(), space)
        };
        let (one, two) = tokio::join!(open(0), open(1));
        assert_eq!(one.1.instances.id(), two.1.instances.id());
        assert!(one.0 != two.0, "seed {seed}");
        let (has, has_not) = if one.0 { (one.1, two.1) } else { (two.1, one.1) };
        assert!(has_not.beat().await.is_err(), "a server must not renew another's row");
        assert_eq!(has_not.instances.epoch(), 0);
        has.beat().await.unwrap();
    }
}

/// The row that a server finds may be its own, from an attempt with an unknown result.
#[tokio::test]
async fn a_server_knows_its_own_row_whatever_becomes_of_its_commits() {
    let c = Cluster::empty();
    let rates =
        FaultRates { unknown_applied: 0.4, unknown_lost: 0.2, conflict: 0.1, ..FaultRates::default() };
    c.faulty.set_rates(rates);
    for seed in 0..40 {
        let space = Keyspace::open(c.store.clone(), &Env::seeded(START, seed), 1).await.unwrap();
        assert_eq!(space.register().await, Ok(true));
        let epoch = space.instances.epoch();
        assert_ne!(epoch, 0);
        space.beat().await.unwrap();
        assert_eq!(space.instances.epoch(), epoch);
        // As if the store had failed before the result of the registration arrived.
        let lost = Keyspace::open(c.store.clone(), &Env::seeded(START, 1000 + seed), 1).await.unwrap();
        c.faulty.set_outage(Outage::SilentCommits(Duration::ZERO));
        let gave_up = tokio::time::timeout(Duration::from_millis(5), lost.register()).await;
        assert!(gave_up.is_err());
        c.faulty.set_outage(Outage::None);
        assert_eq!(lost.register().await, Ok(true));
    }
}

/// Normally the slot's row resolves an unknown commit. Once that row is removed the outcome stays unknown,
/// and nothing may run twice.
#[tokio::test]
async fn an_unknown_commit_of_a_forgotten_server_is_not_run_again() {
    let c = Cluster::new(2).await;
    let unknown = |rate| FaultRates { unknown_applied: rate, ..FaultRates::default() };
    c.faulty.set_rates(unknown(1.0));
    assert_eq!(c.line(1, "INCR n").await, Reply::Int(1));
    c.faulty.set_rates(unknown(0.0));
    c.beats(long(&c), &[0], &[0]).await;
    c.bury(0).await;
    c.faulty.set_rates(unknown(1.0));
    let Reply::Error(e) = c.line(1, "INCR n").await else { panic!("the outcome must stay unknown") };
    assert!(e.0.starts_with("ERR commit result unknown"), "{}", e.0);
    c.faulty.set_rates(unknown(0.0));
    assert_eq!(
        c.line(0, "GET n").await,
        Reply::Bulk(Bytes::from_static(b"2")),
        "the commit must be applied once"
    );
    c.space(1).beat().await.unwrap();
    c.faulty.set_rates(unknown(1.0));
    assert_eq!(
        c.line(1, "INCR n").await,
        Reply::Int(3),
        "a registered server must resolve unknown commits again"
    );
    c.faulty.set_rates(unknown(0.0));
    c.assert_sound().await;
}

#[tokio::test]
async fn lanes_without_an_owner_are_orphans() {
    let c = Cluster::new(2).await;
    c.line(0, "INCR n").await;
    for (instance, lane) in [(7, 0), (7, 3), (u64::MAX, 1)] {
        let tx = c.store.begin();
        tx.set(&root::lane(instance, lane), &1u64.to_le_bytes()).unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(c.space(1).instances.bury_orphans().await.unwrap(), 2);
    let (from, to) = root::lanes();
    let left: Vec<_> = c.keys(&from, &to).await.iter().map(|key| root::decode_lane(key).unwrap()).collect();
    assert_eq!(left, [c.id(0)]);
    c.assert_sound().await;
}

#[tokio::test]
async fn a_lease_belongs_to_its_builder_while_that_lives() {
    let c = Cluster::new(2).await;
    let value = Bytes::from(vec![7; 100_000]);
    let db = c.space(0).catalog.load(&c.store.begin()).await.unwrap().prefix(0).unwrap();
    let garbage = async || {
        let (from, to) = root::garbage_range();
        c.keys(&from, &to).await.len()
    };
    prebuild(c.space(1), db, &value, LEASE).await.unwrap();
    c.advance(Duration::from_millis(LEASE * 2));
    assert_eq!(reclaim(c.space(0), None, 10).await.unwrap().rows, 0, "other servers must not end its lease");
    assert_eq!(
        reclaim(c.space(1), None, 10).await.unwrap().rows,
        1,
        "the builder must end its lease by its own clock"
    );
    assert_eq!(garbage().await, 0);
    prebuild(c.space(1), db, &value, u64::MAX).await.unwrap();
    c.beats(long(&c), &[0], &[0]).await;
    assert_eq!(reclaim(c.space(0), None, 10).await.unwrap().rows, 0);
    c.bury(0).await;
    assert_eq!(
        reclaim(c.space(0), None, 10).await.unwrap().rows,
        1,
        "the object must have no builder any more"
    );
    assert_eq!(garbage().await, 0);
    c.assert_sound().await;
}

#[tokio::test]
async fn each_share_has_one_owner_and_moves_only_when_that_leaves() {
    let c = Cluster::new(3).await;
    c.beats(1, &[0, 1, 2], &[0, 1, 2]).await;
    let owner = |unit, of: &[usize]| {
        let owners: Vec<usize> =
            of.iter().copied().filter(|n| c.space(*n).instances.owns("x", unit)).collect();
        assert_eq!(owners.len(), 1, "owners of {unit}");
        owners[0]
    };
    let before: Vec<usize> = (0..300).map(|unit| owner(unit, &[0, 1, 2])).collect();
    for n in 0..3 {
        let share = before.iter().filter(|o| **o == n).count();
        assert!((60..140).contains(&share), "server {n} must have a fair share, not {share} of 300");
    }
    c.beats(6, &[0, 1], &[0, 1]).await;
    for (unit, before) in before.iter().enumerate() {
        let now = owner(unit as u64, &[0, 1]);
        assert!(*before == 2 || now == *before, "{unit} must stay while its owner lives");
    }
}

proptest! {
    #[test]
    fn rows_round_trip(epoch: u64, beat: u64, started: u64, at: u64, address in "\\PC{0,40}", version in "\\PC{0,9}") {
        let row = Instance { epoch, beat, started, at, address, version };
        prop_assert_eq!(Instance::decode(&row.encode()), Ok(row.clone()));
        for cut in 0..row.encode().len() {
            prop_assert!(Instance::decode(&row.encode()[..cut]).is_err());
        }
    }
}
