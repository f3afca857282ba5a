//! Hazard: a message is lost, duplicated, published although its transaction was refused, reordered, or sent
//! to the wrong client; a subscriber that does not read costs memory or holds others up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::resp::{Client, Value};
use support::server::{Server, redis, tern};

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn array(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|t| bulk(t)).collect())
}

fn push(texts: &[&str]) -> Value {
    Value::Push(texts.iter().map(|t| bulk(t)).collect())
}

/// A client that has subscribed and read its confirmations.
fn subscriber(server: &Server, line: &str) -> Client {
    let mut client = server.client();
    let words: Vec<&str> = line.split(' ').collect();
    client.send(&words).unwrap();
    for _ in 1..words.len() {
        let confirmed = client.read().unwrap().value;
        assert!(matches!(confirmed.items(), Some([Value::Bulk(_), _, Value::Int(_)])), "{confirmed:?}");
    }
    client
}

fn next(client: &mut Client) -> Value {
    client.read().unwrap().value
}

fn info(client: &mut Client, name: &str) -> u64 {
    let text = client.run(&["INFO", "everything"]).value;
    let text = String::from_utf8_lossy(text.bytes().unwrap()).into_owned();
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).expect(name).parse().unwrap()
}

#[test]
fn messages_reach_channels_patterns_and_shards() {
    let server = tern(&[]);
    let mut listens = subscriber(&server, "SUBSCRIBE news");
    let mut matches = subscriber(&server, "PSUBSCRIBE n* ne?s");
    let mut shard = subscriber(&server, "SSUBSCRIBE news");
    let mut third = server.client();
    third.line("HELLO 3");
    assert_eq!(
        third.line("SUBSCRIBE news"),
        Value::Push(vec![bulk("subscribe"), bulk("news"), Value::Int(1)])
    );
    let mut other = server.client();
    assert_eq!(other.line("PUBLISH news one"), Value::Int(4));
    assert_eq!(other.line("SPUBLISH news two"), Value::Int(1));
    assert_eq!(other.line("PUBLISH nobody three"), Value::Int(1), "a pattern matches");
    assert_eq!(next(&mut listens), array(&["message", "news", "one"]));
    let mut both = [next(&mut matches), next(&mut matches)];
    both.sort();
    assert_eq!(both, [["n*", "one"], ["ne?s", "one"]].map(|[p, m]| array(&["pmessage", p, "news", m])));
    assert_eq!(next(&mut matches), array(&["pmessage", "n*", "nobody", "three"]));
    assert_eq!(next(&mut shard), array(&["smessage", "news", "two"]));
    assert_eq!(next(&mut third), push(&["message", "news", "one"]));
    assert_eq!(third.line("GET k"), Value::Nil(b'_'), "in RESP3 a subscriber can run commands");
    assert_eq!([info(&mut other, "pubsub_channels"), info(&mut other, "pubsub_patterns")], [1, 2]);
    assert_eq!([info(&mut other, "pubsubshard_channels"), info(&mut other, "pubsub_clients")], [1, 4]);
    let list = other.line("CLIENT LIST TYPE pubsub");
    let list = String::from_utf8_lossy(list.bytes().unwrap()).into_owned();
    for shown in ["flags=P", "sub=1 psub=0 ssub=0", "sub=0 psub=2 ssub=0", "sub=0 psub=0 ssub=1"] {
        assert!(list.contains(shown), "no {shown} in\n{list}");
    }
    assert_eq!(list.lines().count(), 4);
}

/// One client's lines; the server refuses some.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "MULTI", "SUBSCRIBE a b", "SET k v", "EXEC", "GET x", "PING", "PING hi", "PING a b", "CLIENT INFO",
    "MULTI", "SUBSCRIBE a", "PSUBSCRIBE *a* b*", "UNSUBSCRIBE b", "UNSUBSCRIBE a q", "GET x",
    "PUNSUBSCRIBE b* *a*", "GET k", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "SSUBSCRIBE z", "GET k",
    "HELLO 3", "EXEC", "SUNSUBSCRIBE", "SUBSCRIBE", "PUBLISH a", "SPUBLISH", "PUBSUB", "PUBSUB x",
    "PUBSUB CHANNELS a b", "PUBSUB NUMPAT x", "SUBSCRIBE q", "RESET", "PUBSUB CHANNELS",
    "PUBSUB NUMSUB q x", "PUBSUB SHARDNUMSUB q", "PUBSUB NUMPAT", "PUBSUB NUMSUB", "PUBSUB SHARDCHANNELS *",
    "HELLO 3 SETNAME x", "SUBSCRIBE q", "PSUBSCRIBE q*", "SSUBSCRIBE s", "CLIENT REPLY OFF", "SUBSCRIBE r",
    "SET k v", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "SUBSCRIBE s", "PING", "PUBSUB CHANNELS [pq]",
    "PUBSUB NUMSUB q x r", "PUBSUB SHARDNUMSUB s q", "PUBSUB NUMPAT", "PUBSUB SHARDCHANNELS *", "MULTI",
    "SUBSCRIBE t u", "UNSUBSCRIBE t", "EXEC", "QUIT",
];

#[test]
fn a_subscriber_is_answered_as_by_redis() {
    let Some(redis) = redis("Pub/Sub beside Redis") else { return };
    let tern = tern(&[]);
    let [ours, theirs] = [&tern, &redis].map(|server| {
        let mut client = server.client();
        for line in LINES {
            client.send_raw(format!("{line}\r\n").as_bytes()).unwrap();
        }
        let (all, closed) = client.drain();
        assert!(closed);
        let text = String::from_utf8(all).unwrap();
        text.lines()
            .filter(|l| !l.starts_with("7.") && !l.starts_with("$5") && !l.starts_with("$6"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let ids = |lines: Vec<String>| -> Vec<String> {
        lines.windows(2).filter(|two| two[0] != "id").map(|two| two[1].clone()).collect()
    };
    assert_eq!(ids(ours), ids(theirs));
}

#[test]
fn a_message_in_a_transaction_is_heard_if_that_commits_and_in_the_order_of_commits() {
    const EACH: usize = 100;
    let server = tern(&["--lanes", "4"]);
    let mut listens = subscriber(&server, "SUBSCRIBE c");
    let (mut one, mut two) = (server.client(), server.client());
    one.line("WATCH k");
    two.line("SET k changed");
    for line in ["MULTI", "SET k mine", "PUBLISH c refused"] {
        one.line(line);
    }
    assert!(matches!(one.line("EXEC"), Value::Nil(_)));
    for line in ["MULTI", "PUBLISH c discarded", "DISCARD", "MULTI", "PUBLISH c spoilt", "NOSUCH", "EXEC"] {
        one.line(line);
    }
    std::thread::scope(|scope| {
        for n in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..EACH {
                    // The first key selects the lane: so messages come from several lanes.
                    for line in ["MULTI", &format!("SET first:{n} v"), "INCR n"] {
                        client.line(line);
                    }
                    client.line("EXEC");
                    for line in ["MULTI", &format!("SET first:{n} v"), "SET m v", "PUBLISH c x"] {
                        client.line(line);
                    }
                    assert!(matches!(client.line("EXEC"), Value::Array(_)));
                }
            });
        }
    });
    for _ in 0..4 * EACH {
        assert_eq!(next(&mut listens), array(&["message", "c", "x"]));
    }
    one.line("PUBLISH c end");
    assert_eq!(next(&mut listens), array(&["message", "c", "end"]), "no other message may be published");
}

/// INCR's reply is also published by events of the same transaction: their order is that of the numbers.
#[test]
fn events_of_one_key_come_in_the_order_of_its_changes() {
    let server = tern(&["--lanes", "4", "--notify-keyspace-events", "EA"]);
    let mut listens = subscriber(&server, "PSUBSCRIBE __keyevent@0__:s*");
    std::thread::scope(|scope| {
        for n in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for i in 0..50 {
                    // All clients alternate: adding an existing member publishes nothing, so adds and
                    // removals take turns.
                    for line in ["MULTI", &format!("APPEND first:{n} v"), "SADD s a"] {
                        client.line(line);
                    }
                    client.line("EXEC");
                    if i % 2 == n % 2 {
                        client.line("SREM s a");
                    }
                }
            });
        }
    });
    server.client().line("SADD send end");
    let (mut last, mut seen) = ("srem".to_owned(), 0);
    loop {
        let message = next(&mut listens);
        let items = message.items().unwrap();
        let (channel, key) = (items[2].bytes().unwrap(), items[3].bytes().unwrap());
        if key == b"send" {
            break;
        }
        let event = String::from_utf8_lossy(channel).rsplit(':').next().unwrap().to_owned();
        if key == b"s" {
            assert_ne!(event, last, "after {seen} events");
            (last, seen) = (event, seen + 1);
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_subscriber_that_never_reads_is_cut_while_others_go_on() {
    const MESSAGES: usize = 2000;
    /// The lag in messages allowed for the client that reads: the limit concerns clients that do not read,
    /// not slow scheduling.
    const BEHIND: usize = 32;
    let server = tern(&["--client-output-buffer-limit", "pubsub 4mb 0 0"]);
    let lazy = subscriber(&server, "SUBSCRIBE c");
    let mut reads = subscriber(&server, "SUBSCRIBE c");
    let read = Arc::new(AtomicUsize::new(0));
    let counter = read.clone();
    let reader = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            let message = next(&mut reads);
            let text = message.items().unwrap()[2].bytes().unwrap().to_vec();
            assert!(text.starts_with(format!("{n} ").as_bytes()), "message {n}");
            counter.store(n + 1, Ordering::Relaxed);
        }
    });
    let before = server.resident();
    let mut publisher = server.client();
    let padding = "x".repeat(32 << 10);
    for n in 0..MESSAGES {
        publisher.run(&["PUBLISH", "c", &format!("{n} {padding}")]);
        while n > read.load(Ordering::Relaxed) + BEHIND && !reader.is_finished() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    reader.join().unwrap();
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for unread messages");
    assert!(server.log().contains("client-output-buffer-limit"), "{}", server.log());
    let since = Instant::now();
    while publisher.line("PUBSUB NUMSUB c").items().unwrap()[1] != Value::Int(0) {
        assert!(since.elapsed() < Duration::from_secs(10), "closed connections must leave no subscriptions");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(lazy);
}

#[test]
fn no_message_follows_the_unsubscribe_confirmation() {
    let server = tern(&[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                client.line("PUBLISH c x");
            }
        });
        let mut client = server.client();
        for _ in 0..200 {
            client.send(&["SUBSCRIBE", "c"]).unwrap();
            assert_eq!(next(&mut client), Value::Array(vec![bulk("subscribe"), bulk("c"), Value::Int(1)]));
            client.send(&["UNSUBSCRIBE", "c"]).unwrap();
            let message = array(&["message", "c", "x"]);
            let end = loop {
                let got = next(&mut client);
                if got != message {
                    break got;
                }
            };
            assert_eq!(end, Value::Array(vec![bulk("unsubscribe"), bulk("c"), Value::Int(0)]));
            assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        }
        stop.store(true, Ordering::Relaxed);
        publisher.join().unwrap();
    });
}

#[test]
fn a_leaving_subscriber_hears_nothing_more_and_leaves_nothing_behind() {
    let server = tern(&[]);
    let mut publisher = server.client();
    let mut resets = subscriber(&server, "SUBSCRIBE c d");
    assert_eq!(resets.line("RESET"), Value::Simple(b"RESET".to_vec()));
    drop(subscriber(&server, "PSUBSCRIBE *"));
    let mut quits = subscriber(&server, "SSUBSCRIBE c");
    quits.line("QUIT");
    for _ in 0..100 {
        if info(&mut publisher, "pubsub_patterns") + info(&mut publisher, "pubsubshard_channels") == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(publisher.line("PUBLISH c x"), Value::Int(0));
    assert_eq!(publisher.line("SPUBLISH c x"), Value::Int(0));
    assert_eq!(publisher.line("PUBSUB CHANNELS"), Value::Array(Vec::new()));
    assert_eq!(resets.line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn a_message_under_an_id_is_published_once() {
    let server = tern(&[]);
    let mut listens = subscriber(&server, "SUBSCRIBE c");
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.line("IDEMPOTENT one-of-these-ids PUBLISH c x"), Value::Int(1));
    }
    client.line("PUBLISH c end");
    assert_eq!(next(&mut listens), array(&["message", "c", "x"]));
    assert_eq!(next(&mut listens), array(&["message", "c", "end"]));
}

#[test]
fn a_large_message_arrives_whole() {
    let server = tern(&[]);
    let mut listens = subscriber(&server, "SUBSCRIBE c");
    let large = "m".repeat(3 << 20);
    assert_eq!(server.client().run(&["PUBLISH", "c", &large]).value, Value::Int(1));
    assert_eq!(next(&mut listens), array(&["message", "c", &large]));
}

#[test]
fn channels_follow_acl_rules_and_are_no_keys() {
    let server = tern(&[]);
    server.client().line("ACL SETUSER reader on nopass +@all &news");
    let mut client = server.client();
    client.line("AUTH reader x");
    assert!(client.line("GET news").is_error(), "the user must have no access to keys");
    assert_eq!(client.line("PUBLISH news x"), Value::Int(0));
    assert_eq!(client.line("SPUBLISH news x"), Value::Int(0));
    for line in ["PUBLISH other x", "SUBSCRIBE news other", "PSUBSCRIBE new*", "SSUBSCRIBE other"] {
        let refused = client.line(line);
        assert!(refused.bytes().unwrap().starts_with(b"NOPERM"), "{line}: {refused:?}");
    }
    client.line("SSUBSCRIBE news");
    assert_eq!(server.client().line("SPUBLISH news x"), Value::Int(1));
    assert_eq!(next(&mut client), array(&["smessage", "news", "x"]));
    server.client().line("ACL SETUSER reader +get");
    assert_eq!(client.line("PING"), array(&["pong", ""]));
    server.client().line("ACL SETUSER reader resetchannels &other");
    assert!(client.is_closed(), "the user must not listen any more");
}
