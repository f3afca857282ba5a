//! Rows of layers over RocksDB's: every version, both directions, jumps and gaps.

use super::super::pages::Page;
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
    gaps: Gaps,
    /// Whether commits cut gaps.
    cuts: bool,
    /// Whether RocksDB's rows come from a page.
    paged: bool,
}

impl World {
    /// `most`: the number of layers.
    fn new(rng: &mut Rng, most: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = DB::open_default(dir.path()).unwrap();
        let mut shown = BTreeMap::new();
        for n in (0..KEYS).filter(|n| n % 3 > 0) {
            db.put(key(n), b"base").unwrap();
            shown.insert(key(n), "base".into());
        }
        let (layers, gaps) = Default::default();
        let mut world =
            World { _dir: dir, db, layers, versions: vec![shown], gaps, cuts: true, paged: false };
        for number in 0..most as u64 {
            world.layers.insert(0, Arc::new(Layer::new(number, 0)));
            for _ in 0..rng.below(40) {
                if rng.below(5) == 0 {
                    let begin = rng.below(KEYS);
                    world.clear(begin, begin + 1 + rng.below(60));
                }
                let changed = (0..rng.below(8)).map(|_| (rng.below(KEYS), rng.below(3) > 0)).collect();
                world.commit(changed);
            }
        }
        world
    }

    /// To be followed by the rest of the commit.
    fn clear(&mut self, begin: u64, end: u64) {
        let version = self.versions.len() as Version;
        let (begin, end) = (key(begin), key(end));
        let mut shown = self.versions.last().unwrap().clone();
        shown.retain(|at, _| *at < begin || *at >= end);
        self.layers[0].clear([Cleared { begin, end, version }].into_iter());
        self.versions.push(shown);
    }

    /// Sets and removes rows.
    fn commit(&mut self, changed: Vec<(u64, bool)>) {
        let version = self.versions.len() as Version;
        let mut shown = self.versions.last().unwrap().clone();
        let value = Bytes::from(format!("at {version}"));
        let mut set = Vec::new();
        for (n, is_set) in changed {
            let (key, value) = (key(n), is_set.then_some(&value));
            match value {
                Some(value) => shown.insert(key.clone(), value.clone()),
                None => shown.remove(&key),
            };
            let hash = super::super::layout::hash(&key);
            self.layers[0].enter([Written { key: &key, hash, version, value, kept: true }].into_iter(), ALL);
            set.extend(is_set.then_some(key));
        }
        self.versions.push(shown);
        self.gaps.cut(version, set.iter().filter(|_| self.cuts));
    }

    fn rows(&self, part: Part, patience: usize) -> Rows<'_> {
        let part = part.trimmed(&self.gaps);
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(&part.begin[..]);
        options.set_iterate_upper_bound(&part.end[..]);
        let base = self.db.raw_iterator_opt(options);
        let base = match self.paged {
            true => Under::Page(Cursor::new(Page::read(base, usize::MAX).unwrap().unwrap().into())),
            false => Under::Engine(base),
        };
        Rows::open(base, &self.layers, part, &self.gaps, patience)
    }

    /// Reads a part to its end, without the rows in `cleared`, which it jumps over. Returns whether it is as it should be.
    fn is_right(
        &self,
        (begin, end): (u64, u64),
        version: Version,
        reverse: bool,
        cleared: &std::ops::Range<Bytes>,
    ) -> bool {
        let (begin, end) = (key(begin), key(end));
        let shown = &self.versions[version as usize];
        let mut wanted: Vec<_> =
            shown.range(begin.clone()..end.clone()).filter(|(key, _)| !cleared.contains(*key)).collect();
        if reverse {
            wanted.reverse();
        }
        let (mut rows, mut got) =
            (self.rows(Part::new(&begin, &end, version, reverse), usize::MAX), Vec::new());
        while let Some((key, value)) = rows.item() {
            if cleared.start[..] <= *key && *key < cleared.end[..] {
                rows.jump(&cleared.start, &cleared.end);
                continue;
            }
            got.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            rows.step();
        }
        rows.status().unwrap();
        got.iter().map(|(key, value)| (key, value)).eq(wanted)
    }

    /// Runs of rows are removed and single ones are set, while readers of the newest and of old versions look on.
    /// Returns the number of reads that were wrong, and the most gaps.
    fn live(&mut self, rng: &mut Rng) -> (usize, usize) {
        let (mut wrong, mut most) = (0, 0);
        for round in 0..300 {
            let from = rng.below(KEYS);
            let changed = match rng.below(8) {
                0 => (from..(from + 70).min(KEYS)).map(|n| (n, false)).collect(),
                1..=3 => vec![(from, true)],
                _ => vec![(from, false), (rng.below(KEYS), true)],
            };
            self.commit(changed);
            if round % 100 == 99 {
                self.layers.insert(0, Arc::new(Layer::new(self.layers.len() as u64, 0)));
            }
            let newest = self.versions.len() as Version - 1;
            for _ in 0..rng.below(3) {
                let begin = rng.below(KEYS);
                let end = begin + 1 + rng.below(KEYS);
                let version = if rng.below(4) == 0 { rng.below(newest + 1) } else { newest };
                let from = rng.below(KEYS);
                let cleared = key(from)..key(from + rng.below(40));
                wrong += usize::from(!self.is_right((begin, end), version, rng.below(2) == 0, &cleared));
            }
            most = most.max(self.gaps.len());
        }
        (wrong, most)
    }
}

#[test]
fn every_version_shows_its_rows_in_both_directions_and_behind_jumps() {
    let mut rng = Rng::seeded(11);
    for round in 0..60 {
        let world = World { paged: round % 3 == 0, ..World::new(&mut rng, round % 4) };
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
            let mut rows = world.rows(Part::new(&begin, &end, version, reverse), usize::MAX);
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
        let (base, part) = (Under::Engine(world.db.raw_iterator()), Part::new(b"0", b"9", 9, false));
        let rows = Rows::open(base, &[Arc::new(Layer::new(9, 0))], part.clone(), &world.gaps, patience);
        assert!(rows.key().is_some() && !rows.gave_up());
        let base = Under::Engine(world.db.raw_iterator());
        let layers = [Arc::new(Layer::new(10, 0))];
        for key in (0..KEYS).map(key) {
            let hash = super::super::layout::hash(&key);
            let removal = Written { key: &key, hash, version: 5, value: None, kept: true };
            layers[0].enter([removal].into_iter(), ALL);
        }
        let rows = Rows::open(base, &layers, part, &world.gaps, patience);
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
        let (part, gaps) = (Part::new(b"0", b"9", 9, false), Gaps::default());
        let rows = Rows::open(Under::Engine(db.raw_iterator()), &layers, part, &gaps, usize::MAX);
        assert!(rows.key().is_none());
        assert_eq!(layers[0].is_full(usize::MAX), full);
    }
}

#[test]
fn gaps_hide_no_row_from_any_version() {
    let mut rng = Rng::seeded(5);
    let mut most = 0;
    for round in 0..20 {
        let mut world = World { paged: round % 2 == 0, ..World::new(&mut rng, 1 + round % 3) };
        let (wrong, gaps) = world.live(&mut rng);
        assert_eq!(wrong, 0, "round {round}");
        most = most.max(gaps);
    }
    assert!(most > 5, "{most}");
}

/// The test above would find it.
#[test]
fn a_commit_that_does_not_cut_gaps_is_noticed() {
    let mut rng = Rng::seeded(5);
    let mut world = World { cuts: false, ..World::new(&mut rng, 1) };
    assert!(world.live(&mut rng).0 > 0);
}

/// Hazard: each read of the front of a queue walks over all that was taken from it.
#[test]
fn what_was_walked_over_is_jumped_over_in_both_directions() {
    let mut rng = Rng::seeded(1);
    for reverse in [false, true] {
        let mut world = World { versions: vec![BTreeMap::new()], ..World::new(&mut rng, 1) };
        let walked = |world: &World, patience: usize| {
            let newest = world.versions.len() as Version - 1;
            let rows = world.rows(Part::new(b"0", b"9", newest, reverse), patience);
            (!rows.gave_up()).then(|| rows.key().map(Bytes::copy_from_slice))
        };
        world.commit((0..KEYS).map(|n| (n, n == 150)).collect());
        assert_eq!(walked(&world, 100), None);
        assert_eq!(walked(&world, 1000), Some(Some(key(150))));
        assert_eq!(walked(&world, 2), Some(Some(key(150))), "it begins behind the gap");
        // A row comes and goes; the gap is in two parts, then in one.
        world.commit(vec![(if reverse { 200 } else { 100 }, true)]);
        assert_eq!(walked(&world, 2), Some(Some(key(if reverse { 200 } else { 100 }))));
        world.commit(vec![(if reverse { 200 } else { 100 }, false)]);
        assert_eq!(walked(&world, 20), Some(Some(key(150))));
    }
}

/// Hazard: while others commit all the time, no gap is ever recorded.
#[test]
fn a_reader_of_a_version_that_was_superseded_records_what_is_still_empty() {
    let mut rng = Rng::seeded(1);
    let mut world = World { versions: vec![BTreeMap::new()], ..World::new(&mut rng, 1) };
    world.commit((0..KEYS).map(|n| (n, n == 250)).collect());
    let first = |world: &World, back: Version, patience: usize| {
        let version = world.versions.len() as Version - 1 - back;
        let rows = world.rows(Part::new(b"0", b"9", version, false), patience);
        (!rows.gave_up()).then(|| rows.key().map(Bytes::copy_from_slice))
    };
    for at in [260, 100, 270] {
        world.commit(vec![(at, true)]);
        world.commit(vec![(at, false)]);
        assert_eq!(first(&world, 2, 1000), Some(Some(key(250))), "as it was before {at} came");
    }
    assert_eq!(first(&world, 0, 20), Some(Some(key(250))), "it jumps over what the second one saw");
}
