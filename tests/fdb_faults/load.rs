//! The load: clients that send commands to any server, and record each command, its times and its reply.

use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const COUNTERS: usize = 3;
pub const LOGS: usize = 8;
pub const POOLS: usize = 3;
pub const BOXES: usize = 4;
pub const PAIRS: usize = 3;
pub const ONCES: usize = 2;
/// The length of every token, so that the reply to an APPEND tells its position.
pub const TOKEN: usize = 9;
/// Members that a client moves to and fro.
const OWN: usize = 8;
/// A command without a reply for this long hangs.
const HANGS: Duration = Duration::from_secs(40);

/// One command. The numbers select one of the keys of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// INCR.
    Incr(usize),
    /// APPEND of a token that no other client appends.
    Append(usize, String),
    /// SADD of members that no other client adds.
    Add(usize, Vec<String>),
    /// SPOP of this many.
    Pop(usize, usize),
    /// SADD of a member to home 0.
    Home(String),
    /// SMOVE of a client's own member to this home from the other.
    Move(usize, String),
    /// SET NX of a token that no other client stores.
    Put(usize, String),
    /// GETDEL.
    Take(usize),
    /// MULTI, INCR a, INCR b, APPEND log, EXEC.
    Exec(usize, String),
    /// INCR under an id, retried until it is answered.
    Once(usize, String),
    /// GET of a counter.
    Read(usize),
}

/// The names of the kinds, in the order of [`Op::kind`].
pub const KINDS: [&str; 11] =
    ["INCR", "APPEND", "SADD", "SPOP", "SADD home", "SMOVE", "SET NX", "GETDEL", "EXEC", "IDEMPOTENT", "GET"];

impl Op {
    pub fn kind(&self) -> usize {
        match self {
            Op::Incr(_) => 0,
            Op::Append(..) => 1,
            Op::Add(..) => 2,
            Op::Pop(..) => 3,
            Op::Home(_) => 4,
            Op::Move(..) => 5,
            Op::Put(..) => 6,
            Op::Take(_) => 7,
            Op::Exec(..) => 8,
            Op::Once(..) => 9,
            Op::Read(_) => 10,
        }
    }

    fn argv(&self) -> Vec<String> {
        let words = |line: String| line.split(' ').map(str::to_owned).collect();
        match self {
            Op::Incr(n) => words(format!("INCR count:{n}")),
            Op::Append(n, token) => words(format!("APPEND log:{n} {token}")),
            Op::Add(n, members) => words(format!("SADD pool:{n} {}", members.join(" "))),
            Op::Pop(n, 1) => words(format!("SPOP pool:{n}")),
            Op::Pop(n, count) => words(format!("SPOP pool:{n} {count}")),
            Op::Home(member) => words(format!("SADD home:0 {member}")),
            Op::Move(to, member) => words(format!("SMOVE home:{} home:{to} {member}", 1 - to)),
            Op::Put(n, token) => words(format!("SET box:{n} {token} NX")),
            Op::Take(n) => words(format!("GETDEL box:{n}")),
            Op::Exec(..) => words("EXEC".into()),
            Op::Once(n, id) => words(format!("IDEMPOTENT {id} INCR once:{n}")),
            Op::Read(n) => words(format!("GET count:{n}")),
        }
    }

    /// Sends the command and returns its reply; for a transaction, that of EXEC.
    fn run(&self, client: &mut Client) -> std::io::Result<Value> {
        if let Op::Exec(n, token) = self {
            for line in [
                "MULTI".into(),
                format!("INCR pair:{n}:a"),
                format!("INCR pair:{n}:b"),
                format!("APPEND pair:{n}:log {token}"),
            ] {
                client.send(&line.split(' ').collect::<Vec<_>>())?;
            }
            client.send(&["EXEC"])?;
            (0..4).try_for_each(|_| client.read().map(drop))?;
            return client.read().map(|r| r.value);
        }
        client.try_run(&self.argv()).map(|r| r.value)
    }
}

/// The outcome of a command as its client knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Applied.
    Done(Value),
    /// The error for an unknown result.
    Unknown,
    /// Another error: not applied, now or later.
    Refused(String),
}

impl Outcome {
    pub fn of(reply: Value) -> Self {
        let error = match &reply {
            Value::Error(line) => Some(line.as_slice()),
            // The error of a refused EXEC.
            Value::Array(items) => items.iter().find(|i| i.is_error()).and_then(Value::bytes),
            _ => None,
        };
        let Some(line) = error.map(|line| String::from_utf8_lossy(line).into_owned()) else {
            return Outcome::Done(reply);
        };
        if line.starts_with("ERR commit result unknown") { Outcome::Unknown } else { Outcome::Refused(line) }
    }
}

/// A command, its start and end, and its outcome.
#[derive(Debug, Clone)]
pub struct Event {
    pub op: Op,
    pub start: Duration,
    pub end: Duration,
    pub outcome: Outcome,
}

/// State shared by the clients.
pub struct Shared {
    pub ports: Vec<u16>,
    pub since: Instant,
    pub stop: AtomicBool,
    /// The time after `since`, in microseconds, of the last completed command, and the longest gap without
    /// one.
    last: AtomicU64,
    gap: AtomicU64,
}

impl Shared {
    pub fn new(ports: Vec<u16>) -> Self {
        let (stop, last, gap) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Shared { ports, since: Instant::now(), stop, last, gap }
    }
    /// The longest time in which no client completed a command.
    pub fn longest_gap(&self) -> Duration {
        Duration::from_micros(self.gap.load(Ordering::Relaxed))
    }
    fn done(&self) {
        let now = self.since.elapsed().as_micros() as u64;
        let before = self.last.fetch_max(now, Ordering::Relaxed);
        self.gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// One client: a connection to each server, and its own members with their homes.
pub struct Worker<'a> {
    shared: &'a Shared,
    number: usize,
    serial: usize,
    rng: Rng,
    clients: Vec<Client>,
    own: Vec<(String, usize)>,
    events: Vec<Event>,
}

impl<'a> Worker<'a> {
    pub fn new(shared: &'a Shared, number: usize, seed: u64) -> Self {
        let clients: Vec<Client> = shared.ports.iter().map(|p| Client::connect(*p).unwrap()).collect();
        clients.iter().for_each(|c| c.set_timeout(HANGS));
        let rng = Rng::new(seed.wrapping_add(number as u64));
        Worker { shared, number, serial: 0, rng, clients, own: Vec::new(), events: Vec::new() }
    }

    /// Sends commands until it is stopped; returns its events.
    pub fn run(mut self) -> Vec<Event> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let op = self.next();
            self.act(op);
        }
        self.events
    }

    fn token(&mut self) -> String {
        self.serial += 1;
        format!("{:02}-{:06}", self.number, self.serial)
    }

    fn next(&mut self) -> Op {
        if self.own.len() < OWN {
            let member = self.token();
            return Op::Home(member);
        }
        let token = self.token();
        let rng = &mut self.rng;
        match rng.below(13) {
            0 | 1 => Op::Incr(rng.below(COUNTERS)),
            2 | 3 => Op::Append(rng.below(LOGS), token),
            4 => {
                let (pool, count) = (rng.below(POOLS), 1 + rng.below(4));
                Op::Add(pool, (0..count).map(|n| format!("{token}-{n}")).collect())
            }
            5 | 6 => Op::Pop(rng.below(POOLS), 1 + rng.below(4) / 3),
            7 => {
                let (member, home) = &self.own[rng.below(self.own.len())];
                Op::Move(1 - home, member.clone())
            }
            8 => Op::Put(rng.below(BOXES), token),
            9 => Op::Take(rng.below(BOXES)),
            10 => Op::Exec(rng.below(PAIRS), token),
            11 => Op::Read(rng.below(COUNTERS)),
            _ => Op::Once(rng.below(ONCES), format!("id-of-a-client-{token}")),
        }
    }

    fn act(&mut self, op: Op) {
        let start = self.shared.since.elapsed();
        let outcome = loop {
            let outcome = self.ask(&op);
            if !matches!(op, Op::Once(..)) || matches!(outcome, Outcome::Done(_)) {
                break outcome;
            }
        };
        if matches!(outcome, Outcome::Done(_)) {
            self.shared.done();
        }
        match &op {
            Op::Home(member) if outcome == Outcome::Done(Value::Int(1)) => {
                self.own.push((member.clone(), 0));
            }
            Op::Move(to, member) if matches!(outcome, Outcome::Done(_)) => {
                self.own.iter_mut().filter(|(m, _)| m == member).for_each(|(_, home)| *home = *to);
            }
            // The verification finds out where the member is now.
            Op::Move(_, member) if outcome == Outcome::Unknown => self.own.retain(|(m, _)| m != member),
            _ => {}
        }
        self.events.push(Event { op, start, end: self.shared.since.elapsed(), outcome });
    }

    fn ask(&mut self, op: &Op) -> Outcome {
        let n = self.rng.below(self.clients.len());
        let reply = op.run(&mut self.clients[n]);
        Outcome::of(reply.unwrap_or_else(|e| panic!("client {}: {op:?} on server {n}: {e}", self.number)))
    }
}
