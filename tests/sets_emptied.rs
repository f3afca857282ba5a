//! Hazard: a chunked set becomes empty while a transaction relies on its existence.
//!
//! A transaction that removes few members does not read N, so that removals need not wait for each other;
//! several of them together can leave N = 0 under a record that none of them removed. A transaction that
//! answers from the key's existence and then writes must conflict with that: otherwise two transactions that
//! each read what the other writes both commit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod sets_world;

use bytes::Bytes;
use sets_world::{World, slot, word};
use tern::error::StoreError;
use tern::keyspace::Scope;
use tern::store::{Read, Tx};
use tern::types::Value;
use tern::types::object;
use tern::types::set;
use tern::types::set::SetRep;
use tern::types::string::Str;

const MEMBERS: u64 = 600;
/// So many that each writes deltas, not chunks, and that more members are left than the number below which it
/// reads N.
const REMOVERS: u64 = 60;

const KEY: Bytes = Bytes::from_static(b"set");
const FLAG: Bytes = Bytes::from_static(b"flag");

async fn flag_is_up(s: &Scope<'_>) -> bool {
    object::open(s, &FLAG, Read::Serializable).await.unwrap().exists()
}

async fn raise_flag(s: &Scope<'_>) {
    let mut flag = object::open(s, &FLAG, Read::Serializable).await.unwrap();
    object::put(s, &mut flag, Value::Str(Str::Inline(Bytes::from_static(b"1"))), None).unwrap();
}

/// Empties the set from several transactions that all begin before one of them commits, and that all see no
/// flag.
async fn empty(world: &World) {
    let txs: Vec<Tx> = (0..REMOVERS).map(|_| world.store.begin()).collect();
    for (n, tx) in (0..).zip(&txs) {
        let s = world.scope(tx);
        assert!(!flag_is_up(&s).await);
        let part = MEMBERS / REMOVERS;
        let members: Vec<Bytes> = (n * part..(n + 1) * part).map(word).collect();
        let mut slot = slot(&s, "set").await;
        assert_eq!(set::remove(&s, &mut slot, &members).await.unwrap(), part);
    }
    for tx in txs {
        tx.commit().await.unwrap();
    }
}

async fn world() -> World {
    let world = World::new(5).await;
    let members: Vec<Bytes> = (0..MEMBERS).map(word).collect();
    transact!(world, s => set::add(&s, &mut slot(&s, "set").await, &members).await);
    world
}

#[tokio::test]
async fn the_premise_a_record_may_outlive_its_members() {
    let world = world().await;
    empty(&world).await;
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let raw = tx.get(&s.db.record(&KEY), Read::Snapshot).await.unwrap();
    assert!(
        raw.is_some(),
        "no transaction may notice that the set became empty: otherwise this file tests nothing"
    );
    assert!(!slot(&s, "set").await.exists());
}

#[tokio::test]
async fn a_transaction_that_relied_on_an_emptied_set_runs_again() {
    let world = world().await;
    let tx = world.store.begin();
    let s = world.scope(&tx);
    assert!(object::open(&s, &KEY, Read::Serializable).await.unwrap().exists());
    raise_flag(&s).await;
    empty(&world).await;
    // The removers saw no flag, so they come first; but then the set did not exist.
    assert_eq!(tx.commit().await.unwrap_err(), StoreError::Conflict);
}

#[tokio::test]
async fn a_transaction_that_listed_an_emptied_set_runs_again() {
    let world = world().await;
    let tx = world.store.begin();
    let s = world.scope(&tx);
    let slot = slot(&s, "set").await;
    assert!(object::is_live(&s, slot.record().unwrap(), Read::Serializable).await.unwrap());
    raise_flag(&s).await;
    empty(&world).await;
    assert_eq!(tx.commit().await.unwrap_err(), StoreError::Conflict);
}

#[tokio::test]
async fn members_come_and_go_without_waiting_for_each_other() {
    let world = world().await;
    let txs = [world.store.begin(), world.store.begin(), world.store.begin()];
    for (n, tx) in (0..).zip(&txs) {
        let s = world.scope(tx);
        let mut slot = slot(&s, "set").await;
        assert!(matches!(slot.set().unwrap(), Some(SetRep::Chunked(_))));
        assert_eq!(set::contains_many(&s, slot.set().unwrap(), &[word(n)]).await.unwrap(), [true]);
        assert_eq!(set::add(&s, &mut slot, &[word(MEMBERS + n)]).await.unwrap(), 1);
        assert_eq!(set::remove(&s, &mut slot, &[word(n)]).await.unwrap(), 1);
    }
    for tx in txs {
        tx.commit().await.unwrap();
    }
}
