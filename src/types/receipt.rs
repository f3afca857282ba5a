//! What clients' commands under an id answered: kept in the transaction that did the command's work, so that there is
//! one exactly where there is the other.
//!
//! * A receipt is its row `t`, the pieces of a long reply behind it, and a row `u` of the age index. All are written and removed
//!   together, so a row of the index names a receipt that exists, and its value says whether there are pieces.
//! * **One runs.** Whoever runs a command under an id has read its `t` row serializably and found none, and writes it. Of two
//!   that do so at once, anywhere, the store lets one commit; the other one finds the receipt when it tries again.
//! * Receipts live beside the databases: FLUSHALL and SWAPDB leave them, because what was answered was answered.
//! * **Removal.** A sweep reads the index from its oldest row on, takes a read conflict on each row that it removes, and removes
//!   what it names without reading it. FORGET removes the index's row too, so a sweep that meets it, or a sweep of another
//!   server, conflicts: an id that was forgotten and used again is not swept for its former use.

use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::Keyspace;
use crate::keyspace::keys::root;
use crate::keyspace::receipt::{PIECE, Receipt};
use crate::store::{RangeOptions, Read, Tx, key_after};
use bytes::Bytes;
use futures_util::future::join_all;

/// Longest reply that is kept, in bytes as stored: leaves room for the command's own writes in the transaction.
pub const MAX_REPLY: usize = 8_000_000;

/// The value of an index row whose receipt has pieces.
const IN_PIECES: &[u8] = &[1];

/// The receipt of `id`, with its whole reply.
pub async fn read(tx: &Tx, id: &[u8]) -> StoreResult<Option<Receipt>> {
    let Some(mut receipt) = head(tx, id).await? else { return Ok(None) };
    if receipt.has_pieces() {
        receipt.reply = pieces(tx, id, receipt.len as usize).await?;
    }
    Ok(Some(receipt))
}

async fn head(tx: &Tx, id: &[u8]) -> StoreResult<Option<Receipt>> {
    let raw = tx.get(&root::receipt(id), Read::Serializable).await?;
    raw.map(|raw| Receipt::decode(&raw)).transpose()
}

/// Snapshot reads: the row, read serializably, changes with its pieces.
async fn pieces(tx: &Tx, id: &[u8], len: usize) -> StoreResult<Bytes> {
    let mut out = Vec::with_capacity(len.min(MAX_REPLY));
    let (begin, end) = (root::receipt_piece(id, 0), root::receipt_pieces_end(id));
    let found = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await?;
    found.pairs.iter().for_each(|(_, piece)| out.extend_from_slice(piece));
    if out.len() != len {
        return Err(StoreError::Corrupt(format!("{} of {len} bytes of a kept reply", out.len())));
    }
    Ok(out.into())
}

/// Keeps `receipt`, whose `reply` is whole, for an `id` that this transaction has read and that has none.
/// [`StoreError::ReplyTooLarge`] before anything is written.
pub fn keep(tx: &Tx, id: &[u8], mut receipt: Receipt) -> StoreResult<()> {
    let reply = std::mem::take(&mut receipt.reply);
    if reply.len() > MAX_REPLY {
        return Err(StoreError::ReplyTooLarge(reply.len()));
    }
    let mut age: &[u8] = &[];
    if receipt.has_pieces() {
        age = IN_PIECES;
        for (n, piece) in reply.chunks(PIECE).enumerate() {
            tx.set(&root::receipt_piece(id, n as u16), piece)?;
        }
    } else {
        receipt.reply = reply;
    }
    tx.set(&root::receipt(id), &receipt.encode())?;
    // Nobody reads it serializably before it is there, and FORGET clears it with a conflict.
    tx.set_without_conflict(&root::receipt_age(receipt.at, id), age)
}

/// Removes the receipt of `id`; false where there is none.
pub async fn forget(tx: &Tx, id: &[u8]) -> StoreResult<bool> {
    let Some(receipt) = head(tx, id).await? else { return Ok(false) };
    tx.clear(&root::receipt_age(receipt.at, id))?;
    clear(tx, id, receipt.has_pieces())?;
    Ok(true)
}

fn clear(tx: &Tx, id: &[u8], has_pieces: bool) -> StoreResult<()> {
    tx.clear(&root::receipt(id))?;
    if has_pieces {
        tx.clear_range(&root::receipt_piece(id, 0), &root::receipt_pieces_end(id))?;
    }
    Ok(())
}

/// Where an earlier sweep of a shard ended, and the next one may begin: the engine need not pass again over the traces of what
/// was removed. None: at the shard's begin.
pub type Mark = Option<Vec<u8>>;

/// When the oldest receipt behind each mark was written (ms since the epoch), for those shards that have one.
pub async fn oldest(space: &Keyspace, marks: &[(u8, &Mark)]) -> Result<Vec<(u8, u64)>> {
    let tx = space.store.begin();
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let first = join_all(marks.iter().map(async |(shard, mark)| {
        let (first, end) = (root::receipt_ages_from(*shard, 0), root::receipt_ages_from(*shard + 1, 0));
        let page = tx.get_range(mark.as_ref().unwrap_or(&first), &end, opts, Read::Snapshot).await?;
        let Some((row, _)) = page.pairs.first() else { return Ok(None) };
        Ok(Some((*shard, decode_age(row)?.0)))
    }));
    let first: StoreResult<Vec<Option<(u8, u64)>>> = first.await.into_iter().collect();
    Ok(first?.into_iter().flatten().collect())
}

fn decode_age(row: &Bytes) -> StoreResult<(u64, Bytes)> {
    let age = root::decode_receipt_age(row);
    age.ok_or_else(|| StoreError::Corrupt("row of the receipts' age index".into()))
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Receipts removed.
    pub removed: usize,
    /// True where the limit ended it: there may be more to do now.
    pub more: bool,
    /// Behind the last row removed.
    pub next: Mark,
}

/// Removes up to `limit` receipts of one shard that were written before `before` (ms since the epoch), oldest first, in one
/// transaction.
pub async fn sweep(space: &Keyspace, shard: u8, from: &Mark, before: u64, limit: usize) -> Result<Swept> {
    let (first, end) = (root::receipt_ages_from(shard, 0), root::receipt_ages_from(shard, before));
    let begin = from.as_ref().unwrap_or(&first);
    if *begin >= end {
        return Ok(Swept::default());
    }
    let tx = space.store.begin();
    let opts = RangeOptions { limit, ..RangeOptions::default() };
    let old = tx.get_range(begin, &end, opts, Read::Snapshot).await?;
    let Some((last, _)) = old.pairs.last() else { return Ok(Swept::default()) };
    for (row, value) in &old.pairs {
        let (_, id) = decode_age(row)?;
        tx.add_read_conflict(row, &key_after(row))?;
        tx.clear(row)?;
        clear(&tx, &id, value.as_ref() == IN_PIECES)?;
    }
    let done = Swept { removed: old.pairs.len(), more: old.more, next: Some(key_after(last)) };
    tx.commit().await?;
    Ok(done)
}
