//! What FoundationDB's client library reaches here without Redis: gets and sets a second, one or 16 in a transaction, from 50
//! tasks. `bench/cluster.py --ceiling` runs it on its cluster.
//!
//! ```text
//! cargo run --release --features fdb --example bench_ceiling <cluster file> [seconds a cell]
//! ```
//! A set does not read: the ceiling of SET, which must know what it replaces, is a little lower.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use foundationdb::{Database, FdbResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tern::env::{Clock, Env, Rng};
use tern::store::fdb::{Fdb, FdbOptions, FdbTls};

const TASKS: usize = 50;
const KEYS: u64 = 100_000;
const VALUE: [u8; 100] = [7; 100];

#[derive(Clone, Copy)]
enum Work {
    Get,
    Set,
}

async fn transaction(database: &Database, work: Work, keys: usize, rng: &mut Rng) -> FdbResult<()> {
    let tx = database.create_trx()?;
    let keys: Vec<Vec<u8>> =
        (0..keys).map(|_| format!("bench/ceiling/{:08}", rng.below(KEYS)).into_bytes()).collect();
    match work {
        Work::Get => {
            futures_util::future::try_join_all(keys.iter().map(|key| tx.get(key, true))).await?;
        }
        Work::Set => {
            keys.iter().for_each(|key| tx.set(key, &VALUE));
            tx.commit().await?;
        }
    }
    Ok(())
}

/// Transactions a second.
async fn measure(database: &Arc<Database>, work: Work, keys: usize, time: Duration) -> f64 {
    let (stop, since) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (database, stop, mut rng) = (database.clone(), stop.clone(), Env::system().rng());
            tokio::spawn(async move {
                let mut count = 0u64;
                while !stop.load(Relaxed) {
                    transaction(&database, work, keys, &mut rng).await.unwrap();
                    count += 1;
                }
                count
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Relaxed);
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    count as f64 / since.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().expect("a cluster file");
    let time = Duration::from_secs_f64(args.next().map_or(2.0, |s| s.parse().expect("seconds a cell")));
    // Starts the library's network.
    let _network = Fdb::open(FdbOptions {
        cluster_file: file.clone().into(),
        namespace: "bench-ceiling".into(),
        timeout: Duration::from_secs(10),
        tls: FdbTls::default(),
        clock: Clock::System,
    })
    .await
    .unwrap();
    let database = Arc::new(Database::from_path(&file).unwrap());
    for keys in [1, 16] {
        // Sets come first, so that the gets find something.
        for (name, work) in [("SET", Work::Set), ("GET", Work::Get)] {
            let each = measure(&database, work, keys, time).await;
            println!("{name} {keys} {:.0}", each * keys as f64);
        }
    }
    tern::store::fdb::stop();
}
