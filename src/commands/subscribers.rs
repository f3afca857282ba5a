//! Who is subscribed to what on this server, and who hears a message.
//!
//! A message of a transaction is heard after its commit, in the order of commits:
//! * on a store of several servers it comes through the log (`keyspace::message_log`), also to the server that wrote it;
//! * on an embedded store an attempt that has something to tell takes its turn ([`Subscribers::turn`]) from before its commit until
//!   it has told it.
//!
//! Counts (PUBLISH's answer, PUBSUB NUMSUB) are of this server's clients, as each node of a Redis Cluster counts its own: to
//! ask all servers would cost every PUBLISH a round of answers.

use super::cx::Server;
use super::glob;
use super::mailbox::Mailbox;
use super::reply::Reply;
use crate::keyspace::messages::Message;
use crate::store::Version;
use crate::telemetry::clients::ClientHandle;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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

/// By name, then by client.
type Names = HashMap<Bytes, BTreeMap<u64, Member>>;

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
    fn matching<'a>(
        &'a self,
        channel: &'a [u8],
    ) -> impl Iterator<Item = (&'a Bytes, &'a BTreeMap<u64, Member>)> {
        self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel, false))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Subscribers {
    tables: RwLock<Tables>,
    turn: tokio::sync::Mutex<()>,
}

impl Subscribers {
    /// Enters a client, who hears what is committed after `since`.
    pub fn enter(&self, kind: Kind, name: &Bytes, mailbox: &Arc<Mailbox>, since: Version) {
        let member = Member { mailbox: mailbox.clone(), since };
        let mut tables = self.tables.write();
        tables.of_mut(kind).entry(name.clone()).or_default().insert(mailbox.client().id, member);
    }

    /// Removes a client.
    pub fn leave(&self, kind: Kind, name: &Bytes, client: u64) {
        let mut tables = self.tables.write();
        let names = tables.of_mut(kind);
        if let Some(members) = names.get_mut(name) {
            members.remove(&client);
            if members.is_empty() {
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
    pub fn matching(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let tables = self.tables.read();
        let wanted = |name: &&Bytes| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
        let mut names: Vec<Bytes> = tables.of(kind).keys().filter(wanted).cloned().collect();
        names.sort();
        names
    }

    /// How many clients are subscribed to a name itself.
    pub fn count(&self, kind: Kind, name: &[u8]) -> usize {
        self.tables.read().of(kind).get(name).map_or(0, BTreeMap::len)
    }

    /// How many hear a message on `channel`: a client counts once for its name and once for each pattern.
    pub fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let tables = self.tables.read();
        let by_name = tables.of(kind).get(channel).map_or(0, BTreeMap::len);
        match kind {
            Kind::Shard => by_name,
            _ => by_name + tables.matching(channel).map(|(_, members)| members.len()).sum::<usize>(),
        }
    }

    /// Nobody else tells anything until the guard is dropped.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Closes the connections of all that are subscribed: they missed something.
    pub fn part(&self) -> usize {
        let tables = self.tables.read();
        let all = [&tables.channels, &tables.patterns, &tables.shards].into_iter().flat_map(HashMap::values);
        let mailboxes: BTreeMap<u64, &Arc<Mailbox>> =
            all.flatten().map(|(id, member)| (*id, &member.mailbox)).collect();
        mailboxes.values().for_each(|mailbox| mailbox.client().kill());
        mailboxes.len()
    }

    /// Closes the connections of those whom `forbidden` forbids a name that they are subscribed to.
    pub fn part_from(&self, forbidden: impl Fn(&ClientHandle, Kind, &[u8]) -> bool) {
        let tables = self.tables.read();
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for (name, members) in tables.of(kind) {
                let clients = members.values().map(|member| member.mailbox.client());
                clients.filter(|c| forbidden(c, kind, name)).for_each(|client| client.kill());
            }
        }
    }

    fn on_channel(&self, server: &Server, version: Version, channel: &Bytes, payload: &Bytes) {
        let tables = self.tables.read();
        let (channel, payload) = (Reply::Bulk(channel.clone()), Reply::Bulk(payload.clone()));
        if let Reply::Bulk(name) = &channel {
            let direct = vec![Reply::bulk_static("message"), channel.clone(), payload.clone()];
            tables.channels.get(name).into_iter().for_each(|to| send(server, to, version, &direct));
            for (pattern, to) in tables.matching(name) {
                let pattern = Reply::Bulk(pattern.clone());
                let message = vec![Reply::bulk_static("pmessage"), pattern, channel.clone(), payload.clone()];
                send(server, to, version, &message);
            }
        }
    }

    fn on_shard(&self, server: &Server, version: Version, channel: &Bytes, payload: &Bytes) {
        if let Some(to) = self.tables.read().shards.get(channel) {
            let texts = [channel, payload].map(|text| Reply::Bulk(text.clone()));
            let message: Vec<Reply> = [Reply::bulk_static("smessage")].into_iter().chain(texts).collect();
            send(server, to, version, &message);
        }
    }
}

fn send(server: &Server, to: &BTreeMap<u64, Member>, version: Version, message: &[Reply]) {
    for member in to.values().filter(|member| version == 0 || version > member.since) {
        server.post(&member.mailbox, Reply::Push(message.to_vec()));
    }
}

impl Server {
    /// Brings messages to this server's clients, each with the version that it was committed at (0: in this process, right now).
    pub fn deliver<'m>(&self, messages: impl Iterator<Item = (Version, &'m Message)>) {
        let mut changes = Vec::new();
        for (version, message) in messages {
            if message.is_of_tracking() {
                changes.push((version, message));
            } else {
                self.deliver_one(version, message);
            }
        }
        self.invalidate(&changes);
    }

    fn deliver_one(&self, version: Version, message: &Message) {
        let hub = &self.subscribers;
        match message {
            Message::Channel(channel, payload) => hub.on_channel(self, version, channel, payload),
            Message::Shard(channel, payload) => hub.on_shard(self, version, channel, payload),
            Message::Event { .. } if hub.is_empty() => {}
            Message::Changed(..) | Message::Flushed(_) => {}
            Message::Event { db, keyspace, keyevent, event, key } => {
                let channel = |kind: &str, name: &[u8]| {
                    Bytes::from(
                        [b"__", kind.as_bytes(), b"@", db.to_string().as_bytes(), b"__:", name].concat(),
                    )
                };
                if *keyspace {
                    hub.on_channel(self, version, &channel("keyspace", key), event);
                }
                if *keyevent {
                    hub.on_channel(self, version, &channel("keyevent", event), key);
                }
            }
        }
    }

    /// What a transaction told has been committed: its messages are on their way, or brought here.
    pub fn told(&self, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        if self.space.messages.is_shared() {
            return self.space.messages.ring();
        }
        self.deliver(messages.iter().map(|message| (0, message)));
    }
}
