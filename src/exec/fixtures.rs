//! Fixtures for tests.

use super::Executor;
use super::unit::{Done, Forced, Job, Unit};
use crate::commands::registry::table;
use crate::config::ConfigStore;
use crate::dispatch::Call;
use crate::env::Env;
use crate::keyspace::keys::Prefix;
use crate::lifecycle::check::check;
use crate::server::{ClientState, Server};
use crate::store::local::{Local, LocalOptions};
use crate::store::{Fsync, Store};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Parses one command whose words are separated by spaces.
pub(crate) fn call(line: &str) -> Call {
    let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    let (row, names) = table().resolve(&argv).and_then(Result::ok).unwrap();
    Call { row, argv, names, id: None }
}

/// A pipeline of a new client.
pub(crate) fn unit(lines: &[&str]) -> Unit {
    let client = Box::new(ClientState::new(Default::default(), true));
    let calls = lines.iter().map(|line| call(line)).collect();
    Unit { calls, client, watches: Vec::new(), exec: false, id: None }
}

/// A unit on its way that arrived at `since`, and the receiver of its answer.
pub(super) fn job(unit: Unit, since: Duration) -> (Job, oneshot::Receiver<Done>) {
    let (answer, heard) = oneshot::channel();
    (Job { unit, since, forced: Forced::default(), answer }, heard)
}

/// A server on a store of its own, which goes with it; no background jobs run.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) exec: Arc<Executor>,
    pub(crate) env: Env,
    /// Of database 0.
    pub(crate) db: Prefix,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let (dir, env) = (tempfile::tempdir().unwrap(), Env::seeded(1_700_000_000_000, 42));
        let options = LocalOptions { fsync: Fsync::No, ..LocalOptions::new(env.clock.clone()) };
        let store = Store::Local(Local::open(dir.path(), options).unwrap());
        let server = Server::open(table(), store, env.clone(), ConfigStore::default()).await.unwrap();
        let catalog = server.space.catalog.load(&server.store.begin()).await.unwrap();
        let (db, server) = (catalog.place(0).unwrap().prefix, Arc::new(server));
        let exec = Arc::new(Executor::new(server.clone()));
        World { server, exec, env, db, _dir: dir }
    }

    /// Adds the entries 1-0, 2-0 and so on to a stream.
    pub(crate) async fn add_entries(&self, key: &str, count: u64) {
        for from in (1..=count).step_by(1000) {
            let ids = from..(from + 1000).min(count + 1);
            let lines: Vec<String> = ids.map(|n| format!("xadd {key} {n}-0 a b")).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            self.exec.run(Unit { exec: true, ..unit(&lines) }).await;
        }
    }

    /// What the check finds.
    pub(crate) async fn problems(&self) -> Vec<String> {
        let report = check(&self.server.store, &mut |_, _| {}).await.unwrap();
        report.problems.iter().map(ToString::to_string).collect()
    }
}
