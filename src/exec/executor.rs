//! The executor: sends each unit to where it runs, and counts what it did.

use super::attempt::{Attempts, Slot};
use super::lane::Lane;
use super::unit::{Beside, Done, Unit, runs_script};
use super::{reads, slow, tracked};
use crate::dispatch::{Call, Noted};
use crate::server::Server;
use crate::server::monitor;
use crate::server::reply::Reply;
use crate::telemetry::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// The number of heavy units that run concurrently, and of units with scripts that have left their lanes. Scripts decide
/// themselves how long they run, so nothing else waits for them.
const HEAVY_SLOTS: usize = 8;
const SCRIPT_SLOTS: usize = 8;

/// Runs units.
pub struct Executor {
    pub(super) server: Arc<Server>,
    lanes: Vec<Lane>,
    heavy: Lane,
    scripts: Lane,
    /// The queue of read-only units, which share transactions.
    reads: Option<Lane>,
}

impl Executor {
    /// Starts the lanes of `server`.
    pub fn new(server: Arc<Server>) -> Self {
        let (lanes, clock) = (server.config.get().lane_count(), &server.env.clock);
        let attempts = |n: usize| Attempts::new(server.clone(), Slot::new(server.space.fresh.instance(), n));
        let mut slots = lanes..;
        let mut beside = |n: usize| Lane::spawn(clock, slots.by_ref().take(n).map(attempts).collect());
        let (heavy, scripts) = (beside(HEAVY_SLOTS), beside(SCRIPT_SLOTS));
        let queues = || Beside { heavy: heavy.queue(), scripts: scripts.queue() };
        let lane = |n: usize| Lane::spawn(clock, vec![attempts(n).passing_on(queues())]);
        Executor {
            lanes: (0..lanes).map(lane).collect(),
            heavy,
            scripts,
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

    async fn run_as(&self, unit: Unit, is_shown: bool, counts: impl Fn(&Done) -> bool) -> Done {
        tracked::remember(&self.server, &unit).await;
        let clock = &self.server.env.clock;
        let start = clock.monotonic();
        let (db, exec) = (unit.client.db, unit.exec);
        let mut done = self.route(unit, start).await;
        // Those that failed before they ran count, too.
        done.ran.iter().for_each(|call| tracked::ran(call, exec, &mut done.client.tracking));
        if counts(&done) {
            self.count(&done, clock.monotonic() - start);
        }
        if self.server.tracking.is_on() {
            self.server.tracking.trim(&self.server).await;
        }
        if is_shown && self.server.monitors.is_on() {
            let replies = done.replies.iter().flatten();
            let mut scripts = done.noted.iter();
            let ran = done.ran.iter().zip(replies).map(|(c, reply)| monitor::Ran {
                row: c.row,
                argv: &c.argv,
                reply,
                called: noted_of(c, &mut scripts).map(Noted::shown).unwrap_or_default(),
            });
            monitor::feed(&self.server, &done.client, db, ran);
        }
        self.server.space.backpressure.wait(done.made).await;
        done
    }

    fn count(&self, done: &Done, took: Duration) {
        let telemetry = &self.server.telemetry;
        let tracked = self.server.config.get().latency_tracking;
        telemetry.on_lookups(done.lookups);
        done.noted.iter().for_each(|noted| noted.publish(&self.server));
        let mut scripts = done.noted.iter();
        for (call, reply) in done.ran.iter().zip(done.replies.iter().flatten()) {
            let noted = noted_of(call, &mut scripts);
            let outcome = match reply {
                Reply::Error(e) => {
                    if !noted.is_some_and(|noted| noted.error_is_counted) {
                        telemetry.error(e.code());
                    }
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
            // A script may hold its thread.
            let together = !unit.is_heavy() && !unit.is_about_the_server() && !unit.has_script();
            return match self.reads.as_ref().filter(|_| together) {
                Some(lane) => lane.run(unit, since).await,
                None => reads::run(&self.server, unit, since, None).await,
            };
        }
        if self.server.space.fences.pass(|| unit.written()).await {
            // Waiting is not time in which the store was silent.
            since = self.server.env.clock.monotonic();
        }
        let lane = if unit.is_heavy() && unit.has_script() {
            &self.scripts
        } else if unit.is_heavy() {
            &self.heavy
        } else {
            let n = unit.first_hash() as usize % self.lanes.len();
            self.lanes.get(n).unwrap_or(&self.heavy)
        };
        lane.run(unit, since).await
    }
}

/// What the script that a call runs has called. `scripts`: those of the unit that come next.
fn noted_of<'a>(call: &Call, scripts: &mut impl Iterator<Item = &'a Noted>) -> Option<&'a Noted> {
    if runs_script(call) { scripts.next() } else { None }
}
