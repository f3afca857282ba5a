//! Takes the deltas of sets into their chunks where readers met many (`keyspace::unfolded`), so that the next ones read bitmaps.
//!
//! No membership changes, so commands see nothing of it; one that changes a member meanwhile makes the piece that holds it run again.
//! It works for a quarter of the time at most, and on one set once a second: one that is written all over all the time costs no
//! more than that. What it leaves (the store fails, the server stops) is found again by the next reader.

use super::pause;
use crate::commands::cx::Server;
use crate::error::{Error, StoreError};
use crate::keyspace::keys::{Oid, Prefix};
use crate::types::set::chunked::fold_piece;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at what there is to do.
const IDLE: Duration = Duration::from_secs(1);
/// Rests so many times as long as a piece took.
const REST: u32 = 3;
/// Bytes that a piece writes, about: small, so that hardly anybody changes it meanwhile.
const PIECE: usize = 128 << 10;
/// Pieces in a row that others changed meanwhile before a set is left to its next reader.
const TRIES: u32 = 10;

/// Runs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    while pause(&server, IDLE).await {
        for (oid, db) in server.space.unfolded.take() {
            if !whole(&server, db, oid).await {
                break;
            }
        }
    }
}

/// Folds a set. False where the server is asked to stop, or the store fails.
async fn whole(server: &Server, db: Prefix, oid: Oid) -> bool {
    let clock = &server.env.clock;
    let (mut at, mut tries) = (Some(0), 0);
    while let Some(from) = at.filter(|_| tries < TRIES) {
        let start = clock.monotonic();
        match fold_piece(&server.space, db, oid, from, PIECE).await {
            Ok(next) => (at, tries) = (next, 0),
            // A piece that was applied after all has nothing left to do.
            Err(Error::Store(e)) if e.is_retryable() || e == StoreError::Unknown => tries += 1,
            Err(e) => {
                tracing::debug!(?e, "folding a set");
                return false;
            }
        }
        if !pause(server, (clock.monotonic() - start) * REST).await {
            return false;
        }
    }
    true
}
