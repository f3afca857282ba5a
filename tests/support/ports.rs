//! Ports for servers that tests start.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that systems give to outgoing connections (Linux from 32768, others from 49152): between a look at a port and the start of
/// the server that listens there, a client's connection would take it.
const PORTS: Range<u16> = 15_000..32_000;

/// From one port to the next: Redis' test suite listens on one of the 32 below the one that it is given.
const STEP: u16 = 61;

/// Each process begins elsewhere, so that test binaries that run side by side do not meet.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(RandomState::new().hash_one(()) as u16));

/// A port that nobody listens on now, none near it given to anybody else of this process.
pub fn free_port() -> u16 {
    for _ in PORTS {
        let port = PORTS.start + NEXT.fetch_add(STEP, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}
