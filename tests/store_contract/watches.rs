//! Watches: registered at commit, fired by later commits of others.

use crate::{Harness, contract};
use std::time::Duration;
use tern::store::{Tx, Watch};

contract! {
    a_watch_fires_when_the_key_changes
    a_watch_fires_for_a_change_before_its_commit
    own_writes_fire_no_watch
    every_kind_of_change_fires
    other_keys_fire_nothing
    a_watch_of_an_aborted_transaction_ends
}

async fn fires(watch: Watch) -> bool {
    // A watch whose store was dropped ends without firing.
    matches!(tokio::time::timeout(Duration::from_secs(5), watch).await, Ok(Ok(())))
}

async fn quiet(watch: &mut Watch) -> bool {
    tokio::time::timeout(Duration::from_millis(50), watch).await.is_err()
}

async fn watching(h: &Harness, key: &str) -> Watch {
    let tx = h.begin();
    let watch = tx.watch(key.as_bytes()).unwrap();
    tx.commit().await.unwrap();
    watch
}

async fn a_watch_fires_when_the_key_changes(h: &Harness) {
    let (first, second) = (watching(h, "a").await, watching(h, "a").await);
    let seen = tokio::spawn({
        let store = h.store.clone();
        async move {
            first.await.unwrap();
            store.begin().get(b"a", tern::store::Read::Snapshot).await.unwrap()
        }
    });
    h.put(&[("a", "1")]).await;
    let seen = tokio::time::timeout(Duration::from_secs(5), seen).await.unwrap().unwrap();
    assert_eq!(seen.as_deref(), Some(&b"1"[..]), "a woken task must see the change");
    assert!(fires(second).await, "all watches of a key must fire");
}

async fn a_watch_fires_for_a_change_before_its_commit(h: &Harness) {
    let tx = h.begin();
    tx.read_version().await.unwrap();
    let watch = tx.watch(b"a").unwrap();
    h.put(&[("a", "1")]).await;
    tx.commit().await.unwrap();
    assert!(fires(watch).await);
}

async fn own_writes_fire_no_watch(h: &Harness) {
    let tx = h.begin();
    tx.set(b"a", b"1").unwrap();
    let mut watch = tx.watch(b"a").unwrap();
    tx.commit().await.unwrap();
    assert!(quiet(&mut watch).await);
    h.put(&[("a", "2")]).await;
    assert!(fires(watch).await);
}

async fn every_kind_of_change_fires(h: &Harness) {
    let changes: [fn(&Tx); 6] = [
        |tx| tx.set(b"b", b"1").unwrap(),
        |tx| tx.add(b"b", b"1").unwrap(),
        |tx| tx.max(b"b", b"\x7f").unwrap(),
        |tx| tx.clear(b"b").unwrap(),
        |tx| tx.set_without_conflict(b"b", b"1").unwrap(),
        |tx| tx.clear_range(b"a", b"c").unwrap(),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let watch = watching(h, "b").await;
        let tx = h.begin();
        change(&tx);
        tx.commit().await.unwrap();
        assert!(fires(watch).await, "change {i}");
    }
}

async fn other_keys_fire_nothing(h: &Harness) {
    let mut watch = watching(h, "b").await;
    h.put(&[("a", "1"), ("b\0", "1"), ("c", "1")]).await;
    let tx = h.begin();
    tx.clear_range(b"b\0", b"z").unwrap();
    tx.clear_range(b"", b"b").unwrap();
    tx.commit().await.unwrap();
    assert!(quiet(&mut watch).await);
}

async fn a_watch_of_an_aborted_transaction_ends(h: &Harness) {
    let tx = h.begin();
    let watch = tx.watch(b"a").unwrap();
    drop(tx);
    assert!(watch.await.is_err());
}
