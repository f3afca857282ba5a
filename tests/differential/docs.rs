//! The facts of COMMAND DOCS, against a redis-server 8.6: group, since, deprecation, and the arguments'
//! names, types, tokens, flags and key specifications. The summaries are Tern's own.

use crate::support::resp::Value;
use crate::support::say;
use crate::support::server::{newer_redis, tern};
use std::collections::{BTreeMap, BTreeSet};

/// Facts beside the arguments.
const FACTS: [&str; 4] = ["since", "group", "doc_flags", "deprecated_since"];

const REFUSED: &str = "refused: nothing reads its arguments";
/// The names of choices and blocks, and what a keyword stands before.
const NAMES: &str = "its notation does not name choices and blocks";
const SYSTEM: &str = "Redis does not document its arguments, or documents them as one";

/// Rows whose arguments differ on purpose, and why.
const MEANT: &[(&str, &str)] = &[
    (
        "bitfield",
        "its notation says in which order OVERFLOW, SET and INCRBY come, with a choice inside a choice",
    ),
    ("client|kill", "ID takes several numbers, and the filters are one choice"),
    ("cluster|setslot", REFUSED),
    ("debug", SYSTEM),
    ("failover", REFUSED),
    ("hotkeys|start", REFUSED),
    ("migrate", REFUSED),
    ("pfdebug", SYSTEM),
    ("replconf", SYSTEM),
    ("trimslots", REFUSED),
    ("xackdel", NAMES),
    ("xadd", NAMES),
    ("xdelex", NAMES),
    ("xgroup|create", NAMES),
    ("xgroup|setid", NAMES),
    ("xinfo|stream", NAMES),
    ("xpending", NAMES),
    ("xread", NAMES),
    ("xreadgroup", NAMES),
    ("xtrim", NAMES),
];

type Docs = BTreeMap<String, Vec<(Vec<u8>, Value)>>;

/// The pairs of a map, in either protocol.
fn pairs(map: &Value) -> Vec<(Vec<u8>, Value)> {
    let items = map.items().unwrap_or_default().chunks(2);
    items.map(|pair| (pair[0].bytes().unwrap_or_default().to_vec(), pair[1].clone())).collect()
}

fn find<'a>(pairs: &'a [(Vec<u8>, Value)], name: &str) -> Option<&'a Value> {
    pairs.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value)
}

/// A server's documentation of each command and subcommand.
fn all(reply: &Value) -> Docs {
    let mut out = Docs::new();
    for (label, docs) in pairs(reply) {
        let docs = pairs(&docs);
        out.extend(find(&docs, "subcommands").map(all).unwrap_or_default());
        out.insert(String::from_utf8_lossy(&label).into_owned(), docs);
    }
    out
}

/// An argument as one line of text.
fn argument(value: &Value) -> String {
    let own = pairs(value);
    let word = |name: &str| find(&own, name).map_or(String::new(), |v| format!(" {name} {v:?}"));
    let flags: BTreeSet<String> = find(&own, "flags")
        .and_then(Value::items)
        .unwrap_or_default()
        .iter()
        .map(|f| format!("{f:?}"))
        .collect();
    let inner = find(&own, "arguments").map_or(String::new(), |all| format!(" ({})", arguments(all)));
    let facts: String = ["name", "type", "token", "key_spec_index"].into_iter().map(word).collect();
    format!("[{}{inner} {flags:?}]", facts.trim_start())
}

fn arguments(all: &Value) -> String {
    all.items().unwrap_or_default().iter().map(argument).collect::<Vec<_>>().join(" ")
}

#[test]
fn command_docs_have_the_facts_of_redis_8_6() {
    let Some(redis) = newer_redis("COMMAND DOCS differential test") else { return };
    let tern = tern(&[]);
    let [theirs, ours] =
        [redis.client(), tern.client()].map(|mut client| all(&client.run(&["COMMAND", "DOCS"]).value));
    let (mut complaints, mut compared, mut used) = (Vec::new(), 0, BTreeSet::new());
    for (label, own) in &ours {
        let Some(redis) = theirs.get(label) else { continue };
        compared += 1;
        for fact in FACTS {
            let (a, b) = (find(redis, fact), find(own, fact));
            if a.map(|v| format!("{v:?}")) != b.map(|v| format!("{v:?}")) {
                complaints.push(format!("{label} {fact}: redis {a:?}, tern {b:?}"));
            }
        }
        let [a, b] = [redis, own].map(|docs| find(docs, "arguments").map_or(String::new(), arguments));
        match MEANT.iter().find(|(name, _)| name == label) {
            Some((name, _)) if a != b => drop(used.insert(*name)),
            None if a != b => complaints.push(format!("{label} arguments\n  redis: {a}\n  tern:  {b}")),
            _ => {}
        }
    }
    say(&format!("COMMAND DOCS of redis-server 8.6: {compared} commands compared"));
    assert!(compared >= 270, "only {compared} commands are in both");
    assert!(complaints.is_empty(), "{} facts differ\n{}", complaints.len(), complaints.join("\n"));
    let idle: Vec<_> = MEANT.iter().map(|(name, _)| *name).filter(|name| !used.contains(name)).collect();
    assert!(idle.is_empty(), "these no longer differ: {idle:?}");
}
