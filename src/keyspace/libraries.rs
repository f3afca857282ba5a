//! Libraries of functions: known to all servers of a store.
//!
//! Every change of a library gives them all another epoch. A server remembers the libraries with the epoch that its
//! transaction read, and reads them again once that is another one. Epochs are random: a transaction that is not committed
//! leaves none behind that another one could have.
//!
//! Libraries are bounded ([`MOST`], [`MOST_BYTES`]), so that all of them fit a transaction. None is ever removed to make room.

use super::keys::scripts::{Digest, LibraryRow};
use super::scripts::PIECE;
use crate::error::{ReplyError, Result, StoreError};
use crate::store::{RangeOptions, Read, Tx};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The most libraries in a store, and stored bytes of them.
pub(crate) const MOST: usize = 1_000;
pub(crate) const MOST_BYTES: usize = 8 << 20;

/// The error for one library too many.
pub(crate) const NO_ROOM: ReplyError = ReplyError::new(
    "ERR there is no room for more libraries: at most 1000, of 8 MB and with 10000 functions together. FUNCTION DELETE makes room",
);

pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(format!("the rows of a library do not decode: {what}"))
}

/// The epoch that a transaction sees; 0: there has never been a library.
pub(crate) async fn epoch(tx: &Tx, read: Read) -> Result<u64> {
    let row = tx.get(&LibraryRow::Epoch.key(), read).await?;
    let epoch = row.map(|row| row[..].try_into().map(u64::from_le_bytes));
    Ok(epoch.transpose().map_err(|_| corrupt("the epoch"))?.unwrap_or_default())
}

/// What is stored of each library. The transaction has read the epoch.
pub(crate) async fn all(tx: &Tx) -> Result<BTreeMap<Bytes, Bytes>> {
    let (begin, end) = LibraryRow::pieces(None);
    let rows = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await?;
    let mut all: BTreeMap<Bytes, Vec<u8>> = BTreeMap::new();
    for (key, piece) in &rows.pairs {
        let Some(LibraryRow::Piece(name, _)) = LibraryRow::decode(key) else {
            return Err(corrupt("the key of a piece").into());
        };
        all.entry(name).or_default().extend_from_slice(piece);
    }
    Ok(all.into_iter().map(|(name, stored)| (name, stored.into())).collect())
}

/// Begins another epoch, which no other transaction has. Not 0.
pub(crate) fn renew(tx: &Tx, epoch: u64) -> Result<()> {
    Ok(tx.set(&LibraryRow::Epoch.key(), &epoch.to_le_bytes())?)
}

/// Stores a library. The one of this name has been removed.
pub(crate) fn put(tx: &Tx, name: &str, (digest, stored): (&Digest, &[u8])) -> Result<()> {
    let name = Bytes::copy_from_slice(name.as_bytes());
    tx.set(&LibraryRow::Library(name.clone()).key(), digest)?;
    for (n, piece) in (0..).zip(stored.chunks(PIECE)) {
        tx.set(&LibraryRow::Piece(name.clone(), n).key(), piece)?;
    }
    Ok(())
}

/// Removes a library.
pub(crate) fn remove(tx: &Tx, name: &str) -> Result<()> {
    tx.clear(&LibraryRow::Library(Bytes::copy_from_slice(name.as_bytes())).key())?;
    let (begin, end) = LibraryRow::pieces(Some(name.as_bytes()));
    Ok(tx.clear_range(&begin, &end)?)
}

/// Removes all libraries.
pub(crate) fn clear(tx: &Tx) -> Result<()> {
    let ((begin, end), (from, to)) = (LibraryRow::libraries(), LibraryRow::pieces(None));
    tx.clear_range(&begin, &end)?;
    Ok(tx.clear_range(&from, &to)?)
}
