//! FoundationDB's network thread: started with the first store, stopped once when the process exits.
//!
//! The client library can start and stop it only once in a process, so TLS and similar options are those of
//! the first store that is opened. `main` stops it last ([`stop`]). In a process that just returns from
//! `main`, as tests do, an exit handler stops it, because the library's static objects must not be destroyed
//! under a running thread. They are destroyed in the reverse order of their construction, interleaved with
//! the exit handlers, and some are created by the first commit, watch or error: so the handler is registered
//! again whenever a store is closed.

use super::FdbOptions;
use super::errors::unavailable;
use crate::error::{StoreError, StoreResult};
use foundationdb::api::{FdbApiBuilder, NetworkAutoStop, NetworkBuilder};
use parking_lot::Mutex;

/// The API version that the engine is written for.
const API_VERSION: i32 = 730;

enum Network {
    Unbooted,
    Running(NetworkAutoStop),
    Stopped,
}

static NETWORK: Mutex<Network> = Mutex::new(Network::Unbooted);

/// Starts the thread unless it is running.
pub(super) fn boot(options: &FdbOptions) -> StoreResult<()> {
    let mut network = NETWORK.lock();
    match *network {
        Network::Running(_) => return Ok(()),
        Network::Stopped => {
            return Err(StoreError::Unavailable("the FoundationDB client has been stopped".into()));
        }
        Network::Unbooted => {}
    }
    *network = Network::Stopped; // stays so if a step fails: the library selects its version only once
    let builder = FdbApiBuilder::default().set_runtime_version(API_VERSION).build().map_err(unavailable)?;
    if let Some(guard) = until_exit(Some(options.tls.apply(builder)?))? {
        *network = Network::Running(guard);
    }
    Ok(())
}

/// A store was closed: the handler registered now runs before the destruction of whatever the library has
/// created since the last registration.
pub(super) fn store_gone() {
    if until_exit(None).is_err() {
        tracing::warn!("cannot register an exit handler");
    }
}

#[expect(unsafe_code, reason = "the library's contract: stopped before the process exits")]
fn until_exit(start: Option<NetworkBuilder>) -> StoreResult<Option<NetworkAutoStop>> {
    // SAFETY: `boot` requires that the guard is dropped before the process exits: the exit handler drops it.
    // An exit handler may be any function that does not unwind; `on_exit` returns or aborts.
    unsafe {
        if libc::atexit(on_exit) != 0 {
            return Err(StoreError::Unavailable("cannot register an exit handler".into()));
        }
        start.map(|builder| builder.boot().map_err(unavailable)).transpose()
    }
}

extern "C" fn on_exit() {
    stop();
}

/// Stops the thread; requests to a store are never answered afterwards. For the end of `main`.
///
/// Runs on a thread of its own: in an exit handler, the exiting thread's thread-local objects, which the
/// library uses, have already been destroyed.
pub fn stop() {
    if let Network::Running(guard) = std::mem::replace(&mut *NETWORK.lock(), Network::Stopped) {
        let stopping = std::thread::Builder::new().spawn(|| drop(guard));
        let _ = stopping.map(std::thread::JoinHandle::join);
    }
}
