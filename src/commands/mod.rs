//! Commands: one row and one short function each. A folder a family, with what is larger in files of its own; what all of them use beside.

pub mod args;
pub mod binding;
mod bulk;
pub mod cx;
mod float;
pub mod outgrows;
pub mod registry;

#[cfg(test)]
mod abacus;
mod bitmap;
mod cluster;
pub mod connection;
pub mod generic;
mod hyperloglog;
pub mod pubsub;
mod scripting;
pub mod server;
mod set;
mod string;
pub mod transactions;

/// The version of Redis whose behaviour clients may expect: HELLO, INFO.
pub const REDIS_VERSION: &str = "7.4.0";
