//! The findings of all checkers on a history. They must not contradict each other: the search must not
//! deny an order that the replay has found, and the search and the tester must agree on each part.

use super::model::Op;
use super::record::History;
use super::replay::replay;
use super::search::{Event, Finding, parts, search_parts};
use super::second;
use crate::support;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A check that takes longer is reported.
const SLOW: Duration = Duration::from_secs(2);
/// Larger parts are left to the replay.
const SEARCHED: usize = 800;

/// How often the second opinion was no and yes.
pub static OPINIONS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The finding of each checker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Undecided if a part was too large for it.
    pub search: Finding,
    /// None if units were not marked.
    pub replay: Option<Finding>,
}

impl Findings {
    pub fn is_broken(&self) -> bool {
        [Some(&self.search), self.replay.as_ref()].into_iter().flatten().any(Finding::is_broken)
    }
    /// Whether some checker has found an order, or a breach.
    pub fn is_decided(&self) -> bool {
        self.is_broken() || self.search == Finding::Serializable || self.replay == Some(Finding::Serializable)
    }
}

/// How to check a history.
#[derive(Debug, Default, Clone, Copy)]
pub struct Checks {
    /// Whether to ask the tester too: if it has an opinion of a part, it must be the search's.
    pub tester: bool,
    /// Whether the servers have times of their own, which is a breach: the replay believes each transaction's
    /// time, and may find an order where the search, which relies on what clients saw one after the other,
    /// finds none. Otherwise the search must not deny an order that the replay has found.
    pub own_times: bool,
}

/// Checks a history on a thread with room for the search's depth.
pub fn check(history: History, checks: Checks) -> Findings {
    let run = move || {
        let Findings { search, replay } = run_checkers(&history, checks.tester);
        let contradict = search.is_broken() && replay == Some(Finding::Serializable);
        assert!(
            checks.own_times || !contradict,
            "the search finds {search:?}, but the replay has found an order"
        );
        Findings { search, replay }
    };
    std::thread::Builder::new().stack_size(256 << 20).spawn(run).unwrap().join().unwrap()
}

fn run_checkers(history: &History, tester: bool) -> Findings {
    let replay = timed("the replay", &history.events, || replay(history));
    let (small, large): (Vec<_>, Vec<_>) = parts(&history.events).into_iter().partition(|p| is_small(p));
    if tester {
        small.iter().for_each(|part| ask_the_tester(part));
    }
    let mut search = timed("the search", &history.events, || search_parts(small));
    if !large.is_empty() && search == Finding::Serializable {
        search = Finding::Undecided;
    }
    Findings { search, replay }
}

fn is_small(part: &[Event]) -> bool {
    part.len() <= SEARCHED
}

fn ask_the_tester(part: &[Event]) {
    if let Some(opinion) = timed("the tester", part, || second::opinion(part)) {
        OPINIONS[usize::from(opinion)].fetch_add(1, Ordering::Relaxed);
        let first = search_parts(vec![part.to_vec()]);
        let agree = opinion == (first == Finding::Serializable);
        assert!(agree, "the search finds {first:?}, the tester {opinion}: {part:?}");
    }
}

fn timed<T>(checker: &str, events: &[Event], run: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let finding = run();
    if since.elapsed() > SLOW {
        support::say(&format!(
            "history: {checker} took {:?} for {} operations",
            since.elapsed(),
            events.len()
        ));
    }
    finding
}

/// The outcomes of operations.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counted {
    pub operations: usize,
    /// Their outcome is unknown.
    pub open: usize,
    /// The store refused them.
    pub refused: usize,
}

impl Counted {
    pub fn of(history: &History) -> Self {
        let operations = history.events.iter().filter(|e| !matches!(e.op, Op::Watch(_)));
        let answers = || history.events.iter().map(|e| e.answer.as_ref());
        Counted {
            operations: operations.count(),
            open: answers().filter(Option::is_none).count(),
            refused: answers().flatten().filter(|answer| answer.is_refused()).count(),
        }
    }

    pub fn add(&mut self, other: Counted) {
        self.operations += other.operations;
        self.open += other.open;
        self.refused += other.refused;
    }

    /// Fails if too few operations were carried out: of a server that refuses everything, any history is
    /// good.
    pub fn assert_done(&self, least_percent: usize) {
        let done = self.operations.saturating_sub(self.open + self.refused);
        assert!(done * 100 >= self.operations * least_percent, "only {done} were carried out: {self}");
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { operations, open, refused } = self;
        write!(f, "{operations} operations, {open} of them open, {refused} refused")
    }
}
