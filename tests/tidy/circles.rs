//! Circles of files that import each other, inside a room or across rooms.
//!
//! An arrow is a path that begins with `crate::`, `super::` or `self::` and ends in another file. A folder's `mod.rs` and the files below it are
//! one thing, whose parts name each other: between them no arrow counts.

use crate::reading::{is_name, production, words};
use std::collections::{BTreeMap, BTreeSet};

/// Files, by their names relative to `src`, and their text.
pub type Tree = BTreeMap<String, String>;

/// The circles of more than `most` files, each in alphabetical order.
pub fn larger_than(most: usize, tree: &Tree) -> Vec<Vec<String>> {
    let graph: BTreeMap<&str, BTreeSet<String>> =
        tree.iter().map(|(file, source)| (file.as_str(), arrows(file, source, tree))).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (*file, reached(file, &graph))).collect();
    let mut circles = BTreeSet::new();
    for (file, far) in &reach {
        let circle: Vec<String> =
            far.iter().filter(|other| reach[*other].contains(file)).map(|f| f.to_string()).collect();
        if circle.len() > most {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached<'a>(from: &str, graph: &'a BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for to in &graph[file] {
            if seen.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    seen
}

fn arrows(file: &str, source: &str, tree: &Tree) -> BTreeSet<String> {
    let paths = paths(&production(source));
    let targets = paths.iter().filter_map(|path| target(file, path, tree));
    targets.filter(|to| to != file && !is_part(file, to) && !is_part(to, file)).collect()
}

/// Whether `file` lies in the folder whose `mod.rs` is `face`.
fn is_part(file: &str, face: &str) -> bool {
    face.strip_suffix("mod.rs").is_some_and(|folder| !folder.is_empty() && file.starts_with(folder))
}

/// Every path of the code, groups expanded: the names between `::`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for at in words(code, start).filter(|at| !code[..*at].ends_with("::")) {
            expand(&code[at..], &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Reads a path, or a group of paths, behind `so_far`. Returns the bytes that it takes.
fn expand(code: &str, so_far: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let (depth, mut at) = (so_far.len(), 0);
    loop {
        let rest = code[at..].trim_start();
        at = code.len() - rest.len();
        if rest.starts_with('{') {
            at += 1;
            while at < code.len() && !code[at..].trim_start().starts_with('}') {
                at += expand(&code[at..], so_far, found).max(1);
                let rest = code[at..].trim_start();
                at = code.len() - rest.strip_prefix(',').unwrap_or(rest).len();
            }
            at = code.len() - code[at..].trim_start().len() + 1;
            break;
        }
        let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
        at += name.len();
        so_far.push(name);
        if !code[at..].starts_with("::") {
            found.push(so_far.clone());
            break;
        }
        at += 2;
    }
    so_far.truncate(depth);
    at.min(code.len())
}

/// The file that a path in `file` ends in.
fn target(file: &str, path: &[String], tree: &Tree) -> Option<String> {
    let mut here: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if here.last() == Some(&"mod") {
        here.pop();
    }
    let mut names = path.iter().map(String::as_str).peekable();
    match names.next()? {
        "crate" => here.clear(),
        "super" => drop(here.pop()),
        _ => {}
    }
    while names.next_if_eq(&"super").is_some() {
        here.pop();
    }
    let mut last = None;
    for name in names {
        here.push(name);
        let stem = here.join("/");
        match [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|f| tree.contains_key(f)) {
            Some(file) => last = Some(file),
            None => break,
        }
    }
    last
}
