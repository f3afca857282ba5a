//! Bitmaps on strings of every form: in the record, in pieces, with holes. The oracle for texts and corner cases is
//! `tests/differential`; here a model says what the bits are, also where Redis would hold 512 MB in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod rig;
mod support;

use rig::{Rig, bulk, error};
use support::server::tern;
use tern::commands::reply::Reply;
use tern::env::{Env, Rng};
use tern::types::string::PIECE;

/// Bits of a string, one by one.
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

/// A place near a border that matters.
fn place(rng: &mut Rng, bits: usize) -> usize {
    let borders = [0, 8, 16 * 1024 * 8, PIECE * 8, 2 * PIECE * 8, bits];
    let near = borders[rng.below(borders.len() as u64) as usize] + rng.below(40) as usize;
    if rng.below(4) == 0 { rng.below(bits as u64) as usize } else { near.saturating_sub(20).min(bits - 1) }
}

#[tokio::test]
async fn bits_are_those_of_the_model() {
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

#[tokio::test]
async fn operations_combine_strings_of_all_lengths() {
    let mut rig = Rig::new().await;
    let mut rng = Env::seeded(0, 11).rng();
    let byte = |rng: &mut Rng| rng.below(256) as u8;
    let lengths = [1, 100, 16 * 1024, 16 * 1024 + 1, PIECE + 5, 2 * PIECE, 40 * PIECE + 1];
    for length in lengths {
        let other = lengths[rng.below(lengths.len() as u64) as usize];
        let (a, b): (Vec<u8>, Vec<u8>) =
            ((0..length).map(|_| byte(&mut rng)).collect(), (0..other).map(|_| byte(&mut rng)).collect());
        rig.run(&[b"SET", &b"a"[..], &a]).await;
        rig.run(&[b"SET", &b"b"[..], &b]).await;
        type Combine = fn(u8, u8) -> u8;
        let ops: [(&str, Combine); 3] = [("AND", |a, b| a & b), ("OR", |a, b| a | b), ("XOR", |a, b| a ^ b)];
        for (name, op) in ops {
            let at = |v: &[u8], n: usize| v.get(n).copied().unwrap_or(0);
            let want: Vec<u8> = (0..a.len().max(b.len())).map(|n| op(at(&a, n), at(&b, n))).collect();
            assert_eq!(rig.line(&format!("BITOP {name} to a b")).await, Reply::Int(want.len() as i64));
            assert_eq!(rig.line("GET to").await, bulk(&want), "{name} of {length} and {other}");
            let len = rig.line(&format!("BITOP {name} to a b missing")).await;
            assert_eq!(len, Reply::Int(want.len() as i64));
            let want = if name == "AND" { vec![0; want.len()] } else { want };
            assert_eq!(
                rig.line("GET to").await,
                bulk(&want),
                "{name} of {length} and {other} with a missing one"
            );
        }
        // A source may be the target.
        assert_eq!(rig.line("BITOP NOT a a").await, Reply::Int(length as i64));
        assert_eq!(rig.line("GET a").await, bulk(a.iter().map(|b| !b).collect::<Vec<_>>()));
    }
    rig.line("SET to v EX 100").await;
    assert_eq!(rig.line("BITOP OR to a b").await, Reply::Int(a_length(&mut rig).await));
    assert_eq!(rig.line("TTL to").await, Reply::Int(-1), "the expiry goes");
    assert_eq!(rig.line("BITOP OR to missing").await, Reply::Int(0));
    assert_eq!(rig.line("EXISTS to").await, Reply::Int(0), "without a byte there is no key");
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
        ("BITOP DIFF k k k", "ERR syntax error"),
        ("BITOP OR k k set", wrong),
        ("BITPOS k 2", "ERR The bit argument must be 1 or 0."),
        ("BITCOUNT k 0", "ERR syntax error"),
    ] {
        assert_eq!(error(&rig.line(line).await), want, "{line}");
        assert_eq!(rig.line("GET k").await, bulk("abc"), "{line}");
    }
}

/// What touches few bytes of a string reads few, however long it is.
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
    // All of it, in windows.
    assert_eq!(c.line("BITCOUNT k").int(), Some(3));
    assert_eq!(c.line("BITPOS k 1").int(), Some(LAST - 7));
    assert_eq!(c.line("BITOP OR copy k").int(), Some(1 << 29));
    assert_eq!(c.line("BITCOUNT copy").int(), Some(3));
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more are resident");
}
