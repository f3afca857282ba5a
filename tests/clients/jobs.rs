//! BullMQ and RQ, queues of jobs that keep events and results in streams: `jobs.cjs` and `jobs.py`, which start and kill
//! workers.
//!
//! BullMQ works by Lua scripts that add to a stream of events, which is trimmed and which its users read with a waiting
//! XREAD. RQ adds each result to a stream of its job. A job runs once; that of a killed worker is finished by another.

use crate::libraries::{drive_to_end, node_script, python};

/// In RESP2, which ioredis speaks.
#[test]
fn bullmq() {
    let Some(command) = node_script("jobs.cjs", "ioredis", &["bullmq"]) else { return };
    let cases = ["each_once", "delayed", "prioritized", "retried", "flows", "killed", "starting_again"];
    drive_to_end(command, "2", &cases);
}

/// In RESP2: RQ takes the reply of XREAD for a list.
#[test]
fn rq() {
    let Some(command) = python("rq", "jobs.py") else { return };
    let cases = ["each_once", "results", "failures", "scheduled", "killed", "starting_again"];
    drive_to_end(command, "2", &cases);
}
