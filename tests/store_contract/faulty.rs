//! The faulty engine injects the configured faults at the configured rates, and none that the contract
//! forbids.

use crate::{Harness, read_retrying};
use std::time::Duration;
use tern::env::{Clock, Rng};
use tern::error::StoreError;
use tern::store::faulty::{FaultCounts, FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Read, Store};

fn faulty(rates: FaultRates) -> (Faulty, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let local = Local::open(dir.path(), LocalOptions::new(Clock::System)).unwrap();
    local.set_fsync(tern::store::Fsync::No);
    (Faulty::new(Store::Local(local), 7, rates), dir)
}

/// Sets `key` once and returns the result.
async fn set(store: &Store, key: &[u8]) -> Result<u64, StoreError> {
    let tx = store.begin();
    tx.set(key, b"1").unwrap();
    tx.commit().await
}

async fn exists(store: &Store, key: &[u8]) -> bool {
    read_retrying(store, async |tx| tx.get(key, Read::Snapshot).await).await.is_some()
}

#[tokio::test]
async fn each_fault_is_injected_as_declared() {
    let (faulty, _dir) = faulty(FaultRates::default());
    let store = Store::Faulty(faulty.clone());
    set(&store, b"clean").await.unwrap();
    assert_eq!(faulty.counts(), FaultCounts::default());

    faulty.set_rates(FaultRates { conflict: 1.0, ..Default::default() });
    assert_eq!(set(&store, b"conflict").await, Err(StoreError::Conflict));
    faulty.set_rates(FaultRates { too_old_commit: 1.0, ..Default::default() });
    assert_eq!(set(&store, b"old").await, Err(StoreError::TooOld));
    faulty.set_rates(FaultRates { unknown_lost: 1.0, ..Default::default() });
    assert_eq!(set(&store, b"lost").await, Err(StoreError::Unknown));
    faulty.set_rates(FaultRates { unknown_applied: 1.0, ..Default::default() });
    assert_eq!(set(&store, b"applied").await, Err(StoreError::Unknown));
    assert!(exists(&store, b"applied").await);
    faulty.set_rates(FaultRates { unknown_late: 1.0, ..Default::default() });
    assert_eq!(set(&store, b"late").await, Err(StoreError::Unknown));
    while !exists(&store, b"late").await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for key in [&b"conflict"[..], b"old", b"lost"] {
        assert!(!exists(&store, key).await);
    }
    faulty.set_rates(FaultRates { too_old_read: 1.0, ..Default::default() });
    assert_eq!(store.begin().get(b"a", Read::Snapshot).await, Err(StoreError::TooOld));
    assert_eq!(store.begin().read_version().await, Err(StoreError::TooOld));
    let counts = faulty.counts();
    assert_eq!((counts.conflicts, counts.too_old, counts.unknown_lost), (1, 3, 1));
    assert_eq!((counts.unknown_applied, counts.unknown_late, counts.delays), (1, 1, 0));
}

#[tokio::test]
async fn a_transaction_that_wrote_nothing_always_commits() {
    let (faulty, _dir) =
        faulty(FaultRates { conflict: 1.0, too_old_commit: 1.0, unknown_lost: 1.0, ..Default::default() });
    let store = Store::Faulty(faulty.clone());
    let tx = store.begin();
    tx.get(b"a", Read::Serializable).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(faulty.counts(), FaultCounts::default());
}

#[tokio::test]
async fn rates_are_kept_and_a_seed_repeats_itself() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (faulty, _dir) = faulty(FaultRates { delay: 0.0, ..FaultRates::mixed() });
        let store = Store::Faulty(faulty.clone());
        for i in 0..1000u32 {
            let _ = set(&store, &i.to_be_bytes()).await;
        }
        runs.push(faulty.counts());
    }
    assert_eq!(runs[0], runs[1]);
    let FaultCounts { conflicts, unknown_applied, unknown_lost, .. } = runs[0];
    assert!((20..100).contains(&conflicts), "{conflicts}");
    assert!((10..70).contains(&unknown_applied) && (10..70).contains(&unknown_lost));
}

/// An increment with a marker of its own in the same transaction is exactly once, whatever the commit
/// returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_make_increments_exactly_once() {
    let h = Harness::wrapped(|store| {
        let rates = FaultRates { unknown_late: 0.0, ..FaultRates::mixed() };
        Store::Faulty(Faulty::new(store, 3, rates))
    });
    let mut rng = Rng::seeded(3);
    for i in 0..300u32 {
        let marker = [b"marker/", &i.to_be_bytes()[..], &rng.u64().to_be_bytes()[..]].concat();
        while !exists(&h.store, &marker).await {
            let tx = h.store.begin();
            tx.add(b"n", &1u32.to_le_bytes()).unwrap();
            tx.set(&marker, b"").unwrap();
            match tx.commit().await {
                Ok(_) | Err(StoreError::Unknown) => {}
                Err(e) => assert!(e.is_retryable(), "{e}"),
            }
        }
    }
    let n = read_retrying(&h.store, async |tx| tx.get(b"n", Read::Snapshot).await).await.unwrap();
    assert_eq!(n[..], 300u32.to_le_bytes());
    let Store::Faulty(faulty) = &h.store else { unreachable!() };
    assert!(faulty.counts().unknown_applied > 0 && faulty.counts().unknown_lost > 0);
}
