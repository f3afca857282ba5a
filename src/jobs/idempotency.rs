//! Forgets what commands under an id answered once it is older than `idempotency-min-age`, oldest first in each shard of the
//! age index. Bounded: at most [`PIECE`] ids of each shard every [`BUSY`], 40 960 a second on all servers together.
//!
//! Servers divide the shards among them. A round looks at the oldest id of each of its shards, sweeps those where something is due,
//! and sleeps until the next thing is. It goes on where the last sweep ended, and begins anew once in [`FORGET_MARKS`]: what
//! a server with a late clock wrote further back waits so long. Ages are differences between servers' clocks:
//! `idempotency-min-age` is meant to be far above what those differ by.

use super::pause;
use crate::error::Result;
use crate::keyspace::keys::SHARDS;
use crate::lifecycle::idempotency::{Mark, oldest, sweep};
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Between two rounds while there is more to do.
const BUSY: Duration = Duration::from_millis(100);
/// Longest sleep between two rounds, also after an error: `idempotency-min-age` may be set at any time.
const LONGEST: Duration = Duration::from_secs(5);
/// Ids removed from one shard before the next one has its turn.
const PIECE: usize = 256;
/// How long marks are trusted.
const FORGET_MARKS: Duration = Duration::from_secs(60);

/// Where the sweep of each shard ended.
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

/// One piece of each of this server's shards. Returns how long to wait for the next round.
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
