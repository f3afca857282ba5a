//! The writes of a transaction: the last effect on each key, cleared ranges, and write conflicts.
//!
//! Invariant: the cleared ranges apply first and the effects on keys after them. So a later `clear_range`
//! removes the effects it covers, and an atomic operation inside a cleared range is resolved at once (its
//! base is known: none). Keys are in stored form. The engines share this, so that a transaction reads its own
//! writes in the same way on each.

use crate::env::Rng;
use crate::error::{StoreError, StoreResult};
use crate::store::effects::{Between, Effects};
use crate::store::emptied::Emptied;
use crate::store::{MAX_TRANSACTION, STAMP, Version, key_after};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::LazyLock;

/// An atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtomicKind {
    /// Little-endian sum, wrapping at the operand's width.
    Add,
    /// The larger of the two, little-endian.
    Max,
}

/// The effect on one key.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    /// The key gets a value.
    Set(Bytes),
    /// The key is removed.
    Clear,
    /// These operations apply, in order, to the value at commit.
    Atomic(Vec<(AtomicKind, Bytes)>),
}

/// The number of effects beyond which a transaction is large.
const LARGE: usize = 4096;

/// Bytes of a mutation without its parameters, and of a conflict range without its keys, in FoundationDB's library 7.3.
const MUTATION: usize = 32;
pub(super) const RANGE: usize = 24;

/// What FoundationDB's library counts for a conflict on a row with a key of so many bytes.
pub(super) fn conflict_size(key: usize) -> usize {
    RANGE + 2 * key + 1
}

/// What it counts for a write besides its key, of `key` bytes, and its value.
#[cfg(feature = "fdb")]
pub(super) fn overhead(key: usize) -> usize {
    MUTATION + conflict_size(key)
}

/// Another one in each process: nobody can choose keys that all have one hash, as unseeded xxh3 allows. What a
/// transaction reads, writes or conflicts with does not depend on it.
static SEED: LazyLock<u64> = LazyLock::new(|| Rng::from_entropy().u64());

/// The hash of a key in stored form, in this process.
pub(super) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, *SEED)
}

/// An effect, and whether it conflicts with readers of the key.
#[derive(Debug)]
pub(super) struct Op {
    /// The key's hash.
    pub(super) hash: u64,
    pub(super) effect: Effect,
    pub(super) conflict: bool,
    /// Whether the value, or its absence, is likely to be read soon. A row that is cleared and not kept is
    /// known to exist.
    pub(super) kept: bool,
}

/// The knowledge of a transaction about a key before it reads the store.
pub(super) enum Own {
    /// Its value, or that it has none.
    Known(Option<Bytes>),
    /// Operations to apply to the stored value.
    Atomic(Vec<(AtomicKind, Bytes)>),
    /// Nothing.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) ops: Effects,
    pub(super) cleared: Ranges,
    /// Explicit write conflict ranges.
    pub(super) conflicts: Vec<(Bytes, Bytes)>,
    pub(super) bump: bool,
    /// Rows whose keys become known at commit.
    pub(super) stamped: Vec<Stamped>,
    emptied: Emptied,
    size: usize,
    /// Bytes of rows' conflicts and of what describes the rows, as FoundationDB's library counts them.
    described: usize,
}

/// A row named by its commit: prefix, suffix, value.
#[derive(Debug)]
pub(super) struct Stamped {
    pub(super) prefix: Bytes,
    pub(super) suffix: Bytes,
    pub(super) value: Bytes,
}

impl Stamped {
    /// Its key in the commit that `stamp` identifies.
    pub(super) fn key(&self, stamp: &[u8; STAMP]) -> Vec<u8> {
        [&self.prefix[..], stamp, &self.suffix].concat()
    }
}

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
            && self.cleared.is_empty()
            && self.conflicts.is_empty()
            && self.stamped.is_empty()
            && !self.bump
    }

    /// Whether others would notice work that takes the committer of an embedded store a microsecond per
    /// effect.
    pub(super) fn is_large(&self) -> bool {
        self.ops.len() > LARGE
    }

    /// Whether it has half of the effects of a large transaction.
    pub(super) fn nears_large(&self) -> bool {
        self.ops.len() > LARGE / 2
    }

    /// Bytes of keys, values and ranges so far.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// What FoundationDB's library counts besides [`Writes::size`].
    #[cfg(feature = "fdb")]
    pub(super) fn besides(&self) -> usize {
        self.described + self.conflicts.len() * RANGE
    }

    pub(super) fn set(&mut self, key: Bytes, value: Bytes, conflict: bool) -> StoreResult<()> {
        self.grow(key.len() + value.len())?;
        self.put(key, Effect::Set(value), conflict);
        Ok(())
    }

    /// Like a set with a conflict, for a row that is unlikely to be read soon.
    pub(super) fn set_bulk(&mut self, key: Bytes, value: Bytes) -> StoreResult<()> {
        self.grow(key.len() + value.len())?;
        let hash = hash(&key);
        self.put_op(key, Op { hash, effect: Effect::Set(value), conflict: true, kept: false });
        Ok(())
    }

    pub(super) fn clear(&mut self, key: Bytes) -> StoreResult<()> {
        self.grow(key.len())?;
        self.put(key, Effect::Clear, true);
        Ok(())
    }

    /// Like a clear, for a row that exists and is unlikely to be read soon.
    pub(super) fn clear_bulk(&mut self, key: Bytes) -> StoreResult<()> {
        self.grow(key.len())?;
        let hash = hash(&key);
        self.put_op(key, Op { hash, effect: Effect::Clear, conflict: true, kept: false });
        Ok(())
    }

    pub(super) fn clear_range(&mut self, begin: Bytes, end: Bytes) -> StoreResult<()> {
        self.grow(begin.len() + end.len())?;
        self.described += MUTATION + RANGE + begin.len() + end.len();
        if !self.ops.is_empty() {
            self.ops.take_back(&begin, &end);
        }
        self.cleared.insert(begin, end);
        Ok(())
    }

    pub(super) fn atomic(&mut self, key: Bytes, kind: AtomicKind, operand: Bytes) -> StoreResult<()> {
        self.grow(key.len() + operand.len())?;
        let hash = hash(&key);
        if let Some(Op { effect: Effect::Atomic(ops), .. }) = self.ops.get_mut(hash, &key) {
            chain(ops, kind, operand);
            return Ok(());
        }
        let effect = match self.own(hash, &key) {
            Own::Known(value) => Effect::Set(apply(value.as_deref(), kind, &operand)),
            Own::Atomic(_) | Own::Unknown => Effect::Atomic(vec![(kind, operand)]),
        };
        self.put_op(key, Op { hash, effect, conflict: true, kept: true });
        Ok(())
    }

    pub(super) fn add_conflict(&mut self, begin: Bytes, end: Bytes) -> StoreResult<()> {
        self.grow(begin.len() + end.len())?;
        self.conflicts.push((begin, end));
        Ok(())
    }

    pub(super) fn set_stamped(&mut self, row: Stamped) -> StoreResult<()> {
        self.grow(row.prefix.len() + STAMP + row.suffix.len() + row.value.len())?;
        self.stamped.push(row);
        Ok(())
    }

    /// Turns the stamped rows into ordinary rows of the commit `version`; for an engine without stamps, in
    /// which no two transactions share a version.
    pub(super) fn stamp(&mut self, version: Version) {
        let mut stamp = [0; STAMP];
        for (to, from) in stamp.iter_mut().zip(version.to_be_bytes()) {
            *to = from;
        }
        for row in std::mem::take(&mut self.stamped) {
            self.put(row.key(&stamp).into(), Effect::Set(row.value), true);
        }
    }

    /// The value of `key`, which has this hash, as far as these writes alone determine it.
    pub(super) fn own(&self, hash: u64, key: &[u8]) -> Own {
        match self.ops.get(hash, key).map(|op| &op.effect) {
            Some(Effect::Set(value)) => Own::Known(Some(value.clone())),
            Some(Effect::Clear) => Own::Known(None),
            Some(Effect::Atomic(ops)) => Own::Atomic(ops.clone()),
            None if self.cleared.covering(key).is_some() => Own::Known(None),
            None => Own::Unknown,
        }
    }

    /// Effects on keys in `begin..end`, in order; `begin < end`.
    pub(super) fn between(&self, begin: &[u8], end: &[u8]) -> Between<'_> {
        self.ops.between(begin, end)
    }

    /// Counts `n` more bytes, or fails.
    pub(super) fn grow(&mut self, n: usize) -> StoreResult<()> {
        self.size += n;
        if self.size > MAX_TRANSACTION { Err(StoreError::TooLarge) } else { Ok(()) }
    }

    /// A key that is never read serializably is unlikely to be read as a point.
    fn put(&mut self, key: Bytes, effect: Effect, conflict: bool) {
        let hash = hash(&key);
        self.put_op(key, Op { hash, effect, conflict, kept: conflict });
    }

    /// The part of `begin..end` that a read has to look at; the rest of it has no rows.
    pub(super) fn trimmed(&self, begin: &Bytes, end: &Bytes, reverse: bool) -> (Bytes, Bytes) {
        self.emptied.trimmed(begin, end, reverse)
    }

    /// The first stretch of `begin..end`, which is trimmed, that a read has to look at: up to the next range that is known
    /// to be empty and in which this transaction has cleared many rows.
    pub(super) fn stretch(&self, begin: &Bytes, end: &Bytes, reverse: bool) -> (Bytes, Bytes) {
        let is_worth =
            |begin: &Bytes, end: &Bytes| self.between(begin, end).nth(Emptied::WORTH - 1).is_some();
        self.emptied.stretch(begin, end, reverse, is_worth)
    }

    /// A read of `begin..end` has found rows at these keys, in its direction, and no other row before the last of them;
    /// if it read `to_end`, none behind that either.
    pub(super) fn has_read(
        &mut self,
        (begin, end): (&Bytes, &Bytes),
        found: impl ExactSizeIterator<Item = Bytes>,
        to_end: bool,
        reverse: bool,
    ) {
        if self.ops.len() < Emptied::LONG {
            return;
        }
        let (mut begin, mut end) = (begin.clone(), end.clone());
        let is_short = found.len() <= Emptied::SHORT;
        for key in found.take(if is_short { Emptied::SHORT } else { 1 }) {
            let behind = Bytes::from(key_after(&key));
            let (gap, rest) = match reverse {
                true => ((behind, end), (begin, key)),
                false => ((begin, key), (behind, end)),
            };
            self.is_empty_between(gap.0, gap.1);
            (begin, end) = rest;
        }
        if to_end && is_short {
            self.is_empty_between(begin, end);
        }
    }

    fn is_empty_between(&mut self, begin: Bytes, end: Bytes) {
        if begin < end && self.between(&begin, &end).nth(Emptied::LONG - 1).is_some() {
            self.emptied.add(begin, end);
        }
    }

    fn put_op(&mut self, key: Bytes, op: Op) {
        if !matches!(op.effect, Effect::Clear) {
            self.emptied.cut(&key);
        }
        let length = key.len();
        match self.ops.get_mut(op.hash, &key) {
            None => {
                self.described += MUTATION;
                if op.conflict {
                    self.described += conflict_size(length);
                }
                if matches!(op.effect, Effect::Clear) {
                    self.described += length + 1;
                }
                self.ops.insert(key, op);
            }
            Some(known) => {
                if op.conflict && !known.conflict {
                    self.described += conflict_size(length);
                }
                let conflict = known.conflict || op.conflict;
                *known = Op { conflict, ..op };
            }
        }
    }
}

/// Appends an operation, or merges it with the last.
fn chain(ops: &mut Vec<(AtomicKind, Bytes)>, kind: AtomicKind, operand: Bytes) {
    match ops.last_mut() {
        Some((last, value)) if *last == kind && value.len() == operand.len() => {
            *value = apply(Some(value), kind, &operand);
        }
        _ => ops.push((kind, operand)),
    }
}

/// The result of one atomic operation: as wide as the operand.
pub(super) fn apply(old: Option<&[u8]>, kind: AtomicKind, operand: &[u8]) -> Bytes {
    let mut value = old.unwrap_or_default().to_vec();
    value.resize(operand.len(), 0);
    match kind {
        AtomicKind::Max if value.iter().rev().lt(operand.iter().rev()) => Bytes::copy_from_slice(operand),
        AtomicKind::Max => value.into(),
        AtomicKind::Add => {
            let mut carry = false;
            for (a, b) in value.iter_mut().zip(operand) {
                let (sum, over) = a.overflowing_add(*b);
                let (sum, again) = sum.overflowing_add(u8::from(carry));
                (*a, carry) = (sum, over || again);
            }
            value.into()
        }
    }
}

/// The result of several operations; `ops` is not empty.
pub(super) fn apply_all(mut value: Option<Bytes>, ops: &[(AtomicKind, Bytes)]) -> Option<Bytes> {
    for (kind, operand) in ops {
        value = Some(apply(value.as_deref(), *kind, operand));
    }
    value
}

/// Disjoint ranges in order; none that is inserted stays adjacent to another.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<Bytes, Bytes>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.0.iter()
    }
    /// Adds `begin..end`, merged with ranges that it overlaps or touches.
    pub(super) fn insert(&mut self, mut begin: Bytes, mut end: Bytes) {
        while let Some((b, e)) = self.0.range::<[u8], _>((Included(&[][..]), Included(&end[..]))).next_back()
        {
            if e[..] < begin[..] {
                break;
            }
            let b = b.clone();
            if let Some(e) = self.0.remove(&b) {
                end = end.max(e);
            }
            begin = begin.min(b);
        }
        self.0.insert(begin, end);
    }
    /// Takes `key` out, right behind which is `after`.
    pub(super) fn cut(&mut self, key: &Bytes, after: impl FnOnce() -> Bytes) {
        let Some((begin, end)) = self.covering(key).map(|(b, e)| (b.clone(), e.clone())) else { return };
        let after = after();
        self.0.remove(&begin);
        if begin < *key {
            self.0.insert(begin, key.clone());
        }
        if after < end {
            self.0.insert(after, end);
        }
    }
    /// The ranges that begin in `begin..end`, in order.
    pub(super) fn from(&self, begin: &[u8], end: &[u8]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.0.range::<[u8], _>((Included(begin), Excluded(end.max(begin))))
    }
    /// The ranges that end in `begin..end`, from the last to the first.
    pub(super) fn up_to<'a>(
        &'a self,
        begin: &'a [u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        let before = self.0.range::<[u8], _>((Included(&[][..]), Excluded(end))).rev();
        before.skip_while(move |(_, e)| e[..] >= *end).take_while(move |(_, e)| e[..] > *begin)
    }
    /// Where the range begins that the keys right before `end` lie in.
    pub(super) fn before(&self, end: &[u8]) -> Option<&Bytes> {
        let (b, e) = self.0.range::<[u8], _>((Included(&[][..]), Excluded(end))).next_back()?;
        (*end <= e[..]).then_some(b)
    }
    /// The range that `key` lies in.
    pub(super) fn covering(&self, key: &[u8]) -> Option<(&Bytes, &Bytes)> {
        let (b, e) = self.0.range::<[u8], _>((Included(&[][..]), Included(key))).next_back()?;
        (key < &e[..]).then_some((b, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Hazard: the rows of one hash are a list, which a client makes as long as it wants.
    #[test]
    fn nobody_chooses_keys_of_one_hash() {
        // Without a seed, xxh3 multiplies what differs by zero: these eight bytes are those of its secret.
        let zero = [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb];
        let key = |n: u64| [&[b'k'; 16][..], &zero, &n.to_be_bytes()].concat();
        let unseeded = xxhash_rust::xxh3::xxh3_64;
        assert_eq!(unseeded(&key(1)), unseeded(&key(2)));
        let hashes: BTreeSet<u64> = (0..1000).map(|n| hash(&key(n))).collect();
        assert_eq!(hashes.len(), 1000);
    }

    #[test]
    fn a_read_begins_behind_what_its_transaction_took() {
        let key = |n: u8| Bytes::from(vec![b'q', n]);
        let mut writes = Writes::default();
        let trimmed = |writes: &Writes, reverse| writes.trimmed(&key(0), &key(100), reverse);
        let take = |writes: &mut Writes, n, reverse| {
            writes.clear_bulk(key(n)).unwrap();
            let (begin, end) = trimmed(writes, reverse);
            let next = key(if reverse { n - 1 } else { n + 1 });
            writes.has_read((&begin, &end), [next].into_iter(), false, reverse);
        };
        (0..20).for_each(|n| take(&mut writes, n, false));
        (80..100).rev().for_each(|n| take(&mut writes, n, true));
        assert!(trimmed(&writes, false).0 >= key(16));
        assert!(trimmed(&writes, true).1 <= key(84));
        // A row that comes back is seen, and so is one right before the end.
        writes.set(key(5), Bytes::new(), true).unwrap();
        writes.atomic(key(99), AtomicKind::Add, Bytes::from_static(&[1])).unwrap();
        assert_eq!(trimmed(&writes, false), (key(5), key(100)));
        assert_eq!(trimmed(&writes, true), (key(0), key_after(&key(99)).into()));
    }

    #[test]
    fn a_read_jumps_over_what_its_transaction_took() {
        let key = |n: u8| Bytes::from(vec![b'q', n]);
        let mut writes = Writes::default();
        for n in 0..72 {
            writes.clear_bulk(key(n)).unwrap();
            let (begin, end) = writes.trimmed(&key(0), &key(100), false);
            writes.has_read((&begin, &end), [key(n + 1)].into_iter(), false, false);
        }
        writes.set(key(5), Bytes::new(), true).unwrap();
        let stretch = |writes: &Writes, reverse| writes.stretch(&key(5), &key(100), reverse);
        assert_eq!(stretch(&writes, false), (key(5), key_after(&key(5)).into()));
        assert_eq!(stretch(&writes, true), (key(72), key(100)));
        // The 31 rows behind the 40th are walked over.
        writes.set(key(40), Bytes::new(), true).unwrap();
        assert_eq!(stretch(&writes, false), (key(5), key_after(&key(5)).into()));
        assert_eq!(stretch(&writes, true), (key(40), key(100)));
        writes.set(key(20), Bytes::new(), true).unwrap();
        assert_eq!(stretch(&writes, false), (key(5), key(100)));
    }
}
