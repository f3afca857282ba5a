//! A transaction: its snapshot, its reads and its writes.
//!
//! A read takes no lock across RocksDB, and a snapshot read of a transaction without writes takes none at
//! all: a flag tells whether it has writes. (A range read over own writes holds the transaction's own lock,
//! which only concurrent calls on the same transaction need.) Reads run on the caller's thread and may wait
//! for the disk there.

use super::committer::Request;
use super::front::Front;
use super::layout::{self, stored, with_stored, with_stored_parts};
use super::pages::Known;
use super::reads::Reads;
use super::snapshot::{Published, SnapshotView};
use super::{Core, scan};
use crate::error::{StoreError, StoreResult};
use crate::store::held::Held;
use crate::store::writes::{AtomicKind, Effect, Own, Stamped, Writes, apply_all};
use crate::store::{
    AT_ONCE, MAX_AGE, MAX_TRANSACTION, Near, Pairs, RangeOptions, Read, Version, Watch, key_after,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// Reads between two looks at the clock, about 20 us.
const LOOKED: u32 = 16;
/// Rows to read before yielding to other tasks: about 100 us.
const LONG_PAGE: usize = 256;
/// Keys that are looked up together: 100 to 500 us.
const BULK: usize = 128;
/// Keys looked up together after which the task yields.
const LONG_BULK: usize = 32;
/// Rows read ahead, and their bytes.
const AHEAD: usize = 32;
const AHEAD_BYTES: usize = 16 << 10;
/// Rows looked up before a commit, after which the task yields: about 0.3 ms.
const FORESEEN: usize = 1024;

/// A transaction on the embedded engine.
pub struct LocalTx {
    core: Arc<Core>,
    begun: Arc<Published>,
    /// Read instead of `begun` if that was offline.
    late: OnceLock<Arc<Published>>,
    started: Duration,
    /// Whether `state.writes` can change what is read.
    overlaid: AtomicBool,
    /// Counts reads of one row, roughly: concurrent ones may be missed.
    reads: AtomicU32,
    state: Mutex<State>,
    held: Held,
}

#[derive(Default)]
struct State {
    reads: Reads,
    writes: Writes,
    // Boxed: transactions lie in the futures of connections.
    front: Option<Box<Front>>,
    watches: Vec<(Bytes, oneshot::Sender<()>)>,
    /// See [`LocalTx::foresee`].
    foreseen: bool,
}

impl LocalTx {
    pub(super) fn new(core: Arc<Core>) -> Self {
        LocalTx {
            begun: core.published.load_full(),
            started: core.now(),
            core,
            late: OnceLock::new(),
            overlaid: AtomicBool::new(false),
            reads: AtomicU32::new(0),
            state: Mutex::default(),
            held: Held::begin(),
        }
    }

    /// See [`crate::store::Tx::hand_over`].
    pub(in crate::store) fn hand_over(&mut self) {
        self.held.hand_over();
    }

    /// Another transaction at the same version and of the same age.
    pub(in crate::store) fn again(&self) -> Self {
        let (begun, late) = (self.begun.clone(), self.late.clone());
        let core = self.core.clone();
        LocalTx { begun, late, started: self.started, ..LocalTx::new(core) }
    }

    pub(in crate::store) async fn get(
        &self,
        key: &[u8],
        read: Read,
        near: Near<'_>,
    ) -> StoreResult<Option<Bytes>> {
        // What the reads at once have not consumed.
        for _ in 1..LOOKED {
            tokio::task::coop::consume_budget().await;
        }
        let view = self.view().await?;
        with_stored(key, |key| self.get_stored(view, key, read, near))
    }

    /// The value under `key`, or None if the caller has to wait: until the store is online, or, once in
    /// [`LOOKED`] reads, because other tasks may be due. Checks the age only that often, too, because the
    /// clock costs a tenth of such a read. A commit checks it again; until then an old snapshot is as good as
    /// a young one.
    pub(in crate::store) fn get_at_once(
        &self,
        key: &[u8],
        read: Read,
        near: Near<'_>,
    ) -> Option<StoreResult<Option<Bytes>>> {
        let reads = self.reads.load(Ordering::Relaxed).wrapping_add(1);
        self.reads.store(reads, Ordering::Relaxed);
        let view = self.begun.view.as_ref().ok()?;
        if reads == 1
            && let Err(e) = self.check_age()
        {
            return Some(Err(e));
        }
        let at_once = !reads.is_multiple_of(LOOKED);
        at_once.then(|| with_stored(key, |key| self.get_stored(view, key, read, near)))
    }

    fn get_stored(
        &self,
        view: &SnapshotView,
        key: &[u8],
        read: Read,
        near: Near<'_>,
    ) -> StoreResult<Option<Bytes>> {
        let hash = layout::hash(key);
        let serializable = read == Read::Serializable;
        if !self.overlaid.load(Ordering::Acquire) {
            if serializable {
                self.state.lock().reads.point(hash, key);
            }
            return self.find(view, hash, key, near);
        }
        match self.own(hash, key, serializable) {
            Own::Known(value) => Ok(value),
            Own::Unknown => self.find(view, hash, key, near),
            Own::Atomic(ops) => Ok(apply_all(self.find(view, hash, key, Near::Nothing)?, &ops)),
        }
    }

    /// See [`crate::store::Touch`]. Returns how many rows with these hashes are in memory.
    pub(in crate::store) fn touch(&self, hashes: &[u64]) -> usize {
        let Ok(view) = &self.begun.view else { return 0 };
        let recent = view.touch(hashes);
        (recent | self.core.values.touch(hashes, recent)).count_ones() as usize
    }

    /// The hash that [`LocalTx::touch`] takes for a key of these parts.
    pub(in crate::store) fn hash_of(parts: &[&[u8]]) -> u64 {
        with_stored_parts(parts, layout::hash)
    }

    pub(in crate::store) async fn get_bulk(
        &self,
        keys: &[Vec<u8>],
        read: Read,
        again: bool,
    ) -> StoreResult<Vec<Option<Bytes>>> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(BULK) {
            let view = self.view().await?;
            let open = self.find_bulk(view, some, read, &mut found)?;
            let rows = view.get_bulk(open.iter().map(|(_, _, key)| key))?;
            for ((n, hash, key), row) in open.iter().zip(rows) {
                if again && row.is_some() {
                    self.core.values.read(*hash, key, self.read().version, row.as_ref());
                }
                if let Some(place) = found.get_mut(*n) {
                    *place = row;
                }
            }
            if some.len() >= LONG_BULK {
                tokio::task::yield_now().await;
            }
        }
        Ok(found)
    }

    /// Appends what memory knows of the values. Returns the places, hashes and stored keys of those that the engine has to be asked for.
    fn find_bulk(
        &self,
        view: &SnapshotView,
        keys: &[Vec<u8>],
        read: Read,
        found: &mut Vec<Option<Bytes>>,
    ) -> StoreResult<Vec<(usize, u64, Bytes)>> {
        let mut open = Vec::new();
        for keys in keys.chunks(AT_ONCE) {
            let keys: Vec<Bytes> = keys.iter().map(|key| stored(key)).collect();
            let hashes: Vec<u64> = keys.iter().map(|key| layout::hash(key)).collect();
            self.touch(&hashes);
            for (key, hash) in keys.into_iter().zip(hashes) {
                let known = match self.own(hash, &key, read == Read::Serializable) {
                    Own::Known(value) => Some(value),
                    Own::Unknown => self.known(view, hash, &key),
                    Own::Atomic(ops) => Some(apply_all(self.find(view, hash, &key, Near::Nothing)?, &ops)),
                };
                if known.is_none() {
                    open.push((found.len(), hash, key));
                }
                found.push(known.flatten());
            }
        }
        Ok(open)
    }

    /// The value in the snapshot.
    fn find(&self, view: &SnapshotView, hash: u64, key: &[u8], near: Near<'_>) -> StoreResult<Option<Bytes>> {
        let known = match near {
            Near::Among(tail) => self.known_among(view, hash, key, tail),
            Near::Ahead(_) | Near::Nothing => self.known(view, hash, key),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        if let Near::Ahead(end) = near
            && self.core.values.is_on()
            && let Some(found) = self.read_ahead(view, key, &stored(end))
        {
            return Ok(Some(found));
        }
        let found = view.get(key)?;
        self.core.values.read(hash, key, self.read().version, found.as_ref());
        Ok(found)
    }

    /// Enters the rows from `key` to `end`, in either direction, in the value cache: the first few of them. Returns the
    /// value of `key`. Rows that cannot be read fail whoever needs them.
    fn read_ahead(&self, view: &SnapshotView, key: &[u8], end: &[u8]) -> Option<Bytes> {
        let (mut first, mut left, mut bytes) = (None, AHEAD, 0);
        let mut one = |row: &[u8], value: &[u8]| {
            let value = Bytes::copy_from_slice(value);
            self.core.values.read(layout::hash(row), row, self.read().version, Some(&value));
            bytes += value.len();
            left -= 1;
            if row == key {
                first = Some(value);
            }
            left > 0 && bytes < AHEAD_BYTES
        };
        if key < end {
            let _ = view.each(key, end, false, &mut one);
        } else if end < key {
            let _ = view.each(end, &key_after(key), true, &mut one);
        }
        first
    }

    /// The value in the snapshot, if memory knows it. Recent commits come first: the value cache may know
    /// an older value than they do.
    fn known(&self, view: &SnapshotView, hash: u64, key: &[u8]) -> Option<Option<Bytes>> {
        view.recent(hash, key).or_else(|| self.core.values.get(hash, key, self.read().version))
    }

    /// As [`LocalTx::known`], or if the rows whose keys differ in their last `tail` bytes only can be kept.
    fn known_among(&self, view: &SnapshotView, hash: u64, key: &[u8], tail: usize) -> Option<Option<Bytes>> {
        if let Some(known) = view.recent(hash, key) {
            return Some(known);
        }
        let known = || self.core.values.get(hash, key, self.read().version);
        let page = match view.subspace(key, tail) {
            Known::Kept(Some(page)) => page,
            Known::Kept(None) | Known::Unknown => return known(),
            Known::Wanted => match known() {
                None => view.keep_subspace(key, tail)?,
                known => return known,
            },
        };
        Some(page.value(key).map(Bytes::copy_from_slice))
    }

    /// The answer of the own writes; records a read that has to go to the snapshot.
    fn own(&self, hash: u64, key: &[u8], serializable: bool) -> Own {
        let mut state = self.state.lock();
        let own = state.writes.own(hash, key);
        if serializable && !matches!(own, Own::Known(_)) {
            state.reads.point(hash, key);
        }
        own
    }

    pub(in crate::store) async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        let view = self.view().await?;
        if begin >= end {
            return Ok(Pairs::default());
        }
        let (b, e) = (stored(begin), stored(end));
        let pairs = if self.overlaid.load(Ordering::Acquire) {
            let State { writes, front, .. } = &mut *self.state.lock();
            scan::scan(view, Some((writes, front)), &b, &e, options)?
        } else {
            scan::scan(view, None, &b, &e, options)?
        };
        if read == Read::Serializable {
            let (b, e) = scan::returned(b, e, &pairs, options.reverse);
            self.state.lock().reads.range(b, e);
        }
        if pairs.pairs.len() > LONG_PAGE {
            tokio::task::yield_now().await;
        }
        Ok(pairs)
    }

    pub(in crate::store) async fn visit(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<bool> {
        if begin >= end || self.overlaid.load(Ordering::Acquire) {
            let page = self.get_range(begin, end, options, Read::Snapshot).await?;
            page.pairs.iter().for_each(|(key, value)| each(key, value));
            return Ok(page.more);
        }
        let view = self.view().await?;
        let visited = scan::visit(view, &stored(begin), &stored(end), options, each)?;
        if visited.rows > LONG_PAGE {
            tokio::task::yield_now().await;
        }
        Ok(visited.full_at.is_some())
    }

    /// As [`LocalTx::visit`], of a range that is kept in memory. Returns where the rest of it begins: at its end if all
    /// was visited, at `begin` if it is not kept or the transaction has to see its own writes.
    pub(in crate::store) async fn visit_kept(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<Vec<u8>> {
        if begin < end && !self.overlaid.load(Ordering::Acquire) {
            let view = self.view().await?;
            if let Some(rows) = view.kept_rows(&stored(begin), &stored(end))? {
                let visited = scan::visit_rows(rows, options, each)?;
                if visited.rows > LONG_PAGE {
                    tokio::task::yield_now().await;
                }
                return Ok(visited.full_at.map_or_else(|| end.to_vec(), |last| key_after(&last)));
            }
        }
        Ok(begin.to_vec())
    }

    fn write(&self, f: impl FnOnce(&mut Writes) -> StoreResult<()>) -> StoreResult<()> {
        let mut state = self.state.lock();
        f(&mut state.writes)?;
        self.overlaid.store(true, Ordering::Release);
        Ok(())
    }

    fn set_row(&self, key: &[u8], value: &[u8], conflict: bool) -> StoreResult<()> {
        let (key, value) = layout::stored_row(key, value);
        self.write(|w| w.set(key, value, conflict))
    }
    pub(in crate::store) fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.set_row(key, value, true)
    }
    pub(in crate::store) fn set_bulk(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.write(|w| w.set_bulk(stored(key), Bytes::copy_from_slice(value)))
    }
    pub(in crate::store) fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.set_row(key, value, false)
    }
    pub(in crate::store) fn clear(&self, key: &[u8]) -> StoreResult<()> {
        self.write(|w| w.clear(stored(key)))
    }
    pub(in crate::store) fn clear_bulk(&self, key: &[u8]) -> StoreResult<()> {
        self.write(|w| w.clear_bulk(stored(key)))
    }
    pub(in crate::store) fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin >= end {
            return Ok(());
        }
        self.write(|w| w.clear_range(stored(begin), stored(end)))
    }
    pub(in crate::store) fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        self.write(|w| w.atomic(stored(key), AtomicKind::Add, Bytes::copy_from_slice(delta)))
    }
    pub(in crate::store) fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        self.write(|w| w.atomic(stored(key), AtomicKind::Max, Bytes::copy_from_slice(operand)))
    }
    pub(in crate::store) fn set_stamped(
        &self,
        prefix: &[u8],
        suffix: &[u8],
        value: &[u8],
    ) -> StoreResult<()> {
        let [suffix, value] = [suffix, value].map(Bytes::copy_from_slice);
        self.state.lock().writes.set_stamped(Stamped { prefix: stored(prefix), suffix, value })
    }
    pub(in crate::store) fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin < end {
            self.state.lock().reads.range(stored(begin), stored(end));
        }
        Ok(())
    }
    pub(in crate::store) fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin >= end {
            return Ok(());
        }
        self.state.lock().writes.add_conflict(stored(begin), stored(end))
    }
    pub(in crate::store) fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        let (sender, receiver) = oneshot::channel();
        self.state.lock().watches.push((stored(key), sender));
        Ok(receiver)
    }
    pub(in crate::store) async fn metadata_version(&self) -> StoreResult<u64> {
        self.view().await?;
        self.state.lock().reads.metadata = true;
        Ok(self.read().metadata_version)
    }
    pub(in crate::store) fn bump_metadata_version(&self) -> StoreResult<()> {
        self.state.lock().writes.bump = true;
        Ok(())
    }
    pub(in crate::store) async fn read_version(&self) -> StoreResult<Version> {
        self.view().await?;
        Ok(self.read().version)
    }
    pub(in crate::store) async fn generation(&self) -> StoreResult<u64> {
        self.view().await?;
        Ok(self.read().generation)
    }
    pub(in crate::store) fn is_write(&self) -> bool {
        !self.state.lock().writes.is_empty()
    }
    pub(in crate::store) fn written(&self) -> usize {
        self.state.lock().writes.size()
    }
    pub(in crate::store) fn nears_large(&self) -> bool {
        self.state.lock().writes.nears_large()
    }
    pub(in crate::store) fn size(&self) -> usize {
        let state = self.state.lock();
        state.writes.size() + state.reads.size()
    }

    /// Hands the writes to the committer. From then on they are committed or rejected whether or not anybody
    /// waits for the answer.
    pub(in crate::store) async fn commit(self) -> StoreResult<Version> {
        let core = self.core.clone();
        let read_only = {
            let state = self.state.lock();
            state.writes.is_empty() && state.watches.is_empty()
        };
        if read_only {
            return Ok(self.read().version);
        }
        let (reply, answer) = oneshot::channel();
        self.foresee().await;
        let request = self.into_request(reply)?;
        core.submit(request)?;
        answer.await.unwrap_or(Err(StoreError::Unknown))
    }

    /// Before a commit: looks up which rows that a large transaction clears exist, so that the committer, for
    /// which everyone waits, does not have to. Done once.
    pub(in crate::store) async fn foresee(&self) {
        if std::mem::replace(&mut self.state.lock().foreseen, true) {
            return;
        }
        let Ok(view) = &self.read().view else { return };
        let mut from = 0;
        while self.state.lock().writes.is_large() {
            let has_more = self.state.lock().writes.ops.some(from, FORESEEN, |key, op| {
                if matches!(op.effect, Effect::Clear) && op.kept {
                    let known = self.known(view, op.hash, key);
                    op.kept = !known.map_or_else(|| view.engine().may_have(key), |row| row.is_some());
                }
            });
            if !has_more {
                return;
            }
            from += FORESEEN;
            tokio::task::yield_now().await;
        }
    }

    fn into_request(self, reply: oneshot::Sender<StoreResult<Version>>) -> StoreResult<Request> {
        self.check_age()?;
        let held = self.late.into_inner().unwrap_or(self.begun);
        let State { reads, writes, watches, .. } = self.state.into_inner();
        if !writes.is_empty() && reads.size() + writes.size() > MAX_TRANSACTION {
            return Err(StoreError::TooLarge);
        }
        Ok(Request { held, reads, writes, watches, reply })
    }

    fn check_age(&self) -> StoreResult<()> {
        let age = self.core.now().saturating_sub(self.started);
        if age > MAX_AGE { Err(StoreError::TooOld) } else { Ok(()) }
    }

    fn read(&self) -> &Published {
        self.late.get().unwrap_or(&self.begun)
    }

    /// The view to read. Every read passes here, and occasionally yields to other tasks: a command with many
    /// reads never waits for anything else, and the runtime may have only one worker thread.
    async fn view(&self) -> StoreResult<&SnapshotView> {
        tokio::task::coop::consume_budget().await;
        self.check_age()?;
        if let Ok(view) = &self.begun.view {
            return Ok(view);
        }
        self.late_view().await
    }

    /// If the transaction began while the store was offline: waits until it is online.
    async fn late_view(&self) -> StoreResult<&SnapshotView> {
        if self.late.get().is_none() {
            let online = self.core.wait_online(|| self.check_age()).await?;
            let _ = self.late.set(online); // a concurrent read may come first: its version then counts
        }
        self.read().view.as_ref().map_err(|offline| StoreError::from(offline.clone()))
    }
}
