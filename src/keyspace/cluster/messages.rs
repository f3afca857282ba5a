//! Messages for clients: on channels, about events of keys, and about changes of keys (`server::tracking`).
//!
//! A command puts messages into the [`Outbox`] of its attempt. They are published when that attempt commits,
//! and only then: an attempt that runs again has an outbox of its own. So nothing is published twice, and
//! nothing that did not happen.

use crate::config::Events;
use crate::keyspace::keys::MAX_REDIS_KEY;
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Somebody may receive messages and events.
pub const LISTENS: u8 = 1;
/// Somebody may cache keys.
pub const TRACKS: u8 = 2;

/// The number of recent messages to scan for duplicates: as many as one change can publish.
const LOOK_BACK: usize = 4;

/// The client whose command it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The server's instance.
    pub(crate) instance: u64,
    /// The client's id there; 0: none, for example because the key has expired.
    pub(crate) client: u64,
}

impl Origin {
    fn encode(self) -> Bytes {
        Bytes::copy_from_slice(&(u128::from(self.instance) << 64 | u128::from(self.client)).to_le_bytes())
    }
    fn decode(raw: &[u8]) -> Option<Self> {
        let both = u128::from_le_bytes(raw.try_into().ok()?);
        Some(Origin { instance: (both >> 64) as u64, client: both as u64 })
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// PUBLISH.
    Channel(Bytes, Bytes),
    /// SPUBLISH.
    Shard(Bytes, Bytes),
    /// An event of a key.
    Event {
        /// Database number.
        db: u8,
        /// Publish it on the channel of the key.
        keyspace: bool,
        /// Publish it on the channel of the event.
        keyevent: bool,
        /// The name of the event.
        event: Bytes,
        /// The key.
        key: Bytes,
    },
    /// The key of this name has changed, in some database.
    Changed(Origin, Bytes),
    /// All keys may have changed.
    Flushed(Origin),
}

const CHANNEL: u8 = 1;
const SHARD: u8 = 2;
/// Combined with the bits of both kinds of channels.
const EVENT: u8 = 4;
const CHANGED: u8 = 8;
const FLUSHED: u8 = 9;

impl Message {
    /// Appends the message: tag, database, and two texts with their lengths.
    fn encode(&self, out: &mut Vec<u8>) {
        let nothing = Bytes::new();
        let from;
        let (tag, db, first, second) = match self {
            Message::Channel(channel, payload) => (CHANNEL, 0, channel, payload),
            Message::Shard(channel, payload) => (SHARD, 0, channel, payload),
            Message::Changed(origin, key) => {
                from = origin.encode();
                (CHANGED, 0, &from, key)
            }
            Message::Flushed(origin) => {
                from = origin.encode();
                (FLUSHED, 0, &from, &nothing)
            }
            Message::Event { db, keyspace, keyevent, event, key } => {
                (EVENT | u8::from(*keyspace) | u8::from(*keyevent) << 1, *db, event, key)
            }
        };
        out.extend_from_slice(&[tag, db]);
        for text in [first, second] {
            out.put_u32_le(text.len() as u32);
            out.extend_from_slice(text);
        }
    }

    /// The bytes of its texts.
    pub(crate) fn size(&self) -> usize {
        match self {
            Message::Channel(name, payload) | Message::Shard(name, payload) => name.len() + payload.len(),
            Message::Event { event, key, .. } => event.len() + key.len(),
            Message::Changed(_, key) => key.len(),
            Message::Flushed(_) => 0,
        }
    }

    /// Whether it is for clients that cache keys. Such messages may be repeated and come in any order.
    pub(crate) fn is_of_tracking(&self) -> bool {
        matches!(self, Message::Changed(..) | Message::Flushed(_))
    }

    /// Takes a message from the front. None if no complete one is left.
    fn decode(raw: &mut Bytes) -> Option<Self> {
        let (tag, db) = (raw.try_get_u8().ok()?, raw.try_get_u8().ok()?);
        let mut text = || {
            let len = raw.try_get_u32_le().ok()? as usize;
            (len <= raw.len()).then(|| raw.split_to(len))
        };
        let (first, second) = (text()?, text()?);
        Some(match tag {
            CHANNEL => Message::Channel(first, second),
            SHARD => Message::Shard(first, second),
            CHANGED => Message::Changed(Origin::decode(&first)?, second),
            FLUSHED => Message::Flushed(Origin::decode(&first)?),
            tag if tag & !3 == EVENT => {
                let (keyspace, keyevent) = (tag & 1 > 0, tag & 2 > 0);
                Message::Event { db, keyspace, keyevent, event: first, key: second }
            }
            _ => return None,
        })
    }
}

/// Encodes messages, one after the other.
pub fn encode<'m>(messages: impl Iterator<Item = &'m Message>) -> Vec<u8> {
    let mut out = Vec::new();
    messages.for_each(|message| message.encode(&mut out));
    out
}

/// Decodes the output of [`encode`]. None for anything else.
pub fn decode(mut raw: Bytes) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while !raw.is_empty() {
        messages.push(Message::decode(&mut raw)?);
    }
    Some(messages)
}

/// The messages of an attempt.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The bits of [`LISTENS`] and [`TRACKS`] that anybody listens to.
    heard: u8,
    instance: u64,
    /// The client whose command runs.
    client: AtomicU64,
    /// The classes of events to publish.
    events: Events,
    messages: Mutex<Vec<Message>>,
}

impl Outbox {
    /// An outbox of the server `instance`. `heard`: the bits that anybody listens to. `events`: the classes
    /// of events to publish.
    pub(crate) fn new(instance: u64, heard: u8, events: Events) -> Self {
        Outbox { heard, instance, client: AtomicU64::new(0), events, messages: Mutex::default() }
    }

    /// Whether somebody may receive messages and events.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard & LISTENS != 0
    }

    /// Attributes the following messages to a command of this client.
    pub(crate) fn acts_for(&self, client: u64) {
        self.client.store(client, Ordering::Relaxed);
    }

    fn origin(&self) -> Origin {
        Origin { instance: self.instance, client: self.client.load(Ordering::Relaxed) }
    }

    /// Adds that `key` has changed, if anybody may cache it.
    pub(crate) fn changed(&self, key: &Bytes) {
        if self.heard & TRACKS == 0 || key.len() > MAX_REDIS_KEY {
            return;
        }
        let origin = self.origin();
        let mut messages = self.messages.lock();
        let same = |m: &Message| matches!(m, Message::Changed(by, of) if *by == origin && of == key);
        if !messages.iter().rev().take(LOOK_BACK).any(same) {
            messages.push(Message::Changed(origin, key.clone()));
        }
    }

    /// Adds that all keys may have changed.
    pub(crate) fn flushed(&self) {
        if self.heard & TRACKS > 0 {
            self.messages.lock().push(Message::Flushed(self.origin()));
        }
    }

    /// Adds a client's message.
    pub(crate) fn publish(&self, message: Message) {
        if self.is_heard() {
            self.messages.lock().push(message);
        }
    }

    /// Adds an event of a key in database `db`, if events of `class` are published. A name that is too long
    /// for a key has no events.
    pub(crate) fn event(&self, db: u8, class: Events, event: &'static str, key: &Bytes) {
        if !self.is_heard() || !self.events.select(class) || key.len() > MAX_REDIS_KEY {
            return;
        }
        self.messages.lock().push(Message::Event {
            db,
            keyspace: self.events.has(Events::KEYSPACE),
            keyevent: self.events.has(Events::KEYEVENT),
            event: Bytes::from_static(event.as_bytes()),
            key: key.clone(),
        });
    }

    /// The number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.lock().len()
    }

    /// Drops the messages added since there were `len`.
    pub(crate) fn back_to(&self, len: usize) {
        self.messages.lock().truncate(len);
    }

    /// Takes the messages added since the last call.
    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let text = |s: &'static str| Bytes::from_static(s.as_bytes());
        let event = |keyspace, keyevent| Message::Event {
            db: 9,
            keyspace,
            keyevent,
            event: text("set"),
            key: text("k"),
        };
        let all = vec![
            Message::Channel(text("c"), text("")),
            Message::Shard(text(""), text("payload")),
            event(true, false),
            event(true, true),
            Message::Changed(Origin { instance: u64::MAX - 1, client: 7 }, text("k")),
            Message::Flushed(Origin { instance: 1, client: u64::MAX }),
        ];
        let raw = Bytes::from(encode(all.iter()));
        assert_eq!(decode(raw.clone()), Some(all));
        assert_eq!(decode(Bytes::new()), Some(Vec::new()));
        assert_eq!(decode(raw.slice(..raw.len() - 1)), None);
        assert_eq!(decode(Bytes::from_static(b"\x0a\0\0\0\0\0\0\0\0\0")), None);
        assert_eq!(decode(Bytes::from_static(b"\x09\0\0\0\0\0\0\0\0\0")), None, "no origin");
    }

    #[test]
    fn a_change_is_published_once_and_only_to_caches() {
        let key = |s: &'static str| Bytes::from_static(s.as_bytes());
        let outbox = Outbox::new(5, LISTENS | TRACKS, Events::default());
        outbox.acts_for(7);
        for name in ["a", "a", "b", "a"] {
            outbox.changed(&key(name));
        }
        outbox.acts_for(8);
        outbox.changed(&key("a"));
        let changed = |client, name| Message::Changed(Origin { instance: 5, client }, key(name));
        assert_eq!(outbox.take(), [changed(7, "a"), changed(7, "b"), changed(8, "a")]);
        let outbox = Outbox::new(5, LISTENS, Events::default());
        outbox.changed(&key("a"));
        outbox.flushed();
        assert_eq!(outbox.take(), []);
    }
}
