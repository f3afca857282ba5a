//! A responder for `metrics-port`: HTTP/1.1, one request per connection, GET only. Not a web server.
//!
//! It is as reachable for strangers as the clients' port, so it must not cost clients anything:
//!
//! * At most [`MOST`] concurrent connections, plus one per listening address. A place is taken before a
//!   connection is accepted, so waiting connections use no descriptor of this process; they stay in the
//!   socket's backlog.
//! * A request must arrive within [`ASKING`] and its answer be received within [`ANSWERING`]: a silent peer
//!   loses its place.
//! * A peer that may not connect (`protected-mode`) is told so and closed at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections that are served concurrently.
const MOST: usize = 16;
/// Longest request head in bytes.
const MAX_HEAD: usize = 8192;
/// The time limits for a request, and for receiving its answer.
const ASKING: Duration = Duration::from_secs(2);
const ANSWERING: Duration = Duration::from_secs(5);
/// The pause after a failed accept.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The exposition format that `prometheus-client` writes.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The answer to a peer without access.
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The interface of the responder to its server.
pub struct Site {
    /// The metrics.
    pub text: Box<dyn Fn() -> String + Send + Sync>,
    /// Whether a peer may read them.
    pub admits: Box<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

/// Answers `GET /metrics` on all `listeners` until the task is dropped.
pub async fn serve(listeners: Vec<TcpListener>, site: Site) {
    // A task that waits for a connection takes a place, too.
    let (site, places) = (Arc::new(site), Arc::new(Semaphore::new(MOST + listeners.len())));
    let doors = listeners.into_iter().map(|listener| door(listener, site.clone(), places.clone()));
    futures_util::future::join_all(doors).await;
}

async fn door(listener: TcpListener, site: Arc<Site>, places: Arc<Semaphore>) {
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let site = site.clone();
                tokio::spawn(async move {
                    // A peer that leaves or is too slow does not matter.
                    let _ = answer(stream, peer, &site).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "metrics: accept failed");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, peer: SocketAddr, site: &Site) -> std::io::Result<()> {
    if !(site.admits)(peer) {
        return timeout(ANSWERING, stream.write_all(FORBIDDEN)).await?;
    }
    let Some(head) = timeout(ASKING, head(&mut stream)).await?? else { return Ok(()) };
    let (status, kind, body) = match route(&head) {
        Route::Metrics => ("200 OK", TYPE, (site.text)()),
        Route::NotFound => ("404 Not Found", "text/plain", "metrics are at /metrics\n".into()),
        Route::NotAllowed => ("405 Method Not Allowed", "text/plain", "only GET\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let writing = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    };
    timeout(ANSWERING, writing).await?
}

/// Reads up to the empty line; None if the request is too long or ends early.
async fn head(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut searched = 0;
    while !head.get(searched..).unwrap_or_default().windows(4).any(|w| w == b"\r\n\r\n") {
        searched = head.len().saturating_sub(3);
        if head.len() > MAX_HEAD || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

#[derive(Debug, PartialEq)]
enum Route {
    Metrics,
    NotFound,
    NotAllowed,
}

fn route(head: &[u8]) -> Route {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match path.split(|b| *b == b'?').next() {
        _ if method != b"GET" => Route::NotAllowed,
        Some(b"/metrics" | b"/") => Route::Metrics,
        _ => Route::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        assert_eq!(route(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n"), Route::Metrics);
        assert_eq!(route(b"GET /other HTTP/1.1\r\n\r\n"), Route::NotFound);
        assert_eq!(route(b"POST /metrics HTTP/1.1\r\n\r\n"), Route::NotAllowed);
        assert_eq!(route(b"\r\n\r\n"), Route::NotAllowed);
    }
}
