//! A keyspace on a store of its own, for tests of sets at the level of types.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[allow(clippy::duplicate_mod, reason = "a test may use several of the rigs")]
#[path = "../fdb_cluster/mod.rs"]
mod fdb_cluster;

use bytes::Bytes;
use tern::env::{Clock, Env};
use tern::error::{Error, Result, StoreError};
use tern::keyspace::dictionary::collector::Round;
use tern::keyspace::keys::Prefix;
use tern::keyspace::{Keyspace, Scope};
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store, Tx};
use tern::types::object::{self, Slot};

pub struct World {
    pub space: Keyspace,
    pub store: Store,
    pub db: Prefix,
    _dir: tempfile::TempDir,
}

/// A new store: the one that `TERN_TEST_STORE` selects, or the embedded engine.
pub async fn fresh() -> (Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    #[cfg(feature = "fdb")]
    if fdb_cluster::wanted() {
        return (fdb_cluster::fresh().await, dir);
    }
    let mut options = LocalOptions::new(Clock::System);
    options.fsync = Fsync::No;
    (Store::Local(Local::open(dir.path(), options).unwrap()), dir)
}

pub fn faulty(store: Store, seed: u64, rates: FaultRates) -> Store {
    Store::Faulty(Faulty::new(store, seed, rates))
}

impl World {
    pub async fn new(seed: u64) -> Self {
        Self::on(fresh().await, seed).await
    }
    /// On an engine that answers many commits with a conflict, late.
    pub async fn unlucky(seed: u64) -> Self {
        let (store, dir) = fresh().await;
        let rates = FaultRates { conflict: 0.2, too_old_commit: 0.05, delay: 0.05, ..FaultRates::default() };
        Self::on((faulty(store, seed, rates), dir), seed).await
    }
    async fn on((store, dir): (Store, tempfile::TempDir), seed: u64) -> Self {
        let space = Keyspace::open(store.clone(), &Env::seeded(1_000, seed), 1).await.unwrap();
        let db = space.catalog.load(&store.begin()).await.unwrap().prefix(0).unwrap();
        World { space, store, db, _dir: dir }
    }
    pub fn scope<'a>(&'a self, tx: &'a Tx) -> Scope<'a> {
        Scope {
            tx,
            db: self.db,
            number: 0,
            now: 1_000,
            round: Round::default(),
            space: &self.space,
            outbox: None,
            uncounted: None,
            life: Default::default(),
        }
    }
}

pub async fn slot(s: &Scope<'_>, key: &str) -> Slot {
    object::open_members(s, &Bytes::copy_from_slice(key.as_bytes())).await.unwrap()
}

pub fn word(n: u64) -> Bytes {
    Bytes::from(format!("member:{n}"))
}

pub fn int(n: i64) -> Bytes {
    Bytes::from(n.to_string())
}

/// Runs `$body` with `$s` a scope in a transaction until it commits.
#[macro_export]
macro_rules! transact {
    ($world:expr, $s:ident => $body:expr) => {
        loop {
            let tx = $world.store.begin();
            let $s = $world.scope(&tx);
            let done: tern::error::Result<_> = async { $body }.await;
            match $crate::sets_world::commit(tx, done).await {
                Some(done) => break done,
                None => continue,
            }
        }
    };
}

/// None: run it again.
pub async fn commit<T>(tx: Tx, done: Result<T>) -> Option<T> {
    let done = match done {
        Err(Error::Store(e)) if e.is_retryable() => return None,
        other => other.unwrap(),
    };
    match tx.commit().await {
        Ok(_) => Some(done),
        Err(StoreError::Conflict | StoreError::TooOld) => None,
        Err(e) => panic!("{e}"),
    }
}
