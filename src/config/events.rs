//! `notify-keyspace-events`: which changes of keys are published, and on which channels.

use super::codec::Codec;

/// Classes of events, and the two kinds of channels. Nothing is published without at least one kind and one
/// class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u32);

impl Events {
    /// `__keyspace@<db>__:<key>`, with the event as the message.
    pub(crate) const KEYSPACE: Events = Events(1);
    /// `__keyevent@<db>__:<event>`, with the key as the message.
    pub(crate) const KEYEVENT: Events = Events(1 << 1);
    /// DEL, EXPIRE, RENAME and other commands for keys of any type.
    pub(crate) const GENERIC: Events = Events(1 << 2);
    /// Strings.
    pub(crate) const STRING: Events = Events(1 << 3);
    /// Lists.
    pub(crate) const LIST: Events = Events(1 << 4);
    /// Sets.
    pub(crate) const SET: Events = Events(1 << 5);
    /// Hashes.
    pub(crate) const HASH: Events = Events(1 << 6);
    /// Sorted sets.
    pub(crate) const ZSET: Events = Events(1 << 7);
    /// A key was removed because it had expired.
    pub(crate) const EXPIRED: Events = Events(1 << 8);
    /// Streams.
    pub(crate) const STREAM: Events = Events(1 << 10);
    /// A command that reads did not find its key.
    pub(crate) const MISS: Events = Events(1 << 11);
    /// A key was created.
    pub(crate) const NEW: Events = Events(1 << 14);
    /// The classes that `A` includes.
    const ALL: Events = Events(0b10_0111_1111_1100);

    /// Whether any bit of `other` is set.
    pub(crate) const fn has(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }
    const fn or(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
    /// Whether events of `class` are published at all.
    pub(crate) const fn select(self, class: Events) -> bool {
        self.has(class) && self.has(Events::KEYSPACE.or(Events::KEYEVENT))
    }
}

/// Letters in Redis' display order. Those of types that Tern does not have, and of evictions, are kept and
/// shown.
const LETTERS: [(char, Events); 14] = [
    ('g', Events::GENERIC),
    ('$', Events::STRING),
    ('l', Events::LIST),
    ('s', Events::SET),
    ('h', Events::HASH),
    ('z', Events::ZSET),
    ('x', Events::EXPIRED),
    ('e', Events(1 << 9)),
    ('t', Events::STREAM),
    ('d', Events(1 << 13)),
    ('n', Events::NEW),
    ('K', Events::KEYSPACE),
    ('E', Events::KEYEVENT),
    ('m', Events::MISS),
];

/// Parses and shows the letters.
pub(super) struct Letters;

impl Codec<Events> for Letters {
    fn read(&self, args: &[&str], _: &Events) -> Result<Events, String> {
        let [text] = args else { return Err("wrong number of arguments".into()) };
        let mut events = Events::default();
        for letter in text.chars() {
            let found = LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, class)| *class);
            let class = found.or((letter == 'A').then_some(Events::ALL));
            let class = class.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            events = events.or(class);
        }
        Ok(events)
    }
    fn show(&self, value: &Events) -> String {
        let all = value.0 & Events::ALL.0 == Events::ALL.0;
        // As in Redis: `n` is not part of `A`, and is not shown beside it.
        let hidden = |class: Events| all && (Events::ALL.has(class) || class == Events::NEW);
        let shown = LETTERS.iter().filter(|(_, class)| value.has(*class) && !hidden(*class));
        let letters: String = shown.map(|(letter, _)| *letter).collect();
        if all { format!("A{letters}") } else { letters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_shown_as_redis_does() {
        let shown = |text: &str| Letters.read(&[text], &Events::default()).map(|e| Letters.show(&e));
        for (text, want) in [("", ""), ("KEA", "AKE"), ("KEAmn", "AKEm"), ("gKn", "gnK"), ("g$lshzxetd", "A")]
        {
            assert_eq!(shown(text).as_deref(), Ok(want), "{text}");
        }
        assert!(shown("q").is_err());
        let read = |text: &str| Letters.read(&[text], &Events::default()).unwrap();
        assert!(
            read("KA").select(Events::STRING)
                && !read("KA").select(Events::NEW)
                && !read("A").select(Events::SET)
        );
        assert!(read("Em").select(Events::MISS) && !read("Em").has(Events::KEYSPACE));
    }
}
