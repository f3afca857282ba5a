//! The rows of a chunked set: reading chunks and deltas, rewriting chunks, sampling weights.
//!
//! ```text
//! S <oid> 00 <first>          -> chunk    members from `first` up to the next chunk's first; there is always one at 0
//! S <oid> 01 <id>             -> + or -   the id is (not) a member, though the chunk says otherwise
//! S <oid> 02 <bucket>         -> u64 LE   sum of the weights of the bucket's chunks (atomic add)
//! S <oid> 10+bucket <first>   -> u64 LE   weight of the chunk at `first`; the bucket is a hash of `first`
//! ```
//! Membership is the delta if there is one, else the chunk. Invariants:
//! * A delta contradicts its chunk. So changing a member back clears the delta.
//! * Delta keys carry the conflicts of (set, member). Who decides by a member reads its delta key serializably and the
//!   chunk as a snapshot. Who changes a member writes its delta key, or adds a write conflict on it.
//! * Who rewrites a chunk adds a read conflict on the keys of all chunks it may replace, so that two rewrites of
//!   one chunk never both commit. It takes in the deltas it sees, with a read conflict on each, and clears them one by
//!   one: a delta that comes meanwhile stays valid, because rewriting changes no other id's membership.
//! * Weights change only with their chunk, so they are exact; only the sums are shared, and those are added to.
//!
//! A weight is the chunk's members plus [`SLACK`]: an upper bound as long as fewer deltas than that add members.

use super::chunk;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{RangeOptions, Read, key_after};
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// Added to a chunk's cardinality in its sampling weight.
pub const SLACK: u64 = 1024;
/// Number of weight buckets.
pub const BUCKETS: u8 = 16;
/// Bytes that one range read asks for.
pub const PAGE: usize = 1 << 18;

/// The value of a delta row that adds (`true`) or removes its id.
pub fn delta_value(adds: bool) -> &'static [u8] {
    if adds { b"+" } else { b"-" }
}

/// The bucket of the chunk that starts at `first`.
pub fn bucket(first: u64) -> u8 {
    let hash = (first >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
    hash as u8 % BUCKETS
}

/// A chunk as it is stored, without deltas.
#[derive(Debug)]
pub struct Chunk {
    /// Where it starts.
    pub first: u64,
    /// Where the next one starts.
    pub next: Option<u64>,
    /// Its members.
    pub ids: RoaringTreemap,
    /// The next chunk's bytes.
    pub next_raw: Bytes,
}

impl Chunk {
    /// True where `id` belongs into this chunk.
    pub fn covers(&self, id: u64) -> bool {
        id >= self.first && self.next.is_none_or(|next| id < next)
    }
}

/// The stored chunk that covers `id`: its first id and bytes. Snapshot.
pub async fn locate(s: &Scope<'_>, oid: Oid, id: u64) -> Result<(u64, Bytes)> {
    let opts = RangeOptions { limit: 1, reverse: true, ..RangeOptions::default() };
    let end = key_after(&s.db.chunk(oid, id));
    let rows = s.tx.get_range(&s.db.chunk(oid, 0), &end, opts, Read::Snapshot).await?;
    let (key, raw) = rows.pairs.into_iter().next().ok_or_else(|| no_chunk(oid))?;
    Ok((id_of(&key)?, raw))
}

/// The chunk that covers `id`, and where it ends. Snapshot.
pub async fn read_chunk(s: &Scope<'_>, oid: Oid, id: u64) -> Result<Chunk> {
    let (first, raw) = locate(s, oid, id).await?;
    let begin = key_after(&s.db.chunk(oid, first));
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let rows = s.tx.get_range(&begin, &s.db.set_rows_end(oid, 0), opts, Read::Snapshot).await?;
    let ids = chunk::decode(&raw)?;
    match rows.pairs.into_iter().next() {
        None => Ok(Chunk { first, next: None, ids, next_raw: Bytes::new() }),
        Some((key, raw)) => Ok(Chunk { first, next: Some(id_of(&key)?), ids, next_raw: raw }),
    }
}

/// The deltas of ids in `lo..hi` (None: to the end). Snapshot.
pub async fn deltas(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>) -> Result<BTreeMap<u64, bool>> {
    let mut found = BTreeMap::new();
    let mut begin = s.db.delta(oid, lo);
    let end = hi.map_or_else(|| s.db.set_rows_end(oid, 1), |hi| s.db.delta(oid, hi));
    loop {
        let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
        let page = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        for (key, value) in &page.pairs {
            found.insert(id_of(key)?, value[..] == *delta_value(true));
        }
        match page.pairs.last() {
            Some((key, _)) if page.more => begin = key_after(key),
            _ => return Ok(found),
        }
    }
}

/// Makes the members that `deltas` says.
pub fn apply(ids: &mut RoaringTreemap, deltas: &BTreeMap<u64, bool>) {
    for (id, adds) in deltas {
        if *adds {
            ids.insert(*id)
        } else {
            ids.remove(*id)
        };
    }
}

/// A stretch of a set's members.
#[derive(Debug)]
pub struct Window {
    /// Members of the stretch.
    pub ids: RoaringTreemap,
    /// Where the next stretch begins; None at the end.
    pub next: Option<u64>,
}

/// The members from `lo` on, up to `hi` or to about `bytes` of chunks, whichever comes first. Snapshot: who needs
/// conflicts reads N.
pub async fn window(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>, bytes: usize) -> Result<Window> {
    let (first, raw) = locate(s, oid, lo).await?;
    let end = hi.map_or_else(|| s.db.set_rows_end(oid, 0), |hi| s.db.chunk(oid, hi));
    let begin = key_after(&s.db.chunk(oid, first));
    let opts = RangeOptions { bytes, ..RangeOptions::default() };
    let mut page = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
    let mut next = hi;
    if page.more
        && let Some((key, _)) = page.pairs.pop()
    {
        next = Some(id_of(&key)?);
    }
    let mut ids = chunk::decode(&raw)?;
    for (_, raw) in &page.pairs {
        ids |= chunk::decode(raw)?;
    }
    apply(&mut ids, &deltas(s, oid, lo, next).await?);
    ids.remove_range(..lo);
    if let Some(next) = next {
        ids.remove_range(next..);
    }
    Ok(Window { ids, next })
}

/// All members in `lo..hi` (None: to the end). Snapshot.
pub async fn load(s: &Scope<'_>, oid: Oid, lo: u64, hi: Option<u64>) -> Result<RoaringTreemap> {
    let mut all = RoaringTreemap::new();
    let mut at = lo;
    loop {
        let part = window(s, oid, at, hi, PAGE).await?;
        all |= part.ids;
        match part.next.filter(|next| hi.is_none_or(|hi| *next < hi)) {
            Some(next) => at = next,
            None => return Ok(all),
        }
    }
}

/// Writes the rows of a new object: chunks and weights, not N.
pub fn write_new(s: &Scope<'_>, oid: Oid, ids: RoaringTreemap) -> Result<()> {
    replace(s, oid, &BTreeMap::new(), chunk::cut(0, ids))
}

/// Which deltas a rewritten chunk takes in.
#[derive(Debug, Clone, Copy)]
pub struct Fold {
    /// Without changes, fewer deltas are left alone.
    pub least: usize,
    /// Only those of ids that are at most so far from the one that is rewritten for.
    pub near: u64,
}

impl Fold {
    /// All of them, however few.
    pub const ALL: Fold = Fold { least: 0, near: u64::MAX };

    async fn deltas(self, s: &Scope<'_>, oid: Oid, chunk: &Chunk, at: u64) -> Result<BTreeMap<u64, bool>> {
        let lo = chunk.first.max(at.saturating_sub(self.near));
        let hi =
            at.checked_add(self.near).filter(|hi| chunk.next.is_none_or(|next| *hi < next)).or(chunk.next);
        deltas(s, oid, lo, hi).await
    }
}

/// Takes deltas under the chunk of `at` into it, as `fold` says, and sets the members that `changes` says; cuts it, or
/// joins it with the next one. The caller has
/// decided `changes` by serializable reads, and counts N. Returns where the chunk ended.
pub async fn rewrite(
    s: &Scope<'_>,
    oid: Oid,
    at: u64,
    changes: &BTreeMap<u64, bool>,
    fold: Fold,
) -> Result<Option<u64>> {
    let mut chunk = read_chunk(s, oid, at).await?;
    let next = chunk.next;
    let seen = fold.deltas(s, oid, &chunk, at).await?;
    if changes.is_empty() && seen.len() < fold.least {
        return Ok(next);
    }
    let mut old = BTreeMap::from([(chunk.first, chunk.ids.len())]);
    take_deltas(s, oid, &seen)?;
    write_conflicts(s, oid, changes)?;
    apply(&mut chunk.ids, &seen);
    apply(&mut chunk.ids, changes);
    let mut pieces = chunk::cut(chunk.first, std::mem::take(&mut chunk.ids));
    let end = join_next(s, oid, &chunk, &mut pieces, &mut old).await?;
    let end = end.map_or_else(|| s.db.set_rows_end(oid, 0), |end| s.db.chunk(oid, end));
    s.tx.add_read_conflict(&s.db.chunk(oid, chunk.first), &end)?;
    replace(s, oid, &old, pieces)?;
    Ok(next)
}

/// Joins a small last piece with the chunk behind it. Returns where the rewritten range ends.
async fn join_next(
    s: &Scope<'_>,
    oid: Oid,
    chunk: &Chunk,
    pieces: &mut [(u64, RoaringTreemap)],
    old: &mut BTreeMap<u64, u64>,
) -> Result<Option<u64>> {
    let (Some(next), Some((_, last))) = (chunk.next, pieces.last_mut()) else { return Ok(chunk.next) };
    let size = last.serialized_size();
    let small = size < chunk::MIN_BYTES || chunk.next_raw.len() < chunk::MIN_BYTES;
    if !small || size + chunk.next_raw.len() > chunk::JOINED_BYTES {
        return Ok(chunk.next);
    }
    let joined = chunk::decode(&chunk.next_raw)?;
    old.insert(next, joined.len());
    *last |= joined;
    Ok(read_chunk(s, oid, next).await?.next)
}

fn take_deltas(s: &Scope<'_>, oid: Oid, seen: &BTreeMap<u64, bool>) -> Result<()> {
    for id in seen.keys() {
        let key = s.db.delta(oid, *id);
        s.tx.add_read_conflict(&key, &key_after(&key))?;
        s.tx.clear(&key)?;
    }
    Ok(())
}

/// Fails whoever decided by a member that changes in a chunk, not in a delta.
fn write_conflicts(s: &Scope<'_>, oid: Oid, changes: &BTreeMap<u64, bool>) -> Result<()> {
    for (first, last) in runs(changes.keys().copied()) {
        s.tx.add_write_conflict(&s.db.delta(oid, first), &key_after(&s.db.delta(oid, last)))?;
    }
    Ok(())
}

/// Ranges with at most so many pieces name single ids; with more they become one range, which fails more than it must.
const MAX_RUNS: usize = 128;

/// The ascending `ids` as inclusive ranges.
pub fn runs(ids: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
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

/// Replaces the chunks `old` (first id, members) by `new`, with their weights.
fn replace(s: &Scope<'_>, oid: Oid, old: &BTreeMap<u64, u64>, new: Vec<(u64, RoaringTreemap)>) -> Result<()> {
    let mut sums: BTreeMap<u8, i64> = BTreeMap::new();
    for (first, len) in old {
        *sums.entry(bucket(*first)).or_default() -= (len + SLACK).cast_signed();
        if !new.iter().any(|(f, _)| f == first) {
            s.tx.clear(&s.db.chunk(oid, *first))?;
            s.tx.clear(&s.db.weight(oid, bucket(*first), *first))?;
        }
    }
    for (first, ids) in new {
        let weight = ids.len() + SLACK;
        *sums.entry(bucket(first)).or_default() += weight.cast_signed();
        s.tx.set(&s.db.chunk(oid, first), &chunk::encode(&ids)?)?;
        if old.get(&first) != Some(&ids.len()) {
            s.tx.set(&s.db.weight(oid, bucket(first), first), &weight.to_le_bytes())?;
        }
    }
    for (bucket, change) in sums.into_iter().filter(|(_, change)| *change != 0) {
        s.tx.add(&s.db.weight_sum(oid, bucket), &change.to_le_bytes())?;
    }
    Ok(())
}

fn id_of(key: &[u8]) -> Result<u64> {
    Ok(Prefix::decode_id(key).ok_or_else(|| StoreError::Corrupt("key of a set row".into()))?)
}

fn no_chunk(oid: Oid) -> StoreError {
    StoreError::Corrupt(format!("no first chunk of set {:x}", oid.0))
}
