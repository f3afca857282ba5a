//! Which prefix a database has now. SCAFFOLD allocation: replaced by the high-contention allocator.

use super::keys::{Prefix, root};
use crate::env::Env;
use crate::error::{Result, StoreError};
use crate::store::{Read, Store, Tx};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The prefixes of all databases, as one transaction reads them.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The metadata version that this was read at.
    pub version: u64,
    /// By database number.
    pub prefixes: Vec<Prefix>,
}

/// Caches the catalog by the store's metadata version, which is free to read.
pub struct CatalogCache {
    databases: u8,
    cached: ArcSwap<Catalog>,
}

impl CatalogCache {
    /// Allocates what is missing, then reads.
    pub async fn open(store: &Store, _env: &Env, databases: u8) -> Result<Self> {
        let tx = store.begin();
        for db in 0..databases {
            if tx.get(&root::database(db), Read::Serializable).await?.is_none() {
                tx.set(&root::database(db), Prefix::from_number(u32::from(db) + 1).as_bytes())?;
            }
        }
        if tx.is_write() {
            tx.bump_metadata_version()?;
        }
        tx.commit().await?;
        let tx = store.begin();
        let catalog = read(&tx, databases).await?;
        Ok(CatalogCache { databases, cached: ArcSwap::from_pointee(catalog) })
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

    /// Number of databases.
    pub fn databases(&self) -> u8 {
        self.databases
    }
}

async fn read(tx: &Tx, databases: u8) -> Result<Catalog> {
    let version = tx.metadata_version().await?;
    let mut prefixes = Vec::with_capacity(usize::from(databases));
    for db in 0..databases {
        let row = tx.get(&root::database(db), Read::Serializable).await?;
        let prefix = row.as_deref().and_then(Prefix::decode);
        prefixes.push(prefix.ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")))?);
    }
    Ok(Catalog { version, prefixes })
}
