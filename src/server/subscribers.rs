//! Who is subscribed to what on this server, and who hears a message.
//!
//! A message of a transaction is heard after its commit, in the order of commits:
//! * on a store of several servers it comes through the log (`keyspace::cluster::bus`), also to the server that wrote it;
//! * on an embedded store an attempt that has something to tell takes its turn ([`Subscribers::turn`]) from before its commit until
//!   it has handed it over ([`super::telling`]).
//!
//! Many receivers and many patterns are gone through in steps, with pauses ([`Pace`]) and without a lock between them; meanwhile other
//! messages wait, and all else goes on. A message is made once, and shared by all who hear it by the same name.
//!
//! Counts (PUBLISH's answer, PUBSUB NUMSUB) are of this server's clients, as each node of a Redis Cluster counts its own: to
//! ask all servers would cost every PUBLISH a round of answers.

use super::Server;
use super::glob::Glob;
use super::mailbox::Mailbox;
use super::pace::Pace;
use super::reply::Reply;
use super::telling::Telling;
use crate::keyspace::cluster::messages::Message;
use crate::server::clients::ClientHandle;
use crate::store::Version;
use bytes::Bytes;
use parking_lot::RwLock;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// Names, or subscribers of a name, that are looked at before the lock is let go.
const PAGE: usize = 64;
/// Steps of work ([`Pace`]) that a receiver costs, and a pattern beside what it takes to match it.
const PERSON: usize = 1 << 8;
const PATTERN: usize = 1 << 6;

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
    /// It hears what was committed after that.
    since: Version,
}

/// A name that somebody is subscribed to.
#[derive(Debug, Default)]
struct Entry {
    /// Of a pattern.
    glob: Option<Arc<Glob>>,
    /// By client.
    members: BTreeMap<u64, Member>,
}

/// In order, so that a long walk can let go of the lock and go on behind the name that it saw last.
type Names = BTreeMap<Bytes, Entry>;

#[derive(Debug, Default)]
struct Tables {
    channels: Names,
    patterns: Names,
    shards: Names,
}

impl Tables {
    fn of(&self, kind: Kind) -> &Names {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }
    fn of_mut(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Subscribers {
    tables: RwLock<Tables>,
    turn: tokio::sync::Mutex<()>,
    pub(super) telling: Telling,
}

/// Who brings a message to its receivers.
struct Speaker<'s> {
    server: &'s Server,
    /// What the message was committed at.
    version: Version,
    pace: &'s mut Pace,
}

impl Subscribers {
    /// Enters a client, who hears what is committed after `since`. `glob`: of a pattern.
    pub fn enter(
        &self,
        kind: Kind,
        name: &Bytes,
        glob: Option<Arc<Glob>>,
        mailbox: &Arc<Mailbox>,
        since: Version,
    ) {
        let since = since.max(self.telling.last());
        let member = Member { mailbox: mailbox.clone(), since };
        let mut tables = self.tables.write();
        let entry = tables.of_mut(kind).entry(name.clone()).or_default();
        entry.glob = glob;
        entry.members.insert(mailbox.client().id, member);
    }

    /// Removes a client.
    pub fn leave(&self, kind: Kind, name: &Bytes, client: u64) {
        let mut tables = self.tables.write();
        let names = tables.of_mut(kind);
        if let Some(entry) = names.get_mut(name) {
            entry.members.remove(&client);
            if entry.members.is_empty() {
                names.remove(name);
            }
        }
    }

    /// Whether nobody is subscribed to anything.
    pub fn is_empty(&self) -> bool {
        let tables = self.tables.read();
        [Kind::Channel, Kind::Pattern, Kind::Shard].iter().all(|kind| tables.of(*kind).is_empty())
    }

    /// How many names of a kind have subscribers.
    pub fn names(&self, kind: Kind) -> usize {
        self.tables.read().of(kind).len()
    }

    /// The names of a kind that have subscribers and match `pattern`, in order.
    pub async fn matching(&self, kind: Kind, pattern: Option<&Glob>) -> Vec<Bytes> {
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

    /// What `of` says about the next names behind `last`, some at a time.
    fn after<T>(&self, kind: Kind, last: Option<&Bytes>, of: impl Fn(&Bytes, &Entry) -> T) -> Vec<T> {
        let tables = self.tables.read();
        let from = last.map_or(Unbounded, Excluded);
        let names = tables.of(kind).range::<Bytes, _>((from, Unbounded));
        names.take(PAGE).map(|(name, entry)| of(name, entry)).collect()
    }

    /// How many clients are subscribed to a name itself.
    pub fn count(&self, kind: Kind, name: &[u8]) -> usize {
        self.tables.read().of(kind).get(name).map_or(0, |entry| entry.members.len())
    }

    /// How many hear a message on `channel`: a client counts once for its name and once for each pattern.
    pub async fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let mut count = self.count(kind, channel);
        if kind == Kind::Shard {
            return count;
        }
        let (mut patterns, mut pace) = (Matching::default(), Pace::default());
        while let Some(page) = patterns.next(self, channel, &mut pace).await {
            count += page.iter().map(|pattern| self.count(Kind::Pattern, pattern)).sum::<usize>();
        }
        count
    }

    /// Nobody else commits what it tells until the guard is dropped.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits until those who are subscribed have heard what was handed over so far ([`super::telling`]).
    pub async fn caught_up(&self) {
        self.telling.caught_up().await;
    }

    /// Closes the connections of all that are subscribed: they missed something.
    pub fn part(&self) -> usize {
        let tables = self.tables.read();
        let all = [&tables.channels, &tables.patterns, &tables.shards].into_iter().flat_map(BTreeMap::values);
        let members = all.flat_map(|entry| &entry.members);
        let mailboxes: BTreeMap<u64, &Arc<Mailbox>> =
            members.map(|(id, member)| (*id, &member.mailbox)).collect();
        mailboxes.values().for_each(|mailbox| mailbox.client().kill());
        mailboxes.len()
    }

    /// Closes the connections of those whom `forbidden` forbids a name that they are subscribed to.
    pub fn part_from(&self, forbidden: impl Fn(&ClientHandle, Kind, &[u8]) -> bool) {
        let tables = self.tables.read();
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for (name, entry) in tables.of(kind) {
                let clients = entry.members.values().map(|member| member.mailbox.client());
                clients.filter(|c| forbidden(c, kind, name)).for_each(|client| client.kill());
            }
        }
    }

    async fn on_channel(&self, speaker: &mut Speaker<'_>, channel: &Bytes, payload: &Bytes) {
        let bulk = |text: &Bytes| Reply::Bulk(text.clone());
        let direct = || [Reply::bulk_static("message"), bulk(channel), bulk(payload)].into();
        self.send(speaker, (Kind::Channel, channel), direct).await;
        let mut patterns = Matching::default();
        while let Some(page) = patterns.next(self, channel, speaker.pace).await {
            for pattern in &page {
                let message =
                    || [Reply::bulk_static("pmessage"), bulk(pattern), bulk(channel), bulk(payload)].into();
                self.send(speaker, (Kind::Pattern, pattern), message).await;
            }
        }
    }

    async fn on_shard(&self, speaker: &mut Speaker<'_>, channel: &Bytes, payload: &Bytes) {
        let bulk = |text: &Bytes| Reply::Bulk(text.clone());
        let message = || [Reply::bulk_static("smessage"), bulk(channel), bulk(payload)].into();
        self.send(speaker, (Kind::Shard, channel), message).await;
    }

    /// To all that are subscribed to a name, some at a time. Who comes meanwhile may hear it, who leaves does not.
    async fn send(
        &self,
        speaker: &mut Speaker<'_>,
        (kind, name): (Kind, &Bytes),
        message: impl FnOnce() -> Arc<[Reply]>,
    ) {
        let (message, mut from) = (LazyCell::new(message), Unbounded);
        loop {
            let sent = {
                let tables = self.tables.read();
                let Some(entry) = tables.of(kind).get(name) else { return };
                let mut sent = 0;
                for (id, member) in entry.members.range((from, Unbounded)).take(PAGE) {
                    if speaker.version > member.since {
                        speaker.server.post(&member.mailbox, Reply::Message(message.clone()));
                    }
                    (sent, from) = (sent + 1, Excluded(*id));
                }
                sent
            };
            speaker.pace.spend(sent * PERSON).await;
            if sent < PAGE {
                return;
            }
        }
    }
}

/// The patterns that match a channel, some at a time, in the order of their texts. Nothing is locked between.
#[derive(Default)]
struct Matching {
    last: Option<Bytes>,
}

impl Matching {
    /// Those of the next patterns that match; None where none are left.
    async fn next(&mut self, hub: &Subscribers, channel: &[u8], pace: &mut Pace) -> Option<Vec<Bytes>> {
        let page =
            hub.after(Kind::Pattern, self.last.as_ref(), |name, entry| (name.clone(), entry.glob.clone()));
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
    /// Brings messages of the log to this server's clients, each with the version that it was committed at.
    pub async fn deliver<'m>(&self, messages: impl Iterator<Item = (Version, &'m Message)>) {
        let (changes, others): (Vec<_>, Vec<_>) = messages.partition(|(_, message)| message.is_of_tracking());
        // First: many subscribers take a while, and a cache is stale meanwhile.
        self.invalidate(&changes).await;
        if !self.subscribers.is_empty() {
            let mut pace = Pace::default();
            for (version, message) in others {
                self.deliver_one(version, message, &mut pace).await;
            }
        }
    }

    /// To those who have subscribed before `version`.
    pub(super) async fn deliver_one(&self, version: Version, message: &Message, pace: &mut Pace) {
        let hub = &self.subscribers;
        let speaker = &mut Speaker { server: self, version, pace };
        match message {
            Message::Channel(channel, payload) => hub.on_channel(speaker, channel, payload).await,
            Message::Shard(channel, payload) => hub.on_shard(speaker, channel, payload).await,
            Message::Changed(..) | Message::Flushed(_) => {}
            Message::Event { db, keyspace, keyevent, event, key } => {
                let channel = |kind: &str, name: &[u8]| {
                    Bytes::from(
                        [b"__", kind.as_bytes(), b"@", db.to_string().as_bytes(), b"__:", name].concat(),
                    )
                };
                if *keyspace {
                    hub.on_channel(speaker, &channel("keyspace", key), event).await;
                }
                if *keyevent {
                    hub.on_channel(speaker, &channel("keyevent", event), key).await;
                }
            }
        }
    }
}
