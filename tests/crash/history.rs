//! A history whose every prefix is known: step `n` is one MULTI that sets a counter to `n` and changes one
//! kind of value. The contents of a server after a crash are compared with the prefix that its counter names.

use crate::support::resp::{Client, Value, request};
use std::collections::{BTreeMap, BTreeSet};

const KINDS: usize = 6;
const BIGS: usize = 5;

/// The contents of the keys; sets as sorted members.
pub type State = BTreeMap<String, Vec<String>>;

/// The command of step `n`.
fn command(n: usize) -> Vec<String> {
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match n % KINDS {
        0 => words(format!("MSET g0 {n} g1 {n} g2 {n} g3 {n}")),
        1 => words(format!("SADD set m{n}")),
        2 => words(format!("APPEND log {n},")),
        3 => vec!["SET".into(), big(n / KINDS), format!("{n} ").repeat(6000)],
        4 => [
            words("SADD words".into()),
            (0..40).map(|j| format!("word:{n}:{j}:{}", "x".repeat(60))).collect(),
        ]
        .concat(),
        _ => words(format!("DEL {}", big(n / KINDS + 2))),
    }
}

fn big(n: usize) -> String {
    format!("big{}", n % BIGS)
}

/// The expected contents after `n` steps.
pub fn after(n: usize) -> State {
    let mut state = State::new();
    for step in 1..=n {
        let argv = command(step);
        match argv[0].as_str() {
            "MSET" => argv[1..]
                .chunks(2)
                .for_each(|pair| drop(state.insert(pair[0].clone(), vec![pair[1].clone()]))),
            "SADD" => state.entry(argv[1].clone()).or_default().extend(argv[2..].iter().cloned()),
            "APPEND" => {
                state.entry(argv[1].clone()).or_insert_with(|| vec![String::new()])[0].push_str(&argv[2])
            }
            "SET" => drop(state.insert(argv[1].clone(), vec![argv[2].clone()])),
            _ => drop(state.remove(&argv[1])),
        }
    }
    state.values_mut().for_each(|members| members.sort());
    state
}

/// Sends step `n`; returns whether it was acknowledged, or the error.
pub fn step(client: &mut Client, n: usize) -> Result<(), String> {
    let lines = [vec!["MULTI".to_owned()], vec!["INCR".into(), "n".into()], command(n), vec!["EXEC".into()]];
    let bytes: Vec<u8> = lines.iter().flat_map(|argv| request(argv)).collect();
    client.send_raw(&bytes).map_err(|e| e.to_string())?;
    let replies: Vec<Value> = (0..4)
        .map(|_| client.read().map(|r| r.value))
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    match &replies[3] {
        Value::Array(items) if items[0] == Value::Int(n as i64) && !items[1].is_error() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Runs steps `from..=to`, all acknowledged.
pub fn steps(client: &mut Client, from: usize, to: usize) {
    (from..=to).for_each(|n| step(client, n).unwrap_or_else(|e| panic!("step {n}: {e}")));
}

/// Reads the contents of a server: the number of steps and every key. The outer error is an error reply, or a
/// connection closed in the middle of a reply.
pub fn read(client: &mut Client) -> Result<(usize, State), String> {
    let n = match one(client, &["GET", "n"])? {
        Value::Nil(_) => 0,
        value => String::from_utf8_lossy(value.bytes().unwrap()).parse().unwrap(),
    };
    let mut state = State::new();
    for (key, found) in read_each(client) {
        state.extend(found?.map(|found| (key, found)));
    }
    Ok((n, state))
}

/// The contents of a key: nothing, its members, or an error.
pub type Found = Result<Option<Vec<String>>, String>;

/// Reads each key but the counter.
pub fn read_each(client: &mut Client) -> Vec<(String, Found)> {
    let mut found = Vec::new();
    for key in keys() {
        let value = match key.as_str() {
            "set" | "words" => one(client, &["SMEMBERS", &key]).map(|value| members(&value)),
            _ => one(client, &["GET", &key])
                .map(|value| value.bytes().map(|b| vec![String::from_utf8_lossy(b).into_owned()])),
        };
        found.push((key, value));
    }
    found
}

/// All keys but the counter.
fn keys() -> BTreeSet<String> {
    let names = ["set", "words", "log", "g0", "g1", "g2", "g3"].map(str::to_owned);
    names.into_iter().chain((0..BIGS).map(big)).collect()
}

fn members(value: &Value) -> Option<Vec<String>> {
    let items = value.items().unwrap().iter();
    let mut members: Vec<String> =
        items.map(|m| String::from_utf8_lossy(m.bytes().unwrap()).into_owned()).collect();
    members.sort();
    (!members.is_empty()).then_some(members)
}

fn one(client: &mut Client, argv: &[&str]) -> Result<Value, String> {
    match client.try_run(argv) {
        Ok(reply) if reply.value.is_error() => Err(format!("{:?}", reply.value)),
        Ok(reply) => Ok(reply.value),
        Err(e) => Err(format!("{}: {e}", argv.join(" "))),
    }
}

/// Fails unless a server holds exactly a prefix of the history, of `at_least` to `at_most` steps.
pub fn check(found: &(usize, State), at_least: usize, at_most: usize) -> Result<(), String> {
    let (n, state) = found;
    if !(at_least..=at_most).contains(n) {
        return Err(format!("{n} steps are stored, expected {at_least} to {at_most}"));
    }
    let wanted = after(*n);
    let differs = wanted.keys().chain(state.keys()).find(|key| wanted.get(*key) != state.get(*key));
    differs.map_or(Ok(()), |key| Err(format!("{key} differs from its value after {n} steps")))
}

#[test]
fn a_lost_or_half_applied_step_is_noticed() {
    assert_eq!(check(&(40, after(40)), 40, 60), Ok(()));
    assert!(check(&(39, after(39)), 40, 60).is_err(), "a lost acknowledged step");
    assert!(check(&(40, after(39)), 30, 60).is_err(), "half of a step");
    let mut twice = after(40);
    twice.get_mut("log").unwrap()[0].push_str("38,");
    assert!(check(&(40, twice), 30, 60).is_err());
}
