//! Checks that a sorted set's rows fit together: each member is at the place that its score says, and each count is
//! the number of places in its range.

use super::ZsetRep;
use super::listpack::{self, MAX_BYTES};
use super::rows::place_of;
use super::score::Score;
use crate::keyspace::keys::{Oid, RankedRow, hash};
use crate::store::{RangeOptions, Rest, prefix_end};
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::object::Count;
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

const PAGE: RangeOptions = RangeOptions { limit: 0, bytes: 1 << 18, reverse: false };

/// The problem of a sorted set in its record, if any.
pub(super) fn listpack(raw: &Bytes, row: &[u8]) -> Vec<Problem> {
    let what = match listpack::decode(raw) {
        Err(_) => Some("a sorted set in its record does not decode"),
        Ok(entries) => {
            let distinct =
                entries.iter().map(|(member, _)| member).collect::<HashSet<_>>().len() == entries.len();
            let sorted = entries.is_sorted_by(|(a, m), (b, n)| (m, a) < (n, b));
            let sound = distinct && sorted && raw.len() <= MAX_BYTES && !entries.is_empty();
            (!sound).then_some(
                "a sorted set in its record is empty, too large for a record, out of order, or holds a member twice",
            )
        }
    };
    what.map(|what| Problem::new(row, what)).into_iter().collect()
}

/// Rows of one kind: their number, and the sum of the hashes of the places that they name.
#[derive(Default, PartialEq, Eq)]
struct Named {
    rows: u64,
    sum: u64,
}

impl Named {
    fn add(&mut self, place: &[u8], is_negative_zero: bool) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash(place).rotate_left(u32::from(is_negative_zero)));
    }
}

struct Audit<'a> {
    auditor: &'a Auditor<'a>,
    problems: Vec<Problem>,
    members: Named,
    places: Named,
    /// The boundaries of each level by their places, with their counts less the places seen in their ranges.
    counts: BTreeMap<u8, BTreeMap<Bytes, (Bytes, i64)>>,
}

/// The problems of a sorted set in rows.
pub(super) async fn rows(auditor: &Auditor<'_>, oid: Oid) -> Findings {
    let (problems, counts) = (Vec::new(), BTreeMap::new());
    let (members, places) = Default::default();
    let mut audit = Audit { auditor, problems, members, places, counts };
    // The counts are needed first.
    let boundaries = auditor.db.ranked_boundary(oid, 0, &[]);
    let all = auditor.db.object_rows(ZsetRep::ROW, oid);
    audit.each(Rest::of((boundaries.clone(), prefix_end(&all)))).await?;
    audit.each(Rest::of((all, boundaries))).await?;
    audit.done(oid).await
}

impl Audit<'_> {
    async fn each(&mut self, mut rest: Rest) -> crate::error::StoreResult<()> {
        while let Some(page) = self.auditor.view.next(&mut rest, PAGE).await? {
            page.iter().for_each(|(row, value)| self.row(row, value));
        }
        Ok(())
    }

    fn row(&mut self, row: &Bytes, value: &Bytes) {
        let what = match self.auditor.db.decode_ranked_row(row) {
            Some(RankedRow::Member(at, member)) if at == hash(&member) => self.member(&member, value),
            Some(RankedRow::Member(..)) => Some("a member of a sorted set is not where its hash is"),
            Some(RankedRow::Place(score, member)) => self.place(score, &member, value),
            Some(RankedRow::Boundary(level, place)) => self.boundary(row, level, place, value),
            None => Some("a row of a sorted set has an invalid key"),
        };
        self.problems.extend(what.map(|what| Problem::new(row, what)));
    }

    fn member(&mut self, member: &[u8], value: &[u8]) -> Option<&'static str> {
        let Some(score) = Score::decode(value) else { return Some("a score does not decode") };
        self.members.add(&place_of(score, member), score.is_negative_zero());
        None
    }

    fn place(&mut self, sortable: u64, member: &[u8], value: &[u8]) -> Option<&'static str> {
        let Some(score) = Score::from_sortable(sortable) else {
            return Some("a place of a sorted set has no score");
        };
        let is_negative_zero = match value {
            [] => false,
            [0] if score.number() == 0.0 => true,
            _ => return Some("a place of a sorted set has a value"),
        };
        let place = place_of(score, member);
        self.places.add(&place, is_negative_zero);
        for boundaries in self.counts.values_mut() {
            let until = (Bound::Unbounded, Bound::Included(&place[..]));
            if let Some((_, (_, left))) = boundaries.range_mut::<[u8], _>(until).next_back() {
                *left -= 1;
            }
        }
        None
    }

    fn boundary(&mut self, row: &Bytes, level: u8, place: Bytes, value: &[u8]) -> Option<&'static str> {
        if level >= super::counts::LEVELS {
            return Some("a count of a sorted set has an unknown level");
        }
        let Some((count, _)) = super::counts::decode(value) else {
            return Some("a count of a sorted set is not 16 bytes");
        };
        self.counts.entry(level).or_default().insert(place, (row.clone(), count));
        None
    }

    async fn done(mut self, oid: Oid) -> Findings {
        let db = &self.auditor.db;
        for level in 0..super::counts::LEVELS {
            if !self.counts.get(&level).is_some_and(|boundaries| boundaries.contains_key(&Bytes::new())) {
                let row = db.ranked_boundary(oid, level, &[]);
                self.problems.push(Problem::new(&row, "a sorted set has no first boundary"));
            }
        }
        let loose = (1..super::counts::LEVELS).flat_map(|level| {
            let [above, below] = [level, level - 1].map(|level| self.counts.get(&level));
            let has_one = move |place: &&Bytes| below.is_some_and(|below| below.contains_key(*place));
            let loose = above.into_iter().flat_map(BTreeMap::keys).filter(move |place| !has_one(place));
            loose.map(move |place| db.ranked_boundary(oid, level, place))
        });
        let wrong = self.counts.values().flat_map(BTreeMap::values).filter(|(_, left)| *left != 0);
        let found: Vec<Problem> = wrong
            .map(|(row, _)| Problem::new(row, "a count of a sorted set is not the number of its members"))
            .chain(loose.map(|row| Problem::new(&row, "a boundary of a sorted set has none below it")))
            .collect();
        self.problems.extend(found);
        let row = db.count(oid);
        if self.members != self.places {
            self.problems.push(Problem::new(&row, "the members of a sorted set do not fit their places"));
        }
        let raw = self.auditor.view.get(&row).await?;
        let what = match raw.as_deref().map(<[u8; 16]>::try_from) {
            Some(Err(_)) => Some("the member count is not 16 bytes".to_owned()),
            count => {
                let count = count.and_then(Result::ok).map_or(0, i128::from_le_bytes);
                let count = Count(count).cardinality();
                let members = self.members.rows;
                (count != members).then(|| format!("the member count is {count}, not {members}"))
            }
        };
        self.problems.extend(what.map(|what| Problem::new(&row, what)));
        Ok(self.problems)
    }
}
