//! Streams: random lines of all their commands, what of a reply is a clock's, and ids that the server makes.
//!
//! Ids grow along a sequence, so that most entries can be added. A line with the id `*` goes to Tern first; redis-server
//! gets it with the id that Tern has made. Idle times are either none or hours, so that no reply depends on a
//! server's speed. Both oracles answer the same lines: 7.0 and, where it is there, 8.6, which alone gets the options
//! added since.

use crate::differences::times_differ;
use crate::generate::{Argv, Step, Templates, sequence};
use crate::run::{Both, Outcome, Ports, Tally, run};
use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use crate::support::server::{Server, newer_redis, redis, tern};
use crate::support::{env_number, say};
use std::collections::BTreeMap;
use std::io;

/// Lines that both releases answer.
pub const LINES: Templates = &[
    (60, "XADD $T $I ($m $v)+"),
    (10, "XADD $T {NOMKSTREAM|MAXLEN $n|MAXLEN = $n|MINID $0|MINID = $0} $I ($m $v)+"),
    (4, "XADD $T {MAXLEN ~ 2000|MAXLEN ~ 2000 LIMIT $n|MINID ~ $0 LIMIT 0|LIMIT $n|NOMKSTREAM|FOO} $I $m $v"),
    (4, "XADD $T $I $m $V"),
    (2, "XADD $k $I $m $v"),
    (10, "XADD made {NOMKSTREAM|MAXLEN $n} * $m $v"),
    (6, "XLEN $T"),
    (16, "XRANGE $T $3 $3 {COUNT $n}"),
    (6, "XRANGE $T - + {COUNT $n|FOO}"),
    (14, "XREVRANGE $T $3 $3 {COUNT $n}"),
    (4, "XREVRANGE $T + - {COUNT $n}"),
    (12, "XDEL $T $0+"),
    (5, "XTRIM $T {MAXLEN $n|MAXLEN = $n|MINID $0|MINID = $0}"),
    (2, "XTRIM $T {MAXLEN ~ 2000|MAXLEN ~ 2000 LIMIT $n|MINID $0 LIMIT $n|FOO}"),
    (4, "XSETID $T $0 {ENTRIESADDED $n|MAXDELETEDID $0}"),
    (3, "XSETID $T $I {ENTRIESADDED 500|MAXDELETEDID $0}"),
    (2, "XSETID $T $I"),
    (10, "XREAD {COUNT $n|BLOCK 1} STREAMS $T $0"),
    (8, "XREAD {COUNT $n|BLOCK 1} STREAMS $T $T $0 {$5|0-0|$0}"),
    (2, "XREAD {COUNT $n|FOO} STREAMS $T $k $T 0 0 0"),
    (14, "XGROUP CREATE $T $1 {0|$5|$0} {MKSTREAM|ENTRIESREAD $n}"),
    (6, "XGROUP CREATE $T $1 0 {MKSTREAM|ENTRIESREAD $n}"),
    (6, "XGROUP SETID $T $1 $0 {ENTRIESREAD $n|FOO}"),
    (2, "XGROUP SETID $T $1 $5 {ENTRIESREAD $n}"),
    (3, "XGROUP DESTROY $T $1"),
    (6, "XGROUP CREATECONSUMER $T $1 $2"),
    (5, "XGROUP DELCONSUMER $T $1 $2"),
    (1, "XGROUP $w $T $1"),
    (30, "XREADGROUP GROUP $1 $2 {COUNT $n|NOACK|BLOCK 1} STREAMS $T >"),
    (8, "XREADGROUP GROUP $1 $2 {COUNT $n|NOACK} STREAMS $T $0"),
    (6, "XREADGROUP GROUP $1 $2 {COUNT $n|NOACK} STREAMS $T $T > {>|$0}"),
    (14, "XACK $T $1 $0+"),
    (12, "XPENDING $T $1"),
    (12, "XPENDING $T $1 {IDLE $4} $3 $3 10 {$2}"),
    (6, "XPENDING $T $1 - + $n {$2}"),
    (16, "XCLAIM $T $1 $2 $4 $0+"),
    (14, "XCLAIM $T $1 $2 $4 $0 $0 {IDLE $4|TIME $P|RETRYCOUNT $n|FORCE|JUSTID|LASTID $0|FOO}"),
    (8, "XCLAIM $T $1 $2 0 $0 FORCE {IDLE $4|JUSTID|RETRYCOUNT $n}"),
    (12, "XAUTOCLAIM $T $1 $2 $4 $3 {COUNT 3|COUNT $n|JUSTID}"),
    (6, "XINFO STREAM $T {FULL|FULL COUNT 3|FULL COUNT $n|FOO}"),
    (5, "XINFO STREAM $T FULL"),
    (8, "XINFO GROUPS $T"),
    (8, "XINFO CONSUMERS $T $1"),
    (1, "XINFO $w $T"),
    (4, "DEL $T"),
    (2, "RENAME $T $T"),
    (3, "COPY $T $T {REPLACE}"),
    (2, "MOVE $T 1"),
    (1, "SELECT $d"),
    (2, "TYPE $T"),
    (2, "OBJECT ENCODING $T"),
    (2, "DUMP $T"),
    (2, "EXISTS $T+"),
    (2, "EXPIRE $T $s"),
    (1, "PERSIST $T"),
    (2, "SET $T $v"),
    (1, "SORT $T"),
    (1, "GET $T"),
    (1, "SADD $T $m"),
    (1, "SCAN 0 TYPE stream"),
    (5, "MULTI"),
    (7, "EXEC"),
    (3, "WATCH $T"),
    (2, "EVAL $8 1 $T $I $1 $2"),
];
/// Options added since 7.0, and commands that 7.0 does not have.
pub const NEWER: Templates = &[
    (8, "XADD $T {KEEPREF|DELREF|ACKED|MAXLEN $n|MINID $0} $I $m $v"),
    (8, "XADD $T {KEEPREF|DELREF|ACKED} MAXLEN = $n $I $m $v"),
    (6, "XTRIM $T MAXLEN $n {KEEPREF|DELREF|ACKED|FOO}"),
    (6, "XTRIM $T MINID $0 {KEEPREF|DELREF|ACKED}"),
    (14, "XDELEX $T {KEEPREF|DELREF|ACKED} IDS 2 $0 $0"),
    (3, "XDELEX $T IDS $n $0 $0"),
    (14, "XACKDEL $T $1 {KEEPREF|DELREF|ACKED} IDS 2 $0 $0"),
    (3, "XACKDEL $T $1 IDS $n $0 $0 {FOO}"),
    (8, "XREADGROUP GROUP $1 $2 {COUNT $n|NOACK} CLAIM $4 STREAMS $T >"),
    (4, "XREADGROUP GROUP $1 $2 {COUNT $n|CLAIM $4|CLAIM $n} STREAMS $T $T > {>|$0}"),
    (6, "XREAD {COUNT $n} STREAMS $T +"),
    (3, "XREAD {COUNT $n} STREAMS $T $T + {+|0}"),
];
/// Kinds of arguments, each a digit; `I` and `T` too.
pub fn argument(rng: &mut Rng, kind: u8) -> Vec<u8> {
    let keys: &[&[u8]] =
        &[b"stream1", b"stream1", b"stream1", b"stream2", b"stream2", b"stream3", b"a", b"made"];
    let groups: &[&[u8]] = &[b"g1", b"g1", b"g1", b"g2", b"g2", b""];
    let consumers: &[&[u8]] = &[b"ann", b"ann", b"bob", b"bob", b"cid", b"\x00\r\n"];
    let idle: &[&[u8]] = &[b"0", b"0", b"0", b"10000000", b"100000000", b"-1", b"x"];
    let odd_ids: &[&[u8]] = &[
        b"0",
        b"0-0",
        b"18446744073709551615",
        b"18446744073709551615-18446744073709551615",
        b"-1",
        b"1-x",
        b"1-",
        b"-",
        b"+",
        b"1-1-1",
        b"01-1",
        b"",
        b"$",
        b"18446744073709551616",
        b"5-*",
    ];
    match kind {
        b'T' => rng.pick(keys).to_vec(),
        // Replaced by `grow`, most of the time.
        b'I' | b'0' | b'3' if rng.one_in(30) => rng.pick(odd_ids).to_vec(),
        b'I' => ID.to_vec(),
        b'1' => rng.pick(groups).to_vec(),
        b'2' => rng.pick(consumers).to_vec(),
        b'3' if rng.one_in(3) => rng.pick(&[b"-" as &[u8], b"+"]).to_vec(),
        b'3' if rng.one_in(5) => [b"(".to_vec(), id(rng)].concat(),
        b'4' => rng.pick(idle).to_vec(),
        b'5' => b"$".to_vec(),
        b'8' => rng.pick(SCRIPTS).as_bytes().to_vec(),
        _ => id(rng),
    }
}

const SCRIPTS: &[&str] = &[
    "return redis.call('XADD', KEYS[1], ARGV[1], 'f', 'v')",
    "return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 2)",
    "return redis.pcall('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'BLOCK', 0, 'STREAMS', KEYS[1], '>')",
    "return redis.pcall('XREAD', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
];
/// Stands for an id above those before.
const ID: &[u8] = b"(the next id)";
/// The entries of a sequence have times from 1 to about this.
const TIMES: usize = 110;

/// An id that an entry may have.
fn id(rng: &mut Rng) -> Vec<u8> {
    let ms = 1 + rng.below(TIMES);
    if rng.one_in(4) { ms.to_string() } else { format!("{ms}-{}", rng.below(3)) }.into_bytes()
}

/// Puts ids that grow in place of [`ID`].
pub fn grow(rng: &mut Rng, steps: &mut [Step]) {
    let (mut ms, mut seq) = (1, 0);
    for word in steps.iter_mut().flat_map(|step| &mut step.argv).filter(|word| *word == ID) {
        if rng.one_in(2) {
            (ms, seq) = (ms + 1, 0);
        } else {
            seq += 1;
        }
        *word = if rng.one_in(6) { format!("{ms}-*") } else { format!("{ms}-{seq}") }.into_bytes();
    }
}

/// A damaged line must not make an id of a clock, wait for long, or ask for times that pass meanwhile.
pub fn harmless(argv: &mut Argv) {
    let briefly = |time: &mut Vec<u8>, least: i64| {
        if std::str::from_utf8(time)
            .is_ok_and(|t| t.parse::<i64>().is_ok_and(|n| (0..10_000_000).contains(&n)))
        {
            *time = least.to_string().into_bytes();
        }
    };
    let after = |argv: &Argv, word: &str| argv.iter().position(|w| w.eq_ignore_ascii_case(word.as_bytes()));
    match argv[0].as_slice() {
        b"XADD" => argv.iter_mut().filter(|word| *word == b"*").for_each(|word| *word = b"7-*".to_vec()),
        b"XCLAIM" | b"XAUTOCLAIM" => argv.iter_mut().skip(3).take(2).for_each(|time| briefly(time, 0)),
        b"XPENDING" => argv.iter_mut().skip(4).take(1).for_each(|time| briefly(time, 0)),
        b"XREAD" | b"XREADGROUP" => {
            for (option, least) in [("BLOCK", 1), ("CLAIM", 0)] {
                let at = after(argv, option).map_or(argv.len(), |at| at + 1);
                argv.iter_mut().skip(at).take(1).for_each(|time| briefly(time, least));
                if let (Some(b"9223372036854775807"), "BLOCK") = (argv.get(at).map(Vec::as_slice), option) {
                    argv[at] = b"1".to_vec();
                }
            }
        }
        _ => {}
    }
}

/// Whether the server makes an id of its clock for the line.
pub fn is_made(argv: &Argv) -> bool {
    argv[0].eq_ignore_ascii_case(b"XADD") && argv.iter().any(|word| word == b"*")
}

impl Both {
    /// Tern's id for redis-server, too.
    pub fn made(&mut self, at: usize, argv: &Argv, tally: &mut Tally) -> Outcome<()> {
        let tern = self.tern.run(argv);
        let mut same = argv.clone();
        if let (Value::Bulk(id), Some(place)) = (&tern.value, argv.iter().position(|word| word == b"*")) {
            same[place] = id.clone();
        }
        let redis = self.redis.run(&same);
        self.compare_line(at, argv, &redis, &tern, tally)
    }
}

/// What XINFO says of an encoding, which is each server's own.
const OWN: [&str; 2] = ["radix-tree-keys", "radix-tree-nodes"];
/// What XINFO says since 7.2, and of options that only 8.6 has.
const SINCE: [&str; 8] = [
    "inactive",
    "active-time",
    "idmp-duration",
    "idmp-maxsize",
    "pids-tracked",
    "iids-tracked",
    "iids-added",
    "iids-duplicates",
];
/// Times and spans of a server's clock.
const CLOCKED: [&str; 4] = ["idle", "inactive", "seen-time", "active-time"];

/// Whether two replies about consumers and what is pending differ in their clocks only.
pub fn same_clock(line: &[&str], redis: &Value, tern: &Value, apart: u64) -> bool {
    match line {
        ["XPENDING", _, _, _, ..] => same_rows(redis, tern, 2, apart),
        ["XREADGROUP", rest @ ..] if rest.contains(&"CLAIM") => same_claimed(redis, tern, apart),
        ["XINFO", "GROUPS" | "CONSUMERS", ..] => same_all(redis, tern, |a, b| same_facts(a, b, apart)),
        ["XINFO", "STREAM", ..] => same_facts(redis, tern, apart),
        _ => false,
    }
}

fn same_all(redis: &Value, tern: &Value, same: impl Fn(&Value, &Value) -> bool) -> bool {
    match (redis, tern) {
        (Value::Array(redis), Value::Array(tern)) => {
            redis.len() == tern.len() && redis.iter().zip(tern).all(|(a, b)| same(a, b))
        }
        _ => redis == tern,
    }
}

/// Rows that are equal but for a clock in one place.
fn same_rows(redis: &Value, tern: &Value, clock: usize, apart: u64) -> bool {
    same_all(redis, tern, |redis, tern| {
        let (Some(a), Some(b)) = (redis.items(), tern.items()) else { return redis == tern };
        let same = |(n, (a, b)): (usize, (&Value, &Value))| a == b || n == clock && near(a, b, apart);
        a.len() == b.len() && a.iter().zip(b).enumerate().all(same)
    })
}

/// Entries of one or several keys, with how long those that were claimed were idle.
fn same_claimed(redis: &Value, tern: &Value, apart: u64) -> bool {
    let (Some(a), Some(b)) = (redis.items(), tern.items()) else { return redis == tern };
    let same = |(a, b): (&Value, &Value)| a == b || same_claimed(a, b, apart) || same_rows(a, b, 2, apart);
    std::mem::discriminant(redis) == std::mem::discriminant(tern)
        && a.len() == b.len()
        && a.iter().zip(b).all(same)
}

fn near(redis: &Value, tern: &Value, apart: u64) -> bool {
    redis.int().zip(tern.int()).is_some_and(|(a, b)| !times_differ(a, b, apart))
}

fn facts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    let pairs = value.items()?.chunks(2);
    let named = |pair: &'_ [Value]| String::from_utf8(pair[0].bytes()?.to_vec()).ok();
    let facts = pairs.map(|pair| Some((named(pair)?, pair.get(1)?)));
    let all: BTreeMap<_, _> = facts.collect::<Option<_>>()?;
    Some(all.into_iter().filter(|(name, _)| !OWN.contains(&name.as_str())).collect())
}

/// Names with values: those that both have are the same, and the others are newer than one of them.
fn same_facts(redis: &Value, tern: &Value, apart: u64) -> bool {
    if std::mem::discriminant(redis) != std::mem::discriminant(tern) {
        return false;
    }
    let (Some(a), Some(b)) = (facts(redis), facts(tern)) else { return redis == tern };
    let known = |(name, _): &(&String, &&Value)| !SINCE.contains(&name.as_str());
    let same = |(name, a): (&String, &&Value)| {
        let Some(b) = b.get(name) else { return SINCE.contains(&name.as_str()) };
        match name.as_str() {
            "pending" => same_rows(a, b, if a.items().is_some_and(is_consumers) { 1 } else { 2 }, apart),
            "groups" | "consumers" => same_all(a, b, |a, b| same_facts(a, b, apart)),
            name if CLOCKED.contains(&name) => near(a, b, apart),
            _ => a == b,
        }
    };
    a.iter().all(same) && b.iter().filter(known).all(|(name, _)| a.contains_key(name))
}

/// Whether rows of what is pending are a consumer's: an id, a time, a count.
fn is_consumers(rows: &[Value]) -> bool {
    rows.first().and_then(Value::items).is_some_and(|row| row.len() == 3)
}

/// All that a stream holds, without clocks and encodings.
pub fn content(client: &mut Client, key: &[u8]) -> io::Result<String> {
    let entries = client.try_run(&[b"XRANGE".as_slice(), key, b"-", b"+"])?.value;
    let full = client.try_run(&[b"XINFO".as_slice(), b"STREAM", key, b"FULL", b"COUNT", b"0"])?.value;
    Ok(format!("{entries:?} {}", timeless(&full)))
}

fn timeless(value: &Value) -> String {
    let row = |row: &Value| {
        let cells = row.items().unwrap_or_default().iter();
        let is_time = |cell: &&Value| cell.int().is_none_or(|n| n < 100_000_000_000);
        format!("{:?}", cells.filter(is_time).collect::<Vec<_>>())
    };
    let Some(facts) = facts(value) else { return format!("{value:?}") };
    let listed = |name: &str, value: &Value| {
        let all = value.items().unwrap_or_default().iter();
        match name {
            "pending" => all.map(row).collect::<Vec<_>>().join(" "),
            _ => all.map(timeless).collect::<Vec<_>>().join(" "),
        }
    };
    let kept = facts.into_iter().filter(|(name, _)| {
        !SINCE.contains(&name.as_str()) && !CLOCKED.contains(&name.as_str()) && name != "entries"
    });
    let shown = kept.map(|(name, value)| match (name.as_str(), value) {
        ("pending" | "groups" | "consumers", Value::Array(_)) => {
            format!("{name}: [{}]", listed(&name, value))
        }
        _ => format!("{name}: {value:?}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// What 7.0 does otherwise than later releases: its claims make no consumer unless they get something, and it believes any
/// number of entries that were read.
const CHANGED: [&str; 4] = ["XCLAIM", "XAUTOCLAIM", "ENTRIESREAD", "ENTRIESADDED"];
const STEPS: usize = 500;
/// Sequences of each oracle; `TERN_STREAM_SEQUENCES` sets another number.
const SEQUENCES: u64 = 20;
/// The default of `TERN_SEED`.
const SEED: u64 = 1;

/// Lines of all streams' commands, against an oracle.
fn against(redis: &Server, templates: Templates, wanted: &[&str]) {
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or(SEED);
    let mut tally = Tally::default();
    let only = env_number("TERN_SEQUENCE");
    let count = env_number("TERN_STREAM_SEQUENCES").unwrap_or(SEQUENCES);
    let mut complaints = BTreeMap::new();
    for n in only.map_or(0..count, |n| n..n + 1) {
        let ports = Ports { redis: redis.port, tern: tern.port, protocol: 2 + (n % 2) as u8 };
        let mut rng = Rng::new(Rng::new(Rng::new(seed).next() ^ n).next());
        let mut steps = sequence(&mut rng, templates, STEPS);
        grow(&mut rng, &mut steps);
        if let Err(mismatch) = run(ports, &steps, &mut tally) {
            let kind = crate::signature(&mismatch);
            complaints.entry(kind).or_insert_with(|| crate::report(ports, n, &steps, mismatch));
        }
    }
    say(&format!(
        "differential, streams: {} lines compared, {} kinds of mismatches",
        tally.lines,
        complaints.len()
    ));
    let complaints: Vec<String> = complaints.into_values().collect();
    assert!(complaints.is_empty(), "TERN_SEED={seed}\n{}", complaints.join("\n"));
    let missing: Vec<_> = wanted.iter().filter(|name| !tally.commands.contains_key(**name)).collect();
    assert!(only.is_some() || missing.is_empty(), "never sent: {missing:?}");
}

#[test]
fn streams_answer_as_those_of_redis_7_0() {
    let Some(redis) = redis("streams differential test") else { return };
    let same = |(_, line): &&(usize, &str)| !CHANGED.iter().any(|word| line.contains(word));
    let lines: Vec<_> = LINES.iter().filter(same).copied().collect();
    against(&redis, lines.leak(), &["XADD", "XREADGROUP", "XSETID", "XTRIM"]);
}

#[test]
fn streams_answer_as_those_of_redis_8_6() {
    let Some(redis) = newer_redis("streams differential test") else { return };
    against(&redis, LINES, &["XADD", "XAUTOCLAIM", "XREADGROUP", "XSETID", "XTRIM"]);
}

#[test]
fn new_commands_of_streams_answer_as_those_of_redis_8_6() {
    let Some(redis) = newer_redis("newer streams differential test") else { return };
    let both: &'static [(usize, &'static str)] = [LINES, NEWER].concat().leak();
    against(&redis, both, &["XADD", "XACKDEL", "XDELEX", "XREADGROUP"]);
}
