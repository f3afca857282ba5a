//! Sorted sets: two encodings, one set of operations.
//!
//! | where | when |
//! |---|---|
//! | in the record ([`listpack`]) | within the limits of the options `zset-max-listpack-*`, and at most 4 KiB |
//! | two rows a member, and counts ([`rows`], [`counts`]) | the rest |
//!
//! OBJECT ENCODING answers by the options' limits alone, as for hashes.
//!
//! Operations take a [`Scope`] (one database in one transaction) and the slot from `object::open_members`; those that
//! write need a slot from a serializable open. Reads conflict as finely as the answer allows: a read of scores with
//! changes of these members, a read of members in a range of scores with changes of members there, a read of ranks
//! or of a number with every change (through N). A sorted set that becomes empty loses its key.

mod ahead;
mod audit;
mod counts;
mod listpack;
pub(crate) mod prebuild;
mod record;
mod rows;
pub(crate) mod scan;
pub mod score;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

use crate::config::Settings;
use crate::env::aside_of;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, place};
use crate::keyspace::uncounted::Changes;
use crate::store::{RangeOptions, Read, key_after};
use crate::types::Value;
use crate::types::object::{self, Slot};
pub(crate) use ahead::{Ahead, prefetch};
use bytes::Bytes;
use counts::{Counts, Ranks};
use futures_util::future::{try_join, try_join_all};
pub use record::ZsetRep;
pub use rows::Change;
pub(crate) use rows::check_member;
use rows::place_of;
pub use score::Score;
use std::collections::HashMap;
use std::ops::Bound;
use tokio::task::coop::consume_budget;

/// A member and its score.
pub type Entry = (Bytes, Score);

/// The number of remaining members up to which a removal reads N serializably, to see the set become empty.
const SMALL: u64 = 256;
/// Ranks that are looked for at once.
const AT_ONCE: usize = 64;
/// Members that are skipped by reading them. For more, their ranks say where to begin.
const SKIPPED: u64 = 64;

/// The limits of the encoding listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most members.
    pub members: usize,
    /// The longest member in bytes.
    pub length: usize,
}

impl Limits {
    /// The limits that the options set.
    pub(crate) fn of(settings: &Settings) -> Self {
        Limits { members: settings.zset_max_listpack_entries, length: settings.zset_max_listpack_value }
    }

    fn allow<'a>(self, members: u64, mut changed: impl Iterator<Item = &'a Bytes>) -> bool {
        members <= self.members as u64 && changed.all(|member| member.len() <= self.length)
    }
}

/// Places from one on to before another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    begin: Vec<u8>,
    /// None: to the last one.
    end: Option<Vec<u8>>,
    /// The names that were asked for, if it was by names.
    names: Option<Names>,
}

/// Names between two bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    min: Bound<Bytes>,
    max: Bound<Bytes>,
}

impl Names {
    fn is_above_min(&self, name: &Bytes) -> bool {
        match &self.min {
            Bound::Included(min) => name >= min,
            Bound::Excluded(min) => name > min,
            Bound::Unbounded => true,
        }
    }

    fn is_below_max(&self, name: &Bytes) -> bool {
        match &self.max {
            Bound::Included(max) => name <= max,
            Bound::Excluded(max) => name < max,
            Bound::Unbounded => true,
        }
    }

    /// Those of the entries, which are in order, that a walk finds which ends behind the last name: where scores
    /// differ, names are not in order, and Redis walks so.
    fn walk(&self, mut entries: Vec<Entry>, reverse: bool) -> Vec<Entry> {
        let is_possible = entries.last().is_some_and(|(name, _)| self.is_above_min(name))
            && entries.first().is_some_and(|(name, _)| self.is_below_max(name));
        if reverse {
            entries.reverse();
        }
        let is_begun = |name: &Bytes| if reverse { self.is_below_max(name) } else { self.is_above_min(name) };
        let goes_on = |name: &Bytes| if reverse { self.is_above_min(name) } else { self.is_below_max(name) };
        let from_first = entries.into_iter().skip_while(|(name, _)| !is_begun(name));
        from_first.take_while(|(name, _)| is_possible && goes_on(name)).collect()
    }
}

impl Places {
    /// All places.
    pub fn all() -> Self {
        Places { begin: Vec::new(), end: None, names: None }
    }

    /// The places of scores.
    pub fn of_scores(min: Bound<Score>, max: Bound<Score>) -> Self {
        let before = |score: Score| place(score.sortable(), &[]);
        // No number sorts as the highest one.
        let behind = |score: Score| place(score.sortable().saturating_add(1), &[]);
        Places {
            begin: match min {
                Bound::Included(score) => before(score),
                Bound::Excluded(score) => behind(score),
                Bound::Unbounded => Vec::new(),
            },
            end: match max {
                Bound::Included(score) => Some(behind(score)),
                Bound::Excluded(score) => Some(before(score)),
                Bound::Unbounded => None,
            },
            names: None,
        }
    }

    /// Those of them that come after an entry.
    pub(crate) fn behind(&self, (member, score): &Entry) -> Self {
        Places { begin: key_after(&place_of(*score, member)), ..self.clone() }
    }

    /// The places of members that have a score, by their names.
    fn of_names(score: Score, min: Bound<&[u8]>, max: Bound<&[u8]>) -> Self {
        let at = |name: &[u8]| place_of(score, name);
        let every = Places::of_scores(Bound::Included(score), Bound::Included(score));
        Places {
            begin: match min {
                Bound::Included(name) => at(name),
                Bound::Excluded(name) => key_after(&at(name)),
                Bound::Unbounded => every.begin,
            },
            end: match max {
                Bound::Included(name) => Some(key_after(&at(name))),
                Bound::Excluded(name) => Some(at(name)),
                Bound::Unbounded => every.end,
            },
            names: None,
        }
    }

    /// The entries of a sorted set in its record that are here, in this order or in reverse.
    fn of(&self, mut entries: Vec<Entry>, reverse: bool) -> Vec<Entry> {
        if let Some(names) = &self.names {
            return names.walk(entries, reverse);
        }
        entries.retain(|entry| self.hold(entry));
        if reverse {
            entries.reverse();
        }
        entries
    }

    fn hold(&self, (member, score): &Entry) -> bool {
        let place = place_of(*score, member);
        place >= self.begin && self.end.as_ref().is_none_or(|end| place < *end)
    }

    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.begin)
    }
}

/// Which members to return of those in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// From the last to the first.
    pub reverse: bool,
    /// So many are skipped.
    pub skip: u64,
    /// Most members.
    pub limit: u64,
}

impl Pick {
    /// All of them, in order.
    pub const ALL: Pick = Pick { reverse: false, skip: 0, limit: u64::MAX };
}

/// The number of members.
pub async fn len(s: &Scope<'_>, rep: Option<&ZsetRep>, read: Read) -> Result<u64> {
    match rep {
        None => Ok(0),
        Some(ZsetRep::Listpack(raw)) => listpack::len(raw),
        Some(ZsetRep::Rows { oid, .. }) => Ok(object::count(s, *oid, read).await?.cardinality()),
    }
}

/// The scores of members, None for those that are absent.
pub async fn scores(s: &Scope<'_>, rep: Option<&ZsetRep>, members: &[Bytes]) -> Result<Vec<Option<Score>>> {
    scores_read(s, rep, members, Read::Serializable).await
}

/// The same for a caller that conflicts with every change in another way.
pub(crate) async fn scores_read(
    s: &Scope<'_>,
    rep: Option<&ZsetRep>,
    members: &[Bytes],
    read: Read,
) -> Result<Vec<Option<Score>>> {
    match rep {
        None => Ok(vec![None; members.len()]),
        Some(ZsetRep::Listpack(raw)) => members.iter().map(|member| listpack::find(raw, member)).collect(),
        Some(ZsetRep::Rows { oid, .. }) => rows::scores(s, *oid, members, read).await,
    }
}

/// The rank of a member and its score; in reverse, from the end.
pub async fn rank(
    s: &Scope<'_>,
    rep: Option<&ZsetRep>,
    member: &Bytes,
    reverse: bool,
) -> Result<Option<(u64, Score)>> {
    let Some(rep) = rep else { return Ok(None) };
    let (score, rank, all) = match rep {
        ZsetRep::Listpack(raw) => {
            let entries = listpack::decode(raw)?;
            let found = entries.iter().position(|(name, _)| name == member);
            let Some(rank) = found else { return Ok(None) };
            let score = entries.get(rank).map(|(_, score)| *score);
            (score, rank as u64, entries.len() as u64)
        }
        ZsetRep::Rows { oid, .. } => {
            let members = std::slice::from_ref(member);
            let score = rows::scores(s, *oid, members, Read::Serializable).await?.pop().flatten();
            let Some(score) = score else { return Ok(None) };
            let all = object::count(s, *oid, Read::Serializable).await?.cardinality();
            (Some(score), Ranks::of(s, *oid).await?.rank(&place_of(score, member)).await?, all)
        }
    };
    let last = all.checked_sub(1).and_then(|last| last.checked_sub(rank)).ok_or_else(counts::corrupt)?;
    Ok(score.map(|score| (if reverse { last } else { rank }, score)))
}

/// The number of members in a range: with a conflict on every change, or as a guess.
pub async fn count(s: &Scope<'_>, rep: Option<&ZsetRep>, places: &Places, read: Read) -> Result<u64> {
    match rep {
        None => Ok(0),
        Some(ZsetRep::Listpack(raw)) => Ok(places.of(listpack::decode(raw)?, false).len() as u64),
        Some(ZsetRep::Rows { .. }) if places.is_empty() => Ok(0),
        Some(ZsetRep::Rows { oid, .. }) => {
            let all = object::count(s, *oid, read).await?.cardinality();
            let counts = Ranks::of(s, *oid).await?;
            let until = async {
                match &places.end {
                    Some(end) => counts.rank(end).await,
                    None => Ok(all),
                }
            };
            let before =
                async { if places.begin.is_empty() { Ok(0) } else { counts.rank(&places.begin).await } };
            let (until, before) = try_join(until, before).await?;
            Ok(until.saturating_sub(before))
        }
    }
}

/// The range of members by their names; all of them should have one score, that of the first.
pub async fn names(
    s: &Scope<'_>,
    rep: Option<&ZsetRep>,
    min: Bound<&[u8]>,
    max: Bound<&[u8]>,
) -> Result<Places> {
    let first = Pick { limit: 1, ..Pick::ALL };
    let first = range(s, rep, &Places::all(), first, usize::MAX).await?.pop();
    let places = first.map_or_else(Places::all, |(_, score)| Places::of_names(score, min, max));
    let owned = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
    Ok(Places { names: Some(Names { min: owned(min), max: owned(max) }), ..places })
}

/// Members of a range, with their scores. Fails if they have more than `most` bytes.
pub async fn range(
    s: &Scope<'_>,
    rep: Option<&ZsetRep>,
    places: &Places,
    pick: Pick,
    most: usize,
) -> Result<Vec<Entry>> {
    let oid = match rep {
        None => return Ok(Vec::new()),
        Some(ZsetRep::Rows { oid, .. }) => *oid,
        Some(ZsetRep::Listpack(raw)) => {
            let entries = places.of(listpack::decode(raw)?, pick.reverse);
            let (skip, limit) = (pick.skip as usize, usize::try_from(pick.limit).unwrap_or(usize::MAX));
            return Ok(entries.into_iter().skip(skip).take(limit).collect());
        }
    };
    let Some((places, pick)) = skipped(s, oid, places, pick).await? else { return Ok(Vec::new()) };
    read(s, oid, &places, pick, most).await
}

/// The members with these ranks, which exist.
pub(crate) async fn at(s: &Scope<'_>, oid: Oid, ranks: &[u64]) -> Result<Vec<Entry>> {
    object::count(s, oid, Read::Serializable).await?;
    let counts = Ranks::of(s, oid).await?;
    let one = async |rank: u64| {
        let spot = counts.at(rank).await?.ok_or_else(counts::corrupt)?;
        let places = Places { begin: spot.begin, ..Places::all() };
        let pick = Pick { skip: spot.before, limit: 1, ..Pick::ALL };
        let found = read(s, oid, &places, pick, usize::MAX).await?;
        Ok::<_, Error>(found.into_iter().next().ok_or_else(counts::corrupt)?)
    };
    let mut all = Vec::with_capacity(ranks.len());
    for some in ranks.chunks(AT_ONCE) {
        all.extend(try_join_all(some.iter().map(|rank| one(*rank))).await?);
    }
    Ok(all)
}

/// A range without the members that are to be skipped. None if there are no others.
async fn skipped(s: &Scope<'_>, oid: Oid, places: &Places, pick: Pick) -> Result<Option<(Places, Pick)>> {
    if places.is_empty() || pick.limit == 0 {
        return Ok(None);
    }
    if pick.skip <= SKIPPED {
        return Ok(Some((places.clone(), pick)));
    }
    let all = object::count(s, oid, Read::Serializable).await?.cardinality();
    let counts = Ranks::of(s, oid).await?;
    if pick.reverse {
        let until = match &places.end {
            Some(end) => counts.rank(end).await?,
            None => all,
        };
        let Some(last) = until.checked_sub(pick.skip + 1) else { return Ok(None) };
        let Some(spot) = counts.at(last).await? else { return Ok(Some((places.clone(), pick))) };
        let skip = spot.members.checked_sub(spot.before + 1).ok_or_else(counts::corrupt)?;
        return Ok(Some((Places { end: spot.end, ..places.clone() }, Pick { skip, ..pick })));
    }
    let before = if places.begin.is_empty() { 0 } else { counts.rank(&places.begin).await? };
    let Some(spot) = counts.at(before.saturating_add(pick.skip)).await? else { return Ok(None) };
    let rest = Pick { skip: spot.before, ..pick };
    Ok(Some((Places { begin: spot.begin, ..places.clone() }, rest)))
}

async fn read(s: &Scope<'_>, oid: Oid, places: &Places, pick: Pick, most: usize) -> Result<Vec<Entry>> {
    let mut begin = s.db.ranked_place(oid, &places.begin);
    let mut end = match &places.end {
        Some(end) => s.db.ranked_place(oid, end),
        None => s.db.ranked_places_end(oid),
    };
    let wanted = pick.skip.saturating_add(pick.limit);
    let (mut entries, mut bytes) = (Vec::new(), 0);
    loop {
        let left = wanted.saturating_sub(entries.len() as u64);
        let limit = usize::try_from(left).unwrap_or(0);
        let opts = RangeOptions { limit, bytes: rows::PAGE, reverse: pick.reverse };
        let page = rows::page(s.tx, s.db, (&begin, &end), opts, Read::Serializable).await?;
        let returned = page.entries.iter().skip((pick.skip as usize).saturating_sub(entries.len()));
        bytes += returned.map(|(member, _)| member.len()).sum::<usize>();
        if bytes > most {
            return Err(StoreError::ReplyTooLarge(bytes).into());
        }
        entries.extend(page.entries);
        match page.next.filter(|_| (entries.len() as u64) < wanted) {
            Some(next) if pick.reverse => end = next,
            Some(next) => begin = next,
            None => break,
        }
        consume_budget().await;
    }
    drop(entries.drain(..(pick.skip as usize).min(entries.len())));
    Ok(entries)
}

/// Members get other scores, come or go; each is named once, with the score that [`scores`] has returned in this
/// transaction. Without the last one the key goes. WRONGTYPE if the key holds another type.
pub async fn change(s: &Scope<'_>, slot: &mut Slot, limits: Limits, changes: &[Change]) -> Result<()> {
    object::check_name(&slot.key)?;
    let come = || changes.iter().filter(|change| change.to.is_some()).map(|change| &change.member);
    come().try_for_each(|member| check_member(member))?;
    let raw = match slot.zset()? {
        None => Bytes::new(),
        Some(ZsetRep::Listpack(raw)) => raw.clone(),
        Some(ZsetRep::Rows { oid, is_small }) => {
            let (oid, is_small) = (*oid, *is_small);
            return change_rows(s, slot, (oid, is_small), limits, changes).await;
        }
    };
    let mut entries = listpack::decode(&raw)?;
    let changed: HashMap<&Bytes, Option<Score>> =
        changes.iter().map(|change| (&change.member, change.to)).collect();
    entries.retain(|(member, _)| !changed.contains_key(member));
    entries.extend(changed.into_iter().filter_map(|(member, score)| Some((member.clone(), score?))));
    sort(&mut entries);
    if entries.is_empty() {
        object::remove(s, slot)?;
        return Ok(());
    }
    let is_small = limits.allow(entries.len() as u64, come());
    let rep = of(s, is_small, &entries).await?;
    put(s, slot, rep)
}

/// Makes the key hold these distinct members and nothing else, for ever; without any it goes.
/// Returns their number.
pub(crate) async fn replace(
    s: &Scope<'_>,
    slot: &mut Slot,
    limits: Limits,
    mut entries: Vec<Entry>,
) -> Result<u64> {
    object::check_name(&slot.key)?;
    let members = || entries.iter().map(|(member, _)| member);
    members().try_for_each(|member| check_member(member))?;
    if entries.is_empty() {
        object::remove(s, slot)?;
        return Ok(0);
    }
    let is_small = limits.allow(entries.len() as u64, members());
    aside_of(entries.len(), || sort(&mut entries));
    let rep = of(s, is_small, &entries).await?;
    object::put(s, slot, Value::Zset(rep), None)?;
    Ok(entries.len() as u64)
}

/// Puts distinct members in order.
pub(crate) fn sort(entries: &mut [Entry]) {
    entries.sort_unstable_by(|(a, m), (b, n)| m.cmp(n).then_with(|| a.cmp(b)));
}

/// Moves the counts of an object that wait in this transaction. None do unless it is a sorted set in rows.
pub(crate) async fn settle(s: &Scope<'_>, oid: Oid) -> Result<()> {
    Ranks::of(s, oid).await.map(drop)
}

/// Moves the counts above members of a sorted set in rows that have changed in this transaction.
pub(crate) async fn move_counts(s: &Scope<'_>, oid: Oid, changes: &Changes) -> Result<()> {
    Counts::new(s, oid).count(changes).await
}

/// A sorted set of these entries, which are in order.
async fn of(s: &Scope<'_>, is_small: bool, entries: &[Entry]) -> Result<ZsetRep> {
    if is_small && entries.iter().map(listpack::size).sum::<usize>() <= listpack::MAX_BYTES {
        return Ok(ZsetRep::Listpack(listpack::encode(entries)));
    }
    Ok(ZsetRep::Rows { oid: rows::create(s, entries).await?, is_small })
}

fn put(s: &Scope<'_>, slot: &mut Slot, rep: ZsetRep) -> Result<()> {
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::Zset(rep), expire_at)
}

async fn change_rows(
    s: &Scope<'_>,
    slot: &mut Slot,
    (oid, is_small): (Oid, bool),
    limits: Limits,
    changes: &[Change],
) -> Result<()> {
    let gone = changes.iter().filter(|change| change.from.is_some() && change.to.is_none()).count() as u64;
    let new = changes.iter().filter(|change| change.from.is_none() && change.to.is_some()).count() as u64;
    if gone > 0 && new == 0 {
        let left = object::count(s, oid, Read::Snapshot).await?.cardinality().saturating_sub(gone);
        if (left <= SMALL || left <= gone)
            && object::count(s, oid, Read::Serializable).await?.cardinality() == gone
        {
            object::remove(s, slot)?;
            return Ok(());
        }
    }
    rows::change(s, oid, changes).await?;
    let come = changes.iter().filter(|change| change.to.is_some()).map(|change| &change.member);
    if is_small {
        let members = object::count(s, oid, Read::Snapshot).await?.cardinality();
        if !limits.allow(members, come) {
            put(s, slot, ZsetRep::Rows { oid, is_small: false })?;
        }
    }
    s.changed(&slot.key);
    Ok(())
}
