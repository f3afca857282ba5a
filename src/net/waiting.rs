//! Answers clients that connect before the store is open with `-LOADING`, like a Redis that is reading its
//! file: a health check can tell a server that waits for its store from a dead one, and client libraries
//! retry.
//!
//! A client that connects in the first second just waits, because most stores are open by then. No connection
//! survives the opening: a session starts with a new connection.

use super::listener::Listener;
use super::resp::Decoder;
use super::scan::Limits;
use super::stream::Stream;
use super::tls::Tls;
use futures_util::future::join_all;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The time before any client is answered.
const QUIET: Duration = Duration::from_secs(1);
/// How long a connection is kept. Health checks ask once.
const LIFE: Duration = Duration::from_secs(10);
/// The most concurrent connections per socket.
const MOST: usize = 256;
/// The pause after a failed accept (out of file descriptors).
const PAUSE: Duration = Duration::from_millis(100);
/// No client has logged in.
const LIMITS: Limits = Limits { max_bulk: 16 << 10, authenticated: false };

const LOADING: &[u8] = b"-LOADING Tern is waiting for its store; see the log\r\n";

impl Listener {
    /// Runs `opening`. After [`QUIET`], every request of a client is answered with `-LOADING` meanwhile.
    pub async fn while_opening<T>(&self, opening: impl Future<Output = T>) -> T {
        let mut opening = pin!(opening);
        tokio::select! {
            biased;
            opened = &mut opening => return opened,
            () = tokio::time::sleep(QUIET) => {}
        }
        tokio::select! {
            biased;
            opened = &mut opening => return opened,
            _ = join_all(self.doors().map(|(socket, tls)| refuse_all(socket, tls))) => {}
        }
        opening.await
    }
}

async fn refuse_all(socket: &TcpListener, tls: Option<&Arc<Tls>>) {
    let mut refused = JoinSet::new();
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                while refused.try_join_next().is_some() {}
                if refused.len() < MOST {
                    refused.spawn(tokio::time::timeout(LIFE, refuse(stream, tls.cloned())));
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Answers one client until it leaves.
async fn refuse(stream: TcpStream, tls: Option<Arc<Tls>>) -> io::Result<()> {
    let mut stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => Stream::Tls(Box::new(tls.accept(stream).await?)),
    };
    let mut decoder = Decoder::default();
    loop {
        match decoder.next_request(&LIMITS) {
            Ok(Some(_)) => {
                stream.write_all(LOADING).await?;
                stream.flush().await?;
            }
            Ok(None) => match stream.read_buf(decoder.room()).await? {
                0 => return Ok(()),
                n => decoder.filled(n),
            },
            Err(error) => {
                stream.write_all(&error.line()).await?;
                return stream.shutdown().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::net::listen_for_clients;

    async fn answer(address: std::net::SocketAddr, request: &[u8], bytes: usize) -> Vec<u8> {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request).await.unwrap();
        let mut said = vec![0; bytes];
        client.read_exact(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn clients_hear_that_the_store_is_not_open() {
        let settings = Settings { port: 0, bind: vec!["127.0.0.1".into()], ..Settings::default() };
        let listener = listen_for_clients(&settings).await.unwrap();
        let address = listener.addresses()[0];
        let (open, opened) = tokio::sync::oneshot::channel();
        let asking = async {
            for request in [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"HELLO 3 AUTH a b\r\n"] {
                assert_eq!(answer(address, request, LOADING.len()).await, LOADING);
            }
            let both = answer(address, b"SET k v\r\nGET k\r\n", 2 * LOADING.len()).await;
            assert_eq!(both, LOADING.repeat(2));
            assert!(answer(address, b"*1\r\n$x\r\n", 19).await.starts_with(b"-ERR Protocol error"));
            let mut kept = TcpStream::connect(address).await.unwrap();
            kept.write_all(b"PING\r\n").await.unwrap();
            let mut said = vec![0; LOADING.len()];
            kept.read_exact(&mut said).await.unwrap();
            open.send(7).unwrap();
            kept
        };
        let (opened, mut kept) = tokio::join!(listener.while_opening(opened), asking);
        assert_eq!(opened, Ok(7));
        assert_eq!(kept.read(&mut [0]).await.unwrap_or_default(), 0, "it is closed");
    }

    #[tokio::test]
    async fn nobody_is_refused_in_the_first_moment() {
        let settings = Settings { port: 0, bind: vec!["127.0.0.1".into()], ..Settings::default() };
        let listener = listen_for_clients(&settings).await.unwrap();
        let mut client = TcpStream::connect(listener.addresses()[0]).await.unwrap();
        client.write_all(b"PING\r\n").await.unwrap();
        listener.while_opening(tokio::time::sleep(QUIET / 2)).await;
        assert_eq!(client.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
