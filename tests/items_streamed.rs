//! Replies of many fields of a hash, elements of a list or entries of a stream are read while they are sent: the server holds a bounded
//! part, whatever the client does, and the reply is the value as it was when the command ran.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;
use support::pace::slowest_get;
use support::reader::Reader;
use support::resp::{Client, Value};
use support::server::{Server, tern};

/// Fields of a hash whose reply exceeds the kernel's socket buffers.
const MANY: usize = 200_000;
/// Longer than a transaction lives.
const LONG: Duration = Duration::from_secs(7);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn field(n: usize) -> String {
    format!("user:{n:024x}/session")
}

fn value(n: usize) -> String {
    format!("{{\"n\":{n},\"seen\":\"{:0>30}\"}}", n * 7)
}

fn model(range: std::ops::Range<usize>) -> Model {
    range.map(|n| (field(n).into_bytes(), value(n).into_bytes())).collect()
}

fn fill(client: &mut Client, key: &str, range: std::ops::Range<usize>) {
    for from in range.clone().step_by(10_000) {
        let pairs = (from..range.end.min(from + 10_000)).flat_map(|n| [field(n), value(n)]);
        let argv: Vec<String> = ["HSET", key].map(String::from).into_iter().chain(pairs).collect();
        client.run(&argv);
    }
    assert_eq!(client.line(&format!("HLEN {key}")), Value::Int(range.len() as i64));
}

fn filled() -> (Server, Client) {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    fill(&mut client, "h", 0..MANY);
    (tern, client)
}

fn hash(reader: &mut Reader, kind: char) -> Model {
    let strings = reader.strings(kind);
    let found: Model = strings.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(found.len() * 2, strings.len(), "fields are distinct");
    found
}

#[test]
fn a_reader_that_waits_costs_little_while_nothing_changes() {
    let (tern, mut client) = filled();
    let before = tern.resident();
    let mut readers: Vec<Reader> = (0..3).map(|_| Reader::new(tern.port)).collect();
    for (reader, line) in readers.iter_mut().zip(["HGETALL h", "HKEYS h", "HVALS h"]) {
        reader.send(line);
    }
    let slowest = slowest_get(&mut client, LONG);
    let grown = tern.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for three readers of {} bytes", MANY * 100);
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let wanted = model(0..MANY);
    assert!(hash(&mut readers[0], '*') == wanted);
    let (mut keys, mut values) = (readers[1].strings('*'), readers[2].strings('*'));
    keys.sort();
    values.sort();
    assert!(keys.into_iter().eq(wanted.keys().cloned()));
    let mut all: Vec<Vec<u8>> = wanted.into_values().collect();
    all.sort();
    assert!(values == all);
}

/// The rest of a hash that changes is read from one transaction, which lives for five seconds: a hash of [`MANY`] fields
/// takes a slow machine longer (then the connection ends, as `types::items` says), one of long values does not.
#[test]
fn a_reply_is_the_hash_as_it_was() {
    const FIELDS: usize = 5000;
    let long = |n: usize| value(n).repeat(80);
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    for from in (0..FIELDS).step_by(1000) {
        let pairs = (from..from + 1000).flat_map(|n| [field(n), long(n)]);
        client.run(&["HSET", "h"].map(String::from).into_iter().chain(pairs).collect::<Vec<_>>());
    }
    let mut readers: Vec<Reader> = (0..3).map(|_| Reader::new(tern.port)).collect();
    readers.iter_mut().for_each(|reader| reader.send("HGETALL h"));
    std::thread::sleep(Duration::from_millis(200));
    let some = (0..500).flat_map(|n| [field(n), "changed".into()]);
    client.run(&["HSET", "h"].map(String::from).into_iter().chain(some).collect::<Vec<_>>());
    let some = (FIELDS - 500..FIELDS).map(field);
    client.run(&["HDEL", "h"].map(String::from).into_iter().chain(some).collect::<Vec<_>>());
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.line("HLEN h"), Value::Int(FIELDS as i64 - 500));
    assert_eq!(client.line("DEL h"), Value::Int(1));
    assert_eq!(client.line("FLUSHALL"), Value::Simple(b"OK".to_vec()));
    let wanted: Model = (0..FIELDS).map(|n| (field(n).into_bytes(), long(n).into_bytes())).collect();
    for reader in &mut readers {
        assert!(hash(reader, '*') == wanted);
    }
    assert_eq!(client.line("HGETALL h"), Value::Array(Vec::new()));
}

#[test]
fn replies_keep_their_order_and_their_kind() {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    fill(&mut client, "h", 0..5000);
    fill(&mut client, "few", 0..3);
    let mut reader = Reader::new(tern.port);
    for line in ["PING", "HGETALL h", "HKEYS h", "PING", "HVALS h", "HGETALL few", "MULTI", "HGETALL h"] {
        reader.send(line);
    }
    for line in ["HDEL few x", "HKEYS h", "HSET h new x", "HKEYS h", "EXEC", "PING"] {
        reader.send(line);
    }
    assert_eq!(reader.line(), "+PONG");
    assert!(hash(&mut reader, '*') == model(0..5000));
    assert_eq!(reader.strings('*').len(), 5000);
    assert_eq!(reader.line(), "+PONG");
    assert_eq!(reader.strings('*').len(), 5000);
    assert!(hash(&mut reader, '*') == model(0..3));
    for want in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "*5"] {
        assert_eq!(reader.line(), want);
    }
    assert!(hash(&mut reader, '*') == model(0..5000));
    assert_eq!(reader.line(), ":0");
    assert_eq!(reader.strings('*').len(), 5000);
    assert_eq!(reader.line(), ":1");
    assert_eq!(reader.strings('*').len(), 5001);
    assert_eq!(reader.line(), "+PONG");
    client.line("HELLO 3");
    assert!(matches!(client.line("HGETALL h"), Value::Map(items) if items.len() == 10_002));
    assert!(matches!(client.line("HGETALL none"), Value::Map(items) if items.is_empty()));
    assert!(matches!(client.line("HRANDFIELD few 2 WITHVALUES"), Value::Array(items) if items.len() == 2));
    // Under an id they are kept, up to the limit.
    let once = "IDEMPOTENT 0123456789abcdef HGETALL h";
    let first = client.line(once);
    assert!(matches!(&first, Value::Map(items) if items.len() == 10_002));
    client.line("DEL h");
    assert_eq!(client.line(once), first);
    fill(&mut client, "h", 0..100_000);
    let refused = client.line("IDEMPOTENT fedcba9876543210 HGETALL h");
    assert!(matches!(&refused, Value::Error(e) if e.starts_with(b"ERR reply of 8")), "{refused:?}");
}

#[test]
fn long_values_are_sent_whole() {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    let values: Vec<String> = (0..20).map(|n| "v".repeat(n * 40_000)).collect();
    for (n, value) in values.iter().enumerate() {
        client.run(&["HSET", "h", &n.to_string(), value]);
    }
    let mut reader = Reader::new(tern.port);
    reader.send("HGETALL h");
    let found = hash(&mut reader, '*');
    assert_eq!(found.len(), 20);
    assert!(values.iter().enumerate().all(|(n, v)| found[n.to_string().as_bytes()] == v.as_bytes()));
    reader.send("HKEYS h");
    assert_eq!(reader.strings('*').len(), 20);
}

fn element(n: usize) -> String {
    format!("element:{n:0>60}")
}

fn with_list() -> (Server, Client) {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    for from in (0..MANY).step_by(10_000) {
        let elements = (from..from + 10_000).map(element);
        client.run(&["RPUSH", "l"].map(String::from).into_iter().chain(elements).collect::<Vec<_>>());
    }
    assert_eq!(client.line("LLEN l"), Value::Int(MANY as i64));
    (tern, client)
}

fn are(strings: &[Vec<u8>], mut wanted: impl Iterator<Item = usize>) -> bool {
    strings.iter().all(|found| wanted.next().is_some_and(|n| *found == element(n).into_bytes()))
        && wanted.next().is_none()
}

#[test]
fn elements_that_nobody_reads_cost_little() {
    let (tern, mut client) = with_list();
    let before = tern.resident();
    let mut readers: Vec<Reader> = (0..4).map(|_| Reader::new(tern.port)).collect();
    readers.iter_mut().for_each(|reader| reader.send("LRANGE l 1 -2"));
    std::thread::sleep(LONG);
    let grown = tern.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for four readers of {} bytes", MANY * 70);
    for reader in &mut readers[..2] {
        assert!(are(&reader.strings('*'), 1..MANY - 1));
    }
    // Those are the elements as they were.
    for line in ["LPUSH l new", "LSET l 100000 changed", "LTRIM l 5 -5", "RPOP l 1000"] {
        assert!(!matches!(client.line(line), Value::Error(_)), "{line}");
    }
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.line("DEL l"), Value::Int(1));
    assert_eq!(client.line("FLUSHALL"), Value::Simple(b"OK".to_vec()));
    for reader in &mut readers[2..] {
        assert!(are(&reader.strings('*'), 1..MANY - 1));
    }
}

#[test]
fn ranges_of_a_list() {
    let (tern, mut client) = with_list();
    let mut reader = Reader::new(tern.port);
    let last = MANY as i64;
    for (start, stop) in
        [(0, -1), (5, 4000), (100_000, 100_001), (-5000, -1000), (last - 1, last), (7, 6), (last, -1)]
    {
        reader.send(&format!("LRANGE l {start} {stop}"));
        let at = |n: i64| (if n < 0 { n + last } else { n }).clamp(0, last) as usize;
        let from = at(start);
        assert!(are(&reader.strings('*'), from..(at(stop) + 1).min(MANY).max(from)), "{start} {stop}");
    }
    for line in
        ["MULTI", "LRANGE l 0 -1", "LPUSH l first", "LRANGE l 0 -2", "RPOP l", "LRANGE l 0 4000", "EXEC"]
    {
        reader.send(line);
    }
    for want in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "*5"] {
        assert_eq!(reader.line(), want);
    }
    assert!(are(&reader.strings('*'), 0..MANY));
    assert_eq!(reader.line(), format!(":{}", MANY + 1));
    let changed = reader.strings('*');
    assert!(changed[0] == b"first" && are(&changed[1..], 0..MANY - 1));
    assert_eq!(reader.bulk(), element(MANY - 1).into_bytes());
    assert_eq!(reader.strings('*').len(), 4001);
    // Long elements, and an element that is longer than a piece.
    let long: Vec<String> = (0..20).map(|n| "v".repeat(n * 40_000)).collect();
    client.run(&["RPUSH", "long"].map(String::from).into_iter().chain(long.clone()).collect::<Vec<_>>());
    reader.send("LRANGE long 0 -1");
    assert!(reader.strings('*').iter().zip(&long).all(|(found, wanted)| found == wanted.as_bytes()));
    // Under an id they are kept, up to the limit.
    let once = "IDEMPOTENT 0123456789abcdef LRANGE l 0 2000";
    let first = client.line(once);
    assert!(matches!(&first, Value::Array(items) if items.len() == 2001));
    let refused = client.line("IDEMPOTENT fedcba9876543210 LRANGE l 0 -1");
    assert!(matches!(&refused, Value::Error(e) if e.starts_with(b"ERR reply of 8")), "{refused:?}");
    client.line("DEL l");
    assert_eq!(client.line(once), first);
}

/// XSETID may give a stream any number of entries ever added: it does not make up for one that was deleted.
#[test]
fn entries_of_a_stream_are_sent_as_they_were() {
    const ENTRIES: usize = 10_000;
    let tern = tern(&["--appendfsync", "no"]);
    let (mut client, mut reader) = (tern.client(), tern.client());
    let long = "x".repeat(2000);
    for n in 1..=ENTRIES {
        client.send(&["XADD", "k", &format!("{n}-0"), "f", &long]).unwrap();
        if n % 1000 == 0 {
            (0..1000).for_each(|_| assert!(!client.read().unwrap().value.is_error()));
        }
    }
    reader.send(&["XRANGE", "k", "-", "+"]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    for line in [
        format!("XDEL k {}-0", ENTRIES - 1),
        format!("XSETID k {ENTRIES}-0 ENTRIESADDED {}", ENTRIES - 1),
        format!("XADD k {ENTRIES}-1 f v"),
    ] {
        assert!(!client.line(&line).is_error(), "{line}");
    }
    std::thread::sleep(Duration::from_millis(2500));
    let reply = reader.read().unwrap().value;
    let ids: Vec<_> = reply.items().unwrap().iter().map(|entry| entry.items().unwrap()[0].clone()).collect();
    let wanted: Vec<_> = (1..=ENTRIES).map(|n| Value::Bulk(format!("{n}-0").into_bytes())).collect();
    assert!(ids == wanted, "{} entries", ids.len());
}
