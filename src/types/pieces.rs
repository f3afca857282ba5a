//! Long elements of lists and long values of hashes: bytes in rows of their own, one piece a row.

use crate::error::{Result, StoreError};
use crate::store::{RangeOptions, Read, Tx, key_after, prefix_end};
use bytes::Bytes;

/// Bytes requested by one range read.
const PAGE: usize = 1 << 18;

/// What the pieces in the rows with a prefix hold together: `len` bytes.
pub(super) async fn read(tx: &Tx, prefix: Vec<u8>, len: u64) -> Result<Bytes> {
    let (end, mut begin, mut out) = (prefix_end(&prefix), prefix, Vec::new());
    loop {
        let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        let page = tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        page.pairs.iter().for_each(|(_, piece)| out.extend_from_slice(piece));
        match page.pairs.last() {
            Some((row, _)) if page.more => begin = key_after(row),
            _ => break,
        }
        tokio::task::yield_now().await;
    }
    if out.len() as u64 != len {
        return Err(StoreError::Corrupt("a long element or value lacks pieces".into()).into());
    }
    Ok(out.into())
}
