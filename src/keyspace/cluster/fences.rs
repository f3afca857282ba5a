//! Fences let a command through that keeps conflicting with the writers of its keys.
//!
//! Transactions are optimistic. One that takes longer than the gap between two changes of its keys would
//! never commit. So after some conflicts its server **fences** its keys, for it or for several units of the same keys:
//! units that write one of them wait before they begin, those in flight finish, and the next attempt meets no writer.
//! The fence is lifted when the command is answered.
//!
//! * Correctness never depends on fences, only on transactions. A fence that is seen late costs another
//!   attempt. A fence that is never lifted, because its server has died, delays each unit by [`LONGEST`] at
//!   most.
//! * A waiting unit has begun nothing. A unit that fences first waits for those fences of its own server that
//!   cover keys it writes or whose units write keys it touches; it holds no fence meanwhile, so no deadlock
//!   is possible. It waits where nothing queues behind it ([`Fences::try_hold`]).
//! * Keys are fenced by the hash of their name, in all databases. Every fence also covers the databases
//!   ([`DATABASES`]): FLUSHDB and SWAPDB wait for it, because they conflict with everything in flight.
//! * If several servers are alive, a fence is also a row, with a bell that every server watches. A server
//!   that is alone writes nothing, and without fences a writer only reads one number in memory.
//! * A store that does not answer is not waited for on behalf of fences: the row is written while its unit has time
//!   left ([`Fence::tell`]) and cleared in the background, and fences of other servers of which this one has heard
//!   nothing for [`SILENT`] hold nobody.
//!
//! ```text
//! p 04                      -> i64 LE           changes with every fence
//! p 05 <instance><slot u16> -> nonce, hashes    u64 LE each; no hashes: all keys
//! ```
//!
//! Alternatives: a row in the store that every writer reads with its keys takes effect at once, but costs
//! every batch of writes a read. Reading the sources at one version and applying later changes to the result
//! needs no fence, but works for set algebra only (not for an EXEC, a COPY, an SPOP), and its last
//! transaction must still find a gap between two writers.

use super::instances::Instances;
use crate::env::{Clock, until};
use crate::error::StoreResult;
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Retries, Store, Tx, Watch, key_after, prefix_end};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a unit waits at fences. Longer than the attempts of a command that is built outside its
/// transaction.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// The most keys in a fence's row; a larger fence covers all keys.
const MOST: usize = 10_000;
/// Attempts to write a row.
const ATTEMPTS: u32 = 5;
/// The longest that a store which does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The shortest limit of a transaction.
const LEAST: Duration = Duration::from_millis(1);
/// The time between two reads if the bell is silent, in case a watch is lost.
const BEAT: Duration = Duration::from_secs(5);
/// The same while other servers have fences.
const SHORT_BEAT: Duration = Duration::from_secs(1);
/// How long ago a fence of another server must have been read to hold a unit. Longer than a read and the beat before it.
const SILENT: Duration = Duration::from_millis(3200);
/// The pause after a failed read.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Stands for the list of databases. Many fences hold it at once.
pub(crate) const DATABASES: u64 = 0x7465_726e_2d64_6273;

/// The fences that this server knows of.
pub struct Fences {
    store: Store,
    clock: Clock,
    instance: u64,
    /// The number of fences standing.
    standing: AtomicUsize,
    state: Mutex<State>,
    lifted: Notify,
}

#[derive(Default)]
struct State {
    /// This server's fences. A fence may have a million keys: nothing iterates over them under the lock.
    own: Vec<Arc<Fenced>>,
    /// Fences of other servers, by the keys of their rows.
    others: HashMap<Bytes, Other>,
    /// When those were read.
    heard: Duration,
}

/// Keys that this server has fenced, and those that the unit may write.
struct Fenced {
    keys: HashSet<u64>,
    written: HashSet<u64>,
}

impl Fenced {
    fn new(mut keys: HashSet<u64>, written: HashSet<u64>) -> Arc<Self> {
        keys.insert(DATABASES);
        Arc::new(Fenced { keys, written })
    }

    /// Whether one of two units may write what the other touches.
    fn meets(&self, other: &Fenced) -> bool {
        !self.keys.is_disjoint(&other.written) || !self.written.is_disjoint(&other.keys)
    }
}

/// A fence of another server.
struct Other {
    raw: Bytes,
    keys: HashSet<u64>,
    /// When this server first saw it.
    since: Duration,
}

/// A fence around keys, of which only this server knows until [`Fence::tell`]. Dropping it lifts it.
pub struct Fence {
    fences: Arc<Fences>,
    fenced: Arc<Fenced>,
    /// The row that may have been written, and its value.
    row: Option<(Vec<u8>, Vec<u8>)>,
}

impl Fences {
    /// The fences of the server `instance`.
    pub(crate) fn new(store: &Store, clock: &Clock, instance: u64) -> Self {
        Fences {
            store: store.clone(),
            clock: clock.clone(),
            instance,
            standing: AtomicUsize::new(0),
            state: Mutex::default(),
            lifted: Notify::new(),
        }
    }

    /// Fences `keys`, given as hashes, for a unit that may write those in `written`.
    pub(crate) async fn hold(self: &Arc<Self>, keys: HashSet<u64>, written: HashSet<u64>) -> Fence {
        let fenced = Fenced::new(keys, written);
        if tokio::time::timeout(LONGEST, self.until(|| self.enter(&fenced))).await.is_err() {
            self.state.lock().own.push(fenced.clone());
        }
        self.stands(fenced)
    }

    /// Like [`Fences::hold`], but only if no fence of this server is in the way.
    pub(crate) fn try_hold(self: &Arc<Self>, keys: HashSet<u64>, written: HashSet<u64>) -> Option<Fence> {
        let fenced = Fenced::new(keys, written);
        self.enter(&fenced).then(|| self.stands(fenced))
    }

    fn stands(self: &Arc<Self>, fenced: Arc<Fenced>) -> Fence {
        self.standing.fetch_add(1, Ordering::AcqRel);
        Fence { fences: self.clone(), fenced, row: None }
    }

    /// Enters the fence unless another one of this server is in the way. Returns whether it did.
    fn enter(&self, fenced: &Arc<Fenced>) -> bool {
        let mut known: Vec<Arc<Fenced>> = Vec::new();
        loop {
            let new: Vec<Arc<Fenced>> = {
                let mut state = self.state.lock();
                let is_new = |other: &&Arc<Fenced>| !known.iter().any(|known| Arc::ptr_eq(known, other));
                let new: Vec<_> = state.own.iter().filter(is_new).cloned().collect();
                if new.is_empty() {
                    state.own.push(fenced.clone());
                    return true;
                }
                new
            };
            if new.iter().any(|other| other.meets(fenced)) {
                return false;
            }
            known.extend(new);
        }
    }

    /// Waits until `is_true`, which is checked whenever a fence is lifted.
    async fn until(&self, is_true: impl Fn() -> bool) {
        until(&self.lifted, is_true).await;
    }

    /// Writes a fence's row within a time. It conflicts with [`Fences::clear`], so that an attempt whose result is
    /// unknown cannot appear after that.
    async fn write(&self, row: &[u8], value: &[u8], within: Duration) -> StoreResult<()> {
        let until = self.clock.monotonic() + within;
        let mut retries = Retries::new(ATTEMPTS).idempotent();
        loop {
            let tx = self.store.begin();
            tx.limit(until.saturating_sub(self.clock.monotonic()).max(LEAST));
            tx.add_read_conflict(row, &key_after(row))?;
            tx.set(row, value)?;
            tx.add(&root::fence_bell(), &1u64.to_le_bytes())?;
            match tx.commit().await {
                Err(e) if self.clock.monotonic() >= until => return Err(e),
                Err(e) => retries.on_error(e)?,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Clears a fence's row, unless its slot has put up another fence since.
    async fn clear(&self, row: &[u8], value: &[u8]) -> StoreResult<()> {
        let tx = self.store.begin();
        tx.limit(PATIENCE);
        let found = tx.get(row, Read::Serializable).await?;
        if found.as_deref().is_some_and(|found| found != value) {
            return Ok(());
        }
        tx.clear(row)?;
        tx.add(&root::fence_bell(), &1u64.to_le_bytes())?;
        tx.commit().await.map(drop)
    }

    /// Waits until none of `keys` is fenced, for [`LONGEST`] at most. Returns whether it had to wait.
    pub(crate) async fn pass(&self, keys: impl FnOnce() -> Vec<u64>) -> bool {
        if self.standing.load(Ordering::Acquire) == 0 {
            return false;
        }
        let keys = keys();
        if !self.stand_around(&keys) {
            return false;
        }
        let _ = tokio::time::timeout(LONGEST, self.until(|| !self.stand_around(&keys))).await;
        true
    }

    fn stand_around(&self, keys: &[u64]) -> bool {
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let heard = state.heard;
        let around = |other: &Other| {
            let young = now.saturating_sub(other.since) < LONGEST && now.saturating_sub(heard) < SILENT;
            young && (other.keys.is_empty() || keys.iter().any(|key| other.keys.contains(key)))
        };
        if !keys.is_empty() && state.others.values().any(around) {
            return true;
        }
        let own = state.own.clone();
        drop(state);
        own.iter().any(|fenced| keys.iter().any(|key| fenced.keys.contains(key)))
    }

    /// Follows the fences of other servers, forever.
    pub async fn follow(&self) {
        loop {
            match self.look().await {
                Ok(changed) => {
                    let beat = if self.state.lock().others.is_empty() { BEAT } else { SHORT_BEAT };
                    tokio::select! {
                        biased;
                        _ = changed => {}
                        () = tokio::time::sleep(beat) => {}
                    }
                }
                Err(e) => {
                    tracing::debug!(?e, "looking for fences of other servers");
                    // Those of which nothing was heard for long hold nobody.
                    self.lifted.notify_waiters();
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Reads the fences of other servers. The watch fires when they may have changed.
    async fn look(&self) -> StoreResult<Watch> {
        let tx = self.store.begin();
        tx.limit(PATIENCE);
        let (mut from, end) = root::fences();
        let mut rows = Vec::new();
        loop {
            let page = tx.get_range(&from, &end, RangeOptions::default(), Read::Snapshot).await?;
            let last = page.pairs.last().filter(|_| page.more).map(|(key, _)| key_after(key));
            rows.extend(page.pairs);
            match last {
                Some(next) => from = next,
                None => break,
            }
        }
        let watch = tx.watch(&root::fence_bell())?;
        tx.commit().await?;
        let own = root::fences_of(self.instance);
        self.replace(rows.into_iter().filter(|(key, _)| !key.starts_with(&own)));
        Ok(watch)
    }

    fn replace(&self, rows: impl Iterator<Item = (Bytes, Bytes)>) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.heard = now;
        let mut before = std::mem::take(&mut state.others);
        let count = before.len();
        for (key, raw) in rows {
            let known = before.remove(&key).filter(|known| known.raw == raw);
            let other = known.unwrap_or_else(|| {
                let hashes = raw.as_chunks::<8>().0.iter().skip(1).map(|hash| u64::from_le_bytes(*hash));
                Other { keys: hashes.collect(), since: now, raw }
            });
            state.others.insert(key, other);
        }
        self.standing.fetch_add(state.others.len(), Ordering::AcqRel);
        self.standing.fetch_sub(count, Ordering::AcqRel);
        drop(state);
        self.lifted.notify_waiters();
    }
}

impl Fence {
    /// The keys that it is around, and those that its unit may write.
    pub(crate) fn keys(&self) -> (&HashSet<u64>, &HashSet<u64>) {
        (&self.fenced.keys, &self.fenced.written)
    }

    /// Informs the other servers known to `instances`, as far as the store answers `within` this time. `slot` has no
    /// other fence. `nonce` is a number never used before.
    pub(crate) async fn tell(&mut self, instances: &Instances, slot: u16, nonce: u64, within: Duration) {
        if instances.living() < 2 || self.row.is_some() || within.is_zero() {
            return;
        }
        let row = root::fence(self.fences.instance, slot);
        let keys = &self.fenced.keys;
        let mut hashes: Vec<u64> = keys.iter().filter(|_| keys.len() <= MOST).copied().collect();
        hashes.sort_unstable();
        let raw: Vec<u8> = std::iter::once(nonce).chain(hashes).flat_map(u64::to_le_bytes).collect();
        let (row, raw) = self.row.insert((row, raw));
        if let Err(e) = self.fences.write(row, raw, within.min(PATIENCE)).await {
            tracing::debug!(?e, "other servers may not have heard of a fence");
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let mut state = self.fences.state.lock();
        state.own.retain(|fenced| !Arc::ptr_eq(fenced, &self.fenced));
        self.fences.standing.fetch_sub(1, Ordering::AcqRel);
        drop(state);
        self.fences.lifted.notify_waiters();
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some((row, raw)), Ok(runtime)) = (self.row.take(), runtime) {
            runtime.spawn(lower(self.fences.clone(), row, raw));
        }
    }
}

/// Clears the row of a fence that was lifted, for as long as other servers may heed it.
async fn lower(fences: Arc<Fences>, row: Vec<u8>, raw: Vec<u8>) {
    let until = fences.clock.monotonic() + LONGEST;
    while let Err(e) = fences.clear(&row, &raw).await {
        tracing::debug!(?e, "other servers hear late that a fence is lifted");
        if fences.clock.monotonic() >= until {
            return;
        }
        tokio::time::sleep(AFTER_ERROR).await;
    }
}

/// Removes the fences' rows of a dead server.
pub(super) fn forget(tx: &Tx, instance: u64) -> StoreResult<()> {
    let rows = root::fences_of(instance);
    tx.clear_range(&rows, &prefix_end(&rows))
}
