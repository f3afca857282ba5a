//! String commands since Redis 7.0, by their documentation: comparing deletes, digests, MSETEX, INCREX, LCS.
//! `tests/differential` also compares LCS with a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error};
use tern::server::Protocol;
use tern::server::reply::Reply;

const SYNTAX: &str = "ERR syntax error";
const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_STRING: &str = "ERR Key should be of string type if conditions are specified";
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

fn ints(numbers: &[i64]) -> Reply {
    Reply::Array(numbers.iter().map(|n| int(*n)).collect())
}

fn bulks(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(bulk).collect())
}

#[tokio::test]
async fn digests() {
    let mut rig = Rig::new().await;
    rig.run(&["SET", "k", "Hello world"]).await;
    let long = vec![7u8; 200_000];
    rig.run(&[b"SET", &b"long"[..], &long]).await;
    rig.line("SADD set a").await;
    let steps = [
        ("DIGEST k", bulk("b6acb9d84a38ff74")),
        ("DIGEST missing", Reply::Nil),
        ("DIGEST long", bulk(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&long)))),
        ("SET k v IFDEQ b6acb9d84a38ff74", Reply::Ok),
    ];
    check(&mut rig, &steps).await;
    refuse(&mut rig, &[("DIGEST set", WRONGTYPE)]).await;
}

#[tokio::test]
async fn comparing_deletes() {
    let mut rig = Rig::new().await;
    let steps = [
        ("SET k v", Reply::Ok),
        ("DELEX k IFEQ w", int(0)),
        ("DELEX k IFNE v", int(0)),
        ("DELEX k ifeq v", int(1)),
        ("EXISTS k", int(0)),
        ("DELEX k IFEQ v", int(0)),
        ("DELEX k IFNE v", int(0)),
        ("DELEX k", int(0)),
        ("SET k v", Reply::Ok),
        ("DELEX k IFNE w", int(1)),
        ("SADD set a", int(1)),
        ("DELEX set", int(1)),
        ("SET k v EX 100", Reply::Ok),
        ("DELIFEQ k w", int(0)),
        ("TTL k", int(100)),
        ("DELIFEQ k v", int(1)),
        ("DELIFEQ k v", int(0)),
        ("SADD set a", int(1)),
    ];
    check(&mut rig, &steps).await;
    rig.run(&["SET", "d", "Hello world"]).await;
    let steps = [
        ("DELEX d IFDNE b6acb9d84a38ff74", int(0)),
        ("DELEX d IFDEQ 0000000000000000", int(0)),
        ("DELEX d IFDEQ B6ACB9D84A38FF74", int(1)),
        ("DELEX missing FOO a", int(0)),
        ("DELEX missing IFDEQ 12", int(0)),
        ("SET missing v IFDEQ 12", Reply::Nil),
        ("SET s v IFDNE 12", Reply::Ok),
    ];
    check(&mut rig, &steps).await;
    let arity = "ERR wrong number of arguments for 'delex' command";
    let wrong = [
        ("DELEX k IFEQ", arity),
        ("DELEX k IFEQ a b", arity),
        ("DELEX s FOO a", "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("DELEX s IFDEQ 12", "ERR must be exactly 16 hexadecimal characters"),
        ("SET s v IFDNE 12", "ERR must be exactly 16 hexadecimal characters"),
        ("DELEX set IFEQ a", NO_STRING),
        ("DELEX set FOO a", NO_STRING),
        ("DELIFEQ set a", WRONGTYPE),
    ];
    refuse(&mut rig, &wrong).await;
    check(&mut rig, &[("SCARD set", int(1))]).await;
}

#[tokio::test]
async fn many_strings_and_one_expiry() {
    let mut rig = Rig::new().await;
    let steps = [
        ("MSETEX 2 a 1 b 2", int(1)),
        ("MGET a b", bulks(&["1", "2"])),
        ("TTL a", int(-1)),
        ("MSETEX 2 a 3 c 4 NX", int(0)),
        ("MGET a c", Reply::Array(vec![bulk("1"), Reply::Nil])),
        ("MSETEX 2 a 3 c 4 XX", int(0)),
        ("MSETEX 2 c 3 d 4 NX EX 10", int(1)),
        ("TTL d", int(10)),
        ("MSETEX 2 c 5 d 6 XX KEEPTTL", int(1)),
        ("TTL c", int(10)),
        ("GET d", bulk("6")),
        ("MSETEX 1 c 7 xx px 1500", int(1)),
        ("PTTL c", int(1500)),
        ("MSETEX 1 c 7 EXAT 1700000020", int(1)),
        ("TTL c", int(20)),
        ("MSETEX 1 c 7 PXAT 1700000000007", int(1)),
        ("PTTL c", int(7)),
        ("MSETEX 1 c 7", int(1)),
        ("TTL c", int(-1)),
        ("MSETEX 2 a x a y", int(1)),
        ("GET a", bulk("y")),
        ("MSETEX 1 a 1 EXAT 1", int(1)),
        ("EXISTS a", int(0)),
        ("SADD set x", int(1)),
        ("MSETEX 1 set v", int(1)),
        ("GET set", bulk("v")),
    ];
    check(&mut rig, &steps).await;
    let wrong = [
        ("MSETEX 0 a 1", "ERR invalid numkeys value"),
        ("MSETEX x a 1", "ERR invalid numkeys value"),
        ("MSETEX 2 a 1 b", "ERR wrong number of key-value pairs"),
        ("MSETEX 2147483647 a 1", "ERR wrong number of key-value pairs"),
        ("MSETEX 2147483648 a 1", "ERR invalid numkeys value"),
        ("MSETEX 1 a 1 b 2", SYNTAX),
        ("MSETEX 1 a 1 NX XX", SYNTAX),
        ("MSETEX 1 a 1 EX 1 KEEPTTL", SYNTAX),
        ("MSETEX 1 a 1 EX", SYNTAX),
        ("MSETEX 1 a 1 EX 0", "ERR invalid expire time in 'msetex' command"),
        ("MSETEX 1 a 1 EX x", NOT_INTEGER),
    ];
    refuse(&mut rig, &wrong).await;
    assert_eq!(rig.line("EXISTS a").await, int(0));
}

#[tokio::test]
async fn integers_inside_bounds() {
    let mut rig = Rig::new().await;
    let steps = [
        ("INCREX k", ints(&[1, 1])),
        ("INCREX k BYINT 5", ints(&[6, 5])),
        ("INCREX k BYINT -2", ints(&[4, -2])),
        ("INCREX k UBOUND 5", ints(&[5, 1])),
        ("INCREX k UBOUND 5", ints(&[5, 0])),
        ("GET k", bulk("5")),
        ("INCREX k BYINT 100 UBOUND 50", ints(&[5, 0])),
        ("INCREX k BYINT 100 UBOUND 50 SATURATE", ints(&[50, 45])),
        ("INCREX k BYINT -100 SATURATE LBOUND -7", ints(&[-7, -57])),
        ("INCREX k BYINT -100 LBOUND -7", ints(&[-7, 0])),
        ("INCREX missing UBOUND 0", ints(&[0, 0])),
        ("EXISTS missing", int(0)),
        ("INCREX missing UBOUND 0 SATURATE", ints(&[0, 0])),
        ("GET missing", bulk("0")),
        ("SET max 9223372036854775807", Reply::Ok),
        ("INCREX max", ints(&[i64::MAX, 0])),
        ("INCREX max BYINT 5 SATURATE", ints(&[i64::MAX, 0])),
        ("INCREX max BYINT -9223372036854775808", ints(&[-1, i64::MIN])),
        ("OBJECT ENCODING max", bulk("int")),
    ];
    check(&mut rig, &steps).await;
    rig.line("SADD set x").await;
    rig.line("SET word abc").await;
    let wrong = [
        ("INCREX set", WRONGTYPE),
        ("INCREX word", NOT_INTEGER),
        ("INCREX k BYINT 1.5", NOT_INTEGER),
        ("INCREX k UBOUND 1.5", NOT_INTEGER),
        ("INCREX k BYINT", SYNTAX),
        ("INCREX k BYINT 1 BYINT 2", SYNTAX),
        ("INCREX k BYINT 1 BYFLOAT 2", SYNTAX),
        ("INCREX k FOO", SYNTAX),
        ("INCREX k LBOUND 2 UBOUND 1", "ERR LBOUND can't be greater than UBOUND"),
    ];
    refuse(&mut rig, &wrong).await;
    check(&mut rig, &[("GET k", bulk("-7"))]).await;
}

#[tokio::test]
async fn floats_inside_bounds() {
    let mut rig = Rig::new().await;
    let steps = [
        ("INCREX k BYFLOAT 0.1", bulks(&["0.1", "0.1"])),
        ("INCREX k BYFLOAT 0.2", bulks(&["0.3", "0.2"])),
        ("GET k", bulk("0.3")),
        ("INCREX k BYFLOAT 1 UBOUND 1", bulks(&["0.3", "0"])),
        ("INCREX k BYFLOAT 1 UBOUND 1.25 SATURATE", bulks(&["1.25", "0.95"])),
        ("INCREX k BYFLOAT -3e3 LBOUND -0.5 SATURATE", bulks(&["-0.5", "-1.75"])),
        ("SET n 3", Reply::Ok),
        ("INCREX n BYFLOAT 1", bulks(&["4", "1"])),
        ("INCREX n", ints(&[5, 1])),
    ];
    check(&mut rig, &steps).await;
    let wrong = [
        ("INCREX k", NOT_INTEGER),
        ("INCREX k BYFLOAT abc", "ERR value is not a valid float"),
        ("INCREX k BYFLOAT 1 LBOUND x", "ERR value is not a valid float"),
        ("INCREX k BYFLOAT inf", "ERR increment would produce NaN or Infinity"),
        ("INCREX k BYFLOAT 1 LBOUND 2 UBOUND 1.5", "ERR LBOUND can't be greater than UBOUND"),
    ];
    refuse(&mut rig, &wrong).await;
    rig.client.protocol = Protocol::Resp3;
    let doubles = Reply::Array(vec![Reply::Double(6.5), Reply::Double(1.5)]);
    check(&mut rig, &[("INCREX n BYFLOAT 1.5", doubles)]).await;
}

#[tokio::test]
async fn increments_and_expiry() {
    let mut rig = Rig::new().await;
    let steps = [
        ("INCREX k EX 10", ints(&[1, 1])),
        ("TTL k", int(10)),
        ("INCREX k", ints(&[2, 1])),
        ("TTL k", int(10)),
        ("INCREX k EX 20 ENX", ints(&[3, 1])),
        ("TTL k", int(10)),
        ("INCREX k PX 20000", ints(&[4, 1])),
        ("TTL k", int(20)),
        ("INCREX k UBOUND 4 EX 99", ints(&[4, 0])),
        ("TTL k", int(20)),
        ("INCREX k PERSIST", ints(&[5, 1])),
        ("TTL k", int(-1)),
        ("INCREX k EXAT 1700000030 ENX", ints(&[6, 1])),
        ("TTL k", int(30)),
        ("INCREX k UBOUND 6 SATURATE PXAT 1700000040000", ints(&[6, 0])),
        ("TTL k", int(40)),
        ("INCREX k EXAT 1", ints(&[7, 1])),
        ("EXISTS k", int(0)),
    ];
    check(&mut rig, &steps).await;
    let wrong = [
        ("INCREX k ENX", "ERR ENX flag requires an expiration"),
        ("INCREX k PERSIST ENX", SYNTAX),
        ("INCREX k PERSIST EX 1", SYNTAX),
        ("INCREX k KEEPTTL", SYNTAX),
        ("INCREX k EX 0", "ERR invalid expire time in 'increx' command"),
        ("INCREX k EX x", NOT_INTEGER),
    ];
    refuse(&mut rig, &wrong).await;
    assert_eq!(rig.line("EXISTS k").await, int(0));
}

#[tokio::test]
async fn longest_common_subsequences() {
    let mut rig = Rig::new().await;
    let pair = |from, to| ints(&[from, to]);
    let found = |matches: Vec<Reply>, len| {
        Reply::Map(vec![(bulk("matches"), Reply::Array(matches)), (bulk("len"), int(len))])
    };
    let both = vec![
        Reply::Array(vec![pair(4, 7), pair(5, 8), int(4)]),
        Reply::Array(vec![pair(2, 3), pair(0, 1), int(2)]),
    ];
    let steps = [
        ("MSET a ohmytext b mynewtext", Reply::Ok),
        ("LCS a b", bulk("mytext")),
        ("LCS a b LEN", int(6)),
        ("LCS a b IDX WITHMATCHLEN", found(both.clone(), 6)),
        ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", found(both[..1].to_vec(), 6)),
        ("LCS a b IDX MINMATCHLEN 5", found(vec![], 6)),
        ("LCS a missing", bulk("")),
        ("LCS a missing IDX", found(vec![], 0)),
        ("LCS a a", bulk("ohmytext")),
        ("SADD set x", int(1)),
    ];
    check(&mut rig, &steps).await;
    let wrong = [
        ("LCS a set", "ERR The specified keys must contain string values"),
        ("LCS a b LEN IDX", "ERR If you want both the length and indexes, please just use IDX."),
        ("LCS a b MINMATCHLEN", SYNTAX),
        ("LCS a b MINMATCHLEN x", NOT_INTEGER),
        ("LCS a b FOO", SYNTAX),
    ];
    refuse(&mut rig, &wrong).await;
    rig.run(&[b"SET", &b"long"[..], &vec![b'x'; 20_000]]).await;
    let too_long = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    refuse(&mut rig, &[("LCS long long", too_long)]).await;
    rig.run(&[b"SET", &b"half"[..], &vec![b'x'; 3_000]]).await;
    assert_eq!(rig.line("LCS half long LEN").await, int(3_000));
}
