//! Streams behave like a sorted map with groups, also across DUMP, RESTORE, COPY and RENAME.
//!
//! The server is asked through a socket, and its rows are checked at the end. No reply depends on time: entries are idle for
//! less than [`groups::LONG`] or, where a line says so, for longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod groups;
#[path = "../support/mod.rs"]
mod support;

use groups::Group;
use std::collections::BTreeMap;
use support::resp::{Client, Value};
use support::rng::Rng;
use support::server::{assert_sound, tern_in};

type Id = (u64, u64);
const LAST: Id = (u64::MAX, u64::MAX);
const KEYS: usize = 2;

#[derive(Clone, Default, Debug, PartialEq)]
struct Stream {
    entries: BTreeMap<Id, Vec<Vec<u8>>>,
    last: Id,
    max_deleted: Id,
    added: i64,
    groups: BTreeMap<String, Group>,
}

/// The shape of one run's streams.
#[derive(Clone, Copy)]
struct Shape {
    /// Entries that are added together.
    many: usize,
    /// The longest value.
    longest: usize,
    steps: usize,
}

struct World {
    client: Client,
    rng: Rng,
    shape: Shape,
    models: BTreeMap<String, Stream>,
}

fn show((ms, seq): Id) -> String {
    format!("{ms}-{seq}")
}

fn bulk(text: impl AsRef<[u8]>) -> Value {
    Value::Bulk(text.as_ref().to_vec())
}

fn nil() -> Value {
    Value::Nil(b'*')
}

fn int(n: usize) -> Value {
    Value::Int(n as i64)
}

fn ids(all: impl IntoIterator<Item = Id>) -> Value {
    Value::Array(all.into_iter().map(|id| bulk(show(id))).collect())
}

fn entry((id, fields): (&Id, &Vec<Vec<u8>>)) -> Value {
    Value::Array(vec![bulk(show(*id)), Value::Array(fields.iter().map(bulk).collect())])
}

fn entries<'a>(all: impl Iterator<Item = (&'a Id, &'a Vec<Vec<u8>>)>) -> Value {
    Value::Array(all.map(entry).collect())
}

/// The entries of one key, as XREAD replies.
fn read_of(key: &str, entries: Value) -> Value {
    Value::Array(vec![Value::Array(vec![bulk(key), entries])])
}

impl Stream {
    /// Removes entries, and how many there were.
    fn remove(&mut self, gone: impl IntoIterator<Item = Id>) -> usize {
        let mut count = 0;
        for id in gone {
            if self.entries.remove(&id).is_some() {
                count += 1;
                self.max_deleted = self.max_deleted.max(id);
            }
        }
        count
    }

    /// Removes the first entries, which does not count as deleting.
    fn trim(&mut self, goes: impl Fn(usize, Id) -> bool) -> usize {
        let before = self.entries.len();
        while let Some((id, _)) =
            self.entries.first_key_value().filter(|(id, _)| goes(self.entries.len(), **id))
        {
            let id = *id;
            self.entries.remove(&id);
        }
        before - self.entries.len()
    }
}

impl World {
    fn line(&mut self, line: &str) -> Value {
        self.client.line(line)
    }

    fn key(&mut self) -> String {
        format!("k{}", self.rng.below(KEYS))
    }

    fn group(&mut self) -> String {
        format!("g{}", self.rng.below(2))
    }

    fn consumer(&mut self) -> String {
        ["ann", "bob", "cid"][self.rng.below(3)].to_owned()
    }

    fn stream(&self, key: &str) -> Stream {
        self.models.get(key).cloned().unwrap_or_default()
    }

    /// An id near the entries.
    fn id(&mut self, stream: &Stream) -> Id {
        if self.rng.one_in(3) || stream.entries.is_empty() {
            return (self.rng.below(stream.last.0 as usize + 3) as u64, self.rng.below(3) as u64);
        }
        let at = self.rng.below(stream.entries.len());
        *stream.entries.keys().nth(at).unwrap()
    }

    fn some_ids(&mut self, stream: &Stream) -> Vec<Id> {
        (0..1 + self.rng.below(4)).map(|_| self.id(stream)).collect()
    }

    /// A COUNT, and how many that are.
    fn count(&mut self) -> (String, usize) {
        if self.rng.one_in(2) {
            return (String::new(), usize::MAX);
        }
        let most = if self.rng.one_in(4) { self.shape.many.max(4) } else { 4 };
        let n = 1 + self.rng.below(most);
        (format!(" COUNT {n}"), n)
    }

    fn step(&mut self) {
        let key = self.key();
        match self.rng.below(40) {
            0..8 => self.add(&key),
            8..10 => self.delete(&key),
            10 => self.trim(&key),
            11..14 => self.range(&key),
            14 => self.read(&key),
            15..17 => self.create(&key),
            17 => self.change_group(&key),
            18..23 => self.deliver(&key),
            23..25 => self.deliver_again(&key),
            25..28 => self.acknowledge(&key),
            28 | 29 => self.claim(&key),
            30 | 31 => self.claim_idle(&key),
            32 => self.set_id(&key),
            33 | 34 => self.under_another_key(&key),
            35 if self.rng.one_in(4) => {
                let there = self.models.remove(&key).is_some();
                assert_eq!(self.line(&format!("DEL {key}")), int(there.into()));
            }
            _ => self.check(&key),
        }
    }

    fn fields(&mut self) -> Vec<Vec<u8>> {
        let mut fields = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let name = ["f", "temperature", ""][self.rng.below(3)];
            let length =
                if self.rng.one_in(6) { self.rng.below(self.shape.longest + 1) } else { self.rng.below(9) };
            fields.extend([name.as_bytes().to_vec(), vec![b'a' + self.rng.below(3) as u8; length]]);
        }
        fields
    }

    fn add(&mut self, key: &str) {
        let times = if self.rng.one_in(6) { 1 + self.rng.below(self.shape.many) } else { 1 };
        let (mut lines, mut wanted) = (Vec::new(), Vec::new());
        let mut stream = self.stream(key);
        for _ in 0..times {
            let next =
                if self.rng.one_in(2) { (stream.last.0 + 1, 0) } else { (stream.last.0, stream.last.1 + 1) };
            let low = self.rng.one_in(12);
            let (id, text) = match (low, self.rng.below(4)) {
                (true, _) => (stream.last, show(stream.last)),
                (false, 0) if next.0 > 0 => (next, format!("{}-*", next.0)),
                _ => (next, show(next)),
            };
            let fields = self.fields();
            let mut argv = vec![b"XADD".to_vec(), key.as_bytes().to_vec(), text.into_bytes()];
            argv.extend(fields.iter().cloned());
            lines.extend(support::resp::request(&argv));
            if low {
                let error = if id == (0, 0) {
                    "ERR The ID specified in XADD must be greater than 0-0"
                } else {
                    "ERR The ID specified in XADD is equal or smaller than the target stream top item"
                };
                wanted.push(Value::Error(error.into()));
                continue;
            }
            stream.entries.insert(id, fields);
            stream.last = id;
            stream.added += 1;
            wanted.push(bulk(show(id)));
        }
        self.client.send_raw(&lines).unwrap();
        for want in wanted {
            assert_eq!(self.client.read().unwrap().value, want);
        }
        if self.rng.one_in(8) {
            let most = self.rng.below(stream.entries.len() + 2);
            let id = (stream.last.0 + 1, 0);
            let got = self.line(&format!("XADD {key} MAXLEN {most} {} f v", show(id)));
            assert_eq!(got, bulk(show(id)));
            stream.entries.insert(id, vec![b"f".to_vec(), b"v".to_vec()]);
            (stream.last, stream.added) = (id, stream.added + 1);
            stream.trim(|length, _| length > most);
        }
        if stream.added > 0 {
            self.models.insert(key.to_owned(), stream);
        }
    }

    fn delete(&mut self, key: &str) {
        let mut stream = self.stream(key);
        let gone = self.some_ids(&stream);
        let words: Vec<String> = gone.iter().map(|id| show(*id)).collect();
        let got = self.line(&format!("XDEL {key} {}", words.join(" ")));
        assert_eq!(got, int(stream.remove(gone)));
        self.keep(key, stream);
    }

    /// A stream stays when its last entry goes.
    fn keep(&mut self, key: &str, stream: Stream) {
        if let Some(kept) = self.models.get_mut(key) {
            *kept = stream;
        }
    }

    fn trim(&mut self, key: &str) {
        let mut stream = self.stream(key);
        let (line, gone) = if self.rng.one_in(2) {
            let few = self.rng.below(6);
            let most = if self.rng.one_in(2) { stream.entries.len().saturating_sub(few) } else { few };
            (format!("MAXLEN {most}"), stream.trim(|length, _| length > most))
        } else {
            let least = self.id(&stream);
            (format!("MINID {}", show(least)), stream.trim(|_, id| id < least))
        };
        assert_eq!(self.line(&format!("XTRIM {key} {line}")), int(gone));
        self.keep(key, stream);
    }

    /// An end of a range: its word, and the first or last id inside.
    fn end(&mut self, stream: &Stream, is_start: bool) -> (String, Id) {
        match self.rng.below(6) {
            0 | 1 => {
                if is_start {
                    ("-".into(), (0, 0))
                } else {
                    ("+".into(), LAST)
                }
            }
            2 => {
                let (ms, seq) = self.id(stream);
                let inside = if is_start {
                    (ms, seq + 1)
                } else if seq > 0 {
                    (ms, seq - 1)
                } else {
                    (ms.wrapping_sub(1), u64::MAX)
                };
                if (ms, seq) == (0, 0) {
                    ("0-0".into(), (0, 0))
                } else {
                    (format!("({}", show((ms, seq))), inside)
                }
            }
            3 => {
                let ms = self.id(stream).0;
                (ms.to_string(), (ms, if is_start { 0 } else { u64::MAX }))
            }
            _ => {
                let id = self.id(stream);
                (show(id), id)
            }
        }
    }

    fn range(&mut self, key: &str) {
        let stream = self.stream(key);
        let ((start, from), (end, to), (count, most)) =
            (self.end(&stream, true), self.end(&stream, false), self.count());
        let inside = || stream.entries.iter().filter(|(id, _)| (from..=to).contains(*id));
        let got = self.line(&format!("XRANGE {key} {start} {end}{count}"));
        assert_eq!(got, entries(inside().take(most)), "{start} {end}{count}");
        let got = self.line(&format!("XREVRANGE {key} {end} {start}{count}"));
        assert_eq!(got, entries(inside().rev().take(most)), "{end} {start}{count}");
    }

    fn read(&mut self, key: &str) {
        let stream = self.stream(key);
        let (after, (count, most)) = (self.id(&stream), self.count());
        let got = self.line(&format!("XREAD{count} STREAMS {key} {}", show(after)));
        let found: Vec<_> =
            stream.entries.range(after..).filter(|(id, _)| **id != after).take(most).collect();
        let want = if found.is_empty() { nil() } else { read_of(key, entries(found.into_iter())) };
        assert_eq!(got, want);
    }

    fn set_id(&mut self, key: &str) {
        let mut stream = self.stream(key);
        if !self.models.contains_key(key) {
            return;
        }
        let last = (stream.last.0 + self.rng.below(3) as u64, stream.last.1);
        assert_eq!(self.line(&format!("XSETID {key} {}", show(last))), Value::Simple("OK".into()));
        stream.last = last;
        self.keep(key, stream);
    }

    fn under_another_key(&mut self, key: &str) {
        let (to, stream) = (self.key(), self.stream(key));
        if to == key || !self.models.contains_key(key) {
            return;
        }
        match self.rng.below(3) {
            0 => assert_eq!(self.line(&format!("COPY {key} {to} REPLACE")), int(1)),
            1 => {
                assert_eq!(self.line(&format!("RENAME {key} {to}")), Value::Simple("OK".into()));
                self.models.remove(key);
            }
            _ => {
                let Value::Bulk(payload) = self.line(&format!("DUMP {key}")) else { panic!("no payload") };
                let argv = [b"RESTORE".as_slice(), to.as_bytes(), b"0", &payload, b"REPLACE"];
                assert_eq!(self.client.run(&argv).value, Value::Simple("OK".into()));
            }
        }
        self.models.insert(to, stream);
    }

    /// The whole stream and its groups.
    fn check(&mut self, key: &str) {
        let stream = self.stream(key);
        assert_eq!(self.line(&format!("XLEN {key}")), int(stream.entries.len()));
        assert_eq!(self.line(&format!("EXISTS {key}")), int(self.models.contains_key(key).into()));
        assert_eq!(self.line(&format!("XRANGE {key} - +")), entries(stream.entries.iter()));
        if !self.models.contains_key(key) {
            return;
        }
        let facts = self.line(&format!("XINFO STREAM {key}"));
        let first = stream.entries.keys().next().copied().unwrap_or_default();
        for (name, want) in [
            ("length", int(stream.entries.len())),
            ("last-generated-id", bulk(show(stream.last))),
            ("max-deleted-entry-id", bulk(show(stream.max_deleted))),
            ("entries-added", Value::Int(stream.added)),
            ("recorded-first-entry-id", bulk(show(first))),
            ("groups", int(stream.groups.len())),
        ] {
            assert_eq!(fact(&facts, name), want, "{name}");
        }
        let groups = self.line(&format!("XINFO GROUPS {key}"));
        assert_eq!(groups.items().unwrap().len(), stream.groups.len());
        for ((name, group), facts) in stream.groups.iter().zip(groups.items().unwrap()) {
            assert_eq!(fact(facts, "name"), bulk(name));
            assert_eq!(fact(facts, "consumers"), int(group.consumers.len()));
            assert_eq!(fact(facts, "pending"), int(group.pending.len()));
            assert_eq!(fact(facts, "last-delivered-id"), bulk(show(group.last)));
            self.check_group(key, name, group);
        }
    }
}

fn parse(id: &str) -> Id {
    let (ms, seq) = id.split_once('-').unwrap();
    (ms.parse().unwrap(), seq.parse().unwrap())
}

/// A named fact of XINFO.
fn fact(facts: &Value, name: &str) -> Value {
    let mut pairs = facts.items().unwrap().chunks(2);
    pairs.find(|pair| pair[0] == bulk(name)).unwrap_or_else(|| panic!("no {name} in {facts:?}"))[1].clone()
}

fn run(seed: u64, shape: Shape) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let options = ["--appendfsync", "no"];
    let mut server = tern_in(&dir, &options);
    let (client, models) = (server.client(), BTreeMap::new());
    let mut world = World { client, rng: Rng::new(seed), shape, models };
    for _ in 0..shape.steps {
        world.step();
    }
    (0..KEYS).for_each(|n| world.check(&format!("k{n}")));
    assert!(server.terminate());
    if std::env::var_os("TERN_BINARY").is_none() {
        assert_sound(&dir, &options);
    }
}

#[test]
fn small_streams() {
    (0..3).for_each(|seed| run(seed, Shape { many: 20, longest: 64, steps: 1500 }));
}

#[test]
fn streams_of_many_entries() {
    (10..12).for_each(|seed| run(seed, Shape { many: 1200, longest: 200, steps: 500 }));
}

#[test]
fn long_entries() {
    (20..22).for_each(|seed| run(seed, Shape { many: 8, longest: 120_000, steps: 400 }));
}
