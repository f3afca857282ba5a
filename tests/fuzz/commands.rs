//! Whole commands against a store: whatever the arguments are, there is an answer, and no handler panics.
//!
//! Words come from a list of what parsers know (options, numbers at their bounds, ranges, patterns), from a few keys of each type,
//! and from the mutator. Commands that end the server or stop it on purpose are left out; so are offsets and lengths that are
//! allowed and only cost time, such as a string of 512 MB.

use super::mutate::Mutator;
use super::rig::Rig;
use super::support;
use super::{seed, time};
use std::time::Instant;
use support::rng::Rng;
use tern::commands::table::{Row, rows};
use tern::config::{Change, OPTIONS};

const WORDS: &[&str] = &[
    "k",
    "s",
    "big",
    "hll",
    "bits",
    "none",
    "",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "1000000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-0",
    "+1",
    "01",
    "1.5",
    "-1e5",
    "inf",
    "nan",
    "0x10",
    "1e400",
    "(1",
    "[a",
    "+",
    "-",
    "*",
    "k*",
    "[a-",
    "\\",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "COUNT",
    "MATCH",
    "TYPE",
    "string",
    "set",
    "BY",
    "LIMIT",
    "ASC",
    "DESC",
    "ALPHA",
    "STORE",
    "WITHSCORES",
    "REPLACE",
    "ABSTTL",
    "FREQ",
    "IDLETIME",
    "DB",
    "ASYNC",
    "SYNC",
    "BIT",
    "BYTE",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "DIFF",
    "u8",
    "i64",
    "u63",
    "u64",
    "#3",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "IFEQ",
    "IFNE",
    "ID",
    "ADDR",
    "LADDR",
    "SKIPME",
    "yes",
    "no",
    "USER",
    "MAXAGE",
    "nosuch",
];
/// Not run: they end, stall or wait on purpose.
const LEFT_OUT: &[&str] = &["shutdown", "debug", "wait", "failover"];

fn argv(rng: &mut Rng, mutator: &mut Mutator, row: &Row) -> Vec<Vec<u8>> {
    let mut argv = vec![row.name.as_bytes().to_vec()];
    if !row.subs.is_empty() {
        argv.push(row.subs[rng.below(row.subs.len())].name.as_bytes().to_vec());
    }
    let least = row.arity.unsigned_abs() as usize;
    let many = least + if row.arity < 0 { rng.below(7) } else { 0 };
    while argv.len() < many {
        argv.push(match rng.below(6) {
            0 => mutator.next(),
            1 => WORDS[rng.below(6)].as_bytes().to_vec(),
            _ => WORDS[rng.below(WORDS.len())].as_bytes().to_vec(),
        });
    }
    argv
}

async fn fill(rig: &mut Rig) {
    for line in ["SET k 12", "SADD s a b 3", "PFADD hll a b c", "SETBIT bits 77 1", "SADD big 1 2 3"] {
        rig.line(line).await;
    }
    let many: Vec<String> =
        ["SADD".into(), "big".into()].into_iter().chain((0..2000).map(|n| format!("m{n}"))).collect();
    rig.run(&many).await;
}

/// Offsets and counts that are allowed and cost much: not here.
fn is_costly(argv: &[Vec<u8>]) -> bool {
    let number = |arg: &Vec<u8>| {
        std::str::from_utf8(arg).ok().and_then(|t| t.trim_start_matches('#').parse::<i64>().ok())
    };
    let name = argv[0].as_slice();
    let far = matches!(
        name,
        b"setrange" | b"setbit" | b"bitfield" | b"srandmember" | b"spop" | b"config" | b"lolwut"
    );
    far && argv.iter().skip(1).filter_map(number).any(|n| n.unsigned_abs() > 1 << 20)
}

#[tokio::test]
async fn any_arguments_get_an_answer() {
    let (seed, until) = (seed(), Instant::now() + time() * 3);
    let mut rng = Rng::new(seed);
    let mut mutator = Mutator::new(seed, WORDS.iter().map(|w| w.as_bytes().to_vec()).collect());
    let table: Vec<&Row> = rows().filter(|row| !LEFT_OUT.contains(&row.name)).collect();
    assert!(OPTIONS.iter().any(|o| o.change == Change::Runtime));
    let mut rig = Rig::new().await;
    let mut tried = 0u64;
    while Instant::now() < until {
        if tried.is_multiple_of(500) {
            fill(&mut rig).await;
        }
        let row = table[rng.below(table.len())];
        let argv = argv(&mut rng, &mut mutator, row);
        tried += 1;
        if is_costly(&argv) {
            continue;
        }
        let shown = || argv.iter().map(|a| a.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        let answer = tokio::time::timeout(std::time::Duration::from_secs(30), rig.run(&argv)).await;
        assert!(answer.is_ok(), "TERN_FUZZ_SEED={seed}: no answer to {}", shown());
        assert_eq!(rig.server.telemetry.panics.get(), 0, "TERN_FUZZ_SEED={seed}: {}", shown());
    }
    support::say(&format!("fuzz commands: {tried} inputs, seed {seed}"));
}
