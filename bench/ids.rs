//! How to name a new set member: six ways to get an id, beside each other.
//!
//! ```text
//! cargo run --release [--features fdb] --example bench_ids [--store fdb:<cluster file>] [--ways n,n...] \
//!     [--note <of the cluster>] [--report] [seconds a cell]
//! ```
//! Every way but the last takes its id in a transaction of its own, on the embedded store with `appendfsync always` or on
//! FoundationDB, as a server would: so tasks share syncs, and conflicts cost whole commits. Leased blocks take 65 536 ids a
//! transaction and hand them out from memory; each task holds its own lease, as each server of a cluster does. FoundationDB's
//! own allocator is that of its directory layer (`tuple::hca`), which ours follows.
//!
//! On FoundationDB several processes are measured too: this program, started again with `--worker`. `--ways` takes some ways
//! only, by their number from 0. A run puts its figures into `bench/results/ids.csv`, and writes `ids.md` and `ids.svg` of
//! all that is there, with what has been written under "What it says" kept; `--report` only writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[cfg(feature = "fdb")]
#[path = "ids/cluster.rs"]
mod cluster;
#[path = "ids/figures.rs"]
mod figures;
#[path = "ids/report.rs"]
mod report;

use bytes::Bytes;
use figures::{Cell, Figures, Place};
use report::{PARTS, Part, machine, plot};
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tern::env::{Clock, Env, Rng};
use tern::error::Error;
use tern::keyspace::alloc;
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::dictionary::interner::Interner;
use tern::store::local::{Local, LocalOptions};
use tern::store::{Read, Store};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Ids that a task takes from its lease at once: as many members as an SADD may bring.
const TAKE: usize = 100;
const SEED: u64 = 7;
const REPORT: &str = "bench/results/ids.md";
/// What processes have to start and open the store, in ms.
const START_MS: u64 = 1500;

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    Counter,
    Hash,
    Sequences(u32),
    Allocator,
    Native,
    Leases,
    Interned,
}

const ALL_WAYS: [Way; 8] = [
    Way::Counter,
    Way::Hash,
    Way::Sequences(14),
    Way::Sequences(32),
    Way::Allocator,
    Way::Native,
    Way::Leases,
    Way::Interned,
];

impl Way {
    fn name(self) -> String {
        match self {
            Way::Counter => "naive counter".into(),
            Way::Hash => "64-bit xxHash, checked".into(),
            Way::Sequences(bits) => format!("random one of 2^{bits} sequences"),
            Way::Allocator => "high-contention allocator".into(),
            Way::Native => "FoundationDB's own allocator".into(),
            Way::Leases => "leased blocks".into(),
            Way::Interned => "leased blocks, 100 members interned".into(),
        }
    }
    fn color(self) -> &'static str {
        match self {
            Way::Counter => "#c0392b",
            Way::Hash => "#8e44ad",
            Way::Sequences(14) => "#e67e22",
            Way::Sequences(_) => "#b7950b",
            Way::Allocator => "#2471a3",
            Way::Native => "#85c1e9",
            Way::Leases => "#1e8449",
            Way::Interned => "#117a65",
        }
    }
}

#[derive(Default)]
struct Tally {
    ids: AtomicU64,
    conflicts: AtomicU64,
    stop: AtomicBool,
}

/// Where ids are taken: empty when it is opened, and gone when it is closed.
struct Ground {
    store: Store,
    #[cfg(feature = "fdb")]
    native: Option<Arc<cluster::Native>>,
    _dir: Option<TempDir>,
}

impl Ground {
    /// `fdb:<cluster file>` or `local`; who opens the same `name` on a cluster meets there.
    async fn open(store: &str, name: &str) -> Self {
        #[cfg(feature = "fdb")]
        if let Some(file) = store.strip_prefix("fdb:") {
            let (store, native) = cluster::open(file, name).await;
            return Ground { store, native: Some(Arc::new(native)), _dir: None };
        }
        assert_eq!(store, "local", "{name} is on FoundationDB: build with --features fdb");
        let dir = tempfile::tempdir_in(".").unwrap();
        let store = Store::Local(Local::open(dir.path(), LocalOptions::new(Clock::System)).unwrap());
        Ground {
            store,
            #[cfg(feature = "fdb")]
            native: None,
            _dir: Some(dir),
        }
    }

    async fn close(self) {
        #[cfg(feature = "fdb")]
        if let Some(native) = &self.native {
            cluster::clear(&self.store, native).await;
        }
        self.store.close().await.unwrap();
    }
}

/// One id in one transaction: its number, or why the transaction has to run again.
async fn one(way: Way, store: &Store, rng: &mut Rng) -> Result<u64, Error> {
    let tx = store.begin();
    let id = match way {
        Way::Counter => next_of(&tx, b"counter").await?,
        Way::Hash => hashed(&tx, format!("member:{}", rng.u64()).as_bytes()).await?,
        Way::Sequences(bits) => {
            let sequence = rng.u64() >> (64 - bits);
            let mut row = b"sequence:".to_vec();
            row.extend_from_slice(&sequence.to_be_bytes());
            sequence << (64 - bits) | next_of(&tx, &row).await?
        }
        _ => u64::from(alloc::allocate(&tx, rng).await?),
    };
    tx.commit().await?;
    Ok(id)
}

async fn next_of(tx: &tern::store::Tx, row: &[u8]) -> Result<u64, Error> {
    let last = tx.get(row, Read::Serializable).await?;
    let next = last.map_or(0, |raw| u64::from_le_bytes(raw[..].try_into().unwrap())) + 1;
    tx.set(row, &next.to_le_bytes())?;
    Ok(next)
}

/// The first of a member's hashes that no other member has.
async fn hashed(tx: &tern::store::Tx, member: &[u8]) -> Result<u64, Error> {
    let mut salt = 0;
    loop {
        let id = xxh3_64_with_seed(member, salt);
        let mut row = b"hash:".to_vec();
        row.extend_from_slice(&id.to_be_bytes());
        match tx.get(&row, Read::Serializable).await? {
            Some(other) if other != member => salt += 1,
            Some(_) => return Ok(id),
            None => {
                tx.set(&row, member)?;
                return Ok(id);
            }
        }
    }
}

async fn leased(way: Way, store: &Store, ids: &Interner, rng: &mut Rng) -> Result<u64, Error> {
    if way == Way::Leases {
        return Ok(black_box(ids.take(&store.begin(), TAKE).await?).len() as u64);
    }
    let base = rng.u64();
    let members: Vec<Bytes> = (0..TAKE).map(|n| Bytes::from(format!("member:{base}:{n}"))).collect();
    let tx = store.begin();
    ids.intern(&tx, Round::default(), &members).await?;
    tx.commit().await?;
    Ok(TAKE as u64)
}

/// Some ids by `way`: how many.
async fn some(way: Way, ground: &Ground, ids: &Interner, rng: &mut Rng) -> Result<u64, Error> {
    match way {
        Way::Leases | Way::Interned => return leased(way, &ground.store, ids, rng).await,
        #[cfg(feature = "fdb")]
        Way::Native => {
            let native = ground.native.as_ref().expect("FoundationDB's allocator needs FoundationDB");
            black_box(native.one().await?);
        }
        _ => {
            black_box(one(way, &ground.store, rng).await?);
        }
    }
    Ok(1)
}

async fn task(way: Way, ground: Arc<Ground>, tally: Arc<Tally>, seed: u64) {
    let mut rng = Rng::seeded(seed);
    let ids = Interner::new(ground.store.clone(), &Env::seeded(0, seed));
    let mut turn = 0u32;
    while !tally.stop.load(Relaxed) {
        match some(way, &ground, &ids, &mut rng).await {
            Ok(n) => tally.ids.fetch_add(n, Relaxed),
            Err(Error::Store(e)) if e.is_retryable() => tally.conflicts.fetch_add(1, Relaxed),
            Err(e) => panic!("{e:?}"),
        };
        turn += 1;
        if turn.is_multiple_of(256) {
            tokio::task::yield_now().await;
        }
    }
}

/// The median of three measurements, each on a new store.
async fn median(way: Way, store: &str, tasks: u64, time: Duration) -> Cell {
    let mut cells = Vec::new();
    for _ in 0..3 {
        let ground = Arc::new(Ground::open(store, &unused_name()).await);
        cells.push(measure(way, &ground, tasks, time, SEED).await);
        Arc::into_inner(ground).unwrap().close().await;
    }
    cells.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    cells.swap_remove(1)
}

fn unused_name() -> String {
    format!("bench-ids-{:016x}", Env::system().rng().u64())
}

async fn measure(way: Way, ground: &Arc<Ground>, tasks: u64, time: Duration, seed: u64) -> Cell {
    let tally = Arc::new(Tally::default());
    let spawn = |n| tokio::spawn(task(way, ground.clone(), tally.clone(), seed + n));
    let handles: Vec<_> = (0..tasks).map(spawn).collect();
    tokio::time::sleep(time / 5).await;
    let (ids, conflicts) = (tally.ids.load(Relaxed), tally.conflicts.load(Relaxed));
    let since = Instant::now();
    tokio::time::sleep(time).await;
    let ids = tally.ids.load(Relaxed) - ids;
    let conflicts = tally.conflicts.load(Relaxed) - conflicts;
    let seconds = since.elapsed().as_secs_f64();
    tally.stop.store(true, Relaxed);
    for handle in handles {
        handle.await.unwrap();
    }
    Cell { per_second: ids as f64 / seconds, conflicts_per_id: conflicts as f64 / ids.max(1) as f64 }
}

/// The sum of `processes` that measure at the same time.
async fn together(way: Way, store: &str, processes: u64, tasks: u64, time: Duration) -> Cell {
    let name = unused_name();
    let ground = Ground::open(store, &name).await;
    let begin = Clock::System.now_ms() + START_MS;
    let spawn = |n: u64| {
        let number = ALL_WAYS.iter().position(|w| *w == way).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--store", store, "--worker", &name, "--ways", &number.to_string()]);
        command.args([tasks, begin, SEED + n * 1000].map(|n| n.to_string()));
        command.arg(time.as_secs_f64().to_string()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let workers: Vec<Child> = (0..processes).map(spawn).collect();
    let (mut ids, mut conflicts) = (0.0, 0.0);
    for worker in workers {
        let text = String::from_utf8(worker.wait_with_output().unwrap().stdout).unwrap();
        let (per_second, per_id) = text.trim().split_once(' ').expect("a worker's figures");
        let per_second: f64 = per_second.parse().unwrap();
        ids += per_second;
        conflicts += per_second * per_id.parse::<f64>().unwrap();
    }
    ground.close().await;
    Cell { per_second: ids, conflicts_per_id: conflicts / ids.max(1.0) }
}

/// One of several processes: measures from the given time on, and prints its figures.
async fn work(arguments: &Arguments, name: &str) {
    let [tasks, begin, seed, _] = arguments.numbers[..] else { panic!("a worker's numbers") };
    let ground = Arc::new(Ground::open(&arguments.store, name).await);
    let wait = (begin as u64).saturating_sub(Clock::System.now_ms());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    let (way, time) = (arguments.ways[0], Duration::from_secs_f64(arguments.numbers[3]));
    let cell = measure(way, &ground, tasks as u64, time, seed as u64).await;
    println!("{} {}", cell.per_second, cell.conflicts_per_id);
}

struct Arguments {
    store: String,
    ways: Vec<Way>,
    worker: Option<String>,
    /// Said of the store beside its figures.
    note: Option<String>,
    report: bool,
    numbers: Vec<f64>,
}

fn arguments() -> Arguments {
    let mut out = Arguments {
        store: "local".into(),
        ways: ALL_WAYS.to_vec(),
        worker: None,
        note: None,
        report: false,
        numbers: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} of what?"));
        match &arg[..] {
            "--store" => out.store = value(),
            "--worker" => out.worker = Some(value()),
            "--note" => out.note = Some(value()),
            "--report" => out.report = true,
            "--ways" => {
                out.ways = value().split(',').map(|n| ALL_WAYS[n.parse::<usize>().unwrap()]).collect()
            }
            number => out.numbers.push(number.parse().expect("seconds")),
        }
    }
    out
}

async fn column(part: &Part, way: Way, store: &str, (processes, tasks): (u64, u64), time: Duration) -> Cell {
    let cell = match processes {
        1 => median(way, store, tasks, time).await,
        _ => together(way, store, processes, tasks, time * 3).await,
    };
    println!(
        "{} {:<38} {processes} x {tasks:>3} tasks {:>12.0} ids/s {:>8.3} conflicts an id",
        part.title,
        way.name(),
        cell.per_second,
        cell.conflicts_per_id
    );
    cell
}

#[tokio::main]
async fn main() {
    let arguments = arguments();
    if let Some(name) = &arguments.worker {
        return work(&arguments, name).await;
    }
    let mut figures = Figures::load();
    if !arguments.report {
        run(&arguments, &mut figures).await;
        figures.save();
    }
    let text = report::report(&figures, &std::fs::read_to_string(REPORT).unwrap_or_default());
    println!("{text}");
    std::fs::write(REPORT, text).unwrap();
    std::fs::write("bench/results/ids.svg", plot(&figures)).unwrap();
}

async fn run(arguments: &Arguments, figures: &mut Figures) {
    let seconds = arguments.numbers.first().copied().unwrap_or(1.0);
    let kind = arguments.store.split(':').next().unwrap_or_default();
    let part = PARTS.iter().find(|part| part.store == kind).expect("local or fdb:<cluster file>");
    for way in arguments.ways.iter().filter(|way| kind == "fdb" || **way != Way::Native) {
        for (processes, tasks) in part.columns() {
            let time = Duration::from_secs_f64(seconds);
            let cell = column(part, *way, &arguments.store, (processes, tasks), time).await;
            let place = Place { store: kind.into(), way: way.name(), processes, tasks };
            figures.cells.insert(place, cell);
        }
    }
    let said = arguments.note.iter().fold(note(part, seconds), |all, note| format!("{all} {note}"));
    figures.notes.insert(kind.into(), said);
}

fn note(part: &Part, seconds: f64) -> String {
    let build = if cfg!(debug_assertions) { "development build" } else { "release build" };
    let how = match part.store {
        "local" => "`appendfsync always`".to_owned(),
        _ => format!(
            "cluster and load on one machine; n x m: n processes with m tasks each, once {} s",
            seconds * 3.0
        ),
    };
    format!("{}; {build}; {how}; a cell is the median of three times {seconds} s.", machine())
}
