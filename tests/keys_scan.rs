//! SCAN is stateless and returns every key that stays exactly once. KEYS and RANDOMKEY walk over the same
//! rows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error};
use std::collections::{HashMap, HashSet};
use tern::keyspace::keys::hash;
use tern::server::reply::Reply;

/// Pairs of names whose hashes agree in the top 48 bits.
const TWINS: [[&str; 2]; 5] = [
    ["357473", "33491749"],
    ["627498", "49110806"],
    ["12240101", "38252134"],
    ["15990327", "17747188"],
    ["34961468", "39266463"],
];

fn page(reply: Reply) -> (String, Vec<String>) {
    let Reply::Array(mut parts) = reply else { panic!("{reply:?}") };
    let names = names(parts.pop().unwrap());
    let Some(Reply::Bulk(cursor)) = parts.pop() else { panic!("no cursor") };
    (String::from_utf8(cursor.to_vec()).unwrap(), names)
}

fn names(reply: Reply) -> Vec<String> {
    let Reply::Array(names) = reply else { panic!("{reply:?}") };
    let name = |r| match r {
        Reply::Bulk(b) => String::from_utf8(b.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    names.into_iter().map(name).collect()
}

/// The number of times a whole scan returned each name, and its number of calls.
async fn scan(rig: &mut Rig, options: &str) -> (HashMap<String, usize>, usize) {
    let (mut seen, mut calls, mut cursor) = (HashMap::new(), 0, "0".to_owned());
    loop {
        let (next, names) = page(rig.line(&format!("SCAN {cursor}{options}")).await);
        for name in names {
            *seen.entry(name).or_default() += 1;
        }
        calls += 1;
        assert!(next.parse::<u64>().unwrap() <= 1 << 53);
        if next == "0" {
            return (seen, calls);
        }
        cursor = next;
    }
}

#[tokio::test]
async fn every_key_exactly_once_whatever_the_count() {
    let mut rig = Rig::new().await;
    for n in 0..200 {
        rig.line(&format!("SET key:{n} v")).await;
    }
    for (options, most_calls) in
        [("", 21), (" COUNT 1", 201), (" COUNT 7", 30), (" COUNT 200", 2), (" COUNT 9223372036854775807", 1)]
    {
        let (seen, calls) = scan(&mut rig, options).await;
        assert_eq!(seen.len(), 200, "{options}");
        assert!(seen.values().all(|n| *n == 1), "{options}");
        assert!(calls <= most_calls, "{options}: {calls}");
    }
}

#[tokio::test]
async fn keys_with_one_cursor_come_together() {
    let mut rig = Rig::new().await;
    for twins in TWINS {
        assert_eq!(hash(twins[0].as_bytes()) >> 16, hash(twins[1].as_bytes()) >> 16);
        rig.line(&format!("MSET {} v {} v", twins[0], twins[1])).await;
    }
    for options in [" COUNT 1", " COUNT 2", " COUNT 3", ""] {
        let (seen, _) = scan(&mut rig, options).await;
        assert_eq!(seen.len(), 10, "{options}");
        assert!(seen.values().all(|n| *n == 1), "{options}");
    }
}

#[tokio::test]
async fn keys_that_stay_are_returned_once_while_others_come_and_go() {
    let mut rig = Rig::new().await;
    for n in 0..100 {
        rig.line(&format!("SET stay:{n} v")).await;
        rig.line(&format!("SET go:{n} v")).await;
    }
    let (mut seen, mut cursor, mut n) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let (next, names) = page(rig.line(&format!("SCAN {cursor} COUNT 5")).await);
        seen.extend(names.into_iter().filter(|name| name.starts_with("stay")));
        rig.line(&format!("DEL go:{n} go:{}", n + 50)).await;
        rig.line(&format!("SET new:{n} v")).await;
        n += 1;
        if next == "0" {
            break;
        }
        cursor = next;
    }
    assert_eq!(seen.len(), 100);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 100);
}

#[tokio::test]
async fn filters() {
    let mut rig = Rig::new().await;
    rig.line("MSET a1 v a2 v b1 v").await;
    rig.line("SADD a3 m").await;
    rig.line("SET a4 v PX 5").await;
    rig.advance(5);
    for (options, want) in [
        (" MATCH a*", &["a1", "a2", "a3"][..]),
        (" MATCH * TYPE SET", &["a3"]),
        (" TYPE string MATCH ?1", &["a1", "b1"]),
        (" TYPE zset", &[]),
        (" TYPE unknown", &[]),
        (" MATCH b* MATCH a1", &["a1"]),
    ] {
        let mut seen: Vec<String> = scan(&mut rig, options).await.0.into_keys().collect();
        seen.sort();
        assert_eq!(seen, want, "{options}");
    }
}

#[tokio::test]
async fn scan_refuses_bad_arguments_as_redis_does() {
    let mut rig = Rig::new().await;
    rig.line("SET k v").await;
    for (line, want) in [
        ("SCAN x", "ERR invalid cursor"),
        ("SCAN 0x10", "ERR invalid cursor"),
        ("SCAN -", "ERR invalid cursor"),
        ("SCAN 18446744073709551616", "ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 COUNT -1", "ERR syntax error"),
        ("SCAN 0 COUNT x", "ERR value is not an integer or out of range"),
        ("SCAN 0 COUNT", "ERR syntax error"),
        ("SCAN 0 MATCH", "ERR syntax error"),
        ("SCAN 0 LIMIT 5", "ERR syntax error"),
        ("SCAN x COUNT 0", "ERR invalid cursor"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
    }
    for cursor in ["18446744073709551615", "-1", "281474976710657"] {
        assert_eq!(page(rig.line(&format!("SCAN {cursor}")).await), ("0".into(), vec![]), "{cursor}");
    }
    assert_eq!(page(rig.run(&["SCAN", ""]).await).1, ["k"]);
}

#[tokio::test]
async fn a_page_reads_a_bounded_number_of_bytes() {
    let mut rig = Rig::new().await;
    let value = vec![b'x'; 16_000];
    for n in 0..300 {
        rig.run(&[b"SET", format!("k{n}").as_bytes(), &value]).await;
    }
    let (seen, calls) = scan(&mut rig, " COUNT 1000").await;
    assert_eq!(seen.len(), 300);
    assert!((4..8).contains(&calls), "{calls}");
    assert_eq!(names(rig.line("KEYS *").await).len(), 300);
}

#[tokio::test]
async fn keys_lists_matching_names() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.line("KEYS *").await, Reply::Array(vec![]));
    rig.run(&["MSET", "", "v", "a", "v", "ab", "v"]).await;
    for (pattern, count) in [("*", 3), ("**", 2), ("", 1), ("a*", 2), ("[a]", 1), ("?", 1), ("A", 0)] {
        assert_eq!(names(rig.run(&["KEYS", pattern]).await).len(), count, "{pattern}");
    }
}

#[tokio::test]
async fn randomkey_reaches_every_key_and_no_expired_one() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.line("RANDOMKEY").await, Reply::Nil);
    rig.line("SET gone v PX 1").await;
    rig.advance(1);
    assert_eq!(rig.line("RANDOMKEY").await, Reply::Nil);
    rig.line("MSET a v b v c v").await;
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let Reply::Bulk(name) = rig.line("RANDOMKEY").await else { panic!("none") };
        seen.insert(name);
    }
    assert_eq!(seen.len(), 3);
    rig.line("DEL b c").await;
    assert_eq!(rig.line("RANDOMKEY").await, bulk("a"));
}
