//! Removes keys that are past their expiry: the active half. The lazy half is `object::open`, for which they are absent.
//!
//! The expiry index `X` is a hint, the record decides: a key is removed only in a transaction that reads its record
//! serializably and finds there the expiry that the row says, and that it is past. A row that the record does not confirm is
//! stale and goes alone. So several servers may sweep one database at once, while it is written to and flushed.

use super::object;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::keys::Prefix;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Tx};
use bytes::Bytes;

/// Keys removed by one transaction.
const BATCH: usize = 64;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Keys removed.
    pub removed: usize,
    /// Rows of the index that no record confirmed.
    pub stale: usize,
    /// True where there may be more to do now: the limit was reached, or somebody was in the way.
    pub more: bool,
}

/// Removes up to `limit` keys of one shard of database `db` that are past their expiry now.
pub async fn sweep(space: &Keyspace, db: u8, shard: u8, limit: usize) -> Result<Swept> {
    let now = space.clock.now_ms();
    let tx = space.store.begin();
    let prefix = prefix(space, &tx, db).await?;
    let (from, to) = (prefix.expiry_from(shard, 0), prefix.expiry_from(shard, now.saturating_add(1)));
    let opts = RangeOptions { limit, ..RangeOptions::default() };
    let due = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
    drop(tx);
    let mut total = Swept { more: due.more, ..Swept::default() };
    let rows: Vec<Bytes> = due.pairs.into_iter().map(|(row, _)| row).collect();
    for rows in rows.chunks(BATCH) {
        total.add(remove_or_split(space, db, prefix, now, rows).await?);
    }
    Ok(total)
}

impl Swept {
    fn add(&mut self, other: Swept) {
        self.removed += other.removed;
        self.stale += other.stale;
        self.more |= other.more;
    }
}

async fn prefix(space: &Keyspace, tx: &Tx, db: u8) -> Result<Prefix> {
    let catalog = space.catalog.load(tx).await?;
    let prefix = catalog.prefixes.get(usize::from(db)).copied();
    Ok(prefix.ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")))?)
}

/// All rows in one transaction; where that conflicts, each in its own.
async fn remove_or_split(space: &Keyspace, db: u8, seen: Prefix, now: u64, rows: &[Bytes]) -> Result<Swept> {
    if let Some(done) = remove(space, db, seen, now, rows).await? {
        return Ok(done);
    }
    let mut total = Swept::default();
    for row in rows {
        match remove(space, db, seen, now, std::slice::from_ref(row)).await? {
            Some(done) => total.add(done),
            None => total.more = true,
        }
    }
    Ok(total)
}

/// None: nothing was done, somebody was in the way (a conflict, or the database has another prefix now).
async fn remove(space: &Keyspace, db: u8, seen: Prefix, now: u64, rows: &[Bytes]) -> Result<Option<Swept>> {
    match try_remove(space, db, seen, now, rows).await {
        Err(Error::Store(e)) if e.is_retryable() || e == StoreError::Unknown => Ok(None),
        other => other,
    }
}

async fn try_remove(
    space: &Keyspace,
    db: u8,
    seen: Prefix,
    now: u64,
    rows: &[Bytes],
) -> Result<Option<Swept>> {
    let tx = space.store.begin();
    if prefix(space, &tx, db).await? != seen {
        return Ok(None);
    }
    let s = Scope { tx: &tx, db: seen, number: db, now, space };
    let mut done = Swept::default();
    for row in rows {
        match remove_key(&s, row).await? {
            true => done.removed += 1,
            false => done.stale += 1,
        }
    }
    tx.commit().await?;
    Ok(Some(done))
}

/// True where the key went, false where only its row did.
async fn remove_key(s: &Scope<'_>, row: &Bytes) -> Result<bool> {
    let (ms, key) =
        s.db.decode_expiry(row).ok_or_else(|| StoreError::Corrupt("row of the expiry index".into()))?;
    let mut slot = object::open(s, &key, Read::Serializable).await?;
    let due = slot.stored_expiry() == Some(ms) && ms <= s.now;
    if due {
        object::remove(s, &mut slot)?;
    } else {
        s.tx.clear(row)?;
    }
    Ok(due)
}
