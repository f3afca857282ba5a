//! Hazard: what clients of several servers see could not have happened in any order of their commands that respects time.
//!
//! Clients run random commands over few keys, on servers that share a store with faults; every call and return is recorded, and
//! [`search`] looks for an order through a pure [`model`] of Redis. That the search can say no is shown by small histories, and by
//! [`mutants`]: breaches of what Tern rests on, each of which must be found.
//!
//! `TERN_HISTORY_SECONDS` says for how long histories are made (10), `TERN_SEED` repeats the choice of commands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../cluster/mod.rs"]
mod cluster;
mod generate;
mod model;
mod mutants;
mod search;
mod second;
#[path = "../sets_world/mod.rs"]
mod sets_world;
mod small;
#[path = "../support/mod.rs"]
mod support;
mod world;

use generate::EVERYTHING;
use search::{Event, Verdict, judge, parts};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::rng::Rng;
use tern::store::faulty::FaultRates;
use world::{Plan, history};

/// A judgement that takes longer is told of.
const SLOW: Duration = Duration::from_secs(2);
/// Histories in which a mutation must show.
const CHANCES: u64 = 60;

/// Judges on a thread with room for the search's depth. `twice`: where there is a second opinion of a part, it must be the same.
fn judged(events: Vec<Event>, twice: bool) -> Verdict {
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    thread.spawn(move || agreed(&events, twice)).unwrap().join().unwrap()
}

fn agreed(events: &[Event], twice: bool) -> Verdict {
    for part in parts(events).into_iter().filter(|_| twice) {
        if let Some(opinion) = timed("the tester", &part, || second::opinion(&part)) {
            OPINIONS[usize::from(opinion)].fetch_add(1, Ordering::Relaxed);
            let first = judge(&part);
            let agree = opinion == (first == Verdict::Serializable);
            assert!(agree, "the search says {first:?}, the tester says {opinion}: {part:?}");
        }
    }
    timed("the search", events, || judge(events))
}

fn timed<T>(who: &str, events: &[Event], judge: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let verdict = judge();
    if since.elapsed() > SLOW {
        support::say(&format!("history: {who} took {:?} for {} operations", since.elapsed(), events.len()));
    }
    verdict
}

/// How often the second opinion was no and yes.
static OPINIONS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

fn seed() -> u64 {
    let seed = support::env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    support::say(&format!("history: TERN_SEED={seed}"));
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_strictly_serializable() {
    let seconds = support::env_number("TERN_HISTORY_SECONDS").unwrap_or(10);
    let mut rng = Rng::new(seed());
    let since = Instant::now();
    let (mut histories, mut operations, mut open, mut undecided) = (0, 0, 0, 0);
    while since.elapsed() < Duration::from_secs(seconds) || histories < 6 {
        let clients = [1, 2, 4, 8, 16][histories % 5];
        let plan = Plan {
            servers: 1 + rng.below(3),
            clients,
            steps: 400 / clients,
            pipeline: 1 + 3 * (histories % 2),
            groups: EVERYTHING,
            rates: FaultRates::mixed(),
            give_up: if rng.below(2) == 0 { 0 } else { 100 },
            tamper: None,
            sweep: mutants::honest_sweep,
            embedded: false,
        };
        let seed = rng.next();
        let events = history(plan, seed).await;
        operations += events.len();
        open += events.iter().filter(|e| e.answer.is_none()).count();
        histories += 1;
        match judged(events, false) {
            Verdict::Serializable => {}
            Verdict::Undecided => undecided += 1,
            broken => panic!("history {histories}, {clients} clients, seed {seed}: {broken:?}"),
        }
    }
    assert!(undecided * 5 < histories, "{undecided} of {histories} histories are undecided");
    support::say(&format!(
        "history: {histories} histories, {operations} operations, {open} of them open, {undecided} undecided"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mutation_is_found() {
    let mut rng = Rng::new(seed());
    for (name, plan) in mutants::all() {
        let mut found = None;
        for chance in 1..=CHANCES {
            let verdict = judged(history(plan.clone(), rng.next()).await, true);
            if let Verdict::Broken(..) = verdict {
                found = Some(chance);
                break;
            }
        }
        let chance = found.unwrap_or_else(|| panic!("not found in {CHANCES} histories: {name}"));
        support::say(&format!("history: {name}: found in history {chance}"));
    }
    let against = OPINIONS[0].load(Ordering::Relaxed);
    assert!(against >= 3, "the second opinion found {against} of the breaches that counters show");
}

/// The plans of the mutants find nothing where nothing is broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_mutation_no_plan_is_red() {
    let mut rng = Rng::new(seed());
    for (name, plan) in mutants::all() {
        let honest = Plan { tamper: None, sweep: mutants::honest_sweep, ..plan };
        for _ in 0..3 {
            let verdict = judged(history(honest.clone(), rng.next()).await, true);
            assert_eq!(verdict, Verdict::Serializable, "the plan of '{name}' without it");
        }
    }
    assert!(OPINIONS[1].load(Ordering::Relaxed) > 0, "no second opinion was asked");
}
