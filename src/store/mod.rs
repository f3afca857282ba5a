//! The store contract: an ordered map of bytes with optimistic transactions, FoundationDB's semantics
//! on every engine. `tests/store_contract` has a test for each sentence.
//!
//! * A transaction reads one version: its snapshot, of `begin` or (FoundationDB) of its first read. `Read::Serializable` adds a read conflict range, so that
//!   the commit fails with [`StoreError::Conflict`] where a later commit wrote into it; `Read::Snapshot` does not.
//! * Reads see the transaction's own writes. Atomic operations on a key that it only added to are resolved
//!   against the snapshot when read (and the read is as conflicting as its mode says). A point read that its own writes
//!   answer alone conflicts with nobody.
//! * Writes conflict nobody by themselves: they fail *others* that read the keys. Atomic operations and blind
//!   writes of two transactions never conflict with each other.
//! * A stamped row ([`Tx::set_stamped`]) is named by its commit: such rows of later commits come behind those of earlier ones.
//! * A transaction that wrote nothing commits without a check, at its read version.
//! * Committed transactions are equal to running one after the other in the order of their commit versions, as far as
//!   their reads are serializable.
//! * Limits on every engine: 9.9 kB a key, 100 kB a value, 10 MB of writes and conflict ranges, 5 s of life (reads and
//!   writing commits of an older one answer [`StoreError::TooOld`]).
//! * A commit that has been started happens or not whether or not its caller goes on waiting for it.
//! * [`StoreError::Unknown`] is the only answer to a commit after which it may have been applied. Every other error means
//!   that it was not and will not be.
//! * Within a [generation](Tx::generation) what was committed stays committed. A store that lost commits it had acknowledged begins another one.
//! * Keys are any bytes on the embedded engine; FoundationDB keeps what begins with 0xff for itself, so nobody uses that.

pub mod faulty;
#[cfg(feature = "fdb")]
pub mod fdb;
pub mod local;
pub mod observe;
mod retry;
pub mod tamper;
mod writes;

pub use retry::{Failure, Retries};

use crate::error::{StoreError, StoreResult};
use bytes::Bytes;
use std::time::Duration;

/// Longest key in bytes: FoundationDB's 10 kB less what the prefix of a namespace may take.
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
    /// The commit fails where another commit wrote what was read.
    Serializable,
    /// No conflict.
    Snapshot,
}

/// What of a range a read returns. `limit` 0 and `bytes` 0 mean no bound.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeOptions {
    /// At most so many pairs.
    pub limit: usize,
    /// Stops after the pair that reaches so many bytes of keys and values.
    pub bytes: usize,
    /// From the end of the range to its begin.
    pub reverse: bool,
}

/// A piece of a range. `more`: go on behind the last key.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Keys and values in the order asked for.
    pub pairs: Vec<(Bytes, Bytes)>,
    /// True where `limit` or `bytes` ended the read. It stops there at once, so nothing may follow.
    pub more: bool,
}

/// When a commit is on disk before it is acknowledged (embedded engine).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before every acknowledgement, one sync for all that wait.
    Always,
    /// At least once a second; a crash of the machine can lose that second.
    EverySec,
    /// When the operating system likes.
    No,
}

/// Counters of an engine, for INFO and metrics. Times in microseconds.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Transactions committed with writes.
    pub commits: u64,
    /// Commits refused with a conflict.
    pub conflicts: u64,
    /// Batches written by the committer (embedded engine).
    pub batches: u64,
    /// Log syncs.
    pub syncs: u64,
    /// Sum of the time spent writing batches.
    pub write_micros: u64,
    /// Sum of the time spent in syncs.
    pub sync_micros: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of memory that the engine accounts for (memtables, caches).
    pub memory_bytes: u64,
    /// Why writes are refused, after a failed write or sync and until the store has been reopened.
    pub refusal: Option<String>,
    /// What went over the network; None where there is none.
    pub network: Option<NetworkStats>,
}

/// What an engine behind a network was asked, and what else than a conflict its answers were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Transactions that got a read version.
    pub read_versions: u64,
    /// Keys fetched by point reads; what a transaction knew already is not fetched.
    pub keys_read: u64,
    /// Pages fetched by range reads.
    pub ranges_read: u64,
    /// Commits whose result is unknown.
    pub unknown: u64,
    /// Reads and commits refused because the transaction was too old, or for load.
    pub too_old: u64,
}

/// What a cluster reports of itself. Everything false or empty where it does not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// It can be read and written.
    pub available: bool,
    /// Nothing is missing, and no data is on its way to make up for it.
    pub healthy: bool,
    /// What its recovery is doing.
    pub state: String,
    /// How many copies are kept, by FoundationDB's name.
    pub redundancy: String,
    /// Its storage engine.
    pub engine: String,
    /// Number of server processes.
    pub processes: u64,
    /// How many zones may fail before it becomes unavailable.
    pub tolerated: i64,
}

/// An engine. Cheap to clone.
#[derive(Clone)]
pub enum Store {
    /// Embedded, in a directory.
    Local(local::Local),
    /// Another engine with seeded faults.
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
    /// Starts a transaction. On the embedded engine at the last published version.
    pub fn begin(&self) -> Tx {
        match self {
            Store::Local(s) => Tx::Local(s.begin()),
            Store::Faulty(s) => Tx::Faulty(Box::new(s.begin())),
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => Tx::Fdb(Box::new(s.begin())),
        }
    }
    /// Starts a transaction that reads `version`, of a moment ago, where to ask for another one costs a round trip; else as
    /// [`Store::begin`]. For rows that do not change.
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
    /// What the cluster reports of itself; None where there is no cluster. Waits up to a few seconds.
    pub async fn cluster(&self) -> Option<ClusterStatus> {
        match self {
            Store::Local(_) => None,
            Store::Faulty(s) => s.cluster().await,
            #[cfg(feature = "fdb")]
            Store::Fdb(s) => Some(s.cluster().await),
        }
    }
    /// Whether reading many keys at once is faster than one after the other (a network is between).
    pub fn prefers_prefetch(&self) -> bool {
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
    /// Changes the sync policy. No effect where the engine has none.
    pub fn set_fsync(&self, fsync: Fsync) {
        match self {
            Store::Local(s) => s.set_fsync(fsync),
            Store::Faulty(s) => s.set_fsync(fsync),
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => {}
        }
    }
    /// Waits until the store is of a later [generation](Tx::generation) than `generation`, and returns it; for ever where it never is.
    pub async fn lost(&self, generation: u64) -> u64 {
        match self {
            Store::Local(s) => s.lost(generation).await,
            Store::Faulty(s) => s.lost(generation).await,
            #[cfg(feature = "fdb")]
            Store::Fdb(_) => std::future::pending().await,
        }
    }
    /// Flushes, syncs and stops background work. Later commits are refused.
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
    /// As [`Store::prefers_prefetch`].
    pub fn prefers_prefetch(&self) -> bool {
        match self {
            Tx::Local(_) => false,
            Tx::Faulty(t) => t.prefers_prefetch(),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => true,
        }
    }
    /// Another transaction that reads the same version, without what this one writes.
    pub async fn again(&self) -> StoreResult<Tx> {
        Ok(match self {
            Tx::Local(t) => Tx::Local(t.again()),
            Tx::Faulty(t) => Tx::Faulty(Box::new(t.again().await?)),
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => Tx::Fdb(Box::new(t.again().await?)),
        })
    }
    /// The value under `key`.
    pub async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        each!(self, t => t.get(key, read).await)
    }
    /// The values under `keys`, in their order: as [`Tx::get`] of each, for many rows that are hardly read again soon. The embedded
    /// engine looks for all of them together, and keeps none beside its blocks.
    pub async fn get_bulk(&self, keys: &[Vec<u8>], read: Read) -> StoreResult<Vec<Option<Bytes>>> {
        if let Tx::Local(t) = self {
            return t.get_bulk(keys, read).await;
        }
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key, read).await?);
        }
        Ok(found)
    }
    /// Pairs with `begin <= key < end`. The conflict range of a serializable read that `limit` or `bytes` ended
    /// covers only what was returned.
    pub async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        opts: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        each!(self, t => t.get_range(begin, end, opts, read).await)
    }
    /// As a snapshot [`Tx::get_range`], for long ranges that are read once: hands every key and value to `each` instead of collecting
    /// them, which copies nothing. Returns [`Pairs::more`].
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
    /// Like [`Tx::set`], of a row that is hardly read soon: one of very many.
    pub fn set_bulk(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(key, value)?;
        match self {
            Tx::Local(t) => t.set_bulk(key, value),
            _ => self.set(key, value),
        }
    }
    /// Like [`Tx::clear`], of a row that is there and is hardly asked for soon: one of very many. The embedded engine does not look
    /// for it first.
    pub fn clear_bulk(&self, key: &[u8]) -> StoreResult<()> {
        check_pair(key, &[])?;
        match self {
            Tx::Local(t) => t.clear_bulk(key),
            _ => self.clear(key),
        }
    }
    /// Like [`Tx::set`], without a write conflict: serializable readers of `key` do not fail for it.
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
    /// Adds `delta`, a little-endian integer of any width, to the value: a missing value is zero, a shorter one is
    /// zero-extended and a longer one truncated to `delta`'s width, overflow wraps. Conflict-free.
    pub fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        check_pair(key, delta)?;
        each!(self, t => t.add(key, delta))
    }
    /// Replaces the value by the larger of both, compared as little-endian unsigned integers of `operand`'s width.
    pub fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        check_pair(key, operand)?;
        each!(self, t => t.max(key, operand))
    }
    /// Writes a row under `prefix`, ten bytes that are known at commit, and `suffix`. The first eight are the commit version,
    /// big-endian; the other two tell transactions of one version apart, in their order. Readers of its place conflict with it as
    /// with any write; this transaction does not read it.
    pub fn set_stamped(&self, prefix: &[u8], suffix: &[u8], value: &[u8]) -> StoreResult<()> {
        check_pair(prefix, value)?;
        check_pair(suffix, &[])?;
        each!(self, t => t.set_stamped(prefix, suffix, value))
    }
    /// Makes the commit fail where another commit wrote into `begin..end`.
    pub fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        each!(self, t => t.add_read_conflict(begin, end))
    }
    /// Makes others' commits fail where they read in `begin..end`, without writing anything there.
    pub fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        each!(self, t => t.add_write_conflict(begin, end))
    }
    /// Resolves after another transaction has changed `key`. Registered at commit, also of a transaction that wrote nothing;
    /// a change between the read version and the commit resolves it at once. With an error where the transaction
    /// was not committed or the store has been closed: take that as a change too.
    pub fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        each!(self, t => t.watch(key))
    }
    /// The metadata version that this transaction reads: changes with every [`Tx::bump_metadata_version`], and where the store may have
    /// lost commits that it had acknowledged (embedded engine, not with [`Fsync::Always`]). Free to read; a serializable read.
    pub async fn metadata_version(&self) -> StoreResult<u64> {
        each!(self, t => t.metadata_version().await)
    }
    /// Changes the metadata version at commit: it becomes larger. Reading it afterwards in this transaction still gives
    /// the old one; FoundationDB refuses that, so nobody does it.
    pub fn bump_metadata_version(&self) -> StoreResult<()> {
        each!(self, t => t.bump_metadata_version())
    }
    /// The version this transaction reads.
    pub async fn read_version(&self) -> StoreResult<Version> {
        each!(self, t => t.read_version().await)
    }
    /// The generation of the store that this transaction reads. It moves where the store has lost commits that it had acknowledged
    /// (embedded engine, not with [`Fsync::Always`]): what was made in an earlier one, by whatever transaction, may never have been there. Transactions
    /// of an earlier generation do not commit. Free to read.
    pub async fn generation(&self) -> StoreResult<u64> {
        match self {
            Tx::Local(t) => t.generation().await,
            Tx::Faulty(t) => t.generation().await,
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => Ok(0),
        }
    }
    /// Gives the transaction no more time than `time` from its begin, commit included, where an answer may fail to come: what
    /// takes longer is [`StoreError::Unavailable`], or [`StoreError::Unknown`] of a commit. No effect on the embedded engine.
    pub fn limit(&self, time: Duration) {
        match self {
            Tx::Local(_) => {}
            Tx::Faulty(t) => t.limit(time),
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => t.limit(time),
        }
    }
    /// Says at which time (ms since the Unix epoch) its commands run, and a time that had come when its version was known: for a test that
    /// watches it.
    pub fn runs_at(&self, now: u64, sure: u64) {
        match self {
            Tx::Local(_) => {}
            Tx::Faulty(t) => t.runs_at(now, sure),
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => {}
        }
    }
    /// True once something would be written by a commit.
    pub fn is_write(&self) -> bool {
        each!(self, t => t.is_write())
    }
    /// Bytes of writes and conflict ranges so far.
    pub fn size(&self) -> usize {
        each!(self, t => t.size())
    }
    /// Does what a commit can do before it holds others. A commit does it too, where it was not done.
    pub async fn foresee(&self) {
        match self {
            Tx::Local(t) => t.foresee().await,
            Tx::Faulty(_) => {}
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => {}
        }
    }
    /// Commits. `Ok(version)`: durable as the engine's policy says and visible to every later transaction.
    /// [`StoreError::Unknown`]: it may or may not have been applied, or be applied later.
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

/// The first key behind every key that starts with `prefix`. Empty and all-0xff prefixes give `ff`, the end of the keys
/// that every engine has.
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

/// The first key behind `key`.
pub fn key_after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
