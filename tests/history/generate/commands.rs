//! The commands of each group's clients.

use super::{Group, ranked, streams};
use crate::support::rng::Rng;

/// Members that the chunked set's clients add: SMEMBERS streams longer replies.
const MEMBERS: usize = 250;
/// Members of a watched or moved set when it is filled: more than a record holds.
pub const WATCHED_MEMBERS: usize = 140;
/// Integers that the large sets' clients add.
const INTEGERS: usize = 3000;
/// Bytes of a new long string, more than two pieces.
const LONG: usize = 70_000;

/// Fills a set with interned members.
pub fn fill(key: &str, members: usize) -> String {
    (0..members).fold(format!("SADD {key}"), |line, n| line + &format!(" m{n}"))
}

/// The read of a client that watches, and the commands of its EXEC.
pub fn watched(rng: &mut Rng, group: Group, fresh: &str) -> (String, Vec<String>) {
    let [a, b, c] = [(); 3].map(|()| rng.below(2));
    let pick = rng.below(8);
    match group {
        Group::WatchedSets => {
            let change = match pick {
                0 => format!("DEL v{b}"),
                1..=4 => format!("SADD v{b} m{}", rng.below(MEMBERS)),
                _ => format!("SREM v{b} m{}", rng.below(MEMBERS)),
            };
            (format!("SCARD v{a}"), vec![change, format!("SCARD v{c}")])
        }
        Group::WatchedHashes => {
            let change = match pick {
                0 => format!("DEL u{b}"),
                1..=3 => format!("HSET u{b} f{} {fresh}", rng.below(3)),
                4 => format!("HINCRBY u{b} n{} {}", rng.below(2), rng.below(2)),
                5 => pad(&format!("u{b}")),
                _ => format!("HDEL u{b} f{} n{} pad", rng.below(3), rng.below(2)),
            };
            (format!("HLEN u{a}"), vec![change, format!("HGETALL u{c}")])
        }
        Group::WatchedLists => {
            let change = match pick {
                0 => format!("DEL t{b}"),
                1 => longer(&format!("t{b}")),
                2..=4 => format!("RPUSH t{b} {fresh}"),
                5 => format!("LMOVE t{b} t{} LEFT RIGHT", 1 - b),
                _ => format!("LPOP t{b}"),
            };
            (format!("LLEN t{a}"), vec![change, format!("LRANGE t{c} 0 -1")])
        }
        Group::WatchedRanked => {
            let reads = format!("ZRANGE j{c} 0 -1 WITHSCORES");
            (format!("ZCARD j{a}"), vec![ranked::watched(rng, b), reads])
        }
        Group::WatchedExpiring => (format!("GET y{a}"), vec![lapsing(rng, b, fresh), format!("EXISTS y{c}")]),
        _ => {
            let first = if pick < 4 { format!("SET w{a} {fresh}") } else { format!("DEL w{a}") };
            (format!("GET w{a}"), vec![first, format!("GET w{b}")])
        }
    }
}

/// One command of a group, in database `db`.
pub fn command(rng: &mut Rng, group: Group, db: u8, fresh: &str) -> String {
    let pick = rng.below(10);
    let (a, b) = (rng.below(2), rng.below(2));
    match group {
        Group::Registers => registers(pick, (a, b), fresh),
        Group::Counters => match pick {
            0..=6 => format!("INCRBY c{a} {}", 1 + b),
            _ => format!("GET c{a}"),
        },
        Group::Sets => match pick {
            0..=2 => format!("SADD s{a} x{} x{}", rng.below(5), rng.below(5)),
            3 => format!("SREM s{a} x{}", rng.below(5)),
            4 => format!("SPOP s{a}"),
            5 => format!("SMOVE s{a} s{} x{}", 1 - a, rng.below(5)),
            6 => "SINTERSTORE s2 s0 s1".into(),
            7 => format!("SMEMBERS s{}", rng.below(3)),
            8 => format!("SCARD s{a}"),
            _ => format!("SISMEMBER s{a} x{}", rng.below(5)),
        },
        Group::Chunked => {
            let member = |rng: &mut Rng| format!("m{}", rng.below(MEMBERS));
            match pick {
                0..=3 => format!("SADD l0 {} {} {}", member(rng), member(rng), member(rng)),
                4 if b == 0 => "SPOP l0".into(),
                4..=6 => format!("SREM l0 {} {} {}", member(rng), member(rng), member(rng)),
                7 => "SCARD l0".into(),
                8 if b == 0 => "SMEMBERS l0".into(),
                _ => format!("SISMEMBER l0 {}", member(rng)),
            }
        }
        Group::Watched => match pick {
            0..=2 => format!("GET w{a}"),
            3..=5 => format!("SET w{a} {fresh}"),
            _ => format!("DEL w{a}"),
        },
        Group::WatchedSets => match pick {
            0..=2 => format!("SADD v{a} m{}", rng.below(MEMBERS)),
            3..=5 => format!("SREM v{a} m{}", rng.below(MEMBERS)),
            6 if b == 0 => format!("DEL v{a}"),
            6 => fill(&format!("v{a}"), WATCHED_MEMBERS),
            7 => format!("SMEMBERS v{a}"),
            _ => format!("SISMEMBER v{a} m{}", rng.below(MEMBERS)),
        },
        Group::Hashes => fields(rng, pick, (a, b), fresh),
        Group::WatchedHashes => match pick {
            0..=2 => format!("HSET u{a} f{} {fresh}", rng.below(3)),
            3..=5 => format!("HDEL u{a} f{} n{} pad", rng.below(3), rng.below(2)),
            6 if b == 0 => format!("DEL u{a}"),
            6 => pad(&format!("u{a}")),
            7 => format!("HGETALL u{a}"),
            _ => format!("HINCRBY u{a} n{b} 1"),
        },
        Group::Lists => elements(rng, pick, (a, b), fresh),
        Group::WatchedLists => watched_elements(pick, (a, b), fresh),
        Group::Ranked => ranked::small(rng),
        Group::Counted => ranked::counted(rng),
        Group::WatchedRanked => ranked::watched(rng, a),
        Group::Streams => streams::command(rng, fresh),
        Group::Expiring => expiring(rng, pick, (a, b), fresh),
        Group::WatchedExpiring => lapsing(rng, a, fresh),
        Group::Databases => databases(rng, pick, (a, b), (db, fresh)),
        Group::Long => long(rng, pick, (a, b)),
        Group::Large => large(rng, pick, (a, b)),
        Group::Once => once(rng, pick, (a, b), fresh),
        Group::Waiting => waited_for(rng, pick, a, fresh),
    }
}

/// A command that waits for an element of the lists k0 and k1 or of the sorted set k2.
pub fn waiting(rng: &mut Rng) -> String {
    let a = rng.below(2);
    match rng.below(6) {
        0 | 1 => format!("BLPOP k{a} k{} 0", 1 - a),
        2 => format!("BRPOP k{a} 0"),
        3 => format!("BLMOVE k{a} k{} LEFT RIGHT 0", rng.below(2)),
        _ => "BZPOPMIN k2 0".into(),
    }
}

/// A command that adds elements to them, or that takes what others wait for.
fn waited_for(rng: &mut Rng, pick: usize, a: usize, fresh: &str) -> String {
    match pick {
        0..=3 => format!("RPUSH k{a} {fresh}"),
        4 => longer(&format!("k{a}")),
        5 | 6 => format!("ZADD k2 {a} k{:03}", rng.below(6)),
        7 => format!("LPOP k{a}"),
        8 => "DEL k2".into(),
        _ => format!("LRANGE k{a} 0 -1"),
    }
}

fn registers(pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    match pick {
        0..=3 => format!("GET r{a}"),
        4 | 5 => format!("SET r{a} {fresh}"),
        6 => format!("GETSET r{a} {fresh}"),
        7 => format!("RENAME r{a} r{}", 1 - a),
        8 => format!("MSET r0 {fresh} r1 {fresh}"),
        _ if b == 0 => format!("DEL r{a}"),
        _ => format!("SETNX r{a} {fresh}"),
    }
}

/// Makes a list too long for a record.
pub fn longer(key: &str) -> String {
    format!("RPUSH {key} {}", "p".repeat(4500))
}

/// Commands on the lists q0 and q1.
fn elements(rng: &mut Rng, pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    let (one, other) = if b == 0 { ("LEFT", "RIGHT") } else { ("RIGHT", "LEFT") };
    let side = &one[..1];
    match pick {
        0 | 1 => format!("{side}PUSH q{a} {fresh} x{}", rng.below(3)),
        2 => format!("{side}POP q{a}"),
        3 => format!("LMOVE q{a} q{} {one} {other}", rng.below(2)),
        4 if b == 0 => format!("LPOP q{a} 2"),
        4 => format!("LTRIM q{a} 1 -2"),
        5 if rng.below(3) == 0 => longer(&format!("q{a}")),
        5 => format!("LSET q{a} {} {fresh}", rng.below(4)),
        6 if b == 0 => format!("LINSERT q{a} BEFORE x{} {fresh}", rng.below(3)),
        6 => format!("LREM q{a} 0 x{}", rng.below(3)),
        7 => format!("LINDEX q{a} {}", rng.below(3)),
        8 if rng.below(4) == 0 => format!("DEL q{a}"),
        8 => format!("LLEN q{a}"),
        _ => format!("LRANGE q{a} 0 -1"),
    }
}

/// Commands on the lists t0 and t1.
fn watched_elements(pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    match pick {
        0..=2 => format!("RPUSH t{a} {fresh}"),
        3..=5 => format!("LPOP t{a}"),
        6 if b == 0 => format!("DEL t{a}"),
        6 => longer(&format!("t{a}")),
        7 => format!("LRANGE t{a} 0 -1"),
        _ => format!("LMOVE t{a} t{b} RIGHT LEFT"),
    }
}

/// Gives a hash a value that is too long for a record.
pub fn pad(key: &str) -> String {
    format!("HSET {key} pad {}", "p".repeat(80))
}

fn fields(rng: &mut Rng, pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    let key = format!("h{a}");
    let field = format!("f{}", rng.below(4));
    match pick {
        0 | 1 => format!("HSET {key} {field} {fresh} f{} {fresh}", rng.below(4)),
        2 | 3 => format!("HGET {key} {field}"),
        4 | 5 => format!("HINCRBY {key} n{b} {}", 1 + rng.below(3)),
        6 => format!("HDEL {key} {field} n{b}"),
        7 if b == 0 => format!("HDEL {key} f0 f1 f2 f3 n0 n1 pad"),
        7 => format!("HGETALL {key}"),
        8 if b == 0 => pad(&key),
        8 => format!("HLEN {key}"),
        _ if b == 0 => format!("HSETNX {key} {field} {fresh}"),
        _ => match rng.below(3) {
            0 => format!("DEL {key}"),
            1 => format!("RENAME {key} h{}", 1 - a),
            _ => format!("COPY {key} h{} REPLACE", 1 - a),
        },
    }
}

/// MOVE, SWAPDB and FLUSHDB beside the commands on strings, counters and sets, in database `db`.
fn databases(rng: &mut Rng, pick: usize, (a, b): (usize, usize), (db, fresh): (u8, &str)) -> String {
    match pick {
        0 | 1 => format!("GET d{a}"),
        2 | 3 => format!("SET d{a} {fresh}"),
        4 => "INCRBY dn 1".into(),
        5 if b == 0 => format!("MOVE d{a} {}", 3 - db),
        5 => format!("MOVE dn {}", 3 - db),
        6 => format!("SWAPDB {} {}", 1 + a, 2 - a),
        7 if b == 0 => "FLUSHDB".into(),
        7 => "SMEMBERS ds".into(),
        8 if b == 0 => format!("MOVE ds {}", 3 - db),
        8 => fill("ds", WATCHED_MEMBERS),
        _ => format!("SADD ds x{}", rng.below(8)),
    }
}

fn expiring(rng: &mut Rng, pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    match pick {
        0..=2 => format!("GET e{a}"),
        3..=5 => format!("SET e{a} {fresh} PX {}", 1 + rng.below(12)),
        6 => format!("SET e{a} {fresh}"),
        7 => match rng.below(3) {
            0 => format!("SETNX e{a} {fresh}"),
            1 => format!("GETEX e{a} PX {}", 1 + rng.below(20)),
            _ => format!("GETEX e{a} PERSIST"),
        },
        8 if b == 0 => format!("PEXPIRE e{a} {}", 1 + rng.below(20)),
        8 => format!("PERSIST e{a}"),
        _ => format!("EXISTS e{a}"),
    }
}

/// For strings whose clients watch them.
fn lapsing(rng: &mut Rng, a: usize, fresh: &str) -> String {
    match rng.below(12) {
        0..=3 => format!("SET y{a} {fresh} {}", lifetime(rng)),
        4 => format!("SET y{a} {fresh} KEEPTTL"),
        5 => format!("GETEX y{a} {}", lifetime(rng)),
        6 => format!("GETEX y{a} PERSIST"),
        7 | 8 => format!("PERSIST y{a}"),
        9 if rng.below(2) == 0 => format!("EXPIRE y{a} {}", 1 + rng.below(2)),
        9 => format!("PEXPIRE y{a} {}", 1 + rng.below(20)),
        10 if rng.below(3) == 0 => format!("DEL y{a}"),
        _ => format!("GET y{a}"),
    }
}

/// Some expire before their client's next step, others outlive the history.
fn lifetime(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 | 1 => format!("PX {}", 1 + rng.below(12)),
        2 => format!("PX {}", 20 + rng.below(400)),
        _ => format!("EX {}", 1 + rng.below(2)),
    }
}

fn long(rng: &mut Rng, pick: usize, (a, b): (usize, usize)) -> String {
    let letter = char::from(b'a' + rng.below(26) as u8);
    let at = rng.below(LONG);
    match pick {
        0 | 1 => format!("APPEND g{a} ~{letter}{}", 1 + rng.below(20_000)),
        2 | 3 => format!("SETRANGE g{a} {at} ~{letter}{}", 1 + rng.below(3000)),
        4 => format!("GETRANGE g{a} {at} {}", at + rng.below(40_000)),
        5 => format!("DIGEST g{}", rng.below(3)),
        6 if b == 0 => format!("SET g{a} ~{letter}{}", LONG / 2 + at),
        6 => format!("STRLEN g{a}"),
        7 => format!("COPY g{a} g{} REPLACE", 1 - a),
        8 if b == 0 => format!("BITOP NOT g2 g{a}"),
        8 => {
            let op = rng.pick(&["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"]);
            format!("BITOP {op} g2 g{a} g{} g{}", 1 - a, rng.below(3))
        }
        _ if b == 0 => format!("DEL g{a}"),
        _ => format!("DIGEST g{a}"),
    }
}

fn large(rng: &mut Rng, pick: usize, (a, b): (usize, usize)) -> String {
    let (key, any) = (format!("b{a}"), format!("b{}", rng.below(3)));
    // Many members are written into their chunk, few become deltas.
    let count = if b == 0 { 48 } else { 3 };
    let some = format!("i{}+{count}", rng.below(INTEGERS / 48) * 48);
    match pick {
        0..=2 => format!("SADD {key} {some}"),
        3 | 4 => format!("SREM {key} {some}"),
        5 => format!("SMISMEMBER {any} {some}"),
        6 => format!("SCARD {any}"),
        7 => format!("SUNIONSTORE b2 {key} b{}", 1 - a),
        8 if b == 0 => format!("SINTERSTORE b2 {key} b{}", 1 - a),
        8 => format!("SDIFFSTORE b2 {key} b{}", 1 - a),
        _ if b == 0 => "DEL b2".into(),
        _ => format!("SUNIONSTORE {key} b{} b2", 1 - a),
    }
}

/// Clients with similar progress use the same ids.
fn once(rng: &mut Rng, pick: usize, (a, b): (usize, usize), fresh: &str) -> String {
    let at: usize = fresh.rsplit('.').next().and_then(|at| at.parse().ok()).unwrap_or(0);
    let n = at.saturating_sub(rng.below(3));
    let id = format!("idempotent-{n:06}");
    match pick {
        0..=5 if n.is_multiple_of(2) => format!("ONCE {id} INCRBY o{} 1", n / 2 % 2),
        0..=5 => format!("ONCE {id} GET o{}", n / 2 % 2),
        6 | 7 => format!("INCRBY o{a} 1"),
        8 if b == 0 => format!("FORGET {id}"),
        _ => format!("RESULT {id}"),
    }
}
