//! Units of commands, as connections hand them to the executor.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use std::time::{Duration, Instant};
use tern::commands::registry::table;
use tern::dispatch::Call;
use tern::exec::{Executor, Unit};
use tern::server::ClientState;
use tern::server::reply::Reply;

/// The words between spaces.
pub fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// One command of the table.
pub fn call(argv: Vec<Bytes>) -> Call {
    let Some(Ok((row, names))) = table().resolve(&argv) else { panic!("no row for {:?}", argv.first()) };
    Call { row, argv, names, id: None }
}

/// One command, words separated by spaces, under an id.
pub fn call_under_id(id: &str, line: &str) -> Call {
    Call { id: Some(Bytes::copy_from_slice(id.as_bytes())), ..call(words(line)) }
}

/// Commands of a new client: a pipeline without watched keys.
pub fn unit(calls: Vec<Call>) -> Unit {
    let client = ClientState::new(Default::default(), true);
    Unit { calls, client: Box::new(client), watches: Vec::new(), exec: false, id: None }
}

/// The same from lines, words separated by spaces.
pub fn pipeline<S: AsRef<str>>(lines: &[S]) -> Unit {
    unit(lines.iter().map(|line| call(words(line.as_ref()))).collect())
}

/// Runs a unit to its end: a long pipeline is handed back in part.
pub async fn run(exec: &Executor, unit: Unit) -> (Vec<Reply>, ClientState) {
    let multi = unit.exec;
    let mut done = exec.run(unit).await;
    let mut replies = done.replies.unwrap();
    while !done.rest.is_empty() {
        assert!(!multi, "a transaction must run as a whole");
        let rest = Unit { calls: done.rest, client: done.client, watches: Vec::new(), exec: false, id: None };
        done = exec.run(rest).await;
        replies.extend(done.replies.unwrap());
    }
    (replies, *done.client)
}

/// Its replies.
pub async fn replies(exec: &Executor, unit: Unit) -> Vec<Reply> {
    run(exec, unit).await.0
}

/// The reply of its only command.
pub async fn reply(exec: &Executor, call: Call) -> Reply {
    replies(exec, unit(vec![call])).await.remove(0)
}

/// The duration of most of a few rounds of 1000 GETs, each a unit of its own: a measure of this build, this
/// machine and its other work, like `support/pace.rs` for a server. 12 to 40 ms in a debug build on a busy
/// machine.
pub async fn pace(exec: &Executor) -> Duration {
    let mut took = Vec::new();
    for _ in 0..9 {
        let since = Instant::now();
        for _ in 0..1000 {
            reply(exec, call(words("GET pace"))).await;
        }
        took.push(since.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}
