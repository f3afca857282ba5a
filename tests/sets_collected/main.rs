//! Hazard: the collector of the dictionary removes a member that a set holds, or brings a removed one back.
//!
//! Workers change sets of their own databases through several servers, with shared members that come and go
//! all the time, and compare every reply with a model, while collectors on all servers run without a pause
//! and are aborted anywhere. At the end the models agree, `tern check` finds nothing, and once all sets are
//! gone the dictionary is empty.
//!
//! `TERN_COLLECT_SECONDS` sets the duration (5), `TERN_SEED` repeats a run's commands. `TERN_TEST_STORE=fdb`
//! runs it on a cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../fdb_cluster/mod.rs"]
mod fdb_cluster;
mod loads;
mod paths;
mod planted;
mod work;

use cluster::Cluster;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tern::env::Rng;
use tern::error::{Error, StoreError};
use tern::keyspace::dictionary::collector::{Phase, State};
use tern::keyspace::keys::root;
use tern::lifecycle::check::check;
use tern::lifecycle::reclaim::reclaim;
use tern::store::faulty::FaultRates;
use tern::store::{RangeOptions, Read, key_after};
use tern::types::set::collect::grace::Waiting;
use tern::types::set::collect::{Collector, Halt, Pace, Step};
use work::{Failure, Worker};

const SERVERS: usize = 3;
const WORKERS: usize = 6;

/// No command in these tests takes long before its reply begins.
fn pace() -> Pace {
    Pace { share: 100, grace: Duration::from_millis(100), slice: 5, ..Pace::default() }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap())
}

async fn cluster() -> Cluster {
    #[cfg(feature = "fdb")]
    if fdb_cluster::wanted() {
        let mut c = Cluster::on(fdb_cluster::fresh().await);
        for _ in 0..SERVERS {
            c.join(tern::env::Env::system()).await;
        }
        return c;
    }
    Cluster::on_system_clock(SERVERS).await
}

async fn state(c: &Cluster) -> State {
    loop {
        match State::read(&c.store.begin(), Read::Snapshot).await {
            Err(e) if e.is_retryable() => {}
            state => return state.unwrap(),
        }
    }
}

/// One server's collector, which is aborted anywhere and starts again.
async fn collect(c: Arc<Cluster>, n: usize, seed: u64, until: Instant) -> Result<u64, Failure> {
    let (mut rng, mut waiting, mut dropped) = (Rng::seeded(seed), Waiting::default(), 0);
    while Instant::now() < until {
        let collector = Collector::new(c.space(n), pace());
        let patience = Duration::from_millis(if rng.below(3) == 0 { rng.below(30) } else { 100_000 });
        let step = async {
            let state = collector.state().await?;
            waiting.look(c.space(n), &pace(), &c.store.begin(), &state).await?;
            if state.phase == Phase::Idle {
                collector.begin().await?;
            }
            collector.step().await
        };
        match tokio::time::timeout(patience, step).await {
            Err(_) => dropped += 1,
            Ok(Ok(Step::Worked) | Err(Halt::Lost | Halt::Again)) => {}
            Ok(Ok(Step::Idle | Step::Waits)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Ok(Err(Halt::Failed(Error::Store(e)))) if may_happen(&e) => {}
            Ok(Err(Halt::Failed(e))) => return Err(Failure(format!("the collector of server {n}: {e:?}"))),
        }
    }
    Ok(dropped)
}

/// Errors of a store that conflicts, or that fails now and then.
fn may_happen(e: &StoreError) -> bool {
    e.is_retryable() || matches!(e, StoreError::Unknown | StoreError::Unavailable(_))
}

async fn reclaim_all(c: Arc<Cluster>, until: Instant) {
    while Instant::now() < until {
        for n in 0..c.members.len() {
            let _ = reclaim(c.space(n), None, 64).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The epochs that servers remember for Grace.
fn waiting(c: &Cluster) -> Vec<Waiting> {
    c.members.iter().map(|_| Waiting::default()).collect()
}

/// All servers read the state of the collection.
async fn look(c: &Cluster, waiting: &mut [Waiting]) {
    let now = state(c).await;
    for (n, waiting) in waiting.iter_mut().enumerate() {
        waiting.look(c.space(n), &pace(), &c.store.begin(), &now).await.unwrap();
    }
}

/// Server 0 continues a cycle until `done`.
async fn until(c: &Cluster, pace: Pace, done: impl Fn(&State) -> bool) {
    let (mut waiting, since) = (waiting(c), Instant::now());
    while !done(&state(c).await) {
        assert!(since.elapsed() < Duration::from_secs(60), "the cycle must continue: {:?}", state(c).await);
        look(c, &mut waiting).await;
        if Collector::new(c.space(0), pace).step().await.unwrap() == Step::Waits {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Whole cycles without interference.
async fn cycles(c: &Cluster, n_cycles: u64) {
    let before = state(c).await.cycles;
    let mut waiting = waiting(c);
    let (mut last, mut since) = (state(c).await, Instant::now());
    loop {
        assert!(since.elapsed() < Duration::from_secs(60), "the cycle must continue: {last:?}");
        for (n, waiting) in waiting.iter_mut().enumerate() {
            let now = state(c).await;
            if now.cycles >= before + n_cycles {
                return;
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let _ = waiting.look(c.space(n), &pace(), &c.store.begin(), &now).await;
            let collector = Collector::new(c.space(n), pace());
            if now.phase == Phase::Idle {
                let _ = collector.begin().await;
            }
            if let Ok(Step::Waits) = collector.step().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Reclaims all garbage.
async fn reclaim_whole(c: &Cluster) {
    let (from, to) = root::garbage_range();
    while !c.keys(&from, &to).await.is_empty() {
        for n in 0..c.members.len() {
            let _ = reclaim(c.space(n), None, 1000).await;
        }
    }
}

/// The number of rows.
async fn rows(c: &Cluster, from: &[u8], to: &[u8]) -> usize {
    let (mut begin, mut all) = (from.to_vec(), 0);
    loop {
        let opts = RangeOptions { limit: 5000, ..RangeOptions::default() };
        let page = c.store.begin().get_range(&begin, to, opts, Read::Snapshot).await.unwrap();
        all += page.pairs.len();
        match page.pairs.last() {
            Some((key, _)) if page.more => begin = key_after(key),
            _ => return all,
        }
    }
}

/// Runs workers and collectors for `time`. Returns the first failure, or the number of commands.
async fn stress(c: &Arc<Cluster>, seed: u64, time: Duration) -> Result<String, Failure> {
    let until = Instant::now() + time;
    let workers: Vec<_> = (0..WORKERS)
        .map(|n| tokio::spawn(Worker::new(c.clone(), n, seed * 1000 + n as u64).run(until)))
        .collect();
    let collectors: Vec<_> =
        (0..SERVERS).map(|n| tokio::spawn(collect(c.clone(), n, seed * 77 + n as u64, until))).collect();
    tokio::spawn(reclaim_all(c.clone(), until));
    let (mut done, mut models, mut dropped) = (0, Vec::new(), 0);
    for worker in workers {
        let worker = worker.await.map_err(|e| Failure(e.to_string()))??;
        done += worker.done;
        models.push(worker);
    }
    for collector in collectors {
        dropped += collector.await.map_err(|e| Failure(e.to_string()))??;
    }
    for worker in &mut models {
        worker.verify_all().await?;
    }
    let s = state(c).await;
    Ok(format!(
        "{done} commands, {} cycles, {} epochs, {} members collected, {dropped} steps dropped",
        s.cycles, s.epoch, s.collected
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_is_lost_or_comes_back_while_the_collector_never_rests() {
    let (seed, time) = (number("TERN_SEED").unwrap_or(1), number("TERN_COLLECT_SECONDS").unwrap_or(5));
    let c = Arc::new(cluster().await);
    let done = stress(&c, seed, Duration::from_secs(time)).await;
    println!("seed {seed}: {done:?}");
    let done = done.unwrap();
    assert_collected(&c, &done).await;
}

/// After a stress: members were collected, nothing is damaged, and nothing is left once there are no sets.
async fn assert_collected(c: &Cluster, done: &str) {
    let s = state(c).await;
    assert!(s.collected > 0 && s.epoch > 1, "{done}: {s:?}");
    let report = check(&c.store, &mut |_, _| {}).await.unwrap();
    assert!(report.is_sound(), "{report}");
    // The cycle under way ends, then one whole cycle sees that nothing is left.
    c.line(0, "FLUSHALL").await;
    reclaim_whole(c).await;
    cycles(c, 3).await;
    assert_eq!(rows(c, b"f", b"g").await, 0, "no unreferenced member may be left: {:?}", state(c).await);
    assert_eq!(rows(c, b"b", b"c").await, 0);
    assert_eq!(rows(c, b"e", b"f").await, 1, "only the state must be left");
}

/// A client creates and removes members as fast as it can, beside a collector at the default pace. A cycle
/// removes members created during the previous one; so if each takes as long as the last, only those of the
/// last two cycles are left at the end. If the collector falls behind, each cycle takes longer, and most
/// members belong to the last two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collector_keeps_up_with_a_load() {
    let (c, start) = (Arc::new(cluster().await), Instant::now());
    let until = start + Duration::from_secs(150);
    let keeps = tokio::spawn(keep_up(c.clone(), until));
    let reclaims = tokio::spawn(reclaim_all(c.clone(), until));
    let (mut made, mut now) = (0, state(&c).await);
    // Cycles without dead members are no epoch.
    while now.epoch < 8 {
        assert!(Instant::now() < until, "{made} made in {:?}: {now:?}", start.elapsed());
        let key = format!("k{}", made / 5000);
        for _ in 0..5 {
            short_lived(&c, &key, made).await;
            made += 1000;
        }
        c.line(0, &format!("DEL {key}")).await;
        now = state(&c).await;
    }
    keeps.abort();
    reclaims.abort();
    println!("{made} made in {:?}, {} collected meanwhile", start.elapsed(), now.collected);
    assert!(now.collected > made / 5 * 2, "{} of {made} members were collected", now.collected);
}

/// A server's collector as the server runs it, except for the length of Grace.
async fn keep_up(c: Arc<Cluster>, until: Instant) {
    let mut waiting = waiting(&c);
    while Instant::now() < until {
        let now = state(&c).await;
        for (n, waiting) in waiting.iter_mut().enumerate() {
            let _ = waiting.look(c.space(n), &pace(), &c.store.begin(), &now).await;
        }
        let pace = Pace { grace: pace().grace, ..Pace::default() }.hurried(&now);
        let collector = Collector::new(c.space(0), pace);
        if now.phase == Phase::Idle {
            let _ = collector.begin().await;
        }
        if let Ok(Step::Waits) = collector.step().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A thousand new members.
async fn short_lived(c: &Cluster, key: &str, made: u64) {
    let members =
        (made..made + 1000).map(|n| format!("at://did:plc:short-lived/app.bsky.feed.like/{n:024x}"));
    let words = ["SADD".to_owned(), key.to_owned()].into_iter().chain(members);
    let reply = c.run(0, words.map(bytes::Bytes::from).collect()).await;
    assert_eq!(reply, tern::server::reply::Reply::Int(1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_is_lost_or_comes_back_on_a_store_that_fails() {
    let c = Arc::new(cluster().await);
    // A command of a thousand reads would never succeed.
    c.faulty.set_rates(FaultRates { delay: 0.01, too_old_read: 0.0, ..FaultRates::mixed() });
    let done = stress(&c, 7, Duration::from_secs(number("TERN_COLLECT_SECONDS").unwrap_or(3))).await;
    println!("{done:?}");
    let done = done.unwrap();
    c.faulty.set_rates(FaultRates::default());
    assert_collected(&c, &done).await;
}

/// Members that come and go: the dictionary holds only a few rounds of them, however many there were.
/// `TERN_COLLECT_MEMBERS` sets the number (100 000).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_lived_members_do_not_fill_the_store() {
    let all = number("TERN_COLLECT_MEMBERS").unwrap_or(100_000);
    let (c, start) = (Arc::new(cluster().await), Instant::now());
    // A round is the number of members at one time: one twentieth, or less if there are very many.
    let round = (all / 20).min(200_000);
    let (mut made, mut most) = (0, 0);
    while made < all {
        let key = format!("k{}", made / round);
        for _ in 0..round / 1000 {
            short_lived(&c, &key, made).await;
            made += 1000;
        }
        c.line(0, &format!("DEL {key}")).await;
        reclaim_whole(&c).await;
        let held = rows(&c, b"f", b"g").await as u64;
        most = most.max(held);
        assert!(held <= 2 * round, "{held} of {made} members are still in the dictionary");
        cycles(&c, 1).await;
        if (made / round).is_multiple_of(5) {
            let (s, disk) = (state(&c).await, c.store.stats().disk_bytes >> 20);
            println!(
                "{made} made, {} collected, {} there, {disk} MiB on disk, {:?}",
                s.collected,
                rows(&c, b"f", b"g").await,
                start.elapsed()
            );
        }
    }
    assert_eq!(state(&c).await.collected, all);
    assert_eq!(rows(&c, b"b", b"c").await, 0);
    println!("{made} members, {most} at once, {:?}", start.elapsed());
}
