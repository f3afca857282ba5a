//! Keys of the rows of sorted sets.
//!
//! ```text
//! R <oid> 00 <hash u64 BE><member>        a member
//! R <oid> 01 <score u64 BE><member>       a member by its score
//! R <oid> 02 <level>[<score><member>]     a boundary: where a counted range begins
//! R <oid> 03 <level>[<score><member>]     never stored: a boundary's moves conflict here
//! ```
//! A score is written so that its bytes sort as its value does ([`crate::types::zset::score`]). Score and member
//! together are a *place*. Members sort by their hash, then by name. The first boundary of a level has no place: it comes before all.

use super::{Oid, Prefix, hash};
use bytes::Bytes;

/// The longest member of a sorted set in bytes: its rows must stay below the store's 10 kB.
pub(crate) const MAX_RANKED: usize = 8 * 1024;

const MEMBER: u8 = 0;
const PLACE: u8 = 1;
const BOUNDARY: u8 = 2;
const MOVE: u8 = 3;

/// What a row of a sorted set is, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankedRow {
    /// A member, and its hash according to the row.
    Member(u64, Bytes),
    /// A member by its score.
    Place(u64, Bytes),
    /// A boundary of a level, and its place, which is empty for the first one.
    Boundary(u8, Bytes),
}

/// The place of a member with a score.
pub(crate) fn place(score: u64, member: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(8 + member.len());
    place.extend_from_slice(&score.to_be_bytes());
    place.extend_from_slice(member);
    place
}

impl Prefix {
    /// The row of a member.
    pub fn ranked_member(&self, oid: Oid, member: &[u8]) -> Vec<u8> {
        let mut k = self.ranked_members_from(oid, hash(member));
        k.extend_from_slice(member);
        k
    }
    /// Where the members of `hash` begin.
    pub(crate) fn ranked_members_from(&self, oid: Oid, hash: u64) -> Vec<u8> {
        self.ranked_row(oid, &[MEMBER], &hash.to_be_bytes())
    }
    /// One past the rows of all members.
    pub fn ranked_members_end(&self, oid: Oid) -> Vec<u8> {
        self.ranked_row(oid, &[MEMBER + 1], &[])
    }
    /// The row of a member by its score. Of the first bytes of a place: where such rows begin.
    pub fn ranked_place(&self, oid: Oid, place: &[u8]) -> Vec<u8> {
        self.ranked_row(oid, &[PLACE], place)
    }
    /// One past all places.
    pub(crate) fn ranked_places_end(&self, oid: Oid) -> Vec<u8> {
        self.ranked_row(oid, &[PLACE + 1], &[])
    }
    /// The row of a boundary.
    pub fn ranked_boundary(&self, oid: Oid, level: u8, place: &[u8]) -> Vec<u8> {
        self.ranked_row(oid, &[BOUNDARY, level], place)
    }
    /// One past all boundaries of a level.
    pub(crate) fn ranked_boundaries_end(&self, oid: Oid, level: u8) -> Vec<u8> {
        self.ranked_row(oid, &[BOUNDARY, level + 1], &[])
    }
    /// Where the moves of a boundary conflict.
    pub(crate) fn ranked_move(&self, oid: Oid, level: u8, place: &[u8]) -> Vec<u8> {
        self.ranked_row(oid, &[MOVE, level], place)
    }
    fn ranked_row(&self, oid: Oid, kind: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut k = self.of_object(b'R', oid, kind.len() + rest.len());
        k.extend_from_slice(kind);
        k.extend_from_slice(rest);
        k
    }
    /// What a row of a sorted set is. None if it is none.
    pub fn decode_ranked_row(&self, row: &Bytes) -> Option<RankedRow> {
        let at = usize::from(self.len) + 17;
        let (kind, rest) = row.get(at..)?.split_first()?;
        match *kind {
            MEMBER => {
                let hash = u64::from_be_bytes(*rest.first_chunk()?);
                Some(RankedRow::Member(hash, row.slice(at + 9..)))
            }
            PLACE => {
                let score = u64::from_be_bytes(*rest.first_chunk()?);
                Some(RankedRow::Place(score, row.slice(at + 9..)))
            }
            BOUNDARY => {
                let place = row.slice(at + 2.min(1 + rest.len())..);
                let level = *rest.first()?;
                (place.is_empty() || place.len() >= 8).then_some(RankedRow::Boundary(level, place))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip_in_order(
            numbers in any::<(u32, u128, u8)>(),
            members in proptest::collection::vec(
                (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..20)), 1..20),
        ) {
            let (db, oid, level) = (Prefix::from_number(numbers.0), Oid(numbers.1), numbers.2 % 200);
            let end = db.ranked_places_end(oid);
            let mut rows = Vec::new();
            for (score, member) in members {
                let at = place(score, &member);
                let row = db.ranked_member(oid, &member);
                prop_assert_eq!(db.decode_oid(&row), Some(oid));
                prop_assert!(row < db.ranked_members_end(oid));
                let decoded = db.decode_ranked_row(&row.into());
                prop_assert_eq!(decoded, Some(RankedRow::Member(hash(&member), member.clone().into())));
                let row = db.ranked_boundary(oid, level, &at);
                prop_assert!(db.ranked_boundary(oid, level, &[]) < row);
                prop_assert!(row < db.ranked_boundaries_end(oid, level));
                let decoded = db.decode_ranked_row(&row.into());
                prop_assert_eq!(decoded, Some(RankedRow::Boundary(level, at.clone().into())));
                prop_assert!(db.decode_ranked_row(&db.ranked_move(oid, level, &at).into()).is_none());
                let row = db.ranked_place(oid, &at);
                prop_assert!(row < end);
                let decoded = db.decode_ranked_row(&row.clone().into());
                prop_assert_eq!(decoded, Some(RankedRow::Place(score, member.clone().into())));
                rows.push((row, (score, member)));
            }
            let row = db.ranked_boundary(oid, level, &[]);
            prop_assert_eq!(db.decode_ranked_row(&row.into()), Some(RankedRow::Boundary(level, Bytes::new())));
            rows.sort();
            prop_assert!(rows.is_sorted_by_key(|(_, sorted)| sorted.clone()));
        }
    }
}
