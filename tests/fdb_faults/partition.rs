//! A partition between all servers and the cluster, or of one server while the others continue.
//!
//! Servers of one cluster talk only through it, so a partition between servers is one server cut off from the
//! cluster. No connection closes; each falls silent, in both directions or in one ([`Cut`]), and continues
//! later.

use crate::load::{Event, Outcome, Shared, Worker};
use crate::proxy::{Cut, Proxy};
use crate::support::fdb_cluster::Cluster;
use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use crate::support::server::{Server, free_port};
use crate::support::{env_number, say};
use crate::{CLIENTS, Faults, SECONDS, SERVERS, TIMEOUT, World, alone, assert_in_time, findings, report};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CUTS: [Cut; 3] = [Cut::Both, Cut::Requests, Cut::Answers];
/// Keys that expire while a server is cut off.
const KEYS: i64 = 150;
/// How soon the others remove the rows of a server that is cut off.
const BURIED: Duration = Duration::from_secs(60);

/// Servers, and the proxy between them and a cluster of one process.
fn world(dependent: &str) -> Option<(World, Proxy)> {
    let alone = alone();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (published, listens) = (listener.local_addr().unwrap().port(), free_port());
    let proxy = Proxy::start(listener, listens);
    let cluster = Cluster::start_behind(published, listens, dependent)?;
    Some((World::on(cluster, alone), proxy))
}

/// Repeatedly cuts off one server or all, one way or both, for shorter or longer than `store-timeout`.
fn make_trouble(world: &World, proxy: &Proxy, rng: &mut Rng, time: Duration) -> Faults {
    let since = Instant::now();
    let mut faults = Faults::new();
    while since.elapsed() < time {
        std::thread::sleep(Duration::from_millis(300 + rng.below(1500) as u64));
        let cut = CUTS[rng.below(CUTS.len())];
        let (chosen, all) = (rng.below(SERVERS), rng.one_in(2));
        for (_, server) in world.servers.iter().enumerate().filter(|(n, _)| all || *n == chosen) {
            proxy.cut(server.pid(), cut);
        }
        std::thread::sleep(Duration::from_millis(300 + rng.below(6000) as u64));
        proxy.mend();
        *faults
            .entry(match cut {
                Cut::Both => "silence",
                Cut::Requests => "no requests",
                Cut::Answers => "no answers",
            })
            .or_default() += 1;
    }
    faults
}

#[test]
fn every_command_is_applied_once_while_servers_are_cut_off() {
    let Some((world, proxy)) = world("partitions between servers and a cluster") else { return };
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    let time = Duration::from_secs(env_number("TERN_FAULT_SECONDS").unwrap_or(SECONDS));
    say(&format!("partitions: TERN_SEED={seed}"));
    let shared = Shared::new(world.ports());
    let (events, faults, recovered) = std::thread::scope(|scope| {
        let worker = |n| Worker::new(&shared, n, seed);
        let workers: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || worker(n).run())).collect();
        let faults = make_trouble(&world, &proxy, &mut Rng::new(seed), time);
        let recovered = world.recovered();
        std::thread::sleep(Duration::from_secs(2));
        shared.stop.store(true, Ordering::Relaxed);
        let events: Vec<Event> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        (events, faults, recovered)
    });
    report(&events, &faults, &recovered, shared.longest_gap());
    say(&format!("  {} bytes came late", proxy.held()));
    let mut client = world.servers[0].client();
    let wrong: Vec<String> = findings(&events, &mut client).into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
    world.assert_sound();
    let mut refused = 0;
    for event in &events {
        let Outcome::Refused(line) = &event.outcome else { continue };
        assert!(line.starts_with("ERR the store is unavailable"), "{event:?}");
        refused += 1;
    }
    assert_in_time(&events);
    assert!(refused > 0 && proxy.held() > 0 && events.len() > 200, "the test must meet enough partitions");
}

/// A field of INFO.
fn info(server: &Server, name: &str) -> i64 {
    let text = server.client().line("INFO stats");
    let text = String::from_utf8_lossy(text.bytes().unwrap()).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

/// The number of servers whose rows `server` knows.
fn rows(server: &Server) -> usize {
    let text = server.client().line("INFO tern");
    String::from_utf8_lossy(text.bytes().unwrap()).lines().filter(|l| l.starts_with("instance_")).count()
}

fn wait(what: &str, patience: Duration, is_so: impl Fn() -> bool) -> Duration {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < patience, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    since.elapsed()
}

/// The others increment through server 1; a client of server 0 must never read less than was acknowledged
/// before its request.
#[derive(Default)]
struct Count {
    acknowledged: AtomicI64,
    answers: AtomicUsize,
    errors: AtomicUsize,
    stop: AtomicBool,
}

/// Ends the counting, also if the test fails.
struct Stop<'a>(&'a Count);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Count {
    fn up(&self, mut client: Client) {
        while !self.stop.load(Ordering::Relaxed) {
            let reply = client.line("INCR n");
            let n = reply
                .int()
                .unwrap_or_else(|| panic!("a server that is not cut off must not notice: {reply:?}"));
            self.acknowledged.store(n, Ordering::Release);
        }
    }

    fn read(&self, mut client: Client) {
        while !self.stop.load(Ordering::Relaxed) {
            let least = self.acknowledged.load(Ordering::Acquire);
            match client.line("GET n") {
                Value::Error(line) => {
                    assert!(line.starts_with(b"ERR the store is unavailable"), "{}", line.escape_ascii());
                    self.errors.fetch_add(1, Ordering::Relaxed);
                }
                value => {
                    let n: i64 = String::from_utf8_lossy(value.bytes().unwrap_or(b"0")).parse().unwrap();
                    assert!(n >= least, "stale: {n} was read after {least} had been acknowledged");
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The others remove the server's rows and take over its share of the jobs, once; it answers nothing while it
/// is cut off, and nothing stale when it returns.
#[test]
fn a_server_that_is_cut_off_is_replaced_and_returns_without_stale_answers() {
    let Some((world, proxy)) = world("a server that is cut off") else { return };
    let [cut_off, other] = [0, 1].map(|n| &world.servers[n]);
    wait("all servers must see each other", BURIED, || world.servers.iter().all(|s| rows(s) == SERVERS));
    let mut listens = cut_off.client();
    listens.line("SUBSCRIBE news");
    let count = Count::default();
    std::thread::scope(|scope| {
        let stop = Stop(&count);
        let counting = scope.spawn(|| count.up(other.client()));
        let reading = scope.spawn(|| count.read(cut_off.client()));
        wait("both count", BURIED, || count.answers.load(Ordering::Relaxed) > 50);
        short_cuts(&proxy, cut_off, &count);
        proxy.cut(cut_off.pid(), Cut::Both);
        let (since, mut writer) = (Instant::now(), other.client());
        let keys: Vec<String> = (0..KEYS).map(|n| format!("SET key:{n} v PX 300\r\n")).collect();
        writer.send_raw(keys.concat().as_bytes()).unwrap();
        keys.iter().for_each(|_| assert_eq!(writer.read().unwrap().value, Value::Simple(b"OK".to_vec())));
        wait("its rows must be removed", BURIED, || rows(other) == SERVERS - 1);
        let buried = since.elapsed();
        let expired = |by: &[Server]| by.iter().map(|s| info(s, "expired_keys")).sum::<i64>();
        wait("its share of expired keys must be removed", BURIED, || expired(&world.servers[1..]) == KEYS);
        let answers = count.answers.load(Ordering::Relaxed);
        writer.line("PUBLISH news missed");
        assert_eq!(
            cut_off.client().line("GET n").bytes().map(|e| e.starts_with(b"ERR the store")),
            Some(true)
        );
        assert_eq!(count.answers.load(Ordering::Relaxed), answers, "it must not answer while it is cut off");
        proxy.mend();
        let back = wait("it must answer again", TIMEOUT * 4, || {
            count.answers.load(Ordering::Relaxed) > answers + 50
        });
        wait("all servers must see it again", BURIED, || world.servers.iter().all(|s| rows(s) == SERVERS));
        assert!(listens.is_closed(), "the connection of a subscriber that missed messages must be closed");
        assert_eq!(expired(&world.servers), KEYS, "each key must expire once");
        drop(stop);
        counting.join().unwrap();
        reading.join().unwrap();
        let (answers, errors) = (count.answers.load(Ordering::Relaxed), count.errors.load(Ordering::Relaxed));
        say(&format!(
            "  a server that was cut off: buried after {buried:.1?}, back {back:.1?} after the end; {answers} answers, \
             {errors} errors, none stale"
        ));
    });
    let counted = count.acknowledged.load(Ordering::Relaxed).to_string().into_bytes();
    assert!(world.servers.iter().all(|s| s.client().line("GET n") == Value::Bulk(counted.clone())));
    world.assert_sound();
}

/// Shorter than `store-timeout`, so that requests sent before are answered after the cut: their replies must
/// not be stale.
fn short_cuts(proxy: &Proxy, server: &Server, count: &Count) {
    for cut in [CUTS, CUTS].concat() {
        let answers = count.answers.load(Ordering::Relaxed);
        proxy.cut(server.pid(), cut);
        std::thread::sleep(TIMEOUT / 3);
        proxy.mend();
        wait("the server must continue", TIMEOUT * 2, || {
            count.answers.load(Ordering::Relaxed) > answers + 20
        });
    }
}
