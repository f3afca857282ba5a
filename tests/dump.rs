//! DUMP and RESTORE in process: every form of a value, options, refusals. `tests/differential` exchanges
//! payloads with a real server; tests beside the decoder cover hostile ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::{Rig, bulk, error};
use tern::server::reply::Reply;

const HELLO: &[u8] = b"\x00\x05hello\x0a\x00cr\xdfve4 \x0a";
/// Of redis-server 7.0: the sorted set of `a` with the score 1, and the list of `a`.
const ZSET: &[u8] =
    b"\x11\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x01\x01\xff\x0a\x00\xa8\x05\xce\xb8\xd7\xa93\x02";
const LIST: &[u8] =
    b"\x12\x01\x02\x0a\x0a\x00\x00\x00\x01\x00\x81a\x02\xff\x0a\x00\x09\xb9\xed\xf5\x94\xde\xd9\x95";

/// Of redis-server 7.0: a stream of one entry.
const STREAM: &[u8] =
    b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\
    \x0a\x00\x01\x01\x00\x01\x01\x01\x81\x66\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81\x76\x02\x04\x01\
    \xff\x01\x01\x01\x01\x01\x00\x00\x01\x00\x0a\x00\xff\x55\xab\x62\x6a\xc0\x35\xdb";

async fn dump(rig: &mut Rig, key: &str) -> Bytes {
    match rig.line(&format!("DUMP {key}")).await {
        Reply::Bulk(payload) => payload,
        other => panic!("no payload: {other:?}"),
    }
}

async fn restore(rig: &mut Rig, key: &str, ttl: &str, payload: &[u8], options: &[&str]) -> Reply {
    let head: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload];
    let argv: Vec<&[u8]> = head.into_iter().chain(options.iter().map(|o| o.as_bytes())).collect();
    rig.run(&argv).await
}

async fn members(rig: &mut Rig, key: &str) -> Vec<Bytes> {
    let Reply::Array(members) = rig.line(&format!("SORT {key} ALPHA")).await else { panic!("no set") };
    let mut members: Vec<Bytes> = members
        .into_iter()
        .map(|m| match m {
            Reply::Bulk(b) => b,
            other => panic!("{other:?}"),
        })
        .collect();
    members.sort();
    members
}

#[tokio::test]
async fn strings_come_back() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.line("DUMP missing").await, Reply::Nil);
    for length in [0, 1, 100, 16 * 1024, 16 * 1024 + 1, 40_000, 9_000_000] {
        let value: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        rig.run(&[b"SET", &b"k"[..], &value]).await;
        let payload = dump(&mut rig, "k").await;
        assert_eq!(restore(&mut rig, "copy", "0", &payload, &["REPLACE"]).await, Reply::Ok, "{length}");
        assert_eq!(rig.line("GET copy").await, bulk(&value), "{length}");
    }
    for text in ["12", "-1", "007", "2147483648", "9223372036854775807"] {
        rig.line(&format!("SET k {text}")).await;
        let payload = dump(&mut rig, "k").await;
        assert_eq!(restore(&mut rig, "copy", "0", &payload, &["REPLACE"]).await, Reply::Ok);
        assert_eq!(rig.line("GET copy").await, bulk(text));
    }
}

#[tokio::test]
async fn lists_come_back() {
    let mut rig = Rig::new().await;
    for n in [1, 7, 1000] {
        let elements: Vec<String> = (0..n).map(|n| (n % 7).to_string().repeat(n)).collect();
        let argv: Vec<&str> = ["RPUSH", "l"].into_iter().chain(elements.iter().map(String::as_str)).collect();
        rig.run(&argv).await;
        rig.run(&["RPUSH", "l", &"long".repeat(20_000)]).await;
        let payload = dump(&mut rig, "l").await;
        assert_eq!(restore(&mut rig, "copy", "0", &payload, &[]).await, Reply::Ok);
        assert_eq!(rig.line("LRANGE copy 0 -1").await, rig.line("LRANGE l 0 -1").await);
        rig.assert_sound().await;
        rig.line("DEL l copy").await;
    }
    assert_eq!(restore(&mut rig, "l", "0", LIST, &[]).await, Reply::Ok);
    assert_eq!(rig.line("LRANGE l 0 -1").await, Reply::Array(vec![bulk("a")]));
    // Of more elements than a transaction takes, though the payload is short.
    let many: Vec<String> = (0..300_000).map(|n| (n % 10).to_string()).collect();
    rig.run_bytes(
        ["RPUSH", "l"].map(Bytes::from).into_iter().chain(many.into_iter().map(Bytes::from)).collect(),
    )
    .await;
    let payload = dump(&mut rig, "l").await;
    assert!(payload.len() < 1 << 20);
    assert_eq!(restore(&mut rig, "copy", "0", &payload, &[]).await, Reply::Ok);
    assert_eq!(rig.line("LLEN copy").await, Reply::Int(300_001));
    rig.assert_sound().await;
}

#[tokio::test]
async fn sets_come_back() {
    let mut rig = Rig::new().await;
    let numbers = |n: i64| (0..n).map(|i| (i * 1_000_003 - 7).to_string()).collect::<Vec<_>>();
    let words = |n: i64| (0..n).map(|i| format!("word {i}")).collect::<Vec<_>>();
    let wide = vec!["-9223372036854775808".to_owned(), "9223372036854775807".to_owned(), "1".to_owned()];
    for (all, encoding) in [
        (numbers(3), "intset"),
        (numbers(512), "intset"),
        (numbers(513), "hashtable"),
        (words(1), "listpack"),
        (words(128), "listpack"),
        (words(129), "hashtable"),
        (words(30_000), "hashtable"),
        (wide, "listpack"),
    ] {
        rig.line("DEL k").await;
        let argv: Vec<String> = ["SADD".to_owned(), "k".to_owned()].into_iter().chain(all).collect();
        rig.run(&argv).await;
        let payload = dump(&mut rig, "k").await;
        let done = restore(&mut rig, "copy", "100000", &payload, &["REPLACE"]).await;
        assert_eq!(done, Reply::Ok, "{} {encoding}", argv.len());
        assert_eq!(members(&mut rig, "copy").await, members(&mut rig, "k").await);
        assert_eq!(rig.line("OBJECT ENCODING copy").await, bulk(encoding));
        assert_eq!(rig.line("PTTL copy").await, Reply::Int(100_000));
    }
}

#[tokio::test]
async fn hashes_come_back() {
    let mut rig = Rig::new().await;
    for (n, length, encoding) in [
        (1, 0, "listpack"),
        (512, 3, "listpack"),
        (512, 60, "listpack"),
        (513, 1, "hashtable"),
        (2, 65, "hashtable"),
        (3, 60_000, "hashtable"),
        (30_000, 20, "hashtable"),
        (60_000, 200, "hashtable"),
    ] {
        rig.line("DEL k").await;
        let pairs: Vec<String> = (0..n).flat_map(|i| [format!("f{i}"), format!("{i:0>length$}")]).collect();
        for some in pairs.chunks(20_000) {
            let head = ["HSET".to_owned(), "k".to_owned()];
            rig.run(&Vec::from_iter(head.iter().chain(some))).await;
        }
        let payload = dump(&mut rig, "k").await;
        let done = restore(&mut rig, "copy", "100000", &payload, &["REPLACE"]).await;
        assert_eq!(done, Reply::Ok, "{n} {length}");
        assert_eq!(rig.line("OBJECT ENCODING copy").await, bulk(encoding));
        assert_eq!(rig.line("PTTL copy").await, Reply::Int(100_000));
        assert_eq!(rig.line("HLEN copy").await, Reply::Int(n as i64));
        let last = n - 1;
        assert_eq!(rig.line(&format!("HGET copy f{last}")).await, bulk(format!("{last:0>length$}")));
        assert!(dump(&mut rig, "copy").await.len() == payload.len(), "{n} {length}");
    }
    rig.assert_sound().await;
}

/// A set whose rows exceed a transaction.
#[tokio::test]
async fn a_set_larger_than_a_transaction() {
    let mut rig = Rig::new().await;
    const MEMBERS: i64 = 60_000;
    for batch in 0..10 {
        let some = (0..MEMBERS / 10)
            .map(|i| format!("a member of some length, number {}", batch * MEMBERS / 10 + i));
        let argv: Vec<String> = ["SADD".to_owned(), "k".to_owned()].into_iter().chain(some).collect();
        rig.run(&argv).await;
    }
    let payload = dump(&mut rig, "k").await;
    rig.line("FLUSHALL").await;
    assert_eq!(restore(&mut rig, "k", "0", &payload, &[]).await, Reply::Ok);
    assert_eq!(rig.line("SCARD k").await, Reply::Int(MEMBERS));
    assert_eq!(rig.line("SISMEMBER k 3").await, Reply::Int(0));
}

#[tokio::test]
async fn options() {
    let mut rig = Rig::new().await;
    assert_eq!(restore(&mut rig, "k", "5000", HELLO, &[]).await, Reply::Ok);
    assert_eq!(rig.line("PTTL k").await, Reply::Int(5000));
    let busy = restore(&mut rig, "k", "0", HELLO, &[]).await;
    assert_eq!(error(&busy), "BUSYKEY Target key name already exists.");
    assert_eq!(restore(&mut rig, "k", "0", HELLO, &["replace", "IDLETIME", "7"]).await, Reply::Ok);
    assert_eq!(rig.line("PTTL k").await, Reply::Int(-1));
    let at = (rig::START + 7000).to_string();
    assert_eq!(restore(&mut rig, "k", &at, HELLO, &["ABSTTL", "REPLACE", "FREQ", "255"]).await, Reply::Ok);
    assert_eq!(rig.line("PTTL k").await, Reply::Int(7000));
    assert_eq!(rig.line("GET k").await, bulk("hello"));
    assert_eq!(restore(&mut rig, "new", "1", HELLO, &["ABSTTL"]).await, Reply::Ok, "in the past");
    assert_eq!(rig.line("EXISTS new").await, Reply::Int(0));
    assert_eq!(restore(&mut rig, "k", "1", HELLO, &["ABSTTL", "REPLACE"]).await, Reply::Ok);
    assert_eq!(rig.line("EXISTS k").await, Reply::Int(0));
    rig.line("SADD k a").await;
    assert_eq!(restore(&mut rig, "k", "0", HELLO, &["REPLACE"]).await, Reply::Ok, "of another type");
    assert_eq!(rig.line("GET k").await, bulk("hello"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorted_sets_come_back() {
    let mut rig = Rig::new().await;
    let scores = ["-inf", "1", "-0", "0.1", "1e300", "5e-324", "-7.25", "inf"];
    for (members, length, encoding) in [
        (3, 8, "listpack"),
        (128, 8, "listpack"),
        (128, 60, "listpack"),
        (129, 8, "skiplist"),
        (2, 65, "skiplist"),
        (2000, 2000, "skiplist"),
        (60_000, 200, "skiplist"),
    ] {
        // A cluster counts the names of members several times: 5000 of 200 bytes exceed its transactions.
        let step = 400_000 / length.max(100);
        for first in (0..members).step_by(step) {
            let entries = (first..members.min(first + step))
                .flat_map(|n| [scores[n % scores.len()].to_owned(), format!("{n:0length$}")]);
            rig.run(&["ZADD".to_owned(), "k".into()].into_iter().chain(entries).collect::<Vec<_>>()).await;
        }
        let want = rig.line("ZRANGE k 0 -1 WITHSCORES").await;
        let payload = dump(&mut rig, "k").await;
        assert_eq!(restore(&mut rig, "copy", "0", &payload, &["REPLACE"]).await, Reply::Ok);
        assert_eq!(rig.line("COPY k other REPLACE").await, Reply::Int(1));
        for key in ["copy", "other"] {
            assert!(rig.line(&format!("ZRANGE {key} 0 -1 WITHSCORES")).await == want, "{members} {length}");
            assert_eq!(rig.line(&format!("OBJECT ENCODING {key}")).await, bulk(encoding));
            let rank = rig.line(&format!("ZRANK {key} {:0length$}", members / 2)).await;
            assert_eq!(rank, rig.line(&format!("ZRANK k {:0length$}", members / 2)).await);
        }
        rig.assert_sound().await;
        rig.line("DEL k").await;
    }
    assert_eq!(restore(&mut rig, "k", "0", ZSET, &[]).await, Reply::Ok);
    assert_eq!(rig.line("ZSCORE k a").await, Reply::Double(1.0));
}

/// Adds entries with ids `1-0`, `2-0` and so on.
async fn xadd(rig: &mut Rig, key: &str, ids: std::ops::RangeInclusive<usize>, value: &str) {
    let ids: Vec<usize> = ids.collect();
    for some in ids.chunks(2000) {
        let lines: Vec<String> =
            some.iter().map(|id| format!("XADD {key} {id}-0 number {id} value {value}")).collect();
        rig.together(&lines.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
}

async fn of_stream(rig: &mut Rig, key: &str) -> [Reply; 4] {
    let full = rig.line(&format!("XINFO STREAM {key} FULL COUNT 20")).await;
    let pending = rig.line(&format!("XPENDING {key} g - + 100000")).await;
    let counts = rig.line(&format!("XPENDING {key} g")).await;
    let entries = rig.line(&format!("XRANGE {key} - + COUNT 1000")).await;
    [full, pending, counts, entries]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_back() {
    let mut rig = Rig::new().await;
    assert_eq!(restore(&mut rig, "one", "5000", STREAM, &[]).await, Reply::Ok);
    assert_eq!(rig.line("PTTL one").await, Reply::Int(5000));
    let entry = Reply::Array(vec![bulk("1-1"), Reply::Array(vec![bulk("f"), bulk("v")])]);
    assert_eq!(rig.line("XRANGE one - +").await, Reply::Array(vec![entry]));
    rig.line("DEL one").await;
    for (entries, length) in [(1, 3), (500, 10), (300, 20_000), (60_000, 60)] {
        let value = "x".repeat(length);
        xadd(&mut rig, "s", 1..=entries, &value).await;
        rig.run(&["XADD", "s", "99999-0", "long", &"y".repeat(100_000)]).await;
        rig.line("XGROUP CREATE s g 0").await;
        rig.line("XGROUP CREATE s other $").await;
        for (consumer, part) in [("a", 3), ("b", 5)] {
            let count = entries.div_ceil(part);
            rig.line(&format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS s >")).await;
        }
        rig.line("XDEL s 1-0 7-0").await;
        let want = of_stream(&mut rig, "s").await;
        let payload = dump(&mut rig, "s").await;
        assert_eq!(restore(&mut rig, "copy", "0", &payload, &["REPLACE"]).await, Reply::Ok, "{entries}");
        assert_eq!(rig.line("COPY s other REPLACE").await, Reply::Int(1));
        for key in ["copy", "other"] {
            assert!(of_stream(&mut rig, key).await == want, "{key} of {entries} entries");
            // It goes on as the original does.
            assert_eq!(rig.line(&format!("XADD {key} 99999-1 f v")).await, bulk("99999-1"));
            assert_eq!(
                rig.line(&format!("XACK {key} g 2-0 1-0 99-99")).await,
                rig.line("XACK s g 2-0 1-0 99-99").await
            );
            rig.line(&format!("XGROUP DELCONSUMER {key} g a")).await;
            rig.assert_sound().await;
            rig.line("XGROUP DELCONSUMER s g a").await;
            rig.line("DEL s").await;
            assert_eq!(restore(&mut rig, "s", "0", &payload, &[]).await, Reply::Ok);
        }
        rig.line("FLUSHALL").await;
    }
}

/// Hazard: a guess from the first entries lets a payload of any size be built, or refuses a small one.
#[tokio::test]
async fn what_exceeds_a_bulk_string_is_not_dumped() {
    const TOO_LARGE: &str = "ERR the value has more bytes than proto-max-bulk-len allows: COPY and `tern copy` move values of any size";
    let mut rig = Rig::new().await;
    rig.line("CONFIG SET proto-max-bulk-len 1048576").await;
    xadd(&mut rig, "late", 1..=64, "small").await;
    for n in 100..103 {
        rig.run(&["XADD", "late", &format!("{n}-0"), "long", &"y".repeat(500_000)]).await;
    }
    assert_eq!(error(&rig.line("DUMP late").await), TOO_LARGE);
    xadd(&mut rig, "names", 1..=1, "small").await;
    rig.line("XGROUP CREATE names g 0").await;
    for n in 0..300 {
        rig.line(&format!("XGROUP CREATECONSUMER names g {}{n}", "c".repeat(5000))).await;
    }
    assert_eq!(error(&rig.line("DUMP names").await), TOO_LARGE);
    xadd(&mut rig, "early", 1..=2, &"x".repeat(15_000)).await;
    xadd(&mut rig, "early", 3..=3000, "small").await;
    let payload = dump(&mut rig, "early").await;
    assert_eq!(restore(&mut rig, "copy", "0", &payload, &[]).await, Reply::Ok);
    rig.run(&["HSET", "h", "small", "v"]).await;
    for n in 0..3 {
        rig.run(&["HSET", "h", &n.to_string(), &"y".repeat(500_000)]).await;
    }
    assert_eq!(error(&rig.line("DUMP h").await), TOO_LARGE);
}

#[tokio::test]
async fn refused() {
    let mut rig = Rig::new().await;
    let mut broken = HELLO.to_vec();
    broken[3] = b'x';
    let sum = "ERR DUMP payload version or checksum are wrong";
    for (ttl, payload, options, want) in [
        ("0", &broken[..], &[][..], sum),
        ("0", b"", &[], sum),
        ("x", HELLO, &[], "ERR value is not an integer or out of range"),
        ("-1", HELLO, &[], "ERR Invalid TTL value, must be >= 0"),
        ("0", HELLO, &["IDLETIME", "-1"], "ERR Invalid IDLETIME value, must be >= 0"),
        ("0", HELLO, &["FREQ", "256"], "ERR Invalid FREQ value, must be >= 0 and <= 255"),
        ("0", HELLO, &["FREQ", "1", "IDLETIME", "1"], "ERR syntax error"),
        ("0", HELLO, &["IDLETIME"], "ERR syntax error"),
        ("0", HELLO, &["FOO"], "ERR syntax error"),
        (
            "0",
            b"\x07\x00\x0a\x00\xf2\x07\x8a\x0c\xd0\x0c\xef\x01",
            &[],
            "ERR the payload holds a value of RDB type 7, which this server does not support",
        ),
    ] {
        assert_eq!(error(&restore(&mut rig, "k", ttl, payload, options).await), want, "{ttl} {options:?}");
    }
    assert_eq!(rig.line("EXISTS k").await, Reply::Int(0));
    let long = "k".repeat(9000);
    assert_eq!(error(&restore(&mut rig, &long, "0", HELLO, &[]).await), "ERR key is longer than 8192 bytes");
}

/// A field of 9000 bytes, dumped by Redis 7.0: longer than this store's rows.
#[tokio::test]
async fn a_value_that_the_store_cannot_hold_replaces_nothing() {
    let long = b"\xe0\xff\x00".repeat(34);
    let payload = [
        &b"\x04\x01\xc3\x40\x6f\x63\x28\x01aa"[..],
        &long,
        b"\xe0\x0b\x00\x01aa\x01v\x0a\x00\x7a\xf1\xbf\x56\xcb\xc5\x83\xc5",
    ]
    .concat();
    let mut rig = Rig::new().await;
    rig.line("SET k kept").await;
    let refused = restore(&mut rig, "k", "0", &payload, &["REPLACE"]).await;
    assert_eq!(error(&refused), "ERR a field of a hash has at most 8192 bytes");
    assert_eq!(rig.line("GET k").await, bulk("kept"));
}
