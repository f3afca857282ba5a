//! FoundationDB's network thread: started with the first store, stopped once when the process exits.
//!
//! The client library can do either only once in a process, so TLS and the like are those of the first store that is opened. It is
//! stopped by an exit handler and not with the last store: a process may open another one (tests do), and the library's static
//! objects must not be destroyed under a running thread, however the process ends.

use super::FdbOptions;
use super::errors::unavailable;
use crate::error::{StoreError, StoreResult};
use foundationdb::api::{FdbApiBuilder, NetworkAutoStop, NetworkBuilder};
use foundationdb::options::NetworkOption;
use parking_lot::Mutex;

/// The API version that the engine is written for.
const API_VERSION: i32 = 730;

enum Network {
    Unbooted,
    Running(NetworkAutoStop),
    Stopped,
}

static NETWORK: Mutex<Network> = Mutex::new(Network::Unbooted);

/// Starts the thread unless it runs.
pub(super) fn boot(options: &FdbOptions) -> StoreResult<()> {
    let mut network = NETWORK.lock();
    match *network {
        Network::Running(_) => return Ok(()),
        Network::Stopped => {
            return Err(StoreError::Unavailable("the FoundationDB client has been stopped".into()));
        }
        Network::Unbooted => {}
    }
    *network = Network::Stopped; // what holds where a step fails: the library selects its version only once
    let builder = FdbApiBuilder::default().set_runtime_version(API_VERSION).build().map_err(unavailable)?;
    *network = Network::Running(start(with_tls(builder, options)?)?);
    Ok(())
}

#[expect(unsafe_code, reason = "the library's contract: stopped before the process exits")]
fn start(builder: NetworkBuilder) -> StoreResult<NetworkAutoStop> {
    // SAFETY: `boot` asks that the guard is dropped before the process exits: the exit handler drops it. An exit
    // handler may be any function that does not unwind; `stop` returns or aborts.
    unsafe {
        if libc::atexit(stop) != 0 {
            return Err(StoreError::Unavailable("no room for an exit handler".into()));
        }
        builder.boot().map_err(unavailable)
    }
}

extern "C" fn stop() {
    if let Network::Running(guard) = std::mem::replace(&mut *NETWORK.lock(), Network::Stopped) {
        drop(guard);
    }
}

fn with_tls(builder: NetworkBuilder, options: &FdbOptions) -> StoreResult<NetworkBuilder> {
    let tls = &options.tls;
    let wanted = [
        (&tls.certificate, NetworkOption::TLSCertPath(tls.certificate.clone())),
        (&tls.key, NetworkOption::TLSKeyPath(tls.key.clone())),
        (&tls.authorities, NetworkOption::TLSCaPath(tls.authorities.clone())),
        (&tls.password, NetworkOption::TLSPassword(tls.password.clone())),
        (&tls.verify_peers, NetworkOption::TLSVerifyPeers(tls.verify_peers.clone().into_bytes())),
    ];
    let given = wanted.into_iter().filter(|(value, _)| !value.is_empty());
    given
        .into_iter()
        .try_fold(builder, |builder, (_, option)| builder.set_option(option).map_err(unavailable))
}
