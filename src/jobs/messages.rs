//! Receives the messages of all servers of a store, for this server's subscribers and for clients with caches
//! (`keyspace::cluster::bus`). On an embedded store its only task is to notice when no client has a cache any
//! more.
//!
//! * A server without such clients sleeps: it reads nothing, and [`LINGER`] after the last one has gone,
//!   nobody writes for it.
//! * A server that missed messages (it was away for longer than rows are kept, or others took it for dead)
//!   closes the connections of its subscribers, so that they reconnect and know that they missed something.
//! * One of the servers collects rows, between [`KEPT`] and `KEPT` + [`LOOK`] after they were written.

use super::pause;
use crate::error::StoreResult;
use crate::keyspace::cluster::bus::{Ages, Heard};
use crate::keyspace::cluster::messages::{LISTENS, TRACKS};
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;

/// The interval of checks without a notification: whether others took this server for dead, and in case a
/// watch was lost.
const BEAT: Duration = Duration::from_secs(1);
/// The pause after a failed check.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// How long a server keeps listening after its last such client: clients come and go.
const LINGER: Duration = Duration::from_secs(10);
/// Interval between checks of the age of rows.
const LOOK: Duration = Duration::from_secs(30);
/// How long rows are kept at least.
const KEPT: Duration = Duration::from_secs(60);

/// Listens until the server stops, while any client needs it.
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

/// Delivers the pending messages, or waits for more.
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
            tracing::warn!(clients, "messages were missed: closing the connections that depend on them");
        }
        Err(e) => {
            tracing::debug!(?e, "cannot read messages");
            tokio::time::sleep(AFTER_ERROR).await;
        }
    }
}

/// The kinds of messages that this server's clients need.
fn wanted(server: &Server) -> u8 {
    let subscribed = if server.subscribers.is_empty() { 0 } else { LISTENS };
    subscribed | if server.tracking.is_on() { TRACKS } else { 0 }
}

/// Stops listening to kinds that no client has needed since [`LINGER`] ago. Returns since when such a kind
/// exists.
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
        tracing::debug!(?e, "cannot stop listening to messages");
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
