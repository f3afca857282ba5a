//! Hazard: FoundationDB's processes die, return or hang under load, and a command is applied twice, or lost
//! after its OK, or a server hangs, or stays broken when the cluster has recovered.
//!
//! Three processes keep two copies on disk. While clients use three servers, the processes are killed,
//! restarted and paused, alone and together. The clients' results are compared with the stored values
//! ([`checks`]), and every test ends with `tern check`. `TERN_FAULT_SECONDS` sets the duration, `TERN_SEED`
//! repeats the faults (not the load's timing).

#![cfg(feature = "fdb")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod checks;
mod load;
mod partition;
mod proxy;
#[path = "../support/mod.rs"]
mod support;

use checks::Finding;
use load::{Event, KINDS, Op, Outcome, Shared, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::fdb_cluster::{self, Cluster, Layout, Pause};
use support::resp::{Client, Value};
use support::rng::Rng;
use support::server::{Server, assert_sound, tern_in};
use support::{env_number, say};
use tempfile::TempDir;

const SERVERS: usize = 3;
const CLIENTS: usize = 12;
/// `store-timeout`: shorter than some of the outages.
const TIMEOUT: Duration = Duration::from_secs(3);
const SECONDS: u64 = 25;
/// How soon after the cluster all servers must work again.
const RECOVERY: Duration = Duration::from_secs(10);

/// A cluster of three processes and servers on it. One at a time: there are not enough processors for two.
struct World {
    servers: Vec<Server>,
    /// The arguments of each server.
    args: Vec<String>,
    cluster: Cluster,
    home: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Waits for the other tests to end.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(dependent: &str) -> Option<Self> {
        let alone = alone();
        let cluster = Cluster::start(Layout::Double, dependent)?;
        Some(Self::on(cluster, alone))
    }

    fn on(cluster: Cluster, alone: MutexGuard<'static, ()>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = format!("fdb:{}", cluster.cluster_file().display());
        let (namespace, timeout) = (fdb_cluster::namespace(), TIMEOUT.as_millis().to_string());
        let args = ["--store", &store, "--store-namespace", &namespace, "--store-timeout", &timeout];
        let start = |n: usize| tern_in(&home.path().join(format!("server-{n}")), &args);
        let servers = (0..SERVERS).map(start).collect();
        let args = args.map(str::to_owned).to_vec();
        World { servers, args, cluster, home, _alone: alone }
    }

    /// Runs `tern check` on the whole store while its servers run.
    fn assert_sound(&self) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        assert_sound(self.home.path(), &args);
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|s| s.port).collect()
    }

    /// Waits until the cluster is available, then until every server writes and reads; returns both times.
    fn recovered(&self) -> String {
        let since = Instant::now();
        self.cluster.wait_until_available();
        let (there, since) = (since.elapsed(), Instant::now());
        for server in &self.servers {
            let mut client = server.client();
            while client.line("INCR recovered").is_error() || client.line("GET recovered").is_error() {
                assert!(since.elapsed() < RECOVERY, "a server stays broken:\n{}", server.log());
            }
        }
        format!("available again after {there:.1?}, all servers working {:.1?} later", since.elapsed())
    }
}

/// The number of faults by name.
type Faults = BTreeMap<&'static str, usize>;

/// A random fault, undone when this returns.
fn fault(cluster: &mut Cluster, rng: &mut Rng) -> &'static str {
    let millis = |rng: &mut Rng, from: u64, to: u64| {
        Duration::from_millis(from + rng.below((to - from) as usize) as u64)
    };
    let n = rng.below(cluster.len());
    let other = (n + 1 + rng.below(cluster.len() - 1)) % cluster.len();
    match rng.below(6) {
        0 | 1 => {
            cluster.restart(n);
            "restart"
        }
        2 => {
            cluster.kill(n);
            std::thread::sleep(millis(rng, 200, 2500));
            cluster.revive(n);
            "kill"
        }
        3 => {
            cluster.kill(n);
            cluster.kill(other);
            std::thread::sleep(millis(rng, 100, 1500));
            cluster.revive(other);
            cluster.revive(n);
            "kill two"
        }
        4 => {
            drop(cluster.pause(n, millis(rng, 300, 4000)));
            "pause"
        }
        _ => {
            let time = millis(rng, 200, 2000);
            let pauses: Vec<Pause> = (0..cluster.len()).map(|n| cluster.pause(n, time)).collect();
            drop(pauses);
            "pause all"
        }
    }
}

/// The least number of faults.
const FAULTS: usize = 3;

/// Causes one fault after the other. Most of them hit a working cluster: it can take 30 s to recover from
/// some.
fn make_trouble(cluster: &mut Cluster, rng: &mut Rng, time: Duration) -> Faults {
    let since = Instant::now();
    let mut faults = Faults::new();
    while since.elapsed() < time || (faults.values().sum::<usize>() < FAULTS && since.elapsed() < time * 4) {
        std::thread::sleep(Duration::from_millis(300 + rng.below(2000) as u64));
        (0..cluster.len()).for_each(|n| assert!(cluster.is_running(n), "process {n} ended by itself"));
        *faults.entry(fault(cluster, rng)).or_default() += 1;
        if !rng.one_in(3) {
            cluster.wait_until_available();
        }
    }
    faults
}

#[test]
fn every_command_is_applied_once_while_processes_die_and_hang() {
    let Some(mut world) = World::new("processes of FoundationDB that die under load") else { return };
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    let time = Duration::from_secs(env_number("TERN_FAULT_SECONDS").unwrap_or(SECONDS));
    say(&format!("faults on FoundationDB: TERN_SEED={seed}"));
    let shared = Shared::new(world.ports());
    let (events, faults, recovered) = std::thread::scope(|scope| {
        let worker = |n| Worker::new(&shared, n, seed);
        let workers: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || worker(n).run())).collect();
        let faults = make_trouble(&mut world.cluster, &mut Rng::new(seed), time);
        let recovered = world.recovered();
        std::thread::sleep(Duration::from_secs(3));
        shared.stop.store(true, Ordering::Relaxed);
        let events: Vec<Event> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        (events, faults, recovered)
    });
    report(&events, &faults, &recovered, shared.longest_gap());
    let mut client = world.servers[0].client();
    let wrong: Vec<String> = findings(&events, &mut client).into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
    world.assert_sound();
    for event in &events {
        let Outcome::Refused(line) = &event.outcome else { continue };
        assert!(line.starts_with("ERR the store is unavailable"), "{event:?}");
    }
    assert_in_time(&events);
    assert!(
        faults.values().sum::<usize>() >= FAULTS && events.len() > 500,
        "the test must meet enough faults"
    );
}

/// The longest time of a command that was sent once.
fn slowest(events: &[Event]) -> Duration {
    slowest_event(events).map(|e| e.end - e.start).unwrap_or_default()
}

fn slowest_event(events: &[Event]) -> Option<&Event> {
    events.iter().filter(|e| !matches!(e.op, Op::Once(..))).max_by_key(|e| e.end - e.start)
}

/// A client gets its answer or error in time: within store-timeout and an eighth; as late again if it has waited for a
/// fence, whose holder got no answer for as long.
fn assert_in_time(events: &[Event]) {
    assert!(slowest(events) < TIMEOUT / 4 * 9, "too late: {:?}", slowest_event(events));
}

fn report(events: &[Event], faults: &Faults, recovered: &str, gap: Duration) {
    let mut counts = [[0; 3]; KINDS.len()];
    for event in events {
        let column = match event.outcome {
            Outcome::Done(_) => 0,
            Outcome::Unknown => 1,
            Outcome::Refused(_) => 2,
        };
        counts[event.op.kind()][column] += 1;
    }
    for (name, [done, unknown, refused]) in KINDS.iter().zip(counts) {
        say(&format!("  {name:<10} {done:>6} done {unknown:>4} unknown {refused:>4} refused"));
    }
    let (longest, which) = (slowest(events), slowest_event(events).map(|e| (&e.op, &e.outcome)));
    say(&format!(
        "  {} commands; {faults:?}; nothing was done for {gap:.1?} at most, the slowest command took {longest:.1?} ({which:?}); \
         after the last fault: {recovered}",
        events.len()
    ));
}

/// Runs all checks on the stored values.
fn findings(events: &[Event], client: &mut Client) -> Vec<Finding> {
    let of =
        |wanted: &dyn Fn(&Op) -> bool| -> Vec<&Event> { events.iter().filter(|e| wanted(&e.op)).collect() };
    let mut out = Vec::new();
    for k in 0..load::COUNTERS {
        let events = of(&|op| *op == Op::Incr(k));
        out.push(named("count", k, checks::counted(&events, integer(client, &format!("count:{k}")))));
        let reads = of(&|op| *op == Op::Read(k));
        out.push(named("reads of count", k, checks::read(&reads, &events)));
    }
    for k in 0..load::ONCES {
        let events = of(&|op| matches!(op, Op::Once(n, _) if *n == k));
        out.push(named("once", k, checks::counted(&events, integer(client, &format!("once:{k}")))));
    }
    for k in 0..load::LOGS {
        let events = of(&|op| matches!(op, Op::Append(n, _) if *n == k));
        let kept = string(client, &format!("log:{k}")).unwrap_or_default();
        out.push(named("log", k, checks::appended(&tokens(&events), &kept)));
    }
    for k in 0..load::PAIRS {
        let events = of(&|op| matches!(op, Op::Exec(n, _) if *n == k));
        let [a, b] = ["a", "b"].map(|side| integer(client, &format!("pair:{k}:{side}")));
        let log = string(client, &format!("pair:{k}:log")).unwrap_or_default();
        out.push(named("pair", k, checks::paired(&tokens(&events), (a, b, &log))));
    }
    for k in 0..load::POOLS {
        let events = of(&|op| matches!(op, Op::Add(n, _) | Op::Pop(n, _) if *n == k));
        let kept: Vec<String> = members(client, &format!("pool:{k}")).into_iter().collect();
        out.push(named("pool", k, checks::pooled(&events, &kept)));
    }
    for k in 0..load::BOXES {
        let events = of(&|op| matches!(op, Op::Put(n, _) | Op::Take(n) if *n == k));
        out.push(named("box", k, checks::boxed(&events, string(client, &format!("box:{k}")))));
    }
    let events = of(&|op| matches!(op, Op::Home(_) | Op::Move(..)));
    let homes = [0, 1].map(|n| members(client, &format!("home:{n}")));
    out.push(named("homes", 0, checks::moved(&events, &homes)));
    out
}

fn named(what: &str, k: usize, finding: Finding) -> Finding {
    finding.map_err(|wrong| format!("{what} {k}: {wrong}"))
}

fn tokens<'a>(events: &[&'a Event]) -> Vec<(&'a str, &'a Event)> {
    let token = |event: &'a Event| match &event.op {
        Op::Append(_, token) | Op::Exec(_, token) => Some((token.as_str(), event)),
        _ => None,
    };
    events.iter().copied().filter_map(token).collect()
}

/// The answer to a command that reads. A cluster can be silent once more after it has recovered: no server may be
/// silent for longer than it takes to recover.
fn answer(client: &mut Client, line: &str) -> Value {
    let since = Instant::now();
    loop {
        let value = client.line(line);
        if !value.is_error() {
            return value;
        }
        say(&format!("  {line}, {:.1?} after it was sent: {value:?}", since.elapsed()));
        assert!(since.elapsed() < RECOVERY, "{line}: {value:?}");
    }
}

fn string(client: &mut Client, key: &str) -> Option<String> {
    answer(client, &format!("GET {key}")).bytes().map(|b| String::from_utf8(b.to_vec()).unwrap())
}

fn integer(client: &mut Client, key: &str) -> i64 {
    string(client, key).map_or(0, |text| text.parse().unwrap())
}

/// The members of a set, whose number SCARD must confirm.
fn members(client: &mut Client, key: &str) -> BTreeSet<String> {
    let value = answer(client, &format!("SMEMBERS {key}"));
    let items = value.items().unwrap_or_else(|| panic!("{key}: {value:?}"));
    let members: BTreeSet<String> =
        items.iter().map(|m| String::from_utf8(m.bytes().unwrap().to_vec()).unwrap()).collect();
    assert_eq!(answer(client, &format!("SCARD {key}")), Value::Int(members.len() as i64), "{key}");
    assert_eq!(members.len(), items.len(), "{key} lists a member twice");
    members
}

/// Both kinds of outage: a closed port, and silence.
#[test]
fn an_outage_of_the_whole_cluster_is_named_and_survived() {
    let Some(mut world) = World::new("a cluster that stops as a whole") else { return };
    let before = |n: usize| format!("SET before:{n} {n}");
    for (n, server) in world.servers.iter().enumerate() {
        assert_eq!(server.client().line(&before(n)), Value::Simple(b"OK".to_vec()));
    }
    (0..world.cluster.len()).for_each(|n| world.cluster.kill(n));
    all_clients_get_the_error(&world, "killed");
    (0..world.cluster.len()).for_each(|n| world.cluster.revive(n));
    say(&format!("  a cluster that was killed: {}", world.recovered()));

    let all = 0..world.cluster.len();
    let pauses: Vec<Pause> = all.map(|n| world.cluster.pause(n, TIMEOUT * 4)).collect();
    all_clients_get_the_error(&world, "paused");
    drop(pauses);
    say(&format!("  a cluster that was paused: {}", world.recovered()));
    for n in 0..SERVERS {
        let reply = world.servers[n].client().line(&format!("GET before:{n}"));
        assert_eq!(reply, Value::Bulk(n.to_string().into_bytes()));
    }
    world.assert_sound();
}

/// Clients of all servers get an error that names the store, about `store-timeout` after their request.
fn all_clients_get_the_error(world: &World, how: &str) {
    const LINES: [&str; 6] =
        ["GET before:0", "INCR stopped", "SADD s a b c", "SPOP s", "SINTER s t", "APPEND before:1 x"];
    let error_after = |port: u16, line: &str| {
        let mut client = Client::connect(port).unwrap();
        let since = Instant::now();
        let reply = client.line(line);
        let took = since.elapsed();
        let Value::Error(text) = reply else { panic!("{line} on a {how} cluster: {reply:?}") };
        let text = String::from_utf8(text).unwrap();
        // A commit under way when the cluster stopped would be unknown; none is under way here.
        assert!(text.starts_with("ERR the store is unavailable"), "{line} on a {how} cluster: {text}");
        took
    };
    let took: Vec<Duration> = std::thread::scope(|scope| {
        let asked = world.servers.iter().flat_map(|s| LINES.map(|line| (s.port, line)));
        let asked: Vec<_> = asked.map(|(port, line)| scope.spawn(move || error_after(port, line))).collect();
        asked.into_iter().map(|a| a.join().unwrap()).collect()
    });
    let (first, last) = (took.iter().min().unwrap(), took.iter().max().unwrap());
    say(&format!("  a cluster that was {how}: the error came after {first:.1?} to {last:.1?}"));
    assert!(*first > TIMEOUT / 2 && *last < TIMEOUT * 2, "{took:?}");
}
