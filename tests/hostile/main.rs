//! Hazard: one client's hostility costs the others memory, descriptors, time, or the whole server. Each test
//! attacks while a witness is served on a connection of its own, and measures the server's process.
//!
//! Tested elsewhere: announced lengths, nested arrays and requests in pieces (`wire_protocol`), slow readers,
//! query and output buffers, `maxclients`, idle clients (`wire_limits`), panics (`debug_commands`),
//! handshakes (`tls`), malformed bytes (`fuzz`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod crowd;
mod files;
mod flood;
mod globs;
mod listed;
#[path = "../support/mod.rs"]
mod support;
mod witness;

use support::resp::{Client, text};
use support::server::Server;

/// A numeric field of INFO.
fn info(client: &mut Client, section: &str, field: &str) -> u64 {
    let reply = client.run(&["INFO", section]).value;
    let all = String::from_utf8(reply.bytes().unwrap().to_vec()).unwrap();
    let line = all.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|n| n.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {field} in {}", text(all.as_bytes())))
}

/// Checks that no thread has panicked and that the server still answers.
fn assert_unharmed(server: &Server) {
    let mut client = server.client();
    assert_eq!(info(&mut client, "tern", "panics"), 0, "{}", server.log());
    assert_eq!(client.line("SET unharmed yes"), support::resp::Value::Simple(b"OK".to_vec()));
}

/// Open descriptors of the server's process.
fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// The number of log lines so far that contain `words`.
fn lines_with(server: &Server, words: &str) -> usize {
    server.whole_log().lines().filter(|l| l.contains(words)).count()
}
