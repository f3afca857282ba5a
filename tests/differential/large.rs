//! Sets of many chunks: 48 000 members, half of them far apart (22 bytes each, so that a chunk holds a few
//! hundred and a page of 256 KiB half of them), the others words and numbers close together. Every set
//! operation runs on these, inside MULTI too.

use crate::generate::{Argv, Kind, Step, Templates, sequence};
use crate::run::{Ports, Tally, run};
use crate::support::rng::Rng;
use crate::support::server::{redis, tern};
use crate::support::{env_number, say};

/// The keys of these sets.
pub const KEYS: &[&[u8]] = &[b"l1", b"l2", b"l3"];
/// The number of possible members.
pub const UNIVERSE: usize = 48_000;
/// Members per SADD while the sets are filled.
const FILL: usize = 6_000;
const STEPS: usize = 150;

/// Lines by weight. `$R` stands for hundreds or thousands of members.
const LINES: Templates = &[
    (10, "SADD $K $R"),
    (8, "SREM $K $R"),
    (8, "SADD $K $M+"),
    (8, "SREM $K $M+"),
    (6, "SISMEMBER $K $M"),
    (6, "SMISMEMBER $K $M+"),
    (2, "SMISMEMBER $K $R"),
    (8, "SCARD $K"),
    (3, "SMEMBERS $K"),
    (4, "SPOP $K"),
    (5, "SPOP $K $N"),
    (3, "SRANDMEMBER $K"),
    (5, "SRANDMEMBER $K $N"),
    (2, "SRANDMEMBER $K -500"),
    (6, "SMOVE $K $K $M"),
    (4, "SINTER $K $K"),
    (2, "SINTER $K $K $K"),
    (2, "SUNION $K $K"),
    (4, "SDIFF $K $K"),
    (6, "SINTERCARD 2 $K $K {LIMIT $N}"),
    (4, "SINTERSTORE $K $K $K"),
    (3, "SUNIONSTORE $K $K $K"),
    (3, "SDIFFSTORE $K $K $K"),
    (4, "SSCAN $K 0 COUNT 3000"),
    (2, "SSCAN $K 0 COUNT 500 MATCH *1*"),
    (3, "COPY $K $K {REPLACE}"),
    (2, "RENAME $K $K"),
    (1, "SORT $K ALPHA LIMIT 1000 20"),
    (1, "DEL $K"),
    (2, "EXPIREAT $K $S"),
    (14, "MULTI"),
    (14, "EXEC"),
    (4, "WATCH $K"),
];

/// A member by its number.
pub fn member(n: usize) -> Vec<u8> {
    match n % 4 {
        0 => format!("word {n}"),
        1 => n.to_string(),
        _ => ((n as i64 - 8_000) << 33).to_string(),
    }
    .into_bytes()
}

/// Consecutive members.
pub fn many(rng: &mut Rng) -> Argv {
    let count = [100, 700, 3000][rng.below(3)];
    let from = rng.below(UNIVERSE - count);
    (from..from + count).map(member).collect()
}

fn steps(rng: &mut Rng) -> Vec<Step> {
    let fill = KEYS.iter().enumerate().flat_map(|(n, key)| {
        let from = (n * FILL..UNIVERSE).step_by(FILL);
        from.map(|from| {
            [vec![b"SADD".to_vec(), key.to_vec()], (from..from + FILL).map(member).collect()].concat()
        })
    });
    let mut all: Vec<Step> = fill.map(|argv| Step { conn: 0, kind: Kind::Plain, argv }).collect();
    all.extend(sequence(rng, LINES, STEPS));
    all
}

#[test]
fn sets_of_many_chunks_match_redis() {
    let Some(redis) = redis("large sets differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").or(env_number("TERN_DIFF_SEED")).unwrap_or_else(Rng::any_seed);
    say(&format!("differential, sets of many chunks: TERN_SEED={seed}"));
    let mut tally = Tally::default();
    for protocol in [2, 3] {
        let ports = Ports { redis: redis.port, tern: tern.port, protocol };
        let steps = steps(&mut Rng::new(Rng::new(seed ^ u64::from(protocol)).next()));
        let mut counted = Tally::default();
        if let Err(mismatch) = run(ports, &steps, &mut counted) {
            panic!("TERN_SEED={seed}, RESP{protocol}\n{}", short(&mismatch.to_string()));
        }
        tally.add(&counted);
    }
    say(&format!(
        "differential, sets of many chunks: {} commands compared, {} of them chosen in MULTI",
        tally.lines, tally.late
    ));
}

fn short(text: &str) -> String {
    text.lines().map(|line| line.chars().take(2000).collect::<String>() + "\n").collect()
}
