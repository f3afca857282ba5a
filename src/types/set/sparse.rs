//! Intersection and difference of arrays, container by container, as they are stored.
//!
//! Roaring merges two arrays with a comparison a member, which the processor cannot foresee where members are random: 4 ns a member, more
//! than half of a SINTERCARD of such sets. Here one container becomes bits, and the members of the other look theirs up without a
//! branch: SINTERCARD takes about 0.55 of the time, SINTERSTORE 0.7 (two sets of 200 000 of 8 000 000, `bench/results/2026-11-22-sets.md`). Runs and
//! bits are left to Roaring, which needs a moment for 65 536 members of them.

use super::rows::Stretch;
use super::view::Array;
use crate::error::{Result, StoreError};
use roaring::{RoaringBitmap, RoaringTreemap};
use std::collections::BTreeMap;

const CONTAINER: u64 = 1 << 16;

/// Members of a container in the mean from which on its bits are worth their 8 KiB.
const FEW: usize = 64;

/// The bits of a container.
type Bits = [u64; CONTAINER as usize / 64];

/// A container of a stretch: an array, and the deltas over it.
#[derive(Clone, Copy)]
struct Sparse<'a> {
    array: Array<'a>,
    deltas: &'a BTreeMap<u64, bool>,
}

/// The members of `first` that `others` have too (`keep`), or have not. The others cover its ids, each of them once. None where that is left to
/// Roaring: some container is no array, or most have a few members only.
pub fn combine(first: &Stretch, others: &[Stretch], keep: bool) -> Result<Option<RoaringTreemap>> {
    let (mut mine, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    if !collect(first, &mut mine)? {
        return Ok(None);
    }
    for other in others {
        if !collect(other, &mut theirs)? {
            return Ok(None);
        }
    }
    let mut found: BTreeMap<u32, RoaringBitmap> = BTreeMap::new();
    let mut bits: Bits = [0; CONTAINER as usize / 64];
    let (mut members, mut left) = (Vec::new(), Vec::new());
    for (high, sparse) in mine {
        sparse.members(high, &mut bits, &mut members);
        match theirs.get(&high) {
            Some(other) => {
                other.bits(high, &mut bits);
                sieve(&members, &bits, keep, &mut left);
            }
            None if keep => left.clear(),
            None => left.clone_from(&members),
        }
        if !left.is_empty() {
            let low = (high as u32) << 16;
            let bitmap = found.entry((high >> 16) as u32).or_default();
            let appended = bitmap.append(left.iter().map(|member| low | u32::from(*member)));
            appended.map_err(|_| {
                StoreError::Corrupt(format!("the array of ids {high:#x}0000 is not in order"))
            })?;
        }
    }
    Ok(Some(RoaringTreemap::from_bitmaps(found)))
}

/// The containers of a stretch by their ids without the last 16 bits. False where they are not for [`combine`], or the stretch ends inside one.
fn collect<'a>(stretch: &'a Stretch, into: &mut BTreeMap<u64, Sparse<'a>>) -> Result<bool> {
    let (lo, next) = (stretch.lo, stretch.next);
    if lo % CONTAINER != 0 || next.is_some_and(|next| next % CONTAINER != 0) {
        return Ok(false);
    }
    let inside = |high: u64| high >= lo >> 16 && next.is_none_or(|next| high < next >> 16);
    let deltas = &stretch.deltas;
    let (before, mut members) = (into.len(), deltas.len());
    for row in &stretch.rows {
        let Some(arrays) = row.arrays()? else { return Ok(false) };
        let here: usize = arrays.iter().map(|(_, array)| array.len()).sum();
        if here < arrays.len() * FEW {
            return Ok(false);
        }
        members += here;
        let arrays = arrays.into_iter().filter(|(high, _)| inside(*high));
        into.extend(arrays.map(|(high, array)| (high, Sparse { array, deltas })));
    }
    for id in deltas.keys() {
        into.entry(id >> 16).or_insert(Sparse { array: &[], deltas });
    }
    Ok(members >= (into.len() - before) * FEW)
}

impl Sparse<'_> {
    fn deltas(&self, high: u64) -> impl Iterator<Item = (u16, bool)> {
        let ids = high << 16..=high << 16 | (CONTAINER - 1);
        self.deltas.range(ids).map(|(id, adds)| (*id as u16, *adds))
    }

    /// Makes `bits` those of the members.
    fn bits(&self, high: u64, bits: &mut Bits) {
        bits.fill(0);
        for raw in self.array {
            set(bits, u16::from_le_bytes(*raw), true);
        }
        for (member, adds) in self.deltas(high) {
            set(bits, member, adds);
        }
    }

    /// Makes `members` the members, ascending. Uses `bits`.
    fn members(&self, high: u64, bits: &mut Bits, members: &mut Vec<u16>) {
        members.clear();
        if self.deltas(high).next().is_none() {
            members.extend(self.array.iter().map(|raw| u16::from_le_bytes(*raw)));
            return;
        }
        self.bits(high, bits);
        for (n, word) in bits.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                members.push(n as u16 * 64 + word.trailing_zeros() as u16);
                word &= word - 1;
            }
        }
    }
}

fn set(bits: &mut Bits, member: u16, to: bool) {
    if let Some(word) = bits.get_mut(usize::from(member / 64)) {
        let bit = 1 << (member % 64);
        *word = if to { *word | bit } else { *word & !bit };
    }
}

/// Makes `left` those of `members` whose bit is `keep`. Each is written, and the next one over it where it is not kept.
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
    use super::super::chunk::{Row, cut};
    use super::*;
    use proptest::prelude::*;

    /// Ids in a few containers, so that two sets meet.
    fn ids(most: usize) -> impl Strategy<Value = RoaringTreemap> {
        let container = prop_oneof![0u64..4, (1u64 << 16) - 1..(1 << 16) + 2];
        let id = (container, 0u64..2_000).prop_map(|(high, low)| high << 16 | (low * 32 + high % 7));
        proptest::collection::vec(id, 0..most).prop_map(RoaringTreemap::from_iter)
    }

    /// A set as it is stored, with the members of `changed` in deltas, and `ids` in all.
    fn stored(ids: &RoaringTreemap, changed: &RoaringTreemap) -> Stretch {
        let pieces = cut(0, ids ^ changed);
        let nexts = pieces.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]);
        let row = |((first, ids), next): (&(u64, RoaringTreemap), _)| {
            Row::new(*first, Row::encode(next, ids).unwrap().into()).unwrap()
        };
        let rows = pieces.iter().zip(nexts).map(row).collect();
        Stretch { lo: 0, next: None, rows, deltas: changed.iter().map(|id| (id, ids.contains(id))).collect() }
    }

    /// In two parts.
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
            a in ids(4_000), b in ids(4_000), changed in [ids(30), ids(30)], at in 0u64..5, keep in any::<bool>()
        ) {
            let (first, other) = (stored(&a, &changed[0]), stored(&b, &changed[1]));
            prop_assert_eq!(first.ids().unwrap(), a.clone());
            let want = if keep { &a & &b } else { &a - &b };
            let others = halves(other, at << 16);
            let found = combine(&first, &others, keep).unwrap();
            if let Some(found) = found {
                prop_assert_eq!(&found, &want);
                prop_assert!(found.bitmaps().all(|(_, bitmap)| !bitmap.is_empty()));
            }
        }
    }

    #[test]
    fn runs_bits_and_few_members_are_left_to_roaring() {
        let few: RoaringTreemap = (0..100).map(|n| n * 7).collect();
        let nothing = RoaringTreemap::new();
        let stored_few = stored(&few, &nothing);
        assert_eq!(combine(&stored_few, &[stored(&few, &few)], true).unwrap(), Some(few.clone()));
        let scattered: RoaringTreemap = (0..1_000).map(|n| n << 16).collect();
        for scattered in [stored(&scattered, &nothing), stored(&scattered, &scattered)] {
            assert!(combine(&stored_few, &[scattered], true).unwrap().is_none());
        }
        for many in [(0..5_000).collect::<RoaringTreemap>(), (0..30_000).map(|n| n * 2).collect()] {
            let (few, many) = (stored(&few, &RoaringTreemap::new()), stored(&many, &RoaringTreemap::new()));
            assert!(combine(&few, std::slice::from_ref(&many), true).unwrap().is_none());
            assert!(combine(&many, &[few], true).unwrap().is_none());
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
        assert!(combine(&damaged, &[sound], true).is_err());
    }
}
