//! The state that readers see: a version and the RocksDB snapshot taken at it, published as one pointer.
//!
//! Invariants: only the committer creates a [`SnapshotView`], after its batch is as durable as the policy
//! requires and before anything else is written; so a view is exactly one version. Version and snapshot are
//! never published separately. A view shares ownership of the database: dropping the last one closes it.

use super::engine::Engine;
use crate::error::{StoreError, StoreResult};
use crate::store::Version;
use bytes::Bytes;
use rocksdb::{DBRawIterator, ReadOptions, Snapshot};
use std::sync::Arc;

/// The snapshot and the read options that carry it: created once per version, so that a point read creates
/// neither.
pub(super) struct Pinned<'a> {
    options: ReadOptions,
    snapshot: Snapshot<'a>,
}

self_cell::self_cell!(
    /// A snapshot and its database.
    pub(super) struct SnapshotView {
        owner: Arc<Engine>,
        #[covariant]
        dependent: Pinned,
    }
);

impl SnapshotView {
    /// A snapshot of the newest state. Only for the committer, between batches.
    pub(super) fn newest(engine: Arc<Engine>) -> Self {
        SnapshotView::new(engine, |engine| {
            let snapshot = engine.db().snapshot();
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            Pinned { options, snapshot }
        })
    }
    /// The database.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.borrow_owner()
    }
    /// The value under a stored key.
    pub(super) fn get(&self, stored: &[u8]) -> StoreResult<Option<Bytes>> {
        self.engine().get(stored, &self.borrow_dependent().options)
    }
    /// The values under stored keys, in order.
    pub(super) fn get_bulk<'k>(
        &self,
        stored: impl Iterator<Item = &'k Bytes>,
    ) -> StoreResult<Vec<Option<Bytes>>> {
        let pinned = self.borrow_dependent();
        if self.engine().keeps_bulk() {
            return self.engine().get_bulk(stored, &pinned.options);
        }
        let mut options = ReadOptions::default();
        options.set_snapshot(&pinned.snapshot);
        options.fill_cache(false);
        self.engine().get_bulk(stored, &options)
    }
    /// An unpositioned iterator over stored keys in `begin..end`.
    pub(super) fn iterator(&self, begin: &[u8], end: &[u8]) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(begin);
        options.set_iterate_upper_bound(end);
        self.borrow_dependent().snapshot.raw_iterator_opt(options)
    }
}

/// Why nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Offline {
    /// The store is being reopened after a failed write; temporary.
    Reopening,
    /// The store is damaged and cannot be reopened until it is repaired; with the error.
    Damaged(Arc<String>),
    /// The store is closed for good.
    Closed,
}

impl From<Offline> for StoreError {
    fn from(offline: Offline) -> Self {
        match offline {
            Offline::Reopening => StoreError::Unavailable("it is being reopened".into()),
            Offline::Damaged(what) => StoreError::Corrupt(String::clone(&what)),
            Offline::Closed => StoreError::Unavailable("it is closed".into()),
        }
    }
}

/// The state that new transactions read.
pub(super) struct Published {
    /// Commit version of the last transaction it includes.
    pub(super) version: Version,
    /// Version of the last transaction that bumped the metadata version.
    pub(super) metadata_version: Version,
    /// The number of times that published commits were lost since the store was opened.
    pub(super) generation: u64,
    /// The data.
    pub(super) view: Result<SnapshotView, Offline>,
}
