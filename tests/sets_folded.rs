//! Hazard: a set with scattered writes keeps thousands of deltas, and each reader walks over them; or folding
//! them into their chunks loses concurrent changes, or restores rows of a deleted set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use futures_util::future::join_all;
use rig::Rig;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tern::env::Rng;
use tern::keyspace::keys::Oid;
use tern::server::reply::Reply;
use tern::store::{RangeOptions, Read};
use tern::types::object;
use tern::types::set::SetRep;

const MEMBERS: usize = 40_000;
/// Integers are their own ids: a chunk covers some millions of them.
const SPREAD: u64 = 1 << 40;
const PATIENCE: Duration = Duration::from_secs(30);

type Model = BTreeSet<u64>;

/// Adds scattered new members.
async fn fill(rig: &mut Rig, rng: &mut Rng, key: &str) -> Model {
    let mut model = Model::new();
    while model.len() < MEMBERS {
        let some: BTreeSet<u64> = (0..500).map(|_| rng.below(SPREAD)).collect();
        let words: Vec<String> = some.iter().map(u64::to_string).collect();
        let argv = [&["SADD".to_owned(), key.to_owned()], &words[..]].concat();
        let new = some.difference(&model).count() as i64;
        assert_eq!(rig.run(&argv).await, Reply::Int(new));
        model.extend(some);
    }
    model
}

async fn oid(rig: &Rig, key: &str) -> Oid {
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let slot = object::open(&s, &key.to_owned().into(), Read::Snapshot).await.unwrap();
    let Some(SetRep::Chunked(oid)) = slot.set().unwrap() else { panic!("chunked") };
    *oid
}

/// The numbers of a set's deltas and of all its rows.
async fn rows(rig: &Rig, oid: Oid) -> (usize, usize) {
    let (tx, db) = (rig.server.store.begin(), rig.prefix().await);
    let count = async |begin: Vec<u8>, end: Vec<u8>| {
        let page = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
        page.pairs.len()
    };
    let (begin, end) = db.set_rows(oid);
    (count(db.delta(oid, 0), db.set_rows_end(oid, 1)).await, count(begin, end).await)
}

async fn until_folded(rig: &Rig, oid: Oid, most: usize) {
    let since = Instant::now();
    while rows(rig, oid).await.0 > most {
        assert!(since.elapsed() < PATIENCE, "{:?} deltas and rows", rows(rig, oid).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn members(rig: &Rig, key: &str) -> Model {
    let tx = rig.server.store.begin();
    let s = rig.scope(&tx).await;
    let slot = object::open(&s, &key.to_owned().into(), Read::Snapshot).await.unwrap();
    let members = tern::types::set::members(&s, slot.set().unwrap()).await.unwrap();
    members.iter().map(|member| std::str::from_utf8(member).unwrap().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_deltas_that_a_reader_met_are_folded() {
    let (mut rig, mut rng) = (Rig::on_system_clock().await, Rng::seeded(1));
    let (model, other) = (fill(&mut rig, &mut rng, "read").await, fill(&mut rig, &mut rng, "unread").await);
    tern::jobs::spawn(&rig.server);
    let (read, unread) = (oid(&rig, "read").await, oid(&rig, "unread").await);
    let (before, left) = (rows(&rig, read).await.0, rows(&rig, unread).await);
    assert!(before >= 512, "only {before} deltas");
    assert_eq!(rig.line("SINTERCARD 1 read").await, Reply::Int(model.len() as i64));
    until_folded(&rig, read, 0).await;
    assert_eq!(rig.line("SINTERCARD 1 read").await, Reply::Int(model.len() as i64));
    assert_eq!((members(&rig, "read").await, members(&rig, "unread").await), (model, other));
    assert_eq!(rows(&rig, unread).await, left);
    rig.assert_sound().await;
    rig.server.stop.send_replace(true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_survive_a_fold() {
    let (mut rig, mut rng) = (Rig::on_system_clock().await, Rng::seeded(2));
    let mut model = fill(&mut rig, &mut rng, "k").await;
    tern::jobs::spawn(&rig.server);
    let (k, began, mut tried, mut least) = (oid(&rig, "k").await, Instant::now(), 0, usize::MAX);
    while began.elapsed() < Duration::from_secs(4) {
        for _ in 0..20 {
            let old = *model.range(rng.below(SPREAD)..).next().unwrap_or(&0);
            let (verb, id) = if rng.below(2) == 0 { ("SREM", old) } else { ("SADD", rng.below(SPREAD)) };
            let changed = if verb == "SREM" { model.remove(&id) } else { model.insert(id) };
            assert_eq!(rig.line(&format!("{verb} k {id}")).await, Reply::Int(changed.into()), "{verb} {id}");
        }
        assert_eq!(rig.line("SINTERCARD 1 k").await, Reply::Int(model.len() as i64));
        (tried, least) = (tried + 1, least.min(rows(&rig, k).await.0));
    }
    assert!(tried > 5 && least < 512, "{tried} rounds, {least} deltas at least");
    assert_eq!(members(&rig, "k").await, model);
    rig.assert_sound().await;
    rig.server.stop.send_replace(true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_gone_stays_gone() {
    join_all(["DEL k", "FLUSHDB", "SUNIONSTORE k small", "SPOP k 1000000"].map(gone)).await;
}

/// `line` removes a set before, while or after it is folded.
async fn gone(line: &str) {
    let (mut rig, mut rng) = (Rig::on_system_clock().await, Rng::from_entropy());
    fill(&mut rig, &mut rng, "k").await;
    let k = oid(&rig, "k").await;
    rig.line("SADD small 1 2 3").await;
    rig.line("SINTERCARD 1 k").await;
    assert!(rows(&rig, k).await.0 >= 512);
    tern::jobs::spawn(&rig.server);
    tokio::time::sleep(Duration::from_millis(900 + rng.below(200))).await;
    rig.line("SINTERCARD 1 k").await;
    rig.line(line).await;
    let since = Instant::now();
    while rows(&rig, k).await.1 > 0 {
        assert!(since.elapsed() < PATIENCE, "{line}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(rows(&rig, k).await.1, 0, "{line}");
    rig.assert_sound().await;
    rig.server.stop.send_replace(true);
}
