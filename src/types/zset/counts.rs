//! Counts above the members of a sorted set in rows: what makes a rank logarithmic.
//!
//! Level 0 divides the places into ranges of a few hundred, level 1 the ranges of level 0 into groups. A row at each
//! *boundary* says how many members there are from it to the next boundary of its level. So the rank of a place is
//! three short reads: the counts of the groups before its group, of the ranges before its range in that group,
//! and the places before it in that range.
//!
//! Invariants, at every version:
//! * Each level has a boundary without a place, before all others. It exists as long as the object.
//! * A boundary of level 1 is one of level 0, too.
//! * A count is the number of places from its boundary to the next one of its level.
//!
//! **Changes that differ do not conflict.** A member that comes or goes moves the count of its range in each level by
//! an atomic add. It finds the boundary by a snapshot read.
//!
//! **Why this is exact while ranges are divided and joined.** Two transactions can go wrong together: one that divides a
//! range at version d, and one that adds 1 to the count of that range for a place in it, at version a.
//! * The add is committed first, after the division has read. The division reads all places of the range
//!   serializably (of a group: the counts of its ranges), and the add has written one of them: the division fails.
//! * The division is committed first, after the add has read which range its place is in. Whoever adds takes a read
//!   conflict on the *move key* of the boundary that it found, and whoever divides or joins ranges a write conflict on
//!   the move keys of all boundaries that it found: the add fails.
//!
//! Adds take no write conflict there, so adds do not disturb each other. Who divides writes counts that it has read
//! in full, as numbers, not as differences.
//!
//! A range is divided by the transaction that makes it too large, a group likewise: so the price of dividing is
//! shared evenly, and no job has to follow. Ranges that became small are joined with a neighbor by the
//! transaction that made them small. A boundary of level 1 keeps its range of level 0 apart from the one before it.

use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, RankedRow};
use crate::store::{RangeOptions, Read, key_after};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use tokio::task::coop::consume_budget;

/// The levels of counts. Above the last one, all groups are read.
pub(super) const LEVELS: u8 = 2;
/// A range with more members is divided, into parts of half of this.
/// (Unit tests divide sooner, so that few members have many ranges.)
pub(super) const MOST: i64 = if cfg!(test) { 8 } else { 512 };
/// A range with fewer members is joined with a neighbor, if that does not make more than [`JOINED`].
const FEWEST: i64 = MOST / 8;
const JOINED: i64 = MOST / 4 * 3;
/// Boundaries that are looked for at once.
const AT_ONCE: usize = 256;

/// A boundary and the members from it to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Boundary {
    /// Empty: the first one.
    place: Bytes,
    count: i64,
}

pub(super) fn corrupt() -> StoreError {
    StoreError::Corrupt("the counts of a sorted set do not fit its members".into())
}

fn number(raw: &[u8]) -> Result<i64> {
    Ok(raw.try_into().map(i64::from_le_bytes).map_err(|_| corrupt())?)
}

fn boundary(s: &Scope<'_>, (row, raw): &(Bytes, Bytes)) -> Result<Boundary> {
    match s.db.decode_ranked_row(row) {
        Some(RankedRow::Boundary(_, place)) => Ok(Boundary { place, count: number(raw)? }),
        Some(RankedRow::Member(..) | RankedRow::Place(..)) | None => Err(corrupt().into()),
    }
}

/// The counts of one object, in one transaction.
#[derive(Clone, Copy)]
pub(super) struct Counts<'a> {
    s: &'a Scope<'a>,
    oid: Oid,
}

impl<'a> Counts<'a> {
    pub(super) fn new(s: &'a Scope<'a>, oid: Oid) -> Self {
        Counts { s, oid }
    }

    /// The boundary of the range that a place is in.
    async fn of(&self, level: u8, place: &[u8]) -> Result<Boundary> {
        let first = self.s.db.ranked_boundary(self.oid, level, &[]);
        let end = key_after(&self.s.db.ranked_boundary(self.oid, level, place));
        let opts = RangeOptions { limit: 1, bytes: 0, reverse: true };
        let page = self.s.tx.get_range(&first, &end, opts, Read::Snapshot).await?;
        boundary(self.s, page.pairs.first().ok_or_else(corrupt)?)
    }

    /// The boundaries of a level from `from` to before `to`, which are rows.
    async fn between(&self, from: &[u8], to: &[u8], read: Read) -> Result<Vec<Boundary>> {
        let (mut begin, mut found) = (from.to_vec(), Vec::new());
        loop {
            let opts = RangeOptions { bytes: 1 << 18, ..RangeOptions::default() };
            let page = self.s.tx.get_range(&begin, to, opts, read).await?;
            for pair in &page.pairs {
                found.push(boundary(self.s, pair)?);
            }
            match page.pairs.last() {
                Some((row, _)) if page.more => begin = key_after(row),
                _ => return Ok(found),
            }
            consume_budget().await;
        }
    }

    /// The first boundary of a level behind this one, if any.
    async fn next(&self, level: u8, place: &[u8]) -> Result<Option<Boundary>> {
        let begin = key_after(&self.s.db.ranked_boundary(self.oid, level, place));
        let end = self.s.db.ranked_boundaries_end(self.oid, level);
        let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
        let page = self.s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        page.pairs.first().map(|pair| boundary(self.s, pair)).transpose()
    }

    /// The places from one place to before another. None: to the end.
    async fn places(&self, from: &[u8], to: Option<&[u8]>, read: Read) -> Result<Vec<Vec<u8>>> {
        let db = &self.s.db;
        let (mut begin, mut found) = (db.ranked_place(self.oid, from), Vec::new());
        let skipped = db.ranked_place(self.oid, &[]).len();
        let end = to.map_or_else(|| db.ranked_places_end(self.oid), |to| db.ranked_place(self.oid, to));
        loop {
            let opts = RangeOptions { bytes: 1 << 18, ..RangeOptions::default() };
            let page = self.s.tx.get_range(&begin, &end, opts, read).await?;
            found.extend(page.pairs.iter().filter_map(|(row, _)| Some(row.get(skipped..)?.to_vec())));
            match page.pairs.last() {
                Some((row, _)) if page.more => begin = key_after(row),
                _ => return Ok(found),
            }
            consume_budget().await;
        }
    }

    fn set(&self, level: u8, place: &[u8], count: i64) -> Result<()> {
        Ok(self.s.tx.set(&self.s.db.ranked_boundary(self.oid, level, place), &count.to_le_bytes())?)
    }

    /// Changes of members in the range of this boundary, which this transaction has found, fail if it has moved.
    fn stays(&self, level: u8, place: &[u8]) -> Result<()> {
        #[cfg(test)]
        if super::tests::forgets_moves() {
            return Ok(());
        }
        let key = self.s.db.ranked_move(self.oid, level, place);
        Ok(self.s.tx.add_read_conflict(&key, &key_after(&key))?)
    }

    /// The range of this boundary gets another end.
    fn moves(&self, level: u8, place: &[u8]) -> Result<()> {
        let key = self.s.db.ranked_move(self.oid, level, place);
        Ok(self.s.tx.add_write_conflict(&key, &key_after(&key))?)
    }

    /// Members have come to (+1) or gone from (-1) places, whose rows this transaction has written.
    pub(super) async fn change(&self, changes: &BTreeMap<Vec<u8>, i64>) -> Result<()> {
        let changes: Vec<(&Vec<u8>, i64)> = changes.iter().map(|(place, n)| (place, *n)).collect();
        for level in 0..LEVELS {
            let mut touched: BTreeMap<Bytes, i64> = BTreeMap::new();
            for some in changes.chunks(AT_ONCE) {
                let found = try_join_all(some.iter().map(|(place, _)| self.of(level, place))).await?;
                for (boundary, (_, n)) in found.into_iter().zip(some) {
                    *touched.entry(boundary.place).or_default() += n;
                }
                consume_budget().await;
            }
            for (place, n) in &touched {
                self.stays(level, place)?;
                if *n != 0 {
                    let row = self.s.db.ranked_boundary(self.oid, level, place);
                    self.s.tx.add(&row, &n.to_le_bytes())?;
                }
            }
            // All counts are right now; each of these may move other boundaries.
            for (place, n) in touched.into_iter().filter(|(_, n)| *n != 0) {
                let now = self.of(level, &place).await?;
                self.fit(level, &now.place, now.count, n).await?;
            }
        }
        Ok(())
    }

    /// Divides a range that has become too large, or joins one that has become small.
    async fn fit(&self, level: u8, place: &[u8], count: i64, n: i64) -> Result<()> {
        // A group of ranges that are full.
        let size = (MOST / 2).pow(u32::from(level));
        match () {
            () if n > 0 && count > MOST * size => self.divide(level, place).await,
            () if n < 0 && count < FEWEST * size => self.join(level, place).await,
            () => Ok(()),
        }
    }

    async fn divide(&self, level: u8, place: &[u8]) -> Result<()> {
        let next = self.next(level, place).await?.map(|next| next.place);
        let parts = match level {
            0 => {
                let places = self.places(place, next.as_deref(), Read::Serializable).await?;
                parts(&places.into_iter().map(|place| (place.into(), 1)).collect::<Vec<_>>(), MOST / 2)
            }
            _ => {
                let db = &self.s.db;
                let end = next.as_deref().map_or_else(
                    || db.ranked_boundaries_end(self.oid, level - 1),
                    |next| db.ranked_boundary(self.oid, level - 1, next),
                );
                let begin = db.ranked_boundary(self.oid, level - 1, place);
                let below = self.between(&begin, &end, Read::Serializable).await?;
                let below: Vec<(Bytes, i64)> = below.into_iter().map(|b| (b.place, b.count)).collect();
                parts(&below, (MOST / 2).pow(u32::from(level) + 1))
            }
        };
        self.moves(level, place)?;
        // The first part keeps the boundary, before which its first member may not be.
        for (n, (start, count)) in parts.iter().enumerate() {
            let start = if n == 0 { place } else { start };
            self.moves(level, start)?;
            self.set(level, start, *count)?;
        }
        Ok(())
    }

    /// Joins a range with the one behind it, or the one before it. (An empty one joins any: those that stayed would
    /// be read for every rank.)
    async fn join(&self, level: u8, place: &[u8]) -> Result<()> {
        let behind = self.next(level, place).await?.map(|next| (Bytes::copy_from_slice(place), next.place));
        if let Some((left, right)) = behind
            && self.try_join(level, (&left, &right), Read::Snapshot).await?.is_some()
        {
            return self.unite(level, (&left, &right)).await;
        }
        if place.is_empty() {
            return Ok(());
        }
        let row = self.s.db.ranked_boundary(self.oid, level, place);
        let first = self.s.db.ranked_boundary(self.oid, level, &[]);
        let opts = RangeOptions { limit: 1, bytes: 0, reverse: true };
        let page = self.s.tx.get_range(&first, &row, opts, Read::Snapshot).await?;
        let before = boundary(self.s, page.pairs.first().ok_or_else(corrupt)?)?;
        match self.try_join(level, (&before.place, place), Read::Snapshot).await? {
            Some(_) => self.unite(level, (&before.place, place)).await,
            None => Ok(()),
        }
    }

    /// The members of two neighbors that may be joined. (First without conflicts: most may not.)
    async fn try_join(&self, level: u8, (left, right): (&[u8], &[u8]), read: Read) -> Result<Option<i64>> {
        let above = self.s.db.ranked_boundary(self.oid, level + 1, right);
        if level + 1 < LEVELS && self.s.tx.get(&above, read).await?.is_some() {
            return Ok(None);
        }
        let mut counts = [0; 2];
        for (place, count) in [left, right].into_iter().zip(&mut counts) {
            let raw = self.s.tx.get(&self.s.db.ranked_boundary(self.oid, level, place), read).await?;
            *count = number(&raw.ok_or_else(corrupt)?)?;
        }
        let sum = counts.iter().sum();
        let fits = sum <= JOINED * (MOST / 2).pow(u32::from(level)) || counts.contains(&0);
        Ok(fits.then_some(sum))
    }

    async fn unite(&self, level: u8, (left, right): (&[u8], &[u8])) -> Result<()> {
        let Some(sum) = self.try_join(level, (left, right), Read::Serializable).await? else { return Ok(()) };
        self.moves(level, left)?;
        self.moves(level, right)?;
        self.set(level, left, sum)?;
        Ok(self.s.tx.clear(&self.s.db.ranked_boundary(self.oid, level, right))?)
    }

    /// The number of members before a place. Exact at one version: whoever writes what follows from it reads N
    /// serializably.
    pub(super) async fn rank(&self, place: &[u8]) -> Result<u64> {
        let db = &self.s.db;
        let (mut rank, mut from) = (0, Bytes::new());
        for level in (0..LEVELS).rev() {
            let begin = db.ranked_boundary(self.oid, level, &from);
            let end = key_after(&db.ranked_boundary(self.oid, level, place));
            let mut found = self.between(&begin, &end, Read::Snapshot).await?;
            from = found.pop().ok_or_else(corrupt)?.place;
            rank += found.iter().map(|boundary| boundary.count).sum::<i64>();
        }
        let within = self.places(&from, Some(place), Read::Snapshot).await?.len();
        u64::try_from(rank).map(|rank| rank + within as u64).map_err(|_| corrupt().into())
    }

    /// The place of the member with a rank. None beyond the last one.
    pub(super) async fn at(&self, rank: u64) -> Result<Option<Vec<u8>>> {
        let db = &self.s.db;
        let mut left = i64::try_from(rank).unwrap_or(i64::MAX);
        let (mut from, mut to) = (Bytes::new(), None);
        for level in (0..LEVELS).rev() {
            let begin = db.ranked_boundary(self.oid, level, &from);
            let end = to.as_deref().map_or_else(
                || db.ranked_boundaries_end(self.oid, level),
                |to: &[u8]| db.ranked_boundary(self.oid, level, to),
            );
            let mut found = self.between(&begin, &end, Read::Snapshot).await?.into_iter();
            let holder = found.by_ref().find(|boundary| {
                let is_here = left < boundary.count;
                left -= if is_here { 0 } else { boundary.count };
                is_here
            });
            let Some(holder) = holder else { return Ok(None) };
            from = holder.place;
            to = found.next().map(|next| next.place).or(to);
        }
        let left = usize::try_from(left).map_err(|_| corrupt())?;
        let row = db.ranked_place(self.oid, &from);
        let opts = RangeOptions { limit: left + 1, ..RangeOptions::default() };
        let page = self.s.tx.get_range(&row, &db.ranked_places_end(self.oid), opts, Read::Snapshot).await?;
        let found = page.pairs.get(left).ok_or_else(corrupt)?;
        let skipped = db.ranked_place(self.oid, &[]).len();
        Ok(found.0.get(skipped..).map(<[u8]>::to_vec))
    }
}

/// The counts of a new object, whose places come in order.
#[derive(Debug, Default)]
pub(super) struct NewCounts {
    /// For each level: where the current range begins, and its members so far.
    open: [(Vec<u8>, i64); LEVELS as usize],
}

/// A boundary to write: its level, its place and its count.
pub(super) type NewBoundary = (u8, Vec<u8>, i64);

impl NewCounts {
    /// The next place. Returns the boundaries whose ranges are full.
    pub(super) fn push(&mut self, place: &[u8]) -> Vec<NewBoundary> {
        let mut full = Vec::new();
        for (level, (start, count)) in (0u8..).zip(&mut self.open) {
            // A group may end only where a range does.
            if *count >= (MOST / 2).pow(u32::from(level) + 1) && (level == 0 || !full.is_empty()) {
                full.push((level, std::mem::replace(start, place.to_vec()), std::mem::take(count)));
            }
            *count += 1;
        }
        full
    }

    /// The boundaries of the last ranges.
    pub(super) fn finish(self) -> impl Iterator<Item = NewBoundary> {
        (0u8..).zip(self.open).map(|(level, (start, count))| (level, start, count))
    }
}

/// Divides what has these counts, in order, into parts of about `most`: where each begins, and its count.
fn parts(all: &[(Bytes, i64)], most: i64) -> Vec<(Bytes, i64)> {
    let mut parts: Vec<(Bytes, i64)> = Vec::new();
    for (place, count) in all {
        match parts.last_mut() {
            Some((_, sum)) if *sum < most => *sum += count,
            _ => parts.push((place.clone(), *count)),
        }
    }
    parts
}
