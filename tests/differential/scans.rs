//! Whole walks of SCAN and SSCAN on both servers while other clients write between the pages: they find every
//! name that stays, and none that never existed. Redis may return a name twice when a table grows or shrinks;
//! Tern returns each name that stays once.

use crate::chosen;
use crate::generate::Argv;
use crate::run::words;
use crate::support::resp::{Client, Value};
use crate::support::rng::Rng;
use crate::support::server::{redis, tern};
use crate::support::{env_number, say};
use std::collections::BTreeMap;

const STAY: usize = 600;
/// Names that come and go.
const OTHERS: usize = 600;
/// Names written or removed between two pages.
const WRITES: usize = 8;

/// A walk: its subject and its command.
struct Walk {
    line: &'static str,
    /// Whether names are members of one set, or fields of one hash, instead of keys.
    members: bool,
    /// Which of the names that stay it finds.
    finds: fn(usize) -> bool,
}

const WALKS: &[Walk] = &[
    Walk { line: "SCAN 0", members: false, finds: |_| true },
    Walk { line: "SCAN 0 COUNT 37", members: false, finds: |_| true },
    Walk { line: "SCAN 0 MATCH *7 COUNT 25", members: false, finds: |n| n % 10 == 7 },
    Walk { line: "SCAN 0 TYPE set COUNT 25", members: false, finds: |n| n % 3 == 0 },
    Walk { line: "SCAN 0 COUNT 25 TYPE string MATCH stays*", members: false, finds: |n| n % 3 != 0 },
    Walk { line: "SSCAN walked 0", members: true, finds: |_| true },
    Walk { line: "SSCAN walked 0 COUNT 37", members: true, finds: |_| true },
    Walk { line: "SSCAN walked 0 MATCH *7 COUNT 25", members: true, finds: |n| n % 10 == 7 },
    Walk { line: "HSCAN walked 0", members: true, finds: |_| true },
    Walk { line: "HSCAN walked 0 COUNT 37", members: true, finds: |_| true },
    Walk { line: "HSCAN walked 0 MATCH *7 COUNT 25", members: true, finds: |n| n % 10 == 7 },
    Walk { line: "ZSCAN walked 0", members: true, finds: |_| true },
    Walk { line: "ZSCAN walked 0 COUNT 37", members: true, finds: |_| true },
    Walk { line: "ZSCAN walked 0 MATCH *7 COUNT 25", members: true, finds: |n| n % 10 == 7 },
];

impl Walk {
    fn write(&self, name: &str, n: usize) -> Argv {
        match (self.members, n % 3) {
            (true, _) if self.line.starts_with('H') => words(&format!("HSET walked {name} {n}")),
            (true, _) if self.line.starts_with('Z') => words(&format!("ZADD walked {n} {name}")),
            (true, _) => words(&format!("SADD walked {name}")),
            (false, 0) => words(&format!("SADD {name} x")),
            (false, _) => words(&format!("SET {name} v")),
        }
    }
    fn remove(&self, name: &str) -> Argv {
        let from = match self.line.as_bytes()[0] {
            b'H' => "HDEL walked",
            b'Z' => "ZREM walked",
            _ => "SREM walked",
        };
        words(&if self.members { format!("{from} {name}") } else { format!("DEL {name}") })
    }
    /// Fills both servers and walks over both in turn. Returns the names that each has found, with their
    /// counts.
    fn run(&self, clients: &mut [Client; 2], rng: &mut Rng) -> [BTreeMap<String, usize>; 2] {
        let mut found = [BTreeMap::new(), BTreeMap::new()];
        let mut lines = [Some(words(self.line)), Some(words(self.line))];
        let fill = (0..STAY).map(|n| self.write(&format!("stays:{n}"), n));
        let fill: Vec<Argv> =
            fill.chain((0..OTHERS / 2).map(|n| self.write(&format!("other:{n}"), n))).collect();
        clients.iter_mut().for_each(|client| {
            client.run(&["FLUSHALL"]);
            fill.iter().for_each(|argv| drop(client.run(argv)));
        });
        while lines.iter().any(Option::is_some) {
            for ((client, line), found) in clients.iter_mut().zip(&mut lines).zip(&mut found) {
                let Some(argv) = line else { continue };
                let (cursor, names) = page(client, argv, rng.one_in(3));
                names.into_iter().for_each(|name| *found.entry(name).or_default() += 1);
                let at = chosen::place(argv);
                argv[at].clone_from(&cursor);
                if cursor == b"0" {
                    *line = None;
                }
            }
            let writes: Vec<Argv> = (0..WRITES).map(|_| self.other(rng)).collect();
            clients.iter_mut().for_each(|client| writes.iter().for_each(|argv| drop(client.run(argv))));
        }
        found
    }
    fn other(&self, rng: &mut Rng) -> Argv {
        let n = rng.below(OTHERS);
        let name = format!("other:{n}");
        if rng.one_in(2) { self.write(&name, n) } else { self.remove(&name) }
    }
}

/// A page, as a command or as a transaction of its own.
fn page(client: &mut Client, argv: &Argv, in_multi: bool) -> (Vec<u8>, Vec<String>) {
    let reply = if in_multi {
        client.run(&["MULTI"]);
        client.run(argv);
        client.run(&["EXEC"]).value.items().and_then(|all| all.first().cloned()).expect("a reply")
    } else {
        client.run(argv).value
    };
    let (cursor, elements) = chosen::page(argv, &reply).unwrap_or_else(|| panic!("{argv:?}: {reply:?}"));
    (
        cursor,
        chosen::names(&elements).into_iter().map(|name| String::from_utf8(name).expect("text")).collect(),
    )
}

#[test]
fn walks_find_stable_names_while_others_write() {
    let Some(redis) = redis("walks differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let mut clients = [redis.client(), tern.client()];
    let seed = env_number("TERN_SEED").or(env_number("TERN_DIFF_SEED")).unwrap_or_else(Rng::any_seed);
    say(&format!("differential, walks: TERN_SEED={seed}"));
    let mut rng = Rng::new(Rng::new(seed).next());
    for walk in WALKS {
        let found = walk.run(&mut clients, &mut rng);
        for (server, found) in ["redis", "tern"].iter().zip(found) {
            let stays = |name: &str| name.strip_prefix("stays:").and_then(|n| n.parse::<usize>().ok());
            let wanted = (0..STAY).filter(|n| (walk.finds)(*n));
            let missed: Vec<usize> = wanted.filter(|n| !found.contains_key(&format!("stays:{n}"))).collect();
            let strange = found.keys().filter(|name| match stays(name) {
                Some(n) => n >= STAY || !(walk.finds)(n),
                None => {
                    !name.strip_prefix("other:").is_some_and(|n| n.parse::<usize>().is_ok_and(|n| n < OTHERS))
                }
            });
            let strange: Vec<&String> = strange.filter(|name| walk.members || *name != "walked").collect();
            let twice: Vec<_> =
                found.iter().filter(|(name, times)| **times > 1 && stays(name).is_some()).collect();
            let once = *server == "redis" || twice.is_empty();
            assert!(
                missed.is_empty() && strange.is_empty() && once,
                "TERN_SEED={seed}, {server}, {}: missed {missed:?}, strange {strange:?}, twice {twice:?}",
                walk.line
            );
        }
    }
}

/// Tern's pages have COUNT elements if nothing is filtered; the last has the rest.
#[test]
fn pages_have_count_elements() {
    let tern = tern(&["--appendfsync", "no"]);
    let mut client = tern.client();
    let members: Vec<String> = (0..STAY).map(|n| format!("m:{n}")).collect();
    client.run(&[vec!["SADD".to_owned(), "walked".to_owned()], members].concat());
    (2..STAY).for_each(|n| drop(client.run(&["SET", &format!("k:{n}"), "v"])));
    let pairs: Vec<String> = (0..STAY).flat_map(|n| [format!("m:{n}"), n.to_string()]).collect();
    client.run(&[vec!["HSET".to_owned(), "k:1".to_owned()], pairs].concat());
    for (line, count) in [
        ("SCAN 0", 10),
        ("SCAN 0 COUNT 37", 37),
        ("SSCAN walked 0", 10),
        ("SSCAN walked 0 COUNT 37", 37),
        ("HSCAN k:1 0", 10),
        ("HSCAN k:1 0 COUNT 37", 37),
    ] {
        let (mut argv, mut pages) = (words(line), Vec::new());
        while pages.is_empty() || argv[chosen::place(&argv)] != b"0" {
            let (cursor, names) = page(&mut client, &argv, false);
            pages.push(names.len());
            let at = chosen::place(&argv);
            argv[at] = cursor;
        }
        let last = pages.pop();
        assert!(pages.iter().all(|n| *n == count), "{line}: {pages:?}");
        assert_eq!(pages.len() * count + last.unwrap_or(0), STAY, "{line}");
    }
    assert_eq!(client.run(&["DBSIZE"]).value, Value::Int(STAY as i64));
}
