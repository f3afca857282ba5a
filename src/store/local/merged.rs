//! Rows of a range in order: those of recent layers, and under them RocksDB's.
//!
//! A key is shown as the newest layer that knows it shows it; what a layer removed or cleared is not
//! shown from below. Layers are read in pages, so that no lock is held between two rows.

use super::cleared::Cleared;
use super::recent::{Layer, Shown};
use crate::store::Version;
use bytes::Bytes;
use rocksdb::DBRawIterator;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound::{self, Excluded, Included};
use std::sync::Arc;

/// Rows of the first page of a layer, and of the largest; each is twice as large as the one before.
const FIRST_PAGE: usize = 16;
const LARGEST_PAGE: usize = 512;

/// An iterator over the rows of a range. See the module.
pub(super) struct Rows<'a> {
    base: DBRawIterator<'a>,
    /// Whether RocksDB has no more rows. It is not asked again then.
    is_at_end: bool,
    recent: Vec<Source>,
    reverse: bool,
    head: Head,
    /// How many more rows that are not shown may follow each other.
    patience: usize,
}

/// Where the current row is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Base,
    /// At the front of the page of this source.
    Recent(usize),
    End,
}

/// A layer, and the part of it that is being read.
struct Source {
    layer: Arc<Layer>,
    version: Version,
    /// What it clears of the whole range: apart and in order.
    cleared: Vec<Cleared>,
    page: VecDeque<Shown>,
    /// The rest of the range behind the page.
    rest: (Bound<Bytes>, Bound<Bytes>),
    more: bool,
    most: usize,
    /// Its rows that were not shown so far.
    walked: usize,
}

impl<'a> Rows<'a> {
    /// The rows in `begin..end` that a reader of `version` sees. `base` is bounded by that range;
    /// `layers`: the newest first.
    pub(super) fn open(
        base: DBRawIterator<'a>,
        layers: &[Arc<Layer>],
        (begin, end): (&[u8], &[u8]),
        version: Version,
        reverse: bool,
    ) -> Self {
        Rows::patient(base, layers, (begin, end), version, reverse, usize::MAX)
    }

    /// The same, but it ends after `patience` rows of recent layers that are not shown.
    pub(super) fn patient(
        mut base: DBRawIterator<'a>,
        layers: &[Arc<Layer>],
        (begin, end): (&[u8], &[u8]),
        version: Version,
        reverse: bool,
        patience: usize,
    ) -> Self {
        if reverse {
            base.seek_to_last()
        } else {
            base.seek_to_first()
        }
        let used = layers.iter().filter(|layer| layer.is_used());
        let recent = used.map(|layer| Source::new(layer.clone(), begin, end, version)).collect();
        let mut rows = Rows { base, is_at_end: false, recent, reverse, head: Head::End, patience };
        rows.settle();
        rows
    }

    /// The current row; None at the end, or after an error.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        match self.head {
            Head::Base => self.base.item(),
            Head::Recent(n) => {
                let (key, value) = self.recent.get(n)?.page.front()?;
                Some((key, value.as_ref()?))
            }
            Head::End => None,
        }
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.item().map(|(key, _)| key)
    }

    /// Goes to the next row.
    pub(super) fn step(&mut self) {
        match self.head {
            Head::Base => self.step_base(),
            Head::Recent(n) => self.leave(n),
            Head::End => return,
        }
        self.settle();
    }

    /// Moves out of `begin..end`, in which the current row is.
    pub(super) fn jump(&mut self, begin: &[u8], end: &[u8]) {
        self.jump_base(begin, end);
        let reverse = self.reverse;
        for source in &mut self.recent {
            source.jump(begin, end, reverse);
        }
        self.settle();
    }

    /// Whether it ended because it was out of patience.
    pub(super) fn gave_up(&self) -> bool {
        self.patience == 0
    }

    /// What went wrong, if a row could not be read.
    pub(super) fn status(&self) -> Result<(), rocksdb::Error> {
        self.base.status()
    }

    fn step_base(&mut self) {
        if self.reverse { self.base.prev() } else { self.base.next() }
    }

    fn jump_base(&mut self, begin: &[u8], end: &[u8]) {
        if !self.base.valid() {
            return;
        }
        if !self.reverse {
            return self.base.seek(end);
        }
        self.base.seek_for_prev(begin);
        if self.base.key() == Some(begin) {
            self.base.prev();
        }
    }

    /// Finds the next row to show, from the current positions on.
    fn settle(&mut self) {
        if self.recent.is_empty() {
            self.head = if self.base.valid() { Head::Base } else { Head::End };
            return;
        }
        loop {
            let n = self.first_recent();
            self.skip_cleared();
            let base = if self.is_at_end { None } else { self.base.key() };
            if base.is_none() && !self.is_at_end {
                // After an error there may be rows of RocksDB that are not seen.
                if self.base.status().is_err() {
                    self.head = Head::End;
                    return;
                }
                self.is_at_end = true;
            }
            let front = n.and_then(|n| Some((n, self.recent.get(n)?.page.front()?)));
            let Some((n, (key, value))) = front else {
                self.head = if base.is_some() { Head::Base } else { Head::End };
                return;
            };
            let order = match base {
                Some(base) if self.reverse => base.cmp(key),
                Some(base) => key[..].cmp(base),
                None => Ordering::Less,
            };
            let shadowed = self.recent.iter().take(n).any(|newer| newer.clears(key));
            let shows = value.is_some() && !shadowed;
            match order {
                Ordering::Greater => {
                    self.head = Head::Base;
                    return;
                }
                Ordering::Equal => self.step_base(),
                Ordering::Less => {}
            }
            if shows {
                self.head = Head::Recent(n);
                return;
            }
            self.walk_over(n);
            self.patience -= 1;
            if self.patience == 0 {
                self.head = Head::End;
                return;
            }
        }
    }

    /// Moves RocksDB's position out of cleared ranges.
    fn skip_cleared(&mut self) {
        if self.is_at_end || self.recent.iter().all(|source| source.cleared.is_empty()) {
            return;
        }
        while let Some(key) = self.base.key() {
            let cleared = self.recent.iter().find_map(|source| source.clear_of(key)).cloned();
            let Some(Cleared { begin, end, .. }) = cleared else { return };
            self.jump_base(&begin, &end);
        }
    }

    /// The source whose front comes first; the newest of those of the same key.
    fn first_recent(&mut self) -> Option<usize> {
        let reverse = self.reverse;
        self.recent.iter_mut().for_each(|source| source.fill(reverse));
        let fronts = self.recent.iter().enumerate().filter_map(|(n, source)| Some((n, source.front()?)));
        let first =
            fronts.min_by(|(_, one), (_, other)| if reverse { other.cmp(one) } else { one.cmp(other) });
        first.map(|(n, _)| n)
    }

    /// Goes behind the front of a source, which is not shown.
    fn walk_over(&mut self, n: usize) {
        if let Some(source) = self.recent.get_mut(n) {
            source.walked += 1;
            source.layer.walked(source.walked);
        }
        self.leave(n);
    }

    /// Goes behind the front of a source, in all sources that have its key.
    fn leave(&mut self, n: usize) {
        let Some((key, _)) = self.recent.get_mut(n).and_then(|source| source.page.pop_front()) else {
            return;
        };
        for (_, source) in self.recent.iter_mut().enumerate().filter(|(other, _)| *other != n) {
            if source.front() == Some(&key) {
                source.page.pop_front();
            }
        }
    }
}

impl Source {
    fn new(layer: Arc<Layer>, begin: &[u8], end: &[u8], version: Version) -> Self {
        let cleared = layer.cleared(begin, end, version);
        let rest = (Included(Bytes::copy_from_slice(begin)), Excluded(Bytes::copy_from_slice(end)));
        Source {
            layer,
            version,
            cleared,
            page: VecDeque::new(),
            rest,
            more: true,
            most: FIRST_PAGE,
            walked: 0,
        }
    }

    fn clears(&self, key: &[u8]) -> bool {
        self.clear_of(key).is_some()
    }

    fn clear_of(&self, key: &[u8]) -> Option<&Cleared> {
        let before = self.cleared.partition_point(|c| c.begin[..] <= *key);
        self.cleared.get(before.checked_sub(1)?).filter(|c| c.covers(key))
    }

    /// The key at its position, once the page is filled.
    fn front(&self) -> Option<&Bytes> {
        self.page.front().map(|(key, _)| key)
    }

    /// Reads on if the page is empty.
    fn fill(&mut self, reverse: bool) {
        while self.page.is_empty() && self.more {
            let (from, to) = &self.rest;
            let range = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
            let last = self.layer.page(range, reverse, self.version, self.most, &mut self.page);
            self.more = last.is_some();
            if let Some(last) = last {
                let bound = if reverse { &mut self.rest.1 } else { &mut self.rest.0 };
                *bound = Excluded(last);
            }
            self.most = (2 * self.most).min(LARGEST_PAGE);
        }
    }

    fn jump(&mut self, begin: &[u8], end: &[u8], reverse: bool) {
        let is_inside = |key: &[u8]| if reverse { key >= begin } else { key < end };
        while self.page.front().is_some_and(|(key, _)| is_inside(key)) {
            self.page.pop_front();
        }
        if !self.page.is_empty() {
            return;
        }
        // The rest may begin inside, too.
        let bound = if reverse { &mut self.rest.1 } else { &mut self.rest.0 };
        let (Included(at) | Excluded(at)) = &*bound else { return };
        let is_before = if reverse { at[..] > *begin } else { at[..] < *end };
        if is_before {
            *bound = if reverse {
                Excluded(Bytes::copy_from_slice(begin))
            } else {
                Included(Bytes::copy_from_slice(end))
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recent::{Readers, Written};
    use super::*;
    use crate::env::Rng;
    use rocksdb::{DB, ReadOptions};
    use std::collections::BTreeMap;

    const KEYS: u64 = 300;
    const ALL: Readers = Readers { oldest: 0, newest: Version::MAX };

    fn key(n: u64) -> Bytes {
        format!("{n:04}").into()
    }

    /// A database with rows under `layers` of random changes, and what each version shows.
    struct World {
        _dir: tempfile::TempDir,
        db: DB,
        layers: Vec<Arc<Layer>>,
        versions: Vec<BTreeMap<Bytes, Bytes>>,
    }

    impl World {
        fn new(rng: &mut Rng, most: usize) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let db = DB::open_default(dir.path()).unwrap();
            let mut shown = BTreeMap::new();
            for n in (0..KEYS).filter(|n| n % 3 > 0) {
                db.put(key(n), b"base").unwrap();
                shown.insert(key(n), "base".into());
            }
            let mut world = World { _dir: dir, db, layers: Vec::new(), versions: vec![shown] };
            for number in 0..most as u64 {
                let layer = Layer::new(number, 0);
                for _ in 0..rng.below(40) {
                    world.commit(rng, &layer);
                }
                world.layers.insert(0, Arc::new(layer));
            }
            world
        }

        fn commit(&mut self, rng: &mut Rng, to: &Layer) {
            let version = self.versions.len() as Version;
            let mut shown = self.versions.last().unwrap().clone();
            if rng.below(5) == 0 {
                let begin = rng.below(KEYS);
                let end = begin + 1 + rng.below(60);
                to.clear([Cleared { begin: key(begin), end: key(end), version }].into_iter());
                shown.retain(|at, _| *at < key(begin) || *at >= key(end));
            }
            for _ in 0..rng.below(8) {
                let (key, value) = (key(rng.below(KEYS)), Bytes::from(format!("at {version}")));
                let value = (rng.below(3) > 0).then_some(value);
                match &value {
                    Some(value) => shown.insert(key.clone(), value.clone()),
                    None => shown.remove(&key),
                };
                let hash = super::super::layout::hash(&key);
                let written = Written { key: &key, hash, version, value: value.as_ref(), kept: true };
                to.enter([written].into_iter(), ALL);
            }
            self.versions.push(shown);
        }

        fn rows(&self, begin: &[u8], end: &[u8], version: Version, reverse: bool) -> Rows<'_> {
            let mut options = ReadOptions::default();
            options.set_iterate_lower_bound(begin);
            options.set_iterate_upper_bound(end);
            let base = self.db.raw_iterator_opt(options);
            Rows::open(base, &self.layers, (begin, end), version, reverse)
        }
    }

    #[test]
    fn every_version_shows_its_rows_in_both_directions_and_behind_jumps() {
        let mut rng = Rng::seeded(11);
        for round in 0..60 {
            let world = World::new(&mut rng, round % 4);
            for _ in 0..40 {
                let version = rng.below(world.versions.len() as u64);
                let begin = rng.below(KEYS);
                let (begin, end) = (key(begin), key(begin + 1 + rng.below(KEYS)));
                let reverse = rng.below(2) == 0;
                let mut wanted: Vec<_> =
                    world.versions[version as usize].range(begin.clone()..end.clone()).collect();
                if reverse {
                    wanted.reverse();
                }
                let mut rows = world.rows(&begin, &end, version, reverse);
                let mut n = 0;
                while let Some((key, value)) = rows.item() {
                    assert_eq!(
                        Some((key, value)),
                        wanted.get(n).map(|(key, value)| (&key[..], &value[..])),
                        "round {round}"
                    );
                    n += 1;
                    if rng.below(10) > 0 {
                        rows.step();
                        continue;
                    }
                    // A range that the current row is in.
                    let at: u64 = String::from_utf8_lossy(key).parse().unwrap();
                    let (from, to) = (
                        super::tests::key(at.saturating_sub(rng.below(9))),
                        super::tests::key(at + 1 + rng.below(9)),
                    );
                    rows.jump(&from, &to);
                    while wanted.get(n).is_some_and(|(key, _)| from <= **key && **key < to) {
                        n += 1;
                    }
                }
                rows.status().unwrap();
                assert_eq!(n, wanted.len(), "round {round}");
            }
        }
    }

    #[test]
    fn it_gives_up_among_rows_that_are_not_shown() {
        let mut rng = Rng::seeded(1);
        let world = World::new(&mut rng, 0);
        let patient = |patience: usize| {
            let base = world.db.raw_iterator();
            let rows = Rows::patient(base, &[Arc::new(Layer::new(9, 0))], (b"0", b"9"), 9, false, patience);
            assert!(rows.key().is_some() && !rows.gave_up());
            let base = world.db.raw_iterator();
            let layers = [Arc::new(Layer::new(10, 0))];
            for key in (0..KEYS).map(key) {
                let hash = super::super::layout::hash(&key);
                let removal = Written { key: &key, hash, version: 5, value: None, kept: true };
                layers[0].enter([removal].into_iter(), ALL);
            }
            let rows = Rows::patient(base, &layers, (b"0", b"9"), 9, false, patience);
            assert!(rows.key().is_none());
            rows.gave_up()
        };
        assert_eq!([10, KEYS as usize - 1, KEYS as usize + 1].map(patient), [true, true, false]);
    }

    /// Hazard: each read of the front of a queue walks over all that was taken from it.
    #[test]
    fn a_layer_that_reads_walk_over_in_vain_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let db = DB::open_default(dir.path()).unwrap();
        let layers = [Arc::new(Layer::new(1, 0))];
        let removed = |n: u64| Bytes::from(format!("{n:06}"));
        for (from, full) in [(0, false), (30_000, true)] {
            for key in (from..from + 30_000).map(removed) {
                let hash = super::super::layout::hash(&key);
                let removal = Written { key: &key, hash, version: 5, value: None, kept: true };
                layers[0].enter([removal].into_iter(), ALL);
            }
            let rows = Rows::open(db.raw_iterator(), &layers, (b"0", b"9"), 9, false);
            assert!(rows.key().is_none());
            assert_eq!(layers[0].is_full(usize::MAX), full);
        }
    }
}
