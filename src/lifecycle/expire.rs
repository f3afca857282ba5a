//! Removes expired keys, and expired fields of hashes: active expiry. The lazy half is `object::open`, which
//! treats them as absent.
//!
//! The expiry index `X` is a hint; the record decides. A key is removed only in a transaction that reads its
//! record serializably, finds the expiry that the index row states, and finds that it has passed. A row that
//! the record does not confirm is stale, and only the row is removed. So several servers may sweep one
//! database at once, even during writes and flushes. The index also names a hash when the first of its fields
//! may expire: `types::hash::expiry`.
//!
//! Idle cost: [`look`] reads one row per database, and one per shard of the databases that have any expiry,
//! in one transaction. It must run about once a second, because another server may set a shorter expiry at
//! any time; a hint about that would cost every such write something, while this costs writes nothing.

use crate::config::Events;
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::cluster::bus;
use crate::keyspace::cluster::messages::{Message, Outbox};
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::keys::{Prefix, SHARDS};
use crate::keyspace::life::Life;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Tx};
use crate::types::{hash, object};
use bytes::Bytes;
use futures_util::future::join_all;

/// The number of keys that one transaction removes.
const BATCH: usize = 64;
/// The number of fields of hashes that one transaction removes, and the bytes of their names.
const FIELDS: (usize, usize) = (1024, 1 << 20);

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Keys removed.
    pub removed: usize,
    /// Fields of hashes removed, besides.
    pub fields: usize,
    /// Index rows that no record confirmed.
    pub stale: usize,
    /// True if more may be due now: the limit was reached, or a conflict got in the way.
    pub more: bool,
}

/// The first row of a shard's expiry index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Database number.
    pub(crate) db: u8,
    /// Shard of the index.
    pub(crate) shard: u8,
    /// When its first key expires: ms since the Unix epoch.
    pub(crate) at: u64,
}

/// The first expiry of each shard that has one and for which `wanted(db, shard)` is true.
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

/// The first expiry in the shards `from..to` of the index.
async fn first(tx: &Tx, db: Prefix, from: u8, to: u8) -> StoreResult<Option<u64>> {
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let (from, to) = (db.expiry_from(from, 0), db.expiry_from(to, 0));
    let page = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
    let row = page.pairs.first().map(|(row, _)| db.decode_expiry(row).ok_or_else(corrupt));
    Ok(row.transpose()?.map(|(ms, _)| ms))
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a row of the expiry index does not decode".into())
}

/// The messages of a sweep.
#[derive(Debug, Default)]
pub struct Expired {
    /// The classes of events to publish.
    pub(crate) events: Events,
    /// The messages committed, in order. On a shared store they have been written to the bus in the same
    /// commit.
    pub(crate) messages: Vec<Message>,
}

/// Removes up to `limit` expired keys of one shard of database `db`.
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
        self.fields += other.fields;
        self.stale += other.stale;
        self.more |= other.more;
    }
}

async fn prefix(space: &Keyspace, tx: &Tx, db: u8) -> Result<Prefix> {
    let catalog = space.catalog.load(tx).await?;
    Ok(catalog.prefix(db).ok_or_else(|| StoreError::Corrupt(format!("no prefix for database {db}")))?)
}

/// Processes all rows in one transaction; if that conflicts, each in its own.
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

/// None: nothing was removed, because of a conflict or because the database has another prefix now.
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
        uncounted: None,
        life: Life::default(),
    };
    let mut done = Swept::default();
    let each = |all: usize| all.div_ceil(rows.len());
    for row in rows {
        match remove_row(&s, row, (each(FIELDS.0), each(FIELDS.1))).await? {
            Removed::Key => done.removed += 1,
            Removed::Stale => done.stale += 1,
            Removed::Fields { removed, more } => {
                done.fields += removed;
                done.more |= more;
            }
        }
    }
    let messages = outbox.take();
    if shared && !messages.is_empty() {
        bus::write(&tx, messages.iter())?;
    }
    match tx.commit().await {
        // If it was committed, these keys no longer exist, and caches must know. For readers they had expired
        // before.
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

/// What a row of the index stood for.
enum Removed {
    /// A key.
    Key,
    /// Nothing, or a ghost.
    Stale,
    /// Fields of a hash; perhaps more have expired.
    Fields { removed: usize, more: bool },
}

/// Removes the key of an index row, or up to `most` of its fields and about so many bytes of them.
async fn remove_row(s: &Scope<'_>, row: &Bytes, most: (usize, usize)) -> Result<Removed> {
    let (ms, key) = s.db.decode_expiry(row).ok_or_else(corrupt)?;
    let mut slot = object::open_members(s, &key).await?;
    if ms > s.now || !slot.times().contains(&Some(ms)) {
        s.tx.clear(row)?;
        return Ok(Removed::Stale);
    }
    if slot.stored_expiry().is_none_or(|at| at > s.now) {
        return Ok(match hash::expiry::sweep(s, &mut slot, most).await? {
            hash::expiry::Swept::Key => Removed::Key,
            hash::expiry::Swept::Fields { removed, more } => Removed::Fields { removed, more },
        });
    }
    if slot.ghost().is_some() {
        object::clear_ghost(s, &mut slot)?;
        return Ok(Removed::Stale);
    }
    object::remove(s, &mut slot)?;
    Ok(Removed::Key)
}
