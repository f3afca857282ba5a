//! Concurrent changes of one set from several servers: no member is lost or counted twice, N is the number of
//! members, and a key exists exactly while its set has members.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, commit, int, slot, word};
use std::collections::BTreeSet;
use std::sync::Arc;
use tern::env::{Env, Rng};
use tern::error::Result;
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::{Keyspace, Scope};
use tern::store::{RangeOptions, Read};
use tern::types::memo::Memo;
use tern::types::set::SetRep;
use tern::types::set::{self, algebra, chunked, rows, sample};

/// A second server on the same store.
async fn server(world: &World, seed: u64) -> Keyspace {
    Keyspace::open(world.store.clone(), &Env::seeded(1_000, seed), 1).await.unwrap()
}

/// The set's members, checked against its count, deltas, chunks and sampling weights.
async fn audit(s: &Scope<'_>, key: &str) -> BTreeSet<Bytes> {
    let slot = slot(s, key).await;
    let rep = slot.set().unwrap();
    let members = set::members(s, rep).await.unwrap();
    assert_eq!(set::card(s, rep).await.unwrap(), members.len() as u64, "N of {key}");
    assert_eq!(slot.exists(), !members.is_empty());
    if let Some(SetRep::Chunked(oid)) = rep {
        for (id, adds) in rows::deltas(s, *oid, 0, None).await.unwrap() {
            let chunk = rows::locate(s, *oid, id).await.unwrap();
            assert_ne!(chunk.contains(id).unwrap(), adds, "a delta contradicts its chunk");
        }
        weights(s, *oid).await;
    }
    let distinct: BTreeSet<Bytes> = members.iter().cloned().collect();
    assert_eq!(distinct.len(), members.len());
    distinct
}

/// Sums and weights are those of the existing chunks.
async fn weights(s: &Scope<'_>, oid: tern::keyspace::keys::Oid) {
    let mut want = vec![0u64; usize::from(rows::BUCKETS)];
    let mut chunks = 0;
    let mut at = Some(0);
    while let Some(id) = at {
        let chunk = rows::locate(s, oid, id).await.unwrap();
        let bucket = rows::bucket(chunk.first);
        let row = s.tx.get(&s.db.weight(oid, bucket, chunk.first), Read::Snapshot).await.unwrap().unwrap();
        let weight = u64::from_le_bytes(row[..].try_into().unwrap());
        assert_eq!(weight, chunk.count().unwrap() + rows::SLACK);
        want[usize::from(bucket)] += weight;
        chunks += 1;
        at = chunk.next;
    }
    let mut found = 0;
    for bucket in 0..rows::BUCKETS {
        let (begin, end) = (s.db.weight(oid, bucket, 0), s.db.set_rows_end(oid, 0x10 + bucket));
        let page = s.tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await.unwrap();
        found += page.pairs.len();
        let sum = s.tx.get(&s.db.weight_sum(oid, bucket), Read::Snapshot).await.unwrap();
        let sum = sum.map_or(0, |raw| u128::from_le_bytes(raw[..].try_into().unwrap()) as u64);
        assert_eq!(sum, want[usize::from(bucket)]);
    }
    assert_eq!(found, chunks);
}

type Members = fn(u64) -> Bytes;

fn mixed(n: u64) -> Bytes {
    if n.is_multiple_of(2) { int(n as i64 * 40_001) } else { word(n) }
}

/// Adds the change of the number of members to `net`.
async fn change(s: &Scope<'_>, rng: &mut Rng, space: u64, member: Members) -> Result<i64> {
    let mut slot = slot(s, "k").await;
    let n = if rng.below(10) == 0 { 200 } else { 1 + rng.below(4) };
    let some: Vec<Bytes> = (0..n).map(|_| member(rng.below(space))).collect();
    tokio::task::yield_now().await;
    match rng.below(5) {
        0 | 1 => Ok(set::add(s, &mut slot, &some).await? as i64),
        2 | 3 => Ok(-(set::remove(s, &mut slot, &some).await? as i64)),
        _ => Ok(-(sample::pop(s, &mut slot, n, rng).await?.len() as i64)),
    }
}

async fn churn(world: World, seed: u64, space: u64, member: Members, rounds: usize) {
    let world = Arc::new(world);
    let servers = [Arc::new(server(&world, 1).await), Arc::new(server(&world, 2).await)];
    let task = |n: usize| {
        let (world, space_of) = (world.clone(), servers[n % 2].clone());
        tokio::spawn(async move {
            let mut rng = Rng::seeded(seed * 100 + n as u64);
            let mut net = 0;
            for _ in 0..rounds {
                loop {
                    let tx = world.store.begin();
                    let s = Scope {
                        tx: &tx,
                        db: world.db,
                        number: 0,
                        now: 1_000,
                        round: Round::default(),
                        space: &space_of,
                        outbox: None,
                        uncounted: None,
                        life: Default::default(),
                    };
                    let done = change(&s, &mut rng, space, member).await;
                    tokio::task::yield_now().await;
                    if let Some(change) = commit(tx, done).await {
                        break net += change;
                    }
                }
            }
            net
        })
    };
    let mut net = 0;
    for handle in (0..8).map(task).collect::<Vec<_>>() {
        net += handle.await.unwrap();
    }
    let tx = world.store.begin();
    let members = audit(&world.scope(&tx), "k").await;
    assert_eq!(members.len() as i64, net);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_set_holds_added_minus_removed_members() {
    churn(World::new(1).await, 1, 4_000, mixed, 60).await;
    churn(World::new(2).await, 2, 1_000, word, 60).await;
    churn(World::unlucky(3).await, 3, 2_000, mixed, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sets_that_become_empty_and_come_back() {
    for seed in 10..14 {
        churn(World::new(seed).await, seed, 30, word, 40).await;
        churn(World::new(seed).await, seed, 250, mixed, 40).await;
        churn(World::unlucky(seed).await, seed, 140, mixed, 20).await;
    }
}

/// Moves members between sets, one or many at a time, in every possible way.
async fn shuffle(s: &Scope<'_>, rng: &mut Rng) -> Result<()> {
    let (from, to) = (format!("s{}", rng.below(3)), format!("s{}", rng.below(3)));
    if from == to {
        return Ok(());
    }
    let (mut source, mut target) = (slot(s, &from).await, slot(s, &to).await);
    tokio::task::yield_now().await;
    match rng.below(6) {
        0..3 => {
            let n = if rng.below(4) == 0 { 150 } else { 1 };
            let popped = sample::pop(s, &mut source, n, rng).await?.members(s).await?;
            if !popped.is_empty() {
                assert_eq!(set::add(s, &mut target, &popped).await?, popped.len() as u64);
            }
        }
        3 => {
            let member = [mixed(rng.below(TOKENS))];
            if set::remove(s, &mut source, &member).await? == 1 {
                assert_eq!(set::add(s, &mut target, &member).await?, 1);
            }
        }
        4 => {
            let all = algebra::combine(s, algebra::Op::Union, &[source.set()?, target.set()?], None).await?;
            tern::types::object::remove(s, &mut source)?;
            algebra::store(s, &mut target, all).await?;
        }
        _ => {
            if let Some(SetRep::Chunked(oid)) = source.set()? {
                chunked::fold(s, *oid, 0, 1 << 20).await?;
            }
        }
    }
    Ok(())
}

const TOKENS: u64 = 900;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_that_only_move_are_never_lost_nor_doubled() {
    moves(World::new(3).await).await;
    moves(World::unlucky(3).await).await;
}

async fn moves(world: World) {
    let world = Arc::new(world);
    let tokens: Vec<Bytes> = (0..TOKENS).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "s0").await, &tokens).await);
    let servers = [Arc::new(server(&world, 1).await), Arc::new(server(&world, 2).await)];
    let task = |n: usize| {
        let (world, space) = (world.clone(), servers[n % 2].clone());
        tokio::spawn(async move {
            let mut rng = Rng::seeded(n as u64);
            for _ in 0..50 {
                loop {
                    let tx = world.store.begin();
                    let s = Scope {
                        tx: &tx,
                        db: world.db,
                        number: 0,
                        now: 1_000,
                        round: Round::default(),
                        space: &space,
                        outbox: None,
                        uncounted: None,
                        life: Default::default(),
                    };
                    let done = shuffle(&s, &mut rng).await;
                    if commit(tx, done).await.is_some() {
                        break;
                    }
                }
            }
        })
    };
    for handle in (0..8).map(task).collect::<Vec<_>>() {
        handle.await.unwrap();
    }
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let mut seen = BTreeSet::new();
    for key in ["s0", "s1", "s2"] {
        for member in audit(&s, key).await {
            assert!(seen.insert(member), "a member in two sets");
        }
    }
    assert_eq!(seen, tokens.into_iter().collect());
}

/// Two transactions that touch different members of a set both commit; the same member conflicts.
#[tokio::test]
async fn conflicts_are_on_members_alone() {
    let world = World::new(4).await;
    let many: Vec<Bytes> = (0..2_000).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &many).await);
    let (a, b, c) = (world.store.begin(), world.store.begin(), world.store.begin());
    for (tx, member, adds) in [(&a, mixed(5_000), true), (&b, mixed(7), false), (&c, mixed(7), false)] {
        let s = world.scope(tx);
        let mut slot = slot(&s, "k").await;
        let changed = if adds {
            set::add(&s, &mut slot, &[member]).await
        } else {
            set::remove(&s, &mut slot, &[member]).await
        };
        assert_eq!(changed.unwrap(), 1);
    }
    a.commit().await.unwrap();
    b.commit().await.unwrap();
    assert!(c.commit().await.is_err(), "one of two removals of a member must fail");
}

/// A transaction that writes what it has drawn conflicts with the removal of that member, and with no other; also if an
/// earlier draw has read all but the member.
#[tokio::test]
async fn a_drawn_member_is_relied_on() {
    let world = World::new(7).await;
    let many: Vec<Bytes> = (0..2_000).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &many).await);
    for n in 0..20 {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &[mixed(9_000 + n)]).await);
    }
    let (mut rng, mut in_vain) = (Rng::seeded(3), 0);
    for round in 0..200 {
        let (draws, is_drawn) = (1 + round % 3, round % 2 == 0);
        let tx = world.store.begin();
        let (s, memo) = (world.scope(&tx), Memo::default());
        let slot_of_k = slot(&s, "k").await;
        let rep = slot_of_k.set().unwrap();
        let mut drawn = Vec::new();
        for _ in 0..draws {
            let some = match round % 5 {
                0 => sample::repeated(&s, rep, 2, &mut rng, &memo).await,
                1 => sample::distinct(&s, rep, 2, &mut rng, &memo).await,
                _ => sample::distinct(&s, rep, 1, &mut rng, &memo).await,
            };
            drawn.extend(some.unwrap().members(&s).await.unwrap());
        }
        tx.set(b"test", &drawn[0]).unwrap();
        let aside = world.store.begin();
        let all = audit(&world.scope(&aside), "k").await;
        let gone = match is_drawn {
            true => drawn[round % drawn.len()].clone(),
            false => all.into_iter().find(|member| !drawn.contains(member)).unwrap(),
        };
        transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, std::slice::from_ref(&gone)).await);
        let conflicted = tx.commit().await.is_err();
        assert!(conflicted || !is_drawn, "round {round}: {drawn:?}, {gone:?}");
        in_vain += u64::from(conflicted && !is_drawn);
    }
    assert!(in_vain <= 3, "{in_vain} conflicts with the removal of others: more than a fold explains");
}

/// What a transaction has noted about a set holds until it writes.
#[tokio::test]
async fn a_memo_forgets_what_its_transaction_changes() {
    let world = World::new(8).await;
    let many: Vec<Bytes> = (0..2_000).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &many).await);
    let tx = world.store.begin();
    let (s, memo, key) = (world.scope(&tx), Memo::default(), Bytes::from_static(b"k"));
    let mut rng = Rng::seeded(4);
    for kept in (1..40).rev() {
        let mut slot = memo.open_members(&s, &key).await.unwrap();
        assert!(slot.exists(), "{kept} are left");
        assert_eq!(set::add_noting(&s, &mut slot, &many[..1], &memo).await.unwrap(), 0);
        let drawn = sample::distinct(&s, slot.set().unwrap(), 1, &mut rng, &memo).await.unwrap();
        assert!(many[..50 * (kept + 1)].contains(&drawn.members(&s).await.unwrap()[0]), "{kept}");
        set::remove(&s, &mut slot, &many[50 * kept..50 * (kept + 1)]).await.unwrap();
        let rep = memo.open_members(&s, &key).await.unwrap().set().unwrap().cloned();
        let [first, last] = [0, 50 * kept].map(|n| &many[n]);
        assert!(!set::contains(&s, rep.as_ref(), last, &memo).await.unwrap());
        assert!(set::contains(&s, rep.as_ref(), first, &memo).await.unwrap());
    }
    let mut slot = memo.open_members(&s, &key).await.unwrap();
    set::remove(&s, &mut slot, &many[..50]).await.unwrap();
    assert!(!memo.open_members(&s, &key).await.unwrap().exists());
}

/// A fold begun before a member was added keeps it; so does one of two concurrent folds.
#[tokio::test]
async fn folds_and_changes_do_not_undo_each_other() {
    let world = World::new(5).await;
    let many: Vec<Bytes> = (0..2_000).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &many).await);
    for n in 0..20 {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &[mixed(9_000 + n)]).await);
    }
    let (fold, other_fold, bulk) = (world.store.begin(), world.store.begin(), world.store.begin());
    for tx in [&fold, &other_fold] {
        let s = world.scope(tx);
        let slot = slot(&s, "k").await;
        let Some(SetRep::Chunked(oid)) = slot.set().unwrap() else { panic!("chunked") };
        chunked::fold(&s, *oid, 0, 1 << 20).await.unwrap();
    }
    let s = world.scope(&bulk);
    set::remove(&s, &mut slot(&s, "k").await, &many[..1_000]).await.unwrap();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &[mixed(9_100)]).await);
    transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, &many[1_500..1_503]).await);
    fold.commit().await.unwrap();
    assert!(other_fold.commit().await.is_err(), "two folds of a chunk must conflict");
    assert!(bulk.commit().await.is_err(), "a write over a folded chunk must conflict");
    let tx = world.store.begin();
    assert_eq!(audit(&world.scope(&tx), "k").await.len(), 2_000 + 20 + 1 - 3);
}

/// Concurrent transactions remove the last members: the key is gone, and adding brings it back whole.
#[tokio::test]
async fn an_add_beside_the_removal_of_the_rest_is_kept() {
    let world = World::new(6).await;
    let many: Vec<Bytes> = (0..1_200).map(mixed).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &many).await);
    let (first, second) = (world.store.begin(), world.store.begin());
    for (tx, part) in [(&first, &many[..600]), (&second, &many[600..])] {
        let s = world.scope(tx);
        set::remove(&s, &mut slot(&s, "k").await, part).await.unwrap();
    }
    first.commit().await.unwrap();
    if second.commit().await.is_err() {
        transact!(world, s => set::remove(&s, &mut slot(&s, "k").await, &many[600..]).await);
    }
    let tx = world.store.begin();
    assert!(!slot(&world.scope(&tx), "k").await.exists());
    let (add, over) = (world.store.begin(), world.store.begin());
    let mut seen = Vec::new();
    for (tx, member) in [(&add, mixed(1)), (&over, mixed(2))] {
        let s = world.scope(tx);
        seen.push(set::add(&s, &mut slot(&s, "k").await, &[member]).await.unwrap());
    }
    assert_eq!(seen, [1, 1]);
    add.commit().await.unwrap();
    if over.commit().await.is_err() {
        transact!(world, s => set::add(&s, &mut slot(&s, "k").await, &[mixed(2)]).await);
    }
    let tx = world.store.begin();
    assert_eq!(audit(&world.scope(&tx), "k").await, [mixed(1), mixed(2)].into());
}
