//! Messages of all servers of a store, for this server's subscribers and for those who have a cache (`keyspace::cluster::bus`). On an
//! embedded store there is nothing to do but to see when nobody has a cache any more.
//!
//! * A server without such clients sleeps: it reads nothing, and [`LINGER`] after the last one has gone nobody writes for it.
//! * One that could not hear everything (it was away for longer than rows are kept, or others took it for dead) closes the
//!   connections of its subscribers: they come back, and know that they missed something.
//! * Rows are collected between [`KEPT`] and `KEPT` + [`LOOK`] after they were written, by one of the servers.

use super::pause;
use crate::error::StoreResult;
use crate::keyspace::cluster::bus::{Ages, Heard};
use crate::keyspace::cluster::messages::{LISTENS, TRACKS};
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// A look even where nothing was said: whether others took this server for dead, and should a watch be lost.
const BEAT: Duration = Duration::from_secs(1);
/// After a look that failed.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// Before a server without such clients stops listening: they come and go.
const LINGER: Duration = Duration::from_secs(10);
/// Between two looks at the age of rows.
const LOOK: Duration = Duration::from_secs(30);
/// How long rows are kept at least.
const KEPT: Duration = Duration::from_secs(60);

/// Listens until the server stops, while somebody wants to hear.
pub(super) async fn listen(server: Arc<Server>) {
    let log = &server.space.bus;
    let mut stop = server.stop.subscribe();
    let mut idle_since = None;
    while !*stop.borrow() {
        if log.is_idle() {
            tokio::select! {
                biased;
                () = log.rung() => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
        tokio::select! {
            biased;
            () = round(&server), if log.is_shared() => {}
            () = tokio::time::sleep(BEAT), if !log.is_shared() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        idle_since = linger(&server, idle_since).await;
    }
}

/// Brings what is there to its subscribers, or waits for more.
async fn round(server: &Server) {
    let log = &server.space.bus;
    match log.hear().await {
        Ok(Heard::Messages(messages)) => {
            server.deliver(messages.iter().map(|(version, message)| (*version, message))).await;
            tokio::task::yield_now().await;
        }
        Ok(Heard::Nothing(changed)) => {
            tokio::select! {
                biased;
                _ = changed => {}
                () = log.rung() => {}
                () = tokio::time::sleep(BEAT) => {}
            }
        }
        Ok(Heard::Missed) => {
            let clients = server.subscribers.part() + server.tracking.part();
            tracing::warn!(
                clients,
                "messages were missed: the connections of those who wait for them are closed"
            );
        }
        Err(e) => {
            tracing::debug!(?e, "listening to messages");
            tokio::time::sleep(AFTER_ERROR).await;
        }
    }
}

/// What this server's clients want to hear.
fn wanted(server: &Server) -> u8 {
    let subscribed = if server.subscribers.is_empty() { 0 } else { LISTENS };
    subscribed | if server.tracking.is_on() { TRACKS } else { 0 }
}

/// No longer listens to what nobody has wanted since [`LINGER`] ago. Returns since when there is such a thing.
async fn linger(server: &Server, since: Option<Duration>) -> Option<Duration> {
    let log = &server.space.bus;
    if log.wants() & !wanted(server) == 0 {
        return None;
    }
    let now = server.env.clock.monotonic();
    let since = since.unwrap_or(now);
    if now.saturating_sub(since) < LINGER {
        return Some(since);
    }
    if let Err(e) = log.relax(|| wanted(server)).await {
        tracing::debug!(?e, "to stop listening to messages");
    }
    None
}

/// Collects rows until the server stops.
pub(super) async fn collect(server: Arc<Server>) {
    let ages = Ages::default();
    while server.space.bus.is_shared() && pause(&server, LOOK).await {
        if server.space.instances.owns("messages", 0)
            && let Err(e) = look(&server, &ages).await
        {
            tracing::debug!(?e, "collecting messages");
        }
    }
}

async fn look(server: &Server, ages: &Ages) -> StoreResult<()> {
    let log = &server.space.bus;
    let last = log.last().await?;
    match ages.see(server.env.clock.monotonic(), last, KEPT) {
        Some(row) => log.collect(&row).await,
        None => Ok(()),
    }
}
