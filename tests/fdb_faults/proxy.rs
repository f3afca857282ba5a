//! The only route to a cluster: a direction that is cut falls silent, as if the network dropped its packets,
//! and no connection closes.
//!
//! fdbserver listens at one address but publishes the proxy's, so every client comes through here. A
//! connection belongs to the process that opened it (`/proc/net/tcp` names a connection's inode,
//! `/proc/<pid>/fd` the inodes of a process). Traffic of a cut direction, including the end of a connection,
//! is held back and arrives late, as retransmitted packets do.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How soon a pump notices a cut or its end.
const LOOK: Duration = Duration::from_millis(5);

/// The direction that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Both.
    Both,
    /// To the cluster.
    Requests,
    /// From the cluster: requests are carried out, but their replies do not arrive.
    Answers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToCluster,
    ToClient,
}

impl Cut {
    fn holds(self, way: Way) -> bool {
        match self {
            Cut::Both => true,
            Cut::Requests => way == Way::ToCluster,
            Cut::Answers => way == Way::ToClient,
        }
    }
}

#[derive(Default)]
struct State {
    /// By process.
    cuts: Mutex<HashMap<u32, Cut>>,
    /// Bytes that waited for the end of a cut.
    held: AtomicU64,
    over: AtomicBool,
}

impl State {
    fn holds(&self, pid: Option<u32>, way: Way) -> bool {
        let cuts = self.cuts.lock().unwrap();
        pid.and_then(|pid| cuts.get(&pid)).is_some_and(|cut| cut.holds(way))
    }

    /// Waits while `way` is cut for `pid`. Returns whether it was.
    fn wait(&self, pid: Option<u32>, way: Way) -> bool {
        let mut waited = false;
        while self.holds(pid, way) && !self.over.load(Ordering::Relaxed) {
            waited = true;
            std::thread::sleep(LOOK);
        }
        waited
    }
}

/// A running proxy; it forwards nothing once it is dropped.
pub struct Proxy {
    state: Arc<State>,
}

impl Proxy {
    /// Connects `listener` with local port `port`.
    pub fn start(listener: TcpListener, port: u16) -> Self {
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let state = shared.clone();
                std::thread::spawn(move || carry(&state, &client, port));
            }
        });
        Proxy { state }
    }

    /// Cuts a direction between process `pid` and the cluster.
    pub fn cut(&self, pid: u32, cut: Cut) {
        self.state.cuts.lock().unwrap().insert(pid, cut);
    }

    /// Ends all cuts.
    pub fn mend(&self) {
        self.state.cuts.lock().unwrap().clear();
    }

    /// Bytes that had to wait so far.
    pub fn held(&self) -> u64 {
        self.state.held.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
    }
}

fn carry(state: &Arc<State>, client: &TcpStream, port: u16) {
    let pid = opener(client);
    // A connection requested during a complete cut is established later.
    state.wait(pid, Way::ToCluster);
    let Ok(cluster) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let _ = (cluster.set_nodelay(true), client.set_nodelay(true));
    std::thread::scope(|scope| {
        scope.spawn(|| pump(state, pid, Way::ToCluster, client, &cluster));
        pump(state, pid, Way::ToClient, &cluster, client);
    });
}

fn pump(state: &State, pid: Option<u32>, way: Way, mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let bytes = from.read(&mut buffer).unwrap_or(0);
        if state.wait(pid, way) {
            state.held.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The process at the other end of a local connection.
fn opener(client: &TcpStream) -> Option<u32> {
    let (ours, theirs) = (client.local_addr().ok()?.port(), client.peer_addr().ok()?.port());
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |n: usize| u16::from_str_radix(words.get(n)?.split_once(':')?.1, 16).ok();
        (port(1)? == theirs && port(2)? == ours).then(|| words.get(9).map(|i| format!("socket:[{i}]")))?
    })?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &u32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.into_iter().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_str() == Some(&inode)))
    })
}
