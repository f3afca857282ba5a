//! Numbers and ids are handed out once, despite concurrency and failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, faulty, fresh, word};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tern::env::{Env, Rng};
use tern::error::{Error, StoreError};
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::dictionary::ids::{
    BLOCK, FIRST_INTEGER, MAX_MEMBER, integer_id, integer_of, integer_text,
};
use tern::keyspace::dictionary::interner::Interner;
use tern::keyspace::dictionary::resolve::resolve_some;
use tern::keyspace::{Keyspace, alloc, catalog};
use tern::store::faulty::FaultRates;
use tern::store::{RangeOptions, Read, Store};

/// Allocates in transactions of its own, as many as requested. An unknown result counts as not allocated.
async fn allocate_many(store: Store, seed: u64, n: usize) -> Vec<u32> {
    let mut rng = Rng::seeded(seed);
    let mut out = Vec::new();
    while out.len() < n {
        let tx = store.begin();
        let number = match alloc::allocate(&tx, &mut rng).await {
            Ok(number) => number,
            Err(Error::Store(_)) => continue,
            Err(e) => panic!("{e:?}"),
        };
        tokio::task::yield_now().await;
        if tx.commit().await.is_ok() {
            out.push(number);
        }
    }
    out
}

async fn never_twice(store: Store, tasks: u64, each: usize) {
    let spawn = |seed| tokio::spawn(allocate_many(store.clone(), seed, each));
    let handles: Vec<_> = (0..tasks).map(spawn).collect();
    let mut all = Vec::new();
    for handle in handles {
        all.extend(handle.await.unwrap());
    }
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct.len(), tasks as usize * each);
    let highest = distinct.last().copied().unwrap() as usize;
    assert!(highest < 8 * distinct.len() + 4096, "numbers must stay short: {highest} for {}", distinct.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_allocators_never_get_one_number_twice() {
    let (store, _dir) = fresh().await;
    never_twice(store, 64, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ids_are_unique_if_commits_fail_are_late_or_unknown() {
    let (store, _dir) = fresh().await;
    never_twice(faulty(store, 5, FaultRates::mixed()), 64, 10).await;
}

#[tokio::test]
async fn one_transaction_allocates_distinct_numbers() {
    let (store, _dir) = fresh().await;
    let mut rng = Rng::seeded(1);
    let tx = store.begin();
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        assert!(seen.insert(alloc::allocate(&tx, &mut rng).await.unwrap()));
    }
    tx.commit().await.unwrap();
    let next = allocate_many(store, 2, 50).await;
    assert!(next.iter().all(|n| !seen.contains(n)));
}

#[tokio::test]
async fn windows_leave_no_rows_behind() {
    let (store, _dir) = fresh().await;
    let taken = allocate_many(store.clone(), 3, 1_000).await;
    assert!(taken.iter().any(|n| *n > 1_000), "windows advance");
    let tx = store.begin();
    let windows = tx.get_range(b"a", b"b", RangeOptions::default(), Read::Snapshot).await.unwrap();
    let taken = tx.get_range(b"r", b"s", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(windows.pairs.len(), 1);
    assert!(taken.pairs.len() <= 512, "{} rows", taken.pairs.len());
}

#[tokio::test]
async fn servers_that_open_a_new_store_at_once_agree_on_its_databases() {
    let (store, _dir) = fresh().await;
    let open = |seed| {
        let store = store.clone();
        tokio::spawn(async move { Keyspace::open(store, &Env::seeded(0, seed), 16).await.unwrap() })
    };
    let mut seen = BTreeSet::new();
    for handle in (0..8).map(open).collect::<Vec<_>>() {
        let space = handle.await.unwrap();
        let catalog = space.catalog.load(&store.begin()).await.unwrap();
        seen.insert(format!("{:?}", catalog.places));
        let distinct: BTreeSet<_> = catalog.prefixes().map(|(_, p)| p.as_bytes().to_vec()).collect();
        assert_eq!(distinct.len(), 16);
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn flushes_and_swaps_are_seen_by_the_next_transaction() {
    let world = World::new(9).await;
    let space = Keyspace::open(world.store.clone(), &Env::seeded(0, 9), 4).await.unwrap();
    let mut rng = Rng::seeded(1);
    let before = space.catalog.load(&world.store.begin()).await.unwrap();
    let tx = world.store.begin();
    let catalog = space.catalog.load(&tx).await.unwrap();
    let swapped = catalog::swap(&tx, &catalog, 0, 3).unwrap();
    let flushed = catalog::flush(&tx, &mut rng, &swapped, 0).await.unwrap();
    tx.commit().await.unwrap();
    let after = space.catalog.load(&world.store.begin()).await.unwrap();
    assert_eq!(after.places, flushed.places);
    assert_eq!(after.prefix(3), before.prefix(0));
    assert!(before.prefixes().all(|(_, prefix)| Some(prefix) != after.prefix(0)));
    let tx = world.store.begin();
    let garbage = tx.get_range(b"g", b"h", RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert_eq!(garbage.pairs.len(), 1);
}

#[test]
fn integers_are_their_own_ids_in_order() {
    let half = 1i64 << 61;
    let numbers = [-half, -half + 1, -70_000, -1, 0, 1, 2, 65_536, half - 1];
    let ids: Vec<u64> = numbers.iter().map(|n| integer_id(n.to_string().as_bytes()).unwrap()).collect();
    assert!(ids.is_sorted() && ids.iter().all(|id| *id >= FIRST_INTEGER && id >> 62 == 0b10));
    assert_eq!(ids[4] + 1, ids[5]);
    for (n, id) in numbers.iter().zip(ids) {
        assert_eq!(integer_of(id), Some(*n));
        assert_eq!(integer_text(id).unwrap(), n.to_string());
    }
    for word in
        ["", "-", "-0", "+1", "01", " 1", "1 ", "1a", "1e3", "2305843009213693952", "-2305843009213693953"]
    {
        assert_eq!(integer_id(word.as_bytes()), None, "{word}");
    }
    for word in ["9223372036854775807", "-9223372036854775808", "99999999999999999999"] {
        assert_eq!(integer_id(word.as_bytes()), None, "{word}");
    }
}

#[tokio::test]
async fn members_get_ids_once_and_come_back() {
    let world = World::new(11).await;
    let ids = &world.space.ids;
    let mut members: Vec<Bytes> = (0..3_000).map(word).collect();
    members.extend([Bytes::new(), Bytes::from_static(b"\0\xff"), Bytes::from_static(b"17")]);
    members.extend([512, 513, 60_000, MAX_MEMBER].map(|len| Bytes::from(vec![b'x'; len])));
    members.push(word(7));
    let tx = world.store.begin();
    assert_eq!(ids.find(&tx, &[word(7)]).await.unwrap(), [None]);
    let first = ids.intern(&tx, Round::default(), &members).await.unwrap();
    assert!(first[..3_000].iter().all(|i| i.fresh));
    assert!(
        first.windows(2).take(2_999).all(|w| w[1].id == w[0].id + 1),
        "ids must follow the order of the call"
    );
    assert_eq!(first.last(), first.get(7), "a member must have one id");
    tx.commit().await.unwrap();
    let tx = world.store.begin();
    let again = ids.intern(&tx, Round::default(), &members).await.unwrap();
    assert!(!tx.is_write() && again.iter().all(|i| !i.fresh || i.id >= FIRST_INTEGER));
    let numbers: Vec<u64> = again.iter().map(|i| i.id).collect();
    assert_eq!(numbers, first.iter().map(|i| i.id).collect::<Vec<_>>());
    assert_eq!(ids.resolve(&tx, &numbers).await.unwrap(), members);
    let mixed: Vec<u64> = numbers.iter().rev().step_by(3).copied().collect();
    let back: Vec<Bytes> = members.iter().rev().step_by(3).cloned().collect();
    assert_eq!(ids.resolve(&tx, &mixed).await.unwrap(), back);
    let unknown: Vec<u64> = mixed[..50].iter().copied().chain([FIRST_INTEGER - 1]).collect();
    let error = ids.resolve(&tx, &unknown).await.unwrap_err();
    assert!(error.into_reply().0.contains("no member for id 0x"));
}

#[tokio::test]
async fn too_long_and_too_many_are_refused_before_writing() {
    let world = World::new(12).await;
    let tx = world.store.begin();
    let long = Bytes::from(vec![b'x'; MAX_MEMBER + 1]);
    let error =
        world.space.ids.intern(&tx, Round::default(), &[word(1), long]).await.unwrap_err().into_reply();
    assert_eq!(error.0, "ERR a set member of 100001 bytes exceeds the store's limit of 100000");
    let many: Vec<Bytes> = (0..60_000).map(word).collect();
    let error = world.space.ids.intern(&tx, Round::default(), &many).await.unwrap_err().into_reply();
    assert!(error.0.contains("limit 10 MB"), "{}", error.0);
    assert!(!tx.is_write());
}

/// Two servers and many tasks intern the same members: one id each.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_interning_agrees() {
    let (store, _dir) = fresh().await;
    agree(store.clone()).await;
    let (store, _dir) = fresh().await;
    agree(faulty(store, 6, FaultRates::mixed())).await;
}

async fn agree(store: Store) {
    let servers: Vec<Arc<Interner>> =
        (0..2).map(|n| Arc::new(Interner::new(store.clone(), &Env::seeded(0, n)))).collect();
    let task = |n: u64| {
        let (store, ids) = (store.clone(), servers[n as usize % 2].clone());
        tokio::spawn(async move {
            let mut rng = Rng::seeded(n);
            let mut seen = Vec::new();
            for _ in 0..40 {
                let members: Vec<Bytes> = (0..5).map(|_| word(rng.below(60))).collect();
                loop {
                    let tx = store.begin();
                    let interned = match ids.intern(&tx, Round::default(), &members).await {
                        Ok(interned) => interned,
                        Err(Error::Store(StoreError::TooOld)) => continue,
                        Err(e) => panic!("{e:?}"),
                    };
                    tokio::task::yield_now().await;
                    match tx.commit().await {
                        Ok(_) => {
                            break seen.extend(members.iter().cloned().zip(interned.iter().map(|i| i.id)));
                        }
                        Err(StoreError::Conflict | StoreError::TooOld | StoreError::Unknown) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            }
            seen
        })
    };
    let mut by_member: BTreeMap<Bytes, u64> = BTreeMap::new();
    for handle in (0..16).map(task).collect::<Vec<_>>() {
        for (member, id) in handle.await.unwrap() {
            assert_eq!(*by_member.entry(member).or_insert(id), id);
        }
    }
    let distinct: BTreeSet<u64> = by_member.values().copied().collect();
    assert_eq!(distinct.len(), by_member.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leased_ids_are_distinct_across_tasks_servers_and_blocks() {
    let (store, _dir) = fresh().await;
    leases(store.clone(), 4 * 5).await;
    let (store, _dir) = fresh().await;
    leases(faulty(store, 7, FaultRates::mixed()), 4 * 8).await;
}

async fn leases(store: Store, spare: usize) {
    let servers: Vec<Arc<Interner>> =
        (0..4).map(|n| Arc::new(Interner::new(store.clone(), &Env::seeded(0, n)))).collect();
    let task = |n: usize| {
        let (ids, store) = (servers[n % 4].clone(), store.clone());
        tokio::spawn(async move {
            let mut out = Vec::new();
            for k in 0..40 {
                let n = if k % 8 == 0 { 20_000 } else { 7 };
                out.extend(loop {
                    match ids.take(&store.begin(), n).await {
                        Err(Error::Store(StoreError::TooOld)) => {}
                        taken => break taken.unwrap(),
                    }
                });
            }
            out
        })
    };
    let mut all = BTreeSet::new();
    let mut n = 0;
    for handle in (0..16).map(task).collect::<Vec<_>>() {
        let ids = handle.await.unwrap();
        n += ids.len();
        all.extend(ids);
    }
    assert_eq!(all.len(), n);
    assert!(all.iter().all(|id| id >> 62 == 0));
    let blocks: BTreeSet<u64> = all.iter().map(|id| id / BLOCK).collect();
    assert!(blocks.len() < n / BLOCK as usize + spare, "{} blocks for {n} ids", blocks.len());
}

#[tokio::test]
async fn a_range_that_ends_before_the_first_wanted_row_continues() {
    let world = World::new(9).await;
    let ids = &world.space.ids;
    let intern = async |members: Vec<Bytes>| {
        let tx = world.store.begin();
        let interned = ids.intern(&tx, Round::default(), &members).await.unwrap();
        tx.commit().await.unwrap();
        interned.into_iter().map(|i| i.id).collect::<Vec<u64>>()
    };
    // Members interned one by one have rows of their own: a range that starts at their group reads the first
    // of them in vain.
    let mut singles = Vec::new();
    for n in 0..30 {
        singles.extend(intern(vec![word(n)]).await);
    }
    let skipped = singles.iter().position(|id| id % 16 == 4).unwrap();
    let wanted = &singles[skipped..skipped + 10];
    let tx = world.store.begin();
    let far: Vec<u64> = intern((100..110).map(word).collect()).await.into_iter().skip(1).collect();
    drop(tx);
    let all: Vec<u64> = wanted.iter().chain(&far).copied().collect();
    for order in [all.clone(), far.iter().chain(wanted).copied().collect()] {
        for bytes in 1..400 {
            let (mut at, mut piece) = (0, tern::keyspace::packed::Packed::default());
            while at < order.len() {
                piece.clear();
                let tx = world.store.begin();
                resolve_some(&tx, &order[at..], bytes, &mut piece).await.unwrap();
                assert!(!piece.is_empty(), "{bytes} bytes from {at}");
                at += piece.len();
            }
        }
    }
}
