//! Union, intersection and difference of array containers, as they are stored.
//!
//! Roaring merges two arrays with one comparison per member, a branch that the processor cannot predict for
//! random members: 4 ns a member, more than half of a SINTERCARD of such sets. Here one container becomes
//! bits; the members of the other are looked up in them without a branch, or added to them
//! (`bench/results/2026-11-22-sets.md`). Run and bit containers are left to Roaring, which handles 65 536 of
//! their members in a moment.

use super::algebra::Op;
use super::containers::{self, Bits, Containers, NO_BITS, set};
use super::rows::Stretch;
use super::view::Array;
use crate::error::Result;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

const CONTAINER: u64 = 1 << 16;

/// The mean number of members from which on a container's bits are worth their 8 KiB.
const FEW: usize = 64;

/// A container of a stretch: an array, and the deltas that apply to it.
#[derive(Clone, Copy)]
struct Sparse<'a> {
    array: Array<'a>,
    deltas: &'a BTreeMap<u64, bool>,
}

/// The result of `op` on `first` and `others`. Except for a union, the others cover the ids of `first`, each
/// id once. None if Roaring should do it: some container is not an array, or most have only a few members.
pub(crate) fn combine(op: Op, first: &Stretch, others: &[Stretch]) -> Result<Option<RoaringTreemap>> {
    let Some(mine) = collect(first)? else { return Ok(None) };
    let mut theirs = Vec::new();
    for other in others {
        let Some(containers) = collect(other)? else { return Ok(None) };
        theirs.extend(containers);
    }
    let found = match op {
        Op::Union => union(mine, theirs),
        Op::Inter => sift(mine, theirs, true),
        Op::Diff => sift(mine, theirs, false),
    };
    Ok(Some(found.treemap()?))
}

/// The containers of a stretch, by their ids without the last 16 bits. None if they do not suit [`combine`],
/// or if the stretch ends inside a container.
fn collect(stretch: &Stretch) -> Result<Option<BTreeMap<u64, Sparse<'_>>>> {
    let (lo, next) = (stretch.lo, stretch.next);
    if lo % CONTAINER != 0 || next.is_some_and(|next| next % CONTAINER != 0) {
        return Ok(None);
    }
    let inside = |high: u64| high >= lo >> 16 && next.is_none_or(|next| high < next >> 16);
    let deltas = &stretch.deltas;
    let (mut containers, mut members) = (BTreeMap::new(), deltas.len());
    for row in &stretch.rows {
        let parts = row.parts()?;
        let here: usize = parts.iter().map(|part| part.len as usize).sum();
        if here < parts.len() * FEW {
            return Ok(None);
        }
        members += here;
        for part in parts.iter().filter(|part| inside(part.high)) {
            let Some(array) = part.array() else { return Ok(None) };
            containers.insert(part.high, Sparse { array, deltas });
        }
    }
    for id in deltas.keys() {
        containers.entry(id >> 16).or_insert(Sparse { array: &[], deltas });
    }
    Ok((members >= containers.len() * FEW).then_some(containers))
}

/// The members of `mine` that `theirs` also have (`keep`), or do not have.
fn sift(mine: BTreeMap<u64, Sparse<'_>>, theirs: Vec<(u64, Sparse<'_>)>, keep: bool) -> Containers {
    let theirs = BTreeMap::from_iter(theirs);
    let mut found = Containers::with_capacity(0);
    let (mut bits, mut members, mut left) = (NO_BITS, Vec::new(), Vec::new());
    for (high, sparse) in mine {
        sparse.members(high, &mut bits, &mut members);
        match theirs.get(&high) {
            Some(other) => {
                other.bits(high, &mut bits);
                sieve(&members, &bits, keep, &mut left);
                found.members(high, &left);
            }
            None if keep => {}
            None => found.members(high, &members),
        }
    }
    found
}

/// The members of either.
fn union(mine: BTreeMap<u64, Sparse<'_>>, theirs: Vec<(u64, Sparse<'_>)>) -> Containers {
    let mut all = Vec::from_iter(mine);
    all.extend(theirs);
    all.sort_by_key(|(high, _)| *high);
    let mut found = Containers::with_capacity(0);
    let (mut bits, mut more, mut members) = (NO_BITS, NO_BITS, Vec::new());
    for same in all.chunk_by(|(a, _), (b, _)| a == b) {
        let Some(((high, first), others)) = same.split_first() else { continue };
        first.bits(*high, &mut bits);
        for (_, other) in others {
            // Do not apply its deltas to the combined bits: they remove members only from its own array.
            other.bits(*high, &mut more);
            bits.iter_mut().zip(&more).for_each(|(word, more)| *word |= more);
        }
        found.bits(*high, &bits, &mut members);
    }
    found
}

impl Sparse<'_> {
    fn deltas(&self, high: u64) -> impl Iterator<Item = (u16, bool)> {
        let ids = high << 16..=high << 16 | (CONTAINER - 1);
        self.deltas.range(ids).map(|(id, adds)| (*id as u16, *adds))
    }

    /// Sets `bits` to the members.
    fn bits(&self, high: u64, bits: &mut Bits) {
        bits.fill(0);
        for raw in self.array {
            set(bits, u16::from_le_bytes(*raw), true);
        }
        for (member, adds) in self.deltas(high) {
            set(bits, member, adds);
        }
    }

    /// Sets `members` to the members, ascending. Uses `bits`.
    fn members(&self, high: u64, bits: &mut Bits, members: &mut Vec<u16>) {
        members.clear();
        if self.deltas(high).next().is_none() {
            members.extend(self.array.iter().map(|raw| u16::from_le_bytes(*raw)));
            return;
        }
        self.bits(high, bits);
        containers::members(bits, members);
    }
}

/// Sets `left` to those of `members` whose bit is `keep`. Every member is written; the next one overwrites it
/// if it is not kept.
fn sieve(members: &[u16], bits: &Bits, keep: bool, left: &mut Vec<u16>) {
    left.clear();
    left.resize(members.len(), 0);
    let mut n = 0;
    for member in members {
        let word = bits.get(usize::from(member / 64)).copied().unwrap_or(0);
        if let Some(slot) = left.get_mut(n) {
            *slot = *member;
        }
        n += usize::from((word >> (member % 64) & 1 == 1) == keep);
    }
    left.truncate(n);
}

#[cfg(test)]
mod tests {
    use super::super::chunk::{Piece, Row, cut};
    use super::*;
    use proptest::prelude::*;

    /// Ids in a few containers, so that two sets overlap.
    fn ids(most: usize) -> impl Strategy<Value = RoaringTreemap> {
        let container = prop_oneof![0u64..4, (1u64 << 16) - 1..(1 << 16) + 2];
        let id = (container, 0u64..2_000).prop_map(|(high, low)| high << 16 | (low * 32 + high % 7));
        proptest::collection::vec(id, 0..most).prop_map(RoaringTreemap::from_iter)
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![Just(Op::Union), Just(Op::Inter), Just(Op::Diff)]
    }

    /// A stored set with `ids` as its members, those of `changed` in deltas.
    fn stored(ids: &RoaringTreemap, changed: &RoaringTreemap) -> Stretch {
        let pieces = cut(0, ids ^ changed).unwrap();
        let nexts = pieces.iter().skip(1).map(|piece| Some(piece.first)).chain([None]);
        let row = |(piece, next): (&Piece, _)| Row::new(piece.first, piece.encode(next).into()).unwrap();
        let rows = pieces.iter().zip(nexts).map(row).collect();
        Stretch { lo: 0, next: None, rows, deltas: changed.iter().map(|id| (id, ids.contains(id))).collect() }
    }

    /// The set in two stretches.
    fn halves(whole: Stretch, at: u64) -> [Stretch; 2] {
        let mut deltas = whole.deltas;
        let behind = deltas.split_off(&at);
        let (rows, next) = (whole.rows.clone(), Some(at));
        [
            Stretch { lo: 0, next, rows, deltas },
            Stretch { lo: at, next: None, rows: whole.rows, deltas: behind },
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn answers_as_roaring_does(
            a in ids(4_000), b in ids(4_000), changed in [ids(30), ids(30)], at in 0u64..5, op in ops()
        ) {
            let (first, other) = (stored(&a, &changed[0]), stored(&b, &changed[1]));
            prop_assert_eq!(first.ids().unwrap(), a.clone());
            let want = match op {
                Op::Union => &a | &b,
                Op::Inter => &a & &b,
                Op::Diff => &a - &b,
            };
            let found = combine(op, &first, &halves(other, at << 16)).unwrap();
            // Seven containers, some of them with deltas only.
            prop_assert!(found.is_some() || a.len().min(b.len()) < 1_500);
            if let Some(found) = found {
                prop_assert_eq!(&found, &want);
                prop_assert!(found.bitmaps().all(|(_, bitmap)| !bitmap.is_empty()));
            }
        }

        #[test]
        fn a_union_may_be_of_many(
            sets in proptest::collection::vec((ids(3_000), ids(30)), 1..5), dense in any::<bool>()
        ) {
            // Together, two of them have more members than an array can hold.
            let dense = |n: u64| (0..2_500 * u64::from(dense)).map(move |id| id * 5 + n).collect::<RoaringTreemap>();
            let sets = sets.into_iter().zip(0..).map(|((ids, changed), n)| (ids | dense(n), changed));
            let sets = Vec::from_iter(sets.filter(|(ids, _)| ids.len() >= 1_500));
            let all = Vec::from_iter(sets.iter().map(|(ids, changed)| stored(ids, changed)));
            if let Some((first, others)) = all.split_first() {
                let want = sets.iter().fold(RoaringTreemap::new(), |all, (ids, _)| all | ids);
                prop_assert_eq!(combine(Op::Union, first, others).unwrap(), Some(want));
            }
        }
    }

    #[test]
    fn runs_bits_and_few_members_are_left_to_roaring() {
        let few: RoaringTreemap = (0..100).map(|n| n * 7).collect();
        let nothing = RoaringTreemap::new();
        let stored_few = stored(&few, &nothing);
        assert_eq!(combine(Op::Inter, &stored_few, &[stored(&few, &few)]).unwrap(), Some(few.clone()));
        let scattered: RoaringTreemap = (0..1_000).map(|n| n << 16).collect();
        for scattered in [stored(&scattered, &nothing), stored(&scattered, &scattered)] {
            assert!(combine(Op::Inter, &stored_few, &[scattered]).unwrap().is_none());
        }
        for many in [(0..5_000).collect::<RoaringTreemap>(), (0..30_000).map(|n| n * 2).collect()] {
            let (few, many) = (stored(&few, &RoaringTreemap::new()), stored(&many, &RoaringTreemap::new()));
            assert!(combine(Op::Inter, &few, std::slice::from_ref(&many)).unwrap().is_none());
            assert!(combine(Op::Inter, &many, &[few]).unwrap().is_none());
        }
    }

    /// Hazard: deltas add members to an array that is already full in its chunk.
    #[test]
    fn deltas_make_more_than_an_array_has() {
        let full: RoaringTreemap = (0..4_096).map(|n| n * 3).collect();
        let more: RoaringTreemap = (0..400).map(|n| n * 30 + 1).collect();
        let (all, elsewhere) = (&full | &more, full.iter().map(|id| id | 1 << 20).collect());
        let mine = stored(&all, &more);
        let nothing = RoaringTreemap::new();
        for (op, others, want) in [
            (Op::Inter, &all, &all),
            (Op::Diff, &elsewhere, &all),
            (Op::Diff, &full, &more),
            (Op::Union, &full, &all),
        ] {
            let changed = if others == &all { &more } else { &nothing };
            let found = combine(op, &mine, &[stored(others, changed)]).unwrap();
            assert_eq!(found.as_ref(), Some(want), "{op:?}");
        }
    }

    #[test]
    fn an_array_that_is_not_in_order_is_damage() {
        let ids: RoaringTreemap = (0..100).map(|n| n * 7).collect();
        let sound = stored(&ids, &RoaringTreemap::new());
        let mut raw = sound.rows[0].bytes().to_vec();
        let end = raw.len();
        raw.swap(end - 4, end - 2);
        raw.swap(end - 3, end - 1);
        let damaged =
            Stretch { rows: vec![Row::new(0, raw.into()).unwrap()], ..stored(&ids, &RoaringTreemap::new()) };
        assert!(combine(Op::Inter, &damaged, &[sound]).is_err());
    }
}
