//! The current prefix of each database.
//!
//! Prefixes come from the allocator and are never used twice. So FLUSHDB is a new prefix and one garbage row,
//! and SWAPDB exchanges two rows: both O(1). A row also counts the swaps of its number: two swaps bring a
//! prefix back, and WATCH, which remembers rows below it, must see that it has been elsewhere. Every change
//! bumps the store's metadata version, which every transaction reads for free; so a server learns of it with
//! its next transaction.
//!
//! A transaction that flushes or swaps continues with the [`Catalog`] that [`flush`] or [`swap`] returns. It
//! must not read the metadata version again, and this copy must not get into the cache: its version is not
//! known before the commit.

use super::alloc;
use super::dictionary::collector::{Round, State};
use super::keys::{Prefix, root, root::Garbage};
use crate::env::{Env, Rng};
use crate::error::{ReplyError, Result, StoreError};
use crate::store::{RangeOptions, Read, Retries, Store, Tx, key_after};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The places of all databases, as one transaction reads them.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The metadata version at which this was read.
    pub(crate) version: u64,
    /// By database number.
    pub places: Vec<Place>,
    /// The collector's round, which changes only with the metadata version.
    pub round: Round,
    /// The bits that any server listens to: see [`super::cluster::bus`].
    pub(crate) listening: u8,
}

impl Catalog {
    /// The place of database `db`.
    pub(crate) fn place(&self, db: u8) -> Option<Place> {
        self.places.get(usize::from(db)).copied()
    }
    /// The prefix of the rows of database `db`.
    pub fn prefix(&self, db: u8) -> Option<Prefix> {
        self.place(db).map(|place| place.prefix)
    }
    /// All database numbers with their prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = (u8, Prefix)> {
        (0u8..).zip(self.places.iter().map(|place| place.prefix))
    }
    fn put(&mut self, tx: &Tx, db: u8, place: Place) -> Result<()> {
        *self.places.get_mut(usize::from(db)).ok_or(NO_DATABASE)? = place;
        Ok(tx.set(&root::database(db), &place.encode())?)
    }
    /// For a transaction that could not read the catalog.
    pub(crate) fn without_databases(&self) -> Arc<Catalog> {
        Arc::new(Catalog { places: Vec::new(), ..self.clone() })
    }
}

/// The stored row of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The prefix of its rows.
    pub prefix: Prefix,
    /// How often its number was swapped.
    pub swaps: u64,
}

impl Place {
    /// The stored bytes: the prefix, then the number of swaps (LE) if not 0.
    pub fn encode(self) -> Vec<u8> {
        let swaps = self.swaps.to_le_bytes();
        let swaps = if self.swaps == 0 { &[][..] } else { &swaps };
        [self.prefix.as_bytes(), swaps].concat()
    }
    /// Parses the stored bytes.
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let prefix = Prefix::of_row(raw)?;
        let swaps = match raw.strip_prefix(prefix.as_bytes())? {
            [] => 0,
            more => Some(u64::from_le_bytes(more.try_into().ok()?)).filter(|swaps| *swaps > 0)?,
        };
        Some(Place { prefix, swaps })
    }
}

/// Caches the catalog by the store's metadata version, which is free to read.
pub struct CatalogCache {
    databases: u8,
    cached: ArcSwap<Catalog>,
}

impl CatalogCache {
    /// Allocates missing databases, then reads. Several servers may open a new store at once.
    pub(crate) async fn open(store: &Store, env: &Env, databases: u8) -> Result<Self> {
        let mut rng = env.rng();
        let mut retries = Retries::endless().idempotent();
        loop {
            match try_open(store, &mut rng, databases).await {
                Ok(catalog) => return Ok(CatalogCache { databases, cached: ArcSwap::from_pointee(catalog) }),
                Err(e) => retries.on_error(e)?,
            }
        }
    }

    /// The catalog that `tx` sees.
    pub async fn load(&self, tx: &Tx) -> Result<Arc<Catalog>> {
        let version = tx.metadata_version().await?;
        let cached = self.cached.load();
        if cached.version == version {
            return Ok(Arc::clone(&cached));
        }
        let fresh = Arc::new(read(tx, self.databases).await?);
        self.cached.store(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// The catalog that was read last, by any transaction.
    pub(crate) fn last(&self) -> Arc<Catalog> {
        self.cached.load_full()
    }

    /// Drops the cached catalog: no store has this metadata version.
    pub(crate) fn forget(&self) {
        let forgotten = Catalog { version: u64::MAX, ..Catalog::clone(&self.cached.load()) };
        self.cached.store(Arc::new(forgotten));
    }

    /// The number of databases.
    pub fn databases(&self) -> u8 {
        self.databases
    }
}

/// Empties database `db`: gives it a new prefix and makes the old one garbage.
pub async fn flush(tx: &Tx, rng: &mut Rng, catalog: &Catalog, db: u8) -> Result<Arc<Catalog>> {
    let mut next = catalog.clone();
    let before = catalog.place(db).ok_or(NO_DATABASE)?;
    tx.set(&root::garbage(Garbage::Database(before.prefix)), &[])?;
    next.put(tx, db, Place { prefix: allocate(tx, rng).await?, ..before })?;
    tx.bump_metadata_version()?;
    Ok(Arc::new(next))
}

/// Exchanges the contents of two databases.
pub fn swap(tx: &Tx, catalog: &Catalog, a: u8, b: u8) -> Result<Arc<Catalog>> {
    let mut next = catalog.clone();
    let place = |db: u8| catalog.place(db).ok_or(NO_DATABASE);
    for (db, from) in [(a, b), (b, a)] {
        next.put(tx, db, Place { prefix: place(from)?.prefix, swaps: place(db)?.swaps.wrapping_add(1) })?;
    }
    tx.bump_metadata_version()?;
    Ok(Arc::new(next))
}

const HALF_COPIED: ReplyError =
    ReplyError::new("a `tern copy` into this store has not finished: run it again, it resumes");
const NO_DATABASE: ReplyError = ReplyError::new("ERR DB index is out of range");

async fn try_open(store: &Store, rng: &mut Rng, databases: u8) -> Result<Catalog> {
    let tx = store.begin();
    fill(&tx, rng, databases).await?;
    tx.commit().await?;
    read(&store.begin(), databases).await
}

async fn fill(tx: &Tx, rng: &mut Rng, databases: u8) -> Result<()> {
    if tx.get(&root::half_copied(), Read::Serializable).await?.is_some() {
        return Err(HALF_COPIED.into());
    }
    for db in 0..databases {
        if tx.get(&root::database(db), Read::Serializable).await?.is_none() {
            let place = Place { prefix: allocate(tx, rng).await?, swaps: 0 };
            tx.set(&root::database(db), &place.encode())?;
        }
    }
    if tx.is_write() {
        tx.bump_metadata_version()?;
    }
    Ok(())
}

async fn allocate(tx: &Tx, rng: &mut Rng) -> Result<Prefix> {
    Ok(Prefix::from_number(alloc::allocate(tx, rng).await?))
}

/// One round trip: on a cluster, every change of the metadata version makes every server read this.
async fn read(tx: &Tx, databases: u8) -> Result<Catalog> {
    let version = tx.metadata_version().await?;
    let (begin, end) = (root::database(0), key_after(&root::collector()));
    let (from, to) = root::listeners();
    let (rows, listeners) = tokio::try_join!(
        tx.get_range(&begin, &end, RangeOptions::default(), Read::Serializable),
        tx.get_range(&from, &to, RangeOptions::default(), Read::Serializable),
    )?;
    let rows = rows.pairs;
    let places = (0..databases).map(|db| {
        let row = rows.iter().find(|(key, _)| key[..] == root::database(db));
        let place = row.and_then(|(_, raw)| Place::decode(raw));
        place.ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")).into())
    });
    let places = places.collect::<Result<_>>()?;
    let collector = rows.last().filter(|(key, _)| key[..] == root::collector());
    let state = collector.map(|(_, raw)| State::decode(raw)).transpose()?.unwrap_or_default();
    let listening =
        listeners.pairs.iter().filter_map(|(_, bits)| bits.first()).fold(0, |all, bits| all | bits);
    Ok(Catalog { version, places, round: state.round(version, tx.generation().await?), listening })
}
