//! Clients of several servers on one store, at full speed on several threads.

use super::generate::{Group, step};
use super::record::{History, Record, Until};
use crate::cluster::{Cluster, START};
use crate::sets_world;
use crate::support::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tern::env::{Env, Timeline};
use tern::store::faulty::FaultRates;
use tern::store::observe::Observer;
use tern::store::tamper::Tamper;

/// A server's background work on expired keys: server, shard.
pub type Sweep = fn(Arc<Cluster>, usize, u8) -> futures_util::future::BoxFuture<'static, ()>;

/// The settings of a history.
#[derive(Clone)]
pub struct Plan {
    pub servers: usize,
    pub clients: usize,
    /// Steps of each client.
    pub steps: usize,
    /// The maximum number of commands sent at once.
    pub pipeline: usize,
    pub groups: &'static [Group],
    pub rates: FaultRates,
    /// One in this many calls is given up; 0: none.
    pub give_up: usize,
    pub tamper: Option<Arc<dyn Tamper>>,
    /// Servers do not know the times that others rely on, nor the expiries that they have shown.
    pub own_times: bool,
    pub sweep: Sweep,
    /// Always on the embedded engine: the breach needs versions that are pinned in `begin`.
    pub embedded: bool,
    /// Units end with a mark, so that a replay can check the history. Without marks, single commands are
    /// alone in their units.
    pub marked: bool,
}

struct World {
    cluster: Arc<Cluster>,
    plan: Plan,
    record: Record,
}

/// Runs `plan` on a fresh store, which must be sound afterwards, and returns its history.
pub async fn history(plan: Plan, seed: u64) -> History {
    let (mut cluster, _dir) = if plan.embedded {
        (Cluster::empty(), None)
    } else {
        let (store, dir) = sets_world::fresh().await;
        (Cluster::on(store), Some(dir))
    };
    let env = Env::seeded(START, seed);
    for _ in 0..plan.servers {
        let mut env = env.clone();
        if plan.own_times {
            env.timeline = Arc::new(Timeline::new(env.clock.clone()));
        }
        cluster.join(env).await;
    }
    let record = Record::new(plan.clients, env.timeline.clone(), plan.marked);
    let world = Arc::new(World { cluster: Arc::new(cluster), record, plan });
    let faulty = &world.cluster.faulty;
    let (exec, steps) = (&world.cluster.members[0].exec, world.plan.clients * world.plan.steps);
    world.record.prepare(exec, steps, world.plan.groups).await;
    faulty.set_observer(world.record.witness.clone().map(|w| w as Arc<dyn Observer>));
    world.fill().await;
    faulty.set_rates(world.plan.rates);
    faulty.set_tamper(world.plan.tamper.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let time = tokio::spawn(world.clone().time(stop.clone(), seed));
    let clients: Vec<_> =
        (0..world.plan.clients).map(|n| tokio::spawn(world.clone().client(n, seed + n as u64))).collect();
    for client in clients {
        client.await.unwrap();
    }
    stop.store(true, SeqCst);
    time.await.unwrap();
    faulty.set_tamper(None);
    faulty.set_rates(FaultRates::default());
    if let Some(witness) = &world.record.witness {
        witness.settle().await;
    }
    if world.plan.tamper.is_none() {
        let report = tern::lifecycle::check::check(&world.cluster.store, &mut |_, _| {}).await.unwrap();
        assert!(report.is_sound(), "seed {seed}: {report}");
    }
    world.record.finish()
}

impl World {
    /// The initial contents of groups, as the first operations of the history.
    async fn fill(&self) {
        let exec = &self.cluster.members[0].exec;
        for step in self.plan.groups.iter().flat_map(|group| group.first()) {
            self.record.step(0, exec, step, Box::pin(std::future::pending())).await;
        }
    }

    /// Moves the clock and sweeps expired keys until it is stopped.
    async fn time(self: Arc<Self>, stop: Arc<AtomicBool>, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x7171);
        while !stop.load(SeqCst) {
            tokio::time::sleep(Duration::from_micros(1500 + rng.below(3000) as u64)).await;
            let tells_time =
                |group: &Group| matches!(group, Group::Expiring | Group::WatchedExpiring | Group::Streams);
            if self.plan.groups.iter().any(tells_time) {
                let by = Duration::from_millis(1 + rng.below(6) as u64);
                self.cluster.members[0].server.env.clock.advance(by);
                let (n, key) =
                    (rng.below(self.plan.servers), format!("{}{}", rng.pick(&["e", "y"]), rng.below(2)));
                let shard = tern::keyspace::keys::shard(tern::keyspace::keys::hash(key.as_bytes()));
                (self.plan.sweep)(self.cluster.clone(), n, shard).await;
            }
        }
    }

    async fn client(self: Arc<Self>, mut name: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let exec = &self.cluster.members[name % self.plan.servers].exec;
        for at in 0..self.plan.steps {
            let until: Until = match self.plan.give_up {
                n if n > 0 && rng.below(n) == 0 => {
                    Box::pin(tokio::time::sleep(Duration::from_micros(rng.below(1500) as u64)))
                }
                _ => Box::pin(std::future::pending()),
            };
            let step = step(&mut rng, self.plan.groups, self.plan.pipeline, &format!("{name}.{at}"));
            name = self.record.step(name, exec, step, until).await;
        }
    }
}
