//! A server's cache about chunked sets, which saves searches: hints, never facts.
//!
//! * Where chunks start. A transaction that uses such a hint reads the chunk's row, and the row says where
//!   the chunk ends (`types::set::rows`): so a wrong hint costs a search, never a wrong answer.
//! * The ids for which this server wrote deltas. A fold reads each of those rows, instead of a range full of
//!   the tombstones of folded ones. Deltas that are forgotten here (a crash, an attempt that conflicted) are
//!   found by the folds that read ranges.
//! * The bytes that this server last wrote as a chunk. A server that rewrites a chunk and finds another
//!   server's bytes shares it with that server, and rewrites it less often from then on: two simultaneous
//!   rewrites of one chunk conflict. Up to 2^[`MOST_SHARED`] times as many deltas wait then.
//! * Sampling weights of a bucket of chunks, with the bucket's stamp: they hold in any transaction that reads
//!   that stamp.
//!
//! Hints may come from transactions that never committed, and from sets that no longer exist: object ids are
//! not reused. When there are too many hints, all are dropped together.

use crate::keyspace::keys::{Oid, hash};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The approximate maximum of numbers held: an object counts as [`OBJECT`].
const MAX_SIZE: usize = 1 << 19;
const OBJECT: usize = 16;
/// Hints recorded between two counts: counting a full cache takes a few milliseconds.
const CALLS: usize = 1 << 16;

/// The most times that sharing a chunk doubles the number of deltas that wait under it.
const MOST_SHARED: u32 = 8;

/// Sampling weights of a bucket's chunks: their first ids, and the running sum of the weights, inclusive.
pub(crate) type Weights = Vec<(u64, u64)>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SetHints(Mutex<Hints>);

#[derive(Debug, Default)]
struct Hints {
    objects: HashMap<Oid, Object>,
    calls: usize,
}

#[derive(Debug, Default)]
struct Object {
    /// By first id, without the one at 0, which every set has until more is known of it.
    chunks: BTreeMap<u64, Chunk>,
    buckets: HashMap<u8, (u128, Arc<Weights>)>,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Ids for which this server wrote deltas.
    deltas: Vec<u64>,
    /// A hash of the bytes that this server last wrote.
    written: Option<u64>,
    shared: u32,
}

impl Object {
    fn size(&self) -> usize {
        let weights: usize = self.buckets.values().map(|(_, weights)| weights.len()).sum();
        OBJECT + weights + self.chunks.values().map(|chunk| 3 + chunk.deltas.len()).sum::<usize>()
    }
    fn chunk_of(&self, id: u64) -> u64 {
        self.chunks.range(..=id).next_back().map_or(0, |(first, _)| *first)
    }
}

impl SetHints {
    /// Drops all hints.
    pub(crate) fn clear(&self) {
        self.0.lock().objects.clear();
    }

    /// Where the chunk of `id` may start.
    pub(crate) fn chunk_of(&self, oid: Oid, id: u64) -> u64 {
        self.0.lock().objects.get(&oid).map_or(0, |object| object.chunk_of(id))
    }

    /// Records that a chunk starts at `first`.
    pub(crate) fn learn_chunk(&self, oid: Oid, first: u64) {
        if first > 0 {
            self.0.lock().object(oid).chunks.entry(first).or_default();
        }
    }

    /// Records that no chunk starts at `first`.
    pub(crate) fn forget_chunk(&self, oid: Oid, first: u64) {
        if let Some(object) = self.0.lock().objects.get_mut(&oid)
            && let Some(chunk) = object.chunks.remove(&first)
            && !chunk.deltas.is_empty()
        {
            let before = object.chunk_of(first);
            object.chunks.entry(before).or_default().deltas.extend(chunk.deltas);
        }
    }

    /// Records that this server writes `bytes` as the chunk at `first`.
    pub(crate) fn wrote_chunk(&self, oid: Oid, first: u64, bytes: &[u8]) {
        let mut hints = self.0.lock();
        let object = hints.object(oid);
        let shared = object.chunks.get(&object.chunk_of(first)).map_or(0, |chunk| chunk.shared);
        let chunk = object.chunks.entry(first).or_default();
        (chunk.written, chunk.shared) = (Some(hash(bytes)), shared);
    }

    /// Records that the chunk at `first`, which holds `bytes`, is about to be rewritten.
    pub(crate) fn rewrites_chunk(&self, oid: Oid, first: u64, bytes: &[u8]) {
        if let Some(object) = self.0.lock().objects.get_mut(&oid)
            && let Some(chunk) = object.chunks.get_mut(&first)
            && let Some(written) = chunk.written
        {
            chunk.shared = match written == hash(bytes) {
                true => chunk.shared.saturating_sub(1),
                false => (chunk.shared + 2).min(MOST_SHARED),
            };
        }
    }

    /// The factor by which more deltas than usual must wait before the chunk at `first` is rewritten.
    pub(crate) fn patience(&self, oid: Oid, first: u64) -> usize {
        let hints = self.0.lock();
        let chunk = hints.objects.get(&oid).and_then(|object| object.chunks.get(&first));
        chunk.map_or(1, |chunk| 1 << chunk.shared)
    }

    /// Records a delta of `id`. Once its chunk has `enough` deltas (more if it is shared), forgets and
    /// returns them.
    pub(crate) fn note_delta(&self, oid: Oid, id: u64, enough: usize) -> Option<Vec<u64>> {
        let mut hints = self.0.lock();
        let object = hints.object(oid);
        let first = object.chunk_of(id);
        let chunk = object.chunks.entry(first).or_default();
        chunk.deltas.push(id);
        (chunk.deltas.len() >= enough << chunk.shared).then(|| std::mem::take(&mut chunk.deltas))
    }

    /// The weights that a bucket had when its stamp was `stamp`.
    pub(crate) fn weights(&self, oid: Oid, bucket: u8, stamp: u128) -> Option<Arc<Weights>> {
        let hints = self.0.lock();
        let (kept, weights) = hints.objects.get(&oid)?.buckets.get(&bucket)?;
        (*kept == stamp).then(|| weights.clone())
    }

    /// Caches a bucket's weights.
    pub(crate) fn keep_weights(&self, oid: Oid, bucket: u8, stamp: u128, weights: Arc<Weights>) {
        self.0.lock().object(oid).buckets.insert(bucket, (stamp, weights));
    }
}

impl Hints {
    /// The hints about an object. Every [`CALLS`] calls, the size of all hints is counted.
    fn object(&mut self, oid: Oid) -> &mut Object {
        self.calls += 1;
        if self.calls >= CALLS {
            self.calls = 0;
            if self.objects.values().map(Object::size).sum::<usize>() > MAX_SIZE {
                self.objects.clear();
            }
        }
        self.objects.entry(oid).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_grouped_by_chunk() {
        let hints = SetHints::default();
        let oid = Oid(1);
        hints.learn_chunk(oid, 100);
        assert_eq!([99, 100, 500].map(|id| hints.chunk_of(oid, id)), [0, 100, 100]);
        assert_eq!(hints.chunk_of(Oid(2), 500), 0);
        for id in [1, 101, 2] {
            assert_eq!(hints.note_delta(oid, id, 3), None);
        }
        assert_eq!(hints.note_delta(oid, 3, 3), Some(vec![1, 2, 3]));
        hints.forget_chunk(oid, 100);
        assert_eq!(hints.chunk_of(oid, 500), 0);
        assert_eq!(hints.note_delta(oid, 4, 2), Some(vec![101, 4]));
    }

    #[test]
    fn a_shared_chunk_is_rewritten_less_often() {
        let hints = SetHints::default();
        let oid = Oid(1);
        assert_eq!(hints.patience(oid, 0), 1);
        hints.rewrites_chunk(oid, 0, b"of another server, before this one wrote");
        hints.wrote_chunk(oid, 0, b"own");
        hints.rewrites_chunk(oid, 0, b"own");
        assert_eq!(hints.patience(oid, 0), 1);
        hints.rewrites_chunk(oid, 0, b"another server's");
        assert_eq!(hints.patience(oid, 0), 4);
        assert_eq!([1, 2, 3].map(|id| hints.note_delta(oid, id, 1)), [None, None, None]);
        assert_eq!(hints.note_delta(oid, 4, 1), Some(vec![1, 2, 3, 4]));
        hints.wrote_chunk(oid, 100, b"a piece of it");
        assert_eq!(hints.patience(oid, 100), 4);
        for _ in 0..20 {
            hints.rewrites_chunk(oid, 0, b"another server's");
        }
        assert_eq!(hints.patience(oid, 0), 1 << MOST_SHARED);
        hints.wrote_chunk(oid, 0, b"own");
        for _ in 0..20 {
            hints.rewrites_chunk(oid, 0, b"own");
        }
        assert_eq!(hints.patience(oid, 0), 1);
    }

    #[test]
    fn weights_hold_for_their_stamp() {
        let hints = SetHints::default();
        hints.keep_weights(Oid(1), 3, 7, Arc::new(vec![(0, 5)]));
        assert_eq!(hints.weights(Oid(1), 3, 7).as_deref(), Some(&vec![(0, 5)]));
        assert_eq!(hints.weights(Oid(1), 3, 8), None);
        assert_eq!(hints.weights(Oid(1), 4, 7), None);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let hints = SetHints::default();
        for n in 0..1_000_000 {
            hints.note_delta(Oid(n % 50_000), n as u64, usize::MAX);
        }
        let held = hints.0.lock();
        assert!(held.objects.values().map(Object::size).sum::<usize>() <= MAX_SIZE + (4 + OBJECT) * CALLS);
    }
}
