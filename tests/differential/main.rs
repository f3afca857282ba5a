//! Random command sequences on Tern and on a real redis-server: the replies must be equal byte for byte.
//!
//! Replies are sorted where Redis leaves the order open; `differences.rs` lists the deliberate differences. A
//! run consists of sequences, each from an empty state and from a seed of its own. The seed is always
//! printed: `TERN_SEED=<seed> cargo test --test differential` repeats a run, `TERN_SEQUENCE=<n>` only one
//! sequence of it; `TERN_DIFF_COMMANDS` sets the number of commands. A mismatch is printed with the shortest
//! sequence that still shows it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod arguments;
mod chosen;
mod differences;
mod docs;
mod dump;
mod dump_streams;
mod generate;
mod harmless;
mod hyperloglog;
mod large;
mod late;
mod lookups;
mod newer;
mod run;
mod scans;
mod scenes;
mod scripts;
mod sessions;
mod sort;
mod streams;
mod table;
mod wire;
mod words;
mod wrong;

use differences::DELIBERATE;
use generate::Step;
use run::{Mismatch, Ports, Tally, run, show};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use support::rng::Rng;
use support::server::{Server, redis, tern};
use support::{env_number, say};

/// The default number of commands of both protocols together; CI runs more.
const COMMANDS: u64 = 20_000;
/// Steps per sequence.
const STEPS: usize = 500;
/// The number of different mismatches after which a run gives up.
const ENOUGH: usize = 25;
/// The time to spend on shrinking one mismatch.
const SHRINK: Duration = Duration::from_secs(30);

#[test]
fn replies_equal_those_of_redis_in_resp2() {
    differential(2);
}

#[test]
fn replies_equal_those_of_redis_in_resp3() {
    differential(3);
}

fn differential(protocol: u8) {
    let Some(redis) = redis("differential test") else { return };
    let mut tern = tern(&["--appendfsync", "no"]);
    let ports = Ports { redis: redis.port, tern: tern.port, protocol };
    let seed = env_number("TERN_SEED").or(env_number("TERN_DIFF_SEED")).unwrap_or_else(Rng::any_seed);
    say(&format!("differential RESP{protocol}: TERN_SEED={seed}"));
    let commands = env_number("TERN_DIFF_COMMANDS").unwrap_or(COMMANDS) as usize / 2;
    let only = env_number("TERN_SEQUENCE");
    let (mut tally, mut found) = (Tally::default(), BTreeMap::new());
    let mut sequence = only.unwrap_or(0);
    while tally.lines < commands && found.len() < ENOUGH {
        let steps = generate::sequence(&mut generator(seed, sequence, protocol), generate::TEMPLATES, STEPS);
        let mut counted = Tally::default();
        if let Err(mismatch) = run(ports, &steps, &mut counted) {
            assert!(tern.is_running(), "Tern ended at {mismatch}\n{}", tern.log());
            let known = found
                .entry(signature(&mismatch))
                .or_insert_with(|| (0, report(ports, sequence, &steps, mismatch)));
            known.0 += 1;
            counted.lines = counted.lines.max(STEPS / 4);
        }
        tally.add(&counted);
        if only.is_some() {
            break;
        }
        sequence += 1;
    }
    conclude(protocol, seed, &tally, found, &mut tern);
}

/// The generator of one sequence. Both numbers are hashed: generators whose states are a few steps apart make
/// the same sequences.
fn generator(seed: u64, sequence: u64, protocol: u8) -> Rng {
    let run = Rng::new(seed).next();
    Rng::new(Rng::new(run ^ (sequence << 1 | u64::from(protocol == 3))).next())
}

#[test]
fn adjacent_seeds_share_no_sequence() {
    let lines = |seed, sequence| {
        let steps = generate::sequence(&mut generator(seed, sequence, 2), generate::TEMPLATES, STEPS);
        steps.into_iter().map(|step| step.argv).filter(|argv| argv.len() > 3).collect::<BTreeSet<_>>()
    };
    for (a, b) in [((1, 0), (2, 0)), ((1, 0), (1, 1)), ((7, 3), (8, 2))] {
        let (a, b) = (lines(a.0, a.1), lines(b.0, b.1));
        let common = a.intersection(&b).count();
        assert!(common * 4 < a.len(), "{common} lines of {} are in both", a.len());
    }
}

fn conclude(
    protocol: u8,
    seed: u64,
    tally: &Tally,
    found: BTreeMap<String, (usize, String)>,
    tern: &mut Server,
) {
    say(&format!(
        "differential RESP{protocol}: {} commands compared, {} of them chosen in MULTI, clocks read at most {} ms apart, {} mismatches",
        tally.lines,
        tally.late,
        tally.apart(),
        found.len()
    ));
    for (difference, times) in DELIBERATE.iter().zip(&tally.meant) {
        say(&format!("  meant, {times} times: {} ({})", difference.name, difference.reason));
    }
    for (times, text) in found.values() {
        say(&format!("MISMATCH ({times} times), TERN_SEED={seed}\n{text}"));
    }
    assert!(found.is_empty(), "{} mismatches; TERN_SEED={seed}\n{}", found.len(), tern.log());
    if tally.lines >= 20_000 {
        let missing: Vec<&str> = generate::covered(generate::TEMPLATES)
            .filter(|name| !tally.commands.contains_key(*name))
            .collect();
        assert!(missing.is_empty(), "never sent: {missing:?}");
    }
}

/// Mismatches with one signature are reported once.
fn signature(mismatch: &Mismatch) -> String {
    let name = String::from_utf8_lossy(&mismatch.argv[0]).to_uppercase();
    let start = |s: &str| s.chars().take(24).filter(|c| !c.is_ascii_digit()).collect::<String>();
    format!("{name} {} {}", start(&mismatch.redis), start(&mismatch.tern))
}

fn report(ports: Ports, sequence: u64, steps: &[Step], mismatch: Mismatch) -> String {
    let wanted = signature(&mismatch);
    let end = (mismatch.step + run::WINDOW).min(steps.len());
    let (short, mismatch) = shorten(ports, steps[..end].to_vec(), mismatch, &wanted);
    let lines: Vec<String> =
        short.iter().map(|s| format!("    {} {}", ["A", "B"][s.conn], show(&s.argv))).collect();
    format!("sequence {sequence} {mismatch}\n  replay on connections A and B:\n{}", lines.join("\n"))
}

/// Removes ever smaller pieces while the mismatch stays.
fn shorten(
    ports: Ports,
    mut steps: Vec<Step>,
    mut mismatch: Mismatch,
    wanted: &str,
) -> (Vec<Step>, Mismatch) {
    let until = Instant::now() + SHRINK;
    let mut piece = steps.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() && Instant::now() < until {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            match run(ports, &fewer, &mut Tally::default()) {
                Err(again) if signature(&again) == wanted => (steps, mismatch) = (fewer, again),
                _ => at += piece,
            }
        }
        piece /= 2;
    }
    (steps, mismatch)
}
