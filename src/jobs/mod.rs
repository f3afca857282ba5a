//! Background loops, one per file. Each is safe alongside commands, alongside itself on other servers, and
//! after a crash at any point: it decides again inside the transaction that acts.

mod dictionary;
mod expiry;
mod fences;
mod fold;
mod generation;
mod heartbeat;
mod idempotency;
mod messages;
mod reclaim;
mod watched;

use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// Starts all loops of `server`. They stop when the server is asked to stop.
pub fn spawn(server: &Arc<Server>) {
    tokio::spawn(heartbeat::run(server.clone()));
    tokio::spawn(expiry::run(server.clone()));
    tokio::spawn(idempotency::run(server.clone()));
    tokio::spawn(messages::listen(server.clone()));
    tokio::spawn(messages::collect(server.clone()));
    tokio::spawn(reclaim::run(server.clone()));
    tokio::spawn(fences::run(server.clone()));
    tokio::spawn(fold::run(server.clone()));
    tokio::spawn(generation::run(server.clone()));
    tokio::spawn(dictionary::run(server.clone()));
    tokio::spawn(watched::run(server.clone()));
}

/// Waits for `pause`; false if the server is asked to stop.
async fn pause(server: &Server, pause: Duration) -> bool {
    let mut stop = server.stop.subscribe();
    tokio::select! {
        biased;
        () = tokio::time::sleep(pause) => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}
