//! What connections share: the server, its clients' states and mailboxes, access rules, Pub/Sub, tracking, MONITOR, pauses.

pub mod acl;
pub mod client;
pub mod glob;
pub mod mailbox;
pub mod monitor;
pub mod pace;
pub mod pause;
pub mod redact;
pub mod reply;
pub mod reply_codec;
pub mod subscribers;
pub mod telling;
pub mod tracking;
pub mod unread;

pub use client::{AfterReply, ClientState, Protocol, ReplyMode};

use crate::config::{ConfigStore, Events};
use crate::env::Env;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::cluster::messages::Outbox;
use crate::lifecycle::expire::Told;
use crate::spec::Table;
use crate::store::Store;
use crate::telemetry::Telemetry;
use crate::telemetry::clients::{ClientHandle, Clients};
use crate::telemetry::offences::Offence;
use acl::{Acl, Denied, Reason, Refusal, kept};
use bytes::Bytes;
use mailbox::{Account, Mailbox, Posted};
use monitor::Monitors;
use pause::Pause;
use reply::Reply;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use subscribers::Subscribers;
use tokio::sync::MutexGuard;
use tracking::Tracking;

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
        let heard = self.space.bus.heard(catalog);
        Outbox::new(self.space.fresh.instance(), heard, self.config.get().notify_keyspace_events)
    }

    /// For whoever removes expired keys outside of a command: what is to be told of it. Where that is events of this server alone, nobody
    /// else tells any until the guard is dropped, so that a key that comes again is not told before it went.
    pub async fn expiring(&self) -> (Told, Option<MutexGuard<'_, ()>>) {
        let events = self.config.get().notify_keyspace_events;
        let alone = !self.space.bus.is_shared() && events.tell(Events::EXPIRED);
        let turn = if alone { Some(self.subscribers.turn().await) } else { None };
        (Told { events, ..Told::default() }, turn)
    }

    /// Sends a client `message` between its replies: see [`mailbox`]. False where it has left.
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
