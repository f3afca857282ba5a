//! Redis in memory, as a pure function: what a state and a command make of each other.
//!
//! A step says which states may follow, given the reply that was seen (None: no reply was, any will do). Expiry is decided by
//! the `now` of the step, so a state needs no clock. Every change of a key counts its version up: WATCH remembers versions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tern::commands::reply::Reply;

/// A reply, without what the checker does not ask for: sets have no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Nil,
    /// EXEC that WATCH aborted.
    Aborted,
    Int(i64),
    Text(String),
    Members(BTreeSet<String>),
    All(Vec<Answer>),
    Error(String),
}

impl Answer {
    /// A command that the store refused: it did nothing.
    fn is_refusal(&self) -> bool {
        let refusals =
            ["transaction too old", "the store is unavailable", "conflict with another transaction"];
        matches!(self, Answer::Error(line) if refusals.iter().any(|refusal| line.contains(refusal)))
    }

    /// An operation that the store refused.
    pub fn is_refused(&self) -> bool {
        match self {
            Answer::All(answers) => answers.iter().all(Answer::is_refusal),
            answer => answer.is_refusal(),
        }
    }

    pub fn of(reply: &Reply) -> Self {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        match reply {
            Reply::Ok => Answer::Ok,
            Reply::Nil => Answer::Nil,
            Reply::NilArray => Answer::Aborted,
            Reply::Int(n) => Answer::Int(*n),
            Reply::Bulk(b) => Answer::Text(text(b)),
            Reply::Error(e) => Answer::Error(e.0.to_string()),
            Reply::Set(items) => Answer::Members(
                items
                    .iter()
                    .map(|i| if let Reply::Bulk(b) = i { text(b) } else { panic!("{i:?}") })
                    .collect(),
            ),
            Reply::Array(items) => Answer::All(items.iter().map(Answer::of).collect()),
            other => panic!("a reply that the model does not know: {other:?}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    Text(String),
    Members(Rc<BTreeSet<String>>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    value: Value,
    expire_at: Option<u64>,
}

/// Keys with their versions, and what is watched by whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    keys: BTreeMap<String, Entry>,
    versions: BTreeMap<String, u32>,
    /// By client and key: see [`State::watchable`].
    watched: BTreeMap<(usize, String), (bool, u32)>,
    /// The latest expiry that has been seen to be over: time does not run back behind it.
    over: u64,
}

/// One thing that a client does at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    One(Vec<String>),
    Watch(String),
    /// MULTI, the commands, EXEC.
    Exec(Vec<Vec<String>>),
}

impl Op {
    /// Whether it changes nothing, whatever it finds.
    pub fn only_reads(&self) -> bool {
        let reads = ["GET", "EXISTS", "SCARD", "SISMEMBER", "SMEMBERS"];
        matches!(self, Op::One(argv) if reads.contains(&argv[0].as_str()))
    }

    /// Whether it may give a key an expiry.
    pub fn expires(&self) -> bool {
        let one = |argv: &Vec<String>| argv.iter().any(|word| word == "PX" || word == "PEXPIRE");
        match self {
            Op::One(argv) => one(argv),
            Op::Exec(calls) => calls.iter().any(one),
            Op::Watch(_) => false,
        }
    }

    /// The keys that it touches. Here every command's keys are its words that name one.
    pub fn keys(&self) -> Vec<&str> {
        let of = |argv: &'_ Vec<String>| -> Vec<usize> {
            match argv[0].as_str() {
                "RENAME" | "SMOVE" => vec![1, 2],
                "SINTERSTORE" => (1..argv.len()).collect(),
                "MSET" => (1..argv.len()).step_by(2).collect(),
                _ => vec![1],
            }
        };
        let words = |argv| of(argv).into_iter().map(|n| argv[n].as_str()).collect::<Vec<_>>();
        match self {
            Op::One(argv) => words(argv),
            Op::Watch(key) => vec![key],
            Op::Exec(calls) => calls.iter().flat_map(words).collect(),
        }
    }
}

impl State {
    /// The states after `op` of `client` at `now`, where it answered `seen`. None where it finds a key alive that somebody has seen to be
    /// over, or would have seen so.
    pub fn step(&self, client: usize, op: &Op, seen: Option<&Answer>, now: u64) -> Vec<State> {
        let expiries = op.keys().into_iter().filter_map(|key| self.keys.get(key)?.expire_at);
        let mut over = self.over;
        for at in expiries {
            if at <= now {
                over = over.max(at);
            } else if at <= self.over {
                return Vec::new();
            }
        }
        let mut states = self.at_any_time(client, op, seen, now);
        states.iter_mut().for_each(|next| next.over = over);
        states
    }

    /// Whether `op` may do something else at `now` than it would have done at `before`.
    pub fn turns(&self, op: &Op, before: u64, now: u64) -> bool {
        let expiry = |key: &&str| self.keys.get(*key)?.expire_at;
        op.expires() || op.keys().iter().filter_map(expiry).any(|at| before < at && at <= now)
    }

    fn at_any_time(&self, client: usize, op: &Op, seen: Option<&Answer>, now: u64) -> Vec<State> {
        match op {
            Op::One(argv) => self.run(argv, seen, now),
            Op::Watch(key) => {
                let mut next = self.clone();
                next.watched.insert((client, key.clone()), self.watchable(key, now));
                vec![next]
            }
            Op::Exec(calls) => self.exec(client, calls, seen, now),
        }
    }

    /// Whether nobody has changed anything since `before`; who watches what may differ.
    pub fn has_data_of(&self, before: &State) -> bool {
        self.keys == before.keys && self.versions == before.versions
    }

    fn exec(&self, client: usize, calls: &[Vec<String>], seen: Option<&Answer>, now: u64) -> Vec<State> {
        let mut base = self.clone();
        base.watched.retain(|(who, _), _| *who != client);
        let changed = self
            .watched
            .iter()
            .any(|((who, key), before)| *who == client && *before != self.watchable(key, now));
        let answers = match seen {
            Some(Answer::Aborted) => return if changed { vec![base] } else { Vec::new() },
            Some(answer) if answer.is_refused() => return vec![base],
            // Refused as a whole, or not at all.
            Some(Answer::All(answers)) if answers.iter().any(Answer::is_refusal) => return Vec::new(),
            Some(Answer::All(answers)) => Some(answers),
            Some(_) => return Vec::new(),
            None => None,
        };
        if changed {
            return if seen.is_none() { vec![base] } else { Vec::new() };
        }
        let mut states = vec![base];
        for (n, call) in calls.iter().enumerate() {
            let answer = answers.map(|a| &a[n]);
            states = states.iter().flat_map(|s| s.run(call, answer, now)).collect();
        }
        states
    }

    /// What WATCH remembers: whether the key is there, and its version.
    fn watchable(&self, key: &str, now: u64) -> (bool, u32) {
        (self.live(key, now).is_some(), self.version(key))
    }

    fn version(&self, key: &str) -> u32 {
        self.versions.get(key).copied().unwrap_or(0)
    }

    fn live(&self, key: &str, now: u64) -> Option<&Entry> {
        self.keys.get(key).filter(|e| e.expire_at.is_none_or(|at| at > now))
    }

    fn text(&self, key: &str, now: u64) -> Option<&str> {
        match &self.live(key, now)?.value {
            Value::Text(text) => Some(text),
            Value::Members(_) => panic!("{key} is a set"),
        }
    }

    fn members(&self, key: &str, now: u64) -> Rc<BTreeSet<String>> {
        match self.live(key, now).map(|e| &e.value) {
            None => Rc::default(),
            Some(Value::Members(members)) => members.clone(),
            Some(Value::Text(_)) => panic!("{key} is a string"),
        }
    }

    fn put(&mut self, key: &str, value: Value, expire_at: Option<u64>) {
        self.keys.insert(key.into(), Entry { value, expire_at });
        *self.versions.entry(key.into()).or_default() += 1;
    }

    fn remove(&mut self, key: &str) {
        self.keys.remove(key);
        *self.versions.entry(key.into()).or_default() += 1;
    }

    fn put_members(&mut self, key: &str, members: BTreeSet<String>, expire_at: Option<u64>) {
        if members.is_empty() {
            self.remove(key);
        } else {
            self.put(key, Value::Members(Rc::new(members)), expire_at);
        }
    }

    fn run(&self, argv: &[String], seen: Option<&Answer>, now: u64) -> Vec<State> {
        if seen.is_some_and(Answer::is_refusal) {
            return vec![self.clone()];
        }
        if argv[0] == "SPOP" {
            return self.pop(&argv[1], seen, now);
        }
        let mut next = self.clone();
        let answer = next.apply(argv, now);
        if seen.is_none_or(|seen| *seen == answer) { vec![next] } else { Vec::new() }
    }

    fn pop(&self, key: &str, seen: Option<&Answer>, now: u64) -> Vec<State> {
        let members = self.members(key, now);
        let without = |member: &String| {
            let mut next = self.clone();
            let mut left = BTreeSet::clone(&members);
            left.remove(member);
            next.put_members(key, left, self.live(key, now).and_then(|e| e.expire_at));
            next
        };
        match seen {
            None if members.is_empty() => vec![self.clone()],
            Some(Answer::Nil) if members.is_empty() => vec![self.clone()],
            Some(Answer::Text(member)) if members.contains(member) => vec![without(member)],
            None => members.iter().map(without).collect(),
            Some(_) => Vec::new(),
        }
    }

    fn apply(&mut self, argv: &[String], now: u64) -> Answer {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let number = |word: &str| word.parse::<i64>().unwrap();
        match words.as_slice() {
            ["GET", key] => self.text(key, now).map_or(Answer::Nil, |t| Answer::Text(t.into())),
            ["SET", key, value] => self.set(key, value, None),
            ["SET", key, value, "PX", ms] => self.set(key, value, Some(now + number(ms) as u64)),
            ["SETNX", key, value] => {
                let free = self.live(key, now).is_none();
                if free {
                    self.set(key, value, None);
                }
                Answer::Int(free.into())
            }
            ["GETSET", key, value] => {
                let old = self.text(key, now).map_or(Answer::Nil, |t| Answer::Text(t.into()));
                self.set(key, value, None);
                old
            }
            ["MSET", pairs @ ..] => {
                pairs.chunks(2).for_each(|pair| drop(self.set(pair[0], pair[1], None)));
                Answer::Ok
            }
            ["INCRBY", key, by] => {
                let expire_at = self.live(key, now).and_then(|e| e.expire_at);
                let sum = self.text(key, now).map_or(0, number) + number(by);
                self.put(key, Value::Text(sum.to_string()), expire_at);
                Answer::Int(sum)
            }
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
            ["PERSIST" | "GETEX" | "PEXPIRE", ..] => self.apply_to_expiry(&words, now),
            other => self.apply_to_set(other, now),
        }
    }

    fn apply_to_expiry(&mut self, words: &[&str], now: u64) -> Answer {
        let number = |word: &str| word.parse::<i64>().unwrap();
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
                let answer = Answer::Text(text.clone());
                match options {
                    ["PX", ms] => self.put(key, entry.value, Some(now + number(ms) as u64)),
                    _ if entry.expire_at.is_some() => self.put(key, entry.value, None),
                    _ => {}
                }
                answer
            }
            ["PEXPIRE", key, ms] => {
                let Some(entry) = self.live(key, now).cloned() else { return Answer::Int(0) };
                self.put(key, entry.value, Some(now + number(ms) as u64));
                Answer::Int(1)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn set(&mut self, key: &str, value: &str, expire_at: Option<u64>) -> Answer {
        self.put(key, Value::Text(value.into()), expire_at);
        Answer::Ok
    }

    fn apply_to_set(&mut self, words: &[&str], now: u64) -> Answer {
        let key = words[1];
        let before = self.members(key, now);
        let expire_at = self.live(key, now).and_then(|e| e.expire_at);
        match words {
            ["SADD", _, members @ ..] => {
                let after: BTreeSet<String> =
                    before.iter().cloned().chain(members.iter().map(|m| (*m).to_owned())).collect();
                self.change(key, &before, after, expire_at)
            }
            ["SREM", _, members @ ..] => {
                let after = before.iter().filter(|m| !members.contains(&m.as_str())).cloned().collect();
                self.change(key, &before, after, expire_at)
            }
            ["SCARD", _] => Answer::Int(before.len() as i64),
            ["SISMEMBER", _, member] => Answer::Int(before.contains(*member).into()),
            ["SMEMBERS", _] => Answer::Members(BTreeSet::clone(&before)),
            ["SMOVE", _, to, member] => {
                if !before.contains(*member) {
                    return Answer::Int(0);
                }
                let mut left = BTreeSet::clone(&before);
                left.remove(*member);
                self.put_members(key, left, expire_at);
                let mut target = BTreeSet::clone(&self.members(to, now));
                if target.insert((*member).to_owned()) {
                    let expire_at = self.live(to, now).and_then(|e| e.expire_at);
                    self.put_members(to, target, expire_at);
                }
                Answer::Int(1)
            }
            ["SINTERSTORE", to, sources @ ..] => {
                let mut sets = sources.iter().map(|key| self.members(key, now));
                let first = sets.next().unwrap_or_default();
                let found = sets.fold(BTreeSet::clone(&first), |all, set| &all & &set);
                let n = found.len() as i64;
                if n > 0 || self.live(to, now).is_some() {
                    self.put_members(to, found, None);
                }
                Answer::Int(n)
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn change(
        &mut self,
        key: &str,
        before: &BTreeSet<String>,
        after: BTreeSet<String>,
        expire_at: Option<u64>,
    ) -> Answer {
        let n = (after.len() as i64 - before.len() as i64).abs();
        if n > 0 {
            self.put_members(key, after, expire_at);
        }
        Answer::Int(n)
    }
}
