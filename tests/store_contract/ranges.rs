//! Range reads: both directions, bounds, own writes in between, clears small and large.

use crate::{Harness, contract, range, text, value};
use std::cmp::Ordering;
use tern::error::StoreError;
use tern::store::{RangeOptions, Read, Tx};

contract! {
    both_directions_with_limit_and_bytes
    a_read_continues_after_the_last_key
    own_writes_in_both_directions
    own_clears_in_both_directions
    inverted_and_empty_ranges
    clears_small_and_large
    thousands_of_rows_in_one_transaction
    thousands_of_rows_behind_a_clear_of_a_few
    clear_then_set_inside_one_transaction
    clears_meet_writes_of_the_same_batch
    a_visit_sees_the_rows_of_a_range_read
    a_long_visit_misses_nothing
    a_range_read_answers_for_its_keys_and_parts
}

const ALL: RangeOptions = RangeOptions { limit: 0, bytes: 0, reverse: false };
const BACK: RangeOptions = RangeOptions { reverse: true, ..ALL };

async fn both(tx: &Tx, begin: &str, end: &str) -> (String, String) {
    let forward = range(tx, begin, end, ALL, Read::Snapshot).await;
    let back = range(tx, begin, end, BACK, Read::Snapshot).await;
    assert!(!forward.1 && !back.1, "the read must end");
    (forward.0, back.0)
}

async fn both_directions_with_limit_and_bytes(h: &Harness) {
    h.put(&[("a", "1"), ("b", "22"), ("c", "333"), ("d", "4")]).await;
    let tx = h.begin();
    let read = async |limit, bytes, reverse| {
        range(&tx, "a", "d", RangeOptions { limit, bytes, reverse }, Read::Snapshot).await
    };
    assert_eq!(read(0, 0, false).await, ("a=1 b=22 c=333".into(), false));
    assert_eq!(read(0, 0, true).await, ("c=333 b=22 a=1".into(), false));
    assert_eq!(read(2, 0, false).await, ("a=1 b=22".into(), true));
    assert_eq!(read(2, 0, true).await, ("c=333 b=22".into(), true));
    assert_eq!(read(0, 1, false).await, ("a=1".into(), true), "a page must have at least one row");
    assert_eq!(read(0, 2, false).await, ("a=1".into(), true));
    assert_eq!(read(0, 3, false).await, ("a=1 b=22".into(), true));
    assert_eq!(read(0, 5, true).await, ("c=333 b=22".into(), true));
    assert_eq!(read(1, 100, false).await, ("a=1".into(), true));
    assert_eq!(read(100, 100, false).await, ("a=1 b=22 c=333".into(), false));
}

async fn a_read_continues_after_the_last_key(h: &Harness) {
    let tx = h.begin();
    for i in 0..100u8 {
        tx.set(&[b'k', i], &[i]).unwrap();
    }
    tx.commit().await.unwrap();
    let tx = h.begin();
    let (mut begin, mut seen) = (vec![b'k'], Vec::new());
    loop {
        let options = RangeOptions { limit: 7, ..ALL };
        let found = tx.get_range(&begin, b"l", options, Read::Serializable).await.unwrap();
        seen.extend(found.pairs.iter().map(|(_, v)| v[0]));
        if !found.more {
            break;
        }
        begin = tern::store::key_after(&found.pairs.last().unwrap().0);
    }
    assert_eq!(seen, (0..100).collect::<Vec<u8>>());
}

async fn own_writes_in_both_directions(h: &Harness) {
    h.put(&[("b", "1"), ("d", "1"), ("f", "1")]).await;
    let tx = h.begin();
    tx.set(b"a", b"2").unwrap();
    tx.set(b"d", b"2").unwrap();
    tx.set(b"e", b"2").unwrap();
    tx.set(b"g", b"2").unwrap();
    tx.clear(b"b").unwrap();
    tx.clear(b"c").unwrap();
    assert_eq!(both(&tx, "", "z").await, ("a=2 d=2 e=2 f=1 g=2".into(), "g=2 f=1 e=2 d=2 a=2".into()));
    assert_eq!(both(&tx, "b", "e").await, ("d=2".into(), "d=2".into()));
    let one = range(&tx, "b", "z", RangeOptions { limit: 1, ..ALL }, Read::Snapshot).await;
    assert_eq!(one, ("d=2".into(), true));
    let last = range(&tx, "b", "g", RangeOptions { limit: 1, ..BACK }, Read::Snapshot).await;
    assert_eq!(last, ("f=1".into(), true));
    tx.max(b"f", b"2").unwrap();
    tx.max(b"ff", b"3").unwrap();
    assert_eq!(both(&tx, "f", "g").await, ("f=2 ff=3".into(), "ff=3 f=2".into()));
}

async fn own_clears_in_both_directions(h: &Harness) {
    for key in ["a", "b", "c", "d", "e", "f", "g"] {
        h.put(&[(key, "1")]).await;
    }
    let tx = h.begin();
    tx.clear_range(b"b", b"d").unwrap();
    tx.clear_range(b"d", b"e").unwrap(); // touches the first
    tx.clear_range(b"f", b"ff").unwrap();
    tx.set(b"c", b"2").unwrap();
    assert_eq!(both(&tx, "", "z").await, ("a=1 c=2 e=1 g=1".into(), "g=1 e=1 c=2 a=1".into()));
    assert_eq!(both(&tx, "b", "c").await, ("".into(), "".into()));
    assert_eq!(both(&tx, "bb", "e").await, ("c=2".into(), "c=2".into()));
    tx.clear_range(b"", b"e").unwrap();
    assert_eq!(both(&tx, "", "z").await, ("e=1 g=1".into(), "g=1 e=1".into()));
    tx.commit().await.unwrap();
    assert_eq!(h.all().await, "e=1 g=1");
}

async fn inverted_and_empty_ranges(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1")]).await;
    let tx = h.begin();
    assert_eq!(both(&tx, "b", "a").await, ("".into(), "".into()));
    assert_eq!(both(&tx, "a", "a").await, ("".into(), "".into()));
    tx.clear_range(b"b", b"a").unwrap();
    tx.clear_range(b"a", b"a").unwrap();
    assert!(!tx.is_write());
    assert_eq!(both(&tx, "", "z").await.0, "a=1 b=1");
}

/// Few rows are deleted one by one, many by a range tombstone: the result is the same.
async fn clears_small_and_large(h: &Harness) {
    for (n, extra) in [(1, 0), (31, 0), (32, 0), (33, 0), (500, 0), (20, 20)] {
        let tx = h.begin();
        for i in 0..n {
            tx.set(format!("k/{i:04}").as_bytes(), b"").unwrap();
        }
        tx.set(b"k", b"").unwrap();
        tx.set(b"k0", b"").unwrap();
        tx.commit().await.unwrap();
        let tx = h.begin();
        for i in 0..extra {
            tx.set(format!("k/extra/{i:04}").as_bytes(), b"").unwrap();
        }
        tx.clear_range(b"k/", b"k0").unwrap();
        tx.commit().await.unwrap();
        assert_eq!(h.all().await, "k= k0=", "{n} rows");
        h.put(&[("k/0001", "again")]).await;
        assert_eq!(h.all().await, "k= k/0001=again k0=");
    }
}

/// A transaction's own writes and clears show in each row, also if the rows are so many that an engine
/// handles them differently.
async fn thousands_of_rows_in_one_transaction(h: &Harness) {
    const N: usize = 6000;
    const STEP: usize = 17;
    let names: Vec<Vec<u8>> = (0..N).map(|i| format!("k/{i:04}").into_bytes()).collect();
    // Each read is a round trip to a cluster, so not all of them.
    let some = |all: &[Option<String>]| all.iter().step_by(STEP).cloned().collect::<Vec<_>>();
    let looked_at: Vec<_> = names.iter().step_by(STEP).cloned().collect();
    let seen = async |tx: &Tx| -> Vec<Option<String>> {
        let rows = tx.get_bulk(&looked_at, Read::Snapshot, true).await.unwrap();
        rows.into_iter().map(|row| row.map(text)).collect()
    };
    let tx = h.begin();
    for name in names.iter().skip(1).step_by(2) {
        tx.set(name, b"old").unwrap();
    }
    tx.set(b"other", b"old").unwrap();
    tx.commit().await.unwrap();
    let before = h.begin();
    let old: Vec<_> = (0..N).map(|i| (i % 2 == 1).then(|| "old".to_owned())).collect();
    assert_eq!(seen(&before).await, some(&old));
    let late = h.begin();
    assert_eq!(value(&late, "k/0001", Read::Serializable).await, Some("old".into()));
    let tx = h.begin();
    for (i, name) in names.iter().enumerate() {
        if i % 3 == 0 { tx.set(name, b"new").unwrap() } else { tx.clear(name).unwrap() }
    }
    let large = tokio::spawn(tx.commit());
    // In either order: the large clear, which has read nothing, also removes a row that was missing a moment
    // ago.
    let small = h.begin();
    small.set(b"k/0034", b"small").unwrap();
    let (small, large) = (small.commit().await.unwrap(), large.await.unwrap().unwrap());
    let mut new: Vec<_> = (0..N).map(|i| (i % 3 == 0).then(|| "new".to_owned())).collect();
    new[2 * STEP] = (small > large).then(|| "small".to_owned());
    let after = h.begin();
    assert_eq!(seen(&after).await, some(&new));
    assert_eq!(seen(&before).await, some(&old), "an older reader must see the old values");
    assert_eq!(seen(&after).await, some(&new), "read again");
    for (name, new) in names.iter().zip(&new).step_by(13) {
        let name = text(name.clone().into());
        assert_eq!(value(&h.begin(), &name, Read::Snapshot).await, *new, "{name}");
    }
    let rows = range(&after, "k/1000", "k/2000", ALL, Read::Snapshot).await.0;
    assert_eq!(rows.split(' ').count(), new[1000..2000].iter().flatten().count());
    assert_eq!(value(&after, "other", Read::Snapshot).await, Some("old".into()));
    late.set(b"other", b"").unwrap();
    assert_eq!(late.commit().await, Err(StoreError::Conflict));
}

/// An engine may record a large transaction's writes differently from a small one's; that must hold for a
/// range of a few rows too.
async fn thousands_of_rows_behind_a_clear_of_a_few(h: &Harness) {
    h.put(&[("k/0", "old"), ("k/1", "old"), ("k/2", "old")]).await;
    let tx = h.begin();
    tx.clear_range(b"k/", b"k0").unwrap();
    tx.set(b"k/1", b"new").unwrap();
    for i in 0..6000 {
        tx.set(format!("other/{i:04}").as_bytes(), b"").unwrap();
    }
    tx.commit().await.unwrap();
    let after = h.begin();
    let mut seen = Vec::new();
    for name in ["k/0", "k/1", "k/2"] {
        seen.push(value(&after, name, Read::Snapshot).await);
    }
    assert_eq!(seen, [None, Some("new".into()), None]);
}

async fn clear_then_set_inside_one_transaction(h: &Harness) {
    for n in [3, 300] {
        let tx = h.begin();
        for i in 0..n {
            tx.set(format!("k/{i:04}").as_bytes(), b"old").unwrap();
        }
        tx.commit().await.unwrap();
        let tx = h.begin();
        tx.set(b"k/0000", b"lost").unwrap();
        tx.clear_range(b"k/", b"k0").unwrap();
        tx.set(b"k/0001", b"new").unwrap();
        tx.add(b"k/0002", b"\x31").unwrap();
        tx.commit().await.unwrap();
        assert_eq!(h.all().await, "k/0001=new k/0002=1");
    }
}

/// The rows that a clear must remove may be in the batch being collected, not in the database yet.
async fn clears_meet_writes_of_the_same_batch(h: &Harness) {
    for round in 0..30 {
        let commits: Vec<_> = (0..16)
            .map(|i| {
                let tx = h.begin();
                tx.set(format!("k/{round}/{i:02}").as_bytes(), b"").unwrap();
                tokio::spawn(tx.commit())
            })
            .collect();
        let clear = h.begin();
        clear.clear_range(b"k/", b"k0").unwrap();
        let clear = tokio::spawn(clear.commit());
        let mut versions = Vec::new();
        for (i, commit) in commits.into_iter().enumerate() {
            versions.push((commit.await.unwrap().unwrap(), i));
        }
        let cleared = clear.await.unwrap().unwrap();
        let all = h.all().await;
        let found: Vec<&str> = all.split_whitespace().collect();
        for (version, i) in versions {
            let is_there = found.contains(&format!("k/{round}/{i:02}=").as_str());
            match version.cmp(&cleared) {
                Ordering::Less => assert!(!is_there, "{i} of {all}"),
                Ordering::Greater => assert!(is_there, "{i} of {all}"),
                // FoundationDB gives commits of one batch one version, in an order that it does not reveal.
                Ordering::Equal => {}
            }
        }
        let tidy = h.begin();
        tidy.clear_range(b"", b"z").unwrap();
        tidy.commit().await.unwrap();
    }
}

async fn a_visit_sees_the_rows_of_a_range_read(h: &Harness) {
    h.put(&[("a", "1"), ("b", "22"), ("c", "333"), ("d", "4")]).await;
    let (clean, changed) = (h.begin(), h.begin());
    changed.set(b"bb", b"own").unwrap();
    changed.clear(b"c").unwrap();
    for tx in [&clean, &changed] {
        for (limit, bytes, reverse) in
            [(0, 0, false), (0, 0, true), (2, 0, false), (0, 3, true), (9, 99, false)]
        {
            let options = RangeOptions { limit, bytes, reverse };
            for (begin, end) in [("a", "d"), ("b", "z"), ("d", "a"), ("x", "y")] {
                let (begin, end) = (begin.as_bytes(), end.as_bytes());
                let found = tx.get_range(begin, end, options, Read::Snapshot).await.unwrap();
                let mut seen = Vec::new();
                let mut each = |key: &[u8], value: &[u8]| seen.push((key.to_vec(), value.to_vec()));
                assert_eq!(tx.visit(begin, end, options, &mut each).await.unwrap(), found.more);
                let found: Vec<_> = found.pairs.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                assert_eq!(seen, found);
            }
        }
    }
    // It does not conflict.
    let other = h.begin();
    other.set(b"a", b"other").unwrap();
    other.commit().await.unwrap();
    changed.commit().await.unwrap();
}

/// Longer than an engine's network returns at once.
async fn a_long_visit_misses_nothing(h: &Harness) {
    let tx = h.begin();
    (0..300u16).for_each(|n| tx.set(&n.to_be_bytes(), &[0; 1000]).unwrap());
    let version = tx.commit().await.unwrap();
    // Rows that do not change may be read at a known version.
    for tx in [h.begin(), h.store.begin_at(version)] {
        for (reverse, bytes, rows) in
            [(false, 0, 300), (true, 0, 300), (false, 150_000, 150), (true, 150_000, 150)]
        {
            let (mut seen, options) = (Vec::new(), RangeOptions { bytes, reverse, ..ALL });
            let mut each = |key: &[u8], _: &[u8]| seen.push(u16::from_be_bytes(key.try_into().unwrap()));
            assert_eq!(tx.visit(&[0, 0], &[2, 0], options, &mut each).await.unwrap(), bytes > 0);
            let want: Vec<u16> =
                if reverse { (300 - rows..300).rev().collect() } else { (0..rows).collect() };
            assert_eq!(seen, want, "{options:?}");
        }
    }
}

/// An engine may answer from a range that the transaction has read.
async fn a_range_read_answers_for_its_keys_and_parts(h: &Harness) {
    h.put(&[("b", "1"), ("c", "1"), ("d", "1"), ("f", "1")]).await;
    let tx = h.begin();
    let read = async |begin, end, options| range(&tx, begin, end, options, Read::Snapshot).await;
    assert_eq!(
        read("b", "e", RangeOptions { limit: 2, ..ALL }).await,
        ("b=1 c=1".into(), true),
        "the range was not read to its end"
    );
    assert_eq!(value(&tx, "d", Read::Snapshot).await.as_deref(), Some("1"));
    assert_eq!(read("b", "e", ALL).await, ("b=1 c=1 d=1".into(), false));
    tx.set(b"c", b"2").unwrap();
    tx.set(b"cc", b"2").unwrap();
    tx.clear(b"d").unwrap();
    for (key, expected) in [("b", Some("1")), ("bb", None), ("c", Some("2")), ("cc", Some("2")), ("d", None)]
    {
        assert_eq!(value(&tx, key, Read::Snapshot).await.as_deref(), expected, "{key}");
    }
    assert_eq!(read("bb", "e", ALL).await, ("c=2 cc=2".into(), false));
    assert_eq!(read("a", "d", BACK).await, ("cc=2 c=2 b=1".into(), false));
    assert_eq!(read("b", "e", RangeOptions { limit: 1, ..ALL }).await, ("b=1".into(), true));
    assert_eq!(
        read("c", "z", ALL).await,
        ("c=2 cc=2 f=1".into(), false),
        "the key is outside the range read"
    );
    assert_eq!(value(&tx, "e", Read::Snapshot).await, None, "the range excludes its end");
    assert_eq!(value(&tx, "f", Read::Snapshot).await.as_deref(), Some("1"));
}
