//! Random operations over few keys. Groups have keys of their own, so that a history falls into parts.

use crate::support::rng::Rng;

/// What keys are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Strings that are set, read, renamed.
    Registers,
    /// Numbers that are added to, also two in one EXEC.
    Counters,
    /// Small sets with SPOP, SMOVE and SINTERSTORE.
    Sets,
    /// A set in chunks: its members come and go as deltas.
    Chunked,
    /// WATCH, GET, then an EXEC that builds on it.
    Watched,
    /// Strings with an expiry.
    Expiring,
}

/// All of them.
pub const EVERYTHING: &[Group] =
    &[Group::Registers, Group::Counters, Group::Sets, Group::Chunked, Group::Watched, Group::Expiring];

/// Members of the chunked set's beginning, and one past those that may be added: SMEMBERS streams longer replies.
const MEMBERS: usize = 160;
const LAST_MEMBER: usize = 250;

pub enum Step {
    Send(Vec<Vec<String>>),
    Exec(Vec<Vec<String>>),
    /// WATCH of the key, GET, then this EXEC.
    Watched(String, Vec<Vec<String>>),
}

fn words(line: String) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

impl Group {
    /// What its keys begin with.
    pub fn first(self) -> Option<Step> {
        let members = (0..MEMBERS).map(|n| format!("m{n}"));
        let call = || ["SADD".to_owned(), "l0".into()].into_iter().chain(members).collect();
        (self == Group::Chunked).then(|| Step::Send(vec![call()]))
    }
}

/// What a client does next. `fresh`: a value that nobody else writes.
pub fn step(rng: &mut Rng, groups: &[Group], pipeline: usize, fresh: &str) -> Step {
    let group = groups[rng.below(groups.len())];
    if group == Group::Watched && rng.below(3) > 0 {
        let (key, other) = (format!("w{}", rng.below(2)), format!("w{}", rng.below(2)));
        let first = if rng.below(2) == 0 { format!("SET {key} {fresh}") } else { format!("DEL {key}") };
        let calls = vec![words(first), words(format!("GET {other}"))];
        return Step::Watched(key, calls);
    }
    if rng.below(5) == 0 && group != Group::Chunked {
        return Step::Exec((0..2 + rng.below(2)).map(|_| command(rng, group, fresh)).collect());
    }
    let n = 1 + rng.below(pipeline);
    let any = |rng: &mut Rng| groups[rng.below(groups.len())];
    let one = |_| {
        let group = any(rng);
        command(rng, group, fresh)
    };
    Step::Send((0..n).map(one).collect())
}

fn command(rng: &mut Rng, group: Group, fresh: &str) -> Vec<String> {
    let pick = rng.below(10);
    let (a, b) = (rng.below(2), rng.below(2));
    words(match group {
        Group::Registers => match pick {
            0..=3 => format!("GET r{a}"),
            4 | 5 => format!("SET r{a} {fresh}"),
            6 => format!("GETSET r{a} {fresh}"),
            7 => format!("RENAME r{a} r{}", 1 - a),
            8 => format!("MSET r0 {fresh} r1 {fresh}"),
            _ => {
                if b == 0 {
                    format!("DEL r{a}")
                } else {
                    format!("SETNX r{a} {fresh}")
                }
            }
        },
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
            let member = |rng: &mut Rng| format!("m{}", rng.below(LAST_MEMBER));
            match pick {
                0..=3 => format!("SADD l0 {} {} {}", member(rng), member(rng), member(rng)),
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
        Group::Expiring => match pick {
            0..=2 => format!("GET e{a}"),
            3..=5 => format!("SET e{a} {fresh} PX {}", 1 + rng.below(12)),
            6 => format!("SET e{a} {fresh}"),
            7 => match rng.below(3) {
                0 => format!("SETNX e{a} {fresh}"),
                1 => format!("GETEX e{a} PX {}", 1 + rng.below(20)),
                _ => format!("GETEX e{a} PERSIST"),
            },
            8 => match b {
                0 => format!("PEXPIRE e{a} {}", 1 + rng.below(20)),
                _ => format!("PERSIST e{a}"),
            },
            _ => format!("EXISTS e{a}"),
        },
    })
}
