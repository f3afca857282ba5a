//! Random members: SPOP and SRANDMEMBER, uniform whatever the encoding and however many deltas wait.
//!
//! A chunked set draws a weight bucket by its sum, in it a chunk by its weight, in that a rank below its weight; a rank
//! that no member has is rejected and everything drawn again. So each member has the same chance in each draw, as long
//! as every chunk's weight is at least its number of members with deltas. Where one is not (more than `SLACK`
//! deltas waited), or draws are rejected too often, the set is read whole.
//!
//! Reads are snapshots; the members drawn get read conflicts on their delta keys: the answer depends on others
//! being there only through their number, which no Redis client can tell from luck.

use super::chunked::{self, look};
use super::rows::{self, BUCKETS};
use super::small::Small;
use super::{Set, put_small};
use crate::env::Rng;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::reads::get_many;
use crate::keyspace::record::SetRep;
use crate::store::{RangeOptions, Read, key_after};
use crate::types::object::{self, Slot};
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::collections::{BTreeSet, HashMap};

/// Rejected draws before the set is read whole.
const PATIENCE: u32 = 4096;
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
    sums: Vec<u64>,
    total: u64,
    buckets: HashMap<u8, Vec<(u64, u64)>>,
    chunks: HashMap<u64, RoaringTreemap>,
    whole: Option<RoaringTreemap>,
}

impl<'a> Sampler<'a> {
    async fn open(s: &'a Scope<'a>, oid: Oid) -> Result<Self> {
        let keys: Vec<Vec<u8>> = (0..BUCKETS).map(|b| s.db.weight_sum(oid, b)).collect();
        let sums = get_many(s.tx, &keys, Read::Snapshot).await?;
        let sums: Vec<u64> = sums.iter().map(|raw| number(raw.as_deref())).collect();
        let total = sums.iter().sum();
        Ok(Sampler { s, oid, sums, total, buckets: HashMap::new(), chunks: HashMap::new(), whole: None })
    }

    /// A random member; None of an empty set.
    async fn draw(&mut self, rng: &mut Rng) -> Result<Option<u64>> {
        for _ in 0..PATIENCE {
            if let Some(whole) = &self.whole {
                return Ok(whole.select(rng.below(whole.len())));
            }
            if let Some(id) = self.try_draw(rng).await? {
                return Ok(Some(id));
            }
        }
        let whole = self.whole.insert(rows::load(self.s, self.oid, 0, None).await?);
        Ok(whole.select(rng.below(whole.len())))
    }

    async fn try_draw(&mut self, rng: &mut Rng) -> Result<Option<u64>> {
        let mut rank = rng.below(self.total);
        let mut bucket = 0;
        for sum in &self.sums {
            if rank < *sum {
                break;
            }
            rank -= sum;
            bucket += 1;
        }
        let mut first = None;
        for (chunk, weight) in self.bucket(bucket).await? {
            if rank < *weight {
                first = Some((*chunk, *weight));
                break;
            }
            rank -= weight;
        }
        let Some((first, weight)) = first else { return Ok(None) };
        let ids = self.chunk(first).await?;
        let (found, overfull) = (ids.select(rank), ids.len() > weight);
        if overfull {
            self.whole = Some(rows::load(self.s, self.oid, 0, None).await?);
            return Ok(None);
        }
        Ok(found)
    }

    async fn bucket(&mut self, bucket: u8) -> Result<&[(u64, u64)]> {
        if !self.buckets.contains_key(&bucket) {
            let weights = read_weights(self.s, self.oid, bucket).await?;
            self.buckets.insert(bucket, weights);
        }
        Ok(self.buckets.get(&bucket).map_or(&[], Vec::as_slice))
    }

    async fn chunk(&mut self, first: u64) -> Result<&RoaringTreemap> {
        if !self.chunks.contains_key(&first) {
            let chunk = rows::read_chunk(self.s, self.oid, first).await?;
            let mut ids = chunk.ids;
            rows::apply(&mut ids, &rows::deltas(self.s, self.oid, first, chunk.next).await?);
            self.chunks.insert(first, ids);
        }
        Ok(self.chunks.get(&first).ok_or_else(|| StoreError::Corrupt("chunk".into()))?)
    }
}

/// First ids and weights of a bucket's chunks.
async fn read_weights(s: &Scope<'_>, oid: Oid, bucket: u8) -> Result<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    let mut begin = s.db.weight(oid, bucket, 0);
    let end = s.db.set_rows_end(oid, 0x10 + bucket);
    loop {
        let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
        let page = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        let pairs = page.pairs.iter();
        out.extend(pairs.filter_map(|(k, v)| Some((Prefix::decode_id(k)?, number(Some(v))))));
        match page.pairs.last() {
            Some((key, _)) if page.more => begin = key_after(key),
            _ => return Ok(out),
        }
    }
}

fn number(raw: Option<&[u8]>) -> u64 {
    raw.and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
