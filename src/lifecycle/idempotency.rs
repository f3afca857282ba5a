//! Idempotency records: the replies to clients' commands under an id. A record is written in the transaction
//! that does the command's work, so it is committed if and only if the work is.
//!
//! * An idempotency record is its row `t`, the pieces of a long reply behind it, and a row `u` of the age
//!   index. All are written and removed together, so every row of the index names an existing record, and its
//!   value says whether there are pieces.
//! * **One runs.** A transaction that runs a command under an id has read its `t` row serializably, found
//!   none, and writes it. If two do so at once, on any servers, the store lets one commit; the other finds
//!   the idempotency record when it tries again.
//! * **An id belongs to its user** ([`Owner`]): another user's command under the same id has an idempotency
//!   record of its own.
//! * **Bounds.** The store counts the bytes of each user's idempotency records, and of all, by atomic adds in
//!   the transactions that write and remove them, so the counters cause no conflicts. A transaction that is
//!   about to run a command reads the counters at its snapshot: the bounds may be exceeded by the commands in
//!   flight at that moment, by one reply each.
//! * Idempotency records live beside the databases: FLUSHALL and SWAPDB do not remove them, because those
//!   replies were given.
//! * **Removal.** A sweep reads the index from its oldest row on, takes a read conflict on each row that it
//!   removes, and removes the record without reading it. FORGET removes the index row too, so a sweep that
//!   meets it, or a sweep of another server, conflicts: an id that was forgotten and used again is not swept
//!   for its former use.

use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::Keyspace;
use crate::keyspace::idempotency::{Age, IdempotencyRecord, PIECE};
use crate::keyspace::keys::{IdempotencyName, Owner, root};
use crate::store::{RangeOptions, Read, Tx, key_after};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeMap;

/// The longest reply that is kept, in bytes as stored: leaves room for the command's own writes in the
/// transaction.
pub(crate) const MAX_REPLY: usize = 8_000_000;

/// The size of idempotency records, in bytes of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sizes {
    /// The records of one user.
    pub(crate) user: u64,
    /// The records of all users.
    pub(crate) all: u64,
}

/// The size of the idempotency records of `owner`, and of all, at this snapshot.
pub(crate) async fn sizes(tx: &Tx, owner: Owner) -> StoreResult<Sizes> {
    let (user, all) = (root::idempotency_size(owner), root::all_idempotency_size());
    let (user, all) = tokio::try_join!(size(tx, &user), size(tx, &all))?;
    Ok(Sizes { user, all })
}

async fn size(tx: &Tx, row: &[u8]) -> StoreResult<u64> {
    let Some(raw) = tx.get(row, Read::Snapshot).await? else { return Ok(0) };
    let size = raw[..].try_into().map(i64::from_le_bytes);
    let size = size.map_err(|_| {
        StoreError::Corrupt("the size of a user's idempotency records does not decode".into())
    })?;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// The idempotency record of an id, with its whole reply.
pub(crate) async fn read(tx: &Tx, of: IdempotencyName<'_>) -> StoreResult<Option<IdempotencyRecord>> {
    let Some(mut record) = head(tx, of).await? else { return Ok(None) };
    if record.has_pieces() {
        record.reply = pieces(tx, of, record.len as usize).await?;
    }
    Ok(Some(record))
}

async fn head(tx: &Tx, of: IdempotencyName<'_>) -> StoreResult<Option<IdempotencyRecord>> {
    let raw = tx.get(&root::idempotency_record(of), Read::Serializable).await?;
    raw.map(|raw| IdempotencyRecord::decode(&raw)).transpose()
}

/// Reads the pieces as a snapshot: the row, which is read serializably, changes with them.
async fn pieces(tx: &Tx, of: IdempotencyName<'_>, len: usize) -> StoreResult<Bytes> {
    let mut out = Vec::with_capacity(len.min(MAX_REPLY));
    let (begin, end) = (root::idempotency_piece(of, 0), root::idempotency_pieces_end(of));
    let found = tx.get_range(&begin, &end, RangeOptions::default(), Read::Snapshot).await?;
    found.pairs.iter().for_each(|(_, piece)| out.extend_from_slice(piece));
    if out.len() != len {
        return Err(StoreError::Corrupt(format!("only {} of {len} bytes of a kept reply exist", out.len())));
    }
    Ok(out.into())
}

/// Writes `record`, whose `reply` is whole, for an id that this transaction has read and found without a
/// record. [`StoreError::ReplyTooLarge`] before anything is written.
pub(crate) fn keep(tx: &Tx, of: IdempotencyName<'_>, mut record: IdempotencyRecord) -> StoreResult<()> {
    let reply = std::mem::take(&mut record.reply);
    if reply.len() > MAX_REPLY {
        return Err(StoreError::ReplyTooLarge(reply.len()));
    }
    if record.has_pieces() {
        for (n, piece) in reply.chunks(PIECE).enumerate() {
            tx.set(&root::idempotency_piece(of, n as u16), piece)?;
        }
    } else {
        record.reply = reply;
    }
    let age = Age::new(&record, of.id.len());
    tx.set(&root::idempotency_record(of), &record.encode())?;
    // No transaction reads it serializably before it exists, and FORGET clears it with a conflict.
    tx.set_without_conflict(&root::idempotency_age(record.at, of), &age.encode())?;
    let mut sizes = Resized::default();
    sizes.by(of, age, 1);
    sizes.write(tx)
}

/// Removes the idempotency record of an id; false if it has none.
pub(crate) async fn forget(tx: &Tx, of: IdempotencyName<'_>) -> StoreResult<bool> {
    let Some(record) = head(tx, of).await? else { return Ok(false) };
    tx.clear(&root::idempotency_age(record.at, of))?;
    clear(tx, of, record.has_pieces())?;
    let mut sizes = Resized::default();
    sizes.by(of, Age::new(&record, of.id.len()), -1);
    sizes.write(tx)?;
    Ok(true)
}

fn clear(tx: &Tx, of: IdempotencyName<'_>, has_pieces: bool) -> StoreResult<()> {
    tx.clear(&root::idempotency_record(of))?;
    if has_pieces {
        tx.clear_range(&root::idempotency_piece(of, 0), &root::idempotency_pieces_end(of))?;
    }
    Ok(())
}

/// The changes of the counters.
#[derive(Default)]
struct Resized(BTreeMap<Owner, i64>);

impl Resized {
    /// Counts an idempotency record that is added (1) or removed (-1). One without an owner is not counted.
    fn by(&mut self, of: IdempotencyName<'_>, age: Age, sign: i64) {
        if let (Some(owner), Some(size)) = (of.owner, age.size) {
            *self.0.entry(owner).or_default() += sign * i64::from(size);
        }
    }

    fn write(self, tx: &Tx) -> StoreResult<()> {
        for (owner, by) in &self.0 {
            tx.add(&root::idempotency_size(*owner), &by.to_le_bytes())?;
        }
        match self.0.values().sum::<i64>() {
            0 => Ok(()),
            all => tx.add(&root::all_idempotency_size(), &all.to_le_bytes()),
        }
    }
}

/// Where an earlier sweep of a shard ended and the next one may begin: the engine need not pass over the
/// tombstones again. None: the beginning of the shard.
pub type Mark = Option<Vec<u8>>;

/// When the oldest idempotency record behind each mark was written (ms since the Unix epoch), for those
/// shards that have one.
pub(crate) async fn oldest(space: &Keyspace, marks: &[(u8, &Mark)]) -> Result<Vec<(u8, u64)>> {
    let tx = space.store.begin();
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let first = join_all(marks.iter().map(async |(shard, mark)| {
        let (first, end) =
            (root::idempotency_ages_from(*shard, 0), root::idempotency_ages_from(*shard + 1, 0));
        let page = tx.get_range(mark.as_ref().unwrap_or(&first), &end, opts, Read::Snapshot).await?;
        let Some((row, value)) = page.pairs.first() else { return Ok(None) };
        Ok(Some((*shard, decode_age(row, value)?.0)))
    }));
    let first: StoreResult<Vec<Option<(u8, u64)>>> = first.await.into_iter().collect();
    Ok(first?.into_iter().flatten().collect())
}

fn decode_age<'a>(row: &'a Bytes, value: &[u8]) -> StoreResult<(u64, IdempotencyName<'a>, Age)> {
    let parse = || {
        let age = Age::decode(value)?;
        let (ms, of) = root::decode_idempotency_age(row, age.size.is_some())?;
        Some((ms, of, age))
    };
    parse().ok_or_else(|| {
        StoreError::Corrupt("a row of the idempotency records' age index does not decode".into())
    })
}

/// The result of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Idempotency records removed.
    pub removed: usize,
    /// True if the limit ended it: more may be due now.
    pub more: bool,
    /// One past the last row removed.
    pub next: Mark,
}

/// Removes up to `limit` idempotency records of one shard that were written before `before` (ms since the
/// Unix epoch), oldest first, in one transaction.
pub async fn sweep(space: &Keyspace, shard: u8, from: &Mark, before: u64, limit: usize) -> Result<Swept> {
    let (first, end) = (root::idempotency_ages_from(shard, 0), root::idempotency_ages_from(shard, before));
    let begin = from.as_ref().unwrap_or(&first);
    if *begin >= end {
        return Ok(Swept::default());
    }
    let tx = space.store.begin();
    let opts = RangeOptions { limit, ..RangeOptions::default() };
    let old = tx.get_range(begin, &end, opts, Read::Snapshot).await?;
    let Some((last, _)) = old.pairs.last() else { return Ok(Swept::default()) };
    let mut sizes = Resized::default();
    for (row, value) in &old.pairs {
        let (_, of, age) = decode_age(row, value)?;
        tx.add_read_conflict(row, &key_after(row))?;
        tx.clear(row)?;
        clear(&tx, of, age.has_pieces)?;
        sizes.by(of, age, -1);
    }
    sizes.write(&tx)?;
    let done = Swept { removed: old.pairs.len(), more: old.more, next: Some(key_after(last)) };
    tx.commit().await?;
    Ok(done)
}
