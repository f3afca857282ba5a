//! Takes the deltas of sets into their chunks where readers met many (`keyspace::unfolded`), so that the next ones read bitmaps.
//!
//! No membership changes, so commands see nothing of it; one that changes a member meanwhile makes the piece that holds it run again.
//! It works for a quarter of the time at most, and on one set once a second: one that is written all over all the time costs no
//! more than that. What it leaves (the store fails, the server stops) is found again by the next reader.
//!
//! It reads behind itself. Where the store is embedded, a delta's removal is a row too until RocksDB has compacted it, and only who walks over many
//! of them in the memtable makes that begin (`store/local/engine.rs`): better the job than the next client.

use super::pause;
use crate::error::{Error, StoreError};
use crate::keyspace::keys::{Oid, Prefix};
use crate::server::Server;
use crate::types::set::chunked::fold_piece;
use crate::types::set::rows;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at what there is to do.
const IDLE: Duration = Duration::from_secs(1);
/// Rests so many times as long as a piece took.
const REST: u32 = 3;
/// Bytes that a piece writes, about: small, so that hardly anybody changes it meanwhile.
const PIECE: usize = 128 << 10;
/// Pieces that it reads behind itself at once.
const BEHIND: u32 = 16;
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
    let (mut read, mut pieces) = (0, 0);
    while let Some(from) = at.filter(|_| tries < TRIES) {
        let start = clock.monotonic();
        match fold_piece(&server.space, db, oid, from, PIECE).await {
            Ok(next) => {
                (at, tries, pieces) = (next, 0, pieces + 1);
                if next.is_none() || pieces % BEHIND == 0 {
                    read_back(server, db, oid, read, next).await;
                    read = next.unwrap_or_default();
                }
            }
            // A piece that was applied after all has nothing left to do.
            Err(Error::Store(e)) if e.is_retryable() || e == StoreError::Unknown => tries += 1,
            Err(e) => {
                tracing::debug!(?e, "cannot fold a set");
                return false;
            }
        }
        if !pause(server, (clock.monotonic() - start) * REST).await {
            return false;
        }
    }
    true
}

/// Reads the deltas of what was folded, from `from` up to `to`. Whether it succeeds is of no consequence.
async fn read_back(server: &Server, db: Prefix, oid: Oid, from: u64, to: Option<u64>) {
    let tx = server.space.store.begin();
    let left = rows::deltas(&server.space.scope(&tx, db), oid, from, to).await;
    tracing::trace!(left = left.map_or(0, |left| left.len()), "read the deltas back after folding");
}
