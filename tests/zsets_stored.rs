//! Sorted sets larger than a transaction that ZUNIONSTORE, GEOSEARCHSTORE and their relatives leave: built under a lease and swapped in.
//! A result is of the version of its sources at which it appears.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;
#[path = "support/mod.rs"]
mod support;

use bytes::Bytes;
use rig::{Rig, units};
use std::collections::BTreeMap;
use std::time::Duration;
use support::rng::Rng;
use tern::exec::Unit;
use tern::server::reply::Reply;

/// Members of each source. Twice as many exceed a transaction.
const HALF: usize = 60_000;

async fn int(rig: &mut Rig, line: &str) -> i64 {
    match rig.line(line).await {
        Reply::Int(n) => n,
        other => panic!("{line}: {other:?}"),
    }
}

/// `a` and `b`, without a member in common: the n-th of both together has the score n.
async fn halves() -> Rig {
    let mut rig = Rig::new().await;
    for (key, from) in [("a", 0), ("b", HALF)] {
        for part in (from..from + HALF).collect::<Vec<_>>().chunks(10_000) {
            let entries = part.iter().flat_map(|n| [n.to_string(), format!("member:{n:09}")]);
            let argv: Vec<Bytes> =
                ["ZADD".to_owned(), key.to_owned()].into_iter().chain(entries).map(Bytes::from).collect();
            assert_eq!(rig.run_bytes(argv).await, Reply::Int(10_000));
        }
    }
    rig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_larger_than_a_transaction() {
    let (mut rig, both) = (halves().await, 2 * HALF as i64);
    rig.line("SET d text").await;
    rig.line("EXPIRE d 100").await;
    assert_eq!(int(&mut rig, "ZUNIONSTORE d 2 a b WEIGHTS 2 1").await, both);
    assert_eq!(int(&mut rig, "TTL d").await, -1);
    // Weighed, every second member of `a` has the score of one of `b`.
    assert_eq!(rig.line("ZSCORE d member:000000700").await, Reply::Double(1400.0));
    assert_eq!(int(&mut rig, "ZRANK d member:000000700").await, 700);
    assert_eq!(int(&mut rig, "ZCOUNT d 0 (60000").await, HALF as i64 / 2);
    assert_eq!(int(&mut rig, "ZINTERCARD 2 d a").await, HALF as i64);
    assert_eq!(int(&mut rig, "ZDIFFSTORE e 2 d missing").await, both);
    assert_eq!(int(&mut rig, "ZINTERSTORE e 2 e d").await, both);
    assert_eq!(rig.line("ZSCORE e member:000000700").await, Reply::Double(2800.0));
    assert_eq!(int(&mut rig, "ZRANGESTORE f e 1 -2").await, both - 2);
    assert_eq!(int(&mut rig, "ZRANGESTORE f f 100 -1").await, both - 102);
    // Scores so low are geohashes of places in the south-west.
    assert_eq!(int(&mut rig, "GEOSEARCHSTORE g d FROMLONLAT 0 0 BYRADIUS 40000 km STOREDIST").await, both);
    assert_eq!(int(&mut rig, "GEORADIUS d 0 0 40000 km STORE g").await, both);
    assert_eq!(rig.line("ZSCORE g member:000000700").await, Reply::Double(1400.0));
    assert_eq!(int(&mut rig, "ZINTERSTORE d 2 a b").await, 0);
    assert_eq!(int(&mut rig, "EXISTS d").await, 0);
    rig.assert_sound().await;
}

/// Hazard: a result is swapped in although a source has changed since it was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_of_the_version_at_which_it_appears() {
    let mut rig = halves().await;
    let exec = &rig.exec;
    let (mut before, mut changes) = (0.0, 0u32);
    let storing = units::replies(exec, units::pipeline(&["ZUNIONSTORE d 2 a b"]));
    let changing = async {
        loop {
            let lines = ["ZINCRBY a 1 member:000000000", "EXISTS d"];
            let replies = units::replies(exec, Unit { exec: true, ..units::pipeline(&lines) }).await;
            let [Reply::Double(score), Reply::Int(is_there)] = replies[..] else { panic!("{replies:?}") };
            if is_there == 1 {
                return;
            }
            (before, changes) = (score, changes + 1);
            // Pauses that double: at some point one is as long as building the result takes.
            tokio::time::sleep(Duration::from_millis(50 << changes.min(10))).await;
        }
    };
    let (stored, ()) = tokio::join!(storing, changing);
    assert_eq!(stored, [Reply::Int(2 * HALF as i64)], "after {changes} changes");
    assert!(changes > 1, "{changes} changes");
    assert_eq!(rig.line("ZSCORE d member:000000000").await, Reply::Double(before));
    rig.assert_sound().await;
}

/// Sources by their number of members: small and large ones are combined in different ways.
const SIZES: [usize; 6] = [20, 90, 400, 3_000, 11_000, 14_000];
/// Names of members. Every source has some of them.
const NAMES: usize = 16_000;

/// The sorted sets z0, z1, ... and, of the same sizes, the sets s0, s1, ..., and what they hold.
async fn of_all_sizes(rig: &mut Rig, rng: &mut Rng) -> Vec<(String, BTreeMap<usize, f64>)> {
    let mut all = Vec::new();
    for (n, size) in SIZES.into_iter().enumerate() {
        let mut drawn = || rng.below(NAMES);
        let members: BTreeMap<usize, f64> = (0..size).map(|at| (drawn(), (at % 7) as f64)).collect();
        for (key, is_scored) in [(format!("z{n}"), true), (format!("s{n}"), false)] {
            for part in members.iter().collect::<Vec<_>>().chunks(5_000) {
                let mut line = format!("{} {key}", if is_scored { "ZADD" } else { "SADD" });
                for (name, score) in part {
                    line += &if is_scored { format!(" {score} m{name}") } else { format!(" m{name}") };
                }
                assert_eq!(rig.line(&line).await, Reply::Int(part.len() as i64));
            }
            let counted = members.iter().map(|(name, score)| (*name, if is_scored { *score } else { 1.0 }));
            all.push((key, counted.collect()));
        }
    }
    all
}

/// What Redis makes of the sources.
fn combined(op: &str, sources: &[&BTreeMap<usize, f64>], weights: &[f64]) -> BTreeMap<usize, f64> {
    let mut made: BTreeMap<usize, f64> = BTreeMap::new();
    for name in 0..NAMES {
        let found: Vec<Option<f64>> =
            sources.iter().zip(weights).map(|(source, weight)| Some(source.get(&name)? * weight)).collect();
        let score: f64 = found.iter().flatten().sum();
        let stays = match op {
            "UNION" => found.iter().any(Option::is_some),
            "INTER" => found.iter().all(Option::is_some),
            _ => found[0].is_some() && found[1..].iter().all(Option::is_none),
        };
        if stays {
            made.insert(name, score);
        }
    }
    made
}

/// Hazard: sources that are read as a whole and those whose members are looked up give different answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_of_all_sizes_are_combined_as_a_model_says() {
    let (mut rig, mut rng) = (Rig::new().await, Rng::new(Rng::any_seed()));
    let all = of_all_sizes(&mut rig, &mut rng).await;
    for _ in 0..60 {
        let chosen: Vec<_> = (0..2 + rng.below(2)).map(|_| rng.below(all.len())).collect();
        let op = rng.pick(&["UNION", "INTER", "DIFF"]);
        let weights: Vec<f64> =
            chosen.iter().map(|_| if op == "DIFF" { 1.0 } else { 1.0 + rng.below(3) as f64 }).collect();
        let (keys, sources): (Vec<_>, Vec<_>) =
            chosen.iter().map(|n| (all[*n].0.as_str(), &all[*n].1)).unzip();
        let made = combined(op, &sources, &weights);
        let named = format!("{} {}", keys.len(), keys.join(" "));
        let weighed = weights.iter().fold(" WEIGHTS".to_owned(), |line, weight| format!("{line} {weight}"));
        let line = format!("Z{op}STORE made {named}{}", if op == "DIFF" { "" } else { &weighed });
        assert_eq!(int(&mut rig, &line).await, made.len() as i64, "{line}");
        if op == "INTER" {
            let limit = 1 + rng.below(2 * made.len() + 1);
            assert_eq!(int(&mut rig, &format!("ZINTERCARD {named}")).await, made.len() as i64, "{line}");
            let limited = int(&mut rig, &format!("ZINTERCARD {named} LIMIT {limit}")).await;
            assert_eq!(limited, made.len().min(limit) as i64, "{line}, limit {limit}");
        }
        let some: Vec<usize> = (0..500).map(|_| rng.below(NAMES)).collect();
        let asked = some.iter().fold("ZMSCORE made".to_owned(), |line, name| format!("{line} m{name}"));
        let scores = some.iter().map(|name| made.get(name).map_or(Reply::Nil, |score| Reply::Double(*score)));
        assert_eq!(rig.line(&asked).await, Reply::Array(scores.collect()), "{line}");
    }
    rig.assert_sound().await;
}
