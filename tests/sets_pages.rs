//! Hazard: a set is read in pages of 256 KiB, and a reader of only the first one sees a set that looks whole.
//! Draws, combinations and listings of sets of several pages are compared with a model.
//!
//! Integers 2^33 apart make large sets of few members: each is a container of its own, 22 bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use support::resp::{Client, Value};
use support::server::tern;
use tern::types::set::rows::PAGE;

const STEP: i64 = 1 << 33;
/// Bytes of such a member in its chunk.
const BYTES: usize = 22;
const MEMBERS: i64 = 40_000;

type Model = BTreeSet<i64>;

/// The numbers of members.
fn numbers(reply: &Value) -> Vec<i64> {
    let number = |member: &Value| std::str::from_utf8(member.bytes()?).ok()?.parse::<i64>().ok();
    let all = reply.items().unwrap_or_else(|| panic!("{reply:?}"));
    all.iter().map(|member| number(member).unwrap()).collect()
}

fn words(key: &str, members: &Model) -> Vec<String> {
    ["SADD".to_owned(), key.to_owned()].into_iter().chain(members.iter().map(i64::to_string)).collect()
}

fn add(client: &mut Client, key: &str, members: &Model) {
    assert_eq!(client.run(&words(key, members)).value.int(), Some(members.len() as i64));
}

fn far(numbers: impl Iterator<Item = i64>) -> Model {
    numbers.map(|n| n * STEP).collect()
}

fn listed(client: &mut Client, key: &str) -> Model {
    numbers(&client.line(&format!("SMEMBERS {key}"))).into_iter().collect()
}

/// Each quarter of the set must yield at least half of its expected draws.
fn assert_from_everywhere(drawn: &[i64], line: &str) {
    for quarter in 0..4 {
        let within = quarter * MEMBERS / 4 * STEP..(quarter + 1) * MEMBERS / 4 * STEP;
        let n = drawn.iter().filter(|n| within.contains(n)).count();
        assert!(n >= drawn.len() / 8, "{line}: {n} of {} from quarter {quarter}", drawn.len());
    }
}

#[test]
fn draws_come_from_all_pages() {
    assert!(MEMBERS as usize * BYTES > 3 * PAGE, "the set must have several pages");
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let all = far(0..MEMBERS);
    for (line, count) in [
        ("SRANDMEMBER s 12000", 12_000),
        ("SRANDMEMBER s -30000", 30_000),
        ("SRANDMEMBER s 1000", 1000),
        ("SRANDMEMBER s 40000", 40_000),
        ("SPOP s 1000", 1000),
        ("SPOP s 12000", 12_000),
        ("SPOP s 39999", 39_999),
        ("SPOP s 40000", 40_000),
        ("SPOP s 50000", 40_000),
    ] {
        client.line("DEL s");
        add(&mut client, "s", &all);
        let drawn = numbers(&client.line(line));
        let distinct: Model = drawn.iter().copied().collect();
        assert_eq!(drawn.len(), count, "{line}");
        assert!(distinct.is_subset(&all) && (distinct.len() == count || line.contains('-')), "{line}");
        assert_from_everywhere(&drawn, line);
        let gone = if line.starts_with("SPOP") { distinct } else { Model::new() };
        let left: Model = all.difference(&gone).copied().collect();
        assert!(listed(&mut client, "s") == left, "{line}: exactly the members not returned must stay");
        assert_eq!(client.line("SCARD s"), Value::Int(left.len() as i64), "{line}");
    }
}

#[test]
fn combinations_read_all_pages() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let sets = [
        far(0..MEMBERS),
        far((0..MEMBERS).filter(|n| n % 2 == 0).chain(MEMBERS..MEMBERS + 20_000)),
        far((0..2 * MEMBERS).filter(|n| n % 3 != 0)),
    ];
    let [a, b, c] = &sets;
    for (key, set) in ["a", "b", "c"].iter().zip(&sets) {
        assert!(set.len() * BYTES > 3 * PAGE, "{key} must have many pages");
        add(&mut client, key, set);
    }
    let all = |f: fn(&Model, &Model) -> Model| [f(a, b), f(&f(a, b), c)];
    let (inter, union, diff) = (all(|a, b| a & b), all(|a, b| a | b), all(|a, b| a - b));
    for (name, want) in [("SINTER", inter), ("SUNION", union), ("SDIFF", diff)] {
        for (keys, want) in ["a b", "a b c"].iter().zip(want) {
            let found: Model = numbers(&client.line(&format!("{name} {keys}"))).into_iter().collect();
            assert!(found == want, "{name} {keys}: {} members of {}", found.len(), want.len());
            let stored = client.line(&format!("{name}STORE d {keys}"));
            assert_eq!(stored, Value::Int(want.len() as i64), "{name}STORE d {keys}");
            assert!(listed(&mut client, "d") == want, "{name}STORE d {keys}");
        }
    }
    client.line("COPY c e");
    assert!(listed(&mut client, "e") == *c, "COPY");
    let sorted = numbers(&client.line("SORT c"));
    assert!(sorted.iter().eq(c.iter()), "SORT");
}

/// A sparse set beside one that has many pages where the first has one.
#[test]
fn one_sets_page_may_span_many_of_another() {
    let server = tern(&["--appendfsync", "no"]);
    let mut client = server.client();
    let sparse = far((0..10_000).map(|n| n * 8));
    let dense = far((0..80_000).filter(|n| n % 16 != 8));
    add(&mut client, "sparse", &sparse);
    add(&mut client, "dense", &dense);
    for (line, want) in [
        ("SINTER sparse dense", &sparse & &dense),
        ("SDIFF sparse dense", &sparse - &dense),
        ("SDIFF dense sparse", &dense - &sparse),
    ] {
        let found: Model = numbers(&client.line(line)).into_iter().collect();
        assert!(found == want, "{line}: {} members of {}", found.len(), want.len());
    }
}
