//! Which transaction did what, as the store saw it.
//!
//! Each unit of a marked history begins with EXISTS of a key of its own, its *mark*; the comparisons of WATCH
//! and EXEC have marks too. A pipeline's unit has another one at its end, since the server may run its first
//! calls only. So the store's observer learns which units a transaction holds, in which order and whether
//! wholly, the version that it read, and how its commit ended, even if no client was told.

use super::record::Ticks;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tern::error::{StoreError, StoreResult};
use tern::keyspace::keys::Prefix;
use tern::store::Version;
use tern::store::observe::Observer;

/// The prefix of the keys of marks.
const MARK: &str = "mark:";
/// The prefix of the keys of marks at the end.
const END: &str = "end:";
/// For the commits under way at the end of a history.
const PATIENCE: Duration = Duration::from_secs(20);

/// The key that marks `unit`.
pub fn mark(unit: usize) -> String {
    format!("{MARK}{unit}")
}

/// The key that marks the end of `unit`.
pub fn end_mark(unit: usize) -> String {
    format!("{END}{unit}")
}

/// The unit whose mark has this row.
pub fn unit_of(row: &[u8]) -> Option<usize> {
    marked_unit(row, MARK)
}

/// The unit that a mark with this prefix names, if this is the mark's row.
fn marked_unit(row: &[u8], prefix: &str) -> Option<usize> {
    let database = Prefix::of_row(row)?;
    let (tag, rest) = row[database.as_bytes().len()..].split_first()?;
    let name = rest.get(8..).filter(|_| *tag == b'K')?;
    std::str::from_utf8(name).ok()?.strip_prefix(prefix)?.parse().ok()
}

/// A transaction that held units.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The commit version, or the version that it read.
    pub version: Version,
    /// False: it committed nothing.
    pub wrote: bool,
    /// In the order in which they ran.
    pub units: Vec<usize>,
    /// Pipelines' units of which it ran all calls.
    pub whole: BTreeSet<usize>,
    /// When its commands ran, ms; several values if that is uncertain.
    pub clocks: Vec<u64>,
    /// The time just after its version was fixed: its reads are of that time.
    pub sure: u64,
}

/// All relevant transactions of a history: those that committed, and the last one of each answered unit.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// In the order of versions; readers of a version follow its commit.
    pub transactions: Vec<Transaction>,
    /// Units of a commit with an unknown end.
    pub doubtful: BTreeSet<usize>,
}

#[derive(Default)]
struct Seen {
    begun: u64,
    /// It runs commands.
    runs: bool,
    now: u64,
    sure: u64,
    read: u64,
    version: Version,
    units: Vec<usize>,
    whole: BTreeSet<usize>,
    commit: Option<StoreResult<Version>>,
}

pub struct Witness {
    ticks: Ticks,
    seen: Mutex<BTreeMap<u64, Seen>>,
    /// Units that are a WATCH.
    watching: Mutex<BTreeSet<usize>>,
    under_way: AtomicUsize,
}

impl Observer for Witness {
    fn begins(&self, tx: u64) {
        let seen = Seen { begun: self.ticks.next(), ..Seen::default() };
        self.seen.lock().unwrap().insert(tx, seen);
    }
    fn runs_at(&self, tx: u64, now: u64, sure: u64) {
        let mut all = self.seen.lock().unwrap();
        let seen = all.get_mut(&tx).unwrap();
        (seen.runs, seen.now, seen.sure) = (true, now, sure);
    }
    fn wants(&self, key: &[u8]) -> bool {
        unit_of(key).or(marked_unit(key, END)).is_some()
    }
    fn has_read(&self, tx: u64, version: Version, key: &[u8]) {
        let mut all = self.seen.lock().unwrap();
        let seen = all.get_mut(&tx).unwrap();
        // Others than units read marks too: the server renews the ghosts of those that a WATCH named.
        if !seen.runs {
            return;
        }
        // Prefetched rows are read again where the unit runs: only the last reads count.
        if let Some(unit) = unit_of(key) {
            seen.units.retain(|u| *u != unit);
            seen.units.push(unit);
            seen.whole.remove(&unit);
        }
        seen.whole.extend(marked_unit(key, END));
        (seen.version, seen.read) = (version, self.ticks.next());
    }
    fn commits(&self, _: u64) {
        self.under_way.fetch_add(1, SeqCst);
    }
    fn has_committed(&self, tx: u64, result: &StoreResult<Version>) {
        self.seen.lock().unwrap().get_mut(&tx).unwrap().commit = Some(result.clone());
        self.under_way.fetch_sub(1, SeqCst);
    }
}

impl Witness {
    pub fn new(ticks: Ticks) -> Self {
        Witness { ticks, seen: Mutex::default(), watching: Mutex::default(), under_way: AtomicUsize::new(0) }
    }

    /// `unit` is a WATCH. It changes nothing visible, so it may be committed twice: it remembers what its
    /// last transaction read.
    pub fn is_watch(&self, unit: usize) {
        self.watching.lock().unwrap().insert(unit);
    }

    /// Waits for the commits under way. The patience is that of a real clock: a simulated one passes quickly while the thread
    /// that commits waits for a busy machine.
    pub async fn settle(&self) {
        let begun = Instant::now();
        while self.under_way.load(SeqCst) > 0 {
            assert!(begun.elapsed() < PATIENCE, "a commit takes longer than {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// `answered`: units whose answer reached the client.
    pub fn trace(&self, answered: &BTreeSet<usize>) -> Trace {
        let all = self.seen.lock().unwrap();
        let watching = self.watching.lock().unwrap();
        let watch = |seen: &Seen| seen.units.iter().find(|unit| watching.contains(unit)).copied();
        let mut trace = Trace::default();
        let mut placed = BTreeSet::new();
        let mut found: Vec<(u64, Transaction)> = Vec::new();
        let of = |seen: &Seen, version: Version, wrote: bool, units: Vec<usize>| {
            let (whole, clocks, sure) = (seen.whole.clone(), vec![seen.now], seen.sure);
            (seen.begun, Transaction { version, wrote, units, whole, clocks, sure })
        };
        for seen in all.values().filter(|seen| watch(seen).is_none()) {
            match seen.commit {
                Some(Ok(version)) if !seen.units.is_empty() => {
                    placed.extend(seen.units.iter().copied());
                    found.push(of(seen, version, true, seen.units.clone()));
                }
                Some(Err(StoreError::Unknown)) => trace.doubtful.extend(&seen.units),
                _ => {}
            }
        }
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        for (tx, seen) in all.iter() {
            last.extend(seen.units.iter().map(|unit| (*unit, *tx)));
        }
        for (tx, seen) in all.iter() {
            if let Some(unit) = watch(seen) {
                if last[&unit] == *tx && answered.contains(&unit) {
                    let (version, wrote) = match seen.commit {
                        Some(Ok(version)) => (version, true),
                        _ => (seen.version, false),
                    };
                    found.push(of(seen, version, wrote, vec![unit]));
                }
                continue;
            }
            let stands = |unit: &&usize| {
                last[unit] == *tx
                    && answered.contains(unit)
                    && !placed.contains(unit)
                    && !trace.doubtful.contains(unit)
            };
            let units: Vec<usize> = seen.units.iter().filter(stands).copied().collect();
            if !units.is_empty() {
                found.push(of(seen, seen.version, false, units));
            }
        }
        found.sort_by_key(|(begun, t)| (t.version, !t.wrote, *begun));
        trace.transactions = found.into_iter().map(|(_, transaction)| transaction).collect();
        trace
    }

    /// The last tick at which a transaction held `unit`.
    pub fn last_seen(&self) -> BTreeMap<usize, u64> {
        let mut last = BTreeMap::new();
        for seen in self.seen.lock().unwrap().values() {
            for unit in &seen.units {
                let at = last.entry(*unit).or_default();
                *at = seen.read.max(*at);
            }
        }
        last
    }
}

/// A mark's key as an argument.
pub fn mark_bytes(unit: usize) -> Bytes {
    Bytes::from(mark(unit))
}
