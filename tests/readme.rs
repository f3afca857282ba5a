//! Keeps the README and the guides current: their command table matches the server's, their transcripts match
//! a server's replies, their options and files exist, and the README stays short. The README of the tests
//! names existing targets, files and functions.
//!
//! `TERN_BLESS=1 cargo test --test readme` rewrites the table of commands and draws the figures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::plot;
use support::resp::{Value, text};
use support::server::tern_in;
use tern::commands::binding::Run;
use tern::commands::registry::{run_of, table as commands};
use tern::spec::{Entry, Form, Group};

const START: &str = "<!-- commands -->\n";
const END: &str = "<!-- /commands -->";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The maximum number of words for a reader who only wants to know what Tern is.
const LONGEST_README: usize = 900;

fn page(name: &str) -> (PathBuf, String) {
    let path = root().join(name);
    let text = std::fs::read_to_string(&path).expect(name);
    (path, text)
}

/// The README, and all pages that it links.
fn pages() -> Vec<(PathBuf, String)> {
    let guides = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = guides
        .map(|path| format!("docs/{}", path.file_name().unwrap().to_str().unwrap()))
        .filter(|name| name.ends_with(".md"))
        .chain(["README.md", "CONTRIBUTING.md"].map(String::from))
        .collect();
    names.sort();
    names.iter().map(|name| page(name)).collect()
}

/// Why a row is refused. For a container whose subcommands are all refused: the reason of the first one.
fn refusal(row: &Entry) -> Option<&'static str> {
    match run_of(row) {
        Run::Refuse(why) => Some(why),
        Run::Nothing if row.form == Form::Container && row.subs.iter().all(|sub| refusal(sub).is_some()) => {
            row.subs.first().and_then(|sub| refusal(sub))
        }
        _ => None,
    }
}

fn upper(rows: &[&Entry]) -> String {
    rows.iter().map(|row| row.name.to_uppercase()).collect::<Vec<_>>().join(", ")
}

/// A command's entry: its subcommands, if it has any, or why it is refused.
fn outcome(row: &Entry) -> String {
    if let Some(why) = refusal(row) {
        return format!("refused: {why}");
    }
    let (refused, supported): (Vec<&Entry>, Vec<&Entry>) =
        row.subs.iter().partition(|sub| refusal(sub).is_some());
    let mut parts = vec!["supported".to_owned()];
    if !supported.is_empty() {
        parts = vec![format!("supported: {}", upper(&supported))];
    }
    let reasons: BTreeSet<&str> = refused.iter().filter_map(|sub| refusal(sub)).collect();
    for why in reasons {
        let those: Vec<&Entry> = refused.iter().copied().filter(|sub| refusal(sub) == Some(why)).collect();
        parts.push(format!("refused: {}: {why}", upper(&those)));
    }
    parts.join("; ")
}

const GROUPS: [(&str, Group); 16] = [
    ("strings", Group::String),
    ("bitmaps", Group::Bitmap),
    ("HyperLogLogs", Group::HyperLogLog),
    ("sets", Group::Set),
    ("hashes", Group::Hash),
    ("lists", Group::List),
    ("sorted sets", Group::SortedSet),
    ("geo", Group::Geo),
    ("streams", Group::Stream),
    ("keys", Group::Generic),
    ("transactions", Group::Transactions),
    ("connection", Group::Connection),
    ("server", Group::Server),
    ("publish/subscribe", Group::Pubsub),
    ("scripts", Group::Scripting),
    ("cluster", Group::Cluster),
];

/// One line per command.
fn render() -> String {
    let mut out = String::from("| command | group | since | |\n|---|---|---|---|\n");
    for (title, group) in GROUPS {
        let mut of_group: Vec<&Entry> = commands().commands().filter(|row| row.group == group).collect();
        of_group.sort_by_key(|row| row.name);
        for row in of_group {
            let (name, outcome) = (row.name.to_uppercase(), outcome(row).replace('|', "\\|"));
            let since = if row.name == "idempotent" { "Tern's own" } else { row.since };
            out.push_str(&format!("| {name} | {title} | {since} | {outcome} |\n"));
        }
    }
    out
}

#[test]
fn the_table_of_commands_matches_the_server() {
    let (path, text) = page("docs/compatibility.md");
    let start = text.find(START).expect("start marker") + START.len();
    let end = text.find(END).expect("end marker");
    let wanted = render();
    if std::env::var_os("TERN_BLESS").is_some() {
        std::fs::write(path, format!("{}{wanted}{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[start..end], wanted, "run: TERN_BLESS=1 cargo test --test readme");
}

#[test]
fn every_group_is_shown() {
    let table = render();
    let all = commands().commands().all(|row| table.contains(&format!("| {} |", row.name.to_uppercase())));
    assert!(all, "every row must be in the table");
}

#[test]
fn the_plot_shows_the_figures() {
    let (_, readme) = page("README.md");
    let (names, series) = plot::table(&readme, "| | GET | SET |");
    assert!(names.len() >= 4 && series.len() == 2, "the table was not found: {names:?}, {series:?}");
    assert!(series.iter().all(|(_, ratios)| ratios.len() == names.len()), "{series:?}");
    let (drawn, path) =
        (plot::bars("Throughput beside Redis", &names, &series), root().join("docs/figures.svg"));
    if std::env::var_os("TERN_BLESS").is_some() {
        std::fs::write(path, drawn).unwrap();
        return;
    }
    let shown = std::fs::read_to_string(path).unwrap_or_default();
    assert!(shown == drawn, "run: TERN_BLESS=1 cargo test --test readme");
}

#[test]
fn options_exist() {
    let text: String = pages().into_iter().map(|(_, text)| text).collect();
    let named = text.split("--").skip(1).filter_map(|rest| rest.split([' ', '`', '>', '\n']).next());
    let options =
        named.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let own = [
        "release",
        "test",
        "directive",
        "features",
        "from",
        "to",
        "tls",
        "cacert",
        "cert",
        "key",
        "locked",
        "path",
        "bigkeys",
        "raw",
    ];
    let unknown: Vec<&str> =
        options.filter(|name| !own.contains(name) && tern::config::lookup(name).is_none()).collect();
    assert!(unknown.is_empty(), "no such directive: {unknown:?}");
}

#[test]
fn links_lead_somewhere() {
    for (path, text) in pages() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let place = |link: &str| path.with_file_name(link.split('#').next().unwrap());
        let leads = |link: &str| link.starts_with("http") || place(link).exists();
        let gone: Vec<&str> = links.filter(|link| !leads(link)).collect();
        assert!(gone.is_empty(), "{path:?}: no such file: {gone:?}");
    }
}

#[test]
fn the_readme_is_short_and_links_every_guide() {
    let (_, readme) = page("README.md");
    let words = readme.split_whitespace().count();
    assert!(words <= LONGEST_README, "{words} words: move details to docs/");
    for (path, _) in pages() {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        assert!(name == "README.md" || readme.contains(&format!("]({name})")), "no link to {name}");
    }
}

/// A reply as redis-cli shows it, one line per element.
fn as_shown(value: &Value) -> Vec<String> {
    let items = match value {
        Value::Simple(line) => return vec![text(line)],
        Value::Error(line) => return vec![format!("(error) {}", text(line))],
        Value::Int(n) => return vec![format!("(integer) {n}")],
        Value::Bulk(bytes) => return vec![format!("\"{}\"", text(bytes))],
        Value::Nil(_) => return vec!["(nil)".into()],
        other => other.items().unwrap(),
    };
    let mut lines = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let number = format!("{}) ", n + 1);
        for (at, line) in as_shown(item).into_iter().enumerate() {
            let front = if at == 0 { number.clone() } else { " ".repeat(number.len()) };
            lines.push(front + &line);
        }
    }
    lines
}

/// Runs the lines after a transcript's prompts; returns the transcript with the real replies.
fn played(transcript: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut server = tern_in(&dir, &[]);
    let mut client = server.client();
    let mut out = String::new();
    for line in transcript.lines() {
        let typed = match line.split_once("> ") {
            Some((prompt, typed)) if prompt.starts_with("127.0.0.1:6379") => typed,
            _ if line.starts_with("$ ") => &line[2..],
            _ => continue,
        };
        out.push_str(&format!("{line}\n"));
        let command = match typed.strip_prefix("redis-cli") {
            Some(rest) => {
                client = server.client();
                rest.trim()
            }
            None if typed.starts_with("kill -9") => {
                server.kill();
                server = tern_in(&dir, &[]);
                continue;
            }
            None => typed,
        };
        if !command.is_empty() && command != "exit" {
            let reply = client.line(&command.replace('"', ""));
            as_shown(&reply).iter().for_each(|line| out.push_str(&format!("{line}\n")));
        }
    }
    out
}

#[test]
fn transcripts_match_a_servers_answers() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|(_, text)| text.split("```").skip(1).step_by(2));
    let transcripts: Vec<&str> =
        blocks.filter_map(|b| b.strip_prefix('\n')).filter(|b| b.starts_with("$ redis-cli")).collect();
    assert!(transcripts.len() >= 2, "no transcripts were found");
    for transcript in transcripts {
        assert_eq!(transcript, played(transcript));
    }
}

/// The text of all Rust files at a path, with or without its extension.
fn sources(path: &Path) -> String {
    let file = path.with_extension("rs");
    let mut all = std::fs::read_to_string(file).unwrap_or_default();
    let entries = std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    for path in entries {
        match path.extension() {
            Some(rs) if rs == "rs" => all.push_str(&std::fs::read_to_string(path).unwrap()),
            None => all.push_str(&sources(&path)),
            _ => {}
        }
    }
    all
}

/// The paths of all Rust files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let below = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    below
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] })
        .collect()
}

/// Names in backticks that look like a file or a function of `src` but do not exist.
fn not_in_the_source(text: &str) -> Vec<&str> {
    let (files, code) = (files(&root().join("src")), sources(&root().join("src")));
    let is_word = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let names = text.split('`').skip(1).step_by(2);
    names
        .filter(|name| {
            let function = name.rsplit("::").next().unwrap();
            if name.ends_with(".rs") {
                !files.iter().any(|file| file.ends_with(&format!("/{name}")))
            } else if is_word(function) && (name.contains("::") || name.contains('_')) {
                !code.contains(&format!("fn {function}(")) && !code.contains(&format!("fn {function}<"))
            } else {
                false
            }
        })
        .collect()
}

#[test]
fn the_walks_name_existing_code() {
    let (_, text) = page("docs/architecture.md");
    let prose: String = text.split("```").step_by(2).collect();
    assert!(prose.matches('`').count() > 100, "the walks were not found");
    assert_eq!(not_in_the_source(&prose), [""; 0]);
    let wrong = "`net/none.rs`, `Session::none`, `no_such_function`, `SessionOp::Multi`, `exec/mod.rs`";
    assert_eq!(not_in_the_source(wrong), ["net/none.rs", "Session::none", "no_such_function"]);
}

fn is_there(path: &Path) -> bool {
    path.is_dir() || path.with_extension("rs").is_file()
}

/// Whether a module of this name exists below a folder.
fn has_module(folder: &Path, name: &str) -> bool {
    let below = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    is_there(&folder.join(name)) || below.filter(|path| path.is_dir()).any(|path| has_module(&path, name))
}

/// Whether a name in backticks exists; `owner` is the target named before it. A name that ends with `...` is
/// a prefix.
fn exists(name: &str, owner: &str) -> bool {
    let (tests, src) = (root().join("tests"), root().join("src"));
    let variable = name.split('=').next().unwrap();
    if variable.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
        return sources(&tests).contains(&format!("\"{variable}\""));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_/.:".contains(c)) {
        return sources(&tests).contains(name);
    }
    let of_owner = tests.join(owner);
    if let Some(prefix) = name.strip_suffix("...") {
        return sources(&of_owner).contains(&format!("fn {prefix}"));
    }
    let is_function = || sources(&of_owner).contains(&format!("fn {name}("));
    let is_module = || has_module(&src, &name.replace("::", "/"));
    let is_file = || name.contains(['/', '.']) && root().join(name).exists();
    is_file() || is_there(&of_owner.join(name)) || is_function() || is_module()
}

/// Names of a table's middle column that do not exist.
fn stale(table: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise")) {
        let line = line.replace("\\|", " ");
        let Some(middle) = line.split('|').nth(2) else { continue };
        let names: Vec<&str> = middle.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("no name in: {line}"));
        }
        let mut owner = "";
        for name in names {
            if is_there(&root().join("tests").join(name)) {
                owner = name;
            } else if !exists(name, owner) {
                wrong.push(format!("{name}, behind '{owner}'"));
            }
        }
    }
    wrong
}

#[test]
fn the_tests_readme_names_existing_tests() {
    let text = std::fs::read_to_string(root().join("tests/README.md")).unwrap();
    let table = text.split("\n## ").next().unwrap();
    assert!(table.lines().filter(|line| line.starts_with("| ")).count() > 60, "the table was not found");
    assert_eq!(stale(table), [""; 0]);
    for (wrong, named) in [
        ("| x | `no_such_target` | - |", "no_such_target"),
        ("| x | `hostile` (`no_such_prefix_...`) | - |", "no_such_prefix_..."),
        ("| x | `acl` (`unread_replies_are_not_held`) | - |", "unread_replies_are_not_held"),
        ("| x | `hostile` (`torn`) | - |", "torn"),
        ("| x | `acl` (`TERN_NO_SUCH`) | - |", "TERN_NO_"),
        ("| x | `acl`, `tests/none.txt` | - |", "tests/none.txt"),
        ("| x | `acl`, unit tests of `nosuchmodule` | - |", "nosuchmodule"),
        ("| x | nothing at all | - |", "no name"),
    ] {
        assert_eq!(
            stale(wrong).iter().filter(|w| w.starts_with(named)).count(),
            1,
            "{wrong}: {:?}",
            stale(wrong)
        );
    }
}
