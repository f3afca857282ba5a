//! Checks the table of commands itself: each row must be consistent, and must agree with the command surface.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use std::collections::HashSet;
use std::path::Path;
use tern::commands::registry::table;
use tern::spec::{FindKeys, Flags, Form, Group, KeySpec, Row};

/// Flags as the surface document spells them.
const FLAGS: &[(&str, Flags)] = &[
    ("write", Flags::WRITE),
    ("readonly", Flags::READONLY),
    ("denyoom", Flags::DENYOOM),
    ("admin", Flags::ADMIN),
    ("noscript", Flags::NOSCRIPT),
    ("loading", Flags::LOADING),
    ("stale", Flags::STALE),
    ("fast", Flags::FAST),
    ("no_auth", Flags::NO_AUTH),
    ("allow_busy", Flags::ALLOW_BUSY),
    ("no_multi", Flags::NO_MULTI),
    ("movablekeys", Flags::MOVABLEKEYS),
    ("skip_slowlog", Flags::SKIP_SLOWLOG),
    ("blocking", Flags::BLOCKING),
    ("no_async_loading", Flags::NO_ASYNC_LOADING),
    ("asking", Flags::ASKING),
];

#[test]
fn names_are_unique_lower_case_and_found() {
    let mut seen = HashSet::new();
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        assert!(seen.insert(label.clone()), "{label} occurs twice");
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        assert!(!row.name.is_empty() && row.name.bytes().all(plain), "{label}");
        if !label.contains('|') {
            let found = table().lookup(label.to_ascii_uppercase().as_bytes()).unwrap();
            assert!(std::ptr::eq(found, row), "{label} finds another row");
        }
    }
    assert!(table().lookup(b"nosuch").is_none());
    assert!(table().lookup(&[b'x'; 100]).is_none());
}

#[test]
fn every_row_has_its_own_place_in_the_statistics() {
    for (n, (label, row)) in table().all().map(|row| (row.label.clone(), row)).enumerate() {
        assert_eq!(row.index, n, "{label}");
    }
}

#[test]
fn every_row_is_documented() {
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        assert!(row.summary.ends_with('.') && row.summary.len() > 8, "{label}: '{}'", row.summary);
        let parts: Vec<_> = row.since.split('.').collect();
        assert!(parts.len() == 3 && parts.iter().all(|p| p.parse::<u32>().is_ok()), "{label}: {}", row.since);
        let required = row.arity.unsigned_abs() as usize - 1 - usize::from(label.contains('|'));
        let has_arguments = required > 0 || row.arity < 0 && row.subs.is_empty();
        if row.subs.is_empty() {
            assert_eq!(!row.syntax.is_empty(), has_arguments && label != "quit", "{label}: '{}'", row.syntax);
        }
        let (open, close) = (row.syntax.matches(['[', '<']).count(), row.syntax.matches([']', '>']).count());
        assert_eq!(open, close, "{label}: brackets of '{}'", row.syntax);
    }
}

#[test]
fn only_containers_have_subcommands() {
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        let is_container = row.form == Form::Container;
        assert!(!is_container || !row.subs.is_empty(), "{label} is a container without subcommands");
        assert!(!label.contains('|') || row.subs.is_empty(), "{label}: only two levels");
        if label.contains('|') {
            assert!(row.accepts(2) || row.arity.unsigned_abs() > 2, "{label}: the arity counts both names");
        }
    }
}

/// The last argument that a specification names if there are `argc` arguments.
fn reach(row: &Row, argc: usize) -> usize {
    let ends = row.keys.iter().map(|spec| match spec.find {
        FindKeys::Range { last, .. } if last >= 0 => spec.begin + last as usize,
        FindKeys::Range { last, .. } => argc - last.unsigned_abs() as usize,
        FindKeys::Keynum { .. } | FindKeys::Unknown | FindKeys::Stored => spec.begin,
        // An option.
        FindKeys::After(_) | FindKeys::Streams => 0,
    });
    ends.max().unwrap_or(0)
}

#[test]
fn keys_are_inside_the_arity() {
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        let least = row.arity.unsigned_abs() as usize;
        assert!(reach(row, least) < least, "{label}: a key behind the last argument");
        for spec in row.keys.iter().filter(|spec| spec.is_keys()) {
            assert!(spec.begin > usize::from(label.contains('|')), "{label}: a name as a key");
            let access = spec.flags.iter().filter(|f| ["RO", "RW", "OW", "RM"].contains(f)).count();
            assert_eq!(access, 1, "{label}: {:?}", spec.flags);
        }
        let writes = row.keys.iter().any(|s| s.is_keys() && !s.flags.contains(&"RO"));
        // The commands of a script say themselves whether they write.
        assert!(
            !writes || row.is_write() || row.group == Group::Scripting,
            "{label} changes keys and is not a write"
        );
        let prefix = row.form == Form::Prefix;
        let is_range = |s: &KeySpec| matches!(s.find, FindKeys::Range { .. });
        let movable = prefix || !row.keys.iter().all(is_range);
        assert_eq!(movable, row.flags.has(Flags::MOVABLEKEYS), "{label}: movablekeys");
    }
}

#[test]
fn a_command_with_keys_reads_or_writes() {
    for (label, row) in table()
        .all()
        .map(|row| (row.label.clone(), row))
        .filter(|(l, row)| l != "watch" && row.group != Group::Scripting)
    {
        let (write, read) = (row.is_write(), row.flags.has(Flags::READONLY));
        assert_eq!(write && read, row.flags.has(Flags::KEEPS), "{label} is both");
        let has_keys = row.keys.iter().any(KeySpec::is_keys);
        assert!(!has_keys || write || read, "{label} has keys, so it must read or write");
    }
}

/// Name, arity and flags of every row of the surface document.
fn surface(text: &str) -> Vec<(String, i32, Vec<String>)> {
    let mut out = Vec::new();
    for line in text.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (since, rest) = cells.split_last().unwrap();
        let (flags, rest) = rest.split_last().unwrap();
        let (arity, syntax) = rest.split_last().unwrap();
        assert!(since.starts_with(|c: char| c.is_ascii_digit()), "{line}");
        let syntax = syntax.join(" | ");
        let words: Vec<&str> = syntax.trim_matches('`').split(' ').collect();
        let named = |n: usize| words[..n.min(words.len())].join("|").to_ascii_lowercase();
        let is_sub =
            words.len() > 1 && table().lookup(words[0].as_bytes()).is_some_and(|r| !r.subs.is_empty());
        let upper = |w: &str| w.chars().all(|c| c.is_ascii_uppercase() || c == '-');
        let label = if is_sub && upper(words[1]) { named(2) } else { named(1) };
        let flags = flags.split(' ').filter(|f| *f != "(container)").map(str::to_owned).collect();
        out.push((label, arity.parse().unwrap(), flags));
    }
    out
}

#[test]
fn arity_and_flags_match_the_surface() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/COMMANDS.md");
    let Ok(text) = std::fs::read_to_string(&path) else {
        support::skipped(
            "the table against the command surface",
            "needs ../shared/COMMANDS.md beside the crate",
        );
        return;
    };
    let surface = surface(&text);
    assert!(surface.len() > 150, "too few rows found in the document: {}", surface.len());
    let mut compared = 0;
    for (label, row) in table().all().map(|row| (row.label.clone(), row)) {
        let Some((_, arity, flags)) = surface.iter().find(|(name, ..)| *name == label) else { continue };
        compared += 1;
        assert_eq!(row.arity, *arity, "{label}");
        let have: HashSet<&str> = FLAGS.iter().filter(|(_, f)| row.flags.has(*f)).map(|(w, _)| *w).collect();
        let want: HashSet<&str> = flags.iter().map(String::as_str).collect();
        assert_eq!(have, want, "{label}");
    }
    assert!(compared > 100, "only {compared} rows are in both");
}
