//! Does an order exist in which a history's operations could have run one by one, each between its call and
//! its return?
//!
//! This is Wing and Gong's search with Lowe's memory of pairs (operations done, state): depth first, trying
//! next the operations called before the first return of one that is not done. An operation whose outcome is
//! unknown may run at any time after its call, or never.
//!
//! An operation whose answer says that it changed nothing is taken next at once if its answer is right and
//! the state stays equal: any order that has it later could have it here too, so no other order need be
//! tried. A read that finds a key expired does not leave the state equal: it shows a later time, and an
//! operation that finds another key alive may have to precede it. Two states that differ only in the time
//! shown are ordered: whatever can follow the later one can follow the earlier one, so the later one is not
//! tried.
//!
//! Histories are cut by keys: operations that share no key, directly or through others, are checked
//! separately. That is equivalent to checking them together, because strict serializability is local to parts
//! that share no transaction.

use super::model::{Answer, Now, Op, Span, State};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Return time of an operation whose outcome is unknown.
pub const NEVER: u64 = u64::MAX;
/// Operations tried before a search gives up.
const PATIENCE: u64 = 100_000;

/// A client's operation. Calls and returns are numbered in the order in which they happened.
#[derive(Debug, Clone)]
pub struct Event {
    pub client: usize,
    pub op: Op,
    /// None: unknown.
    pub answer: Option<Answer>,
    pub called: u64,
    pub returned: u64,
    /// Operations sent together have one number.
    pub unit: usize,
    /// It follows that event of the same client, though it was sent with it.
    pub after: Option<usize>,
    /// Times that it may have seen, ms.
    pub clocks: RangeInclusive<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// An order exists.
    Serializable,
    /// No order exists; the number of operations that the longest attempt did, and the one that could not
    /// follow.
    Broken(usize, Vec<String>),
    /// The search gave up.
    Undecided,
}

impl Finding {
    pub fn is_broken(&self) -> bool {
        matches!(self, Finding::Broken(..))
    }
}

/// Searches each part of a history: a broken one counts even after undecided ones.
pub fn search_parts(parts: Vec<Vec<Event>>) -> Finding {
    search_with(parts, PATIENCE)
}

/// With patience for this many operations tried in each part.
pub fn search_with(parts: Vec<Vec<Event>>, patience: u64) -> Finding {
    let mut all = Finding::Serializable;
    for part in parts {
        match Search::new(part, patience).run() {
            Finding::Serializable => {}
            Finding::Undecided => all = Finding::Undecided,
            broken => return broken,
        }
    }
    all
}

/// The events grouped by keys that they share (those without keys are in no group), each part in the order of
/// calls. A key that a client watches is a key of its next EXEC.
pub fn parts(events: &[Event]) -> Vec<Vec<Event>> {
    let mut group: BTreeMap<String, usize> = BTreeMap::new();
    for (n, keys) in touched(events).into_iter().enumerate() {
        let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
        let joined: BTreeSet<usize> = keys.iter().filter_map(|k| group.get(k).copied()).collect();
        group.values_mut().filter(|g| joined.contains(g)).for_each(|g| *g = n);
        group.extend(keys.into_iter().map(|k| (k, n)));
    }
    let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, event) in events.iter().enumerate() {
        if let Some(key) = event.op.keys().first() {
            parts.entry(group[*key]).or_default().push(n);
        }
    }
    let one = |mut ids: Vec<usize>| {
        ids.sort_by_key(|n| (events[*n].called, *n));
        let at: BTreeMap<usize, usize> = ids.iter().enumerate().map(|(at, n)| (*n, at)).collect();
        // The previous event in the pipeline may be in another part: then the one before that counts.
        let before = |n: &usize| events[*n].after;
        let after =
            |n: usize| std::iter::successors(events[n].after, before).find_map(|b| at.get(&b).copied());
        ids.iter().map(|n| Event { after: after(*n), ..events[*n].clone() }).collect()
    };
    parts.into_values().map(one).map(at_one_time).collect()
}

/// The keys of each event, for an EXEC also those that its client watches. The events of a client are in
/// order.
pub fn touched(events: &[Event]) -> Vec<Vec<&str>> {
    let mut watched: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let keys = events.iter().map(|event| {
        let mut keys = event.op.keys();
        match &event.op {
            Op::Watch(key) => watched.entry(event.client).or_default().push(key),
            Op::Exec(_) => keys.extend(watched.remove(&event.client).unwrap_or_default()),
            Op::One(_) => {}
        }
        keys
    });
    keys.collect()
}

/// If nothing expires and nothing tells how long entries have been pending, time does not matter.
fn at_one_time(mut part: Vec<Event>) -> Vec<Event> {
    if !part.iter().any(|e| e.op.tells_time()) {
        part.iter_mut().for_each(|e| e.clocks = *e.clocks.start()..=*e.clocks.start());
    }
    part
}

struct Search {
    events: Rc<[Event]>,
    done: Vec<bool>,
    /// The earliest shown time with which each state was tried.
    seen: HashMap<(u64, u64), u64>,
    steps: u64,
    patience: u64,
    /// Hash of the set of events done: the sum of their hashes.
    sum: u64,
    best: usize,
    stuck: Vec<String>,
}

fn hash(value: &impl Hash, salt: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, value).hash(&mut hasher);
    hasher.finish()
}

impl Search {
    fn new(events: Vec<Event>, patience: u64) -> Self {
        let done = vec![false; events.len()];
        Search {
            events: events.into(),
            done,
            seen: HashMap::new(),
            steps: 0,
            patience,
            sum: 0,
            best: 0,
            stuck: Vec::new(),
        }
    }

    fn run(mut self) -> Finding {
        let end = self.events.iter().map(|event| event.clocks.end() + 1).max();
        match self.deeper(&State::until(end.unwrap_or(0)), 0, 0) {
            Some(true) => Finding::Serializable,
            Some(false) => Finding::Broken(self.best, self.stuck),
            None => Finding::Undecided,
        }
    }

    /// Whether the remaining events can follow `state`; None if it takes too long. `from`: all before it are
    /// done.
    fn deeper(&mut self, state: &State, mut from: usize, done: usize) -> Option<bool> {
        while self.done.get(from) == Some(&true) {
            from += 1;
        }
        let candidates = self.candidates(from);
        if candidates.iter().all(|n| self.events[*n].returned == NEVER) && !self.any_returned(from) {
            return Some(true);
        }
        let key = (self.sum ^ hash(state, 1), self.sum.rotate_left(17) ^ hash(state, 2));
        if self.seen.get(&key).is_some_and(|over| *over <= state.over()) {
            return Some(false);
        }
        self.seen.insert(key, state.over());
        if self.steps > self.patience {
            return None;
        }
        if done >= self.best {
            self.best = done;
            self.stuck = candidates.iter().map(|n| format!("{:?}", self.events[*n])).collect();
        }
        let events = self.events.clone();
        for n in candidates {
            let mut nexts = self.after(&events[n], state);
            let id = hash(&n, 3);
            let settled = events[n].op.changed_nothing(events[n].answer.as_ref()) && nexts.contains(state);
            nexts.retain(|next| !settled || next == state);
            for next in nexts {
                self.done[n] = true;
                self.sum = self.sum.wrapping_add(id);
                let found = self.deeper(&next, from, done + 1);
                self.sum = self.sum.wrapping_sub(id);
                self.done[n] = false;
                if found != Some(false) || settled {
                    return found;
                }
            }
        }
        Some(false)
    }

    /// The states after `event`, at all times that it may have seen.
    fn after(&mut self, event: &Event, state: &State) -> Vec<State> {
        self.steps += 1;
        let mut nexts: Vec<State> = Vec::new();
        let now = Now::within(Span { from: *event.clocks.start(), to: *event.clocks.end() });
        for next in state.step(event.client, &event.op, event.answer.as_ref(), now) {
            self.steps += 1;
            if !nexts.iter().any(|known| known.allows_all_of(&next)) {
                nexts.push(next);
            }
        }
        nexts
    }

    fn any_returned(&self, from: usize) -> bool {
        (from..self.events.len()).any(|n| !self.done[n] && self.events[n].returned != NEVER)
    }

    /// The events that may come next, those that returned first in front.
    fn candidates(&self, from: usize) -> Vec<usize> {
        let mut first_return = NEVER;
        let mut found = Vec::new();
        for n in from..self.events.len() {
            let event = &self.events[n];
            if event.called > first_return {
                break;
            }
            if self.done[n] {
                continue;
            }
            first_return = first_return.min(event.returned);
            if event.after.is_none_or(|before| self.done[before]) {
                found.push(n);
            }
        }
        found.retain(|n| self.events[*n].called < first_return || self.events[*n].returned == first_return);
        found.sort_by_key(|n| self.events[*n].returned);
        found
    }
}
