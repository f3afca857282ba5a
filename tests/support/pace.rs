//! The server's current pace, in this build and beside the machine's other work: bounds of waits are
//! multiples of it, so that they concern the server rather than the machine.

use super::resp::{Client, Value, request};
use std::time::{Duration, Instant};

/// Requests per pipeline, and the number of such pipelines.
pub const WINDOW: usize = 1000;
const WINDOWS: usize = 9;

/// The duration of most pipelines of [`WINDOW`] GETs of a lone client: 5 ms in a debug build on an idle
/// machine.
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

/// The longest time in which a GET is answered, asked now and then while others are at work.
pub fn slowest_get(client: &mut Client, during: Duration) -> Duration {
    let (since, mut slowest) = (Instant::now(), Duration::ZERO);
    while since.elapsed() < during {
        let asked = Instant::now();
        assert_eq!(client.line("GET absent"), Value::Nil(b'$'));
        slowest = slowest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    slowest
}
