//! Commits: hands everything to the library at once, read conflict ranges first.
//!
//! They come first because the library removes from a read conflict range whatever the transaction has
//! written. It is right that own writes answer reads, but this engine has already separated the two.

use super::errors::{of_commit, unavailable};
use super::tx::State;
use super::{Core, count};
use crate::error::StoreResult;
use crate::store::writes::{AtomicKind, Effect, Op, Writes};
use crate::store::{STAMP, Version, key_after};
use bytes::Bytes;
use foundationdb::options::{ConflictRangeType, MutationType, TransactionOption};
use foundationdb::{FdbResult, Transaction};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// A commit in flight, which closing the store waits for.
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
    // The commit stands: a watch that cannot be registered ends with its sender.
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
    for (key, op) in writes.ops.iter() {
        write_key(native, key, op)?;
    }
    for row in &writes.stamped {
        // The cluster adds the conflict of the row itself; the library's would cover all possible stamps.
        native.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
        // The library replaces ten bytes, at the offset given by the four bytes after the key.
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
                AtomicKind::Add => MutationType::Add,
                AtomicKind::Max => MutationType::Max,
            };
            native.atomic_op(key, operand, kind);
        }),
    }
    Ok(())
}

/// Watches keys from `version` on, in a transaction of its own: a transaction that watches a key it has
/// written would see that write as a change.
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
                let _ = sender.send(()); // the receiver may have given up
            }
        });
    }
    // Commits nothing, but this activates the watches.
    tokio::spawn(native.commit());
    Ok(())
}
