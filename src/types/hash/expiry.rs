//! Fields that expire.
//!
//! ```text
//! K ... -> record of tag 20 or 21: oid | due    no field expires before `due`
//! X <shard><due><hash><key> -> 02               so the expiry index names the key at `due`
//! H <oid> 00 <hash><field> -> expiry | value    a field; its row decides whether it exists
//! H <oid> 02 <expiry><hash><field>              the fields that expire, by time
//! ```
//! A hash whose fields expire is in rows, however small. One without such fields has none of this, and costs
//! what it did before.
//!
//! **Readers** compare the row's expiry with their transaction's time: a field is gone for all of them at its
//! millisecond. A transaction that found a field alive and writes claims the time before the expiry
//! (`keyspace::life`), as for keys. HLEN subtracts the fields that have expired from N, so it is exact, unlike
//! Redis'; EXISTS, TYPE and SCAN are exact, too: a hash of which all fields have expired does not exist
//! ([`has_any`]). While `due` lies ahead, both cost nothing. Afterwards HLEN reads the index rows that the job
//! has not removed yet: a page of 256 in most cases, as many as there are in the worst.
//!
//! **Writers** write the field's row, its index row and N, so that two servers that change different fields
//! do not conflict. They write the record only if a field is to expire before `due`. Nothing else depends on
//! `due`: it may be too early, because a field was removed or got a later expiry, never too late.
//!
//! **The job** for keys (`lifecycle::expire`) finds the key in the expiry index at `due` and calls [`sweep`],
//! which removes what has expired and makes `due` the expiry of the first field left. It reads that serializably:
//! a writer that adds an earlier one conflicts with it here if it commits first, and through the record if
//! the job does.
//!
//! **Limit.** An HSET or HDEL too large for a transaction, which rewrites the hash (`prebuild`), counts a field
//! that has expired and has not been removed as if it existed.

use super::record::HashRep;
use super::rows::{self, Content, Held};
use super::{SMALL, listpack};
use crate::config::Events;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{FieldRow, Oid};
use crate::store::{RangeOptions, Read, Rest};
use crate::types::object::{self, Count, Slot};
use crate::types::{OneType, Value};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of the index per read.
const PAGE: usize = 256;
/// The fields among which one that exists is sought before all are counted.
const SAMPLE: usize = 64;

/// The expiry of a field that exists, if it has one. The outer None: there is no such field.
pub type Expiry = Option<Option<u64>>;

/// What happens to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Nothing.
    Keep,
    /// It loses its expiry.
    Persist,
    /// It expires at this time, in milliseconds since the Unix epoch.
    ExpireAt(u64),
    /// It is removed.
    Remove,
}

/// The expiries of `fields`.
pub async fn expiries(s: &Scope<'_>, rep: Option<&HashRep>, fields: &[Bytes]) -> Result<Vec<Expiry>> {
    let oid = match rep {
        None => return Ok(vec![None; fields.len()]),
        Some(HashRep::Listpack(raw)) => {
            let expiry = |field: &Bytes| Ok(listpack::find(raw, field)?.map(|_| None));
            return fields.iter().map(expiry).collect();
        }
        Some(HashRep::Rows { oid, .. }) => *oid,
    };
    let held = rows::get_all_held(s, oid, &Vec::from_iter(fields)).await?.into_iter();
    held.map(|held| Ok(rows::alive(s, held)?.map(|held| held.expire_at))).collect()
}

/// Asks `decide` about each of `fields` in turn and applies its answers: each sees the effect of those before.
/// Without the last field the key goes. `slot` must come from a serializable open.
pub async fn edit(
    s: &Scope<'_>,
    slot: &mut Slot,
    fields: &[Bytes],
    mut decide: impl FnMut(&Bytes, Expiry) -> Edit + Send,
) -> Result<()> {
    let raw = match slot.hash()? {
        None => {
            for field in fields {
                decide(field, None);
            }
            return Ok(());
        }
        Some(HashRep::Listpack(raw)) => raw.clone(),
        Some(HashRep::Rows { oid, .. }) => {
            let oid = *oid;
            let mut held = BTreeMap::new();
            let distinct: Vec<&Bytes> = fields.iter().collect::<BTreeSet<_>>().into_iter().collect();
            let found = rows::get_all_held(s, oid, &distinct).await?;
            for (field, found) in distinct.into_iter().zip(found) {
                if let Some(found) = rows::alive(s, found)? {
                    held.insert(field, found);
                }
            }
            let after = decide_all(fields, |field| held.get(field).map(|held| held.expire_at), &mut decide);
            return edit_rows(s, slot, oid, held, after).await;
        }
    };
    let pairs = listpack::decode(&raw)?;
    let has = |field: &Bytes| pairs.iter().any(|(name, _)| *name == field);
    let after = decide_all(fields, |field| has(field).then_some(None), &mut decide);
    edit_listpack(s, slot, &raw, after)
}

/// The fields' expiries after the decisions.
fn decide_all<'a>(
    fields: &'a [Bytes],
    before: impl Fn(&Bytes) -> Expiry,
    decide: &mut impl FnMut(&Bytes, Expiry) -> Edit,
) -> BTreeMap<&'a Bytes, Expiry> {
    let mut after = BTreeMap::new();
    for field in fields {
        let expiry = after.entry(field).or_insert_with(|| before(field));
        *expiry = match decide(field, *expiry) {
            Edit::Keep => *expiry,
            Edit::Persist => expiry.map(|_| None),
            Edit::ExpireAt(at) => expiry.map(|_| Some(at)),
            Edit::Remove => None,
        };
    }
    after
}

/// A hash with a field that expires leaves its record.
fn edit_listpack(s: &Scope<'_>, slot: &mut Slot, raw: &Bytes, after: BTreeMap<&Bytes, Expiry>) -> Result<()> {
    let mut pairs = listpack::decode(raw)?;
    let before = pairs.len();
    pairs.retain(|(name, _)| after.get(&raw.slice_ref(name)) != Some(&None));
    let due = after.values().copied().flatten().flatten().min();
    if pairs.is_empty() {
        return object::remove(s, slot).map(drop);
    }
    if due.is_none() {
        let changed = pairs.len() < before;
        return if changed {
            super::put(s, slot, HashRep::Listpack(listpack::encode(&pairs)))
        } else {
            Ok(())
        };
    }
    let oid = rows::create(s, &pairs)?;
    for (name, value) in pairs {
        if let Some(Some(Some(at))) = after.get(&raw.slice_ref(name)) {
            let held = Held { expire_at: None, content: Content::Inline(raw.slice_ref(value)) };
            rows::set_expiry(s, oid, name, held, Some(*at))?;
        }
    }
    super::put(s, slot, HashRep::Rows { oid, is_small: true, due })
}

async fn edit_rows(
    s: &Scope<'_>,
    slot: &mut Slot,
    oid: Oid,
    mut held: BTreeMap<&Bytes, Held>,
    after: BTreeMap<&Bytes, Expiry>,
) -> Result<()> {
    let (mut gone, mut soonest, mut changed) = (BTreeMap::new(), None::<u64>, false);
    for (field, expiry) in after {
        let Some(old) = held.remove(field) else { continue };
        match expiry {
            None => drop(gone.insert(field, old)),
            Some(to) if to == old.expire_at => {}
            Some(to) => {
                changed = true;
                soonest = soonest.into_iter().chain(to).min();
                rows::set_expiry(s, oid, field, old, to)?;
            }
        }
    }
    if changed {
        s.tx.add(&s.db.count(oid), &Count::step(0))?;
        s.changed(&slot.key);
    }
    if !gone.is_empty() {
        super::take_rows(s, slot, oid, gone).await?;
    }
    let Some(HashRep::Rows { is_small, due, .. }) = slot.hash()? else { return Ok(()) };
    match soonest {
        Some(at) if due.is_none_or(|due| at < due) => {
            let is_small = *is_small;
            super::put(s, slot, HashRep::Rows { oid, is_small, due: Some(at) })
        }
        Some(_) | None => Ok(()),
    }
}

/// The number of fields that have expired and still have rows.
pub(super) async fn expired(s: &Scope<'_>, oid: Oid, due: Option<u64>) -> Result<u64> {
    let Some(due) = due else { return Ok(0) };
    if s.life.is_alive(due, s.now)? {
        return Ok(0);
    }
    let expired = count_expired(s, oid).await?;
    if let Some(next) = next(s, oid, Read::Snapshot).await? {
        s.life.is_alive(next, s.now)?;
    }
    Ok(expired)
}

/// Whether the hash of `n` rows has a field that exists. A transaction that writes relies on the last one that
/// expires, if it read N serializably.
pub(super) async fn has_any(s: &Scope<'_>, rep: &HashRep, n: u64, read: Read) -> Result<bool> {
    let HashRep::Rows { oid, due: Some(due), .. } = rep else { return Ok(n > 0) };
    let is_due = *due <= s.now;
    if n == 0 || !is_due && read == Read::Snapshot {
        return Ok(n > 0);
    }
    if !is_due && !s.tx.is_write() {
        return Ok(s.life.is_alive(*due, s.now)?);
    }
    if let Some(last) = last(s, *oid).await?.filter(|last| *last > s.now) {
        if read == Read::Serializable {
            s.life.is_alive(last, s.now)?;
        }
        return Ok(true);
    }
    let (begin, end) = (s.db.fields_from(*oid, 0), s.db.fields_end(*oid));
    let some = rows::page(s.tx, s.db, (&begin, &end), (SAMPLE, 0)).await?.fields;
    if some.iter().any(|(_, _, held)| held.expire_at.is_none()) {
        return Ok(true);
    }
    Ok(n > count_expired(s, *oid).await?)
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a row of the index of fields by expiry does not decode".into())
}

fn decode(s: &Scope<'_>, row: &Bytes) -> Result<(u64, Bytes)> {
    match s.db.decode_hash_row(row) {
        Some(FieldRow::Expiry { at, field, .. }) => Ok((at, field)),
        Some(FieldRow::Field(..) | FieldRow::Piece(..)) | None => Err(corrupt().into()),
    }
}

async fn count_expired(s: &Scope<'_>, oid: Oid) -> Result<u64> {
    let due = (s.db.field_expiries_from(oid, 0), s.db.field_expiries_from(oid, s.now + 1));
    let (mut rest, mut n) = (Rest::of(due), 0);
    let opts = RangeOptions { limit: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(s.tx, opts, Read::Snapshot).await? {
        n += page.len() as u64;
        if rest.range().is_some() {
            tokio::task::yield_now().await;
        }
    }
    Ok(n)
}

/// The first expiry that lies ahead.
async fn next(s: &Scope<'_>, oid: Oid, read: Read) -> Result<Option<u64>> {
    let (begin, end) = (s.db.field_expiries_from(oid, s.now + 1), s.db.field_expiries_end(oid));
    one(s, (&begin, &end), false, read).await
}

/// The last expiry.
async fn last(s: &Scope<'_>, oid: Oid) -> Result<Option<u64>> {
    let (begin, end) = (s.db.field_expiries_from(oid, 0), s.db.field_expiries_end(oid));
    one(s, (&begin, &end), true, Read::Snapshot).await
}

async fn one(s: &Scope<'_>, (begin, end): (&[u8], &[u8]), reverse: bool, read: Read) -> Result<Option<u64>> {
    let opts = RangeOptions { limit: 1, reverse, ..RangeOptions::default() };
    let page = s.tx.get_range(begin, end, opts, read).await?;
    page.pairs.first().map(|(row, _)| Ok(decode(s, row)?.0)).transpose()
}

/// What [`sweep`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swept {
    /// The key has gone, because all its fields have expired.
    Key,
    /// Fields have gone, if any had expired; there may be more.
    Fields {
        /// Their number.
        removed: usize,
        /// Whether more than the limit have expired.
        more: bool,
    },
}

/// Removes fields that have expired, up to `fields` and about `bytes` of their names, and publishes that.
/// `slot` must come from a serializable open; its `due` is over.
pub(crate) async fn sweep(s: &Scope<'_>, slot: &mut Slot, (fields, bytes): (usize, usize)) -> Result<Swept> {
    if !slot.exists() {
        object::remove(s, slot)?;
        return Ok(Swept::Key);
    }
    let Some(HashRep::Rows { oid, is_small, .. }) = slot.record().and_then(|r| HashRep::of(&r.value)) else {
        return Ok(Swept::Fields { removed: 0, more: false });
    };
    let (oid, is_small) = (*oid, *is_small);
    let (begin, end) = (s.db.field_expiries_from(oid, 0), s.db.field_expiries_from(oid, s.now + 1));
    let opts = RangeOptions { limit: fields, bytes, reverse: false };
    let page = s.tx.get_range(&begin, &end, opts, Read::Serializable).await?;
    let due: Vec<(u64, Bytes)> = page.pairs.iter().map(|(row, _)| decode(s, row)).collect::<Result<_>>()?;
    let names: Vec<&Bytes> = due.iter().map(|(_, field)| field).collect();
    let held = rows::get_all_held(s, oid, &names).await?;
    let mut gone = BTreeMap::new();
    for ((at, field), held) in due.iter().zip(held) {
        match held.filter(|held| held.expire_at == Some(*at)) {
            Some(held) => drop(gone.insert(field, held)),
            None => s.tx.clear(&s.db.field_expiry(oid, *at, field))?,
        }
    }
    let first_left = match due.last() {
        Some((at, _)) if page.more => Some(*at),
        _ => next(s, oid, Read::Serializable).await?,
    };
    let removed = gone.len();
    if removed > 0 {
        let left = object::count(s, oid, Read::Snapshot).await?.cardinality().saturating_sub(removed as u64);
        if left <= SMALL {
            // Another client may remove the others meanwhile: then the key must go.
            object::count(s, oid, Read::Serializable).await?;
        }
        rows::remove(s, oid, gone)?;
    }
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Hash(HashRep::Rows { oid, is_small, due: first_left }), expire_at)?;
    if removed > 0 {
        s.notify(Events::HASH, "hexpired", &slot.key);
    }
    Ok(Swept::Fields { removed, more: page.more })
}
