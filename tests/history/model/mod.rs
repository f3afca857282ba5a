//! Redis in memory, as a pure function: what a state and a command make of each other.
//!
//! A step says which states may follow, given the reply that was seen (None: no reply was, any will do). Expiry is decided by
//! the `now` of the step, so a state needs no clock. Every change of a key counts its version up: WATCH remembers versions.

mod answer;
mod commands;
mod op;
pub mod values;

pub use answer::Answer;
pub use op::{Op, placed};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use values::{Members, Text};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    Text(Held<Text>),
    Members(Held<Members>),
}

/// What many states share. Its hash is made once: a search asks for it again and again.
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
    /// What was answered under each id, and what was asked.
    kept: Rc<BTreeMap<String, (Vec<String>, Answer)>>,
    /// The latest expiry that has been seen to be over: time does not run back behind it.
    over: u64,
}

impl State {
    /// The states after `op` of `client` at `now`, where it answered `seen`. None where it finds a key alive that somebody has seen to be
    /// over, or would have seen so.
    pub fn step(&self, client: usize, op: &Op, seen: Option<&Answer>, now: u64) -> Vec<State> {
        let mut over = self.over;
        let [own, watched] = self.expiries(client, op);
        // The commands of an EXEC that is aborted ask for nothing.
        let aborted = matches!(op, Op::Exec(_)) && self.has_changed(client, now);
        let own = own.into_iter().filter(|_| !aborted);
        for at in own.chain(watched.iter().copied()) {
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

    /// Whether `op` of `client` may do something else at `now` than it would have done at `before`.
    pub fn turns(&self, client: usize, op: &Op, before: u64, now: u64) -> bool {
        op.expires() || self.expiries(client, op).concat().into_iter().any(|at| before < at && at <= now)
    }

    /// When the keys expire that `op` of `client` may ask for, and those that it watches where it is EXEC.
    fn expiries(&self, client: usize, op: &Op) -> [Vec<u64>; 2] {
        let expiry = |key: &str| self.keys.get(key)?.expire_at;
        let watched = self.watched.keys().filter(|(who, _)| matches!(op, Op::Exec(_)) && *who == client);
        let watched = watched.filter_map(|(_, key)| expiry(key)).collect();
        [op.keys().into_iter().filter_map(expiry).collect(), watched]
    }

    /// Whether something has changed that `client` watches.
    fn has_changed(&self, client: usize, now: u64) -> bool {
        let mut watched = self.watched.iter().filter(|((who, _), _)| *who == client);
        watched.any(|((_, key), before)| *before != self.watchable(key, now))
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
        self.keys == before.keys && self.versions == before.versions && self.kept == before.kept
    }

    fn exec(&self, client: usize, calls: &[Vec<String>], seen: Option<&Answer>, now: u64) -> Vec<State> {
        let mut base = self.clone();
        base.watched.retain(|(who, _), _| *who != client);
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

    fn text(&self, key: &str, now: u64) -> Option<&Text> {
        match &self.live(key, now)?.value {
            Value::Text(text) => Some(&text.0),
            Value::Members(_) => panic!("{key} is a set"),
        }
    }

    fn members(&self, key: &str, now: u64) -> Rc<Members> {
        match self.live(key, now).map(|e| &e.value) {
            None => Rc::default(),
            Some(Value::Members(members)) => members.0.clone(),
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

    fn put_members(&mut self, key: &str, members: Members, expire_at: Option<u64>) {
        if members.is_empty() {
            self.remove(key);
        } else {
            self.put(key, Value::Members(Held::new(members)), expire_at);
        }
    }

    fn run(&self, argv: &[String], seen: Option<&Answer>, now: u64) -> Vec<State> {
        if seen.is_some_and(Answer::is_refusal) {
            return vec![self.clone()];
        }
        match argv[0].as_str() {
            "SPOP" => return self.pop(&argv[1], seen, now),
            "ONCE" => return self.once(&argv[1], &argv[2..], seen, now),
            _ => {}
        }
        let mut next = self.clone();
        let answer = next.apply(argv, now);
        if seen.is_none_or(|seen| *seen == answer) { vec![next] } else { Vec::new() }
    }

    /// `argv` under an id: answered as the first time, or run and kept.
    fn once(&self, id: &str, argv: &[String], seen: Option<&Answer>, now: u64) -> Vec<State> {
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

    fn pop(&self, key: &str, seen: Option<&Answer>, now: u64) -> Vec<State> {
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
