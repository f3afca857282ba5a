//! What exactly-once costs on FoundationDB: the same transactions with a slot's key, with FoundationDB's automatic idempotency,
//! and with neither.
//!
//! ```text
//! cargo run --release --features fdb --example bench_exactly_once <cluster file> [seconds a cell] [rounds]
//! ```
//! A transaction reads and writes one key or 16 keys, as SET does, or only writes them. The ways take turns in each round; a
//! figure is the median of the rounds. CPU time is of this process and of the fdbservers on this machine that were started with
//! this cluster file (by its name as given here), a transaction.
//!
//! The library is used directly: the ways must differ in nothing else. Raw option 504 is `IDEMPOTENCY_ID`, to be set before 505,
//! which otherwise makes an id of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use foundationdb::options::{ConflictRangeType, TransactionOption};
use foundationdb::{Database, FdbResult, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tern::env::{Clock, Env, Rng};
use tern::store::fdb::{Fdb, FdbOptions, FdbTls};

const KEYS: u64 = 100_000;
const VALUE: [u8; 100] = [7; 100];
const IDEMPOTENCY_ID: u32 = 504;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Nothing,
    Slot,
    OwnId,
    GeneratedId,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Nothing, "nothing"),
    (Way::Slot, "slot's key"),
    (Way::OwnId, "idempotency, own id"),
    (Way::GeneratedId, "idempotency, generated id"),
];

#[derive(Clone, Copy)]
struct Load {
    reads: bool,
    sets: u64,
    tasks: u64,
}

const LOADS: [Load; 6] = [
    Load { reads: true, sets: 1, tasks: 1 },
    Load { reads: true, sets: 1, tasks: 50 },
    Load { reads: true, sets: 16, tasks: 1 },
    Load { reads: true, sets: 16, tasks: 50 },
    Load { reads: false, sets: 1, tasks: 50 },
    Load { reads: false, sets: 16, tasks: 50 },
];

impl Load {
    fn name(self) -> String {
        let what = if self.reads { "read and set" } else { "set" };
        let keys = if self.sets == 1 { "1 key".into() } else { format!("{} keys", self.sets) };
        format!("{what} {keys}, {} at once", self.tasks)
    }
}

/// What one task repeats.
struct Worker {
    database: Arc<Database>,
    way: Way,
    load: Load,
    slot: Vec<u8>,
    number: u64,
    rng: Rng,
}

impl Worker {
    fn key(&mut self) -> Vec<u8> {
        format!("bench/exactly-once/{:08}", self.rng.below(KEYS)).into_bytes()
    }

    async fn transaction(&mut self) -> FdbResult<()> {
        let tx = self.database.create_trx()?;
        let keys: Vec<Vec<u8>> = (0..self.load.sets).map(|_| self.key()).collect();
        if self.load.reads {
            futures_util::future::try_join_all(keys.iter().map(|key| tx.get(key, true))).await?;
        }
        keys.iter().for_each(|key| tx.set(key, &VALUE));
        self.protect(&tx)?;
        tx.commit().await?;
        Ok(())
    }

    fn protect(&mut self, tx: &Transaction) -> FdbResult<()> {
        match self.way {
            Way::Nothing => {}
            Way::Slot => {
                self.number += 1;
                let end = [&self.slot[..], &[0]].concat();
                tx.add_conflict_range(&self.slot, &end, ConflictRangeType::Read)?;
                tx.set(&self.slot, &self.number.to_le_bytes());
            }
            Way::OwnId => {
                tx.set_raw_option(IDEMPOTENCY_ID, Some(self.rng.u128().to_le_bytes().to_vec()))?;
                tx.set_option(TransactionOption::AutomaticIdempotency)?;
            }
            Way::GeneratedId => tx.set_option(TransactionOption::AutomaticIdempotency)?,
        }
        Ok(())
    }

    /// Latencies in microseconds, until it is stopped.
    async fn run(mut self, stop: Arc<AtomicBool>) -> Vec<u64> {
        let mut latencies = Vec::new();
        while !stop.load(Relaxed) {
            let since = Instant::now();
            self.transaction().await.unwrap();
            latencies.push(since.elapsed().as_micros() as u64);
        }
        latencies
    }
}

#[derive(Clone, Copy, Default)]
struct Cell {
    per_second: f64,
    p50: f64,
    p99: f64,
    client_cpu: f64,
    server_cpu: f64,
    written: f64,
}

async fn measure(database: &Arc<Database>, way: Way, load: Load, time: Duration, servers: &[u32]) -> Cell {
    let stop = Arc::new(AtomicBool::new(false));
    let cpu = || (cpu(std::process::id()), servers.iter().map(|p| self::cpu(*p)).sum::<Duration>());
    let (before, wrote, since) = (cpu(), written(servers), Instant::now());
    let worker = |n| {
        let slot = format!("bench/exactly-once/slot/{n:04}").into_bytes();
        let database = database.clone();
        tokio::spawn(
            Worker { database, way, load, slot, number: 0, rng: Env::system().rng() }.run(stop.clone()),
        )
    };
    let workers: Vec<_> = (0..load.tasks).map(worker).collect();
    tokio::time::sleep(time).await;
    stop.store(true, Relaxed);
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.await.unwrap());
    }
    let (seconds, after) = (since.elapsed().as_secs_f64(), cpu());
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let count = latencies.len() as f64;
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / count;
    Cell {
        per_second: count / seconds,
        p50: at(0.5),
        p99: at(0.99),
        client_cpu: each(after.0 - before.0),
        server_cpu: each(after.1 - before.1),
        written: (written(servers) - wrote) as f64 / count,
    }
}

/// CPU time of a process so far.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Bytes that the servers have written to files so far.
fn written(servers: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        io.lines().find_map(|l| l.strip_prefix("wchar: ")?.parse::<u64>().ok()).unwrap_or_default()
    };
    servers.iter().map(of).sum()
}

/// The fdbservers of this machine that were started with `cluster_file`.
fn servers(cluster_file: &str) -> Vec<u32> {
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        words[0].ends_with(b"fdbserver") && words.contains(&cluster_file.as_bytes())
    };
    processes.filter_map(|name| name.parse().ok()).filter(is_one).collect()
}

fn median(cells: &[Cell]) -> Cell {
    let of = |field: fn(&Cell) -> f64| {
        let mut values: Vec<f64> = cells.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Cell {
        per_second: of(|c| c.per_second),
        p50: of(|c| c.p50),
        p99: of(|c| c.p99),
        client_cpu: of(|c| c.client_cpu),
        server_cpu: of(|c| c.server_cpu),
        written: of(|c| c.written),
    }
}

fn print(load: Load, name: &str, cell: Cell, base: Cell) {
    let more = |value: f64, base: f64| format!("{:+.0} %", (value / base - 1.0) * 100.0);
    println!(
        "| {} | {name} | {:.0} ({}) | {:.2} | {:.2} | {:.0} | {:.0} ({}) | {:.0} |",
        load.name(),
        cell.per_second,
        more(cell.per_second, base.per_second),
        cell.p50,
        cell.p99,
        cell.client_cpu,
        cell.server_cpu,
        more(cell.server_cpu + cell.client_cpu, base.server_cpu + base.client_cpu),
        cell.written
    );
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().expect("a cluster file");
    let time = Duration::from_secs_f64(args.next().map_or(2.0, |s| s.parse().expect("seconds a cell")));
    let rounds = args.next().map_or(5, |s| s.parse().expect("rounds"));
    // Starts the library's network.
    let _network = Fdb::open(FdbOptions {
        cluster_file: file.clone().into(),
        namespace: "bench-exactly-once".into(),
        timeout: Duration::from_secs(10),
        tls: FdbTls::default(),
        clock: Clock::System,
    })
    .await
    .unwrap();
    let database = Arc::new(Database::from_path(&file).unwrap());
    let servers = servers(&file);
    println!(
        "{} fdbserver processes, {} s a cell, medians of {rounds} rounds\n",
        servers.len(),
        time.as_secs_f64()
    );
    println!(
        "| load | exactly once by | transactions/s | p50 ms | p99 ms | client CPU us | servers' CPU us (both) | bytes written |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for load in LOADS {
        let mut cells: [Vec<Cell>; WAYS.len()] = Default::default();
        for round in 0..rounds {
            for n in 0..WAYS.len() {
                let at = (n + round) % WAYS.len();
                cells[at].push(measure(&database, WAYS[at].0, load, time, &servers).await);
            }
        }
        let base = median(&cells[0]);
        WAYS.iter().zip(&cells).for_each(|((_, name), cells)| print(load, name, median(cells), base));
    }
    let tx = database.create_trx().unwrap();
    tx.clear_range(b"bench/exactly-once/", b"bench/exactly-once0");
    tx.commit().await.unwrap();
}
