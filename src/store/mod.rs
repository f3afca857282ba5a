//! The store contract: an ordered map of bytes with optimistic transactions, FoundationDB's semantics on
//! every engine. `tests/store_contract` has a test for each sentence.
//!
//! * A transaction reads one version, its snapshot: that of `begin`, or (FoundationDB) of its first read.
//!   `Read::Serializable` adds a read conflict range, so that the commit fails with [`StoreError::Conflict`]
//!   if a later commit wrote into it; `Read::Snapshot` does not.
//! * Reads see the transaction's own writes. A read of a key with pending atomic operations resolves them
//!   against the snapshot (and conflicts as its mode says). A point read that is answered by the
//!   transaction's own writes alone conflicts with nothing.
//! * Writes never make their own commit fail: they fail *other* transactions that read the keys. Atomic
//!   operations and blind writes of two transactions never conflict with each other.
//! * A stamped row ([`Tx::set_stamped`]) is named by its commit: rows of later commits sort after those of
//!   earlier ones.
//! * A transaction without writes commits without a check, at its read version.
//! * Committed transactions are equivalent to running one after the other in the order of their commit
//!   versions, as far as their reads are serializable.
//! * Limits on every engine: 9.9 kB per key, 100 kB per value, 10 MB of writes and conflict ranges, 5 s of
//!   age (reads and writing commits of an older transaction fail with [`StoreError::TooOld`]).
//! * A commit that has been started is applied or not regardless of whether its caller keeps waiting for it.
//! * [`StoreError::Unknown`] is the only error of a commit after which it may have been applied. Every other
//!   error means that it was not and will not be.
//! * Within a [generation](Tx::generation), whatever was committed stays committed. A store that lost
//!   acknowledged commits begins another generation.
//! * Keys may be any bytes on the embedded engine; FoundationDB reserves keys that begin with 0xff, so no
//!   code uses them.

mod effects;
mod emptied;
pub mod faulty;
#[cfg(feature = "fdb")]
pub mod fdb;
pub(crate) mod halves;
mod held;
mod kept;
pub mod local;
mod near;
pub mod observe;
mod rest;
mod retry;
pub mod tamper;
mod touch;
mod writes;

pub use rest::Rest;
pub use retry::{Failure, Retries};
pub use touch::{AT_ONCE, Touch};

use crate::error::{StoreError, StoreResult};
use bytes::Bytes;
use near::Near;
use std::time::Duration;

/// Longest key in bytes: FoundationDB's 10 kB minus what the prefix of a namespace may take.
pub const MAX_KEY: usize = 9_900;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 100_000;
/// Largest sum of written keys, values and conflict ranges in bytes.
pub const MAX_TRANSACTION: usize = 10_000_000;
/// Longest life of a transaction.
pub const MAX_AGE: Duration = Duration::from_secs(5);

/// Bytes of a stamp: see [`Tx::set_stamped`].
pub const STAMP: usize = 10;

/// A commit version: larger is later.
pub type Version = u64;

/// Whether a read adds a read conflict range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The commit fails if another commit wrote what was read.
    Serializable,
    /// No conflict.
    Snapshot,
}

/// Limits of a range read. `limit` 0 and `bytes` 0 mean no bound.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeOptions {
    /// The most pairs to return.
    pub limit: usize,
    /// Stops after the pair that reaches this number of bytes of keys and values.
    pub bytes: usize,
    /// Reads from the end of the range to its beginning.
    pub reverse: bool,
}

/// A part of a range. If `more`, continue after the last key.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Keys and values in the order asked for.
    pub pairs: Vec<(Bytes, Bytes)>,
    /// True if `limit` or `bytes` ended the read. It stops at once, so the rest of the range may be empty.
    pub more: bool,
}

/// When a commit is on disk (embedded engine).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before it is acknowledged: one sync for all that wait.
    Always,
    /// At least once a second; a crash of the machine can lose that second.
    EverySec,
    /// When the operating system writes it.
    No,
}

/// Counters of an engine, for INFO and metrics. Times are in microseconds.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Transactions with writes that committed.
    pub commits: u64,
    /// Commits rejected with a conflict.
    pub conflicts: u64,
    /// Batches written by the committer (embedded engine).
    pub batches: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Total time spent writing batches.
    pub write_micros: u64,
    /// Total time spent in syncs.
    pub sync_micros: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Memory that the engine accounts for (recent commits, memtables, caches), in bytes.
    pub memory_bytes: u64,
    /// Why writes are refused, from a failed write or sync until the store has been reopened.
    pub refusal: Option<String>,
    /// Network counters; None for an engine without a network.
    pub network: Option<NetworkStats>,
}

/// Requests to an engine behind a network, and its errors other than conflicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Transactions that got a read version.
    pub read_versions: u64,
    /// Keys fetched by point reads; reads that the transaction could answer itself are not counted.
    pub keys_read: u64,
    /// Pages fetched by range reads.
    pub ranges_read: u64,
    /// Commits whose result is unknown.
    pub unknown: u64,
    /// Reads and commits rejected because the transaction was too old, or because of load.
    pub too_old: u64,
}

/// A cluster's report about itself. All false or empty if it does not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterStatus {
    /// It can be read and written.
    pub(crate) available: bool,
    /// No data is missing or being moved to replace missing copies.
    pub(crate) healthy: bool,
    /// The state of its recovery.
    pub(crate) state: String,
    /// Its redundancy mode, by FoundationDB's name.
    pub(crate) redundancy: String,
    /// Its storage engine.
    pub(crate) engine: String,
    /// Number of server processes.
    pub(crate) processes: u64,
    /// The number of zones that may fail before it becomes unavailable.
    pub(crate) tolerated: i64,
}

/// An engine. Cheap to clone.
#[derive(Clone)]
pub enum Store {
    /// The embedded engine, in a directory.
    Local(local::Local),
    /// Another engine with seeded faults, for tests.
    Faulty(faulty::Faulty),
    /// A FoundationDB cluster.
    #[cfg(feature = "fdb")]
    Fdb(fdb::Fdb),
}

/// One transaction. Not reusable after [`Tx::commit`].
#[expect(clippy::large_enum_variant, reason = "the common variant is inline: beginning allocates nothing")]
pub enum Tx {
    /// On the embedded engine.
    Local(local::LocalTx),
    /// On a faulty engine.
    Faulty(Box<faulty::FaultyTx>),
    /// On FoundationDB.
    #[cfg(feature = "fdb")]
    Fdb(Box<fdb::FdbTx>),
}

/// Resolves when the watched key changes, or spuriously; see [`Tx::watch`].
pub type Watch = tokio::sync::oneshot::Receiver<()>;

impl Store {
    /// Starts a transaction; on the embedded engine at the last published version.
    pub fn begin(&self) -> Tx {
        match self {
            Store::Local(s) => Tx::Local(s.begin()),
            Store::Faulty(s) => Tx::Faulty(Box::new(s.begin())),
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => Tx::Fdb(Box::new(s.begin())),
        }
    }
    /// Starts a transaction that reads `version`, a recent one, if getting a new read version costs a round
    /// trip; otherwise like [`Store::begin`]. For rows that never change.
    #[cfg_attr(not(feature = "fdb"), expect(unused_variables))]
    pub fn begin_at(&self, version: Version) -> Tx {
        match self {
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => Tx::Fdb(Box::new(s.begin_at(version))),
            _ => self.begin(),
        }
    }
    /// Counters and sizes.
    pub fn stats(&self) -> StoreStats {
        match self {
            Store::Local(s) => s.stats(),
            Store::Faulty(s) => s.stats(),
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => s.stats(),
        }
    }
    /// The cluster's report about itself; None without a cluster. Waits up to a few seconds.
    pub(crate) async fn cluster(&self) -> Option<ClusterStatus> {
        match self {
            Store::Local(_) => None,
            Store::Faulty(s) => s.cluster().await,
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => Some(s.cluster().await),
        }
    }
    /// Whether reading many keys concurrently is faster than one after the other, because the store is behind
    /// a network.
    pub(crate) fn prefers_prefetch(&self) -> bool {
        match self {
            Store::Local(_) => false,
            Store::Faulty(s) => s.prefers_prefetch(),
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => true,
        }
    }
    /// Whether other processes can have this store open too.
    pub fn is_shared(&self) -> bool {
        match self {
            Store::Local(_) => false,
            Store::Faulty(s) => s.is_shared(),
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => true,
        }
    }
    /// Changes the sync policy. No effect on an engine without one.
    pub fn set_fsync(&self, fsync: Fsync) {
        match self {
            Store::Local(s) => s.set_fsync(fsync),
            Store::Faulty(s) => s.set_fsync(fsync),
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => {}
        }
    }
    /// Makes every commit so far durable, whatever the sync policy. Takes as long as a sync, on this thread.
    pub fn sync(&self) -> StoreResult<()> {
        match self {
            Store::Local(s) => s.sync(),
            Store::Faulty(s) => s.sync(),
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => Ok(()),
        }
    }
    /// Waits until the store has a later [generation](Tx::generation) than `generation`, and returns it;
    /// forever if that never happens.
    pub async fn lost(&self, generation: u64) -> u64 {
        match self {
            Store::Local(s) => s.lost(generation).await,
            Store::Faulty(s) => s.lost(generation).await,
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => std::future::pending().await,
        }
    }
    /// Flushes, syncs and stops background work. Later commits are rejected.
    pub async fn close(&self) -> StoreResult<()> {
        match self {
            Store::Local(s) => s.close().await,
            Store::Faulty(s) => s.close().await,
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => s.close().await,
        }
    }
}

macro_rules! each {
    ($self:expr, $t:ident => $e:expr) => {
        match $self {
            Tx::Local($t) => $e,
            Tx::Faulty($t) => $e,
            #[cfg(feature = "fdb")]
            Tx::Fdb($t) => $e,
        }
    };
}

impl Tx {
    /// Like [`Store::prefers_prefetch`].
    pub(crate) fn prefers_prefetch(&self) -> bool {
        match self {
            Tx::Local(_) => false,
            Tx::Faulty(t) => t.prefers_prefetch(),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => true,
        }
    }
    /// Starts another transaction at the same read version, without this one's writes.
    pub(crate) async fn again(&self) -> StoreResult<Tx> {
        Ok(match self {
            Tx::Local(t) => Tx::Local(t.again()),
            Tx::Faulty(t) => Tx::Faulty(Box::new(t.again().await?)),
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => Tx::Fdb(Box::new(t.again().await?)),
        })
    }
    /// The value under `key`.
    pub async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        if let Tx::Local(t) = self
            && let Some(found) = t.get_at_once(key, read, Near::Nothing)
        {
            return found;
        }
        // Boxed: a command's future has room for each of its reads, and is copied when it begins.
        Box::pin(self.get_later(key, read, Near::Nothing)).await
    }
    /// Returns the pairs with `begin <= key < end`. If `limit` or `bytes` ended a serializable read, its
    /// conflict range covers only what was returned.
    pub async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        opts: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        each!(self, t => t.get_range(begin, end, opts, read).await)
    }
    /// A snapshot [`Tx::get_range`] for long ranges that are read once: passes every key and value to `each`
    /// instead of collecting them, which copies nothing. Returns [`Pairs::more`].
    pub async fn visit(
        &self,
        begin: &[u8],
        end: &[u8],
        opts: RangeOptions,
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<bool> {
        each!(self, t => t.visit(begin, end, opts, each).await)
    }
    /// Writes `key`. Size errors surface here, before anything is committed.
    pub fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(key, value)?;
        each!(self, t => t.set(key, value))
    }
    /// Like [`Tx::set`], for one of very many rows that are unlikely to be read soon.
    pub fn set_bulk(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(key, value)?;
        match self {
            Tx::Local(t) => t.set_bulk(key, value),
            _ => self.set(key, value),
        }
    }
    /// Like [`Tx::clear`], for one of very many rows that exist and are unlikely to be read soon. The
    /// embedded engine does not look the row up first.
    pub fn clear_bulk(&self, key: &[u8]) -> StoreResult<()> {
        check_pair(key, &[])?;
        match self {
            Tx::Local(t) => t.clear_bulk(key),
            _ => self.clear(key),
        }
    }
    /// Like [`Tx::set`], without a write conflict: it does not fail serializable readers of `key`.
    pub fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(key, value)?;
        each!(self, t => t.set_without_conflict(key, value))
    }
    /// Removes `key`.
    pub fn clear(&self, key: &[u8]) -> StoreResult<()> {
        check_pair(key, &[])?;
        each!(self, t => t.clear(key))
    }
    /// Removes all keys with `begin <= key < end`.
    pub fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        check_pair(begin, &[])?;
        check_pair(end, &[])?;
        each!(self, t => t.clear_range(begin, end))
    }
    /// Adds `delta`, a little-endian integer of any width, to the value. A missing value counts as zero, a
    /// shorter one is zero-extended, a longer one is truncated to `delta`'s width; overflow wraps.
    /// Conflict-free.
    pub fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        check_pair(key, delta)?;
        each!(self, t => t.add(key, delta))
    }
    /// Replaces the value by the larger of the two, compared as little-endian unsigned integers of
    /// `operand`'s width.
    pub fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        check_pair(key, operand)?;
        each!(self, t => t.max(key, operand))
    }
    /// Writes a row under `prefix`, ten bytes that become known at commit, and `suffix`. The first eight
    /// bytes are the commit version, big-endian; the other two order transactions of one version. Readers of
    /// its location conflict with it as with any write; this transaction cannot read it.
    pub fn set_stamped(&self, prefix: &[u8], suffix: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(prefix, value)?;
        check_pair(suffix, &[])?;
        each!(self, t => t.set_stamped(prefix, suffix, value))
    }
    /// Makes this commit fail if another commit wrote into `begin..end`.
    pub fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        each!(self, t => t.add_read_conflict(begin, end))
    }
    /// Makes other transactions' commits fail if they read in `begin..end`, without writing anything.
    pub fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        each!(self, t => t.add_write_conflict(begin, end))
    }
    /// Resolves after another transaction has changed `key`. Registered at commit, even of a transaction
    /// without writes; a change between the read version and the commit resolves it at once. Resolves with an
    /// error if the transaction was not committed or the store was closed: treat that as a change too.
    pub fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        each!(self, t => t.watch(key))
    }
    /// The metadata version that this transaction reads. It changes with every [`Tx::bump_metadata_version`],
    /// and when the store may have lost acknowledged commits (embedded engine, not with [`Fsync::Always`]).
    /// Free; a serializable read. On FoundationDB other namespaces' bumps change it too; they conflict with nothing.
    pub async fn metadata_version(&self) -> StoreResult<u64> {
        each!(self, t => t.metadata_version().await)
    }
    /// Increases the metadata version at commit. Do not read it afterwards in this transaction: the embedded
    /// engine still returns the old one, FoundationDB fails.
    pub fn bump_metadata_version(&self) -> StoreResult<()> {
        each!(self, t => t.bump_metadata_version())
    }
    /// The read version of this transaction.
    pub async fn read_version(&self) -> StoreResult<Version> {
        each!(self, t => t.read_version().await)
    }
    /// The generation of the store that this transaction reads. It changes when the store has lost
    /// acknowledged commits (embedded engine, not with [`Fsync::Always`]): anything that a transaction of an
    /// earlier generation made may be gone. Transactions of an earlier generation do not commit. Free.
    pub async fn generation(&self) -> StoreResult<u64> {
        match self {
            Tx::Local(t) => t.generation().await,
            Tx::Faulty(t) => t.generation().await,
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => Ok(0),
        }
    }
    /// Limits the transaction to `time` from its begin, commit included, if the store may fail to answer:
    /// beyond it, operations fail with [`StoreError::Unavailable`], and a commit possibly with
    /// [`StoreError::Unknown`]. No effect on the embedded engine.
    pub(crate) fn limit(&self, time: Duration) {
        match self {
            Tx::Local(_) => {}
            Tx::Faulty(t) => t.limit(time),
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => t.limit(time),
        }
    }
    /// Says that another task ends it than the one that began it: see [`held`].
    fn hand_over(&mut self) {
        match self {
            Tx::Local(t) => t.hand_over(),
            Tx::Faulty(t) => t.hand_over(),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => {}
        }
    }
    /// Tells a test that observes the transaction at which time (ms since the Unix epoch) its commands run,
    /// and a time that had certainly come when its read version was known.
    pub(crate) fn runs_at(&self, now: u64, sure: u64) {
        match self {
            Tx::Local(_) => {}
            Tx::Faulty(t) => t.runs_at(now, sure),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => {}
        }
    }
    /// Whether it can no longer read or commit, because of its age.
    pub(crate) async fn is_too_old(&self) -> bool {
        self.read_version().await == Err(StoreError::TooOld)
    }
    /// True if a commit would write something.
    pub fn is_write(&self) -> bool {
        each!(self, t => t.is_write())
    }
    /// Bytes of writes so far: more after each.
    pub(crate) fn written(&self) -> usize {
        each!(self, t => t.written())
    }
    /// Bytes of writes and conflict ranges so far.
    pub fn size(&self) -> usize {
        each!(self, t => t.size())
    }
    /// Bytes of a transaction that a write takes besides its key, of `key` bytes, and its value.
    pub(crate) fn overhead(&self, key: usize) -> usize {
        match self {
            Tx::Local(_) => 0,
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => writes::overhead(key),
            Tx::Faulty(t) => t.overhead(key),
        }
    }
    /// Whether more writes should go into another transaction: the embedded engine keeps the rows of a
    /// transaction of thousands of writes out of its value cache.
    pub(crate) fn nears_large(&self) -> bool {
        match self {
            Tx::Local(t) => t.nears_large(),
            Tx::Faulty(t) => t.nears_large(),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => false,
        }
    }
    /// Does the part of a commit that does not have to block other commits. The commit does it itself if this
    /// was not called.
    pub(crate) async fn foresee(&self) {
        match self {
            Tx::Local(t) => t.foresee().await,
            Tx::Faulty(_) => {}
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => {}
        }
    }
    /// Commits. `Ok(version)`: durable as the engine's policy says, and visible to every later transaction.
    /// [`StoreError::Unknown`]: it may have been applied, or may still be.
    pub async fn commit(self) -> StoreResult<Version> {
        match self {
            Tx::Local(t) => t.commit().await,
            Tx::Faulty(t) => t.commit().await,
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => t.commit().await,
        }
    }
}

fn check_pair(key: &[u8], value: &[u8]) -> StoreResult<()> {
    if key.len() > MAX_KEY {
        return Err(StoreError::KeyTooLarge(key.len()));
    }
    if value.len() > MAX_VALUE {
        return Err(StoreError::ValueTooLarge(value.len()));
    }
    Ok(())
}

/// The first key after every key that starts with `prefix`. For empty and all-0xff prefixes this is `ff`, the
/// end of the keys that every engine has.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xff]
}

/// The first key after `key`.
pub fn key_after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
