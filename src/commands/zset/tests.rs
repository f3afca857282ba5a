//! The counts of sorted sets that a batch moves at its end.

use crate::env::Rng;
use crate::exec::Unit;
use crate::exec::fixtures::{World, unit};
use crate::server::reply::Reply;

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
