//! Removes keys that are past their expiry: the active half. The lazy half is `object::open`, for which they are absent.
//!
//! The expiry index `X` is a hint, the record decides: a key is removed only in a transaction that reads its record
//! serializably and finds there the expiry that the row says, and that it is past. A row that the record does not confirm is
//! stale and goes alone. So several servers may sweep one database at once, while it is written to and flushed.
//!
//! Idle cost: [`look`] reads one row of each database, and one of each shard of databases that have any expiry, in one
//! transaction. It must be repeated about once a second, because another server may set a shorter expiry at any time; a
//! hint of it would cost every such write something, this costs no write anything.

use crate::config::Events;
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::cluster::bus;
use crate::keyspace::cluster::messages::{Message, Outbox};
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::keys::{Prefix, SHARDS};
use crate::keyspace::life::Life;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Tx};
use crate::types::object;
use bytes::Bytes;
use futures_util::future::join_all;

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

/// The first row of a shard's expiry index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Database number.
    pub(crate) db: u8,
    /// Shard of the index.
    pub(crate) shard: u8,
    /// When its first key expires: ms since the epoch.
    pub(crate) at: u64,
}

/// The first expiry of each shard that has one and that `wanted(db, shard)` asks for.
pub(crate) async fn look(space: &Keyspace, wanted: impl Fn(u8, u8) -> bool) -> Result<Vec<Head>> {
    let tx = space.store.begin();
    let catalog = space.catalog.load(&tx).await?;
    let any = join_all(catalog.prefixes().map(async |(db, prefix)| {
        let found = first(&tx, prefix, 0, SHARDS).await?;
        StoreResult::Ok(found.map(|_| (db, prefix)))
    }));
    let mut shards = Vec::new();
    for database in any.await {
        let Some((db, prefix)) = database? else { continue };
        shards.extend((0..SHARDS).filter(|shard| wanted(db, *shard)).map(|shard| (db, prefix, shard)));
    }
    let heads = join_all(shards.into_iter().map(async |(db, prefix, shard)| {
        let at = first(&tx, prefix, shard, shard + 1).await?;
        StoreResult::Ok(at.map(|at| Head { db, shard, at }))
    }));
    let heads: StoreResult<Vec<Option<Head>>> = heads.await.into_iter().collect();
    Ok(heads?.into_iter().flatten().collect())
}

/// The first expiry of the index' shards `from..to`.
async fn first(tx: &Tx, db: Prefix, from: u8, to: u8) -> StoreResult<Option<u64>> {
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let (from, to) = (db.expiry_from(from, 0), db.expiry_from(to, 0));
    let page = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
    let row = page.pairs.first().map(|(row, _)| db.decode_expiry(row).ok_or_else(corrupt));
    Ok(row.transpose()?.map(|(ms, _)| ms))
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("row of the expiry index".into())
}

/// What a sweep has to tell, and for whom.
#[derive(Debug, Default)]
pub struct Expired {
    /// Which events are to be expired.
    pub(crate) events: Events,
    /// What has been committed, in order. On a store that servers share it has been written with it.
    pub(crate) messages: Vec<Message>,
}

/// Removes up to `limit` keys of one shard of database `db` that are past their expiry now.
pub async fn sweep(
    space: &Keyspace,
    db: u8,
    shard: u8,
    limit: usize,
    expired: &mut Expired,
) -> Result<Swept> {
    let now = space.timeline.now();
    let tx = space.store.begin();
    let prefix = prefix(space, &tx, db).await?;
    let (from, to) = (prefix.expiry_from(shard, 0), prefix.expiry_from(shard, now.saturating_add(1)));
    let opts = RangeOptions { limit, ..RangeOptions::default() };
    let due = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
    drop(tx);
    let mut total = Swept { more: due.more, ..Swept::default() };
    let rows: Vec<Bytes> = due.pairs.into_iter().map(|(row, _)| row).collect();
    for rows in rows.chunks(BATCH) {
        total.add(remove_or_split(space, (db, prefix), now, rows, expired).await?);
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
    Ok(catalog.prefix(db).ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")))?)
}

/// All rows in one transaction; where that conflicts, each in its own.
async fn remove_or_split(
    space: &Keyspace,
    db: (u8, Prefix),
    now: u64,
    rows: &[Bytes],
    expired: &mut Expired,
) -> Result<Swept> {
    if let Some(done) = remove(space, db, now, rows, expired).await? {
        return Ok(done);
    }
    let mut total = Swept::default();
    for row in rows {
        match remove(space, db, now, std::slice::from_ref(row), expired).await? {
            Some(done) => total.add(done),
            None => total.more = true,
        }
    }
    Ok(total)
}

/// None: nothing was done, somebody was in the way (a conflict, or the database has another prefix now).
async fn remove(
    space: &Keyspace,
    db: (u8, Prefix),
    now: u64,
    rows: &[Bytes],
    expired: &mut Expired,
) -> Result<Option<Swept>> {
    match try_remove(space, db, now, rows, expired).await {
        Err(Error::Store(e)) if e.is_retryable() || e.may_have_committed() => Ok(None),
        other => other,
    }
}

async fn try_remove(
    space: &Keyspace,
    (db, seen): (u8, Prefix),
    now: u64,
    rows: &[Bytes],
    expired: &mut Expired,
) -> Result<Option<Swept>> {
    let tx = space.store.begin();
    let shared = space.bus.is_shared();
    let catalog = space.catalog.load(&tx).await?;
    if catalog.prefix(db) != Some(seen) {
        return Ok(None);
    }
    let outbox = Outbox::new(space.fresh.instance(), space.bus.heard(&catalog), expired.events);
    let round = Round::default();
    let s = Scope {
        tx: &tx,
        db: seen,
        number: db,
        now,
        round,
        space,
        outbox: Some(&outbox),
        life: Life::default(),
    };
    let mut done = Swept::default();
    for row in rows {
        match remove_key(&s, row).await? {
            true => done.removed += 1,
            false => done.stale += 1,
        }
    }
    let messages = outbox.take();
    if shared && !messages.is_empty() {
        bus::write(&tx, messages.iter())?;
    }
    match tx.commit().await {
        // If it was committed, these keys are gone, and a cache must know. For who reads they have been gone before.
        Err(StoreError::Unknown) => {
            expired.messages.extend(messages.into_iter().filter(Message::is_of_tracking))
        }
        committed => {
            committed?;
            expired.messages.extend(messages);
            return Ok(Some(done));
        }
    }
    Ok(None)
}

/// True where the key went, false where only its row did, or the mark of an absent key.
async fn remove_key(s: &Scope<'_>, row: &Bytes) -> Result<bool> {
    let (ms, key) = s.db.decode_expiry(row).ok_or_else(corrupt)?;
    let mut slot = object::open(s, &key, Read::Serializable).await?;
    let due = slot.stored_expiry() == Some(ms) && ms <= s.now;
    if !due {
        s.tx.clear(row)?;
    } else if slot.ghost().is_some() {
        object::clear_ghost(s, &mut slot)?;
        return Ok(false);
    } else {
        object::remove(s, &mut slot)?;
    }
    Ok(due)
}
