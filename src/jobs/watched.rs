//! Renews the ghosts of absent keys that this server's clients WATCH: see `lifecycle::watched`.

use super::pause;
use crate::lifecycle::watched;
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Interval between rounds: two may fail before a ghost expires.
const ROUND: Duration = Duration::from_secs(15);
/// Names taken from the list at once.
const PIECE: usize = 1024;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    while pause(&server, ROUND).await {
        let mut last = None;
        loop {
            let names = server.space.watched_absent.names(last.as_ref(), PIECE);
            if names.is_empty() {
                break;
            }
            if let Err(e) = watched::renew(&server.space, &names).await {
                tracing::debug!(?e, "cannot renew the absent watched keys");
                break;
            }
            last = names.into_iter().next_back();
        }
    }
}
