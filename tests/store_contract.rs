//! smoke
use std::time::Duration;
use tern::env::Clock;
use tern::error::StoreError;
use tern::store::local::{DiskFaults, Local, LocalOptions};
use tern::store::{Fsync, RangeOptions, Read, Store};

fn open(dir: &std::path::Path) -> Store {
    let mut o = LocalOptions::new(Clock::System);
    o.fsync = Fsync::No;
    Store::Local(Local::open(dir, o).unwrap())
}

#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let tx = store.begin();
    for i in 0..10u8 {
        tx.set(&[b'k', i], &[i]).unwrap();
    }
    tx.add(b"n", &[1, 0]).unwrap();
    let v = tx.commit().await.unwrap();
    let tx = store.begin();
    assert_eq!(tx.read_version().await.unwrap(), v);
    assert_eq!(tx.get(b"n", Read::Snapshot).await.unwrap().unwrap()[..], [1, 0]);
    let p = tx
        .get_range(b"k", b"l", RangeOptions { limit: 3, bytes: 0, reverse: true }, Read::Serializable)
        .await
        .unwrap();
    assert_eq!(p.pairs.iter().map(|(k, _)| k[1]).collect::<Vec<_>>(), [9, 8, 7]);
    let other = store.begin();
    other.set(b"k\x08", b"x").unwrap();
    other.clear_range(b"k\x00", b"k\x05").unwrap();
    other.commit().await.unwrap();
    tx.set(b"z", b"").unwrap();
    assert_eq!(tx.commit().await, Err(StoreError::Conflict));
    let p = store.begin().get_range(b"", b"\xff", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(p.pairs.len(), 6);
    println!("{:?}", store.stats());
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(
        store
            .begin()
            .get_range(b"", b"\xff", RangeOptions::default(), Read::Snapshot)
            .await
            .unwrap()
            .pairs
            .len(),
        6
    );
    assert!(
        Local::open(dir.path(), LocalOptions::new(Clock::System))
            .is_err_and(|e| e.to_string().contains("in use"))
    );
}

#[tokio::test]
async fn failed_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut o = LocalOptions::new(Clock::System);
    let faults = std::sync::Arc::new(DiskFaults::default());
    o.faults = Some(faults.clone());
    let store = Store::Local(Local::open(dir.path(), o).unwrap());
    faults.fail_next_sync();
    let tx = store.begin();
    tx.set(b"a", b"1").unwrap();
    let s2 = store.clone();
    let heal = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let tx = s2.begin();
        assert_eq!(tx.get(b"a", Read::Snapshot).await.unwrap(), None);
        tx.set(b"b", b"1").unwrap();
        assert!(matches!(tx.commit().await, Err(StoreError::ReadOnly(_))));
        faults.heal();
    });
    tx.commit().await.unwrap();
    heal.await.unwrap();
    assert_eq!(store.begin().get(b"a", Read::Snapshot).await.unwrap().unwrap()[..], *b"1");
}
