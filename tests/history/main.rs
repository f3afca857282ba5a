//! Hazard: no order of the commands that respects time explains what clients of several servers see.
//!
//! Clients run random commands on few keys, on servers that share a store with faults; every call and return
//! is recorded. Two checkers look for an order in a pure [`model`] of Redis: [`replay`] repeats the
//! operations in the order of the store's versions, [`search`] knows nothing of the store and tries orders,
//! part by part; the two must not contradict each other, and a third checker ([`second`]) gives an opinion on
//! counters. Small histories show that the checkers can fail, and so do [`mutants`]: breaches of Tern's
//! assumptions, each of which each checker must find.
//!
//! `TERN_HISTORY_SECONDS` sets the time for making histories (10), `TERN_HISTORY_OPERATIONS` the length of a
//! long one (20 000), `TERN_SEED` repeats the choice of commands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod breaches;
#[path = "../cluster/mod.rs"]
mod cluster;
mod findings;
mod generate;
mod model;
mod mutants;
mod ranked_breaches;
mod record;
mod replay;
mod replay_small;
mod search;
mod second;
#[path = "../sets_world/mod.rs"]
mod sets_world;
mod small;
mod small_streams;
mod stream_breaches;
#[path = "../support/mod.rs"]
mod support;
mod witness;
mod world;

use findings::{Checks, Counted, OPINIONS, check};
use generate::{EVERYTHING, Group};
use search::Finding;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::rng::Rng;
use tern::store::faulty::FaultRates;
use world::{Plan, history};

/// The minimum percentage of operations carried out.
const DONE: usize = 90;
/// Histories in which a mutation must show. Most show in the first; the rarest in one of ten.
const CHANCES: u64 = 240;

fn seed() -> u64 {
    let seed = support::env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    support::say(&format!("history: TERN_SEED={seed}"));
    seed
}

/// A plan of `clients` that do `steps` together.
fn honest(rng: &mut Rng, clients: usize, steps: usize) -> Plan {
    Plan {
        servers: 1 + rng.below(3),
        clients,
        steps: steps / clients,
        pipeline: 1 + 3 * rng.below(2),
        groups: EVERYTHING,
        rates: FaultRates::mixed(),
        give_up: if rng.below(2) == 0 { 0 } else { 100 },
        tamper: None,
        own_times: false,
        sweep: mutants::honest_sweep,
        embedded: false,
        marked: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_strictly_serializable() {
    let seconds = support::env_number("TERN_HISTORY_SECONDS").unwrap_or(10);
    let mut rng = Rng::new(seed());
    let since = Instant::now();
    let (mut histories, mut counted, mut undecided) = (0, Counted::default(), 0);
    while since.elapsed() < Duration::from_secs(seconds) || histories < 12 {
        let clients = [1, 2, 4, 8, 16, 64][histories % 6];
        let mut plan = honest(&mut rng, clients, 400);
        // With many clients or many open operations, the search alone decides little.
        plan.marked = clients > 1 || plan.give_up > 0 || rng.below(2) > 0;
        let seed = rng.next();
        let seen = history(plan, seed).await;
        counted.add(Counted::of(&seen));
        histories += 1;
        let findings = check(seen, Checks::default());
        undecided += usize::from(!findings.is_decided());
        assert!(!findings.is_broken(), "history {histories}, {clients} clients, seed {seed}: {findings:?}");
    }
    support::say(&format!("history: {histories} histories, {counted}, {undecided} undecided"));
    assert!(undecided * 10 <= histories, "{undecided} of {histories} histories are undecided");
    counted.assert_done(DONE);
}

/// Clients that wait get each element once, whatever fails and whoever leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_wait_are_served_in_one_order() {
    let seconds = support::env_number("TERN_HISTORY_SECONDS").unwrap_or(10) / 2;
    let mut rng = Rng::new(seed());
    let (since, mut made, mut decided, mut counted) = (Instant::now(), 0, 0, Counted::default());
    let mut served = 0;
    while since.elapsed() < Duration::from_secs(seconds) || made < 12 {
        let rates = FaultRates::mixed();
        let plan = Plan { clients: [2, 3, 4][made % 3], rates, give_up: 50, ..mutants::waiting(None) };
        let seed = rng.next();
        let seen = history(plan, seed).await;
        counted.add(Counted::of(&seen));
        served += seen.events.iter().filter(|event| event.op.waits()).count();
        let findings = check(seen, Checks { tester: !is_on_a_cluster(), own_times: false });
        assert!(!findings.is_broken(), "history {made}, seed {seed}: {findings:?}");
        (made, decided) = (made + 1, decided + usize::from(findings.search == Finding::Serializable));
    }
    support::say(&format!(
        "history: {made} histories, {counted}, {served} served that waited, {decided} decided"
    ));
    assert!(served > made * 5, "{served} that waited were served in {made} histories");
    assert!(decided * 2 >= made || is_on_a_cluster(), "{decided} of {made} histories are decided");
    counted.assert_done(DONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_element_that_two_clients_get_is_found() {
    let mut rng = Rng::new(seed());
    for n in 1..=CHANCES {
        let plan = mutants::waiting(Some(std::sync::Arc::new(breaches::NoReadConflict)));
        if check(history(plan, rng.next()).await, Checks::default()).search.is_broken() {
            return support::say(&format!("history: two clients get one element in history {n}"));
        }
    }
    panic!("not found in {CHANCES} histories");
}

/// Too long for a search.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_strictly_serializable() {
    let steps = support::env_number("TERN_HISTORY_OPERATIONS").unwrap_or(20_000) as usize;
    let mut rng = Rng::new(seed());
    let plan = Plan { servers: 3, pipeline: 4, give_up: 50, ..honest(&mut rng, 64, steps / 2) };
    let seed = rng.next();
    let since = Instant::now();
    let seen = history(plan, seed).await;
    let (made, since) = (since.elapsed(), Instant::now());
    let counted = Counted::of(&seen);
    let findings = check(seen, Checks::default());
    assert_eq!(findings.replay, Some(Finding::Serializable), "seed {seed}");
    let took = since.elapsed();
    support::say(&format!("history: one of {counted}, made in {made:?}, checked in {took:?}"));
    counted.assert_done(DONE);
}

/// On a cluster most operations overlap, so that the tester takes minutes, and a search may take many
/// histories.
fn is_on_a_cluster() -> bool {
    support::fdb_cluster::wanted()
}

/// Whether one checker is enough: on a cluster, and where keys expire. The replay knows when a transaction
/// ran; the search knows only a span, which on a busy machine is longer than keys live.
fn one_is_enough(plan: &Plan) -> bool {
    is_on_a_cluster() || plan.groups.contains(&Group::Expiring) || plan.own_times
}

/// The number of the first history of a plan in which each checker found something.
async fn found(plan: &Plan, rng: &mut Rng) -> (Option<u64>, Option<u64>) {
    let (mut search, mut replay) = (None, None);
    for chance in 1..=CHANCES {
        let checks = Checks { tester: !is_on_a_cluster(), own_times: plan.own_times };
        let findings = check(history(plan.clone(), rng.next()).await, checks);
        search = search.or(findings.search.is_broken().then_some(chance));
        replay = replay.or(findings.replay.is_some_and(|v| v.is_broken()).then_some(chance));
        if [search, replay].iter().flatten().count() >= if one_is_enough(plan) { 1 } else { 2 } {
            break;
        }
    }
    (search, replay)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mutation_is_found_by_each_checker() {
    let mut rng = Rng::new(seed());
    for (name, plan) in mutants::all() {
        let (search, replay) = found(&plan, &mut rng).await;
        support::say(&format!(
            "history: {name}: search found it in history {search:?}, replay in {replay:?}"
        ));
        assert!(search.or(replay).is_some(), "not found in {CHANCES} histories: {name}");
        let both = search.is_some() && replay.is_some();
        assert!(both || one_is_enough(&plan), "{name}: found by one checker alone in {CHANCES} histories");
    }
    let against = OPINIONS[0].load(Ordering::Relaxed);
    assert!(
        against >= 3 || is_on_a_cluster(),
        "the second opinion found {against} of the breaches that counters show"
    );
}

/// The plans of the mutants find nothing if nothing is broken. On a busy machine so much of a history
/// overlaps that the search gives up: then another one is made, so that it decides some of every plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_plan_fails_without_its_mutation() {
    const DECIDED: usize = 3;
    let mut rng = Rng::new(seed());
    for (name, plan) in mutants::all() {
        let checks = Checks { tester: !is_on_a_cluster(), own_times: false };
        let honest = Plan { tamper: None, own_times: false, sweep: mutants::honest_sweep, ..plan.clone() };
        let (mut decided, mut made) = (0, 0);
        while decided < DECIDED && made < CHANCES {
            let findings = check(history(honest.clone(), rng.next()).await, checks);
            assert!(!findings.is_broken(), "the plan of '{name}' without its mutation: {findings:?}");
            assert_eq!(
                findings.replay,
                Some(Finding::Serializable),
                "the plan of '{name}' without its mutation"
            );
            decided += usize::from(findings.search == Finding::Serializable || one_is_enough(&plan));
            made += 1;
        }
        assert_eq!(decided, DECIDED, "'{name}': the search gave up too often in {made} histories");
    }
    let asked = OPINIONS[1].load(Ordering::Relaxed) > 0;
    assert!(asked || is_on_a_cluster(), "the second checker must be asked");
}
