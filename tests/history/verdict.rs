//! What all checkers say of a history. They must not contradict each other: an order that the replay has found is one that the
//! search must not deny, and the search and the tester are asked the same question.

use super::model::Op;
use super::record::History;
use super::replay::replay;
use super::search::{Event, Verdict, judge_parts, parts};
use super::second;
use crate::support;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A judgement that takes longer is told of.
const SLOW: Duration = Duration::from_secs(2);
/// Larger parts are left to the replay.
const SEARCHED: usize = 800;

/// How often the second opinion was no and yes.
pub static OPINIONS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// What each checker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdicts {
    /// Undecided where a part was too large for it.
    pub search: Verdict,
    /// None where units were not marked.
    pub replay: Option<Verdict>,
}

impl Verdicts {
    pub fn is_broken(&self) -> bool {
        [Some(&self.search), self.replay.as_ref()].into_iter().flatten().any(Verdict::is_broken)
    }
    /// Some checker has found an order.
    pub fn is_decided(&self) -> bool {
        self.is_broken() || self.search == Verdict::Serializable || self.replay == Some(Verdict::Serializable)
    }
}

/// Judges on a thread with room for the search's depth. `twice`: where the tester has an opinion of a part, it must be the search's.
pub fn judged(history: History, twice: bool) -> Verdicts {
    on_a_thread(move || {
        let Verdicts { search, replay } = asked(&history, twice);
        let contradict = search.is_broken() && replay == Some(Verdict::Serializable);
        assert!(!contradict, "the search says {search:?}, the replay has found an order");
        Verdicts { search, replay }
    })
}

/// The same of a history whose servers have times of their own, which is a breach: the replay takes each transaction's word for its
/// time, and may find an order where the search, which asks what clients saw one after the other, finds none.
pub fn judged_of_own_times(history: History, twice: bool) -> Verdicts {
    on_a_thread(move || asked(&history, twice))
}

fn on_a_thread(judge: impl FnOnce() -> Verdicts + Send + 'static) -> Verdicts {
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    thread.spawn(judge).unwrap().join().unwrap()
}

fn asked(history: &History, twice: bool) -> Verdicts {
    let replay = timed("the replay", &history.events, || replay(history));
    let (small, large): (Vec<_>, Vec<_>) = parts(&history.events).into_iter().partition(|p| is_small(p));
    if twice {
        small.iter().for_each(|part| ask_the_tester(part));
    }
    let mut search = timed("the search", &history.events, || judge_parts(small));
    if !large.is_empty() && search == Verdict::Serializable {
        search = Verdict::Undecided;
    }
    Verdicts { search, replay }
}

fn is_small(part: &[Event]) -> bool {
    part.len() <= SEARCHED
}

fn ask_the_tester(part: &[Event]) {
    if let Some(opinion) = timed("the tester", part, || second::opinion(part)) {
        OPINIONS[usize::from(opinion)].fetch_add(1, Ordering::Relaxed);
        let first = judge_parts(vec![part.to_vec()]);
        let agree = opinion == (first == Verdict::Serializable);
        assert!(agree, "the search says {first:?}, the tester says {opinion}: {part:?}");
    }
}

fn timed<T>(who: &str, events: &[Event], judge: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let verdict = judge();
    if since.elapsed() > SLOW {
        support::say(&format!("history: {who} took {:?} for {} operations", since.elapsed(), events.len()));
    }
    verdict
}

/// What became of operations.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counted {
    pub operations: usize,
    /// Nobody knows their end.
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

    /// Of a server that refuses everything, any history is good.
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
