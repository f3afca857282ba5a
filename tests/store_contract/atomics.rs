//! Atomic add and max: any width, wrapping, conflict-free, resolved against the newest value at commit.

use crate::{Harness, contract};
use tern::store::{Read, Tx};

contract! {
    add_at_any_width
    add_fits_the_value_to_the_operand
    max_compares_little_endian
    atomics_see_own_writes
    atomics_are_resolved_at_commit
    atomics_inside_one_batch
}

async fn get(h: &Harness, key: &[u8]) -> Option<Vec<u8>> {
    h.begin().get(key, Read::Snapshot).await.unwrap().map(|v| v.to_vec())
}

async fn commit(h: &Harness, write: impl FnOnce(&Tx)) {
    let tx = h.begin();
    write(&tx);
    tx.commit().await.unwrap();
}

async fn add_at_any_width(h: &Harness) {
    for width in [1, 2, 3, 4, 8, 16, 17, 100] {
        let key = format!("n{width}");
        let minus_one = vec![0xff; width];
        let mut two = vec![0; width];
        two[0] = 2;
        commit(h, |tx| tx.add(key.as_bytes(), &two).unwrap()).await;
        assert_eq!(get(h, key.as_bytes()).await, Some(two.clone()), "a missing value must count as zero");
        for expected in [1, 0, 0xff] {
            commit(h, |tx| tx.add(key.as_bytes(), &minus_one).unwrap()).await;
            let found = get(h, key.as_bytes()).await.unwrap();
            assert_eq!((found[0], found.len()), (expected, width));
        }
        assert_eq!(get(h, key.as_bytes()).await, Some(minus_one), "overflow wraps");
    }
    let sum = u64::MAX / 3 + 12_345_678_901_234;
    commit(h, |tx| tx.add(b"sum", &(u64::MAX / 3).to_le_bytes()).unwrap()).await;
    commit(h, |tx| tx.add(b"sum", &12_345_678_901_234u64.to_le_bytes()).unwrap()).await;
    assert_eq!(get(h, b"sum").await, Some(sum.to_le_bytes().to_vec()));
}

async fn add_fits_the_value_to_the_operand(h: &Harness) {
    h.put(&[("short", "\u{1}"), ("long", "\u{1}\u{2}\u{3}")]).await;
    commit(h, |tx| {
        tx.add(b"short", &[1, 1, 1]).unwrap();
        tx.add(b"long", &[1, 1]).unwrap();
    })
    .await;
    assert_eq!(get(h, b"short").await, Some(vec![2, 1, 1]));
    assert_eq!(get(h, b"long").await, Some(vec![2, 3]));
}

async fn max_compares_little_endian(h: &Harness) {
    for (old, operand, new) in [
        (&[][..], &[0, 1][..], &[0, 1][..]),
        (&[5, 0], &[0, 1], &[0, 1]),
        (&[5, 1], &[0, 1], &[5, 1]),
        (&[9], &[3, 0], &[9, 0]),
        (&[1, 1, 1], &[0, 1], &[1, 1]),
        (&[0, 0, 1], &[7, 0], &[7, 0]),
        (&[7], &[7], &[7]),
    ] {
        commit(h, |tx| if old.is_empty() { tx.clear(b"m").unwrap() } else { tx.set(b"m", old).unwrap() })
            .await;
        commit(h, |tx| tx.max(b"m", operand).unwrap()).await;
        assert_eq!(get(h, b"m").await.as_deref(), Some(new), "max({old:?}, {operand:?})");
    }
}

async fn atomics_see_own_writes(h: &Harness) {
    commit(h, |tx| tx.set(b"n", &[10]).unwrap()).await;
    let tx = h.begin();
    tx.add(b"n", &[5]).unwrap();
    let read = async |key: &[u8]| tx.get(key, Read::Snapshot).await.unwrap().map(|v| v.to_vec());
    assert_eq!(read(b"n").await, Some(vec![15]));
    tx.max(b"n", &[20]).unwrap();
    tx.add(b"n", &[1, 0]).unwrap();
    assert_eq!(read(b"n").await, Some(vec![21, 0]));
    tx.set(b"n", &[1]).unwrap();
    tx.add(b"n", &[1]).unwrap();
    assert_eq!(read(b"n").await, Some(vec![2]));
    tx.clear(b"n").unwrap();
    tx.add(b"n", &[7]).unwrap();
    assert_eq!(read(b"n").await, Some(vec![7]));
    tx.clear_range(b"a", b"z").unwrap();
    assert_eq!(read(b"n").await, None);
    tx.add(b"n", &[3]).unwrap();
    assert_eq!(read(b"n").await, Some(vec![3]));
    tx.commit().await.unwrap();
    assert_eq!(get(h, b"n").await, Some(vec![3]));
}

async fn atomics_are_resolved_at_commit(h: &Harness) {
    commit(h, |tx| tx.set(b"n", &[10]).unwrap()).await;
    let tx = h.begin();
    tx.add(b"n", &[5]).unwrap();
    tx.max(b"m", &[5]).unwrap();
    assert_eq!(tx.get(b"n", Read::Snapshot).await.unwrap().unwrap()[..], [15]);
    commit(h, |tx| {
        tx.set(b"n", &[100]).unwrap();
        tx.set(b"m", &[6]).unwrap();
    })
    .await;
    assert_eq!(tx.get(b"n", Read::Snapshot).await.unwrap().unwrap()[..], [15], "its snapshot must not move");
    tx.commit().await.unwrap();
    assert_eq!((get(h, b"n").await, get(h, b"m").await), (Some(vec![105]), Some(vec![6])));
}

/// Many concurrent commits share a batch: each must see the results of the ones before it.
async fn atomics_inside_one_batch(h: &Harness) {
    for round in 0..20u8 {
        let commits: Vec<_> = (0..32u8)
            .map(|i| {
                let tx = h.begin();
                tx.add(b"n", &1u32.to_le_bytes()).unwrap();
                tx.max(b"m", &[round, i % 7]).unwrap();
                match i {
                    10 => tx.set_without_conflict(b"quiet", &[round]).unwrap(),
                    20 => tx.clear_range(b"gone/", b"gone0").unwrap(),
                    _ => tx.add(b"gone/x", &[1]).unwrap(),
                }
                tokio::spawn(tx.commit())
            })
            .collect();
        for commit in commits {
            commit.await.unwrap().unwrap();
        }
    }
    assert_eq!(get(h, b"n").await, Some(640u32.to_le_bytes().to_vec()));
    assert_eq!(get(h, b"m").await, Some(vec![19, 6]));
    let after_clear = get(h, b"gone/x").await.unwrap_or_default();
    assert!(after_clear.first().is_none_or(|n| *n <= 30), "{after_clear:?}: clears count");
}
