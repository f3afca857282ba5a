//! Background loops, one a file. Every one is safe beside commands, beside itself on other servers, and after a crash at any
//! point: what it does is decided again inside the transaction that does it.

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

/// Starts all loops on `server`. They stop when it is asked to stop.
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

/// Waits for `pause`; false where the server is asked to stop.
async fn pause(server: &Server, pause: Duration) -> bool {
    let mut stop = server.stop.subscribe();
    tokio::select! {
        biased;
        () = tokio::time::sleep(pause) => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}
