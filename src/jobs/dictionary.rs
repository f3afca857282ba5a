//! Collects the dictionary: see `types::set::collect`. Every server looks now and then; one of them does it.
//!
//! A cycle begins when DEBUG DICTIONARY-GC asks this server for it, or `dictionary-gc-interval` after the last one that this server
//! has seen, on the server whose share that is. Times are this server's own.

use super::pause;
use crate::commands::cx::Server;
use crate::error::{Error, StoreError};
use crate::keyspace::collector::{Phase, State};
use crate::store::Read;
use crate::types::set::collect::grace::Waiting;
use crate::types::set::collect::{Collector, Halt, Pace, Step};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at what there is to do.
const POLL: Duration = Duration::from_secs(1);
/// After an error.
const AFTER_ERROR: Duration = Duration::from_secs(5);

/// What a server remembers between two looks.
#[derive(Default)]
struct Memory {
    waiting: Waiting,
    /// Cycles that were through when it last looked, and since when there have been so many.
    cycles: Option<(u64, Duration)>,
    /// A cycle was under way.
    active: bool,
}

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut memory = Memory::default();
    let mut wait = POLL;
    let mut stop = server.stop.subscribe();
    while pause(&server, wait).await {
        // May be dropped anywhere: whoever goes on begins the phase again.
        let round = tokio::select! {
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
        let given_up = collector(server).abandon().await;
        tracing::debug!(?given_up, "the cycle is abandoned");
    } else {
        tracing::debug!(?e, "collecting the dictionary");
    }
    AFTER_ERROR
}

fn pace(server: &Server) -> Pace {
    Pace { share: server.config.get().dictionary_gc_share, ..Pace::default() }
}

fn collector(server: &Server) -> Collector<'_> {
    Collector::new(&server.space, pace(server))
}

/// Returns how long to wait for the next one.
async fn round(server: &Server, memory: &mut Memory) -> Result<Duration, Halt> {
    let tx = server.store.begin();
    let round = server.space.catalog.load(&tx).await?.round;
    let asked = server.space.collector.wanted.load(Ordering::Relaxed);
    if round.phase == Phase::Idle && !asked && !memory.active && !memory.is_due(server) {
        return Ok(POLL);
    }
    let state = State::read(&tx, Read::Snapshot).await?;
    drop(tx);
    memory.waiting.look(&server.space, &pace(server), &state).await?;
    let collector = collector(server);
    let begins = state.phase == Phase::Idle && (memory.sees(server, &state) || asked);
    memory.active = begins || state.phase != Phase::Idle;
    if begins {
        server.space.collector.wanted.store(false, Ordering::Relaxed);
        collector.begin().await?;
    }
    Ok(match collector.step().await? {
        Step::Worked => Duration::ZERO,
        Step::Idle | Step::Waits => POLL,
    })
}

impl Memory {
    /// Whether it is time to look whether a cycle is due.
    fn is_due(&self, server: &Server) -> bool {
        let interval = u64::from(server.config.get().dictionary_gc_interval);
        let passed = |since| server.env.clock.monotonic().saturating_sub(since);
        interval > 0 && self.cycles.is_none_or(|(_, since)| passed(since) >= Duration::from_secs(interval))
    }

    /// Nothing is under way. Whether a cycle is due, and this server's.
    fn sees(&mut self, server: &Server, state: &State) -> bool {
        if self.cycles.is_none_or(|(cycles, _)| cycles != state.cycles) {
            self.cycles = Some((state.cycles, server.env.clock.monotonic()));
        }
        self.is_due(server) && server.space.instances.owns("dictionary", 0)
    }
}
