//! Rows `f`: the ids of members.
//!
//! ```text
//! f 00 <member>       -> id (u64 BE)              of a member of at most MAX_INLINE_MEMBER bytes
//! f 01 <xxh3-128>     -> ids (u64 BE each)        of longer members that share a hash: see their rows `b`
//! ```

use crate::error::StoreResult;
use crate::keyspace::keys::{MAX_INLINE_MEMBER, root};
use crate::store::{Read, Tx};
use bytes::Bytes;

/// Removes `id`, an id of `member`, from its row `f`. A row that no other member can share is cleared without
/// reading it: it exists exactly as long as the member's row `b`.
pub(super) async fn remove(tx: &Tx, id: u64, member: &Bytes) -> StoreResult<()> {
    let key = root::forward(member);
    if member.len() <= MAX_INLINE_MEMBER {
        return tx.clear_bulk(&key);
    }
    let row = tx.get(&key, Read::Serializable).await?.unwrap_or_default();
    let rest = without(&row, id);
    if rest.is_empty() { tx.clear(&key) } else { tx.set(&key, &rest) }
}

/// A row `f` without `id`.
pub fn without(row: &[u8], id: u64) -> Vec<u8> {
    let others = row.as_chunks::<8>().0.iter().filter(|raw| **raw != id.to_be_bytes());
    others.flatten().copied().collect()
}

/// The ids of a row `f`.
pub fn ids_of_row(row: &[u8]) -> impl Iterator<Item = u64> {
    row.as_chunks::<8>().0.iter().map(|raw| u64::from_be_bytes(*raw))
}
