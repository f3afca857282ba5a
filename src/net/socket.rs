//! A client's socket: counted, in the registry while it lives, and closed from outside when its handle is told so
//! (CLIENT KILL, `timeout`, shutdown).
//!
//! The switch is one future a connection, polled only where a read or write has to wait anyway.

use crate::commands::cx::Server;
use crate::telemetry::clients::{ClientHandle, Peer};
use bytes::BytesMut;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connected client's socket.
pub(super) struct ClientSocket {
    stream: TcpStream,
    server: Arc<Server>,
    handle: Arc<ClientHandle>,
    killed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl ClientSocket {
    /// Enters the client into the registry, until this is dropped.
    pub(super) fn register(stream: TcpStream, peer: SocketAddr, server: Arc<Server>) -> Self {
        let laddr = stream.local_addr().map(|a| a.to_string()).unwrap_or_default();
        let peer = Peer { addr: peer.to_string(), laddr, fd: stream.as_raw_fd() };
        let handle = server.clients.connect(peer, server.env.clock.monotonic());
        let switch = handle.clone();
        ClientSocket { stream, server, handle, killed: Box::pin(async move { switch.killed().await }) }
    }

    /// The client's place in the registry.
    pub(super) fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// Reads what is there. 0: the client has left, or was told to.
    pub(super) async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        if self.handle.is_killed() {
            return Ok(0);
        }
        let mut reading = pin!(self.stream.read_buf(into));
        let n = poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Pending => self.killed.as_mut().poll(cx).map(|()| Ok(0)),
            ready => ready,
        });
        let n = n.await?;
        self.handle.on_read(n, self.server.env.clock.monotonic());
        self.server.telemetry.on_read(n);
        Ok(n)
    }

    /// Writes all. Fails where the client does not take it and was told to leave.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.handle.set_output(bytes.len());
        let mut writing = pin!(self.stream.write_all(bytes));
        let written = poll_fn(|cx| match writing.as_mut().poll(cx) {
            Poll::Pending if self.handle.is_killed() => Poll::Ready(Err(ErrorKind::ConnectionAborted.into())),
            Poll::Pending => self.killed.as_mut().poll(cx).map(|()| Err(ErrorKind::ConnectionAborted.into())),
            ready => ready,
        });
        written.await?;
        self.handle.set_output(0);
        self.handle.on_write(bytes.len());
        self.server.telemetry.on_write(bytes.len());
        Ok(())
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.server.clients.disconnect(self.handle.id);
        if std::thread::panicking() {
            self.server.telemetry.on_panic();
            tracing::error!(client = self.handle.id, addr = self.handle.addr, "panic: connection closed");
        }
    }
}
