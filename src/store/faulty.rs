//! Wraps an engine and injects seeded faults: whatever the contract allows, only more often.
//!
//! * a conflict at commit without a cause, and a transaction that is too old, at a read or at commit;
//! * a commit whose result is unknown: applied, not applied, or applied a little later;
//! * short delays anywhere, which change the order of events;
//! * an [`Outage`], while one is set.
//!
//! It also counts the traffic ([`Traffic`]), and lets a test observe it ([`Observer`]) or break the contract
//! ([`Tamper`]).
//!
//! Faults stay within the contract: a transaction without writes never conflicts, and its commit is never
//! unknown. Faults are drawn from one seeded generator in the order of `begin`; with several threads that
//! order is the scheduler's, so a seed repeats the mix of faults but not the run.

use super::observe::{Observed, Observer};
use super::tamper::{Seen, Tamper, Tampering};
use super::{ClusterStatus, Fsync, Pairs, RangeOptions, Read, Store, StoreStats, Tx, Version, Watch};
use crate::env::Rng;
use crate::error::{StoreError, StoreResult};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Probabilities between 0 and 1, each drawn independently.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FaultRates {
    /// A writing commit fails with `Conflict`.
    pub conflict: f64,
    /// A read fails with `TooOld`.
    pub too_old_read: f64,
    /// A writing commit fails with `TooOld`.
    pub too_old_commit: f64,
    /// A writing commit fails with `Unknown` and was applied (if the wrapped engine applied it).
    pub unknown_applied: f64,
    /// A writing commit fails with `Unknown` and was not applied.
    pub unknown_lost: f64,
    /// A writing commit fails with `Unknown` and is attempted after another delay.
    pub unknown_late: f64,
    /// A read or commit first sleeps up to 2 ms.
    pub delay: f64,
}

impl FaultRates {
    /// Every fault, each in one to five percent of cases.
    pub fn mixed() -> Self {
        FaultRates {
            conflict: 0.05,
            too_old_read: 0.01,
            too_old_commit: 0.02,
            unknown_applied: 0.03,
            unknown_lost: 0.03,
            unknown_late: 0.01,
            delay: 0.05,
        }
    }
}

/// How often each fault happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Injected conflicts.
    pub conflicts: u64,
    /// Injected `TooOld`, at reads and commits.
    pub too_old: u64,
    /// `Unknown` for a commit that was applied.
    pub unknown_applied: u64,
    /// `Unknown` for a commit that was not.
    pub unknown_lost: u64,
    /// `Unknown` for a commit that is applied later.
    pub unknown_late: u64,
    /// Delays.
    pub delays: u64,
}

/// How an unreachable engine handles reads and commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outage {
    /// The engine is reachable.
    #[default]
    None,
    /// Reads and commits fail at once.
    Refusing,
    /// Reads and commits get no answer for this time, after which engines give up: reads fail, and commits
    /// are unknown and lost.
    Silent(Duration),
    /// Like [`Outage::Silent`], for commits only.
    SilentCommits(Duration),
}

/// Requests to the engine. A range counts as one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Transactions begun.
    pub transactions: u64,
    /// Reads of keys and ranges.
    pub reads: u64,
    /// Commits of transactions that wrote.
    pub commits: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Faulty {
    inner: Box<Store>,
    shared: Arc<Shared>,
}

struct Shared {
    rng: Mutex<Rng>,
    rates: Mutex<FaultRates>,
    counts: Mutex<FaultCounts>,
    traffic: Mutex<Traffic>,
    outage: Mutex<Outage>,
    tampering: Tampering,
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

/// A transaction with faults.
pub struct FaultyTx {
    inner: Tx,
    /// The transaction that point reads see instead of `inner`, and the keys that this transaction has
    /// written.
    torn: Option<(Tx, Mutex<HashSet<Vec<u8>>>)>,
    tamper: Option<Arc<dyn Tamper>>,
    observed: Option<Observed>,
    rng: Mutex<Rng>,
    shared: Arc<Shared>,
    /// The longest time to wait in a silent outage.
    limit: Mutex<Duration>,
}

/// A commit in flight.
pub(super) type Commit = Pin<Box<dyn Future<Output = StoreResult<Version>> + Send>>;

const MAX_DELAY_MICROS: u64 = 2000;

/// A watch that misses what happens at first.
fn watch_late(mut watch: Watch, late: Duration) -> Watch {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::time::sleep(late).await;
        if !matches!(watch.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty)) {
            std::future::pending::<()>().await;
        }
        let _ = watch.await;
        let _ = sender.send(());
    });
    receiver
}

impl Faulty {
    /// Wraps `inner`.
    pub fn new(inner: Store, seed: u64, rates: FaultRates) -> Self {
        let shared = Shared {
            rng: Mutex::new(Rng::seeded(seed)),
            rates: Mutex::new(rates),
            counts: Mutex::default(),
            traffic: Mutex::default(),
            outage: Mutex::default(),
            tampering: Tampering::default(),
            observer: Mutex::default(),
        };
        Faulty { inner: Box::new(inner), shared: Arc::new(shared) }
    }
    /// Changes the rates, even for running transactions.
    pub fn set_rates(&self, rates: FaultRates) {
        *self.shared.rates.lock() = rates;
    }
    /// Begins or ends an outage, even for running transactions.
    pub fn set_outage(&self, outage: Outage) {
        *self.shared.outage.lock() = outage;
    }
    /// Breaks the contract for transactions that begin from now on; None stops that.
    pub fn set_tamper(&self, tamper: Option<Arc<dyn Tamper>>) {
        self.shared.tampering.set(tamper);
    }
    /// Lets `observer` see transactions that begin from now on.
    pub fn set_observer(&self, observer: Option<Arc<dyn Observer>>) {
        *self.shared.observer.lock() = observer;
    }
    /// The traffic so far.
    pub fn traffic(&self) -> Traffic {
        *self.shared.traffic.lock()
    }
    /// The faults injected so far.
    pub fn counts(&self) -> FaultCounts {
        *self.shared.counts.lock()
    }
    pub(super) fn begin(&self) -> FaultyTx {
        let rng = Mutex::new(self.shared.rng.lock().fork());
        let number = {
            let mut traffic = self.shared.traffic.lock();
            traffic.transactions += 1;
            traffic.transactions
        };
        let observed = self.shared.observer.lock().clone().map(|o| Observed::begin(o, number));
        let limit = Mutex::new(Duration::MAX);
        let (tamper, seen) = self.shared.tampering.begin(&self.inner);
        let (inner, torn) = match seen {
            Seen::Now => (self.inner.begin(), None),
            Seen::Older(old) => (old, None),
            Seen::Torn(old) => (self.inner.begin(), Some((old, Mutex::default()))),
        };
        FaultyTx { inner, torn, tamper, observed, rng, shared: self.shared.clone(), limit }
    }
    pub(super) fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
    pub(super) fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    pub(super) fn prefers_prefetch(&self) -> bool {
        self.inner.prefers_prefetch()
    }
    pub(super) async fn cluster(&self) -> Option<ClusterStatus> {
        Box::pin(self.inner.cluster()).await
    }
    pub(super) fn set_fsync(&self, fsync: Fsync) {
        self.inner.set_fsync(fsync);
    }
    pub(super) fn sync(&self) -> StoreResult<()> {
        self.inner.sync()
    }
    pub(super) async fn lost(&self, generation: u64) -> u64 {
        Box::pin(self.inner.lost(generation)).await
    }
    pub(super) async fn close(&self) -> StoreResult<()> {
        Box::pin(self.inner.close()).await
    }
}

impl FaultyTx {
    fn draw(&self, rate: impl Fn(&FaultRates) -> f64, count: impl Fn(&mut FaultCounts) -> &mut u64) -> bool {
        let rate = rate(&self.shared.rates.lock());
        let hit = rate > 0.0 && self.rng.lock().f64() < rate;
        if hit {
            *count(&mut self.shared.counts.lock()) += 1;
        }
        hit
    }

    /// Another transaction at the same version, without an observer.
    pub(super) async fn again(&self) -> StoreResult<FaultyTx> {
        let rng = Mutex::new(self.rng.lock().fork());
        let inner = Box::pin(self.inner.again()).await?;
        let (shared, limit) = (self.shared.clone(), Mutex::new(Duration::MAX));
        Ok(FaultyTx { inner, torn: None, tamper: None, observed: None, rng, shared, limit })
    }

    fn note_write(&self, key: &[u8]) {
        if let Some((_, written)) = &self.torn {
            written.lock().insert(key.to_vec());
        }
    }

    async fn delay(&self) {
        if self.draw(|r| r.delay, |c| &mut c.delays) {
            self.sleep().await;
        }
    }

    async fn sleep(&self) {
        let micros = self.rng.lock().below(MAX_DELAY_MICROS);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    /// Fails during an outage: the request does not reach the engine.
    async fn reach(&self, commit: bool) -> StoreResult<()> {
        let (outage, limit) = (*self.shared.outage.lock(), *self.limit.lock());
        match outage {
            Outage::Refusing => Err(StoreError::Unavailable("an injected outage".into())),
            Outage::SilentCommits(time) | Outage::Silent(time) if commit => {
                tokio::time::sleep(time.min(limit)).await;
                Err(StoreError::Unknown)
            }
            Outage::Silent(time) => {
                tokio::time::sleep(time.min(limit)).await;
                Err(StoreError::Unavailable("no answer".into()))
            }
            Outage::None | Outage::SilentCommits(_) => Ok(()),
        }
    }

    async fn before_read(&self) -> StoreResult<()> {
        self.reach(false).await?;
        self.delay().await;
        let too_old = self.draw(|r| r.too_old_read, |c| &mut c.too_old);
        if too_old { Err(StoreError::TooOld) } else { Ok(()) }
    }

    pub(super) async fn get(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        self.before_read().await?;
        self.shared.traffic.lock().reads += 1;
        let value = self.get_tampered(key, read).await?;
        if let Some(observed) = &self.observed {
            observed.read(&self.inner, key).await?;
        }
        Ok(value)
    }

    async fn get_tampered(&self, key: &[u8], read: Read) -> StoreResult<Option<Bytes>> {
        let Some(tamper) = &self.tamper else { return Box::pin(self.inner.get(key, read)).await };
        let mode = tamper.read(key, read);
        let value = match &self.torn {
            Some((old, written)) if !written.lock().contains(key) => {
                Box::pin(self.inner.get(key, mode)).await?;
                Box::pin(old.get(key, Read::Snapshot)).await?
            }
            _ => Box::pin(self.inner.get(key, mode)).await?,
        };
        Ok(tamper.answer(key, read, value))
    }
    pub(super) fn prefers_prefetch(&self) -> bool {
        self.inner.prefers_prefetch()
    }
    pub(super) fn overhead(&self, key: usize) -> usize {
        self.inner.overhead(key)
    }
    pub(super) async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        self.before_read().await?;
        self.shared.traffic.lock().reads += 1;
        let read = self.tamper.as_ref().map_or(read, |tamper| tamper.range(begin, read));
        Box::pin(self.inner.get_range(begin, end, options, read)).await
    }
    pub(super) async fn visit(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<bool> {
        self.before_read().await?;
        self.shared.traffic.lock().reads += 1;
        Box::pin(self.inner.visit(begin, end, options, each)).await
    }
    pub(super) async fn visit_kept(
        &self,
        range: (&[u8], &[u8]),
        until: &[u8],
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<()> {
        self.before_read().await?;
        self.shared.traffic.lock().reads += 1;
        Box::pin(self.inner.visit_kept(range, until, each)).await
    }
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.note_write(key);
        self.inner.set(key, value)
    }
    pub(super) fn set_without_conflict(&self, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.note_write(key);
        self.inner.set_without_conflict(key, value)
    }
    pub(super) fn clear(&self, key: &[u8]) -> StoreResult<()> {
        self.note_write(key);
        self.inner.clear(key)
    }
    pub(super) fn clear_range(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.inner.clear_range(begin, end)
    }
    pub(super) fn add(&self, key: &[u8], delta: &[u8]) -> StoreResult<()> {
        self.note_write(key);
        self.inner.add(key, delta)
    }
    pub(super) fn max(&self, key: &[u8], operand: &[u8]) -> StoreResult<()> {
        self.note_write(key);
        self.inner.max(key, operand)
    }
    pub(super) fn set_stamped(&self, prefix: &[u8], suffix: &[u8], value: &[u8]) -> StoreResult<()> {
        self.inner.set_stamped(prefix, suffix, value)
    }
    pub(super) fn add_read_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        let noted = self.tamper.as_ref().is_none_or(|tamper| tamper.notes(begin));
        if noted { self.inner.add_read_conflict(begin, end) } else { Ok(()) }
    }
    pub(super) fn add_write_conflict(&self, begin: &[u8], end: &[u8]) -> StoreResult<()> {
        self.inner.add_write_conflict(begin, end)
    }
    pub(super) fn watch(&self, key: &[u8]) -> StoreResult<Watch> {
        let watch = self.inner.watch(key)?;
        Ok(match self.tamper.as_ref().and_then(|tamper| tamper.watches_after()) {
            Some(late) => watch_late(watch, late),
            None => watch,
        })
    }
    pub(super) async fn metadata_version(&self) -> StoreResult<u64> {
        self.before_read().await?;
        if self.tamper.as_ref().is_some_and(|tamper| tamper.metadata() == Read::Snapshot) {
            // A transaction at the same version, whose conflicts are dropped with it.
            let other = Box::pin(self.inner.again()).await?;
            return Box::pin(other.metadata_version()).await;
        }
        Box::pin(self.inner.metadata_version()).await
    }
    pub(super) fn bump_metadata_version(&self) -> StoreResult<()> {
        self.inner.bump_metadata_version()
    }
    pub(super) async fn read_version(&self) -> StoreResult<Version> {
        self.before_read().await?;
        Box::pin(self.inner.read_version()).await
    }
    pub(super) fn runs_at(&self, now: u64, sure: u64) {
        if let Some(observed) = &self.observed {
            observed.runs_at(now, sure);
        }
        self.inner.runs_at(now, sure);
    }
    /// Not a request to the engine: known since the read version is.
    pub(super) async fn generation(&self) -> StoreResult<u64> {
        Box::pin(self.inner.generation()).await
    }
    pub(super) fn limit(&self, time: Duration) {
        *self.limit.lock() = time;
        self.inner.limit(time);
    }
    pub(super) fn hand_over(&mut self) {
        self.inner.hand_over();
    }
    pub(super) fn is_write(&self) -> bool {
        self.inner.is_write()
    }
    pub(super) fn written(&self) -> usize {
        self.inner.written()
    }
    pub(super) fn nears_large(&self) -> bool {
        self.inner.nears_large()
    }
    pub(super) fn size(&self) -> usize {
        self.inner.size()
    }

    /// Boxed with a named type: a late commit is spawned, and the compiler cannot see through a cycle that it
    /// is `Send`.
    pub(super) fn commit(self: Box<Self>) -> Commit {
        Box::pin(self.commit_with_faults())
    }

    /// The engine's commit.
    fn apply(self: Box<Self>) -> Commit {
        let FaultyTx { inner, observed, .. } = *self;
        match observed {
            Some(observed) => Box::pin(observed.commit(inner)),
            None => Box::pin(inner.commit()),
        }
    }

    /// The engine's commit, a little later.
    fn apply_late(mut self: Box<Self>) {
        self.hand_over();
        tokio::spawn(async move {
            self.sleep().await;
            let _ = self.apply().await;
        });
    }

    async fn commit_with_faults(self: Box<Self>) -> StoreResult<Version> {
        if !self.inner.is_write() {
            return Box::pin(self.inner.commit()).await;
        }
        if self.tamper.as_ref().is_some_and(|tamper| tamper.answers_early()) {
            let read = Box::pin(self.inner.read_version()).await?;
            self.apply_late();
            return Ok(read + 1);
        }
        self.reach(true).await?;
        self.delay().await;
        self.shared.traffic.lock().commits += 1;
        if self.draw(|r| r.conflict, |c| &mut c.conflicts) {
            return Err(StoreError::Conflict);
        }
        if self.draw(|r| r.too_old_commit, |c| &mut c.too_old) {
            return Err(StoreError::TooOld);
        }
        if self.draw(|r| r.unknown_lost, |c| &mut c.unknown_lost) {
            return Err(StoreError::Unknown);
        }
        if self.draw(|r| r.unknown_late, |c| &mut c.unknown_late) {
            self.apply_late();
            return Err(StoreError::Unknown);
        }
        let applied = self.draw(|r| r.unknown_applied, |c| &mut c.unknown_applied);
        let version = self.apply().await?;
        if applied { Err(StoreError::Unknown) } else { Ok(version) }
    }
}
