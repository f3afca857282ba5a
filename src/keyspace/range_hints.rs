//! A server's cache of where the counted ranges of sorted sets begin and end: hints, never facts.
//!
//! A transaction that uses a hint reads the row of the boundary where the range begins. The row has a generation,
//! which is another one whenever the end of its range moves. If it has that of the hint, the hint is true
//! (`types::zset::counts`). So a wrong hint costs a search, never a wrong answer.
//!
//! Hints may come from transactions that never committed, and from sorted sets that no longer exist: neither
//! generations nor object ids are used again. Those that are not used for long are dropped.

use super::keys::hash;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Bytes of the hints of each of the two halves: the one that was used lately, and the one before it.
const HALF: usize = 16 << 20;
/// Approximate bytes of a hint besides its rows.
const HINT: usize = 128;

/// A range, as it once was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeHint {
    /// The row of the boundary where it begins.
    pub(crate) begin: Bytes,
    /// The row of the next boundary, or one past those of its level.
    pub(crate) end: Bytes,
    /// The generation of the range.
    pub(crate) generation: u64,
    /// The number of bytes that all rows of its level begin with; the place follows.
    pub(crate) head: usize,
}

/// What hints are sorted by: a hash of the rows' head, the first bytes of the place (the score), and the row. Most differ
/// in the numbers, so that a search reads few rows.
type Key = (u64, u64, Bytes);

fn key(row: &Bytes, head: usize) -> Key {
    let (head, place) = row.split_at_checked(head).unwrap_or_default();
    (hash(head), place.first_chunk().map_or(0, |score| u64::from_be_bytes(*score)), row.clone())
}

impl RangeHint {
    fn key(&self) -> Key {
        key(&self.begin, self.head)
    }

    /// Whether a boundary at this row of the same level would be in it.
    pub(crate) fn holds(&self, row: &[u8]) -> bool {
        &self.begin[..] <= row && row < &self.end[..]
    }

    /// The same of its place.
    pub(crate) fn holds_place(&self, place: &[u8]) -> bool {
        let [begin, end] =
            [&self.begin, &self.end].map(|row| row.split_at_checked(self.head).unwrap_or_default());
        begin.1 <= place && (begin.0 != end.0 || place < end.1)
    }

    fn size(&self) -> usize {
        self.begin.len() + self.end.len() + HINT
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RangeHints(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: BTreeMap<Key, RangeHint>,
    old: BTreeMap<Key, RangeHint>,
    /// Bytes of the young ones.
    size: usize,
}

impl RangeHints {
    /// Drops all hints.
    pub(crate) fn clear(&self) {
        // Dropped once the lock is free.
        let _all = std::mem::take(&mut *self.0.lock());
    }

    /// The range in which a boundary at this row would be. `head`: see [`RangeHint::head`].
    pub(crate) fn find(&self, row: &Bytes, head: usize) -> Option<RangeHint> {
        let key = key(row, head);
        let mut halves = self.0.lock();
        if let Some(found) = holder(&halves.young, &key) {
            return Some(found.clone());
        }
        let found = holder(&halves.old, &key)?.clone();
        halves.old.remove(&found.key());
        let outdated = halves.learn(found.clone());
        drop(halves);
        drop(outdated);
        Some(found)
    }

    /// Records where a range is.
    pub(crate) fn learn(&self, hint: RangeHint) {
        let outdated = self.0.lock().learn(hint);
        drop(outdated);
    }

    /// Drops a hint that is wrong.
    pub(crate) fn forget(&self, hint: &RangeHint) {
        let (key, mut halves) = (hint.key(), self.0.lock());
        if halves.young.get(&key) == Some(hint) {
            halves.young.remove(&key);
            halves.size = halves.size.saturating_sub(hint.size());
        }
        if halves.old.get(&key) == Some(hint) {
            halves.old.remove(&key);
        }
    }
}

impl Halves {
    /// Returns hints to drop: that takes some milliseconds, and others need not wait for it.
    fn learn(&mut self, hint: RangeHint) -> BTreeMap<Key, RangeHint> {
        self.size += hint.size();
        if let Some(before) = self.young.insert(hint.key(), hint) {
            self.size = self.size.saturating_sub(before.size());
        }
        if self.size <= HALF {
            return BTreeMap::new();
        }
        self.size = 0;
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
    }
}

fn holder<'a>(hints: &'a BTreeMap<Key, RangeHint>, key: &Key) -> Option<&'a RangeHint> {
    hints.range(..=key).next_back().map(|(_, hint)| hint).filter(|hint| hint.holds(&key.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(begin: &str, end: &str, generation: u64) -> RangeHint {
        RangeHint { begin: begin.to_owned().into(), end: end.to_owned().into(), generation, head: 0 }
    }

    fn find(hints: &RangeHints, row: &str) -> Option<RangeHint> {
        hints.find(&row.to_owned().into(), 0)
    }

    #[test]
    fn finds_the_range_that_holds_a_row() {
        let hints = RangeHints::default();
        let (first, second) = (hint("b", "d", 1), hint("d", "f", 2));
        hints.learn(first.clone());
        hints.learn(second.clone());
        for (row, wanted) in
            [("a", None), ("b", Some(&first)), ("cz", Some(&first)), ("d", Some(&second)), ("f", None)]
        {
            assert_eq!(find(&hints, row).as_ref(), wanted, "{row}");
        }
        for place in ["a", "b", "cz", "d", "f"] {
            let row = format!("q{place}");
            for end in ["qd", "r"] {
                let hint = RangeHint { head: 1, ..hint("qb", end, 1) };
                assert_eq!(hint.holds_place(place.as_bytes()), hint.holds(row.as_bytes()), "{place} {end}");
            }
        }
        let moved = hint("b", "c", 3);
        hints.learn(moved.clone());
        hints.forget(&first);
        assert_eq!(find(&hints, "bz"), Some(moved.clone()));
        assert_eq!(find(&hints, "cz"), None);
        hints.forget(&moved);
        assert_eq!(find(&hints, "bz"), None);
        hints.clear();
        assert_eq!(find(&hints, "d"), None);
    }

    /// What is used stays while others come and go, and the number of hints is bounded.
    #[test]
    fn drops_what_is_not_used() {
        let hints = RangeHints::default();
        let name = |n: u32| format!("r{n:08}");
        let many = 3 * (HALF / HINT) as u32;
        for n in 0..many {
            hints.learn(hint(&name(2 * n), &name(2 * n + 1), u64::from(n)));
            assert!(find(&hints, &name(0)).is_some(), "{n}");
        }
        assert!(find(&hints, &name(2)).is_none());
        let halves = hints.0.lock();
        assert!((halves.young.len() + halves.old.len()) * HINT <= 2 * HALF);
        let sizes = halves.young.values().map(RangeHint::size).sum::<usize>();
        assert_eq!(sizes, halves.size);
    }
}
