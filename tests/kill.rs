//! Clients write, the process is killed with SIGKILL at a random moment and restarted on the same directory.
//! Acknowledged writes are there; an unacknowledged one is there as a whole or not at all, and never twice;
//! and `tern check` finds the store sound after every round, which ends with one more kill.
//!
//! Each worker owns its keys and sends one line (or one MULTI) at a time, so it knows its acknowledged writes
//! and the one that was under way when the server died: at most one operation. `TERN_KILL_ROUNDS` sets the
//! number of rounds, `TERN_SEED` repeats a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::resp::{Client, Value};
use support::rng::Rng;
use support::server::{assert_sound, tern_in};
use support::{env_number, say};

const WORKERS: usize = 12;
const ROUNDS: u64 = 5;
/// Keys that an MSET of a worker writes together, always with one value.
const GROUP: usize = 4;

/// The expected contents of one worker's keys. `None` in a pair's second half: nothing is under way.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    counter: i64,
    group: i64,
    members: BTreeSet<String>,
    log: String,
    pair: i64,
}

/// One operation on a model.
#[derive(Clone, Debug)]
enum Op {
    /// INCR.
    Count,
    /// MSET of the whole group to one number.
    Group(i64),
    /// SADD of several members.
    Add(Vec<String>),
    /// SREM of several members.
    Remove(Vec<String>),
    /// SPOP: only the reply reveals the member.
    Pop,
    /// APPEND.
    Append(String),
    /// MULTI, INCR of two counters, EXEC.
    Pair,
}

fn random_op(rng: &mut Rng, model: &Model, serial: i64) -> Op {
    let names = |rng: &mut Rng| (0..1 + rng.below(5)).map(|_| format!("m{}", rng.below(300))).collect();
    match rng.below(10) {
        0 | 1 => Op::Count,
        2 | 3 => Op::Group(serial),
        4 | 5 => Op::Add(names(rng)),
        6 => Op::Remove(names(rng)),
        7 if !model.members.is_empty() => Op::Pop,
        8 => Op::Append(format!("{serial},")),
        _ => Op::Pair,
    }
}

impl Op {
    fn apply(&self, model: &mut Model, popped: Option<&str>) {
        match self {
            Op::Count => model.counter += 1,
            Op::Group(n) => model.group = *n,
            Op::Add(names) => model.members.extend(names.iter().cloned()),
            Op::Remove(names) => model.members.retain(|m| !names.contains(m)),
            Op::Pop => model.members.retain(|m| Some(m.as_str()) != popped),
            Op::Append(text) => model.log.push_str(text),
            Op::Pair => model.pair += 1,
        }
    }

    /// Sends the operation and waits for the acknowledgement; returns the popped member.
    fn send(&self, client: &mut Client, worker: usize) -> std::io::Result<Option<String>> {
        let key = |name: &str| format!("w{worker}:{name}");
        let value = match self {
            Op::Count => client.try_run(&["INCR", &key("counter")])?.value,
            Op::Group(n) => {
                let pairs = (0..GROUP).flat_map(|i| [key(&format!("group{i}")), n.to_string()]);
                client.try_run(&std::iter::once("MSET".to_owned()).chain(pairs).collect::<Vec<_>>())?.value
            }
            Op::Add(names) => {
                client.try_run(&[&["SADD".to_owned(), key("set")], names.as_slice()].concat())?.value
            }
            Op::Remove(names) => {
                client.try_run(&[&["SREM".to_owned(), key("set")], names.as_slice()].concat())?.value
            }
            Op::Pop => client.try_run(&["SPOP", &key("set")])?.value,
            Op::Append(text) => client.try_run(&["APPEND", &key("log"), text])?.value,
            Op::Pair => {
                for line in [
                    vec!["MULTI".to_owned()],
                    vec!["INCR".into(), key("left")],
                    vec!["INCR".into(), key("right")],
                ] {
                    client.send(&line)?;
                }
                client.send(&["EXEC"])?;
                (0..3).try_for_each(|_| client.read().map(drop))?;
                client.read()?.value
            }
        };
        assert!(!value.is_error() && !matches!(value, Value::Nil(_)), "{self:?}: {value:?}");
        Ok(value.bytes().map(|b| String::from_utf8_lossy(b).into_owned()))
    }
}

/// The server's contents for a worker; fails if a group or a pair is torn.
fn load(client: &mut Client, worker: usize) -> Model {
    let key = |name: &str| format!("w{worker}:{name}");
    let mut number = |name: &str| match client.run(&["GET", &key(name)]).value {
        Value::Nil(_) => 0,
        value => std::str::from_utf8(value.bytes().unwrap()).unwrap().parse::<i64>().unwrap(),
    };
    let group: Vec<i64> = (0..GROUP).map(|i| number(&format!("group{i}"))).collect();
    assert!(group.iter().all(|n| *n == group[0]), "worker {worker}: MSET applied in part: {group:?}");
    let (counter, left, right) = (number("counter"), number("left"), number("right"));
    assert_eq!(left, right, "worker {worker}: EXEC applied in part");
    let members = client.run(&["SMEMBERS", &key("set")]).value;
    let members: BTreeSet<String> = members
        .items()
        .unwrap()
        .iter()
        .map(|m| String::from_utf8_lossy(m.bytes().unwrap()).into_owned())
        .collect();
    let count = client.run(&["SCARD", &key("set")]).value;
    assert_eq!(count, Value::Int(members.len() as i64), "worker {worker}: SCARD");
    let log = client.run(&["GET", &key("log")]).value;
    let log = log.bytes().map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    Model { counter, group: group[0], members, log, pair: left }
}

/// Whether `found` equals `sure`, or that plus the operation under way.
fn explains(sure: &Model, under_way: Option<&Op>, found: &Model) -> bool {
    if sure == found {
        return true;
    }
    match under_way {
        None => false,
        Some(Op::Pop) => {
            let gone: Vec<&String> = sure.members.difference(&found.members).collect();
            let rest = Model { members: sure.members.clone(), ..found.clone() };
            gone.len() == 1 && found.members.is_subset(&sure.members) && rest == *sure
        }
        Some(op) => {
            let mut with = sure.clone();
            op.apply(&mut with, None);
            with == *found
        }
    }
}

/// Works until the connection breaks; returns the operation then under way.
fn work(
    port: u16,
    worker: usize,
    model: &mut Model,
    rng: &mut Rng,
    done: &AtomicUsize,
    stop: &AtomicBool,
) -> Option<Op> {
    let mut client = Client::connect(port).ok()?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let serial = (rng.next() >> 20) as i64 + 1;
        let op = random_op(rng, model, serial);
        match op.send(&mut client, worker) {
            Ok(popped) => op.apply(model, popped.as_deref()),
            Err(_) => return Some(op),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sigkill_loses_no_acknowledged_write_and_tears_none() {
    let rounds = env_number("TERN_KILL_ROUNDS").unwrap_or(ROUNDS);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("kill: TERN_SEED={seed}, {rounds} rounds"));
    let mut rng = Rng::new(seed);
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut models = vec![Model::default(); WORKERS];
    let (mut operations, mut kept) = (0, 0);
    for round in 0..rounds {
        let mut server = tern_in(&dir, &["--appendfsync", "always"]);
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let pause = Duration::from_millis(20 + rng.below(400) as u64);
        let port = server.port;
        let under_way: Vec<Option<Op>> = std::thread::scope(|scope| {
            let workers: Vec<_> = models
                .iter_mut()
                .enumerate()
                .map(|(i, model)| {
                    let (mut rng, done, stop) = (Rng::new(rng.next()), &done, &stop);
                    scope.spawn(move || work(port, i, model, &mut rng, done, stop))
                })
                .collect();
            std::thread::sleep(pause);
            server.kill();
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        operations += done.load(Ordering::Relaxed);
        let server = tern_in(&dir, &["--appendfsync", "always"]);
        let mut client = server.client();
        for (i, (model, under_way)) in models.iter_mut().zip(&under_way).enumerate() {
            let found = load(&mut client, i);
            let good = explains(model, under_way.as_ref(), &found);
            assert!(
                good,
                "round {round}, worker {i}, under way {under_way:?}\nknown {model:?}\nfound {found:?}"
            );
            kept += usize::from(found != *model);
            *model = found;
        }
        drop(server);
        assert_sound(&dir, &[]);
    }
    say(&format!("kill: {operations} acknowledged operations, {kept} unacknowledged ones found whole"));
    assert!(operations > rounds as usize * 10, "only {operations} operations: too few to prove anything");
}

#[test]
fn lost_doubled_and_half_applied_operations_are_noticed() {
    let mut sure = Model { counter: 5, ..Model::default() };
    sure.members.extend(["a".to_owned(), "b".to_owned()]);
    let twice = Model { counter: 7, ..sure.clone() };
    assert!(!explains(&sure, Some(&Op::Count), &twice), "INCR applied twice");
    let lost = Model { counter: 4, ..sure.clone() };
    assert!(!explains(&sure, Some(&Op::Count), &lost), "an acknowledged INCR is missing");
    let once = Model { counter: 6, ..sure.clone() };
    assert!(explains(&sure, Some(&Op::Count), &once) && !explains(&sure, None, &once));
    let popped = Model { members: ["a".to_owned()].into(), ..sure.clone() };
    assert!(explains(&sure, Some(&Op::Pop), &popped) && !explains(&sure, None, &popped));
    let half = Model { members: ["a", "b", "c"].map(str::to_owned).into(), ..sure.clone() };
    assert!(!explains(&sure, Some(&Op::Add(vec!["c".into(), "d".into()])), &half), "SADD applied in part");
}
