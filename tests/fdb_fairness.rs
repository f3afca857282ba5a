//! Hazard: servers that write the same keys at once starve a client, or return a conflict to it.
//!
//! Three servers on one cluster, each with clients that increment one counter, add to one set, and move
//! amounts between accounts under WATCH. A client's latency is that of one command, from its request to its
//! reply.

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::fdb_cluster::{self, Cluster};
use support::resp::{Client, Value};
use support::server::{Server, tern_in};
use tempfile::TempDir;

/// Only one test loads the machine at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// The number of the next client.
static NEXT: AtomicUsize = AtomicUsize::new(0);
const SERVERS: usize = 3;
/// Clients of each kind per server.
const COUNTING: usize = 8;
const ADDING: usize = 10;
const MOVING: usize = 2;
const TIME: Duration = Duration::from_secs(8);
/// No command may take longer than this many times the median.
const FACTOR: u32 = 100;
/// A lower median counts as this: on a busy machine a process may not run for half a second.
const FLOOR: Duration = Duration::from_millis(5);
const ACCOUNTS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Counting,
    Adding,
    /// Adds members that no other client adds.
    AddingOwn,
    Moving,
}

/// The results of one client.
struct Seen {
    kind: Kind,
    server: usize,
    latencies: Vec<Duration>,
    /// Increments, new members, or transfers.
    done: i64,
    /// EXECs that found a watched key changed.
    aborted: usize,
}

struct Timed {
    client: Client,
    latencies: Vec<Duration>,
}

impl Timed {
    fn line(&mut self, line: &str) -> Value {
        let since = Instant::now();
        let reply = self.client.line(line);
        self.latencies.push(since.elapsed());
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }
}

fn client(kind: Kind, server: usize, n: usize, port: u16, until: Instant) -> Seen {
    let mut timed = Timed { client: Client::connect(port).unwrap(), latencies: Vec::new() };
    let (mut done, mut aborted) = (0, 0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    for turn in 0.. {
        if Instant::now() >= until {
            break;
        }
        done += match kind {
            Kind::Counting => i64::from(timed.line("INCR counter").int().unwrap() > 0),
            // Every other member is common to all clients and interned by the first.
            Kind::Adding if turn % 2 == 1 => timed.line(&format!("SADD set shared:{turn}")).int().unwrap(),
            Kind::Adding | Kind::AddingOwn => timed.line(&format!("SADD set {id}:{turn}")).int().unwrap(),
            Kind::Moving => match transfer(&mut timed, turn + n, turn + n + 1 + server) {
                true => 1,
                false => {
                    aborted += 1;
                    0
                }
            },
        };
    }
    Seen { kind, server, latencies: timed.latencies, done, aborted }
}

/// Moves 1 from one account to another as clients do: read under WATCH, write in EXEC. False if another
/// client came first.
fn transfer(timed: &mut Timed, from: usize, to: usize) -> bool {
    let [from, to] = [from, to].map(|n| format!("account:{}", n % ACCOUNTS));
    timed.line(&format!("WATCH {from} {to}"));
    let mut balance = |key: &str| {
        let reply = timed.line(&format!("GET {key}"));
        reply.bytes().map_or(0, |b| String::from_utf8_lossy(b).parse::<i64>().unwrap())
    };
    let (left, right) = (balance(&from), balance(&to));
    timed.line("MULTI");
    if from != to {
        timed.line(&format!("SET {from} {}", left - 1));
        timed.line(&format!("SET {to} {}", right + 1));
    }
    timed.line("INCR counter");
    match timed.line("EXEC") {
        Value::Array(_) => true,
        Value::Nil(_) => false,
        other => panic!("{other:?}"),
    }
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    of[of.len() / 2]
}

fn info(server: &Server, name: &str) -> u64 {
    text_of(server, name).parse().unwrap()
}

/// A field of INFO.
fn text_of(server: &Server, name: &str) -> String {
    let text = server.client().line("INFO everything");
    let text = String::from_utf8_lossy(text.bytes().unwrap()).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

fn int(server: &Server, line: &str) -> i64 {
    match server.client().line(line) {
        Value::Int(n) => n,
        Value::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
        Value::Nil(_) => 0,
        other => panic!("{line}: {other:?}"),
    }
}

/// Runs this many clients of each kind on each server.
fn run(servers: &[Server], kinds: &[(Kind, usize)], time: Duration) -> Vec<Seen> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            for (kind, many) in kinds.iter().copied() {
                let port = server.port;
                clients.extend((0..many).map(|n| scope.spawn(move || client(kind, at, n, port, until))));
            }
        }
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    })
}

fn report(seen: &[Seen], kind: Kind) {
    let all = || seen.iter().filter(|s| s.kind == kind);
    let latencies: Vec<Duration> = all().flat_map(|s| s.latencies.iter().copied()).collect();
    let longest = latencies.iter().max().unwrap();
    let per_server = [0, 1, 2].map(|n| all().filter(|s| s.server == n).map(|s| s.done).sum::<i64>());
    support::say(&format!(
        "{kind:?}: {} commands, done {per_server:?}, aborted {}, median {:.1?}, longest {longest:.1?}",
        latencies.len(),
        all().map(|s| s.aborted).sum::<usize>(),
        median(latencies.clone()),
    ));
}

/// Servers that share a namespace, and their directory.
fn fleet(cluster: &Cluster) -> (Vec<Server>, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let store = format!("fdb:{}", cluster.cluster_file().display());
    let namespace = fdb_cluster::namespace();
    let start = |n: usize| {
        let options = ["--store", &store, "--store-namespace", &namespace];
        tern_in(&home.path().join(format!("server-{n}")), &options)
    };
    ((0..SERVERS).map(start).collect(), home)
}

/// Commits and conflicts of all servers so far.
fn contention(servers: &[Server]) -> [u64; 2] {
    let sum = |name: &str| servers.iter().map(|s| info(s, name)).sum::<u64>();
    let found = [sum("store_commits"), sum("store_conflicts")];
    support::say(&format!("{} conflicts in {} commits", found[1], found[0]));
    found
}

#[test]
fn no_client_starves_and_none_sees_a_conflict() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cluster) = fdb_cluster::shared("fairness") else { return };
    let (servers, _home) = fleet(cluster);
    let kinds = [(Kind::Counting, COUNTING), (Kind::Adding, ADDING), (Kind::Moving, MOVING)];
    let seen = run(&servers, &kinds, TIME);

    kinds.iter().for_each(|(kind, _)| report(&seen, *kind));
    let [commits, conflicts] = contention(&servers);
    assert!(commits > 0 && conflicts > 0, "nothing contended");
    let shown = servers.iter().map(|s| text_of(s, "store_conflicts_per_commit").parse::<f64>().unwrap());
    assert!(shown.sum::<f64>() > 0.0);

    let done = |kind: Kind| seen.iter().filter(|s| s.kind == kind).map(|s| s.done).sum::<i64>();
    assert_eq!(int(&servers[0], "GET counter"), done(Kind::Counting) + done(Kind::Moving), "each once");
    assert_eq!(int(&servers[1], "SCARD set"), done(Kind::Adding));
    let balances: i64 = (0..ACCOUNTS).map(|n| int(&servers[2], &format!("GET account:{n}"))).sum();
    assert_eq!(balances, 0, "transfers must preserve the sum");

    let bound = FACTOR * median(seen.iter().flat_map(|s| s.latencies.iter().copied()).collect()).max(FLOOR);
    for client in &seen {
        let longest = client.latencies.iter().max().unwrap();
        assert!(
            *longest <= bound,
            "{:?} on server {} waited {longest:?}, bound {bound:?}",
            client.kind,
            client.server
        );
        assert!(client.done > 0, "{:?} on server {} made no progress", client.kind, client.server);
    }
}

#[test]
fn sadd_of_different_members_hardly_ever_conflicts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cluster) = fdb_cluster::shared("SADD of different members") else { return };
    let (servers, _home) = fleet(cluster);
    // It becomes a set of chunks, and each server leases a block of ids.
    run(&servers, &[(Kind::AddingOwn, ADDING)], TIME / 4);
    let before = contention(&servers);
    let seen = run(&servers, &[(Kind::AddingOwn, ADDING)], TIME / 2);
    let after = contention(&servers);
    report(&seen, Kind::AddingOwn);
    let [commits, conflicts] = [0, 1].map(|n| after[n] - before[n]);
    assert!(commits > 100 && conflicts * 100 < commits, "{conflicts} in {commits}");
}
