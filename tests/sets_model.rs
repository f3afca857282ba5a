//! Sets behave like a `BTreeSet`, in every encoding and across folds, cuts, joins and transactions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, int, slot, word};
use std::collections::BTreeSet;
use tern::env::Rng;
use tern::keyspace::Scope;
use tern::types::memo::Memo;
use tern::types::set::SetRep;
use tern::types::set::{self, algebra, chunked, rows, sample, scan};

type Model = BTreeSet<Bytes>;

fn sorted(members: Vec<Bytes>) -> Vec<Bytes> {
    let set: Model = members.iter().cloned().collect();
    assert_eq!(set.len(), members.len(), "members are distinct");
    set.into_iter().collect()
}

fn in_model(model: &Model) -> Vec<Bytes> {
    model.iter().cloned().collect()
}

/// A member of one of several shapes: dense and sparse integers, words, long words.
fn member(rng: &mut Rng, kinds: &[u8], space: u64) -> Bytes {
    let n = rng.below(space);
    match kinds[rng.below(kinds.len() as u64) as usize] {
        0 => int(n as i64),
        1 => int((n as i64 - space as i64 / 2) * 1_000_003),
        2 => word(n),
        3 => Bytes::from(format!("{n:0>80}")),
        _ => Bytes::from(format!("{n}").repeat(600)),
    }
}

async fn check_whole(s: &Scope<'_>, key: &str, model: &Model) {
    let slot = slot(s, key).await;
    assert_eq!(slot.exists(), !model.is_empty());
    let rep = slot.set().unwrap();
    assert_eq!(set::card(s, rep).await.unwrap(), model.len() as u64);
    assert_eq!(sorted(set::members(s, rep).await.unwrap()), in_model(model));
    let mut cursor = 0;
    let mut scanned = Vec::new();
    loop {
        let (next, page) = scan::scan(s, rep, cursor, 37).await.unwrap();
        scanned.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(sorted(scanned), in_model(model));
}

async fn step(s: &Scope<'_>, rng: &mut Rng, model: &mut Model, kinds: &[u8], space: u64) {
    let mut slot = slot(s, "k").await;
    let many = if rng.below(8) == 0 { 1 + rng.below(300) } else { 1 + rng.below(6) };
    let members: Vec<Bytes> = (0..many).map(|_| member(rng, kinds, space)).collect();
    match rng.below(12) {
        0..5 => {
            let new = members.iter().filter(|m| model.insert((*m).clone())).count();
            assert_eq!(set::add(s, &mut slot, &members).await.unwrap(), new as u64);
        }
        5..8 => {
            let gone = members.iter().filter(|m| model.remove(*m)).count();
            assert_eq!(set::remove(s, &mut slot, &members).await.unwrap(), gone as u64);
        }
        8 => {
            let popped = sample::pop(s, &mut slot, many, rng).await.unwrap();
            let popped = popped.members(s).await.unwrap();
            assert_eq!(popped.len() as u64, many.min(model.len() as u64));
            for m in popped {
                assert!(model.remove(&m), "SPOP must return a member once");
            }
        }
        9 => {
            let found = sample::distinct(s, slot.set().unwrap(), many, rng, &Memo::default()).await.unwrap();
            let found = sorted(found.members(s).await.unwrap());
            assert_eq!(found.len() as u64, many.min(model.len() as u64));
            assert!(found.iter().all(|m| model.contains(m)));
        }
        10 => {
            if let Some(SetRep::Chunked(oid)) = slot.set().unwrap() {
                chunked::fold(s, *oid, 0, 1 << 20).await.unwrap();
            }
        }
        _ => {
            let found = set::contains_many(s, slot.set().unwrap(), &members).await.unwrap();
            let want: Vec<bool> = members.iter().map(|m| model.contains(m)).collect();
            assert_eq!(found, want);
        }
    }
}

async fn run(seed: u64, kinds: &[u8], space: u64, steps: usize) {
    let world = World::new(seed).await;
    let mut rng = Rng::seeded(seed);
    let mut model = Model::new();
    let mut done = 0;
    while done < steps {
        let tx = world.store.begin();
        let s = world.scope(&tx);
        let (before, in_tx) = (model.clone(), 1 + rng.below(12));
        for _ in 0..in_tx {
            step(&s, &mut rng, &mut model, kinds, space).await;
            done += 1;
        }
        if rng.below(6) == 0 {
            check_whole(&s, "k", &model).await;
        }
        if rng.below(10) == 0 {
            model = before;
        } else {
            tx.commit().await.unwrap();
        }
        if rng.below(6) == 0 {
            let tx = world.store.begin();
            check_whole(&world.scope(&tx), "k", &model).await;
        }
    }
    let tx = world.store.begin();
    check_whole(&world.scope(&tx), "k", &model).await;
}

#[tokio::test]
async fn dense_integers() {
    run(1, &[0], 3_000, 1_500).await;
}

#[tokio::test]
async fn sparse_integers() {
    run(2, &[1], 6_000, 1_500).await;
}

#[tokio::test]
async fn words_of_all_lengths() {
    run(3, &[2, 3, 4], 800, 1_000).await;
}

#[tokio::test]
async fn everything_mixed() {
    run(4, &[0, 1, 2, 3], 2_000, 1_500).await;
}

#[tokio::test]
async fn small_sets_that_come_and_go() {
    for seed in 10..20 {
        run(seed, &[0, 2], 12, 200).await;
    }
}

/// Members far apart, so that one set has many chunks, which are cut as it grows and joined as it shrinks.
#[tokio::test]
async fn many_chunks_are_cut_and_joined() {
    let world = World::new(5).await;
    let mut rng = Rng::seeded(5);
    let all: Vec<Bytes> = (0..20_000).map(|n| int(n * 70_001)).collect();
    for part in all.chunks(4_000) {
        let added = transact!(world, s => set::add(&s, &mut slot(&s, "k").await, part).await);
        assert_eq!(added, part.len() as u64);
    }
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let model: Model = all.iter().cloned().collect();
    check_whole(&s, "k", &model).await;
    let grown = chunks(&s).await;
    assert!(grown > 10, "{grown} chunks");
    let mut left = all.clone();
    rng.shuffle(&mut left);
    while left.len() > 50 {
        let gone = left.split_off(left.len().saturating_sub(3_000).max(50));
        let removed = transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, &gone).await);
        assert_eq!(removed, gone.len() as u64);
    }
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let rep = slot(&s, "k").await;
    let SetRep::Chunked(oid) = rep.set().unwrap().unwrap() else { panic!("chunked") };
    chunked::fold(&s, *oid, 0, 1 << 22).await.unwrap();
    check_whole(&s, "k", &left.iter().cloned().collect()).await;
    let shrunk = chunks(&s).await;
    assert!(shrunk < grown / 3, "{shrunk} of {grown} chunks are left");
    assert_eq!(rows::deltas(&s, *oid, 0, None).await.unwrap().len(), 0);
}

async fn chunks(s: &Scope<'_>) -> usize {
    let slot = slot(s, "k").await;
    let SetRep::Chunked(oid) = slot.set().unwrap().unwrap() else { panic!("chunked") };
    let mut n = 0;
    let mut at = Some(0);
    while let Some(id) = at {
        at = rows::locate(s, *oid, id).await.unwrap().next;
        n += 1;
    }
    n
}

#[tokio::test]
async fn algebra_over_mixed_encodings() {
    use algebra::Op;
    let world = World::new(6).await;
    let mut rng = Rng::seeded(6);
    let shapes: [(&[u8], u64, usize); 7] = [
        (&[0], 100, 40),
        (&[0, 2], 60, 40),
        (&[0], 2_000, 1_200),
        (&[0, 2], 3_000, 2_500),
        (&[1, 2], 3_000, 2_500),
        (&[2], 400, 300),
        (&[0], 10, 0),
    ];
    let mut models = Vec::new();
    for (i, (kinds, space, n)) in shapes.iter().enumerate() {
        let members: Vec<Bytes> = (0..*n).map(|_| member(&mut rng, kinds, *space)).collect();
        transact!(world, s => set::add(&s, &mut slot(&s, &format!("s{i}")).await, &members).await);
        models.push(members.into_iter().collect::<Model>());
    }
    models.last_mut().unwrap().clear();
    for round in 0..300 {
        let picks: Vec<usize> = (0..1 + rng.below(4)).map(|_| rng.below(7) as usize).collect();
        let op = [Op::Inter, Op::Union, Op::Diff][round % 3];
        let mut want = models[picks[0]].clone();
        for p in &picks[1..] {
            let other = &models[*p];
            want = match op {
                Op::Inter => &want & other,
                Op::Union => &want | other,
                Op::Diff => &want - other,
            };
        }
        let tx = world.store.begin();
        let s = world.scope(&tx);
        let mut slots = Vec::new();
        for p in &picks {
            slots.push(slot(&s, &format!("s{p}")).await);
        }
        let sets: Vec<Option<&SetRep>> = slots.iter().map(|s| s.set().unwrap()).collect();
        let found = algebra::combine(&s, op, &sets, None).await.unwrap();
        assert_eq!(found.len(), want.len() as u64, "{op:?} {picks:?}");
        let limited = algebra::combine(&s, op, &sets, Some(5)).await.unwrap().len();
        assert!(limited >= want.len().min(5) as u64 && limited <= want.len() as u64);
        assert_eq!(sorted(found.clone().members(&s).await.unwrap()), in_model(&want), "{op:?} {picks:?}");
        let target = if rng.below(2) == 0 { "dst".into() } else { format!("s{}", picks[0]) };
        let mut dst = slot(&s, &target).await;
        assert_eq!(algebra::store(&s, &mut dst, found).await.unwrap(), want.len() as u64);
        check_whole(&s, &target, &want).await;
    }
}
