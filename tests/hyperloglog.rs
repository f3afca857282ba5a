//! HyperLogLogs in process. `tests/differential` compares bytes and errors with Redis; this file covers the
//! rest: WATCH and expiry, strings of other forms, the self-test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use rig::{Rig, bulk, error};
use tern::server::reply::Reply;

#[tokio::test]
async fn counts_different_elements() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.line("PFCOUNT k").await, Reply::Int(0));
    assert_eq!(rig.line("PFADD k").await, Reply::Int(1), "the key is new");
    assert_eq!(rig.line("PFADD k").await, Reply::Int(0));
    assert_eq!(rig.line("PFADD k a b c a").await, Reply::Int(1));
    assert_eq!(rig.line("PFADD k c b").await, Reply::Int(0));
    assert_eq!(rig.line("PFCOUNT k").await, Reply::Int(3));
    rig.line("PFADD other c d").await;
    assert_eq!(rig.line("PFCOUNT k other missing").await, Reply::Int(4));
    assert_eq!(rig.line("PFMERGE all k other missing").await, Reply::Ok);
    assert_eq!(rig.line("PFCOUNT all").await, Reply::Int(4));
    assert_eq!(rig.line("PFMERGE empty missing").await, Reply::Ok);
    assert_eq!(rig.line("PFCOUNT empty").await, Reply::Int(0));
    assert_eq!(rig.line("TYPE all").await, Reply::Simple("string".into()));
    assert_eq!(rig.line("OBJECT ENCODING all").await, bulk("raw"));
}

#[tokio::test]
async fn a_million_elements_are_estimated() {
    let mut rig = Rig::new().await;
    for batch in 0..100 {
        let elements = (0..10_000).map(|n| (batch * 10_000 + n).to_string());
        let argv: Vec<String> = ["PFADD".to_owned(), "k".to_owned()].into_iter().chain(elements).collect();
        rig.run(&argv).await;
    }
    let Reply::Int(estimated) = rig.line("PFCOUNT k").await else { panic!("no number") };
    assert!(estimated.abs_diff(1_000_000) < 20_000, "{estimated}");
    assert_eq!(rig.line("STRLEN k").await, Reply::Int(12_304));
    assert_eq!(rig.line("PFSELFTEST").await, Reply::Ok);
}

/// The expiry stays, and the string caches the count.
#[tokio::test]
async fn the_expiry_and_the_cached_count_are_kept() {
    let mut rig = Rig::new().await;
    rig.line("PFADD k a").await;
    rig.line("EXPIRE k 100").await;
    let stale = rig.line("GET k").await;
    rig.line("PFCOUNT k").await;
    let counted = rig.line("GET k").await;
    assert_ne!(stale, counted);
    rig.line("PFCOUNT k").await;
    assert_eq!(rig.line("GET k").await, counted);
    rig.line("PFADD k b").await;
    rig.line("PFMERGE k other").await;
    assert_eq!(rig.line("TTL k").await, Reply::Int(100));
    rig.advance(101_000);
    assert_eq!(rig.line("PFCOUNT k").await, Reply::Int(0));
    assert_eq!(rig.line("PFADD k").await, Reply::Int(1));
}

/// A string in pieces and one in the record read the same; runs of registers may be longer than a record
/// holds.
#[tokio::test]
async fn longer_than_a_record() {
    let mut rig = Rig::new().await;
    rig.server.config.set(&[("hll-sparse-max-bytes".into(), "20000".into())]).unwrap();
    let elements = (0..60_000).map(|n| n.to_string());
    let argv: Vec<String> = ["PFADD".to_owned(), "k".to_owned()].into_iter().chain(elements).collect();
    assert_eq!(rig.run(&argv).await, Reply::Int(1));
    let Reply::Int(length) = rig.line("STRLEN k").await else { panic!("no number") };
    assert_eq!(rig.line("PFDEBUG ENCODING k").await, Reply::Simple("sparse".into()), "{length}");
    let counted = rig.line("PFCOUNT k").await;
    assert_eq!(rig.line("PFDEBUG TODENSE k").await, Reply::Int(1));
    assert_eq!(rig.line("PFDEBUG TODENSE k").await, Reply::Int(0));
    assert_eq!(rig.line("PFCOUNT k").await, counted);
}

#[tokio::test]
async fn errors() {
    let mut rig = Rig::new().await;
    rig.line("SADD set x").await;
    rig.line("SET string abc").await;
    rig.line("SET number 12").await;
    rig.line("PFADD k a").await;
    rig.line("PFADD broken a").await;
    rig.line("APPEND broken hello").await;
    let (other, none) = (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "WRONGTYPE Key is not a valid HyperLogLog string value.",
    );
    for (line, want) in [
        ("PFADD set a", other),
        ("PFADD string a", none),
        ("PFADD number a", none),
        ("PFCOUNT set", other),
        ("PFCOUNT k string", none),
        ("PFMERGE k set", other),
        ("PFMERGE string k", none),
        ("PFCOUNT broken", "INVALIDOBJ Corrupted HLL object detected"),
        ("PFCOUNT k broken", "INVALIDOBJ Corrupted HLL object detected"),
        ("PFMERGE k broken", "INVALIDOBJ Corrupted HLL object detected"),
        ("PFDEBUG TODENSE broken", "INVALIDOBJ Corrupted HLL object detected"),
        ("PFDEBUG DECODE missing", "ERR The specified key does not exist"),
        ("PFDEBUG FOO k", "ERR Unknown PFDEBUG subcommand 'FOO'"),
        ("PFDEBUG F\0O k", "ERR Unknown PFDEBUG subcommand 'F'"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
    }
    assert_eq!(rig.line("PFCOUNT k").await, Reply::Int(1), "as it was");
    let long = "k".repeat(9000);
    assert_eq!(error(&rig.line(&format!("PFADD {long} a")).await), "ERR key is longer than 8192 bytes");
    assert_eq!(error(&rig.line(&format!("PFMERGE {long} k")).await), "ERR key is longer than 8192 bytes");
}
