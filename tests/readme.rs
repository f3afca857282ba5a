//! The README cannot go stale: its table of commands is the table's, its options exist, its files are there.
//!
//! `TERN_BLESS=1 cargo test --test readme` writes the table of commands anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::{Path, PathBuf};
use tern::commands::table::{Group, Row, Run, rows};

const START: &str = "<!-- commands -->\n";
const END: &str = "<!-- /commands -->";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> (PathBuf, String) {
    let path = root().join("README.md");
    let text = std::fs::read_to_string(&path).expect("README.md");
    (path, text)
}

fn refused(row: &Row) -> bool {
    let own = matches!(row.run, Run::Refuse(_));
    let subs = !row.subs.is_empty() && row.subs.iter().all(refused);
    own || matches!(row.run, Run::Container) && subs
}

/// A command's name, with its subcommands.
fn shown(row: &Row) -> String {
    let subs: Vec<String> = row.subs.iter().filter(|s| !refused(s)).map(|s| s.name.to_uppercase()).collect();
    let name = row.name.to_uppercase();
    if subs.is_empty() { name } else { format!("{name} ({})", subs.join(", ")) }
}

fn render() -> String {
    let groups = [
        ("strings", Group::String),
        ("sets", Group::Set),
        ("keys", Group::Generic),
        ("transactions", Group::Transactions),
        ("connection", Group::Connection),
        ("server", Group::Server),
        ("publish/subscribe", Group::Pubsub),
        ("scripts", Group::Scripting),
        ("cluster", Group::Cluster),
    ];
    let mut out = String::from("| group | commands |\n|---|---|\n");
    for (title, group) in groups {
        let names: Vec<String> = rows().filter(|r| r.group == group && !refused(r)).map(shown).collect();
        if !names.is_empty() {
            out.push_str(&format!("| {title} | {} |\n", names.join(" · ")));
        }
    }
    let refused: Vec<String> = rows().filter(|r| refused(r)).map(|r| r.name.to_uppercase()).collect();
    if !refused.is_empty() {
        out.push_str(&format!("| refused by design, with a clear error | {} |\n", refused.join(" · ")));
    }
    out
}

#[test]
fn its_table_of_commands_is_the_tables() {
    let (path, text) = readme();
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
    let all = rows().all(|row| table.contains(&row.name.to_uppercase()));
    assert!(all, "a row of a group that the README leaves out");
}

#[test]
fn its_options_exist() {
    let (_, text) = readme();
    let named = text.split("--").skip(1).filter_map(|rest| rest.split([' ', '`', '>', '\n']).next());
    let options =
        named.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let own = ["release", "test", "directive"];
    let unknown: Vec<&str> =
        options.filter(|name| !own.contains(name) && tern::config::lookup(name).is_none()).collect();
    assert!(unknown.is_empty(), "no such directive: {unknown:?}");
}

#[test]
fn its_links_lead_somewhere() {
    let (_, text) = readme();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let gone: Vec<&str> = links.filter(|l| !l.starts_with("http") && !root().join(l).exists()).collect();
    assert!(gone.is_empty(), "no such file: {gone:?}");
}
