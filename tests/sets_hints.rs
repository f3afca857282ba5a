//! A server's memory of a set's chunks is only a hint: it may predate another server's cut, join or fold of
//! them, or come from an uncommitted transaction, and every reply stays right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, int, slot, word};
use tern::env::{Env, Rng};
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::keys::Oid;
use tern::keyspace::{Keyspace, Scope};
use tern::store::Read;
use tern::types::set::SetRep;
use tern::types::set::{self, chunked, rows, sample};

async fn oid(s: &Scope<'_>) -> Oid {
    match slot(s, "k").await.set().unwrap() {
        Some(SetRep::Chunked(oid)) => *oid,
        _ => panic!("chunked"),
    }
}

async fn firsts(s: &Scope<'_>, oid: Oid) -> Vec<u64> {
    let (begin, end) = (s.db.chunk(oid, 0), s.db.set_rows_end(oid, 0));
    let page = s.tx.get_range(&begin, &end, Default::default(), Read::Snapshot).await.unwrap();
    let id = |key: &Bytes| u64::from_be_bytes(*key.last_chunk().unwrap());
    page.pairs.iter().map(|(key, _)| id(key)).collect()
}

/// Each chunk's row is found from each of its ends and has the same bounds as its key, and every id has a
/// chunk.
async fn check_chunks(s: &Scope<'_>, oid: Oid) {
    let firsts = firsts(s, oid).await;
    for (n, first) in firsts.iter().enumerate() {
        let next = firsts.get(n + 1).copied();
        for id in [*first, next.map_or(u64::MAX, |next| next - 1)] {
            let row = rows::locate(s, oid, id).await.unwrap();
            assert_eq!((row.first, row.next), (*first, next));
        }
    }
}

async fn check_members(s: &Scope<'_>, all: &[Bytes], is_member: impl Fn(usize) -> bool) {
    let slot = slot(s, "k").await;
    let rep = slot.set().unwrap();
    for (n, member) in all.iter().enumerate().step_by(37) {
        let found = set::contains_many(s, rep, std::slice::from_ref(member)).await.unwrap();
        assert_eq!(found, [is_member(n)], "member {n}");
    }
    let expected = (0..all.len()).filter(|n| is_member(*n)).count();
    assert_eq!(set::members(s, rep).await.unwrap().len(), expected);
}

#[tokio::test]
async fn stale_hints_cost_no_answer() {
    let world = World::new(1).await;
    let other = Keyspace::open(world.store.clone(), &Env::seeded(1_000, 9), 1).await.unwrap();
    let all: Vec<Bytes> = (0..12_000).map(|n| int(n * 70_001)).collect();
    let on = |n: usize| if n.is_multiple_of(2) { &world.space } else { &other };
    // In each round one server changes the chunks, and the other one has hints of the previous round.
    let rounds: [(usize, bool, std::ops::Range<usize>); 5] = [
        (0, true, 0..6_000),
        (1, true, 6_000..12_000),
        (0, false, 500..11_500),
        (1, true, 3_000..9_000),
        (0, false, 2_000..8_900),
    ];
    let mut is_member = vec![false; all.len()];
    for (n, adds, range) in rounds {
        for part in all[range.clone()].chunks(3_000) {
            let tx = world.store.begin();
            let s = Scope {
                tx: &tx,
                db: world.db,
                number: 0,
                now: 1_000,
                round: Round::default(),
                space: on(n),
                outbox: None,
                uncounted: None,
                life: Default::default(),
            };
            let mut slot = slot(&s, "k").await;
            match adds {
                true => set::add(&s, &mut slot, part).await.unwrap(),
                false => set::remove(&s, &mut slot, part).await.unwrap(),
            };
            tx.commit().await.unwrap();
        }
        range.for_each(|n| is_member[n] = adds);
        for n in [n + 1, n] {
            let tx = world.store.begin();
            let s = Scope {
                tx: &tx,
                db: world.db,
                number: 0,
                now: 1_000,
                round: Round::default(),
                space: on(n),
                outbox: None,
                uncounted: None,
                life: Default::default(),
            };
            check_members(&s, &all, |n| is_member[n]).await;
            let oid = oid(&s).await;
            check_chunks(&s, oid).await;
        }
    }
}

#[tokio::test]
async fn hints_of_uncommitted_changes_cost_no_answer() {
    let world = World::new(2).await;
    let all: Vec<Bytes> = (0..6_000).map(|n| int(n * 70_001)).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &all[..1_000]).await);
    let before = {
        let tx = world.store.begin();
        let s = world.scope(&tx);
        let oid = oid(&s).await;
        set::add(&s, &mut slot(&s, "k").await, &all[1_000..]).await.unwrap();
        assert!(firsts(&s, oid).await.len() > 5);
        check_chunks(&s, oid).await;
        oid
    };
    let tx = world.store.begin();
    let s = world.scope(&tx);
    check_members(&s, &all, |n| n < 1_000).await;
    check_chunks(&s, before).await;
}

/// Members added one by one end up in chunks: fewer deltas wait under a chunk than a fold takes in, and no
/// range of deltas grows with the set.
#[tokio::test]
async fn single_members_are_folded() {
    let world = World::new(3).await;
    let words: Vec<Bytes> = (0..1_500).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &words[..200]).await);
    for one in words[200..].chunks(1) {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, one).await);
    }
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let oid = oid(&s).await;
    let waiting = rows::deltas(&s, oid, 0, None).await.unwrap().len();
    let chunks = firsts(&s, oid).await.len();
    assert!(waiting < chunked::FOLD_AT * chunks, "{waiting} deltas under {chunks} chunks");
    assert_eq!(set::members(&s, slot(&s, "k").await.set().unwrap()).await.unwrap().len(), words.len());
}

/// A server that forgets its deltas (it stopped, its attempts were refused) leaves them to folds that read
/// ranges.
#[tokio::test]
async fn forgotten_deltas_are_folded_in_the_end() {
    let world = World::new(4).await;
    let words: Vec<Bytes> = (0..1_000).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &words[..200]).await);
    for (n, part) in words[200..1_000].chunks(20).enumerate() {
        let forgetful =
            Keyspace::open(world.store.clone(), &Env::seeded(1_000, 50 + n as u64), 1).await.unwrap();
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
    let waiting = async || {
        let tx = world.store.begin();
        let s = world.scope(&tx);
        rows::deltas(&s, oid(&s).await, 0, None).await.unwrap().len()
    };
    assert_eq!(waiting().await, 800);
    // Another server removes and adds members under the same chunk: some of its folds take in all.
    for round in 0..120 {
        for part in words[..200].chunks(25) {
            transact!(world, s => match round % 2 {
                0 => set::remove(&s, &mut slot(&s, "k").await, part).await,
                _ => set::add(&s, &mut slot(&s, "k").await, part).await,
            });
        }
    }
    assert!(waiting().await < 400, "{} deltas wait", waiting().await);
}

/// A draw from a chunk with many members reads no range of deltas, but returns members that deltas added.
#[tokio::test]
async fn draws_see_deltas() {
    let world = World::new(5).await;
    let words: Vec<Bytes> = (0..3_000).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &words[..2_900]).await);
    for part in words[2_900..].chunks(20) {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, part).await);
    }
    let mut rng = Rng::seeded(5);
    let mut left = words.len();
    while left > 0 {
        let popped = transact!(world, s => {
            match sample::pop(&s, &mut slot(&s, "k").await, 7, &mut rng).await {
                Ok(popped) => popped.members(&s).await,
                Err(e) => Err(e),
            }
        });
        assert_eq!(popped.len(), left.min(7));
        left -= popped.len();
        if left > 0 {
            let tx = world.store.begin();
            let s = world.scope(&tx);
            let slot = slot(&s, "k").await;
            let found = set::contains_many(&s, slot.set().unwrap(), &popped).await.unwrap();
            assert!(!found.contains(&true), "a popped member must be gone");
            assert_eq!(set::card(&s, slot.set().unwrap()).await.unwrap(), left as u64);
        }
    }
    let tx = world.store.begin();
    assert!(!slot(&world.scope(&tx), "k").await.exists());
}
