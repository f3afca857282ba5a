//! Units and how they run: writes through lanes, reads on a snapshot.
//!
//! * A **unit** is what arrived together on one connection: a pipeline window, or an EXEC. It runs in one transaction.
//! * A unit that only reads runs where it is, on a snapshot, and commits nothing ([`reads`]).
//! * A unit that writes goes to the **lane** of its first key's hash ([`lane`]). A lane drains its queue, runs what is there
//!   in one transaction, commits once, then answers all; while it commits, the next batch collects.
//! * A **heavy** unit (row flag, or arguments of about a MB) runs in a transaction of its own with a slot of its own,
//!   so that nobody queues behind it. What only turns out to be heavy by what is stored (`Cx::light`) is found in a lane, before its
//!   first write, and passed on to there.
//!
//! A call or an EXEC with an **id** runs once for that id, see [`idempotency`]; it may write, whatever its row says.
//!
//! A unit that runs into others again and again fences its keys ([`crate::keyspace::cluster::fences`]): units that write them wait before
//! they are queued.
//!
//! What commands tell others (PUBLISH, changes of keys) is told once their transaction has committed, in the order of commits: see
//! `server::subscribers`.
//!
//! Every batch that writes also writes its number to the slot's key `l`, and conflicts with every other writer of that
//! key: see [`attempt`] for why that makes an unknown commit exactly-once.

mod attempt;
mod batch;
mod deadline;
mod executor;
mod group_commit;
mod idempotency;
mod lane;
mod reads;
pub mod slow;
mod staging;
mod tracked;
mod unit;
mod watch;

pub use executor::Executor;
pub use unit::{Done, LARGE, Unit};
pub use watch::Watched;

/// What tests run.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::unit::{Done, Forced, Job, Unit};
    use crate::commands::registry::table;
    use crate::dispatch::Call;
    use crate::server::ClientState;
    use bytes::Bytes;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// One command, whose words stand between spaces.
    pub(crate) fn call(line: &str) -> Call {
        let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let (row, names) = table().resolve(&argv).and_then(Result::ok).unwrap();
        Call { row, argv, names, id: None }
    }

    /// A pipeline of a new client.
    pub(crate) fn unit(lines: &[&str]) -> Unit {
        let client = ClientState::new(Default::default(), true);
        let calls = lines.iter().map(|line| call(line)).collect();
        Unit { calls, client, watches: Vec::new(), exec: false, id: None }
    }

    /// A unit on its way, which came at `since`, and where its answer arrives.
    pub(super) fn job(unit: Unit, since: Duration) -> (Job, oneshot::Receiver<Done>) {
        let (answer, heard) = oneshot::channel();
        (Job { unit, since, forced: Forced::default(), answer }, heard)
    }
}
