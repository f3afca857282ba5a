//! Shared by tests that drive a real server: starting and stopping servers, a raw RESP client, a seeded
//! generator.
//!
//! The client keeps the exact bytes of every reply beside their meaning, so that a comparison can be byte for
//! byte.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[allow(clippy::duplicate_mod, reason = "a test may use several of the rigs")]
#[path = "../fdb_cluster/mod.rs"]
pub mod fdb_cluster;
pub mod others;
pub mod pace;
pub mod plot;
pub mod reader;
pub mod resp;
pub mod rng;
pub mod server;

use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Prints one line about this test, which cannot run here. It bypasses the test harness' capture, so that it
/// is always visible: the harness reports such tests as passed, so the CI script counts these lines.
pub fn skipped(what: &str, how_to_get_it: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    say(&format!("SKIPPED: {test}: {what} ({how_to_get_it})"));
}

/// A resource that many tests need and one creates; each test that cannot have it prints a message.
pub fn made_once<T>(
    made: &'static OnceLock<Result<T, Missing>>,
    make: fn() -> Result<T, Missing>,
) -> Option<&'static T> {
    match made.get_or_init(make) {
        Ok(made) => Some(made),
        Err(Missing { what, how_to_get_it }) => {
            skipped(what, how_to_get_it);
            None
        }
    }
}

/// A missing requirement of a test.
pub struct Missing {
    pub what: &'static str,
    pub how_to_get_it: &'static str,
}

/// The results of a suite that counts its own cases; the CI script adds them up.
pub fn suite(name: &str, passed: usize, failed: usize) {
    say(&format!("suite {name}: {passed} passed, {failed} failed"));
}

/// One line on stderr, past the test harness' capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A number from the environment.
pub fn env_number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// The path of a program on PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}
