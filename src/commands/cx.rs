//! The context of a command: a transaction, the client's state, the server.
//!
//! A handler is a pure function of (arguments, transaction, client state, now, rng): after a conflict it may
//! run again, on a fresh copy of the client's state. So it changes nothing outside `tx` and `client`, except
//! through `server`, and there only what may safely happen twice.

use crate::config::Events;
use crate::env::Rng;
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::catalog::{Catalog, Place};
use crate::keyspace::cluster::messages::Outbox;
use crate::keyspace::keys::Prefix;
use crate::keyspace::life::Lives;
use crate::keyspace::uncounted::Uncounted;
use crate::server::clients::ClientHandle;
use crate::server::{ClientState, Server};
use crate::store::{Read, Tx};
use crate::telemetry::counters::LookupTally;
use crate::types::memo::Memo;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::Prebuilt;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Stored bytes that a call in a lane may process: about a millisecond of work.
const MAX_LIGHT: u64 = 1 << 20;
/// How long a command waits until what other clients run has ended.
pub(super) const LONGEST_RUN: Duration = Duration::from_secs(1);

/// The context of one command.
pub struct Cx<'a> {
    /// The transaction. The transaction of a read-only unit is never committed.
    pub(crate) tx: &'a Tx,
    /// The prefixes of all databases as `tx` sees them (FLUSHDB and SWAPDB change this too).
    pub(crate) catalog: &'a mut Arc<Catalog>,
    /// This attempt's copy of the client's state.
    pub(crate) client: &'a mut ClientState,
    /// The state that all connections share.
    pub(crate) server: &'a Server,
    /// Milliseconds since the Unix epoch, the same for all commands of an attempt.
    pub(crate) now: u64,
    /// The keys that this attempt has seen alive.
    pub(crate) lives: &'a Lives,
    /// This attempt's random number generator.
    pub(crate) rng: &'a mut Rng,
    /// What was prebuilt for this command because it exceeds a transaction (`exec::prebuild`). Where an
    /// attempt ends with a conflict, it may have become stale.
    pub(crate) prebuilt: &'a [Prebuilt],
    /// Whether the reply may be a [`Reply::Members`](crate::server::reply::Reply::Members): not where it is kept under a client's id.
    pub(crate) may_stream: bool,
    /// What the command makes is prebuilt if it answers [`StoreError::TooLarge`], instead of going into one transaction.
    pub(crate) may_prebuild: bool,
    /// Set by a command whose row says that it acts on the server, if it only read data: its reply belongs to
    /// this attempt.
    pub(crate) only_read: bool,
    /// Set by a command that may wait for what other clients run: the commands behind it must see that.
    pub(crate) waits: bool,
    /// Whether other clients' units queue behind this one: see [`Cx::light`].
    pub(crate) in_lane: bool,
    /// Keys that this attempt looked up.
    pub(crate) lookups: &'a LookupTally,
    /// Values that this attempt has read and may return again.
    pub(crate) memo: &'a Memo,
    /// The messages that this attempt publishes.
    pub(crate) outbox: &'a Outbox,
    /// Changes of sorted sets whose counts move before the commit. None: each change moves them.
    pub(crate) uncounted: Option<&'a Uncounted>,
}

impl Cx<'_> {
    /// The selected database.
    pub(crate) fn scope(&self) -> Result<Scope<'_>> {
        self.scope_of(self.client.db)
    }
    /// Database `db`.
    pub(crate) fn scope_of(&self, db: u8) -> Result<Scope<'_>> {
        let (db_prefix, round) = (self.prefix(db)?, self.catalog.round);
        let (tx, now, space, outbox) = (self.tx, self.now, &self.server.space, Some(self.outbox));
        let (uncounted, life) = (self.uncounted, self.lives.life());
        Ok(Scope { tx, db: db_prefix, number: db, now, round, space, outbox, uncounted, life })
    }
    /// Opens a key for a command that reads it, and counts the lookup: Redis' `lookupKeyRead`. A command that
    /// only writes opens the key without counting.
    pub(crate) async fn look_up(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        Ok(self.counted(s, object::open(s, key, Read::Serializable).await?))
    }
    /// Like [`Cx::look_up`], for OBJECT: a missing key publishes no event.
    pub(crate) async fn look_at(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        let slot = object::open(s, key, Read::Serializable).await?;
        self.lookups.count(slot.exists());
        Ok(slot)
    }
    /// Like [`Cx::look_up`], for a command that returns members of a set: see [`object::open_members`].
    pub(crate) async fn look_up_members(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        Ok(self.counted(s, self.memo.open_members(s, key).await?))
    }
    /// Counts the lookup of a key that was opened in another way.
    pub(crate) fn counted(&self, s: &Scope<'_>, slot: Slot) -> Slot {
        self.lookups.count(slot.exists());
        if !slot.exists() {
            s.notify(Events::MISS, "keymiss", &slot.key);
        }
        slot
    }
    /// Call this before the first write of work on `bytes` stored bytes. [`Error::TooHeavy`] if the work
    /// would keep other units waiting.
    pub(crate) fn light(&self, bytes: u64) -> Result<()> {
        if self.in_lane && bytes > MAX_LIGHT { Err(Error::TooHeavy) } else { Ok(()) }
    }
    /// `most`, or the bytes that [`Cx::light`] allows if these are fewer.
    pub(crate) fn lightest(&self, most: usize) -> usize {
        if self.in_lane { most.min(MAX_LIGHT as usize) } else { most }
    }
    /// Call this before anything that waits for what other clients run: it may itself wait for this lane.
    pub(crate) fn may_wait(&mut self) -> Result<()> {
        self.waits = true;
        self.light(u64::MAX)
    }
    /// Closes the connections of other clients, and waits until nothing is left of them, [`LONGEST_RUN`] at most. Returns
    /// the number of those that were not being closed before. Call [`Cx::may_wait`] first.
    pub(crate) async fn close(&mut self, mut clients: Vec<Arc<ClientHandle>>) -> usize {
        clients.retain(|client| client.kill_first());
        let gone = async {
            for client in &clients {
                self.server.clients.gone(client, &self.client.handle).await;
            }
        };
        _ = tokio::time::timeout(LONGEST_RUN, gone).await;
        clients.len()
    }
    /// Bytes of a reply to keep where what is being sent changes.
    pub(crate) fn most_kept(&self) -> usize {
        match self.server.config.get().client_output_buffer_limit.normal.hard {
            0 => usize::MAX,
            hard => hard,
        }
    }
    /// The prefix of database `db`.
    pub(crate) fn prefix(&self, db: u8) -> Result<Prefix> {
        Ok(self.place(db)?.prefix)
    }
    /// The place of database `db`.
    pub(crate) fn place(&self, db: u8) -> Result<Place> {
        match self.catalog.place(db) {
            Some(place) => Ok(place),
            None if self.catalog.places.is_empty() => {
                Err(StoreError::Unavailable("the database catalog has not been read yet".into()).into())
            }
            None => Err(ReplyError::new("ERR DB index is out of range").into()),
        }
    }
}
