//! Removes what no record points to any more, as the `g` rows say: objects that were deleted or overwritten, databases
//! that were flushed, strings and sets whose building was given up.
//!
//! Each garbage row is worked off in one transaction that reads the row serializably, clears what it names by range
//! (cheap, whatever the size) and clears the row. Two servers at one row: the second one conflicts, or finds nothing.
//!
//! **Objects under construction.** Whoever goes on building one or takes it over reads and writes its row too, so it is
//! either reclaimed or alive, never both, whenever it is reclaimed. The lease only keeps builders from being disturbed, and
//! needs no clock that two servers would have to share:
//! * the row's value is the end of the lease by the *builder's own monotonic clock* ([`lease`]), or [`GIVEN_UP`];
//! * the object id says who builds. The builder itself compares with its clock: for what a failed task left;
//! * everybody else asks whether the builder is still registered (`keyspace::instances`), in the same transaction. A server
//!   registers before it builds and is removed once it has left or is surely dead, so who has no row builds no more (or was
//!   taken for dead: then its next step fails, and its command is run again).

use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix, hash, root, root::Garbage};
use crate::keyspace::{Fresh, Keyspace, instances};
use crate::store::{RangeOptions, Read, Tx, key_after, prefix_end};
use bytes::Bytes;

/// The value of a row whose builder has given up.
pub const GIVEN_UP: [u8; 8] = [0; 8];

/// The value of the row of an object that this server builds: nobody reclaims it for `ms` milliseconds.
pub fn lease(space: &Keyspace, ms: u64) -> [u8; 8] {
    monotonic_ms(space).saturating_add(ms).max(1).to_le_bytes()
}

fn monotonic_ms(space: &Keyspace) -> u64 {
    u64::try_from(space.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
}

/// What a call did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Garbage rows worked off.
    pub rows: usize,
    /// Where the next call goes on; None at the end of the garbage.
    pub next: Option<Vec<u8>>,
}

/// Works off this server's share of up to `limit` garbage rows from `from` on (None: from the first).
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
            Err(e) if e.is_retryable() || e == StoreError::Unknown => {}
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
        Some(Garbage::Object(db, oid)) => clear_object(&tx, db, oid)?,
        Some(Garbage::Building(db, oid)) if is_given_up(space, &tx, oid, &lease).await? => {
            clear_object(&tx, db, oid)?
        }
        Some(Garbage::Building(..)) => return Ok(false),
        None => return Err(StoreError::Corrupt("garbage row".into())),
    }
    tx.clear(row)?;
    tx.commit().await.map(|_| true)
}

async fn is_given_up(space: &Keyspace, tx: &Tx, oid: Oid, lease: &[u8]) -> StoreResult<bool> {
    let end = lease.try_into().map_err(|_| StoreError::Corrupt("lease of a garbage row".into()))?;
    let builder = Fresh::maker(oid);
    if lease == GIVEN_UP {
        Ok(true)
    } else if builder == space.fresh.instance() {
        Ok(u64::from_le_bytes(end) <= monotonic_ms(space))
    } else {
        Ok(!instances::is_registered(tx, builder).await?)
    }
}

fn clear_object(tx: &Tx, db: Prefix, oid: Oid) -> StoreResult<()> {
    tx.clear_range(&db.piece(oid, 0), &db.pieces_end(oid))?;
    let (from, to) = db.set_rows(oid);
    tx.clear_range(&from, &to)?;
    tx.clear(&db.count(oid))
}
