//! KEYS must finish within a transaction's lifetime: README promises a million keys in 2 s. The cost per key
//! is compared with a pipelined GET on the same machine in the same run.

use crate::support::pace::{WINDOW, pace};
use crate::support::resp::{Client, Value};
use crate::support::say;
use crate::support::server::tern;
use std::time::{Duration, Instant};

const KEYS: usize = 40_000;
/// Keys per MSET.
const AT_ONCE: usize = 500;
/// The maximum cost of a key in pipelined GETs: twice the measured cost. In a release build decoding and
/// answering a GET gains more.
const GETS: f64 = 0.65;
const GETS_OF_A_RELEASE: f64 = 1.1;
/// The shortest of this many runs counts.
const TRIES: usize = 5;

fn fill(client: &mut Client) {
    for from in (0..KEYS).step_by(AT_ONCE) {
        let pairs = (from..from + AT_ONCE).flat_map(|n| [format!("key:{n}"), "v".repeat(100)]);
        let line: Vec<String> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
        assert_eq!(client.run(&line).value, Value::Simple(b"OK".to_vec()));
    }
}

/// The time until a client gets the matching names: none.
fn took(client: &mut Client) -> Duration {
    let since = Instant::now();
    assert_eq!(client.line("KEYS nosuch*"), Value::Array(Vec::new()));
    since.elapsed()
}

#[test]
fn keys_lists_a_million_keys_at_the_promised_rate() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    fill(&mut client);
    assert_eq!(client.line("KEYS key:*").items().map(<[Value]>::len), Some(KEYS));
    let mut least = [Duration::MAX; 2];
    for _ in 0..TRIES {
        let took = [pace(&mut client), took(&mut client)];
        least = [least[0].min(took[0]), least[1].min(took[1])];
    }
    let [get, key] = [least[0] / WINDOW as u32, least[1] / KEYS as u32].map(|took| took.as_secs_f64());
    say(&format!("KEYS of {KEYS} keys: {:.3} GETs a key", key / get));
    let most = if std::env::var_os("TERN_BINARY").is_some() { GETS_OF_A_RELEASE } else { GETS };
    assert!(key < get * most, "{:.3} GETs a key, at most {most}", key / get);
}
