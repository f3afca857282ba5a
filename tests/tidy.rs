//! The house rules that a compiler does not check: the layers' arrows, sizes, owners of crates, forbidden calls.
//!
//! Each rule is a function from one file's text to a list of complaints, so that the last test here can plant a bad
//! snippet in front of every rule and see it caught: a rule that cannot fail is no rule.
//! Literals and comments are blanked before code is searched, and items under `#[cfg(test)]` are left out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_FILE_LINES: usize = 600;
const MAX_FN_LINES: usize = 70;

/// Left may import right, never the other way. `jobs` stands beside `exec`.
const LAYERS: &[&str] = &["net", "session", "exec", "commands", "types", "keyspace", "store"];
/// A leaf, and the only other modules that it may import.
const LEAVES: &[(&str, &[&str])] = &[
    ("env", &[]),
    ("error", &[]),
    ("config", &["env", "error"]),
    ("telemetry", &["env", "error", "config"]),
    ("spec", &[]),
];

/// An outside crate and the places that may name it.
const OWNERS: &[(&str, &[&str])] = &[
    ("foundationdb", &["store/fdb.rs", "store/fdb/"]),
    ("rocksdb", &["store/local/"]),
    ("redis_protocol", &["net/resp.rs"]),
    ("roaring", &["types/set/", "keyspace/"]),
    ("anyhow", &["main.rs", "main/"]),
    ("tokio_rustls", &["net/"]),
    ("rustix", &["main/", "store/local/audit.rs", "store/local/room.rs"]),
    ("ring", &["env.rs", "keyspace/secret.rs", "commands/acl/", "net/"]),
    ("fastrand", &["env.rs"]),
    ("rand", &["env.rs"]),
];

/// Clocks and randomness: only `env.rs` reads them.
const CLOCKS: &[&str] = &["SystemTime", "Instant::now", "thread_rng", "RandomState"];
/// What may end the process, or hides what is unfinished. `main.rs` and tests may.
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
// Reading Rust just well enough.

/// `source` with the contents of comments, strings and characters replaced by spaces; lines stay where they are.
fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(out).expect("blanking keeps text valid")
}

/// Where the comment, string or character that starts at `at` ends; `at` itself if none starts there.
fn literal_end(b: &[u8], at: usize) -> usize {
    let rest = &b[at..];
    let after_name = at > 0 && (b[at - 1].is_ascii_alphanumeric() || b[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_end(b, at),
        [b'r', b'"' | b'#', ..] if !after_name => raw_string_end(b, at, at + 1),
        [b'b', b'r', b'"' | b'#', ..] if !after_name => raw_string_end(b, at, at + 2),
        [b'"', ..] => quoted_end(b, at, b'"'),
        [b'\'', b'\\', ..] => quoted_end(b, at, b'\''),
        [b'\'', ..] => {
            let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .map(|s| s.chars().next().map_or(1, char::len_utf8))
                .unwrap_or_else(|e| if e.valid_up_to() > 0 { 1 } else { 4 });
            if rest.get(1 + width) == Some(&b'\'') { at + width + 2 } else { at }
        }
        _ => at,
    }
}

fn block_comment_end(b: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i + 1 < b.len() {
        match (b[i], b[i + 1]) {
            (b'/', b'*') => (depth, i) = (depth + 1, i + 2),
            (b'*', b'/') if depth == 1 => return i + 2,
            (b'*', b'/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    b.len()
}

fn raw_string_end(b: &[u8], at: usize, hashes_from: usize) -> usize {
    let hashes = b[hashes_from..].iter().take_while(|&&c| c == b'#').count();
    if b.get(hashes_from + hashes) != Some(&b'"') {
        return at;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = hashes_from + hashes + 1;
    let end = b[body..].windows(close.len()).position(|w| w == close);
    end.map_or(b.len(), |e| body + e + close.len())
}

fn quoted_end(b: &[u8], at: usize, quote: u8) -> usize {
    let mut i = at + 1;
    while i < b.len() && b[i] != quote {
        i += if b[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// Blanked code without the items under `#[cfg(test)]`.
fn production(source: &str) -> String {
    let mut code = blank(source);
    while let Some(start) = code.find("#[cfg(test)]") {
        let end = item_end(&code, start);
        let kept: String = code[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(start..end, &kept);
    }
    code
}

/// The end of the item at `start`: its closing brace, or its semicolon if that comes before any brace.
fn item_end(code: &str, start: usize) -> usize {
    let (mut depth, mut brackets) = (0usize, 0usize);
    for (i, c) in code[start..].char_indices() {
        match c {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return start + i + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return start + i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Places where `word` stands in `code`, not as a part of a longer name.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(i, _)| i).filter(move |&i| {
        let before = code[..i].chars().next_back().is_none_or(|c| !is_name(c));
        let after = code[i + word.len()..].chars().next().is_none_or(|c| !is_name(c));
        before && (after || !word.ends_with(is_name))
    })
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The module of a path below `src`: its folder or its file's name.
fn module_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// First names after every `crate::`, groups included, each with its line.
fn imports(path: &str, code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for start in words(code, "crate::") {
        let rest = &code[start + "crate::".len()..];
        let names = if rest.starts_with('{') { group_heads(rest) } else { vec![head(rest)] };
        found.extend(names.into_iter().map(|name| (name, line_of(code, start))));
    }
    // A chain of `super::` long enough to reach the root. A `mod.rs` stands one level higher than its neighbours.
    let file = path.rsplit('/').next().unwrap_or(path);
    let depth = path.matches('/').count() + usize::from(file != "mod.rs");
    let climb = "super::".repeat(depth);
    for start in words(code, &climb) {
        if !code[..start].ends_with("super::") {
            found.push((head(&code[start + climb.len()..]), line_of(code, start)));
        }
    }
    found
}

fn head(rest: &str) -> String {
    rest.chars().take_while(|&c| is_name(c)).collect()
}

/// The first names inside `{a::b, c::{d, e}}`.
fn group_heads(rest: &str) -> Vec<String> {
    let (mut depth, mut heads, mut fresh) = (0, Vec::new(), false);
    for (i, c) in rest.char_indices() {
        match c {
            '{' => (depth, fresh) = (depth + 1, depth == 0),
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if fresh && is_name(c) => {
                heads.push(head(&rest[i..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

// ---------------------------------------------------------------------------------------------------------------
// The rules. `path` is relative to `src`.

fn may_import(from: &str, to: &str) -> bool {
    if from == to || matches!(from, "main" | "lib") {
        return true;
    }
    let leaf = |name: &str| LEAVES.iter().find(|(leaf, _)| *leaf == name);
    if let Some((_, allowed)) = leaf(from) {
        return allowed.contains(&to);
    }
    if leaf(to).is_some() {
        return true;
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
    let known = matches!(module, "main" | "lib" | "jobs")
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

fn clocks(path: &str, source: &str) -> Vec<String> {
    forbidden(path, source, CLOCKS, &["env.rs"], "outside env.rs")
}

fn abrupt(path: &str, source: &str) -> Vec<String> {
    forbidden(path, source, ABRUPT, &["main.rs"], "outside main.rs and tests")
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
    let test = name.ends_with("/tests.rs") || name.contains("/tests/");
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

/// Every rule against a file that breaks it, and against one that does not.
#[test]
fn every_rule_can_fail() {
    type Rule = fn(&str, &str) -> Vec<String>;
    let long_file = "//! x\n".repeat(MAX_FILE_LINES + 1);
    let long_fn = format!("fn f() -> [u8; 4] {{\n{}}}\n", "    g();\n".repeat(MAX_FN_LINES));
    let mark = ["// TO", "DO: later"].concat();
    let place = ["// see /wo", "rk/notes"].concat();
    let bad: &[(Rule, &str, &str)] = &[
        (arrows, "store/mod.rs", "use crate::keyspace::keys;"),
        (arrows, "types/set/mod.rs", "fn f() { crate::commands::table::rows() }"),
        (arrows, "exec/mod.rs", "use crate::{\n    error::X,\n    session::Session,\n};"),
        (arrows, "types/string.rs", "use super::super::commands::args;"),
        (arrows, "commands/mod.rs", "use super::exec::Lane;"),
        (arrows, "exec/lane.rs", "use crate::jobs::expiry;"),
        (arrows, "env.rs", "use crate::error::Error;"),
        (arrows, "telemetry/mod.rs", "use crate::store::Store;"),
        (layers_are_known, "engine/mod.rs", ""),
        (file_size, "a.rs", &long_file),
        (function_size, "a.rs", &long_fn),
        (crate_owners, "exec/mod.rs", "use rocksdb::DB;"),
        (crate_owners, "net/conn.rs", "fn f() { redis_protocol::resp2::decode() }"),
        (crate_owners, "commands/mod.rs", "use anyhow;"),
        (crate_owners, "types/string.rs", "use roaring::RoaringTreemap;"),
        (crate_owners, "exec/mod.rs", "fn f() -> u8 { fastrand::u8(..) }"),
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
        (stray_words, "README.md", &mark),
        (stray_words, "README.md", &place),
    ];
    for (rule, path, source) in bad {
        assert!(!rule(path, source).is_empty(), "not caught in {path}: {source}");
    }
    let good: &[(Rule, &str, &str)] = &[
        (arrows, "net/mod.rs", "use crate::session::Session;\nuse crate::error::Error;"),
        (arrows, "jobs/expiry.rs", "use crate::types::object;"),
        (arrows, "commands/strings.rs", "use super::args::Args;"),
        (arrows, "store/mod.rs", "// use crate::net;\n#[cfg(test)]\nmod tests { use crate::net::x; }"),
        (crate_owners, "store/local/mod.rs", "use rocksdb::DB;"),
        (crate_owners, "keyspace/mod.rs", "use roaring::RoaringTreemap;"),
        (clocks, "env.rs", "fn f() { Instant::now(); }"),
        (abrupt, "exec/mod.rs", "fn f() { x.unwrap_or(1); \"x.unwrap()\"; }"),
        (drawn_orders, "jobs/mod.rs", "fn f() { tokio::select! {\n    biased;\n    () = a => {}\n} }"),
        (stray_words, "README.md", "framework/tern, network, a/b"),
    ];
    for (rule, path, source) in good {
        assert_eq!(rule(path, source), Vec::<String>::new(), "wrongly caught in {path}");
    }
}
