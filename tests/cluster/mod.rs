//! Several servers on one store in one process, each with a clock of its own.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[allow(clippy::duplicate_mod, reason = "a test may use the rig too")]
#[path = "../units/mod.rs"]
pub mod units;

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings, lookup};
use tern::env::{Clock, Env};
use tern::exec::Executor;
use tern::keyspace::Keyspace;
use tern::server::Server;
use tern::server::reply::Reply;
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, RangeOptions, Read, Store};

/// The start of the first server's clock, in ms since the epoch.
pub const START: u64 = 1_700_000_000_000;
pub const HOUR: u64 = 3_600_000;

pub struct Member {
    pub server: Arc<Server>,
    pub exec: Executor,
}

/// The servers, their store, and the engine between them that can be made to fail.
pub struct Cluster {
    pub members: Vec<Member>,
    pub store: Store,
    pub faulty: Faulty,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// `n` servers whose manual clocks are an hour apart.
    pub async fn new(n: usize) -> Self {
        let mut cluster = Self::empty();
        for at in 0..n as u64 {
            cluster.join(Env::seeded(START + at * HOUR, 100 + at)).await;
        }
        cluster
    }

    /// `n` servers on the machine's clock that have seen each other.
    pub async fn on_system_clock(n: usize) -> Self {
        let mut cluster = Self::empty();
        for _ in 0..n {
            cluster.join(Env::system()).await;
        }
        for at in 0..n {
            cluster.space(at).instances.observe().await.unwrap();
        }
        cluster
    }

    /// No servers yet, on a given store.
    pub fn on(store: Store) -> Self {
        let faulty = Faulty::new(store, 1, FaultRates::default());
        let dir = tempfile::tempdir().unwrap();
        Cluster { members: Vec::new(), store: Store::Faulty(faulty.clone()), faulty, _dir: dir }
    }

    /// No servers yet.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new(Clock::System);
        options.fsync = Fsync::No;
        let local = Store::Local(Local::open(dir.path(), options).unwrap());
        let faulty = Faulty::new(local, 1, FaultRates::default());
        let store = Store::Faulty(faulty.clone());
        Cluster { members: Vec::new(), store, faulty, _dir: dir }
    }

    /// Adds a server.
    pub async fn join(&mut self, env: Env) {
        self.join_with(env, &[]).await;
    }

    /// Adds a server with options.
    pub async fn join_with(&mut self, env: Env, options: &[(&str, &str)]) {
        let mut settings = Settings::default();
        for (name, value) in options {
            lookup(name).unwrap().set(&mut settings, &[value]).unwrap();
        }
        let server =
            Server::open(table(), self.store.clone(), env, ConfigStore::new(settings)).await.unwrap();
        let server = Arc::new(server);
        self.members.push(Member { exec: Executor::new(server.clone()), server });
    }

    pub fn space(&self, n: usize) -> &Keyspace {
        &self.members[n].server.space
    }

    pub fn id(&self, n: usize) -> u64 {
        self.space(n).instances.id()
    }

    /// Moves all clocks.
    pub fn advance(&self, by: Duration) {
        for member in &self.members {
            member.server.env.clock.advance(by);
        }
    }

    /// Runs `beats` beats of the servers `beating`, each observed by all of `watching`. Returns the servers
    /// that the first of those finally declares dead.
    pub async fn beats(&self, beats: u32, beating: &[usize], watching: &[usize]) -> Vec<u64> {
        let mut dead = Vec::new();
        for _ in 0..beats {
            self.advance(self.space(0).instances.pace().beat);
            for n in beating {
                self.space(*n).beat().await.unwrap();
            }
            for (at, n) in watching.iter().enumerate() {
                let found = self.space(*n).instances.observe().await.unwrap();
                if at == 0 {
                    dead = found.iter().map(|s| s.id).collect();
                }
            }
        }
        dead
    }

    /// Server `by` removes the rows of the servers that it declares dead.
    pub async fn bury(&self, by: usize) {
        for dead in self.space(by).instances.observe().await.unwrap() {
            assert!(self.space(by).instances.bury(&dead).await.unwrap());
        }
    }

    /// Runs one command on server `n`, words separated by spaces.
    pub async fn line(&self, n: usize, line: &str) -> Reply {
        self.run(n, units::words(line)).await
    }

    /// Runs one command on server `n`.
    pub async fn run(&self, n: usize, argv: Vec<Bytes>) -> Reply {
        units::reply(&self.members[n].exec, units::call(argv)).await
    }

    /// Fails if `tern check` finds damage.
    pub async fn assert_sound(&self) {
        let report = tern::lifecycle::check::check(&self.store, &mut |_, _| {}).await.unwrap();
        assert!(report.is_sound(), "{report}");
    }

    /// All keys from `from` to `to`.
    pub async fn keys(&self, from: &[u8], to: &[u8]) -> Vec<Bytes> {
        let tx = self.store.begin();
        let page = tx.get_range(from, to, RangeOptions::default(), Read::Snapshot).await.unwrap();
        page.pairs.into_iter().map(|(key, _)| key).collect()
    }
}
