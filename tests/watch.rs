//! Hazard: an EXEC runs though a watched key has changed, because the key was absent at WATCH, came and went:
//! a job runs twice.
//!
//! Such a key leaves nothing to compare but its ghost (`lifecycle::watched`). The tests run on one server and
//! on several that share a store; only WATCH and EXEC see a ghost, and ghosts are removed once no client
//! watches them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod support;

use bytes::Bytes;
use cluster::{Cluster, units};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, redis, tern};
use tern::env::Env;
use tern::exec::{Unit, Watched};
use tern::keyspace::keys::SHARDS;
use tern::lifecycle::watched::{self, LIFE};
use tern::server::reply::{Reply, Shape};

fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

async fn watch(c: &Cluster, server: usize, name: &str) -> Vec<Watched> {
    c.members[server].exec.watch(0, &[key(name)]).await.unwrap()
}

/// The replies of an EXEC; None if a watched key has changed.
async fn exec(c: &Cluster, server: usize, watches: Vec<Watched>, line: &str) -> Option<Vec<Reply>> {
    let unit = Unit { watches, exec: true, ..units::pipeline(&[line]) };
    c.members[server].exec.run(unit).await.replies
}

/// Two servers on one store, with one clock.
async fn two() -> Cluster {
    let mut c = Cluster::empty();
    let env = Env::seeded(cluster::START, 7);
    c.join(env.clone()).await;
    c.join(env).await;
    c
}

/// As in Redis, an LTRIM that removes nothing is a change, and an LREM is none.
#[tokio::test]
async fn changes_of_lists() {
    let c = two().await;
    let many = (0..1000).fold("RPUSH job".to_owned(), |line, n| format!("{line} element:{n}"));
    for push in ["RPUSH job a b", &many] {
        c.line(1, push).await;
        for (line, changes) in [
            ("LTRIM job 0 -1", true),
            ("LREM job 0 none", false),
            ("LINSERT job BEFORE none x", false),
            ("LPUSHX other x", false),
            ("LMOVE job job LEFT RIGHT", true),
            ("LMOVE other job LEFT RIGHT", false),
            ("LSET job 0 a", true),
            ("LPOP job 0", false),
            ("SORT job ALPHA", false),
            ("RPOP job", true),
        ] {
            let watches = watch(&c, 0, "job").await;
            c.line(1, line).await;
            assert_eq!(exec(&c, 0, watches, "PING").await.is_none(), changes, "{line}");
        }
    }
}

#[tokio::test]
async fn a_key_that_came_and_went_aborts_the_exec() {
    let c = two().await;
    for by in 0..2 {
        for lines in [
            &["SET job 1", "DEL job"][..],
            &["SADD job a", "SREM job a"],
            &["HSET job a 1", "HDEL job a"],
            &["RPUSH job a", "LPOP job"],
            &["SET job 1 PX 5", "advance"],
            &["SET job 1 PXAT 1"],
            &["SET other 1", "RENAME other job", "RENAME job other"],
            &["SET other 1", "COPY other job", "GETDEL job"],
            &["SET job 1", "FLUSHDB"],
            &["SET job 1", "SWAPDB 0 1"],
            &["SWAPDB 0 1", "SET job 1", "DEL job"],
            &["SET job 1", "DEL job", "SWAPDB 0 1", "SWAPDB 0 1"],
            &["SINTERSTORE s s", "SADD s 1", "SUNIONSTORE job s", "DEL job"],
        ] {
            c.line(0, "FLUSHALL").await;
            let watches = watch(&c, 0, "job").await;
            for line in lines {
                match *line {
                    "advance" => c.advance(Duration::from_millis(10)),
                    line => assert!(!matches!(c.line(by, line).await, Reply::Error(_)), "{line}"),
                }
            }
            assert_eq!(c.line(0, "EXISTS job").await, Reply::Int(0), "{lines:?}");
            assert_eq!(exec(&c, 0, watches, "INCR n").await, None, "server {by}: {lines:?}");
            c.assert_sound().await;
        }
    }
}

/// Two SWAPDBs restore rows, including revisions and ghosts; the watched state has been elsewhere meanwhile.
#[tokio::test]
async fn a_database_that_comes_back_brings_no_watched_state_back() {
    let c = two().await;
    for by in 0..2 {
        for (before, lines) in [
            (None, &["SWAPDB 0 1", "SET job 1", "DEL job", "SWAPDB 0 1"][..]),
            (None, &["SWAPDB 0 2", "SWAPDB 1 0", "SET job 1", "DEL job", "SWAPDB 0 1", "SWAPDB 2 0"]),
            (Some("SET job 1"), &["SWAPDB 0 1", "SWAPDB 1 0"]),
            (Some("SET job 1"), &["SWAPDB 0 1", "SET job 2", "SWAPDB 0 1"]),
        ] {
            c.line(0, "FLUSHALL").await;
            if let Some(line) = before {
                c.line(0, line).await;
            }
            let watches = watch(&c, 0, "job").await;
            for line in lines {
                assert!(!matches!(c.line(by, line).await, Reply::Error(_)), "{line}");
            }
            // A later WATCH finds a useless ghost, and leaves one of its own.
            let later = watch(&c, 1, "job").await;
            assert_eq!(exec(&c, 0, watches, "INCR n").await, None, "server {by}: {lines:?}");
            assert!(exec(&c, 1, later, "INCR n").await.is_some(), "server {by}: {lines:?}");
            c.assert_sound().await;
        }
    }
}

/// The expiry job may be a second behind: WATCH finds the row, removes it, and publishes the expiry.
#[tokio::test]
async fn watching_an_expired_key_publishes_its_expiry_first() {
    let tern = tern(&["--notify-keyspace-events", "KEA", "--enable-debug-command", "yes"]);
    let (mut client, mut listener) = (tern.client(), tern.client());
    assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::Simple(b"OK".to_vec()));
    listener.line("SUBSCRIBE __keyevent@0__:expired");
    client.line("SET job 1 PX 5");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.line("WATCH job"), Value::Simple(b"OK".to_vec()));
    let message = listener.read().unwrap().value;
    let bulk = |s: &str| Value::Bulk(s.as_bytes().to_vec());
    assert_eq!(message, Value::Array(vec![bulk("message"), bulk("__keyevent@0__:expired"), bulk("job")]));
}

#[tokio::test]
async fn commands_that_do_not_create_the_key_do_not_abort() {
    let c = two().await;
    let nothing: &[&str] = &[];
    for (by, lines) in [
        (0, nothing),
        (0, &["DEL job", "SET job 1 XX", "PERSIST job", "SREM job a", "GET job", "KEYS *", "EXISTS job"]),
        (1, &["DEL job", "SET job 1 XX", "PERSIST job", "SREM job a", "GET job", "SET other 1", "DBSIZE"]),
        (0, &["FLUSHDB"]),
        (0, &["FLUSHALL"]),
        (0, &["SWAPDB 0 1"]),
        (0, &["SWAPDB 0 1", "SWAPDB 1 0", "FLUSHDB"]),
    ] {
        let watches = watch(&c, 0, "job").await;
        let again = watch(&c, 1, "job").await;
        for line in lines {
            c.line(by, line).await;
        }
        assert!(exec(&c, 0, watches, "INCR n").await.is_some(), "server {by}: {lines:?}");
        let flushed = lines.iter().any(|line| line.starts_with("FLUSH") || line.starts_with("SWAP"));
        // The ghosts that others rely on stay behind.
        assert!(exec(&c, 1, again, "INCR n").await.is_some() || flushed, "server {by}: {lines:?}");
        c.assert_sound().await;
    }
}

#[tokio::test]
async fn a_key_past_its_time_is_watched_as_absent() {
    let c = two().await;
    for change in [None, Some("SET job 2"), Some("SETNX job 2")] {
        c.line(0, "SET job 1 PX 5").await;
        c.advance(Duration::from_millis(10));
        let watches = watch(&c, 0, "job").await;
        if let Some(line) = change {
            c.line(1, line).await;
            c.line(1, "DEL job").await;
        }
        let ran = exec(&c, 0, watches, "INCR n").await;
        assert_eq!(ran.is_some(), change.is_none(), "{change:?}");
    }
    // A key that exists at WATCH and has expired at EXEC has changed, as in Redis.
    c.line(0, "SET job 1 PX 5").await;
    let watches = watch(&c, 0, "job").await;
    c.advance(Duration::from_millis(10));
    assert_eq!(exec(&c, 0, watches, "INCR n").await, None);
    c.assert_sound().await;
}

#[tokio::test]
async fn ghosts_are_invisible() {
    let c = two().await;
    let _watches = watch(&c, 0, "job").await;
    for (line, reply) in [
        ("EXISTS job", Reply::Int(0)),
        ("GET job", Reply::Nil),
        ("TTL job", Reply::Int(-2)),
        ("DEL job", Reply::Int(0)),
        ("DBSIZE", Reply::Int(0)),
        ("RANDOMKEY", Reply::Nil),
        ("KEYS *", Reply::Packed(Shape::Single, Default::default())),
        ("TYPE job", Reply::Simple("none".into())),
        ("DUMP job", Reply::Nil),
        ("RENAME job x", c.line(0, "RENAME nothing x").await),
        ("COPY job x", Reply::Int(0)),
        ("MOVE job 1", Reply::Int(0)),
        ("SETNX job v", Reply::Int(1)),
        ("DBSIZE", Reply::Int(1)),
        ("TTL job", Reply::Int(-1)),
    ] {
        assert_eq!(c.line(1, line).await, reply, "{line}");
        c.assert_sound().await;
    }
    let _other = watch(&c, 0, "other").await;
    let Reply::Verbatim(info, _) = c.line(0, "INFO keyspace").await else { panic!() };
    let info = String::from_utf8_lossy(&info).into_owned();
    assert!(info.contains("db0:keys=1,expires=0"), "{info}");
    let Reply::Array(page) = c.line(0, "SCAN 0").await else { panic!() };
    assert_eq!(page[1], Reply::Array(vec![Reply::Bulk(key("job"))]));
}

#[tokio::test]
async fn a_random_key_is_found_among_many_ghosts() {
    let c = two().await;
    let names: Vec<Bytes> = (0..3000).map(|n| key(&format!("job:{n}"))).collect();
    let _watches = c.members[0].exec.watch(0, &names).await.unwrap();
    assert_eq!(c.line(1, "RANDOMKEY").await, Reply::Nil);
    c.line(0, "SET here v").await;
    for _ in 0..5 {
        assert_eq!(c.line(1, "RANDOMKEY").await, Reply::Bulk(key("here")));
    }
}

/// Rows of the expiry index of database 0.
async fn index_rows(c: &Cluster) -> usize {
    let tx = c.store.begin();
    let db = c.space(0).catalog.load(&tx).await.unwrap().prefix(0).unwrap();
    c.keys(&db.expiry_from(0, 0), &db.expiry_from(SHARDS, 0)).await.len()
}

async fn sweep(c: &Cluster) {
    for shard in 0..SHARDS {
        let swept = tern::lifecycle::expire::sweep(c.space(1), 0, shard, 1000, &mut Default::default()).await;
        assert_eq!(swept.unwrap().removed, 0, "a ghost must not expire like a key");
    }
}

#[tokio::test]
async fn a_ghost_lives_only_while_it_is_kept() {
    let c = two().await;
    let watches = watch(&c, 0, "job").await;
    let names = c.space(0).watched_absent.names(None, 9);
    assert_eq!(names, [(0, key("job"))]);
    for _ in 0..5 {
        c.advance(Duration::from_millis(LIFE / 2));
        assert_eq!(watched::renew(c.space(0), &names).await, Ok(1));
        assert_eq!(watched::renew(c.space(0), &names).await, Ok(0), "a fresh ghost must not be renewed");
        sweep(&c).await;
    }
    assert!(exec(&c, 0, watches, "INCR n").await.is_some());
    assert_eq!(c.space(0).watched_absent.names(None, 9), []);
    assert_eq!(index_rows(&c).await, 1);
    c.advance(Duration::from_millis(LIFE + 1));
    sweep(&c).await;
    assert_eq!(index_rows(&c).await, 0);
    // A ghost removed too early aborts the EXEC, and a later one is a different ghost.
    let watches = watch(&c, 0, "job").await;
    c.advance(Duration::from_millis(LIFE + 1));
    sweep(&c).await;
    let _later = watch(&c, 1, "job").await;
    assert_eq!(exec(&c, 0, watches, "INCR n").await, None);
    c.assert_sound().await;
}

#[tokio::test]
async fn an_overlong_name_is_watched_without_effect() {
    let c = two().await;
    let long = "k".repeat(9000);
    let watches = watch(&c, 0, &long).await;
    assert_eq!(index_rows(&c).await, 0);
    assert!(exec(&c, 0, watches, "INCR n").await.is_some());
}

/// WATCH must not miss a write that is waiting for its sync.
fn jobs_done_twice(server: &Server, seconds: u64) -> (u64, u64) {
    let (stop, puts, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let number = |value: Value| match value {
        Value::Int(n) => n as u64,
        other => panic!("{other:?}"),
    };
    let consume = || {
        let mut client: Client = server.client();
        while !stop.load(SeqCst) {
            client.line("WATCH slot");
            if matches!(client.line("GET slot"), Value::Nil(_))
                && client.line("UNWATCH") == Value::Simple(b"OK".to_vec())
            {
                continue;
            }
            client.line("MULTI");
            client.line("INCR done");
            client.line("DEL slot");
            if let Value::Array(_) = client.line("EXEC") {
                done.fetch_add(1, SeqCst);
            }
        }
    };
    let produce = || {
        let mut client: Client = server.client();
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(seconds) {
            if number(client.line("SETNX slot job")) == 1 {
                puts.fetch_add(1, SeqCst);
            }
        }
        while number(client.line("EXISTS slot")) == 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, SeqCst);
    };
    std::thread::scope(|s| {
        s.spawn(consume);
        s.spawn(consume);
        s.spawn(produce);
    });
    (puts.into_inner(), done.into_inner())
}

#[test]
fn no_job_is_done_twice() {
    let control = redis("jobs behind WATCH").map(|redis| jobs_done_twice(&redis, 2));
    let tern = tern(&["--appendfsync", "always"]);
    let (puts, done) = jobs_done_twice(&tern, 4);
    support::say(&format!("watch: {done} of {puts} jobs done; redis-server {control:?}"));
    assert!(puts > 50 && control.is_none_or(|(puts, done)| puts == done));
    assert_eq!(done, puts, "no job may run twice");
}

/// The time of `n` WATCHes on one connection, each of an existing key.
fn watches(client: &mut Client, n: usize) -> Duration {
    let since = Instant::now();
    let lines: Vec<String> = (0..n).map(|n| format!("WATCH k{n}\r\n")).collect();
    client.send_raw(lines.concat().as_bytes()).unwrap();
    for _ in 0..n {
        assert_eq!(client.read().unwrap().value, Value::Simple(b"OK".to_vec()));
    }
    client.line("UNWATCH");
    since.elapsed()
}

#[test]
fn many_watches_take_linear_time() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let sets: Vec<String> = (0..8000).map(|n| format!("SET k{n} v\r\n")).collect();
    client.send_raw(sets.concat().as_bytes()).unwrap();
    for _ in 0..8000 {
        client.read().unwrap();
    }
    watches(&mut client, 1000);
    let (few, many) = (watches(&mut client, 1000), watches(&mut client, 8000));
    support::say(&format!("watch: 1000 WATCHes {few:?}, 8000 {many:?}"));
    assert!(many < few * 8 * 3 + Duration::from_secs(1), "1000 in {few:?}, 8000 in {many:?}");
}

/// Commands of another client between WATCH and EXEC, with the state before each: Redis decides whether a
/// watched key has changed.
const BETWEEN: &[(&str, &str)] = &[
    ("SET k v", "GETEX k PERSIST"),
    ("SET k v EX 100", "GETEX k PERSIST"),
    ("SET k v", "GETEX k"),
    ("SET k v", "GETEX k EX 100"),
    ("SET k v", "PERSIST k"),
    ("SET k v EX 100", "PERSIST k"),
    ("SET k v", "EXPIRE k 100 XX"),
    ("SET k v EX 100", "EXPIRE k 100 NX"),
    ("SET k v EX 100", "EXPIRE k 100"),
    ("SET k v", "SWAPDB 0 0"),
    ("SET k v", "SWAPDB 1 1"),
    ("SET k v", "SWAPDB 2 3"),
    ("PING", "SWAPDB 0 0"),
    ("PING", "SWAPDB 0 1"),
    ("SET k v", "SET k v"),
    ("SET k v", "SET k w NX"),
    ("SET k v", "SETNX k w"),
    ("SET k v", "MSETNX a 1 k 2"),
    ("PING", "SET k v XX"),
    ("SET k v", "APPEND k x"),
    ("SET k v", "SETRANGE k 0 v"),
    ("PING", "SETRANGE k 0 "),
    ("SET k 1", "INCRBY k 0"),
    ("SET k v", "SETBIT k 1 1"),
    ("SET k v", "GETBIT k 1"),
    ("SET k v", "BITFIELD k GET u8 0"),
    ("SET k v", "BITFIELD_RO k GET u8 0"),
    ("SET k v", "BITFIELD k SET u8 0 118"),
    ("SET k 255", "BITFIELD k OVERFLOW FAIL INCRBY u8 0 255"),
    ("SET k v", "RENAME k k"),
    ("SET k v", "RENAMENX k k"),
    ("SET k v", "COPY k other"),
    ("SET k v", "COPY other k REPLACE"),
    ("SET k v", "MOVE k 1"),
    ("SET k v", "DEL other"),
    ("PING", "DEL k"),
    ("PING", "GETDEL k"),
    ("SET k v", "TOUCH k"),
    ("SET k v", "OBJECT FREQ other"),
    ("SET k v", "EXISTS k"),
    ("SET k v", "FLUSHDB"),
    ("PING", "FLUSHALL"),
    ("SADD k a b", "SADD k a"),
    ("SADD k a b", "SREM k c"),
    ("SADD k a b", "SPOP k 0"),
    ("SADD k a b", "SMOVE k k a"),
    ("SADD k a b", "SMOVE k other c"),
    ("SADD k a b", "SMOVE other k a"),
    ("SADD k a b", "SINTERSTORE k k"),
    ("PING", "SINTERSTORE k none"),
    ("SADD k a b", "SUNIONSTORE other k"),
    ("SADD k a b", "SORT k ALPHA"),
    ("PING", "SORT none STORE k"),
    ("HSET k a 1", "HSET k a 1"),
    ("HSET k a 1", "HSETNX k a 2"),
    ("HSET k a 1", "HSETNX k b 2"),
    ("HSET k a 1", "HDEL k b"),
    ("HSET k a 1", "HDEL k a"),
    ("HSET k a 1", "HINCRBY k a 0"),
    ("HSET k a 1", "HINCRBYFLOAT k a 1"),
    ("HSET k a x", "HINCRBY k a 1"),
    ("HSET k a 1", "HGETALL k"),
    ("HSET k a 1", "COPY k other"),
    ("HSET k a 1", "HSET other a 1"),
    ("PING", "HSET k a 1"),
    ("PFADD k a", "PFADD k a"),
    ("PFADD k a", "PFADD k"),
    ("PING", "PFADD k"),
    ("PFADD k a", "PFMERGE k"),
    ("PFADD k a", "PFMERGE other k"),
    ("SET k v", "LCS k other"),
    ("SET k v", "BITOP AND other k"),
    ("PING", "BITOP AND k none"),
    ("SET k v", "INCR k"),
    ("SET k v", "SADD k a"),
];

/// The EXEC's reply for each of [`BETWEEN`].
fn outcomes(server: &Server) -> Vec<bool> {
    let (mut watches, mut other) = (server.client(), server.client());
    let run = |(first, between): &(&str, &str)| {
        other.line("FLUSHALL");
        other.line(first);
        for line in ["WATCH k", "MULTI", "PING"] {
            // A command that moves keys moves existing ones into another database.
            if line == "MULTI" {
                other.run(&between.split(' ').collect::<Vec<_>>());
            }
            watches.line(line);
        }
        watches.line("EXEC").items().is_some()
    };
    BETWEEN.iter().map(run).collect()
}

#[test]
fn commands_that_change_nothing_abort_no_exec() {
    let Some(redis) = redis("what aborts an EXEC") else { return };
    let (want, got) = (outcomes(&redis), outcomes(&tern(&[])));
    let differ =
        |(n, between): (usize, &'static (&str, &str))| (want[n] != got[n]).then_some((between, want[n]));
    let different: Vec<_> = BETWEEN.iter().enumerate().filter_map(differ).collect();
    assert!(different.is_empty(), "different commands, and whether Redis runs the EXEC: {different:#?}");
    assert!(want.contains(&true) && want.contains(&false));
}
