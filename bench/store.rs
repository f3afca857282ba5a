//! How fast the embedded engine is: `cargo run --release --example bench_store`. Prints a table; `TERN_BENCH_SECONDS` a row (default 2).

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::{Duration, Instant};
use tern::env::{Clock, Rng};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Read, Store};

const KEYS: u64 = 100_000;

fn key(n: u64) -> [u8; 20] {
    let mut key = *b"bench/key/..........";
    key[10..18].copy_from_slice(&n.to_be_bytes());
    key
}

fn row_time() -> Duration {
    Duration::from_secs_f64(
        std::env::var("TERN_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2.0),
    )
}

/// CPU time of this process so far. On a machine that others use it says more than the rate.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Runs `body` in `tasks` tasks for the time of a row: operations a second and CPU microseconds an operation, where each
/// call is `each` of them.
async fn rate<F: Future<Output = ()> + Send>(
    store: &Store,
    tasks: u64,
    each: u64,
    body: impl Fn(Store, Rng) -> F + Send + Clone + 'static,
) -> String {
    let (begun, spent) = (Instant::now(), cpu());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, body) = (store.clone(), body.clone());
            tokio::spawn(async move {
                let (mut rng, mut calls) = (Rng::seeded(task), 0);
                while begun.elapsed() < row_time() {
                    body(store.clone(), rng.fork()).await;
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in running {
        calls += task.await.unwrap();
    }
    let operations = calls as f64 * each as f64;
    let micros = (cpu() - spent).as_secs_f64() * 1e6 / operations;
    format!("{:.0}/s at {micros:.2} us CPU", operations / begun.elapsed().as_secs_f64())
}

async fn write(store: Store, mut rng: Rng, sets: u64) {
    let tx = store.begin();
    for _ in 0..sets {
        tx.set(&key(rng.below(KEYS)), &[7; 100]).unwrap();
    }
    tx.commit().await.unwrap();
}

async fn read(store: Store, mut rng: Rng) {
    let tx = store.begin();
    for _ in 0..100 {
        tx.get(&key(rng.below(KEYS)), Read::Snapshot).await.unwrap();
    }
}

async fn read_one(store: Store, mut rng: Rng) {
    for _ in 0..100 {
        store.begin().get(&key(rng.below(KEYS)), Read::Snapshot).await.unwrap();
    }
}

async fn count(store: Store, mut rng: Rng) {
    let tx = store.begin();
    for _ in 0..10 {
        tx.add(&key(rng.below(100)), &1u64.to_le_bytes()).unwrap();
    }
    tx.commit().await.unwrap();
}

async fn modify(store: Store, mut rng: Rng) {
    let tx = store.begin();
    for _ in 0..10 {
        let key = key(rng.below(KEYS));
        tx.get(&key, Read::Serializable).await.unwrap();
        tx.set(&key, &[8; 100]).unwrap();
    }
    let _ = tx.commit().await; // a conflict is work too
}

/// A store with all keys.
async fn filled(dir: &std::path::Path) -> Store {
    let store = Store::Local(Local::open(dir, LocalOptions::new(Clock::System)).unwrap());
    store.set_fsync(Fsync::No);
    for n in 0..KEYS / 100 {
        let tx = store.begin();
        (n * 100..(n + 1) * 100).for_each(|n| tx.set(&key(n), &[7; 100]).unwrap());
        tx.commit().await.unwrap();
    }
    store
}

async fn writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path()).await;
    for fsync in [Fsync::No, Fsync::Always] {
        store.set_fsync(fsync);
        for tasks in [1, 16, 64] {
            let name = format!("{fsync:?}, {tasks} tasks");
            let before = store.stats();
            let one = rate(&store, tasks, 1, |s, r| write(s, r, 1)).await;
            let after = store.stats();
            let batches = (after.batches - before.batches).max(1);
            println!(
                "{name}: commits of one set: {one} ({:.1} a batch, write {} us, sync {} us)",
                (after.commits - before.commits) as f64 / batches as f64,
                (after.write_micros - before.write_micros) / batches,
                (after.sync_micros - before.sync_micros) / batches,
            );
            println!(
                "{name}: sets in commits of 50: {}",
                rate(&store, tasks, 50, |s, r| write(s, r, 50)).await
            );
            println!("{name}: adds in commits of 10: {}", rate(&store, tasks, 10, count).await);
            println!("{name}: read-writes in commits of 10: {}", rate(&store, tasks, 10, modify).await);
        }
    }
    println!("{:?}", store.stats());
}

async fn gets() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path()).await;
    println!("1 task: gets of one snapshot: {}", rate(&store, 1, 100, read).await);
    println!("16 tasks: gets of one snapshot: {}", rate(&store, 16, 100, read).await);
    println!("16 tasks: gets with a begin each: {}", rate(&store, 16, 100, read_one).await);
    store.close().await.unwrap();
    let store = Store::Local(Local::open(dir.path(), LocalOptions::new(Clock::System)).unwrap());
    println!("16 tasks: gets from tables: {}", rate(&store, 16, 100, read_one).await);
    println!("{:?}", store.stats());
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    gets().await;
    writes().await;
}
