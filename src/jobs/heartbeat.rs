//! Renews this server's lease, checks those of other servers, and cleans up after dead ones: their row, and
//! their lanes' rows. Objects that they had under construction thereby become garbage (`lifecycle::reclaim`);
//! other servers have taken over their shares of the jobs earlier.

use super::pause;
use crate::error::StoreResult;
use crate::keyspace::cluster::instances::Seen;
use crate::server::Server;
use std::sync::Arc;

/// Beats between two searches for rows without an owner.
const ORPHANS_EVERY: u64 = 64;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut beats = 0;
    loop {
        if let Err(e) = round(&server, beats).await {
            tracing::debug!(?e, "heartbeat");
        }
        beats += 1;
        if !pause(&server, server.space.instances.pace().beat).await {
            return;
        }
    }
}

async fn round(server: &Server, beats: u64) -> StoreResult<()> {
    let instances = &server.space.instances;
    server.space.beat().await?;
    server.tracking.settle(server).await;
    for dead in instances.observe().await? {
        if instances.owns("bury", dead.id) && instances.bury(&dead).await? {
            report(&dead);
        }
    }
    if beats.is_multiple_of(ORPHANS_EVERY) && instances.owns("orphans", 0) {
        instances.bury_orphans().await?;
    }
    Ok(())
}

fn report(dead: &Seen) {
    let (id, seconds) = (dead.id, dead.silent.as_secs());
    tracing::warn!(
        "server {id:016x} at {} has been silent for {seconds} s: its leases are taken over",
        dead.row.address
    );
}
