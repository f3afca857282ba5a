//! Hazard: a dependency has a licence that we may not use, comes from another source than the registry, adds
//! a second TLS library, or needs a newer compiler than we promise.
//!
//! `cargo deny check` reads the same `deny.toml` and checks more (advisories, duplicates), but it is not
//! installed everywhere, and cargo is. Advisories are not covered, because they need a database from the
//! network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All packages of the lock file from which a server on Linux can be built, tests included.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(packages) = all["packages"].take() else { panic!("no packages") };
    packages.into_iter().filter(|p| !p["source"].is_null()).collect()
}

/// The strings of `deny.toml` between `start` and the next `]`.
fn listed(start: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, after) = text.split_once(start).unwrap();
    let (list, _) = after.split_once("\n]").unwrap();
    let lines = list.lines().filter(|l| !l.trim_start().starts_with('#'));
    lines.filter_map(|l| Some(l.split('"').nth(1)?.to_owned())).collect()
}

/// Whether `allowed` satisfies `expression`: `A OR B`, `A AND B`, parentheses, and the old `A/B`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    for (operator, any) in [(" OR ", true), (" AND ", false)] {
        let parts = outside_parentheses(expression, operator);
        if parts.len() > 1 {
            let ok = |part: &&str| is_allowed(part, allowed);
            return if any { parts.iter().any(ok) } else { parts.iter().all(ok) };
        }
    }
    match expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.iter().any(|a| a == expression),
    }
}

fn outside_parentheses<'a>(text: &'a str, operator: &str) -> Vec<&'a str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && at >= from && text[at..].starts_with(operator) => {
                parts.push(&text[from..at]);
                from = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn version(text: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> = text.split('.').filter_map(|n| n.parse().ok()).collect();
    numbers.resize(3, 0);
    numbers
}

#[test]
fn licences_sources_and_crates_are_those_of_deny_toml() {
    let (allowed, banned) = (listed("[licenses]"), listed("deny = ["));
    assert!(allowed.len() > 3 && banned.len() > 1, "{allowed:?} {banned:?}");
    let packages = packages();
    assert!(packages.len() > 50);
    let mut complaints = Vec::new();
    for p in &packages {
        let name = p["name"].as_str().unwrap();
        if !is_allowed(p["license"].as_str().unwrap_or("none"), &allowed) {
            complaints.push(format!("{name}: licence {}", p["license"]));
        }
        if p["source"] != REGISTRY {
            complaints.push(format!("{name}: from {}", p["source"]));
        }
        if banned.iter().any(|b| b == name) {
            complaints.push(format!("{name} is banned"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The compiler that `rust-version` promises is new enough for every dependency. Clippy's lint
/// `incompatible_msrv`, an error in CI, checks our own code.
#[test]
fn no_dependency_needs_a_newer_compiler() {
    let ours = version(env!("CARGO_PKG_RUST_VERSION"));
    let packages = packages();
    let newer = packages.iter().filter(|p| p["rust_version"].as_str().is_some_and(|v| version(v) > ours));
    let newer: Vec<String> =
        newer.map(|p| format!("{} {}: {}", p["name"], p["version"], p["rust_version"])).collect();
    assert!(newer.is_empty(), "\n{}", newer.join("\n"));
    let known = packages.iter().filter(|p| p["rust_version"].is_string()).count();
    assert!(known * 2 > packages.len(), "only {known} packages declare a rust-version");
}

#[test]
fn the_reading_of_licences_can_fail() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0".to_owned()];
    for yes in [
        "MIT",
        "MIT OR GPL-3.0 AND GPL-2.0",
        "MIT OR GPL-3.0",
        "GPL-3.0 OR (MIT AND ISC)",
        "Apache-2.0/MIT",
        "MIT AND ISC",
    ] {
        assert!(is_allowed(yes, &allowed), "{yes}");
    }
    for no in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "none", ""] {
        assert!(!is_allowed(no, &allowed), "{no}");
    }
    assert!(version("1.88") > version("1.87.9") && version("1.9") < version("1.10.0"));
}
