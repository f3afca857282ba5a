//! Every command and subcommand that both servers have, with wrong arguments: too few, too many, a wrong
//! subcommand, bad numbers, misplaced options. If one of the two replies with an error, the other must reply
//! with the same line.

use crate::differences::{Comparison, compare};
use crate::generate::Argv;
use crate::run::show;
use crate::support::resp::{Client, Reply, Value, request, text};
use crate::support::rng::Rng;
use crate::support::server::{Server, redis, tern};
use crate::support::{env_number, say};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tern::commands::binding::Run;
use tern::commands::registry::{run_of, table};
use tern::spec::{Entry, Form};

/// Random lines per command; the default of `TERN_WRONG_LINES`.
const LINES: u64 = 20;
/// The seed of the lines; the default of `TERN_SEED`.
const SEED: u64 = 1;

/// For how long a line may block, and a reply may be missing altogether.
const BLOCKED: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// The state before each line: recreated after a line that may have changed it.
const STATE: &[&str] = &[
    "RESET",
    "FLUSHALL",
    "SET s hello",
    "SET n 1",
    "SADD set a b 1",
    "HSET hash s 1 n x",
    "ZADD zset 1 s 2 n",
    "XADD stream 1-1 s 1",
    "XGROUP CREATE stream n 0",
];

/// Arguments of any command. `s`, `n`, `set`, `hash`, `zset` and `stream` are keys; Redis prints text up to its first NUL.
const WORDS: &[&str] = &[
    "s",
    "n",
    "set",
    "hash",
    "zset",
    "stream",
    "x",
    "",
    "0",
    "1",
    "-1",
    "2",
    "1.5",
    "9223372036854775808",
    "nan",
    "*",
    "a b",
    "x\0y",
];

/// Commands that get only a wrong number of arguments, because of their effect on the oracle or on their
/// connection.
const HARMFUL: &[&str] = &[
    "bgrewriteaof",
    "bgsave",
    "client|reply",
    "debug",
    "failover",
    "migrate",
    "module|load",
    "module|loadex",
    "monitor",
    "pfselftest",
    "psubscribe",
    "psync",
    "punsubscribe",
    "quit",
    "replconf",
    "replicaof",
    "save",
    "shutdown",
    "slaveof",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "sync",
    "unsubscribe",
    "wait",
];

/// Harmless lines of such commands, and some that no row covers.
const CHOSEN: &[&str] = &[
    "CLIENT REPLY x",
    "CLIENT REPLY 1",
    "REPLICAOF a b",
    "REPLICAOF no two",
    "REPLICAOF a 65536",
    "REPLICAOF a -1",
    "SLAVEOF a b",
    "SHUTDOWN x",
    "SHUTDOWN SAVE NOSAVE",
    "SHUTDOWN ABORT NOW",
    "SHUTDOWN ABORT",
    "WAIT x 0",
    "WAIT 0 x",
    "WAIT 0 -1",
    "WAIT 1.5 1",
    "LOLWUT VERSION",
    "LOLWUT VERSION x",
    "LOLWUT VERSION 5 x",
    "LOLWUT VERSION 5 1 1 x",
    "LOLWUT VERSION 5 1 1 1 x",
    "LOLWUT VERSION 6 1 x",
    "LOLWUT VERSION 6 1 1 x",
    "LOLWUT VERSION 7 x",
    "LOLWUT x",
    "SET s v IFDEQ x",
    "SET s v IFNE x",
    "CLIENT KILL MAXAGE 0",
    "CLIENT KILL MAXAGE x",
    "SORT set STORE d",
    "ACL cat a b",
    "acl Log a b",
    "acl GenPass 1 2",
    "function flush a b",
    "slowlog get 1 2",
    "pubsub channels a b",
    "client pause 1 2 3",
    "Client unblock 1 2 3",
    "FUNCTION LIST LIBRARYNAME",
    "FUNCTION LIST LIBRARYNAME a LIBRARYNAME b",
    "FUNCTION LIST WITHCODE WITHCODE",
    "NOSUCH",
    "NOSUCH a b",
];

/// An error that differs on purpose.
struct Excuse {
    /// The row's label, or its prefix before a star.
    label: &'static str,
    why: &'static str,
    /// Whether these two errors, or "answers", are an example of it: the line's, Redis', ours.
    applies: fn(&Argv, &str, &str) -> bool,
}

const EXCUSES: &[Excuse] = &[
    Excuse {
        label: "command|getkeys*",
        why: "COMMAND GETKEYS of a command without arguments is one since 7.2",
        applies: |_, redis, tern| {
            redis.starts_with("ERR wrong number of arguments") && tern.starts_with("ERR Invalid ")
        },
    },
    Excuse {
        label: "set",
        why: "SET has had IFEQ, IFNE, IFDEQ and IFDNE since 8.4",
        applies: |argv, redis, tern| {
            redis == "ERR syntax error"
                && (tern.starts_with("ERR must be exactly 16 ")
                    || compares(argv) && (tern == "answers" || tern.starts_with("WRONGTYPE")))
        },
    },
    Excuse {
        label: "bitop",
        why: "BITOP has had DIFF, DIFF1, ANDOR and ONE since 8.2",
        applies: |argv, redis, _| {
            redis == "ERR syntax error"
                && ["DIFF", "DIFF1", "ANDOR", "ONE"]
                    .iter()
                    .any(|op| argv[1].eq_ignore_ascii_case(op.as_bytes()))
        },
    },
    Excuse {
        label: "b*",
        why: "a timeout that is too long is no longer called negative since 7.2",
        applies: |_, redis, tern| redis == "ERR timeout is negative" && tern == "ERR timeout is out of range",
    },
    Excuse {
        label: "z*",
        why: "ZRANK and ZREVRANK have had WITHSCORE since 7.2",
        applies: |argv, redis, _| argv.len() > 3 && redis.starts_with("ERR wrong number of arguments for"),
    },
    Excuse {
        label: "xadd",
        why: "XADD has had KEEPREF, DELREF and ACKED since 8.2",
        applies: |argv, redis, _| redis.starts_with("ERR Invalid stream ID") && has_policy(argv),
    },
    Excuse {
        label: "xtrim",
        why: "XTRIM has had KEEPREF, DELREF and ACKED since 8.2",
        applies: |argv, redis, _| redis == "ERR syntax error" && has_policy(argv),
    },
    Excuse {
        label: "xreadgroup",
        why: "XREADGROUP has had CLAIM since 8.4",
        applies: |argv, redis, _| {
            redis == "ERR syntax error" && argv.iter().any(|word| word.eq_ignore_ascii_case(b"CLAIM"))
        },
    },
    Excuse {
        label: "client*",
        why: "CLIENT KILL has had MAXAGE since 7.4",
        applies: |_, redis, tern| redis == "ERR syntax error" && tern.starts_with("ERR maxage "),
    },
];

/// Whether XADD or XTRIM say what becomes of references.
fn has_policy(argv: &Argv) -> bool {
    let policies = ["KEEPREF", "DELREF", "ACKED"];
    argv.iter().any(|word| policies.iter().any(|policy| word.eq_ignore_ascii_case(policy.as_bytes())))
}

/// Whether a SET compares with the stored value.
fn compares(argv: &Argv) -> bool {
    let options = argv.get(3..).unwrap_or_default();
    let conditions = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];
    options.iter().any(|word| conditions.iter().any(|c| word.eq_ignore_ascii_case(c.as_bytes())))
}

/// After this many clients no number of [`WORDS`] is a client's id: each server counts from elsewhere.
const CLIENTS: i64 = 10;

/// A client whose id is none of [`WORDS`], and that id.
fn client(server: &Server) -> (Client, i64) {
    loop {
        let mut client = server.client();
        match client.run(&["CLIENT", "ID"]).value.int() {
            Some(id) if id > CLIENTS => return (client, id),
            _ => {}
        }
    }
}

/// All lines, with the labels of their rows.
fn lines() -> Vec<(String, Argv)> {
    let (seed, count) =
        (env_number("TERN_SEED").unwrap_or(SEED), env_number("TERN_WRONG_LINES").unwrap_or(LINES));
    let mut out = Vec::new();
    for (n, (label, row)) in table().all().map(|row| (row.label.clone(), row)).enumerate() {
        // Half of them are in lower case: some errors repeat names as given.
        let upper = n.is_multiple_of(2);
        let name = |name: &str| if upper { name.to_uppercase() } else { name.to_lowercase() }.into_bytes();
        let names: Argv = label.split('|').map(name).collect();
        let least = row.arity.unsigned_abs() as usize;
        let mut add = |rest: Vec<&str>| {
            let line = names.iter().cloned().chain(rest.into_iter().map(|word| word.as_bytes().to_vec()));
            out.push((label.clone(), line.collect::<Argv>()));
        };
        let harmful = HARMFUL.contains(&label.as_str());
        let may = |argc: usize| !harmful || !row.accepts(argc);
        for word in ["x", "1", "-1", "s"] {
            let counts = 0..=least + 2;
            counts.filter(|n| may(names.len() + n)).for_each(|n| add(vec![word; n]));
        }
        if harmful || row.form == Form::Container {
            continue;
        }
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(n as u64));
        let options: Vec<&str> = options(row.syntax);
        for _ in 0..count {
            let length = (least + rng.below(5)).saturating_sub(names.len() + 1);
            add((0..length).map(|_| word(&mut rng, &options)).collect());
        }
    }
    let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let label = |line: &&str| line.split(' ').next().unwrap_or_default().to_lowercase();
    out.extend(CHOSEN.iter().map(|line| (label(line), words(line))));
    out
}

fn word<'a>(rng: &mut Rng, options: &[&'a str]) -> &'a str {
    if !options.is_empty() && rng.one_in(2) { rng.pick(options) } else { rng.pick(WORDS) }
}

/// The literal words of a syntax.
fn options(syntax: &'static str) -> Vec<&'static str> {
    let words = syntax.split([' ', '[', ']', '<', '>', '|']);
    words.filter(|w| w.len() > 1 && w.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')).collect()
}

/// A server, the client that is asked, its id, and one that unblocks it.
struct Side<'a> {
    server: &'a Server,
    client: Client,
    id: i64,
    other: Client,
}

impl<'a> Side<'a> {
    fn new(server: &'a Server) -> Side<'a> {
        let (client, id) = client(server);
        Side { server, client, id, other: server.client() }
    }

    /// The reply to `argv` after `state`; None: the server closed the connection, and the client is a new one.
    fn ask(&mut self, state: &[&str], argv: &Argv) -> Option<Reply> {
        let mut bytes: Vec<u8> =
            state.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
        bytes.extend(request(argv));
        let mut reply = self.client.send_raw(&bytes).map_err(|_| ());
        let mut got = None;
        for _ in 0..=state.len() {
            reply = reply.and_then(|()| self.read().map(|r| got = Some(r)));
        }
        if reply.is_err() {
            (self.client, self.id) = client(self.server);
            return None;
        }
        got
    }

    /// The next reply. A call that waits for longer than [`BLOCKED`] is told to stop.
    fn read(&mut self) -> Result<Reply, ()> {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        self.client.set_timeout(BLOCKED);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.client.read() {
                Ok(reply) => return Ok(reply),
                Err(e) if matches!(e.kind(), TimedOut | WouldBlock) && Instant::now() < until => {
                    self.other.run(&["CLIENT", "UNBLOCK", &self.id.to_string()]);
                }
                Err(_) => return Err(()),
            }
        }
    }
}

fn refusal(row: Option<&Entry>) -> Option<&'static str> {
    match run_of(row?) {
        Run::Refuse(line) => Some(line),
        _ => None,
    }
}

/// Why two replies may differ. None: they may not.
fn excused(
    label: &str,
    row: Option<&Entry>,
    argv: &Argv,
    redis: &Value,
    tern: &Value,
) -> Option<&'static str> {
    if refusal(row).is_some_and(|line| tern.bytes() == Some(line.as_bytes())) {
        return Some("refused by design");
    }
    if !redis.is_error() && !tern.is_error() {
        return Some("both answer");
    }
    if compare(argv, &[], redis, tern, 0) != Comparison::Differ {
        return Some("differences.rs");
    }
    let show = |v: &Value| if v.is_error() { text(v.bytes().unwrap_or_default()) } else { "answers".into() };
    let (redis, tern) = (show(redis), show(tern));
    let of = |excuse: &&Excuse| match excuse.label.strip_suffix('*') {
        Some(start) => label.starts_with(start),
        None => label == excuse.label,
    };
    EXCUSES.iter().filter(of).find(|e| (e.applies)(argv, &redis, &tern)).map(|e| e.why)
}

#[test]
fn wrong_arguments_are_refused_as_by_redis() {
    let Some(redis) = redis("wrong arguments differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let (mut r, mut t) = (Side::new(&redis), Side::new(&tern));
    let rows: BTreeMap<String, &Entry> = table().all().map(|row| (row.label.clone(), row)).collect();
    let unknown: BTreeSet<String> = elsewhere(&mut r.other, rows.keys());
    let (mut complaints, mut compared, mut used) = (Vec::new(), 0, BTreeMap::new());
    let mut state = STATE;
    for (label, argv) in lines().into_iter().filter(|(label, _)| !unknown.contains(label)) {
        let (a, b) = (r.ask(state, &argv), t.ask(state, &argv));
        compared += 1;
        let refused =
            a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.value.is_error() && b.value.is_error());
        let writes = rows.get(&label).is_none_or(|row| row.is_write());
        state = if refused || !writes { &STATE[..1] } else { STATE };
        let (a, b) = match (a, b) {
            (None, None) => continue,
            (Some(a), Some(b)) if a.raw == b.raw => continue,
            (Some(a), Some(b)) => (a, b),
            (a, b) => {
                let closed = |r: Option<Reply>| r.map_or("closes".into(), |r| text(&r.raw));
                complaints.push(format!("{}\n  redis: {}\n  tern:  {}", show(&argv), closed(a), closed(b)));
                continue;
            }
        };
        match excused(&label, rows.get(&label).copied(), &argv, &a.value, &b.value) {
            Some(why) => *used.entry(why).or_insert(0) += 1,
            None => complaints.push(format!(
                "{}\n  redis: {}\n  tern:  {}",
                show(&argv),
                text(&a.raw),
                text(&b.raw)
            )),
        }
    }
    say(&format!("wrong arguments: {compared} lines compared, {} differ", complaints.len()));
    used.iter().for_each(|(why, times)| say(&format!("  {times} times: {why}")));
    assert!(compared > 5_000, "only {compared} lines");
    let idle: Vec<_> = EXCUSES.iter().map(|e| e.why).filter(|why| !used.contains_key(why)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(idle.is_empty(), "no line needs these excuses any more: {idle:?}");
}

/// Those of the labels that Redis 7.0 does not have.
fn elsewhere<'a>(redis: &mut Client, labels: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let mut missing = |label: &&String| {
        let reply = redis.run(&["COMMAND", "INFO", label.as_str()]).value;
        reply.items().and_then(|items| items.first()).is_none_or(|info| info.items().is_none())
    };
    labels.filter(|label| missing(label)).cloned().collect()
}
