//! Streams with one group, and the effect of commands on them. All ids have the time 0, so an entry is its number.

use super::commands::{int, number};
use super::values::Text;
use super::{Answer, Held, Now, State, Value};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    entries: BTreeMap<u64, String>,
    last: u64,
    group: Option<Group>,
}

/// The last entry that was delivered, and the consumers of those that were not acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Group {
    last: u64,
    pending: BTreeMap<u64, String>,
}

/// The number in an id.
fn entry(id: &str) -> u64 {
    number(id.strip_prefix("0-").unwrap()) as u64
}

fn text(word: &str) -> Answer {
    Answer::text(&Text::of(word.as_bytes()))
}

fn id(entry: u64) -> Answer {
    text(&format!("0-{entry}"))
}

fn shown<'e>(entries: impl Iterator<Item = (&'e u64, &'e String)>) -> Answer {
    let one =
        |(n, value): (&u64, &String)| Answer::All(vec![id(*n), Answer::All(vec![text("f"), text(value)])]);
    Answer::All(entries.map(one).collect())
}

/// What XREAD and its like reply of one key.
fn read_of(key: &str, entries: Vec<(u64, String)>) -> Answer {
    if entries.is_empty() {
        return Answer::Aborted;
    }
    Answer::All(vec![Answer::All(vec![text(key), shown(entries.iter().map(|(n, value)| (n, value)))])])
}

impl Stream {
    fn trim(&mut self, most: &str) -> usize {
        let gone = self.entries.len().saturating_sub(number(most) as usize);
        (0..gone).for_each(|_| drop(self.entries.pop_first()));
        gone
    }

    fn after(&self, after: u64, most: usize) -> Vec<(u64, String)> {
        self.entries.range(after + 1..).take(most).map(|(n, value)| (*n, value.clone())).collect()
    }
}

impl State {
    pub(super) fn apply_to_stream(&mut self, words: &[&str], now: Now) -> Answer {
        match words {
            ["XADD", key, "MAXLEN", most, _, "f", value] => self.add_entry(key, value, Some(most), now),
            ["XADD", key, _, "f", value] => self.add_entry(key, value, None, now),
            ["XLEN", key] => int(self.stream(key, now).unwrap_or_default().entries.len()),
            ["XRANGE", key, "-", "+"] => shown(self.stream(key, now).unwrap_or_default().entries.iter()),
            ["XREAD", "STREAMS", key, after] => {
                read_of(key, self.stream(key, now).unwrap_or_default().after(entry(after), usize::MAX))
            }
            ["XDEL", key, id] => {
                let Some(mut stream) = self.stream(key, now) else { return int(0) };
                let gone = stream.entries.remove(&entry(id)).is_some();
                if gone {
                    self.put_stream(key, stream, now);
                }
                int(gone.into())
            }
            ["XTRIM", key, "MAXLEN", most] => {
                let Some(mut stream) = self.stream(key, now) else { return int(0) };
                let gone = stream.trim(most);
                if gone > 0 {
                    self.put_stream(key, stream, now);
                }
                int(gone)
            }
            ["XGROUP", "CREATE", key, ..] => {
                let mut stream = self.stream(key, now).unwrap_or_default();
                if stream.group.is_some() {
                    return Answer::Error("BUSYGROUP Consumer Group name already exists".into());
                }
                stream.group = Some(Group::default());
                self.put_stream(key, stream, now);
                Answer::Ok
            }
            words => self.apply_to_group(words, now),
        }
    }

    fn add_entry(&mut self, key: &str, value: &str, most: Option<&str>, now: Now) -> Answer {
        let mut stream = self.stream(key, now).unwrap_or_default();
        stream.last += 1;
        let added = stream.last;
        stream.entries.insert(added, value.to_owned());
        most.iter().for_each(|most| _ = stream.trim(most));
        self.put_stream(key, stream, now);
        id(added)
    }

    fn apply_to_group(&mut self, words: &[&str], now: Now) -> Answer {
        let key = match words {
            ["XREADGROUP", .., key, ">"] => *key,
            _ => words[1],
        };
        let stream = self.stream(key, now);
        let Some((mut stream, mut group)) = stream.and_then(|stream| Some((stream.clone(), stream.group?)))
        else {
            let with = if words[0] == "XREADGROUP" { " in XREADGROUP with GROUP option" } else { "" };
            let error = format!("NOGROUP No such key '{key}' or consumer group 'g'{with}");
            return if words[0] == "XACK" { int(0) } else { Answer::Error(error) };
        };
        let answer = match words {
            ["XREADGROUP", "GROUP", "g", who, "COUNT", most, rest @ ..] => {
                let found = stream.after(group.last, number(most) as usize);
                let Some((last, _)) = found.last() else { return Answer::Aborted };
                group.last = *last;
                if rest[0] != "NOACK" {
                    group.pending.extend(found.iter().map(|(n, _)| (*n, (*who).to_owned())));
                }
                read_of(key, found)
            }
            ["XACK", _, _, id] => match group.pending.remove(&entry(id)) {
                Some(_) => int(1),
                None => return int(0),
            },
            ["XCLAIM", _, _, who, "0", id, "JUSTID"] => {
                let n = entry(id);
                let Some(owner) = group.pending.get_mut(&n) else { return Answer::All(vec![]) };
                if stream.entries.contains_key(&n) {
                    *owner = (*who).to_owned();
                    Answer::All(vec![self::id(n)])
                } else {
                    group.pending.remove(&n);
                    Answer::All(vec![])
                }
            }
            ["XPENDING", ..] => return summary(&group),
            other => panic!("the model does not know {other:?}"),
        };
        stream.group = Some(group);
        self.put_stream(key, stream, now);
        answer
    }

    fn stream(&self, key: &str, now: Now) -> Option<Stream> {
        match &self.live(key, now)?.value {
            Value::Stream(stream) => Some(Stream::clone(&stream.0)),
            _ => panic!("{key} is no stream"),
        }
    }

    /// A stream stays without entries.
    fn put_stream(&mut self, key: &str, stream: Stream, now: Now) {
        self.put(key, Value::Stream(Held::new(stream)), self.expiry(key, now));
    }
}

fn summary(group: &Group) -> Answer {
    let end = |end: Option<(&u64, &String)>| end.map_or(Answer::Nil, |(n, _)| id(*n));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    group.pending.values().for_each(|who| *counts.entry(who).or_default() += 1);
    let counts: Vec<Answer> =
        counts.iter().map(|(who, n)| Answer::All(vec![text(who), text(&n.to_string())])).collect();
    let counts = if counts.is_empty() { Answer::Aborted } else { Answer::All(counts) };
    let (first, last) = (group.pending.first_key_value(), group.pending.last_key_value());
    Answer::All(vec![int(group.pending.len()), end(first), end(last), counts])
}
