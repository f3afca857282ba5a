//! What a command gets: a transaction, the client's state, the server.
//!
//! A handler is a pure function of (arguments, transaction, client state, now, rng): it may run again after a
//! conflict, on a fresh copy of the client's state. So it changes nothing outside `tx` and `client`, except through
//! `server`, and there only what may happen twice.

use super::acl::{Acl, Denied, Reason, Refusal, kept};
use super::mailbox::{Account, Mailbox, Posted};
use super::monitor::Monitors;
use super::pause::Pause;
use super::reply::Reply;
use super::subscribers::Subscribers;
use super::tracking::{Mode, Tracking};
use crate::config::{ConfigStore, Events};
use crate::env::{Env, Rng};
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::keyspace::catalog::{Catalog, Place};
use crate::keyspace::keys::Prefix;
use crate::keyspace::life::Lives;
use crate::keyspace::messages::Outbox;
use crate::keyspace::{Keyspace, Scope};
use crate::spec::Table;
use crate::store::{Read, Store, Tx};
use crate::telemetry::Telemetry;
use crate::telemetry::clients::{ClientHandle, Clients, Identity};
use crate::telemetry::counters::LookupTally;
use crate::telemetry::offences::Offence;
use crate::types::expire::Told;
use crate::types::memo::Memo;
use crate::types::object::{self, Slot};
use crate::types::staged::Staged;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::MutexGuard;

/// The protocol version that a client speaks after HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// What CLIENT REPLY asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// Every reply is sent.
    #[default]
    On,
    /// None is sent.
    Off,
    /// The next one is not sent.
    SkipNext,
    /// This one is not sent.
    Skip,
}

/// What becomes of a connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterReply {
    /// It takes the next request.
    #[default]
    GoOn,
    /// It is closed (SHUTDOWN, CLIENT KILL of oneself).
    Close,
    /// Its EXEC answered so many bytes, more than `client-output-buffer-limit` allows; they are not held.
    Excess(usize),
    /// Its task panics (DEBUG PANIC CONNECTION).
    Panic,
}

/// One client's state that commands read and change. Cloned for every attempt of a transaction.
#[derive(Debug, Clone)]
pub struct ClientState {
    /// CLIENT ID.
    pub id: u64,
    /// Selected database.
    pub db: u8,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// True once AUTH succeeded, or where no password is set.
    pub authenticated: bool,
    /// The ACL user.
    pub user: Bytes,
    /// CLIENT SETNAME.
    pub name: Bytes,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Bytes,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: Bytes,
    /// CLIENT REPLY.
    pub reply: ReplyMode,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// CLIENT TRACKING.
    pub tracking: Mode,
    /// True while a transaction runs under EXEC.
    pub in_exec: bool,
    /// What happens once this unit is answered.
    pub after_reply: AfterReply,
    /// The entry in the registry (CLIENT LIST, KILL).
    pub handle: Arc<ClientHandle>,
    /// Where others leave what it is sent without having asked.
    pub mailbox: Arc<Mailbox>,
}

impl ClientState {
    /// A client that has just connected.
    pub fn new(handle: Arc<ClientHandle>, authenticated: bool) -> Self {
        handle.set_stranger(!authenticated);
        ClientState {
            id: handle.id,
            db: 0,
            protocol: Protocol::default(),
            authenticated,
            user: Bytes::from_static(b"default"),
            name: Bytes::new(),
            lib_name: Bytes::new(),
            lib_ver: Bytes::new(),
            reply: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            tracking: Mode::default(),
            in_exec: false,
            after_reply: AfterReply::GoOn,
            mailbox: Arc::new(Mailbox::new(handle.clone())),
            handle,
        }
    }

    /// Shows names, database, protocol and switches in the registry. To be called after each change of them; may be
    /// called again when a command is run again.
    pub fn publish(&self) {
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        self.handle.set_identity(Identity {
            name: text(&self.name),
            user: self.user.clone(),
            lib_name: text(&self.lib_name),
            lib_ver: text(&self.lib_ver),
            db: self.db,
            resp: if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            no_evict: self.no_evict,
            no_touch: self.no_touch,
        });
    }
}

/// What all connections of a server share.
pub struct Server {
    /// All commands.
    pub table: &'static Table,
    /// Options; CONFIG GET and SET.
    pub config: Arc<ConfigStore>,
    /// Clock and entropy.
    pub env: Env,
    /// The engine.
    pub store: Store,
    /// Layout, ids, catalog.
    pub space: Keyspace,
    /// Connected clients.
    pub clients: Clients,
    /// Who is subscribed to what.
    pub subscribers: Subscribers,
    /// Who has what in a cache.
    pub tracking: Tracking,
    /// Counters and latencies.
    pub telemetry: Telemetry,
    /// Users and what they may do.
    pub acl: Acl,
    /// Held while a file of options or users is replaced, from before it is known what it is to hold.
    pub saving: Arc<tokio::sync::Mutex<()>>,
    /// Who sees every command.
    pub monitors: Monitors,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Whether the job that removes expired keys works (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// Asked to stop: SHUTDOWN, SIGTERM. `main` waits for it.
    pub stop: tokio::sync::watch::Sender<bool>,
}

impl Server {
    /// Opens the layout on `store` and registers this server there.
    pub async fn open(table: &'static Table, store: Store, env: Env, config: ConfigStore) -> Result<Self> {
        let databases = config.get().databases;
        let acl = Acl::new(table, &config.get().requirepass);
        let space = loop {
            let space = Keyspace::open(store.clone(), &env, databases).await?;
            if space.register().await? {
                break space;
            }
            tracing::warn!(
                id = format!("{:016x}", space.instances.id()),
                "another server has this id: drawing one anew"
            );
        };
        Ok(Server {
            table,
            space,
            telemetry: Telemetry::new(table.all().map(|row| row.label.clone()).collect(), &env),
            config: Arc::new(config),
            env,
            store,
            clients: Clients::default(),
            acl,
            saving: Arc::default(),
            monitors: Monitors::default(),
            pause: Pause::default(),
            subscribers: Subscribers::default(),
            tracking: Tracking::default(),
            active_expire: AtomicBool::new(true),
            stop: tokio::sync::watch::Sender::new(false),
        })
    }
}

impl Server {
    /// For what an attempt tells that sees `catalog`. On an embedded store somebody may begin to subscribe at any time; else it
    /// runs again when the first one does.
    pub fn outbox(&self, catalog: &Catalog) -> Outbox {
        let heard = self.space.messages.heard(catalog);
        Outbox::new(self.space.fresh.instance(), heard, self.config.get().notify_keyspace_events)
    }

    /// For whoever removes expired keys outside of a command: what is to be told of it. Where that is events of this server alone, nobody
    /// else tells any until the guard is dropped, so that a key that comes again is not told before it went.
    pub async fn expiring(&self) -> (Told, Option<MutexGuard<'_, ()>>) {
        let events = self.config.get().notify_keyspace_events;
        let alone = !self.space.messages.is_shared() && events.tell(Events::EXPIRED);
        let turn = if alone { Some(self.subscribers.turn().await) } else { None };
        (Told { events, ..Told::default() }, turn)
    }

    /// Sends a client `message` between its replies: see [`super::mailbox`]. False where it has left.
    pub fn post(&self, to: &Mailbox, message: Reply) -> bool {
        let limit = self.config.get().client_output_buffer_limit.pubsub;
        let posted = to.post(message, Account::Own, &limit, self.env.clock.monotonic());
        if let Posted::Excess(bytes) = posted {
            self.exceeded(to.client(), bytes);
        }
        posted == Posted::Waits
    }

    /// Sends a client `message` for which another one, `by`, has asked: where it is too much, that one is closed.
    pub fn post_for(&self, by: &ClientHandle, to: &Mailbox, message: Reply) {
        let limit = self.config.get().client_output_buffer_limit.pubsub;
        let posted = to.post(message, Account::Others, &limit, self.env.clock.monotonic());
        if let Posted::Excess(bytes) = posted {
            by.kill();
            self.exceeded(by, bytes);
        }
    }

    fn exceeded(&self, client: &ClientHandle, bytes: usize) {
        let what =
            || format!("client-output-buffer-limit: connection closed, {bytes} bytes of messages wait");
        self.complain(client, Offence::Replies, what);
    }

    /// Counts and keeps that `client` was refused `denied` (None: to log in), as the user of this name. `name`: of the command.
    pub fn refused(&self, client: &ClientState, user: &Bytes, denied: Option<&Denied>, name: &Bytes) {
        let counts = &self.telemetry.denials;
        let (reason, count, object) = match denied {
            None => (Reason::Auth, None, name),
            Some(Denied::Command) => (Reason::Command, Some(&counts.commands), name),
            Some(Denied::Key(key)) => (Reason::Key, Some(&counts.keys), key),
            Some(Denied::Channel(channel)) => (Reason::Channel, Some(&counts.channels), channel),
        };
        if let Some(count) = count {
            count.add(1);
        }
        let now = self.env.clock.now_ms();
        let refusal = Refusal {
            id: 0,
            count: 1,
            reason,
            in_multi: client.handle.is_in_multi(),
            object: kept(object),
            user: kept(user),
            created: now,
            updated: now,
            client: kept(client.handle.line(self.env.clock.monotonic(), &self.telemetry).as_bytes()),
        };
        self.acl.log.add(refusal, self.config.get().acllog_max_len);
    }

    /// Counts what a client did, and says so in the log where this kind has lines left.
    pub fn complain(&self, client: &ClientHandle, offence: Offence, what: impl FnOnce() -> String) {
        if let Some(unsaid) = self.telemetry.offences.add(offence, self.env.clock.monotonic()) {
            tracing::warn!(client = client.id, addr = client.addr, unsaid, "{}", what());
        }
    }
}

/// Stored bytes that a call in a lane may work through: about a millisecond.
const MAX_LIGHT: u64 = 1 << 20;

/// One command's world.
pub struct Cx<'a> {
    /// The transaction. Read-only units have one that is never committed.
    pub tx: &'a Tx,
    /// The prefixes of all databases, as `tx` sees them (FLUSHDB and SWAPDB change this copy too).
    pub catalog: Arc<Catalog>,
    /// The client's state, this attempt's copy.
    pub client: &'a mut ClientState,
    /// What all share.
    pub server: &'a Server,
    /// Milliseconds since the Unix epoch, the same for all commands of an attempt.
    pub now: u64,
    /// What this attempt takes for alive.
    pub lives: &'a Lives,
    /// This attempt's generator.
    pub rng: &'a mut Rng,
    /// What was prepared for this command because it exceeds a transaction (`exec::staging`). Where an attempt ends with a
    /// conflict, it may have become stale.
    pub staged: &'a [Staged],
    /// Whether the reply may be a [`Reply::Members`](super::reply::Reply::Members): not where it is kept under a client's id.
    pub may_stream: bool,
    /// Whether other clients' units queue behind this one: see [`Cx::light`].
    pub in_lane: bool,
    /// Keys that this attempt looked up.
    pub lookups: &'a LookupTally,
    /// What this attempt has read and may answer again.
    pub memo: &'a Memo,
    /// What this attempt tells.
    pub outbox: &'a Outbox,
}

impl Cx<'_> {
    /// The selected database.
    pub fn scope(&self) -> Result<Scope<'_>> {
        self.scope_of(self.client.db)
    }
    /// Database `db`.
    pub fn scope_of(&self, db: u8) -> Result<Scope<'_>> {
        let (db_prefix, round) = (self.prefix(db)?, self.catalog.round);
        let (tx, now, space, outbox) = (self.tx, self.now, &self.server.space, Some(self.outbox));
        Ok(Scope { tx, db: db_prefix, number: db, now, round, space, outbox, life: self.lives.life() })
    }
    /// Opens a key for a command that reads it, and counts it: Redis' `lookupKeyRead`. A command that only writes opens
    /// it without counting.
    pub async fn look_up(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        Ok(self.counted(s, object::open(s, key, Read::Serializable).await?))
    }
    /// As [`Cx::look_up`], for OBJECT: nobody is told where there is no key.
    pub async fn look_at(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        let slot = object::open(s, key, Read::Serializable).await?;
        self.lookups.count(slot.exists());
        Ok(slot)
    }
    /// As [`Cx::look_up`], for a command whose answer is about members of a set: see [`object::open_members`].
    pub async fn look_up_members(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        Ok(self.counted(s, self.memo.open_members(s, key).await?))
    }
    fn counted(&self, s: &Scope<'_>, slot: Slot) -> Slot {
        self.lookups.count(slot.exists());
        if !slot.exists() {
            s.tell(Events::MISS, "keymiss", &slot.key);
        }
        slot
    }
    /// To be called before the first write by whatever works through `bytes` stored bytes: [`Error::TooHeavy`] where that would keep
    /// others waiting.
    pub fn light(&self, bytes: u64) -> Result<()> {
        if self.in_lane && bytes > MAX_LIGHT { Err(Error::TooHeavy) } else { Ok(()) }
    }
    /// The prefix of database `db`.
    pub fn prefix(&self, db: u8) -> Result<Prefix> {
        Ok(self.place(db)?.prefix)
    }
    /// Where database `db` is.
    pub fn place(&self, db: u8) -> Result<Place> {
        match self.catalog.place(db) {
            Some(place) => Ok(place),
            None if self.catalog.places.is_empty() => {
                Err(StoreError::Unavailable("nobody knows its databases".into()).into())
            }
            None => Err(ReplyError::new("ERR DB index is out of range").into()),
        }
    }
}
