//! Clients that connect, send for a while, and leave in one of three ways: with QUIT, abruptly, or with
//! unread replies.

use crate::mix;
use crate::support::resp::{Client, Value, request};
use crate::support::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The maximum number of steps of a connection.
const STEPS: usize = 400;

/// Times in a logarithmic histogram: 32 buckets for each power of two, so within 3 %.
#[derive(Clone)]
pub struct Times(Vec<u64>);

impl Default for Times {
    fn default() -> Self {
        Times(vec![0; 64 * 32])
    }
}

impl Times {
    pub fn add(&mut self, time: Duration) {
        let us = (time.as_micros() as u64).max(1);
        let power = us.ilog2();
        let rest = if power >= 5 { us >> (power - 5) } else { us << (5 - power) } & 31;
        self.0[power as usize * 32 + rest as usize] += 1;
    }
    pub fn merge(&mut self, other: &Times) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
    }
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }
    /// The time below which this percentage lies.
    pub fn percentile(&self, percent: f64) -> Duration {
        let wanted = (self.count() as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (bucket, n) in self.0.iter().enumerate() {
            seen += n;
            if *n > 0 && seen >= wanted {
                let us = (1u128 << (bucket / 32)) as f64 * (1.0 + (bucket % 32 + 1) as f64 / 32.0);
                return Duration::from_nanos((us * 1000.0) as u64);
            }
        }
        Duration::ZERO
    }
    /// `p50 .. p99 .. p99.9 .. max ..`
    pub fn line(&self) -> String {
        let [p50, p99, p999, max] = [50.0, 99.0, 99.9, 100.0].map(|p| self.percentile(p));
        format!("{} times, p50 {p50:.2?}, p99 {p99:.2?}, p99.9 {p999:.2?}, max {max:.2?}", self.count())
    }
}

/// A client's results.
#[derive(Default, Clone)]
pub struct Seen {
    /// Steps of one line.
    pub alone: Times,
    /// Steps of several lines, from the first byte sent to the last reply.
    pub together: Times,
    pub commands: u64,
    pub connections: u64,
    /// Expected errors.
    pub expected: u64,
    /// Other errors, with their lines.
    pub errors: Vec<String>,
}

impl Seen {
    pub fn merge(&mut self, other: Seen) {
        self.alone.merge(&other.alone);
        self.together.merge(&other.together);
        self.commands += other.commands;
        self.connections += other.connections;
        self.expected += other.expected;
        self.errors.extend(other.errors);
    }

    fn note_reply(&mut self, argv: &[String], reply: &Value) {
        match reply {
            Value::Error(line) if mix::is_expected(argv, line) => self.expected += 1,
            Value::Error(line) => {
                let line = String::from_utf8_lossy(line);
                self.errors.push(format!("{}: {line}", argv.join(" ").chars().take(200).collect::<String>()));
            }
            other => other.items().unwrap_or_default().iter().for_each(|item| self.note_reply(argv, item)),
        }
    }
}

/// Connects, works and leaves until it is stopped. A broken connection is an error.
pub fn run(port: u16, mut rng: Rng, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        seen.connections += 1;
        if let Err(e) = connection(port, &mut rng, &mut seen, stop) {
            seen.errors.push(format!("a connection broke: {e}"));
        }
    }
    seen
}

fn connection(port: u16, rng: &mut Rng, seen: &mut Seen, stop: &AtomicBool) -> std::io::Result<()> {
    let mut client = Client::connect(port)?;
    if rng.one_in(2) {
        client.try_run(&["HELLO", "3"])?;
    }
    for _ in 0..1 + rng.below(STEPS) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        step(&mut client, &mix::steps(rng), seen)?;
        if rng.one_in(200) {
            copy_over_the_wire(&mut client, rng, seen)?;
        }
    }
    match rng.below(4) {
        0 => drop(client.try_run(&["QUIT"])?),
        1 => {
            client.send_raw(&(0..50).flat_map(|_| request(&["SMEMBERS", "big:1"])).collect::<Vec<u8>>())?;
        }
        2 => drop(client.try_run(&["RESET"])?),
        _ => {}
    }
    Ok(())
}

fn step(client: &mut Client, lines: &[Vec<String>], seen: &mut Seen) -> std::io::Result<()> {
    let bytes: Vec<u8> = lines.iter().flat_map(|argv| request(argv)).collect();
    let since = Instant::now();
    client.send_raw(&bytes)?;
    for argv in lines {
        let reply = client.read()?;
        seen.note_reply(argv, &reply.value);
    }
    let times = if lines.len() == 1 { &mut seen.alone } else { &mut seen.together };
    times.add(since.elapsed());
    seen.commands += lines.len() as u64;
    Ok(())
}

/// DUMP of a key, and RESTORE under another one.
fn copy_over_the_wire(client: &mut Client, rng: &mut Rng, seen: &mut Seen) -> std::io::Result<()> {
    let (from, to) = (format!("big:{}", rng.below(8)), format!("big:{}", rng.below(8)));
    let dumped = client.try_run(&["DUMP", &from])?.value;
    seen.note_reply(&["DUMP".to_owned(), from.clone()], &dumped);
    seen.commands += 1;
    let Value::Bulk(payload) = dumped else { return Ok(()) };
    let reply = client.try_run(&[b"RESTORE", to.as_bytes(), b"0", &payload, b"REPLACE"])?.value;
    seen.note_reply(&["RESTORE".to_owned(), from], &reply);
    seen.commands += 1;
    Ok(())
}

/// Repeatedly opens and closes many connections that send little or nothing.
pub fn come_and_go(port: u16, mut rng: Rng, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let clients: Vec<_> = (0..1 + rng.below(100)).filter_map(|_| Client::connect(port).ok()).collect();
        seen.connections += clients.len() as u64;
        for mut client in clients {
            let half: &[u8] = [&b""[..], b"*2\r\n$3\r\nGET\r\n$5\r\nst", b"PING\r\n"][rng.below(3)];
            let _ = client.send_raw(half);
        }
        std::thread::sleep(Duration::from_millis(50 + rng.below(200) as u64));
    }
    seen
}
