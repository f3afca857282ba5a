//! Layers: what each version sees, and what is kept for whom.

use super::*;
use crate::env::Rng;
use std::collections::{BTreeMap, BTreeSet};

const ALL: Readers = Readers { oldest: 0, newest: Version::MAX };

fn hash(key: &[u8]) -> u64 {
    super::super::layout::hash(key)
}

struct Entered {
    key: Bytes,
    hash: u64,
    version: Version,
    value: Option<Bytes>,
}

fn change(key: &str, version: Version, value: Option<&str>) -> Entered {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
    Entered { hash: hash(&key), key, version, value }
}

fn enter(to: &Layer, changes: impl IntoIterator<Item = Entered>, readers: Readers) {
    for Entered { key, hash, version, value } in changes {
        let written = Written { key: &key, hash, version, value: value.as_ref(), kept: true };
        to.enter([written].into_iter(), readers);
    }
}

fn cleared(begin: &str, end: &str, version: Version) -> Cleared {
    let [begin, end] = [begin, end].map(|key| Bytes::copy_from_slice(key.as_bytes()));
    Cleared { begin, end, version }
}

fn get(layer: &Layer, key: &str, version: Version) -> Option<Option<String>> {
    let value = layer.get(hash(key.as_bytes()), key.as_bytes(), version)?;
    Some(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

fn some(text: &str) -> Option<Option<String>> {
    Some(Some(text.to_owned()))
}

#[test]
fn each_version_sees_its_own_value() {
    let layer = Layer::new(1, 0);
    assert_eq!(get(&layer, "k", 9), None);
    assert!(!layer.is_used());
    enter(&layer, [change("k", 3, Some("a")), change("k", 5, None), change("k", 7, Some("b"))], ALL);
    assert!(layer.is_used());
    let seen: Vec<_> = (2..9).map(|version| get(&layer, "k", version)).collect();
    assert_eq!(seen, [None, some("a"), some("a"), Some(None), Some(None), some("b"), some("b")]);
    assert_eq!(get(&layer, "l", 9), None);
}

#[test]
fn a_clear_precedes_the_rows_of_its_commit_and_hides_those_before_it() {
    let layer = Layer::new(1, 0);
    enter(&layer, [change("b", 3, Some("old")), change("c", 3, Some("c"))], ALL);
    layer.clear([cleared("a", "c", 5)].into_iter());
    enter(&layer, [change("bb", 5, Some("new"))], ALL);
    let at = |key: &str| [4, 5].map(|version| get(&layer, key, version));
    assert_eq!(at("b"), [some("old"), Some(None)]);
    assert_eq!(at("bb"), [None, some("new")]);
    assert_eq!(at("ba"), [None, Some(None)], "a row of RocksDB is hidden, too");
    assert_eq!(at("c"), [some("c"), some("c")], "the end is not cleared");
    let mut last = Vec::new();
    let of = &mut |changes: &[Change<'_>]| {
        last.extend(changes.iter().map(|c| (c.key.to_vec(), c.version, c.value.is_some())));
        Ok(())
    };
    layer.each(of).unwrap();
    assert_eq!(last, [(b"b".to_vec(), 5, false), (b"bb".to_vec(), 5, true), (b"c".to_vec(), 3, true)]);
    assert_eq!(layer.cleared(b"b", b"z", 4), []);
    assert_eq!(layer.cleared(b"b", b"z", 5).len(), 1);
    assert_eq!(layer.cleared(b"c", b"z", 5), []);
}

#[test]
fn many_clears_fill_a_layer() {
    let layer = Layer::new(1, 0);
    for n in 0..MOST_CLEARED as u64 {
        assert!(!layer.is_full(usize::MAX), "{n}");
        layer.clear([cleared("a", "b", n)].into_iter());
    }
    assert!(layer.is_full(usize::MAX));
}

#[test]
fn keys_of_the_same_hash_are_told_apart() {
    let layer = Layer::new(1, 0);
    let same = |key: &str, version, value| Entered { hash: 7, ..change(key, version, Some(value)) };
    enter(&layer, [same("a", 1, "1"), same("b", 2, "2"), same("c", 3, "3"), same("a", 4, "4")], ALL);
    let get = |key: &[u8]| layer.get(7, key, 9).map(|value| value.unwrap());
    assert_eq!(
        [b"a", b"b", b"c", b"d"].map(|key| get(key)),
        [Some("4".into()), Some("2".into()), Some("3".into()), None]
    );
}

/// Hazard: a value that somebody reads is dropped, or those that nobody reads pile up.
#[test]
fn values_stay_for_as_long_as_they_may_be_read() {
    let (layer, mut rng) = (Layer::new(1, 0), Rng::seeded(3));
    // What each key had at each version; and the versions that are still read.
    let mut model = BTreeMap::<(String, Version), Option<String>>::new();
    let mut read = BTreeSet::<Version>::new();
    let mut published = 0;
    for batch in 0..3000u64 {
        read.insert(published);
        let readers = Readers { oldest: *read.first().unwrap(), newest: published };
        for version in published + 1..=published + 1 + rng.below(4) {
            let key = format!("key {}", rng.below(5));
            let value =
                (rng.below(4) > 0).then(|| format!("value {version} ").repeat(rng.below(40) as usize));
            enter(&layer, [change(&key, version, value.as_deref())], readers);
            model.insert((key, version), value);
            published = version;
        }
        for version in read.clone() {
            for n in 0..5 {
                let key = format!("key {n}");
                let known = model.range((key.clone(), 0)..=(key.clone(), version)).next_back();
                assert_eq!(
                    get(&layer, &key, version),
                    known.map(|(_, value)| value.clone()),
                    "{key} at {version}"
                );
            }
        }
        // Readers leave; one stays for long.
        let long = batch / 100 * 100;
        read.retain(|version| *version == long || rng.below(3) == 0);
    }
    let rows = layer.rows.read();
    let kept = rows.older.len() - rows.free.len();
    assert!(rows.older.len() < 2000 && kept < 1500, "{kept} of {}", rows.older.len());
}

#[test]
fn what_nobody_reads_takes_no_memory() {
    let layer = Layer::new(1, 0);
    let value = "x".repeat(100);
    for version in 1..10_000 {
        let readers = Readers { oldest: version - 1, newest: version - 1 };
        enter(&layer, [change("key", version, Some(&value))], readers);
        assert!(layer.bytes() < 2000, "{} at {version}", layer.bytes());
    }
    let rows = layer.rows.read();
    assert!(rows.older.len() <= 2, "{}", rows.older.len());
}

/// Hazard: a layer that is full of the rooms of shorter values takes more of them.
#[test]
fn what_growing_values_leave_counts() {
    let layer = Layer::new(1, 0);
    for length in 1..=250 {
        for n in 0..20 {
            let version = length * 20 + n;
            let readers = Readers { oldest: version - 1, newest: version - 1 };
            let value = "x".repeat(length as usize);
            enter(&layer, [change(&format!("key {n}"), version, Some(&value))], readers);
        }
    }
    assert!(layer.bytes() > 20 * 250 * 10, "{}", layer.bytes());
}

/// Hazard: somebody waits to write while a layer is drained, and nobody else can read from it until it is.
#[test]
fn whoever_comes_late_to_order_rows_waits_for_nobody() {
    let layer = Layer::new(1, 0);
    enter(&layer, (0..100).map(|n| change(&n.to_string(), 1, Some("x"))), ALL);
    let draining = layer.in_order();
    std::thread::scope(|scope| {
        let (sender, done) = std::sync::mpsc::channel();
        let layer = &layer;
        scope.spawn(move || {
            drop(layer.put_in_order());
            _ = sender.send(get(layer, "7", 1));
        });
        let seen = done.recv_timeout(std::time::Duration::from_secs(20));
        drop(draining);
        assert_eq!(seen, Ok(some("x")));
    });
}

#[test]
fn pages_go_on_where_the_last_one_ended() {
    let layer = Layer::new(1, 0);
    let keys: Vec<String> = (0..50).map(|n| format!("{n:02}")).collect();
    enter(&layer, keys.iter().map(|key| change(key, 5, Some(key))), ALL);
    enter(&layer, keys.iter().step_by(2).map(|key| change(key, 8, None)), ALL);
    let read = |reverse: bool, version: Version, most: usize| {
        let (mut from, mut to) = (Bound::Included(Bytes::from("10")), Bound::Excluded(Bytes::from("30")));
        let mut all: Vec<Shown> = Vec::new();
        loop {
            let range = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
            let before = all.len();
            let last = layer.page(range, reverse, version, most, &mut all);
            assert!(all.len() - before <= most);
            match last {
                None => return all,
                Some(last) if reverse => to = Bound::Excluded(last),
                Some(last) => from = Bound::Excluded(last),
            }
        }
    };
    for most in [1, 3, 20, 100] {
        assert_eq!(read(false, 4, most), []);
        let forth = read(false, 8, most);
        let wanted =
            |n: usize| (Bytes::from(format!("{n:02}")), (n % 2 == 1).then(|| Bytes::from(format!("{n:02}"))));
        assert_eq!(forth, (10..30).map(wanted).collect::<Vec<_>>());
        let back: Vec<Shown> = read(true, 8, most).into_iter().rev().collect();
        assert_eq!(back, forth);
    }
}
