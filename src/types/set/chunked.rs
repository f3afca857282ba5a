//! Membership in a chunked set: lookup, adding and removing.
//!
//! A few changes become deltas; at least [`DIRECT`] changes under one chunk are written into the chunk (more
//! if servers share it).
//!
//! Folding happens in the transaction that writes. A server remembers the deltas it wrote; when [`FOLD_AT`]
//! of them are under one chunk, the transaction that wrote the last of them folds them. It reads each of
//! these rows, so deltas that another transaction has changed meanwhile are left out. No counter is kept, and
//! no job has to find the sets that need a fold. Deltas that no server remembers (a server has stopped, an
//! attempt that folded met a conflict) are folded by one fold in [`FAR_EVERY`], which reads all deltas of its
//! chunk. Deltas left all over a set slow down reads of the whole set, and `jobs::fold` folds them.
//!
//! Why not read the range at every fold: the embedded engine walks over the tombstones of all deltas folded
//! since its last compaction, 60 ns each, up to 65 536 under a dense chunk. Deltas folded by the batch that
//! wrote them leave none.

use super::chunk;
use super::rows::{self, Fold, delta_value, locate, rewrite};
use crate::error::{Result, StoreError};
use crate::keyspace::dictionary::interner::Interned;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::reads::get_many;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{MAX_TRANSACTION, Read, key_after};
use crate::types::memo::Memo;
use crate::types::object::{self, Count, Slot};
use crate::types::set::SetRep;
use bytes::Bytes;
use futures_util::future::try_join_all;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};

/// From this many changes under one chunk on, they are written into it.
pub(crate) const DIRECT: usize = 32;
/// At this many deltas of one server under one chunk, the server folds them.
pub const FOLD_AT: usize = 64;
/// Fewer deltas than this are left for later (the server was wrong about the chunk, wrote the same deltas
/// repeatedly, or the others belong to uncommitted transactions): concurrent rewrites of one chunk conflict.
const FOLD_LEAST: usize = 24;
/// One fold in this many takes in all deltas of its chunk.
const FAR_EVERY: u64 = 64;
/// If this many members or fewer remain, a removal reads N serializably, to see the set become empty.
const SMALL: u64 = 256;
/// Most chunks read at once.
const AT_ONCE: usize = 64;
/// Bytes of a delta row, including its read and write conflict ranges.
const DELTA_BYTES: usize = 176;
/// From this many ids in one container on, their deltas are read as a range.
const DENSE: usize = 16;
/// Deltas that are read at once even for few ids.
const LITTLE: usize = 128;
/// From this many ids on, other tasks get a turn between the steps.
const BREATHE: usize = 4096;
/// Looking up this many ids costs more than building the chunk's bitmap.
const BUILD: usize = 64;

/// The state of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// It is a member.
    pub(crate) member: bool,
    /// It has a delta row.
    pub(crate) delta: bool,
}

/// Makes an object of `members`, which must be distinct. Returns the payload of a record that points to it.
pub(crate) async fn create(s: &Scope<'_>, members: &[Bytes]) -> Result<SetRep> {
    let ids = s.space.ids.intern(s.tx, s.round, members).await?;
    Ok(create_from_ids(s, ids.iter().map(|i| i.id).collect())?.0)
}

/// Makes an object of `ids`. Also returns their number. Fails with [`StoreError::TooLarge`], before anything
/// is written, if it does not fit one transaction.
pub(crate) fn create_from_ids(s: &Scope<'_>, ids: RoaringTreemap) -> Result<(SetRep, u64)> {
    check_room(ids.serialized_size())?;
    let (oid, len) = (s.space.fresh.oid(), ids.len());
    for (key, value) in rows::new_rows(s.db, oid, s.space.fresh.stamp(), ids)? {
        s.tx.set(&key, &value)?;
    }
    Ok((SetRep::Chunked(oid), len))
}

/// Fails with [`StoreError::TooLarge`] if a command that writes `bytes` of set rows would leave too little
/// room in its transaction.
pub(crate) fn check_room(bytes: usize) -> Result<()> {
    if bytes > MAX_TRANSACTION / 10 * 9 { Err(StoreError::TooLarge.into()) } else { Ok(()) }
}

/// Adds `members`. Returns the number of new ones.
pub(crate) async fn add(s: &Scope<'_>, oid: Oid, members: &[Bytes], memo: &Memo) -> Result<u64> {
    let interned = s.space.ids.intern(s.tx, s.round, members).await?;
    let [Interned { id, fresh }] = interned[..] else {
        return Box::pin(add_interned(s, oid, &interned)).await;
    };
    let seen =
        if fresh { Seen::default() } else { look_at(s, oid, id, Read::Serializable, Some(memo)).await? };
    if seen.member {
        return Ok(0);
    }
    Box::pin(change(s, oid, &BTreeMap::from([(id, seen)]), true)).await
}

async fn add_interned(s: &Scope<'_>, oid: Oid, interned: &[Interned]) -> Result<u64> {
    check_room(estimate(interned.iter().map(|i| i.id)))?;
    let known: BTreeSet<u64> = interned.iter().filter(|i| !i.fresh).map(|i| i.id).collect();
    let mut states = look(s, oid, &Vec::from_iter(known), Read::Serializable).await?;
    for Interned { id, .. } in interned.iter().filter(|i| i.fresh) {
        states.insert(*id, Seen::default());
    }
    states.retain(|_, seen| !seen.member);
    change(s, oid, &states, true).await
}

/// As [`add`], for members whose ids are known.
pub(crate) async fn add_ids(s: &Scope<'_>, oid: Oid, ids: &RoaringTreemap) -> Result<u64> {
    check_room(estimate(ids.iter()))?;
    let mut states = look(s, oid, &Vec::from_iter(ids), Read::Serializable).await?;
    states.retain(|_, seen| !seen.member);
    change(s, oid, &states, true).await
}

/// Removes the members among `ids` from the set that `slot` holds; removing the last one removes the key.
/// Returns the number removed.
pub(crate) async fn remove(s: &Scope<'_>, slot: &mut Slot, oid: Oid, ids: &[u64]) -> Result<u64> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    check_room(estimate(ids.iter().copied()))?;
    let mut states = look(s, oid, &ids, Read::Serializable).await?;
    states.retain(|_, seen| seen.member);
    if ids.len() >= BREATHE {
        tokio::task::yield_now().await;
    }
    let gone = states.len() as u64;
    let left = object::count(s, oid, Read::Snapshot).await?.cardinality().saturating_sub(gone);
    if gone > 0 && (left <= SMALL || left <= gone) {
        let now = object::count(s, oid, Read::Serializable).await?.cardinality();
        if now == gone {
            object::remove(s, slot)?;
            return Ok(gone);
        }
    }
    change(s, oid, &states, false).await
}

/// The states of `ids` (ascending, distinct). `read` is the mode for the delta keys: serializable reads
/// conflict with every change of one of the ids. Chunks are always read as snapshots.
pub(crate) async fn look(s: &Scope<'_>, oid: Oid, ids: &[u64], read: Read) -> Result<BTreeMap<u64, Seen>> {
    if let [only] = ids {
        return Ok(BTreeMap::from([(*only, look_at(s, oid, *only, read, None).await?)]));
    }
    let deltas = look_deltas(s, oid, ids, read).await?;
    if ids.len() >= BREATHE {
        tokio::task::yield_now().await;
    }
    let open: Vec<u64> = ids.iter().copied().filter(|id| !deltas.contains_key(id)).collect();
    let in_chunks = look_chunks(s, oid, &open).await?;
    let state = |id: &u64| match deltas.get(id) {
        Some(adds) => Seen { member: *adds, delta: true },
        None => Seen { member: in_chunks.contains(id), delta: false },
    };
    Ok(ids.iter().map(|id| (*id, state(id))).collect())
}

/// As [`look`], for one id.
async fn look_at(s: &Scope<'_>, oid: Oid, id: u64, read: Read, memo: Option<&Memo>) -> Result<Seen> {
    if let Some(delta) = s.tx.get_among(&s.db.delta(oid, id), rows::CONTAINER_TAIL, read).await? {
        return Ok(Seen { member: delta[..] == *delta_value(true), delta: true });
    }
    let member = match memo {
        Some(memo) => memo.chunk_has(s, oid, id).await?,
        None => locate(s, oid, id).await?.contains(id)?,
    };
    Ok(Seen { member, delta: false })
}

/// Whether `id` is a member, with a conflict on every change of its membership.
pub(crate) async fn contains(s: &Scope<'_>, oid: Oid, id: u64, memo: &Memo) -> Result<bool> {
    Ok(look_at(s, oid, id, Read::Serializable, Some(memo)).await?.member)
}

/// The deltas of `ids`. Neighbours are read as one range unless it has many more, with conflicts only on the ids.
async fn look_deltas(s: &Scope<'_>, oid: Oid, ids: &[u64], read: Read) -> Result<BTreeMap<u64, bool>> {
    let mut found = BTreeMap::new();
    let mut points = Vec::new();
    for group in ids.chunk_by(|a, b| chunk::container(*a) == chunk::container(*b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        if group.len() < DENSE {
            points.extend(group.iter().map(|id| (*id, s.db.delta(oid, *id))));
            continue;
        }
        if read == Read::Serializable {
            for (lo, hi) in rows::runs(group.iter().copied()) {
                s.tx.add_read_conflict(&s.db.delta(oid, lo), &key_after(&s.db.delta(oid, hi)))?;
            }
        }
        let range = (*first, last.checked_add(1));
        let (deltas, rest) = rows::first_deltas(s, oid, range, (2 * group.len()).max(LITTLE)).await?;
        found.extend(deltas);
        // The rows of others outweigh those that are asked for.
        let rest = rest.map_or(group.len(), |rest| group.partition_point(|id| *id < rest));
        points.extend(group.iter().skip(rest).map(|id| (*id, s.db.delta(oid, *id))));
    }
    let keys: Vec<&Vec<u8>> = points.iter().map(|(_, key)| key).collect();
    for ((id, _), value) in points.iter().zip(get_many(s.tx, &keys, read).await?) {
        if let Some(value) = value {
            found.insert(*id, value[..] == *delta_value(true));
        }
    }
    Ok(found)
}

/// The subset of `ids` (ascending) that is in their chunks.
async fn look_chunks(s: &Scope<'_>, oid: Oid, ids: &[u64]) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    // Locally, read one chunk at a time. Over a network, read as many as will probably be needed in one round
    // trip.
    let most = if s.tx.prefers_prefetch() { AT_ONCE } else { 1 };
    let (mut rest, mut at_once) = (ids, most);
    while !rest.is_empty() {
        let groups = rest.chunk_by(|a, b| chunk::container(*a) == chunk::container(*b));
        let wanted = groups.take(at_once).filter_map(|g| g.first()).map(|id| locate(s, oid, *id));
        let mut useful = 0;
        for row in try_join_all(wanted).await? {
            // `here` is empty if the chunk before already covers the id for which this one was read.
            let (here, later) = rest.split_at(rest.partition_point(|id| row.covers(*id)));
            pick(&row, here, &mut found)?;
            useful += usize::from(!here.is_empty());
            rest = later;
        }
        at_once = (2 * useful).clamp(1, most);
    }
    Ok(found)
}

/// Adds to `found` those of `ids` that are in the chunk.
fn pick(row: &chunk::Row, ids: &[u64], found: &mut BTreeSet<u64>) -> Result<()> {
    if ids.len() >= BUILD {
        let members = row.ids()?;
        found.extend(ids.iter().filter(|id| members.contains(**id)));
        return Ok(());
    }
    for id in ids {
        if row.contains(*id)? {
            found.insert(*id);
        }
    }
    Ok(())
}

/// Makes all of `states` members (`adds`) or non-members, and updates N. Each must be in the opposite state
/// now.
async fn change(s: &Scope<'_>, oid: Oid, states: &BTreeMap<u64, Seen>, adds: bool) -> Result<u64> {
    let n = i64::try_from(states.len()).unwrap_or(i64::MAX);
    if n == 0 {
        return Ok(0);
    }
    let mut due = Vec::new();
    if states.len() < DIRECT {
        write_deltas(s, oid, states.iter(), adds, &mut due)?;
    } else {
        change_many(s, oid, states, adds, &mut due).await?;
    }
    s.tx.add(&s.db.count(oid), &Count::step(if adds { n } else { -n }))?;
    for ids in due {
        fold_ids(s, oid, ids).await?;
    }
    Ok(n.cast_unsigned())
}

/// Most bytes that changing `ids` writes: per container a chunk, or each id's delta with its conflict ranges.
/// Checked before the lookup, which takes as long.
fn estimate(ids: impl Iterator<Item = u64>) -> usize {
    let mut containers: BTreeMap<u64, usize> = BTreeMap::new();
    for id in ids {
        *containers.entry(chunk::container(id)).or_default() += 1;
    }
    containers.values().map(|n| (n * DELTA_BYTES).min(chunk::JOINED_BYTES)).sum()
}

async fn change_many(
    s: &Scope<'_>,
    oid: Oid,
    states: &BTreeMap<u64, Seen>,
    adds: bool,
    due: &mut Vec<Vec<u64>>,
) -> Result<()> {
    let mut at = states.keys().next().copied();
    while let Some(id) = at {
        let row = locate(s, oid, id).await?;
        let under = || states.range(row.first..).take_while(|(id, _)| row.covers(**id));
        let many = DIRECT * s.space.hints.patience(oid, row.first);
        if under().nth(many - 1).is_some() {
            let changes = under().map(|(id, _)| (*id, adds)).collect();
            let old: Vec<u64> = under().filter(|(_, seen)| seen.delta).map(|(id, _)| *id).collect();
            let seen = Fold::Of(&old).deltas(s, oid, &row).await?;
            rewrite(s, oid, &row, &changes, seen).await?;
            // The rewrite took about a millisecond.
            tokio::task::yield_now().await;
        } else {
            write_deltas(s, oid, under(), adds, due)?;
        }
        at = row.next.and_then(|next| states.range(next..).next()).map(|(id, _)| *id);
    }
    Ok(())
}

/// Writes deltas. Adds to `due` the ids whose deltas should be folded.
fn write_deltas<'i>(
    s: &Scope<'_>,
    oid: Oid,
    states: impl Iterator<Item = (&'i u64, &'i Seen)>,
    adds: bool,
    due: &mut Vec<Vec<u64>>,
) -> Result<()> {
    for (id, seen) in states {
        let key = s.db.delta(oid, *id);
        if seen.delta {
            s.tx.clear(&key)?;
        } else {
            s.tx.set(&key, delta_value(adds))?;
            due.extend(s.space.hints.note_delta(oid, *id, FOLD_AT));
        }
    }
    Ok(())
}

/// Folds the deltas of `ids` into their chunks.
async fn fold_ids(s: &Scope<'_>, oid: Oid, mut ids: Vec<u64>) -> Result<()> {
    ids.sort_unstable();
    ids.dedup();
    let mut rest = ids.as_slice();
    while let Some(id) = rest.first() {
        let row = locate(s, oid, *id).await?;
        let (here, later) = rest.split_at(rest.partition_point(|id| row.covers(*id)));
        let far = s.space.fresh.stamp() < u64::MAX / FAR_EVERY;
        let fold = if far { Fold::All } else { Fold::Of(here) };
        let seen = fold.deltas(s, oid, &row).await?;
        if seen.len() < FOLD_LEAST {
            for id in seen.keys() {
                s.space.hints.note_delta(oid, *id, usize::MAX);
            }
        } else {
            rewrite(s, oid, &row, &BTreeMap::new(), seen).await?;
        }
        rest = later;
    }
    Ok(())
}

/// Folds deltas into their chunks across the set, until about `bytes` are written or the set is done. Returns
/// where to continue.
pub async fn fold(s: &Scope<'_>, oid: Oid, from: u64, bytes: usize) -> Result<Option<u64>> {
    let limit = s.tx.size() + bytes;
    let mut at = Some(from);
    while let Some(id) = at {
        if s.tx.size() > limit {
            return Ok(at);
        }
        let row = locate(s, oid, id).await?;
        let seen = Fold::All.deltas(s, oid, &row).await?;
        rewrite(s, oid, &row, &BTreeMap::new(), seen).await?;
        at = row.next;
    }
    Ok(None)
}

/// As [`fold`], for one piece in a transaction of its own; also None if the set no longer exists.
pub(crate) async fn fold_piece(
    space: &Keyspace,
    db: Prefix,
    oid: Oid,
    from: u64,
    bytes: usize,
) -> Result<Option<u64>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    // An object's rows are cleared together: a transaction that sees N sees the chunks, and clearing a chunk
    // conflicts with replacing it.
    if tx.get(&db.count(oid), Read::Snapshot).await?.is_none() {
        return Ok(None);
    }
    let next = fold(&s, oid, from, bytes).await?;
    if tx.is_write() {
        tx.commit().await?;
    }
    Ok(next)
}

/// The ids of all members, with a conflict on every change of the set.
pub(crate) async fn all(s: &Scope<'_>, oid: Oid) -> Result<RoaringTreemap> {
    object::count(s, oid, Read::Serializable).await?;
    rows::load(s, oid, 0, None).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::World;

    /// Hazard: of ids that are far apart under many deltas, those behind the deltas that are read first get none.
    #[tokio::test]
    async fn ids_are_found_behind_the_deltas_that_are_read_first() {
        let w = World::new().await;
        let tx = w.server.store.begin();
        let s = w.server.space.scope(&tx, w.db);
        let (SetRep::Chunked(oid), _) = create_from_ids(&s, (0..1000).step_by(2).collect()).unwrap() else {
            panic!("a set of chunks")
        };
        // Every fifth id has changed.
        for id in (0..1000).step_by(5) {
            tx.set(&s.db.delta(oid, id), delta_value(id % 2 == 1)).unwrap();
        }
        for step in [1, 7, 40] {
            let ids: Vec<u64> = (0..1000).step_by(step).collect();
            let found = look(&s, oid, &ids, Read::Snapshot).await.unwrap();
            let is_member = |id: u64| id.is_multiple_of(2) != id.is_multiple_of(5);
            let wanted = ids.iter().map(|id| (*id, is_member(*id), id.is_multiple_of(5)));
            let got = found.into_iter().map(|(id, seen)| (id, seen.member, seen.delta));
            assert!(got.eq(wanted), "every {step}th");
        }
    }
}
