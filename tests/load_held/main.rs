//! Hazard: under continuous load, memory, descriptors, threads or tasks grow, a command fails now and then,
//! or some client waits for ever.
//!
//! Clients send a mix of all commands at full speed, connect and leave, while the jobs run (expiry,
//! forgetting of ids, reclaiming after FLUSHALL). The process is watched from outside and by INFO. Memory
//! counts after a warm-up of a quarter of the time: the second quarter is compared with the last.
//! `TERN_LOAD_SECONDS` sets the duration, `TERN_SEED` repeats the clients' commands, `TERN_BINARY` names
//! another build of the server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod mix;
#[path = "../support/mod.rs"]
mod support;
mod watch;
mod worker;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::pace::{WINDOW, pace};
use support::resp::{Client, Value};
use support::rng::Rng;
use support::server::{Server, assert_sound, tern_in};
use support::{env_number, say};
use watch::{Sample, grown, sample};
use worker::Seen;

const SECONDS: u64 = 20;
const CLIENTS: usize = 10;
/// The fraction of one client's pipelined GET rate that this mix must reach. It reached 1/25 on two quiet
/// cores, and 1/72 beside other processes.
const PART: f64 = 150.0;
/// The time between two FLUSHALL.
const FLUSH_EVERY: Duration = Duration::from_secs(40);
/// Small caches fill within seconds, and ids are forgotten soon: later growth is no cache.
const ARGS: [&str; 8] = [
    "--store-cache-size",
    "16mb",
    "--store-value-cache-size",
    "8mb",
    "--store-write-buffer-size",
    "4mb",
    "--idempotency-min-age",
    "10",
];

#[test]
fn nothing_grows_and_nothing_fails_under_load() {
    let seconds = env_number("TERN_LOAD_SECONDS").unwrap_or(SECONDS);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("load: TERN_SEED={seed}, {seconds} s, {CLIENTS} clients"));
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut server = tern_in(&dir, &ARGS);
    settle(&server);
    let before = sample(&server);
    let quiet = pace(&mut server.client());
    let stop = AtomicBool::new(false);
    let (seen, samples) = std::thread::scope(|scope| {
        let (port, stop) = (server.port, &stop);
        let mut rng = Rng::new(seed);
        let mut rng = || Rng::new(rng.next());
        let (first, second) = (rng(), rng());
        let mut threads = vec![scope.spawn(move || worker::come_and_go(port, first, stop))];
        threads.extend((1..CLIENTS).map(|_| rng()).map(|r| scope.spawn(move || worker::run(port, r, stop))));
        threads.push(scope.spawn(move || worker::run(port, second, stop)));
        let samples = watched(&server, Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        let mut seen = Seen::default();
        threads.into_iter().for_each(|t| seen.merge(t.join().unwrap()));
        (seen, samples)
    });
    // The machine may have become busier.
    let slower = quiet.max(pace(&mut server.client()));
    let least = (WINDOW as f64 / slower.as_secs_f64() / PART) as u64;
    report(&seen, &samples, seconds, least);
    slowest_commands(&server);
    assert!(
        seen.errors.is_empty(),
        "{} errors: {:#?}",
        seen.errors.len(),
        &seen.errors[..seen.errors.len().min(10)]
    );
    assert!(seen.commands > least * seconds, "{} commands a second, of {least}", seen.commands / seconds);
    let wrong = grown(&samples);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_is_left(&server, &before);
    assert!(server.terminate(), "{}", server.log());
    assert_sound(&dir, &[]);
}

/// Opens and closes one of each worker's kinds of connection, so that everything started by the first one has
/// started.
fn settle(server: &Server) {
    (0..20).for_each(|_| drop(server.client().line("PING")));
    std::thread::sleep(Duration::from_millis(500));
}

/// Takes a sample per second, and runs FLUSHALL now and then.
fn watched(server: &Server, time: Duration) -> Vec<Sample> {
    let (since, mut flushed, mut samples) = (Instant::now(), Instant::now(), Vec::new());
    let mut said = 0;
    while since.elapsed() < time {
        std::thread::sleep(Duration::from_secs(1).min(time));
        if flushed.elapsed() > FLUSH_EVERY {
            flushed = Instant::now();
            assert_eq!(server.client().line("FLUSHALL"), Value::Simple(b"OK".to_vec()));
        }
        let now = sample(server);
        let minutes = since.elapsed().as_secs() / 60;
        if minutes > said {
            said = minutes;
            say(&format!("  minute {minutes}: {now}"));
        }
        samples.push(now);
    }
    samples
}

fn report(seen: &Seen, samples: &[Sample], seconds: u64, least: u64) {
    say(&format!(
        "  {} commands ({} a second, {least} at least) on {} connections, {} answers that a key is gone, {} errors",
        seen.commands,
        seen.commands / seconds,
        seen.connections,
        seen.expected,
        seen.errors.len()
    ));
    say(&format!("  one command:  {}", seen.alone.line()));
    say(&format!("  2 to 31:      {}", seen.together.line()));
    for (quarter, part) in samples.chunks(samples.len().div_ceil(4)).enumerate() {
        say(&format!("  quarter {}: {}", quarter + 1, watch::median(part)));
    }
}

/// INFO's figures on the slowest commands.
fn slowest_commands(server: &Server) {
    let text = info(&mut server.client(), "latencystats");
    let mut lines: Vec<(f64, String)> = text
        .lines()
        .filter_map(|line| {
            let (name, times) = line.strip_prefix("latency_percentiles_usec_")?.split_once(':')?;
            let p999 = times.rsplit_once('=')?.1.parse().ok()?;
            Some((p999, format!("{name} {times}")))
        })
        .collect();
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    lines.iter().take(8).for_each(|(_, line)| say(&format!("  slow in the server (us): {line}")));
}

fn info(client: &mut Client, section: &str) -> String {
    let value = client.line(&format!("INFO {section}"));
    String::from_utf8(value.bytes().unwrap().to_vec()).unwrap()
}

/// Once the clients have gone, their resources must be released.
fn nothing_is_left(server: &Server, before: &Sample) {
    let since = Instant::now();
    loop {
        let now = sample(server);
        let gone =
            now.sockets <= before.sockets && now.tasks <= before.tasks && now.threads <= before.threads;
        if gone && now.clients == 1 {
            say(&format!("  without clients, after {:.1?}: {now}", since.elapsed()));
            return;
        }
        let what = format!("without clients: {now}\nbefore: {before}");
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_mix_holds_every_command_and_no_line_of_it_fails() {
    let server = support::server::tern(&[]);
    let mut client = server.client();
    let listed = client.line("COMMAND LIST");
    let listed =
        listed.items().unwrap().iter().map(|name| String::from_utf8(name.bytes().unwrap().to_vec()).unwrap());
    let sent: BTreeSet<String> = mix::names().into_iter().collect();
    let left_out: BTreeSet<String> = mix::LEFT_OUT.iter().map(|(name, _)| (*name).to_owned()).collect();
    let known: BTreeSet<String> = listed.filter(|name| !name.contains('|')).collect();
    assert_eq!(known, sent.union(&left_out).cloned().collect(), "the load must cover all commands");
    assert!(sent.is_disjoint(&left_out));
    let mut rng = Rng::new(7);
    for argv in (0..20).flat_map(|_| mix::every_line(&mut rng)) {
        let reply = client.run(&argv).value;
        let right = !matches!(&reply, Value::Error(line) if !mix::is_expected(&argv, line));
        assert!(right, "{argv:?}: {reply:?}");
    }
}
