//! Removes rows that no record points to any more, as listed in the `g` rows: objects that were deleted or
//! overwritten, databases that were flushed, strings and sets whose prebuild was abandoned.
//!
//! Each garbage row is processed in one transaction, which reads the row serializably, clears the range that
//! it names (cheap, whatever the size) and clears the row. If two servers process one row, the second
//! conflicts or finds nothing.
//!
//! An object under construction is removed once its lease is over ([`crate::types::lease`]).

use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::Keyspace;
use crate::keyspace::keys::{hash, root, root::Garbage};
use crate::store::{RangeOptions, Read, key_after, prefix_end};
use crate::types::{lease, object};
use bytes::Bytes;

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Garbage rows processed.
    pub rows: usize,
    /// Where the next call continues; None at the end of the garbage.
    pub next: Option<Vec<u8>>,
}

/// Processes this server's share of up to `limit` garbage rows from `from` on (None: from the first).
pub async fn reclaim(space: &Keyspace, from: Option<&[u8]>, limit: usize) -> Result<Reclaimed> {
    let (begin, end) = root::garbage_range();
    let begin = from.unwrap_or(&begin);
    let opts = RangeOptions { limit, ..RangeOptions::default() };
    let page = space.store.begin().get_range(begin, &end, opts, Read::Snapshot).await?;
    let next = page.pairs.last().filter(|_| page.more).map(|(row, _)| key_after(row));
    let mut rows = 0;
    for (row, _) in page.pairs.iter().filter(|(row, _)| space.instances.owns("reclaim", hash(row))) {
        match remove(space, row).await {
            Ok(removed) => rows += usize::from(removed),
            Err(e) if e.is_retryable() || e.may_have_committed() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Reclaimed { rows, next })
}

async fn remove(space: &Keyspace, row: &Bytes) -> StoreResult<bool> {
    let tx = space.store.begin();
    let Some(lease) = tx.get(row, Read::Serializable).await? else { return Ok(false) };
    match root::decode_garbage(row) {
        Some(Garbage::Database(db)) => tx.clear_range(db.as_bytes(), &prefix_end(db.as_bytes()))?,
        Some(Garbage::Object(db, oid)) => object::clear_object(&tx, db, oid)?,
        Some(Garbage::Building(db, oid)) if lease::is_over(space, &tx, oid, &lease).await? => {
            object::clear_object(&tx, db, oid)?
        }
        Some(Garbage::Building(..)) => return Ok(false),
        None => return Err(StoreError::Corrupt("a garbage row does not decode".into())),
    }
    tx.clear(row)?;
    tx.commit().await.map(|_| true)
}
