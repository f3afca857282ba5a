//! Many point reads: a networked engine answers them in one round trip, the embedded one immediately, one
//! after the other.

use crate::error::StoreResult;
use crate::store::{Read, Tx};
use bytes::Bytes;
use futures_util::future::try_join_all;

/// The most reads in flight.
pub(crate) const IN_FLIGHT: usize = 512;
/// As many rows of one kind that a command reads may be read again soon; more are a load or a large reply.
pub(crate) const FEW: usize = 256;

/// The values of `keys`, in order.
pub(crate) async fn get_many<K: AsRef<[u8]>>(
    tx: &Tx,
    keys: &[K],
    read: Read,
) -> StoreResult<Vec<Option<Bytes>>> {
    if let [only] = keys {
        return Ok(vec![tx.get(only.as_ref(), read).await?]);
    }
    let mut out = Vec::with_capacity(keys.len());
    if !tx.prefers_prefetch() {
        for key in keys {
            out.push(tx.get(key.as_ref(), read).await?);
        }
        return Ok(out);
    }
    for part in keys.chunks(IN_FLIGHT) {
        out.extend(try_join_all(part.iter().map(|k| tx.get(k.as_ref(), read))).await?);
    }
    Ok(out)
}

/// Reads rows that will be read one after the other, if that saves round trips.
pub(crate) async fn fetch(tx: &Tx, keys: impl Iterator<Item = Vec<u8>>) -> StoreResult<()> {
    if tx.prefers_prefetch() {
        get_many(tx, &keys.collect::<Vec<_>>(), Read::Snapshot).await?;
    }
    Ok(())
}
