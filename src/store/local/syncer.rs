//! The syncer: a thread that looks after the store once a second.
//!
//! It syncs the log (`everysec`), notes what is on disk, starts compaction a while after an open, and has
//! RocksDB take recent commits once nothing is being written.

use super::engine::Engine;
use super::{Core, reopen};
use crate::store::Fsync;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often `everysec` syncs.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// By then, a starting server has written what it writes at startup.
const STARTS: Duration = Duration::from_secs(3);
/// Bytes of recent commits that are moved to RocksDB once the store has rested for a second.
const WORTH_A_TABLE: usize = 1 << 20;
/// The same once it has rested for [`RESTS`].
const WORTH_IT_LATER: usize = 64 << 10;
const RESTS: Duration = Duration::from_secs(60);
/// Bytes that the log may grow by while the store rests: a server that nobody uses writes some.
const RESTING: usize = 16 << 10;

/// Since when the store rests, and the log and its length then.
#[derive(Debug, Default)]
pub(super) struct Resting {
    since: Duration,
    /// The number of the log.
    log: u64,
    length: usize,
}

impl Core {
    /// The body of the syncer thread.
    pub(super) fn sync_every_second(&self) {
        let mut queue = self.queue.lock();
        while !queue.closing {
            self.stop_syncing.wait_for(&mut queue, SYNC_INTERVAL);
            if queue.closing {
                continue;
            }
            drop(queue);
            let outcome = self.every_second();
            queue = self.queue.lock();
            if let Err(reason) = outcome {
                drop(queue);
                self.fail(reason);
                queue = self.queue.lock();
            }
        }
    }

    fn every_second(&self) -> Result<(), String> {
        let engine = match &self.published.load().view {
            Ok(view) => view.engine().clone(),
            Err(_) => return Ok(()),
        };
        engine.note_manifest();
        self.begin_to_compact(&engine)?;
        let is_due = self.unsynced.load(Ordering::Acquire) || engine.has_synced_more();
        if is_due && self.fsync() != Fsync::No {
            self.sync_logs(&engine)?;
        } else {
            engine.list_logs()?;
        }
        self.rest(&engine)
    }

    pub(super) fn sync_logs(&self, engine: &Engine) -> Result<(), String> {
        let lengths = engine.look_at_logs(self.now());
        self.sync(engine, lengths)
    }

    /// If next to nothing is being written, has RocksDB take the recent commits: they take memory, and reads
    /// are faster without them. Waits for nobody: the next sync is due in a second.
    fn rest(&self, engine: &Engine) -> Result<(), String> {
        let Ok(view) = self.published.load().view.clone() else { return Ok(()) };
        let Some(newest) = view.layers.recent.first() else { return Ok(()) };
        let (length, now) = (engine.log_length(), self.now());
        let mut resting = self.resting.lock();
        if resting.log != newest.log || length > resting.length + RESTING {
            *resting = Resting { since: now, log: newest.log, length };
            return Ok(());
        }
        let long = now.saturating_sub(resting.since) >= RESTS;
        if newest.bytes() < if long { WORTH_IT_LATER } else { WORTH_A_TABLE } {
            return Ok(());
        }
        let Some(mut committer) = self.committer.try_lock() else { return Ok(()) };
        match committer.as_mut() {
            Some(committer) if committer.is_newest(newest) && !committer.is_crowded() => committer.turn(),
            _ => Ok(()),
        }
    }

    /// Starts compaction, which waits after an open because due compactions take space that a start may need.
    /// If they have no room, writes are refused once the start is over, for at most
    /// [`reopen::COMPACTION_RETRY`].
    fn begin_to_compact(&self, engine: &Engine) -> Result<(), String> {
        let Some(opened) = *self.starting.lock() else { return Ok(()) };
        let age = self.now().saturating_sub(opened);
        if age < STARTS + reopen::COMPACTION_RETRY
            && let Some(missing) = engine.missing_room()
        {
            if age >= STARTS {
                if self.refusal.load().is_none() {
                    tracing::warn!(reason = missing, "the store refuses writes");
                }
                self.refuse(missing);
            }
            return Ok(());
        }
        let mut starting = self.starting.lock();
        if *starting == Some(opened) && engine.begin_to_compact()? {
            *starting = None;
            self.accept();
        }
        Ok(())
    }
}
