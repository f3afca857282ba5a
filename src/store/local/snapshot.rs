//! The state that readers see: a version, recent layers, and a RocksDB snapshot under them, published as
//! one pointer.
//!
//! Invariants: a view shows exactly one version. Everything that was committed up to it is in its layers
//! or in its RocksDB snapshot; what is in both, the layers show. Version and layers are never published
//! separately. A view shares ownership of the database: dropping the last one closes it.

use super::directory::read_error;
use super::engine::Engine;
use super::merged::{Part, Rows, Under};
use super::pages::{self, Cursor, Known, Page, Pages};
use super::recent::Layer;
use crate::error::{StoreError, StoreResult};
use crate::store::{Version, prefix_end};
use bytes::Bytes;
use rocksdb::{DBRawIterator, ReadOptions, Snapshot};
use std::sync::Arc;

/// The snapshot and the read options that carry it: created once per layer, so that a point read creates
/// neither.
pub(super) struct Pinned<'a> {
    options: ReadOptions,
    snapshot: Snapshot<'a>,
}

self_cell::self_cell!(
    /// A snapshot and its database.
    pub(super) struct Base {
        owner: Arc<Engine>,
        #[covariant]
        dependent: Pinned,
    }
);

impl Base {
    /// The newest state of RocksDB. Not while a layer is being moved there.
    fn newest(engine: Arc<Engine>) -> Self {
        Base::new(engine, |engine| {
            let snapshot = engine.db().snapshot();
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            Pinned { options, snapshot }
        })
    }
}

/// Where the data is.
pub(super) struct Layers {
    base: Arc<Base>,
    /// What is kept of the base's rows.
    pages: Arc<Pages>,
    /// The newest first; there is at least one.
    pub(super) recent: Vec<Arc<Layer>>,
}

impl Layers {
    /// `recent`: the newest first.
    pub(super) fn newest(engine: Arc<Engine>, recent: Vec<Arc<Layer>>) -> Self {
        Layers { base: Arc::new(Base::newest(engine)), pages: Arc::default(), recent }
    }
    /// The same with another newest layer.
    pub(super) fn with(&self, newest: Arc<Layer>) -> Self {
        let recent = [newest].into_iter().chain(self.recent.iter().cloned()).collect();
        Layers { base: self.base.clone(), pages: self.pages.clone(), recent }
    }
    /// The same without the oldest layer, which RocksDB has now.
    pub(super) fn without_oldest(&self) -> Self {
        let recent = self.recent.iter().take(self.recent.len() - 1).cloned().collect();
        Layers::newest(self.engine().clone(), recent)
    }
    /// The database.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.base.borrow_owner()
    }
    /// Bytes of keys and values of the layers.
    pub(super) fn contents(&self) -> u64 {
        self.recent.iter().map(|layer| layer.contents()).sum()
    }
    /// Approximate bytes of the layers.
    pub(super) fn bytes(&self) -> u64 {
        self.recent.iter().map(|layer| layer.bytes() as u64).sum()
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct SnapshotView {
    pub(super) layers: Arc<Layers>,
    version: Version,
}

impl SnapshotView {
    pub(super) fn new(layers: Arc<Layers>, version: Version) -> Self {
        SnapshotView { layers, version }
    }
    /// Everything in the layers. Only for the committer, between batches.
    pub(super) fn newest(layers: Arc<Layers>) -> Self {
        SnapshotView { layers, version: Version::MAX }
    }
    /// The database.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.layers.engine()
    }
    /// What recent commits left under a stored key; None if they did not write it.
    pub(super) fn recent(&self, hash: u64, stored: &[u8]) -> Option<Option<Bytes>> {
        self.layers.recent.iter().find_map(|layer| layer.get(hash, stored, self.version))
    }
    /// Loads what [`SnapshotView::recent`] reads for these hashes. Returns a bit for each that was found.
    pub(super) fn touch(&self, hashes: &[u64]) -> u64 {
        self.layers.recent.iter().fold(0, |found, layer| found | layer.touch(hashes, found))
    }
    /// The value under a stored key that no recent commit wrote.
    pub(super) fn get(&self, stored: &[u8]) -> StoreResult<Option<Bytes>> {
        self.engine().get(stored, &self.layers.base.borrow_dependent().options)
    }
    /// The values under stored keys that no recent commit wrote, in order.
    pub(super) fn get_bulk<'k>(
        &self,
        stored: impl Iterator<Item = &'k Bytes>,
    ) -> StoreResult<Vec<Option<Bytes>>> {
        let pinned = self.layers.base.borrow_dependent();
        if self.engine().keeps_bulk() {
            return self.engine().get_bulk(stored, &pinned.options);
        }
        let mut options = ReadOptions::default();
        options.set_snapshot(&pinned.snapshot);
        options.fill_cache(false);
        self.engine().get_bulk(stored, &options)
    }
    /// The rows in `begin..end` (stored keys).
    pub(super) fn rows(&self, begin: &[u8], end: &[u8], reverse: bool) -> Rows<'_> {
        let part = Part::new(begin, end, self.version, reverse);
        self.patient_rows(ReadOptions::default(), part, usize::MAX)
    }
    /// As [`SnapshotView::rows`], from a page in memory. None: the range is not kept.
    pub(super) fn kept_rows(&self, begin: &[u8], end: &[u8]) -> StoreResult<Option<Rows<'_>>> {
        let part = Part::new(begin, end, self.version, false);
        let range = pages::Range::new(&part.begin, &part.end);
        let kept = match self.layers.pages.find(&range) {
            Known::Kept(kept) => kept,
            Known::Wanted => {
                let page = Page::read(self.base_rows(Page::options(), &part), pages::MAX_PAGE)?;
                self.layers.pages.keep(range, page)
            }
            Known::Unknown => None,
        };
        Ok(kept.map(|page| {
            let base = Under::Page(Cursor::new(page));
            Rows::open(base, &self.layers.recent, part, self.engine().gaps(), usize::MAX)
        }))
    }

    /// What is known of the rows in RocksDB whose keys begin as a stored key does without its last `tail` bytes.
    pub(super) fn subspace(&self, stored: &[u8], tail: usize) -> Known {
        prefix(stored, tail).map_or(Known::Unknown, |prefix| self.layers.pages.find_subspace(prefix))
    }
    /// Keeps these rows in memory. None: they are too many.
    pub(super) fn keep_subspace(&self, stored: &[u8], tail: usize) -> Option<Arc<Page>> {
        let prefix = prefix(stored, tail)?;
        let part = Part::new(prefix, &prefix_end(prefix), self.version, false);
        // Whoever needs a row that cannot be read fails when it looks for that.
        let page =
            Page::read(self.base_rows(Page::options(), &part), pages::MAX_SUBSPACE).unwrap_or_default();
        self.layers.pages.keep_subspace(prefix, page)
    }

    /// Passes the rows in `begin..end` to `one`, until it returns false.
    pub(super) fn each(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        one: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> StoreResult<()> {
        let mut rows = self.rows(begin, end, reverse);
        while rows.item().is_some_and(|(key, value)| one(key, value)) {
            rows.step();
        }
        rows.status().map_err(read_error)
    }
    /// Appends the keys in `begin..end` to `keys` while it has at most `most`; false if there are more, or more
    /// than `dead` removed rows.
    pub(super) fn few_keys(
        &self,
        (begin, end): (&[u8], &[u8]),
        (most, dead): (usize, u32),
        keys: &mut Vec<Bytes>,
    ) -> bool {
        let mut options = ReadOptions::default();
        options.set_max_skippable_internal_keys(u64::from(dead));
        let part = Part::new(begin, end, self.version, false);
        let mut rows = self.patient_rows(options, part, dead as usize);
        while let Some(key) = rows.key() {
            if keys.len() >= most {
                return false;
            }
            keys.push(Bytes::copy_from_slice(key));
            rows.step();
        }
        rows.status().is_ok() && !rows.gave_up() && keys.len() <= most
    }

    fn patient_rows(&self, options: ReadOptions, part: Part, patience: usize) -> Rows<'_> {
        let gaps = self.engine().gaps();
        let part = part.trimmed(gaps);
        let base = Under::Engine(self.base_rows(options, &part));
        Rows::open(base, &self.layers.recent, part, gaps, patience)
    }

    /// RocksDB's rows of a part.
    fn base_rows(&self, mut options: ReadOptions, part: &Part) -> DBRawIterator<'_> {
        options.set_iterate_lower_bound(&part.begin[..]);
        options.set_iterate_upper_bound(&part.end[..]);
        self.layers.base.borrow_dependent().snapshot.raw_iterator_opt(options)
    }
}

/// A stored key without its last `tail` bytes.
fn prefix(stored: &[u8], tail: usize) -> Option<&[u8]> {
    stored.get(..stored.len().checked_sub(tail)?)
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
#[derive(Clone)]
pub(super) struct Published {
    /// Commit version of the last transaction it includes.
    pub(super) version: Version,
    /// Version of the last transaction that bumped the metadata version.
    pub(super) metadata_version: Version,
    /// The number of times that published commits were lost since the store was opened.
    pub(super) generation: u64,
    /// The data.
    pub(super) view: Result<SnapshotView, Offline>,
    /// Shared by all that publish this version: nobody reads it once nobody holds this.
    pub(super) readers: Arc<()>,
}
