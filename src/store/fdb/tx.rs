//! A transaction: its reads, its writes, and the library's transaction that it reads through.

use super::commit::{self, InFlight};
use super::errors::of_read;
use super::reads::Reads;
use super::{Core, count};
use crate::error::{StoreError, StoreResult};
use crate::store::writes::{AtomicKind, Own, Stamped, Writes, apply_all, hash};
use crate::store::{MAX_AGE, MAX_TRANSACTION, Read, Version, Watch, key_after};
use bytes::Bytes;
use foundationdb::options::TransactionOption;
use foundationdb::{FdbError, Transaction};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// A transaction on FoundationDB.
pub struct FdbTx {
    pub(super) core: Arc<Core>,
    /// If it could not be created, its error: every operation fails with it.
    native: StoreResult<Transaction>,
    started: Duration,
    /// Whether a read version has been requested.
    versioned: AtomicBool,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    pub(super) watches: Vec<(Bytes, oneshot::Sender<()>)>,
}

/// Creates the library's transaction. It need not track reads and writes: that is done here.
fn native(core: &Core) -> StoreResult<Transaction> {
    let native = core.transaction()?;
    native.set_option(TransactionOption::ReadYourWritesDisable).map_err(of_read)?;
    Ok(native)
}

impl FdbTx {
    pub(super) fn new(core: Arc<Core>) -> Self {
        FdbTx {
            native: native(&core),
            started: core.clock.monotonic(),
            core,
            versioned: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Sets the read version.
    pub(super) fn read_at(&self, version: Version) {
        if let Ok(native) = &self.native {
            native.set_read_version(version.cast_signed());
            self.versioned.store(true, Ordering::Relaxed);
        }
    }

    /// Another transaction at the same version.
    pub(in crate::store) async fn again(&self) -> StoreResult<Self> {
        let again = FdbTx::new(self.core.clone());
        again.read_at(self.read_version().await?);
        Ok(again)
    }

    /// The library's transaction, for a read.
    pub(super) fn reading(&self) -> StoreResult<&Transaction> {
        self.check()?;
        self.any_age()
    }

    fn any_age(&self) -> StoreResult<&Transaction> {
        if !self.versioned.swap(true, Ordering::Relaxed) {
            count(&self.core.counters.read_versions);
        }
        self.native.as_ref().map_err(Clone::clone)
    }

    pub(super) fn read_failed(&self, e: FdbError) -> StoreError {
        self.core.failed(of_read(e))
    }

    fn check(&self) -> StoreResult<()> {
        self.core.check_open()?;
        let age = self.core.clock.monotonic().saturating_sub(self.started);
        if age > MAX_AGE { Err(StoreError::TooOld) } else { Ok(()) }
    }

    pub(in crate::store) async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        let native = self.reading()?;
        let key = self.core.stored(key);
        if let Some(value) = self.known(&key, read) {
            return Ok(value);
        }
        let turn = self.state.lock().reads.turn(&key);
        let _fetching = turn.lock().await;
        if let Some(value) = self.known(&key, read) {
            return Ok(value);
        }
        count(&self.core.counters.keys);
        let value = native.get(&key, true).await.map_err(|e| self.read_failed(e))?;
        let value = value.map(|v| Bytes::copy_from_slice(&v));
        let mut state = self.state.lock();
        let own = state.writes.own(hash(&key), &key);
        state.reads.fetched(key, value.clone());
        Ok(over(own, value))
    }

    /// The value, if own writes or an earlier read determine it. Records a read that own writes alone do not
    /// answer.
    fn known(&self, key: &Bytes, read: Read) -> Option<Option<Bytes>> {
        let mut state = self.state.lock();
        let own = state.writes.own(hash(key), key);
        if let Own::Known(value) = own {
            return Some(value);
        }
        if read == Read::Serializable {
            state.reads.point(key);
        }
        state.reads.value(key).map(|value| over(own, value))
    }

    fn write(&self, f: impl FnOnce(&mut Writes) -> StoreResult<()>) -> StoreResult<()> {
        f(&mut self.state.lock().writes)
    }

    pub(in crate::store) fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.write(|w| w.set(self.core.stored(key), Bytes::copy_from_slice(value), true))
    }
    pub(in crate::store) fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.write(|w| w.set(self.core.stored(key), Bytes::copy_from_slice(value), false))
    }
    pub(in crate::store) fn clear(&self, key: &[u8]) -> StoreResult<()> {
        self.write(|w| w.clear(self.core.stored(key)))
    }
    pub(in crate::store) fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin >= end {
            return Ok(());
        }
        self.write(|w| w.clear_range(self.core.stored(begin), self.core.stored(end)))
    }
    pub(in crate::store) fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        self.write(|w| w.atomic(self.core.stored(key), AtomicKind::Add, Bytes::copy_from_slice(delta)))
    }
    pub(in crate::store) fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        self.write(|w| w.atomic(self.core.stored(key), AtomicKind::Max, Bytes::copy_from_slice(operand)))
    }
    pub(in crate::store) fn set_stamped(
        &self,
        prefix: &[u8],
        suffix: &[u8],
        value: &[u8],
    ) -> StoreResult<()> {
        let [suffix, value] = [suffix, value].map(Bytes::copy_from_slice);
        self.write(|w| w.set_stamped(Stamped { prefix: self.core.stored(prefix), suffix, value }))
    }
    pub(in crate::store) fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin < end {
            self.state.lock().reads.range(self.core.stored(begin), self.core.stored(end));
        }
        Ok(())
    }
    pub(in crate::store) fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        if begin >= end {
            return Ok(());
        }
        self.write(|w| w.add_conflict(self.core.stored(begin), self.core.stored(end)))
    }
    pub(in crate::store) fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        let (sender, receiver) = oneshot::channel();
        self.state.lock().watches.push((self.core.stored(key), sender));
        Ok(receiver)
    }

    /// The first eight bytes of the cluster's metadata version. Two bumps that share them share a commit
    /// version, so that no transaction reads one without the other.
    pub(in crate::store) async fn metadata_version(&self) -> StoreResult<u64> {
        let version = self.reading()?.get_metadata_version(true).await;
        let version = version.map_err(|e| self.read_failed(e))?;
        self.state.lock().reads.point(&self.core.bumped());
        Ok(version.unwrap_or_default().cast_unsigned())
    }
    pub(in crate::store) fn bump_metadata_version(&self) -> StoreResult<()> {
        let bumped = self.core.bumped();
        self.write(|w| {
            w.bump = true;
            w.add_conflict(bumped.clone(), key_after(&bumped).into())
        })
    }
    pub(in crate::store) async fn read_version(&self) -> StoreResult<Version> {
        self.check()?;
        self.own_version().await
    }
    /// The read version, regardless of the transaction's age.
    async fn own_version(&self) -> StoreResult<Version> {
        let version = self.any_age()?.get_read_version().await;
        version.map(i64::cast_unsigned).map_err(|e| self.read_failed(e))
    }
    pub(in crate::store) fn limit(&self, time: Duration) {
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1);
        if let Ok(native) = &self.native
            && let Err(e) = native.set_option(TransactionOption::Timeout(millis))
        {
            tracing::debug!(?e, "cannot set a transaction's timeout: the default applies");
        }
    }
    pub(in crate::store) fn is_write(&self) -> bool {
        !self.state.lock().writes.is_empty()
    }
    pub(in crate::store) fn written(&self) -> usize {
        self.state.lock().writes.size()
    }
    pub(in crate::store) fn size(&self) -> usize {
        let state = self.state.lock();
        state.writes.size() + state.writes.besides() + state.reads.size()
    }

    /// Commits in a task of its own, which continues even if the caller does not. Without writes there is
    /// nothing to commit.
    pub(in crate::store) async fn commit(self) -> StoreResult<Version> {
        if !self.is_write() {
            let version = self.own_version().await?;
            let State { watches, .. } = self.state.into_inner();
            commit::watch(&self.core, version, watches)?;
            return Ok(version);
        }
        let in_flight = InFlight::enter(&self.core);
        self.check()?;
        if self.size() > MAX_TRANSACTION {
            return Err(StoreError::TooLarge);
        }
        let (native, state) = (self.native?, self.state.into_inner());
        let task = tokio::spawn(commit::run(in_flight, native, state));
        task.await.unwrap_or(Err(StoreError::Unknown))
    }
}

/// Own writes applied to the snapshot's value.
fn over(own: Own, value: Option<Bytes>) -> Option<Bytes> {
    match own {
        Own::Known(value) => value,
        Own::Atomic(ops) => apply_all(value, &ops),
        Own::Unknown => value,
    }
}
