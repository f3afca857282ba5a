//! Sets: three encodings, one set of operations.
//!
//! | encoding | when | where |
//! |---|---|---|
//! | listpack | at most 128 members of at most 64 bytes | raw members in the record ([`small`]) |
//! | intset | integers only, at most 512 | Roaring bytes in the record ([`small`]) |
//! | hashtable | the rest | chunks and deltas under the object id ([`rows`], [`chunked`]) |
//!
//! Operations take a [`Scope`] (one database in one transaction) and the slot from [`object::open`]; those
//! that write need a slot from a serializable open. Reads conflict as finely as the answer allows: a
//! membership test with changes of that member, a small sample with changes of its members, a read of the
//! whole set with every change (through N). A set that becomes empty loses its key.

pub mod algebra;
pub(crate) mod audit;
pub mod chunk;
pub mod chunked;
pub mod collect;
pub(crate) mod containers;
pub(crate) mod named;
pub mod prebuild;
pub(crate) mod record;
pub mod rows;
pub mod sample;
pub mod scan;
pub mod small;
pub(crate) mod sparse;
pub mod stream;
pub(crate) mod view;

use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::store::Read;
use crate::types::Value;
use crate::types::memo::Memo;
use crate::types::object::{self, Slot};
use algebra::Found;
use bytes::Bytes;
pub use record::SetRep;
use small::{Grown, Small};
use std::collections::BTreeSet;

/// A set, as its record describes it.
#[derive(Debug, Clone)]
pub(crate) enum Set {
    /// In the record.
    Small(Small),
    /// Under an object id.
    Chunked(Oid),
}

impl Set {
    /// Decodes the record's payload; a missing key is an empty set.
    pub(crate) fn of(rep: Option<&SetRep>) -> Result<Self> {
        match rep {
            None => Ok(Set::Small(Small::Raw(Vec::new()))),
            Some(SetRep::Chunked(oid)) => Ok(Set::Chunked(*oid)),
            Some(rep) => {
                let small = Small::decode(rep)?;
                Ok(Set::Small(
                    small.ok_or_else(|| StoreError::Corrupt("a set record does not decode".into()))?,
                ))
            }
        }
    }
}

/// Adds `members`. Returns the number of new ones. WRONGTYPE if the key holds another type.
pub async fn add(s: &Scope<'_>, slot: &mut Slot, members: &[Bytes]) -> Result<u64> {
    add_noting(s, slot, members, &Memo::default()).await
}

/// As [`add`], for one of many calls in a transaction.
pub async fn add_noting(s: &Scope<'_>, slot: &mut Slot, members: &[Bytes], memo: &Memo) -> Result<u64> {
    object::check_name(&slot.key)?;
    let set = match slot.set()? {
        Some(SetRep::Chunked(oid)) => return chunked::add(s, *oid, members, memo).await,
        Some(rep) => Small::decode(rep)?,
        None => None,
    };
    let before = set.as_ref().map_or(0, Small::len);
    let (rep, after) = match small::grow(set, members) {
        Grown::Small(grown) if grown.len() == before => return Ok(0),
        Grown::Small(grown) => (grown.encode()?, grown.len()),
        Grown::Large(members) => (Box::pin(chunked::create(s, &members)).await?, members.len()),
    };
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Set(rep), expire_at)?;
    Ok((after - before) as u64)
}

/// As [`add`], for members whose ids are known.
pub async fn add_ids(s: &Scope<'_>, slot: &mut Slot, members: &[Bytes], ids: &named::Ids) -> Result<u64> {
    ids.check(s)?;
    object::check_name(&slot.key)?;
    let set = match slot.set()? {
        Some(SetRep::Chunked(oid)) => return chunked::add_ids(s, *oid, &ids.known).await,
        Some(rep) => Small::decode(rep)?,
        None => None,
    };
    if small::may_be_small(members.len(), members)
        && matches!(small::grow(set.clone(), members), Grown::Small(_))
    {
        return add(s, slot, members).await;
    }
    let before = set.as_ref().map(Small::members).unwrap_or_default();
    let interned = s.space.ids.intern(s.tx, s.round, &before).await?;
    let all = interned.iter().map(|i| i.id).chain(&ids.known).collect();
    let (rep, after) = chunked::create_from_ids(s, all)?;
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Set(rep), expire_at)?;
    Ok(after - before.len() as u64)
}

/// Reads ahead what [`add`], [`remove`] and [`contains_many`] of these members will read; `calls` holds the
/// members of each call. For engines behind a network: the transaction answers repeated reads itself, also
/// from ranges it has read. So the deltas of neighbouring ids in many calls cost one range read.
pub(crate) async fn prefetch(s: &Scope<'_>, key: &Bytes, calls: &[&[Bytes]]) -> Result<()> {
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Some(SetRep::Chunked(oid)) = slot.set()? else { return Ok(()) };
    let (oid, members) = (*oid, calls.concat());
    let found = s.space.ids.find(s.tx, &members).await?;
    let ids: BTreeSet<u64> = found.into_iter().flatten().collect();
    chunked::look(s, oid, &Vec::from_iter(ids), Read::Snapshot).await?;
    Ok(())
}

/// Removes `members`. Returns the number removed.
pub async fn remove(s: &Scope<'_>, slot: &mut Slot, members: &[Bytes]) -> Result<u64> {
    let mut small = match slot.set()? {
        None => return Ok(0),
        Some(SetRep::Chunked(oid)) => {
            let oid = *oid;
            let ids = s.space.ids.find(s.tx, members).await?;
            return chunked::remove(s, slot, oid, &Vec::from_iter(ids.into_iter().flatten())).await;
        }
        Some(rep) => match Small::decode(rep)? {
            Some(small) => small,
            None => return Ok(0),
        },
    };
    let gone = members.iter().filter(|m| small.remove(m)).count();
    if gone > 0 {
        put_small(s, slot, &small)?;
    }
    Ok(gone as u64)
}

/// As [`remove`], for members that were looked up beforehand. Those without an id at that time are looked up
/// again: a later writer may have given them one.
pub async fn remove_ids(s: &Scope<'_>, slot: &mut Slot, members: &[Bytes], ids: &named::Ids) -> Result<u64> {
    ids.check(s)?;
    let Some(SetRep::Chunked(oid)) = slot.set()? else { return remove(s, slot, members).await };
    let oid = *oid;
    let late = s.space.ids.find(s.tx, &ids.unknown).await?;
    let ids: Vec<u64> = ids.known.iter().chain(late.into_iter().flatten()).collect();
    chunked::remove(s, slot, oid, &ids).await
}

/// Writes the rest of a small set, or removes the key.
fn put_small(s: &Scope<'_>, slot: &mut Slot, small: &Small) -> Result<()> {
    if small.is_empty() {
        object::remove(s, slot)?;
        return Ok(());
    }
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Set(small.encode()?), expire_at)
}

/// Whether `member` is in the set: [`contains_many`] for one member, without lists.
pub async fn contains(s: &Scope<'_>, rep: Option<&SetRep>, member: &Bytes, memo: &Memo) -> Result<bool> {
    let oid = match Set::of(rep)? {
        Set::Small(small) => return Ok(small.contains(member)),
        Set::Chunked(oid) => oid,
    };
    match s.space.ids.find_one(s.tx, member).await? {
        Some(id) => chunked::contains(s, oid, id, memo).await,
        None => Ok(false),
    }
}

/// For each of `members`, whether it is in the set.
pub async fn contains_many(s: &Scope<'_>, rep: Option<&SetRep>, members: &[Bytes]) -> Result<Vec<bool>> {
    match Set::of(rep)? {
        Set::Small(small) => Ok(members.iter().map(|m| small.contains(m)).collect()),
        Set::Chunked(oid) => {
            let ids = s.space.ids.find(s.tx, members).await?;
            let mut known: Vec<u64> = ids.iter().copied().flatten().collect();
            known.sort_unstable();
            known.dedup();
            let states = chunked::look(s, oid, &known, Read::Serializable).await?;
            let is_member = |id: u64| states.get(&id).is_some_and(|seen| seen.member);
            Ok(ids.iter().map(|id| id.is_some_and(is_member)).collect())
        }
    }
}

/// Number of members.
pub async fn card(s: &Scope<'_>, rep: Option<&SetRep>) -> Result<u64> {
    match Set::of(rep)? {
        Set::Small(small) => Ok(small.len() as u64),
        Set::Chunked(oid) => Ok(object::count(s, oid, Read::Serializable).await?.cardinality()),
    }
}

/// All members: in the order of their ids, or in insertion order for a listpack.
pub async fn members(s: &Scope<'_>, rep: Option<&SetRep>) -> Result<Vec<Bytes>> {
    found(s, rep).await?.members(s).await
}

/// As [`members`], but as ids if the set has them.
pub(crate) async fn found(s: &Scope<'_>, rep: Option<&SetRep>) -> Result<Found> {
    Ok(match Set::of(rep)? {
        Set::Small(small) => Found { raw: small.members(), ..Found::default() },
        Set::Chunked(oid) => Found { ids: chunked::all(s, oid).await?, ..Found::default() },
    })
}
