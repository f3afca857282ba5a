//! After a failed write or sync the batch is in doubt, writes are refused, reads continue, and the reopened
//! store decides the outcome.

use crate::{Harness, open, options, value};
use std::time::Duration;
use tern::env::Clock;
use tern::error::{StoreError, StoreResult};
use tern::store::local::Local;
use tern::store::{Fsync, MAX_AGE, Read, Store, Version};
use tokio::task::JoinHandle;

fn harness(fsync: Fsync) -> Harness {
    let dir = tempfile::tempdir().unwrap();
    let (clock, disk) = (Clock::manual(1_000_000), Default::default());
    let store = Store::Local(Local::open(dir.path(), options(&clock, &disk, fsync)).unwrap());
    Harness { store, namespace: None, reopened: Default::default(), clock, disk, dir }
}

/// A commit of `key` under way.
fn start(store: &Store, key: &str) -> JoinHandle<StoreResult<Version>> {
    let tx = store.begin();
    tx.set(key.as_bytes(), b"1").unwrap();
    tokio::spawn(tx.commit())
}

async fn until_read_only(store: &Store, expected: bool) {
    let reached = async {
        while store.stats().refusal.is_some() != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
}

/// Fails the next write or sync, commits `doubtful`, and waits until the store refuses writes.
async fn broken(h: &Harness, fail: fn(&tern::store::local::DiskFaults)) -> JoinHandle<StoreResult<Version>> {
    h.put(&[("before", "1")]).await;
    fail(&h.disk);
    let doubtful = start(&h.store, "doubtful");
    until_read_only(&h.store, true).await;
    doubtful
}

async fn reads_go_on_and_writes_are_refused(h: &Harness) {
    assert_eq!(h.value("before").await.as_deref(), Some("1"));
    assert_eq!(h.value("doubtful").await, None, "a doubtful write must not be visible");
    assert!(matches!(start(&h.store, "refused").await.unwrap(), Err(StoreError::ReadOnly(_))));
    let reader = h.begin();
    value(&reader, "before", Read::Serializable).await;
    reader.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_is_not_applied_and_says_so() {
    failed_write(Fsync::Always).await;
}

/// Without a sync to wait for, a batch is written on the caller's thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_on_the_callers_thread_is_handed_to_the_committer() {
    failed_write(Fsync::No).await;
}

async fn failed_write(fsync: Fsync) {
    let h = harness(fsync);
    let doubtful = broken(&h, |disk| disk.fail_next_write()).await;
    reads_go_on_and_writes_are_refused(&h).await;
    assert!(!doubtful.is_finished(), "the outcome must wait until the store is reopened");
    h.disk.heal();
    let outcome = doubtful.await.unwrap();
    assert!(matches!(&outcome, Err(StoreError::ReadOnly(why)) if why.contains("no space")), "{outcome:?}");
    until_read_only(&h.store, false).await;
    assert_eq!(h.value("doubtful").await, None);
    h.put(&[("after", "1")]).await;
    assert_eq!(h.all().await, "after=1 before=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_sync_failed_is_found_again() {
    let h = harness(Fsync::Always);
    let doubtful = broken(&h, |disk| disk.fail_next_sync()).await;
    reads_go_on_and_writes_are_refused(&h).await;
    assert!(!doubtful.is_finished());
    h.disk.heal();
    let version = doubtful.await.unwrap().unwrap();
    until_read_only(&h.store, false).await;
    assert_eq!(h.value("doubtful").await.as_deref(), Some("1"));
    assert!(h.put(&[("after", "1")]).await > version);
    h.store.close().await.unwrap();
    let again = open(h.dir.path(), Fsync::No).unwrap();
    assert_eq!(value(&again.begin(), "doubtful", Read::Snapshot).await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_one_outcome() {
    let h = harness(Fsync::Always);
    h.put(&[("before", "1")]).await;
    h.disk.fail_next_sync();
    let commits: Vec<_> = (0..50).map(|i| start(&h.store, &format!("k{i:02}"))).collect();
    until_read_only(&h.store, true).await;
    h.disk.heal();
    let mut applied = Vec::new();
    for (i, commit) in commits.into_iter().enumerate() {
        match commit.await.unwrap() {
            Ok(_) => applied.push(format!("k{i:02}=1")),
            Err(e) => assert!(matches!(e, StoreError::ReadOnly(_)), "{e}"),
        }
    }
    assert!(!applied.is_empty());
    assert_eq!(h.all().await, format!("before=1 {}", applied.join(" ")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_takes_too_long_is_unknown() {
    let h = harness(Fsync::Always);
    let doubtful = broken(&h, |disk| disk.fail_next_sync()).await;
    h.clock.advance(MAX_AGE + Duration::from_millis(1));
    assert_eq!(doubtful.await.unwrap(), Err(StoreError::Unknown));
    assert!(h.store.stats().refusal.is_some());
    assert_eq!(h.value("before").await.as_deref(), Some("1"), "reads must continue");
    h.disk.heal();
    until_read_only(&h.store, false).await;
    assert_eq!(h.value("doubtful").await.as_deref(), Some("1"), "the commit may be applied later");
}

/// A snapshot keeps the old database and its lock: it is read to its end, new readers wait for the reopened
/// store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_readers_finish_and_new_ones_wait() {
    let h = harness(Fsync::Always);
    h.put(&[("before", "1")]).await;
    let old = h.begin();
    let doubtful = broken(&h, |disk| disk.fail_next_sync()).await;
    h.disk.heal();
    let store = h.store.clone();
    let waiting = async |store: &Store| value(&store.begin(), "doubtful", Read::Snapshot).await;
    while tokio::time::timeout(Duration::from_millis(50), waiting(&store)).await.is_ok() {}
    let new = tokio::spawn(async move { value(&store.begin(), "doubtful", Read::Snapshot).await });
    assert_eq!(value(&old, "before", Read::Snapshot).await.as_deref(), Some("1"));
    assert_eq!(value(&old, "doubtful", Read::Snapshot).await, None, "its snapshot must not move");
    assert!(!doubtful.is_finished() && !new.is_finished());
    drop(old);
    doubtful.await.unwrap().unwrap();
    assert_eq!(new.await.unwrap().as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waiting_for_the_reopened_store_is_too_old_after_five_seconds() {
    let h = harness(Fsync::Always);
    h.put(&[("before", "1")]).await;
    let old = h.begin();
    let doubtful = broken(&h, |disk| disk.fail_next_sync()).await;
    h.disk.heal();
    while tokio::time::timeout(Duration::from_millis(50), h.value("before")).await.is_ok() {}
    let tx = h.begin();
    let waiting = tokio::spawn(async move { tx.get(b"before", Read::Snapshot).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    h.clock.advance(MAX_AGE + Duration::from_millis(1));
    assert_eq!(waiting.await.unwrap(), Err(StoreError::TooOld));
    assert_eq!(doubtful.await.unwrap(), Err(StoreError::Unknown));
    assert_eq!(
        old.get(b"before", Read::Snapshot).await,
        Err(StoreError::TooOld),
        "then it must release the old database"
    );
    drop(old);
    until_read_only(&h.store, false).await;
    assert_eq!(h.all().await, "before=1 doubtful=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_from_before_cannot_write_into_the_reopened_store() {
    let h = harness(Fsync::Always);
    let doubtful = broken(&h, |disk| disk.fail_next_write()).await;
    let stale = h.begin();
    stale.set(b"stale", b"1").unwrap();
    let stale = tokio::spawn({
        let store = h.store.clone();
        async move {
            until_read_only(&store, true).await;
            stale.commit().await
        }
    });
    assert!(matches!(stale.await.unwrap(), Err(StoreError::ReadOnly(_))));
    h.disk.heal();
    assert!(doubtful.await.unwrap().is_err());
    until_read_only(&h.store, false).await;
    assert_eq!(h.all().await, "before=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_every_second_reopens_too() {
    let h = harness(Fsync::EverySec);
    let metadata = h.begin().metadata_version().await.unwrap();
    h.disk.fail_next_sync();
    h.put(&[("a", "1")]).await; // acknowledged: this policy can lose a second
    until_read_only(&h.store, true).await;
    assert_eq!(h.value("a").await.as_deref(), Some("1"));
    assert!(matches!(start(&h.store, "b").await.unwrap(), Err(StoreError::ReadOnly(_))));
    h.disk.heal();
    until_read_only(&h.store, false).await;
    h.put(&[("c", "1")]).await;
    assert_eq!(h.all().await, "a=1 c=1");
    // Facts read under a metadata version may be among the lost ones.
    assert!(h.begin().metadata_version().await.unwrap() > metadata);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_store_can_be_closed() {
    let h = harness(Fsync::Always);
    let doubtful = broken(&h, |disk| disk.fail_next_write()).await;
    let closing = tokio::time::timeout(Duration::from_secs(4), h.store.close());
    let outcome = closing.await.expect("nothing but running transactions keeps a store from being closed");
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    assert_eq!(doubtful.await.unwrap(), Err(StoreError::Unknown));
    assert!(matches!(h.begin().get(b"a", Read::Snapshot).await, Err(StoreError::Unavailable(_))));
    let again = open(h.dir.path(), Fsync::No).unwrap();
    assert_eq!(value(&again.begin(), "before", Read::Snapshot).await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_can_fail_repeatedly() {
    let h = harness(Fsync::Always);
    for round in 0..6 {
        let fail: fn(&tern::store::local::DiskFaults) =
            if round % 2 == 0 { |disk| disk.fail_next_sync() } else { |disk| disk.fail_next_write() };
        let doubtful = broken(&h, fail).await;
        h.disk.heal();
        assert_eq!(doubtful.await.unwrap().is_ok(), round % 2 == 0);
        until_read_only(&h.store, false).await;
    }
    assert_eq!(h.all().await, "before=1 doubtful=1");
}

/// A watch cannot know what changed during a reopening: it fires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_fire_when_the_store_is_reopened() {
    let h = harness(Fsync::Always);
    let tx = h.begin();
    let watch = tx.watch(b"doubtful").unwrap();
    tx.commit().await.unwrap();
    let doubtful = broken(&h, |disk| disk.fail_next_sync()).await;
    h.disk.heal();
    doubtful.await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(5), watch).await.unwrap().unwrap();
}

/// Rows read, leased or built before may be missing: a holder of them compares the generation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_acknowledged_commits_changes_its_generation() {
    let h = harness(Fsync::Always);
    h.disk.forget_unsynced();
    for (fsync, lost) in [(Fsync::Always, 0), (Fsync::No, 1), (Fsync::Always, 0), (Fsync::No, 1)] {
        let before = h.begin().generation().await.unwrap();
        h.store.set_fsync(Fsync::Always);
        // Longer than the pause between two notes of synced lengths: otherwise the syncer's round replaces
        // one, and nothing is lost.
        h.clock.advance(Duration::from_millis(20));
        h.put(&[("kept", "1")]).await;
        h.store.set_fsync(fsync);
        h.put(&[("acknowledged", "1")]).await;
        let generation = tokio::spawn({
            let store = h.store.clone();
            async move { store.lost(before).await }
        });
        h.disk.fail_next_write();
        let doubtful = start(&h.store, "doubtful");
        until_read_only(&h.store, true).await;
        let stale = h.begin();
        assert_eq!(stale.generation().await, Ok(before));
        stale.set(b"stale", b"1").unwrap();
        h.disk.heal();
        let stale = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(stale)
        };
        let (outcome, ()) = tokio::join!(doubtful, stale);
        assert!(matches!(outcome.unwrap(), Err(StoreError::ReadOnly(_))));
        until_read_only(&h.store, false).await;
        assert_eq!(h.begin().generation().await, Ok(before + lost));
        assert_eq!(h.value("acknowledged").await.is_none(), lost == 1);
        assert_eq!(h.value("kept").await.as_deref(), Some("1"));
        if lost == 1 {
            let generation = tokio::time::timeout(Duration::from_secs(5), generation).await.unwrap();
            assert_eq!(generation.unwrap(), before + 1);
        } else {
            assert!(!generation.is_finished());
            generation.abort();
        }
        let tx = h.begin();
        tx.clear(b"acknowledged").unwrap();
        tx.commit().await.unwrap();
    }
}

/// It may have been empty, or just opened: then it had nothing to lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_nothing_keeps_its_generation() {
    let h = harness(Fsync::No);
    h.disk.forget_unsynced();
    for _ in 0..2 {
        h.disk.fail_next_write();
        let doubtful = start(&h.store, "doubtful");
        until_read_only(&h.store, true).await;
        h.disk.heal();
        doubtful.await.unwrap().unwrap_err();
        until_read_only(&h.store, false).await;
        assert_eq!(h.begin().generation().await, Ok(0));
    }
}

/// No transaction survives a reopening, because its snapshot keeps the old database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_begun_during_a_reopening_has_the_new_generation() {
    let h = harness(Fsync::No);
    h.disk.forget_unsynced();
    h.put(&[("acknowledged", "1")]).await;
    h.disk.fail_next_write();
    let doubtful = start(&h.store, "doubtful");
    until_read_only(&h.store, true).await;
    let late = loop {
        let tx = h.begin();
        h.disk.heal();
        let generation = tokio::time::timeout(Duration::from_millis(1), tx.generation()).await;
        if generation != Ok(Ok(0)) {
            break tx;
        }
    };
    assert_eq!(late.generation().await, Ok(1));
    late.set(b"late", b"1").unwrap();
    doubtful.await.unwrap().unwrap_err();
    // It is read before the store knows whether there is room for writes.
    until_read_only(&h.store, false).await;
    late.commit().await.unwrap();
    assert_eq!(h.all().await, "late=1");
}
