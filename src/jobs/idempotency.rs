//! Forgets what commands under an id answered once it is older than `idempotency-min-age`, oldest first in each shard of the
//! age index. Bounded: at most [`PIECE`] ids of each shard every [`BUSY`], 40 960 a second.
//!
//! A round begins at a random shard, so that servers on one store rarely meet. Behind what was removed the engine may still have to
//! pass over its traces, so a round goes on where the last one ended, and begins anew once in [`FORGET_MARKS`]: what a server
//! with a late clock wrote further back waits so long. Ages are differences between servers' clocks: `idempotency-min-age` is meant
//! to be far above what those differ by.

use super::pause;
use crate::commands::cx::Server;
use crate::env::Rng;
use crate::keyspace::keys::SHARDS;
use crate::types::receipt::sweep;
use std::sync::Arc;
use std::time::Duration;

/// Between two rounds while there is more to do.
const BUSY: Duration = Duration::from_millis(100);
/// Between two rounds that found nothing more, and after an error.
const IDLE: Duration = Duration::from_secs(1);
/// Ids removed from one shard before the next one has its turn.
const PIECE: usize = 256;
/// How long a shard's mark is trusted.
const FORGET_MARKS: Duration = Duration::from_secs(60);

/// Where the sweep of each shard ended.
type Marks = [Option<Vec<u8>>; SHARDS as usize];

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let clock = &server.env.clock;
    let mut rng = server.env.rng();
    let (mut marks, mut since) = (Marks::default(), clock.monotonic());
    let mut wait = IDLE;
    while pause(&server, wait).await {
        if clock.monotonic().saturating_sub(since) > FORGET_MARKS {
            (marks, since) = (Marks::default(), clock.monotonic());
        }
        wait = round(&server, &mut rng, &mut marks).await;
    }
}

/// One piece of each shard. Returns how long to wait for the next round.
async fn round(server: &Server, rng: &mut Rng, marks: &mut Marks) -> Duration {
    let min_age = u64::from(server.config.get().idempotency_min_age) * 1000;
    let before = server.env.clock.now_ms().saturating_sub(min_age);
    let first = rng.below(u64::from(SHARDS)) as u8;
    let mut wait = IDLE;
    for n in 0..SHARDS {
        let shard = (first + n) % SHARDS;
        let Some(mark) = marks.get_mut(usize::from(shard)) else { continue };
        match sweep(&server.space, shard, mark.as_deref(), before, PIECE).await {
            Ok(swept) => {
                server.telemetry.on_forgotten(swept.removed as u64);
                wait = if swept.more { BUSY } else { wait };
                *mark = swept.next.or(mark.take());
            }
            // Somebody was in the way, or the store is: it is there the next time.
            Err(e) => tracing::debug!(?e, shard, "forgetting ids"),
        }
    }
    wait
}
