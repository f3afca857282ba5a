//! Strings too large for a transaction are built, then swapped in.
//!
//! [`stage`] writes the pieces under a fresh object id in transactions of their own, under a `g` row
//! `Garbage::Building` with a lease (`types::reclaim` says by whose clock). The command that follows takes the object over in its own
//! transaction: it reads the `g` row serializably, clears it and writes the record ([`adopt`]). Nobody ever sees a half
//! string, and a crash leaves a `g` row that any server reclaims once the builder is known to be gone.
//!
//! Invariant: every transaction here reads the `g` row serializably *and* writes it. So an attempt whose commit was unknown
//! cannot be applied after its retry, after the swap or after a reclaim, where it would bring the row back and have the
//! pieces of a live string reclaimed.

use super::{DIRECT_MAX, PIECE, cuts, len, overlay, read_range};
use crate::error::{Result, StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix, root, root::Garbage};
use crate::keyspace::record::Str;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{Read, Tx};
use crate::types::object::{self, Slot};
use crate::types::reclaim;
use bytes::Bytes;

/// Bytes written by one transaction of the building.
const STEP: usize = 64 * PIECE;
/// No string gets longer: pieces are numbered with 32 bits. The configured limit is far below.
const LONGEST: u64 = PIECE as u64 * u32::MAX as u64;
/// Attempts for one step. Only the reclaimer of an old lease and unknown commits can make one fail.
const ATTEMPTS: usize = 20;

/// A string built ahead of the command that takes it over.
#[derive(Debug, Clone)]
pub struct Staged {
    /// The argument it was built for; held, so that its address stays its name.
    argument: Bytes,
    db: Prefix,
    oid: Oid,
    len: u64,
    /// For APPEND and SETRANGE: the string that it continues, by key and revision of its record.
    base: Option<(Bytes, Option<u64>)>,
}

impl Staged {
    /// The object that holds the pieces.
    pub fn oid(&self) -> Oid {
        self.oid
    }
    pub(super) fn value(&self) -> Str {
        Str::Pieces { oid: self.oid, len: self.len }
    }
    fn row(&self) -> Vec<u8> {
        root::garbage(Garbage::Building(self.db, self.oid))
    }
    fn is_of(&self, argument: &Bytes) -> bool {
        self.argument.as_ptr() == argument.as_ptr() && self.argument.len() == argument.len()
    }
    fn fits(&self, s: &Scope<'_>, slot: Option<&Slot>) -> bool {
        self.db == s.db && self.base == slot.map(base)
    }
}

/// What names the string that an object continues.
fn base(slot: &Slot) -> (Bytes, Option<u64>) {
    (slot.key.clone(), slot.record().map(|r| r.revision))
}

/// Builds `value` (SET, MSET, GETSET and so on) in database `db`. `lease_ms`: how long the command has to take it over
/// after the last step; choose it far longer than the command is tried.
pub async fn stage(space: &Keyspace, db: Prefix, value: &Bytes, lease_ms: u64) -> Result<Staged> {
    let mut builder = Builder::new(space, db, value, lease_ms);
    builder.built.len = value.len() as u64;
    builder.write(0, value).await?;
    Ok(builder.built)
}

/// Builds what the string under `key` becomes with `patch` written at `offset` (None: at its end), for an APPEND or
/// SETRANGE whose argument exceeds a transaction. None where the key holds no string or the result is
/// too long: let the command answer that.
/// [`StoreError::Conflict`]: the string changed meanwhile.
pub async fn stage_change(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    offset: Option<u64>,
    patch: &Bytes,
    lease_ms: u64,
) -> Result<Option<Staged>> {
    let mut builder = Builder::new(space, db, patch, lease_ms);
    let tx = space.store.begin();
    let slot = object::open(&builder.scope(&tx), key, Read::Snapshot).await?;
    let Ok(old) = slot.string() else { return Ok(None) };
    let old = old.cloned().unwrap_or(Str::Inline(Bytes::new()));
    builder.built.base = Some(base(&slot));
    let offset = offset.unwrap_or_else(|| len(&old));
    builder.built.len = len(&old).max(offset.saturating_add(patch.len() as u64));
    if builder.built.len > LONGEST {
        return Ok(None);
    }
    for at in (0..len(&old)).step_by(STEP) {
        let part = builder.copied(key, &old, at).await?;
        builder.write(at, &part).await?;
    }
    builder.write(offset, patch).await?;
    Ok(Some(builder.built))
}

/// Gives up a string that no command took over; its rows are reclaimed soon instead of after the lease.
pub async fn abandon(space: &Keyspace, staged: &Staged) -> Result<()> {
    let tx = space.store.begin();
    if tx.get(&staged.row(), Read::Serializable).await?.is_some() {
        tx.set(&staged.row(), &reclaim::GIVEN_UP)?;
    }
    tx.commit().await?;
    Ok(())
}

struct Builder<'a> {
    space: &'a Keyspace,
    lease_ms: u64,
    built: Staged,
    begun: bool,
}

impl<'a> Builder<'a> {
    fn new(space: &'a Keyspace, db: Prefix, argument: &Bytes, lease_ms: u64) -> Self {
        let built = Staged { argument: argument.clone(), db, oid: space.fresh.oid(), len: 0, base: None };
        Builder { space, lease_ms, built, begun: false }
    }

    fn scope<'t>(&self, tx: &'t Tx) -> Scope<'t>
    where
        'a: 't,
    {
        // Pieces only, never a record: the number is not asked for.
        Scope { tx, db: self.built.db, number: 0, now: self.space.clock.now_ms(), space: self.space }
    }

    /// Reads a part of the string that is continued, if it is still the same: else the command would refuse the object.
    async fn copied(&self, key: &Bytes, old: &Str, at: u64) -> Result<Bytes> {
        let tx = self.space.store.begin();
        let s = self.scope(&tx);
        let slot = object::open(&s, key, Read::Snapshot).await?;
        if self.built.base != Some(base(&slot)) {
            return Err(StoreError::Conflict.into());
        }
        read_range(&s, old, at, at + STEP as u64).await
    }

    async fn write(&mut self, mut at: u64, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(STEP) {
            self.step(at, part).await?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes one part and renews the lease.
    async fn step(&mut self, at: u64, part: &[u8]) -> StoreResult<()> {
        let mut last = StoreError::Conflict;
        for _ in 0..ATTEMPTS {
            match self.attempt(at, part).await {
                Ok(()) => {
                    self.begun = true;
                    return Ok(());
                }
                Err(e) if e.is_retryable() || e == StoreError::Unknown => last = e,
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }

    async fn attempt(&self, at: u64, part: &[u8]) -> StoreResult<()> {
        let tx = self.space.store.begin();
        let row = self.built.row();
        if tx.get(&row, Read::Serializable).await?.is_none() && self.begun {
            return Err(StoreError::Unavailable("the lease of a string under construction ran out".into()));
        }
        tx.set(&row, &reclaim::lease(self.space, self.lease_ms))?;
        for (n, at, bytes) in cuts(at, part) {
            write_piece(&tx, &self.built.db.piece(self.built.oid, n), at, bytes).await?;
        }
        tx.commit().await.map(|_| ())
    }
}

/// Writes bytes into a piece at `at`; reads the old piece where they do not cover it.
pub(super) async fn write_piece(tx: &Tx, row: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
    if bytes.len() == PIECE {
        return tx.set(row, bytes);
    }
    let old = tx.get(row, Read::Snapshot).await?.unwrap_or_default();
    tx.set(row, &overlay(&old, at, bytes))
}

/// The staged string for `argument`, taken over: its `g` row is cleared, the caller writes the record. `slot`: the key
/// whose string is continued. None where nothing (valid) was staged and the argument fits into the transaction; where
/// it does not, a stale object is [`StoreError::Conflict`]: stage again, then run again.
pub(super) async fn adopt<'a>(
    s: &Scope<'_>,
    staged: &'a [Staged],
    argument: &Bytes,
    slot: Option<&Slot>,
) -> Result<Option<&'a Staged>> {
    let Some(found) = staged.iter().find(|c| c.is_of(argument)) else { return Ok(None) };
    if found.fits(s, slot) && s.tx.get(&found.row(), Read::Serializable).await?.is_some() {
        s.tx.clear(&found.row())?;
        return Ok(Some(found));
    }
    if argument.len() > DIRECT_MAX { Err(StoreError::Conflict.into()) } else { Ok(None) }
}
