//! Reclaims space: processes garbage rows at a bounded rate, so that background deletion does not crowd out
//! commands.

use super::pause;
use crate::lifecycle::reclaim::reclaim;
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Interval between pieces of work: with [`PIECE`], at most 6 400 objects a second.
const BUSY: Duration = Duration::from_millis(10);
/// The pause without work, and after an error.
const IDLE: Duration = Duration::from_secs(1);
/// Garbage rows per piece.
const PIECE: usize = 64;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut from: Option<Vec<u8>> = None;
    let mut wait = IDLE;
    while pause(&server, wait).await {
        match reclaim(&server.space, from.as_deref(), PIECE).await {
            Ok(done) => {
                wait = if done.next.is_some() { BUSY } else { IDLE };
                from = done.next;
            }
            Err(e) => {
                tracing::debug!(?e, "reclaim");
                (from, wait) = (None, IDLE);
            }
        }
    }
}
