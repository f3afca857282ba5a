//! IDEMPOTENT: a command under an id runs once, whatever happens to the connection, the server or the commit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod ages;
mod answers;
mod retries;
mod users;
mod world;
