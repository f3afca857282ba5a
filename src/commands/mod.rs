//! Commands: one row and one short function each. Each family has a folder; larger commands have files of
//! their own, and code that all families share is beside the folders.

pub(crate) mod args;
pub mod binding;
mod bulk;
mod contents;
pub(crate) mod cx;
mod float;
pub(crate) mod outgrows;
mod popped;
mod ranked;
pub mod registry;
pub(crate) mod timeouts;

#[cfg(test)]
mod abacus;
mod bitmap;
mod cluster;
pub(crate) mod connection;
pub mod generic;
mod geo;
mod hash;
mod hyperloglog;
mod list;
pub(crate) mod pubsub;
mod scripting;
pub mod server;
mod set;
pub(crate) mod stream;
mod string;
pub(crate) mod transactions;
pub(crate) mod zset;

pub use crate::spec::REDIS_VERSION;
