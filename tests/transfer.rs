//! Hazard: a copied store lacks rows, or a partial copy is served as if it were complete.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod cluster;
mod support;

use bytes::Bytes;
use cluster::Cluster;
use std::process::{Command, Output};
use std::time::Duration;
use support::resp::Value;
use support::server::tern_in;
use tern::commands::registry::table;
use tern::config::ConfigStore;
use tern::env::{Clock, Env};
use tern::keyspace::cluster::transfer::{CopyError, Stage, Tally, copy, heartbeat_within, tally};
use tern::keyspace::keys::root;
use tern::server::Server;
use tern::server::reply::Reply;
use tern::store::faulty::{FaultRates, Faulty, Outage};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store};

fn empty() -> (Faulty, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = LocalOptions::new(Clock::System);
    options.fsync = Fsync::No;
    let local = Store::Local(Local::open(dir.path(), options).unwrap());
    (Faulty::new(local, 3, FaultRates::default()), dir)
}

fn ignore() -> impl FnMut(Stage, Tally) {
    |_, _| {}
}

/// A source with every kind of row, some megabytes in all.
async fn source() -> Cluster {
    let c = Cluster::new(1).await;
    for n in 0..40 {
        c.run(0, vec!["SET".into(), format!("long:{n}").into(), vec![b'x'; 100_000 + n].into()]).await;
    }
    for n in 0..300 {
        let value = vec![b'v'; if n % 50 == 0 { 40_000 } else { 20 }];
        c.run(0, vec!["HSET".into(), "hash".into(), format!("field:{n}").into(), value.into()]).await;
    }
    c.line(0, "HSET small a 1 b 2").await;
    for n in 0..300 {
        c.run(0, vec!["SADD".into(), "set".into(), format!("member:{n}").into()]).await;
    }
    c.line(0, "SET soon v EX 1000").await;
    c.line(0, "DEL long:0").await;
    c.space(0).instances.leave().await.unwrap();
    c
}

async fn ask(store: &Store, line: &str) -> Reply {
    let mut c = Cluster::on(store.clone());
    c.join(Env::seeded(cluster::START, 9)).await;
    let reply = c.line(0, line).await;
    c.space(0).instances.leave().await.unwrap();
    reply
}

#[tokio::test]
async fn everything_is_copied_except_the_servers_own_rows() {
    let c = source().await;
    c.space(0).beat().await.unwrap();
    let (target, _dir) = empty();
    let target = Store::Faulty(target);
    let tx = c.store.begin();
    tx.set(&root::lane(1, 1), b"12345678").unwrap();
    tx.set(&root::instance(1), b"anything").unwrap();
    tx.commit().await.unwrap();
    let copied = copy(&c.store, &target, &mut ignore()).await.unwrap();
    assert!(copied.rows > 300 && copied.bytes > 3_000_000, "{copied:?}");
    assert_eq!(tally(&c.store, &mut |_| ()).await.unwrap(), copied);
    let tx = target.begin();
    for row in [root::lane(1, 1), root::instance(1).to_vec(), root::half_copied().to_vec()] {
        assert_eq!(tx.get(&row, tern::store::Read::Snapshot).await.unwrap(), None);
    }
    assert_eq!(ask(&target, "STRLEN long:39").await, Reply::Int(100_039));
    assert_eq!(ask(&target, "SCARD set").await, Reply::Int(300));
    assert_eq!(ask(&target, "SISMEMBER set member:7").await, Reply::Int(1));
    assert_eq!(ask(&target, "TTL soon").await, Reply::Int(1000));
    assert_eq!(ask(&target, "HLEN hash").await, Reply::Int(300));
    assert_eq!(ask(&target, "HSTRLEN hash field:50").await, Reply::Int(40_000));
    assert_eq!(ask(&target, "HGET small b").await, Reply::Bulk(bytes::Bytes::from_static(b"2")));
    assert_eq!(ask(&target, "DBSIZE").await, Reply::Int(43));
}

#[tokio::test]
async fn faults_do_not_show_in_the_copy() {
    let c = source().await;
    let (target, _dir) = empty();
    for seed in 0..5 {
        let rates =
            FaultRates { unknown_applied: 0.3, unknown_late: 0.2, too_old_read: 0.2, ..FaultRates::mixed() };
        let (store, _other) = (Faulty::new(Store::Faulty(target.clone()), seed, rates), ());
        let copied = copy(&c.store, &Store::Faulty(store), &mut ignore()).await.unwrap();
        assert_eq!(tally(&Store::Faulty(target.clone()), &mut |_| ()).await.unwrap(), copied);
        Cluster::on(Store::Faulty(target.clone())).assert_sound().await;
        let tx = Store::Faulty(target.clone()).begin();
        tx.clear_range(&[], &[0xff]).unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn an_interrupted_copy_is_not_served_and_resumes() {
    let c = source().await;
    let (target, _dir) = empty();
    let store = Store::Faulty(target.clone());
    let mut first = 0;
    let broken = copy(&c.store, &store, &mut |_, done| {
        first = done.rows;
        target.set_outage(Outage::Refusing);
    })
    .await;
    assert!(matches!(broken, Err(CopyError::Store(_))));
    target.set_outage(Outage::None);
    let opened = Server::open(table(), store.clone(), Env::seeded(0, 1), ConfigStore::default()).await;
    let line = opened.err().expect("a partial copy must be refused").into_reply().0;
    assert!(line.contains("not finished"), "{line}");
    let mut second = 0;
    let copied = copy(&c.store, &store, &mut |stage, done| {
        if stage == Stage::Copying {
            second = done.rows;
        }
    })
    .await;
    assert_eq!(first + second, copied.unwrap().rows, "the copy must resume where it was interrupted");
    assert_eq!(ask(&store, "SCARD set").await, Reply::Int(300));
    Cluster::on(store).assert_sound().await;
}

#[tokio::test]
async fn a_bad_source_or_target_is_refused() {
    let c = source().await;
    let (target, _dir) = empty();
    let store = Store::Faulty(target);
    assert_eq!(copy(&store, &c.store, &mut ignore()).await, Err(CopyError::NoData));
    assert_eq!(copy(&c.store, &c.store, &mut ignore()).await, Err(CopyError::NotEmpty));
    assert_eq!(ask(&c.store, "SCARD set").await, Reply::Int(300));
    let tx = store.begin();
    tx.set(&root::half_copied(), &[1]).unwrap();
    tx.set(&root::database(0), b"x").unwrap();
    tx.commit().await.unwrap();
    assert_eq!(copy(&store, &c.store, &mut ignore()).await, Err(CopyError::HalfSource));
}

#[tokio::test]
async fn a_source_that_changes_is_noticed_and_copied_anew() {
    let c = source().await;
    let (target, _dir) = empty();
    let store = Store::Faulty(target.clone());
    let broken = copy(&c.store, &store, &mut |_, _| target.set_outage(Outage::Refusing)).await;
    assert!(broken.is_err());
    target.set_outage(Outage::None);
    // `b` rows come first: this one is behind the copy's position.
    let tx = c.store.begin();
    tx.set(&root::database(0)[..1], b"new").unwrap();
    tx.set(b"A", b"new").unwrap();
    tx.commit().await.unwrap();
    let differs = copy(&c.store, &store, &mut ignore()).await;
    assert!(matches!(differs, Err(CopyError::Differs { .. })), "{differs:?}");
    let opened = Server::open(table(), store.clone(), Env::seeded(0, 1), ConfigStore::default()).await;
    assert!(opened.is_err(), "a copy that differs must not be served");
    let copied = copy(&c.store, &store, &mut ignore()).await.unwrap();
    assert_eq!(tally(&c.store, &mut |_| ()).await.unwrap(), copied);
}

#[tokio::test]
async fn two_copies_into_one_target_exclude_each_other() {
    let c = source().await;
    let (target, _dir) = empty();
    let store = Store::Faulty(target);
    let (mut first, mut second) = (ignore(), ignore());
    let (one, two) = tokio::join!(copy(&c.store, &store, &mut first), copy(&c.store, &store, &mut second));
    let won = [&one, &two].iter().filter(|r| r.is_ok()).count();
    assert!(won <= 1, "{one:?} {two:?}");
    assert!([one, two].contains(&Err(CopyError::Another)));
}

#[tokio::test]
async fn a_source_with_a_beating_server_is_in_use() {
    let c = Cluster::new(2).await;
    let wait = Duration::from_millis(300);
    assert_eq!(
        heartbeat_within(&c.store, wait).await.unwrap(),
        None,
        "rows that are not renewed must not count as servers"
    );
    let (found, _) = tokio::join!(heartbeat_within(&c.store, wait), async {
        tokio::time::sleep(wait / 3).await;
        c.space(1).beat().await.unwrap();
    });
    assert_eq!(found.unwrap().map(|row| row.epoch), Some(c.space(1).instances.epoch()));
}

fn tool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tern")).args(args).output().unwrap()
}

fn place(dir: &std::path::Path) -> String {
    format!("local:{}", dir.display())
}

#[test]
fn the_command_line_says_by_its_status_whether_the_copy_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let (old, new, none) = (home.path().join("old"), home.path().join("new"), home.path().join("none"));
    let mut server = tern_in(&old, &["--store", &place(&old), "--appendfsync", "no"]);
    assert!(tool(&["ping", "--port", &server.port.to_string()]).status.success());
    server.client().line("SADD s a b c");
    let port = server.port.to_string();
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        tool(&["copy", "--from", &place(from), "--to", &place(to)])
    };
    let used = copy(&old, &new);
    assert!(!used.status.success());
    assert!(String::from_utf8_lossy(&used.stderr).contains("another process"), "{used:?}");
    assert!(server.terminate());
    assert!(!tool(&["ping", "--port", &port]).status.success());
    let copied = copy(&old, &new);
    assert!(copied.status.success(), "{copied:?}");
    assert!(String::from_utf8_lossy(&copied.stdout).contains("source and target are equal"), "{copied:?}");
    let again = copy(&old, &new);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"), "{again:?}");
    assert!(!copy(&none, &home.path().join("other")).status.success());
    assert!(!none.exists(), "a missing source must not be created");
    for wrong in [&["copy"][..], &["copy", "--from", "local:x"], &["copy", "--too", "x", "--from", "y"]] {
        assert!(!tool(wrong).status.success());
    }
    let server = tern_in(&new, &["--store", &place(&new), "--appendfsync", "no"]);
    assert_eq!(server.client().line("SCARD s"), Value::Int(3));
}

#[test]
fn bytes_of_the_marker_are_not_data() {
    assert!(!root::is_data(&root::half_copied()) && !root::is_data(&root::lane(1, 2)));
    assert!(root::is_data(&root::database(0)) && root::is_data(&Bytes::from_static(b"m")));
}
