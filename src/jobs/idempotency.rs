//! Deletes idempotency records older than `idempotency-min-age`, oldest first in each shard of the age index.
//! Bounded: at most [`PIECE`] ids of each shard every [`BUSY`], 40 960 a second on all servers together.
//!
//! Servers divide the shards among them. A round reads the oldest id of each of its shards, sweeps those with
//! old records, and sleeps until the next one is due. A sweep continues where the last one ended, and starts
//! over once in [`FORGET_MARKS`]: records written further back by a server whose clock is slow wait that
//! long. Ages are differences between servers' clocks: `idempotency-min-age` should be far above the clock
//! skew.

use super::pause;
use crate::error::Result;
use crate::keyspace::keys::SHARDS;
use crate::lifecycle::idempotency::{Mark, oldest, sweep};
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Interval between rounds while work is left.
const BUSY: Duration = Duration::from_millis(100);
/// The longest sleep between rounds, even after an error: `idempotency-min-age` may be changed at any time.
const LONGEST: Duration = Duration::from_secs(5);
/// Ids to remove from one shard before the next one gets its turn.
const PIECE: usize = 256;
/// How long marks are used.
const FORGET_MARKS: Duration = Duration::from_secs(60);

/// The position at which the sweep of each shard ended.
type Marks = [Mark; SHARDS as usize];

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let clock = &server.env.clock;
    let (mut marks, mut since) = (Marks::default(), clock.monotonic());
    let mut wait = BUSY;
    while pause(&server, wait).await {
        if clock.monotonic().saturating_sub(since) > FORGET_MARKS {
            (marks, since) = (Marks::default(), clock.monotonic());
        }
        wait = round(&server, &mut marks).await.unwrap_or_else(|e| {
            tracing::debug!(?e, "forgetting ids");
            LONGEST
        });
    }
}

/// Sweeps one piece of each of this server's shards. Returns how long to wait for the next round.
async fn round(server: &Server, marks: &mut Marks) -> Result<Duration> {
    let (space, clock) = (&server.space, &server.env.clock);
    let min_age = u64::from(server.config.get().idempotency_min_age) * 1000;
    let own: Vec<(u8, &Mark)> = (0..SHARDS)
        .zip(marks.iter())
        .filter(|(shard, _)| space.instances.owns("idempotency", u64::from(*shard)))
        .collect();
    let mut wait = LONGEST;
    for (shard, at) in oldest(space, &own).await? {
        let before = clock.now_ms().saturating_sub(min_age);
        if at >= before {
            wait = wait.min(Duration::from_millis(at - before + 1).max(BUSY));
            continue;
        }
        let Some(mark) = marks.get_mut(usize::from(shard)) else { continue };
        let swept = sweep(space, shard, mark, before, PIECE).await?;
        server.telemetry.on_forgotten(swept.removed as u64);
        *mark = swept.next.or(mark.take());
        wait = wait.min(BUSY);
    }
    Ok(wait)
}
