//! Random members: SPOP and SRANDMEMBER, uniform whatever the encoding and however many deltas wait.
//!
//! A chunked set draws a weight bucket by its sum, in it a chunk by its weight, in that a rank below its weight:
//! * a rank below the number of the chunk's members is the member of that rank, unless a delta removed it;
//! * a rank behind them counts the deltas under the chunk that add;
//! * a rank that no member has is rejected, and everything drawn again.
//!
//! So each member has the same chance in each draw, as long as no more than [`rows::SLACK`] deltas add to one chunk (folds
//! see to that). Where more are met, or too many draws are rejected, the set is read whole.
//!
//! The first kind of rank is nearly all of them and reads no range: a point for the chunk, and one for the delta. Reading
//! all deltas of the chunk instead cost 0.8 to 1.6 ms a draw on the embedded engine, nearly all of it tombstones. The weights of
//! a bucket are remembered as long as its stamp stays.
//!
//! Reads are snapshots; the members drawn get read conflicts on their delta keys: the answer depends on others
//! being there only through their number, which no Redis client can tell from luck.

use super::chunk::Row;
use super::chunked::{self, look};
use super::rows::{self, BUCKETS, SLACK};
use super::small::Small;
use super::{Set, put_small};
use crate::env::Rng;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::hints::Weights;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::reads::get_many;
use crate::keyspace::record::SetRep;
use crate::store::{RangeOptions, Read, key_after};
use crate::types::object::{self, Slot};
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Rejected draws before the set is read whole.
const PATIENCE: u32 = 1024;
/// A sample of more than one in so many members reads the set whole.
const LARGE_SHARE: u64 = 4;

/// Up to `count` distinct random members.
pub async fn distinct(s: &Scope<'_>, rep: Option<&SetRep>, count: u64, rng: &mut Rng) -> Result<Vec<Bytes>> {
    match Set::of(rep)? {
        Set::Small(small) => Ok(choose_small(&small, count, rng)),
        Set::Chunked(oid) => {
            let ids = draw_distinct(s, oid, count, rng).await?;
            look(s, oid, &sorted(&ids), Read::Serializable).await?;
            s.space.ids.resolve(s.tx, &ids).await
        }
    }
}

/// Exactly `count` random members, with repetitions; none of an empty set.
pub async fn repeated(s: &Scope<'_>, rep: Option<&SetRep>, count: u64, rng: &mut Rng) -> Result<Vec<Bytes>> {
    match Set::of(rep)? {
        Set::Small(small) => {
            let len = small.len() as u64;
            let times = if len == 0 { 0 } else { count };
            Ok((0..times).filter_map(|_| small.nth(rng.below(len))).collect())
        }
        Set::Chunked(oid) => {
            let mut sampler = Sampler::open(s, oid).await?;
            let mut ids = Vec::new();
            for _ in 0..count {
                ids.extend(sampler.draw(rng).await?);
            }
            look(s, oid, &sorted(&ids), Read::Serializable).await?;
            s.space.ids.resolve(s.tx, &ids).await
        }
    }
}

/// Removes and returns up to `count` random members; the key goes with the last one.
pub async fn pop(s: &Scope<'_>, slot: &mut Slot, count: u64, rng: &mut Rng) -> Result<Vec<Bytes>> {
    match Set::of(slot.set()?)? {
        Set::Small(mut small) => {
            let popped = choose_small(&small, count, rng);
            for member in &popped {
                small.remove(member);
            }
            if !popped.is_empty() {
                put_small(s, slot, &small)?;
            }
            Ok(popped)
        }
        Set::Chunked(oid) => {
            let ids = draw_distinct(s, oid, count, rng).await?;
            let members = s.space.ids.resolve(s.tx, &ids).await?;
            chunked::remove(s, slot, oid, &ids).await?;
            Ok(members)
        }
    }
}

fn sorted(ids: &[u64]) -> Vec<u64> {
    Vec::from_iter(ids.iter().copied().collect::<BTreeSet<u64>>())
}

fn choose_small(small: &Small, count: u64, rng: &mut Rng) -> Vec<Bytes> {
    if count == 1 {
        return small.nth(rng.below(small.len() as u64)).into_iter().collect();
    }
    choose(small.members(), count, rng)
}

/// `count` of `items`; all of them in their order where there are no more.
fn choose<T>(mut items: Vec<T>, count: u64, rng: &mut Rng) -> Vec<T> {
    if count < items.len() as u64 {
        rng.shuffle(&mut items);
        items.truncate(count as usize);
    }
    items
}

async fn draw_distinct(s: &Scope<'_>, oid: Oid, count: u64, rng: &mut Rng) -> Result<Vec<u64>> {
    let len = object::count(s, oid, Read::Snapshot).await?.cardinality();
    if count >= len {
        return Ok(Vec::from_iter(chunked::all(s, oid).await?));
    }
    if count > len / LARGE_SHARE {
        return Ok(choose(Vec::from_iter(rows::load(s, oid, 0, None).await?), count, rng));
    }
    let mut sampler = Sampler::open(s, oid).await?;
    let mut taken = BTreeSet::new();
    let mut ids = Vec::new();
    while (ids.len() as u64) < count {
        match sampler.draw(rng).await? {
            Some(id) if taken.insert(id) => ids.push(id),
            Some(_) => {}
            None => break,
        }
    }
    Ok(ids)
}

/// Draws members of one set in one transaction; remembers what it has read.
struct Sampler<'a> {
    s: &'a Scope<'a>,
    oid: Oid,
    /// Stamps and sums of the buckets.
    sums: Vec<u128>,
    total: u64,
    buckets: HashMap<u8, Arc<Weights>>,
    chunks: HashMap<u64, Row>,
    /// What deltas add to chunks.
    added: HashMap<u64, Vec<u64>>,
    whole: Option<RoaringTreemap>,
}

impl<'a> Sampler<'a> {
    async fn open(s: &'a Scope<'a>, oid: Oid) -> Result<Self> {
        let keys: Vec<Vec<u8>> = (0..BUCKETS).map(|b| s.db.weight_sum(oid, b)).collect();
        let sums = get_many(s.tx, &keys, Read::Snapshot).await?;
        let stamped = |raw: &Option<Bytes>| raw.as_deref().and_then(|b| b.try_into().ok());
        let sums: Vec<u128> = sums.iter().map(|raw| stamped(raw).map_or(0, u128::from_le_bytes)).collect();
        Ok(Sampler {
            s,
            oid,
            total: sums.iter().map(|sum| *sum as u64).sum(),
            sums,
            buckets: HashMap::new(),
            chunks: HashMap::new(),
            added: HashMap::new(),
            whole: None,
        })
    }

    /// A random member; None of an empty set.
    async fn draw(&mut self, rng: &mut Rng) -> Result<Option<u64>> {
        for _ in 0..PATIENCE {
            if let Some(whole) = &self.whole {
                return Ok(whole.select(rng.below(whole.len())));
            }
            let rank = rng.below(self.total);
            if let Some(id) = self.member(rank).await? {
                return Ok(Some(id));
            }
        }
        let whole = self.whole.insert(rows::load(self.s, self.oid, 0, None).await?);
        Ok(whole.select(rng.below(whole.len())))
    }

    /// The member that `rank` among all weights stands for.
    async fn member(&mut self, mut rank: u64) -> Result<Option<u64>> {
        let mut bucket = 0;
        for sum in self.sums.iter().map(|sum| *sum as u64) {
            if rank < sum {
                break;
            }
            rank -= sum;
            bucket += 1;
        }
        let weights = self.bucket(bucket).await?;
        let at = weights.partition_point(|(_, up_to)| *up_to <= rank);
        let Some((first, _)) = weights.get(at) else { return Ok(None) };
        let before = at.checked_sub(1).and_then(|at| weights.get(at)).map_or(0, |(_, up_to)| *up_to);
        rank -= before;
        let row = self.chunk(*first).await?;
        let members = row.count()?;
        if rank >= members {
            return self.added(*first, rank - members).await;
        }
        let Some(id) = row.select(rank)? else { return Ok(None) };
        let delta = self.s.tx.get(&self.s.db.delta(self.oid, id), Read::Snapshot).await?;
        Ok(delta.is_none().then_some(id))
    }

    async fn bucket(&mut self, bucket: u8) -> Result<Arc<Weights>> {
        if let Some(weights) = self.buckets.get(&bucket) {
            return Ok(weights.clone());
        }
        let stamp = self.sums.get(usize::from(bucket)).copied().unwrap_or_default();
        let hints = &self.s.space.hints;
        let weights = match hints.weights(self.oid, bucket, stamp) {
            Some(weights) => weights,
            None => {
                let read = Arc::new(read_weights(self.s, self.oid, bucket).await?);
                hints.keep_weights(self.oid, bucket, stamp, read.clone());
                read
            }
        };
        self.buckets.insert(bucket, weights.clone());
        Ok(weights)
    }

    async fn chunk(&mut self, first: u64) -> Result<Row> {
        if let Some(row) = self.chunks.get(&first) {
            return Ok(row.clone());
        }
        let row = rows::locate(self.s, self.oid, first).await?;
        self.chunks.insert(first, row.clone());
        Ok(row)
    }

    /// The delta of `rank` among those that add to the chunk at `first`.
    async fn added(&mut self, first: u64, rank: u64) -> Result<Option<u64>> {
        if !self.added.contains_key(&first) {
            let row = self.chunk(first).await?;
            let deltas = rows::deltas(self.s, self.oid, first, row.next).await?;
            let added: Vec<u64> = deltas.into_iter().filter(|(_, adds)| *adds).map(|(id, _)| id).collect();
            if added.len() as u64 > SLACK {
                self.whole = Some(rows::load(self.s, self.oid, 0, None).await?);
                return Ok(None);
            }
            self.added.insert(first, added);
        }
        let added = self.added.get(&first);
        Ok(added.and_then(|added| added.get(usize::try_from(rank).ok()?)).copied())
    }
}

/// First ids of a bucket's chunks, and the sums of their weights.
async fn read_weights(s: &Scope<'_>, oid: Oid, bucket: u8) -> Result<Weights> {
    let mut out = Vec::new();
    let mut sum = 0;
    let mut begin = s.db.weight(oid, bucket, 0);
    let end = s.db.set_rows_end(oid, 0x10 + bucket);
    loop {
        let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
        let page = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        for (key, weight) in &page.pairs {
            let weight = weight[..].try_into().map(u64::from_le_bytes);
            let (Some(first), Ok(weight)) = (Prefix::decode_id(key), weight) else { continue };
            sum += weight;
            out.push((first, sum));
        }
        match page.pairs.last() {
            Some((key, _)) if page.more => begin = key_after(key),
            _ => return Ok(out),
        }
    }
}
