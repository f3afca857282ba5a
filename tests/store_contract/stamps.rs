//! Rows that are named by their commit.

use crate::{Harness, contract};
use tern::error::StoreError;
use tern::store::{RangeOptions, Read, STAMP, Version};

contract! {
    a_stamped_row_is_named_by_its_commit
    stamped_rows_are_in_the_order_of_commits
    a_stamped_row_conflicts_with_readers_of_its_place
}

/// Keys after the prefix and values of all rows.
async fn rows(h: &Harness) -> Vec<(Vec<u8>, Vec<u8>)> {
    let page = h.begin().get_range(b"s", b"t", RangeOptions::default(), Read::Snapshot).await.unwrap();
    page.pairs.into_iter().map(|(key, value)| (key[1..].to_vec(), value.to_vec())).collect()
}

async fn a_stamped_row_is_named_by_its_commit(h: &Harness) {
    let tx = h.begin();
    assert!(!tx.is_write());
    tx.set_stamped(b"s", b"2", b"second").unwrap();
    tx.set_stamped(b"s", b"1", b"first").unwrap();
    assert!(tx.is_write() && tx.size() > 2 * STAMP);
    let own = tx.get_range(b"s", b"t", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert!(own.pairs.is_empty(), "the row must have no name yet");
    let version: Version = tx.commit().await.unwrap();
    let rows = rows(h).await;
    assert_eq!(rows.len(), 2);
    for ((key, value), (suffix, want)) in rows.iter().zip([(b"1", &b"first"[..]), (b"2", b"second")]) {
        assert_eq!(key[..8], version.to_be_bytes());
        assert_eq!((key.len(), &key[STAMP..], &value[..]), (STAMP + 1, &suffix[..], want));
    }
    let abandoned = h.begin();
    abandoned.set_stamped(b"s", b"", b"").unwrap();
    drop(abandoned);
    assert_eq!(self::rows(h).await.len(), 2);
}

async fn stamped_rows_are_in_the_order_of_commits(h: &Harness) {
    const EACH: u32 = 50;
    let writers = (0..4u32).map(|writer| async move {
        for n in 0..EACH {
            loop {
                let tx = h.begin();
                // Each transaction increments one row, so that the order of commits is known.
                let count = tx.get(b"count", Read::Serializable).await.unwrap();
                let count = count.map_or(0, |raw| u32::from_be_bytes(raw[..].try_into().unwrap())) + 1;
                tx.set(b"count", &count.to_be_bytes()).unwrap();
                tx.set_stamped(b"s", &[writer as u8, n as u8], &count.to_be_bytes()).unwrap();
                if tx.commit().await.is_ok() {
                    break;
                }
            }
        }
    });
    futures_util::future::join_all(writers).await;
    let counts: Vec<u32> =
        rows(h).await.iter().map(|(_, raw)| u32::from_be_bytes(raw[..].try_into().unwrap())).collect();
    assert_eq!(counts, (1..=4 * EACH).collect::<Vec<_>>());
}

async fn a_stamped_row_conflicts_with_readers_of_its_place(h: &Harness) {
    let reader = h.begin();
    reader.get_range(b"s", b"t", RangeOptions::default(), Read::Serializable).await.unwrap();
    reader.set(b"k", b"v").unwrap();
    let elsewhere = h.begin();
    elsewhere.get_range(b"t", b"u", RangeOptions::default(), Read::Serializable).await.unwrap();
    elsewhere.set(b"l", b"v").unwrap();
    let writer = h.begin();
    writer.set_stamped(b"s", b"", b"v").unwrap();
    writer.commit().await.unwrap();
    assert_eq!(reader.commit().await, Err(StoreError::Conflict));
    elsewhere.commit().await.unwrap();
}
