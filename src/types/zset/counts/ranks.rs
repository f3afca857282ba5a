//! Ranks of places, and places of ranks.
//!
//! The embedded engine keeps the ranges that are read for ranks in memory: a range is the same for every member in it. A
//! cluster is asked for no more rows than are needed.

use super::{Counts, LEVELS, corrupt, decode};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::store::key_after;

/// A range of a level: the place of its boundary and that of the next one, which the last one does not have.
type Range = (Vec<u8>, Option<Vec<u8>>);

/// The range that holds the member with a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::types::zset) struct Spot {
    /// Where the range begins.
    pub(in crate::types::zset) begin: Vec<u8>,
    /// Where the next one begins. None: it is the last one.
    pub(in crate::types::zset) end: Option<Vec<u8>>,
    /// Its members, and those of them that come before.
    pub(in crate::types::zset) members: u64,
    pub(in crate::types::zset) before: u64,
}

/// The counts of one object, which show all that its transaction has changed.
#[derive(Clone, Copy)]
pub(in crate::types::zset) struct Ranks<'a>(Counts<'a>);

impl<'a> Ranks<'a> {
    /// Moves the counts that wait in this transaction.
    pub(in crate::types::zset) async fn of(s: &'a Scope<'a>, oid: Oid) -> Result<Self> {
        let counts = Counts::new(s, oid);
        if let Some(uncounted) = s.uncounted
            && let Some(changes) = uncounted.take((s.db, oid))
        {
            // Boxed: every command with ranks contains this future.
            Box::pin(counts.count_waiting(uncounted, &changes)).await?;
        }
        Ok(Ranks(counts))
    }

    /// The number of members before a place. Exact at one version: whoever writes what follows from it reads N
    /// serializably.
    pub(in crate::types::zset) async fn rank(&self, place: &[u8]) -> Result<u64> {
        let (mut rank, mut range) = (0, (Vec::new(), None));
        for level in (0..LEVELS).rev() {
            let before;
            (before, range) = self.before(level, range, place).await?;
            rank += before;
        }
        sum(rank, self.within(range, place).await?)
    }

    /// The members from the begin of a range of the level above, or of all, to the last boundary up to a place; and the
    /// range of that boundary. On a cluster the end of that range is not known.
    async fn before(&self, level: u8, (from, to): Range, place: &[u8]) -> Result<(i64, Range)> {
        let (mut before, mut last, mut begin, mut next) = (0, None, Vec::new(), None);
        let (from, end) = (self.0.row(level, &from), self.0.end(level, to.as_deref()));
        let until = self.0.s.tx.prefers_prefetch().then(|| key_after(&self.0.row(level, place)));
        let (skipped, mut is_sound) = (self.0.before_places(level), true);
        let mut each = |row: &[u8], raw: &[u8]| {
            let at = row.get(skipped..).unwrap_or_default();
            if at > place {
                if next.is_none() {
                    next = Some(at.to_vec());
                }
                return;
            }
            let count = decode(raw).map(|(count, _)| count);
            is_sound &= count.is_some();
            before += std::mem::replace(&mut last, count).unwrap_or(0);
            begin.clear();
            begin.extend_from_slice(at);
        };
        self.0.s.tx.visit_kept((&from, &end), until.as_deref().unwrap_or(&end), &mut each).await?;
        if !is_sound || last.is_none() {
            return Err(corrupt().into());
        }
        Ok((before, (begin, next.or(to))))
    }

    /// The number of places of a range that are before another place.
    async fn within(&self, (from, to): Range, place: &[u8]) -> Result<i64> {
        let (db, place) = (&self.0.s.db, self.0.s.db.ranked_place(self.0.oid, place));
        let from = db.ranked_place(self.0.oid, &from);
        let end = to.map_or_else(|| db.ranked_places_end(self.0.oid), |to| db.ranked_place(self.0.oid, &to));
        let mut found = 0;
        let mut each = |row: &[u8], _: &[u8]| found += i64::from(*row < place[..]);
        self.0.s.tx.visit_kept((&from, &end), &place, &mut each).await?;
        Ok(found)
    }

    /// Where the member with a rank is. None beyond the last one.
    pub(in crate::types::zset) async fn at(&self, rank: u64) -> Result<Option<Spot>> {
        let mut left = i64::try_from(rank).unwrap_or(i64::MAX);
        let (mut range, mut members) = ((Vec::new(), None), 0);
        for level in (0..LEVELS).rev() {
            let Some(holder) = self.holder(level, range, &mut left).await? else { return Ok(None) };
            (range, members) = holder;
        }
        let [members, before] = [members, left].map(|n| u64::try_from(n).map_err(|_| corrupt()));
        let (begin, end) = range;
        Ok(Some(Spot { begin, end, members: members?, before: before? }))
    }

    /// The part of a range of the level above, or of all, that holds the member behind `left` others, and its number
    /// of members. `left` becomes the number of those before it in that part.
    async fn holder(&self, level: u8, (from, to): Range, left: &mut i64) -> Result<Option<(Range, i64)>> {
        let (mut holder, mut next) = (None, None);
        let (skipped, mut is_sound) = (self.0.before_places(level), true);
        let mut each = |row: &[u8], raw: &[u8]| {
            let at = row.get(skipped..).unwrap_or_default();
            let count = decode(raw).map(|(count, _)| count);
            is_sound &= count.is_some();
            match (&holder, count) {
                (Some(_), _) => _ = next.get_or_insert_with(|| at.to_vec()),
                (None, Some(count)) if *left < count => holder = Some((at.to_vec(), count)),
                (None, count) => *left -= count.unwrap_or(0),
            }
        };
        let (begin, end) = (self.0.row(level, &from), self.0.end(level, to.as_deref()));
        self.0.s.tx.visit_kept((&begin, &end), &end, &mut each).await?;
        if !is_sound {
            return Err(corrupt().into());
        }
        Ok(holder.map(|(begin, count)| ((begin, next.or(to)), count)))
    }
}

fn sum(before: i64, within: i64) -> Result<u64> {
    Ok(before.checked_add(within).and_then(|rank| u64::try_from(rank).ok()).ok_or_else(corrupt)?)
}
