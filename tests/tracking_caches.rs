//! Hazard: a client's cache keeps a stale value for good: a change is never published, or is published before
//! the reply that holds the old value.
//!
//! Clients read through their own caches in every mode of CLIENT TRACKING, while others change, expire,
//! rename and flush the same few keys; on a cluster over two servers. Now and then the changes pause, and
//! each cache must converge to the stored values.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use support::fdb_cluster;
use support::resp::{Client, Value, request};
use support::rng::Rng;
use support::server::{Server, tern_in};
use tempfile::TempDir;

const BURST: Duration = Duration::from_millis(250);
const WRITERS: usize = 4;
/// Keys of each kind.
const KEYS: usize = 12;
/// The time after the last change within which the caches must converge.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster takes longer for each round.
fn rounds() -> usize {
    if fdb_cluster::wanted() { 8 } else { 25 }
}

/// Servers on one store: two where possible.
fn servers(home: &TempDir) -> Vec<Server> {
    let start = |n: usize, args: &[&str]| tern_in(&home.path().join(format!("server-{n}")), args);
    if !fdb_cluster::wanted() {
        return vec![start(0, &["--appendfsync", "no"])];
    }
    let store = format!("fdb:{}", fdb_cluster::required().display());
    let namespace = fdb_cluster::namespace();
    (0..2).map(|n| start(n, &["--store", &store, "--store-namespace", &namespace])).collect()
}

fn string(n: usize) -> String {
    format!("s:{n}")
}

fn set(n: usize) -> String {
    format!("m:{n}")
}

/// A HyperLogLog: PFCOUNT caches its count in the string, which changes the key but is no event.
fn counter(n: usize) -> String {
    format!("h:{n}")
}

/// The command that reads a key.
fn reading(key: &str) -> [&str; 2] {
    [if key.starts_with('m') { "SMEMBERS" } else { "GET" }, key]
}

/// A random change of keys.
fn change(rng: &mut Rng) -> Vec<String> {
    let (s, m, n) = (string(rng.below(KEYS)), set(rng.below(KEYS)), rng.below(1000));
    let line = match rng.below(120) {
        0..25 => format!("SET {s} {n}"),
        25..30 => format!("SET {s} {n} PX 30"),
        30..40 => format!("APPEND {s} {n}"),
        40..45 => format!("DEL {s} {m}"),
        45..48 => format!("RENAME {s} {}", string(rng.below(KEYS))),
        48..51 => format!("COPY {m} {} REPLACE", set(rng.below(KEYS))),
        51..54 => format!("PEXPIRE {m} 40"),
        54..57 => format!("MSET {s} {n} {} {n}", string(rng.below(KEYS))),
        57..60 => format!("SETBIT {s} {} 1", n * 8),
        60..75 => format!("SADD {m} {n} {} text:{n}", n + 1),
        75..80 => format!("SPOP {m} 3"),
        80..85 => format!("SREM {m} {n} {}", n + 1),
        85..88 => format!("SMOVE {m} {} {n}", set(rng.below(KEYS))),
        88..91 => format!("SUNIONSTORE {m} {} {}", set(rng.below(KEYS)), set(rng.below(KEYS))),
        91..94 => format!("GETDEL {s}"),
        94..97 => format!("GETEX {s} PX 50"),
        97 => "SWAPDB 0 1".into(),
        98 => "FLUSHDB".into(),
        99 => "FLUSHALL".into(),
        100..108 => format!("PFADD {} {n}", counter(rng.below(KEYS))),
        _ => format!("PFCOUNT {}", counter(rng.below(KEYS))),
    };
    line.split(' ').map(str::to_owned).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Usual,
    Bcast,
    OptIn,
    OptOut,
    /// It also writes itself.
    NoLoop,
    /// Through a redirection to a RESP2 connection.
    Redirect,
    /// Reads several keys in a transaction.
    Multi,
}

const ALL: [How; 7] =
    [How::Usual, How::Bcast, How::OptIn, How::OptOut, How::NoLoop, How::Redirect, How::Multi];

/// A client with a cache.
struct Cached {
    how: How,
    client: Client,
    hears: Option<Client>,
    cache: BTreeMap<String, Value>,
    used: usize,
    dropped: usize,
}

impl Cached {
    fn new(server: &Server, how: How) -> Self {
        let mut client = server.client();
        let mut hears = None;
        let line = match how {
            How::Usual | How::Multi => "CLIENT TRACKING ON".to_owned(),
            How::Bcast => "CLIENT TRACKING ON BCAST PREFIX s: PREFIX m: PREFIX h:".to_owned(),
            How::OptIn => "CLIENT TRACKING ON OPTIN".to_owned(),
            How::OptOut => "CLIENT TRACKING ON OPTOUT".to_owned(),
            How::NoLoop => "CLIENT TRACKING ON NOLOOP".to_owned(),
            How::Redirect => {
                let mut to = server.client();
                let id = to.line("CLIENT ID").int().unwrap();
                to.line("SUBSCRIBE __redis__:invalidate");
                hears = Some(to);
                format!("CLIENT TRACKING ON REDIRECT {id}")
            }
        };
        if how != How::Redirect {
            client.line("HELLO 3");
        }
        assert_eq!(client.line(&line), Value::Simple(b"OK".to_vec()));
        Cached { how, client, hears, cache: BTreeMap::new(), used: 0, dropped: 0 }
    }

    /// Handles an invalidation. False for other messages.
    fn hear(&mut self, message: &Value) -> bool {
        let names = match message {
            Value::Push(parts) => {
                assert_eq!(parts[0], Value::Bulk(b"invalidate".to_vec()), "{parts:?}");
                &parts[1]
            }
            Value::Array(parts) if parts.len() == 3 && parts[0] == Value::Bulk(b"message".to_vec()) => {
                &parts[2]
            }
            _ => return false,
        };
        match names.items() {
            None => self.cache.clear(),
            Some(names) => names.iter().for_each(|name| {
                let name = String::from_utf8(name.bytes().unwrap().to_vec()).unwrap();
                self.dropped += usize::from(self.cache.remove(&name).is_some());
            }),
        }
        true
    }

    fn reply(&mut self) -> Value {
        loop {
            let value = self.client.read().unwrap().value;
            let pushed = matches!(value, Value::Push(_));
            if !pushed || !self.hear(&value) {
                return value;
            }
        }
    }

    /// Reads the messages of another connection.
    fn listen(&mut self) {
        let Some(mut hears) = self.hears.take() else { return };
        hears.set_timeout(Duration::from_millis(1));
        while let Ok(message) = hears.read() {
            assert!(self.hear(&message.value), "{:?}", message.value);
        }
        self.hears = Some(hears);
    }

    fn send(&mut self, lines: &[&[&str]]) {
        let all: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
        self.client.send_raw(&all).unwrap();
    }

    /// Reads a key, from the cache if it is there.
    fn read(&mut self, key: &str) {
        if self.cache.contains_key(key) {
            self.used += 1;
            return;
        }
        let read = reading(key);
        let before = match self.how {
            How::OptIn => {
                self.send(&[&["CLIENT", "CACHING", "YES"], &read]);
                1
            }
            How::Multi => {
                self.send(&[&["MULTI"], &["PING"], &read, &["EXEC"]]);
                3
            }
            _ => {
                self.send(&[&read]);
                0
            }
        };
        (0..before).for_each(|_| drop(self.reply()));
        let mut value = self.reply();
        if let (How::Multi, Value::Array(mut answers)) = (self.how, value.clone()) {
            value = answers.pop().unwrap();
        }
        self.cache.insert(key.to_owned(), sorted(value));
    }

    /// Changes a key, after dropping its cached value.
    fn write(&mut self, key: &str, n: usize) {
        self.cache.remove(key);
        let n = n.to_string();
        let command = match key.as_bytes()[0] {
            b's' => "SET",
            b'm' => "SADD",
            _ => "PFADD",
        };
        let line = [command, key, &n];
        self.send(&[&line]);
        self.reply();
    }

    fn step(&mut self, rng: &mut Rng) {
        let n = rng.below(KEYS);
        let key = [string, set, counter][rng.below(3)](n);
        if self.how == How::NoLoop && rng.below(4) == 0 {
            self.write(&key, rng.below(1000));
        } else {
            self.read(&key);
        }
        self.listen();
    }

    /// Waits until the cache equals `store`.
    fn settles(&mut self, store: &mut Client) {
        let since = Instant::now();
        loop {
            self.send(&[&["PING"]]);
            self.reply();
            self.listen();
            let mut stored = |key: &String| text(&sorted(store.run(&reading(key)).value));
            let stale = self.cache.iter().filter(|(key, has)| text(has) != stored(key));
            let stale: Vec<&String> = stale.map(|(key, _)| key).collect();
            if stale.is_empty() {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{:?} keeps {stale:?} for good", self.how);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The same in RESP2 and RESP3.
fn text(value: &Value) -> String {
    match value {
        Value::Set(items) | Value::Array(items) => format!("{items:?}"),
        Value::Nil(_) => "nil".into(),
        other => format!("{other:?}"),
    }
}

fn sorted(mut value: Value) -> Value {
    if let Value::Set(items) | Value::Array(items) = &mut value {
        items.sort();
    }
    value
}

struct World {
    stop: AtomicBool,
    rounds: Barrier,
}

fn reads(mut cached: Cached, mut store: Client, mut rng: Rng, world: &World) -> (How, usize, usize) {
    for _ in 0..rounds() {
        world.rounds.wait();
        while !world.stop.load(Ordering::SeqCst) {
            (0..8).for_each(|_| cached.step(&mut rng));
        }
        world.rounds.wait();
        cached.settles(&mut store);
        world.rounds.wait();
    }
    (cached.how, cached.used, cached.dropped)
}

fn writes(mut client: Client, mut rng: Rng, world: &World) {
    for _ in 0..rounds() {
        world.rounds.wait();
        while !world.stop.load(Ordering::SeqCst) {
            let reply = client.run(&change(&mut rng)).value;
            let refused =
                matches!(&reply, Value::Error(e) if e != b"ERR no such key" && !e.ends_with(b"are the same"));
            assert!(!refused, "{reply:?}");
        }
        world.rounds.wait();
        world.rounds.wait();
    }
}

#[test]
fn caches_converge_to_the_stored_values() {
    let home = tempfile::tempdir().unwrap();
    let servers = servers(&home);
    let seed = Rng::any_seed();
    println!("seed {seed}");
    // Stops the others if one fails.
    std::panic::set_hook(Box::new(|failure| {
        eprintln!("{failure}");
        std::process::exit(101);
    }));
    let people = ALL.len() * servers.len() + WRITERS + 1;
    let world = Arc::new(World { stop: AtomicBool::new(false), rounds: Barrier::new(people) });
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            for (n, how) in ALL.into_iter().enumerate() {
                let (cached, store) = (Cached::new(server, how), servers[servers.len() - 1 - at].client());
                let (rng, world) = (Rng::new(seed + 100 * at as u64 + n as u64), world.clone());
                readers.push(scope.spawn(move || reads(cached, store, rng, &world)));
            }
        }
        for n in 0..WRITERS {
            let (client, rng) = (servers[n % servers.len()].client(), Rng::new(seed + 1000 + n as u64));
            let world = world.clone();
            scope.spawn(move || writes(client, rng, &world));
        }
        for _ in 0..rounds() {
            world.stop.store(false, Ordering::SeqCst);
            world.rounds.wait();
            std::thread::sleep(BURST);
            world.stop.store(true, Ordering::SeqCst);
            world.rounds.wait();
            world.rounds.wait();
        }
        for reader in readers {
            let (how, used, dropped) = reader.join().unwrap();
            println!("{how:?}: {used} reads from the cache, {dropped} names dropped");
            assert!(used > 0 && dropped > 0, "{how:?} does nothing: {used} {dropped}");
        }
    });
}
