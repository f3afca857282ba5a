//! The attempt loop: retries a batch until it commits, exactly once, or fails with an error.
//!
//! **Exactly once.** A slot (a lane's, or a heavy unit's) has one transaction in flight. Every attempt takes
//! a number that the slot has never used, writes it to the slot's key `l`, and takes a read conflict on that
//! key. After an unknown commit, the next attempt reads the key serializably in its own transaction:
//!
//! * The key holds the number of an attempt whose result was unknown: that attempt was committed, and its
//!   replies stand.
//! * This server's registration is no longer the one under which that attempt began: other servers took this
//!   one for dead and cleared its rows (`keyspace::cluster::instances`). The outcome can no longer be known:
//!   the clients are told that the result is unknown.
//! * The key holds another number, or none: run again. The unknown attempt may still be in flight, but it
//!   conflicts with this one on the key, so at most one of them is ever applied. For the same reason, a retry
//!   after an unknown commit writes the key even if its commands write nothing: otherwise the old attempt
//!   could still be applied after the answer.
//!
//! **Expiry.** A key that a batch has seen alive must still be alive, for everybody, until the batch commits:
//! [`crate::keyspace::life`]. An open attempt keeps its claim, because it may have been applied.
//!
//! **Conflicts.** A batch that conflicts is retried with fewer units ([`super::width`]). A unit alone, or several of
//! the same keys, that keep conflicting fence their keys, after 1 to 6 conflicts depending on the duration of their
//! attempts, and other writers of those keys wait for them ([`crate::keyspace::cluster::fences`]). The units behind
//! them that need no other keys run with them.
//!
//! **An unreachable store** is retried until a client's `store-timeout` has passed ([`super::deadline`]).
//! That client then gets the error; later units try the store again, so nothing has to be switched back. An
//! attempt that may have been applied by then is answered as unknown.
//!
//! **Size.** A batch that grows beyond 1 MB, 2000 rows or 100 ms is cut, a pipeline in it too; the rest runs next.

use super::batch::{Batch, Halt, is_full, refused};
use super::deadline::Deadline;
use super::prebuild::{self, Prebuilds};
use super::unit::{Beside, Done, Job};
use super::width::{TOGETHER, Width, are_alike, fenced_after};
use crate::dispatch::Call;
use crate::env::{Claim, Rng, aside, aside_of};
use crate::error::{Error, StoreError};
use crate::keyspace::cluster::fences::Fence;
use crate::keyspace::dictionary::backpressure;
use crate::keyspace::keys::root;
use crate::server::Server;
use crate::server::publisher::{Delivery, Publication};
use crate::store::{Read, Tx, key_after};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The longest pause between fencing and the next attempt, which is otherwise as long as the last attempt.
const SETTLE: Duration = Duration::from_millis(20);
/// Age of a batch after which no further unit joins it.
const MAX_BATCH_AGE: Duration = Duration::from_millis(100);

/// The key that makes unknown commits exactly-once, and the last number used.
pub(super) struct Slot {
    n: u16,
    key: Vec<u8>,
    key_end: Vec<u8>,
    last: u64,
}

impl Slot {
    /// Slot `n` of this instance.
    pub(super) fn new(instance: u64, n: usize) -> Self {
        let n = n as u16;
        let key = root::lane(instance, n);
        Slot { n, key_end: key_after(&key), key, last: 0 }
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
    published: Publication,
    _claim: Option<Claim>,
}

/// Runs batches in one slot.
pub(super) struct Attempts {
    server: Arc<Server>,
    slot: Slot,
    rng: Rng,
    /// The queues for units that turn out to be heavy; only a lane has them.
    beside: Option<Beside>,
    /// What was prebuilt for the current heavy job.
    prebuilds: Prebuilds,
    /// Whether large results are prebuilt too.
    with_results: bool,
    /// The number of members that got an id while prebuilding.
    made: u64,
    /// Keeps other writers off the keys of the front job.
    fence: Option<Fence>,
    width: Width,
    /// Whether the counts of sorted sets move once a batch.
    counts_later: bool,
    /// The last attempt saw something alive that expired before the attempt could commit.
    too_late: bool,
    /// When the store last answered all that a job or its prebuilding asked for.
    answered: Duration,
    /// Duration of the last commit; zero if nothing had to be committed.
    pub(super) commit_took: Duration,
}

impl Attempts {
    /// Creates the loop of one slot.
    pub(super) fn new(server: Arc<Server>, slot: Slot) -> Self {
        let rng = server.env.rng();
        let (prebuilds, answered, commit_took) = (Prebuilds::new(), Duration::ZERO, Duration::ZERO);
        Attempts {
            server,
            slot,
            rng,
            beside: None,
            prebuilds,
            with_results: false,
            made: 0,
            fence: None,
            width: Width::unlimited(),
            counts_later: true,
            too_late: false,
            answered,
            commit_took,
        }
    }

    /// Makes this the loop of a lane, which passes heavy jobs on.
    pub(super) fn passing_on(self, beside: Beside) -> Self {
        Attempts { beside: Some(beside), ..self }
    }

    /// Runs all jobs and answers them.
    pub(super) async fn drain(&mut self, jobs: &mut VecDeque<Job>) {
        self.commit_took = Duration::ZERO;
        while !jobs.is_empty() {
            let waiting = jobs.len();
            self.run_some(jobs).await;
            if jobs.len() < waiting {
                self.fence = None;
            }
        }
    }

    /// Runs one job that may be too large for a transaction, after prebuilding what it needs.
    pub(super) async fn drain_heavy(&mut self, jobs: &mut VecDeque<Job>) {
        (self.with_results, self.made) = (false, 0);
        let clock = &self.server.env.clock;
        for job in jobs.iter_mut() {
            job.forced.may_prebuild = true;
            let waits = clock.monotonic();
            // Wait for fences that were put up while the job was queued.
            self.server.space.fences.pass(|| job.unit.written()).await;
            job.since += clock.monotonic().saturating_sub(waits);
        }
        match self.prebuild(jobs).await {
            Ok(()) => {
                self.set_deadline(jobs);
                self.drain(jobs).await;
            }
            Err(e) => refuse(jobs, jobs.len(), e),
        }
        self.fence = None;
        prebuild::abandon_unused(&self.server, &mut self.prebuilds).await;
        self.prebuilds.clear();
    }

    /// Prebuilds what the front job needs, behind a fence if its inputs change too often.
    async fn prebuild(&mut self, jobs: &VecDeque<Job>) -> Result<(), Error> {
        match self.try_prebuild(jobs).await {
            Err(Error::Store(StoreError::Conflict)) if self.fence.is_none() => {
                self.keep_others_off(jobs).await;
                self.tell_others(Duration::MAX).await;
                self.try_prebuild(jobs).await
            }
            prebuilt => prebuilt,
        }
    }

    async fn try_prebuild(&mut self, jobs: &VecDeque<Job>) -> Result<(), Error> {
        prebuild::abandon_unused(&self.server, &mut self.prebuilds).await;
        if let Some(job) = jobs.front() {
            // Only the first call of a pipeline that a lane has passed on runs here.
            let alone = job.forced.is_heavy && !job.unit.exec;
            let calls = if alone { job.unit.calls.get(..1) } else { None };
            let calls = calls.unwrap_or(&job.unit.calls);
            let db = job.unit.client.db;
            let work = prebuild::for_calls(&self.server, db, calls, self.with_results, &mut self.prebuilds);
            let (result, made) = backpressure::counting(work).await;
            self.made += made;
            result?;
            if !self.prebuilds.is_empty() {
                self.answered = self.server.env.clock.monotonic();
            }
        }
        Ok(())
    }

    /// Prebuilds, once, the large results of the front job, which exceeds a transaction.
    async fn prebuild_results(&mut self, jobs: &mut VecDeque<Job>) -> Result<(), Error> {
        if let Some(job) = jobs.front_mut() {
            job.forced.may_prebuild = false;
        }
        self.with_results = true;
        self.prebuild(jobs).await?;
        self.set_deadline(jobs);
        Ok(())
    }

    /// Fences the keys of the front job. False if other fences are in the way and other jobs queue here,
    /// because those must not wait for the fences.
    async fn keep_others_off(&mut self, jobs: &VecDeque<Job>) -> bool {
        let Some(job) = jobs.front() else { return true };
        let hashes = || (job.unit.touched().into_iter().collect(), job.unit.written().into_iter().collect());
        let (keys, written): (HashSet<u64>, HashSet<u64>) = aside(hashes);
        if self.fence.is_some() || keys.is_empty() {
            return true;
        }
        let space = &self.server.space;
        self.fence = match self.beside {
            Some(_) => space.try_fence(keys, written),
            None => Some(space.fence(keys, written).await),
        };
        self.fence.is_some()
    }

    /// Fences the keys of the front job, and gives units in flight time to end. The last attempt took this long.
    /// False as for [`Attempts::keep_others_off`].
    async fn settle(&mut self, jobs: &VecDeque<Job>, deadline: &mut Deadline, took: Duration) -> bool {
        let clock = self.server.env.clock.clone();
        let waits = clock.monotonic();
        let is_fenced = self.keep_others_off(jobs).await;
        // Waiting for other units is not time in which the store was silent.
        deadline.extend(clock.monotonic().saturating_sub(waits));
        self.tell_others(deadline.left()).await;
        tokio::time::sleep(took.min(SETTLE)).await;
        is_fenced
    }

    /// The number of first jobs that need no other keys than those that are fenced, at least 1.
    fn behind_fence(&self, jobs: &VecDeque<Job>) -> usize {
        let Some((keys, writes)) = self.fence.as_ref().map(Fence::keys) else { return 1 };
        let calls = jobs.iter().map(|job| job.unit.calls.len()).sum();
        let is_behind = |job: &&Job| job.unit.is_within(keys, writes);
        aside_of(calls, || jobs.iter().skip(1).take_while(is_behind).count() + 1)
    }

    /// Informs other servers of the fence, if there is time.
    async fn tell_others(&mut self, within: Duration) {
        if let Some(fence) = &mut self.fence {
            self.server.space.tell(fence, self.slot.n, within).await;
        }
    }

    /// Sets the retry deadline of heavy jobs: the store was not silent while it answered what this slot had to do
    /// before them.
    fn set_deadline(&self, jobs: &mut VecDeque<Job>) {
        jobs.iter_mut().for_each(|job| job.since = job.since.max(self.answered));
    }

    /// Runs jobs from the front until at least one is answered.
    async fn run_some(&mut self, jobs: &mut VecDeque<Job>) {
        let Some(oldest) = jobs.front() else { return };
        let mut deadline = Deadline::new(&self.server, oldest.since);
        let (mut width, mut open) = (self.width.of(jobs.len()), Vec::new());
        self.counts_later = true;
        for tries in 1u32.. {
            let begun = self.server.env.clock.monotonic();
            match self.attempt(jobs, width, &mut open, &mut deadline).await {
                Ok((done, delivery)) => {
                    self.answered = self.server.env.clock.monotonic();
                    self.width.committed(done.len());
                    return answer_after(delivery, jobs, done);
                }
                Err(Halt::Rerun) => {}
                Err(Halt::Uncounted) => self.counts_later = false,
                Err(Halt::TooHeavy) => {
                    width = self.pass_on(jobs);
                    if jobs.is_empty() {
                        return;
                    }
                }
                Err(Halt::Forgotten) => return self.give_up(jobs, &open, width, StoreError::Unknown.into()),
                Err(Halt::Store(e)) if width == 1 && outgrows(jobs, &e) => {
                    match self.prebuild_results(jobs).await {
                        Ok(()) if open.is_empty() => return, // retried with a full deadline
                        Ok(()) => {}
                        Err(e) => return self.give_up(jobs, &open, 1, e),
                    }
                }
                Err(Halt::Store(e @ StoreError::TooLarge)) if width == 1 => {
                    return self.give_up(jobs, &open, 1, e.into());
                }
                Err(Halt::Store(e)) if deadline.retries(&self.server, &e) => {
                    let took = self.server.env.clock.monotonic().saturating_sub(begun);
                    match self.contend(jobs, &mut deadline, &e, (tries, width, took), open.is_empty()).await {
                        Some(next) => width = next,
                        None => return,
                    }
                    self.back_off(tries).await;
                    // After an unknown commit, the next attempt first checks whether it was applied; if not,
                    // what was prebuilt is still valid.
                    if !self.prebuilds.is_empty()
                        && e != StoreError::Unknown
                        && let Err(e) = self.prebuild(jobs).await
                    {
                        return self.give_up(jobs, &open, jobs.len(), e);
                    }
                }
                Err(Halt::Store(e)) if !open.is_empty() => {
                    return self.give_up(jobs, &open, width, e.into());
                }
                Err(Halt::Store(e)) => {
                    let over = |job: &&Job| deadline.is_over_for(job.since, &e);
                    let n = jobs.iter().take(width).take_while(over).count().max(1);
                    return refuse(jobs, n, deadline.final_error(e).into());
                }
            }
        }
    }

    /// How many of the first `width` jobs run next, after attempt `tries`, which took `took`, failed with `e`; it fences
    /// their keys if it is time for that. None: the front job was passed on, which is allowed if `may_pass`.
    pub(super) async fn contend(
        &mut self,
        jobs: &mut VecDeque<Job>,
        deadline: &mut Deadline,
        e: &StoreError,
        (tries, width, took): (u32, usize, Duration),
        may_pass: bool,
    ) -> Option<usize> {
        if self.too_late {
            return Some(width);
        }
        let is_conflict = *e == StoreError::Conflict;
        let stays = is_conflict && tries < TOGETHER && are_alike(jobs, width);
        let width = if stays { width } else { self.width.after(e, tries, width) };
        if !is_conflict || !stays && width > 1 || !self.is_to_fence(tries, took) {
            return Some(width);
        }
        // An attempt that may have been applied is resolved here.
        if !self.settle(jobs, deadline, took).await && may_pass {
            self.pass_on_front(jobs);
            return None;
        }
        let behind = self.behind_fence(jobs);
        // Only what an open attempt held may be answered as unknown.
        Some(if may_pass { behind } else { behind.min(width) })
    }

    /// Passes the front job on to the heavy lane, where it can wait for fences.
    fn pass_on_front(&self, jobs: &mut VecDeque<Job>) {
        if let Some(job) = jobs.front_mut() {
            job.forced.is_heavy = true;
        }
        self.pass_on(jobs);
    }

    /// Passes the heavy job on to the heavy lane. Returns the number of jobs to run next: those that ran
    /// before it in vain, so that no job runs in vain more than once.
    fn pass_on(&self, jobs: &mut VecDeque<Job>) -> usize {
        let at = jobs.iter().position(|job| job.forced.is_heavy);
        if let (Some(beside), Some(job)) = (&self.beside, at.and_then(|at| jobs.remove(at))) {
            beside.send(job);
        }
        at.filter(|at| *at > 0).unwrap_or_else(|| self.width.of(jobs.len()))
    }

    /// Refuses the first `n` jobs with `e`. An attempt with an unknown result may have applied jobs: their
    /// clients must not be told that they failed, and clients that cache what it may have changed must be
    /// told that their copies may be stale.
    fn give_up(&self, jobs: &mut VecDeque<Job>, open: &[Open], n: usize, e: Error) {
        match open {
            [] => refuse(jobs, n, e),
            open => {
                self.server.tracking.doubt();
                refuse(jobs, doubtful(open, n), StoreError::Unknown.into());
            }
        }
    }

    /// Runs one transaction over the first jobs, at most `width`. Returns the replies of those it held, and
    /// when they may be sent.
    async fn attempt(
        &mut self,
        jobs: &mut VecDeque<Job>,
        width: usize,
        open: &mut Vec<Open>,
        deadline: &mut Deadline,
    ) -> Result<(Vec<Done>, Delivery), Halt> {
        let clock = &self.server.env.clock;
        let (start, epoch) = (clock.monotonic(), self.server.space.instances.epoch());
        let timeline = &self.server.env.timeline;
        // With many keys that expire soon, one always expires during an attempt: time is held for them.
        let hold = if std::mem::take(&mut self.too_late) { Some(timeline.hold().await) } else { None };
        let now = timeline.now();
        let tx = self.server.store.begin();
        deadline.begin(&tx);
        if let Some((done, published)) = self.resolved(&tx, open).await? {
            let turn = self.server.turn(&published).await;
            return Ok((done, self.server.publish_in(published, turn).await));
        }
        let mut batch = Batch::new(&self.server, &tx, now, self.rng.fork()).await?;
        // An attempt that may have been applied is resolved here, not passed on.
        batch.runner.in_lane = self.beside.is_some() && open.is_empty();
        batch.runner.uncounted = self.counts_later.then(Default::default);
        if self.server.store.prefers_prefetch() && self.prebuilds.is_empty() {
            batch.prefetch(jobs.iter().take(width).map(|j| &j.unit)).await;
        }
        let (mut done, mut published, mut touched) = (Vec::with_capacity(width), 0, 0);
        for n in 0..width {
            batch.touch_from(n, jobs.iter().take(width), &mut touched);
            let Some(job) = jobs.get_mut(n) else { break };
            let one = batch.run_job(job, &self.prebuilds).await;
            job.forced.is_heavy |= matches!(one, Err(Halt::TooHeavy));
            let mut one = one?;
            one.made += self.made;
            one.published = batch.published() - published;
            published += one.published;
            done.push(one);
            if is_full(&tx) || clock.monotonic() - start > MAX_BATCH_AGE {
                break;
            }
        }
        batch.settle().await?;
        let published = Publication::new(batch.take_messages(), done.iter().map(|done| done.published));
        tx.foresee().await;
        let turn = self.server.take_turn(&tx, &published).await?;
        if tx.is_write() || !open.is_empty() {
            let number = self.slot.next();
            tx.add_read_conflict(&self.slot.key, &self.slot.key_end)?;
            tx.set(&self.slot.key, &number.to_le_bytes())?;
            let claim = batch.runner.lives.claim(timeline, hold.is_some() || !open.is_empty());
            self.too_late = claim.is_err();
            let _claim = claim?;
            let (has_counted, ready) = (batch.has_counted(), clock.monotonic());
            let result = tx.commit().await;
            self.commit_took = clock.monotonic() - ready;
            match result {
                Err(StoreError::Unknown) => {
                    open.push(Open { number, epoch, done, published, _claim });
                    return Err(StoreError::Unknown.into());
                }
                result => {
                    self.server.tracking.committed(result.map_err(|e| refused(e, has_counted))?);
                    self.server.telemetry.on_batch(done.len(), clock.monotonic() - start);
                }
            }
        }
        drop(hold);
        Ok((done, self.server.publish_in(published, turn).await))
    }

    /// Returns the replies and messages of the open attempt that was committed, and drops the claims of all
    /// open attempts.
    async fn resolved(
        &self,
        tx: &Tx,
        open: &mut Vec<Open>,
    ) -> Result<Option<(Vec<Done>, Publication)>, Halt> {
        let Some(oldest) = open.first() else { return Ok(None) };
        if !self.server.space.instances.is_current(tx, oldest.epoch).await? {
            return Err(Halt::Forgotten);
        }
        let last = tx.get(&self.slot.key, Read::Serializable).await?;
        let last = last.and_then(|raw| Some(u64::from_le_bytes(raw[..].try_into().ok()?)));
        let Some(at) = open.iter().position(|o| Some(o.number) == last) else { return Ok(None) };
        let Open { done, published, .. } = open.swap_remove(at);
        open.clear();
        Ok(Some((done, published)))
    }

    /// Whether the front job should fence its keys after attempt `tries`, which lasted `took`, met a
    /// conflict. It does so at once if its results were prebuilt, because prebuilding takes longer than
    /// any attempt.
    fn is_to_fence(&self, tries: u32, took: Duration) -> bool {
        self.fence.is_none() && (self.with_results || tries >= fenced_after(took))
    }

    /// Sleeps for a random time that grows with the number of tries; not after the first.
    async fn back_off(&mut self, tries: u32) {
        if tries > 1 {
            let micros = self.rng.below(100 << tries.min(9));
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}

/// Whether the front job, which failed with `e`, exceeds the size or time of a transaction and can be
/// prebuilt.
fn outgrows(jobs: &VecDeque<Job>, e: &StoreError) -> bool {
    let may_prebuild =
        |job: &Job| job.forced.may_prebuild && job.unit.calls.iter().any(Call::can_be_prebuilt);
    matches!(e, StoreError::TooLarge | StoreError::TooOld) && jobs.front().is_some_and(may_prebuild)
}

/// The number of first jobs to answer as unknown: those that an open attempt may have applied, at least
/// `width`.
fn doubtful(open: &[Open], width: usize) -> usize {
    open.iter().map(|o| o.done.len()).fold(width, usize::max)
}

/// Answers the first jobs. The client may have gone.
fn answer(jobs: &mut VecDeque<Job>, done: Vec<Done>) {
    let answered = done.len();
    for (job, done) in jobs.drain(..answered.min(jobs.len())).zip(done) {
        let _ = job.answer.send(done.answering(job.unit));
    }
}

/// Like [`answer`], once the jobs' messages have been delivered. Jobs with few messages do not wait for those
/// with many, and later batches wait for neither.
fn answer_after(mut delivery: Delivery, jobs: &mut VecDeque<Job>, done: Vec<Done>) {
    if delivery.is_over() {
        return answer(jobs, done);
    }
    let answered = jobs.drain(..done.len().min(jobs.len())).zip(done).enumerate();
    let (little, much): (Vec<_>, Vec<_>) = answered.partition(|(n, _)| delivery.is_little(*n));
    let send = |(_, (job, done)): (usize, (Job, Done))| drop(job.answer.send(done.answering(job.unit)));
    tokio::spawn(async move {
        delivery.a_moment().await;
        little.into_iter().for_each(send);
        delivery.arrival().await;
        much.into_iter().for_each(send);
    });
}

/// Answers the first `n` jobs with an error for each of their calls.
fn refuse(jobs: &mut VecDeque<Job>, n: usize, e: Error) {
    let refuse = |job: &Job| Done::refused(job.unit.client.clone(), job.unit.calls.len(), e.clone());
    let done = jobs.iter().take(n).map(refuse).collect();
    answer(jobs, done);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::{job, unit};

    fn jobs(lines: &[&str]) -> VecDeque<Job> {
        lines.iter().map(|line| job(unit(&[line]), Duration::ZERO).0).collect()
    }

    #[test]
    fn what_exceeds_a_transaction_is_prebuilt_once() {
        let mut jobs = jobs(&["SUNIONSTORE d a b", "SET k v"]);
        assert!(!outgrows(&jobs, &StoreError::TooLarge), "not in a lane");
        jobs[0].forced.may_prebuild = true;
        assert!(outgrows(&jobs, &StoreError::TooLarge) && outgrows(&jobs, &StoreError::TooOld));
        assert!(!outgrows(&jobs, &StoreError::Conflict));
        jobs.pop_front();
        jobs[0].forced.may_prebuild = true;
        assert!(!outgrows(&jobs, &StoreError::TooLarge), "nothing of a SET is prebuilt");
    }

    #[test]
    fn all_that_an_unknown_attempt_held_is_doubtful() {
        let open = |n: usize| Open {
            number: 1,
            epoch: 1,
            done: unit(&["GET k"].repeat(n)).calls.into_iter().map(done).collect(),
            published: Publication::default(),
            _claim: None,
        };
        assert_eq!(doubtful(&[], 3), 3);
        assert_eq!(doubtful(&[open(2), open(5), open(1)], 3), 5);
        assert_eq!(doubtful(&[open(2)], 3), 3);
    }

    fn done(_: Call) -> Done {
        Done::new(Box::new(crate::server::ClientState::new(Arc::default(), true)), None, Default::default())
    }

    #[tokio::test]
    async fn jobs_are_answered_in_order_and_the_rest_wait() {
        let (first, mut heard) = job(unit(&["GET a", "GET b"]), Duration::ZERO);
        let (second, mut waits) = job(unit(&["GET c"]), Duration::ZERO);
        let mut jobs = VecDeque::from([first, second]);
        refuse(&mut jobs, 1, StoreError::Conflict.into());
        assert_eq!(jobs.len(), 1);
        let refused = heard.try_recv().unwrap();
        assert_eq!((refused.replies.unwrap().len(), refused.ran.len(), refused.rest.len()), (2, 2, 0));
        assert!(refused.refused.is_some() && waits.try_recv().is_err());
    }

    #[test]
    fn a_slot_never_uses_a_number_twice() {
        let mut slot = Slot::new(7, 3);
        assert_eq!([slot.next(), slot.next(), slot.next()], [1, 2, 3]);
        assert_eq!(slot.key_end, key_after(&slot.key));
        assert!(slot.key != Slot::new(7, 4).key && slot.key != Slot::new(8, 3).key);
    }
}
