//! Listening sockets: who may connect, and how connections are set up.

use super::connection::Connection;
use crate::commands::cx::Server;
use crate::config::Settings;
use crate::exec::Executor;
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
/// Probes without an answer after which a peer is given up, and the part of `tcp-keepalive` between two of them.
const PROBES: u32 = 3;

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
/// Redis' words, because clients and operators search for them.
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// Sockets that listen.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
}

/// Listens on `port` of every address in `bind`. An address that begins with `-` may be missing on this machine; `*` is
/// every address. Fails with the address in the error's text. Port 0 lets the system choose for the first address, and
/// the others follow it.
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
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no address of 'bind' exists here"));
    }
    Ok(Listener { sockets })
}

/// Whether an address, or its family, does not exist here.
fn is_missing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || e.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Linux: the address family is not built in or is switched off.
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
    /// The addresses in the order of `bind`.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|s| s.local_addr().ok()).collect()
    }

    /// The sockets, for another protocol than Redis'.
    pub fn into_sockets(self) -> Vec<TcpListener> {
        self.sockets
    }

    /// Accepts for ever. Every connection's task holds a copy of `alive`.
    pub(super) async fn accept_all(&self, executor: &Arc<Executor>, alive: &mpsc::Sender<()>) {
        join_all(self.sockets.iter().map(|s| accept(s, executor, alive))).await;
    }
}

async fn accept(socket: &TcpListener, executor: &Arc<Executor>, alive: &mpsc::Sender<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                pause = FIRST_PAUSE;
                admit(stream, peer, executor, alive);
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
        }
    }
}

/// Starts the connection's task, or says why not and closes it.
fn admit(stream: TcpStream, peer: SocketAddr, executor: &Arc<Executor>, alive: &mpsc::Sender<()>) {
    let server = executor.server();
    if let Some(why) = refusal(server, peer) {
        server.telemetry.on_refuse();
        // Best effort: a fresh socket takes this much.
        let _ = SockRef::from(&stream).send(why);
        return;
    }
    if let Err(error) = set_up(&stream, server) {
        tracing::debug!(%error, %peer, "connection closed before it began");
        return;
    }
    server.telemetry.on_connect();
    let (connection, alive) = (Connection::new(stream, peer, executor.clone()), alive.clone());
    tokio::spawn(async move {
        connection.serve().await;
        drop(alive);
    });
}

fn refusal(server: &Server, peer: SocketAddr) -> Option<&'static [u8]> {
    let config = server.config.get();
    if server.clients.len() >= config.maxclients as usize {
        return Some(FULL);
    }
    let open = config.protected_mode && config.requirepass.is_empty();
    (open && !peer.ip().to_canonical().is_loopback()).then_some(DENIED.as_bytes())
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
