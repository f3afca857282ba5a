//! The fold queue: merges the deltas of sets into their chunks after readers met many of them
//! (`keyspace::dictionary::unfolded`), so that later reads use bitmaps.
//!
//! Membership does not change, so commands do not notice; a command that changes a member makes the affected
//! piece run again. The job works at most a quarter of the time, and on one set at most once a second, which
//! bounds the cost of a set that is constantly rewritten. If it leaves work behind (the store fails, the
//! server stops), the next reader reports it again.
//!
//! It reads back what it folded. On an embedded store a removed delta remains a tombstone until RocksDB has
//! compacted it, and only a reader that walks over many of them in the memtable triggers that
//! (`store/local/engine.rs`): better this job than the next client.

use super::pause;
use crate::keyspace::keys::{Oid, Prefix};
use crate::server::Server;
use crate::store::Retries;
use crate::types::set::chunked::fold_piece;
use crate::types::set::rows;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for work.
const IDLE: Duration = Duration::from_secs(1);
/// The rest after a piece, as a multiple of its duration.
const REST: u32 = 3;
/// Approximate bytes that a piece writes: small, so that others rarely change it meanwhile.
const PIECE: usize = 128 << 10;
/// The number of pieces to read back at once.
const BEHIND: u32 = 16;
/// Attempts at a piece that others change meanwhile, before a set is left to its next reader.
const ATTEMPTS: u32 = 10;

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

/// Folds a set, as far as others and the store let it. False where the server is asked to stop.
async fn whole(server: &Server, db: Prefix, oid: Oid) -> bool {
    let clock = &server.env.clock;
    // A piece that was applied after all has nothing left to do.
    let attempts = || Retries::new(ATTEMPTS).idempotent();
    let (mut at, mut retries) = (Some(0), attempts());
    let (mut read, mut pieces) = (0, 0);
    while let Some(from) = at {
        let start = clock.monotonic();
        match fold_piece(&server.space, db, oid, from, PIECE).await {
            Ok(next) => {
                (at, retries, pieces) = (next, attempts(), pieces + 1);
                if next.is_none() || pieces % BEHIND == 0 {
                    read_back(server, db, oid, read, next).await;
                    read = next.unwrap_or_default();
                }
            }
            Err(e) => {
                if let Err(e) = retries.on_error(e) {
                    tracing::debug!(?e, "folding a set");
                    return true;
                }
            }
        }
        if !pause(server, (clock.monotonic() - start) * REST).await {
            return false;
        }
    }
    true
}

/// Reads the deltas of the folded part, from `from` up to `to`. Failure does not matter.
async fn read_back(server: &Server, db: Prefix, oid: Oid, from: u64, to: Option<u64>) {
    let tx = server.space.store.begin();
    let left = rows::deltas(&server.space.scope(&tx, db), oid, from, to).await;
    tracing::trace!(left = left.map_or(0, |left| left.len()), "read the deltas back after folding");
}
