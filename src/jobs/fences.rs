//! Reads the fences of other servers (`keyspace::cluster::fences`). An embedded store has one server, which knows its
//! own.

use crate::server::Server;
use std::sync::Arc;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    if !server.store.is_shared() {
        return;
    }
    let mut stop = server.stop.subscribe();
    tokio::select! {
        biased;
        () = server.space.fences.follow() => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}
