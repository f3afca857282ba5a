//! Ports for servers that tests start.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports of outgoing connections (from 32768 on Linux, from 49152 elsewhere): between choosing a
/// port and the start of its server, a client's connection could take it.
const PORTS: Range<u16> = 15_000..32_000;

/// The distance between ports: Redis' test suite listens on one of the 32 below its own.
const STEP: u16 = 61;

/// Each process starts elsewhere, so that concurrent test binaries do not collide.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(RandomState::new().hash_one(()) as u16));

/// A free port; no port near it is given out again by this process.
pub fn free_port() -> u16 {
    for _ in PORTS {
        let port = PORTS.start + NEXT.fetch_add(STEP, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}
