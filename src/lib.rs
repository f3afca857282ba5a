//! Tern: a Redis server whose data lives in an ordered transactional key-value store.
//!
//! ```text
//! main -> net -> session -> exec -> commands -> types -> keyspace -> store
//!                                      (env, error, config, telemetry: leaves; jobs: beside exec)
//! ```
//! Imports point rightwards only; `tests/tidy.rs` fails on an arrow that points back.

pub mod commands;
pub mod config;
pub mod env;
pub mod error;
pub mod exec;
pub mod jobs;
pub mod keyspace;
pub mod net;
pub mod session;
pub mod store;
pub mod telemetry;
pub mod types;
