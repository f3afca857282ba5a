//! A cluster of servers, their jobs, their clients and their faults, on one thread and in virtual time.
//!
//! The runtime's clock stands still while any task can run and then jumps to the next timer; the servers'
//! clock moves along with it. Every choice draws from the seed. The embedded engine is the real one: its
//! clock is the virtual one, so no commit is ever slow, and each runs on its caller's thread.
//!
//! A server that *crashes* loses its store at once: commits handed over before may still be applied, no later
//! operation reaches the store, and its clients get no reply. Another server starts in its place, under a new
//! name. An *outage* is a silence of the store for one server. A server that is *restarted* stops as on
//! SIGTERM: it accepts no new commands, answers those under way, removes its row, and another one starts in
//! its place.

use crate::generate::{EVERYTHING, Group, Step, step};
use crate::record::{History, Record, Until};
use crate::support::rng::Rng;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tern::commands::registry::table;
use tern::config::{ConfigStore, Settings};
use tern::env::Env;
use tern::exec::Executor;
use tern::keyspace::keys::root;
use tern::server::Server;
use tern::store::faulty::{FaultRates, Faulty, Outage};
use tern::store::local::{Local, LocalOptions};
use tern::store::observe::Observer;
use tern::store::tamper::Tamper;
use tern::store::{Fsync, Read, Store};
use tokio::sync::{Notify, watch};

const START: u64 = 1_700_000_000_000;
/// The approximate number of steps of all clients of a mixed plan.
const STEPS: usize = 1500;
/// The maximum patience of clients in ms.
const IMPATIENT: usize = 60;
/// The maximum time until a crashed server is replaced, in ms.
const DOWN: usize = 3000;
/// The time for operations under way at the end.
const SETTLE: Duration = Duration::from_secs(30);

/// The settings of a simulation.
#[derive(Clone)]
pub struct Plan {
    pub servers: usize,
    pub clients: usize,
    /// Virtual time.
    pub time: Duration,
    /// A client pauses at most twice this long between two steps.
    pub think: Duration,
    pub pipeline: usize,
    pub groups: &'static [Group],
    pub rates: FaultRates,
    /// One in this many calls is given up; 0: none.
    pub give_up: usize,
    /// The mean time between two crashes, outages or restarts; zero: none.
    pub trouble: Duration,
    /// Whether servers are restarted too.
    pub restarts: bool,
    /// Whether the dictionary is collected all the time.
    pub collects: bool,
    pub tamper: Option<Arc<dyn Tamper>>,
    pub marked: bool,
    /// How long clients wait for elements.
    pub patience: Option<Duration>,
}

impl Plan {
    /// Everything at once, about [`STEPS`] steps.
    pub fn mixed(rng: &mut Rng) -> Self {
        let (clients, think) = (1 << rng.below(7), [5, 50, 500, 500][rng.below(4)]);
        let time = Duration::from_millis((STEPS * think / clients).clamp(1000, 300_000) as u64);
        let (give_up, trouble) = ([0, 50][rng.below(2)], time / 4 * rng.below(2) as u32);
        Plan {
            servers: 1 + rng.below(3),
            clients,
            time,
            think: Duration::from_millis(think as u64),
            pipeline: 1 + 3 * rng.below(2),
            groups: EVERYTHING,
            rates: FaultRates { delay: [0.05, 0.3][rng.below(2)], ..FaultRates::mixed() },
            give_up,
            trouble,
            tamper: None,
            // With many clients or many open operations, the search alone decides little.
            marked: clients > 1 || give_up > 0 || !trouble.is_zero() || rng.below(2) > 0,
            restarts: rng.below(4) > 0,
            collects: rng.below(2) > 0,
            patience: None,
        }
    }

    /// The approximate maximum number of steps of all clients.
    fn steps(&self) -> usize {
        self.time.as_millis() as usize * self.clients / (self.think.as_millis() as usize).max(1)
    }

    /// In seconds.
    pub fn client_time(&self) -> u64 {
        self.time.as_secs() * self.clients as u64
    }
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Outcome {
    pub history: History,
    pub crashes: u64,
    pub outages: u64,
    pub restarts: u64,
    /// Damage of the store.
    pub damage: Option<String>,
}

/// One life of a server.
struct Life {
    exec: Executor,
    faulty: Faulty,
    down: Arc<Down>,
}

/// Whether a server has crashed. Waiters are woken in the order in which they began to wait: tokio, not the
/// seed, orders the receivers of a `watch`.
#[derive(Default)]
struct Down {
    is: AtomicBool,
    notified: Notify,
}

impl Down {
    fn announce(&self) {
        self.is.store(true, SeqCst);
        self.notified.notify_waiters();
    }

    async fn wait(&self) {
        let mut notified = pin!(self.notified.notified());
        notified.as_mut().enable();
        if !self.is.load(SeqCst) {
            notified.await;
        }
    }
}

struct World {
    plan: Plan,
    env: Env,
    store: Store,
    shared: Faulty,
    seats: Vec<watch::Sender<Option<Arc<Life>>>>,
    record: Record,
    crashes: AtomicU64,
    outages: AtomicU64,
    restarts: AtomicU64,
    stop: watch::Sender<bool>,
}

/// Runs `plan`: the same seed yields the same outcome.
pub fn simulate(plan: &Plan, seed: u64) -> Outcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let env = Env::seeded(START, seed);
    let mut options = LocalOptions::new(env.clock.clone());
    options.fsync = Fsync::No;
    options.written_here = usize::MAX;
    let local = Store::Local(Local::open(dir.path(), options).unwrap());
    runtime.block_on(World::run(plan.clone(), seed, env, local))
}

impl World {
    async fn run(plan: Plan, seed: u64, env: Env, local: Store) -> Outcome {
        let shared = Faulty::new(local, seed, FaultRates::default());
        let mut record = Record::new(plan.clients, env.timeline.clone(), plan.marked);
        record.patience = plan.patience;
        let world = Arc::new(World {
            seats: (0..plan.servers).map(|_| watch::Sender::new(None)).collect(),
            record,
            store: Store::Faulty(shared.clone()),
            stop: watch::Sender::new(false),
            crashes: AtomicU64::new(0),
            outages: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            plan,
            env,
            shared,
        });
        for n in 0..world.plan.servers {
            world.start(n, seed + n as u64).await;
        }
        let first = world.seats[0].borrow().clone().unwrap();
        world.record.prepare(&first.exec, world.plan.steps(), world.plan.groups).await;
        drop(first);
        world.shared.set_observer(world.record.witness.clone().map(|w| w as Arc<dyn Observer>));
        world.shared.set_tamper(world.plan.tamper.clone());
        world.live(seed).await;
        world.end().await
    }

    /// Starts a server in seat `n`.
    async fn start(&self, n: usize, seed: u64) {
        let faulty = Faulty::new(self.store.clone(), seed, FaultRates::default());
        let dictionary_gc_interval = if self.plan.collects { 1 } else { 0 };
        let config = ConfigStore::new(Settings { lanes: 4, dictionary_gc_interval, ..Settings::default() });
        let server =
            Server::open(table(), Store::Faulty(faulty.clone()), self.env.clone(), config).await.unwrap();
        let server = Arc::new(server);
        tern::jobs::spawn(&server);
        faulty.set_rates(self.plan.rates);
        let life = Life { exec: Executor::new(server), faulty, down: Arc::default() };
        self.seats[n].send_replace(Some(Arc::new(life)));
    }

    async fn live(self: &Arc<Self>, seed: u64) {
        let clock = tokio::spawn(self.clone().clock(seed));
        self.fill().await;
        let trouble = tokio::spawn(self.clone().trouble(seed));
        let clients: Vec<_> = (0..self.plan.clients)
            .map(|n| tokio::spawn(self.clone().client(n, seed + 1000 + n as u64)))
            .collect();
        tokio::time::sleep(self.plan.time).await;
        self.stop.send_replace(true);
        for task in clients.into_iter().chain([trouble]) {
            task.await.unwrap();
        }
        // Abandoned commands still finish.
        tokio::time::sleep(SETTLE).await;
        clock.abort();
    }

    async fn fill(&self) {
        let life = self.seats[0].borrow().clone().unwrap();
        for step in self.plan.groups.iter().flat_map(|group| group.first()) {
            self.record.step(0, &life.exec, step, Box::pin(std::future::pending())).await;
        }
    }

    /// Moves the servers' clock with the runtime's.
    async fn clock(self: Arc<Self>, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xC10C);
        loop {
            let by = Duration::from_millis(1 + rng.below(8) as u64);
            tokio::time::sleep(by).await;
            self.env.clock.advance(by);
        }
    }

    async fn client(self: Arc<Self>, mut name: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let seat = name % self.plan.servers;
        for at in 0.. {
            if *self.stop.borrow() {
                return;
            }
            let think = rng.below(2 * self.plan.think.as_millis() as usize + 1);
            tokio::time::sleep(Duration::from_millis(think as u64)).await;
            let Some(life) = self.seats[seat].borrow().clone() else { continue };
            let until = self.gone(&life, &mut rng);
            let step = match step(&mut rng, self.plan.groups, self.plan.pipeline, &format!("{name}.{at}")) {
                // A script waits for its reads on a thread, and here is only one.
                Step::Script(db, lines) => Step::Exec(db, lines),
                step => step,
            };
            name = self.record.step(name, &life.exec, step, until).await;
        }
    }

    /// When a call is lost: its client gives up, or its server crashes.
    fn gone(&self, life: &Life, rng: &mut Rng) -> Until {
        let gives_up = self.plan.give_up > 0 && rng.below(self.plan.give_up) == 0;
        let patience = Duration::from_millis(rng.below(IMPATIENT) as u64);
        let down = life.down.clone();
        Box::pin(async move {
            let patience = if gives_up { patience } else { Duration::from_secs(3600) };
            let _ = tokio::time::timeout(patience, down.wait()).await;
        })
    }

    /// Crashes, outages and restarts, one after the other.
    async fn trouble(self: Arc<Self>, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xBAD);
        // A generator of its own, so that a seed without restarts keeps the history that it had before
        // restarts were added.
        let mut restarts = Rng::new(seed ^ 0x5709);
        let mut stop = self.stop.subscribe();
        while !self.plan.trouble.is_zero() {
            let pause = Duration::from_millis(rng.below(2 * self.plan.trouble.as_millis() as usize) as u64);
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(pause) => {}
            }
            let n = rng.below(self.plan.servers);
            if self.plan.restarts && restarts.one_in(3) {
                self.restart(n, &mut restarts).await;
            } else if rng.below(2) == 0 {
                self.crash(n, &mut rng).await;
            } else {
                self.outage(n, &mut rng).await;
            }
        }
    }

    async fn crash(&self, n: usize, rng: &mut Rng) {
        let Some(life) = self.seats[n].send_replace(None) else { return };
        self.crashes.fetch_add(1, SeqCst);
        life.faulty.set_outage(Outage::Refusing);
        life.down.announce();
        life.exec.server().stop.send_replace(true);
        drop(life);
        tokio::time::sleep(Duration::from_millis(rng.below(DOWN) as u64)).await;
        self.start(n, rng.next()).await;
    }

    async fn restart(&self, n: usize, rng: &mut Rng) {
        let Some(life) = self.seats[n].send_replace(None) else { return };
        self.restarts.fetch_add(1, SeqCst);
        let server = life.exec.server().clone();
        server.stop.send_replace(true);
        // Clients under way hold it until they are answered.
        let since = tokio::time::Instant::now();
        while Arc::strong_count(&life) > 1 {
            assert!(since.elapsed() < SETTLE, "a stopping server must answer commands under way");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(life);
        let left = tokio::time::timeout(SETTLE, server.space.instances.leave()).await;
        assert_eq!(left.map_err(|_| "the server must deregister"), Ok(Ok(())));
        let row = root::instance(server.space.instances.id());
        let found = self.store.begin().get(&row, Read::Snapshot).await;
        assert_eq!(found, Ok(None), "a stopped server must not be registered");
        tokio::time::sleep(Duration::from_millis(rng.below(DOWN) as u64)).await;
        self.start(n, rng.next()).await;
    }

    async fn outage(&self, n: usize, rng: &mut Rng) {
        let Some(life) = self.seats[n].borrow().clone() else { return };
        self.outages.fetch_add(1, SeqCst);
        let silence = Duration::from_millis(1 + rng.below(2000) as u64);
        let kinds = [Outage::Refusing, Outage::Silent(silence), Outage::SilentCommits(silence)];
        life.faulty.set_outage(kinds[rng.below(kinds.len())]);
        tokio::time::sleep(Duration::from_millis(rng.below(DOWN) as u64)).await;
        life.faulty.set_outage(Outage::None);
    }

    async fn end(self: Arc<Self>) -> Outcome {
        for seat in &self.seats {
            if let Some(life) = seat.send_replace(None) {
                life.exec.server().stop.send_replace(true);
            }
        }
        self.shared.set_tamper(None);
        if let Some(witness) = &self.record.witness {
            witness.settle().await;
        }
        let report = tern::lifecycle::check::check(&self.store, &mut |_, _| {}).await.unwrap();
        let damage = (!report.is_sound()).then(|| report.to_string());
        let [crashes, outages, restarts] =
            [&self.crashes, &self.outages, &self.restarts].map(|n| n.load(SeqCst));
        Outcome { history: self.record.finish(), crashes, outages, restarts, damage }
    }
}
