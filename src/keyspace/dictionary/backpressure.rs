//! Who makes new members waits while more dead ones are left to the collector of the dictionary than members live.
//!
//! Members that come and go can be made faster than one server removes them (`types::set::collect`): both want the same processors and the
//! same log. So while the collector sweeps, and more is left to it than lives (and than `dictionary-gc-backlog`), one member may be made for
//! [`SWEPT`] that are swept. Every server sees in the store how many were swept, and how many all servers made. What was made beyond that makes
//! each further member wait, the longer the more it is: who made n of them gets the answer n times as late, by [`LONGEST`] at most.
//! It is the answer that waits, after the commit: nobody queues behind it, and who made none never waits.
//!
//! # What that bounds
//!
//! Let c be the members made a second where nobody waits, T the time from a cycle's begin to its Sweep, and b the larger of the backlog and of what lives. Of
//! D members that a cycle has to remove, all but b are swept while at most D / 2 are made; then b more are swept, in b / s seconds. The next one has
//! c (T + b / s) + D / 2 to remove: it comes to twice the first of these and stays there, however long the load lasts. (What the control
//! lags behind, and what a Mark of more members takes longer, is not in this: `bench/results/2026-11-22-collector.md` has what was measured.)
//! Many clients with very large commands, for whom [`LONGEST`] is too short, are not held.

use super::collector::{Phase, State};
use super::leases;
use crate::error::StoreResult;
use crate::keyspace::Keyspace;
use crate::store::Tx;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Members that are swept for each that may be made.
const SWEPT: u64 = 2;
/// Nanoseconds that a member waits where as many were made too much as may be left to the collector.
const EACH: u128 = 500_000;
/// What a unit of commands waits at most.
const LONGEST: Duration = Duration::from_secs(1);
/// What is shorter is added up, and one waits for some.
const SHORT: u64 = 1_000_000;

tokio::task_local! {
    /// Members that got an id.
    static MADE: Cell<u64>;
}

/// Runs `work`, and says how many members it gave an id.
pub(crate) async fn counting<T>(work: impl Future<Output = T>) -> (T, u64) {
    let work = async { (work.await, MADE.with(Cell::get)) };
    MADE.scope(Cell::new(0), work).await
}

/// So many members got an id.
pub(super) fn made(n: usize) {
    // Nobody counts what tools and tests make.
    let _ = MADE.try_with(|made| made.set(made.get() + n as u64));
}

/// Where this server first saw that too much is left in an epoch.
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
    /// Nanoseconds that a new member waits.
    each: AtomicU64,
    /// Nanoseconds of short waits that nobody has waited yet.
    owed: AtomicU64,
    /// Units of commands that waited.
    pub delayed: AtomicU64,
    /// How long, in microseconds.
    pub delayed_us: AtomicU64,
}

impl Backpressure {
    /// Nobody waits any more.
    pub(crate) fn release(&self) {
        *self.start.lock() = None;
        self.each.store(0, Ordering::Relaxed);
    }

    /// Waits for the `made` members of a unit that was committed.
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

/// Says how long new members wait from now on: to be called now and then. `state` is what `tx` reads; `most`: dead members that may be left
/// however few live.
pub async fn look(space: &Keyspace, tx: &Tx, state: &State, most: u64) -> StoreResult<()> {
    let backpressure = &space.backpressure;
    let left = state.condemned.saturating_sub(state.swept);
    if state.phase != Phase::Sweep || left <= most.max(state.live).max(state.live_so_far) {
        backpressure.release();
        return Ok(());
    }
    // Ids that this server has still to give are nobody's yet.
    let made = leases::leased(tx).await?.saturating_sub(space.ids.spare());
    let mut start = backpressure.start.lock();
    let now = Start { epoch: state.epoch, made, swept: state.swept };
    let start = start.filter(|start| start.epoch == now.epoch).unwrap_or_else(|| *start.insert(now));
    let allowed = start.made + now.swept.saturating_sub(start.swept) / SWEPT;
    let each = u128::from(made.saturating_sub(allowed)) * EACH / u128::from(most.max(1));
    backpressure.each.store(u64::try_from(each).unwrap_or(u64::MAX), Ordering::Relaxed);
    Ok(())
}
