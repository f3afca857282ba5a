//! Sets larger than a transaction, built as [`crate::types::prebuilt`] says.
//!
//! Members that a command names get their ids in blocks, each in a transaction of its own ([`intern`]): an id never changes,
//! so nothing of that need be checked again in the same epoch of the dictionary's collection, and ids that stay unused are its
//! garbage. In another epoch, or where the store may have lost them, they are interned again ([`Ids::check`]). What is left for the
//! command is bitmaps, which are a hundred times smaller; mostly they fit its transaction, which then conflicts
//! on members alone. Only what does not fit is built whole and swapped in.
//!
//! Members to be removed are only looked up ([`find`]). One that has no id is in no set; but somebody may give it one and add it
//! before the command is through. So the command looks it up again (also one that the collector has condemned, and may remove): in its own transaction, serializably, or, where the set is
//! built, after the version that the last transaction verifies.

use super::algebra::{self, Op};
use super::named::Ids;
use super::small::{MAX_INTS, may_be_small};
use super::{Set, chunked, rows};
use crate::error::{Error, Result, StoreError};
use crate::keyspace::dictionary::collector::Round;
use crate::keyspace::dictionary::interner;
use crate::keyspace::dictionary::interner::Known;
use crate::keyspace::keys::Prefix;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{Read, Retries};
use crate::types::Value;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{Builder, Object, Row, STEP, Source};
use crate::types::set::SetRep;
use bytes::Bytes;
use futures_util::future::try_join_all;
use roaring::RoaringTreemap;
use std::borrow::Cow;

/// Bytes that one transaction of interning writes.
const BLOCK: usize = 3_000_000;
/// Transactions of interning at once.
const AT_ONCE: usize = 4;
/// Attempts for one of them: others intern the same members.
const ATTEMPTS: u32 = 20;
/// Ids that are taken into a bitmap before others have their turn.
const AT_A_TIME: usize = 8192;

/// Where the dictionary's collection stands now.
async fn round(space: &Keyspace) -> Result<Round> {
    let mut retries = Retries::new(ATTEMPTS);
    loop {
        match space.catalog.load(&space.store.begin()).await {
            Ok(catalog) => return Ok(catalog.round),
            Err(e) => retries.on_error(e)?,
        }
    }
}

/// The ids of the members of each call; members that have none get one.
pub async fn intern(space: &Keyspace, calls: &[&[Bytes]]) -> Result<Vec<Ids>> {
    let (members, round) = (joined(calls), round(space).await?);
    let mut all = Vec::with_capacity(members.len());
    for some in blocks(&members).chunks(AT_ONCE) {
        let found = try_join_all(some.iter().map(|block| intern_block(space, block))).await?;
        all.extend(found.into_iter().flatten());
    }
    let mut rest = all.as_mut_slice();
    let mut out = Vec::with_capacity(calls.len());
    for call in calls {
        let (own, others) = rest.split_at_mut_checked(call.len()).unwrap_or_default();
        rest = others;
        let mut known = RoaringTreemap::new();
        for some in own.chunks_mut(AT_A_TIME) {
            some.sort_unstable();
            known.extend(some.iter().copied());
            tokio::task::yield_now().await;
        }
        out.push(Ids { known, unknown: Vec::new(), round });
    }
    Ok(out)
}

/// The ids of the members of each call that have one, and the others.
pub async fn find(space: &Keyspace, calls: &[&[Bytes]]) -> Result<Vec<Ids>> {
    let (members, round) = (joined(calls), round(space).await?);
    let mut all = Vec::with_capacity(members.len());
    for some in blocks(&members).chunks(AT_ONCE) {
        let found = try_join_all(some.iter().map(|block| find_block(space, block))).await?;
        all.extend(found.into_iter().flatten());
    }
    let mut rest = members.iter().zip(all);
    let mut out = Vec::with_capacity(calls.len());
    for call in calls {
        let mut ids = Ids { round, ..Ids::default() };
        for (n, (member, id)) in rest.by_ref().take(call.len()).enumerate() {
            match id {
                Some(Known { id, condemned: false }) => {
                    ids.known.insert(id);
                }
                _ => ids.unknown.push(member.clone()),
            }
            if n % AT_A_TIME == AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
        }
        out.push(ids);
    }
    Ok(out)
}

/// The members of all calls, so that the transactions that look for them are few.
fn joined<'a>(calls: &[&'a [Bytes]]) -> Cow<'a, [Bytes]> {
    match calls {
        [one] => Cow::Borrowed(*one),
        calls => Cow::Owned(calls.concat()),
    }
}

async fn find_block(space: &Keyspace, members: &[Bytes]) -> Result<Vec<Option<Known>>> {
    let mut retries = Retries::new(ATTEMPTS);
    loop {
        match try_find_block(space, members).await {
            Err(e) => retries.on_error(e)?,
            found => return found,
        }
    }
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
            let bytes = interner::room([*m]);
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
    // An unknown commit shows itself: the next attempt finds the ids.
    let attempts = || Retries::new(ATTEMPTS).idempotent();
    let mut retries = attempts();
    while !rest.is_empty() {
        let (some, later) = rest.split_at(width.clamp(1, rest.len()));
        match intern_some(space, some).await {
            Ok(found) => {
                ids.extend(found);
                (rest, retries) = (later, attempts());
            }
            Err(e) => {
                if matches!(e, Error::Store(StoreError::TooOld)) {
                    width = some.len() / 2;
                }
                retries.on_error(e)?;
            }
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
    found.ids |= intern_all(space, &found.raw).await?.known;
    let pardoned = intern_block(space, &found.condemned).await?;
    if pardoned.iter().any(|id| !found.ids.contains(*id)) {
        // Removed since they were found.
        return Err(StoreError::Conflict.into());
    }
    build(space, db, found.ids, sources, Some(round), lease_ms).await.map(Some)
}

/// Builds the set of `members` in `db`. None where they fit into a record.
pub async fn whole(space: &Keyspace, db: Prefix, members: &[Bytes], lease_ms: u64) -> Result<Option<Object>> {
    if may_be_small(members.len(), members) {
        return Ok(None);
    }
    let Ids { known, round, .. } = intern_all(space, members).await?;
    build(space, db, known, Vec::new(), Some(round), lease_ms).await.map(Some)
}

async fn intern_all(space: &Keyspace, members: &[Bytes]) -> Result<Ids> {
    Ok(intern(space, &[members]).await?.pop().unwrap_or_default())
}

/// The set under `key` before it is changed, as a source. None where the key holds another type.
async fn before(s: &Scope<'_>, key: &Bytes) -> Result<Option<(Set, Vec<Source>)>> {
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.set() else { return Ok(None) };
    Ok(Some((Set::of(rep)?, vec![Source::of(s, &slot).await?])))
}

/// Builds what SADD of `ids` makes of the set under `key`. None where it holds another type.
pub(crate) async fn addition(
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
    build(space, db, all, sources, Some(ids.round), lease_ms).await.map(Some)
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
    build(space, db, left, sources, Some(ids.round), lease_ms).await.map(Some)
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

/// Builds, in `to`, an object of these members. `round`: as for [`Builder::in_round`]; None where all are from `sources`.
pub(crate) async fn build(
    space: &Keyspace,
    to: Prefix,
    ids: RoaringTreemap,
    sources: Vec<Source>,
    round: Option<Round>,
    lease_ms: u64,
) -> Result<Object> {
    let len = ids.len();
    let mut builder = Builder::new(space, to, sources, lease_ms);
    if let Some(round) = round {
        builder = builder.in_round(round);
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
