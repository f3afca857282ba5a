//! The attempt loop: a batch is run until it is committed, exactly once, or answered with an error.
//!
//! **Exactly once.** A slot (a lane's, or a heavy unit's) has one transaction in flight. Every attempt has a number that
//! the slot never used before, writes it to the slot's key `l` and takes a read conflict on that key. After an unknown
//! commit the next attempt reads the key serializably in its own transaction:
//! * it holds the number of an attempt whose result was unknown: that attempt was committed, its replies stand;
//! * this server's registration is not the one under which that attempt began: others took it for dead and cleared its rows
//!   (`keyspace::instances`). Then nobody can know, and the clients hear that the result is unknown;
//! * it holds another number, or none: run again. The unknown attempt may still be in flight, but it and this one conflict on the key, so at
//!   most one of them is ever applied. (So a retry after an unknown commit writes the key even where its commands wrote
//!   nothing: otherwise the old attempt could still come after the answer.)
//!
//! **Conflicts.** The first conflict runs the batch again, the second one splits it, so that one contended unit does not hold
//! the others.
//!
//! **A store that cannot be reached** is tried again until `store-timeout` is over for a client ([`super::patience`]); then it gets
//! the error, and what comes later finds the store or does not: nothing has to be switched back. An attempt that may have been applied by then is
//! answered as unknown. A batch that grows beyond 1 MB or 100 ms is cut; what is left runs next.

use super::batch::{Batch, Halt};
use super::patience::Patience;
use super::staging::{self, Prepared};
use super::{Done, Job};
use crate::commands::cx::Server;
use crate::env::Rng;
use crate::error::{Error, StoreError};
use crate::keyspace::brake;
use crate::keyspace::keys::root;
use crate::keyspace::message_log;
use crate::keyspace::messages::Message;
use crate::store::{Read, Tx, key_after};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::MutexGuard;

/// Bytes written by one batch, beyond which no further unit joins.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Age of a batch, beyond which no further unit joins.
const MAX_BATCH_AGE: Duration = Duration::from_millis(100);

/// The key that makes unknown commits exactly-once, and the last number used.
pub(super) struct Slot {
    key: Vec<u8>,
    key_end: Vec<u8>,
    last: u64,
}

impl Slot {
    /// Slot `n` of this instance.
    pub(super) fn new(instance: u64, n: usize) -> Self {
        let key = root::lane(instance, n as u16);
        Slot { key_end: key_after(&key), key, last: 0 }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// An attempt whose commit result is unknown, and what its clients hear if it was committed.
struct Open {
    number: u64,
    /// The server's registration when the attempt began.
    epoch: u64,
    done: Vec<Done>,
    told: Vec<Message>,
}

/// Runs batches in one slot.
pub(super) struct Attempts {
    server: Arc<Server>,
    slot: Slot,
    rng: Rng,
    /// What was prepared for the heavy job under way.
    staged: Prepared,
    /// Its outcomes too.
    outcomes: bool,
    /// Members that got an id for that.
    made: u64,
    /// How long the last commit took; zero where nothing was to be committed.
    pub(super) commit_took: Duration,
}

impl Attempts {
    /// In `slot`.
    pub(super) fn new(server: Arc<Server>, slot: Slot) -> Self {
        let rng = server.env.rng();
        let (staged, commit_took) = (Prepared::new(), Duration::ZERO);
        Attempts { server, slot, rng, staged, outcomes: false, made: 0, commit_took }
    }

    /// Runs all jobs and answers them.
    pub(super) async fn drain(&mut self, jobs: &mut VecDeque<Job>) {
        self.commit_took = Duration::ZERO;
        while !jobs.is_empty() {
            self.some(jobs).await;
        }
    }

    /// Runs one job that may be too large for a transaction: prepares what it needs.
    pub(super) async fn drain_heavy(&mut self, jobs: &mut VecDeque<Job>) {
        (self.outcomes, self.made) = (false, 0);
        for job in jobs.iter_mut() {
            job.forced.may_build = true;
        }
        match self.stage(jobs).await {
            Ok(()) => {
                self.restart(jobs);
                self.drain(jobs).await;
            }
            Err(e) => refuse(jobs, jobs.len(), e),
        }
        staging::give_up(&self.server, &mut self.staged).await;
        self.staged.clear();
    }

    async fn stage(&mut self, jobs: &VecDeque<Job>) -> Result<(), Error> {
        staging::give_up(&self.server, &mut self.staged).await;
        if let Some(job) = jobs.front() {
            let prepare = staging::prepare(&self.server, &job.unit, self.outcomes, &mut self.staged);
            let (prepared, made) = brake::counting(prepare).await;
            self.made += made;
            prepared?;
        }
        Ok(())
    }

    /// Builds the outcomes of the job in front, which exceeds a transaction; once.
    async fn build(&mut self, jobs: &mut VecDeque<Job>) -> Result<(), Error> {
        if let Some(job) = jobs.front_mut() {
            job.forced.may_build = false;
        }
        self.outcomes = true;
        self.stage(jobs).await?;
        self.restart(jobs);
        Ok(())
    }

    /// What it took to build is not time in which the store was silent.
    fn restart(&self, jobs: &mut VecDeque<Job>) {
        let now = self.server.env.clock.monotonic();
        jobs.iter_mut().for_each(|job| job.since = now);
    }

    /// Runs jobs from the front until at least one is answered.
    async fn some(&mut self, jobs: &mut VecDeque<Job>) {
        let Some(oldest) = jobs.front() else { return };
        let mut patience = Patience::new(&self.server, oldest.since);
        let mut width = jobs.len();
        let mut open = Vec::new();
        for tries in 1u32.. {
            match self.attempt(jobs, width, &mut open, &mut patience).await {
                Ok(done) => return answer(jobs, done),
                Err(Halt::Rerun) => {}
                Err(Halt::Forgotten) => return self.give_up(jobs, &open, width, StoreError::Unknown.into()),
                Err(Halt::Store(e)) if width == 1 && outgrows(jobs, &e) => match self.build(jobs).await {
                    // Tried anew, with all its time.
                    Ok(()) if open.is_empty() => return,
                    Ok(()) => {}
                    Err(e) => return self.give_up(jobs, &open, 1, e),
                },
                Err(Halt::Store(e @ StoreError::TooLarge)) if width == 1 => {
                    return self.give_up(jobs, &open, 1, e.into());
                }
                Err(Halt::Store(e)) if may_succeed(&e) && !patience.is_over(&e) => {
                    self.server.telemetry.on_retry(&e);
                    patience.goes_on(&e);
                    if splits(&e, tries) {
                        width = 1;
                    }
                    self.back_off(tries).await;
                    if !self.staged.is_empty()
                        && let Err(e) = self.stage(jobs).await
                    {
                        return self.give_up(jobs, &open, jobs.len(), e);
                    }
                }
                Err(Halt::Store(e)) if !open.is_empty() => {
                    return self.give_up(jobs, &open, width, e.into());
                }
                Err(Halt::Store(e)) => {
                    let over = |job: &&Job| patience.is_over_for(job.since, &e);
                    let n = jobs.iter().take(width).take_while(over).count().max(1);
                    return refuse(jobs, n, patience.verdict(e).into());
                }
            }
        }
    }

    /// Refuses the first `n` jobs with `e`. Those that an attempt with an unknown result may have applied must not hear that they were
    /// not, and who has what it changed in a cache must hear that it may be stale.
    fn give_up(&self, jobs: &mut VecDeque<Job>, open: &[Open], n: usize, e: Error) {
        match open {
            [] => refuse(jobs, n, e),
            open => {
                self.server.tracking.doubt();
                refuse(jobs, doubtful(open, n), StoreError::Unknown.into());
            }
        }
    }

    /// One transaction over the first jobs, at most `width`: the answers of those that it held.
    async fn attempt(
        &mut self,
        jobs: &mut VecDeque<Job>,
        width: usize,
        open: &mut Vec<Open>,
        patience: &mut Patience,
    ) -> Result<Vec<Done>, Halt> {
        let clock = &self.server.env.clock;
        let instances = &self.server.space.instances;
        let (start, epoch) = (clock.monotonic(), instances.epoch());
        let tx = self.server.store.begin();
        patience.begin(&tx);
        if let Some(oldest) = open.first() {
            if !instances.is_current(&tx, oldest.epoch).await? {
                return Err(Halt::Forgotten);
            }
            let last = tx.get(&self.slot.key, Read::Serializable).await?;
            let last = last.and_then(|raw| Some(u64::from_le_bytes(raw[..].try_into().ok()?)));
            if let Some(at) = open.iter().position(|o| Some(o.number) == last) {
                let open = open.swap_remove(at);
                self.server.told(&open.told);
                return Ok(open.done);
            }
        }
        let mut batch = Batch::new(&self.server, &tx, self.rng.fork()).await?;
        if self.server.store.prefers_prefetch() && self.staged.is_empty() {
            batch.prefetch(jobs.iter().take(width).map(|j| &j.unit)).await;
        }
        let mut done = Vec::with_capacity(width);
        for job in jobs.iter_mut().take(width) {
            let mut one = batch.job(job, &self.staged).await?;
            one.made += self.made;
            done.push(one);
            if tx.size() > MAX_BATCH_BYTES || clock.monotonic() - start > MAX_BATCH_AGE {
                break;
            }
        }
        let told = batch.take_messages();
        let server = self.server.clone();
        let _turn = speak(&server, &tx, &told).await?;
        if tx.is_write() || !open.is_empty() {
            let number = self.slot.next();
            tx.add_read_conflict(&self.slot.key, &self.slot.key_end)?;
            tx.set(&self.slot.key, &number.to_le_bytes())?;
            let size = done.len();
            let ready = clock.monotonic();
            let result = tx.commit().await;
            self.commit_took = clock.monotonic() - ready;
            match result {
                Err(StoreError::Unknown) => {
                    open.push(Open { number, epoch, done, told });
                    return Err(StoreError::Unknown.into());
                }
                result => {
                    self.server.tracking.committed(result?);
                    self.server.telemetry.on_batch(size, clock.monotonic() - start);
                }
            }
        }
        server.told(&told);
        Ok(done)
    }

    /// Waits a random moment that grows with the tries; not at all after the first.
    async fn back_off(&mut self, tries: u32) {
        if tries > 1 {
            let micros = self.rng.below(100 << tries.min(9));
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}

/// Before the commit of a transaction that tells something: on a store of several servers that is written, else it waits for
/// its turn, which lasts until it has told it.
async fn speak<'a>(
    server: &'a Server,
    tx: &Tx,
    told: &[Message],
) -> Result<Option<MutexGuard<'a, ()>>, StoreError> {
    if told.is_empty() {
        return Ok(None);
    }
    if server.space.messages.is_shared() {
        return message_log::write(tx, told).map(|()| None);
    }
    if told.iter().all(Message::is_of_tracking) {
        return Ok(None);
    }
    Ok(Some(server.subscribers.turn().await))
}

/// Whether another attempt can help.
fn may_succeed(e: &StoreError) -> bool {
    e.is_retryable() || matches!(e, StoreError::Unknown | StoreError::TooLarge | StoreError::Unavailable(_))
}

/// Whether the job in front, which failed with `e`, needs more bytes or more time than a transaction has, and what it makes can
/// be built outside of one.
fn outgrows(jobs: &VecDeque<Job>, e: &StoreError) -> bool {
    matches!(e, StoreError::TooLarge | StoreError::TooOld)
        && jobs.front().is_some_and(|job| job.forced.may_build)
}

/// Whether the units of a batch do better one by one after its attempt number `tries` failed.
fn splits(e: &StoreError, tries: u32) -> bool {
    match e {
        StoreError::TooLarge => true,
        StoreError::Unavailable(_) => false,
        _ => tries > 1,
    }
}

/// How many of the first jobs an attempt with an unknown result may have applied, or are refused with it: `width` or more.
fn doubtful(open: &[Open], width: usize) -> usize {
    open.iter().map(|o| o.done.len()).fold(width, usize::max)
}

/// Answers the first jobs. A client that is gone needs none.
fn answer(jobs: &mut VecDeque<Job>, done: Vec<Done>) {
    let answered = done.len();
    for (job, done) in jobs.drain(..answered.min(jobs.len())).zip(done) {
        let _ = job.answer.send(done.of(job.unit));
    }
}

/// Answers the first `n` jobs with an error for each of their calls.
fn refuse(jobs: &mut VecDeque<Job>, n: usize, e: Error) {
    let refuse = |job: &Job| Done::refused(job.unit.client.clone(), job.unit.calls.len(), e.clone());
    let done = jobs.iter().take(n).map(refuse).collect();
    answer(jobs, done);
}
