//! Celery, a task queue, with the server as its broker and its store of results: `queues.py`, which starts and
//! kills workers.
//!
//! A program of its own kind: a worker waits in BRPOP on the lists of all priorities while a subscription and
//! ordinary commands share its event loop, and what it has taken lives in a hash and a sorted set until it
//! acknowledges. Tasks are taken in the order of their priorities and run once; those of a killed worker are
//! restored.

use crate::libraries::{drive_to_end, python};

/// In RESP3, which Celery gets from redis-py without asking.
#[test]
fn celery() {
    let Some(command) = python("celery", "queues.py") else { return };
    drive_to_end(command, "3", &["priorities", "results", "restored"]);
}
