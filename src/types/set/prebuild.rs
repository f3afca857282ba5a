//! Builds sets larger than a transaction, as [`crate::types::prebuilt`] describes.
//!
//! The members that a command adds get their ids in blocks, each in a transaction of its own ([`intern`]). An
//! id never changes, so in the same epoch of the dictionary's collection nothing needs to be checked again;
//! ids that stay unused are garbage of the dictionary. In another epoch, or if the store may have lost the
//! ids, the members are interned again ([`Ids::check`]). The command is then left with bitmaps, a hundred
//! times smaller, which usually fit its transaction; it then conflicts only on members. Only a larger result
//! is built whole and swapped in.
//!
//! Members to be removed are only looked up ([`find`]). A member without an id is in no set, but another
//! client may give it one and add it before the command commits; the collector may remove a candidate, and
//! its member then gets another. So the command looks up both kinds again: serializably in its own
//! transaction or, if the set is prebuilt, after the version that the last transaction verifies.

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
use crate::types::prebuilt::{Builder, Object, Source};
use crate::types::set::SetRep;
use bytes::Bytes;
use futures_util::future::try_join_all;
use roaring::RoaringTreemap;
use std::borrow::Cow;

/// Bytes written by one transaction that interns.
const BLOCK: usize = 3_000_000;
/// Most interning transactions at once.
const AT_ONCE: usize = 4;
/// Attempts per interning transaction: other clients may intern the same members.
const ATTEMPTS: u32 = 20;
/// Ids added to a bitmap before other tasks get a turn.
const AT_A_TIME: usize = 8192;

/// The current round of the dictionary's collection.
async fn round(space: &Keyspace) -> Result<Round> {
    let mut retries = Retries::new(ATTEMPTS);
    loop {
        match space.catalog.load(&space.store.begin()).await {
            Ok(catalog) => return Ok(catalog.round),
            Err(e) => retries.on_error(e)?,
        }
    }
}

/// The ids of the members of each call; members without an id get one.
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

/// The ids of the members of each call, and the members without an id or whose id is a candidate.
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
                Some(Known { id, is_candidate: false }) => {
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

/// The members of all calls, so that few transactions look them up.
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

/// Splits members into blocks that one transaction can intern.
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

/// Interns a block in one transaction, or in smaller ones if a busy store cannot do it in time.
async fn intern_block(space: &Keyspace, members: &[Bytes]) -> Result<Vec<u64>> {
    let (mut ids, mut rest, mut width) = (Vec::with_capacity(members.len()), members, members.len());
    // An unknown commit needs no special handling: the next attempt finds the ids.
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

/// Builds the result of a *STORE in `db`. None if a key holds another type or the result fits into a record:
/// let the command handle that.
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
    let revived = intern_block(space, &found.candidates).await?;
    if revived.iter().any(|id| !found.ids.contains(*id)) {
        // The collector removed it after it was found.
        return Err(StoreError::Conflict.into());
    }
    build(space, db, found.ids, sources, Some(round), lease_ms).await.map(Some)
}

/// Builds the set of `members` in `db`. None if they may fit into a record.
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

/// The set under `key` before the change, with its source. None if the key holds another type.
async fn before(s: &Scope<'_>, key: &Bytes) -> Result<Option<(Set, Vec<Source>)>> {
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.set() else { return Ok(None) };
    Ok(Some((Set::of(rep)?, vec![Source::of(s, &slot).await?])))
}

/// Builds the set under `key` after SADD of `ids`. None if the key holds another type.
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

/// Builds the set under `key` after SREM of `ids`, even if it becomes empty. None if the key holds a small
/// set or another type: the command handles that.
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
    // After the version of the source: a member that got its id later is not in that version.
    for block in blocks(&ids.unknown) {
        let late = find_block(space, block).await?;
        for known in late.into_iter().flatten() {
            left.remove(known.id);
        }
    }
    build(space, db, left, sources, Some(ids.round), lease_ms).await.map(Some)
}

/// Makes the key hold the prebuilt set, whatever it held before, without expiry. Returns the number of
/// members. Conflict if the object is stale.
pub async fn put(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    swap_in(s, slot, built, None).await?;
    Ok(built.len())
}

/// As [`put`], for the key's own set with members added or removed: the expiry stays. Returns the number of
/// members added or removed.
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

/// Builds an object of these members in `to`. `round`: as for [`Builder::in_round`]; None if all members come
/// from `sources`.
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
    for (key, value) in rows::new_rows(db, oid, space.fresh.stamp(), ids)? {
        builder.add(key, value).await?;
    }
    Ok(builder.finish(len).await?)
}
