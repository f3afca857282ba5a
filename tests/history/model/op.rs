//! What a client does at once, and the keys that it touches.
//!
//! A key of database 0 is its name; one of database 2 is `2/name` here, and `2/` stands for all of them: who touches one of them meets whoever
//! swaps or empties the database.

/// One thing that a client does at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    One(Vec<String>),
    Watch(String),
    /// MULTI, the commands, EXEC.
    Exec(Vec<Vec<String>>),
}

const READS: [&str; 10] = [
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
];

impl Op {
    /// Whether it changes nothing, whatever it finds.
    pub fn only_reads(&self) -> bool {
        matches!(self, Op::One(argv) if READS.contains(&argv[0].as_str()))
    }

    /// Whether it may give a key an expiry.
    pub fn expires(&self) -> bool {
        let one = |argv: &Vec<String>| argv.iter().any(|word| word == "PX" || word == "PEXPIRE");
        match self {
            Op::One(argv) => one(argv),
            Op::Exec(calls) => calls.iter().any(one),
            Op::Watch(_) => false,
        }
    }

    /// The keys that it touches. None: it is about its connection alone.
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

/// Which words are keys.
fn key_places(argv: &[String]) -> Vec<usize> {
    match argv[0].as_str() {
        "SELECT" => vec![],
        "RENAME" | "SMOVE" | "COPY" | "MOVE" | "SWAPDB" => vec![1, 2],
        "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => (1..argv.len()).collect(),
        "BITOP" => (2..argv.len()).collect(),
        "MSET" => (1..argv.len()).step_by(2).collect(),
        // The id is a key too: it has a value that others find.
        "ONCE" => key_places(&argv[2..]).into_iter().map(|n| n + 2).chain([1]).collect(),
        _ => vec![1],
    }
}

/// What is asked in database `db`, with keys that say where they are.
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
