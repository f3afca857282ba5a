//! The contract of `tern::store`: a test for each of its sentences, on every engine.
//!
//! `contract!` runs a test on the embedded engine and on the faulty one, whose only fault there is delays:
//! they change the order of operations but no outcome. `random.rs` and `faulty.rs` test injected errors, with
//! retry loops.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod anomalies;
mod atomics;
mod conflicts;
mod engine;
mod failures;
#[path = "../fdb_cluster/mod.rs"]
mod fdb_cluster;

mod faulty;
mod kill;
mod queues;
mod random;

mod ranges;
mod sentences;
mod stamps;
mod watches;

use bytes::Bytes;
#[cfg(feature = "fdb")]
use futures_util::FutureExt;
#[cfg(feature = "fdb")]
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use tern::env::Clock;
use tern::error::{StoreError, StoreResult};
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{DiskFaults, Local, LocalOptions};
use tern::store::{Fsync, RangeOptions, Read, Store, Tx, Version};
use tokio::runtime::Handle;

/// Runs `async fn name(h: &Harness)` on every engine.
macro_rules! contract {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn local() {
                super::$name(&crate::Harness::local()).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn faulty() {
                super::$name(&crate::Harness::delayed()).await;
            }
            #[cfg(feature = "fdb")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fdb() {
                crate::on_cluster(super::$name).await;
            }
        }
    )*};
}
pub(crate) use contract;

/// A store in a temporary directory or namespace, with a manual clock.
pub(crate) struct Harness {
    pub(crate) store: Store,
    /// On FoundationDB.
    namespace: Option<String>,
    /// The stores that `reopen` returned on FoundationDB.
    #[cfg_attr(not(feature = "fdb"), expect(dead_code, reason = "mishaps are counted on FoundationDB only"))]
    reopened: parking_lot::Mutex<Vec<Store>>,
    pub(crate) clock: Clock,
    pub(crate) disk: Arc<DiskFaults>,
    pub(crate) dir: tempfile::TempDir,
}

impl Harness {
    pub(crate) fn local() -> Self {
        Harness::wrapped(|store| store)
    }
    pub(crate) fn delayed() -> Self {
        let rates = FaultRates { delay: 0.3, ..FaultRates::default() };
        Harness::wrapped(|store| Store::Faulty(Faulty::new(store, 1, rates)))
    }
    pub(crate) fn wrapped(wrap: impl FnOnce(Store) -> Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (clock, disk) = (Clock::manual(1_000_000), Arc::default());
        let local = Local::open(dir.path(), options(&clock, &disk, Fsync::No)).unwrap();
        Harness {
            store: wrap(Store::Local(local)),
            namespace: None,
            reopened: Default::default(),
            clock,
            disk,
            dir,
        }
    }
    /// None without an fdbserver.
    #[cfg(feature = "fdb")]
    pub(crate) async fn fdb() -> Option<Self> {
        let file = fdb_cluster::shared("the store contract")?.cluster_file();
        let (clock, namespace) = (Clock::manual(1_000_000), fdb_cluster::namespace());
        let store = fdb_cluster::open(file, namespace.clone(), clock.clone()).await.unwrap();
        let (disk, dir) = (Arc::default(), tempfile::tempdir().unwrap());
        let reopened = Default::default();
        Some(Harness { store, namespace: Some(namespace), reopened, clock, disk, dir })
    }
    /// The same data after a close.
    pub(crate) async fn reopen(&self) -> Store {
        match &self.namespace {
            None => open(self.dir.path(), Fsync::No).unwrap(),
            #[cfg(feature = "fdb")]
            Some(namespace) => {
                let file = fdb_cluster::shared("the store contract").unwrap().cluster_file();
                let store = fdb_cluster::open(file, namespace.clone(), Clock::System).await.unwrap();
                self.reopened.lock().push(store.clone());
                store
            }
            #[cfg(not(feature = "fdb"))]
            Some(_) => unreachable!(),
        }
    }
    /// Commits whose outcome the cluster did not report, and transactions that it refused.
    #[cfg(feature = "fdb")]
    fn mishaps(&self) -> u64 {
        let reopened = self.reopened.lock();
        let networks = reopened.iter().chain([&self.store]).map(|store| store.stats().network.unwrap());
        networks.map(|network| network.unknown + network.too_old).sum()
    }
    /// A transaction that has its snapshot: FoundationDB takes it with the first read.
    pub(crate) fn begin(&self) -> Tx {
        let tx = self.store.begin();
        if self.namespace.is_some() {
            let pinned = tokio::task::block_in_place(|| Handle::current().block_on(tx.read_version()));
            assert!(pinned.is_ok() || matches!(pinned, Err(StoreError::Unavailable(_))), "{pinned:?}");
        }
        tx
    }
    /// Commits these pairs.
    pub(crate) async fn put(&self, pairs: &[(&str, &str)]) -> Version {
        let tx = self.begin();
        for (key, value) in pairs {
            tx.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        tx.commit().await.unwrap()
    }
    /// The committed value.
    pub(crate) async fn value(&self, key: &str) -> Option<String> {
        value(&self.begin(), key, Read::Snapshot).await
    }
    /// All committed keys and values, as `key=value` separated by spaces.
    pub(crate) async fn all(&self) -> String {
        range(&self.begin(), "", "\u{7f}", RangeOptions::default(), Read::Snapshot).await.0
    }
}

/// How often a test on the cluster may be void.
#[cfg(feature = "fdb")]
const VOID: u32 = 4;

/// Runs a test on the cluster. If the cluster lost a commit's answer or refused a transaction for its load,
/// as it may at any time on a busy machine, a failed assertion proves nothing: that run is void and the test
/// runs again in a namespace of its own. Every assertion must hold in the run that counts, and a failure
/// without such a cause fails at once.
#[cfg(feature = "fdb")]
pub(crate) async fn on_cluster(test: impl AsyncFn(&Harness)) {
    for void in 0..=VOID {
        let Some(h) = Harness::fdb().await else { return };
        let Err(failure) = AssertUnwindSafe(test(&h)).catch_unwind().await else { return };
        let mishaps = h.mishaps();
        if mishaps == 0 || void == VOID {
            std::panic::resume_unwind(failure);
        }
        eprintln!("void after {mishaps} unknown or too old: once more");
    }
}

pub(crate) fn options(clock: &Clock, disk: &Arc<DiskFaults>, fsync: Fsync) -> LocalOptions {
    let mut options = LocalOptions::new(clock.clone());
    options.fsync = fsync;
    options.write_buffer = 1 << 20;
    options.block_cache = 1 << 20;
    options.value_cache = 64 << 10;
    options.faults = Some(disk.clone());
    options
}

pub(crate) fn open(dir: &Path, fsync: Fsync) -> StoreResult<Store> {
    Local::open(dir, options(&Clock::System, &Arc::default(), fsync)).map(Store::Local)
}

pub(crate) async fn value(tx: &Tx, key: &str, read: Read) -> Option<String> {
    tx.get(key.as_bytes(), read).await.unwrap().map(text)
}

/// `key=value` separated by spaces, and `more`.
pub(crate) async fn range(
    tx: &Tx,
    begin: &str,
    end: &str,
    options: RangeOptions,
    read: Read,
) -> (String, bool) {
    let found = tx.get_range(begin.as_bytes(), end.as_bytes(), options, read).await.unwrap();
    let pairs: Vec<String> =
        found.pairs.into_iter().map(|(k, v)| format!("{}={}", text(k), text(v))).collect();
    (pairs.join(" "), found.more)
}

pub(crate) fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Whether a commit failed as a conflict; any other failure fails the test.
pub(crate) fn conflicted(outcome: StoreResult<Version>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(StoreError::Conflict) => true,
        Err(e) => panic!("{e}"),
    }
}

/// Reads until it succeeds: the attempt loop of a read.
pub(crate) async fn read_retrying<T>(store: &Store, body: impl AsyncFn(&Tx) -> StoreResult<T>) -> T {
    loop {
        match body(&store.begin()).await {
            Ok(value) => return value,
            Err(e) => assert!(e.is_retryable(), "{e}"),
        }
    }
}
