//! Rows `q`: the number of blocks of ids that each shard has leased.
//!
//! A block is leased once, in a transaction of its own; after an unknown result it counts as lost. A store
//! that loses acknowledged commits may lose that of a lease, and then leases its block again. So a lease is
//! valid only in the [generation](Tx::generation) of the store in which it was committed, and its ids go only
//! into transactions of that generation.

use super::ids::BLOCK;
use crate::env::Rng;
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Store, Tx, key_after};

const BLOCKS_PER_SHARD: u64 = 1 << 38;

/// The rest of a block of ids, not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// The next id to hand out.
    pub(super) next: u64,
    /// One past the last id.
    pub(super) end: u64,
    /// The store's generation when the lease was committed.
    pub(super) generation: u64,
}

impl Lease {
    /// The number of ids not handed out yet.
    pub(super) fn left(&self) -> u64 {
        self.end - self.next
    }
}

/// The number of ids ever leased. Snapshot.
pub(crate) async fn leased(tx: &Tx) -> StoreResult<u64> {
    let (from, to) = (root::lease(0), key_after(&root::lease(u8::MAX)));
    let rows = tx.get_range(&from, &to, RangeOptions::default(), Read::Snapshot).await?;
    let blocks = rows.pairs.iter().filter_map(|(_, raw)| raw[..].try_into().ok());
    Ok(blocks.map(u64::from_le_bytes).sum::<u64>().saturating_mul(BLOCK))
}

/// Leases a block of a random shard in a transaction of its own. A lease with an unknown result becomes a
/// gap.
///
/// The caller holds a transaction, for which the ids are. A store that reopens waits until that is gone, so
/// whoever holds it must not wait for the store: all but a conflict ends the caller's transaction, too. An
/// unknown result ends it as [`StoreError::TooOld`], because [`StoreError::Unknown`] would say that the
/// caller's own commit is in doubt.
pub(super) async fn lease(store: &Store, rng: &mut Rng) -> StoreResult<Lease> {
    let shard = rng.below(256) as u8;
    loop {
        match try_lease(store, shard).await {
            Err(StoreError::Conflict) => {}
            Err(StoreError::Unknown) => return Err(StoreError::TooOld),
            leased => return leased,
        }
    }
}

async fn try_lease(store: &Store, shard: u8) -> StoreResult<Lease> {
    let tx = store.begin();
    let generation = tx.generation().await?;
    let row = tx.get(&root::lease(shard), Read::Serializable).await?;
    let block = row.as_deref().and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    if block >= BLOCKS_PER_SHARD {
        return Err(StoreError::Corrupt(format!("shard {shard} has no ids left")));
    }
    tx.set(&root::lease(shard), &(block + 1).to_le_bytes())?;
    tx.commit().await?;
    let next = u64::from(shard) << 54 | block << 16;
    Ok(Lease { next, end: next + BLOCK, generation })
}
