//! The one door to a value: existence, expiry, type check, record, revision, counters, garbage.
//!
//! Side effects of writing through it:
//! * [`put`] gives the record a new revision (so WATCH notices even a SET of equal bytes), keeps the expiry
//!   index `X` and the key counter `Z` in step, and queues the old value's object for reclaim unless the new
//!   value keeps it. While the dictionary's collector settles, it is shown every set that the key did not
//!   have before (`types::set::collect`).
//! * [`remove`] does the same for a key that is removed.
//! * Both announce that the key changes. Code that changes only the members of a chunked set announces that
//!   itself.
//! * Both publish that a key has expired if they find its row past its expiry, and [`put`] publishes that a
//!   key is new. Only the command knows what else happens to the key: it publishes that itself.
//! * [`open`] writes nothing. A key past its expiry is absent for every reader; its row stays until a write
//!   or the expiry job replaces it. An absent key may thus still have a row: [`Slot`] remembers it. That row
//!   may also be a ghost, which records that somebody watches the absent key
//!   ([`crate::types::record::Ghost`]): a write that creates the key overwrites it, and nobody else sees it.
//! * A chunked set with N = 0 does not exist, whatever its record says. Several concurrent removers can leave
//!   one behind. So [`open`] for a write reads N serializably: EXISTS in an EXEC that writes must not see a
//!   set that another client has emptied before. It thereby conflicts with every change of the set; a command
//!   whose answer depends only on members (SADD, SREM, SISMEMBER) uses [`open_members`], which does not.
//!   `tests/sets_emptied.rs` shows both.

use crate::config::Events;
use crate::error::{KEY_TOO_LONG, Result, StoreError, StoreResult, WRONGTYPE};
use crate::keyspace::Scope;
use crate::keyspace::keys::{MAX_REDIS_KEY, Oid, Prefix, hash, root, root::Garbage, shard};
use crate::store::{Read, Tx, key_after, prefix_end};
use crate::types::record::{Ghost, Record, Stored};
use crate::types::{COUNTS, OneType, Value, object_tags};
use bytes::Bytes;

/// The value of a ghost's row in the expiry index; a key's is empty.
pub(crate) const GHOST_INDEXED: &[u8] = &[1];
/// The value of a row in the expiry index for a key of which only elements expire then.
pub(crate) const DUE_INDEXED: &[u8] = &[2];

/// A key as one transaction sees it.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The Redis key.
    pub(crate) key: Bytes,
    row: Option<Stored>,
    live: bool,
}

impl Slot {
    /// The record of a key that exists.
    pub fn record(&self) -> Option<&Record> {
        self.stored().filter(|_| self.live)
    }
    /// The record in the row, even if the key is past its expiry or the set was emptied.
    pub(crate) fn stored(&self) -> Option<&Record> {
        match &self.row {
            Some(Stored::Record(record)) => Some(record),
            Some(Stored::Ghost(_)) | None => None,
        }
    }
    /// The mark of an absent key that somebody watches.
    pub(crate) fn ghost(&self) -> Option<&Ghost> {
        match &self.row {
            Some(Stored::Ghost(ghost)) => Some(ghost),
            Some(Stored::Record(_)) | None => None,
        }
    }
    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.live
    }
    /// The expiry in the row, even of a key past it or of a ghost: for the expiry job.
    pub fn stored_expiry(&self) -> Option<u64> {
        self.row.as_ref()?.expire_at()
    }
    /// As [`Stored::times`].
    pub(crate) fn times(&self) -> [Option<u64>; 2] {
        self.row.as_ref().map_or([None; 2], Stored::times)
    }
    /// When the key expires, in ms since the epoch. None if it has no expiry or does not exist.
    pub(crate) fn expire_at(&self) -> Option<u64> {
        self.record()?.expire_at
    }
    /// The value if it has the type that the command expects, else WRONGTYPE.
    pub(crate) fn of_type<T: OneType>(&self) -> Result<Option<&T>> {
        match self.record() {
            None => Ok(None),
            Some(record) => T::of(&record.value).map(Some).ok_or(WRONGTYPE.into()),
        }
    }
}

/// Reads a key's record. A key too long to be written is absent. Use `Read::Serializable` if the command
/// writes or if its answer decides a write.
pub async fn open(s: &Scope<'_>, key: &Bytes, read: Read) -> Result<Slot> {
    open_as(s, key, read, read).await
}

/// As a serializable [`open`], except that an existing set may become empty meanwhile: for commands that
/// conflict on the members they read or change.
pub async fn open_members(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    open_as(s, key, Read::Serializable, Read::Snapshot).await
}

/// The value of a key, if it is of this type and perhaps alive: for reading ahead what depends on it.
pub(crate) async fn ahead<T: OneType + Clone>(s: &Scope<'_>, key: &[u8]) -> Result<Option<T>> {
    if key.len() > MAX_REDIS_KEY {
        return Ok(None);
    }
    let Some(raw) = s.tx.get(&s.db.record(key), Read::Snapshot).await? else { return Ok(None) };
    Ok(Stored::decode(raw)?.into_record().and_then(|record| T::of(&record.value).cloned()))
}

async fn open_as(s: &Scope<'_>, key: &Bytes, read: Read, read_count: Read) -> Result<Slot> {
    if key.len() > MAX_REDIS_KEY {
        return Ok(Slot { key: key.clone(), row: None, live: false });
    }
    let raw = s.tx.get(&s.db.record(key), read).await?;
    let mut slot = Slot { key: key.clone(), row: raw.map(Stored::decode).transpose()?, live: false };
    let Some(record) = slot.stored() else { return Ok(slot) };
    let live = is_live(s, record, read_count).await?;
    if let (false, Read::Serializable, Some(oid)) = (live, read, record.value.counter()) {
        // The key counts as absent and may be overwritten: adding a member meanwhile must conflict.
        count(s, oid, Read::Serializable).await?;
    }
    slot.live = live;
    Ok(slot)
}

/// Whether a stored record is an existing key: for scans, which read records by range.
pub async fn is_live(s: &Scope<'_>, record: &Record, read: Read) -> Result<bool> {
    if let Some(at) = record.expire_at
        && !s.life.is_alive(at, s.now)?
    {
        return Ok(false);
    }
    match record.value.counter() {
        Some(oid) => {
            let n = count(s, oid, read).await?.cardinality();
            if record.value.due().is_none() {
                return Ok(n > 0);
            }
            // Every command contains this future, which few of them need.
            Box::pin(record.value.has_any(s, n, read)).await
        }
        None => Ok(true),
    }
}

/// Version and cardinality of a chunked set: the two halves of its `N` row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub i128);

impl Count {
    /// Number of members.
    pub(crate) fn cardinality(self) -> u64 {
        self.0 as u64
    }
    /// The amount to add to `N` for a change of `delta` members: it moves the version half too.
    pub(crate) fn step(delta: i64) -> [u8; 16] {
        ((1i128 << 64) + i128::from(delta)).to_le_bytes()
    }
}

/// Reads `N`. A missing row counts as zero.
pub(crate) async fn count(s: &Scope<'_>, oid: Oid, read: Read) -> Result<Count> {
    match s.tx.get(&s.db.count(oid), read).await? {
        None => Ok(Count(0)),
        Some(raw) => {
            let bytes = raw[..]
                .try_into()
                .map_err(|_| StoreError::Corrupt("the member count of a set is not 16 bytes".into()))?;
            Ok(Count(i128::from_le_bytes(bytes)))
        }
    }
}

/// Fails for a name that no key can have.
pub(crate) fn check_name(key: &[u8]) -> Result<()> {
    if key.len() > MAX_REDIS_KEY { Err(KEY_TOO_LONG.into()) } else { Ok(()) }
}

/// Writes the key's value and expiry, with the side effects that the module lists. `slot` must come from a
/// serializable [`open`] in this transaction, or the counters drift.
pub fn put(s: &Scope<'_>, slot: &mut Slot, value: Value, expire_at: Option<u64>) -> Result<()> {
    check_name(&slot.key)?;
    let record = Record { revision: s.space.fresh.revision(), expire_at, value };
    drop_old(s, slot, record.value.oid())?;
    show_to_collector(s, slot, &record.value)?;
    notify_expired(s, slot);
    if slot.stored().is_none() {
        s.tx.add(&s.db.key_count(shard(hash(&slot.key))), &1i64.to_le_bytes())?;
    }
    if !slot.live {
        s.notify(Events::NEW, "new", &slot.key);
    }
    move_expiry(s, slot, [expire_at, record.value.due()], &[])?;
    s.changed(&slot.key);
    s.tx.set(&s.db.record(&slot.key), &record.encode())?;
    slot.row = Some(Stored::Record(record));
    slot.live = true;
    Ok(())
}

/// Gives an existing key another expiry, or none. Like every write, this makes a new revision.
pub(crate) fn set_expiry(s: &Scope<'_>, slot: &mut Slot, expire_at: Option<u64>) -> Result<()> {
    let Some(value) = slot.record().map(|r| r.value.clone()) else { return Ok(()) };
    put(s, slot, value, expire_at)
}

/// Removes the key. Returns true if it existed.
pub fn remove(s: &Scope<'_>, slot: &mut Slot) -> Result<bool> {
    drop_old(s, slot, None)?;
    take(s, slot)
}

/// As [`remove`], and publishes that the key was deleted.
pub(crate) fn delete(s: &Scope<'_>, slot: &mut Slot) -> Result<bool> {
    let existed = remove(s, slot)?;
    if existed {
        s.notify(Events::GENERIC, "del", &slot.key);
    }
    Ok(existed)
}

/// Removes the key's record but keeps its object: for RENAME, which gives it to another key. As if the object were discarded,
/// it conflicts with whoever relied on finding the object under this key (`types::stream::groups`).
pub(crate) fn take(s: &Scope<'_>, slot: &mut Slot) -> Result<bool> {
    let Some(record) = slot.stored() else { return Ok(false) };
    if let Some(oid) = record.value.oid() {
        let life = root::garbage(Garbage::Object(s.db, oid));
        s.tx.add_write_conflict(&life, &key_after(&life))?;
    }
    notify_expired(s, slot);
    s.changed(&slot.key);
    s.tx.add(&s.db.key_count(shard(hash(&slot.key))), &(-1i64).to_le_bytes())?;
    clear_row(s, slot)?;
    Ok(std::mem::replace(&mut slot.live, false))
}

fn clear_row(s: &Scope<'_>, slot: &mut Slot) -> Result<()> {
    move_expiry(s, slot, [None; 2], &[])?;
    s.tx.clear(&s.db.record(&slot.key))?;
    slot.row = None;
    Ok(())
}

/// Writes the ghost of an absent key, and removes what is left of an expired key. `slot` must come from a
/// serializable [`open`] in this transaction.
pub(crate) fn put_ghost(s: &Scope<'_>, slot: &mut Slot, ghost: Ghost) -> Result<()> {
    remove(s, slot)?;
    move_expiry(s, slot, [Some(ghost.expire_at), None], GHOST_INDEXED)?;
    s.tx.set(&s.db.record(&slot.key), &ghost.encode())?;
    slot.row = Some(Stored::Ghost(ghost));
    Ok(())
}

/// Removes the ghost of an absent key, if any. Clients that watch the key notice, as if the key had come and
/// gone.
pub(crate) fn clear_ghost(s: &Scope<'_>, slot: &mut Slot) -> Result<()> {
    if slot.ghost().is_some() { clear_row(s, slot) } else { Ok(()) }
}

/// Publishes that a key or all of its elements have expired, if its row is removed only now.
fn notify_expired(s: &Scope<'_>, slot: &Slot) {
    let Some(record) = slot.stored().filter(|_| !slot.live) else { return };
    if record.expire_at.is_some_and(|at| at <= s.now) {
        s.notify(Events::EXPIRED, "expired", &slot.key);
    } else if record.value.due().is_some_and(|at| at <= s.now) {
        s.notify(Events::HASH, "hexpired", &slot.key);
        s.notify(Events::GENERIC, "del", &slot.key);
    }
}

/// Queues an object's rows for reclaim.
pub(crate) fn discard_object(s: &Scope<'_>, oid: Oid) -> Result<()> {
    Ok(s.tx.set(&root::garbage(Garbage::Object(s.db, oid)), &[])?)
}

/// Clears all rows of an object of any type: its garbage row does not name the type.
pub(crate) fn clear_object(tx: &Tx, db: Prefix, oid: Oid) -> StoreResult<()> {
    for tag in object_tags().into_iter().filter(|tag| *tag != COUNTS) {
        let rows = db.object_rows(tag, oid);
        tx.clear_range(&rows, &prefix_end(&rows))?;
    }
    tx.clear(&db.count(oid))
}

fn drop_old(s: &Scope<'_>, slot: &Slot, keep: Option<Oid>) -> Result<()> {
    match slot.stored().and_then(|r| r.value.oid()) {
        Some(oid) if Some(oid) != keep => discard_object(s, oid),
        Some(_) | None => Ok(()),
    }
}

/// A set that this key did not have before may hold members of sets that the collector has not read yet.
fn show_to_collector(s: &Scope<'_>, slot: &Slot, value: &Value) -> Result<()> {
    match value.interned() {
        Some(oid) if s.round.is_settling() && slot.stored().and_then(|r| r.value.oid()) != Some(oid) => {
            Ok(s.tx.set(&root::made(s.db, oid), &[])?)
        }
        Some(_) | None => Ok(()),
    }
}

/// Moves the key's rows in the expiry index to the times `to` ([`Stored::times`]). `value`: of the row at the
/// first of them.
fn move_expiry(s: &Scope<'_>, slot: &Slot, to: [Option<u64>; 2], value: &[u8]) -> Result<()> {
    let from = slot.times();
    for ms in from.into_iter().flatten().filter(|ms| !to.contains(&Some(*ms))) {
        s.tx.clear(&s.db.expiry(ms, &slot.key))?;
    }
    let [old, _] = from;
    let [new, _] = to;
    for at in to.into_iter().flatten() {
        let is_same = from.contains(&Some(at)) && (old == Some(at)) == (new == Some(at));
        if !is_same || slot.ghost().is_some() {
            let value = if new == Some(at) { value } else { DUE_INDEXED };
            s.tx.set(&s.db.expiry(at, &slot.key), value)?;
        }
    }
    Ok(())
}

/// The revision of the record, and `N` of a chunked set. Once changed, neither comes back under the same
/// prefix. None if the key does not exist.
pub(crate) async fn version(s: &Scope<'_>, slot: &Slot, read: Read) -> Result<Option<(u64, i128)>> {
    let Some(record) = slot.record() else { return Ok(None) };
    let n = match record.value.counter() {
        Some(oid) => count(s, oid, read).await?.0,
        None => 0,
    };
    Ok(Some((record.revision, n)))
}
