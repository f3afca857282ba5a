//! Sets larger than a transaction: members get their ids in blocks, results are built under a lease and
//! swapped in. No client sees a partial one, a result comes from one version of its sources, and unused
//! objects are reclaimed.
//!
//! Integers 2^33 apart make large sets of few members: each is a container of its own, 22 bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::{Rig, units};
use std::ops::Range;
use std::sync::Arc;
use tern::error::{Error, StoreError};
use tern::exec::Unit;
use tern::keyspace::keys::root;
use tern::lifecycle::reclaim::reclaim;
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read, key_after};
use tern::types::object;
use tern::types::prebuilt::Object;
use tern::types::set::algebra::Op;
use tern::types::set::{self, prebuild};

const LEASE: u64 = 60_000;
/// Half of the size that is too large for a transaction.
const HALF: i64 = 220_000;

/// Members in one command.
fn many() -> usize {
    if std::env::var_os("TERN_TEST_STORE").is_some() { 100_000 } else { 1_000_000 }
}

fn argv(words: &[&str], members: impl Iterator<Item = String>) -> Vec<Bytes> {
    words.iter().map(|w| w.to_string()).chain(members).map(Bytes::from).collect()
}

fn sparse(range: Range<i64>) -> impl Iterator<Item = String> {
    range.map(|n| (n << 33).to_string())
}

fn named(range: Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| format!("at://did/{n:x}"))
}

/// Sets `a` and `b` of `HALF` members each, none in common.
async fn halves() -> Rig {
    let mut rig = Rig::new().await;
    assert_eq!(rig.run_bytes(argv(&["SADD", "a"], sparse(0..HALF))).await, Reply::Int(HALF));
    assert_eq!(rig.run_bytes(argv(&["SADD", "b"], sparse(HALF..2 * HALF))).await, Reply::Int(HALF));
    rig
}

async fn int(rig: &mut Rig, line: &str) -> i64 {
    match rig.line(line).await {
        Reply::Int(n) => n,
        other => panic!("{line}: {other:?}"),
    }
}

/// The numbers of rows of sets in the database, and of garbage rows.
async fn rows(rig: &Rig) -> (usize, usize) {
    let tx = rig.server.store.begin();
    let mut begin = rig.prefix().await.as_bytes().to_vec();
    begin.push(b'S');
    let end = tern::store::prefix_end(&begin);
    let mut sets = 0;
    loop {
        let opts = RangeOptions { limit: 5_000, ..RangeOptions::default() };
        let page = tx.get_range(&begin, &end, opts, Read::Snapshot).await.unwrap();
        sets += page.pairs.len();
        match page.pairs.last() {
            Some((row, _)) if page.more => begin = key_after(row),
            _ => break,
        }
    }
    (sets, garbage(rig).await)
}

async fn garbage(rig: &Rig) -> usize {
    let (from, to) = root::garbage_range();
    let tx = rig.server.store.begin();
    tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await.unwrap().pairs.len()
}

async fn reclaim_all(rig: &Rig) {
    while reclaim(rig.space(), None, 100).await.unwrap().rows > 0 {}
}

fn unit(rig: &Rig, calls: Vec<Vec<Bytes>>, exec: bool) -> Unit {
    let calls = calls.into_iter().map(units::call).collect();
    Unit { client: Box::new(rig.client.clone()), exec, ..units::unit(calls) }
}

fn line(line: &str) -> Vec<Bytes> {
    argv(&line.split(' ').collect::<Vec<_>>(), std::iter::empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sadd_of_a_million_members_in_one_command() {
    let mut rig = Rig::new().await;
    let n = many();
    rig.line("SADD k one two").await;
    rig.line("EXPIRE k 1000").await;
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], named(0..n))).await, Reply::Int(n as i64));
    assert_eq!(int(&mut rig, "SCARD k").await, n as i64 + 2);
    assert_eq!(int(&mut rig, "TTL k").await, 1000);
    let some =
        format!("SMISMEMBER k one {} {}", named(0..1).last().unwrap(), named(n - 1..n).last().unwrap());
    assert_eq!(rig.line(&some).await, Reply::Array(vec![Reply::Int(1); 3]));
    let shifted = rig.run_bytes(argv(&["SADD", "k"], named(n - n / 10..n + n / 10))).await;
    assert_eq!(shifted, Reply::Int(n as i64 / 10));
    let known = rig.run_bytes(argv(&["SADD", "l"], named(n / 2..n / 2 + n / 5))).await;
    assert_eq!(known, Reply::Int(n as i64 / 5));
    assert_eq!(int(&mut rig, "SINTERCARD 2 k l").await, n as i64 / 5);
    rig.line("SET s text").await;
    let refused = rig.run_bytes(argv(&["SADD", "s"], named(0..n))).await;
    assert!(rig::error(&refused).starts_with("WRONGTYPE"));
    assert_eq!(rows(&rig).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_named_twice_count_once() {
    let mut rig = Rig::new().await;
    let twice = named(0..50_000).chain(named(0..50_000));
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], twice)).await, Reply::Int(50_000));
    assert_eq!(int(&mut rig, "SCARD k").await, 50_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sadd_that_rewrites_a_whole_set() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], sparse(0..2 * HALF))).await, Reply::Int(2 * HALF));
    rig.line("EXPIRE k 1000").await;
    let again = (HALF..3 * HALF).step_by(4).flat_map(|n| sparse(n..n + 1));
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], again)).await, Reply::Int(HALF / 4));
    assert_eq!(int(&mut rig, "SCARD k").await, 2 * HALF + HALF / 4);
    assert_eq!(int(&mut rig, "TTL k").await, 1000);
    assert_eq!(int(&mut rig, &format!("SISMEMBER k {}", (2 * HALF) << 33)).await, 1);
    assert_eq!(int(&mut rig, &format!("SISMEMBER k {}", (2 * HALF + 1) << 33)).await, 0);
    reclaim_all(&rig).await;
    rig.line("DEL k").await;
    reclaim_all(&rig).await;
    assert_eq!(rows(&rig).await, (0, 0));
}

/// Words are looked up in transactions of their own; then their chunks fit into the command's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn srem_of_a_million_members_in_one_command() {
    let mut rig = Rig::new().await;
    let n = many();
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], named(0..n))).await, Reply::Int(n as i64));
    rig.line("EXPIRE k 1000").await;
    // Some are in the set, some never existed, some are named twice.
    let words = named(n / 4..n / 4 * 5).chain(named(n / 4..n / 2));
    assert_eq!(rig.run_bytes(argv(&["SREM", "k"], words)).await, Reply::Int((n - n / 4) as i64));
    assert_eq!(int(&mut rig, "SCARD k").await, n as i64 / 4);
    assert_eq!(int(&mut rig, "TTL k").await, 1000);
    let some = format!("SMISMEMBER k {} {}", named(0..1).last().unwrap(), named(n - 1..n).last().unwrap());
    assert_eq!(rig.line(&some).await, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
    assert_eq!(rig.run_bytes(argv(&["SREM", "none"], named(0..n))).await, Reply::Int(0));
    rig.line("SADD small one two").await;
    let named_too = argv(&["SREM", "small"], named(0..n).chain(["one".into()]));
    assert_eq!(rig.run_bytes(named_too).await, Reply::Int(1));
    rig.line("SET s v").await;
    let refused = rig.run_bytes(argv(&["SREM", "s"], named(0..n))).await;
    assert!(rig::error(&refused).starts_with("WRONGTYPE"), "{refused:?}");
    assert_eq!(rig.run_bytes(argv(&["SREM", "k"], named(0..n))).await, Reply::Int(n as i64 / 4));
    assert_eq!(int(&mut rig, "EXISTS k").await, 0);
}

/// Every chunk changes, so the rest is built and swapped in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn srem_that_rewrites_a_whole_set() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.run_bytes(argv(&["SADD", "k"], sparse(0..2 * HALF))).await, Reply::Int(2 * HALF));
    rig.line("EXPIRE k 1000").await;
    let half = (0..2 * HALF).step_by(2).map(|n| (n << 33).to_string());
    assert_eq!(rig.run_bytes(argv(&["SREM", "k"], half.chain(named(0..10)))).await, Reply::Int(HALF));
    assert_eq!(int(&mut rig, "SCARD k").await, HALF);
    assert_eq!(int(&mut rig, "TTL k").await, 1000);
    assert_eq!(rig.line("SMISMEMBER k 0 8589934592").await, Reply::Array(vec![Reply::Int(0), Reply::Int(1)]));
    let shorter = rows(&rig).await;
    reclaim_all(&rig).await;
    assert!(rows(&rig).await < shorter, "its old rows must be reclaimed");
    let all = sparse(0..2 * HALF);
    assert_eq!(rig.run_bytes(argv(&["SREM", "k"], all)).await, Reply::Int(HALF));
    assert_eq!(int(&mut rig, "EXISTS k").await, 0);
    assert_eq!(int(&mut rig, "DBSIZE").await, 0);
    reclaim_all(&rig).await;
    assert_eq!(rows(&rig).await, (0, 0));
}

/// A member that had no id at the lookup is removed if it is in the set when the command commits.
#[tokio::test]
async fn a_member_added_after_the_lookup_is_removed_too() {
    let mut rig = Rig::new().await;
    let members: Vec<Bytes> = named(0..2000).map(Bytes::from).collect();
    for direct in [true, false] {
        let key = Bytes::from(format!("k{direct}"));
        let words = [&members[..1000], &argv(&[&format!("late{direct}")], std::iter::empty())].concat();
        rig.run_bytes([&argv(&["SADD"], std::iter::empty()), &[key.clone()][..], &members].concat()).await;
        let ids = prebuild::find(rig.space(), &[&words]).await.unwrap().remove(0);
        rig.line(&format!("SADD k{direct} late{direct}")).await;
        let db = rig.prefix().await;
        let built = prebuild::removal(rig.space(), db, &key, &ids, LEASE).await.unwrap().unwrap();
        let tx = rig.server.store.begin();
        let s = rig.scope(&tx).await;
        let mut slot = object::open(&s, &key, Read::Serializable).await.unwrap();
        let removed = match direct {
            true => set::remove_ids(&s, &mut slot, &words, &ids).await.unwrap(),
            false => prebuild::put_changed(&s, &mut slot, &built).await.unwrap(),
        };
        tx.commit().await.unwrap();
        assert_eq!(removed, 1001);
        assert_eq!(int(&mut rig, &format!("SCARD k{direct}")).await, 1000);
        assert_eq!(int(&mut rig, &format!("SISMEMBER k{direct} late{direct}")).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_larger_than_a_transaction() {
    let mut rig = halves().await;
    rig.line("SET d text").await;
    assert_eq!(int(&mut rig, "SUNIONSTORE d a b").await, 2 * HALF);
    assert_eq!(int(&mut rig, "SINTERCARD 2 d a").await, HALF);
    assert_eq!(int(&mut rig, "SINTERCARD 2 d b").await, HALF);
    assert_eq!(int(&mut rig, "SDIFFCARD 3 d a b").await, 0);
    assert_eq!(int(&mut rig, "SDIFFSTORE e d missing").await, 2 * HALF);
    assert_eq!(int(&mut rig, "SINTERSTORE f d e").await, 2 * HALF);
    rig.line("SADD words x y z").await;
    assert_eq!(int(&mut rig, "SUNIONSTORE f f words").await, 2 * HALF + 3);
    assert_eq!(rig.line("SMISMEMBER f x 0 1").await, Reply::Array([1, 1, 0].map(Reply::Int).into()));
    assert_eq!(int(&mut rig, "COPY f g").await, 1);
    assert_eq!(int(&mut rig, "COPY f g").await, 0);
    assert_eq!(int(&mut rig, "COPY f g DB 3 REPLACE").await, 1);
    assert_eq!(int(&mut rig, "SDIFFCARD 2 f g").await, 0);
    assert_eq!(int(&mut rig, "MOVE g 4").await, 1);
    assert_eq!(int(&mut rig, "EXISTS g").await, 0);
    for db in ["3", "4"] {
        rig.line(&format!("SELECT {db}")).await;
        assert_eq!(int(&mut rig, "SCARD g").await, 2 * HALF + 3);
        assert_eq!(int(&mut rig, "SREM g x").await, 1);
    }
    rig.line("FLUSHALL").await;
    reclaim_all(&rig).await;
    assert_eq!(rows(&rig).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_string_larger_than_a_transaction() {
    let mut rig = Rig::new().await;
    let value: Bytes = (0..11_000_000).map(|i| (i / 1000) as u8).collect::<Vec<_>>().into();
    rig.run_bytes([line("SET k"), vec![value.clone()]].concat()).await;
    assert_eq!(int(&mut rig, "COPY k l DB 1").await, 1);
    rig.line("SETRANGE k 5 x").await;
    rig.line("SELECT 1").await;
    assert!(rig.line("GET l").await == Reply::Bulk(value));
    assert_eq!(rows(&rig).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_transaction() {
    let mut rig = halves().await;
    let both = ["SUNIONSTORE d a b", "SUNIONSTORE e b a", "SCARD d"].map(line).to_vec();
    let done = rig.exec.run(unit(&rig, both, true)).await;
    assert_eq!(done.replies.unwrap(), vec![Reply::Int(2 * HALF); 3]);
    let dependent = ["SADD a one", "SUNIONSTORE f a b", "SCARD a"].map(line).to_vec();
    let replies = rig.exec.run(unit(&rig, dependent, true)).await.replies.unwrap();
    assert_eq!([&replies[0], &replies[2]], [&Reply::Int(1), &Reply::Int(HALF + 1)]);
    assert!(rig::error(&replies[1]).contains("limit 10 MB"), "{replies:?}");
    assert_eq!(int(&mut rig, "EXISTS f").await, 0);
    let adds = vec![argv(&["SADD", "m"], named(0..60_000)), argv(&["SADD", "n"], named(30_000..90_000))];
    let replies = rig.exec.run(unit(&rig, adds, true)).await.replies.unwrap();
    assert_eq!(replies, [Reply::Int(60_000), Reply::Int(60_000)]);
    assert_eq!(int(&mut rig, "SINTERCARD 2 m n").await, 30_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_and_destination_may_change_during_a_build() {
    let rig = Arc::new(halves().await);
    let storing = {
        let (rig, unit) = (rig.clone(), unit(&rig, vec![line("SUNIONSTORE d a b")], false));
        tokio::spawn(async move { rig.exec.run(unit).await.replies.unwrap() })
    };
    let mut added = 0;
    while !storing.is_finished() {
        let calls = [format!("SADD a n{added}"), format!("SADD d half{added}"), "SCARD d".into()];
        // The set under `d` is this loop's until the result is swapped in whole.
        for call in calls {
            let done = rig.exec.run(unit(&rig, vec![line(&call)], false)).await;
            if let (true, Reply::Int(n)) = (call.starts_with("SCARD"), &done.replies.unwrap()[0]) {
                assert!(*n <= added + 1 || *n >= 2 * HALF, "{n} members");
            }
        }
        added += 1;
        // Pauses that double: at some point one is as long as building the result takes.
        tokio::time::sleep(std::time::Duration::from_millis(50 << added.min(10))).await;
    }
    let [Reply::Int(stored)] = storing.await.unwrap()[..] else { panic!("stored") };
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let slot = object::open(&s, &Bytes::from_static(b"d"), Read::Snapshot).await.unwrap();
    let names: Vec<Bytes> = (0..added).map(|n| format!("n{n}").into()).collect();
    let found = set::contains_many(&s, slot.set().unwrap(), &names).await.unwrap();
    let seen = found.iter().take_while(|found| **found).count() as i64;
    assert!(
        found.iter().skip(seen as usize).all(|found| !found),
        "the result must come from one version: {found:?}"
    );
    assert_eq!(stored, 2 * HALF + seen);
    reclaim_all(&rig).await;
    assert_eq!(rows(&rig).await.1, 0);
}

/// Builds as the server does: again if a busy machine was too slow for one read version.
async fn built(rig: &Rig) -> Object {
    let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    loop {
        match prebuild::combination(rig.space(), rig.prefix().await, Op::Union, &keys, LEASE).await {
            Err(Error::Store(StoreError::TooOld)) => {}
            done => return done.unwrap().unwrap(),
        }
    }
}

const TARGET: Bytes = Bytes::from_static(b"d");

#[tokio::test]
async fn the_last_transaction_verifies_sources_and_destination() {
    let mut rig = halves().await;
    for change in ["SADD a x", "SREM b 1", "DEL b", "SET d 1", "SPOP a"] {
        let object = built(&rig).await;
        let tx = rig.server.store.begin();
        let s = rig.scope(&tx).await;
        let mut slot = object::open(&s, &TARGET, Read::Serializable).await.unwrap();
        assert_eq!(prebuild::put(&s, &mut slot, &object).await.unwrap(), object.len());
        let changed = rig.line(change).await;
        match changed {
            Reply::Int(0) => tx.commit().await.map(|_| ()).unwrap(),
            _ => assert_eq!(tx.commit().await.unwrap_err(), StoreError::Conflict, "{change}"),
        }
        if !change.contains('d') {
            let tx = rig.server.store.begin();
            let s = rig.scope(&tx).await;
            let mut slot = object::open(&s, &TARGET, Read::Serializable).await.unwrap();
            let late = prebuild::put(&s, &mut slot, &object).await;
            assert!(late.is_err(), "{change}: a stale or used object must be refused");
        }
    }
}

#[tokio::test]
async fn an_object_reclaimed_after_its_lease_is_never_swapped_in() {
    let mut rig = halves().await;
    let before = rows(&rig).await;
    let object = built(&rig).await;
    assert!(rows(&rig).await.0 > before.0);
    rig.advance(LEASE - 1);
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 0);
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let mut slot = object::open(&s, &TARGET, Read::Serializable).await.unwrap();
    prebuild::put(&s, &mut slot, &object).await.unwrap();
    rig.advance(1);
    assert_eq!(reclaim(rig.space(), None, 10).await.unwrap().rows, 1);
    assert_eq!(tx.commit().await.unwrap_err(), StoreError::Conflict);
    assert_eq!(rows(&rig).await, before);
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let mut slot = object::open(&s, &TARGET, Read::Serializable).await.unwrap();
    let late = prebuild::put(&s, &mut slot, &object).await;
    assert_eq!(late, Err(Error::Store(StoreError::Conflict)));
    assert_eq!(int(&mut rig, "EXISTS d").await, 0);
    rig.assert_sound().await;
}

/// A build is stopped once some of its rows exist: the key is unchanged, and the rows are reclaimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_that_is_stopped_leaves_nothing() {
    let mut rig = halves().await;
    rig.line("SADD d old").await;
    let before = rows(&rig).await;
    let rig = Arc::new(rig);
    for _ in 0..3 {
        let builder = {
            let rig = rig.clone();
            tokio::spawn(async move { built(&rig).await })
        };
        while garbage(&rig).await == 0 {
            assert!(!builder.is_finished());
        }
        builder.abort();
        let _ = builder.await;
        let unit = unit(&rig, vec![line("SMEMBERS d")], false);
        assert_eq!(rig.exec.run(unit).await.replies.unwrap(), [Reply::Set(vec![rig::bulk("old")])]);
        // The commit under way may still arrive.
        let mut tries = 0;
        while rows(&rig).await != before {
            rig.advance(LEASE);
            reclaim_all(&rig).await;
            tries += 1;
            assert!(tries < 100, "no row may be left");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    rig.assert_sound().await;
}

/// Members of maximum length: a hundred of them exceed a transaction.
fn long(range: Range<usize>) -> impl Iterator<Item = String> {
    let zeros = "0".repeat(99_990);
    range.map(move |n| format!("{zeros}{n:010}"))
}

/// Few members, but more bytes than a transaction holds: every command works as with short ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_long_members_exceed_a_transaction() {
    for n in [70, 100, 250] {
        let mut rig = Rig::new().await;
        let count = n as i64;
        assert_eq!(rig.run_bytes(argv(&["SADD", "k"], long(0..n))).await, Reply::Int(count), "{n}");
        assert_eq!(rig.run_bytes(argv(&["SADD", "k"], long(0..n))).await, Reply::Int(0), "{n}");
        // To a small set and to a large one, which hold one of them each.
        rig.line("SADD few one").await;
        rig.run_bytes(argv(&["SADD", "many"], named(0..1000).chain(long(0..1)))).await;
        assert_eq!(rig.run_bytes(argv(&["SADD", "few"], long(0..n))).await, Reply::Int(count), "{n}");
        let fresh = rig.run_bytes(argv(&["SADD", "many"], long(0..2 * n).step_by(2))).await;
        assert_eq!(fresh, Reply::Int(count - 1), "{n}");
        let ones = vec![Reply::Int(1); n];
        assert_eq!(rig.run_bytes(argv(&["SMISMEMBER", "few"], long(0..n))).await, Reply::Array(ones));
        for (line, want) in [
            ("SCARD few", count + 1),
            ("SUNIONSTORE u k few", count + 1),
            ("SINTERSTORE i k few", count),
            ("SDIFFSTORE d few k", 1),
            ("SINTERCARD 2 k many", count.div_euclid(2) + count % 2),
            ("COPY u copied", 1),
            ("SINTERCARD 2 copied k", count),
        ] {
            assert_eq!(int(&mut rig, line).await, want, "{n}: {line}");
        }
        match rig.line("SMEMBERS k").await {
            Reply::Members(members) => assert_eq!(members.len(), n as u64),
            Reply::Set(members) => {
                let want: std::collections::HashSet<Bytes> = long(0..n).map(Bytes::from).collect();
                assert_eq!(members.len(), n);
                assert!(members.iter().all(|m| matches!(m, Reply::Bulk(m) if want.contains(m))));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.run_bytes(argv(&["SREM", "k"], long(0..n + 50))).await, Reply::Int(count), "{n}");
        assert_eq!(int(&mut rig, "EXISTS k").await, 0);
        assert_eq!(rows(&rig).await.1, 1, "{n}: only k's rows may be garbage");
        rig.assert_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_long_members_is_restored() {
    let mut rig = Rig::new().await;
    rig.run_bytes(argv(&["SADD", "k"], long(0..120))).await;
    let Reply::Bulk(payload) = rig.line("DUMP k").await else { panic!("no payload") };
    rig.line("FLUSHALL").await;
    let mut elsewhere = Rig::new().await;
    for rig in [&mut rig, &mut elsewhere] {
        let restore = argv(&["RESTORE", "r", "0"], std::iter::empty());
        let restored = rig.run_bytes([restore, vec![payload.clone()]].concat()).await;
        assert_eq!(restored, Reply::Ok);
        let found = rig.run_bytes(argv(&["SMISMEMBER", "r"], long(0..121))).await;
        let want = [vec![Reply::Int(1); 120], vec![Reply::Int(0)]].concat();
        assert_eq!(found, Reply::Array(want));
    }
}

/// Also if no call alone exceeds one: many members of an EXEC, of one key or of several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_members_of_an_exec_exceed_a_transaction() {
    let rig = Rig::new().await;
    let run = |calls| rig.exec.run(unit(&rig, calls, true));
    let calls = (0..12).map(|n| argv(&["SADD", &format!("k{}", n % 3)], long(n * 10..n * 10 + 10)));
    assert_eq!(run(calls.collect()).await.replies.unwrap(), vec![Reply::Int(10); 12]);
    // Each call's members would fit into a record, the key's do not.
    let calls = (0..300).map(|n| argv(&["SADD", "s"], named(n * 100..n * 100 + 100)));
    assert_eq!(run(calls.collect()).await.replies.unwrap(), vec![Reply::Int(100); 300]);
    // So do these, of large sets.
    let calls = (0..60).map(|n| argv(&["SADD", &format!("l{n}")], named(n * 500..n * 500 + 500)));
    for call in calls {
        run(vec![call]).await;
    }
    let calls =
        (0..60).map(|n| argv(&["SADD", &format!("l{n}")], named(100_000 + n * 500..100_500 + n * 500)));
    let last = std::iter::once(line("SREM l0 none"));
    let mut want = vec![Reply::Int(500); 60];
    want.push(Reply::Int(0));
    assert_eq!(run(calls.chain(last).collect()).await.replies.unwrap(), want);
    // Those that fit stay small.
    let calls = (0..200).map(|n| argv(&["SADD", &format!("t{n}")], named(n * 100..n * 100 + 100)));
    assert_eq!(run(calls.collect()).await.replies.unwrap(), vec![Reply::Int(100); 200]);
    let encoding = run(vec![line("OBJECT ENCODING t7")]).await.replies.unwrap();
    assert_eq!(encoding, [rig::bulk("listpack")]);
    rig.assert_sound().await;
}
