//! Fences: a command that ran into the writers of its keys again and again is let through.
//!
//! Transactions are optimistic. One that reads what others change all the time, and takes longer than they leave between two
//! changes, would never commit. After some conflicts its server **fences** its keys: units that write one of them wait before they
//! begin, those under way end, and the next attempt meets nobody. The fence is lifted when the command is answered.
//!
//! * Fences make nothing correct, transactions do. A fence that is seen late costs another attempt. One that nobody lifts,
//!   because its server is gone, holds each unit for [`LONGEST`] at most.
//! * A unit that waits has begun nothing. One that fences waits first for fences of this server around what it writes, or whose units write
//!   what it touches, and has no fence of its own meanwhile: no circle can come of it. It waits
//!   where nobody queues behind it ([`Fences::try_hold`]).
//! * Keys are fenced by the hash of their name, whatever database they are in. Who fences keys also fences the databases ([`DATABASES`]): a
//!   FLUSHDB or a SWAPDB waits for it, for it is a conflict to all that is under way.
//! * Where several servers live, a fence is also a row, and a bell which every server watches. A server alone writes nothing, and
//!   where no fence stands a writer looks at one number in memory.
//!
//! ```text
//! p 04                      -> i64 LE           changes with every fence
//! p 05 <instance><slot u16> -> nonce, hashes    u64 LE each; no hashes: all keys
//! ```
//!
//! Alternatives: a row of the store that every writer reads with its keys is seen at once, and costs each batch of writes a read
//! for ever. To read the sources at one version and to apply to the result what changed since needs no fence, but is a way for set algebra alone
//! (not for an EXEC, a COPY, an SPOP), and its last transaction must still find a gap between two writers.

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

/// How long a unit waits at fences. Longer than a command is tried that is built outside of its transaction.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// Most keys of a fence's row; one of more is of all keys.
const MOST: usize = 10_000;
/// Attempts at writing a row.
const ATTEMPTS: u32 = 5;
/// How long one look may take where the store does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks where the bell is silent: should a watch be lost.
const BEAT: Duration = Duration::from_secs(5);
/// After a look that failed.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Stands for which databases there are. Many fence it at once.
pub(crate) const DATABASES: u64 = 0x7465_726e_2d64_6273;

/// The fences that this server knows of.
pub struct Fences {
    store: Store,
    clock: Clock,
    instance: u64,
    /// How many there are.
    standing: AtomicUsize,
    state: Mutex<State>,
    lifted: Notify,
}

#[derive(Default)]
struct State {
    /// This server's. A fence may have a million keys: nothing looks through them under the lock.
    own: Vec<Arc<Fenced>>,
    /// Fences of other servers by their rows' keys.
    others: HashMap<Bytes, Other>,
}

/// Keys that this server has fenced, and those of them that the unit may write.
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
    /// When it was first seen.
    since: Duration,
}

/// A fence around keys. It falls when this is dropped; [`Fence::lift`] tells other servers, too.
pub struct Fence {
    fences: Arc<Fences>,
    fenced: Arc<Fenced>,
    /// Its row, where other servers were told.
    row: Option<Vec<u8>>,
}

impl Fences {
    /// Of the server `instance`.
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

    /// Fences `keys`, which are hashes, of a unit that may write those in `written`. `slot`: has no other fence. `nonce`: a number never used before.
    /// Other servers, where `instances` knows some, hear of it as soon as they can.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        instances: &Instances,
        slot: u16,
        nonce: u64,
        keys: HashSet<u64>,
        written: HashSet<u64>,
    ) -> Fence {
        let fenced = Fenced::new(keys, written);
        if tokio::time::timeout(LONGEST, self.until(|| self.enter(&fenced))).await.is_err() {
            self.state.lock().own.push(fenced.clone());
        }
        self.stands(fenced, instances, slot, nonce).await
    }

    /// The same where no fence of this server is in the way.
    pub(crate) async fn try_hold(
        self: &Arc<Self>,
        instances: &Instances,
        slot: u16,
        nonce: u64,
        keys: HashSet<u64>,
        written: HashSet<u64>,
    ) -> Option<Fence> {
        let fenced = Fenced::new(keys, written);
        if !self.enter(&fenced) {
            return None;
        }
        Some(self.stands(fenced, instances, slot, nonce).await)
    }

    /// What has been entered is a fence, of which other servers hear.
    async fn stands(
        self: &Arc<Self>,
        fenced: Arc<Fenced>,
        instances: &Instances,
        slot: u16,
        nonce: u64,
    ) -> Fence {
        self.standing.fetch_add(1, Ordering::AcqRel);
        let mut fence = Fence { fences: self.clone(), fenced, row: None };
        if instances.living() > 1 {
            let row = root::fence(self.instance, slot);
            let keys = &fence.fenced.keys;
            let mut hashes: Vec<u64> = keys.iter().filter(|_| keys.len() <= MOST).copied().collect();
            hashes.sort_unstable();
            let raw: Vec<u8> = std::iter::once(nonce).chain(hashes).flat_map(u64::to_le_bytes).collect();
            match self.write(&row, Some(&raw)).await {
                Ok(()) => fence.row = Some(row),
                Err(e) => tracing::debug!(?e, "other servers do not hear of a fence"),
            }
        }
        fence
    }

    /// True where nobody is in the way, and then it is entered.
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

    /// Waits until `is_true`, which is asked whenever a fence is lifted.
    async fn until(&self, is_true: impl Fn() -> bool) {
        until(&self.lifted, is_true).await;
    }

    async fn write(&self, row: &[u8], value: Option<&[u8]>) -> StoreResult<()> {
        let mut retries = Retries::new(ATTEMPTS).idempotent();
        loop {
            let tx = self.store.begin();
            tx.limit(PATIENCE);
            match value {
                Some(value) => tx.set(row, value)?,
                None => tx.clear(row)?,
            }
            tx.add(&root::fence_bell(), &1u64.to_le_bytes())?;
            match tx.commit().await {
                Err(e) => retries.on_error(e)?,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Waits until none of `keys` is fenced, for [`LONGEST`] at most. Whether it had to wait.
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
        let around = |other: &Other| {
            let young = now.saturating_sub(other.since) < LONGEST;
            young && (other.keys.is_empty() || keys.iter().any(|key| other.keys.contains(key)))
        };
        if !keys.is_empty() && state.others.values().any(around) {
            return true;
        }
        let own = state.own.clone();
        drop(state);
        own.iter().any(|fenced| keys.iter().any(|key| fenced.keys.contains(key)))
    }

    /// Looks at what other servers have fenced, again and again, for ever.
    pub async fn follow(&self) {
        loop {
            match self.look().await {
                Ok(changed) => {
                    tokio::select! {
                        biased;
                        _ = changed => {}
                        () = tokio::time::sleep(BEAT) => {}
                    }
                }
                Err(e) => {
                    tracing::debug!(?e, "looking for fences of other servers");
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Reads the fences of other servers. The watch resolves once there may be others.
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
    /// Lifts it, and says so to those who were told.
    pub async fn lift(mut self) {
        let (fences, row) = (self.fences.clone(), self.row.take());
        drop(self);
        if let Some(row) = row
            && let Err(e) = fences.write(&row, None).await
        {
            tracing::debug!(?e, "other servers hear late that a fence is lifted");
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
    }
}

/// Removes the rows of a server that is gone.
pub(super) fn forget(tx: &Tx, instance: u64) -> StoreResult<()> {
    let rows = root::fences_of(instance);
    tx.clear_range(&rows, &prefix_end(&rows))
}
