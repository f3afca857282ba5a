//! The embedded engine alone: directories, sync policies, figures, group commit.

use crate::{Harness, open, options, value};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tern::env::Clock;
use tern::error::StoreError;
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, RangeOptions, Read, Store};

async fn put(store: &Store, key: &[u8], value: &[u8]) {
    let tx = store.begin();
    tx.set(key, value).unwrap();
    tx.commit().await.unwrap();
}

/// A store whose layers are full after so many bytes.
fn small_layers(dir: &std::path::Path, bytes: usize) -> Store {
    let mut options = options(&Clock::System, &Default::default(), Fsync::No);
    (options.write_buffer, options.value_cache) = (bytes, 1 << 20);
    Store::Local(Local::open(dir, options).unwrap())
}

/// Fills layers until what was committed before has been moved.
async fn move_to_tables(store: &Store, dir: &std::path::Path) {
    let last = newest_log(dir);
    while last.exists() {
        put(store, &[0xfe], &[7; 10_000]).await;
    }
}

fn tables(dir: &std::path::Path) -> usize {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    files.filter(|p| p.extension().is_some_and(|e| e == "sst")).count()
}

#[tokio::test]
async fn a_directory_that_is_open_is_refused() {
    let h = Harness::local();
    let error = open(h.dir.path(), Fsync::No).err().unwrap().to_string();
    assert!(error.contains("in use") && error.contains(h.dir.path().to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn dropping_the_last_clone_closes() {
    let h = Harness::local();
    h.put(&[("a", "1")]).await;
    let clone = h.store.clone();
    let Harness { store, dir, .. } = h;
    drop(store);
    assert!(open(dir.path(), Fsync::No).is_err());
    drop(clone);
    let again = open(dir.path(), Fsync::No).unwrap();
    assert_eq!(value(&again.begin(), "a", Read::Snapshot).await.as_deref(), Some("1"));
}

/// Hazard: a reader of many rows holds its thread, and others wait for it.
#[tokio::test(flavor = "current_thread")]
async fn others_run_between_the_parts_of_a_bulk() {
    let h = Harness::local();
    let turns = Rc::new(Cell::new(0));
    let taken = turns.clone();
    let other = async move {
        loop {
            taken.set(taken.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let keys: Vec<Vec<u8>> = (0..1280).map(|n| format!("{n:04}").into_bytes()).collect();
    let reader = async {
        let tx = h.store.begin();
        tx.get(b"first", Read::Snapshot).await.unwrap();
        turns.set(0);
        tx.get_bulk(&keys, Read::Snapshot, true).await.unwrap();
        turns.get()
    };
    let turns = tokio::select! { biased; turns = reader => turns, () = other => 0 };
    assert!(turns >= 9, "{turns} turns beside 1280 rows");
}

/// Hazard: a load or a large reply pushes out what is read often, or a small one is never faster.
#[tokio::test]
async fn a_bulk_stays_in_memory_if_it_may_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_layers(dir.path(), 64 << 10);
    let keys: Vec<Vec<u8>> = (0..200).map(|n| format!("{n:04}").into_bytes()).collect();
    let tx = store.begin();
    keys.iter().for_each(|key| tx.set_bulk(key, b"value").unwrap());
    tx.commit().await.unwrap();
    move_to_tables(&store, dir.path()).await;
    let tx = store.begin();
    let in_memory = || {
        let mut touch = tx.touch().unwrap();
        keys.iter().for_each(|key| touch.row(&[key]));
        touch.finish()
    };
    let before = in_memory();
    assert!(before < 10, "{before} looked like rows that are in memory");
    for (again, known) in [(false, before), (true, keys.len())] {
        let found = tx.get_bulk(&keys, Read::Snapshot, again).await.unwrap();
        assert!(found.iter().all(|row| row.as_deref() == Some(b"value")));
        assert_eq!(in_memory(), known, "{again}");
    }
    let found = tx.get_bulk(&keys, Read::Snapshot, false).await.unwrap();
    assert!(found.iter().all(|row| row.as_deref() == Some(b"value")));
}

#[tokio::test]
async fn foreign_directories_are_refused() {
    let refused = |dir: &std::path::Path| open(dir, Fsync::No).err().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(refused(&file).contains("not a directory"));

    let other = dir.path().join("other");
    let db = rocksdb::DB::open_default(&other).unwrap();
    db.put(b"a", b"1").unwrap();
    drop(db);
    assert!(refused(&other).contains("not Tern's"), "{}", refused(&other));

    let newer = dir.path().join("newer");
    let db = rocksdb::DB::open_default(&newer).unwrap();
    db.put(b"\0format", b"tern-local 9").unwrap();
    drop(db);
    assert!(refused(&newer).contains("tern-local 9"), "{}", refused(&newer));

    let headless = dir.path().join("headless");
    drop(open(&headless, Fsync::No).unwrap());
    std::fs::remove_file(headless.join("CURRENT")).unwrap();
    assert!(refused(&headless).contains("CURRENT"), "{}", refused(&headless));
}

/// Hazard: a directory of the format before loses what was only in RocksDB's log, or cannot be opened.
#[tokio::test]
async fn a_stopped_store_of_the_format_before_is_upgraded() {
    for stopped in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = rocksdb::DB::open_default(dir.path()).unwrap();
        let rows: [(&[u8], &[u8]); 3] =
            [(b"\0format", b"tern-local 1"), (b"\0version", &77u64.to_be_bytes()), (b"\x01key", b"value")];
        rows.iter().for_each(|(key, value)| db.put(key, value).unwrap());
        if stopped {
            db.flush().unwrap();
        }
        drop(db);
        // Its contents do not matter.
        std::fs::write(dir.path().join("TERN-LOGS"), "tern-logs 1 4\n").unwrap();
        if !stopped {
            let refused = open(dir.path(), Fsync::No).err().unwrap().to_string();
            assert!(refused.contains("earlier version") && refused.contains("SHUTDOWN"), "{refused}");
            continue;
        }
        for _ in 0..2 {
            let store = open(dir.path(), Fsync::No).unwrap();
            let tx = store.begin();
            assert_eq!(tx.get(b"key", Read::Snapshot).await.unwrap().as_deref(), Some(&b"value"[..]));
            assert!(tx.read_version().await.unwrap() > 77);
            drop(tx);
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn damage_is_an_error_and_a_torn_tail_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Fsync::No).unwrap();
    for i in 0..100u32 {
        put(&store, &i.to_be_bytes(), &[7; 100]).await;
    }
    drop(store);
    let log = newest_log(dir.path());
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, &whole[..whole.len() - 30]).unwrap();
    // It was synced when the store was closed.
    let error = open(dir.path(), Fsync::No).err();
    assert!(matches!(error, Some(StoreError::Corrupt(_))), "{error:?}");
    std::fs::remove_file(dir.path().join("TERN-SYNCED")).unwrap();
    let store = open(dir.path(), Fsync::No).unwrap();
    let tx = store.begin();
    assert_eq!(tx.get(&98u32.to_be_bytes(), Read::Snapshot).await.unwrap().map(|v| v.len()), Some(100));
    assert_eq!(tx.get(&99u32.to_be_bytes(), Read::Snapshot).await, Ok(None));
    drop(tx);
    put(&store, b"after", b"1").await;
    for i in 0..100u32 {
        put(&store, &i.to_be_bytes(), &[8; 100]).await;
    }
    drop(store);
    let log = newest_log(dir.path());
    let mut damaged = std::fs::read(&log).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    let error = open(dir.path(), Fsync::No).err();
    assert!(matches!(error, Some(StoreError::Corrupt(_))), "{error:?}");
}

fn newest_log(dir: &std::path::Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut logs: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "wal")).collect();
    logs.sort();
    logs.pop().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_together_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Fsync::Always).unwrap();
    let before = store.stats();
    let commits: Vec<_> = (0..400u32)
        .map(|i| {
            let tx = store.begin();
            tx.set(&i.to_be_bytes(), b"").unwrap();
            tokio::spawn(tx.commit())
        })
        .collect();
    for commit in commits {
        commit.await.unwrap().unwrap();
    }
    let after = store.stats();
    assert_eq!(after.commits - before.commits, 400);
    assert_eq!(after.batches - before.batches, after.syncs - before.syncs, "a batch must need one sync");
    assert!(after.batches - before.batches < 300, "{after:?}");
    assert!(after.sync_micros > 0 && after.write_micros > 0);
}

#[tokio::test]
async fn each_policy_syncs_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Fsync::No).unwrap();
    put(&store, b"a", b"").await;
    assert_eq!(store.stats().syncs, 0);
    store.set_fsync(Fsync::Always);
    assert_eq!(store.stats().syncs, 1, "of what was written before");
    put(&store, b"a", b"").await;
    put(&store, b"a", b"").await;
    assert_eq!(store.stats().syncs, 3);
    store.set_fsync(Fsync::EverySec);
    put(&store, b"a", b"").await;
    assert_eq!(store.stats().syncs, 3);
    tokio::time::sleep(Duration::from_millis(2300)).await;
    assert_eq!(store.stats().syncs, 4, "at most one sync a second, and only after a write");
}

#[tokio::test]
async fn figures_are_real() {
    let h = Harness::local();
    h.put(&[("a", "1")]).await;
    let (reader, other) = (h.begin(), h.begin());
    value(&reader, "a", Read::Serializable).await;
    reader.set(b"a", b"2").unwrap();
    other.set(b"a", b"3").unwrap();
    other.commit().await.unwrap();
    assert_eq!(reader.commit().await, Err(StoreError::Conflict));
    let tx = h.begin();
    for i in 0..1000u32 {
        tx.set(&i.to_be_bytes(), &i.to_be_bytes().repeat(500)).unwrap();
    }
    tx.commit().await.unwrap();
    h.clock.advance(Duration::from_secs(2));
    let stats = h.store.stats();
    assert_eq!((stats.commits, stats.conflicts, stats.batches), (3, 1, 3));
    assert!(stats.disk_bytes > 100_000 && stats.memory_bytes > 100_000, "{stats:?}");
    assert_eq!(stats.refusal, None);
}

/// More than the memtables hold, so that reads also use tables.
#[tokio::test]
async fn data_moves_to_tables_and_stays() {
    let h = Harness::local();
    for round in 0..40u32 {
        let tx = h.begin();
        for i in 0..100u32 {
            let key = (i * 40 + round).to_be_bytes();
            tx.set(&key, &key.repeat(250)).unwrap();
        }
        tx.commit().await.unwrap();
    }
    let clear = h.begin();
    clear.clear_range(&1000u32.to_be_bytes(), &3000u32.to_be_bytes()).unwrap();
    clear.commit().await.unwrap();
    let Harness { store, dir, clock, disk, .. } = h;
    store.close().await.unwrap();
    let again = Store::Local(Local::open(dir.path(), options(&clock, &disk, Fsync::No)).unwrap());
    let mut files = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    assert!(files.any(|p| p.extension().is_some_and(|e| e == "sst")));
    let tx = again.begin();
    let all = tx.get_range(b"", b"\xff", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(all.pairs.len(), 2000);
    for i in 0..4000u32 {
        let found = tx.get(&i.to_be_bytes(), Read::Snapshot).await.unwrap();
        let expected = !(1000..3000).contains(&i);
        assert_eq!(found.is_some(), expected, "{i}");
        assert!(found.is_none_or(|v| v[..] == i.to_be_bytes().repeat(250)));
    }
}

/// While an old snapshot is read, its values must not change, despite overwrites and compactions.
#[tokio::test]
async fn an_old_snapshot_keeps_overwritten_values() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_layers(dir.path(), 64 << 10);
    for i in 0..100u32 {
        put(&store, &i.to_be_bytes(), b"first").await;
    }
    let reader = store.begin();
    for round in 0..50u32 {
        let tx = store.begin();
        for i in 0..100u32 {
            tx.set(&i.to_be_bytes(), &round.to_be_bytes().repeat(100)).unwrap();
        }
        tx.commit().await.unwrap();
    }
    let seen = reader.get_range(b"", b"\xff", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert!(seen.pairs.len() == 100 && seen.pairs.iter().all(|(_, v)| v[..] == *b"first"));
}

/// Hazard: a transaction from long ago makes all later layers keep every value of keys that are written again
/// and again, so that they fill after a few seconds.
#[tokio::test]
async fn values_that_only_an_older_reader_could_want_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_layers(dir.path(), 64 << 10);
    put(&store, b"key", b"first").await;
    let reader = store.begin();
    assert_eq!(reader.get(b"key", Read::Snapshot).await.unwrap().as_deref(), Some(&b"first"[..]));
    let (opened, value) = (tables(dir.path()), [7; 1000]);
    // Fills the layer that the reader reads.
    while tables(dir.path()) == opened {
        put(&store, b"key", &value).await;
    }
    // One more may be full by now.
    for _ in 0..100 {
        put(&store, b"key", &value).await;
    }
    let before = tables(dir.path());
    // Less than makes a log too long.
    for _ in 0..150 {
        put(&store, b"key", &value).await;
    }
    assert!(tables(dir.path()) <= before + 1, "{} after {before}", tables(dir.path()));
    assert_eq!(reader.get(b"key", Read::Snapshot).await.unwrap().as_deref(), Some(&b"first"[..]));
}

/// Hazard: RocksDB takes recent commits only once nothing at all is written, and a server always writes something.
#[tokio::test]
async fn a_store_that_rests_moves_its_commits_to_tables() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(0);
    let options = LocalOptions { fsync: Fsync::No, ..LocalOptions::new(clock.clone()) };
    let store = Store::Local(Local::open(dir.path(), options).unwrap());
    let tx = store.begin();
    for i in 0..100u32 {
        tx.set(&i.to_be_bytes(), &[7; 1000]).unwrap();
    }
    tx.commit().await.unwrap();
    let opened = tables(dir.path());
    let beat = async |seconds: u64| {
        clock.advance(Duration::from_secs(seconds));
        put(&store, b"beat", b"now").await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
    };
    beat(10).await;
    beat(10).await;
    assert_eq!(tables(dir.path()), opened, "100 kB are not worth a table at once");
    for _ in 0..6 {
        beat(10).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(tables(dir.path()) > opened);
}

/// Hazard: ranges that were cleared are there again once RocksDB has them: the list of clears in front of the
/// values that were read overflows, and forgets clears that are newer than such a value.
#[tokio::test]
async fn what_many_clears_removed_stays_removed() {
    const RANGES: u32 = 200;
    let dir = tempfile::tempdir().unwrap();
    let store = small_layers(dir.path(), 256 << 10);
    let key = |range: u32, n: u32| [range.to_be_bytes(), n.to_be_bytes()].concat();
    for range in 0..RANGES {
        let tx = store.begin();
        // More than are removed one by one.
        (0..40).for_each(|n| tx.set(&key(range, n), &[7; 100]).unwrap());
        tx.commit().await.unwrap();
    }
    move_to_tables(&store, dir.path()).await;
    // The last ranges first, so that the order of their keys is not that of the clears.
    for range in (0..RANGES).rev() {
        let (tx, other) = (store.begin(), range / 2);
        assert!(tx.get(&key(other, 0), Read::Snapshot).await.unwrap().is_none() == (other > range));
        tx.clear_range(&key(range, 0), &key(range + 1, 0)).unwrap();
        tx.commit().await.unwrap();
    }
    move_to_tables(&store, dir.path()).await;
    let tx = store.begin();
    for range in 0..RANGES {
        assert_eq!(tx.get(&key(range, 0), Read::Snapshot).await.unwrap(), None, "{range}");
    }
}
