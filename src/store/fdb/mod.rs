//! FoundationDB as the engine: any number of servers on one cluster, through its client library (API 730).
//!
//! ```text
//! FdbTx (tx, reads, scan)      any task; own writes and conflict ranges are kept here, the snapshot is read there
//!    | commit                  a task of its own: mutations and conflict ranges in one go, then the answer
//! Transaction                  the library's, one for each of ours, on its network thread (network)
//! ```
//!
//! Why reads and writes are kept on this side: every call into the library crosses over to its network
//! thread. A batch that touches one record fifty times crosses once to read it and once to write it, and a
//! key that was prefetched is answered without waiting. The library's own cache of a transaction's reads and
//! writes is off. Its retry loop (`run`) is not used, because it retries forever and loses track of unknown
//! commits.
//!
//! * All keys are below one directory of FoundationDB's directory layer, `("tern", <namespace>)`.
//! * A transaction reads one version, which the library gets with the first read, not at `begin`: so a read
//!   sees whatever was committed before it was sent, by any server.
//! * Every transaction ends within `store-timeout`. If it was committing by then it is unknown, otherwise
//!   unavailable.
//! * The metadata version is the cluster's own, so every layer on the cluster can change it; that costs other
//!   servers a look at their catalog. It is a snapshot read: the conflict is on a key of the namespace, which
//!   each bump of this namespace writes, so that the bumps of others make no transaction run again.

mod commit;
mod errors;
mod network;
mod reads;
mod scan;
mod status;
mod tls;
mod tx;

pub use network::stop;
pub use tls::FdbTls;
pub use tx::FdbTx;

use super::{ClusterStatus, NetworkStats, Retries, StoreStats, Version};
use crate::env::Clock;
use crate::error::{StoreError, StoreResult};
use bytes::Bytes;
use errors::{of_commit, of_read, unavailable};
use foundationdb::directory::{Directory, DirectoryError, DirectoryLayer};
use foundationdb::options::DatabaseOption;
use foundationdb::tuple::hca::HcaError;
use foundationdb::{Database, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The most bytes of a namespace's prefix: the part of FoundationDB's key limit above [`super::MAX_KEY`].
const MAX_PREFIX: usize = 100;
/// Attempts to open the directory, because several servers may create it at once.
const OPEN_ATTEMPTS: u32 = 20;

/// A namespace of a FoundationDB cluster. Cheap to clone.
#[derive(Clone)]
pub struct Fdb(Arc<Core>);

/// Options of a cluster.
#[derive(Debug, Clone)]
pub struct FdbOptions {
    /// The file that names the coordinators; the library rewrites it when they change.
    pub cluster_file: PathBuf,
    /// The second part of the directory's path.
    pub namespace: String,
    /// The longest life of a transaction, from its begin to the answer of its commit.
    pub timeout: Duration,
    /// TLS files and rules; those of the first store opened apply to the whole process.
    pub tls: FdbTls,
    /// The clock for the 5 s limit.
    pub clock: Clock,
}

/// The state that transactions share.
struct Core {
    database: Arc<Database>,
    prefix: Vec<u8>,
    clock: Clock,
    closed: AtomicBool,
    committing: AtomicUsize,
    /// Notified when the last commit in flight has ended.
    idle: Notify,
    counters: Counters,
    status: status::Cached,
}

impl Drop for Core {
    fn drop(&mut self) {
        network::store_gone();
    }
}

/// The watches that a server may have: as many as the client library allows. Each key that a client waits for takes one
/// or two, and each database one.
const MOST_WATCHES: i32 = 1_000_000;

#[derive(Default)]
struct Counters {
    read_versions: AtomicU64,
    keys: AtomicU64,
    ranges: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
    unknown: AtomicU64,
    too_old: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A client of a cluster that has not answered yet.
pub struct FdbClient {
    database: Arc<Database>,
    options: FdbOptions,
}

impl FdbClient {
    /// Starts FoundationDB's client. Fails if the options are invalid.
    pub fn new(options: FdbOptions) -> StoreResult<Self> {
        network::boot(&options)?;
        let file = options.cluster_file.to_str();
        let file =
            file.ok_or_else(|| StoreError::Unavailable("the cluster file's path is not UTF-8".into()))?;
        let database = Database::from_path(file).map_err(unavailable)?;
        let millis = i32::try_from(options.timeout.as_millis()).unwrap_or(i32::MAX);
        for option in [
            DatabaseOption::TransactionTimeout(millis),
            DatabaseOption::TransactionRetryLimit(0),
            DatabaseOption::MaxWatches(MOST_WATCHES),
        ] {
            database.set_option(option).map_err(unavailable)?;
        }
        Ok(FdbClient { database: Arc::new(database), options })
    }

    /// Opens the namespace, creating it if needed. [`StoreError::Unavailable`] if the cluster does not answer
    /// within the timeout: it may be retried.
    pub async fn open(&self) -> StoreResult<Fdb> {
        let options = &self.options;
        let path = ["tern".to_owned(), options.namespace.clone()];
        let opened = root(&self.database, &path).await;
        let prefix = opened.map_err(|e| tls::explain(e, &options.cluster_file))?;
        if prefix.len() > MAX_PREFIX {
            return Err(StoreError::Corrupt(format!(
                "the namespace's prefix of {} bytes is too long",
                prefix.len()
            )));
        }
        Ok(Fdb(Arc::new(Core {
            database: self.database.clone(),
            prefix,
            clock: options.clock.clone(),
            closed: AtomicBool::new(false),
            committing: AtomicUsize::new(0),
            idle: Notify::new(),
            counters: Counters::default(),
            status: status::Cached::default(),
        })))
    }
}

impl Fdb {
    /// Opens a cluster's namespace: see [`FdbClient`].
    pub async fn open(options: FdbOptions) -> StoreResult<Self> {
        FdbClient::new(options)?.open().await
    }

    pub(super) fn begin(&self) -> FdbTx {
        FdbTx::new(self.0.clone())
    }

    pub(super) fn begin_at(&self, version: Version) -> FdbTx {
        let tx = self.begin();
        tx.read_at(version);
        tx
    }

    pub(super) fn stats(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.0.counters;
        let network = NetworkStats {
            read_versions: get(&c.read_versions),
            keys_read: get(&c.keys),
            ranges_read: get(&c.ranges),
            unknown: get(&c.unknown),
            too_old: get(&c.too_old),
        };
        StoreStats {
            commits: get(&c.commits),
            conflicts: get(&c.conflicts),
            network: Some(network),
            ..StoreStats::default()
        }
    }

    pub(super) async fn cluster(&self) -> ClusterStatus {
        self.0.status.get(&self.0).await
    }

    /// Rejects new requests, and waits for the commits in flight.
    pub(super) async fn close(&self) -> StoreResult<()> {
        self.0.closed.store(true, Ordering::SeqCst);
        loop {
            let idle = self.0.idle.notified();
            if self.0.committing.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            idle.await;
        }
    }
}

impl Core {
    /// `key` with the namespace's prefix.
    fn stored(&self, key: &[u8]) -> Bytes {
        let mut stored = Vec::with_capacity(self.prefix.len() + key.len() + 1);
        stored.extend_from_slice(&self.prefix);
        stored.extend_from_slice(key);
        stored.into()
    }
    /// The key that stands for the namespace's bumps of the metadata version. It has no row, only conflicts.
    fn bumped(&self) -> Bytes {
        self.stored(&[])
    }
    fn transaction(&self) -> StoreResult<Transaction> {
        self.check_open()?;
        self.database.create_trx().map_err(unavailable)
    }
    fn check_open(&self) -> StoreResult<()> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the store has been closed".into())),
            false => Ok(()),
        }
    }
    /// Counts a failure.
    fn failed(&self, e: StoreError) -> StoreError {
        match e {
            StoreError::Conflict => count(&self.counters.conflicts),
            StoreError::Unknown => count(&self.counters.unknown),
            StoreError::TooOld => count(&self.counters.too_old),
            _ => {}
        }
        e
    }
}

/// The prefix of the directory at `path`.
async fn root(database: &Database, path: &[String]) -> StoreResult<Vec<u8>> {
    let mut retries = Retries::new(OPEN_ATTEMPTS).idempotent();
    loop {
        match try_root(database.create_trx().map_err(unavailable)?, path).await {
            Err(e) => retries.on_error(e)?,
            done => return done,
        }
    }
}

async fn try_root(tx: Transaction, path: &[String]) -> StoreResult<Vec<u8>> {
    let layer = DirectoryLayer::default();
    let directory = layer.create_or_open(&tx, path, None, None).await.map_err(of_directory)?;
    let prefix = directory.bytes().map_err(of_directory)?.to_vec();
    tx.commit().await.map_err(|e| of_commit(e.into()))?;
    Ok(prefix)
}

fn of_directory(e: DirectoryError) -> StoreError {
    match e {
        DirectoryError::FdbError(e) | DirectoryError::HcaError(HcaError::FdbError(e)) => of_read(e),
        e => StoreError::Corrupt(format!("FoundationDB's directory layer: {e:?}")),
    }
}
