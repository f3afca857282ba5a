//! Collects the dictionary: see `types::set::collect`. Every server looks now and then; one of them does it.
//!
//! A cycle begins when DEBUG DICTIONARY-GC asks this server for it; and, where `dictionary-gc-interval` is not 0, on the server whose share that
//! is: so long after the end of the last one, or earlier when the dictionary has grown: once as many ids were leased since the
//! last one began as had a member then, and `dictionary-gc-backlog` at least: members that come and go fast do not wait for the interval. Where they
//! come faster than they are removed, they wait ([`backpressure`]). How long ago the last one ended is told by the clock once, when this server meets
//! it; from then on it counts for itself, whatever happens to the clock.

use super::pause;
use crate::error::{Error, StoreError, StoreResult};
use crate::keyspace::dictionary::collector::{Phase, State};
use crate::keyspace::dictionary::{backpressure, leases};
use crate::server::Server;
use crate::store::{Read, Tx};
use crate::types::set::collect::grace::Waiting;
use crate::types::set::collect::{Collector, Halt, Pace, Step};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at what there is to do.
const POLL: Duration = Duration::from_secs(1);
/// Between two looks at how many ids were leased.
const LOOK: Duration = Duration::from_secs(10);
/// After an error.
const AFTER_ERROR: Duration = Duration::from_secs(5);

/// What a server remembers between two looks.
#[derive(Default)]
struct Memory {
    waiting: Waiting,
    last: Option<Last>,
    /// A cycle was under way.
    active: bool,
    growth: Growth,
}

/// The last cycle that was through when it last looked.
struct Last {
    cycles: u64,
    /// When it was met, and how long it was over by then.
    met: Duration,
    age: Duration,
}

/// How many ids were leased since the last cycle.
#[derive(Default)]
struct Growth {
    /// When it last looked.
    looked: Duration,
    /// Those that were leased when the last cycle of this server began, or when it first looked.
    before: Option<u64>,
}

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut memory = Memory::default();
    let mut wait = POLL;
    let mut stop = server.stop.subscribe();
    while pause(&server, wait).await {
        // May be dropped anywhere: whoever goes on begins the phase again.
        let round = tokio::select! {
            biased;
            round = round(&server, &mut memory) => round,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        wait = match round {
            Ok(wait) => wait,
            Err(Halt::Lost | Halt::Again) => POLL,
            Err(Halt::Failed(e)) => failed(&server, e).await,
        };
    }
}

async fn failed(server: &Server, e: Error) -> Duration {
    if matches!(e, Error::Store(StoreError::Corrupt(_))) {
        tracing::error!(?e, "the dictionary is not collected: run `tern check`");
        let given_up = Collector::new(&server.space, Pace::default()).abandon().await;
        tracing::debug!(?given_up, "the cycle is abandoned");
    } else {
        tracing::debug!(?e, "collecting the dictionary");
    }
    AFTER_ERROR
}

fn pace(server: &Server, state: &State) -> Pace {
    Pace { share: server.config.get().dictionary_gc_share, ..Pace::default() }.hurried(state)
}

fn backlog(server: &Server) -> u64 {
    server.config.get().dictionary_gc_backlog.into()
}

/// Returns how long to wait for the next one.
async fn round(server: &Server, memory: &mut Memory) -> Result<Duration, Halt> {
    let tx = server.store.begin();
    let round = server.space.catalog.load(&tx).await?.round;
    let asked = server.space.collector.wanted.load(Ordering::Relaxed);
    let grown = memory.growth.is_much(server, &tx).await?;
    if round.phase == Phase::Idle && !asked && !grown && !memory.active && !memory.is_due(server) {
        server.space.backpressure.release();
        return Ok(POLL);
    }
    let state = State::read(&tx, Read::Snapshot).await?;
    let pace = pace(server, &state);
    backpressure::look(&server.space, &tx, &state, backlog(server)).await?;
    memory.waiting.look(&server.space, &pace, &tx, &state).await?;
    let collector = Collector::new(&server.space, pace);
    let begins = state.phase == Phase::Idle && (memory.sees(server, &state, grown) || asked);
    memory.active = begins || state.phase != Phase::Idle;
    if begins {
        server.space.collector.wanted.store(false, Ordering::Relaxed);
        memory.growth.before = Some(leases::leased(&tx).await?);
        collector.begin().await?;
    }
    drop(tx);
    Ok(match collector.step().await? {
        Step::Worked => Duration::ZERO,
        Step::Idle | Step::Waits => POLL,
    })
}

impl Growth {
    /// Whether it is time for a cycle because of it.
    async fn is_much(&mut self, server: &Server, tx: &Tx) -> StoreResult<bool> {
        let now = server.env.clock.monotonic();
        if server.config.get().dictionary_gc_interval == 0 || now.saturating_sub(self.looked) < LOOK {
            return Ok(false);
        }
        self.looked = now;
        let leased = leases::leased(tx).await?;
        let grown = leased.saturating_sub(*self.before.get_or_insert(leased));
        Ok(grown >= backlog(server) && grown >= State::read(tx, Read::Snapshot).await?.live)
    }
}

impl Memory {
    /// Whether it is time to look whether a cycle is due.
    fn is_due(&self, server: &Server) -> bool {
        let interval = Duration::from_secs(server.config.get().dictionary_gc_interval.into());
        let now = server.env.clock.monotonic();
        let over = |last: &Last| now.saturating_sub(last.met) + last.age;
        !interval.is_zero() && self.last.as_ref().is_none_or(|last| over(last) >= interval)
    }

    /// Nothing is under way. Whether a cycle is due, and this server's.
    fn sees(&mut self, server: &Server, state: &State, grown: bool) -> bool {
        let cycles = state.cycles;
        if self.last.as_ref().is_none_or(|last| last.cycles != cycles) {
            let clock = &server.env.clock;
            let age = if state.ended == 0 { 0 } else { clock.now_ms().saturating_sub(state.ended) };
            self.last = Some(Last { cycles, met: clock.monotonic(), age: Duration::from_millis(age) });
        }
        (grown || self.is_due(server)) && server.space.instances.owns("dictionary", 0)
    }
}
