//! Several servers in one process on one store, each with a socket of its own and, if a test wants it, with
//! its own faults between it and the store.

use crate::support::resp::{Client, Value};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings};
use tern::env::{Clock, Env};
use tern::exec::Executor;
use tern::server::Server;
use tern::store::faulty::{FaultRates, Faulty};
use tern::store::local::{Local, LocalOptions};
use tern::store::{Fsync, Store};
use tokio::runtime::Runtime;

/// The start of the manual clock, in ms since the epoch.
pub const START: u64 = 1_700_000_000_000;

/// The servers.
pub struct World {
    pub servers: Vec<Arc<Server>>,
    pub store: Store,
    pub runtime: Runtime,
    faults: Vec<Faulty>,
    ports: Vec<u16>,
    _dir: TempDir,
}

impl World {
    /// `n` servers without faults on one manual clock.
    pub fn new(n: usize) -> Self {
        Self::with(n, Env::seeded(START, 7), 0)
    }

    /// `n` servers on the machine's clock; [`World::set_faults`] sets their faults, drawn from `seed`.
    pub fn with_faults(n: usize, seed: u64) -> Self {
        Self::with(n, Env::system(), seed)
    }

    fn with(n: usize, env: Env, seed: u64) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new(Clock::System);
        options.fsync = Fsync::No;
        let entered = runtime.enter();
        let store = Store::Local(Local::open(dir.path(), options).unwrap());
        drop(entered);
        let mut world =
            World { servers: Vec::new(), store, runtime, faults: Vec::new(), ports: Vec::new(), _dir: dir };
        (0..n).for_each(|at| world.add(env.clone(), seed.wrapping_add(at as u64)));
        world
    }

    fn add(&mut self, env: Env, seed: u64) {
        let settings = Settings { bind: vec!["127.0.0.1".into()], lanes: 2, ..Settings::default() };
        let faulty = Faulty::new(self.store.clone(), seed, FaultRates::default());
        let store = Store::Faulty(faulty.clone());
        let (server, port) = self.runtime.block_on(async {
            let listener = tern::net::listen(&settings, 0).await.unwrap();
            let port = listener.addresses()[0].port();
            let server =
                Arc::new(Server::open(table(), store, env, ConfigStore::new(settings)).await.unwrap());
            let executor = Arc::new(Executor::new(server.clone()));
            tern::jobs::spawn(&server);
            tokio::spawn(tern::net::serve(listener, executor));
            (server, port)
        });
        self.servers.push(server);
        self.ports.push(port);
        self.faults.push(faulty);
    }

    /// Changes the faults of all servers.
    pub fn set_faults(&self, rates: FaultRates) {
        self.faults.iter().for_each(|f| f.set_rates(rates));
    }

    /// Fails if `tern check` finds damage.
    pub fn assert_sound(&self) {
        let check = async { tern::lifecycle::check::check(&self.store, &mut |_, _| {}).await };
        let report = self.runtime.block_on(check).unwrap();
        assert!(report.is_sound(), "{report}");
    }

    /// Commits with an unknown result so far.
    pub fn unknown(&self) -> u64 {
        let of = |f: &Faulty| f.counts().unknown_applied + f.counts().unknown_lost + f.counts().unknown_late;
        self.faults.iter().map(of).sum()
    }

    /// Repeated replies so far.
    pub fn repeats(&self) -> u64 {
        self.servers.iter().map(|s| s.telemetry.repeats.get()).sum()
    }

    /// A new connection to server `n`.
    pub fn client(&self, n: usize) -> Client {
        self.try_client(n).unwrap()
    }

    /// A new connection to server `n`.
    pub fn try_client(&self, n: usize) -> std::io::Result<Client> {
        Client::connect(self.ports[n])
    }

    /// All replies to inline commands on a new connection to server `n`, with `|` for CRLF.
    pub fn answers(&self, n: usize, raw: &str) -> String {
        let mut client = self.client(n);
        client.send_raw(raw.as_bytes()).unwrap();
        client.finish();
        String::from_utf8_lossy(&client.drain().0).replace("\r\n", "|")
    }

    /// Runs one command in words on a new connection to server `n`.
    pub fn line(&self, n: usize, line: &str) -> Value {
        self.client(n).line(line)
    }

    /// Moves the clock of all servers.
    pub fn advance(&self, by: Duration) {
        self.servers[0].env.clock.advance(by);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for server in &self.servers {
            let _ = server.stop.send(true);
        }
    }
}
