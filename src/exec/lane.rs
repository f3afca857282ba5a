//! A queue of units and the tasks that drain it. A lane proper has one task, so that what queues while it commits becomes
//! the next batch; the heavy lane has several, and each takes one unit at a time.

use super::attempt::Attempts;
use super::{Done, Forced, Job, Unit, reads};
use crate::commands::cx::Server;
use crate::error::StoreError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Units of one batch at most.
const MAX_BATCH: usize = 1024;

/// The queue's end that connections hold. Bounded by the number of clients: each has one unit under way.
pub(super) struct Lane {
    queue: mpsc::UnboundedSender<Job>,
}

impl Lane {
    /// Starts a task for each of `workers`; they stop when the lane is dropped and its queue is empty.
    pub(super) fn spawn(workers: Vec<Attempts>) -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        let heavy = workers.len() > 1;
        let receiver = Arc::new(Mutex::new(receiver));
        for worker in workers {
            tokio::spawn(drain(worker, receiver.clone(), heavy));
        }
        Lane { queue }
    }

    /// For units that only read: they share read versions.
    pub(super) fn of_reads(server: Arc<Server>) -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        tokio::spawn(reads::serve(server, receiver));
        Lane { queue }
    }

    /// Runs a unit that came at `since`.
    pub(super) async fn run(&self, unit: Unit, since: Duration) -> Done {
        let (answer, done) = oneshot::channel();
        let client = unit.client.clone();
        let calls = unit.calls.len();
        let queued = self.queue.send(Job { unit, since, forced: Forced::default(), answer });
        match (queued, done.await) {
            (Ok(()), Ok(done)) => done,
            // The lane has ended: the server is stopping.
            _ => Done::refused(
                client,
                calls,
                StoreError::Unavailable("the server is shutting down".into()).into(),
            ),
        }
    }
}

async fn drain(mut worker: Attempts, receiver: Arc<Mutex<mpsc::UnboundedReceiver<Job>>>, heavy: bool) {
    let mut buffer = Vec::new();
    let mut jobs = VecDeque::new();
    let limit = if heavy { 1 } else { MAX_BATCH };
    while collect(&mut *receiver.lock().await, limit, &mut buffer).await {
        jobs.extend(buffer.drain(..));
        if heavy { worker.drain_heavy(&mut jobs).await } else { worker.drain(&mut jobs).await }
    }
}

/// Waits for jobs, `limit` at most; false once the queue has ended. Who found one and can take more lets all connections that
/// are ready come first, once: without that, the first of 50 would have a transaction of its own.
pub(super) async fn collect(
    queue: &mut mpsc::UnboundedReceiver<Job>,
    limit: usize,
    jobs: &mut Vec<Job>,
) -> bool {
    if queue.recv_many(jobs, limit).await == 0 {
        return false;
    }
    if limit > 1 {
        tokio::task::yield_now().await;
        while jobs.len() < limit
            && let Ok(job) = queue.try_recv()
        {
            jobs.push(job);
        }
    }
    true
}
