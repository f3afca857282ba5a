//! Counts above the members of a sorted set in rows: what makes a rank logarithmic.
//!
//! Level 0 divides the places into ranges of about a hundred, each further level the ranges below it into groups of
//! about thirty. A row at each *boundary* says how many members there are from it to the next boundary of its level.
//! So the rank of a place is a few short reads: on each level the counts before its range in the group above, and at
//! last the places before it in its range of level 0. (Calculated for ten million members: 120 rows; with two levels 370.)
//!
//! Invariants, at every version:
//! * Each level has a boundary without a place, before all others. It exists as long as the object.
//! * A boundary of a level is one of the level below it, too.
//! * A count is the number of places from its boundary to the next one of its level.
//! * Beside its count a boundary has a *generation*. When the end of its range moves, it gets one that no boundary has
//!   had: a hint about a range ([`RangeHint`]) is true at a version where it names the generation of that version.
//!
//! **Changes that differ do not conflict.** A member that comes or goes moves the count of its range in each level by
//! an atomic add. It finds the boundary by a hint, or else by a snapshot read.
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
//! **Counts that move together.** The calls of a batch leave their changes to its end, or to the next call that reads
//! counts of the object ([`Uncounted`]): for the arguments above it does not matter
//! when in a transaction that happens.
//!
//! A range is divided by the transaction that makes it too large, a group likewise: so the price of dividing is
//! shared evenly, and no job has to follow. Ranges that became small are joined with a neighbor by the
//! transaction that made them small. A boundary of a level keeps the ranges below
//! it apart.

mod ranks;

pub(super) use ranks::Ranks;

use super::rows::PAGE;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, RankedRow};
use crate::keyspace::range_hints::RangeHint;
use crate::keyspace::reads::get_many;
use crate::keyspace::uncounted::{Changes, Uncounted};
use crate::store::{RangeOptions, Read, Rest, key_after};
use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use std::collections::BTreeSet;
use tokio::task::coop::consume_budget;

/// The levels of counts. Above the last one, all groups are read.
pub(super) const LEVELS: u8 = 3;
/// By level: a range with more members is divided, into parts of half of this.
/// (Unit tests divide sooner, so that few members have many ranges.)
pub(super) const MOST: [i64; LEVELS as usize] =
    if cfg!(test) { [8, 32, 128] } else { [1 << 7, 1 << 12, 1 << 17] };
/// Boundaries that are looked for at once.
const AT_ONCE: usize = 256;
/// [`MOST`] of a level.
fn most(level: u8) -> i64 {
    MOST.get(usize::from(level)).copied().unwrap_or(i64::MAX)
}

/// A range of a level with fewer members is joined with a neighbor.
fn fewest(level: u8) -> i64 {
    most(level) / 8
}

/// A boundary and the members from it to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Boundary {
    /// Empty: the first one.
    place: Bytes,
    count: i64,
    generation: u64,
}

pub(super) fn corrupt() -> StoreError {
    StoreError::Corrupt("the counts of a sorted set do not fit its members".into())
}

/// The row of a boundary. Adding a number that leaves the count at 0 or above does not touch the generation.
pub(super) fn encode(count: i64, generation: u64) -> [u8; 16] {
    (u128::from(generation) << 64 | u128::from(count.cast_unsigned())).to_le_bytes()
}

/// The count and the generation of a boundary.
pub(super) fn decode(raw: &[u8]) -> Option<(i64, u64)> {
    let both = u128::from_le_bytes(raw.try_into().ok()?);
    Some(((both as u64).cast_signed(), (both >> 64) as u64))
}

fn boundary(s: &Scope<'_>, (row, raw): &(Bytes, Bytes)) -> Result<Boundary> {
    let Some(RankedRow::Boundary(_, place)) = s.db.decode_ranked_row(row) else {
        return Err(corrupt().into());
    };
    let (count, generation) = decode(raw).ok_or_else(corrupt)?;
    Ok(Boundary { place, count, generation })
}

/// A range of a level, and what a change adds to its count.
#[derive(Debug)]
struct Touched {
    place: Bytes,
    /// It is the only range of its level.
    is_alone: bool,
    count: i64,
    n: i64,
}

fn sum_of(changes: &[Change<'_>]) -> i64 {
    changes.iter().map(|(_, n)| n).sum()
}

/// Whether a hint names the generation that its range has.
fn is_true(hint: &RangeHint, generation: u64) -> bool {
    #[cfg(test)]
    if super::tests::makes(super::tests::Mistake::BelievesHints) {
        return true;
    }
    hint.generation == generation
}

/// A place, and whether a member comes to it (+1) or goes from it (-1).
type Change<'a> = (&'a Vec<u8>, i64);

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

    /// The row of a boundary.
    fn row(&self, level: u8, place: &[u8]) -> Vec<u8> {
        self.s.db.ranked_boundary(self.oid, level, place)
    }

    /// The number of bytes before the place in a row of a boundary.
    fn before_places(&self, level: u8) -> usize {
        self.row(level, &[]).len()
    }

    /// The row of the boundary with this place, or one past those of the level.
    fn end(&self, level: u8, place: Option<&[u8]>) -> Vec<u8> {
        place.map_or_else(|| self.s.db.ranked_boundaries_end(self.oid, level), |place| self.row(level, place))
    }

    /// The boundary of the range that a place is in.
    async fn of(&self, level: u8, place: &[u8]) -> Result<Boundary> {
        let (first, end) = (self.row(level, &[]), key_after(&self.row(level, place)));
        let opts = RangeOptions { limit: 1, bytes: 0, reverse: true };
        let page = self.s.tx.get_range(&first, &end, opts, Read::Snapshot).await?;
        boundary(self.s, page.pairs.first().ok_or_else(corrupt)?)
    }

    /// The same, and a hint for the next time.
    async fn searched(&self, level: u8, place: &[u8]) -> Result<(RangeHint, i64)> {
        let (found, next) = try_join(self.of(level, place), self.next(level, place)).await?;
        let end = self.end(level, next.as_ref().map(|next| &next.place[..]));
        Ok((self.learn(level, &found.place, end, found.generation), found.count))
    }

    fn learn(&self, level: u8, begin: &[u8], end: Vec<u8>, generation: u64) -> RangeHint {
        let begin = self.row(level, begin).into();
        let hint = RangeHint { begin, end: end.into(), generation, head: self.before_places(level) };
        self.s.space.ranges.learn(hint.clone());
        hint
    }

    /// The ranges of a level that these places are in, which are in order, with the sums of what comes to them.
    async fn touched(&self, level: u8, changes: &[Change<'_>]) -> Result<Vec<Touched>> {
        let skipped = self.before_places(level);
        // Hints, and the places that are in each. (Hints may overlap.)
        let mut ranges: Vec<(RangeHint, &[Change<'_>])> = Vec::new();
        let (mut others, mut rest): (Vec<Change<'_>>, _) = (Vec::new(), changes);
        while let Some((first, _)) = rest.first() {
            let hint = self.s.space.ranges.find(&self.row(level, first).into(), skipped);
            let (these, behind) = match &hint {
                Some(hint) => Self::held(hint, rest),
                None => rest.split_at(1),
            };
            match hint {
                Some(hint) => ranges.push((hint, these)),
                None => others.extend(these),
            }
            rest = behind;
        }
        let rows: Vec<&Bytes> = ranges.iter().map(|(hint, _)| &hint.begin).collect();
        let now = get_many(self.s.tx, &rows, Read::Snapshot).await?;
        let mut touched = Vec::with_capacity(ranges.len());
        for ((hint, these), now) in ranges.into_iter().zip(now) {
            match now.as_deref().and_then(decode).filter(|(_, generation)| is_true(&hint, *generation)) {
                Some((count, _)) => touched.push((hint, count, sum_of(these))),
                None => {
                    self.s.space.ranges.forget(&hint);
                    others.extend(these);
                }
            }
        }
        others.sort_unstable();
        touched.extend(self.searched_all(level, &others).await?);
        touched.sort_unstable_by(|(one, ..), (other, ..)| one.begin.cmp(&other.begin));
        let end = self.end(level, None);
        let mut found: Vec<Touched> = Vec::with_capacity(touched.len());
        for (hint, count, n) in touched {
            let place = hint.begin.slice(skipped..);
            match found.last_mut().filter(|last| last.place == place) {
                Some(last) => last.n += n,
                None => {
                    let is_alone = place.is_empty() && hint.end == end;
                    found.push(Touched { place, is_alone, count, n });
                }
            }
        }
        Ok(found)
    }

    /// Divides changes, of which the first is in a range, into those that are and those behind it.
    fn held<'b, 'c>(range: &RangeHint, changes: &'b [Change<'c>]) -> (&'b [Change<'c>], &'b [Change<'c>]) {
        let others = changes.iter().position(|(place, _)| !range.holds_place(place));
        changes.split_at(others.unwrap_or(changes.len()))
    }

    /// The ranges, their counts and the sums of changes for which there are no hints. A range may come twice.
    async fn searched_all(&self, level: u8, mut rest: &[Change<'_>]) -> Result<Vec<(RangeHint, i64, i64)>> {
        // More and more at once: many may be in the range of the first one.
        let (mut all, mut size) = (Vec::new(), 1);
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(size.min(rest.len()));
            let found = try_join_all(some.iter().map(|(place, _)| self.searched(level, place))).await?;
            all.extend(found.into_iter().zip(some).map(|((hint, count), (_, n))| (hint, count, *n)));
            rest = behind;
            if let Some((last, _, sum)) = all.last_mut() {
                let (these, others) = Self::held(last, behind);
                *sum += sum_of(these);
                rest = others;
            }
            size = (2 * size).min(AT_ONCE);
            consume_budget().await;
        }
        Ok(all)
    }

    /// The boundaries of a level from `from` to before `to`, which are rows; with a conflict.
    async fn between(&self, from: &[u8], to: &[u8]) -> Result<Vec<Boundary>> {
        let (mut rest, mut found) = (Rest::of((from.to_vec(), to.to_vec())), Vec::new());
        let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        while let Some(page) = rest.page(self.s.tx, opts, Read::Serializable).await? {
            for pair in &page {
                found.push(boundary(self.s, pair)?);
            }
            consume_budget().await;
        }
        Ok(found)
    }

    /// The first boundary of a level behind this place, if any.
    async fn next(&self, level: u8, place: &[u8]) -> Result<Option<Boundary>> {
        let (begin, end) = (key_after(&self.row(level, place)), self.end(level, None));
        let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
        let page = self.s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        page.pairs.first().map(|pair| boundary(self.s, pair)).transpose()
    }

    /// The places from one place to before another, with a conflict. None: to the end.
    async fn places(&self, from: &[u8], to: Option<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let db = &self.s.db;
        let skipped = db.ranked_place(self.oid, &[]).len();
        let end = to.map_or_else(|| db.ranked_places_end(self.oid), |to| db.ranked_place(self.oid, to));
        let (mut rest, mut found) = (Rest::of((db.ranked_place(self.oid, from), end)), Vec::new());
        let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        while let Some(page) = rest.page(self.s.tx, opts, Read::Serializable).await? {
            found.extend(page.iter().filter_map(|(row, _)| Some(row.get(skipped..)?.to_vec())));
            consume_budget().await;
        }
        Ok(found)
    }

    /// A range gets this count and this end.
    fn set(&self, level: u8, place: &[u8], end: Option<&[u8]>, count: i64) -> Result<()> {
        let generation = self.s.space.fresh.revision();
        self.learn(level, place, self.end(level, end), generation);
        Ok(self.s.tx.set(&self.row(level, place), &encode(count, generation))?)
    }

    /// Changes of members in the range of this boundary, which this transaction has found, fail if it has moved.
    fn stays(&self, level: u8, place: &[u8]) -> Result<()> {
        #[cfg(test)]
        if super::tests::makes(super::tests::Mistake::ForgetsMoves) {
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

    /// Reads what a change of these places will read.
    pub(super) async fn prefetch(&self, places: &BTreeSet<Vec<u8>>) -> Result<()> {
        let changes: Vec<Change<'_>> = places.iter().map(|place| (place, 0)).collect();
        let levels = try_join_all((0..LEVELS).map(|level| self.touched(level, &changes))).await?;
        // By now there are hints for all: whoever changes these places asks for the ranges' rows.
        let touched =
            (0..LEVELS).zip(&levels).flat_map(|(level, all)| all.iter().map(move |one| (level, one)));
        let rows: Vec<Vec<u8>> = touched.map(|(level, one)| self.row(level, &one.place)).collect();
        get_many(self.s.tx, &rows, Read::Snapshot).await?;
        Ok(())
    }

    /// Members have come to (+1) or gone from (-1) places, whose rows this transaction has written. Their counts move
    /// now, or together with those of others in this transaction.
    pub(super) async fn change(&self, changes: Changes) -> Result<()> {
        let Some(uncounted) = self.s.uncounted else { return self.count(&changes).await };
        match uncounted.add((self.s.db, self.oid), changes) {
            Some(changes) => self.count_waiting(uncounted, &changes).await,
            None => Ok(()),
        }
    }

    /// Moves counts for changes that may be those of other calls.
    async fn count_waiting(&self, uncounted: &Uncounted, changes: &Changes) -> Result<()> {
        self.count(changes).await.inspect_err(|_| uncounted.fail())
    }

    /// Moves the counts above members that have come to (+1) or gone from (-1) places.
    pub(super) async fn count(&self, changes: &Changes) -> Result<()> {
        let changes: Vec<Change<'_>> = changes.iter().map(|(place, n)| (place, *n)).collect();
        let levels = try_join_all((0..LEVELS).map(|level| self.touched(level, &changes))).await?;
        for (level, touched) in (0..LEVELS).zip(&levels) {
            for Touched { place, n, .. } in touched {
                self.stays(level, place)?;
                if *n != 0 {
                    self.s.tx.add(&self.row(level, place), &i128::from(*n).to_le_bytes())?;
                }
            }
        }
        // All counts are right now. Level 0 comes first: a group may end only where a range does.
        for (level, touched) in (0..LEVELS).zip(levels) {
            for Touched { place, is_alone, count, n } in touched {
                if n > 0 || !is_alone {
                    self.fit(level, &place, count + n, n).await?;
                }
            }
        }
        Ok(())
    }

    /// Divides a range that has become too large, or joins one that has become small. It may have moved since it was
    /// counted.
    async fn fit(&self, level: u8, place: &[u8], count: i64, n: i64) -> Result<()> {
        let is_right =
            |count: i64| n == 0 || n > 0 && count <= most(level) || n < 0 && count >= fewest(level);
        if is_right(count) {
            return Ok(());
        }
        let now = self.of(level, place).await?;
        match () {
            () if is_right(now.count) => Ok(()),
            () if n > 0 => self.divide(level, &now.place).await,
            () => self.join(level, &now.place).await,
        }
    }

    async fn divide(&self, level: u8, place: &[u8]) -> Result<()> {
        let next = self.next(level, place).await?.map(|next| next.place);
        let below: Vec<(Bytes, i64)> = match level.checked_sub(1) {
            None => {
                let places = self.places(place, next.as_deref()).await?;
                places.into_iter().map(|place| (place.into(), 1)).collect()
            }
            Some(below) => {
                let (begin, end) = (self.row(below, place), self.end(below, next.as_deref()));
                let below = self.between(&begin, &end).await?;
                below.into_iter().map(|boundary| (boundary.place, boundary.count)).collect()
            }
        };
        self.moves(level, place)?;
        let parts = parts(&below, most(level) / 2);
        let ends = parts.iter().skip(1).map(|(start, _)| Some(&start[..])).chain([next.as_deref()]);
        // The first part keeps the boundary, before which its first member may not be.
        for (n, ((start, count), end)) in parts.iter().zip(ends).enumerate() {
            let start = if n == 0 { place } else { start };
            self.moves(level, start)?;
            self.set(level, start, end, *count)?;
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
        let (first, row) = (self.row(level, &[]), self.row(level, place));
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
        // A boundary of a level is one of each level below it.
        if level + 1 < LEVELS && self.s.tx.get(&self.row(level + 1, right), read).await?.is_some() {
            return Ok(None);
        }
        let mut counts = [0; 2];
        for (place, count) in [left, right].into_iter().zip(&mut counts) {
            let raw = self.s.tx.get(&self.row(level, place), read).await?;
            *count = raw.as_deref().and_then(decode).ok_or_else(corrupt)?.0;
        }
        let sum = counts.iter().sum();
        // Not so many that a few more divide it again.
        let fits = sum <= most(level) / 4 * 3 || counts.contains(&0);
        Ok(fits.then_some(sum))
    }

    async fn unite(&self, level: u8, (left, right): (&[u8], &[u8])) -> Result<()> {
        let Some(sum) = self.try_join(level, (left, right), Read::Serializable).await? else { return Ok(()) };
        let end = self.next(level, right).await?.map(|next| next.place);
        self.moves(level, left)?;
        self.moves(level, right)?;
        self.set(level, left, end.as_deref(), sum)?;
        Ok(self.s.tx.clear(&self.row(level, right))?)
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
            // A group may end only where a range below it does.
            let ends_below = full.last().is_some_and(|(below, ..): &NewBoundary| below + 1 == level);
            if *count >= most(level) / 2 && (level == 0 || ends_below) {
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

/// Divides what has these counts, in order, into equal parts of about `size`: where each begins, and its count.
fn parts(all: &[(Bytes, i64)], size: i64) -> Vec<(Bytes, i64)> {
    let total: i64 = all.iter().map(|(_, count)| count).sum();
    let size = total.div_euclid((total + size / 2).div_euclid(size).max(1)) + 1;
    let mut parts: Vec<(Bytes, i64)> = Vec::new();
    for (place, count) in all {
        match parts.last_mut() {
            Some((_, sum)) if *sum < size => *sum += count,
            _ => parts.push((place.clone(), *count)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::parts;
    use bytes::Bytes;

    #[test]
    fn parts_are_even() {
        for (members, wanted) in [(129, vec![65, 64]), (65, vec![65]), (200, vec![67, 67, 66])] {
            let all: Vec<(Bytes, i64)> =
                (0..members).map(|n: u16| (n.to_be_bytes().to_vec().into(), 1)).collect();
            let found: Vec<i64> = parts(&all, 64).into_iter().map(|(_, count)| count).collect();
            assert_eq!(found, wanted);
        }
    }
}
