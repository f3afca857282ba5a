//! Hazard: on a store that others share, a client waits for ever for an element that is there, or two get the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod support;

use bytes::Bytes;
use cluster::{Cluster, units};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::rng::Rng;
use tern::exec::Wait;
use tern::server::ClientState;
use tern::server::reply::Reply;
use tern::store::faulty::FaultRates;
use tern::store::tamper::Tamper;
use tern::types::object;
use tern::types::zset::{self, Change, Limits, Score};

/// Elements that each producer pushes.
const EACH: usize = 300;
/// No element may wait for so long while clients wait for it.
const STALL: Duration = Duration::from_secs(5);

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// Waits on server `n` until there is something, or `over`.
async fn wait(c: &Cluster, n: usize, line: &str, over: &AtomicBool) -> Option<Reply> {
    let member = &c.members[n];
    let mut client = ClientState::new(Default::default(), true);
    let mut waiting = Wait::new(&member.server, &client, units::call(units::words(line)), None);
    loop {
        if let Some(reply) = waiting.go_on(&member.exec, &mut client, false).await {
            return Some(reply);
        }
        while tokio::time::timeout(Duration::from_millis(50), waiting.called(&member.server, || None))
            .await
            .is_err()
        {
            if over.load(SeqCst) {
                return None;
            }
        }
    }
}

async fn produce(c: &Cluster, n: usize, mut rng: Rng) {
    for element in 0..EACH {
        let unit = units::pipeline(&[match rng.below(8) {
            0 => format!("SWAPDB 0 {}", 1 + rng.below(2)),
            1..4 => format!("LPUSH q0 {n}.{element}"),
            _ => format!("RPUSH q{} {n}.{element}", rng.below(2)),
        }]);
        let swaps = unit.calls[0].row.name == "swapdb";
        let replies = units::replies(&c.members[n % 2].exec, unit).await;
        assert!(!matches!(replies[0], Reply::Error(_)), "{replies:?}");
        if swaps {
            let line = format!("RPUSH q1 {n}.{element}");
            units::replies(&c.members[n % 2].exec, units::pipeline(&[line])).await;
        }
        if rng.below(3) == 0 {
            tokio::time::sleep(Duration::from_micros(rng.below(3000) as u64)).await;
        }
    }
}

/// The elements that were handed out, or why not all of them.
async fn run(rates: FaultRates, tamper: Option<Arc<dyn Tamper>>, swaps: bool) -> Result<usize, String> {
    let (seed, c) = (Rng::any_seed(), Arc::new(Cluster::on_system_clock(2).await));
    support::say(&format!("waiting: TERN_SEED={seed}"));
    c.faulty.set_rates(rates);
    c.faulty.set_tamper(tamper);
    let (over, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    let twice = Arc::new(AtomicUsize::new(0));
    let mut consumers = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (c, over, taken, twice) = (c.clone(), over.clone(), taken.clone(), twice.clone());
        let line = ["BLPOP q0 q1 0", "BRPOP q1 q0 0", "BLPOP q0 q1 q0 0"][n % 3];
        consumers.spawn(async move {
            while let Some(reply) = wait(&c, n % 2, line, &over).await {
                let Reply::Array(items) = reply else { panic!("{reply:?}") };
                let fresh = taken.lock().unwrap().insert(text(&items[1]));
                twice.fetch_add(usize::from(!fresh), SeqCst);
            }
        });
    }
    let mut producers = tokio::task::JoinSet::new();
    for n in 0..3 {
        let c = c.clone();
        let rng = Rng::new(seed + n as u64);
        producers
            .spawn(async move { if swaps { produce(&c, n, rng).await } else { push(&c, n, rng).await } });
    }
    while producers.join_next().await.transpose().unwrap().is_some() {}
    let (mut last, mut since, mut rounds) = (0, Instant::now(), 0);
    let result = loop {
        let n = taken.lock().unwrap().len();
        if n == 3 * EACH {
            break Ok(n);
        }
        if n != last {
            (last, since) = (n, Instant::now());
        }
        if swaps {
            // What is in another database comes back sooner or later.
            units::replies(&c.members[0].exec, units::pipeline(&[format!("SWAPDB 0 {}", 1 + rounds % 2)]))
                .await;
            rounds += 1;
        }
        if since.elapsed() > STALL {
            break Err(format!("{n} of {} elements, and nobody is woken", 3 * EACH));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    over.store(true, SeqCst);
    c.faulty.set_tamper(None);
    while consumers.join_next().await.transpose().unwrap().is_some() {}
    assert_eq!(twice.load(SeqCst), 0, "elements were handed out twice");
    result
}

async fn push(c: &Cluster, n: usize, mut rng: Rng) {
    for element in 0..EACH {
        let line = format!("RPUSH q{} {n}.{element}", rng.below(2));
        units::replies(&c.members[n % 2].exec, units::pipeline(&[line])).await;
        if rng.below(3) == 0 {
            tokio::time::sleep(Duration::from_micros(rng.below(3000) as u64)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_is_there() {
    assert_eq!(run(FaultRates::default(), None, false).await, Ok(3 * EACH));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_a_store_that_fails() {
    let rates = FaultRates { unknown_late: 0.0, ..FaultRates::mixed() };
    assert_eq!(run(rates, None, false).await, Ok(3 * EACH));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_while_databases_are_swapped() {
    assert_eq!(run(FaultRates::default(), None, true).await, Ok(3 * EACH));
}

/// Several transactions together can leave a record without members. One that began before them adds a member, and
/// does not change the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_a_sorted_set_whose_record_was_left_over_wakes() {
    const PARTS: usize = 12;
    const EACH: usize = 50;
    let c = Cluster::on_system_clock(1).await;
    let member = &c.members[0];
    let entries: Vec<String> = (0..PARTS * EACH).map(|n| format!("1 m{n}")).collect();
    units::replies(&member.exec, units::pipeline(&[format!("ZADD z {}", entries.join(" "))])).await;
    let change = async |changes: Vec<Change>| {
        let tx = member.server.store.begin();
        let prefix = member.server.space.catalog.load(&tx).await.unwrap().prefix(0).unwrap();
        let s = member.server.space.scope(&tx, prefix);
        let mut slot = object::open_members(&s, &Bytes::from_static(b"z")).await.unwrap();
        zset::change(&s, &mut slot, Limits { members: 128, length: 64 }, &changes).await.unwrap();
        tx
    };
    let one = Score::new(1.0);
    let gone = |n: usize| Change { member: format!("m{n}").into(), from: one, to: None };
    let mut removals = Vec::new();
    for part in 0..PARTS {
        removals.push(change((0..EACH).map(|n| gone(PARTS * n + part)).collect()).await);
    }
    let addition = change(vec![Change { member: "new".into(), from: None, to: one }]).await;
    for tx in removals {
        tx.commit().await.unwrap();
    }
    assert_eq!(units::replies(&member.exec, units::pipeline(&["EXISTS z"])).await, [Reply::Int(0)]);
    let over = AtomicBool::new(false);
    let waits = tokio::time::timeout(STALL, wait(&c, 0, "BZPOPMIN z 0", &over));
    let adds = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        addition.commit().await.unwrap();
    };
    let (got, ()) = tokio::join!(waits, adds);
    let got = got.expect("nobody is woken").unwrap();
    let wanted = [Reply::Bulk("z".into()), Reply::Bulk("new".into()), Reply::Double(1.0)];
    assert_eq!(got, Reply::Array(wanted.to_vec()));
}

/// A push between the read and the watch is missed.
struct LateWatches;
impl Tamper for LateWatches {
    fn watches_after(&self) -> Option<Duration> {
        Some(Duration::from_millis(3))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_comes_late_is_found() {
    for _ in 0..5 {
        if run(FaultRates::default(), Some(Arc::new(LateWatches)), false).await.is_err() {
            return;
        }
    }
    panic!("a missed wake-up was not noticed");
}

/// The keys and ids that XREADGROUP has delivered.
fn delivered(reply: Reply) -> Vec<(String, String)> {
    let Reply::Keyed(keys) = reply else { panic!("{reply:?}") };
    let mut all = Vec::new();
    for (key, entries) in keys {
        let entries = match entries {
            Reply::Packed(shape, strings) => Reply::unpacked(shape, &strings),
            entries => entries,
        };
        let Reply::Array(entries) = entries else { panic!("{entries:?}") };
        for entry in entries {
            let Reply::Array(parts) = entry else { panic!("{entry:?}") };
            all.push((text(&key), text(&parts[0])));
        }
    }
    all
}

/// Consumers on both servers wait for entries that clients of both add to two streams.
async fn consume(rates: FaultRates) -> usize {
    let (seed, c) = (Rng::any_seed(), Arc::new(Cluster::on_system_clock(2).await));
    support::say(&format!("waiting for entries: TERN_SEED={seed}"));
    for key in ["s0", "s1"] {
        let line = format!("XGROUP CREATE {key} g 0 MKSTREAM");
        assert_eq!(units::replies(&c.members[0].exec, units::pipeline(&[line])).await, [Reply::Ok]);
    }
    c.faulty.set_rates(rates);
    let (over, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    let mut consumers = tokio::task::JoinSet::new();
    for n in 0..5 {
        let (c, over, taken) = (c.clone(), over.clone(), taken.clone());
        let line = format!("XREADGROUP GROUP g c{n} COUNT {} BLOCK 0 STREAMS s0 s1 > >", 1 + n);
        consumers.spawn(async move {
            while let Some(reply) = wait(&c, n % 2, &line, &over).await {
                for entry in delivered(reply) {
                    assert!(taken.lock().unwrap().insert(entry.clone()), "{entry:?} twice");
                }
            }
        });
    }
    let mut producers = tokio::task::JoinSet::new();
    for n in 0..3 {
        let (c, mut rng) = (c.clone(), Rng::new(seed + n as u64));
        producers.spawn(async move {
            for element in 0..EACH {
                let line = format!("XADD s{} * from {n} number {element}", rng.below(2));
                units::replies(&c.members[n % 2].exec, units::pipeline(&[line])).await;
            }
        });
    }
    while producers.join_next().await.transpose().unwrap().is_some() {}
    let (mut last, mut since) = (0, Instant::now());
    while last < 3 * EACH && since.elapsed() < STALL {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let n = taken.lock().unwrap().len();
        if n != last {
            (last, since) = (n, Instant::now());
        }
    }
    over.store(true, SeqCst);
    while consumers.join_next().await.transpose().unwrap().is_some() {}
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_delivered_once_by_two_servers() {
    assert_eq!(consume(FaultRates::default()).await, 3 * EACH);
    assert_eq!(consume(FaultRates { unknown_late: 0.0, ..FaultRates::mixed() }).await, 3 * EACH);
}
