//! How much of the project knows a type by its name: the type that exists in tests alone is added in its
//! folder and its commands' file, and may be named on a few lines elsewhere.

use super::reading::{blank, words};
use super::{committed, in_src, root};

/// Lines outside of its own files that may name a type.
const MOST: usize = 6;

/// The lines of `source` that name the type, as `path:line: text`.
fn mentions(path: &str, source: &str) -> Vec<String> {
    let own = path.starts_with("types/abacus/") || path == "commands/abacus.rs";
    let names = |line: &str| ["abacus", "Abacus"].iter().any(|name| words(line, name).next().is_some());
    let code = blank(source);
    let named = code.lines().zip(source.lines()).enumerate().filter(|(_, (code, _))| !own && names(code));
    named.map(|(at, (_, line))| format!("{path}:{}: {}", at + 1, line.trim())).collect()
}

#[test]
fn a_type_is_registered_on_a_few_lines() {
    let mut found = Vec::new();
    for file in committed() {
        let Some(path) = file.to_str().and_then(in_src) else { continue };
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        found.extend(mentions(path, &text));
    }
    assert!(!found.is_empty(), "the type is not registered at all");
    assert!(found.len() <= MOST, "{} lines name it, at most {MOST}:\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn a_mention_is_seen() {
    assert_eq!(mentions("types/mod.rs", "// abacus\nmod abacus;"), ["types/mod.rs:2: mod abacus;"]);
    assert_eq!(mentions("lifecycle/copy.rs", "    Value::Abacus(_) => {}").len(), 1);
    assert_eq!(mentions("types/abacus/mod.rs", "struct Abacus;"), [""; 0]);
}
