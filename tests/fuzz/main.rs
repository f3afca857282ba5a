//! Hazard: malformed bytes end a task, cost unbounded memory, or are read as something else.
//!
//! Each target takes any bytes, from the network, a payload, a stored row or a file, and must return a value
//! or an error. The inputs are mutants of a small corpus, made by a seeded mutator that is blind to coverage:
//! it finds shallow mistakes, and hand-written decoders of flat formats have few others. Overflow checks are
//! on in tests. `TERN_FUZZ_SECONDS` is the time per target (default 1 s), `TERN_FUZZ_SEED` repeats a run.
//!
//! Targets are functions of bytes, so that a coverage-guided fuzzer can drive the same ones: see
//! `libfuzzer/main.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod choices;
mod commands;
mod corpus;
mod mutate;
#[path = "../rig/mod.rs"]
mod rig;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod unseen;
mod whole;

use choices::Choices;
use mutate::mutant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use support::rng::Rng;
use targets::Target;

fn time() -> Duration {
    Duration::from_secs(support::env_number("TERN_FUZZ_SECONDS").unwrap_or(1))
}

fn seed() -> u64 {
    support::env_number("TERN_FUZZ_SEED").unwrap_or_else(Rng::any_seed)
}

/// Runs mutants until the time is up; a panic ends it and prints the input that caused it.
fn hunt(target: &Target) {
    let (seed, until) = (seed(), Instant::now() + time());
    let (mut choices, corpus) = (Choices::seeded(seed), (target.corpus)());
    corpus.iter().for_each(|input| (target.run)(input));
    let mut tried = 0u64;
    while Instant::now() < until {
        for _ in 0..64 {
            let input = mutant(&mut choices, &corpus);
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
                panic!("{}: TERN_FUZZ_SEED={seed}, input {}", target.name, input.escape_ascii());
            }
            tried += 1;
        }
    }
    support::say(&format!("fuzz {}: {tried} inputs, seed {seed}", target.name));
}

fn target(name: &str) -> &'static Target {
    targets::ALL.iter().find(|t| t.name == name).unwrap()
}

macro_rules! hunts {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            hunt(target(stringify!($name)));
        })+

        #[test]
        fn every_target_is_hunted() {
            let names: Vec<_> = targets::ALL.iter().map(|t| t.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

hunts!(requests payloads records idempotency_records ages instances replies chunks small_sets member_rows forward_rows catalog_rows
    candidates messages row_keys hyperloglogs config_files acl_rules arguments);

/// The hunt can fail: it catches a decoder that trusts a length within a second.
#[test]
fn a_planted_mistake_is_found() {
    fn trusting(input: &[u8]) {
        if let [b'L', len, rest @ ..] = input {
            let _ = &rest[..usize::from(*len)];
        }
    }
    let planted = Target { name: "planted", run: trusting, corpus: || vec![b"L\x03abc".to_vec()] };
    assert!(catch_unwind(|| hunt(&planted)).is_err());
}
