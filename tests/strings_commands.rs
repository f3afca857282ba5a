//! String commands: options, conditions, errors and their order, as redis-server 7.0.15 answers them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error};
use tern::server::reply::Reply;

const SYNTAX: &str = "ERR syntax error";
const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

async fn check(rig: &mut Rig, steps: &[(&str, Reply)]) {
    for (line, want) in steps {
        assert_eq!(rig.line(line).await, *want, "{line}");
    }
}

async fn refuse(rig: &mut Rig, steps: &[(&str, &str)]) {
    for (line, want) in steps {
        assert_eq!(error(&rig.line(line).await), *want, "{line}");
    }
}

fn int(n: i64) -> Reply {
    Reply::Int(n)
}

#[tokio::test]
async fn set_on_conditions() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET k 1 XX", Reply::Nil),
        ("SET k 1 NX", Reply::Ok),
        ("SET k 2 NX", Reply::Nil),
        ("SET k 2 NX GET", bulk("1")),
        ("SET k 2 xx get", bulk("1")),
        ("SET none 2 XX GET", Reply::Nil),
        ("SET new 1 NX GET", Reply::Nil),
        ("GET new", bulk("1")),
        ("SET k 3 IFEQ 1", Reply::Nil),
        ("SET k 3 IFEQ 2", Reply::Ok),
        ("SET k 4 IFNE 3", Reply::Nil),
        ("SET k 4 IFNE 2 GET", bulk("3")),
        ("SET k 5 IFEQ 0 GET", bulk("4")),
        ("SET missing 5 IFEQ 5", Reply::Nil),
        ("SET missing 5 IFNE 5", Reply::Ok),
        ("SETNX k 5", int(0)),
        ("SETNX other 5", int(1)),
        ("GETSET k 6", bulk("4")),
        ("GETDEL k", bulk("6")),
        ("GETDEL k", Reply::Nil),
    ];
    check(&mut rig, &steps).await;
    rig.run(&["SET", "d", "Hello world"]).await;
    assert_eq!(rig.line("SET d x IFDNE b6acb9d84a38ff74").await, Reply::Nil);
    assert_eq!(rig.line("SET d x IFDEQ B6ACB9D84A38FF74").await, Reply::Ok);
    assert!(error(&rig.line("SET d x IFDEQ 12").await).contains("16 hexadecimal"));
}

#[tokio::test]
async fn set_and_expiry() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET k 1 EX 10", Reply::Ok),
        ("PTTL k", int(10_000)),
        ("SET k 2 KEEPTTL", Reply::Ok),
        ("PTTL k", int(10_000)),
        ("SET k 2 EX 5 EX 6", Reply::Ok),
        ("PTTL k", int(6_000)),
        ("SET k 3", Reply::Ok),
        ("TTL k", int(-1)),
        ("SETEX k 7 v", Reply::Ok),
        ("PSETEX k 7 v", Reply::Ok),
        ("PTTL k", int(7)),
        ("GETSET k 1", bulk("v")),
        ("TTL k", int(-1)),
        ("GETEX k PX 5", bulk("1")),
        ("GETEX k", bulk("1")),
        ("PTTL k", int(5)),
        ("GETEX k PERSIST", bulk("1")),
        ("TTL k", int(-1)),
        ("GETEX none EX 0", Reply::Nil),
        ("SET k 1 PXAT 1700000000007", Reply::Ok),
        ("INCR k", int(2)),
        ("PTTL k", int(7)),
        ("APPEND k x", int(2)),
        ("SETRANGE k 0 y", int(2)),
        ("PTTL k", int(7)),
        ("MSET k 1", Reply::Ok),
        ("TTL k", int(-1)),
    ];
    check(&mut rig, &steps).await;
}

#[tokio::test]
async fn options_that_exclude_each_other() {
    let mut rig = Rig::new().await;
    for line in [
        "SET k v NX XX",
        "SET k v EX",
        "SET k v EX 1 PX 1",
        "SET k v EX 1 KEEPTTL",
        "SET k v KEEPTTL EXAT 1",
        "SET k v PERSIST",
        "SET k v NX IFEQ 1",
        "SET k v nope",
        "GETEX k EX 1 PERSIST",
        "GETEX k KEEPTTL",
        "GETEX k NX",
    ] {
        assert_eq!(error(&rig.line(line).await), SYNTAX, "{line}");
    }
    let invalid = [
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v PX -1", "ERR invalid expire time in 'set' command"),
        ("SET k v EX 9223372036854775", "ERR invalid expire time in 'set' command"),
        ("SET k v EXAT 9223372036854776", "ERR invalid expire time in 'set' command"),
        ("SET k v PX 9223372036854775807", "ERR invalid expire time in 'set' command"),
        ("SET k v EX x", NOT_INTEGER),
        ("SETEX k 0 v", "ERR invalid expire time in 'setex' command"),
        ("PSETEX k -1 v", "ERR invalid expire time in 'psetex' command"),
    ];
    refuse(&mut rig, &invalid).await;
    rig.line("SET k v").await;
    refuse(&mut rig, &[("GETEX k EX 0", "ERR invalid expire time in 'getex' command")]).await;
    assert_eq!(rig.line("GET k").await, bulk("v"));
}

#[tokio::test]
async fn other_types() {
    let mut rig = Rig::new().await;
    rig.line("SADD s m").await;
    for line in [
        "GET s",
        "GETSET s v",
        "GETDEL s",
        "GETEX s EX 0",
        "SET s v GET",
        "SET s v NX GET",
        "APPEND s v",
        "STRLEN s",
        "GETRANGE s 0 1",
        "SETRANGE s 1 v",
        "SETRANGE s 536870912 v",
        "INCR s",
        "INCRBYFLOAT s x",
    ] {
        assert_eq!(error(&rig.line(line).await), WRONGTYPE, "{line}");
    }
    let steps = [
        ("SETNX s v", int(0)),
        ("MGET s none", Reply::Array(vec![Reply::Nil, Reply::Nil])),
        ("SET s v", Reply::Ok),
        ("TYPE s", Reply::Simple("string".into())),
    ];
    check(&mut rig, &steps).await;
}

#[tokio::test]
async fn several_at_once() {
    let mut rig = Rig::new().await;
    let steps = [
        ("MSET a 1 b 2 a 3", Reply::Ok),
        ("MGET a b c a", Reply::Array(vec![bulk("3"), bulk("2"), Reply::Nil, bulk("3")])),
        ("MSETNX c 1 a 1", int(0)),
        ("EXISTS c", int(0)),
        ("MSETNX c 1 d 2 c 3", int(1)),
        ("GET c", bulk("3")),
        ("DBSIZE", int(4)),
    ];
    check(&mut rig, &steps).await;
    let odd = [
        ("MSET a 1 b", "ERR wrong number of arguments for 'mset' command"),
        ("MSETNX a 1 b", "ERR wrong number of arguments for 'msetnx' command"),
    ];
    refuse(&mut rig, &odd).await;
}

#[tokio::test]
async fn ranges() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET k hello", Reply::Ok),
        ("GETRANGE k 0 -1", bulk("hello")),
        ("GETRANGE k -3 -2", bulk("ll")),
        ("GETRANGE k -2 -3", bulk("")),
        ("GETRANGE k -100 1", bulk("he")),
        ("GETRANGE k 3 100", bulk("lo")),
        ("GETRANGE k 5 9", bulk("")),
        ("GETRANGE k 3 2", bulk("")),
        ("GETRANGE k -100 -50", bulk("h")),
        ("GETRANGE k 0 9223372036854775807", bulk("hello")),
        ("GETRANGE k -9223372036854775808 -1", bulk("hello")),
        ("SUBSTR k 1 3", bulk("ell")),
        ("GETRANGE none 0 -1", bulk("")),
        ("SETRANGE k 1 EL", int(5)),
        ("SETRANGE k 7 x", int(8)),
        ("GET k", bulk("hELlo\0\0x")),
        ("SETRANGE k 3 ", int(8)),
        ("SETRANGE none 3 ", int(0)),
        ("EXISTS none", int(0)),
        ("APPEND empty ", int(0)),
        ("EXISTS empty", int(1)),
        ("STRLEN k", int(8)),
    ];
    check(&mut rig, &steps).await;
    let refused = [
        ("SETRANGE k -1 x", "ERR offset is out of range"),
        ("SETRANGE k x y", NOT_INTEGER),
        ("SETRANGE k 9223372036854775807 y", "ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("GETRANGE k 0 x", NOT_INTEGER),
    ];
    refuse(&mut rig, &refused).await;
}

#[tokio::test]
async fn integers() {
    let mut rig = Rig::new().await;
    let steps = [
        ("INCR n", int(1)),
        ("DECR n", int(0)),
        ("INCRBY n -5", int(-5)),
        ("DECRBY n -9223372036854775807", int(9_223_372_036_854_775_802)),
        ("INCRBY n 5", int(i64::MAX)),
        ("GET n", bulk("9223372036854775807")),
    ];
    check(&mut rig, &steps).await;
    let refused = [
        ("INCR n", "ERR increment or decrement would overflow"),
        ("DECRBY n -1", "ERR increment or decrement would overflow"),
        ("DECRBY n -9223372036854775808", "ERR decrement would overflow"),
        ("INCRBY n 1.0", NOT_INTEGER),
        ("INCRBY n 9223372036854775808", NOT_INTEGER),
    ];
    refuse(&mut rig, &refused).await;
    for stored in ["", " 1", "1 ", "01", "+1", "1.0", "x", &"1".repeat(20_000)] {
        rig.run(&["SET", "k", stored]).await;
        assert_eq!(error(&rig.line("INCR k").await), NOT_INTEGER, "{stored}");
    }
}
