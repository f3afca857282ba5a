//! The rows of a chunked set: reading chunks and deltas, rewriting chunks, sampling weights.
//!
//! ```text
//! S <oid> 00 <first>          -> chunk    members from `first` up to the next chunk's first; there is always one at 0
//! S <oid> 01 <id>             -> + or -   the id is (not) a member, though the chunk says otherwise
//! S <oid> 02 <bucket>         -> u128 LE  stamp << 64 | sum of the weights of the bucket's chunks (one atomic add for both)
//! S <oid> 10+bucket <first>   -> u64 LE   weight of the chunk at `first`; the bucket is a hash of `first`
//! ```
//! The delta, if any, decides membership; otherwise the chunk does. Invariants:
//! * A delta contradicts its chunk. So changing a member back clears the delta.
//! * Delta keys carry the conflicts of (set, member). A decision that depends on a member reads its delta key
//!   serializably and the chunk as a snapshot. A change of a member writes its delta key, or adds a write
//!   conflict on it.
//! * A rewrite of a chunk adds a read conflict on the keys of all chunks it may replace, so that two rewrites
//!   of one chunk never both commit. It takes in the deltas it sees, with a read conflict on each, and clears
//!   them one by one: a delta written meanwhile stays valid, because the rewrite changes no other id's
//!   membership.
//! * A chunk's row changes only when that chunk is rewritten or joined to the one before: so the chunks' own
//!   bounds (see [`chunk`]) fit together in every version.
//! * A weight changes only with its chunk, so it is exact; only the sums are shared, and those are updated by
//!   atomic adds. Every change of a bucket's weights also adds a unique stamp: equal sums with equal stamps
//!   mean equal weights.
//!
//! A weight is the number of the chunk's members plus [`SLACK`]: an upper bound unless more than [`SLACK`]
//! deltas add members.
//!
//! **Finding a chunk** is a point read: the server remembers where chunks start
//! ([`crate::keyspace::dictionary::hints`]), and the row says whether it covers the id. Only a wrong hint
//! costs a reverse range read. On the embedded engine that read took 8 of the 20 us of a SADD: it makes an
//! iterator and walks over the versions of the chunk that folds left in the memtable.

use super::chunk::{self, Piece, Row};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Rest, key_after};
use crate::types::object::Count;
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// Added to a chunk's cardinality to make its sampling weight.
pub const SLACK: u64 = 512;
/// Number of weight buckets. A draw reads the sum of each: with 16, that took a third of its time.
pub const BUCKETS: u8 = 4;
/// Bytes requested by one range read.
pub const PAGE: usize = 1 << 18;
/// Bytes in which the keys of deltas under one container differ.
pub(crate) const CONTAINER_TAIL: usize = 2;

/// From this many deltas on, a window costs more for its deltas than for its chunks.
const MANY: usize = 512;

/// The value of a delta row that adds (`true`) or removes its id.
pub fn delta_value(adds: bool) -> &'static [u8] {
    if adds { b"+" } else { b"-" }
}

/// The bucket of the chunk that starts at `first`.
pub fn bucket(first: u64) -> u8 {
    let hash = (first >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
    hash as u8 % BUCKETS
}

/// The chunk that covers `id`. Snapshot read.
pub async fn locate(s: &Scope<'_>, oid: Oid, id: u64) -> Result<Row> {
    let guess = s.space.hints.chunk_of(oid, id);
    match s.tx.get(&s.db.chunk(oid, guess), Read::Snapshot).await? {
        Some(raw) => {
            let row = Row::new(guess, raw)?;
            if row.covers(id) { Ok(row) } else { Box::pin(search(s, oid, id)).await }
        }
        None => {
            s.space.hints.forget_chunk(oid, guess);
            Box::pin(search(s, oid, id)).await
        }
    }
}

/// [`locate`] without a hint.
async fn search(s: &Scope<'_>, oid: Oid, id: u64) -> Result<Row> {
    let opts = RangeOptions { limit: 1, reverse: true, ..RangeOptions::default() };
    let end = key_after(&s.db.chunk(oid, id));
    let rows = s.tx.get_range(&s.db.chunk(oid, 0), &end, opts, Read::Snapshot).await?;
    let (key, raw) = rows.pairs.into_iter().next().ok_or_else(|| no_chunk(oid))?;
    let first = id_of(&key)?;
    s.space.hints.learn_chunk(oid, first);
    let row = Row::new(first, raw)?;
    if row.covers(id) { Ok(row) } else { Err(no_chunk(oid).into()) }
}

/// The deltas of the ids in `lo..hi` (None: to the end). Snapshot read.
pub async fn deltas(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>) -> Result<BTreeMap<u64, bool>> {
    let end = hi.map_or_else(|| s.db.set_rows_end(oid, 1), |hi| s.db.delta(oid, hi));
    let (mut rest, mut found) = (Rest::of((s.db.delta(oid, lo), end)), BTreeMap::new());
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(s.tx, opts, Read::Snapshot).await? {
        for (key, value) in &page {
            found.insert(id_of(key)?, value[..] == *delta_value(true));
        }
    }
    Ok(found)
}

/// The first deltas of the ids in `lo..hi`, at most `most`, and the id at which the others begin. Snapshot read.
pub(crate) async fn first_deltas(
    s: &Scope<'_>,
    oid: Oid,
    (lo, hi): (u64, Option<u64>),
    most: usize,
) -> Result<(BTreeMap<u64, bool>, Option<u64>)> {
    let end = hi.map_or_else(|| s.db.set_rows_end(oid, 1), |hi| s.db.delta(oid, hi));
    let opts = RangeOptions { limit: most, bytes: PAGE, ..RangeOptions::default() };
    let page = s.tx.get_range(&s.db.delta(oid, lo), &end, opts, Read::Snapshot).await?;
    let delta = |(key, value): &(Bytes, Bytes)| Ok((id_of(key)?, value[..] == *delta_value(true)));
    let found: BTreeMap<u64, bool> = page.pairs.iter().map(delta).collect::<Result<_>>()?;
    let rest = found.keys().next_back().filter(|_| page.more).and_then(|last| last.checked_add(1));
    Ok((found, rest))
}

/// Applies `deltas` to `ids`.
pub(crate) fn apply(ids: &mut RoaringTreemap, deltas: &BTreeMap<u64, bool>) {
    for (id, adds) in deltas {
        if *adds {
            ids.insert(*id)
        } else {
            ids.remove(*id)
        };
    }
}

/// A stretch of a set as stored: chunks, of which the first and the last may extend beyond it, and the deltas
/// inside it.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(super) lo: u64,
    /// The start of the next stretch; None at the end.
    pub(crate) next: Option<u64>,
    pub(super) rows: Vec<Row>,
    pub(super) deltas: BTreeMap<u64, bool>,
}

impl Stretch {
    /// Its members.
    pub(crate) fn ids(&self) -> Result<RoaringTreemap> {
        let mut ids = RoaringTreemap::new();
        for row in &self.rows {
            ids |= row.ids()?;
        }
        apply(&mut ids, &self.deltas);
        ids.remove_range(..self.lo);
        if let Some(next) = self.next {
            ids.remove_range(next..);
        }
        Ok(ids)
    }

    /// Whether it may have more than `n` members.
    pub(crate) fn may_exceed(&self, n: u64) -> Result<bool> {
        let mut most = self.deltas.len() as u64;
        for row in &self.rows {
            if most > n {
                break;
            }
            most += row.count()?;
        }
        Ok(most > n)
    }
}

/// The stored rows from `lo` on, up to `hi` or to about `bytes` of chunks, whichever comes first. Snapshot
/// read: callers that need conflicts read N.
pub(crate) async fn stretch(
    s: &Scope<'_>,
    oid: Oid,
    lo: u64,
    hi: Option<u64>,
    bytes: usize,
) -> Result<Stretch> {
    let row = locate(s, oid, lo).await?;
    let (mut next, size) = (row.next, row.size());
    let mut rows = vec![row];
    if let Some(from) = next.filter(|next| hi.is_none_or(|hi| *next < hi) && size < bytes) {
        let end = hi.map_or_else(|| s.db.set_rows_end(oid, 0), |hi| s.db.chunk(oid, hi));
        let opts = RangeOptions { bytes: bytes - size, ..RangeOptions::default() };
        let page = s.tx.get_range(&s.db.chunk(oid, from), &end, opts, Read::Snapshot).await?;
        for (key, raw) in page.pairs {
            let row = Row::new(id_of(&key)?, raw)?;
            next = row.next;
            rows.push(row);
        }
        // A page takes about a millisecond, and a large set has thousands: other tasks get a turn in between.
        tokio::task::yield_now().await;
    }
    let next = next.into_iter().chain(hi).min();
    let deltas = deltas(s, oid, lo, next).await?;
    if deltas.len() >= MANY {
        s.space.unfolded.note(s.db, oid);
    }
    Ok(Stretch { lo, next, rows, deltas })
}

/// All stored rows in `lo..hi` (None: to the end). Snapshot read.
pub(crate) async fn stretches(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>) -> Result<Vec<Stretch>> {
    let mut all = Vec::new();
    let mut at = Some(lo);
    while let Some(lo) = at {
        let part = stretch(s, oid, lo, hi, PAGE).await?;
        at = part.next.filter(|next| hi.is_none_or(|hi| *next < hi));
        all.push(part);
    }
    Ok(all)
}

/// The members of consecutive stretches.
pub(crate) fn joined(parts: &[Stretch]) -> Result<RoaringTreemap> {
    let mut all = RoaringTreemap::new();
    for part in parts {
        all |= part.ids()?;
    }
    Ok(all)
}

/// All members in `lo..hi` (None: to the end). Holds one stretch at a time. Snapshot read.
pub(crate) async fn load(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>) -> Result<RoaringTreemap> {
    let mut all = RoaringTreemap::new();
    let mut at = Some(lo);
    while let Some(lo) = at {
        let part = stretch(s, oid, lo, hi, PAGE).await?;
        all |= part.ids()?;
        at = part.next.filter(|next| hi.is_none_or(|hi| *next < hi));
    }
    Ok(all)
}

/// All rows of a new object with the members `ids`: chunks, weights, their sums with `stamp`, and N.
pub(crate) fn new_rows(
    db: Prefix,
    oid: Oid,
    stamp: u64,
    ids: RoaringTreemap,
) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>> {
    let count = Count::step(ids.len().cast_signed()).to_vec();
    let pieces = chunk::cut(0, ids)?;
    let weights: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.first, piece.len + SLACK)).collect();
    let mut sums: BTreeMap<u8, u128> = BTreeMap::new();
    for (first, weight) in &weights {
        *sums.entry(bucket(*first)).or_insert(u128::from(stamp) << 64) += u128::from(*weight);
    }
    let nexts: Vec<Option<u64>> =
        weights.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]).collect();
    let chunks = pieces.into_iter().zip(nexts);
    let chunks = chunks.map(move |(piece, next)| (db.chunk(oid, piece.first), piece.encode(next)));
    let weight =
        move |(first, n): (u64, u64)| (db.weight(oid, bucket(first), first), n.to_le_bytes().to_vec());
    let sum = move |(bucket, sum): (u8, u128)| (db.weight_sum(oid, bucket), sum.to_le_bytes().to_vec());
    let small =
        weights.into_iter().map(weight).chain(sums.into_iter().map(sum)).chain([(db.count(oid), count)]);
    Ok(chunks.chain(small))
}

/// The deltas that a rewritten chunk takes in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fold<'a> {
    /// All deltas under the chunk.
    All,
    /// The deltas of these ids, if they exist.
    Of(&'a [u64]),
}

impl Fold<'_> {
    /// These deltas, as the transaction sees them. Snapshot read.
    pub(crate) async fn deltas(self, s: &Scope<'_>, oid: Oid, row: &Row) -> Result<BTreeMap<u64, bool>> {
        let ids = match self {
            Fold::All => return deltas(s, oid, row.first, row.next).await,
            Fold::Of(ids) => ids,
        };
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| s.db.delta(oid, *id)).collect();
        let found = get_many(s.tx, &keys, Read::Snapshot).await?;
        let delta = |(id, value): (&u64, Option<bytes::Bytes>)| Some((*id, value?[..] == *delta_value(true)));
        Ok(ids.iter().zip(found).filter_map(delta).collect())
    }
}

/// Takes the deltas `seen` under a chunk into it and applies `changes`; cuts the chunk, or joins it with the
/// next one. Writes nothing if nothing changes. The caller has decided on `changes` by serializable reads,
/// and updates N.
pub(crate) async fn rewrite(
    s: &Scope<'_>,
    oid: Oid,
    row: &Row,
    changes: &BTreeMap<u64, bool>,
    seen: BTreeMap<u64, bool>,
) -> Result<()> {
    if changes.is_empty() && seen.is_empty() {
        return Ok(());
    }
    s.space.hints.rewrites_chunk(oid, row.first, row.bytes());
    let mut ids = row.ids()?;
    let mut old = BTreeMap::from([(row.first, ids.len())]);
    take_deltas(s, oid, &seen)?;
    write_conflicts(s, oid, changes)?;
    apply(&mut ids, &seen);
    apply(&mut ids, changes);
    let mut pieces = chunk::cut(row.first, ids)?;
    let end = join_next(s, oid, row, &mut pieces, &mut old).await?;
    for first in old.keys() {
        let key = s.db.chunk(oid, *first);
        s.tx.add_read_conflict(&key, &key_after(&key))?;
    }
    replace(s, oid, &old, pieces, end)
}

/// Joins a small last piece with the chunk after it. Returns where the rewritten range ends.
async fn join_next(
    s: &Scope<'_>,
    oid: Oid,
    row: &Row,
    pieces: &mut [Piece],
    old: &mut BTreeMap<u64, u64>,
) -> Result<Option<u64>> {
    let (Some(next), Some(last)) = (row.next, pieces.last_mut()) else { return Ok(row.next) };
    let size = last.size();
    if size >= chunk::JOINED_BYTES {
        return Ok(row.next);
    }
    let behind = locate(s, oid, next).await?;
    let small = size < chunk::MIN_BYTES || behind.size() < chunk::MIN_BYTES;
    if !small || size + behind.size() > chunk::JOINED_BYTES {
        return Ok(row.next);
    }
    old.insert(behind.first, behind.count()?);
    *last = last.joined(&behind)?;
    Ok(behind.next)
}

fn take_deltas(s: &Scope<'_>, oid: Oid, seen: &BTreeMap<u64, bool>) -> Result<()> {
    for id in seen.keys() {
        let key = s.db.delta(oid, *id);
        s.tx.add_read_conflict(&key, &key_after(&key))?;
        s.tx.clear(&key)?;
    }
    Ok(())
}

/// Conflicts with every decision that depends on a member that changes in a chunk instead of a delta.
fn write_conflicts(s: &Scope<'_>, oid: Oid, changes: &BTreeMap<u64, bool>) -> Result<()> {
    for (first, last) in runs(changes.keys().copied()) {
        s.tx.add_write_conflict(&s.db.delta(oid, first), &key_after(&s.db.delta(oid, last)))?;
    }
    Ok(())
}

/// Up to this many ranges name exactly the ids; more become one range, which conflicts more than necessary.
const MAX_RUNS: usize = 128;

/// The ascending `ids`, as inclusive ranges.
pub(crate) fn runs(ids: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => runs.push((id, id)),
        }
    }
    match (runs.first(), runs.last()) {
        (Some((first, _)), Some((_, last))) if runs.len() > MAX_RUNS => vec![(*first, *last)],
        _ => runs,
    }
}

/// Replaces the chunks `old` (first id, number of members), which end at `end`, by `new`, and updates the
/// weights.
fn replace(
    s: &Scope<'_>,
    oid: Oid,
    old: &BTreeMap<u64, u64>,
    new: Vec<Piece>,
    end: Option<u64>,
) -> Result<()> {
    let mut sums: BTreeMap<u8, i64> = BTreeMap::new();
    for (first, len) in old {
        let same = new.iter().find(|piece| piece.first == *first);
        if same.is_none_or(|piece| piece.len != *len) {
            *sums.entry(bucket(*first)).or_default() -= (len + SLACK).cast_signed();
        }
        if same.is_none() {
            s.tx.clear(&s.db.chunk(oid, *first))?;
            s.tx.clear(&s.db.weight(oid, bucket(*first), *first))?;
            s.space.hints.forget_chunk(oid, *first);
        }
    }
    let mut next = end;
    for piece in new.into_iter().rev() {
        let (first, bytes) = (piece.first, piece.encode(next));
        s.tx.set(&s.db.chunk(oid, first), &bytes)?;
        s.space.hints.wrote_chunk(oid, first, &bytes);
        if old.get(&first) != Some(&piece.len) {
            let weight = piece.len + SLACK;
            *sums.entry(bucket(first)).or_default() += weight.cast_signed();
            s.tx.set(&s.db.weight(oid, bucket(first), first), &weight.to_le_bytes())?;
        }
        next = Some(first);
    }
    for (bucket, change) in sums {
        let stamp = i128::from(s.space.fresh.stamp().cast_signed()) << 64;
        let step = stamp.wrapping_add(i128::from(change));
        s.tx.add(&s.db.weight_sum(oid, bucket), &step.to_le_bytes())?;
    }
    Ok(())
}

fn id_of(key: &[u8]) -> Result<u64> {
    Ok(Prefix::decode_id(key)
        .ok_or_else(|| StoreError::Corrupt("a row of a set has an invalid key".into()))?)
}

fn no_chunk(oid: Oid) -> StoreError {
    StoreError::Corrupt(format!("a chunk of set {:x} is missing", { oid.0 }))
}
