//! The commands of clients of sorted sets.
//!
//! Their scores are few, so that the order of names decides, too.

use crate::model::ranked::{long, name};
use crate::support::rng::Rng;

/// Members and scores of small sorted sets.
const FEW: usize = 6;
const SCORES: usize = 5;
/// Members that clients of the counted sorted set add, and their scores.
const MEMBERS: usize = 320;
const BANDS: usize = 8;
/// Members of the counted sorted set at first: a few more, and its one range is divided.
const FIRST: usize = 124;
/// Members that one command adds beside each other, or removes: two or three commands divide a range, or fill one
/// that joined. With 12, one history in fourteen showed a count that was added where a range was divided meanwhile;
/// now one in four.
const SOME: usize = 48;

/// Puts a sorted set into rows.
pub fn longer(key: &str) -> String {
    format!("ZADD {key} 0 {}", long())
}

/// Makes the only range of a sorted set in rows so large that it is divided soon.
pub fn fill(key: &str) -> String {
    let places = (0..FIRST).map(|n| format!(" {} {}", n % BANDS, name((n * 2) as u32)));
    format!("ZADD {key}") + &places.collect::<String>()
}

fn any(rng: &mut Rng, members: usize) -> String {
    name(rng.below(members) as u32)
}

/// Scores and members as ZADD takes them.
fn places(rng: &mut Rng, n: usize, (scores, members): (usize, usize)) -> String {
    let places: Vec<String> =
        (0..n).map(|_| format!("{} {}", rng.below(scores), any(rng, members))).collect();
    places.join(" ")
}

/// Commands on the sorted sets z0, z1, and z2, which is made of them.
pub fn small(rng: &mut Rng) -> String {
    let (key, other) = if rng.below(2) == 0 { ("z0", "z1") } else { ("z1", "z0") };
    let some = |rng: &mut Rng, n| places(rng, n, (SCORES, FEW));
    let member = |rng: &mut Rng| any(rng, FEW);
    match rng.below(30) {
        0..=2 => format!("ZADD {key} {}", some(rng, 2)),
        3 => format!("ZADD {key} NX {}", some(rng, 2)),
        4 => format!("ZADD {key} XX CH {}", some(rng, 2)),
        5 => format!("ZADD {key} {} CH {}", rng.pick(&["GT", "LT"]), some(rng, 2)),
        6 => format!("ZADD {key} {} INCR {}", rng.pick(&["NX", "XX", "GT", "LT"]), some(rng, 1)),
        7..=9 => format!("ZINCRBY {key} {} {}", rng.below(4) as i64 - 1, member(rng)),
        10 | 11 => format!("ZREM {key} {} {}", member(rng), member(rng)),
        12 => format!("ZPOPMIN {key}"),
        13 => format!("ZPOPMAX {key} 2"),
        14 => format!("ZREMRANGEBYRANK {key} 1 {}", rng.below(3)),
        15 => format!("ZREMRANGEBYSCORE {key} (0 {}", rng.below(SCORES)),
        16 => format!("ZUNIONSTORE z2 2 {key} {other} AGGREGATE {}", rng.pick(&["MIN", "MAX"])),
        17 => match rng.below(6) {
            0 => format!("DEL {key}"),
            1 => format!("RENAME {key} {other}"),
            2 => format!("COPY {key} {other} REPLACE"),
            3 => format!("ZUNIONSTORE z2 2 {key} {other}"),
            _ => longer(key),
        },
        18 | 19 => format!("ZCARD {key}"),
        20 => format!("ZSCORE {key} {}", member(rng)),
        21 => format!("ZMSCORE {key} {} {}", member(rng), member(rng)),
        22 | 23 => format!("ZRANK {key} {}", member(rng)),
        24 => format!("ZREVRANK {key} {} WITHSCORE", member(rng)),
        25 => format!("ZCOUNT {key} 1 {}", rng.below(SCORES)),
        26 => format!("ZRANGE {key} (0 3 BYSCORE LIMIT {} 2", rng.below(2)),
        27 => format!("ZRANGE {key} 3 1 BYSCORE REV WITHSCORES"),
        28 => format!("ZRANGE {key} 1 -2 REV"),
        _ => format!("ZRANGE z{} 0 -1 WITHSCORES", rng.below(3)),
    }
}

/// Commands on the sorted set n0. One half reads.
pub fn counted(rng: &mut Rng) -> String {
    let (score, at) = (rng.below(BANDS), rng.below(MEMBERS / 2));
    let member = |rng: &mut Rng| any(rng, MEMBERS);
    match rng.below(20) {
        0..=2 => format!("ZADD n0 {}", places(rng, 6, (BANDS, MEMBERS))),
        3..=5 => {
            let from = rng.below(MEMBERS - SOME);
            let beside = (from..from + SOME).map(|n| format!(" {score} {}", name(n as u32)));
            "ZADD n0".to_owned() + &beside.collect::<String>()
        }
        6 => format!("ZINCRBY n0 {} {}", rng.below(3) as i64 - 1, member(rng)),
        7 => format!("ZREM n0 {} {} {}", member(rng), member(rng), member(rng)),
        8 => match rng.below(4) {
            0 => format!("ZREMRANGEBYSCORE n0 {score} {score}"),
            1 => format!("ZREMRANGEBYRANK n0 {at} {}", at + SOME),
            2 => format!("ZPOPMIN n0 {SOME}"),
            _ => format!("ZPOPMAX n0 {SOME}"),
        },
        9..=11 => format!("ZRANK n0 {}", member(rng)),
        12 => format!("ZREVRANK n0 {} WITHSCORE", member(rng)),
        13 | 14 => "ZCARD n0".into(),
        15 | 16 => format!("ZCOUNT n0 {score} {}", score + rng.below(BANDS)),
        17 => format!("ZRANGE n0 {at} {}", at + 1),
        18 => format!("ZRANGE n0 {at} {} REV WITHSCORES", at + 1),
        _ => format!("ZRANGE n0 1 {BANDS} BYSCORE LIMIT {at} 2"),
    }
}

/// Commands on the sorted sets j0 and j1.
pub fn watched(rng: &mut Rng, n: usize) -> String {
    let key = format!("j{n}");
    match rng.below(10) {
        0 => format!("DEL {key}"),
        1 => longer(&key),
        2..=4 => format!("ZADD {key} {}", places(rng, 1, (SCORES, FEW))),
        5 => format!("ZINCRBY {key} {} {}", rng.below(2), any(rng, FEW)),
        6 => format!("ZPOPMIN {key}"),
        7 => format!("ZREM {key} {} {}", any(rng, FEW), long()),
        8 => format!("ZUNIONSTORE {key} 2 j0 j1 AGGREGATE MAX"),
        _ => format!("ZREMRANGEBYSCORE {key} 0 {}", rng.below(SCORES)),
    }
}
