//! How to name a new set member: five ways to get an id, beside each other.
//!
//! ```text
//! cargo run --release --example bench_ids [seconds a cell]
//! ```
//! Every way but the last takes its id in a transaction of its own on the embedded store with `appendfsync always`, as
//! a server would: so tasks share syncs, and conflicts cost whole commits. Leased blocks take 65 536 ids a transaction and hand
//! them out from memory; each task holds its own lease, as each server of a cluster does.
//! Writes `bench/results/ids.md` and `bench/results/ids.svg`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::HashMap;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tern::env::{Clock, Env, Rng};
use tern::error::{Error, StoreError};
use tern::keyspace::alloc;
use tern::keyspace::ids::{BLOCK, Interner};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Read, Store};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const TASKS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Ids that a task takes from its lease at once: as many members as an SADD may bring.
const TAKE: usize = 100;
const SEED: u64 = 7;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Counter,
    Hash,
    Sequences(u32),
    Allocator,
    Leases,
    Interned,
}

const WAYS: [Way; 7] = [
    Way::Counter,
    Way::Hash,
    Way::Sequences(14),
    Way::Sequences(32),
    Way::Allocator,
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

struct Cell {
    per_second: f64,
    conflicts_per_id: f64,
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
        return Ok(black_box(ids.take(TAKE).await?).len() as u64);
    }
    let base = rng.u64();
    let members: Vec<Bytes> = (0..TAKE).map(|n| Bytes::from(format!("member:{base}:{n}"))).collect();
    let tx = store.begin();
    ids.intern(&tx, &members).await?;
    tx.commit().await?;
    Ok(TAKE as u64)
}

async fn task(way: Way, store: Store, tally: Arc<Tally>, seed: u64) {
    let mut rng = Rng::seeded(seed);
    let ids = Interner::new(store.clone(), &Env::seeded(0, seed));
    let mut turn = 0u32;
    while !tally.stop.load(Relaxed) {
        let done = match way {
            Way::Leases | Way::Interned => leased(way, &store, &ids, &mut rng).await,
            _ => one(way, &store, &mut rng).await.map(|id| {
                black_box(id);
                1
            }),
        };
        match done {
            Ok(n) => tally.ids.fetch_add(n, Relaxed),
            Err(Error::Store(StoreError::Conflict)) => tally.conflicts.fetch_add(1, Relaxed),
            Err(e) => panic!("{e:?}"),
        };
        turn += 1;
        if turn.is_multiple_of(256) {
            tokio::task::yield_now().await;
        }
    }
}

/// The median of three measurements, each on a new store.
async fn median(way: Way, tasks: u64, time: Duration) -> Cell {
    let mut cells = Vec::new();
    for _ in 0..3 {
        cells.push(measure(way, tasks, time).await);
    }
    cells.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    cells.swap_remove(1)
}

async fn measure(way: Way, tasks: u64, time: Duration) -> Cell {
    let dir = tempfile::tempdir_in(".").unwrap();
    let store = Store::Local(Local::open(dir.path(), LocalOptions::new(Clock::System)).unwrap());
    let tally = Arc::new(Tally::default());
    let spawn = |n| tokio::spawn(task(way, store.clone(), tally.clone(), SEED + n));
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
    store.close().await.unwrap();
    Cell { per_second: ids as f64 / seconds, conflicts_per_id: conflicts as f64 / ids.max(1) as f64 }
}

/// `n` ids as this way numbers members that eight workers create at the same time.
fn numbered(way: Way, n: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(SEED);
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let leases: Vec<u64> = (0..8).map(|_| rng.below(256) << 54).collect();
    let window = (0..).map(|k| 64u64 << k).find(|w| *w >= 2 * n.max(8192)).unwrap();
    let mut numbers: Vec<u64> = (0..if way == Way::Allocator { window } else { 0 }).collect();
    rng.shuffle(&mut numbers);
    (0..n)
        .map(|i| match way {
            Way::Counter => i,
            Way::Hash => xxh3_64(format!("member:{i}").as_bytes()),
            Way::Sequences(bits) => {
                let sequence = rng.u64() >> (64 - bits);
                let next = counts.entry(sequence).or_default();
                *next += 1;
                sequence << (64 - bits) | *next
            }
            Way::Allocator => numbers[i as usize],
            Way::Leases | Way::Interned => {
                let (worker, nth) = (i as usize % 8, i / 8);
                leases[worker] + ((nth / BLOCK) << 20) + nth % BLOCK
            }
        })
        .collect()
}

fn bytes_a_member(ids: impl Iterator<Item = u64>) -> f64 {
    let mut map: RoaringTreemap = ids.collect();
    map.optimize();
    map.serialized_size() as f64 / map.len() as f64
}

/// Bytes a member of a set of: the first 1 000 members, the first million, and every tenth of ten million at random.
fn sizes(way: Way) -> [f64; 3] {
    let mut rng = Rng::seeded(SEED);
    let all = numbered(way, 10_000_000);
    [
        bytes_a_member(numbered(way, 1_000).into_iter()),
        bytes_a_member(numbered(way, 1_000_000).into_iter()),
        bytes_a_member(all.into_iter().filter(|_| rng.below(10) == 0)),
    ]
}

fn human(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Collisions of a hash of `bits` among `n` members, found and expected.
fn birthday(bits: u32, n: u64) -> (u64, f64) {
    let mut hashes: Vec<u64> =
        (0..n).map(|i| xxh3_64(format!("member:{i}").as_bytes()) >> (64 - bits)).collect();
    hashes.sort_unstable();
    let found = hashes.windows(2).filter(|w| w[0] == w[1]).count() as u64;
    (found, expected(bits, n as f64))
}

fn expected(bits: u32, n: f64) -> f64 {
    n * (n - 1.0) / 2.0 / 2f64.powi(bits as i32)
}

fn report(cells: &[(Way, Vec<Cell>)], machine: &str, seconds: f64) -> String {
    let mut out = String::from("# Ids for new members\n\n");
    let _ = writeln!(
        out,
        "{machine}; {}; embedded store, `appendfsync always`; a cell is the median of three times {seconds} s.\n",
        if cfg!(debug_assertions) { "development build" } else { "release build" }
    );
    out.push_str("![ids a second](ids.svg)\n\n## Ids a second (conflicts an id)\n\n| |");
    for tasks in TASKS {
        let _ = write!(out, " {tasks} task{} |", if tasks == 1 { "" } else { "s" });
    }
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(TASKS.len()));
    for (way, row) in cells {
        let _ = write!(out, "| {} |", way.name());
        for cell in row {
            let _ = write!(out, " {} ({:.2}) |", human(cell.per_second), cell.conflicts_per_id);
        }
        out.push('\n');
    }
    out.push_str(
        "\n## Bytes a member in a Roaring bitmap\n\nEight workers create members at the same time.\n\n",
    );
    out.push_str("| | first 1 000 | first 1 M | 1 M of 10 M at random |\n|---|---:|---:|---:|\n");
    for way in WAYS.into_iter().filter(|w| *w != Way::Interned) {
        let [a, b, c] = sizes(way);
        let _ = writeln!(out, "| {} | {a:.2} | {b:.2} | {c:.2} |", way.name());
    }
    out.push_str("\n## Birthdays\n\nPairs of members with one hash, and n(n-1)/2^(bits+1).\n\n");
    out.push_str("| hash | members | found | expected |\n|---|---:|---:|---:|\n");
    for (bits, n) in [(24, 10_000), (32, 100_000), (32, 1_000_000), (40, 2_000_000)] {
        let (found, expected) = birthday(bits, n);
        let _ = writeln!(out, "| xxHash, top {bits} bits | {} | {found} | {expected:.1} |", human(n as f64));
    }
    for n in [1e6, 1e9, 6e9] {
        let _ = writeln!(out, "| xxHash, 64 bits | {n:.0e} | | {:.2e} |", expected(64, n));
    }
    out
}

/// Ids a second over tasks, both logarithmic.
fn plot(cells: &[(Way, Vec<Cell>)]) -> String {
    let (width, height, left, top) = (860.0, 460.0, 70.0, 40.0);
    let (plot_width, plot_height) = (460.0, 370.0);
    let x = |tasks: u64| left + (tasks as f64).log2() / 6.0 * plot_width;
    let y = |v: f64| top + plot_height - (v.max(10.0).log10() - 1.0) / 8.0 * plot_height;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"22\" font-size=\"15\">Ids a second over concurrent tasks</text>\n"
    );
    for power in 1..=9 {
        let v = 10f64.powi(power);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + plot_width,
            left - 8.0,
            y(v) + 4.0,
            human(v),
            y = y(v),
        );
    }
    for tasks in TASKS {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{tasks}</text>",
            x(tasks),
            top + plot_height + 20.0
        );
    }
    for (n, (way, row)) in cells.iter().enumerate() {
        let points: Vec<String> =
            TASKS.iter().zip(row).map(|(t, c)| format!("{:.1},{:.1}", x(*t), y(c.per_second))).collect();
        let (color, legend) = (way.color(), top + 14.0 + n as f64 * 22.0);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\
             <rect x=\"{}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{legend}\">{}</text>",
            points.join(" "),
            left + plot_width + 24.0,
            legend - 6.0,
            left + plot_width + 46.0,
            way.name()
        );
    }
    out.push_str("</svg>\n");
    out
}

/// What the figures were measured on.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or(": unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {cores} cores of {}", date(), model.trim_start_matches(['\t', ' ', ':']))
}

/// Today in UTC: year, month and day of the proleptic Gregorian calendar.
fn date() -> String {
    let days = Clock::System.now_ms() / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(1.0, |s| s.parse().expect("seconds"));
    let mut cells = Vec::new();
    for way in WAYS {
        let mut row = Vec::new();
        for tasks in TASKS {
            let cell = median(way, tasks, Duration::from_secs_f64(seconds)).await;
            println!(
                "{:<38} {tasks:>3} tasks {:>12.0} ids/s {:>8.3} conflicts an id",
                way.name(),
                cell.per_second,
                cell.conflicts_per_id
            );
            row.push(cell);
        }
        cells.push((way, row));
    }
    let text = report(&cells, &machine(), seconds);
    println!("{text}");
    std::fs::create_dir_all("bench/results").unwrap();
    std::fs::write("bench/results/ids.md", text).unwrap();
    std::fs::write("bench/results/ids.svg", plot(&cells)).unwrap();
}
