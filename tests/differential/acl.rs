//! ACL against redis-server: random users, the commands that they may run, the replies that they get, and the
//! log of refusals.
//!
//! The description of rules about commands is not compared: Redis 7.0 derives it from bits and the commands
//! that it has; later versions and Tern keep the rules as they were given.

use crate::support::resp::{Client, Value, text};
use crate::support::rng::Rng;
use crate::support::server::{redis, tern};
use crate::support::{env_number, say};

/// Rules; `$` stands for a key or channel pattern.
const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    ">pw",
    ">other",
    "<pw",
    "#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4",
    "!30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4",
    "#abc",
    "~$",
    "~$",
    "%R~$",
    "%W~$",
    "%rw~$",
    "%RR~$",
    "%X~$",
    "~*",
    "allkeys",
    "resetkeys",
    "&$",
    "&*",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@set",
    "-@dangerous",
    "+@admin",
    "+@fast",
    "-@slow",
    "+@string",
    "+@keyspace",
    "+@connection",
    "-@transaction",
    "+@nosuch",
    "+get",
    "-get",
    "+set",
    "-SET",
    "+mget",
    "+sadd",
    "+config",
    "-config",
    "+config|get",
    "-config|set",
    "-config|nosuch",
    "+client|id",
    "-client",
    "+select|0",
    "+select",
    "+client|id|x",
    "+get|",
    "+nosuch",
    "sanitize-payload",
    "skip-sanitize-payload",
    "clearselectors",
    "reset",
    "(~$ +get)",
    "(%R~$ +@read)",
    "(+set %W~$)",
    "(+nosuch)",
    "(on)",
    "(~$",
    "+sinter)",
    "foo",
    "",
];

const PATTERNS: &[&str] = &["k*", "a", "key:[ab]", "x?", "k1"];
const KEYS: &[&str] = &["k1", "k2", "a", "b", "key:a", "key:c", "xy"];

/// Commands whose permissions are checked.
const LINES: &[&str] = &[
    "GET $",
    "SET $ v",
    "SET $ v GET",
    "SETRANGE $ 0 v",
    "GETSET $ v",
    "GETDEL $",
    "GETEX $",
    "APPEND $ v",
    "INCR $",
    "STRLEN $",
    "MGET $ $",
    "MSET $ v $ v",
    "DEL $ $",
    "EXISTS $ $",
    "TYPE $",
    "EXPIRE $ 10",
    "TTL $",
    "COPY $ $",
    "RENAME $ $",
    "SADD $ m",
    "SMEMBERS $",
    "SINTER $ $",
    "SINTERSTORE $ $ $",
    "SINTERCARD 2 $ $",
    "SINTERCARD 9 $ $",
    "SMOVE $ $ m",
    "SPOP $",
    "SRANDMEMBER $",
    "SSCAN $ 0",
    "BITFIELD $ GET u8 0",
    "BITFIELD $ SET u8 0 1",
    "BITFIELD $ GET u8 0 OVERFLOW SAT",
    "BITOP AND $ $ $",
    "PFCOUNT $ $",
    "PFADD $ x",
    "PFMERGE $ $",
    "LCS $ $",
    "SORT $",
    "SORT $ STORE $",
    "SORT $ LIMIT 0 1 STORE $ STORE $",
    "SORT_RO $",
    "DUMP $",
    "TOUCH $",
    "OBJECT ENCODING $",
    "PUBLISH $ m",
    "SPUBLISH $ m",
    "SUBSCRIBE $ $",
    "SSUBSCRIBE $",
    "PSUBSCRIBE k*",
    "PSUBSCRIBE $ x?",
    "UNSUBSCRIBE $",
    "PUBSUB CHANNELS",
    "KEYS *",
    "SCAN 0",
    "DBSIZE",
    "FLUSHDB",
    "SELECT 0",
    "SELECT 1",
    "SWAPDB 0 1",
    "PING",
    "ECHO x",
    "AUTH a b",
    "HELLO 3",
    "RESET",
    "QUIT",
    "MULTI",
    "EXEC",
    "WATCH $",
    "CONFIG GET x",
    "CONFIG SET x y",
    "CLIENT ID",
    "CLIENT LIST",
    "CLIENT KILL ID 9",
    "ACL WHOAMI",
    "ACL LIST",
    "INFO",
    "TIME",
    "COMMAND",
    "COMMAND COUNT",
    "NOSUCH x",
    "GET",
    "CONFIG NOSUCH",
    "CONFIG",
    "acl",
];

/// Replaces each `$` by a word of `words`.
fn filled(rng: &mut Rng, template: &str, words: &[&str]) -> String {
    let mut parts = template.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += rng.pick(words);
        out += part;
    }
    out
}

struct Both {
    redis: Client,
    tern: Client,
}

impl Both {
    /// The reply, which is the same from both.
    fn same(&mut self, argv: &[&str]) -> Value {
        let (redis, tern) = (self.redis.run(argv), self.tern.run(argv));
        assert_eq!(text(&tern.raw), text(&redis.raw), "{argv:?}: Tern, redis-server");
        redis.value
    }

    fn same_lines(&mut self, lines: &[&str]) {
        for line in lines {
            self.same(&line.split(' ').collect::<Vec<_>>());
        }
    }

    /// GETUSER without the rules about commands.
    fn same_user(&mut self, name: &str) {
        let without = |value: Value| {
            let mut items = value.items().map(<[Value]>::to_vec).unwrap_or_default();
            hide_commands(&mut items);
            items
        };
        let argv = ["ACL", "GETUSER", name];
        let (redis, tern) = (self.redis.run(&argv).value, self.tern.run(&argv).value);
        assert_eq!(without(tern), without(redis), "GETUSER {name}: Tern, redis-server");
    }
}

fn hide_commands(items: &mut Vec<Value>) {
    if let Some(at) = items.iter().position(|item| item.bytes() == Some(b"commands")) {
        items.drain(at..at + 2);
    }
    for item in items {
        if let Value::Array(inner) = item {
            inner.iter_mut().for_each(|selector| {
                if let Value::Array(facts) = selector {
                    hide_commands(facts);
                }
            });
        }
    }
}

#[test]
fn users_have_the_same_rights_as_in_redis() {
    let Some(redis) = redis("ACL differential test") else { return };
    let tern = tern(&[]);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("ACL: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let mut both = Both { redis: redis.client(), tern: tern.client() };
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..env_number("TERN_ACL_ROUNDS").unwrap_or(150) {
        let user = ["bob", "eve", "u1"][rng.below(3)];
        let mut argv = vec!["ACL".to_owned(), "SETUSER".into(), user.into()];
        for _ in 0..1 + rng.below(6) {
            let rule = rng.pick(RULES);
            argv.push(filled(&mut rng, rule, PATTERNS));
        }
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        both.same(&words);
        both.same_user(user);
        for template in LINES {
            let line = filled(&mut rng, template, KEYS);
            let words: Vec<&str> = ["ACL", "DRYRUN", user].into_iter().chain(line.split(' ')).collect();
            match both.same(&words) {
                Value::Simple(_) => allowed += 1,
                _ => refused += 1,
            }
        }
    }
    both.same(&["ACL", "USERS"]);
    assert!(allowed > 300 && refused > 300, "{allowed} allowed, {refused} refused");
}

/// The facts of an ACL LOG entry that do not depend on the clock or the connection.
fn log_facts(entry: &Value) -> Vec<Value> {
    let items = entry.items().unwrap();
    let known = [b"count".as_slice(), b"reason", b"context", b"object", b"username"];
    let pairs = items.chunks(2).filter(|pair| known.iter().any(|name| pair[0].bytes() == Some(name)));
    pairs.flat_map(<[Value]>::to_vec).collect()
}

/// Commands that bob tries.
const TRIED: &[&str] = &[
    "AUTH bob wrong",
    "AUTH nobody pw",
    "HELLO 2 AUTH bob wrong",
    "AUTH bob pw",
    "ACL WHOAMI",
    "SET k v",
    "SET x v",
    "SET x v",
    "GET r",
    "SET r v",
    "CONFIG SET timeout 0",
    "CONFIG GET timeout",
    "SPOP k",
    "SPOP",
    "PUBLISH x m",
    "SUBSCRIBE x",
    "PSUBSCRIBE *",
    "NOSUCH",
    "MULTI",
    "SET k w",
    "SET x w",
    "EXEC",
    "MULTI",
    "SET k w",
    "GET k",
    "EXEC",
    "SORT k BY w* GET #",
    "SORT_RO k GET #",
    "SORT k BY nosort",
    "RESET",
    "ACL WHOAMI",
];

/// Commands that an administrator runs afterwards.
const ASKED: &[&str] = &[
    "ACL LOG RESET",
    "ACL LOG",
    "ACL LOG x",
    "ACL LOG 1 2",
    "ACL DELUSER default",
    "ACL GETUSER nosuch",
    "ACL SETUSER nosuch (~a (~b",
    "ACL SETUSER nosuch (~a (~b +get) (~c",
    "ACL DRYRUN nosuch get k",
    "ACL CAT",
    "ACL CAT nosuch",
    "ACL GENPASS 0",
    "ACL GENPASS 4097",
    "ACL GENPASS x",
    "ACL LOAD",
    "ACL SAVE",
    "ACL NOSUCH",
    "ACL SETUSER a\u{0}b",
    "ACL LIST x",
    "CLIENT KILL USER nosuch",
    "CLIENT KILL USER bob",
    "ACL DELUSER bob nosuch bob",
    "ACL LIST",
];

#[test]
fn refusals_are_answered_and_logged_as_in_redis() {
    let Some(redis) = redis("ACL refusals") else { return };
    let tern = tern(&[]);
    let mut admin = Both { redis: redis.client(), tern: tern.client() };
    let mut both = Both { redis: redis.client(), tern: tern.client() };
    admin.same(&[
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">pw",
        "~k*",
        "%R~r",
        "+@all",
        "-config",
        "+config|get",
        "-spop",
    ]);
    both.same_lines(TRIED);
    both.same(&["AUTH", "bob", "pw"]);
    for line in ["MULTI", "GET k", "SET k w"] {
        both.same(&line.split(' ').collect::<Vec<_>>());
    }
    admin.same(&["ACL", "SETUSER", "bob", "-set"]);
    both.same(&["EXEC"]);
    both.same(&["SET", "k", "v"]);
    let log = ["ACL", "LOG", "100"];
    let (redis, tern) = (admin.redis.run(&log).value, admin.tern.run(&log).value);
    let facts = |log: &Value| log.items().unwrap().iter().map(log_facts).collect::<Vec<_>>();
    assert_eq!(facts(&tern), facts(&redis), "ACL LOG: Tern, redis-server");
    assert!(facts(&redis).len() > 6);
    admin.same_lines(ASKED);
}
