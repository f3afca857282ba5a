//! Which transactions conflict.

use crate::{Harness, conflicted, contract, range, value};
use tern::store::{RangeOptions, Read, Tx};

contract! {
    a_serializable_read_conflicts_with_a_later_write
    a_snapshot_read_never_conflicts
    blind_writes_never_conflict
    a_write_without_conflict_fails_no_reader
    explicit_read_conflicts
    explicit_write_conflicts
    a_clear_range_conflicts_with_reads_inside
    a_read_of_own_writes_does_not_conflict
    a_range_conflicts_where_it_was_read
    a_range_cut_by_a_bound_conflicts_only_where_it_was_read
    a_key_asked_for_after_a_snapshot_of_its_range_conflicts_alone
    range_reads_meet_old_and_new_writes
    the_past_does_not_conflict
}

const ALL: RangeOptions = RangeOptions { limit: 0, bytes: 0, reverse: false };

/// Whether a transaction that did `read` fails after another one did `write`.
async fn clash(h: &Harness, read: impl AsyncFn(&Tx), write: impl Fn(&Tx)) -> bool {
    let (reader, writer) = (h.begin(), h.begin());
    read(&reader).await;
    reader.set(b"zz/mark", b"1").unwrap();
    write(&writer);
    writer.commit().await.unwrap();
    conflicted(reader.commit().await)
}

async fn a_serializable_read_conflicts_with_a_later_write(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1")]).await;
    let read = async |tx: &Tx| drop(value(tx, "a", Read::Serializable).await);
    assert!(clash(h, read, |tx| tx.set(b"a", b"1").unwrap()).await, "an equal value is a write");
    assert!(clash(h, read, |tx| tx.clear(b"a").unwrap()).await);
    assert!(clash(h, read, |tx| tx.clear(b"a").unwrap()).await, "clearing what is not there");
    assert!(clash(h, read, |tx| tx.set(b"a", b"2").unwrap()).await, "the read was of an absent key");
    assert!(clash(h, read, |tx| tx.add(b"a", b"\x01").unwrap()).await);
    assert!(clash(h, read, |tx| tx.max(b"a", b"\x00").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"b", b"2").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"a\0", b"2").unwrap()).await);
}

async fn a_snapshot_read_never_conflicts(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1")]).await;
    let point = async |tx: &Tx| drop(value(tx, "a", Read::Snapshot).await);
    assert!(!clash(h, point, |tx| tx.set(b"a", b"2").unwrap()).await);
    let all = async |tx: &Tx| drop(range(tx, "", "z", ALL, Read::Snapshot).await);
    assert!(!clash(h, all, |tx| tx.clear_range(b"", b"z").unwrap()).await);
}

async fn blind_writes_never_conflict(h: &Harness) {
    let txs: Vec<Tx> = (0..8).map(|_| h.begin()).collect();
    for (i, tx) in txs.iter().enumerate() {
        tx.set(b"a", &[i as u8]).unwrap();
        tx.add(b"n", &[1, 0]).unwrap();
        tx.clear_range(b"x", b"y").unwrap();
    }
    for tx in txs {
        tx.commit().await.unwrap();
    }
    let n = h.begin().get(b"n", Read::Snapshot).await.unwrap().unwrap();
    assert_eq!(&n[..], [8, 0]);
}

async fn a_write_without_conflict_fails_no_reader(h: &Harness) {
    let point = async |tx: &Tx| drop(value(tx, "a", Read::Serializable).await);
    let all = async |tx: &Tx| drop(range(tx, "", "z", ALL, Read::Serializable).await);
    assert!(!clash(h, point, |tx| tx.set_without_conflict(b"a", b"1").unwrap()).await);
    assert!(!clash(h, all, |tx| tx.set_without_conflict(b"a", b"2").unwrap()).await);
    assert_eq!(h.value("a").await.as_deref(), Some("2"));
    let both = |tx: &Tx| {
        tx.set(b"a", b"3").unwrap();
        tx.set_without_conflict(b"a", b"4").unwrap();
    };
    assert!(clash(h, point, both).await, "the first write did conflict");
}

async fn explicit_read_conflicts(h: &Harness) {
    let read = async |tx: &Tx| tx.add_read_conflict(b"b", b"d").unwrap();
    assert!(clash(h, read, |tx| tx.set(b"b", b"").unwrap()).await);
    assert!(clash(h, read, |tx| tx.set(b"c", b"").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"d", b"").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"a\xff", b"").unwrap()).await);
    assert!(clash(h, read, |tx| tx.clear_range(b"a", b"b\0").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.clear_range(b"a", b"b").unwrap()).await);
    let empty = async |tx: &Tx| tx.add_read_conflict(b"d", b"b").unwrap();
    assert!(!clash(h, empty, |tx| tx.set(b"c", b"").unwrap()).await);
}

async fn explicit_write_conflicts(h: &Harness) {
    h.put(&[("c", "1")]).await;
    let write = |tx: &Tx| tx.add_write_conflict(b"b", b"d").unwrap();
    let point = async |tx: &Tx| drop(value(tx, "c", Read::Serializable).await);
    let outside = async |tx: &Tx| drop(value(tx, "d", Read::Serializable).await);
    let wide = async |tx: &Tx| drop(range(tx, "a", "e", ALL, Read::Serializable).await);
    let beside = async |tx: &Tx| drop(range(tx, "d", "e", ALL, Read::Serializable).await);
    assert!(clash(h, point, write).await);
    assert!(!clash(h, outside, write).await);
    assert!(clash(h, wide, write).await);
    assert!(!clash(h, beside, write).await);
    assert_eq!(h.value("c").await.as_deref(), Some("1"), "nothing is written");
}

async fn a_clear_range_conflicts_with_reads_inside(h: &Harness) {
    h.put(&[("c", "1")]).await;
    let write = |tx: &Tx| tx.clear_range(b"b", b"d").unwrap();
    let absent = async |tx: &Tx| drop(value(tx, "b", Read::Serializable).await);
    let end = async |tx: &Tx| drop(value(tx, "d", Read::Serializable).await);
    let inner = async |tx: &Tx| drop(range(tx, "bb", "bc", ALL, Read::Serializable).await);
    assert!(clash(h, absent, write).await);
    assert!(!clash(h, end, write).await);
    assert!(clash(h, inner, write).await);
}

async fn a_read_of_own_writes_does_not_conflict(h: &Harness) {
    h.put(&[("a", "1")]).await;
    let set = async |tx: &Tx| {
        tx.set(b"a", b"2").unwrap();
        value(tx, "a", Read::Serializable).await;
    };
    assert!(!clash(h, set, |tx| tx.set(b"a", b"3").unwrap()).await);
    let cleared = async |tx: &Tx| {
        tx.clear_range(b"a", b"b").unwrap();
        value(tx, "a", Read::Serializable).await;
    };
    assert!(!clash(h, cleared, |tx| tx.set(b"a", b"3").unwrap()).await);
    let added = |read: Read| {
        async move |tx: &Tx| {
            tx.add(b"n", b"\x01").unwrap();
            tx.get(b"n", read).await.unwrap();
        }
    };
    assert!(clash(h, added(Read::Serializable), |tx| tx.set(b"n", b"3").unwrap()).await);
    assert!(!clash(h, added(Read::Snapshot), |tx| tx.set(b"n", b"3").unwrap()).await);
}

async fn a_range_conflicts_where_it_was_read(h: &Harness) {
    h.put(&[("b", "1"), ("d", "1")]).await;
    let read = async |tx: &Tx| drop(range(tx, "b", "e", ALL, Read::Serializable).await);
    for key in ["b", "c", "d", "d\u{7f}"] {
        assert!(clash(h, read, |tx| tx.set(key.as_bytes(), b"2").unwrap()).await, "{key}");
    }
    for key in ["a", "e"] {
        assert!(!clash(h, read, |tx| tx.set(key.as_bytes(), b"2").unwrap()).await, "{key}");
    }
}

async fn a_range_cut_by_a_bound_conflicts_only_where_it_was_read(h: &Harness) {
    h.put(&[("b", "1"), ("d", "1"), ("f", "1"), ("h", "1")]).await;
    let limit = RangeOptions { limit: 2, ..ALL };
    let bytes = RangeOptions { bytes: 3, ..ALL }; // reached by the second pair
    let last = RangeOptions { limit: 2, reverse: true, ..ALL };
    for options in [limit, bytes] {
        let read = async |tx: &Tx| {
            assert_eq!(range(tx, "a", "z", options, Read::Serializable).await, ("b=1 d=1".into(), true));
        };
        assert!(clash(h, read, |tx| tx.set(b"a", b"").unwrap()).await);
        h.begin().commit().await.unwrap();
        let tidy = h.begin();
        tidy.clear(b"a").unwrap();
        tidy.commit().await.unwrap();
        assert!(clash(h, read, |tx| tx.set(b"d", b"1").unwrap()).await);
        assert!(!clash(h, read, |tx| tx.set(b"d\0", b"").unwrap()).await);
        let tidy = h.begin();
        tidy.clear(b"d\0").unwrap();
        tidy.commit().await.unwrap();
    }
    let read = async |tx: &Tx| {
        assert_eq!(range(tx, "a", "z", last, Read::Serializable).await, ("h=1 f=1".into(), true));
    };
    assert!(clash(h, read, |tx| tx.set(b"f", b"1").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"e", b"1").unwrap()).await);
    assert!(clash(h, read, |tx| tx.set(b"y", b"1").unwrap()).await);
}

/// Range reads search segments of the table that are merged and sorted on the way.
async fn a_key_asked_for_after_a_snapshot_of_its_range_conflicts_alone(h: &Harness) {
    h.put(&[("b", "1"), ("d", "1")]).await;
    let read = async |tx: &Tx| {
        range(tx, "a", "z", ALL, Read::Snapshot).await;
        value(tx, "b", Read::Serializable).await;
        value(tx, "c", Read::Serializable).await;
    };
    assert!(clash(h, read, |tx| tx.set(b"b", b"2").unwrap()).await);
    assert!(clash(h, read, |tx| tx.set(b"c", b"2").unwrap()).await, "it was not there");
    assert!(!clash(h, read, |tx| tx.set(b"d", b"2").unwrap()).await);
    assert!(!clash(h, read, |tx| tx.set(b"bb", b"2").unwrap()).await);
}

async fn range_reads_meet_old_and_new_writes(h: &Harness) {
    let old = h.begin(); // keeps the table
    let mut readers = Vec::new();
    for i in 0..200u32 {
        let reader = h.begin();
        reader.set(b"mark", b"").unwrap();
        range(&reader, "k/", "k0", ALL, Read::Serializable).await;
        readers.push((i, reader));
        let writer = h.begin();
        let folder = if i == 150 { "k" } else { "other" };
        for j in 0..20 {
            writer.set(format!("{folder}/{i:04}/{j}").as_bytes(), b"").unwrap();
        }
        writer.commit().await.unwrap();
    }
    for (i, reader) in readers {
        assert_eq!(conflicted(reader.commit().await), i <= 150, "reader {i}");
    }
    drop(old);
}

async fn the_past_does_not_conflict(h: &Harness) {
    let old = h.begin(); // keeps later writes in the table
    h.put(&[("a", "1")]).await;
    let clear = h.begin();
    clear.clear_range(b"b", b"c").unwrap();
    clear.commit().await.unwrap();
    let tx = h.begin();
    value(&tx, "a", Read::Serializable).await;
    value(&tx, "bb", Read::Serializable).await;
    range(&tx, "", "z", ALL, Read::Serializable).await;
    tx.set(b"a", b"2").unwrap();
    tx.commit().await.unwrap();
    value(&old, "a", Read::Serializable).await;
    old.set(b"x", b"").unwrap();
    assert!(conflicted(old.commit().await));
}
