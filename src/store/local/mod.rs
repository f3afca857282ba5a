//! The embedded engine: RocksDB as a plain ordered store, with Tern's own transactions on top.
//!
//! ```text
//! LocalTx (tx, reads, writes, scan)            any task; reads one published snapshot
//!    | Request                                 queue
//! Committer (committer, batch, conflicts)      one thread; validates, writes one batch, syncs, publishes, answers
//!    | SnapshotView (snapshot, merged)         one atomic pointer: version, recent rows, RocksDB snapshot
//! Shelf (drain, recent)                        rows of recent commits in memory, and how RocksDB gets them
//! Engine (engine, wal, layout, audit, logs)    the log and the database; reopen: after a failed write
//! ValueCache (value_cache, rows)               values that were lately read, in front of RocksDB
//! ```
//!
//! Why not RocksDB's own transactions: they validate written keys and chosen points only, not ranges.
//!
//! Invariants: there is one writer; readers use the published state, which is as durable as the policy says;
//! a queued commit is applied or rejected whether or not its caller waits; versions only grow, even across
//! restarts.

mod arena;
mod audit;
mod batch;
mod cleared;
mod committer;
mod conflicts;
mod directory;
mod drain;
mod engine;
mod faults;
mod front;
mod gaps;
mod head;
mod layout;
mod logs;
mod merged;
mod order;
mod pages;
mod queue;
mod reads;
mod recent;
mod records;
mod reopen;
mod replay;
mod room;
mod rows;
mod scan;
mod snapshot;
mod stall;
mod steps;
mod synced;
mod syncer;
mod tx;
mod value_cache;
mod wal;
mod watches;

pub use faults::DiskFaults;
pub use tx::LocalTx;

use super::{Fsync, StoreStats, Version};
use crate::env::{Clock, aside};
use crate::error::{StoreError, StoreResult};
use arc_swap::{ArcSwap, ArcSwapOption};
use committer::Committer;
use drain::Shelf;
use engine::Engine;
use parking_lot::{Condvar, Mutex};
use queue::Queue;
use snapshot::{Offline, Published, SnapshotView};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use synced::Lengths;
use tokio::sync::{Notify, oneshot};
use value_cache::ValueCache;

/// Versions skipped at every open: more than an unsynced second can have lost.
const VERSION_GAP: Version = 1 << 20;
/// [`LocalOptions::written_here`] for a server.
const SMALL: usize = 256 << 10;
/// How long sizes computed by RocksDB are cached.
const SIZES_AGE: Duration = Duration::from_secs(1);

/// The embedded engine. Dropping the last clone ends its threads; running transactions keep the database
/// open.
#[derive(Clone)]
pub struct Local(Arc<Handle>);

/// Options of the embedded engine.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// When commits are synced.
    pub fsync: Fsync,
    /// Bytes of recent commits in memory from which on they are moved to RocksDB. Three times as many may be
    /// in memory.
    pub write_buffer: usize,
    /// Size of the block cache in bytes.
    pub block_cache: usize,
    /// Size of the value cache (values recently written or read) in bytes; 0: none.
    pub value_cache: usize,
    /// A commit of fewer bytes may run on the caller's thread.
    pub written_here: usize,
    /// The clock for the 5 s limit.
    pub clock: Clock,
    /// Injects disk failures, for tests.
    pub faults: Option<Arc<DiskFaults>>,
}

impl LocalOptions {
    /// Defaults for a server.
    pub fn new(clock: Clock) -> Self {
        LocalOptions {
            fsync: Fsync::Always,
            write_buffer: 32 << 20,
            block_cache: 160 << 20,
            value_cache: 160 << 20,
            written_here: SMALL,
            clock,
            faults: None,
        }
    }
}

struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.stop(None);
        let threads = self.threads.lock().drain(..).collect::<Vec<_>>();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        let drainers = self.core.drainers.lock().drain(..).collect::<Vec<_>>();
        for (shelf, thread) in drainers {
            // The committer has closed it, unless it has panicked.
            shelf.upgrade().into_iter().for_each(|shelf| shelf.close());
            let _ = thread.join();
        }
    }
}

/// The state that transactions, the committer and the syncer share.
struct Core {
    dir: PathBuf,
    options: LocalOptions,
    published: ArcSwap<Published>,
    values: ValueCache,
    /// Notified when reads may be possible again.
    online: Notify,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// None while the store is being reopened and after it is closed. Locked before `queue`.
    committer: Mutex<Option<Committer>>,
    /// When the store was opened, until compaction starts.
    starting: Mutex<Option<Duration>>,
    /// Since when next to nothing has been written.
    resting: Mutex<syncer::Resting>,
    /// Threads that drain.
    drainers: Mutex<Vec<(Weak<Shelf>, JoinHandle<()>)>>,
    /// Wakes the syncer to stop.
    stop_syncing: Condvar,
    fsync: AtomicU8,
    /// Whether something was written since the last sync.
    unsynced: AtomicBool,
    /// Why writes are refused.
    refusal: ArcSwapOption<String>,
    last_reason: ArcSwapOption<String>,
    counters: Counters,
    sizes: Mutex<Option<Sizes>>,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    conflicts: AtomicU64,
    batches: AtomicU64,
    syncs: AtomicU64,
    write_micros: AtomicU64,
    sync_micros: AtomicU64,
}

#[derive(Clone, Copy)]
struct Sizes {
    at: Duration,
    disk: u64,
    memory: u64,
}

impl Local {
    /// Opens or creates the store in `dir`. Rejects a directory that another process has open or that holds
    /// something else.
    pub fn open(dir: &Path, options: LocalOptions) -> StoreResult<Self> {
        let (engine, recovered) = Engine::open(dir, &options)?;
        let version = recovered.version + VERSION_GAP;
        let shelf = Arc::new(Shelf::new(Arc::new(engine), recovered.log, version + 1));
        let published = Published {
            version,
            metadata_version: recovered.metadata_version,
            generation: 0,
            view: Ok(SnapshotView::new(shelf.layers(), version)),
            readers: Arc::default(),
        };
        let core = Arc::new(Core::new(dir, options, published));
        core.begin_to_drain(&shelf);
        *core.committer.lock() = Some(Committer::new(core.clone(), shelf, recovered.version));
        let committer = core.clone();
        let handle = Handle { core: core.clone(), threads: Mutex::default() };
        let threads = [
            spawn("store-commit", move || committer::run(&committer))?,
            spawn("store-sync", move || core.sync_every_second())?,
        ];
        handle.threads.lock().extend(threads);
        Ok(Local(Arc::new(handle)))
    }
    /// Whether `dir` holds a database, of this engine or not.
    pub fn exists(dir: &Path) -> bool {
        dir.join("CURRENT").exists()
    }
    /// Starts a transaction.
    pub(crate) fn begin(&self) -> LocalTx {
        LocalTx::new(self.0.core.clone())
    }
    /// Counters and sizes. Sizes may be a second old.
    pub(crate) fn stats(&self) -> StoreStats {
        self.0.core.stats()
    }
    /// Changes the sync policy. What was written under the policy before is synced: in a second for `EverySec`,
    /// at once for the others.
    pub fn set_fsync(&self, fsync: Fsync) {
        let core = &self.0.core;
        if core.fsync.swap(fsync_code(fsync), Ordering::AcqRel) == fsync_code(fsync) {
            return;
        }
        match fsync {
            // After an error the store is reopened: there is nobody to tell.
            Fsync::Always => drop(aside(|| self.sync())),
            Fsync::EverySec => core.unsynced.store(true, Ordering::Release),
            // As the policy before has promised: from now on nobody syncs.
            Fsync::No => drop(aside(|| self.sync())),
        }
    }
    /// Syncs what was written since the last sync. After an error the store is reopened.
    pub(super) fn sync(&self) -> StoreResult<()> {
        let core = &self.0.core;
        let view = core.published.load().view.clone()?;
        core.sync_logs(view.engine()).map_err(|reason| {
            core.fail(reason.clone());
            StoreError::Unavailable(reason)
        })
    }
    /// Waits for a generation later than `generation`.
    pub(super) async fn lost(&self, generation: u64) -> u64 {
        let core = &self.0.core;
        loop {
            let notified = core.online.notified();
            let now = core.published.load().generation;
            if now > generation {
                return now;
            }
            notified.await;
        }
    }
    /// Commits the queue, syncs and closes the database; waits up to 5 s for running transactions to release
    /// it.
    pub(crate) async fn close(&self) -> StoreResult<()> {
        let (closer, closed) = oneshot::channel();
        self.0.core.stop(Some(closer));
        closed.await.unwrap_or(Ok(())) // dropped: closed before
    }
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> StoreResult<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(f);
    thread.map_err(|e| StoreError::Unavailable(format!("cannot start a thread: {e}")))
}

fn fsync_code(fsync: Fsync) -> u8 {
    match fsync {
        Fsync::Always => 0,
        Fsync::EverySec => 1,
        Fsync::No => 2,
    }
}

impl Core {
    fn new(dir: &Path, options: LocalOptions, published: Published) -> Self {
        let opened = options.clock.monotonic();
        Core {
            dir: dir.to_path_buf(),
            fsync: AtomicU8::new(fsync_code(options.fsync)),
            values: ValueCache::new(options.value_cache),
            options,
            published: ArcSwap::from_pointee(published),
            online: Notify::new(),
            queue: Mutex::default(),
            committer: Mutex::new(None),
            wake: Condvar::new(),
            starting: Mutex::new(Some(opened)),
            resting: Mutex::default(),
            drainers: Mutex::default(),
            stop_syncing: Condvar::new(),
            unsynced: AtomicBool::new(false),
            refusal: ArcSwapOption::empty(),
            last_reason: ArcSwapOption::empty(),
            counters: Counters::default(),
            sizes: Mutex::default(),
        }
    }

    /// The layers of a database that was just opened, for commits of `since` and later, and a thread that drains them.
    fn shelve(self: &Arc<Self>, engine: Engine, log: u64, since: Version) -> Arc<Shelf> {
        let shelf = Arc::new(Shelf::new(Arc::new(engine), log, since));
        self.begin_to_drain(&shelf);
        shelf
    }

    fn begin_to_drain(self: &Arc<Self>, shelf: &Arc<Shelf>) {
        let (core, drained) = (self.clone(), shelf.clone());
        match spawn("store-drain", move || drain::run(&core, &drained)) {
            Ok(thread) => {
                let mut drainers = self.drainers.lock();
                drainers.retain(|(_, thread)| !thread.is_finished());
                drainers.push((Arc::downgrade(shelf), thread));
            }
            Err(e) => shelf.fail(e.to_string()),
        }
    }

    fn now(&self) -> Duration {
        self.options.clock.monotonic()
    }

    fn fsync(&self) -> Fsync {
        match self.fsync.load(Ordering::Acquire) {
            0 => Fsync::Always,
            1 => Fsync::EverySec,
            _ => Fsync::No,
        }
    }

    /// Nothing can be read any more, or not until the store is open again.
    fn go_offline(&self, offline: Offline) {
        let published = Published::clone(&self.published.load());
        self.published.store(Arc::new(Published { view: Err(offline), ..published }));
        self.online.notify_waiters();
    }

    fn wait_gone(&self, gone: &AtomicBool) {
        let step = Duration::from_millis(1);
        for _ in 0..super::MAX_AGE.as_millis() {
            if gone.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(step);
        }
    }

    /// Waits for the next published state that can be read, unless `alive` returns an error.
    async fn wait_online(&self, alive: impl Fn() -> StoreResult<()>) -> StoreResult<Arc<Published>> {
        loop {
            let notified = self.online.notified();
            let published = self.published.load_full();
            match &published.view {
                Ok(_) => return Ok(published),
                Err(Offline::Reopening) => {
                    alive()?;
                    notified.await;
                }
                Err(offline) => return Err(offline.clone().into()),
            }
        }
    }

    fn refuse(&self, reason: String) {
        let reason = Some(Arc::new(reason));
        self.last_reason.store(reason.clone());
        self.refusal.store(reason);
    }

    fn accept(&self) {
        self.refusal.store(None);
    }

    fn last_reason(&self) -> String {
        self.last_reason.load().as_deref().cloned().unwrap_or_default()
    }

    /// Checks for an injected fault.
    fn disk(&self, ask: impl FnOnce(&DiskFaults) -> std::io::Result<()>) -> Result<(), String> {
        self.options.faults.as_deref().map_or(Ok(()), ask).map_err(|e| e.to_string())
    }

    /// Syncs the log. `lengths`: the result of [`Engine::look_at_logs`].
    fn sync(&self, engine: &Engine, lengths: Option<Lengths>) -> Result<(), String> {
        let start = self.now();
        self.unsynced.store(false, Ordering::Release);
        self.disk(DiskFaults::on_sync)?;
        let faults = self.options.faults.as_deref().map(|faults| (faults, faults::lengths(&self.dir)));
        engine.sync()?;
        if let Some(lengths) = lengths {
            engine.note_synced(lengths);
        }
        if let Some((faults, lengths)) = faults {
            faults.synced(lengths);
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        add_micros(&self.counters.sync_micros, self.now().saturating_sub(start));
        Ok(())
    }

    /// Tests whether the disk can write and sync `bytes`.
    fn probe(&self, bytes: u64) -> Result<(), String> {
        self.disk(DiskFaults::probe)?;
        let path = self.dir.join("PROBE");
        let written = write_zeros(&path, bytes).map_err(|e| self.advised(&e, bytes));
        let removed = std::fs::remove_file(&path).map_err(|e| e.to_string());
        written.and(removed)
    }

    /// The text of a failed probe; if the disk is full, with the space needed.
    fn advised(&self, e: &std::io::Error, bytes: u64) -> String {
        match e.kind() {
            std::io::ErrorKind::StorageFull => {
                let (needed, dir) = (bytes.div_ceil(1 << 20), self.dir.display());
                format!("{e}: free {needed} MB in {dir}")
            }
            _ => e.to_string(),
        }
    }

    fn stats(&self) -> StoreStats {
        let c = &self.counters;
        let sizes = self.sizes();
        StoreStats {
            commits: c.commits.load(Ordering::Relaxed),
            conflicts: c.conflicts.load(Ordering::Relaxed),
            batches: c.batches.load(Ordering::Relaxed),
            syncs: c.syncs.load(Ordering::Relaxed),
            write_micros: c.write_micros.load(Ordering::Relaxed),
            sync_micros: c.sync_micros.load(Ordering::Relaxed),
            disk_bytes: sizes.disk,
            memory_bytes: sizes.memory,
            refusal: self.refusal.load().as_deref().cloned(),
            network: None,
        }
    }

    fn sizes(&self) -> Sizes {
        let now = self.now();
        let mut kept = self.sizes.lock();
        if let Some(sizes) = *kept
            && now.saturating_sub(sizes.at) < SIZES_AGE
        {
            return sizes;
        }
        let (disk, memory) = match &self.published.load().view {
            Ok(view) => {
                let memory = view.engine().memory_bytes() + view.layers.bytes() + self.values.bytes();
                (view.engine().disk_bytes(), memory)
            }
            Err(_) => (0, 0),
        };
        *kept.insert(Sizes { at: now, disk, memory })
    }
}

fn add_micros(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn write_zeros(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let block = [0u8; 64 << 10];
    for _ in 0..bytes.div_ceil(block.len() as u64) {
        file.write_all(&block)?;
    }
    file.sync_all()
}
