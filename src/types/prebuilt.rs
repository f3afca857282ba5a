//! Builds values too large for a transaction, then swaps them in.
//!
//! A [`Builder`] writes the rows under a fresh object id in transactions of its own, under a `g` row
//! `Garbage::Building` with a lease ([`lease`] explains whose clock it uses). The command that follows takes
//! the object over in its own transaction ([`Object::take`]): it reads the `g` row serializably, clears it
//! and writes the record. Nobody ever sees a partial value, and a crash leaves a `g` row that any server
//! reclaims once the builder is known to be gone.
//!
//! Invariants:
//! * Every transaction here reads the `g` row serializably *and* writes it. So an attempt whose commit was
//!   unknown cannot be applied after its retry, after the swap or after a reclaim, where it would restore the
//!   row and have the rows of a live object reclaimed.
//! * A set whose members were interned for it is taken over only in the epoch of the dictionary's collection
//!   in which they were interned: until a set holds them, the next epoch may remove them
//!   (`types::set::collect`).
//! * Everything happens in one [generation](Tx::generation) of the store: reading the sources, each step, and
//!   taking over. A store that lost its last commits may have lost steps while the `g` row of an earlier step
//!   remains, and a version of a source may come back.
//! * An object made from other keys ([`Source`]) is taken over only if each of them, read serializably, still
//!   has the version it had when the building began: the revision of its record, N of a chunked set, and the
//!   versions of a stream's groups. They change with every change and never come back in a generation. So whatever was read from them in between,
//!   in any number of transactions, belongs to one version. (This holds for a key's *contents*. Rows change
//!   place: a fold moves members from deltas into chunks. To read a set over several transactions, read its
//!   members stretch by stretch, never its rows.)

use super::lease;
use super::object::{self, Slot};
use super::set::named::Ids;
use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::keys::{Id, Oid, Prefix, root, root::Garbage};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{Read, Retries, Tx};
use bytes::Bytes;
use std::borrow::Cow;
use tokio::task::coop::consume_budget;

/// Approximate bytes of rows that one transaction of a build writes.
pub(crate) const STEP: usize = 1 << 21;
/// The most rows that it writes into an embedded store, whose commits wait for each other.
const MOST_ROWS: usize = 2000;
/// Attempts per step. Only the reclaimer of an expired lease, or an unknown commit, can make one fail.
const ATTEMPTS: u32 = 20;

/// Something built for a command before it runs.
#[derive(Debug, Clone)]
pub enum Prebuilt {
    /// A string for an argument. Holding the argument keeps its address valid as its name.
    Argument(Bytes, Object),
    /// The new value of the command's destination.
    Result(Object),
    /// The ids of the members that the command names.
    Ids(Ids),
}

impl Prebuilt {
    /// The object that was built.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Prebuilt::Argument(_, object) | Prebuilt::Result(object) => Some(object),
            Prebuilt::Ids(_) => None,
        }
    }
}

/// The new value of the destination, if one was built.
pub(crate) fn result(prebuilt: &[Prebuilt]) -> Option<&Object> {
    prebuilt.iter().find_map(|prebuilt| match prebuilt {
        Prebuilt::Result(object) => Some(object),
        Prebuilt::Argument(..) | Prebuilt::Ids(_) => None,
    })
}

/// The ids of the members that the command names, if they were looked up beforehand.
pub(crate) fn ids(prebuilt: &[Prebuilt]) -> Option<&Ids> {
    prebuilt.iter().find_map(|prebuilt| match prebuilt {
        Prebuilt::Ids(ids) => Some(ids),
        Prebuilt::Argument(..) | Prebuilt::Result(_) => None,
    })
}

/// A key that an object is made from, and its version when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    db: Prefix,
    key: Bytes,
    version: Option<(u64, i128)>,
    /// As [`crate::types::Value::aside`].
    aside: i128,
    generation: u64,
}

impl Source {
    /// The version of `slot` in this transaction. A snapshot read suffices: [`Object::take`] decides.
    pub(crate) async fn of(s: &Scope<'_>, slot: &Slot) -> Result<Self> {
        let version = object::version(s, slot, Read::Snapshot).await?;
        let aside = aside(s, slot, Read::Snapshot).await?;
        let generation = s.tx.generation().await?;
        Ok(Source { db: s.db, key: slot.key.clone(), version, aside, generation })
    }

    async fn is_unchanged(&self, s: &Scope<'_>, read: Read) -> Result<bool> {
        if self.generation != s.tx.generation().await? {
            return Ok(false);
        }
        let slot = object::open(s, &self.key, read).await?;
        Ok(self.db == s.db
            && self.version == object::version(s, &slot, read).await?
            && self.aside == aside(s, &slot, read).await?)
    }
}

async fn aside(s: &Scope<'_>, slot: &Slot, read: Read) -> Result<i128> {
    match slot.record() {
        Some(record) => record.value.aside(s, read).await,
        None => Ok(0),
    }
}

/// What the record of a stream says besides where its entries are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct History {
    /// The id of the first entry.
    pub(crate) first: Id,
    /// The id given last.
    pub(crate) last: Id,
    /// The largest id of an entry that was deleted.
    pub(crate) max_deleted: Id,
    /// The number of entries ever added.
    pub(crate) added: u64,
}

/// Rows built ahead of the command that takes them over.
#[derive(Debug, Clone)]
pub struct Object {
    db: Prefix,
    oid: Oid,
    len: u64,
    sources: Vec<Source>,
    /// A time before which none of its elements expires, if some do.
    due: Option<u64>,
    /// For a list: bytes of all elements, and the number of those in pieces.
    sizes: (u64, u64),
    /// For a stream.
    history: History,
    /// For a set whose members were interned for it: the epoch in which they were.
    epoch: Option<u64>,
    /// The store's generation, set by the first step or when members were interned.
    generation: Option<u64>,
}

impl Object {
    /// The object id of the rows.
    pub(crate) fn oid(&self) -> Oid {
        self.oid
    }
    /// Bytes of a string, members of a set.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// The same object, none of whose elements expires before `due`.
    pub(crate) fn with_due(self, due: Option<u64>) -> Self {
        Object { due, ..self }
    }
    /// The same object, a list of so many bytes and so many elements in pieces.
    pub(crate) fn with_sizes(self, bytes: u64, long: u64) -> Self {
        Object { sizes: (bytes, long), ..self }
    }
    /// As [`Object::with_sizes`] set them.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        self.sizes
    }
    /// The same object, a stream of this history.
    pub(crate) fn with_history(self, history: History) -> Self {
        Object { history, ..self }
    }
    /// As [`Object::with_history`] set it.
    pub(crate) fn history(&self) -> History {
        self.history
    }
    /// A time before which none of its elements expires, if some do.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due
    }
    /// True if it has no bytes or members.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
    fn row(&self) -> Vec<u8> {
        root::garbage(Garbage::Building(self.db, self.oid))
    }

    /// Takes the object over into `to`; its sources are keys in `from`. The caller writes the record. Fails
    /// with [`StoreError::Conflict`], having written nothing, if the object is stale: build it again, then
    /// run again.
    pub(crate) async fn take(&self, from: &Scope<'_>, to: &Scope<'_>) -> Result<()> {
        if self.try_take(from, to).await? { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }

    /// As [`Object::take`]. False if the object is stale: a source has changed, the database was flushed, the
    /// lease has expired, members that are in no set yet may have been collected, or the store may have lost
    /// some rows.
    pub async fn try_take(&self, from: &Scope<'_>, to: &Scope<'_>) -> Result<bool> {
        if self.generation != Some(to.tx.generation().await?) {
            return Ok(false);
        }
        for source in &self.sources {
            if !source.is_unchanged(from, Read::Serializable).await? {
                return Ok(false);
            }
        }
        if self.epoch.is_some_and(|epoch| epoch != to.round.epoch) {
            return Ok(false);
        }
        if self.db != to.db || to.tx.get(&self.row(), Read::Serializable).await?.is_none() {
            return Ok(false);
        }
        to.tx.clear(&self.row())?;
        Ok(true)
    }
}

/// Gives up an object that no command took over; its rows are then reclaimed soon, not only after the lease.
pub async fn abandon(space: &Keyspace, object: &Object) -> Result<()> {
    let tx = space.store.begin();
    if tx.get(&object.row(), Read::Serializable).await?.is_some() {
        tx.set(&object.row(), &lease::GIVEN_UP)?;
    }
    tx.commit().await?;
    Ok(())
}

/// A row of an object under construction.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its key.
    pub key: Vec<u8>,
    /// None: `bytes` is the whole value. Otherwise `bytes` overwrite the existing value from this offset on.
    pub at: Option<usize>,
    /// The bytes to write.
    pub bytes: Cow<'a, [u8]>,
}

/// Builds an object.
pub struct Builder<'a> {
    space: &'a Keyspace,
    lease_ms: u64,
    object: Object,
    begun: bool,
    /// Rows that are not written yet, and their bytes.
    rows: Vec<Row<'static>>,
    bytes: usize,
}

impl<'a> Builder<'a> {
    /// A builder of an object in database `db`, made from `sources`. `lease_ms` is how long the command has
    /// to take the object over after the last step; make it far longer than the command is retried.
    pub fn new(space: &'a Keyspace, db: Prefix, sources: Vec<Source>, lease_ms: u64) -> Self {
        let oid = space.fresh.oid();
        let history = History::default();
        let (len, due, sizes, epoch, generation) = (0, None, (0, 0), None, None);
        let object = Object { db, oid, len, sources, due, sizes, history, epoch, generation };
        Builder { space, lease_ms, object, begun: false, rows: Vec::new(), bytes: 0 }
    }

    /// For an object whose members were interned for it, in `round` or later.
    pub(crate) fn in_round(mut self, round: Round) -> Self {
        (self.object.epoch, self.object.generation) = (Some(round.epoch), Some(round.generation));
        self
    }

    /// The database and object id of its rows.
    pub fn place(&self) -> (Prefix, Oid) {
        (self.object.db, self.object.oid)
    }

    /// The finished object, of `len` bytes, all of which were [written](Builder::write).
    pub fn done(self, len: u64) -> Object {
        Object { len, ..self.object }
    }

    /// Adds a row, and writes those that were added once they are enough for a transaction. Others get a turn now and
    /// then. Fails as [`Builder::write`].
    pub(crate) async fn add(&mut self, key: Vec<u8>, bytes: Vec<u8>) -> StoreResult<()> {
        self.bytes += key.len() + bytes.len();
        self.rows.push(Row { key, at: None, bytes: Cow::Owned(bytes) });
        if self.bytes >= STEP || self.rows.len() >= MOST_ROWS && !self.space.store.is_shared() {
            self.write_added().await?;
        }
        consume_budget().await;
        Ok(())
    }

    async fn write_added(&mut self) -> StoreResult<()> {
        self.bytes = 0;
        let mut rows = std::mem::take(&mut self.rows);
        self.write(&rows).await?;
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// The finished object, of `len` members, all of whose rows were [added](Builder::add).
    pub(crate) async fn finish(mut self, len: u64) -> StoreResult<Object> {
        self.write_added().await?;
        Ok(self.done(len))
    }

    /// Fails with [`StoreError::Conflict`] if a source has changed: the object could not be taken over.
    pub(crate) async fn check(&self, s: &Scope<'_>) -> Result<()> {
        for source in &self.object.sources {
            if !source.is_unchanged(s, Read::Snapshot).await? {
                return Err(StoreError::Conflict.into());
            }
        }
        Ok(())
    }

    /// Writes rows in one transaction, at most a few [`STEP`]s, and renews the lease. Fails with
    /// [`StoreError::Conflict`] if the store may have lost rows written before: build another object.
    pub async fn write(&mut self, rows: &[Row<'_>]) -> StoreResult<()> {
        let mut retries = Retries::new(ATTEMPTS).idempotent();
        loop {
            let tx = self.space.store.begin();
            let written = match self.is_of_one_generation(&tx).await {
                Ok(true) => self.attempt(tx, rows).await,
                Ok(false) => return Err(StoreError::Conflict),
                Err(e) => Err(e),
            };
            match written {
                Ok(()) => {
                    self.begun = true;
                    return Ok(());
                }
                Err(e) => retries.on_error(e)?,
            }
        }
    }

    /// Whether `tx` reads the generation in which the build began. The first call fixes that generation.
    async fn is_of_one_generation(&mut self, tx: &Tx) -> StoreResult<bool> {
        let generation = tx.generation().await?;
        Ok(*self.object.generation.get_or_insert(generation) == generation)
    }

    async fn attempt(&self, tx: Tx, rows: &[Row<'_>]) -> StoreResult<()> {
        let row = self.object.row();
        if tx.get(&row, Read::Serializable).await?.is_none() && self.begun {
            return Err(StoreError::Unavailable("the lease of a prebuilt value has expired".into()));
        }
        tx.set(&row, &lease::until(self.space, self.lease_ms))?;
        for row in rows {
            match row.at {
                // Nobody can have read it: its object is in no record yet.
                None => tx.set_without_conflict(&row.key, &row.bytes)?,
                Some(at) => lay_over(&tx, &row.key, at, &row.bytes).await?,
            }
        }
        tx.commit().await.map(|_| ())
    }
}

/// Writes bytes into a row, from `at` on.
pub(crate) async fn lay_over(tx: &Tx, row: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
    let old = tx.get(row, Read::Snapshot).await?.unwrap_or_default();
    tx.set(row, &overlay(&old, at, bytes))
}

/// `old` with `patch` written at `at`.
pub(crate) fn overlay(old: &[u8], at: usize, patch: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(old.len().max(at + patch.len()));
    out.extend_from_slice(old.get(..at).unwrap_or(old));
    out.resize(at, 0);
    out.extend_from_slice(patch);
    out.extend_from_slice(old.get(out.len()..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays() {
        assert_eq!(overlay(b"hello", 1, b"EL"), b"hELlo");
        assert_eq!(overlay(b"hi", 3, b"x"), b"hi\0x");
        assert_eq!(overlay(b"hi", 1, b"ello"), b"hello");
        assert_eq!(overlay(b"", 0, b""), b"");
    }
}
