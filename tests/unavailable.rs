//! Hazard: an unreachable store hangs clients, gets an error that denies a write which may have happened, or
//! stays lost when it returns; and a stop drops replies of commands under way. Every test ends with `tern
//! check`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod support;

use cluster::Cluster;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::resp::{Value, request};
use support::server::{assert_sound, tern, tern_in};
use tern::env::Env;
use tern::server::reply::Reply;
use tern::store::faulty::{FaultRates, Outage};

/// `store-timeout` of these servers, in ms.
const PATIENCE: u64 = 600;

async fn server() -> Cluster {
    let mut c = Cluster::empty();
    c.join_with(Env::system(), &[("store-timeout", &PATIENCE.to_string())]).await;
    assert_eq!(c.line(0, "SET k 1").await, Reply::Ok);
    c
}

async fn error(c: &Cluster, line: &str) -> (String, Duration) {
    let since = Instant::now();
    match c.line(0, line).await {
        Reply::Error(e) => (e.0.into_owned(), since.elapsed()),
        other => panic!("{line}: {other:?}"),
    }
}

#[tokio::test]
async fn a_store_that_refuses_is_tried_for_store_timeout_then_named() {
    let c = server().await;
    c.faulty.set_outage(Outage::Refusing);
    for line in ["GET k", "INCR k", "SET k 2", "EXISTS k"] {
        let (text, took) = error(&c, line).await;
        assert!(text.starts_with("ERR the store is unavailable"), "{line}: {text}");
        let patience = Duration::from_millis(PATIENCE);
        assert!(took >= patience && took < patience * 10, "{line}: {took:?}");
    }
    c.faulty.set_outage(Outage::None);
    assert_eq!(
        c.line(0, "INCR k").await,
        Reply::Int(2),
        "no part of it may be applied, and the server must recover by itself"
    );
    c.assert_sound().await;
}

#[tokio::test]
async fn a_short_outage_is_no_error() {
    let c = server().await;
    c.faulty.set_outage(Outage::Refusing);
    let end = async {
        tokio::time::sleep(Duration::from_millis(PATIENCE / 3)).await;
        c.faulty.set_outage(Outage::None);
    };
    let (wrote, read, ()) = tokio::join!(c.line(0, "INCR k"), c.line(0, "STRLEN k"), end);
    assert_eq!((wrote, read), (Reply::Int(2), Reply::Int(1)));
    c.assert_sound().await;
}

#[tokio::test]
async fn a_store_that_is_silent_is_given_up_and_recovers() {
    let c = server().await;
    c.faulty.set_outage(Outage::Silent(Duration::from_millis(PATIENCE)));
    for line in ["GET k", "INCR k"] {
        let (text, took) = error(&c, line).await;
        assert!(text.starts_with("ERR the store is unavailable"), "{line}: {text}");
        assert!(took < Duration::from_millis(PATIENCE * 10), "{line}: {took:?}");
    }
    c.faulty.set_outage(Outage::None);
    assert_eq!(c.line(0, "INCR k").await, Reply::Int(2));
    c.assert_sound().await;
}

/// An operator then asks for the cause, and changes settings that may help.
#[tokio::test]
async fn server_commands_are_answered_without_the_store() {
    let c = server().await;
    for outage in [Outage::Refusing, Outage::Silent(Duration::from_millis(PATIENCE))] {
        c.faulty.set_outage(outage);
        for line in ["INFO", "INFO everything", "CLIENT LIST", "CONFIG GET maxclients", "SLOWLOG GET", "ROLE"]
        {
            let since = Instant::now();
            let reply = c.line(0, line).await;
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
            assert!(since.elapsed() < Duration::from_millis(PATIENCE * 10), "{line}: {:?}", since.elapsed());
        }
        let Reply::Verbatim(info, _) = c.line(0, "INFO").await else { panic!("no text") };
        let info = String::from_utf8_lossy(&info).into_owned();
        assert!(info.contains("uptime_in_seconds:") && !info.contains("db0:"), "{info}");
        for line in ["DBSIZE", "GET k"] {
            let (text, _) = error(&c, line).await;
            assert!(text.starts_with("ERR the store is unavailable"), "{line}: {text}");
        }
        c.faulty.set_outage(Outage::None);
    }
    let Reply::Verbatim(info, _) = c.line(0, "INFO keyspace").await else { panic!("no text") };
    assert!(String::from_utf8_lossy(&info).contains("db0:keys=1"));
    c.assert_sound().await;
}

/// The store returns while the last attempt waits for it. The known catalog of databases may be stale by
/// then.
#[tokio::test]
async fn server_commands_show_no_stale_database_after_an_outage() {
    let mut c = server().await;
    c.join_with(Env::system(), &[]).await;
    for (n, line) in ["DEBUG OBJECT k", "INFO keyspace"].into_iter().enumerate() {
        c.line(0, "FLUSHALL").await;
        c.line(0, "SET k 1").await;
        c.faulty.set_outage(Outage::Silent(Duration::from_millis(PATIENCE)));
        let back = async {
            tokio::time::sleep(Duration::from_millis(PATIENCE / 2)).await;
            c.faulty.set_outage(Outage::None);
            assert_eq!(c.line(1, "SWAPDB 0 1").await, Reply::Ok);
        };
        let (reply, ()) = tokio::join!(c.line(0, line), back);
        match (n, &reply) {
            (0, Reply::Error(e)) => assert!(e.0.starts_with("ERR the store is unavailable"), "{e:?}"),
            (1, Reply::Verbatim(text, _)) => {
                let text = String::from_utf8_lossy(text);
                assert!(!text.contains("db0:"), "{text}");
            }
            _ => panic!("{line}: {reply:?}"),
        }
    }
    c.assert_sound().await;
}

/// A command queued behind unanswered ones waits, and then is not answered either.
#[tokio::test]
async fn time_spent_in_the_queue_counts() {
    let c = server().await;
    c.faulty.set_outage(Outage::Silent(Duration::from_millis(PATIENCE)));
    let timed_error = |n: u64| {
        let (c, line) = (&c, if n.is_multiple_of(3) { "GET k" } else { "INCR k" });
        async move {
            tokio::time::sleep(Duration::from_millis(PATIENCE * n / 8)).await;
            let (text, took) = error(c, line).await;
            assert!(text.starts_with("ERR the store is unavailable"), "{line}: {text}");
            took
        }
    };
    let took = futures_util::future::join_all((0..16).map(timed_error)).await;
    let patience = Duration::from_millis(PATIENCE);
    // One after the other they would take 16 times as long.
    let bounds = patience * 9 / 10..patience * 4;
    assert!(took.iter().all(|t| bounds.contains(t)), "{took:?}");
    c.faulty.set_outage(Outage::None);
    assert_eq!(c.line(0, "INCR k").await, Reply::Int(2));
    c.assert_sound().await;
}

/// Heavy commands have slots of their own, of which each runs one at a time.
#[tokio::test]
async fn time_spent_in_the_queue_of_heavy_commands_counts() {
    let c = server().await;
    let patience = Duration::from_millis(PATIENCE);
    c.faulty.set_outage(Outage::Silent(patience));
    let errors = futures_util::future::join_all((0..40).map(|_| error(&c, "SUNIONSTORE d a b"))).await;
    for (text, took) in &errors {
        assert!(text.starts_with("ERR the store is unavailable"), "{text}");
        // One after the other, the last of them would take five times as long as the first.
        assert!(*took < patience * 3, "{took:?}");
    }
    c.faulty.set_outage(Outage::None);
    assert_eq!(c.line(0, "INCR k").await, Reply::Int(2));
    c.assert_sound().await;
}

/// Hazard: a server tells the others of a fence while the store is silent, again and again, and its client waits.
#[tokio::test]
async fn a_command_that_fences_its_keys_is_given_up_as_soon() {
    let mut c = server().await;
    c.join(Env::system()).await;
    for n in 0..2 {
        c.space(n).instances.observe().await.unwrap();
    }
    let patience = Duration::from_millis(PATIENCE);
    c.faulty.set_rates(FaultRates { conflict: 1.0, delay: 1.0, ..FaultRates::default() });
    let before = c.faulty.counts().conflicts;
    let falls_silent = async {
        // The first two are the command's and the fence's, or the fence follows soon.
        while c.faulty.counts().conflicts < before + 2 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        c.faulty.set_outage(Outage::Silent(patience * 100));
        c.faulty.set_rates(FaultRates::default());
    };
    let ((text, took), ()) = tokio::join!(error(&c, "INCR k"), falls_silent);
    assert!(text.starts_with("ERR "), "{text}");
    assert!(took < patience * 9 / 4, "{took:?}: {text}");
    c.faulty.set_outage(Outage::None);
    // What the fence left behind holds nobody on the other server.
    let since = Instant::now();
    tokio::select! {
        () = c.space(1).fences.follow() => {}
        reply = c.line(1, "INCR k") => assert!(matches!(reply, Reply::Int(_)), "{reply:?}"),
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    c.assert_sound().await;
}

#[tokio::test]
async fn a_commit_that_is_never_answered_is_unknown() {
    let c = server().await;
    c.faulty.set_outage(Outage::SilentCommits(Duration::from_millis(PATIENCE / 4)));
    let (text, took) = error(&c, "INCR k").await;
    assert!(text.starts_with("ERR commit result unknown"), "{text}");
    assert!(
        took >= Duration::from_millis(PATIENCE) && took < Duration::from_millis(PATIENCE * 10),
        "{took:?}"
    );
    assert_eq!(c.line(0, "STRLEN k").await, Reply::Int(1), "reads must not be affected");
    c.faulty.set_outage(Outage::None);
    assert_eq!(c.line(0, "INCR k").await, Reply::Int(2));
    c.assert_sound().await;
}

#[test]
fn sigterm_lets_commands_under_way_finish_whole() {
    const CLIENTS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut server = tern_in(&dir, &[]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let window: Vec<u8> = (0..500).flat_map(|_| request(&["INCR", "n"])).collect();
    for _ in 0..20 {
        for client in &mut clients {
            client.send_raw(&window).unwrap();
        }
    }
    let mut answered = vec![clients[0].read().unwrap().value.int().expect("a number")];
    assert!(server.terminate(), "{}", server.log());
    for client in &mut clients {
        while let Ok(reply) = client.read() {
            answered.push(reply.value.int().expect("a number"));
        }
    }
    answered.sort_unstable();
    let server = tern_in(&dir, &[]);
    let Value::Bulk(kept) = server.client().line("GET n") else { panic!("some INCR must have run") };
    let kept: i64 = String::from_utf8(kept).unwrap().parse().unwrap();
    assert_eq!(answered, (1..=kept).collect::<Vec<_>>(), "each applied command must be answered once");
    drop(server);
    assert_sound(&dir, &[]);
}

/// A machine that was suspended: commands under way have become too old, and still complete.
#[test]
fn a_server_that_stood_still_completes_commands_under_way() {
    let server = tern(&["--store-timeout", "5000", "--appendfsync", "no"]);
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    let stop = AtomicBool::new(false);
    // Many at once, so that a transaction is likely to be under way.
    let batch = |n: usize| request(&["INCR", &format!("k{n}")]).repeat(500);
    let count = |n: usize| {
        let mut client = server.client();
        client.set_timeout(Duration::from_secs(60));
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            client.send_raw(&batch(n)).unwrap();
            for _ in 0..500 {
                done += 1;
                assert_eq!(client.read().unwrap().value, Value::Int(done), "after a pause");
            }
        }
    };
    std::thread::scope(|s| {
        for n in 0..8 {
            let count = &count;
            s.spawn(move || count(n));
        }
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            signal("-STOP");
            std::thread::sleep(Duration::from_millis(6500));
            signal("-CONT");
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
}
