//! A client's socket: counts bytes, is in the registry while it lives, and closes when its handle is told to
//! (CLIENT KILL, `timeout`, shutdown).
//!
//! This takes one future per connection, polled only when a read or write has to wait anyway. It also ends a
//! read when the client has mail (`server::mailbox`).

use super::stream::Stream;
use super::tls::Tls;
use crate::server::Server;
use crate::server::clients::{ClientHandle, Peer};
use crate::telemetry::offences::Offence;
use bytes::BytesMut;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the closing message of TLS may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A client's entry in the registry, for as long as it lives.
pub(super) struct Entry {
    server: Arc<Server>,
    handle: Arc<ClientHandle>,
}

impl Entry {
    /// Registers a client that has just connected.
    pub(super) fn new(stream: &TcpStream, peer: SocketAddr, server: Arc<Server>) -> Self {
        let laddr = stream.local_addr().map(|a| a.to_string()).unwrap_or_default();
        let peer = Peer { addr: peer.to_string(), laddr, fd: stream.as_raw_fd() };
        let handle = server.clients.connect(peer, server.env.clock.monotonic());
        Entry { server, handle }
    }

    /// The stream of the client's requests, after the handshake if it uses TLS. None: it was closed.
    pub(super) async fn greet(&self, stream: TcpStream, tls: Option<Arc<Tls>>) -> Option<Stream> {
        let Some(tls) = tls else { return Some(Stream::Plain(stream)) };
        let shaken = tokio::select! {
            biased;
            shaken = tls.accept(stream) => shaken,
            () = self.handle.killed() => return None,
        };
        match shaken {
            Ok(stream) => Some(Stream::Tls(Box::new(stream))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                tracing::debug!(client = self.handle.id, "closed during the TLS handshake");
                None
            }
            Err(error) => {
                let what = || format!("TLS handshake: {error}");
                self.server.complain(&self.handle, Offence::Handshake, what);
                None
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.server.clients.disconnect(self.handle.id);
        if std::thread::panicking() {
            self.server.telemetry.on_panic();
            tracing::error!(client = self.handle.id, addr = self.handle.addr, "panic: connection closed");
        }
    }
}

/// A connected client's socket.
pub(super) struct ClientSocket {
    /// Dropped before the stream: a client that has seen the end is in the registry no more.
    entry: Entry,
    stream: Stream,
    woken: Switch,
}

/// Why a read ended.
pub(super) enum Arrival {
    /// The number of bytes read; 0: the client has left, or was told to.
    Bytes(usize),
    /// The client has mail.
    Mail,
}

impl ClientSocket {
    /// The socket of a client that has been greeted.
    pub(super) fn new(stream: Stream, entry: Entry) -> Self {
        let woken = woken(&entry.handle);
        ClientSocket { entry, stream, woken }
    }

    /// The client's entry in the registry.
    pub(super) fn handle(&self) -> &Arc<ClientHandle> {
        &self.entry.handle
    }

    /// Reads available bytes, or returns because of mail.
    pub(super) async fn read(&mut self, into: &mut BytesMut) -> io::Result<Arrival> {
        let ClientSocket { stream, entry: Entry { server, handle }, woken } = self;
        if handle.is_killed() {
            return Ok(Arrival::Bytes(0));
        }
        let mut reading = pin!(stream.read_buf(into));
        let arrival = poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Pending => interrupted(handle, woken, cx).map(Ok),
            Poll::Ready(n) => Poll::Ready(n.map(Arrival::Bytes)),
        });
        let arrival = arrival.await?;
        if let Arrival::Bytes(n) = arrival {
            handle.on_read(n, server.env.clock.monotonic());
            server.telemetry.on_read(n);
        }
        Ok(arrival)
    }

    /// Reads the bytes that are available now. None if there are none; leaves the end of the connection to
    /// [`ClientSocket::read`].
    pub(super) async fn read_now(&mut self, into: &mut BytesMut) -> Option<usize> {
        let ClientSocket { stream, entry: Entry { server, handle }, .. } = self;
        let mut reading = pin!(stream.read_buf(into));
        let n = poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(Ok(n @ 1..)) => Poll::Ready(Some(n)),
            _ => Poll::Ready(None),
        });
        let n = n.await?;
        handle.on_read(n, server.env.clock.monotonic());
        server.telemetry.on_read(n);
        Some(n)
    }

    /// Writes all bytes. Fails if the client does not receive them and was told to leave.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let ClientSocket { stream, entry: Entry { server, handle }, woken } = self;
        handle.set_output(bytes.len());
        let mut writing = pin!(write_through(stream, bytes));
        let written = poll_fn(|cx| match writing.as_mut().poll(cx) {
            Poll::Pending => killed(handle, woken, cx).map(|()| Err(ErrorKind::ConnectionAborted.into())),
            ready => ready,
        });
        written.await?;
        handle.set_output(0);
        handle.on_write(bytes.len());
        server.telemetry.on_write(bytes.len());
        Ok(())
    }

    /// Tells a TLS client that nothing follows, so that it does not take the end for a truncation attack.
    /// Does not wait for a client that does not read. Until it is dropped it counts towards `maxclients`, because it has a
    /// descriptor, but is in no list.
    pub(super) async fn close(mut self) {
        if self.stream.is_buffered() {
            self.entry.handle.kill();
            let _ = tokio::time::timeout(GOODBYE, self.stream.shutdown()).await;
        }
    }
}

type Switch = Pin<Box<dyn Future<Output = ()> + Send>>;

fn woken(handle: &Arc<ClientHandle>) -> Switch {
    let handle = handle.clone();
    Box::pin(async move { handle.woken().await })
}

/// Ready once the client was told to leave.
fn killed(handle: &Arc<ClientHandle>, switch: &mut Switch, cx: &mut Context<'_>) -> Poll<()> {
    while !handle.is_killed() {
        ready!(switch.as_mut().poll(cx));
        *switch = woken(handle);
    }
    Poll::Ready(())
}

/// Ready once the client was told to leave, or has mail.
fn interrupted(handle: &Arc<ClientHandle>, switch: &mut Switch, cx: &mut Context<'_>) -> Poll<Arrival> {
    loop {
        if handle.is_killed() {
            return Poll::Ready(Arrival::Bytes(0));
        }
        if handle.is_rung() {
            return Poll::Ready(Arrival::Mail);
        }
        ready!(switch.as_mut().poll(cx));
        *switch = woken(handle);
    }
}

async fn write_through(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    if stream.is_buffered() { stream.flush().await } else { Ok(()) }
}
