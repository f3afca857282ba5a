//! The servers of one store: which are alive, which are dead, and who takes over a dead one's work.
//!
//! ```text
//! i <instance u64 BE> -> 01 | epoch u64 LE | beat u64 LE | started ms u64 LE | at ms u64 LE
//!                        | address | version   (a text is its length u16 LE and its bytes)
//!                        `started` and `at` are for people
//! ```
//! **Silence, not time.** Servers' clocks differ, so no stored time is ever compared with a clock. A server
//! beats: it writes its row with the next `beat`. An observer adds up, by its own monotonic clock, how long
//! it has *seen* a row unchanged. Time in which it did not look (it was stopped, the store was unavailable)
//! counts as two beats at most, so that a common outage makes no server dead.
//!
//! **Alive and dead.** A server that has been silent for [`Pace::alive`] gets no share of the jobs. After
//! [`Pace::dead`], far longer than a transaction lives, any server removes its row and its lanes' rows.
//!
//! **A server may be taken for dead and come back** (it was stopped for a minute). Three rules make that
//! harmless:
//! * A lane that must know whether an attempt was applied reads its server's row in the same transaction as
//!   its slot's ([`Instances::is_current`]). The row's epoch is a number that no other registration has. A
//!   missing row or another epoch means that the slot may have been cleared: then the result cannot be known,
//!   and the client gets "unknown", never a second effect.
//! * The clearing writes the slot's key, so an attempt that began before it and is still in flight conflicts.
//! * Objects under construction are guarded by their `g` rows (`types::string::prebuild`), which builder and
//!   reclaimer both read and write.
//!
//! So correctness never depends on these times; they only decide how soon work is taken over.
//!
//! **A name belongs to one server.** It names objects and lanes (`keyspace::Fresh`). So a server registers
//! only if no row has its name, renews only a row with an epoch of its own, and never takes over another's:
//! at its start it draws another name instead ([`Instances::register`]), before it has made anything.
//!
//! **Shares of work** are assigned by rendezvous hashing over the living servers ([`Instances::owns`]). This
//! is a hint: for a few beats two servers may own one share, or none may, and every job tolerates that.

use super::{bus, fences};
use crate::env::{Clock, Env};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::store::{RangeOptions, Read, Rest, Retries, Store, Tx, prefix_end};
use arc_swap::ArcSwap;
use bytes::BufMut;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const FORMAT: u8 = 1;
/// Rows per read.
const PAGE: usize = 256;

/// How often a server beats, and what its silence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The time between two beats.
    pub beat: Duration,
    /// A server whose row changed within this time is alive.
    pub(crate) alive: Duration,
    /// A server whose row was seen unchanged for this time is dead. More than twice a transaction's longest
    /// life.
    pub dead: Duration,
}

impl Pace {
    /// One beat per second on a shared store. On an embedded store, which has one server and syncs for each
    /// beat, the beat is slower.
    pub(crate) fn of(store: &Store) -> Self {
        let beat = Duration::from_secs(if store.is_shared() { 1 } else { 10 });
        Pace { beat, alive: beat * 4, dead: beat * 15 }
    }
}

/// A server's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Drawn anew at every registration.
    pub epoch: u64,
    /// Counts the beats of the epoch.
    pub beat: u64,
    /// When it started, by its own clock: ms since the Unix epoch.
    pub started: u64,
    /// Its own clock at the last beat: ms since the Unix epoch.
    pub at: u64,
    /// The address where it listens.
    pub address: String,
    /// Its version.
    pub version: String,
}

impl Instance {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        for number in [self.epoch, self.beat, self.started, self.at] {
            out.put_u64_le(number);
        }
        for text in [&self.address, &self.version] {
            let bytes = text.as_bytes().get(..text.len().min(usize::from(u16::MAX))).unwrap_or_default();
            out.put_u16_le(bytes.len() as u16);
            out.put_slice(bytes);
        }
        out
    }

    /// Reads stored bytes.
    pub fn decode(raw: &[u8]) -> StoreResult<Self> {
        Self::parse(raw).ok_or_else(|| {
            StoreError::Corrupt(format!("a server's row of {} bytes does not decode", raw.len()))
        })
    }

    fn parse(raw: &[u8]) -> Option<Self> {
        let mut rest = raw.strip_prefix(&[FORMAT])?;
        let mut number = || {
            let (head, tail) = rest.split_first_chunk()?;
            rest = tail;
            Some(u64::from_le_bytes(*head))
        };
        let (epoch, beat, started, at) = (number()?, number()?, number()?, number()?);
        let mut text = || {
            let (len, tail) = rest.split_first_chunk()?;
            let (bytes, tail) = tail.split_at_checked(u16::from_le_bytes(*len).into())?;
            rest = tail;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let (address, version) = (text()?, text()?);
        rest.is_empty().then_some(())?;
        Some(Instance { epoch, beat, started, at, address, version })
    }
}

/// A server as seen by this one.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its name.
    pub id: u64,
    /// Its row.
    pub row: Instance,
    /// How long its row was seen unchanged.
    pub(crate) silent: Duration,
}

/// When this server last looked at the others, and what it saw.
#[derive(Default)]
struct Sightings {
    looked: Option<Duration>,
    seen: BTreeMap<u64, Seen>,
}

/// This server's registration, and its view of the others.
pub struct Instances {
    id: u64,
    store: Store,
    clock: Clock,
    pace: Pace,
    own: Mutex<Instance>,
    /// 0 while not registered.
    epoch: AtomicU64,
    /// The epoch of a registration with an unknown result; 0: none. No attempt has begun under it.
    claim: AtomicU64,
    /// Allows one beat at a time; true once this server has left.
    left: tokio::sync::Mutex<bool>,
    view: Mutex<Sightings>,
    living: ArcSwap<Vec<u64>>,
}

impl Instances {
    /// The server `id`, not registered yet; until it has looked, it considers itself alone.
    pub(crate) fn new(store: &Store, env: &Env, id: u64) -> Self {
        let own = Instance {
            epoch: 0,
            beat: 0,
            started: env.clock.now_ms(),
            at: 0,
            address: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Instances {
            id,
            store: store.clone(),
            clock: env.clock.clone(),
            pace: Pace::of(store),
            own: Mutex::new(own),
            epoch: AtomicU64::new(0),
            claim: AtomicU64::new(0),
            left: tokio::sync::Mutex::default(),
            view: Mutex::default(),
            living: ArcSwap::from_pointee(vec![id]),
        }
    }

    /// The times in use.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// This server's name.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sets the address where this server listens; others see it from the next beat on.
    pub fn set_address(&self, address: String) {
        self.own.lock().address = address;
    }

    /// The registration under which an attempt begins: read it before the attempt's transaction begins.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Writes this server's row with the next beat. If it has no row, registers it (again) with the epoch
    /// `fresh`, a number never used before. Does nothing once this server has left. Fails if the row is
    /// another server's.
    pub(crate) async fn beat(&self, fresh: u64) -> StoreResult<()> {
        if self.register(fresh).await? {
            return Ok(());
        }
        let id = format!("{:016x}", self.id);
        tracing::error!(id, "another server has registered under this server's id: restart this server");
        Err(StoreError::Unavailable(format!(
            "another server has registered under the id {id}: restart this server"
        )))
    }

    /// Like [`Instances::beat`]. False if the row is another server's: this one must not make anything under
    /// the name.
    pub(crate) async fn register(&self, fresh: u64) -> StoreResult<bool> {
        let left = self.left.lock().await;
        if *left {
            return Ok(true);
        }
        // The row shows whether an attempt was applied: the next attempt reads it.
        let mut retries = Retries::endless().idempotent();
        loop {
            match self.try_beat(fresh).await {
                Err(e) => retries.on_error(e)?,
                result => return result,
            }
        }
    }

    async fn try_beat(&self, fresh: u64) -> StoreResult<bool> {
        let tx = self.store.begin();
        let key = root::instance(self.id);
        let mut own = self.own.lock().clone();
        match tx.get(&key, Read::Serializable).await? {
            Some(raw) => {
                let stored = Instance::decode(&raw)?;
                let own_epochs = [&self.epoch, &self.claim].map(|epoch| epoch.load(Ordering::Acquire));
                if stored.epoch == 0 || !own_epochs.contains(&stored.epoch) {
                    return Ok(false);
                }
                (own.epoch, own.beat) = (stored.epoch, stored.beat.wrapping_add(1));
            }
            None => {
                // An unresolved earlier claim is kept: its epoch must be recognised if that attempt turns out
                // to be applied.
                let claim = self.claim.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
                (own.epoch, own.beat) = (claim.map_or_else(|claimed| claimed, |_| fresh), 0);
            }
        }
        own.at = self.clock.now_ms();
        tx.set(&key, &own.encode())?;
        tx.commit().await?;
        self.epoch.store(own.epoch, Ordering::Release);
        self.claim.store(0, Ordering::Release);
        Ok(true)
    }

    /// Whether this server is still registered under `epoch`, read serializably: then its rows have not been
    /// cleared.
    pub(crate) async fn is_current(&self, tx: &Tx, epoch: u64) -> StoreResult<bool> {
        let row = tx.get(&root::instance(self.id), Read::Serializable).await?;
        let stored = row.as_deref().map(Instance::decode).transpose()?;
        Ok(stored.is_some_and(|row| row.epoch == epoch))
    }

    /// Removes this server's row and its lanes' rows: a clean stop, after its last transaction. Later beats
    /// do nothing.
    pub async fn leave(&self) -> StoreResult<()> {
        let mut left = self.left.lock().await;
        *left = true;
        let mut retries = Retries::endless().idempotent();
        loop {
            match self.try_leave().await {
                Err(e) => retries.on_error(e)?,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn try_leave(&self) -> StoreResult<()> {
        let tx = self.store.begin();
        clear(&tx, self.id).await?;
        tx.commit().await.map(drop)
    }

    /// Reads all rows and adds up silence. Returns the servers that are dead now.
    pub async fn observe(&self) -> StoreResult<Vec<Seen>> {
        let before = self.clock.monotonic();
        let rows = read(&self.store.begin()).await?;
        let mut view = self.view.lock();
        let passed = view.looked.map_or(Duration::ZERO, |at| before.saturating_sub(at));
        let step = passed.min(self.pace.beat * 2);
        let before = std::mem::take(&mut view.seen);
        for (id, row) in rows {
            let same = before.get(&id).filter(|old| (old.row.epoch, old.row.beat) == (row.epoch, row.beat));
            let silent = same.map_or(Duration::ZERO, |old| old.silent + step);
            view.seen.insert(id, Seen { id, row, silent });
        }
        view.looked = Some(self.clock.monotonic());
        let is_living = |s: &&Seen| s.id != self.id && s.silent < self.pace.alive;
        let living = view.seen.values().filter(is_living).map(|s| s.id).chain([self.id]).collect();
        self.living.store(Arc::new(living));
        let is_dead = |s: &&Seen| s.id != self.id && s.silent >= self.pace.dead;
        Ok(view.seen.values().filter(is_dead).cloned().collect())
    }

    /// All servers as last seen, by name.
    pub fn seen(&self) -> Vec<Seen> {
        self.view.lock().seen.values().cloned().collect()
    }

    /// Number of living servers, this one included.
    pub fn living(&self) -> usize {
        self.living.load().len()
    }

    /// Whether piece `unit` of `job` belongs to this server, as far as it knows. A hint.
    pub fn owns(&self, job: &str, unit: u64) -> bool {
        let seed = xxh3_64_with_seed(job.as_bytes(), unit);
        let weight = |id: u64| xxh3_64_with_seed(&id.to_le_bytes(), seed);
        let own = (weight(self.id), self.id);
        self.living.load().iter().all(|id| (weight(*id), *id) <= own)
    }

    /// Removes the rows of a server that [`Instances::observe`] found dead, if its row has not changed since.
    pub async fn bury(&self, dead: &Seen) -> StoreResult<bool> {
        let tx = self.store.begin();
        let row = tx.get(&root::instance(dead.id), Read::Serializable).await?;
        if row.as_deref().map(Instance::decode).transpose()?.as_ref() != Some(&dead.row) {
            return Ok(false);
        }
        clear(&tx, dead.id).await?;
        tx.commit().await.map(|_| true)
    }

    /// Removes the lanes' rows of servers without a row, left by commits that came after the burial. Returns
    /// the number of such servers.
    pub async fn bury_orphans(&self) -> StoreResult<usize> {
        let (mut from, end) = root::lanes();
        let mut buried = 0;
        loop {
            let tx = self.store.begin();
            let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
            let first = tx.get_range(&from, &end, opts, Read::Snapshot).await?;
            let Some(id) = first.pairs.first().and_then(|(key, _)| root::decode_lane(key)) else { break };
            if tx.get(&root::instance(id), Read::Serializable).await?.is_none() {
                clear(&tx, id).await?;
                tx.commit().await?;
                buried += 1;
            }
            from = prefix_end(&root::lanes_of(id));
        }
        Ok(buried)
    }
}

/// All servers' rows.
pub(super) async fn read(tx: &Tx) -> StoreResult<Vec<(u64, Instance)>> {
    let (begin, end) = root::instances();
    let (mut rest, mut out) = (Rest::of((begin.to_vec(), end.to_vec())), Vec::new());
    let opts = RangeOptions { limit: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(tx, opts, Read::Snapshot).await? {
        for (key, raw) in &page {
            let id = root::decode_instance(key)
                .ok_or_else(|| StoreError::Corrupt("a server's row has an invalid key".into()))?;
            out.push((id, Instance::decode(raw)?));
        }
    }
    Ok(out)
}

/// The names of all servers that have a row.
pub(crate) async fn registered(tx: &Tx) -> StoreResult<Vec<u64>> {
    Ok(read(tx).await?.into_iter().map(|(id, _)| id).collect())
}

async fn clear(tx: &Tx, id: u64) -> StoreResult<()> {
    tx.clear(&root::instance(id))?;
    bus::forget(tx, id).await?;
    fences::forget(tx, id)?;
    let lanes = root::lanes_of(id);
    tx.clear_range(&lanes, &prefix_end(&lanes))
}

/// Whether server `id` has a row in `tx`, read serializably.
pub(crate) async fn is_registered(tx: &Tx, id: u64) -> StoreResult<bool> {
    Ok(tx.get(&root::instance(id), Read::Serializable).await?.is_some())
}
