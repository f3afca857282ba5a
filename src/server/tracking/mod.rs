//! CLIENT TRACKING: remembers which clients cache which keys, and tells them when a key is stale.
//!
//! A client that tracks is sent the names of keys that have changed (`invalidate`), no matter which client of
//! which server changed them, and null if all keys may have changed (FLUSHALL, FLUSHDB, SWAPDB). In the
//! default mode these are the keys that it has read since their last change; in BCAST mode, all keys that
//! begin with one of its prefixes. As in Redis, names do not distinguish databases.
//!
//! **The guarantee.** Suppose a client caches each reply until the name of its key arrives after it. Then,
//! once no change is in flight, its cache equals the store:
//!
//! 1. A key is [remembered](Tracking::remember) before the transaction that reads it begins, and is forgotten
//!    only when an invalidation for it is posted. So every change that this transaction does not see finds
//!    the key remembered, because it is published after its commit.
//! 2. Messages posted while a client's command runs are sent after its reply (`mailbox`), so no old value
//!    arrives after the last invalidation. With REDIRECT there are two connections, and a client that reads
//!    both must order them itself, as with Redis.
//! 3. Every commit that changes a key publishes that (`types::object`, `Scope::notify`), if its transaction
//!    sees that any client tracks. The first client to track changes the metadata version before it gets its
//!    OK, which makes transactions in flight run again (`keyspace::cluster::bus`).
//! 4. On a shared store, changes come through the log, which is part of the transaction. A server that missed
//!    part of the log closes the connections of its tracking clients. On an embedded store, changes are
//!    published once the commit is known; if its result stays unknown, all tracking clients are sent null
//!    once the store accepts writes again ([`Tracking::doubt`]).
//!
//! It errs on the side of too many messages: for a change on another server that the reply has already seen,
//! or for a key of the same name in another database. NOLOOP forgets nothing: a client that is not told of
//! its own change is told of the next one (Redis has forgotten the key by then).
//!
//! `tests/tracking_caches.rs` runs caches and writers on two servers, and compares at the end.
//!
//! **REDIRECT** works only between connections of the same user, and only while both are: if either logs in
//! as another user, the redirection is broken, as it is if the target disconnects. Messages waiting there
//! count against the client that asked for them: if they exceed `client-output-buffer-limit pubsub`, the
//! tracking client is closed, not the target. What the target caches for it is then as stale as after any end
//! of the connection that read it.
//!
//! **Limits.** A server remembers `tracking-table-max-keys` names, of [`EACH`] bytes each on average; when a
//! name is evicted, its readers are told that it is stale. A name too long for a key is not remembered,
//! because nobody can ever change it. A reader locks one table, for [`PAGE`] names at a time: a command with
//! a million names, or a change of as many, pauses in between. If no client tracks, a command costs a load
//! and a branch, and a change one more. On a cluster where some client does, each commit that changes keys
//! writes a row with their names, and each server with such clients reads it.

mod options;
mod table;

pub use options::{TrackingOptions, check_caching};

use super::Server;
use super::mailbox::Mailbox;
use super::pace::Pace;
use super::reply::Reply;
use crate::env::aside;
use crate::keyspace::cluster::messages::{Message, Origin};
use crate::keyspace::keys::MAX_REDIS_KEY;
use crate::server::clients::ClientHandle;
use crate::store::Version;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use table::Table;

/// Average memory of a name and its readers, in bytes, over the whole table. Most names take 150.
const EACH: usize = 512;
/// The number of names looked up, or of changes published, before the table is unlocked, and the steps of
/// work ([`Pace`]) of each.
const PAGE: usize = 256;
const STEPS: usize = 1 << 8;

/// Which of a client's reads to remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Choice {
    /// All reads.
    #[default]
    All,
    /// Reads after CLIENT CACHING YES.
    OptIn,
    /// All reads except those after CLIENT CACHING NO.
    OptOut,
}

/// A client's tracking mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Whether tracking is on.
    pub(crate) on: bool,
    /// BCAST: by prefix instead of by what it has read.
    pub(crate) bcast: bool,
    /// NOLOOP: it is not told of its own changes.
    pub(crate) noloop: bool,
    /// OPTIN or OPTOUT.
    pub(crate) choice: Choice,
    /// CLIENT CACHING was the last command, or came before the transaction.
    pub(crate) caching: bool,
}

impl Mode {
    /// Whether a command's reads may have to be remembered.
    pub(crate) fn remembers(self) -> bool {
        self.on && !self.bcast
    }

    /// Whether the next command's reads are remembered.
    pub(crate) fn wants(self) -> bool {
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
pub(crate) struct Tracker {
    mailbox: Arc<Mailbox>,
    mode: Mode,
    /// The client that gets its invalidations; 0: itself.
    redirect: u64,
    prefixes: Arc<BTreeSet<Bytes>>,
    /// It is told of what was committed after this version.
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

/// The clients of each prefix.
type Prefixes = BTreeMap<Bytes, BTreeSet<u64>>;

/// Prefixes, each with the indexes of the changes that begin with it.
type Found = BTreeMap<Bytes, Vec<usize>>;

#[derive(Debug, Default)]
struct Hub {
    trackers: HashMap<u64, Tracker>,
    table: Table,
    prefixes: Prefixes,
}

/// Those of `prefixes` that `key` begins with, the longest first. Looks up little more than the matches and
/// near matches, so a large number of prefixes adds little to the cost of a change.
fn prefixes_of(prefixes: &Prefixes, key: &[u8]) -> Vec<Bytes> {
    let (mut found, mut most) = (Vec::new(), Some(key.len()));
    while let Some(len) = most {
        let upper = key.get(..len).unwrap_or_default();
        let Some((last, _)) = prefixes.range::<[u8], _>((Unbounded, Included(upper))).next_back() else {
            break;
        };
        most = if key.starts_with(last) {
            found.push(last.clone());
            last.len().checked_sub(1)
        } else {
            // A prefix longer than what both have in common would sort between them.
            Some(last.iter().zip(key).take_while(|(a, b)| a == b).count())
        };
    }
    found
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    /// The mailboxes of all clients, to find the target of REDIRECT.
    mailboxes: RwLock<HashMap<u64, Arc<Mailbox>>>,
    hub: Mutex<Hub>,
    /// Whether any client tracks.
    on: AtomicBool,
    /// The number of names in the table, and its bytes.
    keys: AtomicUsize,
    bytes: AtomicUsize,
    doubt: AtomicBool,
    /// A version that every transaction beginning now sees.
    committed: AtomicU64,
}

/// Numbers for INFO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The number of tracking clients.
    pub(crate) clients: usize,
    /// The number of remembered names.
    pub(crate) keys: usize,
    /// The number of pairs of a name and a client.
    pub(crate) items: usize,
    /// The number of prefixes.
    pub(crate) prefixes: usize,
}

impl Tracking {
    /// Whether any client of this server tracks.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// A client has connected.
    pub(crate) fn enter(&self, mailbox: &Arc<Mailbox>) {
        self.mailboxes.write().insert(mailbox.client().id, mailbox.clone());
    }

    /// A client has disconnected.
    pub(crate) fn leave(&self, mailbox: &Mailbox) {
        let id = mailbox.client().id;
        if self.is_on() {
            self.set(id, None);
        }
        self.mailboxes.write().remove(&id);
    }

    /// The connection with this id, if `by` may redirect to it: it must be of the same user. Nobody else
    /// learns whether it exists.
    fn target(&self, id: u64, by: &ClientHandle) -> Option<Arc<Mailbox>> {
        let mailbox = self.mailboxes.read().get(&id).cloned()?;
        (by.id == id || mailbox.client().is_of_user_of(by)).then_some(mailbox)
    }

    /// Whether `by` may redirect to this client.
    pub(crate) fn may_redirect(&self, id: u64, by: &ClientHandle) -> bool {
        self.target(id, by).is_some()
    }

    /// The tracking state of a client.
    pub(crate) fn get(&self, id: u64) -> Option<Tracker> {
        self.hub.lock().trackers.get(&id).cloned()
    }

    /// The prefixes of a client.
    pub(crate) fn prefixes(&self, id: u64) -> Arc<BTreeSet<Bytes>> {
        self.get(id).map(|tracker| tracker.prefixes).unwrap_or_default()
    }

    /// Makes a client track; it is told of what is committed after `since`. Adds to its prefixes.
    pub(crate) fn switch_on(&self, mailbox: &Arc<Mailbox>, options: TrackingOptions, since: Version) {
        let id = mailbox.client().id;
        let before = self.get(id);
        let since = before.as_ref().map_or(since, |before| before.since);
        let mut prefixes = before.map(|before| BTreeSet::clone(&before.prefixes)).unwrap_or_default();
        if options.mode.bcast && options.prefixes.is_empty() {
            prefixes.insert(Bytes::new());
        }
        prefixes.extend(options.prefixes);
        let (mailbox, mode, redirect) = (mailbox.clone(), options.mode, options.redirect);
        let prefixes = Arc::new(prefixes);
        self.set(id, Some(Tracker { mailbox, mode, redirect, prefixes, since }));
    }

    /// Sets a client's tracking state, or turns tracking off. Its reads stay in the table until the keys
    /// change.
    pub(crate) fn set(&self, id: u64, tracker: Option<Tracker>) {
        let (old, new) =
            (self.prefixes(id), tracker.as_ref().map(|new| new.prefixes.clone()).unwrap_or_default());
        if old.len() + new.len() > PAGE {
            aside(|| self.replace(id, tracker, &old, &new));
            aside(|| drop(old));
        } else {
            self.replace(id, tracker, &old, &new);
        }
    }

    /// Prefixes of a client that does not track lead nowhere: they are added before tracking is turned on and
    /// removed after it is turned off, a [`PAGE`] at a time.
    fn replace(&self, id: u64, tracker: Option<Tracker>, old: &BTreeSet<Bytes>, new: &BTreeSet<Bytes>) {
        self.each_prefix(new.difference(old), |prefixes, prefix| {
            prefixes.entry(prefix.clone()).or_default().insert(id);
        });
        self.exchange(id, tracker);
        self.each_prefix(old.difference(new), |prefixes, prefix| {
            if let Some(ids) = prefixes.get_mut(prefix) {
                ids.remove(&id);
                if ids.is_empty() {
                    prefixes.remove(prefix);
                }
            }
        });
    }

    fn each_prefix<'p>(&self, of: impl Iterator<Item = &'p Bytes>, change: impl Fn(&mut Prefixes, &Bytes)) {
        let of: Vec<&Bytes> = of.collect();
        for page in of.chunks(PAGE) {
            let mut hub = self.hub.lock();
            page.iter().for_each(|prefix| change(&mut hub.prefixes, prefix));
        }
    }

    fn exchange(&self, id: u64, tracker: Option<Tracker>) {
        let mut guard = self.hub.lock();
        let hub = &mut *guard;
        let old = hub.trackers.remove(&id);
        if let Some(shown) = tracker.as_ref().or(old.as_ref()) {
            let state = tracker.as_ref().map(|new| (new.mode.bcast, new.redirect));
            shown.mailbox.client().set_tracking(state);
        }
        hub.trackers.extend(tracker.map(|tracker| (id, tracker)));
        let forgotten =
            if hub.trackers.is_empty() { std::mem::take(&mut hub.table) } else { Table::default() };
        self.on.store(!hub.trackers.is_empty(), Ordering::SeqCst);
        self.count(&hub.table);
        drop(guard);
        forgotten.discard();
    }

    /// Remembers that a client reads `keys`. Call it before the transaction that reads them begins.
    pub(crate) async fn remember(&self, id: u64, keys: &[&Bytes]) {
        let mut pace = Pace::default();
        for page in keys.chunks(PAGE) {
            self.remember_page(id, page);
            pace.spend(page.len() * STEPS).await;
        }
    }

    fn remember_page(&self, id: u64, keys: &[&Bytes]) {
        let mut guard = self.hub.lock();
        let Hub { trackers, table, .. } = &mut *guard;
        let seen = self.committed.load(Ordering::SeqCst);
        if trackers.contains_key(&id) {
            let possible = keys.iter().filter(|key| key.len() <= MAX_REDIS_KEY);
            possible.for_each(|key| {
                table.add(key, (id, seen), |id| trackers.contains_key(&id));
            });
        }
        self.count(table);
    }

    /// Remembers that a client reads `keys` in a transaction that has begun already, and reads at `version`. False if
    /// one of them may have changed since without the client being told: then the transaction must begin again.
    pub(crate) fn remember_late(&self, id: u64, keys: &[&Bytes], version: Version) -> bool {
        let mut guard = self.hub.lock();
        let Hub { trackers, table, .. } = &mut *guard;
        let mut is_new = false;
        if trackers.contains_key(&id) {
            for key in keys.iter().filter(|key| key.len() <= MAX_REDIS_KEY) {
                is_new |= table.add(key, (id, version), |id| trackers.contains_key(&id));
            }
        }
        self.count(table);
        !is_new || self.committed.load(Ordering::SeqCst) <= version
    }

    fn count(&self, table: &Table) {
        self.keys.store(table.len(), Ordering::Relaxed);
        self.bytes.store(table.bytes(), Ordering::Relaxed);
    }

    /// Evicts names beyond `tracking-table-max-keys`, and tells their readers.
    pub(crate) async fn trim(&self, server: &Server) {
        let most = server.config.get().tracking_table_max_keys;
        let exceeds = |keys: usize, bytes: usize| keys > most || bytes > most.saturating_mul(EACH);
        let is_full = || exceeds(self.keys.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let mut pace = Pace::default();
        while most > 0 && is_full() {
            {
                let mut hub = self.hub.lock();
                for _ in 0..PAGE {
                    if !exceeds(hub.table.len(), hub.table.bytes()) {
                        break;
                    }
                    let Some((key, ids)) = hub.table.pop() else { break };
                    let readers = ids.keys().filter_map(|id| hub.trackers.get(id)).filter(|t| !t.mode.bcast);
                    readers.for_each(|tracker| self.send(server, tracker, &Reply::bulks([key.clone()])));
                }
                self.count(&hub.table);
            }
            pace.spend(PAGE * STEPS).await;
        }
    }

    /// Records a commit at `version`: a client that begins to read now need not be told of it.
    pub(crate) fn committed(&self, version: Version) {
        if self.is_on() {
            self.committed.fetch_max(version, Ordering::SeqCst);
        }
    }

    /// Records that a commit that changed keys may have been applied, which can never be known.
    pub(crate) fn doubt(&self) {
        self.doubt.store(true, Ordering::SeqCst);
    }

    /// Called when the store accepts writes: after a doubt, tells all tracking clients that any key may have
    /// changed.
    pub(crate) async fn settle(&self, server: &Server) {
        if self.doubt.swap(false, Ordering::SeqCst) {
            server.invalidate(&[(0, &Message::Flushed(Origin::default()))]).await;
        }
    }

    /// Closes the connections of all tracking clients and of their redirection targets, because messages were
    /// missed.
    pub(crate) fn part(&self) -> usize {
        let hub = self.hub.lock();
        for tracker in hub.trackers.values() {
            let client = tracker.mailbox.client();
            client.kill();
            self.target(tracker.redirect, client).into_iter().for_each(|mailbox| mailbox.client().kill());
        }
        hub.trackers.len()
    }

    /// Totals for INFO.
    pub(crate) fn totals(&self) -> Totals {
        let hub = self.hub.lock();
        let Hub { trackers, table, prefixes } = &*hub;
        let (keys, items) = (table.len(), table.items());
        Totals { clients: trackers.len(), keys, items, prefixes: prefixes.len() }
    }

    /// Sends a tracker, or its redirection target, `what` is stale: an array of names, or null.
    fn send(&self, server: &Server, tracker: &Tracker, what: &Reply) {
        let word = Reply::bulk_static;
        let by = tracker.mailbox.client();
        let to = match tracker.redirect {
            // It is being closed, and so will not cache what it is no longer told about.
            _ if by.is_killed() => return,
            0 => tracker.mailbox.clone(),
            id => match self.target(id, by) {
                Some(mailbox) => mailbox,
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
        if client.id == by.id {
            server.post(&to, Reply::Push(message));
        } else {
            server.post_for(by, &to, Reply::Push(message));
        }
    }
}

/// Marks a redirection as broken: the target has left, or is of another user.
fn broken(server: &Server, tracker: &Tracker) {
    let client = tracker.mailbox.client();
    client.set_broken();
    if client.resp() > 2 {
        let id = Reply::Int(tracker.redirect as i64);
        server.post(&tracker.mailbox, Reply::Push(vec![Reply::bulk_static("tracking-redir-broken"), id]));
    }
}

impl Server {
    /// Sends changes to this server's tracking clients, each with the version at which it was committed.
    pub(crate) async fn invalidate(&self, changes: &[(Version, &Message)]) {
        let tracking = &self.tracking;
        if changes.is_empty() || !tracking.is_on() {
            return;
        }
        let mut pace = Pace::default();
        for page in changes.chunks(PAGE) {
            tracking.invalidate_readers(self, page);
            pace.spend(page.len() * STEPS).await;
        }
        let mut found = Found::new();
        for from in (0..changes.len()).step_by(PAGE) {
            tracking.prefixes_of(changes, from, &mut found);
            pace.spend(PAGE * STEPS).await;
        }
        for (prefix, at) in found {
            let of: Vec<_> = at.iter().filter_map(|at| changes.get(*at).copied()).collect();
            tracking.invalidate_listeners(self, &prefix, &of);
            pace.spend(of.len() * STEPS).await;
        }
    }

    /// Whether this client made a change.
    fn is_of(&self, by: Origin, tracker: &Tracker) -> bool {
        by == Origin { instance: self.space.fresh.instance(), client: tracker.id() }
    }
}

impl Tracking {
    /// Sends to the clients that have read what has changed.
    fn invalidate_readers(&self, server: &Server, changes: &[(Version, &Message)]) {
        let (mut hub, mut forgotten) = (self.hub.lock(), Table::default());
        for (version, message) in changes {
            self.committed(*version);
            match message {
                Message::Changed(by, key) => self.changed(server, &mut hub, *version, *by, key),
                Message::Flushed(_) => {
                    let table = std::mem::take(&mut hub.table);
                    if table.len() > 0 {
                        forgotten = table;
                    }
                    hub.trackers.values().for_each(|tracker| self.send(server, tracker, &Reply::Nil));
                }
                _ => {}
            }
        }
        self.count(&hub.table);
        drop(hub);
        forgotten.discard();
    }

    /// The prefixes with clients that changed keys begin with, each with the indexes of those changes.
    fn prefixes_of(&self, changes: &[(Version, &Message)], from: usize, found: &mut Found) {
        let hub = self.hub.lock();
        for (at, (_, message)) in changes.iter().enumerate().skip(from).take(PAGE) {
            if let Message::Changed(_, key) = message {
                for prefix in prefixes_of(&hub.prefixes, key) {
                    found.entry(prefix).or_default().push(at);
                }
            }
        }
    }

    /// Sends to the clients of a prefix.
    fn invalidate_listeners(&self, server: &Server, prefix: &Bytes, changes: &[(Version, &Message)]) {
        let hub = self.hub.lock();
        let ids = hub.prefixes.get(prefix).into_iter().flatten();
        let trackers = ids.filter_map(|id| hub.trackers.get(id));
        self.broadcast(server, trackers, changes);
    }

    /// Sends to the clients that have read it.
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

    /// Sends changes that begin with a prefix to its clients, each name once.
    fn broadcast<'t>(
        &self,
        server: &Server,
        trackers: impl Iterator<Item = &'t Tracker>,
        changes: &[(Version, &Message)],
    ) {
        let begins = |(version, message): &(Version, &Message)| match message {
            Message::Changed(by, key) => Some((*version, *by, key.clone())),
            _ => None,
        };
        let changes: Vec<(Version, Origin, Bytes)> = changes.iter().filter_map(begins).collect();
        for tracker in trackers {
            let notifies = |(version, by, _): &&(Version, Origin, Bytes)| {
                tracker.hears(*version) && !(tracker.mode.noloop && server.is_of(*by, tracker))
            };
            let names: BTreeSet<&Bytes> = changes.iter().filter(notifies).map(|(_, _, key)| key).collect();
            if !names.is_empty() {
                let names = names.into_iter().map(|name| Bytes::copy_from_slice(name));
                self.send(server, tracker, &Reply::bulks(names));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefixes_are_found_as_if_each_was_tried(
            prefixes in proptest::collection::btree_set("[ab]{0,4}", 0..12),
            key in "[abc]{0,6}",
        ) {
            let map: Prefixes = prefixes.iter().map(|p| (Bytes::from(p.clone()), BTreeSet::new())).collect();
            let mut wanted: Vec<&String> = prefixes.iter().filter(|p| key.starts_with(p.as_str())).collect();
            wanted.sort_by_key(|p| std::cmp::Reverse(p.len()));
            prop_assert_eq!(prefixes_of(&map, key.as_bytes()), wanted);
        }
    }
}
