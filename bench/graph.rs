//! A social graph on sets (see `tests/graph.rs` for the keys): follows and unfollows a second, and what its questions take.
//!
//! ```text
//! cargo run --release --example bench_graph -- <address> [<address>...] [--people n] [--clients n] [--seconds n]
//! ```
//! The same work on each server, one after the other: Tern, and redis-server beside it. The servers must be empty (FLUSHALL is not sent
//! for you). A follow is WATCH and GET of the edge's record, then one MULTI of five commands: two round trips. Writers pick people by chance, a tenth
//! of the requests is about the ten most popular ones; a request that a WATCH refuses is sent again and counted. The questions are asked of
//! people with many edges, with nobody writing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tern::env::Rng;

/// People that a tenth of the requests is about.
const POPULAR: u64 = 10;
/// Edges of each person that the questions are about.
const MANY: u64 = 20_000;
const ROUNDS: usize = 21;

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    /// Sends lines at once; the replies' texts (of arrays only their lengths), in order.
    fn run(&mut self, lines: &[String]) -> Vec<String> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            out.extend(format!("*{}\r\n", words.len()).bytes());
            words.iter().for_each(|w| out.extend(format!("${}\r\n{w}\r\n", w.len()).bytes()));
        }
        self.0.get_mut().write_all(&out).unwrap();
        lines.iter().map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, text) = line.trim_end().split_at(1);
        assert_ne!(kind, "-", "{text}");
        let n: i64 = text.parse().unwrap_or(0);
        match kind {
            "$" if n >= 0 => {
                let mut body = vec![0; n as usize + 2];
                self.0.read_exact(&mut body).unwrap();
                String::from_utf8_lossy(&body[..n as usize]).into_owned()
            }
            "*" if n >= 0 => {
                (0..n).for_each(|_| drop(self.reply()));
                text.into()
            }
            "$" | "*" => String::from("nil"),
            _ => text.into(),
        }
    }
}

fn person(n: u64) -> String {
    format!("did:plc:{n:024x}")
}

/// One request until it is applied or dropped. How often it was sent.
fn request(client: &mut Client, a: &str, b: &str, time: u64, follows: bool) -> u64 {
    let record = format!("edge:{a}:{b}");
    for sent in 1.. {
        let found = client.run(&[format!("WATCH {record}"), format!("GET {record}")]).swap_remove(1);
        let before: Option<(u64, bool)> =
            (found != "nil").then(|| (found[..found.len() - 1].parse().unwrap(), found.ends_with('+')));
        if before.is_some_and(|(at, _)| at >= time) {
            client.run(&["UNWATCH".into()]);
            return sent;
        }
        let mut lines =
            vec!["MULTI".into(), format!("SET {record} {time}{}", if follows { '+' } else { '-' })];
        if follows != before.is_some_and(|(_, follows)| follows) {
            let (name, by) = if follows { ("SADD", 1) } else { ("SREM", -1) };
            lines.push(format!("{name} out:{a} {b}"));
            lines.push(format!("{name} in:{b} {a}"));
            lines.push(format!("INCRBY followees:{a} {by}"));
            lines.push(format!("INCRBY followers:{b} {by}"));
        }
        lines.push("EXEC".into());
        if client.run(&lines).last().is_some_and(|exec| exec != "nil") {
            return sent;
        }
    }
    0
}

fn write(address: &str, people: u64, clients: u64, time: Duration) {
    let (clock, sent) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let until = Instant::now() + time;
    let writer = |n: u64| {
        let (address, clock, sent) = (address.to_owned(), clock.clone(), sent.clone());
        std::thread::spawn(move || {
            let (mut client, mut rng, mut took) = (Client::new(&address), Rng::seeded(n), Vec::new());
            while Instant::now() < until {
                let to = if rng.below(10) == 0 { rng.below(POPULAR) } else { rng.below(people) };
                let (a, b, start) = (person(rng.below(people)), person(to), Instant::now());
                let time = clock.fetch_add(1, Ordering::Relaxed);
                sent.fetch_add(request(&mut client, &a, &b, time, rng.below(4) > 0), Ordering::Relaxed);
                took.push(start.elapsed());
            }
            took
        })
    };
    let threads: Vec<_> = (0..clients).map(writer).collect();
    let mut took: Vec<Duration> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    took.sort_unstable();
    let (n, again) = (took.len(), sent.load(Ordering::Relaxed) - took.len() as u64);
    let (p50, p99) = (took[n / 2], took[n * 99 / 100]);
    println!(
        "| requests a second, {clients} clients | {:.0} (p50 {p50:.1?}, p99 {p99:.1?}, {again} sent again) |",
        n as f64 / time.as_secs_f64()
    );
}

/// Two people with [`MANY`] edges each way, half of them in common.
fn load(client: &mut Client) {
    for (who, first) in [("x", 0), ("y", MANY / 2)] {
        for direction in ["out", "in"] {
            for from in (first..first + MANY).step_by(500) {
                let some: Vec<String> = (from..from + 500).map(person).collect();
                client.run(&[format!("SADD {direction}:{who} {}", some.join(" "))]);
            }
        }
    }
    for n in 0..20 {
        let some: Vec<String> = (n * 700..n * 700 + 1000).map(person).collect();
        client.run(&[format!("SADD out:f{n} {}", some.join(" "))]);
    }
}

fn ask(client: &mut Client, what: &str, lines: &[String]) {
    let mut took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            client.run(lines);
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    println!("| {what} | {:.2?} |", took[ROUNDS / 2]);
}

fn main() {
    let (mut addresses, mut people, mut clients, mut seconds) = (Vec::new(), 10_000, 16, 10);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().unwrap().parse().unwrap();
        match arg.as_str() {
            "--people" => people = number(),
            "--clients" => clients = number(),
            "--seconds" => seconds = number(),
            _ => addresses.push(arg),
        }
    }
    for address in addresses {
        println!("\n| {address} | median |\n|---|---|");
        write(&address, people, clients, Duration::from_secs(seconds));
        let mut client = Client::new(&address);
        load(&mut client);
        let friends: Vec<String> = (0..20).map(|n| format!("out:f{n}")).collect();
        ask(&mut client, "of those x follows, who follows y: SINTER", &["SINTER out:x in:y".into()]);
        ask(&mut client, "how many: SINTERCARD", &["SINTERCARD 2 out:x in:y".into()]);
        ask(&mut client, "mutuals of x: SINTER", &["SINTER out:x in:x".into()]);
        ask(&mut client, "followers of y whom x does not follow: SDIFF", &["SDIFF in:y out:x".into()]);
        let union = format!("SUNIONSTORE reach {}", friends.join(" "));
        let multi = ["MULTI".into(), union, "SDIFFSTORE reach reach out:x".into(), "EXEC".into()];
        ask(&mut client, "friends of 20 friends minus friends: MULTI of SUNIONSTORE, SDIFFSTORE", &multi);
    }
}
