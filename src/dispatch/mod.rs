//! Runs one call: [`gate`] decides whether it may run, and a [`Runner`] runs it inside a transaction.
//!
//! A session gates the calls that its client sends, and [`crate::exec`] runs them in a unit's transaction. A
//! script gates and runs its calls in the transaction of its own unit: this module knows nothing of
//! connections, units, lanes or retries.

mod call;
pub(crate) mod gate;
mod noted;
mod runner;

pub use call::Call;
pub(crate) use noted::{Level, Noted};
pub(crate) use runner::{PANICKED, Runner};
