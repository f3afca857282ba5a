//! Complete commands against a store: any arguments get a reply, and no handler panics.
//!
//! Words come from a list of words that parsers know (options, numbers at their bounds, ranges, patterns),
//! from a few keys of each type, and from the mutator. Commands that end or stall the server on purpose are
//! left out; so are allowed but expensive offsets and lengths, such as a string of 512 MB. After any
//! commands, `tern check` finds the store sound.

use super::choices::Choices;
use super::mutate::mutant;
use super::rig::Rig;
use std::time::Duration;
use tern::commands::registry::table;
use tern::spec::Entry;

const WORDS: &[&str] = &[
    "k",
    "s",
    "big",
    "hll",
    "bits",
    "h",
    "bigh",
    "l",
    "bigl",
    "none",
    "",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "1000000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-0",
    "+1",
    "01",
    "1.5",
    "-1e5",
    "inf",
    "nan",
    "0x10",
    "1e400",
    "(1",
    "[a",
    "+",
    "-",
    "*",
    "k*",
    "[a-",
    "\\",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "COUNT",
    "MATCH",
    "TYPE",
    "string",
    "set",
    "hash",
    "z",
    "bigz",
    "(1",
    "[m",
    "list",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "RANK",
    "MAXLEN",
    "h->a",
    "*->b",
    "BY",
    "LIMIT",
    "ASC",
    "DESC",
    "ALPHA",
    "STORE",
    "WITHSCORES",
    "WITHVALUES",
    "NOVALUES",
    "REPLACE",
    "ABSTTL",
    "FREQ",
    "IDLETIME",
    "DB",
    "ASYNC",
    "SYNC",
    "BIT",
    "BYTE",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "DIFF",
    "u8",
    "i64",
    "u63",
    "u64",
    "#3",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "x",
    "bigx",
    "1-1",
    "(1-1",
    "$",
    ">",
    "~",
    "=",
    "MINID",
    "NOMKSTREAM",
    "STREAMS",
    "GROUP",
    "CREATE",
    "MKSTREAM",
    "NOACK",
    "JUSTID",
    "FORCE",
    "IDLE",
    "FULL",
    "IDS",
    "DELREF",
    "ACKED",
    "IFEQ",
    "IFNE",
    "ID",
    "ADDR",
    "LADDR",
    "SKIPME",
    "yes",
    "no",
    "USER",
    "MAXAGE",
    "nosuch",
];
/// Not run: they end, stall or wait on purpose.
const LEFT_OUT: &[&str] = &["shutdown", "debug", "wait", "failover"];

/// A server that receives commands.
pub struct Asked {
    rig: Rig,
    table: Vec<&'static Entry>,
    words: Vec<Vec<u8>>,
}

impl Asked {
    /// With a few keys of each type; `large` is the size of the largest set.
    pub async fn new(large: usize) -> Self {
        let mut asked = Asked {
            rig: Rig::new().await,
            table: table().commands().filter(|row| !LEFT_OUT.contains(&row.name)).collect(),
            words: WORDS.iter().map(|w| w.as_bytes().to_vec()).collect(),
        };
        asked.fill(large).await;
        asked
    }

    /// Restores what commands have removed.
    pub async fn fill(&mut self, large: usize) {
        for line in [
            "SET k 12",
            "SADD s a b 3",
            "PFADD hll a b c",
            "SETBIT bits 77 1",
            "SADD big 1 2 3",
            "HSET h k 1 s 2 big x",
            "RPUSH l k 1 s 2 big x",
            "ZADD z 1 k 2 s -inf big",
            "XADD x 1-1 k 1",
            "XADD x * s big",
            "XGROUP CREATE x k 0",
            "XREADGROUP GROUP k s COUNT 1 STREAMS x >",
        ] {
            self.rig.line(line).await;
        }
        let pairs = (0..2 * large).map(|n| format!("m{n}"));
        let argv = ["HSET", "bigh", "k", "5"].map(String::from);
        self.rig.run(&argv.into_iter().chain(pairs).collect::<Vec<String>>()).await;
        let elements = (0..large).map(|n| format!("m{n}"));
        let argv = ["RPUSH", "bigl"].map(String::from).into_iter().chain(elements);
        self.rig.run(&argv.collect::<Vec<String>>()).await;
        let entries = (0..large).flat_map(|n| [(n % 7).to_string(), format!("m{n}")]);
        for n in 0..large {
            self.rig.run(&["XADD", "bigx", "*", "m", &n.to_string()]).await;
        }
        let argv = ["ZADD", "bigz"].map(String::from).into_iter().chain(entries);
        self.rig.run(&argv.collect::<Vec<String>>()).await;
        let many = (0..large).map(|n| format!("m{n}"));
        self.rig.run(&["SADD".into(), "big".into()].into_iter().chain(many).collect::<Vec<String>>()).await;
    }

    /// Runs one command. Panics if there is no reply within 30 s, or if its handler has panicked.
    pub async fn ask(&mut self, choices: &mut Choices<'_>) {
        let argv = self.argv(choices);
        if is_costly(&argv) {
            return;
        }
        let shown = || argv.iter().map(|a| a.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        let answer = tokio::time::timeout(Duration::from_secs(30), self.rig.run(&argv)).await;
        assert!(answer.is_ok(), "no answer to {}", shown());
        assert_eq!(self.rig.server.telemetry.panics.get(), 0, "{}", shown());
    }

    /// Fails if `tern check` finds damage.
    pub async fn assert_sound(&self) {
        self.rig.assert_sound().await;
    }

    fn argv(&self, choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
        let row = self.table[choices.below(self.table.len())];
        let mut argv = vec![row.name.as_bytes().to_vec()];
        if !row.subs.is_empty() {
            argv.push(row.subs[choices.below(row.subs.len())].name.as_bytes().to_vec());
        }
        let least = row.arity.unsigned_abs() as usize;
        let many = least + if row.arity < 0 { choices.below(7) } else { 0 };
        while argv.len() < many {
            argv.push(match choices.below(6) {
                0 => mutant(choices, &self.words),
                1 => self.words[choices.below(8)].clone(),
                _ => self.words[choices.below(self.words.len())].clone(),
            });
        }
        argv
    }
}

/// Whether offsets and counts are allowed but too expensive for this test.
fn is_costly(argv: &[Vec<u8>]) -> bool {
    let number = |arg: &Vec<u8>| {
        std::str::from_utf8(arg).ok().and_then(|t| t.trim_start_matches('#').parse::<i64>().ok())
    };
    let name = argv[0].as_slice();
    let far = matches!(
        name,
        b"setrange"
            | b"setbit"
            | b"bitfield"
            | b"srandmember"
            | b"hrandfield"
            | b"spop"
            | b"config"
            | b"lolwut"
    );
    far && argv.iter().skip(1).filter_map(number).any(|n| n.unsigned_abs() > 1 << 20)
}

/// A new server, and up to 64 commands decided by the input.
pub fn chosen(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut asked, mut choices) = (Asked::new(300).await, Choices::Given(input));
        for _ in 0..64 {
            if choices.is_over() {
                break;
            }
            asked.ask(&mut choices).await;
        }
        asked.assert_sound().await;
    });
}
