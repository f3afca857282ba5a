//! Removes expired keys. Readers do not need this (an expired key is absent for them), but space and DBSIZE
//! do.
//!
//! A round reads the first expiry of each shard (`lifecycle::expire::look`), sweeps the shards with expired keys,
//! and sleeps until the next expiry, at most a second. A shard with much work yields to the others after each
//! piece. Servers divide the shards among them; if two believe they own one, both sweep it, and the second
//! finds nothing.

use super::pause;
use crate::error::Result;
use crate::exec::slow;
use crate::keyspace::keys::SHARDS;
use crate::lifecycle::expire::{Head, Swept, look, sweep};
use crate::server::Server;
use crate::server::publisher::Publication;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest sleep between rounds: an expiry earlier than all known ones may be set at any time.
const LONGEST: Duration = Duration::from_secs(1);
/// The shortest sleep: keys that expire meanwhile are removed together.
const SHORTEST: Duration = Duration::from_millis(50);
/// The pause after a failed round: the store is unavailable or refuses writes.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Keys to remove from one shard before the next one gets its turn.
const PIECE: usize = 256;

/// Runs until the server stops; pauses for DEBUG SET-ACTIVE-EXPIRE and CLIENT PAUSE.
pub(super) async fn run(server: Arc<Server>) {
    let mut wait = SHORTEST;
    while pause(&server, wait).await {
        let paused = server.pause.now(&server.env.clock).is_some();
        if paused || !server.active_expire.load(Ordering::Relaxed) {
            continue;
        }
        let began = server.env.clock.monotonic();
        wait = round(&server).await.unwrap_or_else(|e| {
            tracing::debug!(?e, "expiry");
            AFTER_ERROR
        });
        slow::note_event(&server, "expire-cycle", server.env.clock.monotonic() - began);
    }
}

/// Sweeps this server's shards. Returns how long to wait for the next round.
async fn round(server: &Arc<Server>) -> Result<Duration> {
    let (space, instances) = (&server.space, &server.space.instances);
    let unit = |db: u8, shard: u8| u64::from(db) * u64::from(SHARDS) + u64::from(shard);
    let heads = look(space, |db, shard| instances.owns("expiry", unit(db, shard))).await?;
    let now = server.env.timeline.now();
    let mut wait = LONGEST;
    for head in heads {
        if head.at > now {
            wait = wait.min(Duration::from_millis(head.at - now).max(SHORTEST));
            continue;
        }
        let swept = sweep_and_publish(server, head).await?;
        server.telemetry.on_expired(swept.removed as u64, swept.fields as u64);
        wait = if swept.more { Duration::ZERO } else { wait.min(SHORTEST) };
        tokio::task::yield_now().await;
    }
    Ok(wait)
}

/// Sweeps a piece and publishes its events.
async fn sweep_and_publish(server: &Arc<Server>, head: Head) -> Result<Swept> {
    let (mut expired, turn) = server.expiring().await;
    let swept = sweep(&server.space, head.db, head.shard, PIECE, &mut expired).await;
    server.publish_in(Publication::of_one(expired.messages), turn).await.wait().await;
    swept
}
