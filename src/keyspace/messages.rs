//! What clients are told: messages on channels, and what happens to keys.
//!
//! A command puts messages into the [`Outbox`] of its attempt. They are heard once that attempt has committed, and only then: an
//! attempt that runs again has an outbox of its own. So nothing is told twice, and nothing that did not happen.

use super::keys::MAX_REDIS_KEY;
use crate::config::Events;
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// PUBLISH.
    Channel(Bytes, Bytes),
    /// SPUBLISH.
    Shard(Bytes, Bytes),
    /// Something happened to a key.
    Event {
        /// Database number.
        db: u8,
        /// Told on the channel of the key.
        keyspace: bool,
        /// Told on the channel of the event.
        keyevent: bool,
        /// What happened.
        event: Bytes,
        /// The key.
        key: Bytes,
    },
}

const CHANNEL: u8 = 1;
const SHARD: u8 = 2;
/// With the bits of both kinds of channels.
const EVENT: u8 = 4;

impl Message {
    /// Appends it: tag, database, and two texts with their lengths.
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, db, first, second) = match self {
            Message::Channel(channel, payload) => (CHANNEL, 0, channel, payload),
            Message::Shard(channel, payload) => (SHARD, 0, channel, payload),
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

    /// Takes one from the front. None where there is no whole one.
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
            tag if tag & !3 == EVENT => {
                let (keyspace, keyevent) = (tag & 1 > 0, tag & 2 > 0);
                Message::Event { db, keyspace, keyevent, event: first, key: second }
            }
            _ => return None,
        })
    }
}

/// As bytes, one behind the other.
pub fn encode(messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut out));
    out
}

/// What [`encode`] made. None where it is something else.
pub fn decode(mut raw: Bytes) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while !raw.is_empty() {
        messages.push(Message::decode(&mut raw)?);
    }
    Some(messages)
}

/// What an attempt has to tell.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Whether messages are to be told.
    listening: bool,
    /// Which events are.
    events: Events,
    messages: Mutex<Vec<Message>>,
}

impl Outbox {
    /// `listening`: false where nobody can hear anything. `events`: what is to be told of keys.
    pub fn new(listening: bool, events: Events) -> Self {
        Outbox { listening, events, messages: Mutex::default() }
    }

    /// Whether somebody may hear messages.
    pub fn is_heard(&self) -> bool {
        self.listening
    }

    /// Adds a message of a client.
    pub fn publish(&self, message: Message) {
        if self.listening {
            self.messages.lock().push(message);
        }
    }

    /// Adds what happens to a key of database `db`, where events of `class` are to be told. A name that is too long for a key is
    /// of none.
    pub fn event(&self, db: u8, class: Events, event: &'static str, key: &Bytes) {
        if !self.listening || !self.events.tell(class) || key.len() > MAX_REDIS_KEY {
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

    /// What was added since the last call.
    pub fn take(&self) -> Vec<Message> {
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
        ];
        let raw = Bytes::from(encode(&all));
        assert_eq!(decode(raw.clone()), Some(all));
        assert_eq!(decode(Bytes::new()), Some(Vec::new()));
        assert_eq!(decode(raw.slice(..raw.len() - 1)), None);
        assert_eq!(decode(Bytes::from_static(b"\x09\0\0\0\0\0\0\0\0\0")), None);
    }
}
