//! Open files: raises the limit as far as this process may, and reserves descriptors that clients never get.
//!
//! Why: the usual soft limit is 1024, and 10 000 clients may connect. Without descriptors the store cannot
//! open its tables, and accepting fails in a loop; so a client beyond the limit is refused like one beyond
//! `maxclients`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything except clients: the store's tables (at most 512), its log, listening sockets, a
/// cluster's connections, and those of `metrics-port`, which has a limit of its own.
const RESERVED: u64 = 640;
/// The number of clients that are admitted however low the limit is.
const FEWEST: u64 = 32;

/// Raises the limit for `maxclients`, and returns the number of clients that fit below it.
pub fn room_for(maxclients: u32) -> usize {
    let wanted = u64::from(maxclients) + RESERVED;
    let limit = getrlimit(Resource::Nofile);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
        let raise = Rlimit { current: Some(raised), maximum: limit.maximum };
        current = if setrlimit(Resource::Nofile, raise).is_ok() { raised } else { current };
    }
    let room = current.saturating_sub(RESERVED).max(FEWEST);
    if current < wanted {
        tracing::warn!(
            "maxclients is {maxclients}, but {current} open files leave room for {room} clients (ulimit -n)"
        );
    }
    usize::try_from(room).unwrap_or(usize::MAX)
}
