//! Union, intersection and difference of sets in any encoding, and storing the result.
//!
//! * Small sets alone are combined in memory as raw members, without any lookup.
//! * If a chunked set is among them, members become ids. A listpack's members are looked up in the
//!   dictionary: one without an id is in no chunked set. An intersection with a small set probes its members
//!   one by one.
//! * Chunked sets are combined window by window (about 256 KiB of chunks of the smallest set, or of the
//!   first), so an intersection holds little more than its result, and LIMIT ends it early. In a window with
//!   few candidates the other sets are probed, otherwise loaded.
//!
//! Every chunked source is read with a conflict on its N: the answer depends on all its members.

use super::chunked::{self, look};
use super::rows::Stretch;
use super::small::{MAX_INTS, MAX_RAW, MAX_RAW_LEN, Small, is_intset, rebuild};
use super::stream::Members;
use super::{Set, contains_many, rows, sparse};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::dictionary::ids::integer_id;
use crate::keyspace::dictionary::interner::Known;
use crate::keyspace::dictionary::resolve::resolve_some;
use crate::keyspace::keys::Oid;
use crate::keyspace::packed::Packed;
use crate::store::Read;
use crate::types::Value;
use crate::types::object::{self, Slot};
use crate::types::set::SetRep;
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::HashSet;

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Members of all sets.
    Inter,
    /// Members of any set.
    Union,
    /// Members of the first set and of no other.
    Diff,
}

/// The members of a combination, distinct.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Found {
    /// Members by id.
    pub(crate) ids: RoaringTreemap,
    /// Members that were not looked up or have no id. No integer is among them unless `ids` is empty.
    pub(crate) raw: Vec<Bytes>,
    /// The members with an id in `ids` that are candidates of the dictionary's collector, as far as their ids
    /// were looked up: before the result is stored, these must be interned.
    pub(super) candidates: Vec<Bytes>,
}

impl Found {
    /// Number of members.
    pub fn len(&self) -> u64 {
        self.ids.len() + self.raw.len() as u64
    }
    /// Moves all integers to the ids.
    pub(super) fn sorted(mut self) -> Self {
        self.raw.retain(|m| match integer_id(m) {
            Some(id) => {
                self.ids.insert(id);
                false
            }
            None => true,
        });
        self
    }
    /// The members.
    pub async fn members(mut self, s: &Scope<'_>) -> Result<Vec<Bytes>> {
        let mut members = s.space.ids.resolve(s.tx, &Vec::from_iter(&self.ids)).await?;
        members.append(&mut self.raw);
        Ok(members)
    }
    /// The members if they take at most `bytes`, else [`StoreError::ReplyTooLarge`].
    pub(crate) async fn members_within(mut self, s: &Scope<'_>, bytes: usize) -> Result<Vec<Bytes>> {
        let ids = Vec::from_iter(self.ids.iter().take(bytes + 1));
        let mut held = self.raw.iter().map(Bytes::len).sum::<usize>();
        let (mut members, mut some) = (Vec::new(), Packed::default());
        while let Some((_, rest)) = ids.split_at_checked(members.len()).filter(|(_, rest)| !rest.is_empty()) {
            some.clear();
            resolve_some(s.tx, rest, bytes.saturating_sub(held) + 1, &mut some).await?;
            held += some.size();
            if held > bytes {
                return Err(StoreError::ReplyTooLarge(held).into());
            }
            members.extend(some.iter().map(Bytes::copy_from_slice));
        }
        members.append(&mut self.raw);
        Ok(members)
    }
    /// The members, to be read later. The transaction that found them must be within its maximum age.
    pub(crate) async fn stream(self, s: &Scope<'_>) -> Result<Members> {
        let generation = s.tx.generation().await?;
        Ok(Members::new(s.space.sending.begin(), generation, self.ids, self.raw))
    }
}

/// A probe costs about as much as loading this many members of the probed set.
const PROBE_COST: u64 = 2000;

struct Chunks {
    oid: Oid,
    card: u64,
}

impl Chunks {
    /// The number of candidates up to which probing the set costs less than loading it.
    fn few(&self) -> u64 {
        self.card / PROBE_COST
    }
}

/// Combines `sets` (None: a missing key). Stops once `limit` members are found, if a limit is given.
pub async fn combine(s: &Scope<'_>, op: Op, sets: &[Option<&SetRep>], limit: Option<u64>) -> Result<Found> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    for rep in sets {
        match Set::of(*rep)? {
            Set::Small(set) => small.push(set),
            Set::Chunked(oid) => {
                let card = object::count(s, oid, Read::Serializable).await?.cardinality();
                large.push(Chunks { oid, card });
            }
        }
    }
    if large.is_empty() {
        return Ok(Found { raw: combine_small(op, &small), ..Found::default() });
    }
    match op {
        Op::Inter => inter(s, sets, &small, large, limit).await,
        Op::Union => union(s, &small, large).await,
        Op::Diff => diff(s, sets, &small, &large, limit).await,
    }
}

fn combine_small(op: Op, sets: &[Small]) -> Vec<Bytes> {
    let Some((first, rest)) = sets.split_first() else { return Vec::new() };
    let members = first.members();
    match op {
        Op::Inter => members.into_iter().filter(|m| rest.iter().all(|s| s.contains(m))).collect(),
        Op::Diff => members.into_iter().filter(|m| !rest.iter().any(|s| s.contains(m))).collect(),
        Op::Union => {
            let mut seen: HashSet<Bytes> = HashSet::new();
            sets.iter().flat_map(Small::members).filter(|m| seen.insert(m.clone())).collect()
        }
    }
}

async fn inter(
    s: &Scope<'_>,
    sets: &[Option<&SetRep>],
    small: &[Small],
    mut large: Vec<Chunks>,
    limit: Option<u64>,
) -> Result<Found> {
    if let Some(least) = small.iter().min_by_key(|s| s.len()) {
        let raw = filter(s, least.members(), sets, true).await?;
        return Ok(Found { raw, ..Found::default() });
    }
    large.sort_by_key(|c| c.card);
    let Some((pivot, others)) = large.split_first() else { return Ok(Found::default()) };
    stream(s, Op::Inter, pivot.oid, others, limit).await
}

async fn diff(
    s: &Scope<'_>,
    sets: &[Option<&SetRep>],
    small: &[Small],
    large: &[Chunks],
    limit: Option<u64>,
) -> Result<Found> {
    let Some((first, rest)) = sets.split_first() else { return Ok(Found::default()) };
    if let Set::Small(first) = Set::of(*first)? {
        let raw = filter(s, first.members(), rest, false).await?;
        return Ok(Found { raw, ..Found::default() });
    }
    let Some((pivot, others)) = large.split_first() else { return Ok(Found::default()) };
    let gone = ids_of(s, small).await?.ids;
    let limit = limit.map(|limit| limit.saturating_add(gone.len()));
    let mut found = stream(s, Op::Diff, pivot.oid, others, limit).await?;
    found.ids -= gone;
    Ok(found)
}

async fn union(s: &Scope<'_>, small: &[Small], mut large: Vec<Chunks>) -> Result<Found> {
    let mut found = ids_of(s, small).await?;
    // The largest set has the most windows.
    large.sort_by_key(|c| std::cmp::Reverse(c.card));
    let Some((first, others)) = large.split_first() else { return Ok(found) };
    let mut at = Some(0);
    while let Some(lo) = at {
        let stretch = rows::stretch(s, first.oid, lo, None, rows::PAGE).await?;
        let mut theirs = Vec::new();
        for other in others {
            theirs.append(&mut rows::stretches(s, other.oid, lo, stretch.next).await?);
        }
        at = stretch.next;
        found.ids |= match sparse::combine(Op::Union, &stretch, &theirs)? {
            Some(ids) => ids,
            None => stretch.ids()? | rows::joined(&theirs)?,
        };
    }
    Ok(found)
}

/// The candidates that are in all sets (`wanted`) or in none (not `wanted`).
async fn filter(
    s: &Scope<'_>,
    mut candidates: Vec<Bytes>,
    sets: &[Option<&SetRep>],
    wanted: bool,
) -> Result<Vec<Bytes>> {
    for rep in sets {
        if candidates.is_empty() {
            break;
        }
        let found = contains_many(s, *rep, &candidates).await?;
        let mut found = found.into_iter();
        candidates.retain(|_| found.next() == Some(wanted));
    }
    Ok(candidates)
}

/// The members of small sets, as ids if they have one.
async fn ids_of(s: &Scope<'_>, sets: &[Small]) -> Result<Found> {
    let mut found = Found::default();
    let mut words: HashSet<Bytes> = HashSet::new();
    for set in sets {
        match set {
            Small::Ints(ints) => found.ids |= ints,
            Small::Raw(members) => words.extend(members.iter().cloned()),
        }
    }
    let words = Vec::from_iter(words);
    let known = s.space.ids.known(s.tx, s.round, &words).await?;
    for (member, known) in words.into_iter().zip(known) {
        found.ids.extend(known.map(|known| known.id));
        match known {
            None => found.raw.push(member),
            Some(Known { is_candidate: true, .. }) => found.candidates.push(member),
            Some(_) => {}
        }
    }
    Ok(found)
}

/// The intersection or difference of `pivot` and the others.
async fn stream(s: &Scope<'_>, op: Op, pivot: Oid, others: &[Chunks], limit: Option<u64>) -> Result<Found> {
    let keep = op == Op::Inter;
    let mut ids = RoaringTreemap::new();
    if keep && others.iter().any(|o| o.card == 0) {
        return Ok(Found::default());
    }
    let mut at = Some(0);
    while let Some(lo) = at.filter(|_| limit.is_none_or(|limit| ids.len() < limit)) {
        let stretch = rows::stretch(s, pivot, lo, None, rows::PAGE).await?;
        let mut others = others.iter().filter(|o| o.card > 0);
        let mut found = match others.next() {
            Some(other) => first(s, op, &stretch, other).await?,
            None => stretch.ids()?,
        };
        for other in others {
            if found.is_empty() {
                break;
            }
            let theirs = if found.len() <= other.few() {
                probe(s, other, &found).await?
            } else {
                rows::load(s, other.oid, lo, stretch.next).await?
            };
            if keep { found &= theirs } else { found -= theirs }
        }
        ids |= found;
        at = stretch.next;
    }
    Ok(Found { ids, ..Found::default() })
}

/// The intersection or difference of a stretch and `other`.
async fn first(s: &Scope<'_>, op: Op, stretch: &Stretch, other: &Chunks) -> Result<RoaringTreemap> {
    let (ids, theirs) = if stretch.may_exceed(other.few())? {
        let theirs = rows::stretches(s, other.oid, stretch.lo, stretch.next).await?;
        if let Some(found) = sparse::combine(op, stretch, &theirs)? {
            return Ok(found);
        }
        (stretch.ids()?, rows::joined(&theirs)?)
    } else {
        let ids = stretch.ids()?;
        let theirs = probe(s, other, &ids).await?;
        (ids, theirs)
    };
    Ok(if op == Op::Inter { ids & theirs } else { ids - theirs })
}

/// Those of `ids` that are in `other`.
async fn probe(s: &Scope<'_>, other: &Chunks, ids: &RoaringTreemap) -> Result<RoaringTreemap> {
    let states = look(s, other.oid, &Vec::from_iter(ids), Read::Snapshot).await?;
    Ok(states.into_iter().filter(|(_, seen)| seen.member).map(|(id, _)| id).collect())
}

/// Makes the key hold `found`, whatever it held before, without expiry; removes the key if `found` is empty.
/// Returns the number of members. Fails with [`StoreError::TooLarge`], before anything is written, if the set
/// does not fit one transaction: then [`super::prebuild::combination`] builds it.
pub async fn store(s: &Scope<'_>, slot: &mut Slot, found: Found) -> Result<u64> {
    let len = found.len();
    if len == 0 {
        object::remove(s, slot)?;
        return Ok(0);
    }
    object::check_name(&slot.key)?;
    let mut found = found.sorted();
    let rep = match small_rep(s, &found).await? {
        Some(rep) => rep,
        None => {
            chunked::check_room(found.ids.serialized_size())?;
            let interned = s.space.ids.intern(s.tx, s.round, &found.raw).await?;
            found.ids.extend(interned.iter().map(|i| i.id));
            s.space.ids.intern(s.tx, s.round, &found.candidates).await?;
            chunked::create_from_ids(s, found.ids)?.0
        }
    };
    object::put(s, slot, Value::Set(rep), None)?;
    Ok(len)
}

async fn small_rep(s: &Scope<'_>, found: &Found) -> Result<Option<SetRep>> {
    if found.raw.is_empty() && is_intset(&found.ids) {
        return Ok(Some(Small::Ints(found.ids.clone()).encode()?));
    }
    let short = found.raw.iter().all(|m| m.len() <= MAX_RAW_LEN);
    if !short || found.len() > MAX_RAW.min(MAX_INTS) as u64 {
        return Ok(None);
    }
    let members = found.clone().members(s).await?;
    rebuild(&members).map(|small| small.encode()).transpose()
}
