//! MONITOR shows every command to clients that request it, but no password; a client that does not read is
//! closed, and no other client waits for it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, tern};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

fn monitor(server: &Server) -> Client {
    let mut c = server.client();
    assert_eq!(c.line("MONITOR"), ok());
    c
}

/// The next line: the database, the address and the quoted words.
fn next(monitor: &mut Client) -> (String, String, String) {
    let value = monitor.read().unwrap().value;
    assert!(matches!(value, Value::Simple(_)), "{value:?}");
    let line = text(&value);
    let (time, rest) = line.split_once(" [").unwrap();
    assert!(time.parse::<f64>().unwrap() > 1.7e9 && time.split_once('.').unwrap().1.len() == 6, "{line}");
    let (origin, words) = rest.split_once("] ").unwrap();
    let (db, addr) = origin.split_once(' ').unwrap();
    (db.into(), addr.into(), words.into())
}

fn words(monitor: &mut Client) -> String {
    next(monitor).2
}

#[test]
fn every_command_is_shown_with_its_client_and_database() {
    let server = tern(&[]);
    let mut m = monitor(&server);
    let mut c = server.client();
    c.send_raw(b"set k1 v\r\nselect 3\r\nget k2\r\nselect 99\r\nget k3\r\n").unwrap();
    (0..5).for_each(|_| drop(c.read().unwrap()));
    let seen: Vec<_> = (0..5).map(|_| next(&mut m)).collect();
    let addr = c.address();
    let want = [
        ("0", r#""set" "k1" "v""#),
        ("3", r#""select" "3""#),
        ("3", r#""get" "k2""#),
        ("3", r#""select" "99""#),
        ("3", r#""get" "k3""#),
    ]
    .map(|(db, words)| (db.to_owned(), addr.clone(), words.to_owned()));
    assert_eq!(seen, want);
    c.run(&[b"ECHO".as_slice(), b"a\"\\\r\n\xff"]);
    assert_eq!(words(&mut m), r#""ECHO" "a\"\\\r\n\xff""#);
    c.line("NOSUCH x");
    c.line("GET");
    c.line("CONFIG GET port");
    c.line("PING");
    assert_eq!(words(&mut m), r#""PING""#, "refused and administrative commands must not be shown");
}

#[test]
fn a_transaction_is_shown_when_it_runs() {
    let server = tern(&[]);
    let mut m = monitor(&server);
    let mut c = server.client();
    for line in ["MULTI", "SET k v", "GET k", "EXEC"] {
        c.line(line);
    }
    let seen: Vec<String> = (0..4).map(|_| words(&mut m)).collect();
    assert_eq!(seen, [r#""MULTI""#, r#""SET" "k" "v""#, r#""GET" "k""#, r#""EXEC""#]);
    for line in ["MULTI", "MONITOR"] {
        c.line(line);
    }
    let refused = c.line("EXEC");
    assert!(text(&refused.items().unwrap()[0]).contains("isn't allowed"), "{refused:?}");
}

#[test]
fn passwords_are_hidden() {
    let server = tern(&[]);
    let mut m = monitor(&server);
    let mut c = server.client();
    c.line("AUTH secret");
    c.line("AUTH user secret");
    c.line("HELLO 3 AUTH user secret");
    let seen: Vec<String> = (0..3).map(|_| words(&mut m)).collect();
    assert_eq!(
        seen,
        [
            r#""AUTH" "(redacted)""#,
            r#""AUTH" "(redacted)" "(redacted)""#,
            r#""HELLO" "3" "AUTH" "(redacted)" "(redacted)""#
        ]
    );
}

#[test]
fn a_monitoring_client_can_run_commands_and_leave() {
    let server = tern(&[]);
    let mut m = monitor(&server);
    let id = m.line("CLIENT ID").int().unwrap();
    assert_eq!(words(&mut m), r#""CLIENT" "ID""#, "the command must follow its reply");
    let mut c = server.client();
    let list = text(&c.line(&format!("CLIENT LIST ID {id}")));
    assert!(list.contains(" flags=O "), "{list}");
    assert_eq!(m.line("RESET"), Value::Simple(b"RESET".to_vec()));
    c.line("PING");
    assert!(m.is_silent(Duration::from_millis(200)), "it must see no more commands");
    let list = text(&c.line(&format!("CLIENT LIST ID {id}")));
    assert!(list.contains(" flags=N "), "{list}");
    drop(monitor(&server));
    c.line("PING");
    assert_eq!(c.line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn a_monitor_that_does_not_read_is_closed_and_holds_no_client() {
    let server = tern(&["--client-output-buffer-limit", "pubsub", "1mb", "0", "0"]);
    let m = monitor(&server);
    let mut c = server.client();
    let (value, since) = ("x".repeat(50_000), Instant::now());
    while text(&c.line("CLIENT LIST")).lines().count() > 1 {
        c.run(&["ECHO", &value]);
        assert!(since.elapsed() < Duration::from_secs(20), "the monitor must be closed");
    }
    drop(m);
}
