//! Backpressure: commands that make members wait while the collector has more dead members left to sweep than
//! are alive.
//!
//! Members can be made faster than one server removes them (`types::set::collect`): both compete for the same
//! processors and the same log. So during a sweep that has more left than are alive (and more than
//! `dictionary-gc-backlog`), one member may be made for every [`SWEPT`] swept. Every server reads from the
//! store how many members were swept, and how many all servers made. Each member made beyond the allowance
//! delays every further member, in proportion to the excess: the reply to a command that makes n of them
//! waits n times as long, by [`LONGEST`] at most. The reply waits after the commit: nothing queues behind it,
//! and a command that makes no members never waits.
//!
//! # The bound
//!
//! Let c be the number of members made per second without waiting, T the time from the beginning of a cycle
//! to its Sweep, and b the larger of the backlog and the number of live members. Of D members that a cycle
//! has to remove, all but b are swept while at most D / 2 are made; then b more are swept, in b / s seconds.
//! The next cycle has c (T + b / s) + D / 2 to remove: this approaches twice its first term and stays there,
//! however long the load lasts. (This ignores the lag of the control and the longer Mark of more members: for
//! measurements see `bench/results/2026-11-22-collector.md`.) Many clients with very large commands, for
//! which [`LONGEST`] is too short, are not held back.

use super::collector::{Phase, State};
use super::leases;
use crate::error::StoreResult;
use crate::keyspace::Keyspace;
use crate::store::Tx;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of members swept for each one that may be made.
const SWEPT: u64 = 2;
/// The delay per member in nanoseconds when the excess equals the backlog that may be left to the collector.
const EACH: u128 = 500_000;
/// The longest delay of a unit of commands.
const LONGEST: Duration = Duration::from_secs(1);
/// Shorter delays, in nanoseconds, add up until one unit waits for them all.
const SHORT: u64 = 1_000_000;

tokio::task_local! {
    /// Members that got an id.
    static MADE: Cell<u64>;
}

/// Runs `work` and counts the members that it gave an id.
pub(crate) async fn counting<T>(work: impl Future<Output = T>) -> (T, u64) {
    let work = async { (work.await, MADE.with(Cell::get)) };
    MADE.scope(Cell::new(0), work).await
}

/// Counts `n` members that got an id.
pub(super) fn made(n: usize) {
    // Members made by tools and tests are not counted.
    let _ = MADE.try_with(|made| made.set(made.get() + n as u64));
}

/// The counts when this server first saw too much left in an epoch.
#[derive(Debug, Clone, Copy)]
struct Start {
    epoch: u64,
    made: u64,
    swept: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Backpressure {
    start: Mutex<Option<Start>>,
    /// The delay per new member, in nanoseconds.
    each: AtomicU64,
    /// Nanoseconds of short delays not yet waited.
    owed: AtomicU64,
    /// Units of commands that were delayed.
    pub delayed: AtomicU64,
    /// Their total delay, in microseconds.
    pub delayed_us: AtomicU64,
}

impl Backpressure {
    /// Stops delaying.
    pub(crate) fn release(&self) {
        *self.start.lock() = None;
        self.each.store(0, Ordering::Relaxed);
    }

    /// Delays the reply of a unit that has committed and made `made` members.
    pub(crate) async fn wait(&self, made: u64) {
        let nanos = made.saturating_mul(self.each.load(Ordering::Relaxed));
        let nanos = match nanos {
            0 => return,
            SHORT.. => nanos,
            _ if self.owed.fetch_add(nanos, Ordering::Relaxed) + nanos < SHORT => return,
            _ => self.owed.swap(0, Ordering::Relaxed),
        };
        let wait = Duration::from_nanos(nanos).min(LONGEST);
        self.delayed.fetch_add(1, Ordering::Relaxed);
        self.delayed_us.fetch_add(wait.as_micros() as u64, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
    }
}

/// Recomputes the delay per new member; call it periodically. `state` is what `tx` reads; `most`: dead
/// members that may be left however few are alive.
pub async fn look(space: &Keyspace, tx: &Tx, state: &State, most: u64) -> StoreResult<()> {
    let backpressure = &space.backpressure;
    let left = state.candidates.saturating_sub(state.swept);
    if state.phase != Phase::Sweep || left <= most.max(state.live).max(state.live_so_far) {
        backpressure.release();
        return Ok(());
    }
    // Leased ids that this server has not handed out yet are not members.
    let made = leases::leased(tx).await?.saturating_sub(space.ids.spare());
    let mut start = backpressure.start.lock();
    let now = Start { epoch: state.epoch, made, swept: state.swept };
    let start = start.filter(|start| start.epoch == now.epoch).unwrap_or_else(|| *start.insert(now));
    let allowed = start.made + now.swept.saturating_sub(start.swept) / SWEPT;
    let each = u128::from(made.saturating_sub(allowed)) * EACH / u128::from(most.max(1));
    backpressure.each.store(u64::try_from(each).unwrap_or(u64::MAX), Ordering::Relaxed);
    Ok(())
}
