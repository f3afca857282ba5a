//! A soak of the embedded engine: tiny memtables, hot keys, long readers, SIGKILL, compared with a model.
//!
//! A child process (this binary again) runs tasks that read, modify and write; the parent kills it at a
//! random moment, opens the store, and compares it with the child's acknowledgements on its standard output.
//! Each transaction of task t:
//!
//! * moves an amount between two of 64 accounts, whose sum is constant;
//! * increments one of four hot counters and `task/t`: both sums are always equal;
//! * appends `log/t/n` and clears the entry 50 behind: the log is always the last 50 numbers up to `task/t`.
//!
//! Readers hold one snapshot for up to 4.8 s and read everything repeatedly: it must satisfy these rules (not
//! torn) and be the same each time (not moved). Every third life runs on a disk whose writes and syncs fail
//! now and then.
//!
//! `TERN_SOAK_SECONDS` (default 10) sets the duration.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tern::env::{Clock, Rng};
use tern::error::{StoreError, StoreResult};
use tern::store::local::{DiskFaults, Local, LocalOptions};
use tern::store::{Fsync, MAX_AGE, RangeOptions, Read, Store, Tx};

const CHILD: &str = "TERN_SOAK_CHILD";
const TASKS: u64 = 16;
const ACCOUNTS: u64 = 64;
const START: u64 = 1000;
const HOT: u64 = 4;
const LOG: u64 = 50;

fn key(folder: &str, id: u64) -> Vec<u8> {
    [folder.as_bytes(), b"/", &id.to_be_bytes()].concat()
}

fn log_key(task: u64, n: u64) -> Vec<u8> {
    [key("log", task), n.to_be_bytes().to_vec()].concat()
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// A number, padded so that tables fill.
fn padded(n: u64) -> Vec<u8> {
    n.to_be_bytes().repeat(25)
}

fn open(dir: &Path, fsync: Fsync, disk: &Arc<DiskFaults>) -> Store {
    let mut options = LocalOptions::new(Clock::System);
    options.fsync = fsync;
    options.write_buffer = 64 << 10;
    options.block_cache = 256 << 10;
    options.value_cache = 256 << 10;
    options.faults = Some(disk.clone());
    Store::Local(Local::open(dir, options).unwrap())
}

// ---- the rules

/// The contents of a snapshot: checked against the rules, and small enough to compare and keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Picture {
    tasks: BTreeMap<u64, u64>,
    digest: u64,
}

async fn read_all(tx: &Tx, reverse: bool) -> StoreResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut begin, mut end, mut rows) = (Vec::new(), vec![0xff], Vec::new());
    loop {
        let options = RangeOptions { limit: 97, bytes: 0, reverse };
        let found = tx.get_range(&begin, &end, options, Read::Snapshot).await?;
        rows.extend(found.pairs.iter().map(|(k, v)| (k.to_vec(), v.to_vec())));
        match rows.last() {
            Some((last, _)) if found.more && reverse => end.clone_from(last),
            Some((last, _)) if found.more => begin = tern::store::key_after(last),
            _ => break,
        }
    }
    rows.sort();
    // What is read ahead for one reader must not be told to another one that reads another version.
    for (key, value) in rows.iter().step_by(3) {
        let found = tx.get_ahead(key, if reverse { &[0] } else { &[0xff] }).await?;
        assert_eq!(found.as_deref(), Some(&value[..]), "{key:?}");
    }
    // Nor what is read in bulk for one.
    let (keys, values): (Vec<_>, Vec<_>) = rows.iter().step_by(3).cloned().unzip();
    let found = tx.get_bulk(&keys, Read::Snapshot, true).await?;
    assert!(found.iter().map(|row| row.as_deref()).eq(values.iter().map(|value| Some(&value[..]))));
    // A subspace, and a range, that are kept are never out of date, either.
    for (key, value) in rows.iter().step_by(5) {
        let (tail, absent) = (1 + key.len() % 2, [&key[..key.len() - 1], &[0xfe]].concat());
        let found = tx.get_among(key, tail, Read::Snapshot).await?;
        assert_eq!(found.as_deref(), Some(&value[..]), "{key:?}");
        let found = tx.get_among(&absent, tail, Read::Snapshot).await?;
        assert!(found.is_none() || rows.iter().any(|(key, _)| *key == absent), "{absent:?}");
    }
    for folder in [&b"account"[..], b"hot", b"task", b"log"] {
        let (begin, end, mut kept) = ([folder, b"/"].concat(), [folder, b"0"].concat(), Vec::new());
        tx.visit_kept((&begin, &end), &end, &mut |key, value| kept.push((key.to_vec(), value.to_vec())))
            .await?;
        let inside = rows.iter().filter(|(key, _)| begin <= *key && *key < end);
        assert!(kept.iter().eq(inside), "{}", String::from_utf8_lossy(folder));
    }
    Ok(rows)
}

fn picture(rows: &[(Vec<u8>, Vec<u8>)]) -> Picture {
    let (mut accounts, mut hot, mut digest) = (Vec::new(), 0, 0xcbf2_9ce4_8422_2325_u64);
    let (mut tasks, mut logs) = (BTreeMap::new(), BTreeMap::<u64, Vec<u64>>::new());
    for (k, v) in rows {
        for byte in k.iter().chain(v) {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let (folder, rest) = k.split_at(k.iter().position(|b| *b == b'/').unwrap() + 1);
        match folder {
            b"account/" => accounts.push(number(v)),
            b"hot/" => hot += number(v),
            b"task/" => drop(tasks.insert(number(rest), number(v))),
            b"log/" => {
                assert_eq!(*v, padded(number(&rest[8..])), "a log entry must be of this life");
                logs.entry(number(rest)).or_default().push(number(&rest[8..]));
            }
            _ => panic!("unknown row {k:?}"),
        }
    }
    assert_eq!(accounts.len() as u64, ACCOUNTS);
    assert_eq!(accounts.iter().sum::<u64>(), ACCOUNTS * START, "the sum of the accounts must be constant");
    assert_eq!(hot, tasks.values().sum::<u64>(), "hot counters and tasks must agree");
    for (task, last) in &tasks {
        let expected: Vec<u64> = (last.saturating_sub(LOG - 1).max(1)..=*last).collect();
        assert_eq!(logs.remove(task).unwrap_or_default(), expected, "log of task {task}");
    }
    assert!(logs.is_empty(), "every log must have a task");
    Picture { tasks, digest }
}

// ---- the child

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    conflicts: AtomicU64,
    checks: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
}

async fn set_up(store: &Store) {
    let tx = store.begin();
    if tx.get(&key("account", 0), Read::Serializable).await.unwrap().is_none() {
        for id in 0..ACCOUNTS {
            tx.set(&key("account", id), &padded(START)).unwrap();
        }
        tx.commit().await.unwrap();
    }
}

async fn get_number(tx: &Tx, key: &[u8]) -> StoreResult<u64> {
    Ok(tx.get(key, Read::Serializable).await?.map_or(0, |v| number(&v)))
}

/// One transaction; returns the task's number after it.
async fn step(store: &Store, task: u64, rng: &mut Rng) -> StoreResult<u64> {
    let tx = store.begin();
    let n = get_number(&tx, &key("task", task)).await? + 1;
    let (from, to) = (key("account", rng.below(ACCOUNTS)), key("account", rng.below(ACCOUNTS)));
    let amount = rng.below(10).min(get_number(&tx, &from).await?);
    tx.set(&from, &padded(get_number(&tx, &from).await? - amount))?;
    tx.set(&to, &padded(get_number(&tx, &to).await? + amount))?; // reads its own write if both are the same
    let hot = key("hot", rng.below(HOT));
    tx.set(&hot, &padded(get_number(&tx, &hot).await? + 1))?;
    tx.set(&key("task", task), &padded(n))?;
    tx.set(&log_key(task, n), &padded(n))?;
    tx.clear_range(&key("log", task), &log_key(task, (n + 1).saturating_sub(LOG)))?;
    tx.commit().await?;
    Ok(n)
}

async fn work(store: Store, task: u64, counts: Arc<Counts>) {
    let mut rng = Rng::from_entropy();
    loop {
        match step(&store, task, &mut rng).await {
            Ok(n) => {
                println!("ack {task} {n}");
                counts.commits.fetch_add(1, Relaxed);
            }
            Err(StoreError::Conflict) => drop(counts.conflicts.fetch_add(1, Relaxed)),
            Err(StoreError::TooOld) => {}
            // The next step reads the outcome: no number is skipped or repeated.
            Err(StoreError::Unknown) => drop(counts.unknown.fetch_add(1, Relaxed)),
            Err(StoreError::ReadOnly(_)) => {
                counts.refused.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(e) => panic!("{e}"),
        }
    }
}

async fn watch_a_snapshot(store: Store, counts: Arc<Counts>, longest: Duration) {
    let mut rng = Rng::from_entropy();
    loop {
        let tx = store.begin();
        let begun = Instant::now();
        let life = Duration::from_millis(rng.below(longest.as_millis() as u64));
        let mut first = None;
        loop {
            match read_all(&tx, rng.below(2) == 0).await {
                Ok(rows) => {
                    let now = picture(&rows);
                    assert_eq!(*first.get_or_insert_with(|| now.clone()), now, "the snapshot must not move");
                    counts.checks.fetch_add(1, Relaxed);
                }
                Err(StoreError::TooOld) => {
                    assert!(begun.elapsed() >= MAX_AGE, "a snapshot must not be too old too early")
                }
                Err(e) => panic!("{e}"),
            }
            if begun.elapsed() >= life {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(200))).await;
        }
    }
}

async fn break_the_disk(disk: Arc<DiskFaults>) {
    let mut rng = Rng::from_entropy();
    loop {
        tokio::time::sleep(Duration::from_millis(100 + rng.below(300))).await;
        if rng.below(2) == 0 {
            disk.fail_next_write()
        } else {
            disk.fail_next_sync()
        }
        tokio::time::sleep(Duration::from_millis(rng.below(100))).await;
        disk.heal();
    }
}

/// Not a test if the variable is not set.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("child: {panic}");
        std::process::abort();
    }));
    let life: u64 = std::env::var("TERN_SOAK_LIFE").unwrap().parse().unwrap();
    let faulty = life % 3 == 2;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let disk = Arc::new(DiskFaults::default());
        let fsync = [Fsync::Always, Fsync::No, Fsync::Always, Fsync::EverySec][life as usize % 4];
        let store = open(Path::new(&dir), fsync, &disk);
        set_up(&store).await;
        println!("open");
        let counts = Arc::new(Counts::default());
        for task in 0..TASKS {
            tokio::spawn(work(store.clone(), task, counts.clone()));
        }
        // On a failing disk an old snapshot delays the reopening, and the life is short.
        let longest = if faulty { Duration::from_millis(50) } else { Duration::from_millis(4800) };
        for _ in 0..3 {
            tokio::spawn(watch_a_snapshot(store.clone(), counts.clone(), longest));
        }
        if faulty {
            tokio::spawn(break_the_disk(disk));
        }
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let [a, b, c, d, e] =
                [&counts.commits, &counts.conflicts, &counts.checks, &counts.unknown, &counts.refused]
                    .map(|n| n.load(Relaxed));
            println!("sum {a} {b} {c} {d} {e}");
            std::io::stdout().flush().unwrap();
        }
    });
}

// ---- the parent

#[derive(Debug, Default)]
struct Life {
    acknowledged: BTreeMap<u64, u64>,
    sums: [u64; 5],
}

fn listen(lines: impl Iterator<Item = String>, opened: &std::sync::mpsc::Sender<()>) -> Life {
    let mut life = Life::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words.get(i).and_then(|w: &&str| w.parse::<u64>().ok());
        match words.first() {
            Some(&"ack") => {
                if let (Some(task), Some(n)) = (number(1), number(2)) {
                    life.acknowledged.insert(task, n);
                }
            }
            Some(&"sum") if words.len() == 6 => {
                life.sums = [1, 2, 3, 4, 5].map(|i| number(i).unwrap_or_default());
            }
            _ if line.ends_with("open") => opened.send(()).unwrap(),
            _ => {}
        }
    }
    life
}

fn live(dir: &Path, number: u64, alive: Duration) -> Life {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]);
    command.env(CHILD, dir).env("TERN_SOAK_LIFE", number.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    // A line that the kill cut off has no end: it must not count as an acknowledgement of a smaller number.
    let lines = std::iter::from_fn(move || {
        let mut line = String::new();
        output.read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    });
    let (sender, opened) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || listen(lines, &sender));
    opened.recv_timeout(Duration::from_secs(60)).expect("the child must open its store");
    std::thread::sleep(alive);
    assert!(child.try_wait().unwrap().is_none(), "the child failed: see its message above");
    child.kill().unwrap();
    child.wait().unwrap();
    listener.join().unwrap()
}

/// The contents after a life: the rules hold, and each task stands at its last acknowledged number or one
/// further.
async fn inspect(dir: &Path, known: &BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    let store = open(dir, Fsync::No, &Arc::default());
    let tx = store.begin();
    let found = picture(&read_all(&tx, false).await.unwrap());
    assert_eq!(found, picture(&read_all(&tx, true).await.unwrap()), "both directions must read the same");
    for (task, acknowledged) in known {
        let n = found.tasks.get(task).copied().unwrap_or_default();
        assert!(
            n == *acknowledged || n == acknowledged + 1,
            "task {task}: acknowledged {acknowledged}, found {n}"
        );
    }
    drop(tx);
    store.close().await.unwrap();
    found.tasks
}

#[tokio::test]
async fn soak() {
    let seconds = std::env::var("TERN_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let (begun, length) = (Instant::now(), Duration::from_secs(seconds));
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::from_entropy();
    let (mut known, mut totals, mut kills) = (BTreeMap::new(), [0; 5], 0);
    while begun.elapsed() < length {
        // The first life is long enough for the oldest readers; most are short.
        let alive = match kills {
            0 => Duration::from_millis(5500),
            n if n % 10 == 0 => Duration::from_millis(7000),
            _ => Duration::from_millis(50 + rng.below(1500)),
        };
        let life = live(dir.path(), kills, alive.min(length / 2));
        known.extend(life.acknowledged);
        known = inspect(dir.path(), &known).await;
        totals.iter_mut().zip(life.sums).for_each(|(total, sum)| *total += sum);
        kills += 1;
    }
    let [commits, conflicts, checks, unknown, refused] = totals;
    println!(
        "soak: {:.0} s, {kills} kills, {commits} commits, {conflicts} conflicts, {checks} reader checks, \
         {unknown} unknown, {refused} refused while reopening",
        begun.elapsed().as_secs_f64()
    );
    assert!(kills >= 2 && commits > 500 && conflicts > 10 && checks > 20, "too little to prove anything");
}
