//! What COMMAND INFO says of each command that both servers have: name, arity, keys, flags.

use crate::generate::covered;
use crate::support::resp::{Client, Value};
use crate::support::server::{redis, tern};
use std::collections::BTreeSet;

/// Commands of the table that the random sequences leave out, and why.
const NOT_GENERATED: &[(&str, &str)] = &[
    ("SDIFFCARD", "since 8.10, the oracle is 7.0"),
    ("SUNIONCARD", "since 8.10, the oracle is 7.0"),
    ("BGREWRITEAOF", "about Redis' own files"),
    ("BGSAVE", "about Redis' own files"),
    ("SAVE", "about Redis' own files"),
    ("LASTSAVE", "about Redis' own files"),
    ("REPLICAOF", "would make the oracle a replica; Tern refuses it by design"),
    ("SLAVEOF", "would make the oracle a replica; Tern refuses it by design"),
    ("ROLE", "the replication offset"),
    ("DEBUG", "looks into Redis' own memory"),
    ("MEMORY", "looks into Redis' own memory"),
];

/// Rows whose facts changed after the oracle's 7.0, and what changed.
const NEWER: &[(&str, &str)] = &[("wait", "the flag noscript became blocking")];

/// Name, arity, first key, last key, step, and the flags as a set.
fn facts(client: &mut Client, name: &str) -> Option<(Vec<Value>, BTreeSet<Value>)> {
    let reply = client.run(&["COMMAND", "INFO", name]).value;
    let info = reply.items()?.first()?.items()?;
    let flags = info.get(2)?.items()?.iter().cloned().collect();
    Some(([0, 1, 3, 4, 5].iter().filter_map(|i| info.get(*i).cloned()).collect(), flags))
}

fn names(client: &mut Client) -> Vec<String> {
    let reply = client.run(&["COMMAND", "LIST"]).value;
    let all = reply.items().expect("COMMAND LIST is an array").iter();
    all.filter_map(|v| v.bytes()).map(|b| String::from_utf8_lossy(b).into_owned()).collect()
}

#[test]
fn command_info_equals_that_of_redis() {
    let Some(redis) = redis("COMMAND INFO differential test") else { return };
    let tern = tern(&[]);
    let (mut redis, mut tern) = (redis.client(), tern.client());
    let mut complaints = Vec::new();
    for name in names(&mut tern).iter().filter(|name| !NEWER.iter().any(|(newer, _)| newer == name)) {
        let Some(expected) = facts(&mut redis, name) else { continue };
        let got = facts(&mut tern, name);
        if got.as_ref() != Some(&expected) {
            complaints.push(format!("{name}\n  redis: {expected:?}\n  tern:  {got:?}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_command_is_generated() {
    let tern = tern(&[]);
    let generated: BTreeSet<&str> = covered().chain(NOT_GENERATED.iter().map(|(name, _)| *name)).collect();
    let missing: Vec<String> = names(&mut tern.client())
        .into_iter()
        .map(|name| name.to_uppercase())
        .filter(|name| !name.contains('|') && !generated.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no template for {missing:?}");
}
