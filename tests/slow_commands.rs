//! SLOWLOG and LATENCY on real connections.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use support::resp::{Client, Value};
use support::server::{free_port, tern};

const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}"))).into_owned()
}

/// The command lines of SLOWLOG GET, the latest first.
fn lines(client: &mut Client) -> Vec<String> {
    let reply = client.line("SLOWLOG GET -1");
    let argv =
        |entry: &Value| entry.items().unwrap()[3].items().unwrap().iter().map(text).collect::<Vec<_>>();
    reply.items().unwrap().iter().map(|entry| argv(entry).join(" ")).collect()
}

#[test]
fn an_entry_names_the_slow_command_and_its_client() {
    let server = tern(DEBUG);
    let mut c = server.client();
    assert_eq!(c.line("CLIENT SETNAME anna"), Value::Simple(b"OK".to_vec()));
    c.line("CONFIG SET slowlog-log-slower-than 100000");
    c.line("SLOWLOG RESET");
    c.line("PING");
    assert_eq!(c.line("SLOWLOG LEN").int(), Some(0));
    c.line("DEBUG SLEEP 0.2");
    let reply = c.line("SLOWLOG GET");
    let entries = reply.items().unwrap();
    assert_eq!(entries.len(), 1, "{reply:?}");
    let entry = entries[0].items().unwrap();
    assert_eq!(entry.len(), 6);
    let (at, took) = (entry[1].int().unwrap(), entry[2].int().unwrap());
    assert!(at > 1_700_000_000 && (200_000..5_000_000).contains(&took), "{entry:?}");
    assert_eq!(lines(&mut c), ["DEBUG SLEEP 0.2"]);
    assert_eq!((text(&entry[4]), text(&entry[5])), (c.address(), "anna".into()));
    c.line("SLOWLOG RESET");
    c.line("DEBUG SLEEP 0.2");
    let next = c.line("SLOWLOG GET 1").items().unwrap()[0].items().unwrap()[0].int();
    assert_eq!(next, Some(entry[0].int().unwrap() + 1), "the numbers must continue");
}

#[test]
fn arguments_are_cut() {
    let server = tern(&["--slowlog-log-slower-than", "0"]);
    let mut c = server.client();
    c.line("SLOWLOG RESET");
    let long = "A".repeat(129);
    c.run(&["SADD", "set", "foo", &long]);
    let many: Vec<String> = (1..=37).map(|n| n.to_string()).collect();
    c.line(&format!("SADD set {}", many.join(" ")));
    c.line("CONFIG SET slowlog-log-slower-than -1");
    let lines = lines(&mut c);
    let cut = format!("SADD set {} ... (8 more arguments)", many[..29].join(" "));
    assert_eq!(lines[..2], [cut, format!("SADD set foo {}... (1 more bytes)", "A".repeat(128))]);
}

#[test]
fn secrets_are_not_logged() {
    let server = tern(&["--slowlog-log-slower-than", "0"]);
    let mut c = server.client();
    c.line("SLOWLOG RESET");
    c.line("AUTH default secret");
    c.line("HELLO 3 AUTH default secret SETNAME x");
    c.run(&["CONFIG", "SET", "requirepass", ""]);
    c.line("MULTI");
    c.line("SET k v");
    c.line("EXEC");
    c.line("CONFIG SET slowlog-log-slower-than -1");
    let seen = lines(&mut c);
    assert_eq!(
        seen,
        [
            "SET k v",
            "MULTI",
            "CONFIG SET requirepass (redacted)",
            "HELLO 3 AUTH (redacted) (redacted) SETNAME x",
            "AUTH (redacted) (redacted)",
            "SLOWLOG RESET",
        ],
        "EXEC is left out, and the command that ends it"
    );
}

#[test]
fn slowlog_max_len_bounds_the_entries() {
    let server = tern(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "3"]);
    let mut c = server.client();
    for n in 0..10 {
        c.line(&format!("GET k{n}"));
    }
    assert_eq!(lines(&mut c), ["GET k9", "GET k8", "GET k7"]);
    let lines: Vec<String> = (0..50).map(|n| format!("GET p{n}\r\n")).collect();
    c.send_raw(lines.concat().as_bytes()).unwrap();
    (0..50).for_each(|_| drop(c.read().unwrap()));
    assert_eq!(self::lines(&mut c), ["GET p49", "GET p48", "GET p47"], "a pipeline must be logged too");
    c.line("CONFIG SET slowlog-max-len 0");
    c.line("PING");
    assert_eq!(c.line("SLOWLOG LEN").int(), Some(0));
    assert_eq!(c.line("SLOWLOG GET").items().map(<[Value]>::len), Some(0));
    for line in ["SLOWLOG GET -2", "SLOWLOG GET x"] {
        assert_eq!(text(&c.line(line)), "ERR count should be greater than or equal to -1");
    }
}

/// Reads a map that RESP2 shows as a flat array.
fn pairs(value: &Value) -> Vec<(String, Value)> {
    let items = value.items().unwrap();
    items.chunks(2).map(|pair| (text(&pair[0]), pair[1].clone())).collect()
}

#[test]
fn a_histogram_counts_every_call() {
    let server = tern(DEBUG);
    let mut c = server.client();
    c.line("CONFIG RESETSTAT");
    assert_eq!(pairs(&c.line("LATENCY HISTOGRAM"))[0].0, "config|resetstat");
    for _ in 0..5 {
        c.line("SET k v");
    }
    c.line("CLIENT ID");
    c.line("CLIENT LIST");
    let set = pairs(&c.line("LATENCY HISTOGRAM set nosuch"));
    assert_eq!(set.len(), 1);
    let facts = pairs(&set[0].1);
    assert_eq!((facts[0].0.as_str(), facts[0].1.int()), ("calls", Some(5)));
    let steps: Vec<i64> = facts[1].1.items().unwrap().iter().map(|n| n.int().unwrap()).collect();
    assert!(steps.chunks(2).is_sorted_by(|a, b| a[0] < b[0] && a[1] < b[1]), "{steps:?}");
    assert_eq!(*steps.last().unwrap(), 5, "the last step must hold all calls: {steps:?}");
    let names = |line: &str, c: &mut Client| -> Vec<String> {
        pairs(&c.line(line)).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names("LATENCY HISTOGRAM client", &mut c), ["client|id", "client|list"]);
    assert_eq!(names("LATENCY HISTOGRAM CLIENT|ID", &mut c), ["client|id"]);
}

/// Calls are still counted.
#[test]
fn without_latency_tracking_no_latency_is_shown() {
    let metrics = free_port();
    let server = tern(&["--latency-tracking", "no", "--metrics-port", &metrics.to_string()]);
    let mut c = server.client();
    let seen = |c: &mut Client| {
        let stats = text(&c.line("INFO latencystats"));
        let percentiles =
            stats.lines().filter(|line| line.starts_with("latency_percentiles_usec_get:")).count();
        let histogram = pairs(&c.line("LATENCY HISTOGRAM get")).pop();
        let calls = histogram.map_or(0, |(_, facts)| pairs(&facts)[0].1.int().unwrap());
        let measured = metric(metrics, "tern_command_seconds_count{command=\"get\"} ");
        let info = text(&c.line("INFO commandstats"));
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls=")).unwrap().to_owned();
        let counted = line.split(',').next().unwrap().parse().unwrap();
        let usec: f64 = line.split("usec=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(usec > 0.0, "{line}");
        (percentiles, calls, measured, counted)
    };
    let get = |c: &mut Client, n| (0..n).for_each(|_| drop(c.line("GET key")));
    get(&mut c, 3);
    assert_eq!(seen(&mut c), (0, 0, 0, 3));
    assert_eq!(text(&c.line("CONFIG SET latency-tracking yes")), "OK");
    get(&mut c, 2);
    assert_eq!(seen(&mut c), (1, 2, 2, 5));
    assert_eq!(text(&c.line("CONFIG SET latency-tracking no")), "OK");
    get(&mut c, 4);
    assert_eq!(seen(&mut c), (0, 2, 2, 9), "as in Redis, LATENCY HISTOGRAM must show earlier measurements");
    c.line("SET k v");
    assert!(c.line("INCR k").is_error());
    assert_eq!(
        metric(metrics, "tern_commands_failed_total{command=\"incr\"} "),
        1,
        "failed calls must be shown too"
    );
    c.line("CONFIG RESETSTAT");
    get(&mut c, 1);
    assert_eq!(seen(&mut c), (0, 0, 0, 1));
}

/// A number of the metrics; 0 if it is missing.
fn metric(port: u16, name: &str) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let number = text.lines().find_map(|line| line.strip_prefix(name));
    number.map_or(0, |n| n.parse::<f64>().unwrap() as u64)
}

#[test]
fn the_latency_monitor_keeps_slow_commands() {
    let server = tern(DEBUG);
    let mut c = server.client();
    c.line("DEBUG SLEEP 0.25");
    assert_eq!(c.line("LATENCY LATEST").items().map(<[Value]>::len), Some(0), "the monitor must be off");
    assert!(text(&c.line("LATENCY DOCTOR")).contains("is off"));
    c.line("CONFIG SET latency-monitor-threshold 200");
    c.line("PING");
    assert!(text(&c.line("LATENCY DOCTOR")).contains("No event has exceeded"));
    for sleep in ["0.3", "0.4"] {
        c.line(&format!("DEBUG SLEEP {sleep}"));
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let latest = c.line("LATENCY LATEST");
    let command = latest.items().unwrap()[0].items().unwrap();
    assert_eq!((text(&command[0]), command.len()), ("command".into(), 4));
    let (last, longest) = (command[2].int().unwrap(), command[3].int().unwrap());
    assert!((400..3000).contains(&last) && longest >= last, "{latest:?}");
    let history = c.line("LATENCY HISTORY command");
    assert_eq!(history.items().map(<[Value]>::len), Some(2), "{history:?}");
    assert_eq!(c.line("LATENCY HISTORY nosuch").items().map(<[Value]>::len), Some(0));
    assert!(text(&c.line("LATENCY GRAPH command")).starts_with("command - high "));
    assert!(text(&c.line("LATENCY DOCTOR")).contains("- command: in 2 seconds"));
    assert_eq!(text(&c.line("LATENCY GRAPH nosuch")), "ERR No samples available for event 'nosuch'");
    assert_eq!(c.line("LATENCY RESET nosuch").int(), Some(0));
    assert_eq!(c.line("LATENCY RESET command").int(), Some(1));
    assert_eq!(c.line("LATENCY RESET").int(), Some(0));
}
