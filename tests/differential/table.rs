//! COMMAND INFO of each command that both servers have: name, arity, keys, flags.

use crate::generate::{TEMPLATES, covered};
use crate::newer::LINES;
use crate::streams;
use crate::support::resp::{Client, Value};
use crate::support::server::{redis, tern};
use std::collections::BTreeSet;

/// Commands of the table that the random sequences omit, and why.
const NOT_GENERATED: &[(&str, &str)] = &[
    ("ACL", "users outlive a sequence; see `acl.rs`"),
    ("MONITOR", "shows addresses and times; see `monitor.rs`"),
    ("SDIFFCARD", "since 8.10, the oracle is 7.0"),
    ("SUNIONCARD", "since 8.10, the oracle is 7.0"),
    ("RESTORE-ASKING", "RESTORE by another name"),
    ("LOLWUT", "a picture"),
    ("DELIFEQ", "Valkey's"),
    ("INCREX", "since 8.8"),
    ("PFSELFTEST", "takes the oracle seconds"),
    ("IDEMPOTENT", "Redis has no such command"),
    ("PSUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("PUNSUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("SSUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("SUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("SUNSUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("UNSUBSCRIBE", "compared in tests/pubsub.rs: what follows depends on it"),
    ("PUBLISH", "compared in tests/pubsub.rs: what follows depends on it"),
    ("SPUBLISH", "compared in tests/pubsub.rs: what follows depends on it"),
    ("PUBSUB", "compared in tests/pubsub.rs: what follows depends on it"),
    ("BGREWRITEAOF", "about Redis' own files"),
    ("BGSAVE", "about Redis' own files"),
    ("SAVE", "about Redis' own files"),
    ("LASTSAVE", "about Redis' own files"),
    ("REPLICAOF", "would make the oracle a replica; Tern refuses it by design"),
    ("SLAVEOF", "would make the oracle a replica; Tern refuses it by design"),
    ("ROLE", "the replication offset"),
    ("MIGRATE", "Tern refuses it by design"),
    ("FCALL_RO", "libraries outlive a sequence; see `tests/tcl`"),
    ("FCALL", "libraries outlive a sequence; see `tests/tcl`"),
    ("SYNC", "Tern refuses it by design"),
    ("PSYNC", "Tern refuses it by design"),
    ("REPLCONF", "Tern refuses it by design"),
    ("FAILOVER", "Tern refuses it by design"),
    ("BACKUP", "since 8.10"),
    ("HOTKEYS", "since 8.6"),
    ("TRIMSLOTS", "since 8.4"),
];

/// Rows whose facts changed after the oracle's 7.0, with the change; or rows that Tern refuses.
const NO_LONGER: &str = "no longer has the flag noscript";
const WITHSCORE: &str = "the arity became -3: WITHSCORE";
const NEWER: &[(&str, &str)] = &[
    ("migrate", "refused; the keys after KEYS are not reported"),
    ("zrank", WITHSCORE),
    ("zrevrank", WITHSCORE),
    ("wait", "the flag noscript became blocking"),
    ("blpop", NO_LONGER),
    ("brpop", NO_LONGER),
    ("blmove", NO_LONGER),
    ("brpoplpush", NO_LONGER),
    ("bzpopmin", NO_LONGER),
    ("bzpopmax", NO_LONGER),
    ("command|getkeys", "the arity became -3: GETKEYS of a command without arguments"),
    ("command|getkeysandflags", "the arity became -3: GETKEYS of a command without arguments"),
];

/// The elements of COMMAND INFO, in order; the tenth, the subcommands, is compared row by row.
pub const ELEMENTS: [&str; 9] =
    ["name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specifications"];

/// COMMAND INFO of `label` (`get`, `client|id`), and the labels of its subcommands.
pub fn info_of(client: &mut Client, label: &str) -> Option<(Vec<Value>, BTreeSet<String>)> {
    let reply = client.run(&["COMMAND", "INFO", label]).value;
    let info = reply.items()?.first()?.items()?;
    let (facts, subs) = info.split_at_checked(ELEMENTS.len())?;
    let label = |sub: &Value| Some(String::from_utf8_lossy(sub.items()?.first()?.bytes()?).into_owned());
    let facts = facts.iter().map(without_notes).collect();
    Some((facts, subs.first()?.items()?.iter().filter_map(label).collect()))
}

/// Removes the `notes` of key specifications, which are Redis' own prose for readers of its documentation.
fn without_notes(value: &Value) -> Value {
    let Some(items) = value.items() else { return value.clone() };
    let skip = if items.first().and_then(Value::bytes) == Some(b"notes") { 2 } else { 0 };
    let items = items[skip..].iter().map(without_notes).collect();
    match value {
        Value::Map(_) => Value::Map(items),
        Value::Set(_) => Value::Set(items),
        _ => Value::Array(items),
    }
}

/// The labels of all rows.
pub fn names(client: &mut Client) -> Vec<String> {
    let reply = client.run(&["COMMAND", "LIST"]).value;
    let all = reply.items().expect("COMMAND LIST is an array").iter();
    all.filter_map(|v| v.bytes()).map(|b| String::from_utf8_lossy(b).into_owned()).collect()
}

#[test]
fn command_info_equals_that_of_redis() {
    let Some(redis) = redis("COMMAND INFO differential test") else { return };
    let tern = tern(&[]);
    let (mut redis, mut tern) = (redis.client(), tern.client());
    let (mut complaints, mut compared) = (Vec::new(), 0);
    for protocol in ["2", "3"] {
        redis.run(&["HELLO", protocol]);
        tern.run(&["HELLO", protocol]);
        for label in names(&mut tern).iter().filter(|label| !NEWER.iter().any(|(newer, _)| newer == label)) {
            let Some((expected, _)) = info_of(&mut redis, label) else { continue };
            let (got, _) = info_of(&mut tern, label).unwrap();
            compared += 1;
            let elements = ELEMENTS.iter().zip(expected.iter().zip(&got)).filter(|(_, (a, b))| a != b);
            complaints.extend(elements.map(|(element, (a, b))| {
                format!("RESP{protocol} {label}: {element}\n  redis: {a:?}\n  tern:  {b:?}")
            }));
        }
    }
    assert!(compared > 200, "only {compared} rows are in both");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_command_is_generated() {
    let tern = tern(&[]);
    let generated: BTreeSet<&str> = covered(TEMPLATES)
        .chain(covered(LINES))
        .chain(covered(streams::LINES))
        .chain(covered(streams::NEWER))
        .chain(NOT_GENERATED.iter().map(|(name, _)| *name))
        .collect();
    let missing: Vec<String> = names(&mut tern.client())
        .into_iter()
        .map(|name| name.to_uppercase())
        .filter(|name| !name.contains('|') && !generated.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no template for {missing:?}");
}
