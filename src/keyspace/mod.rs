//! The bytes of keys and values, and the allocation of what they name.
//!
//! ```text
//! <root>                                    fdb: a directory, local: empty
//!   m 01                 -> where          `tern copy` into this store is not finished               transfer.rs
//!   a/r                                     high-contention allocator (prefixes of databases)      alloc.rs
//!   d <db u8>            -> prefix          which prefix a database has now                        catalog.rs
//!   q <shard u8>         -> next block      member-id leases                                       ids.rs
//!   f <member>           -> id              forward dictionary                                     ids.rs
//!   b <id BE u64>        -> member          reverse dictionary                                     resolve.rs
//!   e 00                 -> state           where the collection of the dictionary stands          collector.rs
//!   e 01 <first id>      -> ids             candidates of a block of ids
//!   e 02 <prefix><oid>   -> empty           sets made while the collector looks for members
//!   e 03 <instance>      -> epoch           servers whose replies are done with it
//!   e 04 <id>            -> empty           candidates that came back                              condemned.rs
//!   i <instance>         -> heartbeat       servers                                                instances.rs
//!   l <instance><lane>   -> batch number    exactly once
//!   g ...                                   garbage to reclaim, objects under construction
//!   p 00 <instance>      -> bits            servers that listen to messages                        message_log.rs
//!   p 01                 -> i64 LE          changes with every row of messages
//!   p 02                 -> key             last row of messages that was collected
//!   p 03 <stamp><n BE>   -> bytes           messages of a commit, or a piece of them
//!   t <len u8><id>       -> receipt         what the command under a client's id answered          receipt.rs
//!   t <len u8><id><n BE> -> bytes           a piece of a long answer
//!   u <shard><ms BE><id> -> empty or 01     age index of receipts; 01: there are pieces
//! <prefix of a database>                                                                           keys.rs
//!   K <xxh3-64(key) BE><key>    -> record                                                          record.rs
//!   N <oid>                     -> i128 LE  version << 64 | cardinality
//!   C <oid><n BE u32>           -> bytes    a piece of a long string
//!   S <oid> 00 <first id BE>    -> chunk    S <oid> 01 <id BE> -> delta
//!   X <shard><ms BE><hash><key>             expiry index
//!   Z <shard>                   -> i64 LE   number of keys
//! ```

pub mod absent;
pub mod alloc;
pub mod brake;
pub mod catalog;
pub mod collector;
mod condemned;
pub mod hints;
pub mod ids;
pub mod instances;
pub mod keys;
pub mod members;
pub mod message_log;
pub mod messages;
pub mod packed;
pub mod reads;
pub mod receipt;
pub mod record;
pub mod resolve;
pub mod streams;
pub mod transfer;
pub mod unfolded;

use crate::config::Events;
use crate::env::{Clock, Env};
use crate::error::StoreResult;
use crate::store::{Store, Tx};
use absent::AbsentKeys;
use brake::Brake;
use bytes::Bytes;
use catalog::CatalogCache;
use collector::{Notes, Round};
use hints::SetHints;
use ids::Interner;
use instances::Instances;
use keys::{Oid, Prefix};
use message_log::MessageLog;
use messages::Outbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use streams::Streams;
use unfolded::Unfolded;

/// Numbers that no other object or record of the store has had.
///
/// 64 random bits name this instance, a counter names the use: two instances collide with probability 2^-64 a pair.
#[derive(Debug)]
pub struct Fresh {
    instance: u64,
    next: AtomicU64,
}

impl Fresh {
    /// A source of its own.
    pub fn new(env: &Env) -> Self {
        let mut rng = env.rng();
        Fresh { instance: rng.u64(), next: AtomicU64::new(rng.u64()) }
    }
    /// A revision that no earlier write of any record had (random start per instance).
    pub fn revision(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
    /// An object id never used before.
    pub fn oid(&self) -> Oid {
        let low = self.next.fetch_add(1, Ordering::Relaxed);
        Oid(u128::from(self.instance) << 64 | u128::from(low))
    }
    /// The instance that made an object id.
    pub fn maker(oid: Oid) -> u64 {
        (oid.0 >> 64) as u64
    }
    /// 64 bits that no sum of a few others of them equals: unlike revisions they are not neighbours.
    pub fn stamp(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.oid().0.to_le_bytes())
    }
    /// This instance's random name.
    pub fn instance(&self) -> u64 {
        self.instance
    }
}

/// What a server knows of the store's layout: shared by all its transactions.
pub struct Keyspace {
    /// The engine.
    pub store: Store,
    /// Revisions and object ids.
    pub fresh: Fresh,
    /// Member ids: leases and the dictionary.
    pub ids: Interner,
    /// Database number to prefix, by metadata version.
    pub catalog: CatalogCache,
    /// What this server remembers of chunked sets.
    pub hints: SetHints,
    /// Sets whose deltas are to be taken into their chunks.
    pub unfolded: Unfolded,
    /// Watched keys that were absent.
    pub absent: Arc<AbsentKeys>,
    /// Replies that still read the dictionary.
    pub streams: Arc<Streams>,
    /// This server among the others.
    pub instances: Instances,
    /// What this server's collector of the dictionary does.
    pub collector: Notes,
    /// What slows those who make more members than it removes.
    pub brake: Brake,
    /// Messages to and from the other servers.
    pub messages: MessageLog,
    /// The clock, for leases and garbage rows.
    pub clock: Clock,
}

impl Keyspace {
    /// Opens the layout on `store` with `databases` databases; writes what a new store lacks.
    pub async fn open(store: Store, env: &Env, databases: u8) -> crate::error::Result<Self> {
        let catalog = CatalogCache::open(&store, env, databases).await?;
        let fresh = Fresh::new(env);
        Ok(Keyspace {
            instances: Instances::new(&store, env, fresh.instance()),
            messages: MessageLog::new(&store, fresh.instance()),
            fresh,
            ids: Interner::new(store.clone(), env),
            catalog,
            hints: SetHints::default(),
            unfolded: Unfolded::default(),
            absent: Arc::default(),
            streams: Arc::new(Streams::new(env.clock.clone())),
            collector: Notes::default(),
            brake: Brake::default(),
            clock: env.clock.clone(),
            store,
        })
    }
}

impl Keyspace {
    /// A database by its prefix alone, for reading and for rows under a fresh object id: never to write a record.
    pub fn scope<'a>(&'a self, tx: &'a Tx, db: Prefix) -> Scope<'a> {
        Scope {
            tx,
            db,
            number: 0,
            now: self.clock.now_ms(),
            round: Round::default(),
            space: self,
            outbox: None,
        }
    }
    /// Forgets what is remembered of the store's rows. It is read again when it is needed.
    pub fn forget(&self) {
        self.hints.clear();
        self.ids.forget();
        self.catalog.forget();
    }
    /// Registers this server, or renews its registration.
    pub async fn beat(&self) -> StoreResult<()> {
        self.instances.beat(self.fresh.revision()).await
    }
}

/// One database inside one transaction: what every operation on values works on.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The transaction.
    pub tx: &'a Tx,
    /// The database's prefix, as this transaction reads it.
    pub db: Prefix,
    /// The database's number: WATCH follows it, whatever its prefix becomes.
    pub number: u8,
    /// Milliseconds since the Unix epoch: expiry is decided against this, not against a clock.
    pub now: u64,
    /// Where the collection of the dictionary stands, as this transaction reads it.
    pub round: Round,
    /// Ids and allocation.
    pub space: &'a Keyspace,
    /// Where it is said what happens to keys. None: nobody is told.
    pub outbox: Option<&'a Outbox>,
}

impl Scope<'_> {
    /// Tells that `event`, which is of `class`, happens to `key`: a change of it, but where it was looked for in vain. It is heard
    /// if this transaction commits.
    pub fn tell(&self, class: Events, event: &'static str, key: &Bytes) {
        if let Some(outbox) = self.outbox {
            outbox.event(self.number, class, event, key);
            if class != Events::MISS {
                outbox.changed(key);
            }
        }
    }
    /// Tells that `key` changes, whatever happens to it.
    pub fn changed(&self, key: &Bytes) {
        if let Some(outbox) = self.outbox {
            outbox.changed(key);
        }
    }
}
