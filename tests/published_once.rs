//! Hazard: a retried attempt publishes its messages again, or one with a result unknown at first never
//! publishes them.
//!
//! Clients EXEC and PUBLISH on a store that conflicts, ages out transactions, and answers `Unknown` for
//! commits that were applied, were not, or are applied a little later. A subscriber's messages are compared
//! with the acknowledged commands.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod units;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings};
use tern::env::{Clock, Env};
use tern::exec::{Executor, Unit};
use tern::lifecycle::check::check;
use tern::server::reply::Reply;
use tern::server::subscribers::SubscriptionKind;
use tern::server::{ClientState, Server};
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store};

const CLIENTS: usize = 8;
const ROUNDS: usize = 40;

async fn run(exec: &Executor, lines: &[String], multi: bool) -> Vec<Reply> {
    units::replies(exec, Unit { exec: multi, ..units::pipeline(lines) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_are_published_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let seed = Env::system().rng().u64();
    println!("seed {seed}");
    let mut options = LocalOptions::new(Clock::System);
    options.fsync = Fsync::No;
    let engine = Store::Local(Local::open(dir.path(), options).expect("opens"));
    let faulty = Faulty::new(engine, seed, FaultRates::default());
    let settings = Settings { lanes: 4, ..Settings::default() };
    let config = ConfigStore::new(settings);
    config.set(&[("notify-keyspace-events".into(), "E$".into())]).expect("letters");
    let server =
        Server::open(table(), Store::Faulty(faulty.clone()), Env::system(), config).await.expect("opens");
    let server = Arc::new(server);
    let exec = Arc::new(Executor::new(server.clone()));
    let listens = ClientState::new(Arc::default(), true).mailbox;
    for channel in ["c", "__keyevent@0__:append"] {
        server.subscribers.enter(SubscriptionKind::Channel, &Bytes::from(channel), None, &listens, 0);
    }
    faulty.set_rates(FaultRates::mixed());
    let one = |n: usize| {
        let exec = exec.clone();
        async move {
            for round in 0..ROUNDS {
                let lines = ["incr shared".to_owned(), format!("publish c {n}:{round}")];
                let replies = run(&exec, &lines, round % 2 == 0).await;
                assert!(matches!(replies[..], [Reply::Int(_), Reply::Int(1)]), "{replies:?}");
                let replies = run(&exec, &[format!("append log:{n} x")], false).await;
                assert_eq!(replies, [Reply::Int(round as i64 + 1)]);
            }
        }
    };
    let tasks: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(one(n))).collect();
    for task in tasks {
        task.await.expect("the client does not panic");
    }
    let counts = faulty.counts();
    assert!(counts.unknown_applied > 0 && counts.conflicts > 0, "{counts:?}");
    let mut received: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = BTreeMap::new();
    for message in listens.take(usize::MAX) {
        let Reply::Message(parts) = &message else { continue };
        let text = match &parts[2] {
            Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        if let Some((client, round)) =
            text.split_once(':').and_then(|(c, r)| Some((c, r.parse::<usize>().ok()?)))
            && client != "log"
        {
            let before = last.insert(client.to_owned(), round);
            assert!(
                before.is_none_or(|before| before < round),
                "one client's messages must be in order: {text}"
            );
        }
        *received.entry(text).or_default() += 1;
    }
    for n in 0..CLIENTS {
        assert_eq!(received.remove(&format!("log:{n}")), Some(ROUNDS), "each key must have its events");
        for round in 0..ROUNDS {
            assert_eq!(received.remove(&format!("{n}:{round}")), Some(1), "message {n}:{round}");
        }
    }
    assert_eq!(received, BTreeMap::new(), "no other message may be published");
    faulty.set_rates(FaultRates::default());
    let report = check(&server.store, &mut |_, _| {}).await.expect("the check must read the store");
    assert!(report.is_sound(), "{report}");
}
