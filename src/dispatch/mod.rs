//! One call: [`gate`] decides whether it may run, a [`Runner`] runs it inside a transaction.
//!
//! A session gates what its client sends, and [`crate::exec`] runs it in a unit's transaction. A script gates and runs what its code
//! calls in the transaction of its own unit: nothing here knows of connections, units, lanes or retries.

mod call;
pub(crate) mod gate;
mod runner;

pub use call::Call;
pub(crate) use runner::{PANICKED, Runner};
