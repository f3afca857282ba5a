//! Sets larger than a transaction, built as [`crate::types::staged`] says.
//!
//! Members that a command names get their ids in blocks, each in a transaction of its own ([`intern`]): an id never changes,
//! so nothing of that need be checked again in the same epoch of the dictionary's collection, and ids that stay unused are its
//! garbage. In another epoch they are interned again ([`Ids::check`]). What is left for the
//! command is bitmaps, which are a hundred times smaller; mostly they fit its transaction, which then conflicts
//! on members alone. Only what does not fit is built whole and swapped in.
//!
//! Members to be removed are only looked up ([`find`]). One that has no id is in no set; but somebody may give it one and add it
//! before the command is through. So the command looks it up again (also one that the collector has condemned, and may remove): in its own transaction, serializably, or, where the set is
//! built, after the version that the last transaction verifies.

use super::algebra::{self, Op};
use super::small::MAX_INTS;
use super::{Set, chunked, rows};
use crate::error::{Error, Result, StoreError};
use crate::keyspace::ids::Known;
use crate::keyspace::keys::Prefix;
use crate::keyspace::record::{SetRep, Value};
use crate::keyspace::{Keyspace, Scope, ids};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::staged::{Builder, Object, Row, STEP, Source};
use bytes::Bytes;
use futures_util::future::try_join_all;
use roaring::RoaringTreemap;
use std::borrow::Cow;

/// Bytes that one transaction of interning writes.
const BLOCK: usize = 3_000_000;
/// Transactions of interning at once.
const AT_ONCE: usize = 4;
/// Attempts for one of them: others intern the same members.
const ATTEMPTS: usize = 20;

/// Ids of the members that a command names.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    pub(super) known: RoaringTreemap,
    /// Members that had none when they were looked up, or a condemned one.
    pub(super) unknown: Vec<Bytes>,
    epoch: u64,
}

impl Ids {
    /// Whether they still hold in `epoch`.
    pub fn hold_in(&self, epoch: u64) -> bool {
        self.epoch == epoch
    }

    /// [`StoreError::Conflict`] where they may not hold any more: find them anew, then run again.
    pub fn check(&self, s: &Scope<'_>) -> Result<()> {
        if self.hold_in(s.round.epoch) { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }
}

/// The epoch of the dictionary's collection now.
async fn epoch(space: &Keyspace) -> Result<u64> {
    let mut last = StoreError::TooOld;
    for _ in 0..ATTEMPTS {
        match space.catalog.load(&space.store.begin()).await {
            Err(Error::Store(e)) if e.is_retryable() => last = e,
            catalog => return Ok(catalog?.round.epoch),
        }
    }
    Err(last.into())
}

/// The ids of `members`, which are more than fit into a record.
pub async fn intern(space: &Keyspace, members: &[Bytes]) -> Result<Option<Ids>> {
    if members.len() <= MAX_INTS {
        return Ok(None);
    }
    let (mut known, epoch) = (RoaringTreemap::new(), epoch(space).await?);
    let blocks = blocks(members);
    for some in blocks.chunks(AT_ONCE) {
        for mut ids in try_join_all(some.iter().map(|block| intern_block(space, block))).await? {
            ids.sort_unstable();
            known.extend(ids);
        }
    }
    Ok(Some(Ids { known, unknown: Vec::new(), epoch }))
}

/// The ids of `members` that have one, and the others. None where there are so few that the command does better.
pub async fn find(space: &Keyspace, members: &[Bytes]) -> Result<Option<Ids>> {
    if members.len() <= MAX_INTS {
        return Ok(None);
    }
    let mut ids = Ids { epoch: epoch(space).await?, ..Ids::default() };
    for some in blocks(members).chunks(AT_ONCE) {
        let found = try_join_all(some.iter().map(|block| find_block(space, block))).await?;
        for (member, id) in some.iter().copied().flatten().zip(found.into_iter().flatten()) {
            match id {
                Some(Known { id, condemned: false }) => {
                    ids.known.insert(id);
                }
                _ => ids.unknown.push(member.clone()),
            }
        }
    }
    Ok(Some(ids))
}

async fn find_block(space: &Keyspace, members: &[Bytes]) -> Result<Vec<Option<Known>>> {
    let mut last = StoreError::TooOld;
    for _ in 0..ATTEMPTS {
        match try_find_block(space, members).await {
            Err(Error::Store(e)) if e.is_retryable() => last = e,
            done => return done,
        }
    }
    Err(last.into())
}

async fn try_find_block(space: &Keyspace, members: &[Bytes]) -> Result<Vec<Option<Known>>> {
    let tx = space.store.begin();
    let round = space.catalog.load(&tx).await?.round;
    space.ids.known(&tx, round, members).await
}

/// Cuts members into what one transaction interns.
fn blocks(mut members: &[Bytes]) -> Vec<&[Bytes]> {
    let mut blocks = Vec::new();
    while !members.is_empty() {
        let mut room = BLOCK;
        let fits = members.iter().take_while(|m| {
            let bytes = ids::room([*m]);
            room.checked_sub(bytes).map(|left| room = left).is_some()
        });
        let (block, rest) = members.split_at(fits.count().max(1));
        blocks.push(block);
        members = rest;
    }
    blocks
}

/// In one transaction, or in smaller ones where a busy store does not manage that in its time.
async fn intern_block(space: &Keyspace, members: &[Bytes]) -> Result<Vec<u64>> {
    let (mut ids, mut rest, mut width) = (Vec::with_capacity(members.len()), members, members.len());
    let mut tries = 0;
    while !rest.is_empty() {
        let (some, later) = rest.split_at(width.clamp(1, rest.len()));
        match intern_some(space, some).await {
            Ok(found) => {
                ids.extend(found);
                (rest, tries) = (later, 0);
            }
            // An unknown commit shows itself: the next attempt finds the ids.
            Err(Error::Store(e)) if (e.is_retryable() || e == StoreError::Unknown) && tries < ATTEMPTS => {
                tries += 1;
                if e == StoreError::TooOld {
                    width = some.len() / 2;
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(ids)
}

async fn intern_some(space: &Keyspace, members: &[Bytes]) -> Result<Vec<u64>> {
    let tx = space.store.begin();
    let round = space.catalog.load(&tx).await?.round;
    let ids = space.ids.intern(&tx, round, members).await?;
    tx.commit().await?;
    Ok(ids.into_iter().map(|i| i.id).collect())
}

/// Builds what a *STORE leaves in `db`. None where a key holds another type or the result fits into a record: let the
/// command answer that.
pub async fn combination(
    space: &Keyspace,
    db: Prefix,
    op: Op,
    keys: &[Bytes],
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let round = space.catalog.load(&tx).await?.round;
    let s = Scope { round, ..space.scope(&tx, db) };
    let (mut slots, mut sources) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
    for key in keys {
        let slot = object::open(&s, key, Read::Snapshot).await?;
        sources.push(Source::of(&s, &slot).await?);
        slots.push(slot);
    }
    let Ok(sets) = slots.iter().map(|slot| slot.set()).collect::<Result<Vec<_>>>() else { return Ok(None) };
    let mut found = algebra::combine(&s, op, &sets, None).await?.sorted();
    if found.len() <= MAX_INTS as u64 {
        return Ok(None);
    }
    let raw = intern(space, &found.raw).await?;
    found.ids |= match raw {
        Some(ids) => ids.known,
        None => intern_block(space, &found.raw).await?.into_iter().collect(),
    };
    let pardoned = intern_block(space, &found.condemned).await?;
    if pardoned.iter().any(|id| !found.ids.contains(*id)) {
        // Removed since they were found.
        return Err(StoreError::Conflict.into());
    }
    build(space, db, found.ids, sources, Some(round.epoch), lease_ms).await.map(Some)
}

/// Builds the set of `members` in `db`. None where they fit into a record.
pub async fn whole(space: &Keyspace, db: Prefix, members: &[Bytes], lease_ms: u64) -> Result<Option<Object>> {
    match intern(space, members).await? {
        Some(ids) => {
            let Ids { known, epoch, .. } = ids;
            build(space, db, known, Vec::new(), Some(epoch), lease_ms).await.map(Some)
        }
        None => Ok(None),
    }
}

/// The set under `key` before it is changed, as a source. None where the key holds another type.
async fn before(s: &Scope<'_>, key: &Bytes) -> Result<Option<(Set, Vec<Source>)>> {
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.set() else { return Ok(None) };
    Ok(Some((Set::of(rep)?, vec![Source::of(s, &slot).await?])))
}

/// Builds what SADD of `ids` makes of the set under `key`. None where it holds another type.
pub async fn addition(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    ids: &Ids,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let Some((set, sources)) = before(&s, key).await? else { return Ok(None) };
    let mut all = match set {
        Set::Chunked(oid) => chunked::all(&s, oid).await?,
        Set::Small(small) => intern_block(space, &small.members()).await?.into_iter().collect(),
    };
    all |= &ids.known;
    build(space, db, all, sources, Some(ids.epoch), lease_ms).await.map(Some)
}

/// Builds what SREM of `ids` leaves of the set under `key`, if only an empty object. None where the key holds a small set or
/// another type: the command does that.
pub async fn removal(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    ids: &Ids,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let Some((Set::Chunked(oid), sources)) = before(&s, key).await? else { return Ok(None) };
    let mut left = chunked::all(&s, oid).await? - &ids.known;
    drop(tx);
    // After the version of the source: who got an id later is not in that.
    for block in blocks(&ids.unknown) {
        let late = find_block(space, block).await?;
        for known in late.into_iter().flatten() {
            left.remove(known.id);
        }
    }
    build(space, db, left, sources, Some(ids.epoch), lease_ms).await.map(Some)
}

/// Makes the key hold the set that was built for it, whatever it held, without expiry. Returns how many members it has.
/// Conflict where it is stale.
pub async fn put(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    swap_in(s, slot, built, None).await?;
    Ok(built.len())
}

/// As [`put`], of what the key held with members added or removed: the expiry stays. Returns how many they are.
pub async fn put_changed(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    let (before, expire_at) = (super::card(s, slot.set()?).await?, slot.expire_at());
    swap_in(s, slot, built, expire_at).await?;
    Ok(built.len().abs_diff(before))
}

async fn swap_in(s: &Scope<'_>, slot: &mut Slot, built: &Object, expire_at: Option<u64>) -> Result<()> {
    object::check_name(&slot.key)?;
    built.take(s, s).await?;
    if built.is_empty() {
        object::remove(s, slot)?;
        return object::discard_object(s, built.oid());
    }
    object::put(s, slot, Value::Set(SetRep::Chunked(built.oid())), expire_at)
}

/// Builds, in `to`, an object of these members. `epoch`: as for [`Builder::in_epoch`]; None where all are from `sources`.
pub(in crate::types) async fn build(
    space: &Keyspace,
    to: Prefix,
    ids: RoaringTreemap,
    sources: Vec<Source>,
    epoch: Option<u64>,
    lease_ms: u64,
) -> Result<Object> {
    let len = ids.len();
    let mut builder = Builder::new(space, to, sources, lease_ms);
    if let Some(epoch) = epoch {
        builder = builder.in_epoch(epoch);
    }
    let (db, oid) = builder.place();
    let (mut step, mut bytes) = (Vec::new(), 0);
    for (key, value) in rows::new_rows(db, oid, space.fresh.stamp(), ids)? {
        bytes += key.len() + value.len();
        step.push(Row { key, at: None, bytes: Cow::Owned(value) });
        if bytes >= STEP {
            builder.write(&step).await?;
            (step, bytes) = (Vec::new(), 0);
        }
    }
    builder.write(&step).await?;
    Ok(builder.done(len))
}
