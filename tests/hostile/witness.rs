//! A client that is served while others attack.

use crate::support::resp::{Client, Value};
use crate::support::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest that it may wait for an answer: generous, because the machine is shared with the attack.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// Asks until it is told to stop.
pub struct Witness {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<Vec<Duration>>,
}

impl Witness {
    pub fn start(server: &Server) -> Witness {
        Self::with(server.client())
    }

    /// It writes too, and others may remove what it has written.
    pub fn who_writes(server: &Server) -> Witness {
        Self::asking(server.client(), true)
    }

    pub fn with(client: Client) -> Witness {
        Self::asking(client, false)
    }

    fn asking(mut client: Client, writes: bool) -> Witness {
        let since = Instant::now();
        assert_eq!(client.line("SET witness here"), Value::Simple(b"OK".to_vec()));
        let first = since.elapsed();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let asking = std::thread::spawn(move || {
            let mut waits = vec![first];
            // Once at least, also where the attack is over sooner.
            loop {
                let since = Instant::now();
                if writes {
                    assert_eq!(client.line("SET witness here"), Value::Simple(b"OK".to_vec()));
                }
                assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
                let found = client.line("GET witness");
                assert!(found == Value::Bulk(b"here".to_vec()) || writes, "{found:?}");
                waits.push(since.elapsed());
                if told.load(Ordering::Relaxed) {
                    return waits;
                }
                std::thread::sleep(PAUSE);
            }
        });
        Witness { stop, asking }
    }

    /// Fails where it was not served well. Says how it was.
    pub fn was_served(self, attack: &str) {
        self.was_served_within(PATIENCE, attack);
    }

    /// As [`Witness::was_served`], where no answer may take longer than `most`.
    pub fn was_served_within(self, most: Duration, attack: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let mut waits = self.asking.join().unwrap();
        waits.sort();
        let (n, longest) = (waits.len(), *waits.last().unwrap());
        let p99 = waits[n * 99 / 100];
        crate::support::say(&format!("{attack}: {n} asked, p99 {p99:.1?}, longest {longest:.1?}"));
        assert!(longest < most, "{attack}: {longest:?}");
    }
}
