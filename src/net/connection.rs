//! One connection: read, run, write, in turn.
//!
//! * Memory is bounded: requests by `client-query-buffer-limit`, replies by the window (see `session`) and one small
//!   buffer. While the client does not read, nothing of it runs.
//!   Members that a reply has as ids, and long strings, are read as the client takes them, at most one piece ahead of it.
//! * Others come in between each time that a full buffer was written. A client that always takes what comes would keep its thread
//!   for 128 of them: so often does tokio let a socket be used.
//! * What the client is sent without having asked (`server::mailbox`) is encoded between replies, and wakes a connection that reads.
//! * In the usual case a round costs one read and one write call, and no timer, lock or allocation of this module.
//! * A panic ends this connection only: dropping its socket says so in the log, and counts it.

use super::encode::{Encoder, Step};
use super::resp::Decoder;
use super::scan::{Limits, ProtocolError};
use super::socket::{Arrival, ClientSocket, Entry};
use super::stream::Stream;
use crate::exec::Executor;
use crate::server::{ClientState, Server};
use crate::session::{Room, Session};
use crate::telemetry::offences::Offence;
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;

/// Bytes of replies that are written before more is encoded or run.
const FULL: usize = 64 * 1024;
/// The same for a client that has not logged in.
const STRANGERS: usize = 4 * 1024;
/// Largest buffer of replies that an idle connection keeps.
const KEEP: usize = 16 * 1024;
/// Bytes that are read while requests before them wait.
const AHEAD: usize = 1 << 20;

/// What ended a window.
enum Ended {
    /// No whole request is left.
    NeedsBytes,
    /// The session must run first.
    Full,
    /// The client does not speak the protocol.
    Garbage(ProtocolError),
}

/// One client's socket and session.
pub(super) struct Connection {
    socket: ClientSocket,
    decoder: Decoder,
    encoder: Encoder,
    out: BytesMut,
    session: Session,
    server: Arc<Server>,
}

impl Connection {
    /// Of a client that has been greeted.
    pub(super) fn new(stream: Stream, entry: Entry, executor: Arc<Executor>) -> Self {
        let server = executor.server().clone();
        let socket = ClientSocket::new(stream, entry);
        let client = ClientState::new(socket.handle().clone(), server.acl.is_open());
        Connection {
            socket,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            out: BytesMut::new(),
            session: Session::new(executor, client),
            server,
        }
    }

    /// Serves the client until it leaves, errs, or is told to go.
    pub(super) async fn serve(mut self) {
        if let Err(error) = self.rounds().await {
            tracing::debug!(client = self.socket.handle().id, %error, "connection lost");
            return;
        }
        self.socket.close().await;
    }

    async fn rounds(&mut self) -> io::Result<()> {
        loop {
            let ended = self.gather_there().await;
            self.show_requests();
            while self.session.is_waiting() {
                if self.session.is_held() {
                    self.flush().await?;
                }
                self.deliver().await?;
                self.session.run().await;
                self.answer().await?;
            }
            if self.session.is_closing() {
                return self.flush().await;
            }
            self.deliver().await?;
            match ended {
                // Many may come who never log in: their errors are made between what others do, and few of them are held.
                Ended::Full if !self.session.is_authenticated() => {
                    if self.out.len() >= STRANGERS {
                        self.flush().await?;
                    }
                    yield_now().await;
                }
                Ended::Full if self.out.len() < FULL => {}
                Ended::Full => self.flush().await?,
                Ended::Garbage(error) => return self.part(&error).await,
                Ended::NeedsBytes => {
                    self.flush().await?;
                    if !self.fits() || matches!(self.read().await?, Arrival::Bytes(0)) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// As [`Connection::gather`]. Where a request is there in part and others wait before it, more of it is read if it has come: so
    /// large requests of a pipeline share a transaction, and its sync.
    async fn gather_there(&mut self) -> Ended {
        let mut ahead = 0;
        loop {
            let ended = self.gather();
            let in_part = matches!(ended, Ended::NeedsBytes) && self.decoder.pending() > 0;
            if !in_part || !self.session.is_waiting() || ahead >= AHEAD {
                return ended;
            }
            let Some(n) = self.socket.read_now(self.decoder.room()).await else { return ended };
            self.decoder.filled(n);
            ahead += n;
        }
    }

    /// Hands whole requests to the session until it must run.
    fn gather(&mut self) -> Ended {
        let max_bulk = self.server.config.get().proto_max_bulk_len;
        loop {
            let limits = Limits { max_bulk, authenticated: self.session.is_authenticated() };
            match self.decoder.next_request(&limits) {
                Ok(Some(argv)) => match self.session.take(argv) {
                    Room::More => {}
                    Room::Full => return Ended::Full,
                },
                Ok(None) => return Ended::NeedsBytes,
                Err(error) => return Ended::Garbage(error),
            }
        }
    }

    /// Whether what waits for the rest of a request, or for EXEC, is within the limit.
    fn fits(&self) -> bool {
        let waits = self.decoder.pending() + self.session.queued();
        let limit = self.server.config.get().client_query_buffer_limit;
        if waits > limit {
            let what = || {
                format!("client-query-buffer-limit: connection closed with {waits} bytes of requests waiting")
            };
            self.server.complain(self.socket.handle(), Offence::Requests, what);
        }
        waits <= limit
    }

    /// Writes what the session answered, within `client-output-buffer-limit`. Nothing more runs until the client has taken
    /// it, so the limit is about what one window answers; a soft limit is about how long the client takes for it.
    async fn answer(&mut self) -> io::Result<()> {
        let limit = self.server.config.get().client_output_buffer_limit.normal;
        if limit.hard == 0 && limit.soft == 0 {
            return self.encode().await;
        }
        let waiting = self.out.len() + self.session.waiting();
        if limit.hard > 0 && waiting > limit.hard {
            return Err(self.too_slow(waiting));
        }
        if limit.soft == 0 || waiting <= limit.soft {
            return self.encode().await;
        }
        let seconds = Duration::from_secs(limit.seconds.into());
        match tokio::time::timeout(seconds, self.encode()).await {
            Ok(written) => written,
            Err(_) => Err(self.too_slow(waiting)),
        }
    }

    /// Encodes the client's mail, a piece at a time: what comes meanwhile waits where it is counted.
    async fn deliver(&mut self) -> io::Result<()> {
        while self.session.take_mail(FULL) {
            self.encode().await?;
        }
        Ok(())
    }

    fn too_slow(&self, waiting: usize) -> io::Error {
        let what = || {
            format!("client-output-buffer-limit: connection closed with {waiting} bytes of replies waiting")
        };
        self.server.complain(self.socket.handle(), Offence::Replies, what);
        io::Error::other("client-output-buffer-limit")
    }

    /// Encodes what the session answered, writing whenever the buffer is full.
    async fn encode(&mut self) -> io::Result<()> {
        let protocol = self.session.protocol();
        let mut left = self.session.waiting();
        let large = left > FULL;
        let Connection { socket, encoder, out, session, server, .. } = self;
        let handle = socket.handle().clone();
        let mut replies = session.replies();
        while let Some(reply) = replies.next() {
            let weight = if large { reply.weight() } else { 0 };
            let mut step = encoder.start(reply, protocol, out);
            loop {
                if out.len() >= FULL || matches!(step, Step::Direct(_)) {
                    socket.handle().set_replies(replies.len() + 1, left);
                    socket.handle().set_reply_buffer(out.len(), out.capacity());
                    socket.write(out).await?;
                    out.clear();
                    yield_now().await;
                }
                match step {
                    Step::Done => break,
                    Step::Direct(bytes) => write_long(socket, &bytes).await?,
                    Step::Full => {}
                    Step::Empty => {
                        if let Some(part) = encoder.unread() {
                            part.read_for(&handle, server).await?;
                        }
                    }
                }
                step = encoder.go_on(protocol, out, FULL);
            }
            left = left.saturating_sub(weight);
        }
        socket.handle().set_replies(0, 0);
        Ok(())
    }

    /// The last words to a client that does not speak the protocol.
    async fn part(&mut self, error: &ProtocolError) -> io::Result<()> {
        let line = error.line();
        let what = || format!("connection closed: {}", line.trim_ascii_end().escape_ascii());
        self.server.complain(self.socket.handle(), Offence::Protocol, what);
        self.out.extend_from_slice(&line);
        self.flush().await
    }

    /// Writes what is encoded.
    async fn flush(&mut self) -> io::Result<()> {
        self.socket.handle().set_reply_buffer(self.out.len(), self.out.capacity());
        self.socket.write(&self.out).await?;
        self.out.clear();
        if self.out.capacity() > KEEP {
            self.out = BytesMut::new();
            self.socket.handle().set_reply_buffer(0, 0);
        }
        Ok(())
    }

    /// What CLIENT LIST shows of requests that are not whole.
    fn show_requests(&self) {
        self.socket.handle().set_query_buffer(self.decoder.pending(), self.decoder.spare());
    }

    /// Reads what is there. 0 bytes: the client has left, or is to leave.
    async fn read(&mut self) -> io::Result<Arrival> {
        self.decoder.room();
        self.show_requests();
        let arrival = self.socket.read(self.decoder.room()).await?;
        if let Arrival::Bytes(n) = arrival {
            self.decoder.filled(n);
        }
        Ok(arrival)
    }
}

/// Writes a long string a piece at a time. A message goes to many connections at once: each takes a turn for a piece, not for all of it.
async fn write_long(socket: &mut ClientSocket, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(FULL) {
        socket.write(piece).await?;
        yield_now().await;
    }
    Ok(())
}
