//! DEBUG and its purpose: a panic in a command ends only that command, a panic in a connection ends only that
//! connection, both are counted and logged, and other clients do not notice. A server that was not started
//! for it refuses DEBUG.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};
use support::resp::{Client, Value, request};
use support::server::{Server, free_port, tern};

fn string(value: &Value) -> String {
    String::from_utf8(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}")).to_vec()).unwrap()
}

fn line(c: &mut Client, line: &str) -> String {
    string(&c.line(line))
}

/// The number of panics by INFO and by the metrics.
fn panics(c: &mut Client, metrics: u16) -> (u64, u64) {
    let text = line(c, "INFO tern");
    let info = text.lines().find_map(|l| l.strip_prefix("panics:")).unwrap().parse().unwrap();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", metrics)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let metric = text.lines().find_map(|l| l.strip_prefix("tern_panics_total ")).unwrap();
    (info, metric.parse::<f64>().unwrap() as u64)
}

fn with_debug(allowed: &str, more: &[&str]) -> Server {
    tern(&[&["--enable-debug-command", allowed], more].concat())
}

const FAILED: &str = "ERR internal error: the command failed, see the server's log";

#[test]
fn a_panic_in_a_command_ends_that_command_only() {
    let metrics = free_port();
    let server = with_debug("yes", &["--metrics-port", &metrics.to_string()]);
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(line(&mut b, "SET other 1"), "OK");
    assert_eq!(line(&mut a, "DEBUG PANIC"), FAILED);
    assert_eq!(panics(&mut b, metrics), (1, 1));
    assert!(
        server.log().lines().any(|l| l.contains("ERROR") && l.contains("DEBUG PANIC")),
        "{}",
        server.log()
    );
    // Commands beside it in a pipeline and in an EXEC run once.
    let lines = ["INCR n", "DEBUG PANIC", "INCR n"];
    let window = lines.map(|l| request(&l.split(' ').collect::<Vec<_>>())).concat();
    a.send_raw(&window).unwrap();
    let replies = [0; 3].map(|_| a.read().unwrap().value);
    assert_eq!(
        (replies[0].int(), string(&replies[1]).as_str(), replies[2].int()),
        (Some(1), FAILED, Some(2))
    );
    for l in ["MULTI", "INCR n", "DEBUG PANIC", "INCR n"] {
        a.line(l);
    }
    let exec = a.line("EXEC");
    let items = exec.items().unwrap();
    assert_eq!((items[0].int(), string(&items[1]).as_str(), items[2].int()), (Some(3), FAILED, Some(4)));
    assert_eq!((line(&mut b, "GET n"), line(&mut b, "GET other")), ("4".to_owned(), "1".to_owned()));
    assert_eq!(panics(&mut b, metrics), (3, 3));
}

#[test]
fn a_panic_in_a_connection_ends_that_connection_only() {
    let metrics = free_port();
    let server = with_debug("yes", &["--metrics-port", &metrics.to_string()]);
    let (mut a, mut b) = (server.client(), server.client());
    let id = a.line("CLIENT ID").int().unwrap();
    a.line("WATCH k");
    a.send(&["DEBUG", "PANIC", "CONNECTION"]).unwrap();
    a.set_timeout(Duration::from_secs(20));
    assert!(a.drain().1, "the connection is closed");
    assert_eq!(line(&mut b, "SET k v"), "OK");
    assert_eq!(line(&mut b, &format!("CLIENT LIST ID {id}")), "", "the client has left the registry");
    assert_eq!(panics(&mut b, metrics), (1, 1));
    let log = server.log();
    for words in ["DEBUG PANIC CONNECTION", "panic: connection closed"] {
        assert!(log.lines().any(|l| l.contains("ERROR") && l.contains(words)), "{words} in\n{log}");
    }
    assert_eq!(line(&mut server.client(), "PING"), "PONG");
}

#[test]
fn debug_is_refused_unless_enabled() {
    let refusal = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
                   it from a local connection, otherwise you need to set this option in the configuration file, and \
                   then restart the server.";
    let server = tern(&[]);
    let mut c = server.client();
    for l in ["DEBUG PANIC", "DEBUG SLEEP 0", "DEBUG nosuch"] {
        assert_eq!(line(&mut c, l), refusal);
    }
    assert_eq!(line(&mut c, "DEBUG"), "ERR wrong number of arguments for 'debug' command");
    assert!(line(&mut c, "CONFIG SET enable-debug-command yes").ends_with("can't set immutable config"));
    assert_eq!(line(&mut c, "DEBUG PANIC"), refusal);
    c.line("MULTI");
    assert_eq!(line(&mut c, "DEBUG SLEEP 0"), refusal);
    assert!(line(&mut c, "EXEC").starts_with("EXECABORT"));
    assert!(line(&mut c, "INFO tern").contains("panics:0\r\n"));
    let server = with_debug("local", &[]);
    assert_eq!(line(&mut server.client(), "DEBUG SLEEP 0"), "OK");
}

#[test]
fn debug_helps_tests() {
    let server = with_debug("yes", &[]);
    let mut c = server.client();
    assert_eq!(line(&mut c, "DEBUG ERROR OOPS"), "OOPS");
    assert_eq!(line(&mut c, "DEBUG LOG hello-log"), "OK");
    assert!(server.log().contains("DEBUG LOG: hello-log"), "{}", server.log());
    assert_eq!(line(&mut c, "DEBUG OBJECT k"), "ERR no such key");
    c.line("SET k 0123456789abc");
    let object = line(&mut c, "DEBUG OBJECT k");
    assert!(object.contains(" encoding:embstr serializedlength:13 lru:"), "{object}");
    let wrong = "ERR unknown subcommand or wrong number of arguments for 'sleep'. Try DEBUG HELP.";
    assert_eq!(line(&mut c, "DEBUG sleep"), wrong);
    let before = Instant::now();
    assert_eq!(line(&mut c, "DEBUG SLEEP 0.2"), "OK");
    assert!(before.elapsed() >= Duration::from_millis(200));
    assert!(c.line("DEBUG HELP").items().unwrap().len() > 5);
}

#[test]
fn set_active_expire_switches_the_job() {
    let server = with_debug("yes", &[]);
    let mut c = server.client();
    assert_eq!(line(&mut c, "DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    // A round under way still finishes.
    std::thread::sleep(Duration::from_millis(200));
    c.line("SET k v PX 1");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(c.line("DBSIZE").int(), Some(1), "an expired key stays until it is accessed");
    assert_eq!(c.line("EXISTS k").int(), Some(0));
    assert_eq!(line(&mut c, "DEBUG SET-ACTIVE-EXPIRE 1"), "OK");
    let since = Instant::now();
    while c.line("DBSIZE").int() != Some(0) {
        assert!(since.elapsed() < Duration::from_secs(20), "the job must remove it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The expected bytes are those of redis-server 7.0.15.
#[test]
fn debug_protocol_samples_each_reply_type() {
    let server = with_debug("yes", &[]);
    let mut c = server.client();
    let mut bytes = |kind: &str| c.run(&["DEBUG", "PROTOCOL", kind]).raw;
    assert_eq!(bytes("bignum"), b"$37\r\n1234567999999999999999999999999999999\r\n");
    assert_eq!(bytes("attrib"), b"$39\r\nSome real reply following the attribute\r\n");
    assert_eq!(bytes("map"), b"*6\r\n:0\r\n:0\r\n:1\r\n:1\r\n:2\r\n:0\r\n");
    assert_eq!(bytes("null"), b"$-1\r\n");
    assert_eq!(bytes("push"), b"-ERR RESP2 is not supported by this command\r\n");
    c.line("HELLO 3");
    let mut bytes = |kind: &str| c.run(&["DEBUG", "PROTOCOL", kind]).raw;
    assert_eq!(bytes("bignum"), b"(1234567999999999999999999999999999999\r\n");
    assert_eq!(bytes("true"), b"#t\r\n");
    assert_eq!(bytes("double"), b",3.141\r\n");
    assert_eq!(bytes("verbatim"), b"=29\r\ntxt:This is a verbatim\nstring\r\n");
    assert_eq!(bytes("map"), b"%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n");
    assert!(bytes("nosuch").starts_with(b"-ERR Wrong protocol type name."));
}

#[test]
fn the_dictionary_is_read_again_after_a_reload() {
    let server = with_debug("yes", &[]);
    let mut c = server.client();
    let members: Vec<String> = (0..2000).map(|n| format!("member{n}")).collect();
    c.run(&[vec!["SADD".to_owned(), "s".to_owned()], members.clone()].concat());
    c.line("FLUSHDB");
    c.run(&[vec!["SADD".to_owned(), "s".to_owned()], members].concat());
    assert_eq!(line(&mut c, "DEBUG RELOAD"), "OK");
    assert_eq!(c.line("SADD s member1 new").int(), Some(1));
    assert_eq!(line(&mut c, "DEBUG LOADAOF"), "OK");
    assert_eq!(c.line("SCARD s").int(), Some(2001));
    assert_eq!(c.line("SREM s new member7").int(), Some(2));
}

/// A field of INFO.
fn field(c: &mut Client, section: &str, name: &str) -> Option<String> {
    let text = line(c, &format!("INFO {section}"));
    text.lines().find_map(|l| Some(l.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// Waits for the job's result; it gives replies ten seconds to finish.
fn wait_for(c: &mut Client, name: &str, want: &str) {
    let since = Instant::now();
    while field(c, "tern", name).as_deref() != Some(want) {
        let all = line(c, "INFO tern");
        assert!(since.elapsed() < Duration::from_secs(60), "{name} does not become {want}: {all}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn unreferenced_members_are_collected_on_demand_and_by_the_job() {
    let server = with_debug("yes", &["--dictionary-gc-share", "100"]);
    let mut c = server.client();
    let words: Vec<String> = (0..500).map(|n| format!("{n:070}")).collect();
    assert_eq!(c.line(&format!("SADD a {}", words.join(" "))).int(), Some(500));
    assert_eq!(c.line(&format!("SREM a {}", words[..400].join(" "))).int(), Some(400));
    assert_eq!(field(&mut c, "tern", "dictionary_gc_phase").unwrap(), "idle");
    assert_eq!(line(&mut c, "DEBUG DICTIONARY-GC"), "OK");
    wait_for(&mut c, "dictionary_gc_cycles", "1");
    let shown = field(&mut c, "keyspace", "dictionary").unwrap();
    for part in
        ["ids_leased=65536", "ids_live=100", "ids_dead=400", "ids_collected=400", "epoch=1", "phase=idle"]
    {
        assert!(shown.split(',').any(|p| p == part), "{part} is not in {shown}");
    }
    assert_eq!(c.line("SCARD a").int(), Some(100));
    assert_eq!(c.line(&format!("SADD a {}", words[..450].join(" "))).int(), Some(400));
    // It also happens without the command, after a while.
    assert_eq!(c.line(&format!("SREM a {}", words[..200].join(" "))).int(), Some(200));
    assert_eq!(line(&mut c, "CONFIG SET dictionary-gc-interval 2"), "OK");
    wait_for(&mut c, "dictionary_ids_collected", "600");
    assert_eq!(line(&mut c, "CONFIG SET dictionary-gc-interval 0"), "OK");
    let two = c.line(&format!("SMISMEMBER a {} {}", words[0], words[300]));
    let two: Vec<Option<i64>> = two.items().unwrap().iter().map(|v| v.int()).collect();
    assert_eq!(two, [Some(0), Some(1)]);
}
