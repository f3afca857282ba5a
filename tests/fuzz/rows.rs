//! Stored rows that are not what they should be, of every kind at once: whatever stands in a store, `tern check` reads it to the end
//! and commands are answered, with a value or an error.
//!
//! A store with every kind of row is damaged in a few places: values are changed, rows removed, others' values put into them, keys
//! changed. Then it is checked, a few commands look at it, and it is mended.

use super::mutate::Mutator;
use super::rig::Rig;
use super::support;
use super::{seed, time};
use bytes::Bytes;
use std::time::{Duration, Instant};
use support::rng::Rng;
use tern::store::{RangeOptions, Read, Store};
use tern::types::check::check;

type Rows = Vec<(Bytes, Bytes)>;

/// What looks at each kind of row.
const LINES: &[&str] = &[
    "GET plain",
    "GET long",
    "STRLEN long",
    "SETRANGE long 70000 abc",
    "INCR n",
    "APPEND plain x",
    "TTL dying",
    "KEYS *",
    "SCAN 0",
    "DBSIZE",
    "RANDOMKEY",
    "SMEMBERS raw",
    "SMEMBERS words",
    "SADD words a b member:7",
    "SREM words member:8 member:9 nobody",
    "SISMEMBER words member:10",
    "SPOP words 3",
    "SRANDMEMBER numbers -3",
    "SINTER words raw",
    "SINTERCARD 2 numbers ints",
    "SUNIONSTORE made words numbers",
    "SDIFFSTORE made numbers ints",
    "SADD ints 4 five",
    "SCARD words",
    "RENAME words renamed",
    "RENAME renamed words",
    "COPY numbers copied REPLACE",
    "DUMP ints",
    "PFCOUNT hll",
    "DEL made copied",
    "INFO everything",
    "FLUSHDB",
];

async fn populated() -> Rig {
    let mut rig = Rig::new().await;
    rig.space().beat().await.unwrap();
    for line in ["SET plain v", "SET n 5", "SET dying v PX 100000", "SADD raw a b c", "SADD ints 1 2 3"] {
        rig.line(line).await;
    }
    for line in ["PFADD hll a b c", "SADD gone 1 x", "DEL gone", "SELECT 3", "SET k v", "FLUSHDB", "SELECT 0"]
    {
        rig.line(line).await;
    }
    rig.run(&[&b"SET"[..], b"long", &[b'x'; 100_000]]).await;
    let words: Vec<String> = (0..400).map(|n| format!("member:{n}")).collect();
    let numbers: Vec<String> = (0..4000).map(|n| (n * 777).to_string()).collect();
    for (key, members) in [("words", &words), ("numbers", &numbers)] {
        let argv = ["SADD".to_owned(), key.into()].into_iter().chain(members.iter().cloned());
        rig.run(&argv.collect::<Vec<_>>()).await;
    }
    rig.line("SADD words one two three").await;
    rig.line("SREM words member:5").await;
    rig
}

async fn rows(store: &Store) -> Rows {
    let page = store.begin().get_range(&[], &[0xff], RangeOptions::default(), Read::Snapshot).await.unwrap();
    assert!(!page.more);
    page.pairs
}

/// Puts `rows` in the place of all that is there.
async fn replace(store: &Store, rows: &Rows) {
    loop {
        let tx = store.begin();
        tx.clear_range(&[], &[0xff]).unwrap();
        rows.iter().for_each(|(key, value)| tx.set(key, value).unwrap());
        tx.bump_metadata_version().unwrap();
        if tx.commit().await.is_ok() {
            return;
        }
    }
}

/// One to three rows are damaged.
fn damaged(sound: &Rows, rng: &mut Rng) -> Rows {
    let mut rows = sound.clone();
    for _ in 0..=rng.below(3) {
        let (at, other) = (rng.below(rows.len()), rng.below(rows.len()));
        match rng.below(6) {
            0 => drop(rows.remove(at)),
            1 => rows[at].1 = rows[other].1.clone(),
            2 => {
                let key = Mutator::new(rng.next(), vec![rows[at].0.to_vec()]).next();
                // A key that no engine takes is of no interest, nor is one behind all rows.
                if (1..1000).contains(&key.len()) && key[0] < 0xff {
                    let value = rows[at].1.clone();
                    rows.push((key.into(), value));
                }
            }
            _ => {
                let value = Mutator::new(rng.next(), vec![rows[at].1.to_vec()]).next();
                rows[at].1 = value.into();
            }
        }
    }
    rows
}

#[tokio::test]
async fn any_rows_get_a_verdict_and_an_answer() {
    let (seed, until) = (seed(), Instant::now() + time() * 3);
    let mut rng = Rng::new(seed);
    let mut rig = populated().await;
    let sound = rows(&rig.server.store).await;
    let (mut tried, mut reported) = (0u64, 0u64);
    while Instant::now() < until {
        replace(&rig.server.store, &damaged(&sound, &mut rng)).await;
        let read = async { check(&rig.server.store, &mut |_, _| {}).await };
        let report = tokio::time::timeout(Duration::from_secs(60), read).await;
        let report = report.unwrap_or_else(|_| panic!("TERN_FUZZ_SEED={seed}, round {tried}: no verdict"));
        reported += u64::from(!report.is_ok_and(|report| report.is_sound()));
        for _ in 0..4 {
            let line = LINES[rng.below(LINES.len())];
            let answer = tokio::time::timeout(Duration::from_secs(60), rig.line(line)).await;
            assert!(answer.is_ok(), "TERN_FUZZ_SEED={seed}, round {tried}: no answer to {line}");
            let panics = rig.server.telemetry.panics.get();
            assert_eq!(panics, 0, "TERN_FUZZ_SEED={seed}, round {tried}: {line}");
        }
        tried += 1;
    }
    replace(&rig.server.store, &sound).await;
    rig.assert_sound().await;
    support::say(&format!("fuzz rows: {tried} damaged stores, {reported} reported, seed {seed}"));
    assert!(reported * 2 > tried, "most damage is seen");
}
