//! MULTI, EXEC, DISCARD, WATCH, UNWATCH to the letter: the same bytes as a live redis-server if one is
//! installed, and WATCH's view across connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::time::Duration;
use support::resp::{Client, Value, text};
use support::server::{Server, redis, tern};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(s: &str) -> Value {
    Value::Bulk(s.as_bytes().to_vec())
}

/// All replies to `raw` on a connection of its own.
fn answers(server: &Server, raw: &str) -> String {
    let mut client = server.client();
    client.send_raw(b"FLUSHALL\r\n").unwrap();
    client.send_raw(raw.as_bytes()).unwrap();
    client.finish();
    text(&client.drain().0)
}

const SCRIPTS: &[(&str, &str)] = &[
    ("MULTI\r\nSET a 1\r\nGET a\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n"),
    ("MULTI\r\nEXEC\r\n", "+OK\r\n*0\r\n"),
    // A key that was absent at WATCH came and went, with its database's prefix.
    ("WATCH k\r\nSET k v\r\nFLUSHDB\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n+OK\r\n+OK\r\n*-1\r\n"),
    ("WATCH k\r\nSET k v PXAT 1\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n+OK\r\n*-1\r\n"),
    ("WATCH k\r\nFLUSHDB\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n+OK\r\n*0\r\n"),
    (
        "WATCH k\r\nSWAPDB 0 1\r\nSET k v\r\nDEL k\r\nMULTI\r\nEXEC\r\n",
        "+OK\r\n+OK\r\n+OK\r\n:1\r\n+OK\r\n*-1\r\n",
    ),
    ("WATCH k\r\nSWAPDB 0 1\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n+OK\r\n*0\r\n"),
    ("MULTI\r\nDISCARD\r\nEXEC\r\n", "+OK\r\n+OK\r\n-ERR EXEC without MULTI\r\n"),
    ("EXEC\r\n", "-ERR EXEC without MULTI\r\n"),
    ("DISCARD\r\n", "-ERR DISCARD without MULTI\r\n"),
    ("MULTI x\r\n", "-ERR wrong number of arguments for 'multi' command\r\n"),
    ("WATCH\r\n", "-ERR wrong number of arguments for 'watch' command\r\n"),
    (
        "MULTI\r\nMULTI\r\nPING\r\nEXEC\r\n",
        "+OK\r\n-ERR MULTI calls can not be nested\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
    ),
    (
        "MULTI\r\nWATCH a\r\nPING\r\nEXEC\r\n",
        "+OK\r\n-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
    ),
    (
        "MULTI\r\nSET a 1\r\nfoo\r\nEXEC\r\nGET a\r\n",
        "+OK\r\n+QUEUED\r\n-ERR unknown command 'foo', with args beginning with: \r\n-EXECABORT Transaction discarded because of previous errors.\r\n$-1\r\n",
    ),
    (
        "MULTI\r\nget\r\nEXEC\r\nEXEC\r\n",
        "+OK\r\n-ERR wrong number of arguments for 'get' command\r\n-EXECABORT Transaction discarded because of previous errors.\r\n-ERR EXEC without MULTI\r\n",
    ),
    (
        "MULTI\r\nMULTI x\r\nEXEC\r\n",
        "+OK\r\n-ERR wrong number of arguments for 'multi' command\r\n-EXECABORT Transaction discarded because of previous errors.\r\n",
    ),
    (
        "MULTI\r\nEXEC foo\r\nEXEC\r\n",
        "+OK\r\n-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n-ERR EXEC without MULTI\r\n",
    ),
    (
        "MULTI\r\nSHUTDOWN\r\nEXEC\r\n",
        "+OK\r\n-ERR Command not allowed inside a transaction\r\n-EXECABORT Transaction discarded because of previous errors.\r\n",
    ),
    (
        "MULTI\r\nSET a b\r\nINCR a\r\nSADD a x\r\nSET c d\r\nEXEC\r\nGET c\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n-ERR value is not an integer or out of range\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n+OK\r\n$1\r\nd\r\n",
    ),
    ("MULTI\r\nRESET\r\nEXEC\r\n", "+OK\r\n+RESET\r\n-ERR EXEC without MULTI\r\n"),
    ("MULTI\r\nQUIT\r\nPING\r\n", "+OK\r\n+OK\r\n"),
    (
        "MULTI\r\nUNWATCH\r\nPING\r\nAUTH x\r\nGET nope\r\nEXEC\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n+PONG\r\n-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n$-1\r\n",
    ),
    (
        "MULTI\r\nSELECT 1\r\nSET a 1\r\nSELECT 99\r\nEXEC\r\nGET a\r\nSELECT 0\r\nGET a\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n-ERR DB index is out of range\r\n$1\r\n1\r\n+OK\r\n$-1\r\n",
    ),
    ("WATCH a\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n*0\r\n"),
    ("WATCH a a\r\nSET a 1\r\nMULTI\r\nEXEC\r\n", "+OK\r\n+OK\r\n+OK\r\n*-1\r\n"),
    (
        "WATCH a\r\nSET a 1\r\nUNWATCH\r\nMULTI\r\nPING\r\nEXEC\r\n",
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
    ),
    (
        "WATCH a\r\nSET a 1\r\nMULTI\r\nDISCARD\r\nMULTI\r\nPING\r\nEXEC\r\n",
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
    ),
    (
        "WATCH a\r\nSET a 1\r\nMULTI\r\nfoo\r\nEXEC\r\nMULTI\r\nPING\r\nEXEC\r\n",
        "+OK\r\n+OK\r\n+OK\r\n-ERR unknown command 'foo', with args beginning with: \r\n-EXECABORT Transaction discarded because of previous errors.\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n",
    ),
    (
        "SET a 1\r\nWATCH a\r\nGET a\r\nMULTI\r\nSET a 2\r\nEXEC\r\nMULTI\r\nEXEC\r\n",
        "+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+OK\r\n*0\r\n",
    ),
];

#[test]
fn scripts_answer_as_pinned() {
    let tern = tern(&[]);
    for (script, expected) in SCRIPTS {
        let expected = text(format!("+OK\r\n{expected}").as_bytes());
        assert_eq!(answers(&tern, script), expected, "{}", text(script.as_bytes()));
    }
}

#[test]
fn a_live_redis_answers_the_same() {
    let Some(redis) = redis("scripts of transactions") else { return };
    for (script, expected) in SCRIPTS {
        let expected = text(format!("+OK\r\n{expected}").as_bytes());
        assert_eq!(answers(&redis, script), expected, "{}", text(script.as_bytes()));
    }
}

#[test]
fn the_null_of_an_aborted_exec_in_resp3() {
    let tern = tern(&[]);
    let mut client = tern.client();
    client.line("HELLO 3");
    client.line("WATCH a");
    client.line("SET a 1");
    client.line("MULTI");
    assert_eq!(client.run(&["EXEC"]).raw, b"_\r\n");
}

#[test]
fn hello_inside_a_transaction() {
    let tern = tern(&[]);
    let mut client = tern.client();
    client.line("MULTI");
    assert_eq!(client.line("HELLO 3"), Value::Simple(b"QUEUED".to_vec()));
    assert_eq!(client.line("GET missing"), Value::Simple(b"QUEUED".to_vec()));
    let Value::Array(replies) = client.line("EXEC") else { panic!("EXEC answers an array") };
    assert!(matches!(&replies[..], [Value::Map(_), Value::Nil(_)]), "{replies:?}");
    assert_eq!(client.run(&["GET", "missing"]).raw, b"_\r\n");
}

/// WATCH `key` on one connection, `change` on another; the EXEC's reply.
fn exec_after(server: &Server, before: &[&str], change: &[&str]) -> Value {
    let (mut watcher, mut other) = (server.client(), server.client());
    assert_eq!(other.line("FLUSHALL"), ok());
    for line in before {
        assert!(!other.line(line).is_error(), "{line}");
    }
    assert_eq!(watcher.line("WATCH k"), ok());
    for line in change {
        match line.strip_prefix("sleep ") {
            Some(ms) => std::thread::sleep(Duration::from_millis(ms.parse().unwrap())),
            None => assert!(!other.line(line).is_error(), "{line}"),
        }
    }
    assert_eq!(watcher.line("MULTI"), ok());
    watcher.line("SET out 1");
    watcher.line("EXEC")
}

#[test]
fn watch_sees_every_change_of_others() {
    let tern = tern(&[]);
    let set = &["SET k v"][..];
    let changes: &[(&[&str], &[&str])] = &[
        (set, &["SET k w"]),
        (set, &["SET k v"]),
        (set, &["DEL k"]),
        (set, &["DEL k", "SET k v"]),
        (set, &["UNLINK k"]),
        (set, &["APPEND k x"]),
        (set, &["EXPIRE k 100"]),
        (set, &["RENAME k l", "RENAME l k"]),
        (set, &["SET l x", "RENAME l k"]),
        (set, &["FLUSHALL"]),
        (set, &["FLUSHDB"]),
        (set, &["FLUSHALL", "SET k v"]),
        (set, &["SWAPDB 0 1"]),
        (&["SELECT 1", "SET k v", "SELECT 0"], &["SWAPDB 0 1"]),
        (&["SET k v PX 60"], &["sleep 120"]),
        (&[], &["SET k v"]),
        (&[], &["SET k v", "DEL k"]),
        (&[], &["SADD k a", "SREM k a"]),
        (&["SADD k a"], &["SADD k b"]),
        (&["SADD k a"], &["SREM k a"]),
        (&["SADD k a b"], &["SADD k c", "SREM k c"]),
        (&["SADD k a", "SADD l b"], &["SMOVE l k b"]),
        (&["SADD k a"], &["SPOP k"]),
        (&["SADD l a"], &["SINTERSTORE k l"]),
        (&["SET k 1"], &["INCR k"]),
        (&["SET k 1"], &["GETDEL k"]),
        (&["SET k 1"], &["MSET a 1 k 2"]),
        (&["SET k 1 EX 100"], &["PERSIST k"]),
    ];
    for (before, change) in changes {
        assert_eq!(exec_after(&tern, before, change), Value::Nil(b'*'), "{before:?} then {change:?}");
    }
}

#[test]
fn watch_ignores_commands_that_change_nothing() {
    let tern = tern(&[]);
    let still: &[(&[&str], &[&str])] = &[
        (&["SET k v"], &["GET k"]),
        (&["SET k v"], &["SET other x"]),
        (&["SET k v"], &["SETNX k x"]),
        (&["SET k v"], &["EXISTS k", "TYPE k", "STRLEN k"]),
        (&["SET k v"], &["SELECT 1", "SET k x", "FLUSHDB"]),
        (&["SADD k a"], &["SADD k a"]),
        (&["SADD k a"], &["SREM k b"]),
        (&["SADD k a"], &["SMEMBERS k", "SISMEMBER k a"]),
        (&[], &["GET k", "DEL k"]),
        (&["SET k v"], &["SWAPDB 1 2"]),
    ];
    for (before, change) in still {
        assert_eq!(exec_after(&tern, before, change), Value::Array(vec![ok()]), "{before:?} then {change:?}");
    }
}

#[test]
fn watch_remembers_the_database() {
    let tern = tern(&[]);
    let (mut watcher, mut other) = (tern.client(), tern.client());
    watcher.line("SELECT 1");
    watcher.line("WATCH k");
    watcher.line("SELECT 0");
    watcher.line("WATCH k");
    other.line("SELECT 1");
    other.line("SET k v");
    watcher.line("MULTI");
    assert_eq!(watcher.line("EXEC"), Value::Nil(b'*'));
}

#[test]
fn exec_is_one_transaction_for_others() {
    let tern = tern(&[]);
    let port = tern.port;
    let writer = std::thread::spawn(move || {
        let mut client = Client::connect(port).unwrap();
        for n in 0..300 {
            client.line("MULTI");
            client.line(&format!("SET a {n}"));
            client.line(&format!("SET b {n}"));
            assert_eq!(client.line("EXEC"), Value::Array(vec![ok(), ok()]));
        }
    });
    let mut reader = tern.client();
    while !writer.is_finished() {
        let Value::Array(both) = reader.line("MGET a b") else { panic!("MGET answers an array") };
        assert_eq!(both[0], both[1]);
    }
    writer.join().unwrap();
}

#[test]
fn check_and_set_from_many_connections_loses_nothing() {
    let tern = tern(&[]);
    let port = tern.port;
    let workers: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(port).unwrap();
                let mut done = 0;
                while done < 25 {
                    client.line("WATCH n");
                    let n: i64 = match client.line("GET n") {
                        Value::Bulk(b) => String::from_utf8(b).unwrap().parse().unwrap(),
                        _ => 0,
                    };
                    client.line("MULTI");
                    client.line(&format!("SET n {}", n + 1));
                    done += usize::from(client.line("EXEC") != Value::Nil(b'*'));
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(tern.client().line("GET n"), bulk("200"));
}

#[test]
fn a_long_queue_runs_whole() {
    let tern = tern(&[]);
    let mut client = tern.client();
    let mut raw = b"MULTI\r\n".to_vec();
    (0..5000).for_each(|_| raw.extend_from_slice(b"INCR n\r\n"));
    raw.extend_from_slice(b"EXEC\r\n");
    client.send_raw(&raw).unwrap();
    (0..5001).for_each(|_| drop(client.read().unwrap()));
    let Value::Array(replies) = client.read().unwrap().value else { panic!("EXEC answers an array") };
    assert_eq!(replies, (1..=5000).map(Value::Int).collect::<Vec<_>>());
}

#[test]
fn an_exec_larger_than_a_transaction_leaves_nothing() {
    let server = tern(&[]);
    let mut c = server.client();
    c.line("MULTI");
    let value = "v".repeat(8000);
    for n in 0..1500 {
        assert_eq!(c.run(&["SET", &format!("k{n}"), &value]).value, Value::Simple("QUEUED".into()));
    }
    let replies = match c.line("EXEC") {
        Value::Array(replies) => replies,
        other => vec![other],
    };
    for reply in replies {
        assert!(matches!(&reply, Value::Error(e) if text(e).contains("10 MB")), "{reply:?}");
    }
    assert_eq!(c.line("DBSIZE"), Value::Int(0), "no part of it may be applied");
}

/// An EXEC that holds its lane for long is given up and runs elsewhere; its effects on the server itself are
/// not undone.
#[test]
fn a_long_exec_acts_on_the_server_once() {
    let tern = tern(&["--appendfsync", "no"]);
    let (mut client, mut victim) = (tern.client(), tern.client());
    for _ in 0..8 {
        client.run(&["APPEND", "string", &"abcdefgh".repeat(1 << 17)]);
    }
    let victim = victim.line("CLIENT ID").int().unwrap();
    client.line("CONFIG SET slowlog-log-slower-than 0");
    let lines =
        ["SET k v", &format!("CLIENT KILL ID {victim}"), "CONFIG GET timeout", "CONFIG SET timeout 77"];
    let lines = [&lines[..], &["SLOWLOG LEN", "SLOWLOG RESET"], &["BITCOUNT string"; 200]].concat();
    client.line("MULTI");
    lines.iter().for_each(|line| assert_eq!(client.line(line), Value::Simple(b"QUEUED".to_vec())));
    let replies = client.line("EXEC");
    let replies = replies.items().unwrap();
    assert_eq!(replies.len(), lines.len());
    assert_eq!(replies[1], Value::Int(1), "the kill must happen once");
    assert_eq!(
        replies[2].items().unwrap()[1],
        bulk("0"),
        "the setting must not be read after its own change"
    );
    assert!(replies[4].int().unwrap() > 0, "the length must not be read after the reset");
}

/// As in Redis: each reply is in the protocol that held when it was made.
#[test]
fn hello_in_an_exec_changes_the_replies_behind_it() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.line("ZADD z 1.5 a");
    client.line("MULTI");
    for line in ["ZSCORE z a", "HELLO 3", "ZSCORE z a", "ZSCORE z b", "HELLO 2", "ZSCORE z a"] {
        assert_eq!(client.line(line).bytes(), Some(&b"QUEUED"[..]), "{line}");
    }
    let replies = client.line("EXEC");
    let [first, hello, second, missing, again, last] = replies.items().unwrap() else {
        panic!("{replies:?}")
    };
    assert!(matches!(hello, Value::Map(_)) && matches!(again, Value::Array(_)), "{replies:?}");
    assert!(matches!(first, Value::Bulk(_)) && matches!(last, Value::Bulk(_)), "{replies:?}");
    assert!(matches!(second, Value::Double(_)) && matches!(missing, Value::Nil(b'_')), "{replies:?}");
    assert!(matches!(client.line("ZSCORE z a"), Value::Bulk(_)));
}
