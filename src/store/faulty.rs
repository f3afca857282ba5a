//! SCAFFOLD: replaced by the seeded faults of the store's helper.

use super::{Fsync, Pairs, RangeOptions, Read, Store, StoreStats, Tx, Version, Watch};
use crate::error::StoreResult;
use bytes::Bytes;

/// Wraps an engine.
#[derive(Clone)]
pub struct Faulty {
    inner: Box<Store>,
}

/// A transaction with faults.
pub struct FaultyTx {
    inner: Tx,
}

impl Faulty {
    pub(super) fn begin(&self) -> FaultyTx {
        FaultyTx { inner: self.inner.begin() }
    }
    pub(super) fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
    pub(super) fn set_fsync(&self, fsync: Fsync) {
        self.inner.set_fsync(fsync)
    }
    pub(super) async fn close(&self) -> StoreResult<()> {
        Box::pin(self.inner.close()).await
    }
}

impl FaultyTx {
    pub(super) async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        Box::pin(self.inner.get(key, read)).await
    }
    pub(super) async fn get_range(
        &self,
        b: &[u8],
        e: &[u8],
        o: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        Box::pin(self.inner.get_range(b, e, o, read)).await
    }
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.inner.set(key, value)
    }
    pub(super) fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.inner.set_without_conflict(key, value)
    }
    pub(super) fn clear(&self, key: &[u8]) -> StoreResult<()> {
        self.inner.clear(key)
    }
    pub(super) fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.inner.clear_range(begin, end)
    }
    pub(super) fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        self.inner.add(key, delta)
    }
    pub(super) fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        self.inner.max(key, operand)
    }
    pub(super) fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.inner.add_read_conflict(begin, end)
    }
    pub(super) fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.inner.add_write_conflict(begin, end)
    }
    pub(super) fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        self.inner.watch(key)
    }
    pub(super) async fn metadata_version(&self) -> StoreResult<u64> {
        Box::pin(self.inner.metadata_version()).await
    }
    pub(super) fn bump_metadata_version(&self) -> StoreResult<()> {
        self.inner.bump_metadata_version()
    }
    pub(super) async fn read_version(&self) -> StoreResult<Version> {
        Box::pin(self.inner.read_version()).await
    }
    pub(super) fn is_write(&self) -> bool {
        self.inner.is_write()
    }
    pub(super) fn size(&self) -> usize {
        self.inner.size()
    }
    pub(super) async fn commit(self: Box<Self>) -> StoreResult<Version> {
        Box::pin(self.inner.commit()).await
    }
}
