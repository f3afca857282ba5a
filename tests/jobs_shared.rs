//! Hazard: each server does all of the background work or all of them conflict over it; idle servers load the
//! store; or the work waits for a server that is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;

use bytes::Bytes;
use cluster::Cluster;
use std::time::{Duration, Instant};
use tern::server::reply::Reply;
use tern::store::faulty::Traffic;

const SERVERS: usize = 3;
const IDLE: Duration = Duration::from_secs(3);

fn start(c: &Cluster) {
    for member in &c.members {
        tern::jobs::spawn(&member.server);
    }
}

fn stop(c: &Cluster) {
    for member in &c.members {
        member.server.stop.send_replace(true);
    }
}

/// The store traffic of all servers in [`IDLE`] without client requests.
async fn idle(c: &Cluster) -> Traffic {
    let before = c.faulty.traffic();
    tokio::time::sleep(IDLE).await;
    let after = c.faulty.traffic();
    Traffic {
        transactions: after.transactions - before.transactions,
        reads: after.reads - before.reads,
        commits: after.commits - before.commits,
    }
}

fn words(line: String) -> Vec<Bytes> {
    line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()
}

async fn wait_until_empty(c: &Cluster, patience: Duration) {
    let since = Instant::now();
    while c.line(0, "DBSIZE").await != Reply::Int(0) {
        assert!(since.elapsed() < patience, "all keys must be removed within {patience:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_servers_load_the_store_little() {
    let c = Cluster::on_system_clock(SERVERS).await;
    start(&c);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let databases = u64::from(c.space(0).catalog.databases());
    let seconds = IDLE.as_secs() + 1;
    let traffic = idle(&c).await;
    println!("idle, no expiry: {traffic:?} in {IDLE:?}");
    assert!(traffic.reads > 0, "the servers must scan");
    assert!(traffic.reads <= SERVERS as u64 * seconds * (databases + 4), "{traffic:?}");
    assert!(traffic.transactions <= SERVERS as u64 * seconds * 4, "{traffic:?}");
    for n in 0..500 {
        c.run(n % SERVERS, words(format!("SET key:{n} v EX {}", 1000 + n))).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let traffic = idle(&c).await;
    println!("idle, 500 expiries: {traffic:?} in {IDLE:?}");
    let shards = u64::from(tern::keyspace::keys::SHARDS);
    assert!(traffic.reads <= seconds * (SERVERS as u64 * (databases + 4) + shards), "{traffic:?}");
    assert!(traffic.commits <= SERVERS as u64 * seconds, "without due keys: {traffic:?}");
    stop(&c);
    c.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_expiry_set_by_another_server_is_seen_in_time() {
    let c = Cluster::on_system_clock(SERVERS).await;
    c.line(0, "SET far v EX 100").await;
    start(&c);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for n in 0..64 {
        c.run(n % SERVERS, words(format!("SET near:{n} v PX 200"))).await;
    }
    c.line(0, "DEL far").await;
    // 200 ms, a second until the next scan, and an allowance for a busy machine.
    wait_until_empty(&c, Duration::from_secs(4)).await;
    stop(&c);
    c.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_is_removed_once_and_all_servers_take_part() {
    const KEYS: usize = 1500;
    let c = Cluster::on_system_clock(SERVERS).await;
    for n in 0..KEYS {
        c.run(n % SERVERS, words(format!("SET key:{n} v PX 1"))).await;
    }
    start(&c);
    wait_until_empty(&c, Duration::from_secs(30)).await;
    stop(&c);
    let removed: Vec<u64> = c.members.iter().map(|m| m.server.telemetry.expired.get()).collect();
    assert_eq!(removed.iter().sum::<u64>(), KEYS as u64, "{removed:?}");
    assert!(removed.iter().all(|n| *n > 0), "{removed:?}");
    c.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_server_that_is_gone_is_taken_over() {
    let c = Cluster::new(2).await;
    c.beats(2, &[0, 1], &[0, 1]).await;
    for n in 0..200 {
        c.run(0, words(format!("SET key:{n} v PX 1"))).await;
    }
    c.line(0, "SETRANGE long 50000 x").await;
    c.line(0, "DEL long").await;
    // Only server 0 continues; the test sends its heartbeats, so that time passes quickly.
    c.beats(6, &[0], &[0]).await;
    tern::jobs::spawn(&c.members[0].server);
    wait_until_empty(&c, Duration::from_secs(10)).await;
    let (from, to) = tern::keyspace::keys::root::garbage_range();
    let since = Instant::now();
    while !c.keys(&from, &to).await.is_empty() {
        assert!(since.elapsed() < Duration::from_secs(10), "all garbage must be removed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop(&c);
    c.assert_sound().await;
}
