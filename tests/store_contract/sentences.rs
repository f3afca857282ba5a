//! Snapshots, own writes, limits, versions.

use crate::{Harness, contract, range, value};
use std::task::Poll;
use std::time::Duration;
use tern::error::StoreError;
use tern::store::{
    MAX_AGE, MAX_KEY, MAX_TRANSACTION, MAX_VALUE, RangeOptions, Read, Store, key_after, prefix_end,
};

contract! {
    a_transaction_reads_one_version
    a_snapshot_is_that_of_begin
    reads_see_own_writes
    a_bulk_is_read_and_written_as_its_rows
    a_bulk_conflicts_as_its_rows
    later_writes_of_a_transaction_win
    a_committed_write_is_seen_by_every_later_transaction
    an_abandoned_transaction_writes_nothing
    a_transaction_that_wrote_nothing_commits_at_its_read_version
    versions_grow
    keys_and_values_are_any_bytes
    limits_of_keys_and_values
    limit_of_a_transaction
    a_transaction_lives_five_seconds
    size_and_is_write
    metadata_version_changes_with_each_bump
    metadata_version_is_a_serializable_read
    a_started_commit_needs_no_waiter
    a_closed_store_refuses
}

async fn a_transaction_reads_one_version(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1")]).await;
    let tx = h.begin();
    let version = tx.read_version().await.unwrap();
    assert_eq!(value(&tx, "a", Read::Snapshot).await.as_deref(), Some("1"));
    h.put(&[("a", "2"), ("b", "2"), ("c", "2")]).await;
    for read in [Read::Snapshot, Read::Serializable] {
        assert_eq!(value(&tx, "a", read).await.as_deref(), Some("1"));
        assert_eq!(range(&tx, "", "z", RangeOptions::default(), read).await.0, "a=1 b=1");
    }
    assert_eq!(tx.read_version().await.unwrap(), version);
}

async fn a_snapshot_is_that_of_begin(h: &Harness) {
    let tx = h.begin();
    h.put(&[("a", "1")]).await;
    assert_eq!(value(&tx, "a", Read::Snapshot).await, None);
}

async fn reads_see_own_writes(h: &Harness) {
    h.put(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]).await;
    let tx = h.begin();
    tx.set(b"a", b"2").unwrap();
    tx.clear(b"b").unwrap();
    tx.set_without_conflict(b"e", b"2").unwrap();
    tx.clear_range(b"c", b"d").unwrap();
    assert_eq!(value(&tx, "a", Read::Serializable).await.as_deref(), Some("2"));
    assert_eq!(value(&tx, "b", Read::Serializable).await, None);
    assert_eq!(value(&tx, "c", Read::Serializable).await, None);
    assert_eq!(range(&tx, "", "z", RangeOptions::default(), Read::Serializable).await.0, "a=2 d=1 e=2");
    tx.commit().await.unwrap();
    assert_eq!(h.all().await, "a=2 d=1 e=2");
}

/// More keys than are looked up together; some exist, some were written before and others by this
/// transaction.
async fn a_bulk_is_read_and_written_as_its_rows(h: &Harness) {
    let keys: Vec<Vec<u8>> = (0..600).map(|n| format!("{:03}", n * 7 % 600).into_bytes()).collect();
    let old = h.begin();
    let tx = h.begin();
    for key in keys.iter().filter(|key| key[2] == b'1') {
        tx.set(key, b"one").unwrap();
    }
    for key in keys.iter().filter(|key| key[2] == b'2') {
        tx.set_bulk(key, b"two").unwrap();
    }
    tx.add(b"003", &[3]).unwrap();
    tx.commit().await.unwrap();
    let tx = h.begin();
    tx.add(b"003", &[1]).unwrap();
    tx.set_bulk(b"004", b"own").unwrap();
    tx.clear(b"011").unwrap();
    tx.clear_range(b"020", b"030").unwrap();
    tx.clear_bulk(b"041").unwrap();
    for read in [Read::Snapshot, Read::Serializable] {
        let found = tx.get_bulk(&keys, read, true).await.unwrap();
        assert_eq!(found.len(), keys.len());
        for (key, value) in keys.iter().zip(found) {
            assert_eq!(tx.get(key, read).await.unwrap(), value, "{}", key.escape_ascii());
        }
        let of = |key: &str| keys.iter().position(|k| k == key.as_bytes()).unwrap();
        let found = tx.get_bulk(&keys, read, true).await.unwrap();
        let found = ["001", "002", "003", "004", "011", "021", "041", "031", "032", "005"]
            .map(|key| found[of(key)].as_deref());
        let [one, two] = [Some(&b"one"[..]), Some(&b"two"[..])];
        assert_eq!(found, [one, two, Some(&[4][..]), Some(b"own"), None, None, None, one, two, None]);
    }
    tx.commit().await.unwrap();
    let tx = h.begin();
    assert_eq!(tx.get(b"041", Read::Snapshot).await.unwrap(), None);
    assert_eq!(tx.get(b"031", Read::Snapshot).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(old.get_bulk(&keys, Read::Snapshot, true).await.unwrap(), vec![None; 600]);
    assert_eq!(tx.get_bulk(&[], Read::Snapshot, true).await.unwrap(), []);
}

async fn a_bulk_conflicts_as_its_rows(h: &Harness) {
    let keys: Vec<Vec<u8>> = (0..300).map(|n| format!("{n:03}").into_bytes()).collect();
    for (read, written, conflict, clears) in [
        (Read::Serializable, "299", true, false),
        (Read::Snapshot, "299", false, true),
        (Read::Serializable, "300", false, false),
        (Read::Serializable, "299", true, true),
    ] {
        let tx = h.begin();
        tx.get_bulk(&keys, read, true).await.unwrap();
        tx.set(b"x", b"").unwrap();
        let other = h.begin();
        if clears { other.clear_bulk(written.as_bytes()) } else { other.set_bulk(written.as_bytes(), b"") }
            .unwrap();
        other.commit().await.unwrap();
        let want = if conflict { Err(StoreError::Conflict) } else { Ok(()) };
        assert_eq!(tx.commit().await.map(|_| ()), want, "{read:?} {written}");
    }
}

async fn later_writes_of_a_transaction_win(h: &Harness) {
    h.put(&[("a", "0"), ("b", "0"), ("c", "0")]).await;
    let tx = h.begin();
    tx.set(b"a", b"1").unwrap();
    tx.clear_range(b"", b"z").unwrap();
    tx.set(b"b", b"2").unwrap();
    tx.set(b"c", b"2").unwrap();
    tx.clear(b"c").unwrap();
    assert_eq!(range(&tx, "", "z", RangeOptions::default(), Read::Snapshot).await.0, "b=2");
    tx.commit().await.unwrap();
    assert_eq!(h.all().await, "b=2");
}

async fn a_committed_write_is_seen_by_every_later_transaction(h: &Harness) {
    for i in 0..50 {
        let version = h.put(&[("k", &i.to_string())]).await;
        let tx = h.begin();
        assert!(tx.read_version().await.unwrap() >= version);
        assert_eq!(value(&tx, "k", Read::Snapshot).await, Some(i.to_string()));
    }
}

async fn an_abandoned_transaction_writes_nothing(h: &Harness) {
    let tx = h.begin();
    tx.set(b"a", b"1").unwrap();
    drop(tx);
    assert_eq!(h.all().await, "");
}

async fn a_transaction_that_wrote_nothing_commits_at_its_read_version(h: &Harness) {
    let tx = h.begin();
    let version = tx.read_version().await.unwrap();
    assert_eq!(value(&tx, "a", Read::Serializable).await, None);
    h.put(&[("a", "1")]).await;
    assert_eq!(tx.commit().await, Ok(version));
}

async fn versions_grow(h: &Harness) {
    let mut last = 0;
    for _ in 0..20 {
        let version = h.put(&[("a", "1")]).await;
        assert!(version > last);
        last = version;
    }
    h.store.close().await.unwrap();
    let again = h.reopen().await;
    let tx = again.begin();
    assert!(tx.read_version().await.unwrap() >= last);
    tx.set(b"a", b"2").unwrap();
    assert!(tx.commit().await.unwrap() > last);
}

async fn keys_and_values_are_any_bytes(h: &Harness) {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0version", b"\x01", b"\xfe\xff\xff", b"\xff\xff"];
    let tx = h.begin();
    for key in keys {
        tx.set(key, key).unwrap();
    }
    tx.commit().await.unwrap();
    let tx = h.begin();
    for key in keys {
        assert_eq!(tx.get(key, Read::Snapshot).await.unwrap().as_deref(), Some(key));
    }
    let found = tx.get_range(b"", &[0xff; 9], RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(found.pairs.iter().map(|(k, _)| &k[..]).collect::<Vec<_>>(), keys);
    assert_eq!(tx.get(b"absent", Read::Snapshot).await, Ok(None));
    assert_eq!((prefix_end(b"a\xff\xff"), prefix_end(b"")), (b"b".to_vec(), vec![0xff]));
    assert_eq!(key_after(b"a"), b"a\0");
}

async fn limits_of_keys_and_values(h: &Harness) {
    let (key, long) = (vec![b'k'; MAX_KEY], vec![b'k'; MAX_KEY + 1]);
    let tx = h.begin();
    tx.set(&key, &vec![1; MAX_VALUE]).unwrap();
    assert_eq!(tx.set(b"v", &vec![1; MAX_VALUE + 1]), Err(StoreError::ValueTooLarge(MAX_VALUE + 1)));
    assert_eq!(tx.add(b"v", &vec![1; MAX_VALUE + 1]), Err(StoreError::ValueTooLarge(MAX_VALUE + 1)));
    let too_large = Err(StoreError::KeyTooLarge(MAX_KEY + 1));
    assert_eq!(tx.set(&long, b""), too_large);
    assert_eq!(tx.set_without_conflict(&long, b""), too_large);
    assert_eq!(tx.clear(&long), too_large);
    assert_eq!(tx.clear_range(b"", &long), too_large);
    assert_eq!(tx.add(&long, b"1"), too_large);
    assert_eq!(tx.max(&long, b"1"), too_large);
    tx.commit().await.unwrap();
    let found = h.begin().get(&key, Read::Snapshot).await.unwrap();
    assert_eq!(found.map(|v| v.len()), Some(MAX_VALUE));
}

async fn limit_of_a_transaction(h: &Harness) {
    let value = vec![7; MAX_VALUE];
    let tx = h.begin();
    let fitting = MAX_TRANSACTION / (MAX_VALUE + 8);
    for i in 0..fitting as u64 {
        tx.set(&i.to_be_bytes(), &value).unwrap();
    }
    let outcome = match tx.set(b"one more", &value) {
        Ok(()) => tx.commit().await.map(drop),
        refused => refused,
    };
    assert_eq!(outcome, Err(StoreError::TooLarge));
    assert_eq!(h.all().await, "");
    let tx = h.begin();
    for i in 0..fitting as u64 {
        tx.set(&i.to_be_bytes(), &value).unwrap();
    }
    tx.commit().await.unwrap();
    let tx = h.begin();
    for i in 0..1100u64 {
        tx.add_read_conflict(&i.to_be_bytes(), &vec![b'r'; MAX_KEY]).unwrap();
    }
    tx.set(b"a", b"").unwrap();
    assert_eq!(tx.commit().await, Err(StoreError::TooLarge), "conflict ranges must count");
}

async fn a_transaction_lives_five_seconds(h: &Harness) {
    h.put(&[("a", "1")]).await;
    let (young, old, reader) = (h.begin(), h.begin(), h.begin());
    young.set(b"b", b"1").unwrap();
    old.set(b"c", b"1").unwrap();
    h.clock.advance(MAX_AGE);
    assert_eq!(value(&reader, "a", Read::Snapshot).await.as_deref(), Some("1"));
    young.commit().await.unwrap();
    h.clock.advance(Duration::from_millis(1));
    assert_eq!(old.get(b"a", Read::Snapshot).await, Err(StoreError::TooOld));
    let range = old.get_range(b"", b"z", RangeOptions::default(), Read::Serializable).await;
    assert_eq!(range.err(), Some(StoreError::TooOld));
    assert_eq!(old.commit().await, Err(StoreError::TooOld));
    reader.commit().await.unwrap();
    assert_eq!(h.all().await, "a=1 b=1");
}

async fn size_and_is_write(h: &Harness) {
    let tx = h.begin();
    assert_eq!((tx.size(), tx.is_write()), (0, false));
    value(&tx, "a", Read::Serializable).await;
    tx.add_read_conflict(b"x", b"y").unwrap();
    assert!(!tx.is_write() && tx.size() > 0);
    let before = tx.size();
    tx.set(b"key", &[0; 100]).unwrap();
    assert!(tx.is_write() && tx.size() >= before + 103);
    for write in [
        |tx: &tern::store::Tx| tx.clear(b"a"),
        |tx: &tern::store::Tx| tx.clear_range(b"a", b"b"),
        |tx: &tern::store::Tx| tx.add(b"a", b"1"),
        |tx: &tern::store::Tx| tx.max(b"a", b"1"),
        |tx: &tern::store::Tx| tx.add_write_conflict(b"a", b"b"),
        |tx: &tern::store::Tx| tx.set_without_conflict(b"a", b"b"),
        |tx: &tern::store::Tx| tx.bump_metadata_version(),
    ] {
        let tx = h.begin();
        write(&tx).unwrap();
        assert!(tx.is_write());
    }
}

/// A cluster has one metadata version for all namespaces: a test that bumps it holds this.
static BUMPING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn metadata_version_changes_with_each_bump(h: &Harness) {
    let _alone = BUMPING.lock().await;
    let first = h.begin().metadata_version().await.unwrap();
    h.put(&[("a", "1")]).await;
    let tx = h.begin();
    assert_eq!(tx.metadata_version().await.unwrap(), first);
    let bump = h.begin();
    bump.bump_metadata_version().unwrap();
    bump.commit().await.unwrap();
    assert_eq!(tx.metadata_version().await.unwrap(), first, "a snapshot must not move");
    let second = h.begin().metadata_version().await.unwrap();
    assert!(second > first);
    drop(tx);
    h.store.close().await.unwrap();
    let again = h.reopen().await;
    assert_eq!(again.begin().metadata_version().await.unwrap(), second, "it survives");
}

async fn metadata_version_is_a_serializable_read(h: &Harness) {
    let _alone = BUMPING.lock().await;
    let (reader, blind, bump) = (h.begin(), h.begin(), h.begin());
    reader.metadata_version().await.unwrap();
    for tx in [&reader, &blind] {
        tx.set(b"a", b"1").unwrap();
    }
    bump.bump_metadata_version().unwrap();
    bump.commit().await.unwrap();
    assert_eq!(reader.commit().await, Err(StoreError::Conflict));
    blind.commit().await.unwrap();
}

/// The cluster has one metadata version; a conflict with all others' flushes would be theirs to cause.
#[cfg(feature = "fdb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bumps_of_another_namespace_are_no_conflict() {
    async fn bumped_beside(h: &Harness) {
        let Some(other) = Harness::fdb().await else { return };
        let _alone = BUMPING.lock().await;
        let (reader, bump) = (h.begin(), other.begin());
        let before = reader.metadata_version().await.unwrap();
        reader.set(b"a", b"1").unwrap();
        bump.bump_metadata_version().unwrap();
        bump.commit().await.unwrap();
        reader.commit().await.unwrap();
        assert!(h.begin().metadata_version().await.unwrap() > before);
    }
    crate::on_cluster(bumped_beside).await;
}

async fn a_started_commit_needs_no_waiter(h: &Harness) {
    const N: u32 = 50;
    for i in 0..N {
        let tx = h.begin();
        tx.add(b"n", &1u32.to_le_bytes()).unwrap();
        let mut commit = Box::pin(tx.commit());
        let _ = std::future::poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx))).await;
        drop(commit);
        let tx = h.begin(); // behind it in the queue
        tx.set(b"done", &i.to_le_bytes()).unwrap();
        tx.commit().await.unwrap();
    }
    let n = h.begin().get(b"n", Read::Snapshot).await.unwrap().unwrap_or_default();
    let n = if n.is_empty() { 0 } else { u32::from_le_bytes(n[..].try_into().unwrap()) };
    // Dropped before or after it was handed over: applied whole or not at all, and the store continues. An
    // embedded store receives it at once.
    let least = if matches!(h.store, Store::Local(_)) { N } else { 0 };
    assert!((least..=N).contains(&n), "{n}");
}

async fn a_closed_store_refuses(h: &Harness) {
    h.put(&[("a", "1")]).await;
    let tx = h.begin();
    tx.set(b"b", b"1").unwrap();
    let reader = h.begin();
    assert_eq!(value(&reader, "a", Read::Snapshot).await.as_deref(), Some("1"));
    drop(reader);
    let store = h.store.clone();
    let closing = tokio::spawn(async move { store.close().await });
    while !matches!(h.begin().get(b"a", Read::Snapshot).await, Err(StoreError::Unavailable(_))) {
        tokio::task::yield_now().await;
    }
    assert!(matches!(tx.commit().await, Err(StoreError::Unavailable(_))));
    assert_eq!(closing.await.unwrap(), Ok(()));
    assert_eq!(h.store.close().await, Ok(()), "closing twice must be no error");
    let again = h.reopen().await;
    assert_eq!(value(&again.begin(), "a", Read::Snapshot).await.as_deref(), Some("1"));
}
