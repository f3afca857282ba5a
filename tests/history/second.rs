//! A second opinion on counters: the linearizability tester of the crate stateright, with a specification of
//! its own, so that a mistake of [`super::search`] or [`super::model`] shows as a disagreement.
//!
//! It does not remember failed attempts, so it runs only where there is little to try: INCRBY and GET, alone
//! or in EXEC, whose answers fix an order, of at most [`CLIENTS`] clients. A client is a thread, so it does
//! not handle pipelines.

use super::model::{Answer, Op};
use super::search::Event;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

/// With more clients it takes minutes.
const CLIENTS: usize = 4;
const EVENTS: usize = 200;
/// Once in many runs it would not end.
const PATIENCE: Duration = Duration::from_secs(20);
const STACK: usize = 256 << 20;

/// Counters by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Counters(BTreeMap<String, i64>);

/// The number added to each key in turn; None only reads it.
type Steps = Vec<(String, Option<i64>)>;

impl SequentialSpec for Counters {
    type Op = Steps;
    type Ret = Vec<Option<i64>>;

    fn invoke(&mut self, steps: &Steps) -> Self::Ret {
        let mut one = |(key, by): &(String, Option<i64>)| {
            if let Some(by) = by {
                *self.0.entry(key.clone()).or_default() += by;
            }
            self.0.get(key).copied()
        };
        steps.iter().map(&mut one).collect()
    }
}

fn steps(op: &Op) -> Option<Steps> {
    let one = |argv: &Vec<String>| match argv[0].as_str() {
        "INCRBY" => Some((argv[1].clone(), Some(argv[2].parse().unwrap()))),
        "GET" => Some((argv[1].clone(), None)),
        _ => None,
    };
    match op {
        Op::One(argv) => Some(vec![one(argv)?]),
        Op::Exec(calls) => calls.iter().map(one).collect(),
        Op::Watch(_) => None,
    }
}

fn numbers(answer: &Answer) -> Option<Vec<Option<i64>>> {
    let one = |answer: &Answer| match answer {
        Answer::Int(n) => Some(Some(*n)),
        Answer::Text(text) => Some(text.parse().ok()),
        Answer::Nil => Some(None),
        _ => None,
    };
    match answer {
        Answer::All(answers) => answers.iter().map(one).collect(),
        answer => Some(vec![one(answer)?]),
    }
}

/// Whether a part of a history is linearizable; None if it is not about counters alone, or too much for the
/// tester.
pub fn opinion(part: &[Event]) -> Option<bool> {
    let clients: BTreeSet<usize> = part.iter().map(|e| e.client).collect();
    if clients.len() > CLIENTS || part.len() > EVENTS {
        return None;
    }
    let mut points = Vec::new();
    for event in part {
        let steps = steps(&event.op).filter(|_| event.after.is_none())?;
        points.push((event.called, event.client, Ok(steps)));
        if let Some(answer) = &event.answer {
            points.push((event.returned, event.client, Err(numbers(answer)?)));
        }
    }
    points.sort_by_key(|(time, ..)| *time);
    let mut tester = LinearizabilityTester::new(Counters::default());
    for (_, client, point) in points {
        match point {
            Ok(steps) => tester.on_invoke(client, steps).unwrap(),
            Err(numbers) => tester.on_return(client, numbers).unwrap(),
        };
    }
    // Its time is exponential: a thread that takes too long is left alone.
    let (done, opinion) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || done.send(tester.is_consistent()))
        .expect("a thread for the tester");
    opinion.recv_timeout(PATIENCE).ok()
}
