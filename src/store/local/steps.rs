//! A step function over keys: the newest version that covers each.

use crate::store::Version;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Key -> the newest version that covers the keys from there to the next entry; 0 before the first.
#[derive(Debug, Default, Clone)]
pub(super) struct Steps {
    steps: BTreeMap<Bytes, Version>,
    swept: usize,
}

impl Steps {
    /// The newest version that covers `key`, or 0.
    pub(super) fn newest_at(&self, key: &[u8]) -> Version {
        let at = self.steps.range::<[u8], _>((Unbounded, Included(key))).next_back();
        at.map(|(_, v)| *v).unwrap_or_default()
    }

    /// The newest version that covers a key in `begin..end`, or 0.
    pub(super) fn newest_in(&self, begin: &[u8], end: &[u8]) -> Version {
        let inside = self.steps.range::<[u8], _>((Excluded(begin), Excluded(end)));
        inside.map(|(_, v)| *v).fold(self.newest_at(begin), Version::max)
    }

    /// `version`, the newest of all, covers `begin..end`.
    pub(super) fn assign(&mut self, begin: &Bytes, end: &Bytes, version: Version) {
        let behind = self.newest_at(end);
        let inside = self.steps.range::<[u8], _>((Included(&begin[..]), Excluded(&end[..])));
        let inside: Vec<Bytes> = inside.map(|(k, _)| k.clone()).collect();
        for key in inside {
            self.steps.remove(&key);
        }
        self.steps.insert(begin.clone(), version);
        self.steps.entry(end.clone()).or_insert(behind);
    }

    /// The parts of `begin..end` that any version covers, in order, each with the newest one.
    pub(super) fn covered(&self, begin: &[u8], end: &[u8]) -> Vec<(Bytes, Bytes, Version)> {
        if begin >= end {
            return Vec::new();
        }
        let inside = self.steps.range::<[u8], _>((Excluded(begin), Excluded(end)));
        let inside = inside.map(|(key, version)| (key.clone(), *version));
        let mut from = (Bytes::copy_from_slice(begin), self.newest_at(begin));
        let mut parts = Vec::new();
        for (key, version) in inside.chain([(Bytes::copy_from_slice(end), 0)]) {
            let (begin, newest) = std::mem::replace(&mut from, (key.clone(), version));
            if newest > 0 {
                parts.push((begin, key, newest));
            }
        }
        parts
    }

    /// All parts that any version covers, in order, each with the newest one.
    pub(super) fn all_covered(&self) -> Vec<(Bytes, Bytes, Version)> {
        let ends = self.steps.keys().skip(1);
        let parts = self.steps.iter().zip(ends).filter(|((_, version), _)| **version > 0);
        parts.map(|((begin, version), end)| (begin.clone(), end.clone(), *version)).collect()
    }

    /// Drops versions up to `floor`. Sweeps once the map has doubled: constant cost per assignment.
    pub(super) fn prune(&mut self, floor: Version) {
        if self.steps.len() <= 2 * self.swept + 16 {
            return;
        }
        let mut covered = false; // whether the last kept step is above the floor
        self.steps.retain(|_, v| {
            let above = *v > floor;
            let keep = above || covered;
            covered = above;
            keep
        });
        self.swept = self.steps.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;

    /// Compared with a list of all assignments: no step is missed and none reaches too far, even after
    /// pruning.
    #[test]
    fn steps_equal_a_list_of_ranges() {
        for seed in 0..50 {
            let mut rng = Rng::seeded(seed);
            let (mut steps, mut list, mut floor) = (Steps::default(), Vec::new(), 0);
            for version in 1..200 {
                let (a, b) = (rng.below(200) as u8, rng.below(200) as u8);
                let (begin, end) = (a.min(b), a.max(b) + 1);
                steps.assign(&vec![begin].into(), &vec![end].into(), version);
                list.push((begin, end, version));
                if rng.below(10) == 0 {
                    floor = version - rng.below(20).min(version);
                    steps.swept = 0;
                    steps.prune(floor);
                }
                let (a, b) = (rng.below(200) as u8, rng.below(200) as u8);
                let (begin, end) = (a.min(b), a.max(b) + 1);
                let overlapping = list.iter().filter(|(b, e, _)| *b < end && begin < *e);
                let newest = overlapping.map(|(_, _, v)| *v).max().unwrap_or_default();
                let found = steps.newest_in(&[begin], &[end]);
                assert_eq!(found.max(floor), newest.max(floor), "seed {seed}, version {version}");
            }
        }
    }

    #[test]
    fn the_parts_that_are_covered_are_told_in_order() {
        for seed in 0..50 {
            let mut rng = Rng::seeded(seed);
            let mut steps = Steps::default();
            for version in 1..rng.below(20) {
                let (a, b) = (rng.below(100) as u8, rng.below(100) as u8);
                steps.assign(&vec![a.min(b)].into(), &vec![a.max(b) + 1].into(), version);
            }
            let (a, b) = (rng.below(100) as u8, rng.below(100) as u8);
            for (begin, end) in [(a.min(b), a.max(b) + 1), (0, 200)] {
                let parts = steps.covered(&[begin], &[end]);
                for key in begin..end {
                    let within = parts.iter().filter(|(b, e, _)| b[..] <= [key][..] && [key][..] < e[..]);
                    let found: Vec<Version> = within.map(|(.., version)| *version).collect();
                    let wanted = steps.newest_at(&[key]);
                    assert_eq!(
                        found,
                        if wanted > 0 { vec![wanted] } else { vec![] },
                        "seed {seed}, key {key}"
                    );
                }
                assert!(parts.is_sorted());
                if (begin, end) == (0, 200) {
                    assert_eq!(parts, steps.all_covered(), "seed {seed}");
                }
            }
            assert_eq!(steps.covered(&[7], &[7]), []);
        }
    }
}
