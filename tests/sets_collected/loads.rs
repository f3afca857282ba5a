//! Hazard: clients create members faster than the collector removes them, and the store grows meanwhile;
//! clients wait for the collector although they create no members, or although most members are live; a grown
//! dictionary is collected too late.

use crate::cluster::{Cluster, START};
use crate::{cluster, pace, reclaim_whole, short_lived, state, until};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tern::env::Env;
use tern::keyspace::dictionary::backpressure;
use tern::keyspace::dictionary::collector::{Phase, State};
use tern::keyspace::keys::root;
use tern::server::reply::Reply;
use tern::types::set::collect::{Collector, Pace, Step};

/// The number of dead members that may remain.
const BACKLOG: u64 = 2000;

fn add(key: &str, first: u64, n: u64, len: usize) -> Vec<Bytes> {
    let words = ["SADD".to_owned(), key.to_owned()].into_iter();
    words.chain((first..first + n).map(|n| format!("{n:0len$}"))).map(Bytes::from).collect()
}

/// Creates and removes members as fast as one client can.
async fn load(c: Arc<Cluster>, server: usize, made: Arc<AtomicU64>) {
    loop {
        let first = made.fetch_add(100, Ordering::Relaxed);
        let key = format!("k{}", first / 1000);
        c.run(server, add(&key, first, 100, 70)).await;
        c.line(server, &format!("DEL {key}")).await;
    }
}

/// A sweep of at most 5000 members a second on one server, and a load on two others: the load is slowed to
/// the rate that `keyspace::dictionary::backpressure` allows. That rate lags behind: the more, the slower the
/// sweep is on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_is_faster_than_the_sweep_is_slowed() {
    const DEAD: u64 = 16_000;
    let c = Arc::new(cluster().await);
    for first in (0..DEAD).step_by(1000) {
        short_lived(&c, "k", first).await;
    }
    c.line(0, "DEL k").await;
    reclaim_whole(&c).await;
    let slow = Pace { batch: 500, ..pace() };
    Collector::new(c.space(0), slow).begin().await.unwrap();
    until(&c, slow, |now| now.phase == Phase::Sweep).await;
    let made = Arc::new(AtomicU64::new(DEAD));
    let loads = [1, 2].map(|server| tokio::spawn(load(c.clone(), server, made.clone())));
    let (mut now, begun) = (state(&c).await, Instant::now());
    while now.candidates - now.swept > BACKLOG {
        for member in &c.members {
            backpressure::look(&member.server.space, &c.store.begin(), &now, BACKLOG).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(Collector::new(c.space(0), slow).step().await.unwrap(), Step::Worked);
        now = state(&c).await;
    }
    let made = made.load(Ordering::Relaxed) - DEAD;
    loads.iter().for_each(|load| load.abort());
    let (swept, took) = (now.swept, begun.elapsed());
    println!("{swept} swept in {took:?}, {made} made meanwhile");
    let lag = 6 * BACKLOG * 5 * took.as_millis() as u64 / swept;
    assert!(made <= swept / 2 + lag, "{made} members were made while {swept} were swept in {took:?}");
    for n in [1, 2] {
        assert!(c.space(n).backpressure.delayed.load(Ordering::Relaxed) > 0, "server {n} must slow the load");
    }
}

/// Pretends that another server sweeps this many of `candidates`, beside `live`.
async fn pretend(c: &Cluster, candidates: u64, swept: u64, live: u64) {
    let now = state(c).await;
    let (phase, owner) = (Phase::Sweep, c.id(1));
    let tx = c.store.begin();
    let state = State { phase, owner, candidates, swept, live, turn: now.turn + 1, ..now };
    tx.set(&root::collector(), &state.encode()).unwrap();
    tx.bump_metadata_version().unwrap();
    tx.commit().await.unwrap();
    // Until all jobs have read the state.
    tokio::time::sleep(Duration::from_millis(1500)).await;
}

/// The command's duration, and whether it was counted as slowed.
async fn timed(c: &Cluster, argv: Vec<Bytes>) -> (Duration, bool) {
    let delayed = || c.space(0).backpressure.delayed.load(Ordering::Relaxed);
    let (before, start) = (delayed(), Instant::now());
    let reply = c.run(0, argv).await;
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    (start.elapsed(), delayed() > before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_creators_of_too_many_members_wait() {
    let mut c = Cluster::empty();
    let backlog = [("dictionary-gc-backlog", "2000")];
    c.join_with(Env::system(), &backlog).await;
    c.join_with(Env::system(), &backlog).await;
    tern::jobs::spawn(&c.members[0].server);
    pretend(&c, 10_000, 0, 0).await;
    // Members created before the server looked do not count.
    c.run(0, add("a", 0, 1000, 70)).await;
    pretend(&c, 10_000, 100, 0).await;
    let (took, delayed) = timed(&c, add("a", 1000, 1000, 70)).await;
    assert!(delayed && took > Duration::from_millis(200), "{took:?}");
    // A command that interns before its transaction waits too, and for at most a second.
    let (took, delayed) = timed(&c, add("heavy", 0, 1700, 500)).await;
    assert!(delayed && (Duration::from_millis(200)..Duration::from_secs(20)).contains(&took), "{took:?}");
    let waited = c.space(0).backpressure.delayed_us.load(Ordering::Relaxed);
    assert!(waited <= 2_000_000, "{waited} us");
    for line in
        ["SET k v", "SADD numbers 1 2 3", "SADD small x y", "SUNIONSTORE b a", "SMEMBERS small", "DEL b"]
    {
        assert!(
            !timed(&c, line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()).await.1,
            "{line}"
        );
    }
    assert!(!timed(&c, add("c", 0, 1000, 70)).await.1, "the members must be in the dictionary");
    // The sweep is faster than the creation, more members live than are left to sweep, or few are left.
    for (candidates, swept, live) in [(20_000, 17_900, 0), (10_000, 100, 9900), (10_000, 8000, 0)] {
        pretend(&c, candidates, swept, live).await;
        let first = 10_000 + swept + live;
        assert!(!timed(&c, add("a", first, 1000, 70)).await.1, "{swept} of {candidates}, {live} live");
    }
    c.members[0].server.stop.send_replace(true);
}

/// Begins a cycle once as many ids are leased as had members in the last cycle, and at least the backlog,
/// without waiting for the interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grown_dictionary_is_collected_early() {
    let mut c = Cluster::empty();
    let options = [("dictionary-gc-interval", "1000000"), ("dictionary-gc-backlog", "100000")];
    c.join_with(Env::seeded(START, 1), &options).await;
    c.space(0).instances.observe().await.unwrap();
    tern::jobs::spawn(&c.members[0].server);
    // Leases are of 65 536 ids. Each row: blocks leased since the last cycle began, members live in it, and
    // whether a cycle begins.
    let grown = [(1, 0, false), (1, 0, true), (1, 300_000, false), (3, 300_000, false), (1, 300_000, true)];
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for (blocks, live, begins) in grown {
        let before = state(&c).await;
        let tx = c.store.begin();
        tx.set(&root::collector(), &State { live, ..before }.encode()).unwrap();
        tx.commit().await.unwrap();
        c.space(0).ids.take(&c.store.begin(), blocks << 16).await.unwrap();
        c.advance(Duration::from_secs(11));
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let cycles = state(&c).await.cycles - before.cycles;
        assert_eq!(cycles, u64::from(begins), "{blocks} blocks more, {live} members live");
    }
    c.members[0].server.stop.send_replace(true);
}

/// A starting server counts the time since the last cycle: cycles also run if servers restart more often than
/// `dictionary-gc-interval`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_interval_goes_on_while_no_server_runs() {
    // Long ago, lately, never, and by a clock that is ahead.
    for (ended, begins) in
        [(START - 1_500_000, true), (START - 500_000, false), (0, false), (START + 500_000, false)]
    {
        let mut c = Cluster::empty();
        c.join_with(Env::seeded(START, 1), &[("dictionary-gc-interval", "1000")]).await;
        c.space(0).instances.observe().await.unwrap();
        let tx = c.store.begin();
        tx.set(&root::collector(), &State { cycles: 7, ended, ..State::default() }.encode()).unwrap();
        tx.commit().await.unwrap();
        tern::jobs::spawn(&c.members[0].server);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert_eq!(state(&c).await.cycles, 7 + u64::from(begins), "{ended}");
        c.advance(Duration::from_secs(1001));
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert_eq!(state(&c).await.cycles, 8 + u64::from(begins), "{ended}: a cycle later");
        c.members[0].server.stop.send_replace(true);
    }
}
