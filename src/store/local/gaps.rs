//! Ranges of keys that are known to be empty, so that a read jumps over what was removed from them.
//!
//! A queue that is taken from at its front leaves a removed row for each element. A read of its first row walks
//! over all of them: those of recent layers one by one, and RocksDB's tombstones. So a read that walked over some
//! records the gap that it found, and later reads begin behind it.
//!
//! Invariants:
//! * A gap is empty at its version and at all later ones up to the last that was published.
//! * A commit cuts the gaps in which it writes rows before it is published. A gap that is recorded later than that is
//!   cut then, if the rows are still known, or else not recorded. So no row of a commit is in a gap that its readers see.
//! * A database that is opened again begins without gaps.
//!
//! In memory only; losing one costs a walk.

use crate::store::{Version, key_after};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most gaps.
const MOST: usize = 1024;
/// The longest key, in bytes, at which a gap begins or ends.
const LONGEST: usize = 512;
/// Rows that are cut while one lock is held, so that readers do not wait long.
const CUT: usize = 512;
/// Rows of recent commits that are kept, and the number of commits for which they are, once a gap was not recorded
/// for lack of them.
const MOST_RECENT: usize = 4096;
const WANTED: u32 = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    known: RwLock<Known>,
    /// The number of gaps. Without any, readers take no lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    /// Where a gap begins -> where it ends, and the version from which on it is empty. They do not overlap.
    gaps: BTreeMap<Bytes, (Bytes, Version)>,
    /// The last commit that has cut gaps, or is about to.
    cut: Version,
    /// The rows of all commits after `recent_from`, with their versions.
    recent: VecDeque<(Version, Bytes)>,
    recent_from: Version,
    /// Commits whose rows will still be kept.
    wanted: u32,
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
        // The committer's own view is of no version.
        if version > known.cut {
            return;
        }
        if version < known.recent_from {
            known.wanted = WANTED;
            return;
        }
        known.add(begin, end, version);
        let later = known.recent.partition_point(|(at, _)| *at <= version);
        let later: Vec<Bytes> = known.recent.range(later..).map(|(_, key)| key.clone()).collect();
        later.iter().for_each(|key| known.cut_at(key));
        self.len.store(known.gaps.len(), Ordering::Relaxed);
    }

    /// A batch of commits up to `version` writes rows at these keys. Before it is published.
    pub(super) fn cut<'a>(&self, version: Version, mut keys: impl Iterator<Item = &'a Bytes>) {
        let mut known = self.known.write();
        known.cut = version;
        known.wanted = known.wanted.saturating_sub(1);
        if known.wanted == 0 {
            known.recent = VecDeque::new();
            known.recent_from = version;
        }
        while !known.gaps.is_empty() || known.wanted > 0 {
            let mut left = CUT;
            for key in keys.by_ref().take(CUT) {
                known.cut_at(key);
                known.keep(version, key);
                left -= 1;
            }
            self.len.store(known.gaps.len(), Ordering::Relaxed);
            if left > 0 {
                return;
            }
            RwLockWriteGuard::bump(&mut known);
        }
    }
}

impl Known {
    /// Adds a gap, joined with those that it touches.
    fn add(&mut self, begin: &[u8], end: &[u8], version: Version) {
        let (mut begin, mut end) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        let mut since = version;
        while let Some((first, (last, _))) =
            self.gaps.range::<[u8], _>((Unbounded, Included(&end[..]))).next_back()
            && *last >= begin
        {
            let first = first.clone();
            let Some((last, other)) = self.gaps.remove(&first) else { return };
            since = since.max(other);
            end = end.max(last);
            begin = begin.min(first);
        }
        if self.gaps.len() >= MOST {
            self.give_one_up();
        }
        self.gaps.insert(begin, (end, since));
    }

    /// Keeps the key of a row that a commit writes, if somebody wants it.
    fn keep(&mut self, version: Version, key: &Bytes) {
        if self.wanted == 0 {
            return;
        }
        self.recent.push_back((version, key.clone()));
        if self.recent.len() > MOST_RECENT
            && let Some((forgotten, _)) = self.recent.pop_front()
        {
            self.recent_from = forgotten;
        }
    }

    fn cut_at(&mut self, key: &Bytes) {
        let last = self.gaps.range_mut::<[u8], _>((Unbounded, Included(&key[..]))).next_back();
        let Some((begin, (end, since))) = last.filter(|(_, (end, _))| key < end) else { return };
        let behind = (Bytes::from(key_after(key)), std::mem::replace(end, key.clone()), *since);
        if begin == key {
            self.gaps.remove(key);
        }
        let (begin, end, since) = behind;
        if begin < end && begin.len() <= LONGEST && self.gaps.len() < MOST {
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
