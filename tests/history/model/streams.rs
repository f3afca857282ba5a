//! Streams, and the effect of commands on their entries. All ids have the time 0, so an entry is its number.

use super::commands::{int, number};
use super::groups::Group;
use super::values::Text;
use super::{Answer, Held, Now, State, Value};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    pub(super) entries: BTreeMap<u64, String>,
    last: u64,
    pub(super) groups: BTreeMap<String, Group>,
}

/// The number in an id.
pub(super) fn entry(id: &str) -> u64 {
    number(id.strip_prefix("0-").unwrap()) as u64
}

pub(super) fn text(word: &str) -> Answer {
    Answer::text(&Text::of(word.as_bytes()))
}

pub(super) fn id(entry: u64) -> Answer {
    text(&format!("0-{entry}"))
}

/// The fields of an entry.
pub(super) fn fields(value: &str) -> Answer {
    Answer::All(vec![text("f"), text(value)])
}

pub(super) fn shown(entries: &[(u64, String)]) -> Answer {
    Answer::All(entries.iter().map(|(n, value)| Answer::All(vec![id(*n), fields(value)])).collect())
}

/// What XREAD and its like reply of one key.
pub(super) fn read_of(key: &str, entries: Vec<Answer>) -> Answer {
    if entries.is_empty() {
        return Answer::Aborted;
    }
    Answer::All(vec![Answer::All(vec![text(key), Answer::All(entries)])])
}

impl Stream {
    /// Removes the first entries until `most` are left: with ACKED only those that no group needs, with DELREF also from
    /// what is pending.
    fn trim(&mut self, most: &str, policy: &str) -> usize {
        let excess = self.entries.len().saturating_sub(number(most) as usize);
        let goes = |n: &u64| policy != "ACKED" || !self.is_needed(*n);
        let gone: Vec<u64> = self.entries.keys().copied().filter(goes).take(excess).collect();
        for n in &gone {
            self.entries.remove(n);
            self.forget(*n, policy);
        }
        gone.len()
    }

    /// Whether a group has yet to deliver an entry, or it is pending in one.
    pub(super) fn is_needed(&self, n: u64) -> bool {
        self.groups.values().any(|group| n > group.last || group.pending.contains_key(&n))
    }

    /// With DELREF, an entry that goes is pending nowhere.
    fn forget(&mut self, n: u64, policy: &str) {
        if policy == "DELREF" {
            self.groups.values_mut().for_each(|group| _ = group.pending.remove(&n));
        }
    }

    /// What XDELEX says of an entry.
    pub(super) fn delete(&mut self, n: u64, policy: &str) -> i64 {
        if policy == "ACKED" && self.is_needed(n) {
            return 2;
        }
        self.forget(n, policy);
        if self.entries.remove(&n).is_some() { 1 } else { -1 }
    }

    /// Up to `most` entries behind one.
    pub(super) fn after(&self, after: u64, most: usize) -> Vec<(u64, String)> {
        self.entries.range(after + 1..).take(most).map(|(n, value)| (*n, value.clone())).collect()
    }
}

impl State {
    pub(super) fn apply_to_stream(&mut self, words: &[&str], now: Now) -> Answer {
        match words {
            ["XADD", key, policy, "MAXLEN", most, _, "f", value] => {
                self.add_entry(key, value, Some((most, policy)), now)
            }
            ["XADD", key, "MAXLEN", most, _, "f", value] => {
                self.add_entry(key, value, Some((most, "KEEPREF")), now)
            }
            ["XADD", key, _, "f", value] => self.add_entry(key, value, None, now),
            ["XLEN", key] => int(self.stream(key, now).unwrap_or_default().entries.len()),
            ["XRANGE", key, "-", "+"] => {
                shown(&self.stream(key, now).unwrap_or_default().after(0, usize::MAX))
            }
            ["XREAD", "STREAMS", key, after] => {
                let found = self.stream(key, now).unwrap_or_default().after(entry(after), usize::MAX);
                if found.is_empty() {
                    return Answer::Aborted;
                }
                Answer::All(vec![Answer::All(vec![text(key), shown(&found)])])
            }
            ["XDEL", key, id] => self
                .remove_entries(key, now, |stream| usize::from(stream.entries.remove(&entry(id)).is_some())),
            ["XTRIM", key, "MAXLEN", most, rest @ ..] => {
                let policy = rest.first().unwrap_or(&"KEEPREF");
                self.remove_entries(key, now, |stream| stream.trim(most, policy))
            }
            ["XDELEX", key, policy, "IDS", "1", id] => {
                let Some(mut stream) = self.stream(key, now) else {
                    return Answer::All(vec![Answer::Int(-1)]);
                };
                let before = stream.clone();
                let said = stream.delete(entry(id), policy);
                if stream != before {
                    self.put_stream(key, stream, now);
                }
                Answer::All(vec![Answer::Int(said)])
            }
            words => self.apply_to_group(words, now),
        }
    }

    fn remove_entries(&mut self, key: &str, now: Now, remove: impl FnOnce(&mut Stream) -> usize) -> Answer {
        let Some(mut stream) = self.stream(key, now) else { return int(0) };
        let gone = remove(&mut stream);
        if gone > 0 {
            self.put_stream(key, stream, now);
        }
        int(gone)
    }

    fn add_entry(&mut self, key: &str, value: &str, trim: Option<(&str, &str)>, now: Now) -> Answer {
        let mut stream = self.stream(key, now).unwrap_or_default();
        stream.last += 1;
        let added = stream.last;
        stream.entries.insert(added, value.to_owned());
        trim.iter().for_each(|(most, policy)| _ = stream.trim(most, policy));
        self.put_stream(key, stream, now);
        id(added)
    }

    pub(super) fn stream(&self, key: &str, now: Now) -> Option<Stream> {
        match &self.live(key, now)?.value {
            Value::Stream(stream) => Some(Stream::clone(&stream.0)),
            _ => panic!("{key} is no stream"),
        }
    }

    /// A stream stays without entries.
    pub(super) fn put_stream(&mut self, key: &str, stream: Stream, now: Now) {
        self.put(key, Value::Stream(Held::new(stream)), self.expiry(key, now));
    }
}
