//! One connection: read, run, write, in turn.
//!
//! * Memory is bounded: requests by `client-query-buffer-limit`, replies by the window (see `session`) and
//!   one small buffer. While the client does not read, nothing of it runs. Members that a reply holds as ids,
//!   and long strings, are read as the client receives them, at most one piece ahead.
//! * After each full buffer written, other connections get a turn. Otherwise a client that always keeps up
//!   would occupy its thread for 128 buffers, because tokio lets a task use a socket that often.
//! * Replies are written once every connection that was ready has run, and then one after the other. A write to a
//!   client that sleeps wakes it, which takes as long as several commands; while it reads the first replies, the others
//!   arrive without waking it.
//! * Messages that the client did not request (`server::mailbox`) are encoded between replies, and wake a
//!   connection that is reading.
//! * Normally a round costs one read call and one write call, and no timer, lock or allocation of this
//!   module.
//! * A panic ends only this connection: dropping its socket logs and counts it.

use super::encode::{Encoder, Step};
use super::resp::Decoder;
use super::scan::{Limits, ProtocolError};
use super::socket::{Arrival, ClientSocket, Entry};
use super::stream::Stream;
use crate::exec::Executor;
use crate::server::waiters::Aside;
use crate::server::{ClientState, Server};
use crate::session::{Room, Session};
use crate::telemetry::offences::Offence;
use bytes::BytesMut;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;

/// Bytes of replies that are written before more is encoded or run.
const FULL: usize = 64 * 1024;
/// The same for a client that has not logged in.
const STRANGERS: usize = 4 * 1024;
/// The largest reply buffer that an idle connection keeps.
const KEEP: usize = 16 * 1024;
/// How long a client whose command waits may take to receive its mail before its turn passes.
const STUCK: Duration = Duration::from_millis(50);
/// Bytes to read while earlier requests wait.
const AHEAD: usize = 1 << 20;

/// Why a window ended.
enum Ended {
    /// No complete request is left.
    NeedsBytes,
    /// The session must run first.
    Full,
    /// The client violates the protocol.
    Garbage(ProtocolError),
}

/// One client's socket and session.
pub(super) struct Connection {
    /// Dropped before the socket: a client that has seen the end has no subscription left.
    session: Session,
    socket: ClientSocket,
    decoder: Decoder,
    encoder: Encoder,
    out: BytesMut,
    server: Arc<Server>,
}

impl Connection {
    /// A connection of a client that has been greeted.
    pub(super) fn new(stream: Stream, entry: Entry, executor: Arc<Executor>) -> Self {
        let server = executor.server().clone();
        let socket = ClientSocket::new(stream, entry);
        let client = ClientState::new(socket.handle().clone(), server.acl.is_open());
        Connection {
            session: Session::new(executor, client),
            socket,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            out: BytesMut::new(),
            server,
        }
    }

    /// Serves the client until it leaves, violates the protocol, or is told to go.
    pub(super) async fn serve(mut self) {
        if let Err(error) = self.rounds().await {
            tracing::debug!(client = self.socket.handle().id, %error, "connection lost");
            return;
        }
        let Connection { session, socket, .. } = self;
        drop(session);
        socket.close().await;
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
                if self.session.is_blocked() && !self.wait().await? {
                    return Ok(());
                }
                self.answer().await?;
            }
            if self.session.is_closing() {
                return self.flush().await;
            }
            self.deliver().await?;
            match ended {
                // Many clients may connect that never log in: their errors are produced between other work,
                // and few are held.
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
                    if !self.out.is_empty() {
                        yield_now().await;
                    }
                    self.flush().await?;
                    if !self.fits() || matches!(self.read().await?, Arrival::Bytes(0)) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// While a command waits for a key: delivers mail, and reads ahead, which is how it notices that the client has
    /// left. False if it has.
    async fn wait(&mut self) -> io::Result<bool> {
        // Mail that was encoded before the command ran.
        self.deliver_aside().await?;
        while self.session.is_blocked() {
            let Connection { socket, session, decoder, .. } = self;
            let arrival = tokio::select! {
                biased;
                arrival = socket.read(decoder.room()) => Some(arrival?),
                () = session.called() => None,
            };
            match arrival {
                None => self.session.resume().await,
                Some(Arrival::Mail) => self.deliver_aside().await?,
                Some(Arrival::Bytes(0)) => return Ok(false),
                Some(Arrival::Bytes(n)) => {
                    self.decoder.filled(n);
                    self.show_requests();
                    if !self.fits() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Delivers mail of a client whose command waits. If the client does not read it, others are served before it.
    async fn deliver_aside(&mut self) -> io::Result<()> {
        let aside = self.session.aside();
        let written = {
            let mut writing = pin!(async {
                self.deliver().await?;
                self.flush().await
            });
            match tokio::time::timeout(STUCK, &mut writing).await {
                Ok(written) => return written,
                Err(_) => {
                    aside.iter().for_each(Aside::step);
                    writing.await
                }
            }
        };
        self.session.is_back();
        written
    }

    /// Like [`Connection::gather`]. If a request is incomplete and others wait before it, reads more of it if
    /// it has arrived: so large requests of a pipeline share a transaction and its sync.
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

    /// Passes complete requests to the session until it must run.
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

    /// Whether the incomplete request and the commands queued for EXEC are within the limit.
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

    /// Writes the session's replies, within `client-output-buffer-limit`. Nothing else runs until the client
    /// has received them, so the limit applies to the replies of one window; a soft limit applies to the time
    /// that the client takes.
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

    /// Encodes the client's mail, a piece at a time: messages that arrive meanwhile wait in the mailbox,
    /// which counts them.
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

    /// Encodes the session's replies, writing whenever the buffer is full.
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

    /// Sends the error to a client that violates the protocol.
    async fn part(&mut self, error: &ProtocolError) -> io::Result<()> {
        let line = error.line();
        let what = || format!("connection closed: {}", line.trim_ascii_end().escape_ascii());
        self.server.complain(self.socket.handle(), Offence::Protocol, what);
        self.out.extend_from_slice(&line);
        self.flush().await
    }

    /// Writes the encoded bytes.
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

    /// Updates the numbers about incomplete requests in CLIENT LIST.
    fn show_requests(&self) {
        self.socket.handle().set_query_buffer(self.decoder.pending(), self.decoder.spare());
    }

    /// Reads the available bytes. 0 bytes: the client has left, or must leave.
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

/// Writes a long string a piece at a time. A message goes to many connections at once: each takes a turn per
/// piece, not for the whole message.
async fn write_long(socket: &mut ClientSocket, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(FULL) {
        socket.write(piece).await?;
        yield_now().await;
    }
    Ok(())
}
