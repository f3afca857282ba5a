//! Commands on keys of any type.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error};
use tern::keyspace::keys::MAX_REDIS_KEY;
use tern::server::reply::Reply;

async fn check(rig: &mut Rig, steps: &[(&str, Reply)]) {
    for (line, want) in steps {
        assert_eq!(rig.line(line).await, *want, "{line}");
    }
}

fn int(n: i64) -> Reply {
    Reply::Int(n)
}

fn simple(text: &'static str) -> Reply {
    Reply::Simple(text.into())
}

#[tokio::test]
async fn existence_and_type() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET a 1", Reply::Ok),
        ("SADD s m", int(1)),
        ("EXISTS a a s none", int(3)),
        ("TOUCH a a none", int(2)),
        ("TYPE a", simple("string")),
        ("TYPE s", simple("set")),
        ("TYPE none", simple("none")),
        ("DBSIZE", int(2)),
        ("DEL a a none", int(1)),
        ("UNLINK s", int(1)),
        ("DBSIZE", int(0)),
    ];
    check(&mut rig, &steps).await;
}

#[tokio::test]
async fn rename_hands_the_value_over() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SETRANGE long 100000 x", int(100_001)),
        ("RENAME long b", Reply::Ok),
        ("EXISTS long", int(0)),
        ("STRLEN b", int(100_001)),
        ("GETRANGE b 99999 -1", bulk("\0x")),
        ("RENAME b b", Reply::Ok),
        ("RENAMENX b b", int(0)),
        ("SET c 1", Reply::Ok),
        ("RENAMENX b c", int(0)),
        ("RENAMENX b d", int(1)),
        ("SADD s m n", int(2)),
        ("RENAME s c", Reply::Ok),
        ("SCARD c", int(2)),
        ("DBSIZE", int(2)),
    ];
    check(&mut rig, &steps).await;
    for line in ["RENAME none x", "RENAME none none", "RENAMENX none x"] {
        assert_eq!(error(&rig.line(line).await), "ERR no such key", "{line}");
    }
}

#[tokio::test]
async fn copies_are_independent() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SETRANGE long 100000 x", int(100_001)),
        ("COPY long copy", int(1)),
        ("SETRANGE copy 0 y", int(100_001)),
        ("GETRANGE long 0 0", bulk("\0")),
        ("DEL long", int(1)),
        ("GETRANGE copy 100000 -1", bulk("x")),
        ("COPY copy copy DB 1", int(1)),
        ("COPY copy copy DB 1", int(0)),
        ("COPY copy copy DB 1 REPLACE", int(1)),
        ("SADD s a b 1 2", int(4)),
        ("COPY s copy", int(0)),
        ("COPY s copy REPLACE", int(1)),
        ("SADD copy c", int(1)),
        ("SCARD s", int(4)),
        ("COPY none x", int(0)),
    ];
    check(&mut rig, &steps).await;
    for (line, text) in [
        ("COPY none x DB abc REPLACE DB 2", "ERR value is not an integer or out of range"),
        ("COPY none x DB 2 DB 16 EX", "ERR DB index is out of range"),
        ("COPY none x DB 2 EX DB 16", "ERR syntax error"),
    ] {
        assert_eq!(error(&rig.line(line).await), text, "{line}");
    }
    rig.client.db = 1;
    assert_eq!(rig.line("STRLEN copy").await, int(100_001));
    for (line, want) in [
        ("COPY a a", "ERR source and destination objects are the same"),
        ("COPY a b DB 16", "ERR DB index is out of range"),
        ("COPY a b DB x", "ERR value is not an integer or out of range"),
        ("COPY a b DB", "ERR syntax error"),
        ("COPY a b KEEP", "ERR syntax error"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
    }
}

#[tokio::test]
async fn a_chunked_set_is_copied_with_its_deltas() {
    let mut rig = Rig::new().await;
    let members: Vec<String> = (0..5000).map(|n| format!("m{n}")).collect();
    let argv: Vec<&str> = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
    rig.run(&argv).await;
    rig.line("SREM s m7").await;
    rig.line("SADD s late").await;
    assert_eq!(rig.line("COPY s t").await, int(1));
    assert_eq!(rig.line("MOVE s 1").await, int(1));
    rig.line("SADD t only").await;
    assert_eq!(rig.line("SCARD t").await, int(5001));
    assert_eq!(rig.line("SMISMEMBER t m7 late m8 only").await, Reply::Array([0, 1, 1, 1].map(int).into()));
    rig.client.db = 1;
    assert_eq!(rig.line("SCARD s").await, int(5000));
    assert_eq!(rig.line("SMISMEMBER s m7 late m8 only").await, Reply::Array([0, 1, 1, 0].map(int).into()));
}

#[tokio::test]
async fn databases_are_apart() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET k 0", Reply::Ok),
        ("MOVE none 1", int(0)),
        ("MOVE k 1", int(1)),
        ("SET k 0", Reply::Ok),
        ("MOVE k 1", int(0)),
        ("SWAPDB 0 2", Reply::Ok),
        ("EXISTS k", int(0)),
        ("SWAPDB 2 0", Reply::Ok),
        ("GET k", bulk("0")),
        ("FLUSHDB ASYNC", Reply::Ok),
        ("DBSIZE", int(0)),
    ];
    check(&mut rig, &steps).await;
    rig.client.db = 1;
    check(&mut rig, &[("DBSIZE", int(1)), ("FLUSHALL", Reply::Ok), ("DBSIZE", int(0))]).await;
    for (line, want) in [
        ("MOVE k 1", "ERR source and destination objects are the same"),
        ("MOVE k 16", "ERR DB index is out of range"),
        ("MOVE k x", "ERR value is not an integer or out of range"),
        ("MOVE k 2147483648", "ERR value is out of range, value must between -2147483648 and 2147483647"),
        ("SWAPDB x 1", "ERR invalid first DB index"),
        ("SWAPDB 16 x", "ERR invalid second DB index"),
        ("SWAPDB 16 0", "ERR DB index is out of range"),
        ("FLUSHDB NOW", "ERR syntax error"),
        ("FLUSHALL SYNC ASYNC", "ERR syntax error"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
    }
}

#[tokio::test]
async fn a_name_that_is_too_long_is_absent_and_cannot_be_written() {
    let mut rig = Rig::new().await;
    let (longest, long) = ("x".repeat(MAX_REDIS_KEY), "x".repeat(MAX_REDIS_KEY + 1));
    assert_eq!(rig.run(&["SET", &longest, "v", "EX", "100"]).await, Reply::Ok);
    assert_eq!(rig.run(&["RENAME", &longest, "a"]).await, Reply::Ok);
    rig.line("SADD s m").await;
    for argv in [
        &["SET", &long, "v"][..],
        &["INCR", &long],
        &["APPEND", &long, "v"],
        &["RENAME", "a", &long],
        &["COPY", "a", &long],
        &["SADD", &long, "m"],
        &["SMOVE", "s", &long, "m"],
        &["SUNIONSTORE", &long, "s"],
        &["MSET", "b", "v", &long, "v"],
        &["MSETNX", "b", "v", &long, "v"],
        &["SETRANGE", &long, "20000", "v"],
    ] {
        assert_eq!(error(&rig.run(argv).await), "ERR key is longer than 8192 bytes", "{}", argv[0]);
    }
    assert_eq!(rig.run(&["GET", &long]).await, Reply::Nil);
    assert_eq!(rig.run(&["DEL", &long]).await, int(0));
    assert_eq!(rig.line("GET a").await, bulk("v"));
    assert_eq!(rig.line("EXISTS b").await, int(0));
    assert_eq!(rig.line("SCARD s").await, int(1));
    assert_eq!(rig.line("DBSIZE").await, int(2));
}

#[tokio::test]
async fn object_names_redis_encodings() {
    let mut rig = Rig::new().await;
    let (short, long) = ("x".repeat(44), "x".repeat(45));
    for (value, encoding) in [
        ("9223372036854775807", "int"),
        ("9223372036854775808", "embstr"),
        ("007", "embstr"),
        ("", "embstr"),
        (&short, "embstr"),
        (&long, "raw"),
    ] {
        rig.run(&["SET", "k", value]).await;
        assert_eq!(rig.line("OBJECT ENCODING k").await, bulk(encoding), "{value}");
    }
    let steps = [
        ("SET k 1", "int"),
        ("APPEND k 2", "raw"),
        ("INCR k", "int"),
        ("SETRANGE k 0 3", "raw"),
        ("COPY k copy", "raw"),
        ("INCRBYFLOAT k 1.0", "embstr"),
        ("GETEX k EX 100", "embstr"),
        ("GETSET k 3", "int"),
        ("DEL k", "none"),
        ("APPEND k 3", "int"),
        ("DEL k", "none"),
        ("SETRANGE k 0 3", "raw"),
    ];
    for (line, encoding) in steps {
        rig.line(line).await;
        let want = if encoding == "none" { Reply::Nil } else { bulk(encoding) };
        assert_eq!(rig.line("OBJECT ENCODING k").await, want, "{line}");
    }
    rig.run(&["SET", "k", &long]).await;
    rig.line("SADD ints 1 2").await;
    rig.line("SADD words a 2").await;
    let steps = [
        ("OBJECT encoding ints", bulk("intset")),
        ("OBJECT ENCODING words", bulk("listpack")),
        ("OBJECT ENCODING none", Reply::Nil),
        ("OBJECT REFCOUNT k", int(1)),
        ("OBJECT REFCOUNT none", Reply::Nil),
        ("OBJECT IDLETIME k", int(0)),
        ("OBJECT FREQ none", Reply::Nil),
    ];
    check(&mut rig, &steps).await;
    assert!(error(&rig.line("OBJECT FREQ k").await).starts_with("ERR An LFU maxmemory policy"));
    assert!(matches!(rig.line("OBJECT HELP").await, Reply::Array(lines) if lines.len() == 15));
}
