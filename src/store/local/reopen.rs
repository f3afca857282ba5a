//! Reopening after a failed write or sync: the batch is in doubt, and nothing is blindly retried.
//!
//! 1. Writes are refused from now on. Reads continue from the last published snapshot while a probe finds
//!    that the disk cannot take what a reopening needs (recent rows, which are moved to tables then).
//! 2. The old database must be closed: its snapshots keep it and its lock. The first read of a new
//!    transaction waits; running transactions finish or become too old within 5 s.
//! 3. The database is opened again. Opening replays the logs and writes their contents to synced tables, so
//!    whatever is found then is permanent: the last version shows whether the batch was applied.
//! 4. The batch's transactions are answered: committed, or `ReadOnly` (which always means: not applied).
//! 5. Writes are accepted again, unless the disk has no room for the compaction that starts then (`room.rs`):
//!    it would fill the disk until it fails, and the next write to the log with it.
//!
//! If the database cannot be opened because it is damaged, reads and writes fail with an error that names the
//! file, until it can.
//!
//! A transaction that waits longer than 5 s for its result gets `Unknown`. Versions continue after the lost
//! ones, and transactions that began before are too old to write.
//!
//! **Generations.** Without [`Fsync::Always`](crate::store::Fsync::Always) the reopened database may hold
//! less than was published: the log's last second is lost. State in memory that was derived from those
//! commits (a lease, an object under construction, ids that were looked up) then names rows that are gone and
//! may be reused by others. So the store begins a new generation, which is published together with the
//! version ([`Tx::generation`](crate::store::Tx::generation)). Whoever keeps such state keeps the generation
//! of the transaction that created it, and compares it in the transaction that uses it. This is exact: a
//! transaction of an earlier generation cannot commit, and within a generation nothing is lost.

use super::batch::{Admitted, Batch};
use super::committer::{Committer, Request};
use super::engine::Engine;
use super::replay::Recovered;
use super::snapshot::Offline;
use super::{Core, VERSION_GAP};
use crate::error::{StoreError, StoreResult};
use crate::store::{MAX_AGE, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(2);
/// How long writes are refused for lack of room for compaction. A compaction may need less than estimated if
/// much of its input is dead.
pub(super) const COMPACTION_RETRY: Duration = Duration::from_secs(60);
/// Room for a manifest and a new log.
const SPARE: u64 = 1 << 20;
/// How often the log repeats why writes stay refused.
const REMIND: Duration = Duration::from_secs(60);

/// The state that a failure leaves behind.
pub(super) struct Broken {
    reason: String,
    last: Version,
    doubtful: Vec<Admitted>,
    rest: Vec<Request>,
}

impl Broken {
    pub(super) fn new(reason: String, batch: Batch) -> Self {
        Broken { reason, last: batch.last(), doubtful: batch.admitted, rest: Vec::new() }
    }
    /// Adds transactions that were not processed.
    pub(super) fn with_rest(mut self, rest: impl Iterator<Item = Request>) -> Self {
        self.rest.extend(rest);
        self
    }
}

impl From<String> for Broken {
    fn from(reason: String) -> Self {
        Broken { reason, last: 0, doubtful: Vec::new(), rest: Vec::new() }
    }
}

impl Committer {
    /// See the module. `None` if the store was closed meanwhile.
    pub(super) fn reopen(mut self, broken: Broken) -> Option<Committer> {
        tracing::error!(
            reason = broken.reason,
            "a write to the store failed: the store refuses writes until it is reopened"
        );
        let core = self.core.clone();
        let (published, last) = (self.written, broken.last.max(self.version));
        let generation = self.generation;
        let mut pending = Pending::new(core.clone(), broken);
        // Not in the loop's head, which would hold the layers.
        let needed = || self.shelf.layers().contents() + SPARE;
        while let Err(e) = core.probe(needed()) {
            if !pending.pause(RETRY, Some(e)) {
                self.shut_down();
                return None;
            }
        }
        self.publish(Err(Offline::Reopening));
        self.watches.fire_all();
        self.shelf.close();
        let gone = self.engine.gone();
        drop(self);
        let (began, mut is_late) = (core.now(), false);
        while !gone.load(Ordering::Acquire) {
            if !pending.pause(POLL, None) {
                return closed(&core);
            }
            if !is_late && core.now().saturating_sub(began) > 2 * MAX_AGE {
                is_late = true;
                tracing::error!(
                    "the store cannot be reopened yet: a transaction that is too old has not ended"
                );
            }
        }
        if let Err(e) = core.disk(|faults| faults.on_reopen(&core.dir)) {
            tracing::error!(e, "cannot truncate the log as the test requested");
        }
        let (engine, recovered) = loop {
            match Engine::open(&core.dir, &core.options) {
                Ok(opened) => break opened,
                Err(e) => {
                    if let StoreError::Corrupt(what) = &e {
                        core.go_offline(Offline::Damaged(Arc::new(what.clone())));
                    }
                    if !pending.pause(RETRY, Some(e.to_string())) {
                        return closed(&core);
                    }
                }
            }
        };
        let lost = published.saturating_sub(recovered.version);
        if lost > 0 {
            tracing::error!(lost, "commits that were acknowledged before their sync are lost");
        }
        let generation = generation + u64::from(lost > 0);
        *core.starting.lock() = None;
        let found = recovered.version;
        let committer = pending.finish(engine, recovered, (last, generation));
        if !pending.wait_for_room(&committer.engine) {
            committer.shut_down();
            return None;
        }
        if committer.engine.begin_to_compact() != Ok(true) {
            *core.starting.lock() = Some(core.now()); // the syncer tries again, and reopens after an error
        }
        core.accept();
        tracing::warn!(version = found, "the store was reopened and accepts writes again");
        Some(committer)
    }
}

/// The store was closed while no database was open. What had not been synced when it failed may be lost.
fn closed(core: &Core) -> Option<Committer> {
    for closer in core.take_closers() {
        let _ = closer.send(Err(StoreError::Unavailable(core.last_reason())));
    }
    None
}

/// The transactions that wait meanwhile.
struct Pending {
    core: Arc<Core>,
    doubtful: Vec<Admitted>,
    since: Duration,
    /// When it was last logged why writes stay refused.
    logged: Option<Duration>,
}

impl Pending {
    fn new(core: Arc<Core>, broken: Broken) -> Self {
        core.refuse(broken.reason);
        broken.rest.into_iter().for_each(|request| refuse(&core, request));
        Pending { doubtful: broken.doubtful, since: core.now(), logged: None, core }
    }

    /// Waits; rejects new transactions, and answers waiting ones with `Unknown` after 5 s. False if the store
    /// is being closed.
    fn pause(&mut self, time: Duration, reason: Option<String>) -> bool {
        if let Some(reason) = reason {
            self.say(&reason);
            self.core.refuse(reason);
        }
        let (requests, open) = self.core.pause(time);
        requests.into_iter().for_each(|request| refuse(&self.core, request));
        if !open || self.core.now().saturating_sub(self.since) > MAX_AGE {
            self.answer(|_| Err(StoreError::Unknown));
        }
        self.core.online.notify_waiters(); // so that they can check their age
        open
    }

    fn say(&mut self, reason: &str) {
        let now = self.core.now();
        if self.logged.is_none_or(|logged| now.saturating_sub(logged) >= REMIND) {
            self.logged = Some(now);
            tracing::warn!(reason, "the store still refuses writes");
        }
    }

    fn finish(
        &mut self,
        engine: Engine,
        recovered: Recovered,
        (last, generation): (Version, u64),
    ) -> Committer {
        let core = self.core.clone();
        let version = recovered.version.max(last) + VERSION_GAP;
        let Recovered { version: found, log, .. } = recovered;
        core.queue.lock().failure = None; // the database before it failed
        let mut committer = Committer::new(core.clone(), core.shelve(engine, log, version + 1), found);
        // Data read under the last metadata version may have been lost: this invalidates it.
        (committer.version, committer.metadata_version) = (version, version);
        committer.generation = generation;
        committer.forget_before(version);
        core.values.forget(version); // data published without a sync may be lost
        committer.publish_newest();
        core.online.notify_waiters();
        let reason = core.last_reason();
        self.answer(
            |version| {
                if version <= found { Ok(version) } else { Err(StoreError::ReadOnly(reason.clone())) }
            },
        );
        committer
    }

    /// Refuses writes if the due compaction has no room, for at most [`COMPACTION_RETRY`]. False if the store
    /// is being closed.
    fn wait_for_room(&mut self, engine: &Engine) -> bool {
        let since = self.core.now();
        self.logged = None;
        while self.core.now().saturating_sub(since) < COMPACTION_RETRY
            && let Some(missing) = engine.missing_room()
        {
            if !self.pause(RETRY, Some(missing)) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self, result: impl Fn(Version) -> StoreResult<Version>) {
        for admitted in self.doubtful.drain(..) {
            let _ = admitted.reply.send(result(admitted.version));
        }
    }
}

fn refuse(core: &Core, request: Request) {
    let answer = if request.writes.is_empty() {
        Ok(request.held.version)
    } else {
        Err(StoreError::ReadOnly(core.last_reason()))
    };
    for (_, sender) in request.watches {
        let _ = sender.send(());
    }
    let _ = request.reply.send(answer);
}
