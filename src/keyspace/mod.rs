//! The bytes of keys and values, and the allocation of the ids and prefixes that they contain.
//!
//! ```text
//! <root>                                    fdb: a directory, local: empty
//!   m 01                 -> where           an unfinished `tern copy` into here    cluster/transfer.rs
//!   m 02                 -> 01 | bytes      the store's secret                     secret.rs
//!   a/r                                     high-contention allocator of prefixes  alloc.rs
//!   d <db u8>            -> prefix, swaps   its current prefix, number of swaps    catalog.rs
//!   q <shard u8>         -> next block      member-id leases                       dictionary/leases.rs
//!   f <member>           -> id              forward dictionary                     dictionary/forward.rs
//!   b <id BE u64>        -> member          reverse dictionary                     dictionary/members.rs
//!   e 00                 -> state           the collector's state                  dictionary/collector.rs
//!   e 01 <first id>      -> ids             candidates in a block of ids
//!   e 02 <prefix><oid>   -> empty           sets made while the collector looks for members
//!   e 03 <instance>      -> epoch           servers whose replies are done with it
//!   e 04 <id>            -> empty           candidates that came back              dictionary/candidates.rs
//!   i <instance>         -> heartbeat       servers                                cluster/instances.rs
//!   l <instance><lane>   -> batch number    exactly once
//!   g ...                                   garbage to reclaim, objects under construction
//!   p 00 <instance>      -> bits            servers that listen to messages        cluster/bus.rs
//!   p 01                 -> i64 LE          changes with every row of messages
//!   p 02                 -> key             last row of messages that was collected
//!   p 03 <stamp><n BE>   -> bytes           messages of a commit, or a piece of them
//!   p 04                 -> i64 LE          changes with every fence               cluster/fences.rs
//!   p 05 <instance><n>   -> hashes          keys that a server has fenced
//!   s 00                 -> epoch           of scripts: how often all were forgotten  scripts.rs
//!   s 01                 -> total           the number of scripts, bytes of their texts
//!   s 02 <sha1>          -> header          a script that was loaded
//!   s 03 <sha1><n BE>    -> bytes           a piece of its text
//!   s 04                 -> epoch           of libraries of functions              libraries.rs
//!   s 05 <name>          -> sha1            the digest of a library
//!   s 06 <name> 00 <n BE> -> bytes          a piece of its functions and its code
//!   t 00 <owner><len u8><id>       -> record    the reply under an id              idempotency.rs
//!   t 00 <owner><len u8><id><n BE> -> bytes     a piece of a long reply
//!   t 01 <owner>                   -> i64 LE    bytes of a user's records
//!   t 02                           -> i64 LE    bytes of all users' records
//!   t <len u8><id> (, <n BE>)                   format without owners: removed by age
//!   u <shard><ms BE><owner><id>    -> age       age index; without an owner: <id>
//! <prefix of a database>                                                           keys.rs
//!   K <xxh3-64(key) BE><key>    -> record                                          types/record.rs
//!   N <oid>                     -> i128 LE  version << 64 | cardinality
//!   C <oid><n BE u32>           -> bytes    a piece of a long string
//!   H <oid> 00 <hash><field>    -> value    a field of a hash                      types/hash/rows.rs
//!   H <oid> 01 <number><n BE>   -> bytes    a piece of its long value
//!   H <oid> 02 <ms BE><hash><field>         a field that expires                   types/hash/expiry.rs
//!   R <oid> 00 <hash><member>   -> score    a member of a sorted set               types/zset/rows.rs
//!   R <oid> 01 <score><member>  -> sign     a member by its score
//!   R <oid> 02 <level><place>   -> i64 LE   members of a range                     types/zset/counts.rs
//!   S <oid> 00 <first id BE>    -> chunk    S <oid> 01 <id BE> -> delta
//!   T <oid> 00 <id>             -> fields   an entry of a stream                   types/stream/entry.rs
//!   T <oid> 01 <id><n BE>       -> bytes    a piece of a long entry
//!   T <oid> 02 <name>           -> group    a group of consumers                   types/stream/groups.rs
//!   T <oid> 03 <group><id>      -> pending  an entry that is pending in a group    types/stream/pending.rs
//!   T <oid> 04 <group><consumer><id>        the same, by consumer
//!   T <oid> 05 <group><name>    -> consumer a consumer of a group                  types/stream/consumers.rs
//!   T <oid> 06 <group>          -> i128 LE  version << 64 | pending entries of a group
//!   T <oid> 07 <group><consumer> -> i64 LE  pending entries of a consumer
//!   X <shard><ms BE><hash><key>             expiry index
//!   Z <shard>                   -> i64 LE   number of keys
//! ```

pub mod alloc;
pub mod catalog;
pub mod cluster;
pub(crate) mod contents_cache;
pub mod dictionary;
pub mod idempotency;
pub mod keys;
pub(crate) mod libraries;
pub(crate) mod life;
pub mod packed;
pub(crate) mod range_hints;
pub(crate) mod reads;
pub(crate) mod scripts;
pub(crate) mod secret;
pub(crate) mod sending;
pub mod uncounted;
pub(crate) mod watched_absent;

use crate::config::Events;
use crate::env::{Clock, Env, Timeline};
use crate::error::{ReplyError, StoreResult};
use crate::store::{Store, Tx};
use bytes::Bytes;
use catalog::CatalogCache;
use cluster::bus::Bus;
use cluster::fences::{Fence, Fences};
use cluster::instances::Instances;
use cluster::messages::Outbox;
use contents_cache::ContentsCache;
use dictionary::backpressure::Backpressure;
use dictionary::collector::{Notes, Round};
use dictionary::hints::SetHints;
use dictionary::interner::Interner;
use dictionary::unfolded::Unfolded;
use keys::{Oid, Prefix};
use life::Life;
use range_hints::RangeHints;
use sending::Sending;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uncounted::Uncounted;
use watched_absent::WatchedAbsent;

const NOT_RANDOM: ReplyError = ReplyError::new(
    "ERR the system's random number generator does not answer: a server draws its unique id from it",
);

/// Numbers that no other object or record of the store has had.
///
/// 64 random bits name this instance and a counter names the use: two instances collide with a probability of
/// 2^-64 per pair. The bits come from the system's generator. A server that finds another server's row under
/// its name takes another name before it makes anything ([`Instances::register`]).
#[derive(Debug)]
pub struct Fresh {
    instance: u64,
    next: AtomicU64,
}

impl Fresh {
    /// A source of its own. Fails if the system provides no random numbers.
    pub(crate) fn new(env: &Env) -> crate::error::Result<Self> {
        let secret = env.secret(16).and_then(|raw| Some(u128::from_le_bytes(raw.try_into().ok()?)));
        let secret = secret.ok_or(NOT_RANDOM)?;
        Ok(Fresh { instance: (secret >> 64) as u64, next: AtomicU64::new(secret as u64) })
    }
    /// A revision that no earlier write of any record had (random start per instance).
    pub(crate) fn revision(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
    /// An object id never used before.
    pub fn oid(&self) -> Oid {
        let low = self.next.fetch_add(1, Ordering::Relaxed);
        Oid(u128::from(self.instance) << 64 | u128::from(low))
    }
    /// The instance that made an object id.
    pub(crate) fn maker(oid: Oid) -> u64 {
        (oid.0 >> 64) as u64
    }
    /// 64 bits that do not equal the sum of a few others: unlike revisions, they are not consecutive.
    pub(crate) fn stamp(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.oid().0.to_le_bytes())
    }
    /// This instance's random name.
    pub fn instance(&self) -> u64 {
        self.instance
    }
}

/// A server's knowledge of the store's layout, shared by all its transactions.
pub struct Keyspace {
    /// The engine.
    pub store: Store,
    /// Revisions and object ids.
    pub fresh: Fresh,
    secret: secret::Cached,
    /// Member ids: leases and the dictionary.
    pub ids: Interner,
    /// Database number to prefix, by metadata version.
    pub catalog: CatalogCache,
    /// Hints about chunked sets.
    pub(crate) hints: SetHints,
    /// Hints about the counted ranges of sorted sets.
    pub(crate) ranges: RangeHints,
    /// What commands returned of objects that have not changed since.
    pub(crate) contents: ContentsCache,
    /// Sets whose deltas should be folded into their chunks.
    pub(crate) unfolded: Unfolded,
    /// Watched keys that were absent.
    pub watched_absent: Arc<WatchedAbsent>,
    /// Replies that are still reading the dictionary.
    pub(crate) sending: Arc<Sending>,
    /// This server's registration, and its view of the others.
    pub instances: Instances,
    /// The activity of this server's dictionary collector.
    pub(crate) collector: Notes,
    /// Slows down commands that make members faster than the collector removes them.
    pub backpressure: Backpressure,
    /// Keys whose writers wait for a command that met too many conflicts on them.
    pub fences: Arc<Fences>,
    /// Messages to and from the other servers.
    pub bus: Bus,
    /// The clock, for leases and garbage rows.
    pub clock: Clock,
    /// The time that transactions see.
    pub(crate) timeline: Arc<Timeline>,
}

impl Keyspace {
    /// Opens the layout on `store` with `databases` databases; writes what a new store lacks.
    pub async fn open(store: Store, env: &Env, databases: u8) -> crate::error::Result<Self> {
        let catalog = CatalogCache::open(&store, env, databases).await?;
        let fresh = Fresh::new(env)?;
        let secret = secret::Cached::open(&store, env).await?;
        // A server cannot go on without these, if a later sync fails and all that was not synced is lost.
        store.sync()?;
        Ok(Keyspace {
            instances: Instances::new(&store, env, fresh.instance()),
            fences: Arc::new(Fences::new(&store, &env.clock, fresh.instance())),
            bus: Bus::new(&store, fresh.instance()),
            fresh,
            secret,
            ids: Interner::new(store.clone(), env),
            catalog,
            hints: SetHints::default(),
            ranges: RangeHints::default(),
            contents: ContentsCache::default(),
            unfolded: Unfolded::default(),
            watched_absent: Arc::default(),
            sending: Arc::new(Sending::new(env.clock.clone())),
            collector: Notes::default(),
            backpressure: Backpressure::default(),
            clock: env.clock.clone(),
            timeline: env.timeline.clone(),
            store,
        })
    }
}

impl Keyspace {
    /// A database by its prefix alone: for reads and for rows under a fresh object id, never for writing a
    /// record.
    pub fn scope<'a>(&'a self, tx: &'a Tx, db: Prefix) -> Scope<'a> {
        Scope {
            tx,
            db,
            number: 0,
            now: self.timeline.now(),
            round: Round::default(),
            space: self,
            outbox: None,
            uncounted: None,
            life: Life::default(),
        }
    }
    /// Drops everything cached from the store's rows; it is reloaded on demand.
    pub(crate) fn forget(&self) {
        self.hints.clear();
        self.ranges.clear();
        self.contents.clear();
        self.unfolded.take();
        self.backpressure.release();
        self.ids.forget();
        self.catalog.forget();
        self.secret.forget();
    }
    /// Fences keys by their hashes, for a unit that may write those in `written`.
    pub async fn fence(&self, keys: HashSet<u64>, written: HashSet<u64>) -> Fence {
        self.fences.hold(keys, written).await
    }
    /// Like [`Keyspace::fence`], but only if no fence of this server is in the way: see [`Fences::try_hold`].
    pub(crate) fn try_fence(&self, keys: HashSet<u64>, written: HashSet<u64>) -> Option<Fence> {
        self.fences.try_hold(keys, written)
    }
    /// Informs other servers of the fence of `slot`, which has no other, as far as the store answers `within` this
    /// time.
    pub(crate) async fn tell(&self, fence: &mut Fence, slot: u16, within: Duration) {
        fence.tell(&self.instances, slot, self.fresh.revision(), within).await;
    }
    /// Registers this server. False if its name belongs to another server: open it again under another name.
    pub async fn register(&self) -> StoreResult<bool> {
        self.instances.register(self.fresh.revision()).await
    }
    /// Renews this server's registration, or registers it again.
    pub async fn beat(&self) -> StoreResult<()> {
        self.instances.beat(self.fresh.revision()).await
    }
}

/// One database inside one transaction: the argument of every operation on values.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The transaction.
    pub tx: &'a Tx,
    /// The database's prefix, as this transaction reads it.
    pub db: Prefix,
    /// The database's number: WATCH follows it, whichever prefix it has.
    pub number: u8,
    /// Milliseconds since the Unix epoch: expiry is decided against this, not against a clock.
    pub now: u64,
    /// The collector's round, as this transaction reads it.
    pub round: Round,
    /// Ids and allocation.
    pub space: &'a Keyspace,
    /// Receives the events and changes of keys. None: nothing is published.
    pub outbox: Option<&'a Outbox>,
    /// Changes of sorted sets whose counts move later. None: each change moves them.
    pub uncounted: Option<&'a Uncounted>,
    /// Decides which keys are alive.
    pub life: Life<'a>,
}

impl Scope<'_> {
    /// Publishes `event`, of `class`, for `key` if this transaction commits. Every event except a miss also
    /// counts as a change of the key.
    pub(crate) fn notify(&self, class: Events, event: &'static str, key: &Bytes) {
        if let Some(outbox) = self.outbox {
            outbox.event(self.number, class, event, key);
            if class != Events::MISS {
                outbox.changed(key);
            }
        }
    }
    /// Publishes that `key` changes, without an event.
    pub(crate) fn changed(&self, key: &Bytes) {
        if let Some(outbox) = self.outbox {
            outbox.changed(key);
        }
    }
}
