//! The effect of each command.

use super::values::{Members, Text};
use super::{Answer, Entry, Held, Now, Span, State, Value};
use std::rc::Rc;

pub(super) fn number(word: &str) -> i64 {
    word.parse().unwrap()
}

/// The lifetime of a key, in ms.
fn lasts(unit: &str, time: &str) -> u64 {
    let ms = match unit {
        "PX" | "PEXPIRE" => 1,
        "EX" | "EXPIRE" => 1000,
        other => panic!("the model does not know {other}"),
    };
    number(time) as u64 * ms
}

pub(super) fn int(n: usize) -> Answer {
    Answer::Int(n as i64)
}

/// The result of BITOP on these.
fn bit_by_bit(op: &str, sources: &[Text]) -> Text {
    let all = |sources: &[Text], combine: fn(u8, u8) -> u8| {
        let (first, others) = sources.split_first().unwrap();
        others.iter().fold(first.clone(), |all, text| all.combined(text, combine))
    };
    let or: fn(u8, u8) -> u8 = |a, b| a | b;
    let apart = |combine| sources[0].combined(&all(&sources[1..], or), combine);
    match op {
        "AND" => all(sources, |a, b| a & b),
        "OR" => all(sources, or),
        "XOR" => all(sources, |a, b| a ^ b),
        "NOT" => sources[0].combined(&Text::default(), |a, _| !a),
        "DIFF" => apart(|a, b| a & !b),
        "DIFF1" => apart(|a, b| !a & b),
        "ANDOR" => apart(|a, b| a & b),
        "ONE" => {
            let (mut any, mut twice) = (Text::default(), Text::default());
            for text in sources {
                twice = twice.combined(&any.combined(text, |a, b| a & b), or);
                any = any.combined(text, or);
            }
            any.combined(&twice, |a, b| a & !b)
        }
        other => panic!("the model does not know {other}"),
    }
}

/// Commands on lists.
const LISTS: [&str; 12] = [
    "LPUSH", "RPUSH", "LPOP", "RPOP", "LMOVE", "LSET", "LINSERT", "LREM", "LTRIM", "LINDEX", "LLEN", "LRANGE",
];

impl State {
    /// Applies a command and returns its reply. SPOP, which has a choice, is handled elsewhere.
    pub(super) fn apply(&mut self, argv: &[String], now: Now) -> Answer {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["DEL", key] => {
                let there = self.live(key, now).is_some();
                if there {
                    self.remove(key);
                }
                Answer::Int(there.into())
            }
            ["EXISTS", key] => Answer::Int(self.live(key, now).is_some().into()),
            ["RENAME", from, to] => {
                let Some(entry) = self.live(from, now).cloned() else {
                    return Answer::Error("ERR no such key".into());
                };
                self.remove(from);
                self.put(to, entry.value, entry.expire_at);
                Answer::Ok
            }
            ["RESULT", id] => match self.kept.get(*id) {
                Some((_, answer)) => Answer::All(vec![Answer::Int(1), answer.clone()]),
                None => Answer::All(vec![Answer::Int(0), Answer::Nil]),
            },
            ["FORGET", id] => Answer::Int(Rc::make_mut(&mut self.kept).remove(*id).is_some().into()),
            ["PERSIST" | "GETEX" | "PEXPIRE" | "EXPIRE", ..] => self.apply_to_expiry(&words, now),
            ["SELECT" | "SWAPDB" | "FLUSHDB" | "MOVE" | "COPY", ..] => self.apply_to_places(&words, now),
            ["GET" | "SET" | "SETNX" | "GETSET" | "MSET" | "INCRBY", ..] => self.apply_to_string(&words, now),
            ["APPEND" | "SETRANGE" | "GETRANGE" | "STRLEN" | "DIGEST" | "BITOP", ..] => {
                self.apply_to_bytes(&words, now)
            }
            ["BLPOP" | "BRPOP" | "BLMOVE" | "BZPOPMIN", ..] => self.apply_what_waits(&words, now),
            [name, ..] if LISTS.contains(name) => self.apply_to_list(&words, now),
            [name, ..] if name.starts_with('H') => self.apply_to_hash(&words, now),
            [name, ..] if name.starts_with('X') => self.apply_to_stream(&words, now),
            [name, ..] if name.starts_with('Z') => self.apply_to_ranked(&words, now),
            [_, to, sources @ ..] if words[0].ends_with("STORE") => self.combine(words[0], to, sources, now),
            other => self.apply_to_set(other, now),
        }
    }

    pub(super) fn expiry(&self, key: &str, now: Now) -> Option<Span> {
        self.live(key, now)?.expire_at
    }

    fn apply_to_string(&mut self, words: &[&str], now: Now) -> Answer {
        match words {
            ["GET", key] => self.text(key, now).map_or(Answer::Nil, Answer::text),
            ["SET", key, value] => self.set(key, value, None),
            ["SET", key, value, "KEEPTTL"] => self.set(key, value, self.expiry(key, now)),
            ["SET", key, value, unit, time] => self.set(key, value, Some(now.clock + lasts(unit, time))),
            ["SETNX", key, value] => {
                let free = self.live(key, now).is_none();
                if free {
                    self.set(key, value, None);
                }
                Answer::Int(free.into())
            }
            ["GETSET", key, value] => {
                let old = self.text(key, now).map_or(Answer::Nil, Answer::text);
                self.set(key, value, None);
                old
            }
            ["MSET", pairs @ ..] => {
                pairs.chunks(2).for_each(|pair| drop(self.set(pair[0], pair[1], None)));
                Answer::Ok
            }
            ["INCRBY", key, by] => {
                let sum = self.text(key, now).map_or(0, Text::number) + number(by);
                self.put(key, Value::Text(Held::new(Text::new(&sum.to_string()))), self.expiry(key, now));
                Answer::Int(sum)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// Strings of any length.
    fn apply_to_bytes(&mut self, words: &[&str], now: Now) -> Answer {
        let text = |state: &Self, key| state.text(key, now).cloned().unwrap_or_default();
        match words {
            ["STRLEN", key] => int(text(self, key).len()),
            ["DIGEST", key] => self.text(key, now).map_or(Answer::Nil, |text| Answer::Text(text.digest())),
            ["GETRANGE", key, from, to] => {
                Answer::text(&text(self, key).range(number(from) as usize, number(to) as usize + 1))
            }
            ["APPEND", key, patch] => {
                let end = text(self, key).len();
                self.patch(key, end, patch, now)
            }
            ["SETRANGE", key, offset, patch] => self.patch(key, number(offset) as usize, patch, now),
            ["BITOP", op, to, sources @ ..] => {
                let sources: Vec<Text> = sources.iter().map(|key| text(self, key)).collect();
                self.put_combined(to, bit_by_bit(op, &sources), now)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn patch(&mut self, key: &str, offset: usize, patch: &str, now: Now) -> Answer {
        let before = self.text(key, now).cloned().unwrap_or_default();
        let after = before.patched(offset, &Text::new(patch));
        let len = after.len();
        self.put(key, Value::Text(Held::new(after)), self.expiry(key, now));
        int(len)
    }

    fn put_combined(&mut self, to: &str, text: Text, now: Now) -> Answer {
        let len = text.len();
        if len > 0 {
            self.put(to, Value::Text(Held::new(text)), None);
        } else if self.live(to, now).is_some() {
            self.remove(to);
        }
        int(len)
    }

    /// Databases, and commands that move values between keys.
    fn apply_to_places(&mut self, words: &[&str], now: Now) -> Answer {
        match words {
            ["SELECT", _] => Answer::Ok,
            ["FLUSHDB", whole] => {
                let gone: Vec<String> = self.keys_of(whole);
                gone.iter().for_each(|key| self.remove(key));
                Answer::Ok
            }
            ["SWAPDB", a, b] => {
                let names = [(a, b), (b, a)].map(|(from, to)| (self.keys_of(from), from, to));
                let mut moved = Vec::new();
                for (key, from, to) in
                    names.iter().flat_map(|(keys, a, b)| keys.iter().map(move |k| (k, a, b)))
                {
                    let entry = self.keys.get(key).cloned().unwrap();
                    moved.push((key.replacen(**from, to, 1), entry));
                    self.remove(key);
                }
                moved.into_iter().for_each(|(key, entry)| self.put(&key, entry.value, entry.expire_at));
                Answer::Ok
            }
            ["MOVE", from, to] => {
                let moves = self.live(to, now).is_none();
                let Some(entry) = self.live(from, now).filter(|_| moves).cloned() else { return int(0) };
                self.remove(from);
                self.put(to, entry.value, entry.expire_at);
                int(1)
            }
            ["COPY", from, to, "REPLACE"] => {
                let Some(entry) = self.live(from, now).cloned() else { return int(0) };
                self.put(to, entry.value, entry.expire_at);
                int(1)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// All keys of a database.
    fn keys_of(&self, whole: &str) -> Vec<String> {
        self.keys.keys().filter(|key| key.starts_with(whole)).cloned().collect()
    }

    fn apply_to_expiry(&mut self, words: &[&str], now: Now) -> Answer {
        match words {
            ["PERSIST", key] => match self.live(key, now).cloned() {
                Some(Entry { value, expire_at: Some(_) }) => {
                    self.put(key, value, None);
                    Answer::Int(1)
                }
                _ => Answer::Int(0),
            },
            ["GETEX", key, options @ ..] => {
                let Some(entry) = self.live(key, now).cloned() else { return Answer::Nil };
                let Value::Text(text) = &entry.value else { panic!("{key} is a set") };
                let answer = Answer::text(&text.0);
                match options {
                    [unit, time] => self.put(key, entry.value, Some(now.clock + lasts(unit, time))),
                    _ if entry.expire_at.is_some() => self.put(key, entry.value, None),
                    _ => {}
                }
                answer
            }
            [unit, key, time] => {
                let Some(entry) = self.live(key, now).cloned() else { return Answer::Int(0) };
                self.put(key, entry.value, Some(now.clock + lasts(unit, time)));
                Answer::Int(1)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn set(&mut self, key: &str, value: &str, expire_at: Option<Span>) -> Answer {
        self.put(key, Value::Text(Held::new(Text::new(value))), expire_at);
        Answer::Ok
    }

    fn apply_to_set(&mut self, words: &[&str], now: Now) -> Answer {
        let key = words[1];
        let before = self.members(key, now);
        match words {
            ["SADD", _, members @ ..] => {
                let after = before.union(&Members::of(members.iter().copied()));
                self.change(key, &before, after, now)
            }
            ["SREM", _, members @ ..] => {
                let after = before.difference(&Members::of(members.iter().copied()));
                self.change(key, &before, after, now)
            }
            ["SCARD", _] => int(before.len()),
            ["SISMEMBER", _, member] => Answer::Int(before.contains(member).into()),
            ["SMISMEMBER", _, word] => {
                Answer::All(before.which(word).into_iter().map(|there| Answer::Int(there.into())).collect())
            }
            ["SMEMBERS", _] => Answer::Members(Members::clone(&before)),
            ["SMOVE", _, to, member] => {
                if !before.contains(member) {
                    return Answer::Int(0);
                }
                let one = Members::of([*member]);
                self.change(key, &before, before.difference(&one), now);
                let target = self.members(to, now);
                self.change(to, &target, target.union(&one), now);
                Answer::Int(1)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// SINTERSTORE and its like.
    fn combine(&mut self, name: &str, to: &str, sources: &[&str], now: Now) -> Answer {
        let combine = match name {
            "SINTERSTORE" => Members::intersection,
            "SUNIONSTORE" => Members::union,
            "SDIFFSTORE" => Members::difference,
            other => panic!("the model does not know {other}"),
        };
        let mut sets = sources.iter().map(|key| self.members(key, now));
        let first = sets.next().unwrap_or_default();
        let found = sets.fold(Members::clone(&first), |all, set| combine(&all, &set));
        let n = found.len();
        if n > 0 || self.live(to, now).is_some() {
            self.put_members(to, found, None);
        }
        int(n)
    }

    fn change(&mut self, key: &str, before: &Members, after: Members, now: Now) -> Answer {
        let n = after.len().abs_diff(before.len());
        if n > 0 {
            self.put_members(key, after, self.expiry(key, now));
        }
        int(n)
    }
}
