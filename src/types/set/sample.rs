//! Random members for SPOP and SRANDMEMBER: uniform for every encoding and any number of pending deltas.
//!
//! In a chunked set, a draw selects a weight bucket by its sum, then a chunk in it by its weight, then a rank
//! below that weight:
//! * a rank below the number of the chunk's members selects the member of that rank, unless a delta removed
//!   it;
//! * a higher rank counts the deltas under the chunk that add a member;
//! * a rank without a member is rejected, and the whole draw is repeated.
//!
//! So each member has the same chance in each draw, as long as at most [`rows::SLACK`] deltas add to one
//! chunk (folds ensure that). If a draw meets more of them, or too many draws are rejected, the set is read
//! whole.
//!
//! Nearly all ranks are of the first kind, and those read no range: one point read for the chunk, and one for
//! the delta. Reading all deltas of the chunk instead took 0.8 to 1.6 ms per draw on the embedded engine,
//! nearly all of it for tombstones. The weights of a bucket are remembered until its stamp changes.
//!
//! Reads are snapshots, except for those of the delta keys of what is drawn (SRANDMEMBER of more than `MANY` conflicts on N
//! instead). The other members affect the answer only through their number, which no Redis client can tell from chance.
//!
//! What a draw has read serves the next command of its transaction too ([`Memo`]).

use super::chunk::Row;
use super::chunked::{self, look};
use super::rows::{self, BUCKETS, SLACK};
use super::small::Small;
use super::stream::Members;
use super::{Set, put_small};
use crate::env::Rng;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::dictionary::hints::Weights;
use crate::keyspace::dictionary::resolve::resolve_some;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Rest};
use crate::types::memo::Memo;
use crate::types::object::{self, Slot};
use crate::types::set::SetRep;
use bytes::Bytes;
use futures_util::future::try_join;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rejected draws before the set is read whole.
const PATIENCE: u32 = 1024;
/// A sample of more than one member in this many reads the set whole.
const LARGE_SHARE: u64 = 4;
/// More members than this are not looked up one by one.
const MANY: usize = 1024;
/// Short steps between two yields to other tasks: a fraction of a millisecond.
const STEPS: u64 = 8192;

/// The members drawn. They share the memory they were drawn from: nothing is copied until they are sent.
#[derive(Debug)]
pub enum Drawn {
    /// Members in memory.
    Members(Vec<Bytes>),
    /// The members at these places of the list.
    Picked(Vec<Bytes>, Vec<u16>),
    /// Members by id.
    Ids {
        /// In the order of the draws.
        ids: Vec<u64>,
        /// Whether the answer is a set, without duplicates.
        as_set: bool,
    },
}

impl Drawn {
    /// The number of members drawn.
    pub fn len(&self) -> usize {
        match self {
            Drawn::Members(members) => members.len(),
            Drawn::Picked(_, places) => places.len(),
            Drawn::Ids { ids, .. } => ids.len(),
        }
    }

    /// True if no member was drawn.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub async fn members(self, s: &Scope<'_>) -> Result<Vec<Bytes>> {
        self.members_within(s, usize::MAX / 2).await
    }

    /// All of them if they take at most `bytes`, else [`StoreError::ReplyTooLarge`].
    pub(crate) async fn members_within(self, s: &Scope<'_>, bytes: usize) -> Result<Vec<Bytes>> {
        let (ids, mut members) = match self {
            Drawn::Members(members) => (Vec::new(), members),
            Drawn::Picked(from, places) => {
                let picked = || places.iter().filter_map(|place| from.get(usize::from(*place)));
                let size = picked().map(Bytes::len).sum::<usize>();
                if size > bytes {
                    return Err(StoreError::ReplyTooLarge(size).into());
                }
                (Vec::new(), picked().cloned().collect())
            }
            Drawn::Ids { ids, .. } => (ids, Vec::new()),
        };
        let mut held = members.iter().map(Bytes::len).sum::<usize>();
        let mut some = Packed::default();
        let mut rest = ids.as_slice();
        while !rest.is_empty() && held <= bytes {
            some.clear();
            resolve_some(s.tx, rest, (bytes - held + 1).min(rows::PAGE), &mut some).await?;
            held += some.size();
            rest = rest.get(some.len()..).unwrap_or_default();
            members.extend(some.iter().map(Bytes::copy_from_slice));
        }
        if held > bytes { Err(StoreError::ReplyTooLarge(held).into()) } else { Ok(members) }
    }

    /// The members, to be read while they are sent, or the members themselves if they are in memory. The
    /// transaction that drew them must be within its maximum age.
    pub(crate) async fn stream(self, s: &Scope<'_>) -> Result<std::result::Result<Members, Vec<Bytes>>> {
        let running = || s.space.sending.begin();
        Ok(match self {
            Drawn::Members(members) => Err(members),
            Drawn::Picked(from, places) => Ok(Members::picked(running(), from, places)),
            Drawn::Ids { ids, as_set } => {
                Ok(Members::drawn(running(), s.tx.generation().await?, ids, as_set))
            }
        })
    }
}

/// Up to `count` distinct random members.
pub async fn distinct(
    s: &Scope<'_>,
    rep: Option<&SetRep>,
    count: u64,
    rng: &mut Rng,
    memo: &Memo,
) -> Result<Drawn> {
    match Set::of(rep)? {
        Set::Small(small) => Ok(Drawn::Members(choose_small(&small, count, rng))),
        Set::Chunked(oid) => {
            let ids = draw_distinct(s, oid, count, rng, Read::Serializable, memo).await?;
            Ok(Drawn::Ids { ids, as_set: false })
        }
    }
}

/// Exactly `count` random members, with repetitions; none if the set is empty.
pub async fn repeated(
    s: &Scope<'_>,
    rep: Option<&SetRep>,
    count: u64,
    rng: &mut Rng,
    memo: &Memo,
) -> Result<Drawn> {
    match Set::of(rep)? {
        Set::Small(small) => {
            let members = small.members();
            let times = if members.is_empty() { 0 } else { count };
            let mut places = Vec::new();
            for n in 0..times {
                places.push(rng.below(members.len() as u64) as u16);
                breathe(n).await;
            }
            Ok(Drawn::Picked(members, places))
        }
        Set::Chunked(oid) => {
            let ids = draw_repeated(s, oid, count, rng, memo).await?;
            Ok(Drawn::Ids { ids, as_set: false })
        }
    }
}

/// Yields to other tasks now and then in a loop of short steps; `n` is the step's number.
async fn breathe(n: u64) {
    if n % STEPS == STEPS - 1 {
        tokio::task::yield_now().await;
    }
}

/// Conflicts with the removal of any of these members. For many members it conflicts with every change of the
/// set: looking up each takes longer than drawing them.
async fn rely_on(s: &Scope<'_>, oid: Oid, ids: &[u64]) -> Result<()> {
    if ids.len() > MANY {
        object::count(s, oid, Read::Serializable).await?;
    } else {
        look(s, oid, &sorted(ids), Read::Serializable).await?;
    }
    Ok(())
}

/// Whether each of so many draws should read its delta serializably; otherwise [`rely_on`] what was drawn.
fn conflicts_apart(count: u64, read: Read) -> Read {
    if count > MANY as u64 { Read::Snapshot } else { read }
}

async fn draw_repeated(s: &Scope<'_>, oid: Oid, count: u64, rng: &mut Rng, memo: &Memo) -> Result<Vec<u64>> {
    let mut sampler = Sampler::of(s, oid, memo).await?;
    let mut drawn = Vec::new();
    if count > MANY as u64 && count > sampler.len / LARGE_SHARE {
        let all = ascending(&rows::load(s, oid, 0, None).await?).await;
        let times = if all.is_empty() { 0 } else { count };
        for n in 0..times {
            drawn.extend(all.get(rng.below(all.len() as u64) as usize));
            breathe(n).await;
        }
        rely_on(s, oid, &drawn).await?;
        return Ok(drawn);
    }
    let read = conflicts_apart(count, Read::Serializable);
    for _ in 0..count {
        drawn.extend(sampler.draw(s, rng, read).await?);
    }
    if read == Read::Snapshot {
        rely_on(s, oid, &drawn).await?;
    }
    memo.keep_sampler(s, oid, sampler);
    Ok(drawn)
}

async fn ascending(ids: &RoaringTreemap) -> Vec<u64> {
    let mut all = Vec::with_capacity(ids.len() as usize);
    for (n, id) in (0..).zip(ids) {
        all.push(id);
        breathe(n).await;
    }
    all
}

/// Removes and returns up to `count` random members; the key goes with the last one.
pub async fn pop(s: &Scope<'_>, slot: &mut Slot, count: u64, rng: &mut Rng) -> Result<Drawn> {
    match Set::of(slot.set()?)? {
        Set::Small(mut small) => {
            let popped = choose_small(&small, count, rng);
            for member in &popped {
                small.remove(member);
            }
            if !popped.is_empty() {
                put_small(s, slot, &small)?;
            }
            Ok(Drawn::Members(popped))
        }
        Set::Chunked(oid) => {
            // The removal looks at each of them.
            let ids = draw_distinct(s, oid, count, rng, Read::Snapshot, &Memo::default()).await?;
            chunked::remove(s, slot, oid, &ids).await?;
            Ok(Drawn::Ids { ids, as_set: true })
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

/// `count` random `items`, or all of them in order if there are no more.
fn choose<T>(mut items: Vec<T>, count: u64, rng: &mut Rng) -> Vec<T> {
    if count < items.len() as u64 {
        rng.shuffle(&mut items);
        items.truncate(count as usize);
    }
    items
}

/// Up to `count` distinct ids. `read`: whether to conflict with the removal of any of them.
async fn draw_distinct(
    s: &Scope<'_>,
    oid: Oid,
    count: u64,
    rng: &mut Rng,
    read: Read,
    memo: &Memo,
) -> Result<Vec<u64>> {
    let mut sampler = Sampler::of(s, oid, memo).await?;
    if count > sampler.len / LARGE_SHARE {
        let ids = pick(s, oid, count, sampler.len, rng).await?;
        if read == Read::Serializable {
            rely_on(s, oid, &ids).await?;
        }
        return Ok(ids);
    }
    let apart = conflicts_apart(count, read);
    let mut taken = BTreeSet::new();
    let (mut ids, mut again) = (Vec::new(), 0);
    while (ids.len() as u64) < count {
        match sampler.draw(s, rng, apart).await? {
            Some(id) if count == 1 || taken.insert(id) => {
                ids.push(id);
                again = 0;
            }
            // At most a quarter of the members is drawn: chance does not repeat so often.
            Some(_) if again < PATIENCE => again += 1,
            Some(_) => return Err(StoreError::Corrupt("a set has fewer members than it says".into()).into()),
            None => break,
        }
    }
    if apart != read {
        rely_on(s, oid, &ids).await?;
    }
    memo.keep_sampler(s, oid, sampler);
    Ok(ids)
}

/// `count` of the ids of a set of `len`, which are read whole.
async fn pick(s: &Scope<'_>, oid: Oid, count: u64, len: u64, rng: &mut Rng) -> Result<Vec<u64>> {
    if count >= len {
        return Ok(ascending(&chunked::all(s, oid).await?).await);
    }
    let mut all = ascending(&rows::load(s, oid, 0, None).await?).await;
    let len = all.len() as u64;
    for n in 0..count.min(len) {
        all.swap(n as usize, (n + rng.below(len - n)) as usize);
        breathe(n).await;
    }
    all.truncate(count as usize);
    Ok(all)
}

/// Draws members of one set in one transaction and remembers what it has read.
#[derive(Debug)]
pub(crate) struct Sampler {
    oid: Oid,
    len: u64,
    /// Stamps and sums of the buckets.
    sums: Vec<u128>,
    total: u64,
    buckets: BTreeMap<u8, Arc<Weights>>,
    chunks: BTreeMap<u64, Row>,
    /// By chunk, the ids that deltas add.
    added: BTreeMap<u64, Vec<u64>>,
    whole: Option<RoaringTreemap>,
}

impl Sampler {
    /// That of the set, new or of the transaction's last command.
    async fn of(s: &Scope<'_>, oid: Oid, memo: &Memo) -> Result<Self> {
        match memo.take_sampler(s, oid) {
            Some(kept) => Ok(kept),
            None => Box::pin(Self::open(s, oid)).await,
        }
    }

    async fn open(s: &Scope<'_>, oid: Oid) -> Result<Self> {
        let keys: Vec<Vec<u8>> = (0..BUCKETS).map(|b| s.db.weight_sum(oid, b)).collect();
        let sums = async { get_many(s.tx, &keys, Read::Snapshot).await.map_err(Into::into) };
        let (count, sums) = try_join(object::count(s, oid, Read::Snapshot), sums).await?;
        let stamped = |raw: &Option<Bytes>| raw.as_deref().and_then(|b| b.try_into().ok());
        let sums: Vec<u128> = sums.iter().map(|raw| stamped(raw).map_or(0, u128::from_le_bytes)).collect();
        let total = sums.iter().map(|sum| *sum as u64).sum();
        let (buckets, chunks, added, whole) = Default::default();
        Ok(Sampler { oid, len: count.cardinality(), sums, total, buckets, chunks, added, whole })
    }

    /// A random member; None if the set is empty. `read`: the mode for its delta.
    async fn draw(&mut self, s: &Scope<'_>, rng: &mut Rng, read: Read) -> Result<Option<u64>> {
        for _ in 0..PATIENCE {
            if self.whole.is_some() {
                break;
            }
            let rank = rng.below(self.total);
            if let Some(id) = self.member(s, rank, read).await? {
                return Ok(Some(id));
            }
        }
        if self.whole.is_none() {
            self.whole = Some(rows::load(s, self.oid, 0, None).await?);
        }
        let drawn = self.whole.as_ref().and_then(|whole| whole.select(rng.below(whole.len())));
        self.rely(s, drawn, read).await
    }

    /// Reads the delta of an id for the sake of the conflict.
    async fn rely(&self, s: &Scope<'_>, drawn: Option<u64>, read: Read) -> Result<Option<u64>> {
        if let (Some(id), Read::Serializable) = (drawn, read) {
            s.tx.get_among(&s.db.delta(self.oid, id), rows::CONTAINER_TAIL, read).await?;
        }
        Ok(drawn)
    }

    /// The member at `rank` among all weights.
    async fn member(&mut self, s: &Scope<'_>, mut rank: u64, read: Read) -> Result<Option<u64>> {
        let mut bucket = 0;
        for sum in self.sums.iter().map(|sum| *sum as u64) {
            if rank < sum {
                break;
            }
            rank -= sum;
            bucket += 1;
        }
        let weights = self.bucket(s, bucket).await?;
        let at = weights.partition_point(|(_, up_to)| *up_to <= rank);
        let Some((first, _)) = weights.get(at) else { return Ok(None) };
        let before = at.checked_sub(1).and_then(|at| weights.get(at)).map_or(0, |(_, up_to)| *up_to);
        rank -= before;
        let row = self.chunk(s, *first).await?;
        let members = row.count()?;
        if rank >= members {
            let drawn = self.added(s, *first, rank - members).await?;
            return self.rely(s, drawn, read).await;
        }
        let Some(id) = row.select(rank)? else { return Ok(None) };
        let delta = s.tx.get_among(&s.db.delta(self.oid, id), rows::CONTAINER_TAIL, read).await?;
        Ok(delta.is_none().then_some(id))
    }

    async fn bucket(&mut self, s: &Scope<'_>, bucket: u8) -> Result<Arc<Weights>> {
        if let Some(weights) = self.buckets.get(&bucket) {
            return Ok(weights.clone());
        }
        let stamp = self.sums.get(usize::from(bucket)).copied().unwrap_or_default();
        let hints = &s.space.hints;
        let weights = match hints.weights(self.oid, bucket, stamp) {
            Some(weights) => weights,
            None => {
                let read = Arc::new(read_weights(s, self.oid, bucket).await?);
                hints.keep_weights(self.oid, bucket, stamp, read.clone());
                read
            }
        };
        self.buckets.insert(bucket, weights.clone());
        Ok(weights)
    }

    async fn chunk(&mut self, s: &Scope<'_>, first: u64) -> Result<Row> {
        if let Some(row) = self.chunks.get(&first) {
            return Ok(row.clone());
        }
        let row = rows::locate(s, self.oid, first).await?;
        self.chunks.insert(first, row.clone());
        Ok(row)
    }

    /// The id at `rank` among the deltas that add to the chunk at `first`.
    async fn added(&mut self, s: &Scope<'_>, first: u64, rank: u64) -> Result<Option<u64>> {
        if !self.added.contains_key(&first) {
            let row = self.chunk(s, first).await?;
            let deltas = rows::deltas(s, self.oid, first, row.next).await?;
            let added: Vec<u64> = deltas.into_iter().filter(|(_, adds)| *adds).map(|(id, _)| id).collect();
            if added.len() as u64 > SLACK {
                self.whole = Some(rows::load(s, self.oid, 0, None).await?);
                return Ok(None);
            }
            self.added.insert(first, added);
        }
        let added = self.added.get(&first);
        Ok(added.and_then(|added| added.get(usize::try_from(rank).ok()?)).copied())
    }
}

/// The first ids of a bucket's chunks, and the running sums of their weights.
async fn read_weights(s: &Scope<'_>, oid: Oid, bucket: u8) -> Result<Weights> {
    let mut out = Vec::new();
    let mut sum = 0;
    let mut rest = Rest::of((s.db.weight(oid, bucket, 0), s.db.set_rows_end(oid, 0x10 + bucket)));
    let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(s.tx, opts, Read::Snapshot).await? {
        for (key, weight) in &page {
            let weight = weight[..].try_into().map(u64::from_le_bytes);
            let (Some(first), Ok(weight)) = (Prefix::decode_id(key), weight) else { continue };
            sum += weight;
            out.push((first, sum));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::exec::fixtures::World;

    /// Hazard: a number of members that is too large makes a draw of distinct ones endless.
    #[tokio::test]
    async fn a_set_of_fewer_members_than_it_says_fails() {
        let w = World::new().await;
        let tx = w.server.store.begin();
        let s = w.server.space.scope(&tx, w.db);
        let (rep, _) = chunked::create_from_ids(&s, [3, 5].into_iter().collect()).unwrap();
        let SetRep::Chunked(oid) = rep else { panic!("{rep:?}") };
        let (mut rng, memo) = (Rng::seeded(1), Memo::default());
        assert_eq!(distinct(&s, Some(&rep), 2, &mut rng, &memo).await.unwrap().len(), 2);
        tx.add(&s.db.count(oid), &object::Count::step(98)).unwrap();
        let drawn = distinct(&s, Some(&rep), 3, &mut rng, &memo).await;
        assert!(matches!(drawn, Err(Error::Store(StoreError::Corrupt(_)))), "{drawn:?}");
    }
}
