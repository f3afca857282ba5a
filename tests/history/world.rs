//! Clients of several servers on one store, and what they saw.
//!
//! Calls and returns are numbered by one counter. All servers have one clock that stands still until it is moved; an operation
//! may have seen any time that the clock showed between its call and its return. A client that gives up (its call is dropped)
//! goes on under another name: nobody knows what became of what it had sent.

use super::generate::{Group, Step, step};
use super::model::{Answer, Op};
use super::search::{Event, NEVER};
use crate::cluster::{Cluster, START};
use crate::sets_world;
use crate::support::rng::Rng;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tern::commands::cx::ClientState;
use tern::commands::table;
use tern::env::Env;
use tern::exec::{Call, Unit, Watched};
use tern::store::faulty::FaultRates;
use tern::store::tamper::Tamper;

/// A server's background work on expired keys: server, shard.
pub type Sweep = fn(Arc<Cluster>, usize, u8) -> futures_util::future::BoxFuture<'static, ()>;

/// What a history is made of.
#[derive(Clone)]
pub struct Plan {
    pub servers: usize,
    pub clients: usize,
    /// Steps of each client.
    pub steps: usize,
    /// Commands sent at once, at most.
    pub pipeline: usize,
    pub groups: &'static [Group],
    pub rates: FaultRates,
    /// One call in so many is given up; 0: none.
    pub give_up: usize,
    pub tamper: Option<Arc<dyn Tamper>>,
    pub sweep: Sweep,
    /// On the embedded engine whatever the tests run on: breaches need versions that are pinned in `begin`.
    pub embedded: bool,
}

struct World {
    cluster: Arc<Cluster>,
    plan: Plan,
    tick: AtomicU64,
    names: AtomicUsize,
    /// The clock's moves: ticks before and after, and what it showed then.
    moves: Mutex<Vec<(u64, u64, u64)>>,
    events: Mutex<Vec<Event>>,
}

/// Runs `plan` on a fresh store, which must be sound afterwards, and gives what was seen.
pub async fn history(plan: Plan, seed: u64) -> Vec<Event> {
    let (mut cluster, _dir) = if plan.embedded {
        (Cluster::empty(), None)
    } else {
        let (store, dir) = sets_world::fresh().await;
        (Cluster::on(store), Some(dir))
    };
    let env = Env::seeded(START, seed);
    for _ in 0..plan.servers {
        cluster.join(env.clone()).await;
    }
    let world = Arc::new(World {
        cluster: Arc::new(cluster),
        tick: AtomicU64::new(1),
        names: AtomicUsize::new(plan.clients),
        moves: Mutex::new(vec![(0, 0, START)]),
        events: Mutex::default(),
        plan,
    });
    world.fill().await;
    world.cluster.faulty.set_rates(world.plan.rates);
    world.cluster.faulty.set_tamper(world.plan.tamper.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let time = tokio::spawn(world.clone().time(stop.clone(), seed));
    let clients: Vec<_> =
        (0..world.plan.clients).map(|n| tokio::spawn(world.clone().client(n, seed + n as u64))).collect();
    for client in clients {
        client.await.unwrap();
    }
    stop.store(true, SeqCst);
    time.await.unwrap();
    world.cluster.faulty.set_tamper(None);
    world.cluster.faulty.set_rates(FaultRates::default());
    if world.plan.tamper.is_none() {
        let report = tern::types::check::check(&world.cluster.store, &mut |_, _| {}).await.unwrap();
        assert!(report.is_sound(), "seed {seed}: {report}");
    }
    world.finish()
}

impl World {
    fn tick(&self) -> u64 {
        self.tick.fetch_add(1, SeqCst)
    }

    /// What groups begin with, as the first operations of the history.
    async fn fill(&self) {
        for argv in self.plan.groups.iter().flat_map(|group| group.first()) {
            self.send(0, 0, vec![argv], false, Vec::new(), None).await;
        }
    }

    /// Moves the clock and sweeps expired keys, until it is stopped.
    async fn time(self: Arc<Self>, stop: Arc<AtomicBool>, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x7171);
        let mut now = START;
        while !stop.load(SeqCst) {
            tokio::time::sleep(Duration::from_micros(300 + rng.below(1000) as u64)).await;
            if self.plan.groups.contains(&Group::Expiring) {
                let by = 1 + rng.below(6) as u64;
                now += by;
                let before = self.tick();
                self.cluster.members[0].server.env.clock.advance(Duration::from_millis(by));
                let after = self.tick();
                self.moves.lock().unwrap().push((before, after, now));
                let (n, key) = (rng.below(self.plan.servers), format!("e{}", rng.below(2)));
                let shard = tern::keyspace::keys::shard(tern::keyspace::keys::hash(key.as_bytes()));
                (self.plan.sweep)(self.cluster.clone(), n, shard).await;
            }
        }
    }

    async fn client(self: Arc<Self>, mut name: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let server = name % self.plan.servers;
        for at in 0..self.plan.steps {
            let patience = match self.plan.give_up {
                n if n > 0 && rng.below(n) == 0 => Some(Duration::from_micros(rng.below(1500) as u64)),
                _ => None,
            };
            let told = match step(&mut rng, self.plan.groups, self.plan.pipeline, &format!("{name}.{at}")) {
                Step::Send(calls) => self.send(name, server, calls, false, Vec::new(), patience).await,
                Step::Exec(calls) => self.send(name, server, calls, true, Vec::new(), patience).await,
                Step::Watched(key, calls) => {
                    let watches = self.watch(name, server, &key).await;
                    let read = vec!["GET".to_owned(), key.clone()];
                    self.send(name, server, vec![read], false, Vec::new(), None).await;
                    self.send(name, server, calls, true, watches, patience).await
                }
            };
            if !told {
                name = self.names.fetch_add(1, SeqCst);
            }
        }
    }

    async fn watch(&self, name: usize, server: usize, key: &str) -> Vec<Watched> {
        let called = self.tick();
        let key_bytes = Bytes::copy_from_slice(key.as_bytes());
        let watched = self.cluster.members[server].exec.watch(0, &[key_bytes]).await.unwrap();
        let op = Op::Watch(key.to_owned());
        self.note(Event {
            client: name,
            op,
            answer: Some(Answer::Ok),
            called,
            returned: self.tick(),
            after: None,
            clocks: Vec::new(),
        });
        watched
    }

    fn note(&self, event: Event) -> usize {
        let mut events = self.events.lock().unwrap();
        events.push(event);
        events.len() - 1
    }

    /// Sends calls and notes what they answered; false where that is not known.
    async fn send(
        &self,
        name: usize,
        server: usize,
        lines: Vec<Vec<String>>,
        exec: bool,
        watches: Vec<Watched>,
        patience: Option<Duration>,
    ) -> bool {
        let calls = lines.iter().map(|argv| call(argv)).collect();
        let client = ClientState::new(Arc::default(), true);
        let unit = Unit { calls, client, watches, exec, id: None };
        let called = self.tick();
        let run = self.cluster.members[server].exec.run(unit);
        let done = match patience {
            Some(patience) => tokio::time::timeout(patience, run).await.ok(),
            None => Some(run.await),
        };
        let returned = self.tick();
        let answers = done.map(|done| match done.replies {
            Some(replies) => replies.iter().map(Answer::of).collect(),
            None => vec![Answer::Aborted],
        });
        let in_doubt =
            |a: &Answer| matches!(a, Answer::Error(line) if line.contains("commit result unknown"));
        let answers: Option<Vec<Answer>> = answers.filter(|answers| !answers.iter().any(in_doubt));
        let ops = if exec { vec![Op::Exec(lines)] } else { lines.into_iter().map(Op::One).collect() };
        let answers: Vec<Option<Answer>> = match answers {
            None => vec![None; ops.len()],
            Some(answers) if exec && answers != [Answer::Aborted] => vec![Some(Answer::All(answers))],
            Some(answers) => answers.into_iter().map(Some).collect(),
        };
        let known = answers[0].is_some();
        let mut after = None;
        for (op, answer) in ops.into_iter().zip(answers) {
            let returned = if known { returned } else { NEVER };
            let event = Event { client: name, op, answer, called, returned, after, clocks: Vec::new() };
            after = Some(self.note(event));
        }
        known
    }

    /// The history, with the times that each operation may have seen.
    fn finish(&self) -> Vec<Event> {
        let moves = self.moves.lock().unwrap();
        let mut events = std::mem::take(&mut *self.events.lock().unwrap());
        for event in &mut events {
            for (n, (before, _, shown)) in moves.iter().enumerate() {
                let replaced = moves.get(n + 1).map_or(NEVER, |(_, after, _)| *after);
                if *before < event.returned && replaced > event.called {
                    event.clocks.push(*shown);
                }
            }
        }
        events
    }
}

fn call(argv: &[String]) -> Call {
    let argv: Vec<Bytes> = argv.iter().map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
    let (row, names) = table::resolve(&argv).and_then(Result::ok).unwrap();
    Call { row, argv, names, id: None }
}
