//! How much work a server gets done now, in this build and beside what else the machine does: what a wait is compared with, so that a bound is
//! about the server and neither the machine nor its other work.

use super::resp::{Client, Value, request};
use std::time::{Duration, Instant};

/// Questions of a pipeline, and how many such pipelines.
pub const WINDOW: usize = 1000;
const WINDOWS: usize = 9;

/// What most pipelines of [`WINDOW`] GETs take a client that is alone with the server: 5 ms of a debug build where nothing else runs.
pub fn pace(client: &mut Client) -> Duration {
    assert_eq!(client.line("SET pace here"), Value::Simple(b"OK".to_vec()));
    let questions = request(&["GET", "pace"]).repeat(WINDOW);
    let mut took: Vec<Duration> = (0..WINDOWS).map(|_| answered(client, &questions)).collect();
    took.sort();
    took[WINDOWS / 2]
}

fn answered(client: &mut Client, questions: &[u8]) -> Duration {
    let since = Instant::now();
    client.send_raw(questions).unwrap();
    (0..WINDOW).for_each(|_| assert_eq!(client.read().unwrap().value, Value::Bulk(b"here".to_vec())));
    since.elapsed()
}
