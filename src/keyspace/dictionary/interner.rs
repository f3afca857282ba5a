//! Gives members their ids.
//!
//! * An id is handed out from memory once, from a block that this server has leased ([`super::leases`]); an
//!   abort or a crash leaves gaps.
//! * The ids of one call are taken together, so that members added together are neighbours in a bitmap.
//! * Two transactions that intern one member both read its `f` row serializably: the second to commit fails,
//!   runs again and finds the id. Long members share an `f` row by hash; `b` tells them apart.
//! * A `b` row never changes while anything still asks for it, so `b` rows are read as snapshots and written
//!   without a write conflict.
//! * An id may be a candidate ([`super::candidates`]): the collector of the dictionary (`types::set::collect`)
//!   removes it unless a transaction that gives the member to a set revives it first. [`Interner::intern`]
//!   does. An id that was only looked up ([`Interner::find`]) must therefore not be given to a set.
//!
//! Leases are kept in a few stripes, each with its own block. A caller takes the first free stripe, so
//! sequential callers share a block, and concurrent callers do not wait for each other, not even for a lease.

use super::backpressure;
use super::candidates::Candidates;
use super::collector::Round;
use super::forward::ids_of_row;
use super::ids::{MAX_MEMBER, integer_id};
use super::leases::{Lease, lease};
use super::members;
use crate::env::{Env, Rng};
use crate::error::{ReplyError, Result, StoreError};
use crate::keyspace::keys::{MAX_INLINE_MEMBER, root};
use crate::keyspace::reads::{FEW, get_many};
use crate::store::{MAX_TRANSACTION, Read, Store, Tx};
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRIPES: usize = 4;
/// A call with at least this many members looks them up together, and is treated as a load, whose new members are not expected to be
/// read one by one soon.
const BULK: usize = 32;

/// An id, and whether this call made it: then no set can hold it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interned {
    /// The id.
    pub id: u64,
    /// True if the member had no id before.
    pub fresh: bool,
}

/// The dictionary's entry for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its id.
    pub(crate) id: u64,
    /// True if the collector may be about to remove it.
    pub(crate) is_candidate: bool,
}

struct Stripe {
    lease: Lease,
    rng: Rng,
}

/// Hands out ids from leased blocks and interns members.
pub struct Interner {
    store: Store,
    stripes: Vec<Mutex<Stripe>>,
    candidates: Candidates,
    /// Ids that are leased but not handed out yet.
    spare: AtomicU64,
    /// Seeds hashes that attackers must not be able to predict.
    seed: u64,
}

impl Interner {
    /// An interner on `store`; leases nothing yet.
    pub fn new(store: Store, env: &Env) -> Self {
        let stripe = |_| Mutex::new(Stripe { lease: Lease::default(), rng: env.rng() });
        let seed = env.secret(8).and_then(|raw| raw.try_into().ok()).map_or(0, u64::from_le_bytes);
        let stripes = (0..STRIPES).map(stripe).collect();
        Interner { store, stripes, candidates: Candidates::default(), spare: AtomicU64::new(0), seed }
    }

    /// `n` ids never handed out before, ascending and consecutive within a block. They are for `tx`, or for
    /// another transaction of its generation. [`StoreError::TooOld`] if the store has begun another
    /// generation since `tx` began, or did not tell whether it leased a block: `tx` must end then.
    pub async fn take(&self, tx: &Tx, n: usize) -> Result<Vec<u64>> {
        let mut ids = Vec::with_capacity(n);
        if n == 0 {
            return Ok(ids);
        }
        let generation = tx.generation().await?;
        let mut stripe = self.stripe().await;
        while ids.len() < n {
            if stripe.lease.left() == 0 || stripe.lease.generation < generation {
                let lease = lease(&self.store, &mut stripe.rng).await?;
                self.spare.fetch_sub(stripe.lease.left(), Ordering::Relaxed);
                self.spare.fetch_add(lease.left(), Ordering::Relaxed);
                stripe.lease = lease;
            }
            if stripe.lease.generation > generation {
                return Err(StoreError::TooOld.into());
            }
            let end = stripe.lease.end.min(stripe.lease.next + (n - ids.len()) as u64);
            ids.extend(stripe.lease.next..end);
            self.spare.fetch_sub(end - stripe.lease.next, Ordering::Relaxed);
            stripe.lease.next = end;
        }
        Ok(ids)
    }

    /// Ids that this server has leased but not handed out yet.
    pub(crate) fn spare(&self) -> u64 {
        self.spare.load(Ordering::Relaxed)
    }

    /// The first free stripe; if all are held, the first one, after waiting for it.
    async fn stripe(&self) -> MutexGuard<'_, Stripe> {
        loop {
            if let Some(free) = self.stripes.iter().find_map(|s| s.try_lock().ok()) {
                return free;
            }
            if let Some(first) = self.stripes.first() {
                return first.lock().await;
            }
        }
    }

    /// The ids of `members`, in order; members that have none get one. `round`: as `tx` reads it. Before
    /// anything is written, it refuses a member that is too long, or (as [`StoreError::TooLarge`]) more new
    /// members than fit in a transaction.
    pub async fn intern(&self, tx: &Tx, round: Round, members: &[Bytes]) -> Result<Vec<Interned>> {
        check_length(members)?;
        let known = self.lookup(tx, members).await?;
        if known.iter().any(Option::is_none) {
            return Box::pin(self.intern_new(tx, round, members, known)).await;
        }
        self.revive(tx, round, known.iter().copied().flatten()).await?;
        Ok(known.into_iter().flatten().map(|id| Interned { id, fresh: false }).collect())
    }

    /// Gives an id to each of `members` without one among the `known`.
    async fn intern_new(
        &self,
        tx: &Tx,
        round: Round,
        members: &[Bytes],
        known: Vec<Option<u64>>,
    ) -> Result<Vec<Interned>> {
        let new = members.iter().zip(&known).filter(|(_, id)| id.is_none()).map(|(m, _)| m).collect();
        let (new, places) = distinct(new, self.seed);
        check_room(&new)?;
        let ids = self.take(tx, new.len()).await?;
        self.write(tx, &new, &ids).await?;
        backpressure::made(ids.len());
        self.revive(tx, round, known.iter().copied().flatten()).await?;
        let mut fresh = places.into_iter().filter_map(|place| ids.get(place).copied());
        let interned = known.into_iter().filter_map(|known| match known {
            Some(id) => Some(Interned { id, fresh: false }),
            None => Some(Interned { id: fresh.next()?, fresh: true }),
        });
        Ok(interned.collect())
    }

    /// Keeps the collector from removing those of `ids` that are candidates. The row of a revived id stays
    /// as long as the candidates do, so it is not written again: an id that is given to many sets makes the
    /// collector conflict once.
    async fn revive(&self, tx: &Tx, round: Round, ids: impl Iterator<Item = u64> + Clone) -> Result<()> {
        if !round.has_candidates() {
            return Ok(());
        }
        let candidates = Box::pin(self.candidates.among(tx, round, ids)).await?;
        let keys: Vec<[u8; 10]> = candidates.iter().map(root::revived).collect();
        let rows = Box::pin(get_many(tx, &keys, Read::Snapshot)).await?;
        for (key, _) in keys.iter().zip(rows).filter(|(_, row)| row.is_none()) {
            tx.set(key, &[])?;
        }
        Ok(())
    }

    /// The ids of those `members` that have one. Writes nothing.
    pub async fn find(&self, tx: &Tx, members: &[Bytes]) -> Result<Vec<Option<u64>>> {
        self.lookup(tx, members).await
    }

    /// Like [`Interner::find`], and whether they are candidates. `round`: as `tx` reads it.
    pub(crate) async fn known(&self, tx: &Tx, round: Round, members: &[Bytes]) -> Result<Vec<Option<Known>>> {
        let ids = self.lookup(tx, members).await?;
        let candidates = self.candidates.among(tx, round, ids.iter().copied().flatten()).await?;
        let known = |id| Known { id, is_candidate: candidates.contains(id) };
        Ok(ids.into_iter().map(|id| id.map(known)).collect())
    }

    /// Drops the cache of candidates; it is reloaded on demand.
    pub(in crate::keyspace) fn forget(&self) {
        self.candidates.clear();
    }

    /// The id of one member, if it has one.
    pub(crate) async fn find_one(&self, tx: &Tx, member: &Bytes) -> Result<Option<u64>> {
        if let Some(id) = integer_id(member) {
            return Ok(Some(id));
        }
        match tx.get(&root::forward(member), Read::Serializable).await? {
            Some(row) if member.len() <= MAX_INLINE_MEMBER => Ok(ids_of_row(&row).next()),
            Some(row) => Box::pin(pick(tx, member, &row)).await,
            None => Ok(None),
        }
    }

    /// Reads serializably: a transaction that takes an id from here conflicts if the collector removes it
    /// meanwhile.
    async fn lookup(&self, tx: &Tx, members: &[Bytes]) -> Result<Vec<Option<u64>>> {
        if let [only] = members {
            return Ok(vec![self.find_one(tx, only).await?]);
        }
        Box::pin(self.lookup_many(tx, members)).await
    }

    async fn lookup_many(&self, tx: &Tx, members: &[Bytes]) -> Result<Vec<Option<u64>>> {
        let mut ids: Vec<Option<u64>> = members.iter().map(|m| integer_id(m)).collect();
        let words: Vec<&Bytes> =
            members.iter().zip(&ids).filter(|(_, id)| id.is_none()).map(|(m, _)| m).collect();
        if words.is_empty() {
            return Ok(ids);
        }
        let keys: Vec<Vec<u8>> = words.iter().map(|m| root::forward(m)).collect();
        let rows = if keys.len() < BULK || tx.prefers_prefetch() {
            get_many(tx, &keys, Read::Serializable).await?
        } else {
            tx.get_bulk(&keys, Read::Serializable, keys.len() <= FEW).await?
        };
        let mut found = words.iter().zip(rows);
        for id in ids.iter_mut().filter(|id| id.is_none()) {
            if let Some((member, Some(row))) = found.next() {
                *id = pick(tx, member, &row).await?;
            }
        }
        Ok(ids)
    }

    async fn write(&self, tx: &Tx, new: &[&Bytes], ids: &[u64]) -> Result<()> {
        for (member, id) in new.iter().zip(ids) {
            let key = root::forward(member);
            if member.len() <= MAX_INLINE_MEMBER && new.len() < BULK {
                tx.set(&key, &id.to_be_bytes())?;
            } else if member.len() <= MAX_INLINE_MEMBER {
                tx.set_bulk(&key, &id.to_be_bytes())?;
            } else {
                let mut bucket = tx.get(&key, Read::Serializable).await?.unwrap_or_default().to_vec();
                bucket.extend_from_slice(&id.to_be_bytes());
                tx.set(&key, &bucket)?;
            }
        }
        members::write(tx, ids, new)?;
        Ok(())
    }
}

/// The id in a forward row that belongs to `member`.
async fn pick(tx: &Tx, member: &Bytes, row: &Bytes) -> Result<Option<u64>> {
    if member.len() <= MAX_INLINE_MEMBER {
        return Ok(ids_of_row(row).next());
    }
    for id in ids_of_row(row) {
        if members::read(tx, &[id], true).await?.first() == Some(&Some(member.clone())) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The distinct members, and for each of `members` the place of its first occurrence among them. `seed` is
/// secret, so that nobody can choose members that all have one hash.
fn distinct(members: Vec<&Bytes>, seed: u64) -> (Vec<&Bytes>, Vec<usize>) {
    let mut places = HashMap::with_capacity_and_hasher(members.len(), Seeded(seed));
    let mut firsts = Vec::with_capacity(members.len());
    let place = |member| {
        *places.entry(member).or_insert_with(|| {
            firsts.push(member);
            firsts.len() - 1
        })
    };
    let all = members.into_iter().map(place).collect();
    (firsts, all)
}

/// Hashes members: the map's default hasher took a twentieth of the cost of adding a new member.
#[derive(Clone, Copy)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = Seeded;
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Seeded {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }
    /// Ignores the length: the hash of the bytes depends on it anyway.
    fn write_usize(&mut self, _: usize) {}
}

/// Fails for a member that is too long to be interned.
pub(crate) fn check_length(members: &[Bytes]) -> Result<()> {
    match members.iter().map(Bytes::len).find(|len| *len > MAX_MEMBER) {
        None => Ok(()),
        Some(len) => Err(ReplyError::of(format!(
            "ERR a set member of {len} bytes exceeds the store's limit of {MAX_MEMBER}"
        ))
        .into()),
    }
}

/// The most bytes that interning `members` writes: two dictionary rows, read and write conflict ranges of the
/// forward one, and the member's share of a chunk, with FoundationDB's overhead per mutation and per range
/// (48 and 32 bytes beside the keys).
pub(crate) fn room<'a>(members: impl IntoIterator<Item = &'a Bytes>) -> usize {
    members.into_iter().map(|m| m.len() + 5 * m.len().min(MAX_INLINE_MEMBER) + 220).sum()
}

fn check_room(new: &[&Bytes]) -> Result<()> {
    let bytes = room(new.iter().copied());
    if bytes > MAX_TRANSACTION / 10 * 9 { Err(StoreError::TooLarge.into()) } else { Ok(()) }
}
