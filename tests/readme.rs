//! The README cannot go stale: its table of commands is the table's, its transcripts are what a server answers, its options
//! exist, its files are there.
//!
//! `TERN_BLESS=1 cargo test --test readme` writes the table of commands anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use support::resp::{Value, text};
use support::server::tern_in;
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
        ("bitmaps", Group::Bitmap),
        ("HyperLogLogs", Group::HyperLogLog),
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
    let own =
        ["release", "test", "directive", "features", "from", "to", "tls", "cacert", "cert", "key", "locked"];
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

/// A reply as redis-cli shows it to people, a line an element.
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

/// What happens when somebody types the lines of a transcript behind its prompts: the transcript as it should be.
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
fn its_transcripts_are_what_a_server_answers() {
    let (_, readme) = readme();
    let blocks = readme.split("```").skip(1).step_by(2);
    let transcripts: Vec<&str> =
        blocks.filter_map(|b| b.strip_prefix('\n')).filter(|b| b.starts_with("$ redis-cli")).collect();
    assert!(transcripts.len() >= 2, "the transcripts are not where this test looks");
    for transcript in transcripts {
        assert_eq!(transcript, played(transcript));
    }
}
