//! Collects the dictionary: see `types::set::collect`. Every server checks from time to time; one of them
//! runs the collection.
//!
//! A cycle begins when DEBUG DICTIONARY-GC requests one on this server. If `dictionary-gc-interval` is not 0,
//! it also begins on the server that owns this shard, `dictionary-gc-interval` after the previous cycle
//! ended, or earlier if the dictionary has grown: once as many ids were leased since the last cycle began as
//! had a member then, and at least `dictionary-gc-backlog`. So short-lived members do not have to wait for
//! the interval. If members are created faster than they are removed, their commands wait ([`brake`]). The
//! age of the last cycle is read from the clock once, when this server first sees it; from then on the server
//! measures time itself, whatever happens to the clock.

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

/// Interval between checks for work.
const POLL: Duration = Duration::from_secs(1);
/// Interval between checks of the number of leased ids.
const LOOK: Duration = Duration::from_secs(10);
/// The pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(5);

/// The state that a server keeps between checks.
#[derive(Default)]
struct Memory {
    waiting: Waiting,
    last: Option<Last>,
    /// Whether a cycle was in progress.
    active: bool,
    growth: Growth,
}

/// The last completed cycle, as of the last check.
struct Last {
    cycles: u64,
    /// When this server first saw it, and its age at that time.
    met: Duration,
    age: Duration,
}

/// The number of ids leased since the last cycle.
#[derive(Default)]
struct Growth {
    /// When it was last checked.
    looked: Duration,
    /// The number leased when this server's last cycle began, or at its first check.
    before: Option<u64>,
}

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut memory = Memory::default();
    let mut wait = POLL;
    let mut stop = server.stop.subscribe();
    while pause(&server, wait).await {
        // May be dropped anywhere: the next round starts the phase again.
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
        tracing::error!(?e, "cannot collect the dictionary: run `tern check`");
        let given_up = Collector::new(&server.space, Pace::default()).abandon().await;
        tracing::debug!(?given_up, "dictionary collection abandoned");
    } else {
        tracing::debug!(?e, "cannot collect the dictionary");
    }
    AFTER_ERROR
}

fn pace(server: &Server, state: &State) -> Pace {
    Pace { share: server.config.get().dictionary_gc_share, ..Pace::default() }.hurried(state)
}

fn backlog(server: &Server) -> u64 {
    server.config.get().dictionary_gc_backlog.into()
}

/// Returns how long to wait for the next round.
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
    }
    drop(tx);
    if begins {
        collector.begin().await?;
    }
    Ok(match collector.step().await? {
        Step::Worked => Duration::ZERO,
        Step::Idle | Step::Waits => POLL,
    })
}

impl Growth {
    /// Whether the growth requires a cycle.
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
    /// Whether it is time to check if a cycle is due.
    fn is_due(&self, server: &Server) -> bool {
        let interval = Duration::from_secs(server.config.get().dictionary_gc_interval.into());
        let now = server.env.clock.monotonic();
        let over = |last: &Last| now.saturating_sub(last.met) + last.age;
        !interval.is_zero() && self.last.as_ref().is_none_or(|last| over(last) >= interval)
    }

    /// Called when no cycle is in progress. Returns whether one is due and belongs to this server.
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
