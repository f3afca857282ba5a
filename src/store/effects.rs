//! The effects of a transaction on single keys: the last one on each key.
//!
//! They are found by hash. Their order is made when a range is first asked for, and kept from then on: most batches write and
//! read points, and never ask. Beside an ordered map of the keys: MSET of ten 1.12 times as fast with pipelines of 16, SET 1.06
//! (`bench/results/2026-11-30-flat-memory.md`).
//!
//! Invariant: `order`, once made, has the places of exactly those rows that have an effect.

use super::writes::Op;
use bytes::Bytes;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound::{Excluded, Included};
use std::sync::OnceLock;

/// No row.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Row {
    key: Bytes,
    /// None: it was taken back.
    op: Option<Op>,
    /// The place of another row of the same hash.
    next: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// In the order in which the keys were first written, so that equal transactions do equal things.
    rows: Vec<Row>,
    table: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    order: OnceLock<BTreeMap<Bytes, u32>>,
    taken_back: usize,
}

impl Effects {
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.taken_back
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mut place = *self.table.get(&hash)?;
        loop {
            let row = self.rows.get(place as usize)?;
            if row.key[..] == *key {
                return Some(place as usize);
            }
            place = row.next;
        }
    }

    /// The effect on `key`, which has this hash.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<&Op> {
        self.place(hash, key).and_then(|place| self.rows.get(place)?.op.as_ref())
    }

    pub(super) fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Op> {
        self.place(hash, key).and_then(|place| self.rows.get_mut(place)?.op.as_mut())
    }

    /// Adds the effect on a key that has none.
    pub(super) fn insert(&mut self, key: Bytes, op: Op) {
        let hash = op.hash;
        let place = match self.place(hash, &key) {
            Some(place) => {
                if let Some(row) = self.rows.get_mut(place) {
                    self.taken_back -= usize::from(row.op.is_none());
                    row.op = Some(op);
                }
                place as u32
            }
            None => {
                let place = self.rows.len() as u32;
                let next = self.table.insert(hash, place).unwrap_or(NONE);
                self.rows.push(Row { key: key.clone(), op: Some(op), next });
                place
            }
        };
        if let Some(order) = self.order.get_mut() {
            order.insert(key, place);
        }
    }

    /// Takes back the effects on keys in `begin..end`; `begin < end`.
    pub(super) fn take_back(&mut self, begin: &[u8], end: &[u8]) {
        let keys: Vec<(Bytes, u32)> = self
            .order()
            .range::<[u8], _>((Included(begin), Excluded(end)))
            .map(|(k, p)| (k.clone(), *p))
            .collect();
        for (key, place) in keys {
            if let Some(order) = self.order.get_mut() {
                order.remove(&key);
            }
            if let Some(row) = self.rows.get_mut(place as usize) {
                self.taken_back += usize::from(row.op.take().is_some());
            }
        }
    }

    /// The effects on keys in `begin..end`, in order; `begin < end`.
    pub(super) fn between(&self, begin: &[u8], end: &[u8]) -> Between<'_> {
        let places = self.order().range::<[u8], _>((Included(begin), Excluded(end)));
        Between { rows: &self.rows, places }
    }

    fn order(&self) -> &BTreeMap<Bytes, u32> {
        self.order.get_or_init(|| {
            let rows = self.rows.iter().enumerate().filter(|(_, row)| row.op.is_some());
            rows.map(|(place, row)| (row.key.clone(), place as u32)).collect()
        })
    }

    /// In the order in which their keys were first written.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Op)> {
        self.rows.iter().filter_map(|row| Some((&row.key, row.op.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Bytes, &mut Op)> {
        self.rows.iter_mut().filter_map(|row| Some((&row.key, row.op.as_mut()?)))
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (Bytes, Op)> {
        self.rows.into_iter().filter_map(|row| Some((row.key, row.op?)))
    }

    /// Passes the effects on up to `most` keys to `each`, those first that were written first, except for the first `from`
    /// of them. False if there are no more.
    pub(super) fn some(&mut self, from: usize, most: usize, mut each: impl FnMut(&Bytes, &mut Op)) -> bool {
        let mut seen = false;
        for row in self.rows.iter_mut().skip(from).take(most) {
            seen = true;
            if let Some(op) = &mut row.op {
                each(&row.key, op);
            }
        }
        seen
    }
}

/// See [`Effects::between`].
pub(super) struct Between<'a> {
    rows: &'a [Row],
    places: Range<'a, Bytes, u32>,
}

impl<'a> Between<'a> {
    fn shown(&self, (key, place): (&'a Bytes, &u32)) -> Option<(&'a Bytes, &'a Op)> {
        Some((key, self.rows.get(*place as usize)?.op.as_ref()?))
    }
}

impl<'a> Iterator for Between<'a> {
    type Item = (&'a Bytes, &'a Op);
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.places.next()?;
        self.shown(next)
    }
}

impl DoubleEndedIterator for Between<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.places.next_back()?;
        self.shown(next)
    }
}

/// For keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;
    use crate::store::writes::Effect;

    fn key(n: u64) -> Bytes {
        Bytes::from(format!("k{n:02}"))
    }

    /// Hashes that several keys share.
    fn op(n: u64, value: u64) -> Op {
        Op { hash: n % 7, effect: Effect::Set(value.to_string().into()), conflict: true, kept: true }
    }

    fn value(op: &Op) -> u64 {
        match &op.effect {
            Effect::Set(value) => std::str::from_utf8(value).unwrap().parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn show<'a>(shown: impl Iterator<Item = (&'a Bytes, &'a Op)>) -> Vec<(Bytes, u64)> {
        shown.map(|(key, op)| (key.clone(), value(op))).collect()
    }

    /// Whether the order is made early, late, or never, the effects are those of an ordered map.
    #[test]
    fn the_same_as_in_an_ordered_map() {
        for seed in 0..200 {
            let mut rng = Rng::seeded(seed);
            let (mut effects, mut model) = (Effects::default(), BTreeMap::new());
            let asks = rng.below(4);
            for step in 0..rng.below(120) {
                let (a, b) = (rng.below(40), rng.below(40));
                let (begin, end) = (key(a.min(b)), key(a.max(b) + 1));
                match rng.below(8) {
                    0 => {
                        effects.take_back(&begin, &end);
                        model.retain(|key, _| *key < begin || *key >= end);
                    }
                    1 if asks > 0 => {
                        let wanted: Vec<_> = model
                            .range(begin.clone()..end.clone())
                            .map(|(k, v)| (Bytes::clone(k), *v))
                            .collect();
                        assert_eq!(show(effects.between(&begin, &end)), wanted);
                        let mut back = show(effects.between(&begin, &end).rev());
                        back.reverse();
                        assert_eq!(back, wanted);
                    }
                    _ => {
                        match effects.get_mut(a % 7, &key(a)) {
                            Some(known) => *known = op(a, step),
                            None => effects.insert(key(a), op(a, step)),
                        }
                        model.insert(key(a), step);
                    }
                }
                assert_eq!((effects.len(), effects.is_empty()), (model.len(), model.is_empty()));
                assert_eq!(
                    effects.get(b % 7, &key(b)).map(value),
                    model.get(&key(b)).copied(),
                    "seed {seed}"
                );
            }
            let wanted: Vec<_> = model.into_iter().collect();
            let mut all = show(effects.iter());
            all.sort();
            assert_eq!(all, wanted);
            let (mut some, mut from) = (Vec::new(), 0);
            while effects.some(from, 3, |key, op| some.push((key.clone(), value(op)))) {
                from += 3;
            }
            some.sort();
            assert_eq!(some, wanted);
            let mut taken: Vec<_> = effects.into_iter().map(|(key, op)| (key, value(&op))).collect();
            taken.sort();
            assert_eq!(taken, wanted);
        }
    }
}
