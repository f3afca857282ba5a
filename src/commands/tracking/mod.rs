//! CLIENT TRACKING: who has what in a cache, and who is told that it is stale.
//!
//! A client that tracks is sent the names of keys that have changed (`invalidate`), by whatever client of whatever server, and null
//! where all may have (FLUSHALL, FLUSHDB, SWAPDB). In the usual mode these are the keys that it has read since they changed last, in
//! BCAST mode all that begin with one of its prefixes. Names are of all databases alike, as in Redis.
//!
//! **What is promised.** A client keeps each reply until the name of its key comes behind it. Then, once no change is under way, what it keeps is
//! what is stored:
//! 1. A key is [remembered](Tracking::remember) before the transaction that reads it begins, and forgotten only when an invalidation of it
//!    is posted. So each change that this transaction does not see finds the key remembered, for it is told after it has been committed.
//! 2. What is posted while a client's command runs is sent behind its reply (`mailbox`). So no old value comes behind the last invalidation.
//!    With REDIRECT there are two connections, and who reads both must compare them itself, as with Redis.
//! 3. Each commit that changes a key tells so (`types::object`, `Scope::tell`), where the transaction sees that anybody tracks. The first one
//!    who does moves the metadata version before its OK: what is under way then runs again (`keyspace::message_log`).
//! 4. On a store of several servers changes come through the log, which is part of the transaction. A server that could not hear all of it
//!    closes the connections of its clients that track. On an embedded store changes are told when the commit is known; where its result
//!    stays unknown, all that track are sent null once the store takes writes again ([`Tracking::doubt`]).
//!
//! Too much is told rather than too little: a change on another server that the reply has seen already, or one of an equal name in another database. NOLOOP
//! forgets nothing: who is not told of its own change is told of the next one (Redis forgets the key by then).
//!
//! `tests/tracking_caches.rs` has caches, writers on two servers, and compares in the end.
//!
//! **Limits.** `tracking-table-max-keys` names are remembered on a server; who has one more evicted is told that it is stale. A reader
//! locks one table. Where nobody tracks, a command costs a load and a branch, and a change one more; on a cluster where somebody does, each commit that
//! changes keys writes a row with their names, and each server with such clients reads it.

mod options;
mod table;

pub use options::{Options, check_caching};

use super::cx::Server;
use super::mailbox::Mailbox;
use super::reply::Reply;
use crate::keyspace::messages::{Message, Origin};
use crate::store::Version;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use table::Table;

/// Which of its reads a client wants to be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// All.
    #[default]
    All,
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
}

/// How a client tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Whether it does.
    pub on: bool,
    /// Prefixes, instead of what it has read.
    pub bcast: bool,
    /// It is not told of its own changes.
    pub noloop: bool,
    /// OPTIN, OPTOUT.
    pub choice: Choice,
    /// CLIENT CACHING was the last command, or stands before the transaction.
    pub caching: bool,
}

impl Mode {
    /// Whether what a command reads may have to be remembered.
    pub fn remembers(self) -> bool {
        self.on && !self.bcast
    }

    /// Whether what the next command reads is to be remembered.
    pub fn wants(self) -> bool {
        self.remembers()
            && match self.choice {
                Choice::All => true,
                Choice::OptIn => self.caching,
                Choice::OptOut => !self.caching,
            }
    }
}

/// A client that tracks.
#[derive(Debug, Clone)]
pub struct Tracker {
    mailbox: Arc<Mailbox>,
    mode: Mode,
    /// To whom its invalidations go; 0: to itself.
    redirect: u64,
    prefixes: BTreeSet<Bytes>,
    /// It is told of what was committed after that.
    since: Version,
}

impl Tracker {
    fn id(&self) -> u64 {
        self.mailbox.client().id
    }

    fn hears(&self, version: Version) -> bool {
        version == 0 || version > self.since
    }
}

#[derive(Debug, Default)]
struct Hub {
    trackers: HashMap<u64, Tracker>,
    table: Table,
    /// Who has which prefix.
    prefixes: BTreeMap<Bytes, BTreeSet<u64>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Tracking {
    /// Of all clients, to find whom REDIRECT names.
    mailboxes: RwLock<HashMap<u64, Arc<Mailbox>>>,
    hub: Mutex<Hub>,
    /// Whether there are trackers.
    on: AtomicBool,
    /// Names in the table.
    keys: AtomicUsize,
    doubt: AtomicBool,
    /// A version that every transaction sees that begins now.
    committed: AtomicU64,
}

/// What INFO tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Clients that track.
    pub clients: usize,
    /// Names that are remembered.
    pub keys: usize,
    /// Pairs of a name and a client.
    pub items: usize,
    /// Prefixes.
    pub prefixes: usize,
}

impl Tracking {
    /// Whether any client of this server tracks.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// A client has come.
    pub fn enter(&self, mailbox: &Arc<Mailbox>) {
        self.mailboxes.write().insert(mailbox.client().id, mailbox.clone());
    }

    /// It has left.
    pub fn leave(&self, mailbox: &Mailbox) {
        let id = mailbox.client().id;
        if self.is_on() {
            self.set(id, None);
        }
        self.mailboxes.write().remove(&id);
    }

    /// Whether this client is connected.
    pub fn is_there(&self, id: u64) -> bool {
        self.mailboxes.read().contains_key(&id)
    }

    /// What is known of a client that tracks.
    pub fn get(&self, id: u64) -> Option<Tracker> {
        self.hub.lock().trackers.get(&id).cloned()
    }

    /// The prefixes of a client.
    pub fn prefixes(&self, id: u64) -> BTreeSet<Bytes> {
        self.get(id).map(|tracker| tracker.prefixes).unwrap_or_default()
    }

    /// Makes a client track; it is told of what is committed after `since`. Prefixes come to those that it has.
    pub fn switch_on(&self, mailbox: &Arc<Mailbox>, options: Options, since: Version) {
        let id = mailbox.client().id;
        let before = self.get(id);
        let since = before.as_ref().map_or(since, |before| before.since);
        let mut prefixes = before.map(|before| before.prefixes).unwrap_or_default();
        if options.mode.bcast && options.prefixes.is_empty() {
            prefixes.insert(Bytes::new());
        }
        prefixes.extend(options.prefixes);
        let (mailbox, mode, redirect) = (mailbox.clone(), options.mode, options.redirect);
        self.set(id, Some(Tracker { mailbox, mode, redirect, prefixes, since }));
    }

    /// Makes a client track as `tracker` says, or not at all. What it has read stays in the table, until somebody changes it.
    pub fn set(&self, id: u64, tracker: Option<Tracker>) {
        let mut guard = self.hub.lock();
        let hub = &mut *guard;
        let old = hub.trackers.remove(&id);
        for prefix in old.iter().flat_map(|old| &old.prefixes) {
            if let Some(ids) = hub.prefixes.get_mut(prefix) {
                ids.remove(&id);
            }
        }
        for prefix in tracker.iter().flat_map(|new| &new.prefixes) {
            hub.prefixes.entry(prefix.clone()).or_default().insert(id);
        }
        hub.prefixes.retain(|_, ids| !ids.is_empty());
        if let Some(shown) = tracker.as_ref().or(old.as_ref()) {
            let state = tracker.as_ref().map(|new| (new.mode.bcast, new.redirect));
            shown.mailbox.client().set_tracking(state);
        }
        hub.trackers.extend(tracker.map(|tracker| (id, tracker)));
        if hub.trackers.is_empty() {
            hub.table = Table::default();
        }
        self.on.store(!hub.trackers.is_empty(), Ordering::SeqCst);
        self.keys.store(hub.table.len(), Ordering::Relaxed);
    }

    /// Remembers that a client reads `keys`. To be called before the transaction begins that reads them.
    pub fn remember<'k>(&self, id: u64, keys: impl IntoIterator<Item = &'k Bytes>) {
        let mut guard = self.hub.lock();
        let Hub { trackers, table, .. } = &mut *guard;
        let seen = self.committed.load(Ordering::SeqCst);
        if trackers.contains_key(&id) {
            keys.into_iter().for_each(|key| table.add(key, (id, seen), |id| trackers.contains_key(&id)));
        }
        self.keys.store(table.len(), Ordering::Relaxed);
    }

    /// Forgets what exceeds `tracking-table-max-keys`, and tells those who have it.
    pub fn trim(&self, server: &Server) {
        let most = server.config.get().tracking_table_max_keys;
        if most == 0 || self.keys.load(Ordering::Relaxed) <= most {
            return;
        }
        let mut hub = self.hub.lock();
        while hub.table.len() > most
            && let Some((key, ids)) = hub.table.pop()
        {
            let told = ids.keys().filter_map(|id| hub.trackers.get(id)).filter(|t| !t.mode.bcast);
            told.for_each(|tracker| self.send(server, tracker, &Reply::bulks([key.clone()])));
        }
        self.keys.store(hub.table.len(), Ordering::Relaxed);
    }

    /// Something was committed at `version`: who begins to read now has no need to hear of it.
    pub fn committed(&self, version: Version) {
        if self.is_on() {
            self.committed.fetch_max(version, Ordering::SeqCst);
        }
    }

    /// Nobody will ever know whether a commit that changed keys was applied.
    pub fn doubt(&self) {
        self.doubt.store(true, Ordering::SeqCst);
    }

    /// The store takes writes: where there was a doubt, all that track are told that all may have changed.
    pub fn settle(&self, server: &Server) {
        if self.doubt.swap(false, Ordering::SeqCst) {
            server.invalidate(&[(0, &Message::Flushed(Origin::default()))]);
        }
    }

    /// Closes the connections of those who track, and of those to whom they redirect: something was missed.
    pub fn part(&self) -> usize {
        let hub = self.hub.lock();
        let mailboxes = self.mailboxes.read();
        for tracker in hub.trackers.values() {
            tracker.mailbox.client().kill();
            mailboxes.get(&tracker.redirect).into_iter().for_each(|mailbox| mailbox.client().kill());
        }
        hub.trackers.len()
    }

    /// For INFO.
    pub fn totals(&self) -> Totals {
        let hub = self.hub.lock();
        let Hub { trackers, table, prefixes } = &*hub;
        let (keys, items) = (table.len(), table.items());
        Totals { clients: trackers.len(), keys, items, prefixes: prefixes.len() }
    }

    /// Sends a tracker, or to whom it redirects, `what` is stale: an array of names, or null.
    fn send(&self, server: &Server, tracker: &Tracker, what: &Reply) {
        let word = Reply::bulk_static;
        let to = match tracker.redirect {
            0 => tracker.mailbox.clone(),
            id => match self.mailboxes.read().get(&id) {
                Some(mailbox) => mailbox.clone(),
                None => return broken(server, tracker),
            },
        };
        let client = to.client();
        let message = if client.resp() > 2 {
            vec![word("invalidate"), what.clone()]
        } else if tracker.redirect != 0 && client.is_subscribed() {
            vec![word("message"), word("__redis__:invalidate"), what.clone()]
        } else {
            return;
        };
        server.post(&to, Reply::Push(message));
    }
}

/// To whom it redirects has left.
fn broken(server: &Server, tracker: &Tracker) {
    let client = tracker.mailbox.client();
    client.set_broken();
    if client.resp() > 2 {
        let id = Reply::Int(tracker.redirect as i64);
        server.post(&tracker.mailbox, Reply::Push(vec![Reply::bulk_static("tracking-redir-broken"), id]));
    }
}

impl Server {
    /// Brings changes to this server's clients that track, each with the version that it was committed at.
    pub fn invalidate(&self, changes: &[(Version, &Message)]) {
        let tracking = &self.tracking;
        if changes.is_empty() || !tracking.is_on() {
            return;
        }
        let mut hub = tracking.hub.lock();
        for (version, message) in changes {
            tracking.committed(*version);
            match message {
                Message::Changed(by, key) => tracking.changed(self, &mut hub, *version, *by, key),
                Message::Flushed(_) => {
                    hub.table = Table::default();
                    hub.trackers.values().for_each(|tracker| tracking.send(self, tracker, &Reply::Nil));
                }
                _ => {}
            }
        }
        for (prefix, ids) in &hub.prefixes {
            let trackers = ids.iter().filter_map(|id| hub.trackers.get(id));
            tracking.broadcast(self, prefix, trackers, changes);
        }
        tracking.keys.store(hub.table.len(), Ordering::Relaxed);
    }

    /// Whether a change comes from this client.
    fn is_of(&self, by: Origin, tracker: &Tracker) -> bool {
        by == Origin { instance: self.space.fresh.instance(), client: tracker.id() }
    }
}

impl Tracking {
    /// To those who have read it.
    fn changed(&self, server: &Server, hub: &mut Hub, version: Version, by: Origin, key: &Bytes) {
        let Some(mut ids) = hub.table.take(key) else { return };
        let name = Reply::bulks([Bytes::copy_from_slice(key)]);
        ids.retain(|id, seen| match hub.trackers.get(id) {
            Some(tracker) if !tracker.mode.bcast => {
                let has_seen = version != 0 && version <= *seen;
                let keeps =
                    has_seen || !tracker.hears(version) || tracker.mode.noloop && server.is_of(by, tracker);
                if !keeps {
                    self.send(server, tracker, &name);
                }
                keeps
            }
            _ => false,
        });
        hub.table.put_back(key, ids);
    }

    /// What begins with a prefix to those who have it, each name once.
    fn broadcast<'t>(
        &self,
        server: &Server,
        prefix: &Bytes,
        trackers: impl Iterator<Item = &'t Tracker>,
        changes: &[(Version, &Message)],
    ) {
        let begins = |(version, message): &(Version, &Message)| match message {
            Message::Changed(by, key) if key.starts_with(prefix) => Some((*version, *by, key.clone())),
            _ => None,
        };
        let changes: Vec<(Version, Origin, Bytes)> = changes.iter().filter_map(begins).collect();
        for tracker in trackers {
            let told = |(version, by, _): &&(Version, Origin, Bytes)| {
                tracker.hears(*version) && !(tracker.mode.noloop && server.is_of(*by, tracker))
            };
            let names: BTreeSet<&Bytes> = changes.iter().filter(told).map(|(_, _, key)| key).collect();
            if !names.is_empty() {
                let names = names.into_iter().map(|name| Bytes::copy_from_slice(name));
                self.send(server, tracker, &Reply::bulks(names));
            }
        }
    }
}
