//! The public resp-compatibility suite: every case whose commands Tern has.
//!
//! The cases are in `../shared/compat/cts.json` beside the checkout: command lines quoted as in redis-cli,
//! and their replies. The test prints the number of omitted cases and the commands that they need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use support::resp::{Client, Value, text};
use support::server::tern;
use support::{say, skipped, suite};

/// The number of cases that pass today, of 416: the others are of a cluster, or marked as skipped.
const LEAST: usize = 352;

struct Case {
    name: String,
    lines: Vec<Vec<Vec<u8>>>,
    results: Vec<Json>,
    any_order: bool,
    floats: bool,
}

#[test]
fn compatibility_cases_pass() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/compat/cts.json");
    let Ok(file) = std::fs::read_to_string(&path) else {
        return skipped("compatibility cases: no ../shared/compat/cts.json", "put the suite's file there");
    };
    let cases: Vec<Json> = serde_json::from_str(&file).expect("cts.json is JSON");
    let server = tern(&["--appendfsync", "no"]);
    let mut asks = server.client();
    let (mut passed, mut failures, mut left_out) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    for case in cases.iter().filter(|c| c["tags"] != "cluster").map(read_case) {
        let reason =
            if case.skip { Some("marked as skipped".to_owned()) } else { missing(&mut asks, &case.case) };
        match reason {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            // Some cases end subscribed, or with QUIT.
            None => match run(&mut server.client(), &case.case) {
                Ok(()) => passed += 1,
                Err(why) => failures.push(format!("{}: {why}", case.case.name)),
            },
        }
    }
    let because: Vec<String> = left_out.iter().map(|(name, count)| format!("{name} {count}")).collect();
    say(&format!("cts: {} cases left out: {}", left_out.values().sum::<usize>(), because.join(", ")));
    suite("cts", passed, failures.len());
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
    assert!(passed >= LEAST, "{passed} cases ran, expected at least {LEAST}");
}

struct Read {
    case: Case,
    skip: bool,
}

fn read_case(json: &Json) -> Read {
    let flag = |name: &str| json[name].as_bool().unwrap_or(false);
    let lines = json["command"].as_array().expect("command").iter().map(|l| l.as_str().expect("a line"));
    let case = Case {
        name: json["name"].as_str().expect("name").to_owned(),
        lines: lines.map(|line| split(line, flag("command_binary"))).collect(),
        results: json["result"].as_array().expect("result").clone(),
        any_order: flag("sort_result"),
        floats: flag("float_result"),
    };
    Read { case, skip: flag("skipped") }
}

/// The first command of a case that the server does not have; a container's subcommand counts.
fn missing(client: &mut Client, case: &Case) -> Option<String> {
    case.lines.iter().find_map(|argv| {
        let name = String::from_utf8_lossy(&argv[0]).to_lowercase();
        let info = client.run(&["COMMAND", "INFO", &name]).value;
        let row = info.items().and_then(|i| i.first()).and_then(Value::items);
        let Some(row) = row else { return Some(name) };
        let subs = row.get(9).and_then(Value::items).unwrap_or_default();
        let full = format!(
            "{name}|{}",
            String::from_utf8_lossy(argv.get(1).map_or(b"".as_slice(), |s| s)).to_lowercase()
        );
        let known = |sub: &Value| sub.items().and_then(|s| s.first()?.bytes()) == Some(full.as_bytes());
        (!subs.is_empty() && !subs.iter().any(known)).then_some(full)
    })
}

fn run(client: &mut Client, case: &Case) -> Result<(), String> {
    client.run(&["FLUSHALL"]);
    for (argv, want) in case.lines.iter().zip(&case.results) {
        let got = client.run(argv).value;
        if !matches(want, &got, case) {
            let line: Vec<String> = argv.iter().map(|a| text(a)).collect();
            return Err(format!("{}: wanted {want}, got {got:?}", line.join(" ")));
        }
    }
    Ok(())
}

fn matches(want: &Json, got: &Value, case: &Case) -> bool {
    match (want, got) {
        (Json::Null, Value::Nil(_)) => true,
        (Json::Number(n), Value::Int(i)) => n.as_i64() == Some(*i),
        (Json::Bool(b), Value::Int(i)) => i64::from(*b) == *i,
        (Json::Array(want), got) => got.items().is_some_and(|got| all_match(want, got, case)),
        (Json::String(want), got) if case.floats && close(want, got) => true,
        (Json::String(want), got) => got.bytes() == Some(want.as_bytes()),
        _ => false,
    }
}

fn all_match(want: &[Json], got: &[Value], case: &Case) -> bool {
    if want.len() != got.len() {
        return false;
    }
    if !case.any_order {
        return want.iter().zip(got).all(|(want, got)| matches(want, got, case));
    }
    let mut rest: Vec<&Value> = got.iter().collect();
    want.iter().all(|want| {
        let at = rest.iter().position(|got| matches(want, got, case));
        at.map(|at| rest.remove(at)).is_some()
    })
}

fn close(want: &str, got: &Value) -> bool {
    let got = got.bytes().and_then(|b| std::str::from_utf8(b).ok()).and_then(|s| s.parse::<f64>().ok());
    match (want.parse::<f64>(), got) {
        (Ok(want), Some(got)) => (want - got).abs() <= 1e-9 * want.abs().max(1.0),
        _ => false,
    }
}

/// Splits a line into words as redis-cli does: double quotes with escapes, single quotes without. In a binary
/// line, escapes also count outside quotes.
fn split(line: &str, binary: bool) -> Vec<Vec<u8>> {
    let (bytes, mut words, mut at) = (line.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        if bytes[at] == b' ' {
            at += 1;
            continue;
        }
        let quote = (bytes[at] == b'"' || bytes[at] == b'\'').then_some(bytes[at]);
        let end = quote.unwrap_or(b' ');
        at += usize::from(quote.is_some());
        let mut word = Vec::new();
        while at < bytes.len() && bytes[at] != end {
            let escapes =
                end == b'"' || end == b' ' && binary || end == b'\'' && bytes[at..].starts_with(b"\\'");
            let (byte, used) =
                if escapes && bytes[at] == b'\\' { unescape(&bytes[at..]) } else { (bytes[at], 1) };
            word.push(byte);
            at += used;
        }
        at += 1;
        words.push(word);
    }
    words
}

fn unescape(bytes: &[u8]) -> (u8, usize) {
    match bytes.get(1) {
        Some(b'x') => {
            let hex = bytes.get(2..4).and_then(|h| std::str::from_utf8(h).ok());
            hex.and_then(|h| u8::from_str_radix(h, 16).ok()).map_or((b'x', 2), |byte| (byte, 4))
        }
        Some(b'n') => (b'\n', 2),
        Some(b'r') => (b'\r', 2),
        Some(b't') => (b'\t', 2),
        Some(b'a') => (7, 2),
        Some(b'b') => (8, 2),
        Some(other) => (*other, 2),
        None => (b'\\', 1),
    }
}

#[test]
fn lines_are_split_as_redis_cli_does() {
    let words = |line: &str, binary| split(line, binary).iter().map(|w| text(w)).collect::<Vec<_>>();
    assert_eq!(words("set k  'a b' \"c\\\"d\\x00\" \"\"", false), ["set", "k", "a b", "c\\\"d\\x00", ""]);
    assert_eq!(words("restore k \\x00\\a\\r]", true), ["restore", "k", "\\x00\\x07\\r]"]);
    assert_eq!(words("echo a\\x00", false), ["echo", "a\\\\x00"]);
}
