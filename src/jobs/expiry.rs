//! Removes expired keys: ten rounds a second over all databases and shards of the expiry index. Readers do not need it (an
//! expired key is absent for them), the space and DBSIZE do. A shard with much to do yields to the others after each piece.

use super::pause;
use crate::commands::cx::Server;
use crate::keyspace::keys::SHARDS;
use crate::types::expire::sweep;
use std::sync::Arc;
use std::time::Duration;

/// Between two rounds that found nothing more to do.
const PERIOD: Duration = Duration::from_millis(100);
/// After a round that failed: the store is unavailable or refuses writes.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Keys removed from one shard before the next one has its turn.
const PIECE: usize = 256;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut wait = PERIOD;
    while pause(&server, wait).await {
        wait = round(&server).await;
    }
}

/// One round over everything. Returns how long to wait for the next.
async fn round(server: &Server) -> Duration {
    let mut wait = PERIOD;
    for db in 0..server.space.catalog.databases() {
        for shard in 0..SHARDS {
            match sweep(&server.space, db, shard, PIECE).await {
                Ok(swept) => {
                    server.telemetry.on_expired(swept.removed as u64);
                    if swept.more {
                        wait = Duration::ZERO;
                    }
                }
                Err(e) => {
                    tracing::debug!(?e, db, shard, "expiry");
                    return AFTER_ERROR;
                }
            }
        }
        tokio::task::yield_now().await;
    }
    wait
}
