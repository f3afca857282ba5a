//! A batch while it is being collected: the admitted transactions in commit order, and their record for the
//! log.
//!
//! Order matters: in a record a later change wins. So each transaction appends its cleared ranges first and
//! its effects on keys after them, after everything of the transactions before it.
//!
//! Small clears become removals of rows, large ones of a range. A cleared range is one entry regardless of its
//! length, but every read must look it up; a removed row costs only readers of its own key. So the rows are
//! counted up to [`POINT_DELETES`], giving up after some removed ones (queues leave many).

use super::committer::{Request, Waiter};
use super::conflicts::Conflicts;
use super::snapshot::SnapshotView;
use super::value_cache::ValueCache;
use super::wal::Record;
use crate::error::StoreResult;
use crate::store::Version;
use crate::store::effects::Identity;
use crate::store::writes::{Effect, Own, Writes, apply_all};
use bytes::Bytes;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use tokio::sync::oneshot;

/// A cleared range with at most this number of rows is deleted row by row.
const POINT_DELETES: usize = 32;
/// Removed rows that counting the rows of a cleared range may walk over.
const SKIPPED: u32 = 1000;

/// An admitted transaction.
pub(super) struct Admitted {
    pub(super) version: Version,
    pub(super) writes: Writes,
    pub(super) removed: Removed,
    pub(super) reply: oneshot::Sender<StoreResult<Version>>,
    pub(super) watches: Vec<Waiter>,
}

/// The removals that a transaction's cleared ranges turned into.
#[derive(Default)]
pub(super) struct Removed {
    /// All keys of the small ranges.
    pub(super) keys: Vec<Bytes>,
    /// The large ranges.
    pub(super) ranges: Vec<(Bytes, Bytes)>,
}

/// The state before the batch, for the committer: the newest version of everything.
pub(super) struct Before<'a> {
    pub(super) view: &'a SnapshotView,
    pub(super) values: &'a ValueCache,
}

impl Before<'_> {
    fn known(&self, hash: u64, key: &[u8]) -> Option<Option<Bytes>> {
        self.view.recent(hash, key).or_else(|| self.values.newest(hash, key))
    }
    fn newest(&self, hash: u64, key: &[u8]) -> StoreResult<Option<Bytes>> {
        self.known(hash, key).map_or_else(|| self.view.get(key), Ok)
    }
    /// False if the key is certainly absent.
    fn may_have(&self, hash: u64, key: &[u8]) -> bool {
        self.known(hash, key).map_or_else(|| self.view.engine().may_have(key), |value| value.is_some())
    }
}

/// See the module.
pub(super) struct Batch {
    before: Version,
    pub(super) admitted: Vec<Admitted>,
    /// Watches of keys that changed before the watch: they are woken once this batch is published.
    pub(super) outdated: Vec<Waiter>,
    /// Hashes of keys written without a conflict, which the conflict table does not know.
    quiet: HashSet<u64, BuildHasherDefault<Identity>>,
    record: Record,
    metadata: Option<Version>,
}

impl Batch {
    /// An empty batch after version `before`.
    pub(super) fn new(before: Version) -> Self {
        let (admitted, outdated, quiet) = Default::default();
        Batch { before, admitted, outdated, quiet, record: Record::new(before), metadata: None }
    }

    /// The version of the last admitted transaction.
    pub(super) fn last(&self) -> Version {
        self.before + self.admitted.len() as u64
    }

    /// The metadata version, if a transaction bumped it.
    pub(super) fn metadata(&self) -> Option<Version> {
        self.metadata
    }

    /// Whether an admitted transaction wrote a key in `begin..end`.
    pub(super) fn wrote_in(&self, begin: &[u8], end: &[u8]) -> bool {
        self.admitted.iter().any(|a| a.writes.between(begin, end).any(|(_, op)| op.conflict))
    }

    /// Appends a resolved transaction that has no conflict.
    pub(super) fn admit(&mut self, request: Request, past: &Before<'_>, table: &mut Conflicts) {
        let Request { mut writes, watches, reply, .. } = request;
        let version = self.last() + 1;
        if !writes.stamped.is_empty() {
            writes.stamp(version);
        }
        self.record.next();
        let removed = self.append(&mut writes, past, table);
        table.note(&writes, version);
        self.quiet.extend(writes.ops.iter().filter(|(_, op)| !op.conflict).map(|(_, op)| op.hash));
        if writes.bump {
            self.record.bump();
            self.metadata = Some(version);
        }
        self.admitted.push(Admitted { version, writes, removed, reply, watches });
    }

    /// The record for the log; may be taken once.
    pub(super) fn seal(&mut self) -> Record {
        std::mem::replace(&mut self.record, Record::new(self.before))
    }

    /// Replaces the atomic operations of a transaction by their results. Precedes [`Batch::admit`], which
    /// cannot fail.
    pub(super) fn resolve(
        &self,
        request: &mut Request,
        past: &Before<'_>,
        table: &Conflicts,
    ) -> StoreResult<()> {
        for (key, op) in request.writes.ops.iter_mut() {
            let Effect::Atomic(ops) = &op.effect else { continue };
            let old = self.newest(key, op.hash, past, table)?;
            op.effect = apply_all(old, ops).map_or(Effect::Clear, Effect::Set);
        }
        Ok(())
    }

    /// The newest value of a key: from this batch, or from the database, of which this is the only writer.
    fn newest(
        &self,
        key: &[u8],
        hash: u64,
        past: &Before<'_>,
        table: &Conflicts,
    ) -> StoreResult<Option<Bytes>> {
        if self.wrote(key, hash, table) {
            for admitted in self.admitted.iter().rev() {
                if let Own::Known(value) = admitted.writes.own(hash, key) {
                    return Ok(value);
                }
            }
        }
        past.newest(hash, key)
    }

    /// What changes nothing is left out, and becomes an operation that does nothing.
    fn append(&mut self, writes: &mut Writes, past: &Before<'_>, table: &Conflicts) -> Removed {
        let mut removed = Removed::default();
        for (begin, end) in writes.cleared.iter() {
            self.clear(begin, end, past.view, &mut removed);
        }
        for (key, op) in writes.ops.iter_mut() {
            match &op.effect {
                Effect::Set(value) => self.record.set(key, value),
                Effect::Clear if !op.kept => self.record.remove(key),
                Effect::Clear if self.wrote(key, op.hash, table) || past.may_have(op.hash, key) => {
                    self.record.remove(key)
                }
                // The removal of a key that never existed would only slow down range reads.
                Effect::Clear => op.effect = Effect::Atomic(Vec::new()),
                Effect::Atomic(_) => {} // resolved before
            }
        }
        removed
    }

    /// Whether this batch may have written `key` already.
    fn wrote(&self, key: &[u8], hash: u64, table: &Conflicts) -> bool {
        table.point(hash, key) > self.before || self.quiet.contains(&hash)
    }

    fn clear(&mut self, begin: &Bytes, end: &Bytes, view: &SnapshotView, removed: &mut Removed) {
        let here =
            self.admitted.iter().flat_map(|a| a.writes.between(begin, end)).map(|(key, _)| key.clone());
        let mut keys: Vec<Bytes> = here.take(POINT_DELETES + 1).collect();
        let complete = view.few_keys((begin, end), (POINT_DELETES, SKIPPED), &mut keys);
        if complete {
            keys.iter().for_each(|key| self.record.remove(key));
            removed.keys.extend(keys);
        } else {
            self.record.clear(begin, end);
            removed.ranges.push((begin.clone(), end.clone()));
        }
    }
}
