//! Options that clients hardly notice: their effects are observed in the kernel, or when a server stops.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, tern};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// A server that runs a command for this many seconds, and its client.
fn at_work(options: &[&str], seconds: u32) -> (Server, Client) {
    let server = tern(&[&["--enable-debug-command", "yes"], options].concat());
    let mut at_work = server.client();
    at_work.send(&["DEBUG", "SLEEP", &seconds.to_string()]).unwrap();
    let (mut other, since) = (server.client(), Instant::now());
    // The server has read the command.
    let waits = |list: &str| {
        let line = list.lines().find(|line| line.contains(&format!(" addr={} ", at_work.address()))).unwrap();
        line.contains(" tot-net-in=0 ")
    };
    while waits(&String::from_utf8_lossy(other.line("CLIENT LIST").bytes().unwrap())) {
        assert!(since.elapsed() < Duration::from_secs(20), "the command must start");
    }
    (server, at_work)
}

#[test]
fn a_shutdown_waits_for_commands_that_run() {
    let (mut server, mut client) = at_work(&["--shutdown-timeout", "60"], 2);
    let since = Instant::now();
    assert!(server.terminate(), "{}", server.log());
    assert!(since.elapsed() >= Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(client.read().unwrap().value, ok(), "a command under way must be answered");
    assert!(!server.log().contains("shutdown-timeout has passed"), "{}", server.log());
}

#[test]
fn a_shutdown_waits_no_longer_than_shutdown_timeout() {
    // The default is 10; CONFIG SET shortens it.
    let (mut server, mut client) = at_work(&[], 30);
    assert_eq!(server.client().line("CONFIG SET shutdown-timeout 2"), ok());
    let since = Instant::now();
    server.client().send(&["SHUTDOWN"]).unwrap();
    while server.is_running() {
        assert!(since.elapsed() < Duration::from_secs(9), "{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(since.elapsed() >= Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(client.drain(), (Vec::new(), true), "the command must be cut off");
    assert!(server.log().contains("shutdown-timeout has passed"), "{}", server.log());
}

/// The remaining seconds of a connection's timer: the kernel's row of the server's end. None: no timer.
fn timer(server: &Server, client: &Client) -> Option<f64> {
    let ends = [server.port, client.address().rsplit(':').next().unwrap().parse().unwrap()]
        .map(|p| format!(":{p:04X}"));
    let since = Instant::now();
    loop {
        let rows = std::fs::read_to_string(format!("/proc/{}/net/tcp", server.pid())).unwrap();
        let row = rows.lines().map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
        let mut row = row.filter(|row| row[1].ends_with(&ends[0]) && row[2].ends_with(&ends[1]));
        let (kind, jiffies) = row.next().expect("the connection must have a row")[5].split_once(':').unwrap();
        match kind {
            "00" => return None,
            "02" => return Some(f64::from(u32::from_str_radix(jiffies, 16).unwrap()) / 100.0),
            // An unacknowledged reply has a timer of its own.
            _ => assert!(since.elapsed() < Duration::from_secs(20), "timer {kind}"),
        }
    }
}

#[test]
fn probes_are_sent_after_tcp_keepalive_seconds() {
    if !std::path::Path::new("/proc/self/net/tcp").exists() {
        return support::skipped("TCP's timers: no /proc/net/tcp", "run it on Linux");
    }
    for (options, first) in [(&[][..], 300.0), (&["--tcp-keepalive", "77"], 77.0)] {
        let server = tern(options);
        let mut client = server.client();
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        let left = timer(&server, &client).expect("a keepalive timer");
        assert!(left <= first && left > first - 30.0, "{left} s of {first}");
        assert_eq!(client.line("CONFIG SET tcp-keepalive 0"), ok());
        let mut later = server.client();
        later.line("PING");
        assert_eq!(timer(&server, &later), None);
        assert_eq!(client.line("CONFIG SET tcp-keepalive 1000"), ok());
        let mut last = server.client();
        last.line("PING");
        let left = timer(&server, &last).expect("a keepalive timer");
        assert!(left <= 1000.0 && left > 970.0, "{left} s of 1000");
    }
}

/// While the server stands still the kernel accepts one connection more than the queue's length, and leaves
/// others waiting.
fn queued(backlog: &str) -> usize {
    let server = tern(&["--tcp-backlog", backlog]);
    assert_eq!(server.client().line("PING"), Value::Simple(b"PONG".to_vec()));
    signal(&server, "-STOP");
    let address = SocketAddr::from(([127, 0, 0, 1], server.port));
    let knock = |_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let held: Vec<TcpStream> = (0..40).map_while(knock).collect();
    signal(&server, "-CONT");
    held.len()
}

#[test]
fn the_kernel_queues_tcp_backlog_connections() {
    assert_eq!(queued("5"), 6);
    assert_eq!(queued("20"), 21);
    assert_eq!(queued("511"), 40, "all connections must be queued");
}
