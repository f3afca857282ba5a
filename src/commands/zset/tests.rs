//! The counts of sorted sets that a batch moves at its end.

use crate::env::Rng;
use crate::exec::Unit;
use crate::exec::fixtures::{World, unit};
use crate::server::reply::Reply;
use crate::store::{Read, prefix_end};
use crate::types::object;
use crate::types::zset::ZsetRep;

async fn run(world: &World, lines: &[String], exec: bool) -> Vec<Reply> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut next = Unit { exec, ..unit(&lines) };
    let mut replies = Vec::new();
    loop {
        let done = world.exec.run(next).await;
        replies.extend(done.replies.unwrap());
        if done.rest.is_empty() {
            return replies;
        }
        next = Unit { calls: done.rest, ..unit(&[]) };
    }
}

/// Two sorted sets that are too large for their records.
fn filled() -> Vec<String> {
    (0..300).map(|n| format!("ZADD {} {n} m{n}", ["y", "z"][n % 2])).collect()
}

fn some_line(rng: &mut Rng) -> String {
    let (key, other) = if rng.below(4) == 0 { ("z", "y") } else { ("y", "z") };
    let (member, score) = (rng.below(300), rng.below(500));
    match rng.below(20) {
        0..11 => format!("ZADD {key} {score} m{member}"),
        11..14 => format!("ZREM {key} m{member} m{score}"),
        14 => format!("ZPOPMIN {key} 2"),
        15 => format!("ZRANK {key} m{member}"),
        16 => format!("ZCOUNT {key} {} {score}", rng.below(500)),
        17 => format!("ZRANGE {key} {member} {}", member + 3),
        18 => format!("COPY {key} {other} REPLACE"),
        19 if rng.below(3) == 0 => format!("ZREMRANGEBYRANK {key} {member} {}", member + 1),
        _ if rng.below(3) == 0 => format!("RENAME {key} {other}"),
        _ => format!("ZREVRANGE {key} {score} {}", score + 2),
    }
}

/// Hazard: something reads counts that wait, or copies them.
#[tokio::test]
async fn a_batch_answers_as_its_calls_do_one_by_one() {
    let seed = Rng::from_entropy().u64();
    println!("TERN_SEED={seed}");
    let mut rng = Rng::seeded(seed);
    let (together, alone) = (World::new().await, World::new().await);
    for world in [&together, &alone] {
        run(world, &filled(), true).await;
    }
    for step in 0..120 {
        let most = if rng.below(2) == 0 { 8 } else { 80 };
        let lines: Vec<String> = (0..=rng.below(most)).map(|_| some_line(&mut rng)).collect();
        let found = run(&together, &lines, rng.below(2) == 0).await;
        let mut wanted = Vec::new();
        for line in &lines {
            wanted.extend(run(&alone, std::slice::from_ref(line), false).await);
        }
        for ((line, found), wanted) in lines.iter().zip(&found).zip(&wanted) {
            assert_eq!(found, wanted, "step {step}: {line} in {lines:#?}");
        }
        assert_eq!(found.len(), lines.len());
        if step % 10 == 9 {
            assert_eq!(together.problems().await, [""; 0], "step {step}");
        }
    }
}

/// Hazard: calls of other clients get the error of the one whose counts cannot move.
#[tokio::test]
async fn counts_that_do_not_move_fail_their_own_call() {
    let w = World::new().await;
    run(&w, &filled(), true).await;
    let tx = w.server.store.begin();
    let s = w.server.space.scope(&tx, w.db);
    let slot = object::open(&s, &"z".into(), Read::Snapshot).await.unwrap();
    let Some(ZsetRep::Rows { oid, .. }) = slot.zset().unwrap() else { panic!("{slot:?}") };
    let counts = w.db.ranked_boundary(*oid, 0, &[]);
    tx.clear_range(&counts, &prefix_end(&counts)).unwrap();
    tx.commit().await.unwrap();
    let lines =
        ["ZADD y 1 new", "ZADD z 1 new", "SET k v", "ZADD y 2 newer", "COPY z copy"].map(String::from);
    let replies = run(&w, &lines, false).await;
    assert!(matches!(&replies[1], Reply::Error(e) if e.0.contains("counts of a sorted set")), "{replies:?}");
    assert_eq!(replies[2..], [Reply::Ok, Reply::Int(1), Reply::Int(1)]);
    assert_eq!(replies[0], Reply::Int(1));
    let asked = ["ZRANK y newer", "ZSCORE z new", "GET k"].map(String::from);
    assert_eq!(run(&w, &asked, false).await, [Reply::Int(3), Reply::Nil, Reply::Bulk("v".into())]);
}

/// Hazard: counts between long names make a batch too large whose calls fit.
#[tokio::test]
async fn counts_that_do_not_fit_move_one_by_one() {
    let w = World::new().await;
    let name = "n".repeat(8000);
    let long: Vec<String> = (0..3200).map(|n| format!("ZADD z {n} {n}{name}")).collect();
    for some in long.chunks(50) {
        run(&w, some, false).await;
    }
    let short: Vec<String> = (0..1400).map(|n| format!("ZADD z {}.5 m{n}", n * 16 / 7)).collect();
    assert_eq!(run(&w, &short, false).await, vec![Reply::Int(1); short.len()]);
    assert_eq!(w.problems().await, [""; 0]);
}
