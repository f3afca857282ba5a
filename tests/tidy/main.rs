//! The house rules that a compiler does not check: the layers' arrows, sizes, owners of crates, forbidden calls.
//!
//! Each rule is a function from one file's text to a list of complaints, so that the last test here can plant a bad
//! snippet in front of every rule and see it caught: a rule that cannot fail is no rule.
//! Literals and comments are blanked before code is searched, and items under `#[cfg(test)]` are left out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod circles;
mod reading;
mod registration;

use reading::{blank, head, imports, is_name, item_end, line_of, module_of, production, words};
use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_FILE_LINES: usize = 600;
const MAX_FN_LINES: usize = 70;

/// Left may import right, never the other way. `jobs` stands beside `exec`.
const LAYERS: &[&str] = &[
    "net",
    "session",
    "exec",
    "script",
    "dispatch",
    "commands",
    "server",
    "lifecycle",
    "types",
    "lua",
    "keyspace",
    "store",
];
/// A leaf, and the only other modules that it may import.
const LEAVES: &[(&str, &[&str])] = &[
    ("env", &[]),
    ("error", &[]),
    ("config", &["env", "error", "words"]),
    ("telemetry", &["env", "error", "config"]),
    ("spec", &[]),
    ("words", &[]),
];

/// A room, and rooms below it that it does not reach past its neighbours.
const CLOSED: &[(&str, &[&str])] =
    &[("net", &["dispatch", "commands", "types", "keyspace", "store"]), ("session", &["types", "store"])];
/// Files that may import each other in a circle: a thing and its two halves.
const MAX_CIRCLE: usize = 3;

/// An outside crate and the places that may name it.
const OWNERS: &[(&str, &[&str])] = &[
    ("foundationdb", &["store/fdb.rs", "store/fdb/"]),
    ("rocksdb", &["store/local/"]),
    ("redis_protocol", &["net/resp.rs"]),
    ("roaring", &["types/set/", "keyspace/"]),
    ("anyhow", &["cli/"]),
    ("tokio_rustls", &["net/"]),
    ("mlua", &["lua.rs", "lua/", "script/"]),
    ("rustix", &["cli/", "store/local/audit.rs", "store/local/room.rs"]),
    (
        "ring",
        &["env.rs", "keyspace/secret.rs", "commands/server/acl.rs", "server/acl/", "net/", "lua/source.rs"],
    ),
    ("fastrand", &["env.rs"]),
    ("rand", &["env.rs"]),
];

/// Clocks and randomness: only `env.rs` reads them.
const CLOCKS: &[&str] = &["SystemTime", "Instant::now", "thread_rng", "RandomState"];
/// What may end the process, or hides what is unfinished. Tests may.
const ABRUPT: &[&str] = &[
    ".unwrap()",
    ".expect(",
    "panic!",
    "todo!",
    "unimplemented!",
    "dbg!",
    "allow(dead_code)",
    "allow(clippy::unwrap_used)",
    "allow(clippy::expect_used)",
    "allow(clippy::indexing_slicing)",
];

// ---------------------------------------------------------------------------------------------------------------
// The rules. `path` is relative to `src`.

fn may_import(from: &str, to: &str) -> bool {
    if from == to || matches!(from, "main" | "cli" | "lib") {
        return true;
    }
    let leaf = |name: &str| LEAVES.iter().find(|(leaf, _)| *leaf == name);
    if let Some((_, allowed)) = leaf(from) {
        return allowed.contains(&to);
    }
    if leaf(to).is_some() {
        return true;
    }
    if CLOSED.iter().any(|(room, closed)| *room == from && closed.contains(&to)) {
        return false;
    }
    let rank = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    match (from, to) {
        ("jobs", to) => rank(to) >= rank("exec"),
        (_, "jobs") => false,
        (from, to) => match (rank(from), rank(to)) {
            (Some(from), Some(to)) => from < to,
            _ => false,
        },
    }
}

fn arrows(path: &str, source: &str) -> Vec<String> {
    let code = production(source);
    let from = module_of(path);
    let known = |to: &str| to == "jobs" || LAYERS.contains(&to) || LEAVES.iter().any(|(leaf, _)| *leaf == to);
    let bad = |(to, line): (String, usize)| {
        (known(&to) && !may_import(from, &to)).then(|| format!("{path}:{line}: {from} must not import {to}"))
    };
    imports(path, &code).into_iter().filter_map(bad).collect()
}

fn layers_are_known(path: &str, _: &str) -> Vec<String> {
    let module = module_of(path);
    let known = matches!(module, "main" | "cli" | "lib" | "jobs")
        || LAYERS.contains(&module)
        || LEAVES.iter().any(|(leaf, _)| *leaf == module);
    if known { Vec::new() } else { vec![format!("{path}: a folder that the layering does not name")] }
}

fn file_size(path: &str, source: &str) -> Vec<String> {
    let lines = source.lines().count();
    if lines <= MAX_FILE_LINES {
        return Vec::new();
    }
    vec![format!("{path}: {lines} lines, at most {MAX_FILE_LINES}")]
}

fn function_size(path: &str, source: &str) -> Vec<String> {
    let code = blank(source);
    let mut complaints = Vec::new();
    for start in words(&code, "fn").filter(|&i| code[i + 2..].starts_with(' ')) {
        let end = item_end(&code, start);
        let lines = code[start..end].matches('\n').count() + 1;
        if lines > MAX_FN_LINES {
            let name = head(&code[start + 3..]);
            let line = line_of(&code, start);
            complaints.push(format!("{path}:{line}: {name} has {lines} lines, at most {MAX_FN_LINES}"));
        }
    }
    complaints
}

fn crate_owners(path: &str, source: &str) -> Vec<String> {
    let code = production(source);
    let mut complaints = Vec::new();
    for (name, places) in OWNERS {
        if places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for at in words(&code, name) {
            let after = code[at + name.len()..].trim_start();
            let named = after.starts_with("::") || code[..at].trim_end().ends_with("use");
            let inner = code[..at].ends_with("::");
            if named && !inner {
                complaints.push(format!("{path}:{}: only {places:?} may name {name}", line_of(&code, at)));
            }
        }
    }
    complaints
}

fn forbidden(path: &str, source: &str, list: &[&str], free: &[&str], why: &str) -> Vec<String> {
    if free.contains(&path) {
        return Vec::new();
    }
    let code = production(source);
    let one = |word: &str| -> Vec<String> {
        let places: Vec<usize> = if word.starts_with('.') {
            code.match_indices(word).map(|(i, _)| i).collect()
        } else {
            words(&code, word).collect()
        };
        places.into_iter().map(|at| format!("{path}:{}: {word} {why}", line_of(&code, at))).collect()
    };
    list.iter().flat_map(|word| one(word)).collect()
}

/// What is decided about a command stands in its row: nobody asks for its name. `spec/` alone finds rows by it.
fn names_decide_nothing(path: &str, source: &str) -> Vec<String> {
    if path.starts_with("spec/") {
        return Vec::new();
    }
    let code = production(source);
    let mut complaints = Vec::new();
    for field in ["row.name", "row.label", "argv.first()"] {
        for at in words(&code, field) {
            let statement = code[..at].rfind([';', '{', '}']).map_or(0, |start| start + 1);
            let (before, after) = (&code[statement..at], code[at + field.len()..].trim_start());
            let end = after.find([';', '{', '}']).unwrap_or(after.len());
            let asked = ["==", "!=", ".starts_with", ".ends_with", ".contains", ".eq_ignore_ascii_case"];
            let compared = asked.iter().any(|how| after.starts_with(how))
                || field == "argv.first()" && after[..end].contains("eq_ignore_ascii_case");
            let matched = words(before, "match").next().is_some() || before.contains("matches!(");
            if compared || matched {
                complaints.push(format!("{path}:{}: {field} decides: say it in the row", line_of(&code, at)));
            }
        }
    }
    complaints
}

fn clocks(path: &str, source: &str) -> Vec<String> {
    forbidden(path, source, CLOCKS, &["env.rs"], "outside env.rs")
}

fn abrupt(path: &str, source: &str) -> Vec<String> {
    // held.rs panics in debug builds only: it is a check of tests.
    forbidden(path, source, ABRUPT, &["store/held.rs"], "outside tests")
}

/// Without an order `select!` draws one, and a simulation of one seed is two histories.
fn drawn_orders(path: &str, source: &str) -> Vec<String> {
    let code = production(source);
    let body = |at: usize| code[at..].split_once('{').map_or("", |(_, body)| body.trim_start());
    let drawn = code.match_indices("select!").filter(|(at, _)| !body(*at).starts_with("biased;"));
    drawn.map(|(at, _)| format!("{path}:{}: select! without biased", line_of(&code, at))).collect()
}

fn names(path: &str, _: &str) -> Vec<String> {
    let stems = ["utils", "util", "helpers", "helper", "common", "misc"];
    let bad = path.split('/').any(|part| stems.contains(&part.trim_end_matches(".rs")));
    if bad { vec![format!("{path}: name a file after what it does")] } else { Vec::new() }
}

fn story(path: &str, source: &str) -> Vec<String> {
    if source.starts_with("//!") { Vec::new() } else { vec![format!("{path}: must start with //!")] }
}

/// Words that no committed text holds: unfinished work, and paths of one developer's machine.
/// They are put together here so that this file does not hold them itself.
fn stray_words(path: &str, source: &str) -> Vec<String> {
    let marks = [["TO", "DO"], ["FIX", "ME"]].map(|m| m.concat());
    let places = [["/wo", "rk"], ["/var", "/tmp"]].map(|p| p.concat());
    let mut complaints = Vec::new();
    for (number, line) in source.lines().enumerate() {
        for mark in marks.iter().filter(|m| words(line, m).next().is_some()) {
            complaints.push(format!("{path}:{}: {mark}", number + 1));
        }
        for place in places.iter().filter(|p| names_place(line, p)) {
            complaints.push(format!("{path}:{}: names a place of one machine: {place}", number + 1));
        }
    }
    complaints
}

/// `place` as the start of a path, not as a part of a longer one.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(i, _)| {
        let before = line[..i].chars().next_back().is_none_or(|c| !is_name(c) && !".}~-".contains(c));
        let after = line[i + place.len()..].chars().next().is_none_or(|c| !is_name(c) && c != '-');
        before && after
    })
}

// ---------------------------------------------------------------------------------------------------------------
// The tree.

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of the project: what git tracks or would track; every file below a few folders where there is no git.
fn committed() -> Vec<PathBuf> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(args).current_dir(root()).output();
    let text =
        listed.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    match text {
        Some(text) => text.split('\0').filter(|p| !p.is_empty()).map(PathBuf::from).collect(),
        None => ["src", "tests", "bench", "conf", ".ci"].iter().flat_map(|d| walk(&root().join(d))).collect(),
    }
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let below = |path: PathBuf| match path.is_dir() {
        true => walk(&path),
        false => vec![path.strip_prefix(root()).unwrap().to_path_buf()],
    };
    entries.flatten().flat_map(|entry| below(entry.path())).collect()
}

/// Runs `rule` on every committed file that `wanted` maps to a name, and fails with all complaints.
fn check(rule: fn(&str, &str) -> Vec<String>, wanted: fn(&str) -> Option<&str>) {
    let mut complaints = Vec::new();
    let mut seen = 0;
    for file in committed() {
        let Some(name) = file.to_str().and_then(wanted) else { continue };
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        seen += 1;
        complaints.extend(rule(name, &text));
    }
    assert!(seen > 0, "no file was looked at");
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn in_src(path: &str) -> Option<&str> {
    let name = path.strip_prefix("src/")?;
    let test = name.ends_with("/tests.rs") || name.ends_with("/fixtures.rs") || name.contains("/tests/");
    (name.ends_with(".rs") && !test).then_some(name)
}

fn any_rust(path: &str) -> Option<&str> {
    path.ends_with(".rs").then_some(path)
}

fn any_text(path: &str) -> Option<&str> {
    (!path.ends_with(".lock")).then_some(path)
}

#[test]
fn imports_point_rightwards() {
    check(arrows, in_src);
}

#[test]
fn circles_are_small() {
    let files = committed().into_iter().filter_map(|file| {
        let name = file.to_str().and_then(in_src)?.to_owned();
        Some((name, std::fs::read_to_string(root().join(&file)).ok()?))
    });
    let tree: circles::Tree = files.collect();
    assert!(tree.len() > 200, "{} files were looked at", tree.len());
    let large = circles::larger_than(MAX_CIRCLE, &tree);
    assert!(large.is_empty(), "circles of more than {MAX_CIRCLE} files: {large:#?}");
}

#[test]
fn a_circle_is_seen_in_every_way_to_write_a_path() {
    let tree = |files: &[(&str, &str)]| -> circles::Tree {
        files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    };
    let three = [
        ("a/mod.rs", "use crate::b::{x, y::{Deep, z::f}};"),
        ("b/mod.rs", ""),
        ("b/y.rs", "fn f() { super::super::c::go() }"),
        ("c.rs", "use crate::{error::E, a::Thing};\n#[cfg(test)]\nmod tests { use crate::d; }"),
        ("d.rs", "use crate::a;"),
    ];
    assert_eq!(circles::larger_than(2, &tree(&three)), [["a/mod.rs", "b/y.rs", "c.rs"]]);
    assert!(circles::larger_than(3, &tree(&three)).is_empty(), "a test is no arrow, and d is in no circle");
    let face = [
        ("a/mod.rs", "mod x;\nuse x::X;\nuse self::y::Y;"),
        ("a/x.rs", "use super::Y;"),
        ("a/y.rs", "use super::x;"),
    ];
    assert!(circles::larger_than(0, &tree(&face)).is_empty(), "a folder's face and its parts are one");
    let two = [("a/x.rs", "use super::y::Y;"), ("a/y.rs", "use super::x;")];
    assert_eq!(circles::larger_than(1, &tree(&two)), [["a/x.rs", "a/y.rs"]]);
}

#[test]
fn every_folder_is_a_layer() {
    check(layers_are_known, in_src);
}

#[test]
fn files_are_short() {
    check(file_size, any_rust);
}

#[test]
fn functions_are_short() {
    check(function_size, any_rust);
}

#[test]
fn each_outside_crate_has_its_owner() {
    check(crate_owners, in_src);
}

#[test]
fn names_of_commands_decide_nothing() {
    check(names_decide_nothing, in_src);
}

#[test]
fn clocks_and_randomness_stay_in_env() {
    check(clocks, in_src);
}

#[test]
fn nothing_ends_the_process() {
    check(abrupt, in_src);
}

#[test]
fn no_order_is_drawn() {
    check(drawn_orders, in_src);
}

#[test]
fn files_are_named_after_what_they_do() {
    check(names, any_rust);
}

#[test]
fn every_file_tells_its_story() {
    check(story, any_rust);
}

#[test]
fn no_stray_words() {
    check(stray_words, any_text);
}

#[test]
fn blanking_keeps_code_and_lines() {
    let source =
        "let a = \"x // y\"; // c\nlet b = r#\"q\"#; /* d\n /* e */ */ let c = '\"'; let d: &'a str;";
    let code = blank(source);
    assert_eq!(code.lines().count(), source.lines().count());
    assert_eq!(code.len(), source.len());
    let kept: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(kept.join(" "), "let a = ; let b = ; let c = ; let d: &'a str;");
}

type Rule = fn(&str, &str) -> Vec<String>;

/// Files that break a rule.
const BAD: &[(Rule, &str, &str)] = &[
    (arrows, "store/mod.rs", "use crate::keyspace::keys;"),
    (arrows, "types/set/mod.rs", "fn f() { crate::commands::table::rows() }"),
    (arrows, "types/object.rs", "use crate::lifecycle::copy;"),
    (arrows, "exec/mod.rs", "use crate::{\n    error::X,\n    session::Session,\n};"),
    (arrows, "types/string.rs", "use super::super::commands::args;"),
    (arrows, "commands/mod.rs", "use super::exec::Lane;"),
    (arrows, "exec/lane.rs", "use crate::jobs::expiry;"),
    (arrows, "env.rs", "use crate::error::Error;"),
    (arrows, "telemetry/mod.rs", "use crate::store::Store;"),
    (arrows, "net/encode.rs", "use crate::types::set::stream::Members;"),
    (layers_are_known, "engine/mod.rs", ""),
    (crate_owners, "exec/mod.rs", "use rocksdb::DB;"),
    (crate_owners, "net/conn.rs", "fn f() { redis_protocol::resp2::decode() }"),
    (crate_owners, "commands/mod.rs", "use anyhow;"),
    (crate_owners, "types/string.rs", "use roaring::RoaringTreemap;"),
    (crate_owners, "exec/mod.rs", "fn f() -> u8 { fastrand::u8(..) }"),
    (names_decide_nothing, "exec/prebuild.rs", "fn f(call: &Call) -> bool { call.row.name == \"select\" }"),
    (
        names_decide_nothing,
        "exec/batch.rs",
        "fn f(call: &Call) { match call.row.name { \"sadd\" => {} _ => {} } }",
    ),
    (
        names_decide_nothing,
        "session/pause.rs",
        "fn f(c: &Call) -> bool { matches!(c.row.name, \"publish\") }",
    ),
    (
        names_decide_nothing,
        "exec/tracked.rs",
        "fn f() -> bool { argv.first().is_some_and(|n| n.eq_ignore_ascii_case(x)) }",
    ),
    (
        names_decide_nothing,
        "commands/server/command_docs.rs",
        "fn f() { if row.name.ends_with(\"float\") {} }",
    ),
    (clocks, "exec/mod.rs", "fn f() { let t = std::time::Instant::now(); }"),
    (clocks, "jobs/mod.rs", "use std::time::SystemTime;"),
    (abrupt, "exec/mod.rs", "fn f() { x.unwrap(); }"),
    (abrupt, "exec/mod.rs", "fn f() { x.expect(\"y\"); }"),
    (abrupt, "exec/mod.rs", "fn f() { todo!() }"),
    (abrupt, "exec/mod.rs", "#[allow(dead_code)]\nfn f() {}"),
    (abrupt, "exec/mod.rs", "#[cfg(test)]\nmod tests { }\nfn f() { panic!() }"),
    (drawn_orders, "jobs/mod.rs", "fn f() { tokio::select! {\n    () = a => {}\n} }"),
    (names, "src/net/utils.rs", ""),
    (story, "net/mod.rs", "use std::io;"),
];

/// ... and some that do not, though they look alike.
const GOOD: &[(Rule, &str, &str)] = &[
    (arrows, "net/mod.rs", "use crate::session::Session;\nuse crate::error::Error;"),
    (arrows, "jobs/expiry.rs", "use crate::types::object;"),
    (arrows, "commands/string/mod.rs", "use super::args::Args;"),
    (arrows, "store/mod.rs", "// use crate::net;\n#[cfg(test)]\nmod tests { use crate::net::x; }"),
    (crate_owners, "store/local/mod.rs", "use rocksdb::DB;"),
    (crate_owners, "keyspace/mod.rs", "use roaring::RoaringTreemap;"),
    (
        names_decide_nothing,
        "dispatch/gate.rs",
        "fn f() { not_under_id(&row.label); argv.first().map(quoted) }",
    ),
    (clocks, "env.rs", "fn f() { Instant::now(); }"),
    (abrupt, "exec/mod.rs", "fn f() { x.unwrap_or(1); \"x.unwrap()\"; }"),
    (drawn_orders, "jobs/mod.rs", "fn f() { tokio::select! {\n    biased;\n    () = a => {}\n} }"),
    (stray_words, "README.md", "framework/tern, network, a/b"),
];

/// Every rule against a file that breaks it, and against one that does not.
#[test]
fn every_rule_can_fail() {
    let long_file = "//! x\n".repeat(MAX_FILE_LINES + 1);
    let long_fn = format!("fn f() -> [u8; 4] {{\n{}}}\n", "    g();\n".repeat(MAX_FN_LINES));
    let mark = ["// TO", "DO: later"].concat();
    let place = ["// see /wo", "rk/notes"].concat();
    let sizes: &[(Rule, &str, &str)] = &[
        (file_size, "a.rs", &long_file),
        (function_size, "a.rs", &long_fn),
        (stray_words, "README.md", &mark),
        (stray_words, "README.md", &place),
    ];
    for (rule, path, source) in BAD.iter().chain(sizes) {
        assert!(!rule(path, source).is_empty(), "not caught in {path}: {source}");
    }
    for (rule, path, source) in GOOD {
        assert_eq!(rule(path, source), Vec::<String>::new(), "wrongly caught in {path}");
    }
}
