//! Hazard: one request of one client makes all others wait, or uses up the server's memory.
//!
//! Each row of the table of commands is driven with the worst arguments that its syntax allows ([`shapes`]),
//! and some with worse ones that need knowledge of the command ([`by_hand`]). A new row is driven by its
//! syntax without any further work. While a request runs, three other clients send PING, GET and SET in turn:
//! their longest wait is bounded, and so is the server's memory.
//!
//! `TERN_EVERY_ROW_SECONDS` limits the time. Every row is driven once regardless; then again with other
//! requests, until the time is up or no request is left. From 300 on the requests have their full size.
//! `TERN_SEED` repeats a run, `TERN_ROW` drives the rows whose label has this prefix, `TERN_SHOW` shows each
//! request, `TERN_BINARY` names another server. The bound of a wait is a multiple of the server's current
//! pace (`support::pace`); `TERN_LONGEST_WAIT_MS` sets one in milliseconds (100 for a release build).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod attack;
mod by_hand;
mod script;
mod shapes;
mod streams;
mod world;

use attack::{End, Patience, attack};
use by_hand::{BY_HAND, BY_HAND_ALONE, LEFT_OUT};
use script::Script;
use shapes::Shape;
use std::fmt;
use std::time::{Duration, Instant};
use support::others::{Others, Waits};
use support::pace::pace;
use support::rng::Rng;
use support::{env_number, say};
use tern::commands::registry::table;
use tern::spec::Entry;
use world::{MIB, Scale, World};

/// The bound of others' waits, in pipelines of a lone client. Most rows cause a fifth of it; the worst, a pop of 50 000 members of
/// a sorted set in one transaction, 70.
const TIMES: u32 = 95;
/// The bound on the first try, however busy the machine was at the beginning.
const LONGEST: Duration = Duration::from_secs(1);
/// Seconds of a short run.
const SECONDS: u64 = 75;
/// A busy machine may be slow once; a server that holds others is slow each time.
const TRIES: usize = 4;
/// The memory that the server may take for a request: 88 MiB were measured, and 222 for an EXEC of 60 000
/// commands.
const MEMORY: usize = 128 * MIB;
const MEMORY_OF_EXEC: usize = 256 * MIB;
/// The memory that it may take beyond the start, by when all its caches are full.
const CACHES: usize = 1024 * MIB;
/// The allowance for each byte of a request and for each of its arguments: the decoder's buffer grows by
/// doubling, and some commands copy.
const A_BYTE: usize = 4;
const AN_ARGUMENT: usize = 256;
/// Lines of the report.
const WORST: usize = 10;

/// The effect of a request on others.
#[derive(Clone)]
struct Outcome {
    label: String,
    request: String,
    waited: Waits,
    /// The bound of the wait.
    most: Duration,
    /// The memory taken by the request in bytes, and its bound.
    grown: usize,
    allowed: usize,
    /// The memory taken since the start.
    held: usize,
    took: Duration,
    end: Result<(End, usize), String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waited, grown, took) = (self.waited, self.grown / MIB, self.took);
        let end = match &self.end {
            Ok((end, bytes)) => format!("{end:?}, {} KiB", bytes >> 10),
            Err(why) => why.clone(),
        };
        let held = self.held / MIB;
        let most = self.most.as_millis();
        write!(
            f,
            "{waited} of {most}, {grown:4} of {held:4} MiB: {}: {} ({took:.1?}, {end})",
            self.label, self.request
        )
    }
}

impl Outcome {
    fn is_harmless(&self) -> bool {
        let is_small = self.grown < self.allowed && self.held < self.allowed + CACHES;
        self.waited.longest() < self.most && is_small && self.end.is_ok()
    }
}

/// A row and its remaining requests.
struct Driven {
    label: String,
    row: &'static Entry,
    left: Vec<usize>,
}

fn rows() -> Vec<(String, &'static Entry)> {
    let wanted = std::env::var("TERN_ROW").unwrap_or_default();
    let is_driven =
        |label: &str| LEFT_OUT.iter().all(|(name, _)| *name != label) && label.starts_with(&wanted);
    table().all().map(|row| (row.label.clone(), row)).filter(|(label, _)| is_driven(label)).collect()
}

fn requests(world: &World, label: &str, row: &Entry) -> Vec<Script> {
    let by_hand = BY_HAND
        .iter()
        .chain(streams::BY_HAND)
        .filter(|(name, _)| *name == label)
        .flat_map(|(_, made)| made(world));
    let mut scripts: Vec<Script> = by_hand.collect();
    if BY_HAND_ALONE.iter().chain(streams::ALONE).all(|(name, _)| *name != label) {
        scripts.extend(Shape::new(label, row, world.scale).scripts(row));
    }
    scripts
}

/// The bound of a wait at the server's current pace.
fn wait_now(world: &World) -> Duration {
    pace(&mut world.client()) * TIMES
}

/// The settings of a run.
struct Run {
    budget: Duration,
    longest: Duration,
    is_said: bool,
    patience: Patience,
    since: Instant,
}

impl Run {
    fn of(seconds: u64, world: &World) -> Run {
        // A million patterns of CONFIG GET take a debug build a minute.
        let (reading, silent) = if seconds < 300 { (2, 60) } else { (15, 180) };
        let [reading, silent] = [reading, silent].map(Duration::from_secs);
        let said = env_number("TERN_LONGEST_WAIT_MS");
        Run {
            budget: Duration::from_secs(seconds),
            longest: said.map_or_else(|| wait_now(world).min(LONGEST), Duration::from_millis),
            is_said: said.is_some(),
            patience: Patience { silent, reading },
            since: Instant::now(),
        }
    }

    fn is_over(&self) -> bool {
        self.since.elapsed() > self.budget
    }

    /// Drives a request; again if the machine may be at fault.
    fn drive(&self, world: &mut World, label: &str, script: &Script) -> Outcome {
        let bytes = script.bytes();
        let mut outcome = self.once(world, label, script, &bytes, self.longest);
        for _ in 1..TRIES {
            if outcome.is_harmless() || outcome.end.is_err() {
                break;
            }
            say(&format!("again: {outcome}"));
            // The machine may be busier than at the beginning.
            let most = if self.is_said { self.longest } else { self.longest.max(wait_now(world)) };
            let again = self.once(world, label, script, &bytes, most);
            if again.is_harmless() || again.waited.longest() < outcome.waited.longest() {
                outcome = again;
            }
        }
        outcome
    }

    fn once(&self, world: &mut World, label: &str, script: &Script, bytes: &[u8], most: Duration) -> Outcome {
        let (others, before) = (Others::start(&world.server), world.server.resident());
        let since = Instant::now();
        let end = attack(world.server.port, bytes, self.patience);
        let took = since.elapsed();
        let (waited, peak, end) = match others.end() {
            Ok((waited, peak)) => (waited, peak, end),
            Err(why) => (Waits::all(took), 0, Err(format!("another client: {why}"))),
        };
        assert!(
            world.server.is_running(),
            "{label}: {}: the server has ended:\n{}",
            script.show(),
            world.server.log()
        );
        world.restore();
        let allowed = if label == "exec" { MEMORY_OF_EXEC } else { MEMORY };
        let allowed = allowed + bytes.len() * A_BYTE + script.arguments() * AN_ARGUMENT;
        let (label, request) = (label.to_owned(), script.show());
        let (grown, held) = (peak.saturating_sub(before), peak.saturating_sub(world.begin));
        Outcome { label, request, waited, most, grown, allowed, held, took, end }
    }
}

fn report(outcomes: &[Outcome]) {
    let mut worst: Vec<&Outcome> = outcomes.iter().collect();
    worst.sort_by_key(|o| std::cmp::Reverse(o.waited.longest()));
    say(&format!("{} requests; the longest waits of others:", outcomes.len()));
    worst.iter().take(WORST).for_each(|o| say(&format!("  {o}")));
    worst.sort_by_key(|o| std::cmp::Reverse(o.grown));
    say("the most memory:");
    worst.iter().take(3).for_each(|o| say(&format!("  {o}")));
}

#[test]
fn no_client_waits_and_memory_is_bounded() {
    let seconds = env_number("TERN_EVERY_ROW_SECONDS").unwrap_or(SECONDS);
    // In CI the commit's seed, as in `differential`: a rehearsal drives the same requests.
    let seed = env_number("TERN_SEED").or_else(|| env_number("TERN_DIFF_SEED"));
    let seed = seed.unwrap_or_else(Rng::any_seed);
    say(&format!("TERN_SEED={seed} TERN_EVERY_ROW_SECONDS={seconds}"));
    let (mut rng, since) = (Rng::new(seed), Instant::now());
    let mut world = World::new(Scale::of(Duration::from_secs(seconds)));
    say(&format!("the server was filled after {:.1?}: {} MiB", since.elapsed(), world.begin / MIB));
    let run = Run::of(seconds, &world);
    say(&format!("others may wait {:.0?}", run.longest));
    let begin = |(label, row): (String, &'static Entry)| {
        let left = (0..requests(&world, &label, row).len()).collect();
        Driven { label, row, left }
    };
    let mut driven: Vec<Driven> = rows().into_iter().map(begin).collect();
    assert!(!driven.is_empty(), "at least one row must be driven");
    let (mut outcomes, mut rounds) = (Vec::new(), 0);
    while driven.iter().any(|row| !row.left.is_empty()) && (rounds == 0 || !run.is_over()) {
        for row in driven.iter_mut().filter(|row| !row.left.is_empty()) {
            if rounds > 0 && run.is_over() {
                break;
            }
            let n = row.left.swap_remove(rng.below(row.left.len()));
            let script = requests(&world, &row.label, row.row).swap_remove(n);
            let outcome = run.drive(&mut world, &row.label, &script);
            if std::env::var_os("TERN_SHOW").is_some() {
                say(&outcome.to_string());
            }
            outcomes.push(outcome);
        }
        rounds += 1;
    }
    report(&outcomes);
    say(&world.breakdown());
    let left: usize = driven.iter().map(|row| row.left.len()).sum();
    say(&format!("{} rows in {:.0?}, {left} requests were left", driven.len(), run.since.elapsed()));
    let harm: Vec<String> = outcomes.iter().filter(|o| !o.is_harmless()).map(|o| o.to_string()).collect();
    assert!(harm.is_empty(), "{} requests harm others (TERN_SEED={seed}):\n{}", harm.len(), harm.join("\n"));
}

#[test]
fn the_lists_name_rows_of_the_table() {
    let known =
        |name: &str| table().all().map(|row| (row.label.clone(), row)).any(|(label, _)| label == name);
    let reasons = LEFT_OUT.iter().chain(BY_HAND_ALONE).chain(streams::ALONE);
    assert!(reasons.clone().all(|(_, why)| why.len() > 10));
    for name in
        reasons.map(|(name, _)| *name).chain(BY_HAND.iter().chain(streams::BY_HAND).map(|(name, _)| *name))
    {
        assert!(known(name), "{name} must be a row of the table");
    }
}

/// The measuring works: a pause is a wait of others, a request that stays in part is memory, silence is a
/// failure.
#[test]
fn harm_is_detected() {
    let world = World::new(Scale { long: MIB, many: 100, members: 20_000, keys: 10_000 });
    let patience = Patience { silent: Duration::from_millis(700), reading: Duration::from_secs(1) };
    let others = Others::start(&world.server);
    let end =
        attack(world.server.port, &Script::one(script::words("CLIENT PAUSE 400 ALL")).bytes(), patience);
    let (waited, _) = others.stop();
    assert_eq!(end.map(|(end, _)| end), Ok(End::Answered));
    let waited = waited.longest();
    assert!(waited >= Duration::from_millis(300), "{waited:?}");

    let others = Others::start(&world.server);
    let part = [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 65 * MIB).into_bytes(), vec![b'x'; 64 * MIB]].concat();
    let silence = attack(world.server.port, &part, patience);
    let (_, peak) = others.stop();
    assert!(silence.is_err(), "{silence:?}");
    assert!(peak.saturating_sub(world.begin) > 48 * MIB, "{} of {}", peak, world.begin);
}
