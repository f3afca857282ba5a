//! The last-writer table: what was written, and when, since the oldest version that is still read.
//!
//! * Points: hash of a key -> version of its last conflicting write. A hash collision is a false conflict;
//!   the transaction runs again.
//! * Written keys, one segment per batch, for range reads. The first range read that needs a segment sorts
//!   it, and merges small neighbours: workloads without range reads in writing transactions never pay for
//!   this.
//! * Written ranges (clears and explicit conflicts) as a step function: key -> newest version that covers the
//!   keys from there on. The newest version always wins, so adding a range is an assignment.
//!
//! Invariant: the table is complete for every version above `floor`. A transaction that reads below it is too
//! old.

use super::reads::Reads;
use super::steps::Steps;
use crate::error::{StoreError, StoreResult};
use crate::store::Version;
use crate::store::effects::Identity;
use crate::store::writes::Writes;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// Segments with fewer keys are merged with their neighbours before a range read searches them.
const SEGMENT: usize = 1024;
/// Keys that one pruning looks at, and twice as many as were written since the last one.
const PRUNED: usize = if cfg!(test) { 100 } else { 8192 };

/// See the module.
pub(super) struct Conflicts {
    floor: Version,
    points: HashMap<u64, Version, BuildHasherDefault<Identity>>,
    segments: VecDeque<Segment>,
    /// Keys of segments that can no longer matter, whose points are still to be looked at.
    stale: Vec<Written>,
    /// Keys that were archived since the last pruning.
    added: usize,
    ranges: Steps,
    metadata: Version,
}

struct Segment {
    newest: Version,
    sorted: bool,
    keys: Vec<Written>,
}

/// A key, its hash, and the version that wrote it.
pub(super) type Written = (Bytes, u64, Version);

impl Conflicts {
    /// An empty table: nothing below `floor` can be checked.
    pub(super) fn new(floor: Version) -> Self {
        Conflicts {
            floor,
            points: HashMap::default(),
            segments: VecDeque::new(),
            stale: Vec::new(),
            added: 0,
            ranges: Steps::default(),
            metadata: 0,
        }
    }

    /// Checks whether anything in `reads` was written after `version`. The caller checks range reads against
    /// the keys of the batch being collected: those enter with [`Conflicts::archive`].
    pub(super) fn check(&mut self, reads: &Reads, version: Version) -> StoreResult<()> {
        if !self.is_complete_after(version) {
            return Err(StoreError::TooOld);
        }
        if reads.metadata && self.metadata > version {
            return Err(StoreError::Conflict);
        }
        let mut points = reads.points();
        if points.any(|(hash, key)| self.point(hash, key) > version) {
            return Err(StoreError::Conflict);
        }
        let mut ranges = reads.ranges.iter();
        if ranges.any(|(b, e)| self.ranges.newest_in(b, e) > version || self.wrote_in(b, e, version)) {
            return Err(StoreError::Conflict);
        }
        Ok(())
    }

    /// The last version that wrote `key`, or 0.
    pub(super) fn point(&self, hash: u64, key: &[u8]) -> Version {
        let point = self.points.get(&hash).copied().unwrap_or_default();
        point.max(self.ranges.newest_at(key))
    }

    /// Records the writes of an admitted transaction, so that the next one of the same batch sees them.
    pub(super) fn note(&mut self, writes: &Writes, version: Version) {
        self.points.reserve(writes.ops.len());
        for (_, op) in writes.ops.iter().filter(|(_, op)| op.conflict) {
            self.points.insert(op.hash, version);
        }
        let explicit = writes.conflicts.iter().map(|(b, e)| (b, e));
        for (begin, end) in writes.cleared.iter().chain(explicit) {
            self.ranges.assign(begin, end, version);
        }
        if writes.bump {
            self.metadata = version;
        }
    }

    /// Adds the written keys of a finished batch, for range reads.
    pub(super) fn archive(&mut self, keys: Vec<Written>, newest: Version) {
        self.added += keys.len();
        if !keys.is_empty() {
            self.segments.push_back(Segment { newest, sorted: false, keys });
        }
    }

    /// Whether the table has every change after `version`.
    pub(super) fn is_complete_after(&self, version: Version) -> bool {
        version >= self.floor
    }

    /// Drops entries that can no longer matter: every live transaction reads `floor` or later. Not all at once: when a
    /// transaction ends that had kept millions, commits would wait for that. But more than are added, to catch up.
    pub(super) fn prune(&mut self, floor: Version) {
        self.floor = self.floor.max(floor);
        let mut left = PRUNED + 2 * std::mem::take(&mut self.added);
        while left > 0 {
            let Some((_, hash, _)) = self.stale.pop() else {
                if self.segments.front().is_none_or(|segment| segment.newest > floor) {
                    break;
                }
                self.stale = self.segments.pop_front().map(|segment| segment.keys).unwrap_or_default();
                continue;
            };
            if self.points.get(&hash).is_some_and(|v| *v <= floor) {
                self.points.remove(&hash);
            }
            left -= 1;
        }
        self.ranges.prune(floor);
    }

    fn wrote_in(&mut self, begin: &[u8], end: &[u8], version: Version) -> bool {
        self.merge_small();
        let mut recent = self.segments.iter_mut().rev().take_while(|s| s.newest > version);
        recent.any(|segment| segment.wrote_in(begin, end, version))
    }

    fn merge_small(&mut self) {
        let Some(mut last) = self.segments.pop_back() else { return };
        let small = |s: &Segment| s.keys.len() < SEGMENT;
        while small(&last) && self.segments.back().is_some_and(small) {
            let previous = self.segments.pop_back().into_iter().flat_map(|s| s.keys);
            last.keys.extend(previous);
            last.sorted = false;
        }
        self.segments.push_back(last);
    }
}

impl Segment {
    fn wrote_in(&mut self, begin: &[u8], end: &[u8], version: Version) -> bool {
        if !self.sorted {
            self.keys.sort_by(|(a, _, v), (b, _, w)| a.cmp(b).then(w.cmp(v)));
            self.keys.dedup_by(|(b, ..), (a, ..)| a == b); // keeps the first: the newest
            self.sorted = true;
        }
        let from = self.keys.partition_point(|(key, ..)| &key[..] < begin);
        let mut inside = self.keys.iter().skip(from).take_while(|(key, ..)| &key[..] < end);
        inside.any(|(.., v)| *v > version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::local::layout;

    #[test]
    fn pruned_below_the_oldest_reader_and_no_further() {
        let mut table = Conflicts::new(10);
        for version in 11..=40u64 {
            let key = Bytes::copy_from_slice(&version.to_be_bytes());
            let mut writes = Writes::default();
            assert!(writes.set(key.clone(), Bytes::new(), true).is_ok());
            table.note(&writes, version);
            table.archive(vec![(key.clone(), layout::hash(&key), version)], version);
        }
        table.prune(30);
        assert_eq!((table.points.len(), table.segments.len()), (10, 10));
        let mut point = Reads::default();
        let key = 31u64.to_be_bytes();
        point.point(layout::hash(&key), &key);
        assert_eq!(table.check(&point, 30), Err(StoreError::Conflict));
        assert_eq!(table.check(&point, 31), Ok(()));
        assert_eq!(table.check(&point, 29), Err(StoreError::TooOld));
        table.prune(40);
        assert!(table.points.is_empty() && table.segments.is_empty());
    }

    /// Hazard: a transaction that has read for seconds ends, and the next commit drops all that it had kept.
    #[test]
    fn what_was_kept_long_is_dropped_in_pieces() {
        let mut table = Conflicts::new(10);
        let write = |table: &mut Conflicts, version: u64, keys: u64| {
            let keys = (0..keys).map(|n| Bytes::copy_from_slice(&(version << 32 | n).to_be_bytes()));
            let keys: Vec<Written> = keys.map(|key| (key.clone(), layout::hash(&key), version)).collect();
            let mut writes = Writes::default();
            keys.iter().for_each(|(key, ..)| assert!(writes.set(key.clone(), Bytes::new(), true).is_ok()));
            table.note(&writes, version);
            table.archive(keys, version);
        };
        (11..=20).for_each(|version| write(&mut table, version, 300));
        table.prune(10);
        assert_eq!(table.points.len(), 3000);
        let mut before = 3000;
        for version in 21..=60 {
            write(&mut table, version, 10);
            table.prune(20);
            let now = table.points.len();
            assert!(now + PRUNED + 10 >= before, "{before} -> {now}");
            before = now;
        }
        assert_eq!((table.points.len(), table.segments.len(), table.stale.len()), (400, 40, 0));
    }
}
