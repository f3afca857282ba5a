//! Replies of many members of a sorted set are read while they are sent: the server holds a bounded part, whatever the
//! client does, and the reply is the range as it was when the command ran.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;
use support::pace::slowest_get;
use support::reader::Reader;
use support::resp::{Client, Value};
use support::server::{Server, tern};

/// Members of a sorted set whose reply exceeds the kernel's socket buffers.
const MANY: usize = 200_000;

fn member(n: usize) -> String {
    format!("player:{n:060}")
}

/// Two members have each score.
fn score(n: usize) -> f64 {
    (n / 2) as f64 + 0.5
}

fn fill(client: &mut Client, key: &str, range: std::ops::Range<usize>) {
    for from in range.clone().step_by(10_000) {
        let pairs = (from..range.end.min(from + 10_000)).flat_map(|n| [score(n).to_string(), member(n)]);
        client.run(&["ZADD", key].map(String::from).into_iter().chain(pairs).collect::<Vec<_>>());
    }
    assert_eq!(client.line(&format!("ZCARD {key}")), Value::Int(range.len() as i64));
}

fn filled() -> (Server, Client) {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    fill(&mut client, "z", 0..MANY);
    (tern, client)
}

fn are(found: &[Vec<u8>], wanted: impl ExactSizeIterator<Item = usize>) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, n)| *found == member(n).into_bytes())
}

fn are_scored(found: &[Vec<u8>], wanted: impl ExactSizeIterator<Item = usize>) -> bool {
    let pair = |n| [member(n).into_bytes(), score(n).to_string().into_bytes()];
    found.len() == 2 * wanted.len() && found.chunks(2).zip(wanted).all(|(found, n)| *found == pair(n))
}

#[test]
fn members_that_nobody_reads_cost_little() {
    let (tern, mut client) = filled();
    let before = tern.resident();
    let mut readers: Vec<Reader> = (0..4).map(|_| Reader::new(tern.port)).collect();
    readers.iter_mut().for_each(|reader| reader.send("ZRANGE z 1 -2 REV WITHSCORES"));
    // Longer than a transaction lives.
    let slowest = slowest_get(&mut client, Duration::from_secs(7));
    let grown = tern.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for four readers of {} bytes", MANY * 90);
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    for reader in &mut readers[..2] {
        assert!(are_scored(&reader.strings('*'), (1..MANY - 1).rev()));
    }
    // Those are the members as they were.
    let changed = format!("ZADD z -5 {} 7 new", member(100_000));
    for line in [&changed, "ZINCRBY z 3 a", "ZREMRANGEBYRANK z 5 500", "ZPOPMAX z 1000"] {
        assert!(!matches!(client.line(line), Value::Error(_)), "{line}");
    }
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.line("DEL z"), Value::Int(1));
    assert_eq!(client.line("FLUSHALL"), Value::Simple(b"OK".to_vec()));
    for reader in &mut readers[2..] {
        assert!(are_scored(&reader.strings('*'), (1..MANY - 1).rev()));
    }
}

#[test]
fn ranges_begin_and_end_where_they_should() {
    let (tern, _) = filled();
    let mut reader = Reader::new(tern.port);
    let last = MANY as i64;
    for (start, stop) in
        [(0, -1), (5, 14_000), (100, 5100), (-15_000, -1000), (last - 9000, last), (7, 6), (last, -1)]
    {
        let at = |n: i64| (if n < 0 { n + last } else { n }).clamp(0, last) as usize;
        let (from, to) = (at(start), (at(stop) + 1).min(MANY).max(at(start)));
        reader.send(&format!("ZRANGE z {start} {stop}"));
        assert!(are(&reader.strings('*'), from..to), "{start} {stop}");
        reader.send(&format!("ZREVRANGE z {start} {stop} WITHSCORES"));
        assert!(are_scored(&reader.strings('*'), (MANY - to..MANY - from).rev()), "{start} {stop}");
    }
    for (skip, limit) in
        [(0, -1), (1, 9000), (63, 8500), (64, 8500), (65, 8500), (1000, 8193), (1000, 8192), (77_777, -1)]
    {
        // From 10 000.5 to before 90 000.5.
        let (from, to) = (20_000 + skip, 180_000);
        let to = if limit < 0 { to } else { to.min(from + limit as usize) };
        reader.send(&format!("ZRANGE z 10000.5 (90000.5 BYSCORE LIMIT {skip} {limit} WITHSCORES"));
        assert!(are_scored(&reader.strings('*'), from..to), "{skip} {limit}");
        reader.send(&format!("ZREVRANGEBYSCORE z (90000.5 10000.5 LIMIT {skip} {limit}"));
        assert!(are(&reader.strings('*'), (200_000 - to..200_000 - from).rev()), "{skip} {limit}");
    }
}

#[test]
fn names_of_one_score_are_streamed_in_both_directions() {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    for from in [0, 10_000] {
        let pairs = (from..from + 10_000).flat_map(|n| ["-0".to_owned(), member(n)]);
        client.run(&["ZADD", "names"].map(String::from).into_iter().chain(pairs).collect::<Vec<_>>());
    }
    let mut reader = Reader::new(tern.port);
    let (low, high) = (member(1000), member(15_000));
    reader.send(&format!("ZRANGE names [{low} ({high} BYLEX"));
    assert!(are(&reader.strings('*'), 1000..15_000));
    reader.send(&format!("ZREVRANGEBYLEX names ({high} [{low} LIMIT 70 9000"));
    assert!(are(&reader.strings('*'), (5930..14_930).rev()));
    reader.send("ZRANGE names 0 9000 WITHSCORES");
    let found = reader.strings('*');
    assert!(found.len() == 2 * 9001 && found.chunks(2).all(|pair| pair[1] == b"-0"));
    // The other zero is no change, in one call or two.
    assert_eq!(client.line("ZADD names CH 0 new -0 new 0 other").int(), Some(2));
    assert_eq!(client.line("ZADD names CH -0 other").int(), Some(0));
    for name in ["new", "other"] {
        assert_eq!(client.line(&format!("ZSCORE names {name}")).bytes(), Some(&b"0"[..]));
    }
}

#[test]
fn replies_keep_their_order_and_their_kind() {
    let (tern, mut client) = filled();
    let mut reader = Reader::new(tern.port);
    for line in [
        "PING",
        "ZRANGE z 0 -1",
        "MULTI",
        "ZRANGE z 0 -1",
        "ZADD z -1 new",
        "ZRANGE z 0 9000",
        "EXEC",
        "PING",
    ] {
        reader.send(line);
    }
    assert_eq!(reader.line(), "+PONG");
    assert!(are(&reader.strings('*'), 0..MANY));
    for want in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3"] {
        assert_eq!(reader.line(), want);
    }
    assert!(are(&reader.strings('*'), 0..MANY));
    assert_eq!(reader.line(), ":1");
    let changed = reader.strings('*');
    assert!(changed[0] == b"new" && are(&changed[1..], 0..9000));
    assert_eq!(reader.line(), "+PONG");

    client.line("HELLO 3");
    let Value::Array(pairs) = client.line("ZRANGE z 1 9000 WITHSCORES") else { panic!() };
    let pair =
        |n: usize| Value::Array(vec![Value::Bulk(member(n).into()), Value::Double(score(n).to_string())]);
    assert!(pairs.into_iter().eq((0..9000).map(pair)));
    client.line("HELLO 2");
    // Under an id they are kept, up to the limit.
    let once = "IDEMPOTENT 0123456789abcdef ZRANGE z 0 9000 WITHSCORES";
    let first = client.line(once);
    assert!(matches!(&first, Value::Array(items) if items.len() == 18_002), "{first:?}");
    client.line("DEL z");
    assert_eq!(client.line(once), first);
}
