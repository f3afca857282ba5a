//! How long one command keeps its worker thread from other tasks: the longest time in which no other task of
//! the thread runs, while commands request much work. Also the memory of their replies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::Rig;
use rig::units::pace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tern::server::acl::{Context, Reason, Refusal};
use tern::server::reply::Reply;
use tern::telemetry::slowlog::SlowCommand;

/// The shortest of this many runs counts: the machine may be busy.
const RUNS: usize = 3;
/// The time between two looks at the clock.
const TICK: Duration = Duration::from_millis(1);

fn argv(words: &[&str], members: impl Iterator<Item = String>) -> Vec<Bytes> {
    words.iter().map(|w| w.to_string()).chain(members).map(Bytes::from).collect()
}

fn words(line: &str) -> Vec<Bytes> {
    argv(&line.split(' ').collect::<Vec<_>>(), std::iter::empty())
}

/// Runs a command; returns the longest time for which no other task ran.
async fn held(rig: &mut Rig, argv: Vec<Bytes>) -> (Reply, Duration) {
    let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ticker = {
        let (stop, longest) = (stop.clone(), longest.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                tokio::time::sleep(TICK).await;
                longest.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        })
    };
    tokio::task::yield_now().await;
    let reply = rig.run_bytes(argv).await;
    stop.store(true, Ordering::Relaxed);
    ticker.await.unwrap();
    (reply, Duration::from_micros(longest.load(Ordering::Relaxed)))
}

/// Fails if others wait longer than `times` 1000 GETs. `times` is about twice the maximum measured on a
/// machine with three to seven other processes per core.
async fn assert_soon(rig: &Rig, line: &str, times: u32, waited: Duration) {
    let pace = pace(&rig.exec).await;
    println!("{line}: others wait {waited:?}, {:.1} of 1000 GETs", waited.as_secs_f64() / pace.as_secs_f64());
    assert!(waited < pace * times, "{line}: others wait {waited:?}, 1000 GETs take {pace:?}");
}

/// The shortest of a few measurements of `line`; `answers` checks its reply.
async fn assert_not_held(rig: &mut Rig, line: &str, times: u32, answers: impl Fn(&Reply) -> bool) {
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        let (reply, longest) = held(rig, words(line)).await;
        assert!(
            answers(&reply),
            "{line}: {} in {} bytes, {:.100}",
            count(&reply),
            reply.weight(),
            format!("{reply:?}")
        );
        least = least.min(longest);
    }
    assert_soon(rig, line, times, least).await;
}

fn count(reply: &Reply) -> usize {
    match reply {
        Reply::Members(members) => members.len() as usize,
        Reply::Array(items) | Reply::Set(items) => items.len(),
        _ => 0,
    }
}

async fn filled(members: usize) -> Rig {
    let mut rig = Rig::on_system_clock().await;
    for from in (0..members).step_by(50_000) {
        let some = (from..members.min(from + 50_000)).map(|n| format!("member:{}", n * 7_919 % members));
        rig.run_bytes(argv(&["SADD", "s"], some)).await;
    }
    rig
}

#[tokio::test]
async fn random_members_without_end() {
    let mut rig = filled(200_000).await;
    rig.line("SADD few a b c").await;
    for (line, n) in [
        ("SRANDMEMBER s -1000000", 1_000_000),
        ("SRANDMEMBER few -1000000", 1_000_000),
        ("SRANDMEMBER s 150000", 150_000),
        ("SRANDMEMBER s 20000", 20_000),
    ] {
        assert_not_held(&mut rig, line, 6, |reply| count(reply) == n && reply.weight() < 20 << 20).await;
    }
}

#[tokio::test]
async fn many_members_are_popped() {
    let mut rig = filled(200_000).await;
    assert_not_held(&mut rig, "SPOP s 50000", 15, |reply| count(reply) == 50_000).await;
    assert_eq!(rig.line("SCARD s").await, Reply::Int(50_000));
}

#[tokio::test]
async fn many_members_are_sorted() {
    let mut rig = filled(200_000).await;
    assert_not_held(&mut rig, "SORT s ALPHA", 7, |reply| count(reply) == 200_000).await;
    assert_not_held(&mut rig, "SORT s ALPHA DESC LIMIT 0 10", 7, |reply| count(reply) == 10).await;
}

#[tokio::test]
async fn long_logs_are_shown_and_cleared() {
    let mut rig = Rig::on_system_clock().await;
    let server = rig.server.clone();
    server.config.set(&[("slowlog-log-slower-than".into(), "-1".into())]).unwrap();
    let arguments: Vec<Bytes> = (0..32).map(|n| Bytes::from(format!("argument {n}"))).collect();
    let slow = |n: u64| SlowCommand {
        id: 0,
        at: n,
        took: n,
        argv: arguments.clone(),
        addr: "127.0.0.1:1".into(),
        name: Bytes::new(),
    };
    let refusal = |n: u64| Refusal {
        id: 0,
        count: 1,
        reason: Reason::Key,
        context: Context::TopLevel,
        object: Bytes::from(n.to_string()),
        user: Bytes::from_static(b"bob"),
        created: n,
        updated: n,
        client: Bytes::from_static(b"id=1"),
    };
    const ALL: usize = 200_000;
    server.telemetry.slow.add((0..ALL as u64).map(slow), ALL);
    (0..ALL as u64).for_each(|n| server.acl.log.add(refusal(n), ALL));
    assert_not_held(&mut rig, "SLOWLOG GET -1", 90, |reply| count(reply) == ALL).await;
    assert_not_held(&mut rig, "ACL LOG 1000000", 40, |reply| count(reply) == ALL).await;
    for (line, times) in [("SLOWLOG RESET", 25), ("ACL LOG RESET", 18)] {
        let (reply, longest) = held(&mut rig, words(line)).await;
        assert_eq!(reply, Reply::Ok);
        assert_soon(&rig, line, times, longest).await;
    }
    assert_eq!(rig.line("SLOWLOG LEN").await, Reply::Int(0));
    let newest = ALL as u64 - 1;
    server.telemetry.slow.add((0..3).map(slow), ALL);
    let ids = |end, most| server.telemetry.slow.before(end, most).iter().map(|s| s.id).collect::<Vec<_>>();
    assert_eq!(ids(u64::MAX, 2), [newest + 3, newest + 2]);
    assert_eq!(ids(newest + 2, 9), [newest + 1], "cleared entries must not be shown");
}

#[tokio::test]
async fn many_keys_are_listed_and_removed() {
    let mut rig = Rig::on_system_clock().await;
    let names = |from: usize| (from..from + 20_000).map(|n| format!("key:{n}"));
    for from in (0..60_000).step_by(20_000) {
        let pairs = names(from).flat_map(|name| [name, "v".into()]);
        assert_eq!(rig.run_bytes(argv(&["MSET"], pairs)).await, Reply::Ok);
    }
    assert_not_held(&mut rig, "KEYS k*[0-9]*[0-9]*[0-9]*[0-9]?", 8, |reply| count(reply) == 50_000).await;
    let mut least = Duration::MAX;
    for from in (0..60_000).step_by(20_000) {
        let (reply, longest) = held(&mut rig, argv(&["DEL"], names(from))).await;
        assert_eq!(reply, Reply::Int(20_000));
        least = least.min(longest);
    }
    assert_soon(&rig, "DEL of 20000 keys", 6, least).await;
}

/// A command too large for any transaction is refused as soon as that is clear, not after all of it was
/// tried.
#[tokio::test]
async fn too_many_keys_are_refused_at_once() {
    let mut rig = Rig::on_system_clock().await;
    let keys = |n: usize| argv(&["DEL", "here"], (0..n).map(|n| format!("no such key:{n:0>40}")));
    rig.line("SET here v").await;
    let (few, many) = (keys(30_000), keys(1_000_000));
    let start = Instant::now();
    let (some, _) = held(&mut rig, few).await;
    let each = start.elapsed() / 30_000;
    assert_eq!(some, Reply::Int(1));
    rig.line("SET here v").await;
    let start = Instant::now();
    let (refused, longest) = held(&mut rig, many).await;
    let took = start.elapsed();
    // A cluster's transaction may be over before a debug build has read that much; it is tried twice.
    let is_slow = rig::fdb_cluster::wanted() && rig::error(&refused).contains("too old");
    assert!(is_slow || rig::error(&refused).contains("10 MB"), "{refused:?}");
    println!("{each:?} a key; a million refused after {took:?}");
    assert_soon(&rig, "DEL of a million keys", 270, longest).await;
    let most = if is_slow { Duration::from_secs(20) } else { each * 700_000 };
    assert!(took < most, "{took:?} of {most:?}");
}
