//! Units and how they run: writes through lanes, reads on a snapshot.
//!
//! * A **unit** is what arrives together on one connection: a pipeline window, or an EXEC. It runs in one
//!   transaction.
//! * A read-only unit runs directly, on a snapshot, and commits nothing ([`reads`]).
//! * A unit that writes goes to the **lane** selected by the hash of its first key ([`lane`]). A lane drains
//!   its queue, runs the units in one transaction, commits once, and then answers them all (group commit);
//!   while it commits, the next batch collects.
//! * A **heavy** unit (by row flag, or with arguments of about a MB) runs in a transaction and a slot of its
//!   own, so that nothing queues behind it. If only the stored data makes a unit heavy (`Cx::light`), its
//!   lane finds out before the first write and passes the unit on.
//!
//! A call or an EXEC with an **id** runs once for that id, see [`idempotency`]; it may write, whatever its
//! row says.
//!
//! A unit that keeps conflicting, or a batch of units of the same keys, fences its keys
//! ([`crate::keyspace::cluster::fences`]): units that write those keys wait before they are queued ([`width`]).
//!
//! Commands publish (PUBLISH, changes of keys) once their transaction has committed, in commit order: see
//! `server::subscribers`.
//!
//! A call that waits for a key (BLPOP and its relatives) runs again, as a unit of its own, until it gets something:
//! see [`waiting`].
//!
//! Every batch that writes also writes its number to the slot's key `l`, and so conflicts with every other
//! writer of that key: see [`attempt`] for why this makes an unknown commit exactly-once.

mod attempt;
mod batch;
mod deadline;
mod executor;
mod goal;
mod group_commit;
mod idempotency;
mod lane;
mod looking;
mod prebuild;
mod reads;
pub(crate) mod slow;
mod touch;
mod tracked;
mod unit;
mod waiting;
mod watch;
mod width;

pub use executor::Executor;
pub use unit::{Done, LARGE, Unit};
pub use waiting::Wait;
pub use watch::Watched;

#[cfg(test)]
pub(crate) mod fixtures;
