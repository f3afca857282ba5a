//! The isolation anomalies by name: none occurs between serializable reads.

use crate::{Harness, conflicted, contract, range, value};
use tern::store::{RangeOptions, Read};

contract! {
    no_dirty_read
    no_lost_update
    no_read_skew
    no_write_skew
    no_phantom_in_a_range
    no_phantom_behind_a_count
    write_skew_is_possible_with_snapshot_reads
    fifty_tasks_count_to_five_hundred
}

async fn no_dirty_read(h: &Harness) {
    h.put(&[("a", "1")]).await;
    let writer = h.begin();
    writer.set(b"a", b"2").unwrap();
    assert_eq!(h.value("a").await.as_deref(), Some("1"), "not committed");
    drop(writer);
    assert_eq!(h.value("a").await.as_deref(), Some("1"), "aborted");
}

async fn no_lost_update(h: &Harness) {
    h.put(&[("n", "10")]).await;
    let (one, two) = (h.begin(), h.begin());
    for tx in [&one, &two] {
        assert_eq!(value(tx, "n", Read::Serializable).await.as_deref(), Some("10"));
        tx.set(b"n", b"11").unwrap();
    }
    assert!(!conflicted(one.commit().await));
    assert!(conflicted(two.commit().await));
}

async fn no_read_skew(h: &Harness) {
    h.put(&[("a", "50"), ("b", "50")]).await;
    let tx = h.begin();
    assert_eq!(value(&tx, "a", Read::Serializable).await.as_deref(), Some("50"));
    h.put(&[("a", "20"), ("b", "80")]).await;
    assert_eq!(value(&tx, "b", Read::Serializable).await.as_deref(), Some("50"));
}

async fn no_write_skew(h: &Harness) {
    h.put(&[("on call/1", ""), ("on call/2", "")]).await;
    let (one, two) = (h.begin(), h.begin());
    for tx in [&one, &two] {
        let all = range(tx, "on call/", "on call0", RangeOptions::default(), Read::Serializable).await;
        assert_eq!(all.0, "on call/1= on call/2=");
    }
    one.clear(b"on call/1").unwrap();
    two.clear(b"on call/2").unwrap();
    assert!(!conflicted(one.commit().await));
    assert!(conflicted(two.commit().await), "one of them must stay on call");
}

async fn no_phantom_in_a_range(h: &Harness) {
    h.put(&[("k/1", ""), ("k/3", "")]).await;
    let tx = h.begin();
    assert_eq!(range(&tx, "k/", "k0", RangeOptions::default(), Read::Serializable).await.0, "k/1= k/3=");
    tx.set(b"count", b"2").unwrap();
    h.put(&[("k/2", "")]).await;
    assert_eq!(range(&tx, "k/", "k0", RangeOptions::default(), Read::Serializable).await.0, "k/1= k/3=");
    assert!(conflicted(tx.commit().await));
}

async fn no_phantom_behind_a_count(h: &Harness) {
    let tx = h.begin();
    assert_eq!(range(&tx, "k/", "k0", RangeOptions::default(), Read::Serializable).await.0, "");
    tx.set(b"empty", b"yes").unwrap();
    h.put(&[("k/2", "")]).await;
    assert!(conflicted(tx.commit().await));
}

async fn write_skew_is_possible_with_snapshot_reads(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1")]).await;
    let (one, two) = (h.begin(), h.begin());
    value(&one, "b", Read::Snapshot).await;
    value(&two, "a", Read::Snapshot).await;
    one.clear(b"a").unwrap();
    two.clear(b"b").unwrap();
    assert!(!conflicted(one.commit().await));
    assert!(!conflicted(two.commit().await));
    assert_eq!(h.all().await, "");
}

async fn fifty_tasks_count_to_five_hundred(h: &Harness) {
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let store = h.store.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    loop {
                        let tx = store.begin();
                        let n: u32 =
                            value(&tx, "n", Read::Serializable).await.map_or(0, |n| n.parse().unwrap());
                        tx.set(b"n", (n + 1).to_string().as_bytes()).unwrap();
                        if !conflicted(tx.commit().await) {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(h.value("n").await.as_deref(), Some("500"));
    assert!(h.store.stats().commits >= 500);
}
