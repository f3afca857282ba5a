//! Hazard: a server is taken for dead because clocks differ or nobody could look; a dead one's leases stay for ever; or one
//! that comes back applies a write twice because others cleared what would have told it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;

use bytes::Bytes;
use cluster::{Cluster, HOUR};
use proptest::prelude::*;
use std::time::Duration;
use tern::commands::reply::Reply;
use tern::keyspace::instances::Instance;
use tern::keyspace::keys::root;
use tern::store::faulty::FaultRates;
use tern::types::reclaim::reclaim;
use tern::types::string::stage;

const LEASE: u64 = 60_000;

/// More beats than a dead server needs to be called dead.
fn long(c: &Cluster) -> u32 {
    let pace = c.space(0).instances.pace();
    u32::try_from(pace.dead.as_millis() / pace.beat.as_millis()).unwrap() + 2
}

async fn rows(c: &Cluster, n: usize) -> (usize, usize) {
    let (instance, lanes) = (root::instance(c.id(n)), root::lanes_of(c.id(n)));
    let count = async |from: &[u8]| c.keys(from, &tern::store::prefix_end(from)).await.len();
    (count(&instance).await, count(&lanes).await)
}

#[tokio::test]
async fn who_beats_lives_whatever_its_clock_says() {
    let c = Cluster::new(3).await;
    assert_eq!(c.beats(long(&c), &[0, 1, 2], &[0, 1, 2]).await, [0u64; 0]);
    for n in 0..3 {
        assert_eq!(c.space(n).instances.living(), 3, "as server {n} sees it");
    }
    let rows = c.space(0).instances.seen();
    let hours: Vec<u64> = rows.iter().map(|s| s.row.at / HOUR).collect();
    assert!(hours.iter().max() >= hours.iter().min().map(|h| h + 2).as_ref(), "the clocks do differ");
}

/// Its rows are read on the way, and that may be too old as the commit may be.
#[tokio::test]
async fn who_leaves_is_gone_whatever_has_to_be_tried_again() {
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
    assert_eq!(c.beats(5, &[0], &[0]).await, [0u64; 0], "silent, but not for long enough to be dead");
    assert_eq!(c.space(0).instances.living(), 1);
    c.bury(0).await;
    assert_eq!(rows(&c, 1).await, (1, 1));
    assert_eq!(c.beats(long(&c), &[0], &[0]).await, [c.id(1)]);
    c.bury(0).await;
    assert_eq!(rows(&c, 1).await, (0, 0));
    assert_eq!(rows(&c, 0).await.0, 1, "the living keep theirs");
    c.assert_sound().await;
}

#[tokio::test]
async fn time_in_which_nobody_looked_is_not_silence() {
    let c = Cluster::new(2).await;
    c.beats(2, &[0, 1], &[0]).await;
    c.advance(Duration::from_millis(HOUR));
    assert!(c.space(0).instances.observe().await.unwrap().is_empty());
    assert_eq!(c.space(0).instances.living(), 2);
}

#[tokio::test]
async fn a_sign_of_life_stops_the_burial() {
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
async fn who_comes_back_registers_anew() {
    let c = Cluster::new(2).await;
    let before = c.space(1).instances.epoch();
    c.beats(long(&c), &[0], &[0]).await;
    c.bury(0).await;
    c.space(1).beat().await.unwrap();
    assert_eq!(rows(&c, 1).await.0, 1);
    assert_ne!(c.space(1).instances.epoch(), before);
    c.assert_sound().await;
}

/// Without the burial an unknown commit is found in the slot's row. With it nobody can know, and nothing may run twice.
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
    let Reply::Error(e) = c.line(1, "INCR n").await else { panic!("it cannot know") };
    assert!(e.0.starts_with("ERR commit result unknown"), "{}", e.0);
    c.faulty.set_rates(unknown(0.0));
    assert_eq!(c.line(0, "GET n").await, Reply::Bulk(Bytes::from_static(b"2")), "applied, and once");
    c.space(1).beat().await.unwrap();
    c.faulty.set_rates(unknown(1.0));
    assert_eq!(c.line(1, "INCR n").await, Reply::Int(3), "registered again, it can know again");
    c.faulty.set_rates(unknown(0.0));
    c.assert_sound().await;
}

#[tokio::test]
async fn lanes_of_nobody_are_orphans() {
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
async fn a_lease_is_the_builders_as_long_as_it_lives() {
    let c = Cluster::new(2).await;
    let value = Bytes::from(vec![7; 100_000]);
    let db = c.space(0).catalog.load(&c.store.begin()).await.unwrap().prefixes[0];
    let garbage = async || {
        let (from, to) = root::garbage_range();
        c.keys(&from, &to).await.len()
    };
    stage(c.space(1), db, &value, LEASE).await.unwrap();
    c.advance(Duration::from_millis(LEASE * 2));
    assert_eq!(
        reclaim(c.space(0), None, 10).await.unwrap().rows,
        0,
        "its lease is over, but not for others to judge"
    );
    assert_eq!(reclaim(c.space(1), None, 10).await.unwrap().rows, 1, "the builder knows its own clock");
    assert_eq!(garbage().await, 0);
    stage(c.space(1), db, &value, u64::MAX).await.unwrap();
    c.beats(long(&c), &[0], &[0]).await;
    assert_eq!(reclaim(c.space(0), None, 10).await.unwrap().rows, 0);
    c.bury(0).await;
    assert_eq!(reclaim(c.space(0), None, 10).await.unwrap().rows, 1, "nobody builds it any more");
    assert_eq!(garbage().await, 0);
    c.assert_sound().await;
}

#[tokio::test]
async fn each_share_has_one_owner_and_moves_only_when_that_one_goes() {
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
        assert!((60..140).contains(&share), "server {n} has {share} of 300");
    }
    c.beats(6, &[0, 1], &[0, 1]).await;
    for (unit, before) in before.iter().enumerate() {
        let now = owner(unit as u64, &[0, 1]);
        assert!(*before == 2 || now == *before, "{unit} moved though its owner lives");
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
