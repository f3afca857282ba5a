//! Lists: what exceeds a transaction, long elements, and what SORT makes of lists.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;

use bytes::Bytes;
use rig::{Rig, bulk, error};
use tern::server::reply::Reply;

/// More than a transaction takes.
const LONG: usize = 11 << 20;
const MANY: usize = 200_000;

fn line(words: &str, more: impl IntoIterator<Item = String>) -> Vec<Bytes> {
    words.split(' ').map(str::to_owned).chain(more).map(Bytes::from).collect()
}

fn elements(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| format!("element:{n:0>20}"))
}

fn length(n: usize) -> Reply {
    Reply::Int(n as i64)
}

#[tokio::test]
async fn more_than_a_transaction_takes() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.run_bytes(line("rpush l", elements(0..MANY))).await, length(MANY));
    assert_eq!(rig.line("lindex l 123456").await, bulk("element:00000000000000123456"));
    assert_eq!(rig.run_bytes(line("lpush l", elements(0..MANY))).await, length(2 * MANY));
    assert_eq!(rig.line("lindex l 0").await, bulk(format!("element:{:0>20}", MANY - 1)));
    rig.assert_sound().await;
    let long = "x".repeat(LONG);
    assert_eq!(rig.run(&["rpush", "l", "short", &long]).await, length(2 * MANY + 2));
    assert_eq!(rig.run(&["lset", "l", "1", &long]).await, Reply::Ok);
    assert_eq!(error(&rig.run(&["lset", "l", "9999999", &long]).await), "ERR index out of range");
    assert_eq!(rig.run(&["linsert", "l", "before", "short", &long]).await, length(2 * MANY + 3));
    assert_eq!(rig.run(&["linsert", "l", "before", "none", &long]).await, Reply::Int(-1));
    assert_eq!(rig.line("llen l").await, length(2 * MANY + 3));
    assert_eq!(rig.line("lindex l -2").await, bulk("short"));
    for index in ["1", "-1", "-3"] {
        assert_eq!(rig.line(&format!("lindex l {index}")).await, bulk(&long));
    }
    rig.assert_sound().await;
    // An element in the middle, with those on its shorter side.
    assert_eq!(rig.line(&format!("lrem l 0 element:{:0>20}", MANY / 2)).await, Reply::Int(2));
    assert_eq!(rig.run(&["lrem", "l", "-2", &long]).await, Reply::Int(2));
    assert_eq!(rig.line("llen l").await, length(2 * MANY - 1));
    rig.assert_sound().await;
    // Into a list in its record.
    rig.line("rpush few a b").await;
    assert_eq!(rig.run(&["linsert", "few", "after", "a", &long]).await, Reply::Int(3));
    assert_eq!(rig.run(&["lpush", "few", &long]).await, Reply::Int(4));
    assert_eq!(rig.line("lindex few 1").await, bulk("a"));
    assert_eq!(rig.run(&["rpush", "fresh", &long]).await, Reply::Int(1));
    assert_eq!(rig.run(&["rpushx", "none", &long]).await, Reply::Int(0));
    rig.assert_sound().await;
}

/// A unit whose parts are prebuilt does not change what has nothing to change.
#[tokio::test]
async fn beside_what_is_prebuilt_nothing_else_changes() {
    let mut rig = Rig::new().await;
    rig.run_bytes(line("rpush big", elements(0..MANY))).await;
    rig.run_bytes(line("rpush l", elements(0..1000))).await;
    let unit = [
        "copy big other",
        "linsert l before none x",
        "lrem l 1 none",
        "lset l 5000 x",
        "linsert l after element:00000000000000000007 x",
    ];
    let replies = rig.together(&unit).await;
    let [copied, inserted, removed, set, last] = replies.try_into().unwrap();
    assert_eq!([copied, inserted, removed, last], [1, -1, 0, 1001].map(Reply::Int));
    assert_eq!(error(&set), "ERR index out of range");
    assert_eq!(rig.line("lindex l 8").await, bulk("x"));
    rig.assert_sound().await;
}

#[tokio::test]
async fn ltrim_drops_the_pieces_of_what_goes() {
    let mut rig = Rig::new().await;
    let long = |n: usize| n.to_string().repeat(40_000);
    for (key, numbers, left) in [
        ("few", "10 12", 3),
        ("many", "2 996", 995),
        ("all", "0 -1", 1000),
        ("none", "5 4", 0),
        ("last", "-1 -1", 1),
    ] {
        rig.run_bytes(line(&format!("rpush {key}"), elements(0..1000))).await;
        for n in [0, 1, 11, 12, 500, 998, 999] {
            rig.run(&["lset", key, &n.to_string(), &long(n)]).await;
        }
        assert_eq!(rig.line(&format!("ltrim {key} {numbers}")).await, Reply::Ok);
        assert_eq!(rig.line(&format!("llen {key}")).await, length(left));
        rig.assert_sound().await;
    }
    assert_eq!(rig.line("lindex few 1").await, bulk(long(11)));
    assert_eq!(rig.line("lindex few 2").await, bulk(long(12)));
    assert_eq!(rig.line("lindex many 498").await, bulk(long(500)));
    assert_eq!(rig.line("lindex last 0").await, bulk(long(999)));
}

#[tokio::test]
async fn sort_of_lists() {
    let mut rig = Rig::new().await;
    rig.line("rpush l d a c b").await;
    let bulks = |text: &str| Reply::Array(text.split_whitespace().map(bulk).collect());
    for (options, wanted) in [
        ("by nosort", "d a c b"),
        ("by nosort desc", "b c a d"),
        ("by nosort limit 1 2", "a c"),
        ("by nosort desc limit 1 2", "c a"),
        ("by nosort desc limit -3 1", "b"),
        ("by nosort limit 3 9", "b"),
        ("by nosort limit 9 9", ""),
        ("alpha limit 1 2", "b c"),
    ] {
        assert_eq!(rig.line(&format!("sort l {options}")).await, bulks(wanted), "{options}");
        let stored = rig.line(&format!("sort l {options} store d")).await;
        assert_eq!(stored, length(wanted.split_whitespace().count()), "{options}");
        assert_eq!(rig.line("lrange d 0 -1").await, bulks(wanted), "{options}");
    }
    // Strings that a reply would stream are stored, too.
    let long = |n: usize| n.to_string().repeat(300_000);
    for (n, key) in ["v_a", "v_b", "v_c", "v_d"].iter().enumerate() {
        rig.run(&["set", key, &long(n + 1)]).await;
    }
    assert_eq!(rig.line("sort l by nosort get v_* get # get none* store d").await, Reply::Int(12));
    for (index, wanted) in [(0, long(4)), (1, "d".into()), (2, String::new()), (3, long(1)), (9, long(2))] {
        assert_eq!(rig.line(&format!("lindex d {index}")).await, bulk(wanted), "{index}");
    }
    rig.assert_sound().await;
}
