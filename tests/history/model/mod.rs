//! Redis in memory as a pure function: the states that may follow a command in a state.
//!
//! A step returns the possible next states, given the reply that was seen (None: no reply was, any will do).
//! The `now` of the step decides expiry, so a state needs no clock. If `now` is known only as a [`Span`], so
//! is the expiry that it gives a key; later observations narrow both. A state keeps one span for each key and
//! forgets how the times of two keys depend on each other, so it may allow more than the true times would,
//! never less. Every change of a key increments its version: WATCH remembers versions.

mod answer;
mod claims;
mod commands;
mod groups;
mod hashes;
mod lists;
mod op;
pub mod ranked;
mod streams;
pub mod values;

pub use answer::Answer;
pub use op::{Op, placed};
use ranked::Ranked;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Add;
use std::rc::Rc;
use streams::Stream;
use values::{Members, Text};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    Text(Held<Text>),
    Members(Held<Members>),
    Fields(Held<Fields>),
    Elements(Held<Vec<String>>),
    Ranked(Held<Ranked>),
    Stream(Held<Stream>),
}

/// The values of a hash by field.
type Fields = BTreeMap<String, String>;

/// A part shared by many states. Its hash is computed once: a search needs it again and again.
#[derive(Debug, Clone)]
struct Held<T>(Rc<T>, u64);

impl<T: Hash> Held<T> {
    fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Held(Rc::new(value), hasher.finish())
    }
}

impl<T> Hash for Held<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.1);
    }
}

impl<T: PartialEq> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1 && (Rc::ptr_eq(&self.0, &other.0) || self.0 == other.0)
    }
}

impl<T: Eq> Eq for Held<T> {}

/// A time between two bounds, both included. Observations narrow it: a key found alive expires after the
/// earliest possible time of the observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    pub from: u64,
    pub to: u64,
}

/// The time of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The clock reading: expiries that the operation sets count from here.
    clock: Span,
    /// When its version was fixed, which decides what it finds expired. Not earlier than `clock`; others may
    /// already have removed keys that expired in between.
    seen: Span,
}

impl Now {
    /// Both somewhere in `span`.
    pub fn within(span: Span) -> Self {
        Now { clock: span, seen: span }
    }

    pub fn exactly(clock: u64, seen: u64) -> Self {
        let [clock, seen] = [clock, seen.max(clock)].map(|time| Span { from: time, to: time });
        Now { clock, seen }
    }

    /// Narrowed to before an event that comes at `at` at the latest.
    fn before(self, at: u64) -> Self {
        let before = |span: Span| Span { to: span.to.min(at.saturating_sub(1)), ..span };
        Now { clock: before(self.clock), seen: before(self.seen) }
    }

    /// Narrowed to after an event that came at `at` at the earliest.
    fn not_before(self, at: u64) -> Self {
        Now { seen: Span { from: self.seen.from.max(at), ..self.seen }, ..self }
    }
}

impl Add<u64> for Span {
    type Output = Span;
    fn add(self, ms: u64) -> Span {
        Span { from: self.from + ms, to: self.to + ms }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    value: Value,
    expire_at: Option<Span>,
}

/// A key, its expiry, and whether it is alive.
#[derive(Clone, Copy)]
struct Seen<'k> {
    key: &'k str,
    at: Span,
    is_alive: bool,
}

/// Keys with their versions, and the watched keys of each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    keys: BTreeMap<String, Entry>,
    versions: BTreeMap<String, u32>,
    /// By client and key: see [`State::watchable`].
    watched: BTreeMap<(usize, String), (bool, u32)>,
    /// The answer and the command of each id.
    kept: Rc<BTreeMap<String, (Vec<String>, Answer)>>,
    /// The latest expiry that has been seen to have passed: time does not run back behind it.
    over: u64,
    /// Keys written by the operation under way. They are alive to it: a transaction that finds its own key
    /// expired is run again.
    fresh: Vec<String>,
    /// After the last operation. Later expiries are all equivalent, so they are stored as this.
    end: u64,
}

impl Default for State {
    fn default() -> Self {
        State::until(u64::MAX)
    }
}

/// Leaves out `over`, so that a search finds states that differ only in it.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.keys, &self.versions, &self.watched, &self.kept).hash(hasher);
    }
}

impl State {
    /// An empty state in which operations are done before `end`.
    pub fn until(end: u64) -> Self {
        State {
            keys: BTreeMap::new(),
            versions: BTreeMap::new(),
            watched: BTreeMap::new(),
            kept: Rc::default(),
            over: 0,
            fresh: Vec::new(),
            end,
        }
    }

    /// The latest expiry that was seen to have passed. The lower it is, the more can follow.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Whether everything that can follow `other` can follow this state.
    pub fn allows_all_of(&self, other: &State) -> bool {
        self.over <= other.over && self.watched == other.watched && self.has_data_of(other)
    }

    /// The states after `op` of `client` at a time of `now`, if it answered `seen`. None if it finds a key
    /// alive that was already seen expired.
    pub fn step(&self, client: usize, op: &Op, seen: Option<&Answer>, now: Now) -> Vec<State> {
        // A refused operation reads no time.
        if seen.is_some_and(Answer::is_refused) {
            return self.at_any_time(client, op, seen, now);
        }
        let is_exec = matches!(op, Op::Exec(_));
        let watched = self.watched.keys().filter(|(who, _)| is_exec && *who == client);
        let mut keys: BTreeSet<&str> = watched.map(|(_, key)| key.as_str()).collect();
        let watched = self.at_times(&keys, now);
        keys.extend(op.keys());
        let all = self.at_times(&keys, now);
        // Nor do the commands of an aborted EXEC.
        let aborts = |(known, now): &(State, Now)| is_exec && known.has_changed(client, *now);
        let asked = watched.iter().filter(|way| aborts(way)).chain(all.iter().filter(|way| !aborts(way)));
        let mut states: Vec<State> =
            asked.flat_map(|(known, now)| known.at_any_time(client, op, seen, *now)).collect();
        states.iter_mut().for_each(|next| next.fresh.clear());
        states
    }

    /// The ways in which `keys` may be alive or expired at a time of `now`, and what is then known of all
    /// times.
    fn at_times(&self, keys: &BTreeSet<&str>, now: Now) -> Vec<(State, Now)> {
        let mut ways: Vec<(Vec<Seen>, Now)> = vec![(Vec::new(), now)];
        for key in keys {
            let Some(at) = self.keys.get(*key).and_then(|entry| entry.expire_at) else { continue };
            let mut next = Vec::new();
            for (seen, now) in ways {
                for (now, is_alive) in [(now.before(at.to), true), (now.not_before(at.from), false)] {
                    if now.seen.from <= now.seen.to {
                        next.push(([&seen[..], &[Seen { key, at, is_alive }]].concat(), now));
                    }
                }
            }
            ways = next;
        }
        ways.into_iter().filter_map(|(seen, now)| Some((self.knowing(&seen, now)?, now))).collect()
    }

    /// The state after `all` was seen at a time of `now`. None if that is impossible.
    fn knowing(&self, all: &[Seen], now: Now) -> Option<State> {
        let mut known = self.clone();
        for Seen { key, at, is_alive } in all {
            let at = match is_alive {
                true => Span { from: at.from.max(now.seen.from + 1).max(self.over + 1), ..*at },
                false => Span { to: at.to.min(now.seen.to), ..*at },
            };
            if at.from > at.to {
                return None;
            }
            if !is_alive {
                known.over = known.over.max(at.from);
            }
            known.keys.get_mut(*key)?.expire_at = Some(at);
        }
        Some(known)
    }

    /// Whether `op` of `client` may behave differently at `now` than at `before`.
    pub fn turns(&self, client: usize, op: &Op, before: u64, now: u64) -> bool {
        let watched = self.watched.keys().filter(|(who, _)| matches!(op, Op::Exec(_)) && *who == client);
        let asked = op.keys().into_iter().chain(watched.map(|(_, key)| key.as_str()));
        let mut ends = asked.filter_map(|key| self.keys.get(key)?.expire_at);
        op.expires() || ends.any(|at| before < at.to && at.from <= now)
    }

    /// Whether a key that `client` watches has changed.
    fn has_changed(&self, client: usize, now: Now) -> bool {
        let mut watched = self.watched.iter().filter(|((who, _), _)| *who == client);
        watched.any(|((_, key), before)| *before != self.watchable(key, now))
    }

    fn at_any_time(&self, client: usize, op: &Op, seen: Option<&Answer>, now: Now) -> Vec<State> {
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

    /// Whether no data has changed since `before`; watched keys may differ.
    pub fn has_data_of(&self, before: &State) -> bool {
        self.keys == before.keys && self.versions == before.versions && self.kept == before.kept
    }

    fn exec(&self, client: usize, calls: &[Vec<String>], seen: Option<&Answer>, now: Now) -> Vec<State> {
        let mut base = self.clone();
        base.unwatch(client);
        let changed = self.has_changed(client, now);
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

    /// The client watches nothing any more.
    pub fn unwatch(&mut self, client: usize) {
        self.watched.retain(|(who, _), _| *who != client);
    }

    /// What WATCH remembers: whether the key exists, and its version.
    fn watchable(&self, key: &str, now: Now) -> (bool, u32) {
        (self.live(key, now).is_some(), self.version(key))
    }

    fn version(&self, key: &str) -> u32 {
        self.versions.get(key).copied().unwrap_or(0)
    }

    fn live(&self, key: &str, now: Now) -> Option<&Entry> {
        let is_fresh = || self.fresh.iter().any(|fresh| fresh == key);
        self.keys.get(key).filter(|e| e.expire_at.is_none_or(|at| at.from > now.seen.from || is_fresh()))
    }

    fn text(&self, key: &str, now: Now) -> Option<&Text> {
        match &self.live(key, now)?.value {
            Value::Text(text) => Some(&text.0),
            Value::Members(_)
            | Value::Fields(_)
            | Value::Elements(_)
            | Value::Ranked(_)
            | Value::Stream(_) => {
                panic!("{key} is no string")
            }
        }
    }

    fn fields(&self, key: &str, now: Now) -> Fields {
        match self.live(key, now).map(|e| &e.value) {
            None => Fields::new(),
            Some(Value::Fields(fields)) => Fields::clone(&fields.0),
            Some(
                Value::Members(_) | Value::Text(_) | Value::Elements(_) | Value::Ranked(_) | Value::Stream(_),
            ) => {
                panic!("{key} is no hash")
            }
        }
    }

    fn members(&self, key: &str, now: Now) -> Rc<Members> {
        match self.live(key, now).map(|e| &e.value) {
            None => Rc::default(),
            Some(Value::Members(members)) => members.0.clone(),
            Some(
                Value::Text(_) | Value::Fields(_) | Value::Elements(_) | Value::Ranked(_) | Value::Stream(_),
            ) => {
                panic!("{key} is no set")
            }
        }
    }

    fn put(&mut self, key: &str, value: Value, expire_at: Option<Span>) {
        let expire_at = expire_at.map(|at| Span { from: at.from.min(self.end), to: at.to.min(self.end) });
        self.keys.insert(key.into(), Entry { value, expire_at });
        self.fresh.push(key.into());
        *self.versions.entry(key.into()).or_default() += 1;
    }

    fn remove(&mut self, key: &str) {
        self.keys.remove(key);
        *self.versions.entry(key.into()).or_default() += 1;
    }

    fn put_members(&mut self, key: &str, members: Members, expire_at: Option<Span>) {
        if members.is_empty() {
            self.remove(key);
        } else {
            self.put(key, Value::Members(Held::new(members)), expire_at);
        }
    }

    fn run(&self, argv: &[String], seen: Option<&Answer>, now: Now) -> Vec<State> {
        if seen.is_some_and(Answer::is_refusal) {
            return vec![self.clone()];
        }
        match argv[0].as_str() {
            "SPOP" => return self.pop(&argv[1], seen, now),
            "ONCE" => return self.once(&argv[1], &argv[2..], seen, now),
            _ if claims::tells_time(argv) => return self.run_with_time(argv, seen, now),
            _ => {}
        }
        let mut next = self.clone();
        let answer = next.apply(argv, now);
        if seen.is_none_or(|seen| *seen == answer) { vec![next] } else { Vec::new() }
    }

    /// `argv` under an id: answered as the first time, or run and kept.
    fn once(&self, id: &str, argv: &[String], seen: Option<&Answer>, now: Now) -> Vec<State> {
        let (mut next, known) = (self.clone(), self.kept.get(id));
        let answer = match known {
            Some((asked, answer)) if asked == argv => answer.clone(),
            Some(_) => panic!("an id is used for {argv:?} too"),
            None => {
                let answer = next.apply(argv, now);
                Rc::make_mut(&mut next.kept).insert(id.to_owned(), (argv.to_vec(), answer.clone()));
                answer
            }
        };
        if seen.is_none_or(|seen| *seen == answer) { vec![next] } else { Vec::new() }
    }

    fn pop(&self, key: &str, seen: Option<&Answer>, now: Now) -> Vec<State> {
        let members = self.members(key, now);
        let without = |member: &str| {
            let mut next = self.clone();
            let left = members.difference(&Members::of([member]));
            next.put_members(key, left, self.live(key, now).and_then(|e| e.expire_at));
            next
        };
        match seen {
            None | Some(Answer::Nil) if members.is_empty() => vec![self.clone()],
            Some(Answer::Text(member)) if members.contains(member) => vec![without(member)],
            None => members.names().iter().map(|member| without(member)).collect(),
            Some(_) => Vec::new(),
        }
    }
}
