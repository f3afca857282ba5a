//! The committer: the only writer.
//!
//! It takes all queued transactions, validates each in order (against the table of last writers, which
//! already includes those admitted before it in the same batch), writes one batch, syncs the log once,
//! publishes version and snapshot as one pointer, then answers everyone. While it syncs, the next batch
//! fills: group commit without a timer.
//!
//! It has a thread of its own. A caller that finds it idle commits a small transaction on its own thread
//! ([`run_here`]), sync included: handing over and back costs more than a small write, and about as much as a
//! sync of 0.3 ms (in the trial that decided this, 50 clients, SET and INCR with `appendfsync always` on two
//! cores: 0.80 of redis-server instead of 0.68, one client 0.86 instead of 0.72; `bench/results` has the
//! current numbers). Other tasks on that thread wait meanwhile, as all of Redis' clients do; so after a slow
//! write, commits stay on the committer's thread for a while.
//!
//! The write and the sync are separate calls, so that their times and failures can be told apart; nobody sees
//! the batch before both are done. After a failure of either, `reopen.rs` takes over.

use super::batch::{Admitted, Batch, Before};
use super::cleared::Cleared;
use super::conflicts::Conflicts;
use super::drain::{Shelf, publish};
use super::engine::Engine;
use super::faults::DiskFaults;
use super::layout;
use super::reads::Reads;
use super::recent::{Layer, Readers, Written};
use super::reopen::Broken;
use super::snapshot::{Offline, Published, SnapshotView};
use super::watches::Watches;
use super::{Core, add_micros};
use crate::error::{StoreError, StoreResult};
use crate::store::writes::{Effect, Writes};
use crate::store::{Fsync, MAX_AGE, Version};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// A batch takes no further transaction once it has this number of bytes, so that those behind it do not wait
/// long.
const BATCH_BYTES: usize = 8 << 20;

/// After a write and sync that took longer than this, no commit runs on a caller's thread for [`SLOW_FOR`],
/// because others need that thread.
const SLOW: Duration = Duration::from_millis(2);
const SLOW_FOR: Duration = Duration::from_millis(100);

/// A watched key (in stored form) and the receiver that waits for it.
pub(super) type Waiter = (Bytes, oneshot::Sender<()>);

/// A transaction on its way to the committer.
pub(super) struct Request {
    /// The state that it read. Held until it has been validated, so that the table is not pruned past it.
    pub(super) held: Arc<Published>,
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    pub(super) watches: Vec<Waiter>,
    pub(super) reply: oneshot::Sender<StoreResult<Version>>,
}

/// A superseded version that may still be read.
struct Retired {
    version: Version,
    at: Duration,
    readers: Weak<()>,
}

impl Retired {
    fn is_read(&self) -> bool {
        self.readers.strong_count() > 0
    }
}

/// A log may be so many times as long as a layer is large: rows that are written again and again fill the
/// log only.
const LOG: usize = 4;
/// Rows entered while one lock is held.
const ENTERED: usize = 512;

/// See the module.
pub(super) struct Committer {
    pub(super) core: Arc<Core>,
    pub(super) engine: Arc<Engine>,
    pub(super) shelf: Arc<Shelf>,
    pub(super) version: Version,
    pub(super) metadata_version: Version,
    pub(super) generation: u64,
    /// The version of the last batch in the database. `version` may be ahead of it since the store was
    /// opened.
    pub(super) written: Version,
    conflicts: Conflicts,
    pub(super) watches: Watches,
    retired: VecDeque<Retired>,
    /// Versions superseded so long ago that who reads them is too old to write.
    lingering: Vec<Retired>,
    /// Until then the disk counts as slow.
    slow_until: Duration,
}

/// What the committer's thread is woken for.
pub(super) enum Task {
    /// Requests, or a failure.
    Commit,
    /// Watches of cleared ranges that have yet to be fired.
    Fire,
}

/// The body of the committer's thread.
pub(super) fn run(core: &Arc<Core>) {
    let _guard = CloseOnExit(core.clone());
    while let Some(task) = core.wait_for_work() {
        let mut slot = core.committer.lock();
        let Some(committer) = slot.as_mut() else { return };
        let result = match task {
            Task::Commit => committer.work(),
            Task::Fire => {
                committer.fire_some();
                Ok(())
            }
        };
        let Err(broken) = result else { continue };
        let Some(committer) = slot.take() else { return };
        drop(slot);
        match committer.reopen(broken) {
            Some(committer) => *core.committer.lock() = Some(committer),
            None => return,
        }
    }
    let committer = core.committer.lock().take();
    if let Some(committer) = committer {
        committer.shut_down();
    }
}

/// Commits the queue on the caller's thread, which saves two hand-overs between threads. False if the
/// committer's own thread must be woken: it is already working, the disk is slow, or something has failed.
pub(super) fn run_here(core: &Core) -> bool {
    let Some(mut slot) = core.committer.try_lock() else { return false };
    let Some(committer) = slot.as_mut() else { return false };
    if core.now() < committer.slow_until || committer.is_crowded() || !core.is_short() {
        return false;
    }
    let _guard = CloseOnPanic(core);
    match committer.work() {
        Ok(()) => true,
        Err(broken) => {
            core.queue.lock().broken = Some(broken);
            false
        }
    }
}

impl Committer {
    /// A committer for a database whose last batch had version `written`.
    pub(super) fn new(core: Arc<Core>, shelf: Arc<Shelf>, written: Version) -> Self {
        let engine = shelf.layers().engine().clone();
        let Published { version, metadata_version, generation, .. } = **core.published.load();
        let conflicts = Conflicts::new(version);
        let (watches, retired, lingering) = Default::default();
        Committer {
            core,
            engine,
            shelf,
            version,
            metadata_version,
            generation,
            written,
            conflicts,
            watches,
            retired,
            lingering,
            slow_until: Duration::ZERO,
        }
    }

    /// Commits the queue. Handle an error before doing anything else.
    fn work(&mut self) -> Result<(), Broken> {
        let work = self.core.take_work();
        if let Some(broken) = work.broken {
            return Err(broken.with_rest(work.requests.into_iter()));
        }
        self.process(work.requests)?;
        self.fire_some();
        work.failure.map_or(Ok(()), |reason| Err(reason.into()))
    }

    fn fire_some(&mut self) {
        if self.watches.fire_some() {
            self.core.fire_soon();
        }
    }

    fn process(&mut self, requests: Vec<Request>) -> Result<(), Broken> {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let mut batch = Batch::new(self.version);
            let view = SnapshotView::newest(self.shelf.layers());
            let mut bytes = 0;
            while bytes < BATCH_BYTES
                && let Some(request) = requests.next()
            {
                bytes += request.writes.size();
                self.admit(request, &mut batch, &view);
            }
            drop(view);
            self.commit(batch).map_err(|broken| broken.with_rest(requests.by_ref()))?;
        }
        Ok(())
    }

    fn admit(&mut self, mut request: Request, batch: &mut Batch, view: &SnapshotView) {
        let outcome = self.check(&request, batch).and_then(|()| {
            let past = Before { view, values: &self.core.values };
            batch.resolve(&mut request, &past, &self.conflicts)?;
            self.wake_outdated(&mut request, batch);
            Ok(())
        });
        match outcome {
            Ok(()) if request.writes.is_empty() => self.watch_only(request),
            Ok(()) => {
                let past = Before { view, values: &self.core.values };
                batch.admit(request, &past, &mut self.conflicts);
            }
            Err(e) => {
                let refused = u64::from(e == StoreError::Conflict);
                self.core.counters.conflicts.fetch_add(refused, Ordering::Relaxed);
                let _ = request.reply.send(Err(e));
            }
        }
    }

    fn check(&mut self, request: &Request, batch: &Batch) -> StoreResult<()> {
        if request.writes.is_empty() {
            return Ok(());
        }
        self.conflicts.check(&request.reads, request.held.version)?;
        let mut ranges = request.reads.ranges.iter();
        if ranges.any(|(begin, end)| batch.wrote_in(begin, end)) { Err(StoreError::Conflict) } else { Ok(()) }
    }

    /// Watches whose key changed between the read version and now, or may have, are woken after the batch, which
    /// may contain the change.
    fn wake_outdated(&self, request: &mut Request, batch: &mut Batch) {
        let read = request.held.version;
        let is_outdated = |key: &[u8]| {
            !self.conflicts.is_complete_after(read) || self.conflicts.point(layout::hash(key), key) > read
        };
        let (outdated, current) =
            std::mem::take(&mut request.watches).into_iter().partition(|(key, _)| is_outdated(key));
        request.watches = current;
        batch.outdated.extend::<Vec<Waiter>>(outdated);
    }

    fn watch_only(&mut self, request: Request) {
        for (key, sender) in request.watches {
            self.watches.add(key, sender);
        }
        let _ = request.reply.send(Ok(request.held.version));
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), Broken> {
        if !batch.admitted.is_empty()
            && let Err(reason) = self.write(&mut batch)
        {
            return Err(Broken::new(reason, batch));
        }
        let outdated = std::mem::take(&mut batch.outdated);
        if !batch.admitted.is_empty() {
            self.finish(batch);
        }
        for (_, sender) in outdated {
            let _ = sender.send(());
        }
        Ok(())
    }

    /// Writes the batch and, if the policy says so, syncs. An error leaves the batch in doubt.
    fn write(&mut self, batch: &mut Batch) -> Result<(), String> {
        self.make_room()?;
        let counters = &self.core.counters;
        let start = self.core.now();
        self.core.disk(DiskFaults::on_write)?;
        self.engine.append(batch.seal())?;
        let written = self.core.now();
        add_micros(&counters.write_micros, written.saturating_sub(start));
        counters.batches.fetch_add(1, Ordering::Relaxed);
        match self.core.fsync() {
            Fsync::Always => self.sync()?,
            Fsync::EverySec => self.core.unsynced.store(true, Ordering::Release),
            Fsync::No => {}
        }
        let done = self.core.now();
        if done.saturating_sub(start) > SLOW {
            self.slow_until = done + SLOW_FOR;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), String> {
        let lengths = self.engine.look_at_logs(self.core.now());
        self.core.sync(&self.engine, lengths)
    }

    /// Begins another layer if the newest is full. Waits while too many wait to be drained.
    fn make_room(&mut self) -> Result<(), String> {
        if self.is_full() {
            self.shelf.wait_for_room()?;
            self.turn()?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let most = self.core.options.write_buffer;
        self.engine.log_length() >= LOG * most
            || self.shelf.newest().is_some_and(|newest| newest.is_full(most))
    }

    /// Whether the next layer may have to wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.shelf.is_crowded()
    }

    /// Whether this layer takes new commits.
    pub(super) fn is_newest(&self, layer: &Arc<Layer>) -> bool {
        self.shelf.newest().is_some_and(|newest| Arc::ptr_eq(&newest, layer))
    }

    /// Begins another layer.
    pub(super) fn turn(&mut self) -> Result<(), String> {
        let log = self.engine.turn()?;
        self.shelf.begin(log, self.version + 1);
        Ok(())
    }

    /// Publishes a written batch and answers its transactions.
    fn finish(&mut self, batch: Batch) {
        if let Some(newest) = self.shelf.newest() {
            let readers = Readers { oldest: self.oldest_read(newest.since()), newest: self.version };
            batch.admitted.iter().for_each(|admitted| enter(&newest, admitted, readers));
            newest.committed(batch.last(), batch.metadata());
        }
        let written = batch.admitted.iter().flat_map(|admitted| admitted.writes.ops.iter());
        let written = written.filter(|(_, op)| matches!(op.effect, Effect::Set(_))).map(|(key, _)| key);
        self.engine.gaps().cut(batch.last(), written);
        self.version = batch.last();
        self.written = self.version;
        self.metadata_version = batch.metadata().unwrap_or(self.metadata_version);
        self.core.counters.commits.fetch_add(batch.admitted.len() as u64, Ordering::Relaxed);
        self.publish_newest();
        let mut keys = Vec::new();
        for admitted in batch.admitted {
            let _ = admitted.reply.send(Ok(admitted.version)); // the receiver may have given up
            self.watches.fire(&admitted.writes);
            for (key, sender) in admitted.watches {
                self.watches.add(key, sender);
            }
            let ops = admitted.writes.ops.into_iter().filter(|(_, op)| op.conflict);
            keys.extend(ops.map(|(key, op)| (key, op.hash, admitted.version)));
        }
        self.conflicts.archive(keys, self.version);
        self.prune();
    }

    /// Publishes everything that was committed.
    pub(super) fn publish_newest(&mut self) {
        let layers = self.shelf.layers();
        self.publish(Ok(SnapshotView::new(layers.clone(), self.version)));
        // A layer that was drained meanwhile is not kept until the next commit.
        if !Arc::ptr_eq(&layers, &self.shelf.layers()) {
            publish(&self.core, &self.engine, &self.shelf);
        }
    }

    /// Publishes the committer's version for new transactions.
    pub(super) fn publish(&mut self, view: Result<SnapshotView, Offline>) {
        let (version, metadata_version, generation) = (self.version, self.metadata_version, self.generation);
        let readers = Arc::default();
        let published = Published { version, metadata_version, generation, view, readers };
        let old = self.core.published.swap(Arc::new(published));
        let readers = Arc::downgrade(&old.readers);
        self.retired.push_back(Retired { version: old.version, at: self.core.now(), readers });
    }

    /// The oldest version, from `since` on, that somebody reads or may begin to read.
    fn oldest_read(&mut self, since: Version) -> Version {
        self.lingering.retain(Retired::is_read);
        let lingering = self.lingering.iter().map(|r| r.version).filter(|v| *v >= since).min();
        let retired = self.retired.iter().find(|r| r.version >= since && r.is_read()).map(|r| r.version);
        lingering.or(retired).unwrap_or(self.version)
    }

    /// Forgets conflicts below the oldest version that a live transaction reads. A transaction that reads a
    /// version superseded more than 5 s ago is too old anyway.
    fn prune(&mut self) {
        let now = self.core.now();
        while let Some(first) = self.retired.front() {
            let is_old = now.saturating_sub(first.at) > MAX_AGE;
            if first.is_read() && !is_old {
                break;
            }
            self.lingering.extend(self.retired.pop_front().filter(Retired::is_read));
        }
        let floor = self.retired.front().map_or(self.version, |r| r.version);
        self.conflicts.prune(floor);
    }

    /// Transactions that read a version before `version` become too old to write.
    pub(super) fn forget_before(&mut self, version: Version) {
        self.conflicts = Conflicts::new(version);
    }

    /// Moves everything to tables, unless RocksDB would wait for compaction first.
    fn drain(&mut self) -> Result<(), String> {
        if self.engine.is_near_stall() {
            return Ok(());
        }
        if self.shelf.newest().is_some_and(|newest| newest.is_used()) {
            self.turn()?;
        }
        self.shelf.wait_for(1, 1)
    }

    /// Stops at the end of the queue. If a caller waits for this, everything is drained, so that the next open
    /// has no log to replay, and the database is closed once the last transaction is gone.
    pub(super) fn shut_down(mut self) {
        let core = self.core.clone();
        let outcome = self.sync().map_err(StoreError::Unavailable);
        let closers = core.take_closers();
        if !closers.is_empty()
            && let Err(e) = self.drain()
        {
            tracing::warn!(error = e, "not everything was moved to tables at close; it is in the log");
        }
        self.shelf.close();
        self.engine.note_manifest_at_close();
        self.publish(Err(Offline::Closed));
        let gone = self.engine.gone();
        drop(self);
        if !closers.is_empty() {
            core.wait_gone(&gone);
        }
        closers.into_iter().for_each(|closer| drop(closer.send(outcome.clone())));
    }
}

/// Enters a transaction's effects before the next view is published.
fn enter(to: &Layer, admitted: &Admitted, readers: Readers) {
    let Admitted { version, writes, removed, .. } = admitted;
    let version = *version;
    if !removed.ranges.is_empty() {
        let range =
            |(begin, end): &(Bytes, Bytes)| Cleared { begin: begin.clone(), end: end.clone(), version };
        to.clear(removed.ranges.iter().map(range));
    }
    let removed = removed.keys.iter().map(|key| {
        let hash = layout::hash(key);
        Written { key, hash, version, value: None, kept: true }
    });
    let written = writes.ops.iter().filter_map(|(key, op)| {
        let value = match &op.effect {
            Effect::Set(value) => Some(value),
            Effect::Clear => None,
            Effect::Atomic(_) => return None, // left out
        };
        Some(Written { key, hash: op.hash, version, value, kept: op.kept })
    });
    let mut rows = removed.chain(written).peekable();
    while rows.peek().is_some() {
        to.enter(rows.by_ref().take(ENTERED), readers);
    }
}

/// Closes the store if the committer panics: its state must not be used.
struct CloseOnPanic<'a>(&'a Core);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.refuse_for_good();
        }
    }
}

/// However the thread ends, later commits are rejected instead of waiting forever.
struct CloseOnExit(Arc<Core>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        self.0.refuse_for_good();
    }
}
