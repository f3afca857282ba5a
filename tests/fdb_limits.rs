//! Hazard: a limit of the store (5 s, 10 MB, 100 kB, 10 kB) surprises a client: a wrong reply, a closed
//! connection, or a partial write. A value too large for one transaction is prebuilt, or the command is
//! refused with an error that names the limit, and writes nothing.

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::fdb_cluster;
use support::resp::{Client, Value, request};
use support::server::{Server, tern_in};

/// Members in one command: interned in one transaction, they would exceed it.
fn many() -> usize {
    support::env_number("TERN_LIMIT_MEMBERS").map_or(120_000, |n| n as usize)
}

/// Keys whose records exceed a transaction: their names are long.
const RECORDS: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(180);

struct World {
    client: Client,
    _server: Server,
    _home: tempfile::TempDir,
}

fn world(what: &str) -> Option<World> {
    let cluster = fdb_cluster::shared(what)?;
    let home = tempfile::tempdir().unwrap();
    let store = format!("fdb:{}", cluster.cluster_file().display());
    let options = ["--store", &store, "--store-namespace", &fdb_cluster::namespace()];
    let server = tern_in(&home.path().join("data"), &options);
    let client = server.client();
    client.set_timeout(PATIENCE);
    Some(World { client, _server: server, _home: home })
}

impl World {
    /// Runs a command; prints slow ones.
    fn run(&mut self, words: &[&str], more: impl IntoIterator<Item = Vec<u8>>) -> Value {
        let argv: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).chain(more).collect();
        let since = Instant::now();
        let reply = self.client.try_run(&argv).unwrap_or_else(|e| panic!("{words:?}: {e}")).value;
        if since.elapsed() > Duration::from_secs(1) {
            support::say(&format!("{} with {} arguments: {:.1?}", words[0], argv.len(), since.elapsed()));
        }
        reply
    }
    fn line(&mut self, line: &str) -> Value {
        self.run(&line.split(' ').collect::<Vec<_>>(), [])
    }
    fn int(&mut self, line: &str) -> i64 {
        let reply = self.line(line);
        reply.int().unwrap_or_else(|| panic!("{line}: {reply:?}"))
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// "limit 10 MB", or on a slow machine "limit 5 s".
const TOO_LARGE: &str = "(limit ";

fn refused(reply: Value, limit: &str) {
    let Value::Error(line) = &reply else { panic!("expected an error that names {limit}: {reply:?}") };
    let line = String::from_utf8_lossy(line);
    assert!(line.starts_with("ERR ") && line.contains(limit), "{line}");
}

fn filled(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|i| (i / 1000 + seed) as u8).collect()
}

fn record(n: usize) -> String {
    format!("record:{n:06}{}", "x".repeat(250))
}

fn members(n: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(|n| format!("member:{n:08x}").into_bytes())
}

#[test]
fn values_larger_than_a_row_and_than_a_transaction() {
    let Some(mut w) = world("large values") else { return };
    for (key, size) in [("row", 200_000), ("transaction", 20_000_000)] {
        let value = filled(size, 1);
        assert_eq!(w.run(&["SET", key], [value.clone()]), ok());
        assert!(w.line(&format!("GET {key}")) == Value::Bulk(value.clone()), "GET {key}");
        assert_eq!(w.int(&format!("STRLEN {key}")), size as i64);
        assert!(w.line(&format!("GETDEL {key}")) == Value::Bulk(value), "GETDEL {key}");
        assert_eq!(w.int(&format!("EXISTS {key}")), 0);
    }
    let values: Vec<Vec<u8>> = (0..5).map(|n| filled(3_000_000, n)).collect();
    for (n, value) in values.iter().enumerate() {
        assert_eq!(w.run(&["SET", &format!("big:{n}")], [value.clone()]), ok());
    }
    let read = w.line("MGET big:0 big:1 big:2 big:3 big:4");
    assert!(read == Value::Array(values.into_iter().map(Value::Bulk).collect()), "one reply must hold 15 MB");
}

#[test]
fn names_and_members_that_no_row_can_hold() {
    let Some(mut w) = world("long names") else { return };
    let long = "k".repeat(9_000);
    for line in [
        format!("SET {long} v"),
        format!("INCR {long}"),
        format!("SADD {long} m"),
        format!("RENAME k {long}"),
        format!("COPY k {long}"),
        format!("SUNIONSTORE {long} s"),
        format!("MSET k2 v {long} v"),
    ] {
        w.line("SET k v");
        w.line("SADD s m");
        let reply = w.line(&line);
        refused(reply, "8192");
        assert_eq!(w.int("DBSIZE"), 2, "{} left something", &line[..10]);
    }
    assert!(matches!(w.line(&format!("GET {long}")), Value::Nil(_)));
    assert_eq!(w.int(&format!("DEL {long}")), 0);
    let fits = filled(100_000, 1);
    assert_eq!(w.run(&["SADD", "s"], [fits.clone()]), Value::Int(1));
    assert_eq!(w.run(&["SISMEMBER", "s"], [fits]), Value::Int(1));
    let reply = w.run(&["SADD", "s", "other"], [filled(100_001, 1)]);
    refused(reply, "100000");
    assert_eq!(w.int("SCARD s"), 2);
    assert_eq!(w.run(&["SISMEMBER", "s"], [filled(200_000, 1)]), Value::Int(0));
}

#[test]
fn an_exec_larger_than_a_transaction_is_applied_whole_or_not_at_all() {
    let Some(mut w) = world("a large EXEC") else { return };
    w.line("MULTI");
    for n in 0..15 {
        w.run(&["SET", &format!("part:{n}")], [filled(1_000_000, n)]);
    }
    w.line("INCR n");
    let Value::Array(replies) = w.line("EXEC") else { panic!("15 MB of strings must be prebuilt") };
    assert!(replies[..15].iter().all(|r| *r == ok()) && replies[15] == Value::Int(1));
    assert!(w.line("GET part:14") == Value::Bulk(filled(1_000_000, 14)));
    w.line("FLUSHALL");

    // Records cannot be prebuilt.
    w.line("MULTI");
    for from in (0..RECORDS).step_by(1000) {
        let set = |n: usize| request(&["SET", &record(n), "v"]);
        w.client.send_raw(&(from..from + 1000).flat_map(set).collect::<Vec<_>>()).unwrap();
        (0..1000).for_each(|_| drop(w.client.read().unwrap()));
    }
    let last = w.line("EXEC");
    let replies = match last {
        Value::Array(replies) => replies,
        other => vec![other],
    };
    replies.into_iter().for_each(|reply| refused(reply, TOO_LARGE));
    assert_eq!(w.int("DBSIZE"), 0, "no part of it may be applied");
}

#[test]
fn many_records_in_one_command() {
    let Some(mut w) = world("a large MSET") else { return };
    let pairs: Vec<Vec<u8>> = (0..RECORDS).flat_map(|n| [record(n).into(), b"v".to_vec()]).collect();
    let reply = w.run(&["MSET"], pairs.clone());
    refused(reply, TOO_LARGE);
    assert_eq!(w.int("DBSIZE"), 0, "no part of it may be applied");

    for some in pairs.chunks(5_000) {
        assert_eq!(w.run(&["MSET"], some.to_vec()), ok());
    }
    assert_eq!(w.int("DBSIZE"), RECORDS as i64);
    assert_eq!(w.line("KEYS record:*").items().unwrap().len(), RECORDS);
    assert_eq!(w.line("KEYS record:00000?*").items().unwrap().len(), 10);
    let names: Vec<Vec<u8>> = pairs.into_iter().step_by(2).collect();
    let read = w.run(&["MGET"], names.clone());
    assert!(read.items().unwrap().iter().all(|v| *v == Value::Bulk(b"v".to_vec())));
    match w.run(&["DEL"], names) {
        Value::Int(n) => assert_eq!((n, w.int("DBSIZE")), (RECORDS as i64, 0)),
        reply => {
            refused(reply, TOO_LARGE);
            assert_eq!(w.int("DBSIZE"), RECORDS as i64, "no part of it may be applied");
        }
    }
}

#[test]
fn many_members_in_one_command() {
    let Some(mut w) = world("many members") else { return };
    let many = many();
    assert_eq!(w.run(&["SADD", "s"], members(many)), Value::Int(many as i64));
    assert_eq!(w.int("SCARD s"), many as i64);
    let mut all: Vec<Vec<u8>> = match w.line("SMEMBERS s") {
        Value::Array(found) => found.iter().map(|m| m.bytes().unwrap().to_vec()).collect(),
        other => panic!("{other:?}"),
    };
    all.sort_unstable();
    assert!(all == members(many).collect::<Vec<_>>(), "each member must be stored once");
    assert_eq!(w.line("SINTER s s").items().unwrap().len(), many);
    match w.run(&["SMISMEMBER", "s"], members(many)) {
        Value::Array(found) => assert!(found.len() == many && found.iter().all(|m| *m == Value::Int(1))),
        reply => refused(reply, "limit 5 s"),
    }
    for (line, more) in [("SREM s", members(many).collect()), ("SPOP s 100000", Vec::new())] {
        let words: Vec<&str> = line.split(' ').collect();
        let before = w.int("SCARD s");
        match w.run(&words, more) {
            Value::Int(n) => assert_eq!((n, w.int("EXISTS s")), (before, 0)),
            Value::Array(popped) => assert_eq!(popped.len() as i64 + w.int("SCARD s"), before),
            reply => {
                refused(reply, TOO_LARGE);
                assert_eq!(w.int("SCARD s"), before, "no part of it may be applied");
            }
        }
    }
    w.line("DEL s");
    assert_eq!(w.int("EXISTS s"), 0);
}

/// Adds entries 1-0, 2-0 and so on.
const ADD: &str =
    "local from=redis.call('XLEN','k') for n=from+1,from+5000 do redis.call('XADD','k',n..'-0','a','b') end";

#[test]
fn many_entries_in_one_command() {
    let Some(mut w) = world("many entries of a stream") else { return };
    const MANY: usize = 40_000;
    (0..MANY / 5000).for_each(|_| assert!(matches!(w.run(&["EVAL", ADD, "0"], []), Value::Nil(_))));
    w.line("XGROUP CREATE k g 0");
    let mut delivered = 0;
    while delivered < MANY {
        let reply = w.line("XREADGROUP GROUP g ann COUNT 16384 STREAMS k >");
        let some = reply.items().unwrap()[0].items().unwrap()[1].items().unwrap().len();
        assert!((7_500..=16_384).contains(&some) || delivered + some == MANY, "{some} behind {delivered}");
        delivered += some;
    }
    let (mut claimed, mut from) = (0, "0-0".to_owned());
    while claimed < MANY {
        let reply = w.line(&format!("XAUTOCLAIM k g bob 0 {from} COUNT 16384 JUSTID"));
        let parts = reply.items().unwrap_or_else(|| panic!("{reply:?}"));
        claimed += parts[1].items().unwrap().len();
        from = String::from_utf8(parts[0].bytes().unwrap().to_vec()).unwrap();
    }
    let ids = |n: usize| (1..=n).map(|n| n.to_string().into_bytes());
    refused(w.run(&["XACK", "k", "g"], ids(20_000)), TOO_LARGE);
    assert_eq!(w.run(&["XACK", "k", "g"], ids(15_000)), Value::Int(15_000), "none was acknowledged before");
}
