//! The wire: reads requests from sockets and writes replies. Knows nothing about commands.
//!
//! One task per connection: it reads the available bytes, passes all complete requests to its session, and
//! writes all replies with one call. While a client does not receive its replies, nothing of it runs.

mod connection;
mod encode;
mod listener;
pub mod resp;
pub mod scan;
mod socket;
mod stream;
mod tls;
mod tls_ping;
mod waiting;

pub use listener::{Listener, admits, listen, listen_for_clients};
pub use tls_ping::tls_ping;

use crate::exec::Executor;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval between searches for idle clients.
const SWEEP: Duration = Duration::from_secs(1);

/// Serves clients on `listener` until the server is asked to stop ([`crate::server::Server::stop`]). Then
/// accepts no more clients, lets running commands finish, closes all connections, and returns; waits at most
/// `shutdown-timeout` seconds.
pub async fn serve(listener: Listener, executor: Arc<Executor>) {
    let server = executor.server().clone();
    listener.follow(&server.config);
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let mut stop = server.stop.subscribe();
    tokio::select! {
        biased;
        () = listener.accept_all(&executor, &alive) => {}
        () = close_idle(&server) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop((listener, alive));
    for client in server.clients.all() {
        client.kill();
    }
    let patience = Duration::from_secs(server.config.get().shutdown_timeout.into());
    if tokio::time::timeout(patience, all_gone.recv()).await.is_err() {
        tracing::warn!(
            clients = server.clients.len(),
            "shutdown-timeout has passed: closing the remaining connections"
        );
    }
}

/// `timeout`: closes clients that have been silent for too long, except subscribers; a client that waits for
/// a command is not idle. `login-timeout`: closes clients that have not logged in, whatever they send.
async fn close_idle(server: &crate::server::Server) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let seconds = |n: u32| Duration::from_secs(n.into());
        let (limit, login) = {
            let settings = server.config.get();
            (seconds(settings.timeout), seconds(settings.login_timeout))
        };
        let now = server.env.clock.monotonic();
        if !login.is_zero() && !server.acl.is_open() {
            let strangers = server.clients.all().into_iter().filter(|c| c.stranger_for(now) > login);
            for client in strangers {
                tracing::debug!(client = client.id, "connection closed: no login within login-timeout");
                client.kill();
            }
        }
        if limit.is_zero() {
            continue;
        }
        for client in server.clients.all() {
            // Times are stored in whole milliseconds: the client may have been active up to one later.
            let silent = now.saturating_sub(client.last_seen() + Duration::from_millis(1));
            if client.is_busy() || client.is_blocked() {
                client.touch(now);
            } else if silent > limit && !client.is_subscribed() {
                tracing::debug!(client = client.id, "idle client closed");
                client.kill();
            }
        }
    }
}
