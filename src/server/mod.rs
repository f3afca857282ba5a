//! The state that connections share: the server, its clients and mailboxes, access rules, Pub/Sub, tracking,
//! MONITOR, pauses.

pub mod acl;
pub(crate) mod client;
pub(crate) mod clients;
pub(crate) mod doubles;
pub mod glob;
pub(crate) mod libraries;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod pace;
pub(crate) mod pause;
mod protocol;
pub(crate) mod publisher;
pub(crate) mod redact;
pub mod reply;
pub mod reply_codec;
pub(crate) mod scripts;
pub mod subscribers;
pub(crate) mod tracking;
pub(crate) mod unread;
pub(crate) mod waiters;
mod watcher;

pub use client::{AfterReply, ClientState, ReplyMode};
pub use protocol::Protocol;

use crate::config::{ConfigStore, Events};
use crate::env::Env;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::cluster::messages::Outbox;
use crate::lifecycle::expire::Expired;
use crate::server::clients::{ClientHandle, Clients};
use crate::spec::Table;
use crate::store::Store;
use crate::telemetry::Telemetry;
use crate::telemetry::offences::Offence;
use acl::{Acl, Context, Denied, Reason, Refusal, kept};
use bytes::Bytes;
use libraries::Libraries;
use mailbox::{Account, Mailbox, Posted};
use monitor::Monitors;
use pause::Pause;
use reply::Reply;
use scripts::Scripts;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use subscribers::Subscribers;
use tokio::sync::MutexGuard;
use tracking::Tracking;
use waiters::Waiters;

/// The state that all connections of a server share.
pub struct Server {
    /// All commands.
    pub(crate) table: &'static Table,
    /// The options (CONFIG GET and SET).
    pub config: Arc<ConfigStore>,
    /// Clock and entropy.
    pub env: Env,
    /// The engine.
    pub store: Store,
    /// Layout, ids, catalog.
    pub space: Keyspace,
    /// Connected clients.
    pub(crate) clients: Clients,
    /// The subscriptions.
    pub subscribers: Subscribers,
    /// The keys that clients cache.
    pub(crate) tracking: Tracking,
    /// Counters and latencies.
    pub telemetry: Telemetry,
    /// Users and their permissions.
    pub acl: Acl,
    /// Held while a file of options or users is replaced, from before its new contents are determined.
    pub(crate) saving: Arc<tokio::sync::Mutex<()>>,
    /// The clients that MONITOR.
    pub(crate) monitors: Monitors,
    /// Scripts and their interpreters.
    pub(crate) scripts: Scripts,
    /// Libraries of functions.
    pub(crate) libraries: Libraries,
    /// CLIENT PAUSE.
    pub(crate) pause: Pause,
    /// Clients that wait for keys.
    pub(crate) waiters: Arc<Waiters>,
    /// Whether the job that removes expired keys is enabled (DEBUG SET-ACTIVE-EXPIRE).
    pub(crate) active_expire: AtomicBool,
    /// Set when the server should stop: SHUTDOWN, SIGTERM. `main` waits for it.
    pub stop: tokio::sync::watch::Sender<bool>,
}

impl Server {
    /// Opens the keyspace on `store` and registers this server there.
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
                "another server has this id: drawing a new one"
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
            scripts: Scripts::default(),
            libraries: Libraries::default(),
            pause: Pause::default(),
            waiters: Arc::default(),
            subscribers: Subscribers::default(),
            tracking: Tracking::default(),
            active_expire: AtomicBool::new(true),
            stop: tokio::sync::watch::Sender::new(false),
        })
    }
}

impl Server {
    /// The outbox of an attempt that sees `catalog`. On an embedded store a client may subscribe at any time;
    /// on a shared store the attempt runs again when the first client subscribes.
    pub(crate) fn outbox(&self, catalog: &Catalog) -> Outbox {
        let heard = self.space.bus.heard(catalog);
        Outbox::new(self.space.fresh.instance(), heard, self.config.get().notify_keyspace_events)
    }

    /// For code that removes expired keys outside a command: the outbox for its events. If the events concern
    /// this server alone, nobody else publishes until the guard is dropped, so that the return of a key is
    /// not published before its expiry.
    pub(crate) async fn expiring(&self) -> (Expired, Option<MutexGuard<'_, ()>>) {
        let events = self.config.get().notify_keyspace_events;
        let alone = !self.space.bus.is_shared() && events.select(Events::EXPIRED);
        let turn = if alone { Some(self.subscribers.turn().await) } else { None };
        (Expired { events, ..Expired::default() }, turn)
    }

    /// Sends a client `message` between its replies: see [`mailbox`]. False if the client has left.
    pub(crate) fn post(&self, to: &Mailbox, message: Reply) -> bool {
        let limit = self.config.get().client_output_buffer_limit.pubsub;
        let posted = to.post(message, Account::Own, &limit, self.env.clock.monotonic());
        if let Posted::Excess(bytes) = posted {
            self.exceeded(to.client(), bytes);
        }
        posted == Posted::Waits
    }

    /// Sends a client `message` on behalf of the client `by`: if that exceeds the limit, `by` is closed.
    pub(crate) fn post_for(&self, by: &ClientHandle, to: &Mailbox, message: Reply) {
        let limit = self.config.get().client_output_buffer_limit.pubsub;
        let posted = to.post(message, Account::Others, &limit, self.env.clock.monotonic());
        if let Posted::Excess(bytes) = posted {
            by.kill();
            self.exceeded(by, bytes);
        }
    }

    fn exceeded(&self, client: &ClientHandle, bytes: usize) {
        let what = || {
            format!("client-output-buffer-limit: connection closed with {bytes} bytes of messages waiting")
        };
        self.complain(client, Offence::Replies, what);
    }

    /// Counts and logs that `client` was refused `denied` (None: the login), as the user with this name.
    /// `name` is the command's.
    pub(crate) fn refused(&self, client: &ClientState, user: &Bytes, denied: Option<&Denied>, name: &Bytes) {
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
            context: match () {
                () if client.in_script => Context::Lua,
                () if client.handle.is_in_multi() => Context::Multi,
                () => Context::TopLevel,
            },
            object: kept(object),
            user: kept(user),
            created: now,
            updated: now,
            client: kept(client.handle.line(self.env.clock.monotonic(), &self.telemetry).as_bytes()),
        };
        self.acl.log.add(refusal, self.config.get().acllog_max_len);
    }

    /// Counts a client's offence, and logs it unless the log lines of this kind are used up.
    pub(crate) fn complain(&self, client: &ClientHandle, offence: Offence, what: impl FnOnce() -> String) {
        if let Some(unsaid) = self.telemetry.offences.add(offence, self.env.clock.monotonic()) {
            tracing::warn!(client = client.id, addr = client.addr, unsaid, "{}", what());
        }
    }
}
