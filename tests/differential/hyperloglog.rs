//! HyperLogLogs of every size, and broken ones: replies and stored bytes must equal redis-server's.

use crate::support::resp::{Client, Reply, text};
use crate::support::rng::Rng;
use crate::support::server::{redis, tern};
use crate::support::{env_number, say};

/// Both servers, which must agree on every reply.
struct Both {
    redis: Client,
    tern: Client,
    seed: u64,
}

impl Both {
    fn run<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Reply {
        let (expected, got) = (self.redis.run(argv), self.tern.run(argv));
        let line: Vec<String> = argv.iter().map(|a| text(a.as_ref())).collect();
        let show = |raw: &[u8]| text(&raw[..raw.len().min(2000)]);
        assert!(
            expected.raw == got.raw,
            "seed {} {}\n  redis: {}\n  tern:  {}",
            self.seed,
            line.join(" "),
            show(&expected.raw),
            show(&got.raw)
        );
        expected
    }

    fn line(&mut self, line: &str) -> Reply {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    fn bytes(&mut self, key: &str) -> Vec<u8> {
        self.line(&format!("GET {key}")).value.bytes().unwrap_or_default().to_vec()
    }

    fn add(&mut self, key: &str, elements: impl Iterator<Item = Vec<u8>>) {
        let argv: Vec<Vec<u8>> = [b"PFADD".to_vec(), key.into()].into_iter().chain(elements).collect();
        self.run(&argv);
    }
}

fn element(rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(20);
    (0..length).map(|_| rng.next() as u8).collect()
}

#[test]
fn stored_bytes_equal_those_of_redis() {
    let Some(redis) = redis("HyperLogLog differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("HyperLogLog differential: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let mut both = Both { redis: redis.client(), tern: tern.client(), seed };
    for longest in ["3000", "3000", "100", "17", "0", "20000"] {
        both.line(&format!("CONFIG SET hll-sparse-max-bytes {longest}"));
        both.line("FLUSHALL");
        for step in 0..60 {
            let key = ["a", "b", "c"][rng.below(3)];
            let many = [1, 3, 40, 400][rng.below(4)];
            both.add(key, (0..many).map(|_| element(&mut rng)));
            both.bytes(key);
            match step % 6 {
                0 => drop(both.line(&format!("PFCOUNT {key}"))),
                1 => drop(both.line("PFCOUNT a b c")),
                2 => drop(both.line(&format!("PFMERGE {key} c a"))),
                3 => drop(both.line("PFMERGE d a b")),
                4 => drop(both.line("PFDEBUG ENCODING d")),
                _ => drop(both.line("DEL d")),
            }
            both.bytes("d");
            both.bytes(key);
        }
        both.line("PFDEBUG GETREG a");
        both.bytes("a");
    }
}

/// If the last run lacks its second byte, redis-server overwrites the zero after its string and reads that
/// later.
fn ends_inside_a_run(bytes: &[u8]) -> bool {
    let mut at = 16;
    while let Some(byte) = bytes.get(at) {
        at += if byte >> 6 == 1 { 2 } else { 1 };
    }
    at > bytes.len()
}

#[test]
fn broken_hyperloglogs_are_refused_as_by_redis() {
    let Some(redis) = redis("broken HyperLogLog differential test") else { return };
    let tern = tern(&["--appendfsync", "no"]);
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("broken HyperLogLogs: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let mut both = Both { redis: redis.client(), tern: tern.client(), seed };
    let (mut broken, mut alien) = (0, 0);
    for round in 0..400 {
        both.line("DEL a b c");
        let many = [0, 5, 100, 1500][rng.below(4)];
        both.add("a", (0..many).map(|_| element(&mut rng)));
        let mut bytes = both.bytes("a");
        for _ in 0..1 + rng.below(4) {
            // Damages the header, or any byte.
            let at = if rng.one_in(4) { rng.below(16) } else { rng.below(bytes.len()) };
            bytes[at] = rng.next() as u8;
        }
        match rng.below(6) {
            0 => bytes.extend(element(&mut rng)),
            1 => bytes.truncate(rng.below(bytes.len())),
            _ => {}
        }
        if ends_inside_a_run(&bytes) {
            continue;
        }
        both.run(&[b"SET", b"a".as_slice(), &bytes]);
        let line = [
            "PFCOUNT a",
            "PFCOUNT a b",
            "PFMERGE c a",
            "PFMERGE a b",
            "PFDEBUG DECODE a",
            "PFDEBUG TODENSE a",
        ][round % 6];
        let reply = both.line(line).value;
        let says = |code: &[u8]| reply.is_error() && reply.bytes().is_some_and(|b| b.starts_with(code));
        broken += usize::from(says(b"INVALIDOBJ"));
        alien += usize::from(says(b"WRONGTYPE"));
        both.bytes("a");
        both.bytes("c");
        both.add("a", (0..1 + rng.below(3)).map(|_| element(&mut rng)));
        both.bytes("a");
        both.line("PFCOUNT a");
    }
    assert!(broken > 20 && alien > 20, "{broken} broken, {alien} none at all");
}
