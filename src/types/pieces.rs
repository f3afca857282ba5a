//! Long elements of lists and long values of hashes: bytes in rows of their own, one piece a row.

use crate::error::{Result, StoreError};
use crate::store::{RangeOptions, Read, Rest, Tx};
use bytes::Bytes;

/// Bytes requested by one range read.
const PAGE: usize = 1 << 18;

/// What the pieces in the rows with a prefix hold together: `len` bytes.
pub(super) async fn read(tx: &Tx, prefix: Vec<u8>, len: u64) -> Result<Bytes> {
    let (mut rest, mut out) = (Rest::under(prefix), Vec::new());
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(tx, opts, Read::Snapshot).await? {
        page.iter().for_each(|(_, piece)| out.extend_from_slice(piece));
        if rest.range().is_some() {
            tokio::task::yield_now().await;
        }
    }
    if out.len() as u64 != len {
        return Err(StoreError::Corrupt("a long element or value lacks pieces".into()).into());
    }
    Ok(out.into())
}
