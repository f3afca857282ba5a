//! The order of a layer's keys: an ordered list of the places of rows.
//!
//! Rows are entered in any order, and mostly read as points. Their places are collected, and put in order when a range is
//! read, or when there are many: 16 384 random keys in order and into a list of 100 000 take 3.3 to 4 ms, where an ordered map
//! of the keys takes 7.5 to 9.2 (`bench/results/2026-11-30-flat-memory.md`).
//!
//! The list is cut into leaves. A leaf has the first bytes of each key beside its place ([`Head`]), so that a search compares
//! most keys where they lie in the list.

use super::head::Head;
use std::cmp::Ordering;
use std::ops::Bound;

/// The most entries of a leaf. Half of a full one becomes another.
const LEAF: usize = 128;

#[derive(Debug, Clone, Copy)]
struct Entry {
    head: Head,
    place: u32,
}

impl Entry {
    fn cmp<'k>(&self, (head, key): (&Head, &[u8]), key_of: &impl Fn(u32) -> &'k [u8]) -> Ordering {
        self.head.cmp(head).then_with(|| key_of(self.place).cmp(key))
    }
}

/// See the module. Its methods take the keys of places from `key_of`.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// None is empty.
    leaves: Vec<Vec<Entry>>,
}

/// A position: a leaf, and an entry of it.
type At = (usize, usize);

impl Order {
    /// Adds the places `from..to`, whose keys are not in the list yet.
    pub(super) fn add<'k>(&mut self, (from, to): (u32, u32), key_of: &impl Fn(u32) -> &'k [u8]) {
        let mut new: Vec<Entry> =
            (from..to).map(|place| Entry { head: Head::of(key_of(place)), place }).collect();
        new.sort_unstable_by(|a, b| a.cmp((&b.head, key_of(b.place)), key_of));
        let mut new = new.into_iter().peekable();
        while let Some(first) = new.peek() {
            let leaf = self.leaf_of((&first.head, key_of(first.place)), key_of);
            let next = self.leaves.get(leaf + 1).and_then(|leaf| leaf.first().copied());
            let of_leaf = || {
                new.next_if(|entry| {
                    next.is_none_or(|next| entry.cmp((&next.head, key_of(next.place)), key_of).is_lt())
                })
            };
            let Some(old) = self.leaves.get_mut(leaf) else {
                self.leaves = std::iter::from_fn(of_leaf)
                    .collect::<Vec<_>>()
                    .chunks(LEAF / 2)
                    .map(<[Entry]>::to_vec)
                    .collect();
                continue;
            };
            let before = old.len();
            old.extend(std::iter::from_fn(of_leaf));
            let is_one = old.len() == before + 1;
            if let Some(one) = old.pop_if(|_| is_one) {
                let at = old.partition_point(|e| e.cmp((&one.head, key_of(one.place)), key_of).is_lt());
                old.insert(at, one);
            } else {
                // Two runs that are in order: merged.
                old.sort_by(|a, b| a.cmp((&b.head, key_of(b.place)), key_of));
            }
            if old.len() > LEAF {
                let pieces: Vec<Vec<Entry>> = old.chunks(LEAF / 2).map(<[Entry]>::to_vec).collect();
                self.leaves.splice(leaf..=leaf, pieces);
            }
        }
    }

    /// The leaf that has, or would have, a key.
    fn leaf_of<'k>(&self, key: (&Head, &[u8]), key_of: &impl Fn(u32) -> &'k [u8]) -> usize {
        let begins_behind =
            |leaf: &Vec<Entry>| leaf.first().is_some_and(|first| first.cmp(key, key_of).is_gt());
        self.leaves.partition_point(|leaf| !begins_behind(leaf)).saturating_sub(1)
    }

    /// The first position behind `bound`, which is the begin of a range, or, for the end of one, the first beyond it.
    fn at<'k>(&self, bound: Bound<&[u8]>, is_end: bool, key_of: &impl Fn(u32) -> &'k [u8]) -> At {
        let (key, and_it) = match bound {
            Bound::Unbounded if is_end => return (self.leaves.len(), 0),
            Bound::Unbounded => return (0, 0),
            Bound::Included(key) => (key, is_end),
            Bound::Excluded(key) => (key, !is_end),
        };
        let head = Head::of(key);
        let leaf = self.leaf_of((&head, key), key_of);
        let is_before = |entry: &Entry| {
            let order = entry.cmp((&head, key), key_of);
            order.is_lt() || and_it && order.is_eq()
        };
        let entry = self.leaves.get(leaf).map_or(0, |leaf| leaf.partition_point(is_before));
        (leaf, entry)
    }

    /// The places of the keys between two bounds, in order.
    pub(super) fn range<'k>(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        key_of: &impl Fn(u32) -> &'k [u8],
    ) -> Between<'_> {
        Between { leaves: &self.leaves, from: self.at(from, false, key_of), to: self.at(to, true, key_of) }
    }
}

/// See [`Order::range`].
pub(super) struct Between<'a> {
    leaves: &'a [Vec<Entry>],
    from: At,
    to: At,
}

impl Iterator for Between<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.from < self.to {
            let (leaf, at) = self.from;
            if let Some(entry) = self.leaves.get(leaf)?.get(at) {
                self.from = (leaf, at + 1);
                return Some(entry.place);
            }
            self.from = (leaf + 1, 0);
        }
        None
    }
}

impl DoubleEndedIterator for Between<'_> {
    fn next_back(&mut self) -> Option<u32> {
        while self.from < self.to {
            let (leaf, at) = self.to;
            let Some(before) = at.checked_sub(1) else {
                let leaf = leaf.checked_sub(1)?;
                self.to = (leaf, self.leaves.get(leaf)?.len());
                continue;
            };
            // It may have become smaller than `from` while it went to the leaf before.
            self.to = (leaf, before);
            return self.leaves.get(leaf)?.get(before).map(|entry| entry.place);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;
    use std::collections::BTreeMap;

    /// Short keys of few letters, and long ones that differ in the last of them.
    fn key(rng: &mut Rng) -> Vec<u8> {
        let same = [0, 0, 7, 30, 40][rng.below(5) as usize];
        let letters = (0..rng.below(7)).map(|_| rng.below(5) as u8 * 50);
        [vec![3; same], letters.collect()].concat()
    }

    #[test]
    fn is_an_ordered_map() {
        for seed in 0..300 {
            let mut rng = Rng::seeded(seed);
            let (mut order, mut keys) = (Order::default(), Vec::<Vec<u8>>::new());
            let mut model = BTreeMap::<Vec<u8>, u32>::new();
            let most = [1, 5, 300, 2000][rng.below(4) as usize];
            for _ in 0..10 {
                let from = keys.len() as u32;
                for _ in 0..rng.below(most) {
                    let key = key(&mut rng);
                    if !model.contains_key(&key) {
                        model.insert(key.clone(), keys.len() as u32);
                        keys.push(key);
                    }
                }
                let key_of = |place: u32| &keys[place as usize][..];
                order.add((from, keys.len() as u32), &key_of);
                assert!(order.leaves.iter().all(|leaf| (1..=LEAF).contains(&leaf.len())));
                for _ in 0..20 {
                    let (mut a, mut b) = (key(&mut rng), key(&mut rng));
                    if a > b {
                        std::mem::swap(&mut a, &mut b);
                    }
                    let bound = |key, rng: &mut Rng| match rng.below(3) {
                        0 => Bound::Unbounded,
                        1 => Bound::Included(key),
                        _ => Bound::Excluded(key),
                    };
                    let (from, to) = (bound(&a[..], &mut rng), bound(&b[..], &mut rng));
                    if a == b && (from != Bound::Included(&a[..]) || to != Bound::Included(&b[..])) {
                        continue;
                    }
                    let want: Vec<u32> =
                        model.range::<[u8], _>((from, to)).map(|(_, place)| *place).collect();
                    let forward: Vec<u32> = order.range(from, to, &key_of).collect();
                    assert_eq!(forward, want, "seed {seed}: {from:?} {to:?}");
                    let back: Vec<u32> = order.range(from, to, &key_of).rev().collect();
                    assert!(back.iter().eq(want.iter().rev()), "seed {seed}: back");
                    let mut both = order.range(from, to, &key_of);
                    let (first, last) = (both.next(), both.next_back());
                    let want = (want.first().copied(), want.get(1..).and_then(|rest| rest.last().copied()));
                    assert_eq!((first, last), want, "seed {seed}: from both ends");
                }
            }
        }
    }
}
