//! The ranges that the commits of a layer cleared.
//!
//! A step function tells what readers of the present see, however many ranges there are. Readers of a version
//! before the last clear look through all of them: those are few, and their time ends.

use super::steps::Steps;
use crate::store::Version;
use bytes::Bytes;
use std::borrow::Cow;

/// A range that a commit of `version` cleared, before it wrote its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cleared {
    pub(super) begin: Bytes,
    pub(super) end: Bytes,
    pub(super) version: Version,
}

impl Cleared {
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        self.begin[..] <= *key && *key < self.end[..]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clears {
    newest: Steps,
    /// The oldest first.
    all: Vec<Cleared>,
}

impl Clears {
    /// Adds a range, which is at least as new as all others.
    pub(super) fn add(&mut self, range: Cleared) {
        if range.begin < range.end {
            self.newest.assign(&range.begin, &range.end, range.version);
            self.all.push(range);
        }
    }

    /// The number of ranges added.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The version of the last clear that covers `key` for a reader of `version`, or 0.
    pub(super) fn at(&self, key: &[u8], version: Version) -> Version {
        if self.all.is_empty() {
            return 0;
        }
        match self.newest.newest_at(key) {
            newest if newest <= version => newest,
            _ => self.until(version).rev().find(|c| c.covers(key)).map_or(0, |c| c.version),
        }
    }

    /// What a reader of `version` sees of it.
    pub(super) fn as_of(&self, version: Version) -> Cow<'_, Steps> {
        if self.all.last().is_none_or(|last| last.version <= version) {
            return Cow::Borrowed(&self.newest);
        }
        let mut steps = Steps::default();
        self.until(version).for_each(|c| steps.assign(&c.begin, &c.end, c.version));
        Cow::Owned(steps)
    }

    /// The parts of `begin..end` that are cleared for a reader of `version`: apart and in order.
    pub(super) fn within(&self, begin: &[u8], end: &[u8], version: Version) -> Vec<Cleared> {
        if self.all.is_empty() {
            return Vec::new();
        }
        ranges(self.as_of(version).covered(begin, end))
    }

    /// All that is cleared: apart and in order.
    pub(super) fn parts(&self) -> Vec<Cleared> {
        ranges(self.newest.all_covered())
    }

    fn until(&self, version: Version) -> impl DoubleEndedIterator<Item = &Cleared> {
        let known = self.all.partition_point(|c| c.version <= version);
        self.all.iter().take(known)
    }
}

fn ranges(parts: Vec<(Bytes, Bytes, Version)>) -> Vec<Cleared> {
    parts.into_iter().map(|(begin, end, version)| Cleared { begin, end, version }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;

    #[test]
    fn every_reader_sees_the_last_clear_of_its_time() {
        for seed in 0..30 {
            let (mut rng, mut clears, mut list) = (Rng::seeded(seed), Clears::default(), Vec::new());
            for version in 1..40 {
                let (a, b) = (rng.below(100) as u8, rng.below(100) as u8);
                let [begin, end] = [a.min(b), a.max(b)].map(|key| Bytes::from(vec![key]));
                list.push(Cleared { begin, end, version });
                clears.add(list.last().unwrap().clone());
            }
            for _ in 0..200 {
                let (key, version) = ([rng.below(100) as u8], rng.below(45));
                let seen = list.iter().filter(|c| c.version <= version && c.covers(&key));
                let wanted = seen.map(|c| c.version).max().unwrap_or_default();
                assert_eq!(clears.at(&key, version), wanted, "seed {seed}");
                assert_eq!(clears.as_of(version).newest_at(&key), wanted, "seed {seed}");
                let parts = clears.within(&[0], &[200], version);
                let within = parts.iter().filter(|c| c.covers(&key)).map(|c| c.version);
                assert_eq!(within.sum::<u64>(), wanted, "seed {seed}: one part, or none");
            }
            assert_eq!(clears.parts(), clears.within(&[0], &[200], Version::MAX));
        }
    }
}
