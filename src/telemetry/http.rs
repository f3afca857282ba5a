//! A responder for `metrics-port`: HTTP/1.1, one request a connection, GET only. Not a web server.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longest request head in bytes.
const MAX_HEAD: usize = 8192;
/// Longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept (no file descriptors left).
const BACK_OFF: Duration = Duration::from_millis(100);
/// The exposition format that `prometheus-client` writes.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `GET /metrics` on `listener` with `text()` until the task is dropped.
pub async fn serve(listener: TcpListener, text: Arc<dyn Fn() -> String + Send + Sync>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let text = text.clone();
                tokio::spawn(async move { timeout(PATIENCE, answer(stream, &*text)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "metrics: accept failed");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, text: &(dyn Fn() -> String + Send + Sync)) -> std::io::Result<()> {
    let Some(head) = head(&mut stream).await? else { return Ok(()) };
    let (status, kind, body) = match route(&head) {
        Route::Metrics => ("200 OK", TYPE, text()),
        Route::NotFound => ("404 Not Found", "text/plain", "metrics are at /metrics\n".into()),
        Route::NotAllowed => ("405 Method Not Allowed", "text/plain", "only GET\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line; None where the request is too long or ends early.
async fn head(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
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
