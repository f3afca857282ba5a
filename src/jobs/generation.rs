//! After the store has lost acknowledged commits: drops what is remembered of them, here and in clients'
//! caches.
//!
//! No reply of this server depends on when this happens. State that would be wrong in another generation of
//! the store carries its own generation, and the transaction that uses it rejects it
//! ([`Tx::generation`](crate::store::Tx::generation)).

use crate::server::Server;
use std::sync::Arc;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let (mut stop, mut generation) = (server.stop.subscribe(), 0);
    loop {
        generation = tokio::select! {
            biased;
            later = server.store.lost(generation) => later,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        server.space.forget();
        server.tracking.doubt();
        server.tracking.settle(&server).await;
    }
}
