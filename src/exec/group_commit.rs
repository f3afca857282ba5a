//! Group commit: how a lane collects a batch.
//!
//! After a lane has found a job, and if it can take more, it lets every connection that is ready go first,
//! once. Otherwise the first of 50 clients would get a transaction of its own.
//!
//! If a commit takes long, because it syncs or crosses a network, waiting longer pays. The clients that were
//! just answered are about to send again, while others have queued meanwhile; without a wait, the two halves
//! would take turns, with one sync each. So the lane waits until as many jobs have arrived as it has just
//! answered, on top of those already queued, but no longer than a commit takes. After a wait that brings no
//! job (the clients left, or are thinking), the lane does not wait for a while.

use super::unit::Job;
use crate::env::Clock;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;

/// Commits shorter than this, which are those without a sync, are not waited for.
const LONG: Duration = Duration::from_micros(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// The most times that one wait yields to other tasks, in case the clock stands still.
const TURNS: usize = 1000;
/// The number of batches without a wait after a wait that brought nothing.
const REST: u32 = 16;

/// The state that a lane keeps about its last batch.
pub(super) struct GroupCommit {
    clock: Clock,
    limit: usize,
    took: Duration,
    answered: usize,
    rest: u32,
}

impl GroupCommit {
    /// For batches of at most `limit` jobs.
    pub(super) fn new(clock: Clock, limit: usize) -> Self {
        GroupCommit { clock, limit, took: Duration::ZERO, answered: 0, rest: 0 }
    }

    /// Waits for jobs; false once the queue has ended.
    pub(super) async fn collect(&mut self, queue: &mut UnboundedReceiver<Job>, jobs: &mut Vec<Job>) -> bool {
        // None of the clients just answered can have sent again yet.
        let wanted = (queue.len() + self.answered).min(self.limit);
        if queue.recv_many(jobs, self.limit).await == 0 {
            return false;
        }
        if self.limit > 1 {
            yield_now().await;
            self.take(queue, jobs);
            if self.took >= LONG {
                self.wait(queue, jobs, wanted).await;
            }
        }
        self.answered = jobs.len();
        true
    }

    /// Records that the batch was answered; its commit took `took`.
    pub(super) fn record_commit(&mut self, took: Duration) {
        self.took = took;
    }

    fn take(&self, queue: &mut UnboundedReceiver<Job>, jobs: &mut Vec<Job>) {
        while jobs.len() < self.limit
            && let Ok(job) = queue.try_recv()
        {
            jobs.push(job);
        }
    }

    async fn wait(&mut self, queue: &mut UnboundedReceiver<Job>, jobs: &mut Vec<Job>, wanted: usize) {
        if jobs.len() >= wanted {
            return;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let (found, until) = (jobs.len(), self.clock.monotonic() + self.took.min(LONGEST_WAIT));
        for _ in 0..TURNS {
            if jobs.len() >= wanted || self.clock.monotonic() >= until {
                break;
            }
            yield_now().await;
            self.take(queue, jobs);
        }
        if jobs.len() == found {
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    fn job() -> Job {
        fixtures::job(fixtures::unit(&[]), Duration::ZERO).0
    }

    #[tokio::test]
    async fn a_wait_ends_though_the_clock_stands_still_and_nobody_comes() {
        let (queue, mut receiver) = mpsc::unbounded_channel();
        let mut group = GroupCommit::new(Clock::Manual(Arc::default()), 100);
        (group.took, group.answered) = (LONG, 5);
        let mut jobs = Vec::new();
        assert!(queue.send(job()).is_ok() && group.collect(&mut receiver, &mut jobs).await);
        assert_eq!((jobs.len(), group.answered, group.rest), (1, 1, REST));
    }

    #[tokio::test]
    async fn the_clients_just_answered_are_waited_for() {
        let (queue, mut receiver) = mpsc::unbounded_channel();
        let mut group = GroupCommit::new(Clock::Manual(Arc::default()), 100);
        (group.took, group.answered) = (LONG, 2);
        let mut jobs = Vec::new();
        let late = async {
            for _ in 0..20 {
                yield_now().await;
            }
            assert!(queue.send(job()).is_ok() && queue.send(job()).is_ok());
        };
        assert!(queue.send(job()).is_ok());
        assert!(tokio::join!(group.collect(&mut receiver, &mut jobs), late).0);
        assert_eq!((jobs.len(), group.rest), (3, 0));
    }

    #[tokio::test]
    async fn a_client_alone_is_not_kept_waiting() {
        let (queue, mut receiver) = mpsc::unbounded_channel();
        let mut group = GroupCommit::new(Clock::Manual(Arc::default()), 100);
        (group.took, group.answered) = (LONG, 1);
        let mut jobs = Vec::new();
        let alone = async {
            yield_now().await;
            assert!(queue.send(job()).is_ok());
        };
        assert!(tokio::join!(group.collect(&mut receiver, &mut jobs), alone).0);
        assert_eq!((jobs.len(), group.rest), (1, 0), "neither waited nor counted as a wait for nothing");
    }
}
