//! Hazard: a failure that needs one schedule in a million, and cannot be reproduced.
//!
//! A cluster of servers with all their jobs, up to 64 clients, faults, crashes, outages and restarts run on
//! one thread in virtual time ([`world`]): thousands of seconds of clients' time per minute, and the same
//! seed yields the same history, byte for byte. The checkers of `tests/history` check every history, `tern
//! check` every store.
//!
//! `TERN_SIM_SEED=n` repeats one seed; `TERN_SIM_SECONDS` limits the time for random ones (10).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../history/breaches.rs"]
mod breaches;
#[path = "../history/findings.rs"]
mod findings;
#[path = "../history/generate/mod.rs"]
mod generate;
#[path = "../history/model/mod.rs"]
mod model;
#[path = "../history/record.rs"]
mod record;
#[path = "../history/replay.rs"]
mod replay;
#[path = "../history/search.rs"]
mod search;
#[path = "../history/second.rs"]
mod second;
#[path = "../support/mod.rs"]
mod support;
#[path = "../history/witness.rs"]
mod witness;
mod world;

use bytes::Bytes;
use findings::{Checks, Counted, check};
use generate::Group;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::rng::Rng;
use tern::keyspace::keys::root;
use tern::store::Read;
use tern::store::faulty::FaultRates;
use tern::store::tamper::Tamper;
use world::{Outcome, Plan, simulate};

/// Seeds of every run.
const FIXED: std::ops::RangeInclusive<u64> = 1..=8;
/// The minimum percentage of operations carried out.
const DONE: usize = 80;
/// Seeds in which a breach must show.
const CHANCES: u64 = 20;

/// A breach's name, the groups and faults that reveal it, and its implementation.
type Breach = (&'static str, &'static [Group], FaultRates, Arc<dyn Tamper>);

/// Prints the seed if a simulation panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            support::say(&format!("simulation: TERN_SIM_SEED={}", self.0));
        }
    }
}

/// Totals of simulations.
#[derive(Default)]
struct Sum {
    seeds: u64,
    client_seconds: u64,
    counted: Counted,
    crashes: u64,
    outages: u64,
    restarts: u64,
    undecided: u64,
    /// Real time, without the checkers.
    simulating: Duration,
}

impl Sum {
    /// Simulates one seed, which must reveal no fault.
    fn add(&mut self, seed: u64) {
        self.add_plan(&Plan::mixed(&mut Rng::new(seed)), seed);
    }

    fn add_plan(&mut self, plan: &Plan, seed: u64) {
        let (since, _seed) = (Instant::now(), Named(seed));
        let Outcome { history, crashes, outages, restarts, damage } = simulate(plan, seed);
        self.simulating += since.elapsed();
        self.counted.add(Counted::of(&history));
        assert_eq!(damage, None, "TERN_SIM_SEED={seed}");
        let findings = check(history, Checks::default());
        assert!(!findings.is_broken(), "TERN_SIM_SEED={seed}: {findings:?}");
        (self.seeds, self.undecided) = (self.seeds + 1, self.undecided + u64::from(!findings.is_decided()));
        (self.crashes, self.outages) = (self.crashes + crashes, self.outages + outages);
        self.restarts += restarts;
        self.client_seconds += plan.client_time();
    }

    /// The checkers have decided nearly all histories, and enough operations were carried out.
    fn assert_decided(&self) {
        assert!(self.undecided * 10 <= self.seeds, "{} of {} undecided", self.undecided, self.seeds);
        self.counted.assert_done(DONE);
    }

    fn report(&self, what: &str, since: Instant) {
        let Sum { seeds, client_seconds, counted, crashes, outages, .. } = self;
        let (restarts, undecided) = (self.restarts, self.undecided);
        support::say(&format!(
            "simulation: {what}: {seeds} seeds, {client_seconds} client-seconds in {:.1} s, {counted}, \
             {crashes} crashes, {outages} outages, {restarts} restarts, {undecided} undecided; {:.1} s without the checkers",
            since.elapsed().as_secs_f64(),
            self.simulating.as_secs_f64()
        ));
    }
}

#[test]
fn fixed_seeds_are_strictly_serializable() {
    let (mut sum, since) = (Sum::default(), Instant::now());
    FIXED.for_each(|seed| sum.add(seed));
    sum.report("fixed", since);
    assert!(
        sum.crashes > 0 && sum.outages > 0 && sum.restarts > 0 && sum.counted.open > 0,
        "the fixed seeds must include crashes, outages and restarts"
    );
    sum.assert_decided();
}

/// Seed 174997948280691 once found an EXEC that was answered as not applied although its commit was unknown:
/// its next attempt was too old, and then its result could not be prebuilt. A seed chooses other commands
/// whenever the generator changes, so this test keeps the faults that lead there, not the seed: units with
/// *STORE get there in any history. No client gives up here, so every open operation is one whose client got
/// an unknown result.
#[test]
fn an_unknown_commit_whose_unit_cannot_go_on_stays_unknown() {
    const SEEDS: u64 = 4;
    let (mut sum, since) = (Sum::default(), Instant::now());
    let rates = FaultRates { unknown_applied: 0.3, too_old_read: 0.1, ..FaultRates::default() };
    let plan = Plan { rates, ..busy(&[Group::Sets]) };
    (1..=SEEDS).for_each(|seed| sum.add_plan(&plan, seed));
    sum.report("unknown, then too old", since);
    assert!(sum.counted.open > 0, "some unit must reach the mistake");
}

#[test]
fn random_seeds_are_strictly_serializable() {
    let (mut sum, since) = (Sum::default(), Instant::now());
    if let Some(seed) = support::env_number("TERN_SIM_SEED") {
        sum.add(seed);
        return sum.report("one seed", since);
    }
    let seconds = support::env_number("TERN_SIM_SECONDS").unwrap_or(10);
    let first = Rng::any_seed();
    support::say(&format!("simulation: seeds from {first}"));
    for seed in first.. {
        sum.add(seed);
        if since.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    sum.report("random", since);
    sum.assert_decided();
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [1, 2, 79_728_647_209_006, Rng::any_seed()] {
        let mixed = Plan::mixed(&mut Rng::new(seed));
        let plan = Plan { trouble: mixed.time / 4, ..mixed };
        let [first, second] = [(); 2].map(|()| format!("{:?}", simulate(&plan, seed)));
        if first != second {
            let at = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
            let near = |text: &str| text[at.saturating_sub(600)..text.len().min(at + 300)].to_owned();
            panic!("seed {seed}, byte {at} of {}:\n{}\n\n{}", first.len(), near(&first), near(&second));
        }
        let other = format!("{:?}", simulate(&plan, seed + 1));
        assert_ne!(first, other, "another seed must make another history");
    }
}

/// Two servers without any trouble, for a second.
fn busy(groups: &'static [Group]) -> Plan {
    Plan {
        servers: 2,
        clients: 8,
        time: Duration::from_secs(1),
        think: Duration::from_millis(5),
        pipeline: 1,
        groups,
        rates: FaultRates::default(),
        give_up: 0,
        trouble: Duration::ZERO,
        restarts: false,
        collects: false,
        tamper: None,
        marked: true,
        patience: None,
    }
}

/// Hazard: a push that is not noticed by who waits, or an element that two get, or none. Clients wait longer than any
/// trouble lasts, so that nobody may leave without having found nothing.
#[test]
fn clients_that_wait_miss_nothing() {
    const SEEDS: u64 = 20;
    let since = Instant::now();
    let (mut served, mut in_vain, mut decided, mut crashes) = (0, 0, 0, 0);
    let first = Rng::any_seed();
    support::say(&format!("simulation: clients that wait: seeds from {first}"));
    for seed in first..first + SEEDS {
        let _seed = Named(seed);
        let plan = Plan {
            clients: 4,
            time: Duration::from_secs(200),
            think: Duration::from_millis(500),
            rates: FaultRates::mixed(),
            trouble: Duration::from_secs(20) * (seed % 2) as u32,
            give_up: 30,
            marked: false,
            patience: Some(Duration::from_secs(40)),
            ..busy(&[Group::Waiting])
        };
        let outcome = simulate(&plan, seed);
        assert_eq!(outcome.damage, None, "seed {seed}");
        crashes += outcome.crashes;
        let waited = outcome.history.events.iter().filter(|event| event.op.waits());
        let nil = waited.clone().filter(|event| event.answer == Some(model::Answer::Nil)).count();
        (served, in_vain) = (served + waited.count() - nil, in_vain + nil);
        let findings = check(outcome.history, Checks::default());
        assert!(!findings.is_broken(), "seed {seed}: {findings:?}");
        decided += u64::from(findings.search == search::Finding::Serializable);
    }
    support::say(&format!(
        "simulation: clients that wait: {SEEDS} seeds, {served} served, {in_vain} in vain, {crashes} crashes, {decided} decided, {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    assert!(served > 100 && in_vain > 0 && decided > SEEDS / 2);
}

/// Breaches of the store's contract also show in virtual time, and in the same seed every time.
#[test]
fn breaches_are_found() {
    let unknown = FaultRates { unknown_applied: 0.2, ..FaultRates::default() };
    let delays = FaultRates { delay: 0.2, ..FaultRates::default() };
    let breaches: [Breach; 18] = [
        ("a read conflict is dropped", &[Group::Counters], delays, Arc::new(breaches::NoReadConflict)),
        ("versions before snapshots", &[Group::Counters], delays, Arc::new(breaches::VersionBeforeSnapshot)),
        ("the lane key is skipped", &[Group::Counters], unknown, Arc::new(breaches::LaneKeySkipped)),
        ("WATCH without revision", &[Group::Watched], delays, Arc::new(breaches::WatchWithoutRevision)),
        ("an absent key comes and goes", &[Group::Watched], delays, Arc::new(breaches::GhostsForEver)),
        ("stale read versions", &[Group::Registers], delays, Arc::new(breaches::StaleReadVersion)),
        ("early answers", &[Group::Registers], delays, Arc::new(breaches::AnswerBeforeSync)),
        ("no conflict of databases", &[Group::Databases], delays, Arc::new(breaches::NoDirectoryConflict)),
        ("no conflict of watched sets", &[Group::WatchedSets], delays, Arc::new(breaches::NoCountConflict)),
        ("no conflict of what expires", &[Group::Expiring], delays, Arc::new(breaches::NoReadConflict)),
        (
            "no conflict of what expires, watched",
            &[Group::WatchedExpiring],
            delays,
            breaches::Compared::without_conflict(),
        ),
        ("a watched key has expired", &[Group::WatchedExpiring], delays, breaches::Compared::at_no_time()),
        (
            "PERSIST of a watched key",
            &[Group::WatchedExpiring],
            delays,
            Arc::new(breaches::PersistUnseen::default()),
        ),
        ("no conflict of long strings", &[Group::Long], delays, Arc::new(breaches::NoReadConflict)),
        ("a piece is forgotten", &[Group::Long], delays, Arc::new(breaches::PieceUnseen)),
        ("no conflict of chunks", &[Group::Large], delays, Arc::new(breaches::NoChunkConflict)),
        ("no conflict of combined sets", &[Group::Large], delays, Arc::new(breaches::NoCountConflict)),
        ("no conflict of ids", &[Group::Once], delays, Arc::new(breaches::NoIdempotencyConflict)),
    ];
    for (name, groups, rates, tamper) in breaches {
        let plan = Plan { rates, tamper: Some(tamper), ..busy(groups) };
        let found =
            (1..=CHANCES).find(|seed| check(simulate(&plan, *seed).history, Checks::default()).is_broken());
        support::say(&format!("simulation: {name}: {found:?}"));
        assert!(found.is_some(), "not found in {CHANCES} seeds: {name}");
    }
}

/// A transaction that gives a member to a set does not see that its id is a candidate of the collector.
struct CandidatesUnseen;
impl Tamper for CandidatesUnseen {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        value.filter(|_| key.first_chunk() != root::all_candidates().0.first_chunk::<2>())
    }
}

/// The collector of the dictionary runs in virtual time, and comes by while members come and go: those that
/// come back must be revived.
#[test]
fn a_collector_that_revives_nothing_is_found() {
    let (time, think) = (Duration::from_secs(60), Duration::from_millis(700));
    let honest = Plan { time, think, collects: true, ..busy(&[Group::Chunked]) };
    let tamper: Arc<dyn Tamper> = Arc::new(CandidatesUnseen);
    let breach = Plan { tamper: Some(tamper), ..honest.clone() };
    let findings = |plan: &Plan, seed| check(simulate(plan, seed).history, Checks::default());
    let broken = |seed: &u64| {
        let found = findings(&breach, *seed);
        found.search.is_broken() && found.replay.is_some_and(|replay| replay.is_broken())
    };
    let found = (1..=CHANCES).find(broken);
    support::say(&format!("simulation: the collector revives nothing: {found:?}"));
    let Some(seed) = found else { panic!("not found by both checkers in {CHANCES} seeds") };
    assert!(
        findings(&honest, seed).is_decided() && !findings(&honest, seed).is_broken(),
        "the same seed must pass without the breach"
    );
}
