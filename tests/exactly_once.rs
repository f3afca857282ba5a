//! Hazard: a commit whose result is unknown is applied twice, its reply is lost, or its lookups are counted
//! twice.
//!
//! Many clients INCR, APPEND and EXEC on a store that conflicts, ages out transactions, and answers `Unknown`
//! for commits that were applied, were not, or are applied a little later. Every acknowledged INCR must count
//! exactly once and see its own value.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod fdb_cluster;
mod units;

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings};
use tern::env::Env;
use tern::exec::{Executor, Unit};
use tern::lifecycle::check::check;
use tern::server::Server;
use tern::server::reply::Reply;
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store};
use tern::telemetry::Telemetry;

const CLIENTS: usize = 16;
const ROUNDS: usize = 60;

async fn run(exec: &Executor, lines: &[&str], multi: bool) -> Vec<Reply> {
    units::replies(exec, Unit { exec: multi, ..units::pipeline(lines) }).await
}

async fn executor(store: Store, lanes: usize) -> Arc<Executor> {
    let settings = Settings { lanes, ..Settings::default() };
    let server =
        Server::open(table(), store, Env::system(), ConfigStore::new(settings)).await.expect("opens");
    Arc::new(Executor::new(Arc::new(server)))
}

/// The engine that `TERN_TEST_STORE` selects, or the embedded one.
async fn engine(dir: &Path) -> Store {
    #[cfg(feature = "fdb")]
    if fdb_cluster::wanted() {
        return fdb_cluster::fresh().await;
    }
    let mut options = LocalOptions::new(tern::env::Clock::System);
    options.fsync = Fsync::No;
    Store::Local(Local::open(dir, options).expect("opens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_commits_are_applied_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let seed = Env::system().rng().u64();
    println!("seed {seed}");
    let faulty = Faulty::new(engine(dir.path()).await, seed, FaultRates::default());
    let exec = executor(Store::Faulty(faulty.clone()), 4).await;
    faulty.set_rates(FaultRates::mixed());
    let tasks = (0..CLIENTS).map(|n| tokio::spawn(one_client(exec.clone(), n)));
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("the client does not panic");
    }
    faulty.set_rates(FaultRates::default());
    let looked_up = |telemetry: &Telemetry| (telemetry.hits.get(), telemetry.misses.get());
    let (first, all) = (CLIENTS as u64, (2 * CLIENTS * ROUNDS) as u64);
    assert_eq!(looked_up(&exec.server().telemetry), (all - first, first), "an attempt's lookups count once");
    let total = (CLIENTS * ROUNDS) as i64;
    assert_eq!(run(&exec, &["incrby shared 0"], false).await, [Reply::Int(total)]);
    assert_eq!(run(&exec, &["strlen log"], false).await, [Reply::Int(total)]);
    let both = run(&exec, &["get a", "get b"], false).await;
    assert_eq!(both[0], both[1], "an EXEC was applied in part");
    assert_eq!(both[0], Reply::text(total.to_string()));
    let counts = faulty.counts();
    assert!(counts.unknown_applied > 0 && counts.unknown_lost > 0 && counts.unknown_late > 0, "{counts:?}");
    assert!(counts.conflicts > 0 && counts.too_old > 0, "{counts:?}");
    let report = check(&exec.server().store, &mut |_, _| {}).await.expect("the check must read the store");
    assert!(report.is_sound(), "{report}");
}

async fn one_client(exec: Arc<Executor>, n: usize) {
    let own = format!("incr own:{n}");
    for round in 1..=ROUNDS {
        let replies = run(&exec, &[&own, "incr shared", "append log x"], false).await;
        assert_eq!(replies[0], Reply::Int(round as i64), "client {n} must see its own increments");
        assert!(matches!(replies[1], Reply::Int(_)) && matches!(replies[2], Reply::Int(_)), "{replies:?}");
        run(&exec, &[&format!("getset seen:{n} {round}")], false).await;
        run(&exec, &["exists shared"], false).await;
        let replies = run(&exec, &["incr a", "incr b"], true).await;
        assert_eq!(replies[0], replies[1], "an EXEC must see one state");
    }
}

/// Hazard: an attempt is given up, and its effect on the server itself happens again: the second time in
/// vain, and the reply of the first is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_on_the_server_happen_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let faulty = Faulty::new(engine(dir.path()).await, 1, FaultRates::default());
    let exec = executor(Store::Faulty(faulty.clone()), 1).await;
    faulty.set_rates(FaultRates { conflict: 0.5, unknown_lost: 0.1, ..FaultRates::default() });
    for round in 1..=20 {
        assert_eq!(run(&exec, &["acl setuser bob on"], false).await, [Reply::Ok]);
        let lines = ["incr n", "client no-evict on", "acl deluser bob", "incr m"];
        let multi = round % 2 == 0;
        let unit = Unit { exec: multi, ..units::pipeline(&lines) };
        let (replies, client) = units::run(&exec, unit).await;
        assert_eq!(
            replies,
            [Reply::Int(round), Reply::Ok, Reply::Int(1), Reply::Int(round)],
            "EXEC: {multi}"
        );
        assert!(client.no_evict, "the client's state must be the call's result");
    }
    assert!(faulty.counts().conflicts > 5, "{:?}", faulty.counts());
}

/// Runs a unit while another server on its store runs `meanwhile`, so that the first attempt fails. The
/// unit's last command waits for that.
async fn overtaken(unit: Unit, before: &str, meanwhile: Vec<Vec<Bytes>>) -> Vec<Reply> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = engine(dir.path()).await;
    let (one, other) = (executor(store.clone(), 1).await, executor(store, 1).await);
    run(&one, &[before], false).await;
    let running = tokio::spawn({
        let one = one.clone();
        async move { units::replies(&one, unit).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    for argv in meanwhile {
        assert!(!matches!(units::reply(&other, units::call(argv)).await, Reply::Error(_)));
    }
    running.await.expect("it ends")
}

/// Hazard: a command that acted in a failed attempt is given back as one that did not run, because the next
/// attempt ends before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_has_acted_is_not_given_back() {
    let mut lines = vec!["get large"; 60];
    lines.extend(["incr n", "acl deluser bob", "debug sleep 0.6"]);
    let large = vec![Bytes::from("set"), Bytes::from("large"), Bytes::from(vec![b'x'; 60_000])];
    let meanwhile = vec![large, units::words("incr n")];
    let replies = overtaken(units::pipeline(&lines), "acl setuser bob on", meanwhile).await;
    assert!(matches!(replies[0], Reply::Bulk(_)), "the failed attempt must not be answered");
    assert_eq!(replies[60..], [Reply::Int(2), Reply::Int(1), Reply::Ok]);
}

/// Hazard: a command that only read data in a failed attempt is answered as if it had acted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_read_data_runs_again() {
    let lines = ["append log y", "strlen log", "debug object log", "debug sleep 0.6"];
    let unit = Unit { exec: true, ..units::pipeline(&lines) };
    let replies = overtaken(unit, "set log x", vec![units::words("append log xxxx")]).await;
    assert_eq!(replies[1], Reply::Int(6));
    let Reply::Simple(shown) = &replies[2] else { panic!("{:?}", replies[2]) };
    assert!(shown.contains("serializedlength:6 "), "{shown}");
}
