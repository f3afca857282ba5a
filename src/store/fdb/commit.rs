//! Commits: everything is handed to the library at once, conflict ranges of reads first.
//!
//! First, because the library leaves out of a read conflict range what the transaction has written: own writes do answer
//! reads, but here they have been told apart already.

use super::errors::{of_commit, unavailable};
use super::tx::State;
use super::{Core, count};
use crate::error::StoreResult;
use crate::store::writes::{Effect, Kind, Op, Writes};
use crate::store::{STAMP, Version, key_after};
use bytes::Bytes;
use foundationdb::options::{ConflictRangeType, MutationType, TransactionOption};
use foundationdb::{FdbResult, Transaction};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// A commit under way, for which closing the store waits.
pub(super) struct InFlight(Arc<Core>);

impl InFlight {
    pub(super) fn enter(core: &Arc<Core>) -> Self {
        core.committing.fetch_add(1, Ordering::SeqCst);
        InFlight(core.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.committing.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Commits what `state` holds and registers its watches.
pub(super) async fn run(in_flight: InFlight, native: Transaction, state: State) -> StoreResult<Version> {
    let core = &in_flight.0;
    hand_over(&native, &state).map_err(unavailable)?;
    let committed = native.commit().await.map_err(|e| core.failed(of_commit(e.into())))?;
    count(&core.counters.commits);
    // Fails only for a transaction that was not committed.
    let version = committed.committed_version().map_err(of_commit)?.cast_unsigned();
    // Committed is committed: a watch that cannot be registered ends with its sender.
    let _ = watch(core, version, state.watches);
    Ok(version)
}

fn hand_over(native: &Transaction, state: &State) -> FdbResult<()> {
    for key in state.reads.points() {
        native.add_conflict_range(key, &key_after(key), ConflictRangeType::Read)?;
    }
    for (begin, end) in state.reads.ranges() {
        native.add_conflict_range(begin, end, ConflictRangeType::Read)?;
    }
    write(native, &state.writes)
}

fn write(native: &Transaction, writes: &Writes) -> FdbResult<()> {
    for (begin, end) in writes.cleared.iter() {
        native.clear_range(begin, end);
    }
    for (key, op) in &writes.ops {
        write_key(native, key, op)?;
    }
    for row in &writes.stamped {
        // The cluster adds the conflict of the row itself; the library's would be of all stamps that may come.
        native.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
        // The library replaces the ten bytes that begin where the four behind the key say.
        let mut key = row.key(&[0; STAMP]);
        key.extend_from_slice(&(row.prefix.len() as u32).to_le_bytes());
        native.atomic_op(&key, &row.value, MutationType::SetVersionstampedKey);
    }
    for (begin, end) in &writes.conflicts {
        native.add_conflict_range(begin, end, ConflictRangeType::Write)?;
    }
    if writes.bump {
        native.update_metadata_version();
    }
    Ok(())
}

fn write_key(native: &Transaction, key: &[u8], op: &Op) -> FdbResult<()> {
    if !op.conflict {
        native.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
    }
    match &op.effect {
        Effect::Set(value) => native.set(key, value),
        Effect::Clear => native.clear(key),
        Effect::Atomic(ops) => ops.iter().for_each(|(kind, operand)| {
            let kind = match kind {
                Kind::Add => MutationType::Add,
                Kind::Max => MutationType::Max,
            };
            native.atomic_op(key, operand, kind);
        }),
    }
    Ok(())
}

/// Watches keys from `version` on, in a transaction of their own: one that watches what it has written would see that as a
/// change.
pub(super) fn watch(
    core: &Arc<Core>,
    version: Version,
    watches: Vec<(Bytes, oneshot::Sender<()>)>,
) -> StoreResult<()> {
    if watches.is_empty() {
        return Ok(());
    }
    let native = core.transaction()?;
    native.set_read_version(version.cast_signed());
    for (key, sender) in watches {
        let changed = native.watch(&key);
        tokio::spawn(async move {
            let mut sender = sender;
            let changed = tokio::select! {
                biased;
                changed = changed => changed.is_ok(),
                () = sender.closed() => false,
            };
            if changed {
                let _ = sender.send(()); // whoever gave up waiting is no concern
            }
        });
    }
    // Nothing to commit, but this is what makes the watches live.
    tokio::spawn(native.commit());
    Ok(())
}
