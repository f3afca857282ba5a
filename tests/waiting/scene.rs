//! What the tests of all types begin with: clients that wait, whatever makes a value appear, and what clients take
//! together.

use super::support::resp::{Client, Value};
use super::support::server::{Server, tern};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long to watch a client that must not be answered.
pub const A_WHILE: Duration = Duration::from_millis(60);
/// The time in which clients must have taken everything.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn server() -> Server {
    tern(&["--appendfsync", "no"])
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

pub fn bulks(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| bulk(text)).collect())
}

pub fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

pub fn nil() -> Value {
    Value::Nil(b'*')
}

/// Waits until so many clients wait.
pub fn wait_for_blocked(admin: &mut Client, want: usize) {
    let since = Instant::now();
    let line = format!("blocked_clients:{want}\r\n");
    while !text(&admin.line("INFO clients")).contains(&line) {
        assert!(since.elapsed() < Duration::from_secs(60), "{}", text(&admin.line("INFO clients")));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a line whose reply is not there yet.
pub fn begin(client: &mut Client, line: &str) {
    client.send_raw(format!("{line}\r\n").as_bytes()).unwrap();
}

pub fn answer(client: &mut Client) -> Value {
    client.read().unwrap().value
}

pub fn id(client: &mut Client) -> i64 {
    client.line("CLIENT ID").int().unwrap()
}

/// A value that appears under the key `k`, while a client waits for it.
pub struct Appearing {
    pub admin: Client,
    waiter: Client,
    /// What makes the value under the key `other`.
    other: &'static [&'static str],
    payload: Vec<u8>,
    _tern: Server,
}

impl Appearing {
    pub fn new(other: &'static [&'static str]) -> Self {
        let tern = server();
        let (mut admin, waiter) = (tern.client(), tern.client());
        other.iter().for_each(|line| drop(admin.line(line)));
        let payload = admin.line("DUMP other").bytes().unwrap().to_vec();
        Appearing { admin, waiter, other, payload, _tern: tern }
    }

    /// The ways in which a value of any type appears; `make` makes it.
    pub fn ways(make: &str) -> Vec<Vec<&str>> {
        vec![
            vec![make],
            vec!["MULTI", "SET k x", "DEL k", make, "EXEC"],
            vec!["COPY other k"],
            vec!["RENAME other k"],
            vec!["SELECT 1", make, "MOVE k 0", "SELECT 0"],
            vec!["SELECT 1", make, "SWAPDB 0 1", "SELECT 0"],
            vec!["SET k x", "RENAME other k"],
            vec!["FLUSHDB", make],
            vec!["FLUSHALL", make],
            vec!["RESTORE"],
        ]
    }

    /// What a client gets that waits by `command` until these lines have run. Afterwards nobody waits.
    pub fn woken(&mut self, command: &str, lines: &[&str]) -> Value {
        self.admin.line("FLUSHALL");
        self.other.iter().for_each(|line| drop(self.admin.line(line)));
        begin(&mut self.waiter, command);
        wait_for_blocked(&mut self.admin, 1);
        for line in lines {
            let reply = match *line {
                "RESTORE" => self.admin.run(&[&b"RESTORE"[..], b"k", b"0", &self.payload]).value,
                line => self.admin.line(line),
            };
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        let got = answer(&mut self.waiter);
        wait_for_blocked(&mut self.admin, 0);
        got
    }
}

impl Drop for Appearing {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(text(&self.admin.line("INFO clients")).contains("total_blocking_keys:0\r\n"));
        }
    }
}

/// What clients take together, each thing once.
pub struct Taken {
    seen: Mutex<BTreeSet<String>>,
    all: usize,
    left: AtomicUsize,
    since: Instant,
}

/// Ends the others if this client panics.
struct Part<'t>(&'t Taken);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.left.store(0, SeqCst);
        }
    }
}

impl Taken {
    /// Nothing of `all` things.
    pub fn of(all: usize) -> Self {
        Taken { seen: Mutex::default(), all, left: AtomicUsize::new(all), since: Instant::now() }
    }

    /// Whether clients are to end: everything was taken, one of them has panicked, or it takes too long.
    pub fn is_over(&self) -> bool {
        self.left.load(SeqCst) == 0 || self.since.elapsed() > PATIENCE
    }

    /// What one client does. If it panics, all end.
    pub fn part<T>(&self, part: impl FnOnce() -> T) -> T {
        let _part = Part(self);
        part()
    }

    /// One was taken, by a client in its part.
    pub fn take(&self, one: String) {
        let is_first = self.seen.lock().unwrap().insert(one.clone());
        assert!(is_first, "{one} twice");
        // A client that has panicked leaves 0.
        let _ = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    }

    /// Fails unless everything was taken.
    pub fn assert_all(self) {
        let taken = self.seen.into_inner().unwrap().len();
        assert_eq!(taken, self.all, "taken in {:?}", self.since.elapsed());
    }
}
