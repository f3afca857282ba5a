//! Hazard: a server's wall clock jumps by an hour, and keys live or die that the jump should not affect, a
//! command runs twice under one id, a live server is declared dead, or its unfinished objects are reclaimed.
//!
//! By design an expiry is a time, and each server compares it with its own clock. So a server that is an hour
//! ahead treats keys with less than an hour to live as expired, and removes them for all; one that is an hour
//! behind serves keys that no server has removed for up to an hour longer. Apart from expiry only the age of
//! ids depends on the wall clock, and it is off by at most the jump. Every test ends with `tern check`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod sets_world;
mod support;

use bytes::Bytes;
use cluster::{Cluster, HOUR, START, units};
use std::time::Duration;
use tern::env::Env;
use tern::keyspace::keys::SHARDS;
use tern::lifecycle::expire;
use tern::lifecycle::idempotency;
use tern::lifecycle::reclaim::reclaim;
use tern::server::reply::Reply;
use tern::types::string::prebuild;

const MINUTE: u64 = 60_000;
/// Jumps in ms.
const JUMPS: [i64; 2] = [HOUR as i64, -(HOUR as i64)];

/// Three servers whose clocks agree and that have seen each other.
async fn three() -> (Cluster, tempfile::TempDir) {
    let (store, dir) = sets_world::fresh().await;
    let mut cluster = Cluster::on(store);
    for n in 0..3 {
        cluster.join(Env::seeded(START, 100 + n)).await;
    }
    cluster.beats(2, &[0, 1, 2], &[0, 1, 2]).await;
    (cluster, dir)
}

fn jump(c: &Cluster, n: usize, by: i64) {
    c.members[n].server.env.clock.jump(by);
}

/// Runs the expiry sweep of server `n` on database 0.
async fn sweep(c: &Cluster, n: usize) -> usize {
    let mut removed = 0;
    for shard in 0..SHARDS {
        removed +=
            expire::sweep(c.space(n), 0, shard, 1000, &mut expire::Expired::default()).await.unwrap().removed;
    }
    removed
}

async fn there(c: &Cluster, n: usize, key: &str) -> bool {
    c.line(n, &format!("EXISTS {key}")).await == Reply::Int(1)
}

async fn under_id(c: &Cluster, n: usize, id: &str, line: &str) -> Reply {
    units::reply(&c.members[n].exec, units::call_under_id(id, line)).await
}

async fn keys(c: &Cluster) {
    for line in [
        "SET short v PX 1800000",
        "SET long v PX 7200000",
        "SET eternal v",
        "SADD members a b c",
        "PEXPIRE members 7200000",
    ] {
        assert!(!matches!(c.line(0, line).await, Reply::Error(_)), "{line}");
    }
}

#[tokio::test]
async fn a_server_an_hour_ahead_expires_only_keys_with_less_to_live() {
    let (c, _dir) = three().await;
    keys(&c).await;
    jump(&c, 2, HOUR as i64);
    assert!(!there(&c, 2, "short").await, "the key has expired on the server ahead");
    for n in 0..2 {
        assert!(there(&c, n, "short").await, "server {n} uses its own clock");
    }
    for key in ["long", "eternal", "members"] {
        assert!(there(&c, 2, key).await, "{key}");
    }
    assert_eq!(c.line(2, "PTTL long").await, Reply::Int(HOUR as i64));
    assert_eq!(sweep(&c, 2).await, 1, "the job of the server ahead removes it for all");
    assert!(!there(&c, 0, "short").await);
    c.assert_sound().await;
    jump(&c, 2, -(HOUR as i64));
    for n in 0..3 {
        assert!(!there(&c, n, "short").await, "a removed key does not come back");
        assert!(there(&c, n, "long").await && there(&c, n, "members").await);
    }
    assert_eq!(sweep(&c, 2).await, 0);
    c.assert_sound().await;
}

#[tokio::test]
async fn a_server_an_hour_behind_serves_longer_and_revives_nothing() {
    let (c, _dir) = three().await;
    keys(&c).await;
    jump(&c, 2, -(HOUR as i64));
    c.advance(Duration::from_millis(31 * MINUTE));
    assert!(!there(&c, 0, "short").await && !there(&c, 1, "short").await);
    assert!(there(&c, 2, "short").await, "served up to an hour longer until it is removed");
    assert_eq!(sweep(&c, 2).await, 0, "nothing has expired by its clock");
    assert_eq!(sweep(&c, 0).await, 1);
    assert!(!there(&c, 2, "short").await, "the key is removed for all");
    // An expiry set by the late server has already passed for the others: the key is expired there and alive
    // here.
    c.line(2, "SADD late a b c").await;
    c.line(2, "PEXPIRE late 1800000").await;
    assert!(there(&c, 2, "late").await && !there(&c, 0, "late").await);
    assert_eq!(c.line(0, "SADD late d").await, Reply::Int(1), "the set is new, not the rest of the old one");
    assert_eq!(c.line(2, "SCARD late").await, Reply::Int(1));
    assert_eq!(c.line(2, "PTTL late").await, Reply::Int(-1));
    c.assert_sound().await;
}

#[tokio::test]
async fn writes_of_servers_an_hour_apart_agree_on_one_value() {
    for by in JUMPS {
        let (c, _dir) = three().await;
        jump(&c, 1, by);
        for round in 0..40 {
            for n in 0..3 {
                c.line(n, "INCR counter").await;
                c.line(n, &format!("SADD set m{}", round * 3 + n)).await;
            }
        }
        for n in 0..3 {
            assert_eq!(c.line(n, "STRLEN counter").await, Reply::Int(3), "120");
            assert_eq!(c.line(n, "SCARD set").await, Reply::Int(120));
        }
        c.assert_sound().await;
    }
}

async fn forget(c: &Cluster, n: usize, min_age: u64) -> usize {
    let before = c.members[n].server.env.clock.now_ms() - min_age;
    let mut removed = 0;
    for shard in 0..SHARDS {
        removed += idempotency::sweep(c.space(n), shard, &None, before, 100).await.unwrap().removed;
    }
    removed
}

#[tokio::test]
async fn a_command_under_an_id_runs_once_whatever_the_clocks_say() {
    let day = 24 * HOUR;
    for by in JUMPS {
        let (c, _dir) = three().await;
        assert_eq!(under_id(&c, 0, "an-id-of-16-bytes", "INCR n").await, Reply::Int(1));
        jump(&c, 2, by);
        for n in [2, 1, 0, 2] {
            assert_eq!(under_id(&c, n, "an-id-of-16-bytes", "INCR n").await, Reply::Int(1), "server {n}");
        }
        assert_eq!(under_id(&c, 2, "another-id-16-bytes", "INCR n").await, Reply::Int(2));
        assert_eq!(under_id(&c, 0, "another-id-16-bytes", "INCR n").await, Reply::Int(2));
        c.advance(Duration::from_millis(day - HOUR - MINUTE));
        for n in 0..3 {
            assert_eq!(forget(&c, n, day).await, 0, "server {n}: an hour too early at most");
        }
        assert_eq!(under_id(&c, 1, "an-id-of-16-bytes", "INCR n").await, Reply::Int(1));
        c.advance(Duration::from_millis(2 * HOUR + 2 * MINUTE));
        let forgotten = forget(&c, 0, day).await + forget(&c, 2, day).await;
        assert_eq!(forgotten, 2, "an hour too late at most");
        c.assert_sound().await;
    }
}

#[tokio::test]
async fn no_server_is_declared_dead_and_no_lease_ends() {
    const LEASE: u64 = 10 * MINUTE;
    for by in JUMPS {
        let (c, _dir) = three().await;
        let db = c.space(0).catalog.load(&c.store.begin()).await.unwrap().prefix(0).unwrap();
        // Enough objects that each server owns some.
        for _ in 0..30 {
            prebuild(c.space(1), db, &Bytes::from(vec![7; 1000]), LEASE).await.unwrap();
        }
        for n in [1, 2] {
            jump(&c, n, by);
        }
        assert_eq!(c.beats(4, &[0, 1, 2], &[0, 1, 2]).await, [0u64; 0], "no server is dead");
        for n in 0..3 {
            assert_eq!(c.space(n).instances.living(), 3, "in the view of server {n}");
            let taken = reclaim(c.space(n), None, 100).await.unwrap().rows;
            assert_eq!(taken, 0, "server {n} must not reclaim an unfinished object");
        }
        let owners = |unit| (0..3).filter(|n| c.space(*n).instances.owns("expiry", unit)).count();
        assert!((0..100).all(|unit| owners(unit) == 1), "each shard of the work has one owner");
        c.advance(Duration::from_millis(LEASE));
        assert!(
            reclaim(c.space(1), None, 100).await.unwrap().rows > 0,
            "the builder knows that its lease is over"
        );
        c.assert_sound().await;
    }
}
