//! A queue of units and the tasks that drain it. An ordinary lane has one task, so that units queued while it
//! commits become the next batch; the heavy lane has several tasks, each of which takes one unit at a time.

use super::attempt::Attempts;
use super::group_commit::GroupCommit;
use super::reads;
use super::unit::{Done, Forced, Job, LARGE, Unit};
use crate::env::{Clock, each_aside};
use crate::error::StoreError;
use crate::server::Server;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};

/// The most units in one batch.
const MAX_BATCH: usize = 1024;

/// The sending end of the queue. Its length is bounded by the number of clients, because each has one unit in
/// flight.
pub(super) struct Lane {
    queue: mpsc::UnboundedSender<Job>,
}

impl Lane {
    /// Starts a task for each of `workers`. The tasks stop once the lane is dropped and its queue is empty.
    pub(super) fn spawn(clock: &Clock, workers: Vec<Attempts>) -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        let heavy = workers.len() > 1;
        let receiver = Arc::new(Mutex::new(receiver));
        for worker in workers {
            let group = GroupCommit::new(clock.clone(), if heavy { 1 } else { MAX_BATCH });
            tokio::spawn(drain(worker, group, receiver.clone(), heavy));
        }
        Lane { queue }
    }

    /// A lane for read-only units, which share read versions.
    pub(super) fn of_reads(server: Arc<Server>) -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        tokio::spawn(reads::serve(server, receiver));
        Lane { queue }
    }

    /// A sender for jobs of this lane.
    pub(super) fn queue(&self) -> mpsc::UnboundedSender<Job> {
        self.queue.clone()
    }

    /// Runs a unit that arrived at `since`.
    pub(super) async fn run(&self, unit: Unit, since: Duration) -> Done {
        let (answer, done) = oneshot::channel();
        let client = unit.client.clone();
        let calls = unit.calls.len();
        let queued = self.queue.send(Job { unit, since, forced: Forced::default(), answer });
        match (queued, done.await) {
            (Ok(()), Ok(done)) => done,
            // The lane has ended because the server is stopping.
            _ => Done::refused(
                client,
                calls,
                StoreError::Unavailable("the server is shutting down".into()).into(),
            ),
        }
    }
}

async fn drain(
    mut worker: Attempts,
    mut group: GroupCommit,
    receiver: Arc<Mutex<mpsc::UnboundedReceiver<Job>>>,
    heavy: bool,
) {
    let mut buffer = Vec::new();
    let mut jobs = VecDeque::new();
    while group.collect(&mut *receiver.lock().await, &mut buffer).await {
        jobs.extend(buffer.drain(..));
        if heavy && jobs.iter().any(|job| job.unit.weight() > LARGE) {
            each_aside(Box::pin(worker.drain_heavy(&mut jobs))).await
        } else if heavy {
            worker.drain_heavy(&mut jobs).await
        } else {
            worker.drain(&mut jobs).await
        }
        group.record_commit(worker.commit_took);
    }
}
