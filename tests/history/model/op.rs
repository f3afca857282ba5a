//! A client's operation, and the keys that it touches.
//!
//! A key of database 0 is its name; one of database 2 is `2/name` here, and `2/` stands for all of them: an
//! operation on one of them shares that key with those that swap or flush the database.

use super::{Answer, claims};

/// One operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    One(Vec<String>),
    Watch(String),
    /// MULTI, the commands, EXEC.
    Exec(Vec<Vec<String>>),
}

/// Commands that never change anything.
const READS: [&str; 28] = [
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "ZCARD",
    "ZCOUNT",
    "ZMSCORE",
    "ZRANGE",
    "ZRANK",
    "ZREVRANK",
    "ZSCORE",
    "LINDEX",
    "LLEN",
    "LRANGE",
    "HGET",
    "HGETALL",
    "HLEN",
    "GET",
    "EXISTS",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "STRLEN",
    "GETRANGE",
    "DIGEST",
    "SELECT",
    "RESULT",
];

/// Commands that change nothing if they answer 0, nil or an empty array.
const VAIN: [&str; 27] = [
    "XACK",
    "XDEL",
    "XTRIM",
    "LPOP",
    "RPOP",
    "LMOVE",
    "LREM",
    "DEL",
    "HDEL",
    "HSETNX",
    "SADD",
    "SREM",
    "SMOVE",
    "SPOP",
    "SETNX",
    "PERSIST",
    "PEXPIRE",
    "EXPIRE",
    "GETEX",
    "MOVE",
    "COPY",
    "FORGET",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZREM",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
];

/// Options with which ZADD, too, changes nothing if it answers so.
const TELLING: [&str; 3] = ["CH", "INCR", "NX"];

/// Words that set an expiry.
const EXPIRE: [&str; 4] = ["PX", "EX", "PEXPIRE", "EXPIRE"];

impl Op {
    /// Whether this answer shows that it changed nothing, apart from the keys its client watches. None: the
    /// answer is not known.
    pub fn changed_nothing(&self, answer: Option<&Answer>) -> bool {
        let one = |(argv, answer): (&Vec<String>, Option<&Answer>)| {
            let is_vain = match answer {
                Some(Answer::Int(0) | Answer::Nil) => true,
                Some(Answer::All(items)) => items.is_empty(),
                Some(_) | None => false,
            };
            let tells = argv[0] == "ZADD" && argv.iter().any(|word| TELLING.contains(&word.as_str()));
            READS.contains(&argv[0].as_str())
                || (tells || VAIN.contains(&argv[0].as_str())) && is_vain
                || answer.is_some_and(Answer::is_refusal)
        };
        match (self, answer) {
            (Op::One(argv), answer) => one((argv, answer)),
            (Op::Exec(calls), Some(Answer::All(answers))) => {
                calls.iter().zip(answers.iter().map(Some)).all(one)
            }
            (Op::Exec(_) | Op::Watch(_), _) => false,
        }
    }

    /// Whether it may give a key an expiry.
    pub fn expires(&self) -> bool {
        let one = |argv: &Vec<String>| argv.iter().any(|word| EXPIRE.contains(&word.as_str()));
        match self {
            Op::One(argv) => one(argv),
            Op::Exec(calls) => calls.iter().any(one),
            Op::Watch(_) => false,
        }
    }

    /// Whether what it does depends on the time.
    pub fn tells_time(&self) -> bool {
        self.expires()
            || match self {
                Op::One(argv) => claims::tells_time(argv),
                Op::Exec(calls) => calls.iter().any(|argv| claims::tells_time(argv)),
                Op::Watch(_) => false,
            }
    }

    /// Whether it waits for an element.
    pub fn waits(&self) -> bool {
        matches!(self, Op::One(argv) if ["BLPOP", "BRPOP", "BLMOVE", "BZPOPMIN"].contains(&argv[0].as_str()))
    }

    /// The keys that it touches. None: it concerns only its connection.
    pub fn keys(&self) -> Vec<&str> {
        let words: Vec<&str> = match self {
            Op::One(argv) => key_words(argv),
            Op::Watch(key) => vec![key],
            Op::Exec(calls) => calls.iter().flat_map(|argv| key_words(argv)).collect(),
        };
        let whole = |word: &&'_ str| Some(word.find('/')? + 1);
        let databases: Vec<&str> = words.iter().filter_map(|word| Some(&word[..whole(word)?])).collect();
        words.into_iter().chain(databases).collect()
    }
}

fn key_words(argv: &[String]) -> Vec<&str> {
    key_places(argv).into_iter().map(|n| argv[n].as_str()).collect()
}

/// The positions of keys among the words.
fn key_places(argv: &[String]) -> Vec<usize> {
    match argv[0].as_str() {
        "SELECT" => vec![],
        "XGROUP" => vec![2],
        "XREAD" | "XREADGROUP" => vec![argv.len() - 2],
        "BLPOP" | "BRPOP" | "BZPOPMIN" => (1..argv.len() - 1).collect(),
        "RENAME" | "SMOVE" | "LMOVE" | "BLMOVE" | "COPY" | "MOVE" | "SWAPDB" => vec![1, 2],
        "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => (1..argv.len()).collect(),
        "BITOP" => (2..argv.len()).collect(),
        "ZUNIONSTORE" => vec![1, 3, 4],
        "MSET" => (1..argv.len()).step_by(2).collect(),
        // The id is a key too: its value is visible to others.
        "ONCE" => key_places(&argv[2..]).into_iter().map(|n| n + 2).chain([1]).collect(),
        _ => vec![1],
    }
}

/// The command as run in database `db`, with keys that include their database.
pub fn placed(argv: &[String], db: u8) -> Vec<String> {
    let mut argv = argv.to_vec();
    let of = |db: &str, key: &str| if db == "0" { key.to_owned() } else { format!("{db}/{key}") };
    let own = db.to_string();
    match argv[0].as_str() {
        "SELECT" => {}
        "FLUSHDB" => argv.push(of(&own, "")),
        "SWAPDB" => (1..3).for_each(|n| argv[n] = of(&argv[n], "")),
        "MOVE" => (argv[1], argv[2]) = (of(&own, &argv[1]), of(&argv[2], &argv[1])),
        _ => key_places(&argv).into_iter().for_each(|n| argv[n] = of(&own, &argv[n])),
    }
    argv
}
