//! Bitmaps on strings of every form: in the record, in pieces, with holes. `tests/differential` is the oracle
//! for errors and corner cases; here a model supplies the expected bits, even where Redis would hold 512 MB
//! in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;
mod support;

use rig::{Rig, bulk, error};
use support::server::tern;
use tern::env::{Env, Rng};
use tern::server::reply::Reply;
use tern::types::string::PIECE;

/// The bits of a string.
#[derive(Default)]
struct Model(Vec<bool>);

impl Model {
    fn set(&mut self, at: usize, bit: bool) -> bool {
        let needed = (at / 8 + 1) * 8;
        self.0.resize(self.0.len().max(needed), false);
        std::mem::replace(&mut self.0[at], bit)
    }
    fn slice(&self, from: usize, to: usize) -> &[bool] {
        &self.0[from.min(self.0.len())..to.min(self.0.len()).max(from.min(self.0.len()))]
    }
    fn count(&self, from: usize, to: usize) -> i64 {
        self.slice(from, to).iter().filter(|b| **b).count() as i64
    }
    fn position(&self, bit: bool, from: usize, to: usize) -> i64 {
        self.slice(from, to).iter().position(|b| *b == bit).map_or(-1, |at| (from + at) as i64)
    }
}

fn int(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(n) => *n,
        other => panic!("no integer: {other:?}"),
    }
}

/// A position near an interesting border.
fn place(rng: &mut Rng, bits: usize) -> usize {
    let borders = [0, 8, 16 * 1024 * 8, PIECE * 8, 2 * PIECE * 8, bits];
    let near = borders[rng.below(borders.len() as u64) as usize] + rng.below(40) as usize;
    if rng.below(4) == 0 { rng.below(bits as u64) as usize } else { near.saturating_sub(20).min(bits - 1) }
}

#[tokio::test]
async fn bits_match_the_model() {
    for (seed, bits) in [(1, 400), (2, 16 * 1024 * 8), (3, 3 * PIECE * 8)] {
        let mut rig = Rig::new().await;
        let mut rng = Env::seeded(0, seed).rng();
        let mut model = Model::default();
        for step in 0..600 {
            let at = place(&mut rng, bits);
            let bit = rng.below(3) > 0;
            let old = rig.line(&format!("SETBIT k {at} {}", u8::from(bit))).await;
            assert_eq!(int(&old) == 1, model.set(at, bit), "seed {seed} step {step}");
            let (a, b) = (place(&mut rng, bits), place(&mut rng, bits));
            let (from, to) = (a.min(b), a.max(b));
            let count = rig.line(&format!("BITCOUNT k {from} {to} BIT")).await;
            assert_eq!(int(&count), model.count(from, to + 1), "seed {seed} {from}..={to}");
            let count = rig.line(&format!("BITCOUNT k {} {}", from / 8, to / 8)).await;
            assert_eq!(int(&count), model.count(from / 8 * 8, (to / 8 + 1) * 8), "seed {seed} {from}..={to}");
            let want = rng.below(2) == 1;
            let found = rig.line(&format!("BITPOS k {} {from} {to} BIT", u8::from(want))).await;
            assert_eq!(int(&found), model.position(want, from, to + 1), "seed {seed} {from}..={to} {want}");
            let got = rig.line(&format!("GETBIT k {from}")).await;
            assert_eq!(int(&got), model.count(from, from + 1), "seed {seed} {from}");
        }
        let all = rig.line("BITCOUNT k").await;
        assert_eq!(int(&all), model.count(0, usize::MAX));
        assert_eq!(rig.line("STRLEN k").await, Reply::Int(model.0.len() as i64 / 8));
    }
}

#[tokio::test]
async fn fields_cross_bytes_and_pieces() {
    let mut rig = Rig::new().await;
    let mut rng = Env::seeded(0, 9).rng();
    for _ in 0..300 {
        let bits = 1 + rng.below(63);
        let at = place(&mut rng, 3 * PIECE * 8);
        let value = rng.u64() >> (64 - bits);
        rig.line(&format!("BITFIELD k SET u{bits} {at} {value}")).await;
        let got = rig.line(&format!("BITFIELD_RO k GET u{bits} {at}")).await;
        assert_eq!(got, Reply::Array(vec![Reply::Int(value as i64)]), "u{bits} at {at}");
        for n in 0..bits {
            let bit = rig.line(&format!("GETBIT k {}", at as u64 + n)).await;
            assert_eq!(int(&bit) as u64, value >> (bits - 1 - n) & 1, "bit {n} of u{bits} at {at}");
        }
    }
    let wide = "BITFIELD k SET i64 7 -1 GET i64 7 GET u1 6 INCRBY i64 7 1";
    let replies = rig.line(wide).await;
    let Reply::Array(replies) = replies else { panic!("{replies:?}") };
    assert_eq!((&replies[1], &replies[3]), (&Reply::Int(-1), &Reply::Int(0)));
}

const OPERATIONS: [&str; 8] = ["AND", "OR", "XOR", "NOT", "DIFF", "DIFF1", "ANDOR", "ONE"];

/// The byte that an operation computes from `bytes`.
fn combined(op: &str, bytes: &[u8]) -> u8 {
    let any = |bytes: &[u8]| bytes.iter().fold(0, |a, b| a | b);
    let (first, others) = bytes.split_first().unwrap();
    match op {
        "AND" => others.iter().fold(*first, |a, b| a & b),
        "OR" => any(bytes),
        "XOR" => others.iter().fold(*first, |a, b| a ^ b),
        "NOT" => !first,
        "DIFF" => first & !any(others),
        "DIFF1" => !first & any(others),
        "ANDOR" => first & any(others),
        "ONE" => {
            let once = |bit: &u8| bytes.iter().filter(|byte| **byte & bit != 0).count() == 1;
            (0..8).map(|n| 1 << n).filter(once).sum()
        }
        other => panic!("{other}?"),
    }
}

/// A string of this length: filled, or a few bytes with holes around them.
async fn set(rig: &mut Rig, rng: &mut Rng, key: &str, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
    if rng.below(3) == 0 {
        let there = [rng.below(length as u64) as usize, length - 1];
        bytes.iter_mut().enumerate().filter(|(at, _)| !there.contains(at)).for_each(|(_, byte)| *byte = 0);
        rig.line(&format!("DEL {key}")).await;
        for at in there {
            let at_text = at.to_string();
            rig.run(&[b"SETRANGE", key.as_bytes(), at_text.as_bytes(), &bytes[at..=at]]).await;
        }
    } else {
        rig.run(&[b"SET", key.as_bytes(), &bytes]).await;
    }
    bytes
}

/// Sources of all lengths: missing ones, the same one twice, the target among them.
#[tokio::test]
async fn operations_combine_strings_of_all_lengths() {
    const KEYS: [&str; 4] = ["a", "b", "c", "missing"];
    let mut rig = Rig::new().await;
    let mut rng = Env::seeded(0, 11).rng();
    let lengths = [1, 100, 16 * 1024, 16 * 1024 + 1, PIECE + 5, 2 * PIECE, 10 * PIECE + 1];
    let pick = |rng: &mut Rng, n: usize| rng.below(n as u64) as usize;
    for round in 0..24 {
        let mut strings = vec![Vec::new(); KEYS.len()];
        for (key, string) in KEYS.iter().zip(&mut strings).take(3) {
            let length = lengths[pick(&mut rng, lengths.len())];
            *string = set(&mut rig, &mut rng, key, length).await;
        }
        for op in OPERATIONS {
            let least = if ["DIFF", "DIFF1", "ANDOR"].contains(&op) { 2 } else { 1 };
            let times = if op == "NOT" { 1 } else { least + pick(&mut rng, 4) };
            let named: Vec<usize> = (0..times).map(|_| pick(&mut rng, KEYS.len())).collect();
            let length = named.iter().map(|n| strings[*n].len()).max().unwrap();
            let mut bytes = vec![0; times];
            let mut byte = |at: usize| {
                let of = |n: &usize| strings[*n].get(at).copied().unwrap_or(0);
                bytes.iter_mut().zip(&named).for_each(|(byte, n)| *byte = of(n));
                combined(op, &bytes)
            };
            let want: Vec<u8> = (0..length).map(&mut byte).collect();
            let names: Vec<&str> = named.iter().map(|n| KEYS[*n]).collect();
            let line = format!("BITOP {op} to {}", names.join(" "));
            assert_eq!(rig.line(&line).await, Reply::Int(length as i64), "{line}, round {round}");
            let want = if length == 0 { Reply::Nil } else { bulk(&want) };
            assert!(rig.line("GET to").await == want, "{line}, round {round}");
        }
    }
    rig.assert_sound().await;
}

#[tokio::test]
async fn a_source_may_be_the_target() {
    let mut rig = Rig::new().await;
    for (op, want) in OPERATIONS.into_iter().zip([0x14, 0x7e, 0x6a, 0xc3, 0x28, 0x42, 0x14, 0x6a]) {
        for length in [3, 3 * PIECE] {
            rig.run(&[b"SET", &b"a"[..], &vec![0x3c; length]]).await;
            rig.run(&[b"SET", &b"b"[..], &vec![0x56; length]]).await;
            let line = if op == "NOT" { "BITOP NOT a a".into() } else { format!("BITOP {op} a a b") };
            assert_eq!(rig.line(&line).await, Reply::Int(length as i64));
            assert!(rig.line("GET a").await == bulk(vec![want; length]), "{line}");
        }
    }
    rig.line("SET b v").await;
    rig.line("SET to v EX 100").await;
    assert_eq!(rig.line("BITOP OR to a b").await, Reply::Int(a_length(&mut rig).await));
    assert_eq!(rig.line("TTL to").await, Reply::Int(-1), "the result has no expiry");
    assert_eq!(rig.line("BITOP OR to missing").await, Reply::Int(0));
    assert_eq!(rig.line("EXISTS to").await, Reply::Int(0), "an empty result deletes the key");
}

async fn a_length(rig: &mut Rig) -> i64 {
    int(&rig.line("STRLEN a").await).max(int(&rig.line("STRLEN b").await))
}

#[tokio::test]
async fn errors_leave_everything_as_it_was() {
    let mut rig = Rig::new().await;
    rig.line("SADD set x").await;
    rig.line("SET k abc").await;
    let offset = "ERR bit offset is not an integer or out of range";
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (line, want) in [
        ("SETBIT k 4294967296 1", offset),
        ("SETBIT k -1 1", offset),
        ("SETBIT k 0 2", "ERR bit is not an integer or out of range"),
        ("SETBIT set 0 1", wrong),
        ("BITFIELD k SET u8 4294967296 1", offset),
        ("BITFIELD k SET u8 #536870912 1", offset),
        (
            "BITFIELD k SET u8 0 1 GET u64 0",
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
        ("BITFIELD k SET u8 0 1 OVERFLOW no", "ERR Invalid OVERFLOW type specified"),
        ("BITFIELD k SET u8 0", "ERR syntax error"),
        ("BITFIELD set GET u8 0", wrong),
        ("BITFIELD_RO k GET u8 0 SET u8 0 1", "ERR BITFIELD_RO only supports the GET subcommand"),
        ("BITOP NOT k k k", "ERR BITOP NOT must be called with a single source key."),
        ("BITOP DIFF2 k k k", "ERR syntax error"),
        ("BITOP diff k k", "ERR BITOP DIFF must be called with at least two source keys."),
        ("BITOP Diff1 k missing", "ERR BITOP DIFF1 must be called with at least two source keys."),
        ("BITOP ANDOR k set", "ERR BITOP ANDOR must be called with at least two source keys."),
        ("BITOP ONE k set", wrong),
        ("BITOP DIFF k missing set", wrong),
        ("BITOP ANDOR k k set", wrong),
        ("BITOP OR k k set", wrong),
        ("BITPOS k 2", "ERR The bit argument must be 1 or 0."),
        ("BITCOUNT k 0", "ERR syntax error"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
        assert_eq!(rig.line("GET k").await, bulk("abc"), "{line}");
    }
}

/// A command that touches few bytes reads few, however long the string is.
#[test]
fn the_last_bit_of_the_longest_string() {
    let server = tern(&["--appendfsync", "no"]);
    let mut c = server.client();
    c.line("PING");
    let before = server.resident();
    const LAST: i64 = (1 << 32) - 1;
    assert_eq!(c.line(&format!("SETBIT k {LAST} 1")).int(), Some(0));
    assert_eq!(c.line("STRLEN k").int(), Some(1 << 29));
    assert_eq!(c.line(&format!("SETBIT k {LAST} 0")).int(), Some(1));
    assert_eq!(c.line(&format!("SETBIT k {LAST} 1")).int(), Some(0));
    assert_eq!(c.line(&format!("GETBIT k {LAST}")).int(), Some(1));
    assert_eq!(c.line("BITPOS k 0").int(), Some(0));
    assert_eq!(c.line("BITPOS k 1 -1").int(), Some(LAST));
    assert_eq!(c.line("BITCOUNT k -2 -1").int(), Some(1));
    let field = c.line("BITFIELD k GET u8 #536870911 INCRBY u2 4294967288 3 GET i64 4294967295");
    let numbers: Vec<i64> = field.items().unwrap().iter().filter_map(|v| v.int()).collect();
    assert_eq!(numbers, [1, 3, i64::MIN]);
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more are resident");
    // Reads the whole string, in windows.
    assert_eq!(c.line("BITCOUNT k").int(), Some(3));
    assert_eq!(c.line("BITPOS k 1").int(), Some(LAST - 7));
    assert_eq!(c.line("BITOP OR copy k").int(), Some(1 << 29));
    assert_eq!(c.line("BITCOUNT copy").int(), Some(3));
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more are resident");
}
