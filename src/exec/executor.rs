//! The executor: sends each unit to where it runs, and counts what it did.

use super::attempt::{Attempts, Slot};
use super::lane::Lane;
use super::unit::{Done, Unit};
use super::{reads, slow, tracked};
use crate::server::Server;
use crate::server::monitor;
use crate::server::reply::Reply;
use crate::telemetry::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// The number of heavy units that run concurrently.
const HEAVY_SLOTS: usize = 8;

/// Runs units.
pub struct Executor {
    pub(super) server: Arc<Server>,
    lanes: Vec<Lane>,
    heavy: Lane,
    /// The queue of read-only units, which share transactions.
    reads: Option<Lane>,
}

impl Executor {
    /// Starts the lanes of `server`.
    pub fn new(server: Arc<Server>) -> Self {
        let (lanes, clock) = (server.config.get().lane_count(), &server.env.clock);
        let attempts = |n: usize| Attempts::new(server.clone(), Slot::new(server.space.fresh.instance(), n));
        let heavy = Lane::spawn(clock, (lanes..lanes + HEAVY_SLOTS).map(attempts).collect());
        let lane = |n: usize| Lane::spawn(clock, vec![attempts(n).passing_on(heavy.queue())]);
        Executor {
            lanes: (0..lanes).map(lane).collect(),
            heavy,
            reads: server.store.prefers_prefetch().then(|| Lane::of_reads(server.clone())),
            server: server.clone(),
        }
    }

    /// The state that all connections share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Runs a unit to its end. A unit that writes completes even if the caller is dropped.
    ///
    /// The latency recorded for each of its commands is the unit's: from here to its reply, commit included.
    /// Waiting for the collector of the dictionary ([`crate::keyspace::dictionary::backpressure`]) counts.
    pub async fn run(&self, unit: Unit) -> Done {
        self.run_as(unit, true, |_| true).await
    }

    /// As [`Executor::run`], for a call that waits. It is shown to MONITOR when it runs first, and counted when it gets
    /// something.
    pub(super) async fn run_waiting(&self, unit: Unit, is_first: bool) -> Done {
        let has_something =
            |done: &Done| !matches!(done.replies.as_deref(), Some([Reply::Nil | Reply::NilArray]));
        self.run_as(unit, is_first, has_something).await
    }

    async fn run_as(&self, mut unit: Unit, is_shown: bool, counts: impl Fn(&Done) -> bool) -> Done {
        tracked::remember(&self.server, &mut unit).await;
        let clock = &self.server.env.clock;
        let start = clock.monotonic();
        let db = unit.client.db;
        let done = self.route(unit, start).await;
        if counts(&done) {
            self.count(&done, clock.monotonic() - start);
        }
        if self.server.tracking.is_on() {
            self.server.tracking.trim(&self.server).await;
        }
        if is_shown && self.server.monitors.is_on() {
            let replies = done.replies.iter().flatten();
            let ran = done.ran.iter().zip(replies).map(|(c, reply)| (c.row, c.argv.as_slice(), reply));
            monitor::feed(&self.server, &done.client, db, ran);
        }
        self.server.space.backpressure.wait(done.made).await;
        done
    }

    fn count(&self, done: &Done, took: Duration) {
        let telemetry = &self.server.telemetry;
        let tracked = self.server.config.get().latency_tracking;
        telemetry.on_lookups(done.lookups);
        for (call, reply) in done.ran.iter().zip(done.replies.iter().flatten()) {
            let outcome = match reply {
                Reply::Error(e) => {
                    telemetry.error(e.code());
                    Outcome::Failed
                }
                _ => Outcome::Done,
            };
            telemetry.command(call.row.index, took, tracked, outcome);
        }
        if done.replies.is_some() {
            slow::note(&self.server, &done.client, &done.ran, took);
        }
    }

    async fn route(&self, unit: Unit, mut since: Duration) -> Done {
        let published_by_store = self.server.space.bus.is_shared() && unit.publishes();
        if !unit.writes() && !published_by_store {
            let together = !unit.is_heavy() && !unit.is_about_the_server();
            return match self.reads.as_ref().filter(|_| together) {
                Some(lane) => lane.run(unit, since).await,
                None => reads::run(&self.server, unit, since, None).await,
            };
        }
        if self.server.space.fences.pass(|| unit.written()).await {
            // Waiting is not time in which the store was silent.
            since = self.server.env.clock.monotonic();
        }
        let lane = if unit.is_heavy() {
            &self.heavy
        } else {
            let n = unit.first_hash() as usize % self.lanes.len();
            self.lanes.get(n).unwrap_or(&self.heavy)
        };
        lane.run(unit, since).await
    }
}
