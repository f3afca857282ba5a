//! Three clients that are served while another one attacks.

use super::resp::{Client, Value, text};
use super::server::Server;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// Their commands.
const LINES: [&str; 3] = ["PING", "GET quick", "SET quick here"];

/// The longest wait of each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waits([Duration; 3]);

impl Waits {
    /// Equal waits of all clients.
    pub fn all(wait: Duration) -> Self {
        Waits([wait; 3])
    }

    pub fn longest(&self) -> Duration {
        self.0.into_iter().max().unwrap()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ping, get, set] = self.0.map(|wait| wait.as_millis());
        write!(f, "PING {ping:3}, GET {get:3}, SET {set:3} ms")
    }
}

pub struct Others {
    stop: Arc<AtomicBool>,
    asking: [JoinHandle<Result<Duration, String>>; 3],
    watching: JoinHandle<usize>,
}

impl Others {
    /// PING, GET and SET, by a client each, and a thread that samples the server's memory.
    pub fn start(server: &Server) -> Others {
        let stop = Arc::new(AtomicBool::new(false));
        server.client().line("SET quick here");
        let asking = LINES.map(|line| {
            let (client, stop) = (server.client(), stop.clone());
            std::thread::spawn(move || ask(client, line, &stop))
        });
        let (statm, stopped) = (format!("/proc/{}/statm", server.pid()), stop.clone());
        let watching = std::thread::spawn(move || watch(&statm, &stopped));
        Others { stop, asking, watching }
    }

    /// The waits, and the largest resident memory of the server in bytes.
    pub fn stop(self) -> (Waits, usize) {
        self.end().unwrap()
    }

    /// Like `stop`. Err: one of them got no reply, or an error.
    pub fn end(self) -> Result<(Waits, usize), String> {
        self.stop.store(true, Ordering::Relaxed);
        let [ping, get, set] = self.asking.map(|asking| asking.join().unwrap());
        let peak = self.watching.join().unwrap();
        Ok((Waits([ping?, get?, set?]), peak))
    }
}

fn ask(mut client: Client, line: &str, stop: &AtomicBool) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    client.set_timeout(Duration::from_secs(120));
    while !stop.load(Ordering::Relaxed) {
        let since = Instant::now();
        let words: Vec<&str> = line.split(' ').collect();
        match client.try_run(&words).map(|reply| reply.value) {
            Ok(Value::Error(e)) => return Err(format!("{line}: {}", text(&e))),
            Ok(_) => {}
            Err(e) => return Err(format!("{line}: {e} after {:?}", since.elapsed())),
        }
        longest = longest.max(since.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(longest)
}

fn watch(statm: &str, stop: &AtomicBool) -> usize {
    let mut peak = 0;
    while !stop.load(Ordering::Relaxed) {
        let text = std::fs::read_to_string(statm).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        peak = peak.max(pages * 4096);
        std::thread::sleep(PAUSE);
    }
    peak
}
