//! A client that is served while others attack, and its waits without an attack.

use crate::support::pace::pace;
use crate::support::resp::{Client, Value};
use crate::support::say;
use crate::support::server::Server;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);
/// The default bound of a wait: a multiple of a lone pipeline, plus an allowance for other work of the
/// machine. Together a fifth of a second in a debug build on two quiet cores, where most waits take 5 to 60
/// ms; beside ten other processes waits take up to 350 ms, and a pipeline twice as long.
pub const FEW: u32 = 24;
const FLOOR: Duration = Duration::from_millis(80);
/// Attempts per test: a busy machine may be slow once; a server that holds others is slow each time.
const TRIES: usize = 5;

thread_local! {
    /// The witnesses of this test that waited too long.
    static LATE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs a test, again if a witness has waited too long. All other failures count at once.
pub fn tried(test: impl Fn()) {
    for left in (0..TRIES).rev() {
        test();
        let late = LATE.take();
        if late.is_empty() {
            return;
        }
        assert!(left > 0, "{}", late.join("\n"));
        late.iter().for_each(|late| say(&format!("again: {late}")));
    }
}

/// A client that has measured a quiet server.
pub struct Ready {
    client: Client,
    writes: bool,
    alone: Duration,
}

/// Sends requests until it is stopped.
pub struct Witness {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<Vec<Duration>>,
    alone: Duration,
}

impl Ready {
    /// It writes too, and others may remove its values.
    pub fn to_write(server: &Server) -> Ready {
        Self::with(server.client(), true)
    }

    fn with(mut client: Client, writes: bool) -> Ready {
        assert_eq!(client.line("SET witness here"), Value::Simple(b"OK".to_vec()));
        let alone = pace(&mut client);
        Ready { client, writes, alone }
    }

    /// Starts the requests; an attack may be under way.
    pub fn start(self) -> Witness {
        let Ready { mut client, writes, alone } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let asking = std::thread::spawn(move || {
            let mut waits = Vec::new();
            // At least one request, even if the attack ends sooner.
            loop {
                waits.push(ask(&mut client, writes));
                if stopped.load(Ordering::Relaxed) {
                    return waits;
                }
                std::thread::sleep(PAUSE);
            }
        });
        Witness { stop, asking, alone }
    }
}

/// The durations of PING and GET, with a SET before them if it `writes`.
fn ask(client: &mut Client, writes: bool) -> Duration {
    let since = Instant::now();
    if writes {
        assert_eq!(client.line("SET witness here"), Value::Simple(b"OK".to_vec()));
    }
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
    let found = client.line("GET witness");
    assert!(found == Value::Bulk(b"here".to_vec()) || writes, "{found:?}");
    since.elapsed()
}

impl Witness {
    pub fn start(server: &Server) -> Witness {
        Self::with(server.client())
    }

    pub fn writing(server: &Server) -> Witness {
        Ready::to_write(server).start()
    }

    pub fn with(client: Client) -> Witness {
        Ready::with(client, false).start()
    }

    /// [`tried`] fails unless in some try every request is answered within `times` a lone pipeline plus
    /// [`FLOOR`].
    pub fn was_served(self, times: u32, attack: &str) {
        self.check(times, Duration::MAX, attack);
    }

    fn most(&self, times: u32) -> Duration {
        self.alone * times + FLOOR
    }

    /// [`tried`] fails unless in some try the attack itself takes at most `times` a lone pipeline.
    pub fn saw(&self, took: Duration, times: u32, attack: &str) {
        let most = self.most(times);
        if took >= most {
            LATE.with_borrow_mut(|late| late.push(format!("{attack} took {took:.1?} of {most:.1?}")));
        }
    }

    /// Like [`Witness::was_served`], and within a third of an attack that `took` this long: waiting for its
    /// end would be too late on any machine.
    pub fn was_served_during(self, took: Duration, times: u32, attack: &str) {
        self.check(times, took / 3, attack);
    }

    fn check(self, times: u32, most: Duration, attack: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let allowed = self.most(times);
        let mut waits = self.asking.join().unwrap();
        waits.sort();
        let (n, longest, most) = (waits.len(), waits[waits.len() - 1], most.min(allowed));
        let p99 = waits[n * 99 / 100];
        let line = format!(
            "{attack}: {n} asked, p99 {p99:.1?}, longest {longest:.1?} of {most:.1?}, alone {:.1?}",
            self.alone
        );
        say(&line);
        if longest >= most {
            LATE.with_borrow_mut(|late| late.push(line));
        }
    }
}

/// The witness can fail: a pause of all clients is a wait half as long again as the bound.
#[test]
fn a_server_that_holds_others_is_late() {
    let server = crate::support::server::tern(&[]);
    let mut admin = server.client();
    let pause = |admin: &mut Client, long: Duration| {
        let since = Instant::now();
        let line = format!("CLIENT PAUSE {} ALL", long.as_millis());
        assert_eq!(admin.line(&line), Value::Simple(b"OK".to_vec()));
        assert_eq!(admin.line("PING"), Value::Simple(b"PONG".to_vec()));
        since.elapsed()
    };
    let witness = Witness::start(&server);
    let long = witness.most(FEW) * 3 / 2;
    pause(&mut admin, long);
    witness.was_served(FEW, "a pause");
    assert_eq!(LATE.take().len(), 1);
    let witness = Witness::writing(&server);
    let took = pause(&mut admin, Duration::from_millis(200));
    witness.was_served_during(took, 1000, "a pause of all its time");
    assert_eq!(LATE.take().len(), 1);
    let witness = Witness::start(&server);
    witness.saw(witness.most(3), 3, "an attack");
    witness.saw(Duration::ZERO, 3, "no attack");
    assert_eq!(LATE.take().len(), 1);
    witness.was_served(1000, "nothing");
    assert!(LATE.take().is_empty());
}
