//! Which prefix a database has now.
//!
//! Prefixes come from the allocator and are never used twice. So FLUSHDB is a new prefix and one garbage row, and
//! SWAPDB exchanges two rows: both O(1). Every change bumps the store's metadata version, which every transaction
//! reads for free; a server thus learns of it with its next transaction.
//!
//! A transaction that flushes or swaps goes on with the [`Catalog`] that [`flush`] or [`swap`] returns. It must not
//! read the metadata version again, and this copy must not get into the cache: its version is not known before the
//! commit.

use super::alloc;
use super::collector::{Round, State};
use super::keys::{Prefix, root, root::Garbage};
use crate::env::{Env, Rng};
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::store::{RangeOptions, Read, Store, Tx, key_after};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The prefixes of all databases, as one transaction reads them.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The metadata version that this was read at.
    pub version: u64,
    /// By database number.
    pub prefixes: Vec<Prefix>,
    /// Where the collection of the dictionary stands: what matters to writers changes with the metadata version only.
    pub round: Round,
    /// What any server listens to: see [`super::message_log`].
    pub listening: u8,
}

impl Catalog {
    /// For who has not read it.
    pub fn without_databases(&self) -> Arc<Catalog> {
        Arc::new(Catalog { prefixes: Vec::new(), ..self.clone() })
    }
}

/// Caches the catalog by the store's metadata version, which is free to read.
pub struct CatalogCache {
    databases: u8,
    cached: ArcSwap<Catalog>,
}

impl CatalogCache {
    /// Allocates what is missing, then reads. Several servers may open a new store at once.
    pub async fn open(store: &Store, env: &Env, databases: u8) -> Result<Self> {
        let mut rng = env.rng();
        loop {
            match try_open(store, &mut rng, databases).await {
                Ok(catalog) => return Ok(CatalogCache { databases, cached: ArcSwap::from_pointee(catalog) }),
                Err(Error::Store(e)) if e.is_retryable() || e == StoreError::Unknown => {}
                Err(e) => return Err(e),
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

    /// The one that was read last, by whatever transaction.
    pub fn last(&self) -> Arc<Catalog> {
        self.cached.load_full()
    }

    /// Drops what is cached: no store has this metadata version.
    pub fn forget(&self) {
        let forgotten = Catalog { version: u64::MAX, ..Catalog::clone(&self.cached.load()) };
        self.cached.store(Arc::new(forgotten));
    }

    /// Number of databases.
    pub fn databases(&self) -> u8 {
        self.databases
    }
}

/// Empties database `db`: a new prefix, and the old one is garbage.
pub async fn flush(tx: &Tx, rng: &mut Rng, catalog: &Catalog, db: u8) -> Result<Arc<Catalog>> {
    let mut next = catalog.clone();
    let slot = next.prefixes.get_mut(usize::from(db)).ok_or(NO_DATABASE)?;
    tx.set(&root::garbage(Garbage::Database(*slot)), &[])?;
    *slot = assign(tx, rng, db).await?;
    tx.bump_metadata_version()?;
    Ok(Arc::new(next))
}

/// Exchanges the contents of two databases.
pub fn swap(tx: &Tx, catalog: &Catalog, a: u8, b: u8) -> Result<Arc<Catalog>> {
    let mut next = catalog.clone();
    let prefix = |db: u8| catalog.prefixes.get(usize::from(db)).copied().ok_or(NO_DATABASE);
    for (db, prefix) in [(a, prefix(b)?), (b, prefix(a)?)] {
        tx.set(&root::database(db), prefix.as_bytes())?;
        if let Some(slot) = next.prefixes.get_mut(usize::from(db)) {
            *slot = prefix;
        }
    }
    tx.bump_metadata_version()?;
    Ok(Arc::new(next))
}

const HALF_COPIED: ReplyError =
    ReplyError::new("a `tern copy` into this store was not finished; start it again to go on with it");
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
            assign(tx, rng, db).await?;
        }
    }
    if tx.is_write() {
        tx.bump_metadata_version()?;
    }
    Ok(())
}

async fn assign(tx: &Tx, rng: &mut Rng, db: u8) -> Result<Prefix> {
    let prefix = Prefix::from_number(alloc::allocate(tx, rng).await?);
    tx.set(&root::database(db), prefix.as_bytes())?;
    Ok(prefix)
}

/// In one round trip: on a cluster whoever moves the metadata version makes every server look here.
async fn read(tx: &Tx, databases: u8) -> Result<Catalog> {
    let version = tx.metadata_version().await?;
    let (begin, end) = (root::database(0), key_after(&root::collector()));
    let (from, to) = root::listeners();
    let (rows, listeners) = tokio::try_join!(
        tx.get_range(&begin, &end, RangeOptions::default(), Read::Serializable),
        tx.get_range(&from, &to, RangeOptions::default(), Read::Serializable),
    )?;
    let rows = rows.pairs;
    let prefixes = (0..databases).map(|db| {
        let row = rows.iter().find(|(key, _)| key[..] == root::database(db));
        let prefix = row.and_then(|(_, prefix)| Prefix::decode(prefix));
        prefix.ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")).into())
    });
    let collector = rows.last().filter(|(key, _)| key[..] == root::collector());
    let state = collector.map(|(_, raw)| State::decode(raw)).transpose()?.unwrap_or_default();
    let listening =
        listeners.pairs.iter().filter_map(|(_, bits)| bits.first()).fold(0, |all, bits| all | bits);
    Ok(Catalog {
        version,
        prefixes: prefixes.collect::<Result<_>>()?,
        round: state.round(version, tx.generation().await?),
        listening,
    })
}
