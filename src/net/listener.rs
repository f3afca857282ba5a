//! Listening sockets: who may connect, and how connections are set up.

use super::connection::Connection;
use super::socket::Entry;
use super::tls::Tls;
use crate::config::{ConfigStore, Settings};
use crate::exec::Executor;
use crate::server::Server;
use crate::telemetry::offences::Offence;
use futures_util::future::join_all;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Pauses after a failed accept (out of file descriptors): they double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Unanswered probes after which a peer is given up; also the divisor of `tcp-keepalive` that gives the
/// interval between probes.
const PROBES: u32 = 3;

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
/// Redis' text, because clients and operators search for it.
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// Listening sockets.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
    secure: Option<Secure>,
    /// The number of clients for which descriptors are available.
    room: usize,
}

/// Sockets for clients that use TLS.
#[derive(Debug)]
struct Secure {
    sockets: Vec<TcpListener>,
    tls: Arc<Tls>,
}

/// Listens for Redis clients: on `port` and, for TLS, on `tls-port`. Port 0 means none if `tls-port` is set.
pub async fn listen_for_clients(settings: &Settings) -> io::Result<Listener> {
    if settings.tls_port == 0 {
        return listen(settings, settings.port).await;
    }
    let tls = Arc::new(Tls::open(settings).map_err(io::Error::other)?);
    let sockets = listen(settings, settings.tls_port).await?.sockets;
    let secure = Some(Secure { sockets, tls });
    match settings.port {
        0 => Ok(Listener { sockets: Vec::new(), secure, room: usize::MAX }),
        port => Ok(Listener { secure, ..listen(settings, port).await? }),
    }
}

/// Listens on `port` of every address in `bind`. An address that begins with `-` may be missing on this
/// machine; `*` is every address. Fails with the address in the error's text. For port 0 the system chooses a
/// port for the first address, and the others use the same.
pub async fn listen(settings: &Settings, port: u16) -> io::Result<Listener> {
    let mut sockets: Vec<TcpListener> = Vec::new();
    for word in &settings.bind {
        let (name, optional) = word.strip_prefix('-').map_or((word.as_str(), false), |name| (name, true));
        let port = match sockets.first() {
            Some(first) => first.local_addr()?.port(),
            None => port,
        };
        match listen_on(name, port, settings.tcp_backlog).await {
            Ok(found) => sockets.extend(found),
            Err(e) if optional && is_missing(&e) => {}
            Err(e) => return Err(io::Error::new(e.kind(), format!("{name}:{port}: {e}"))),
        }
    }
    if sockets.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "this machine has none of the addresses in 'bind'",
        ));
    }
    Ok(Listener { sockets, secure: None, room: usize::MAX })
}

/// Whether an address, or its family, does not exist on this machine.
fn is_missing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || e.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Linux: the address family is not built in, or is disabled.
const EAFNOSUPPORT: i32 = 97;

async fn listen_on(name: &str, port: u16, backlog: u32) -> io::Result<Vec<TcpListener>> {
    let name = match name {
        "*" => "0.0.0.0",
        "::*" => "::",
        name => name,
    };
    let addresses = tokio::net::lookup_host((name, port)).await?;
    addresses.map(|address| socket(address, backlog)).collect()
}

fn socket(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

impl Listener {
    /// The addresses in the order of `bind`, those for TLS last.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let secure = self.secure.iter().flat_map(|secure| &secure.sockets);
        self.sockets.iter().chain(secure).filter_map(|s| s.local_addr().ok()).collect()
    }

    /// The sockets, for a protocol other than Redis'.
    pub fn into_sockets(self) -> Vec<TcpListener> {
        self.sockets
    }

    /// Limits the number of clients to `room`, whatever `maxclients` says.
    pub fn with_room(self, room: usize) -> Self {
        Listener { room, ..self }
    }

    /// Reloads the certificates on CONFIG SET.
    pub(super) fn follow(&self, config: &ConfigStore) {
        let Some(Secure { tls, .. }) = &self.secure else { return };
        let tls = tls.clone();
        config.guard("tls-", move |settings| {
            tls.reload(settings).map_err(|e| format!("Unable to update TLS configuration: {e}"))?;
            tracing::info!("TLS: certificates read");
            Ok(())
        });
    }

    /// Accepts forever. Every connection's task holds a copy of `alive`.
    pub(super) async fn accept_all(&self, executor: &Arc<Executor>, alive: &mpsc::Sender<()>) {
        let doors = self.doors().map(|(socket, tls)| {
            let door = Door { tls, room: self.room, executor, alive };
            async move { door.accept(socket).await }
        });
        join_all(doors).await;
    }
}

impl Listener {
    /// Each socket, and its TLS configuration if it has one.
    pub(super) fn doors(&self) -> impl Iterator<Item = (&TcpListener, Option<&Arc<Tls>>)> {
        let plain = self.sockets.iter().map(|s| (s, None));
        let secure =
            self.secure.iter().flat_map(|secure| secure.sockets.iter().map(|s| (s, Some(&secure.tls))));
        plain.chain(secure)
    }
}

/// A socket and what its connections need.
#[derive(Clone, Copy)]
struct Door<'a> {
    tls: Option<&'a Arc<Tls>>,
    room: usize,
    executor: &'a Arc<Executor>,
    alive: &'a mpsc::Sender<()>,
}

impl Door<'_> {
    async fn accept(self, socket: &TcpListener) {
        let mut pause = FIRST_PAUSE;
        loop {
            match socket.accept().await {
                Ok((stream, peer)) => {
                    pause = FIRST_PAUSE;
                    self.admit(stream, peer);
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
            }
        }
    }

    /// Starts the connection's task, or refuses and closes the connection.
    fn admit(self, stream: TcpStream, peer: SocketAddr) {
        let server = self.executor.server();
        if let Some((why, words)) = self.refusal(peer) {
            server.telemetry.on_refuse();
            let now = server.env.clock.monotonic();
            if let Some(unsaid) = server.telemetry.offences.add(Offence::Refused, now) {
                tracing::warn!(%peer, unsaid, "connection refused: {why}");
            }
            if self.tls.is_none() {
                // Best effort: a new socket's buffer has room for this. Before a TLS handshake nothing can be
                // said.
                let _ = SockRef::from(&stream).send(words);
            }
            return;
        }
        if let Err(error) = set_up(&stream, server) {
            tracing::debug!(%error, %peer, "connection closed before it was accepted");
            return;
        }
        server.telemetry.on_connect();
        let entry = Entry::new(&stream, peer, server.clone());
        let (tls, executor, alive) = (self.tls.cloned(), self.executor.clone(), self.alive.clone());
        tokio::spawn(async move {
            if let Some(stream) = entry.greet(stream, tls).await {
                Connection::new(stream, entry, executor).serve().await;
            }
            drop(alive);
        });
    }

    /// The reason for the log, and the error for the client.
    fn refusal(self, peer: SocketAddr) -> Option<(&'static str, &'static [u8])> {
        let server = self.executor.server();
        let config = server.config.get();
        let most = self.room.min(config.maxclients as usize);
        if server.clients.len() >= most {
            return Some(("maxclients or the limit of open files is reached", FULL));
        }
        (!admits(server, peer)).then_some(("protected mode", DENIED.as_bytes()))
    }
}

/// Whether `protected-mode` admits a peer: without a password, only this machine.
pub fn admits(server: &Server, peer: SocketAddr) -> bool {
    let open = server.config.get().protected_mode && server.acl.default_has_no_password();
    !open || peer.ip().to_canonical().is_loopback()
}

fn set_up(stream: &TcpStream, server: &Server) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let seconds = server.config.get().tcp_keepalive;
    if seconds > 0 {
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(seconds.into()))
            .with_interval(Duration::from_secs((seconds / PROBES).max(1).into()))
            .with_retries(PROBES);
        SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}
