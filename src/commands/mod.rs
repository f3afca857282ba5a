//! Commands: one row and one short function each, a family a file.

pub mod acl;
pub mod args;
pub mod auth;
pub mod binding;
pub mod cx;
pub mod idempotent;
pub mod registry;
pub mod syntax;

mod bitfield;
mod bulk;
mod float;

pub mod bitmaps;
pub mod client;
mod client_kill;
mod client_pause;
pub mod cluster;
pub mod command;
mod command_docs;
mod command_info;
pub mod config;
pub mod connection;
pub mod debug;
pub mod info;
mod info_sections;
pub mod latency;
pub mod lolwut;
pub mod memory;
pub mod monitor;
pub mod pubsub;
pub mod server;
pub mod slowlog;

pub mod dump;
pub mod expire;
pub mod hyperloglog;
pub mod keys;
mod keys_moves;
mod keys_object;
pub mod large;
mod refused;
pub mod scan;
mod scripting;
pub mod set_algebra;
pub mod sets;
pub mod sort;
pub mod strings;
mod strings_compare;
mod strings_increx;
mod strings_lcs;
mod strings_newer;
mod strings_numbers;
mod strings_set;
pub mod transactions;

/// The version of Redis whose behaviour clients may expect: HELLO, INFO.
pub const REDIS_VERSION: &str = "7.4.0";
