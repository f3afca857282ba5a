//! Strings larger than a transaction: built under a lease, then swapped in by the command. No client sees a
//! partial one, and unused objects are reclaimed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::Rig;
use tern::error::{Error, StoreError};
use tern::keyspace::keys::root;
use tern::lifecycle::reclaim::reclaim;
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read};
use tern::types::object;
use tern::types::prebuilt::abandon;
use tern::types::string::{self, PIECE, prebuild, prebuild_change};

const LARGE: usize = 11_000_000;
const LEASE: u64 = 60_000;

fn large(fill: u8) -> Bytes {
    Bytes::from((0..LARGE).map(|i| (i / 1000) as u8 ^ fill).collect::<Vec<_>>())
}

fn words(words: &[&str], last: &Bytes) -> Vec<Bytes> {
    let words = words.iter().map(|w| Bytes::copy_from_slice(w.as_bytes()));
    words.chain([last.clone()]).collect()
}

/// The numbers of rows of the database other than records, counters and the expiry index; and of garbage
/// rows.
async fn rows(rig: &Rig) -> (usize, usize) {
    let tx = rig.server.store.begin();
    let db = rig.prefix().await;
    let mut from = db.as_bytes().to_vec();
    from.push(b'C');
    let mut to = from.clone();
    *to.last_mut().unwrap() = b'D';
    let pieces = tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await.unwrap();
    let (from, to) = root::garbage_range();
    let garbage = tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await.unwrap();
    (pieces.pairs.len(), garbage.pairs.len())
}

#[tokio::test]
async fn commands_take_values_larger_than_a_transaction() {
    let mut rig = Rig::new().await;
    let (a, b) = (large(1), large(2));
    assert_eq!(rig.run_bytes(words(&["SET", "k"], &a)).await, Reply::Ok);
    assert!(rig.line("GET k").await == Reply::Bulk(a.clone()));
    assert!(rig.run_bytes(words(&["GETSET", "k"], &b)).await == Reply::Bulk(a.clone()));
    assert_eq!(rig.run_bytes(words(&["APPEND", "k"], &a)).await, Reply::Int(2 * LARGE as i64));
    let both = [&b[..], &a[..]].concat();
    assert!(rig.line("GET k").await == Reply::Bulk(both.into()));
    assert_eq!(rig.run_bytes(words(&["SETRANGE", "k", "5"], &a)).await, Reply::Int(2 * LARGE as i64));
    let patched = [&b[..5], &a[..], &a[5..]].concat();
    assert!(rig.line("GET k").await == Reply::Bulk(patched.into()));
    assert_eq!(rig.run_bytes(words(&["APPEND", "new"], &a)).await, Reply::Int(LARGE as i64));
    assert!(rig.line("GET new").await == Reply::Bulk(a.clone()));
    let mset = [words(&["MSET", "k"], &a), words(&["l"], &b), words(&["k"], &large(3))].concat();
    assert_eq!(rig.run_bytes(mset).await, Reply::Ok);
    assert!(rig.line("GET k").await == Reply::Bulk(large(3)));
    assert!(rig.line("GET l").await == Reply::Bulk(b));
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let mut rig = Rig::new().await;
    rig.run_bytes(words(&["SET", "k"], &large(1))).await;
    rig.run_bytes(words(&["SETNX", "k"], &large(2))).await;
    rig.run_bytes(words(&["APPEND", "k"], &large(3))).await;
    rig.run_bytes(words(&["SET", "k"], &large(4))).await;
    while reclaim(rig.space(), None, 10).await.unwrap().rows > 0 {}
    assert_eq!(rows(&rig).await, (LARGE.div_ceil(PIECE), 0));
    assert!(rig.line("GET k").await == Reply::Bulk(large(4)));
    rig.line("DEL k").await;
    while reclaim(rig.space(), None, 10).await.unwrap().rows > 0 {}
    assert_eq!(rows(&rig).await, (0, 0));
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_lease_protects_its_objects_until_it_ends() {
    let rig = Rig::new().await;
    let value = large(1);
    prebuild(rig.space(), rig.prefix().await, &value, LEASE).await.unwrap();
    rig.advance(LEASE - 1);
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 0);
    assert_eq!(rows(&rig).await, (LARGE.div_ceil(PIECE), 1));
    rig.advance(1);
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 1);
    assert_eq!(rows(&rig).await, (0, 0));
    rig.assert_sound().await;
}

#[tokio::test]
async fn abandoned_objects_are_reclaimed_at_once() {
    let rig = Rig::new().await;
    let prebuilt = prebuild(rig.space(), rig.prefix().await, &large(1), LEASE).await.unwrap();
    abandon(rig.space(), prebuilt.object().unwrap()).await.unwrap();
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 1);
    assert_eq!(rows(&rig).await, (0, 0));
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_reclaimed_object_is_never_swapped_in() {
    let rig = Rig::new().await;
    let value = large(1);
    let prebuilt = [prebuild(rig.space(), rig.prefix().await, &value, LEASE).await.unwrap()];
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let mut slot = object::open(&s, &Bytes::from_static(b"k"), Read::Serializable).await.unwrap();
    string::write(&s, &prebuilt, &mut slot, &value, None).await.unwrap();
    rig.advance(LEASE);
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 1);
    assert_eq!(tx.commit().await, Err(StoreError::Conflict));
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let mut slot = object::open(&s, &Bytes::from_static(b"k"), Read::Serializable).await.unwrap();
    let again = string::write(&s, &prebuilt, &mut slot, &value, None).await;
    assert_eq!(again, Err(Error::Store(StoreError::Conflict)));
    rig.assert_sound().await;
}

#[tokio::test]
async fn one_object_serves_one_key() {
    let mut rig = Rig::new().await;
    let value = Bytes::from(vec![7; 3 * PIECE]);
    let prebuilt = [prebuild(rig.space(), rig.prefix().await, &value, LEASE).await.unwrap()];
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    for key in [&b"k"[..], b"l"] {
        let mut slot = object::open(&s, &Bytes::from_static(key), Read::Serializable).await.unwrap();
        string::write(&s, &prebuilt, &mut slot, &value, None).await.unwrap();
    }
    tx.commit().await.unwrap();
    rig.line("SETRANGE k 0 x").await;
    assert_eq!(rig.line("GETRANGE l 0 0").await, rig::bulk([7]));
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_continued_string_must_still_be_the_same() {
    let mut rig = Rig::new().await;
    rig.line("SET k abc").await;
    let (key, patch, db) = (Bytes::from_static(b"k"), large(1), rig.prefix().await);
    let prebuilt = prebuild_change(rig.space(), db, &key, None, &patch, LEASE).await.unwrap();
    let prebuilt = [prebuilt.unwrap()];
    rig.line("SET k abc").await;
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let mut slot = object::open(&s, &key, Read::Serializable).await.unwrap();
    let done = string::set_range(&s, &prebuilt, &mut slot, 3, &patch).await;
    assert_eq!(done, Err(Error::Store(StoreError::Conflict)));
    rig.line("SADD set m").await;
    let set = Bytes::from_static(b"set");
    assert!(prebuild_change(rig.space(), db, &set, None, &patch, LEASE).await.unwrap().is_none());
}

#[tokio::test]
async fn reclaiming_resumes_where_it_stopped() {
    let mut rig = Rig::new().await;
    for n in 0..5 {
        rig.run(&[b"SETRANGE".to_vec(), format!("k{n}").into(), b"20000".to_vec(), b"x".to_vec()]).await;
    }
    rig.line("DEL k0 k1 k2 k3 k4").await;
    let first = reclaim(rig.space(), None, 2).await.unwrap();
    let second = reclaim(rig.space(), first.next.as_deref(), 10).await.unwrap();
    assert_eq!((first.rows, second.rows, second.next), (2, 3, None));
    assert_eq!(rows(&rig).await, (0, 0));
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_flushed_database_is_reclaimed_whole() {
    let mut rig = Rig::new().await;
    rig.line("SETRANGE k 100000 x").await;
    rig.line("SET l 1 EX 100").await;
    let old = rig.prefix().await;
    rig.line("FLUSHDB").await;
    assert_eq!(rig.line("DBSIZE").await, Reply::Int(0));
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 1);
    let end = tern::store::prefix_end(old.as_bytes());
    let tx = rig.server.store.begin();
    let left = tx.get_range(old.as_bytes(), &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(left.pairs, []);
    rig.assert_sound().await;
}
