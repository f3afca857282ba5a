//! The other checker of a history: it repeats the operations in the order of commit versions in the model and
//! compares the answers. That takes linear time, so it checks whole histories of any length.
//!
//! It demands more than [`super::search`]: not any order will do, only the store's. Transactions are ordered
//! by commit, including those whose end no client heard of; a read-only one follows the version that it read.
//! Then
//! * an operation called after another's return must not have a lower version: together with the order of
//!   values this makes the history *strictly* serializable;
//! * each answered operation must be in a transaction, no refused one in a committed transaction, and an
//!   uncommitted one must not have changed anything;
//! * all operations of a unit took place, in their order; if a pipeline's client left and its end was not
//!   reached, only the first few may have taken place;
//! * every answer must be the model's.
//!
//! FoundationDB may give one version to several commits that do not see each other: any order of those will
//! do, and the replay carries all remaining ones on. If those become too many, or an engine did not report
//! how a commit ended, the history is undecided.

use super::model::{Answer, Now, Op, State};
use super::record::{History, units};
use super::search::{Event, Finding, NEVER, touched};
use super::witness::{Trace, Transaction};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tern::store::Version;

/// States that are carried on at once.
const MOST_STATES: usize = 20_000;
/// Earlier transactions that a message tells of.
const TOLD: usize = 60;

struct Replay<'a> {
    events: &'a [Event],
    trace: &'a Trace,
    left: &'a BTreeSet<usize>,
    units: BTreeMap<usize, Vec<usize>>,
    /// For each unit the transaction that was answered.
    answering: BTreeMap<usize, usize>,
    /// For each event.
    keys: Vec<Vec<&'a str>>,
    /// Keys for which time matters.
    expiring: BTreeSet<&'a str>,
    /// Events before which their client's watches ended, in an EXEC that no transaction did.
    unwatched: BTreeSet<usize>,
}

/// Why the replay stops.
enum Stop {
    Broken(Vec<String>),
    Undecided,
}

/// Checks a history whose units were marked; None if they were not.
pub fn replay(history: &History) -> Option<Finding> {
    let (events, trace) = (&history.events[..], history.trace.as_ref()?);
    let mut answering = BTreeMap::new();
    for (n, transaction) in trace.transactions.iter().enumerate() {
        answering.extend(transaction.units.iter().map(|unit| (*unit, n)));
    }
    let (keys, expiring) = (touched(events), expiring(events));
    let (left, units) = (&history.left, units(events));
    let unwatched = unwatched(events, &answering);
    let replay = Replay { events, trace, left, units, answering, keys, expiring, unwatched };
    let done = replay.is_once().and_then(|()| replay.is_complete()).and_then(|()| replay.is_in_time());
    let done = done.map_err(|stop| (0, stop));
    Some(match done.and_then(|()| replay.run()) {
        Ok(()) => Finding::Serializable,
        Err((n, Stop::Broken(why))) => Finding::Broken(n, why),
        Err((_, Stop::Undecided)) => Finding::Undecided,
    })
}

/// Keys that have an expiry at some time, and those that share an operation with them.
fn expiring(events: &[Event]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for (event, keys) in events.iter().zip(touched(events)) {
            if event.op.expires() || keys.iter().any(|key| found.contains(key)) {
                found.extend(keys);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The first WATCH or EXEC of a client after an EXEC that no transaction did.
fn unwatched(events: &[Event], answering: &BTreeMap<usize, usize>) -> BTreeSet<usize> {
    let (mut found, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for (id, event) in events.iter().enumerate().filter(|(_, e)| !matches!(e.op, Op::One(_))) {
        if lost.remove(&event.client) {
            found.insert(id);
        }
        if matches!(event.op, Op::Exec(_)) && !answering.contains_key(&event.unit) {
            lost.insert(event.client);
        }
    }
    found
}

impl Replay<'_> {
    /// Checks that no unit was committed twice.
    fn is_once(&self) -> Result<(), Stop> {
        let mut committed: BTreeMap<usize, usize> = BTreeMap::new();
        for (n, transaction) in self.trace.transactions.iter().enumerate().filter(|(_, t)| t.wrote) {
            for unit in &transaction.units {
                if let Some(before) = committed.insert(*unit, n) {
                    let why = [self.described(before), self.described(n)].concat();
                    return Err(Stop::Broken(why));
                }
            }
        }
        Ok(())
    }

    /// Checks that every answered operation is in some transaction.
    fn is_complete(&self) -> Result<(), Stop> {
        for (unit, ids) in &self.units {
            let answered = self.events[ids[0]].answer.is_some();
            if self.trace.doubtful.contains(unit) && !self.answering.contains_key(unit) && answered {
                return Err(Stop::Undecided);
            }
            let refused = ids.iter().all(|n| self.events[*n].answer.as_ref().is_some_and(Answer::is_refused));
            let committed = self.answering.get(unit).filter(|n| self.transaction(**n).wrote);
            if let Some(n) = committed.filter(|_| refused) {
                return Err(Stop::Broken(self.described(*n)));
            }
            if answered && !refused && !self.answering.contains_key(unit) {
                return Err(Stop::Broken(vec![format!("no transaction did {:?}", self.events[ids[0]])]));
            }
        }
        Ok(())
    }

    /// Checks that versions respect time.
    fn is_in_time(&self) -> Result<(), Stop> {
        let place = |e: &Event| -> Option<(Version, bool)> {
            let transaction = &self.trace.transactions[*self.answering.get(&e.unit)?];
            Some((transaction.version, !transaction.wrote))
        };
        let placed: Vec<(&Event, (Version, bool))> =
            self.events.iter().filter_map(|e| Some((e, place(e)?))).collect();
        let (mut calls, mut returns) = (placed.clone(), placed);
        calls.sort_by_key(|(e, _)| e.called);
        returns.retain(|(e, _)| e.returned != NEVER);
        returns.sort_by_key(|(e, _)| e.returned);
        let mut returned = returns.into_iter().peekable();
        let mut latest: Option<(&Event, (Version, bool))> = None;
        for (event, at) in calls {
            while let Some((before, place)) = returned.next_if(|(e, _)| e.returned < event.called) {
                if latest.is_none_or(|(_, highest)| place > highest) {
                    latest = Some((before, place));
                }
            }
            // Readers may read the same version.
            let late = |highest: (Version, bool)| at < highest || (at == highest && !at.1);
            if let Some((before, _)) = latest.filter(|(_, highest)| late(*highest)) {
                let why = format!("{event:?} at version {at:?} began after the end of {before:?}");
                return Err(Stop::Broken(vec![why, format!("that has {:?}", latest.map(|(_, at)| at))]));
            }
        }
        Ok(())
    }

    /// Repeats all transactions.
    fn run(&self) -> Result<(), (usize, Stop)> {
        let mut states = vec![State::default()];
        let all: Vec<usize> = (0..self.trace.transactions.len()).collect();
        let place = |n: &usize| (self.transaction(*n).version, self.transaction(*n).wrote);
        for group in all.chunk_by(|a, b| place(a) == place(b)) {
            let next = if self.transaction(group[0]).wrote {
                self.beside_each_other(group, states)
            } else {
                group.iter().try_fold(states, |states, n| self.after_each(*n, states))
            };
            states = next.map_err(|stop| (group[0], stop))?;
        }
        Ok(())
    }

    fn transaction(&self, n: usize) -> &Transaction {
        &self.trace.transactions[n]
    }

    /// Commits of one version, in any order: all orders of those that share keys are tried.
    fn beside_each_other(&self, group: &[usize], mut states: Vec<State>) -> Result<Vec<State>, Stop> {
        if let [alone] = group {
            return self.after_each(*alone, states);
        }
        for together in self.sharing_keys(group) {
            let mut level: Vec<(BTreeSet<usize>, State)> =
                states.into_iter().map(|state| (BTreeSet::new(), state)).collect();
            for _ in 0..together.len() {
                let mut next = HashSet::new();
                for (done, state) in level {
                    for n in together.iter().filter(|n| !done.contains(n)) {
                        let done: BTreeSet<usize> = done.iter().copied().chain([*n]).collect();
                        next.extend(self.after(*n, &state).into_iter().map(|state| (done.clone(), state)));
                    }
                }
                level = self.bounded(together[0], next.into_iter().collect())?;
            }
            states = level.into_iter().map(|(_, state)| state).collect();
        }
        Ok(states)
    }

    /// Divides a group into parts without common keys.
    fn sharing_keys(&self, group: &[usize]) -> Vec<Vec<usize>> {
        let mut parts: Vec<(BTreeSet<&str>, Vec<usize>)> = Vec::new();
        for n in group {
            let ids = self.transaction(*n).units.iter().filter_map(|unit| self.units.get(unit)).flatten();
            let mut keys: BTreeSet<&str> = ids.flat_map(|id| self.keys[*id].iter().copied()).collect();
            let mut members = vec![*n];
            let (meeting, apart) = parts.into_iter().partition(|(other, _)| !other.is_disjoint(&keys));
            parts = apart;
            let meeting: Vec<(BTreeSet<&str>, Vec<usize>)> = meeting;
            for (others, transactions) in meeting {
                keys.extend(others);
                members.extend(transactions);
            }
            parts.push((keys, members));
        }
        parts.into_iter().map(|(_, members)| members).collect()
    }

    fn after_each(&self, n: usize, states: Vec<State>) -> Result<Vec<State>, Stop> {
        let mut next: Vec<State> = states.iter().flat_map(|state| self.after(n, state)).collect();
        if next.len() > 1 {
            next = next.into_iter().collect::<HashSet<State>>().into_iter().collect();
        }
        self.bounded(n, next)
    }

    fn bounded<T>(&self, n: usize, states: Vec<T>) -> Result<Vec<T>, Stop> {
        match states.len() {
            0 => Err(Stop::Broken([self.described(n), self.story(n)].concat())),
            len if len > MOST_STATES => Err(Stop::Undecided),
            _ => Ok(states),
        }
    }

    /// A transaction's operations, for messages.
    fn described(&self, n: usize) -> Vec<String> {
        let transaction = self.transaction(n);
        let ids = transaction.units.iter().filter_map(|unit| self.units.get(unit)).flatten();
        let events = ids.map(|id| format!("{:?}", self.events[*id]));
        std::iter::once(format!("{transaction:?}")).chain(events).collect()
    }

    /// What happened to a transaction's keys before it, and what may have, for messages.
    fn story(&self, n: usize) -> Vec<String> {
        let units_of = |unit: &usize| self.units.get(unit).into_iter().flatten();
        let own = self.transaction(n).units.iter().flat_map(units_of);
        let keys: BTreeSet<&str> = own.flat_map(|id| self.keys[*id].iter().copied()).collect();
        let meets =
            |unit: &usize| units_of(unit).any(|id| self.keys[*id].iter().any(|key| keys.contains(key)));
        let before: Vec<usize> = (0..n).filter(|t| self.transaction(*t).units.iter().any(&meets)).collect();
        let last = before.iter().rev().take(TOLD).rev().flat_map(|t| self.described(*t));
        let loose = self.units.keys().filter(|unit| !self.answering.contains_key(unit) && meets(unit));
        let loose = loose.flat_map(units_of).map(|id| format!("in no transaction: {:?}", self.events[*id]));
        last.chain(loose).collect()
    }

    /// The states after a transaction, all of whose operations saw one time.
    fn after(&self, n: usize, state: &State) -> Vec<State> {
        let transaction = self.transaction(n);
        let mut found: Vec<State> = Vec::new();
        let ids = transaction.units.iter().filter_map(|unit| self.units.get(unit)).flatten();
        let mut keys = ids.flat_map(|id| &self.keys[*id]);
        let times = if keys.any(|key| self.expiring.contains(key)) { transaction.clocks.len() } else { 1 };
        let ids = || transaction.units.iter().filter_map(|unit| self.units.get(unit)).flatten();
        let mut before = None;
        for now in transaction.clocks.iter().take(times) {
            let event = |id: &usize| &self.events[*id];
            let turns = |id, before| state.turns(event(id).client, &event(id).op, before, *now);
            let same = |before| ids().all(|id| !turns(id, before));
            if before.is_some_and(same) {
                continue;
            }
            before = Some(*now);
            let mut states = vec![state.clone()];
            for unit in &transaction.units {
                let answers = self.answering.get(unit) == Some(&n);
                let mut ended = Vec::new();
                for id in self.units.get(unit).into_iter().flatten() {
                    if self.left.contains(unit) && !transaction.whole.contains(unit) {
                        ended.extend(states.iter().cloned());
                    }
                    let event = &self.events[*id];
                    if self.unwatched.contains(id) {
                        states.iter_mut().for_each(|state| state.unwatch(event.client));
                    }
                    let seen = event.answer.as_ref().filter(|_| answers);
                    states = states
                        .iter()
                        .flat_map(|s| {
                            s.step(event.client, &event.op, seen, Now::exactly(*now, transaction.sure))
                        })
                        .collect();
                }
                states.extend(ended);
            }
            states.retain(|next| transaction.wrote || next.has_data_of(state));
            for next in states {
                if !found.contains(&next) {
                    found.push(next);
                }
            }
        }
        found
    }
}
