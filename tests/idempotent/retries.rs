//! Hazard: a client loses its connection between commit and reply, retries elsewhere, and the command runs
//! twice.
//!
//! Clients send INCR, SPOP and EXEC, each under a new id, and often hang up without reading; then they retry
//! on another server until they are answered. The stores below the servers answer `Unknown` for commits that
//! were applied, were not, or are applied later. In the end every INCR must have returned a number of its
//! own, every SPOP a member of its own, and every EXEC must have had one effect.

use crate::support::resp::{Client, Value, request};
use crate::support::rng::Rng;
use crate::support::server::{assert_sound, tern_in};
use crate::support::{env_number, say};
use crate::world::World;
use std::collections::BTreeSet;
use std::time::Duration;
use tern::store::faulty::FaultRates;

const CLIENTS: usize = 8;
const ROUNDS: usize = 60;
const OPERATIONS: usize = CLIENTS * ROUNDS;

/// The final answers of one client.
#[derive(Default)]
struct Answers {
    numbers: Vec<i64>,
    members: Vec<Vec<u8>>,
    pairs: Vec<(i64, Vec<u8>)>,
}

/// Sends `raw`, whose reply is the last of `replies`, until it is answered. Hangs up early more often than
/// not.
fn insist(world: &World, rng: &mut Rng, raw: &[u8], replies: usize) -> Value {
    for _ in 0..200 {
        let Ok(mut client) = world.try_client(rng.below(2)) else { continue };
        client.set_timeout(Duration::from_secs(20));
        client.send_raw(raw).unwrap();
        if rng.below(3) > 0 {
            // From before the request is read to after the reply has arrived.
            std::thread::sleep(Duration::from_micros(rng.below(3000) as u64));
            continue;
        }
        let answer = (0..replies).map(|_| client.read().unwrap().value).last().unwrap();
        if !answer.is_error() {
            return answer;
        }
        let text = String::from_utf8_lossy(answer.bytes().unwrap()).into_owned();
        assert!(text.contains("unknown") || text.contains("conflict"), "{text}");
    }
    panic!("no answer");
}

fn one_client(world: &World, n: usize, seed: u64, with_ids: bool) -> Answers {
    let mut rng = Rng::new(seed);
    let mut answers = Answers::default();
    let line = |kind: &str, round: usize, words: &[&str]| {
        let id = format!("{kind}:client-{n}:round-{round}");
        let prefix: &[&str] = if with_ids { &["IDEMPOTENT", &id] } else { &[] };
        request(&[prefix, words].concat())
    };
    for round in 0..ROUNDS {
        let number = insist(world, &mut rng, &line("incr", round, &["INCR", "counter"]), 1);
        answers.numbers.push(number.int().unwrap());
        let member = insist(world, &mut rng, &line("spop", round, &["SPOP", "set"]), 1);
        answers.members.extend(member.bytes().map(<[u8]>::to_vec));
        let mut raw = request(&["MULTI"]);
        raw.extend(request(&["INCR", "pairs"]));
        raw.extend(request(&["SPOP", "other"]));
        raw.extend(line("exec", round, &["EXEC"]));
        let pair = insist(world, &mut rng, &raw, 4);
        let items = pair.items().unwrap();
        answers.pairs.push((items[0].int().unwrap(), items[1].bytes().unwrap_or_default().to_vec()));
    }
    answers
}

/// Fills the sets, runs the clients, and stops the faults.
fn run(with_ids: bool) -> (World, Vec<Answers>) {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("retries: TERN_SEED={seed}"));
    let world = World::with_faults(2, seed);
    let members = |name: &str| -> Vec<String> {
        let all = (0..OPERATIONS * 20).map(|n| format!("m{n}"));
        ["SADD".to_owned(), name.to_owned()].into_iter().chain(all).collect()
    };
    world.client(0).run(&members("set"));
    world.client(0).run(&members("other"));
    world.set_faults(FaultRates::mixed());
    let mut rng = Rng::new(seed);
    let answers = std::thread::scope(|scope| {
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.next()).collect();
        let world = &world;
        let clients = seeds.into_iter().enumerate();
        let clients: Vec<_> =
            clients.map(|(n, seed)| scope.spawn(move || one_client(world, n, seed, with_ids))).collect();
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    world.set_faults(FaultRates::default());
    (world, answers)
}

fn number(world: &World, line: &str) -> i64 {
    let value = world.line(0, line);
    value.int().unwrap_or_else(|| String::from_utf8_lossy(value.bytes().unwrap()).parse().unwrap())
}

#[test]
fn no_command_runs_twice() {
    let (world, answers) = run(true);
    let all = OPERATIONS as i64;
    let numbers: BTreeSet<i64> = answers.iter().flat_map(|t| t.numbers.clone()).collect();
    assert_eq!(numbers, (1..=all).collect(), "each INCR must return a number of its own");
    assert_eq!(number(&world, "GET counter"), all);
    let members: BTreeSet<Vec<u8>> = answers.iter().flat_map(|t| t.members.clone()).collect();
    assert_eq!(members.len(), OPERATIONS, "each SPOP must return a member of its own");
    assert_eq!(number(&world, "SCARD set"), all * 19);
    let pairs: Vec<_> = answers.iter().flat_map(|t| t.pairs.clone()).collect();
    assert_eq!(pairs.iter().map(|p| p.0).collect::<BTreeSet<_>>(), (1..=all).collect());
    assert_eq!(pairs.iter().map(|p| &p.1).collect::<BTreeSet<_>>().len(), OPERATIONS);
    assert_eq!(number(&world, "GET pairs"), all);
    assert_eq!(number(&world, "SCARD other"), all * 19);
    let (repeats, unknown) = (world.repeats(), world.unknown());
    say(&format!("retries: {} operations, {repeats} answered again, {unknown} unknown commits", 3 * all));
    assert!(repeats as i64 > all / 2 && unknown > 0, "the test needs more retries and faults");
    world.assert_sound();
}

#[test]
fn without_ids_commands_run_twice() {
    let (world, _) = run(false);
    assert!(number(&world, "GET counter") > OPERATIONS as i64, "without ids some command must run twice");
    world.assert_sound();
}

#[test]
fn a_server_that_is_killed_between_commit_and_reply() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let mut rng = Rng::new(env_number("TERN_SEED").unwrap_or_else(Rng::any_seed));
    let (rounds, ids) = (4, 200);
    let line = |round: usize, n: usize| {
        request(&["IDEMPOTENT", &format!("round-{round}:request-{n}"), "INCR", "counter"])
    };
    for round in 0..rounds {
        let mut server = tern_in(&dir, &["--appendfsync", "always"]);
        let mut client = server.client();
        let sender = std::thread::spawn(move || {
            // Until the connection breaks.
            (0..ids).all(|n| client.send_raw(&line(round, n)).is_ok());
            client
        });
        std::thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        server.kill();
        drop(sender.join());
        let server = tern_in(&dir, &[]);
        let mut client: Client = server.client();
        let answers: BTreeSet<i64> = (0..ids)
            .map(|n| {
                client.send_raw(&line(round, n)).unwrap();
                client.read().unwrap().value.int().unwrap()
            })
            .collect();
        let first = (round * ids) as i64 + 1;
        assert_eq!(answers, (first..first + ids as i64).collect(), "round {round}");
        drop((client, server));
        assert_sound(&dir, &[]);
    }
}
