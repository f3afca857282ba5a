//! Ranges of keys that are known to be empty, so that a read jumps over what was removed from them.
//!
//! A queue that is taken from at its front leaves a removed row for each element. A read of its first row walks
//! over all of them: those of recent layers one by one, and RocksDB's tombstones. So a read that walked over some
//! records the gap that it found, and later reads begin behind it.
//!
//! Invariants:
//! * A gap is empty at its version and at all later ones up to the last that was published.
//! * A commit cuts the gaps in which it writes rows before it is published. A gap is recorded only if no commit
//!   after its version has cut gaps. So whichever comes first, no row of a commit is in a gap that its readers see.
//! * A database that is opened again begins without gaps.
//!
//! In memory only; losing one costs a walk.

use crate::store::{Version, key_after};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most gaps.
const MOST: usize = 1024;
/// The longest key, in bytes, at which a gap begins or ends.
const LONGEST: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    known: RwLock<Known>,
    /// The number of gaps. Without any, no lock is taken.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    /// Where a gap begins -> where it ends, and the version from which on it is empty. They do not overlap.
    gaps: BTreeMap<Bytes, (Bytes, Version)>,
    /// The last commit that has cut gaps.
    cut: Version,
    /// The gap that was given up last for lack of room.
    given_up: Bytes,
}

impl Gaps {
    /// The gap at `key`, for a reader of `version`.
    pub(super) fn at(&self, key: &[u8], version: Version) -> Option<(Bytes, Bytes)> {
        self.last_begun(Included(key), version).filter(|(_, end)| *key < end[..])
    }

    /// The gap that the keys right before `end` are in, for a reader of `version`.
    pub(super) fn before(&self, end: &[u8], version: Version) -> Option<(Bytes, Bytes)> {
        self.last_begun(Excluded(end), version).filter(|(_, gap_end)| *end <= gap_end[..])
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn last_begun(&self, until: std::ops::Bound<&[u8]>, version: Version) -> Option<(Bytes, Bytes)> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let known = self.known.read();
        let (begin, (end, since)) = known.gaps.range::<[u8], _>((Unbounded, until)).next_back()?;
        (*since <= version).then(|| (begin.clone(), end.clone()))
    }

    /// Records that a reader of `version` sees no row in `begin..end`.
    pub(super) fn record(&self, begin: &[u8], end: &[u8], version: Version) {
        if begin >= end || begin.len().max(end.len()) > LONGEST {
            return;
        }
        let mut known = self.known.write();
        if known.cut == version {
            known.add(begin, end, version);
            self.len.store(known.gaps.len(), Ordering::Relaxed);
        }
    }

    /// A batch of commits up to `version` writes rows at these keys. Before it is published.
    pub(super) fn cut<'a>(&self, version: Version, keys: impl Iterator<Item = &'a Bytes>) {
        let mut known = self.known.write();
        known.cut = version;
        if known.gaps.is_empty() {
            return;
        }
        keys.for_each(|key| known.cut_at(key));
        self.len.store(known.gaps.len(), Ordering::Relaxed);
    }
}

impl Known {
    /// Adds a gap, joined with those that it touches.
    fn add(&mut self, begin: &[u8], end: &[u8], version: Version) {
        let (mut begin, mut end) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        while let Some((first, (last, _))) =
            self.gaps.range::<[u8], _>((Unbounded, Included(&end[..]))).next_back()
            && *last >= begin
        {
            let first = first.clone();
            let Some((last, _)) = self.gaps.remove(&first) else { return };
            end = end.max(last);
            begin = begin.min(first);
        }
        if self.gaps.len() >= MOST {
            self.give_one_up();
        }
        self.gaps.insert(begin, (end, version));
    }

    fn cut_at(&mut self, key: &Bytes) {
        let last = self.gaps.range_mut::<[u8], _>((Unbounded, Included(&key[..]))).next_back();
        let Some((begin, (end, since))) = last.filter(|(_, (end, _))| key < end) else { return };
        let behind = (Bytes::from(key_after(key)), std::mem::replace(end, key.clone()), *since);
        if begin == key {
            self.gaps.remove(key);
        }
        let (begin, end, since) = behind;
        if begin < end && self.gaps.len() < MOST {
            self.gaps.insert(begin, (end, since));
        }
    }

    /// Gives up the gap after the one that was given up last.
    fn give_one_up(&mut self) {
        let after = self.gaps.range::<[u8], _>((Excluded(&self.given_up[..]), Unbounded)).next();
        if let Some(next) = after.or(self.gaps.first_key_value()).map(|(begin, _)| begin.clone()) {
            self.gaps.remove(&next);
            self.given_up = next;
        }
    }
}
