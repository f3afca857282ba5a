//! The committer's queue: transactions that wait for it, and why else its thread is woken.

use super::Core;
use super::committer::{self, Request};
use super::reopen::Broken;
use super::snapshot::Offline;
use crate::error::{StoreError, StoreResult};
use std::time::Duration;
use tokio::sync::oneshot;

/// A pause in which tasks can run that some of the watches of a cleared range have woken.
const A_MOMENT: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Queue {
    pub(super) requests: Vec<Request>,
    /// The committer's thread has been asked to handle `requests`; otherwise the callers that queued them do.
    pub(super) called: bool,
    /// It has been asked to fire more watches of cleared ranges.
    pub(super) fires: bool,
    pub(super) failure: Option<String>,
    /// A failure on a thread other than the committer's, which the committer handles.
    pub(super) broken: Option<Broken>,
    pub(super) closing: bool,
    pub(super) closers: Vec<oneshot::Sender<StoreResult<()>>>,
}

/// The reasons to wake the committer.
pub(super) struct Work {
    pub(super) requests: Vec<Request>,
    pub(super) failure: Option<String>,
    pub(super) broken: Option<Broken>,
}

impl Core {
    /// Queues a transaction for the committer.
    pub(super) fn submit(&self, request: Request) -> StoreResult<()> {
        if !request.writes.is_empty()
            && let Some(reason) = self.refusal.load_full()
        {
            return Err(StoreError::ReadOnly(String::clone(&reason)));
        }
        let here = request.writes.size() < self.options.written_here;
        let mut queue = self.queue.lock();
        if queue.closing {
            return Err(Offline::Closed.into());
        }
        queue.requests.push(request);
        drop(queue);
        if !here || !committer::run_here(self) {
            self.call();
        }
        Ok(())
    }

    /// Has the committer's own thread fire more watches after [`A_MOMENT`].
    pub(super) fn fire_soon(&self) {
        self.queue.lock().fires = true;
        self.wake.notify_one();
    }

    /// Has the committer's own thread work.
    pub(super) fn call(&self) {
        self.queue.lock().called = true;
        self.wake.notify_one();
    }

    /// Waits for work; None once the store is closing and no work is left. Requests that their callers are
    /// about to commit themselves do not count: otherwise chance would decide on which thread a commit of a
    /// simulation runs.
    pub(super) fn wait_for_work(&self) -> Option<committer::Task> {
        let mut queue = self.queue.lock();
        let mut paused = false;
        loop {
            let asked = queue.called || queue.failure.is_some() || queue.broken.is_some();
            if asked || queue.closing && !queue.requests.is_empty() {
                return Some(committer::Task::Commit);
            }
            if queue.closing {
                return None;
            }
            if !queue.fires {
                self.wake.wait(&mut queue);
            } else if !paused {
                paused = self.wake.wait_for(&mut queue, A_MOMENT).timed_out();
            } else {
                queue.fires = false;
                return Some(committer::Task::Fire);
            }
        }
    }

    /// Has the committer reopen the database.
    pub(super) fn fail(&self, reason: String) {
        self.queue.lock().failure = Some(reason);
        self.wake.notify_one();
    }

    /// Whether the queue may be committed on a caller's thread: it is no longer than one commit may be there.
    pub(super) fn is_short(&self) -> bool {
        let queue = self.queue.lock();
        let bytes: usize = queue.requests.iter().map(|request| request.writes.size()).sum();
        bytes < self.options.written_here
    }

    /// Takes the pending work.
    pub(super) fn take_work(&self) -> Work {
        let mut queue = self.queue.lock();
        let requests = std::mem::take(&mut queue.requests);
        queue.called = false;
        Work { requests, failure: queue.failure.take(), broken: queue.broken.take() }
    }

    /// Waits at most `time`; returns the queued requests, and whether the store stays open.
    pub(super) fn pause(&self, time: Duration) -> (Vec<Request>, bool) {
        let mut queue = self.queue.lock();
        if queue.requests.is_empty() && !queue.closing {
            self.wake.wait_for(&mut queue, time);
        }
        queue.failure = None;
        (std::mem::take(&mut queue.requests), !queue.closing)
    }

    /// Stops both threads.
    pub(super) fn stop(&self, closer: Option<oneshot::Sender<StoreResult<()>>>) {
        let mut queue = self.queue.lock();
        if !queue.closing {
            queue.closing = true;
            queue.closers.extend(closer);
        }
        drop(queue);
        self.wake.notify_one();
        self.stop_syncing.notify_one();
    }

    pub(super) fn take_closers(&self) -> Vec<oneshot::Sender<StoreResult<()>>> {
        std::mem::take(&mut self.queue.lock().closers)
    }

    /// Rejects everything from now on: the committer has ended.
    pub(super) fn refuse_for_good(&self) {
        let mut queue = self.queue.lock();
        queue.closing = true;
        queue.requests.clear();
        drop(queue);
        self.go_offline(Offline::Closed);
    }
}
