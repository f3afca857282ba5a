//! Replies of many members are read while they are sent: the server holds a bounded part, whatever the client
//! does, and the reply is the set as it was when the command ran.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use bytes::Bytes;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::reader::Reader;
use support::resp::{Client, Value};
use support::server::{Server, tern};
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings};
use tern::env::{Clock, Env};
use tern::exec::Executor;
use tern::keyspace::dictionary::ids::FIRST_INTEGER;
use tern::keyspace::keys::root;

use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, RangeOptions, Read as Reading, Store};

fn member(n: usize) -> String {
    format!("at://did:plc:{n:024x}/app.bsky.feed.like/{n:013x}")
}

fn fill(client: &mut Client, key: &str, members: impl Iterator<Item = String>) {
    let members: Vec<String> = members.collect();
    for some in members.chunks(20_000) {
        let argv = ["SADD", key].into_iter().chain(some.iter().map(String::as_str));
        assert_eq!(client.run(&argv.collect::<Vec<_>>()).value, Value::Int(some.len() as i64));
    }
}

fn members(reader: &mut Reader, kind: char) -> BTreeSet<Vec<u8>> {
    let members = reader.strings(kind);
    let distinct: BTreeSet<Vec<u8>> = members.iter().cloned().collect();
    assert_eq!(distinct.len(), members.len(), "members are distinct");
    distinct
}

fn wanted(range: std::ops::Range<usize>) -> BTreeSet<Vec<u8>> {
    range.map(|n| member(n).into_bytes()).collect()
}

fn streams(client: &mut Client) -> u64 {
    let info = client.line("INFO tern");
    let info = String::from_utf8_lossy(info.bytes().unwrap()).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix("replies_sending:")).unwrap();
    line.parse().unwrap()
}

fn wait_for_streams(client: &mut Client, want: u64) {
    let since = Instant::now();
    while streams(client) != want {
        assert!(since.elapsed() < Duration::from_secs(20), "not {want} streams");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Members of a set whose reply exceeds the kernel's socket buffers.
const MANY: usize = 300_000;

fn with_large_set() -> (Server, Client) {
    let tern = tern(&[]);
    let mut client = tern.client();
    fill(&mut client, "s", (0..MANY).map(member));
    (tern, client)
}

#[test]
fn a_reader_that_waits_costs_little_and_gets_the_set_as_it_was() {
    let (tern, mut client) = with_large_set();
    assert_eq!(client.line("SET k v"), Value::Simple(b"OK".to_vec()));
    let before = tern.resident();
    let mut readers: Vec<Reader> = (0..3).map(|_| Reader::new(tern.port)).collect();
    readers.iter_mut().for_each(|reader| reader.send("SMEMBERS s"));
    wait_for_streams(&mut client, 3);
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let asked = Instant::now();
        assert_eq!(client.line("GET k"), Value::Bulk(b"v".to_vec()));
        slowest = slowest.max(asked.elapsed());
    }
    let grown = tern.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for three readers of {} bytes each", MANY * 76);
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // Changes of the set meanwhile do not affect their replies.
    let some: Vec<String> = (0..1000).map(member).collect();
    let argv: Vec<&str> = ["SREM", "s"].into_iter().chain(some.iter().map(String::as_str)).collect();
    assert_eq!(client.run(&argv).value, Value::Int(1000));
    assert_eq!(client.line("DEL s"), Value::Int(1));
    assert_eq!(client.line("FLUSHALL"), Value::Simple(b"OK".to_vec()));
    for reader in &mut readers {
        assert!(members(reader, '*') == wanted(0..MANY));
    }
    wait_for_streams(&mut client, 0);
}

#[test]
fn others_are_served_between_the_pieces_of_a_large_reply() {
    let tern = tern(&["--io-threads", "1"]);
    let mut client = tern.client();
    fill(&mut client, "s", (0..MANY).map(member));
    let mut reader = Reader::new(tern.port);
    // It reads without delay, so that the server never waits for it.
    let taken = std::thread::spawn(move || {
        reader.send("SMEMBERS s");
        let (mut left, mut bytes) = (MANY * 76, vec![0; 1 << 20]);
        while left > 0 {
            let n = reader.stream().read(&mut bytes).unwrap();
            assert!(n > 0, "the reply ends {left} bytes early");
            left = left.saturating_sub(n);
        }
    });
    let mut served = 0;
    while !taken.is_finished() {
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        served += 1;
    }
    taken.join().unwrap();
    // A piece is 64 KiB, so there are 350; without a pause between two of them some 128 are sent at a time, and others are
    // served three times.
    assert!(served > 10, "served {served} times");
}

#[test]
fn a_reader_that_leaves_or_is_killed_leaves_nothing() {
    let (tern, mut client) = with_large_set();
    let mut leaves = Reader::new(tern.port);
    leaves.send("SMEMBERS s");
    let mut killed = Reader::new(tern.port);
    killed.send("CLIENT ID");
    let id = killed.line();
    killed.send("SUNION s s");
    wait_for_streams(&mut client, 2);
    drop(leaves);
    wait_for_streams(&mut client, 1);
    assert_eq!(client.line(&format!("CLIENT KILL ID {}", &id[1..])), Value::Int(1));
    wait_for_streams(&mut client, 0);
    let mut rest = Vec::new();
    let _ = killed.stream().read_to_end(&mut rest);
    assert!(rest.len() < MANY * 76, "the reply must be cut off");
}

#[test]
fn replies_keep_their_order_and_their_kind() {
    let tern = tern(&[]);
    let mut client = tern.client();
    fill(&mut client, "a", (0..3000).map(member));
    fill(&mut client, "b", (1000..5000).map(member));
    fill(&mut client, "n", (0..2000).map(|n| n.to_string()));
    let mut reader = Reader::new(tern.port);
    for line in ["PING", "SMEMBERS a", "PING", "SINTER a b", "SUNION a b", "SDIFF a b", "SMEMBERS n", "PING"]
    {
        reader.send(line);
    }
    assert_eq!(reader.line(), "+PONG");
    assert!(members(&mut reader, '*') == wanted(0..3000));
    assert_eq!(reader.line(), "+PONG");
    assert!(members(&mut reader, '*') == wanted(1000..3000));
    assert!(members(&mut reader, '*') == wanted(0..5000));
    assert!(members(&mut reader, '*') == wanted(0..1000));
    assert!(members(&mut reader, '*') == (0..2000).map(|n| n.to_string().into_bytes()).collect());
    assert_eq!(reader.line(), "+PONG");
    // Words and integers, some of them not interned.
    reader.send("SADD few 7 word");
    reader.send("SUNION a n few");
    assert_eq!(reader.line(), ":2");
    let mut all = wanted(0..3000);
    all.extend((0..2000).map(|n| n.to_string().into_bytes()).chain([b"word".to_vec()]));
    assert!(members(&mut reader, '*') == all);
    for line in
        ["CLIENT REPLY SKIP", "SMEMBERS a", "PING", "MULTI", "SMEMBERS a", "PING", "SINTER a b", "EXEC"]
    {
        reader.send(line);
    }
    for want in ["+PONG", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3"] {
        assert_eq!(reader.line(), want);
    }
    assert!(members(&mut reader, '*') == wanted(0..3000));
    assert_eq!(reader.line(), "+PONG");
    assert!(members(&mut reader, '*') == wanted(1000..3000));
    let mut client = tern.client();
    client.line("HELLO 3");
    assert!(matches!(client.line("SMEMBERS a"), Value::Set(items) if items.len() == 3000));
    wait_for_streams(&mut client, 0);
}

/// Members drawn by SRANDMEMBER and SPOP are also read as they are sent, in the order of the draws.
#[test]
fn drawn_members_are_read_as_they_are_sent() {
    let tern = tern(&[]);
    let mut client = tern.client();
    fill(&mut client, "s", (0..20_000).map(member));
    fill(&mut client, "few", (0..3).map(member));
    fill(&mut client, "n", (0..5_000).map(|n| n.to_string()));
    let mut reader = Reader::new(tern.port);
    let all = |reader: &mut Reader, kind: char| -> Vec<Vec<u8>> {
        let head = reader.line();
        let n: usize = head.strip_prefix(kind).unwrap_or_else(|| panic!("{head}")).parse().unwrap();
        (0..n).map(|_| reader.bulk()).collect()
    };
    let distinct = |members: &[Vec<u8>]| members.iter().cloned().collect::<BTreeSet<_>>();
    reader.send("HELLO 3");
    while !reader.line().ends_with("modules") {}
    assert_eq!(reader.line(), "*0");
    for (line, n, from, least) in [
        ("SRANDMEMBER s -100000", 100_000, wanted(0..20_000), 19_000),
        ("SRANDMEMBER s -300", 300, wanted(0..20_000), 200),
        ("SRANDMEMBER few -70000", 70_000, wanted(0..3), 3),
        ("SRANDMEMBER n -70000", 70_000, (0..5_000).map(|n| n.to_string().into_bytes()).collect(), 4_900),
        ("SRANDMEMBER s 15000", 15_000, wanted(0..20_000), 15_000),
        ("SRANDMEMBER s 300", 300, wanted(0..20_000), 300),
        ("SRANDMEMBER s 50000", 20_000, wanted(0..20_000), 20_000),
    ] {
        reader.send(line);
        let found = all(&mut reader, '*');
        assert_eq!(found.len(), n, "{line}");
        let seen = distinct(&found);
        assert!(seen.len() >= least && seen.is_subset(&from), "{line}: {} different ones", seen.len());
    }
    for (line, n) in [("SPOP s 7000", 7_000), ("SPOP s 500", 500), ("SPOP s 100000", 12_500)] {
        let before = distinct(&{
            reader.send("SMEMBERS s");
            all(&mut reader, '~')
        });
        reader.send(line);
        let popped = all(&mut reader, '~');
        assert!(popped.len() == n && distinct(&popped).len() == n, "{line}: {}", popped.len());
        reader.send("SMEMBERS s");
        let left = distinct(&all(&mut reader, '~'));
        assert!(before == left.union(&distinct(&popped)).cloned().collect(), "{line}");
    }
    // Under an id they are kept, up to the limit.
    reader.send("SADD k a b c");
    assert_eq!(reader.line(), ":3");
    reader.send("IDEMPOTENT id-of-sixteen-bytes SRANDMEMBER k -1000");
    let first = all(&mut reader, '*');
    reader.send("IDEMPOTENT id-of-sixteen-bytes SRANDMEMBER k -1000");
    assert!(first.len() == 1000 && all(&mut reader, '*') == first);
    wait_for_streams(&mut client, 0);
}

#[test]
fn under_an_id_the_members_are_kept() {
    let tern = tern(&[]);
    let mut client = tern.client();
    fill(&mut client, "s", (0..3000).map(member));
    let mut reader = Reader::new(tern.port);
    let once = "IDEMPOTENT 0123456789abcdef SMEMBERS s";
    reader.send(once);
    let first = members(&mut reader, '*');
    assert!(first == wanted(0..3000));
    for line in ["MULTI", "SMEMBERS s", "IDEMPOTENT exec-456789abcdef EXEC"] {
        reader.send(line);
    }
    for want in ["+OK", "+QUEUED", "*1"] {
        assert_eq!(reader.line(), want);
    }
    assert!(members(&mut reader, '*') == first);
    assert_eq!(client.line("DEL s"), Value::Int(1));
    reader.send(once);
    assert!(members(&mut reader, '*') == first);
    // A reply too large to be kept is refused before all of it is read.
    fill(&mut client, "s", (0..130_000).map(member));
    let refused = client.line("IDEMPOTENT fedcba9876543210 SMEMBERS s");
    assert!(matches!(&refused, Value::Error(e) if e.starts_with(b"ERR reply of 8")), "{refused:?}");
}

/// A server in this process, on a store that the test can make fail.
struct Inside {
    runtime: tokio::runtime::Runtime,
    store: Store,
    faults: Faulty,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Inside {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new(Clock::System);
        options.fsync = Fsync::No;
        let entered = runtime.enter();
        let store = Store::Local(Local::open(dir.path(), options).unwrap());
        drop(entered);
        let faults = Faulty::new(store.clone(), 7, FaultRates::default());
        let settings = Settings { bind: vec!["127.0.0.1".into()], ..Settings::default() };
        let faulty = Store::Faulty(faults.clone());
        let port = runtime.block_on(async {
            let listener = tern::net::listen(&settings, 0).await.unwrap();
            let port = listener.addresses()[0].port();
            let server =
                tern::server::Server::open(table(), faulty, Env::system(), ConfigStore::new(settings))
                    .await
                    .unwrap();
            tokio::spawn(tern::net::serve(listener, Arc::new(Executor::new(Arc::new(server)))));
            port
        });
        Inside { runtime, store, faults, port, _dir: dir }
    }
}

#[test]
fn a_store_that_fails_now_and_then_is_asked_again() {
    let inside = Inside::new();
    let mut client = Client::connect(inside.port).unwrap();
    fill(&mut client, "s", (0..20_000).map(member));
    inside.faults.set_rates(FaultRates { too_old_read: 0.05, ..FaultRates::default() });
    let mut reader = Reader::new(inside.port);
    for _ in 0..5 {
        reader.send("SMEMBERS s");
        assert!(members(&mut reader, '*') == wanted(0..20_000));
    }
}

/// A reply that has begun cannot become an error: no client may take its beginning for the whole set.
#[test]
fn a_reply_that_cannot_be_ended_ends_the_connection() {
    let inside = Inside::new();
    let mut client = Client::connect(inside.port).unwrap();
    fill(&mut client, "s", (0..20_000).map(member));
    inside.runtime.block_on(async {
        let tx = inside.store.begin();
        let (begin, end) = (root::member(0), root::member(FIRST_INTEGER));
        let rows = tx.get_range(&begin, &end, RangeOptions::default(), Reading::Snapshot).await.unwrap();
        let keys: Vec<Bytes> = rows.pairs.into_iter().map(|(key, _)| key).collect();
        assert!((20_000 / 16..20_000).contains(&keys.len()), "{} rows", keys.len());
        tx.clear(&keys[keys.len() / 4 * 3]).unwrap();
        tx.commit().await.unwrap();
    });
    client.send(&["SMEMBERS", "s"]).unwrap();
    let (came, closed) = client.drain();
    assert!(closed && came.starts_with(b"*20000\r\n") && !came.ends_with(b"corrupt"), "{}", came.len());
    assert!((500_000..1_500_000).contains(&came.len()), "{}", came.len());
    let mut client = Client::connect(inside.port).unwrap();
    assert_eq!(client.line("SCARD s"), Value::Int(20_000));
}
