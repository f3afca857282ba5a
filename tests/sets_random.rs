//! SPOP and SRANDMEMBER are uniform in every encoding, with any pending deltas: chi-square over the members.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, int, slot, word};
use std::collections::BTreeMap;
use tern::env::{Env, Rng};
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::{Keyspace, Scope};
use tern::store::Tx;
use tern::types::memo::Memo;
use tern::types::set::SetRep;
use tern::types::set::{self, chunked, sample};

/// Chi-square of draws that should be uniform over `cells`, as a z-score of its normal approximation.
fn z_score(counts: &BTreeMap<Bytes, u64>, cells: usize, draws: u64) -> f64 {
    let expected = draws as f64 / cells as f64;
    let seen: f64 = counts.values().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
    let chi = seen + (cells - counts.len()) as f64 * expected;
    let freedom = (cells - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

async fn fill(world: &World, add: &[Bytes], remove: &[Bytes], fold: bool) -> Vec<Bytes> {
    for part in add.chunks(20_000) {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, part).await);
    }
    for part in remove.chunks(10) {
        transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, part).await);
    }
    if fold {
        transact!(world, s => match slot(&s, "k").await.set()? {
            Some(SetRep::Chunked(oid)) => chunked::fold(&s, *oid, 0, 1 << 22).await.map(drop),
            _ => Ok(()),
        });
    }
    let tx = world.store.begin();
    let s = world.scope(&tx);
    set::members(&s, slot(&s, "k").await.set().unwrap()).await.unwrap()
}

async fn check_draws(world: &World, members: usize, draws: u64, name: &str) {
    let mut rng = Rng::seeded(77);
    let (mut repeated, mut distinct) = (BTreeMap::new(), BTreeMap::new());
    let each = (members as u64 / 10).max(1);
    for _ in 0..draws / each {
        let tx: Tx = world.store.begin();
        let s: Scope<'_> = world.scope(&tx);
        let slot = slot(&s, "k").await;
        let (rep, memo) = (slot.set().unwrap(), Memo::default());
        for member in
            sample::repeated(&s, rep, each, &mut rng, &memo).await.unwrap().members(&s).await.unwrap()
        {
            *repeated.entry(member).or_default() += 1;
        }
        for member in
            sample::distinct(&s, rep, each, &mut rng, &memo).await.unwrap().members(&s).await.unwrap()
        {
            *distinct.entry(member).or_default() += 1;
        }
    }
    let draws = draws / each * each;
    for (counts, low, kind) in [(repeated, -4.5, "repeated"), (distinct, f64::NEG_INFINITY, "distinct")] {
        assert_eq!(counts.values().sum::<u64>(), draws, "{name}");
        let z = z_score(&counts, members, draws);
        assert!((low..4.5).contains(&z), "{name}: {kind} draws, z = {z}");
    }
}

/// Pops one member in transactions that are dropped, so that every draw is from the same set. The returned
/// member is the one removed.
async fn check_pops(world: &World, members: usize, draws: u64, name: &str) {
    let mut rng = Rng::seeded(78);
    let mut counts: BTreeMap<Bytes, u64> = BTreeMap::new();
    for _ in 0..draws {
        let tx = world.store.begin();
        let s = world.scope(&tx);
        let mut set = slot(&s, "k").await;
        let popped = sample::pop(&s, &mut set, 1, &mut rng).await.unwrap();
        let popped = popped.members(&s).await.unwrap();
        let (rep, stays) = (set.set().unwrap(), set::card(&s, set.set().unwrap()).await.unwrap());
        let is_member = set::contains_many(&s, rep, &popped).await.unwrap();
        assert_eq!(
            (is_member, stays),
            (vec![false], members as u64 - 1),
            "{name}: the returned member must be the one removed"
        );
        *counts.entry(popped[0].clone()).or_default() += 1;
    }
    let z = z_score(&counts, members, draws);
    assert!(z.abs() < 4.5, "{name}: pops, z = {z}");
}

async fn check(name: &str, add: Vec<Bytes>, remove: Vec<Bytes>, fold: bool) {
    let world = World::new(1).await;
    let members = fill(&world, &add, &remove, fold).await.len();
    check_draws(&world, members, members as u64 * 15, name).await;
    if members <= 1_000 {
        check_pops(&world, members, members as u64 * 10, name).await;
    }
}

fn ints(n: i64, step: i64) -> Vec<Bytes> {
    (0..n).map(|n| int(n * step)).collect()
}

#[tokio::test]
async fn small_encodings() {
    check("listpack", (0..50).map(word).collect(), Vec::new(), false).await;
    check("intset", ints(300, 3), Vec::new(), false).await;
}

#[tokio::test]
async fn one_chunk() {
    check("dense", ints(700, 1), Vec::new(), false).await;
    check("words", (0..700).map(word).collect(), Vec::new(), true).await;
}

#[tokio::test]
async fn many_chunks_of_unequal_weight() {
    let mut members = ints(2_000, 70_001);
    members.extend((0..6_000).map(|n| int(-1_000_000_000 - n)));
    check("sparse and dense", members, Vec::new(), true).await;
}

#[tokio::test]
async fn chunks_with_many_deltas() {
    let members = ints(3_000, 70_001);
    let gone: Vec<Bytes> = members.iter().step_by(3).cloned().collect();
    check("delta-heavy", members, gone, false).await;
    let world = World::new(2).await;
    for part in ints(900, 90_001).chunks(15) {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, part).await);
    }
    check_draws(&world, 900, 20_000, "grown by deltas").await;
    check_pops(&world, 900, 9_000, "grown by deltas").await;
}

#[tokio::test]
async fn folded_after_removals() {
    let members = ints(4_000, 70_001);
    let gone: Vec<Bytes> = members.iter().skip(100).take(3_500).cloned().collect();
    check("folded", members, gone, true).await;
}

/// Words added one by one: folded by the server that added them, the last ones waiting as deltas, some of
/// them removed.
#[tokio::test]
async fn grown_and_folded_one_by_one() {
    let world = World::new(3).await;
    let words: Vec<Bytes> = (0..800).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &words[..150]).await);
    for part in words[150..].chunks(3) {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, part).await);
    }
    for part in words[..100].chunks(2) {
        transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, part).await);
    }
    check_draws(&world, 700, 20_000, "folded one by one").await;
    check_pops(&world, 700, 10_000, "folded one by one").await;
}

/// More deltas than a weight's slack, by servers that forgot them: the set is read whole, and draws stay
/// uniform.
#[tokio::test]
async fn more_deltas_than_slack() {
    let world = World::new(4).await;
    let words: Vec<Bytes> = (0..900).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &words[..150]).await);
    for (n, part) in words[150..].chunks(30).enumerate() {
        let forgetful =
            Keyspace::open(world.store.clone(), &Env::seeded(1_000, 90 + n as u64), 1).await.unwrap();
        let tx = world.store.begin();
        let s = Scope {
            tx: &tx,
            db: world.db,
            number: 0,
            now: 1_000,
            round: Round::default(),
            space: &forgetful,
            outbox: None,
            uncounted: None,
            life: Default::default(),
        };
        set::add(&s, &mut slot(&s, "k").await, part).await.unwrap();
        tx.commit().await.unwrap();
    }
    check_draws(&world, 900, 20_000, "more deltas than slack").await;
}

/// The test itself can fail: it detects draws that favour one half.
#[test]
fn a_bias_is_detected() {
    let mut rng = Rng::seeded(1);
    let mut counts: BTreeMap<Bytes, u64> = BTreeMap::new();
    for _ in 0..40_000 {
        let n = if rng.below(8) == 0 { rng.below(500) } else { rng.below(1_000) };
        *counts.entry(word(n)).or_default() += 1;
    }
    assert!(z_score(&counts, 1_000, 40_000) > 4.5);
}
