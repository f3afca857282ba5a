//! The subscriptions on this server, and the delivery of messages.
//!
//! A message of a transaction is delivered after its commit, in commit order:
//!
//! * On a shared store it comes through the log (`keyspace::cluster::bus`), even to the server that wrote it.
//! * On an embedded store, an attempt that publishes takes its turn ([`Subscribers::turn`]) before its commit
//!   and keeps it until it has handed its messages over ([`super::publisher`]).
//!
//! Many receivers and many patterns are processed in steps, with pauses ([`Pace`]) and without holding a lock
//! in between; meanwhile other messages wait, and everything else goes on. A message is built once and shared
//! by all who receive it under the same name.
//!
//! Counts (PUBLISH's reply, PUBSUB NUMSUB) cover this server's clients only, as each node of a Redis Cluster
//! counts its own: asking all servers would cost every PUBLISH a round trip to each.

use super::Server;
use super::glob::Glob;
use super::mailbox::Mailbox;
use super::pace::Pace;
use super::publisher::Publisher;
use super::reply::Reply;
use crate::keyspace::cluster::messages::Message;
use crate::server::clients::ClientHandle;
use crate::store::Version;
use bytes::Bytes;
use parking_lot::RwLock;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// The number of names, or of subscribers of a name, that are visited before the lock is released.
const PAGE: usize = 64;
/// Steps of work ([`Pace`]) per receiver, and per pattern in addition to matching it.
const PERSON: usize = 1 << 8;
const PATTERN: usize = 1 << 6;

/// The kind of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    Shard,
}

#[derive(Debug)]
struct Member {
    mailbox: Arc<Mailbox>,
    /// The member receives what was committed after this version.
    since: Version,
}

/// A name with subscribers.
#[derive(Debug, Default)]
struct Entry {
    /// The parsed pattern, if the name is one.
    glob: Option<Arc<Glob>>,
    /// The subscribers, by client.
    members: BTreeMap<u64, Member>,
}

/// Ordered, so that a long walk can release the lock and continue after the last name it saw.
type Names = BTreeMap<Bytes, Entry>;

#[derive(Debug, Default)]
struct Tables {
    channels: Names,
    patterns: Names,
    shards: Names,
}

impl Tables {
    fn of(&self, kind: SubscriptionKind) -> &Names {
        match kind {
            SubscriptionKind::Channel => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Shard => &self.shards,
        }
    }
    fn of_mut(&mut self, kind: SubscriptionKind) -> &mut Names {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Subscribers {
    tables: RwLock<Tables>,
    turn: tokio::sync::Mutex<()>,
    pub(super) publisher: Publisher,
}

/// The context in which a message is delivered.
struct Delivering<'s> {
    server: &'s Server,
    /// The version at which the message was committed.
    version: Version,
    pace: &'s mut Pace,
}

impl Subscribers {
    /// Subscribes a client, which receives what is committed after `since`. `glob`: the parsed pattern, if it
    /// is one.
    pub fn enter(
        &self,
        kind: SubscriptionKind,
        name: &Bytes,
        glob: Option<Arc<Glob>>,
        mailbox: &Arc<Mailbox>,
        since: Version,
    ) {
        let since = since.max(self.publisher.last());
        let member = Member { mailbox: mailbox.clone(), since };
        let mut tables = self.tables.write();
        let entry = tables.of_mut(kind).entry(name.clone()).or_default();
        entry.glob = glob;
        entry.members.insert(mailbox.client().id, member);
    }

    /// Unsubscribes a client.
    pub(crate) fn leave(&self, kind: SubscriptionKind, name: &Bytes, client: u64) {
        let mut tables = self.tables.write();
        let names = tables.of_mut(kind);
        if let Some(entry) = names.get_mut(name) {
            entry.members.remove(&client);
            if entry.members.is_empty() {
                names.remove(name);
            }
        }
    }

    /// Whether no client has any subscription.
    pub(crate) fn is_empty(&self) -> bool {
        let tables = self.tables.read();
        [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard]
            .iter()
            .all(|kind| tables.of(*kind).is_empty())
    }

    /// The number of names of a kind that have subscribers.
    pub(crate) fn names(&self, kind: SubscriptionKind) -> usize {
        self.tables.read().of(kind).len()
    }

    /// The names of a kind that have subscribers and match `pattern`, in order.
    pub(crate) async fn matching(&self, kind: SubscriptionKind, pattern: Option<&Glob>) -> Vec<Bytes> {
        let (mut names, mut pace) = (Vec::new(), Pace::default());
        let mut last: Option<Bytes> = None;
        loop {
            let page = self.after(kind, last.as_ref(), |name, _| name.clone());
            let Some(end) = page.last() else { return names };
            last = Some(end.clone());
            for name in page {
                pace.spend(PERSON).await;
                let matches = match pattern {
                    None => true,
                    Some(pattern) => pattern.matches(&name, &mut pace).await,
                };
                if matches {
                    names.push(name);
                }
            }
        }
    }

    /// Applies `of` to the next names after `last`, some at a time.
    fn after<T>(
        &self,
        kind: SubscriptionKind,
        last: Option<&Bytes>,
        of: impl Fn(&Bytes, &Entry) -> T,
    ) -> Vec<T> {
        let tables = self.tables.read();
        let from = last.map_or(Unbounded, Excluded);
        let names = tables.of(kind).range::<Bytes, _>((from, Unbounded));
        names.take(PAGE).map(|(name, entry)| of(name, entry)).collect()
    }

    /// The number of clients subscribed to exactly this name.
    pub(crate) fn count(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        self.tables.read().of(kind).get(name).map_or(0, |entry| entry.members.len())
    }

    /// The number of clients that receive a message on `channel`: a client counts once for its name and once
    /// for each pattern.
    pub(crate) async fn receivers(&self, kind: SubscriptionKind, channel: &[u8]) -> usize {
        let mut count = self.count(kind, channel);
        if kind == SubscriptionKind::Shard {
            return count;
        }
        let (mut patterns, mut pace) = (Matching::default(), Pace::default());
        while let Some(page) = patterns.next(self, channel, &mut pace).await {
            count += page.iter().map(|pattern| self.count(SubscriptionKind::Pattern, pattern)).sum::<usize>();
        }
        count
    }

    /// Prevents others from committing messages until the guard is dropped.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits until the messages handed over so far have reached their subscribers ([`super::publisher`]).
    pub(crate) async fn caught_up(&self) {
        self.publisher.caught_up().await;
    }

    /// Closes the connections of all subscribers, because they missed messages. Returns their number.
    pub(crate) fn part(&self) -> usize {
        let tables = self.tables.read();
        let all = [&tables.channels, &tables.patterns, &tables.shards].into_iter().flat_map(BTreeMap::values);
        let members = all.flat_map(|entry| &entry.members);
        let mailboxes: BTreeMap<u64, &Arc<Mailbox>> =
            members.map(|(id, member)| (*id, &member.mailbox)).collect();
        mailboxes.values().for_each(|mailbox| mailbox.client().kill());
        mailboxes.len()
    }

    /// Closes the connections of clients for which `forbidden` rejects a name that they are subscribed to.
    pub(crate) fn part_from(&self, forbidden: impl Fn(&ClientHandle, SubscriptionKind, &[u8]) -> bool) {
        let tables = self.tables.read();
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            for (name, entry) in tables.of(kind) {
                let clients = entry.members.values().map(|member| member.mailbox.client());
                clients.filter(|c| forbidden(c, kind, name)).for_each(|client| client.kill());
            }
        }
    }

    async fn on_channel(&self, delivering: &mut Delivering<'_>, channel: &Bytes, payload: &Bytes) {
        let bulk = |text: &Bytes| Reply::Bulk(text.clone());
        let direct = || [Reply::bulk_static("message"), bulk(channel), bulk(payload)].into();
        self.send(delivering, (SubscriptionKind::Channel, channel), direct).await;
        let mut patterns = Matching::default();
        while let Some(page) = patterns.next(self, channel, delivering.pace).await {
            for pattern in &page {
                let message =
                    || [Reply::bulk_static("pmessage"), bulk(pattern), bulk(channel), bulk(payload)].into();
                self.send(delivering, (SubscriptionKind::Pattern, pattern), message).await;
            }
        }
    }

    async fn on_shard(&self, delivering: &mut Delivering<'_>, channel: &Bytes, payload: &Bytes) {
        let bulk = |text: &Bytes| Reply::Bulk(text.clone());
        let message = || [Reply::bulk_static("smessage"), bulk(channel), bulk(payload)].into();
        self.send(delivering, (SubscriptionKind::Shard, channel), message).await;
    }

    /// Sends to all subscribers of a name, some at a time. A client that subscribes meanwhile may receive it,
    /// one that unsubscribes does not.
    async fn send(
        &self,
        delivering: &mut Delivering<'_>,
        (kind, name): (SubscriptionKind, &Bytes),
        message: impl FnOnce() -> Arc<[Reply]>,
    ) {
        let (message, mut from) = (LazyCell::new(message), Unbounded);
        loop {
            let sent = {
                let tables = self.tables.read();
                let Some(entry) = tables.of(kind).get(name) else { return };
                let mut sent = 0;
                for (id, member) in entry.members.range((from, Unbounded)).take(PAGE) {
                    if delivering.version > member.since {
                        delivering.server.post(&member.mailbox, Reply::Message(message.clone()));
                    }
                    (sent, from) = (sent + 1, Excluded(*id));
                }
                sent
            };
            delivering.pace.spend(sent * PERSON).await;
            if sent < PAGE {
                return;
            }
        }
    }
}

/// The patterns that match a channel, some at a time, in order. No lock is held in between.
#[derive(Default)]
struct Matching {
    last: Option<Bytes>,
}

impl Matching {
    /// The matches among the next patterns; None if no patterns are left.
    async fn next(&mut self, hub: &Subscribers, channel: &[u8], pace: &mut Pace) -> Option<Vec<Bytes>> {
        let page = hub.after(SubscriptionKind::Pattern, self.last.as_ref(), |name, entry| {
            (name.clone(), entry.glob.clone())
        });
        self.last = Some(page.last()?.0.clone());
        let mut matching = Vec::new();
        for (name, glob) in page {
            pace.spend(PATTERN).await;
            if let Some(glob) = glob
                && glob.matches(channel, pace).await
            {
                matching.push(name);
            }
        }
        Some(matching)
    }
}

impl Server {
    /// Delivers messages of the log to this server's clients, each with the version at which it was
    /// committed.
    pub(crate) async fn deliver<'m>(&self, messages: impl Iterator<Item = (Version, &'m Message)>) {
        let (changes, others): (Vec<_>, Vec<_>) = messages.partition(|(_, message)| message.is_of_tracking());
        // Invalidations first: many subscribers take a while, and caches are stale meanwhile.
        self.invalidate(&changes).await;
        if !self.subscribers.is_empty() {
            let mut pace = Pace::default();
            for (version, message) in others {
                self.deliver_one(version, message, &mut pace).await;
            }
        }
    }

    /// Delivers to those who subscribed before `version`.
    pub(super) async fn deliver_one(&self, version: Version, message: &Message, pace: &mut Pace) {
        let hub = &self.subscribers;
        let delivering = &mut Delivering { server: self, version, pace };
        match message {
            Message::Channel(channel, payload) => hub.on_channel(delivering, channel, payload).await,
            Message::Shard(channel, payload) => hub.on_shard(delivering, channel, payload).await,
            Message::Changed(..) | Message::Flushed(_) => {}
            Message::Event { db, keyspace, keyevent, event, key } => {
                let channel = |kind: &str, name: &[u8]| {
                    Bytes::from(
                        [b"__", kind.as_bytes(), b"@", db.to_string().as_bytes(), b"__:", name].concat(),
                    )
                };
                if *keyspace {
                    hub.on_channel(delivering, &channel("keyspace", key), event).await;
                }
                if *keyevent {
                    hub.on_channel(delivering, &channel("keyevent", event), key).await;
                }
            }
        }
    }
}
