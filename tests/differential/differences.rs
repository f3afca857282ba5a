//! Where two replies may differ, and why: orders that Redis leaves open, clocks, and the deliberate
//! differences.

use crate::generate::Argv;
use crate::streams;
use crate::support::resp::Value;
use crate::words::LISTED;

/// A deliberate difference from Redis 7.0.
pub struct Difference {
    /// A short name, printed with the number of occurrences.
    pub name: &'static str,
    /// Why Tern does not reply with the same bytes.
    pub reason: &'static str,
    /// Whether the line `(words, redis, tern)` is an example of it.
    pub applies: fn(&[&str], &Value, &Value) -> bool,
}

/// All deliberate differences. Replies may not differ in any other way.
pub const DELIBERATE: &[Difference] = &[
    Difference {
        name: "the line of a call that a script returns",
        reason: "Lua forgets who made a tail call; Redis' functions are of C, which is called otherwise",
        applies: |line, redis, tern| match (redis, tern) {
            (Value::Error(redis), Value::Error(tern)) => {
                let shown = String::from_utf8_lossy(tern);
                let is_lost = shown.ends_with("@user_script:-1.") || !shown.contains(" user_script:");
                line[0].starts_with("EVAL") && is_lost && without_lines(redis) == without_lines(tern)
            }
            _ => false,
        },
    },
    Difference {
        name: "small sets and lists are listpacks",
        reason: "Redis has had these encodings since 7.2; the oracle is 7.0 and calls them hashtable and quicklist",
        applies: |line, redis, tern| {
            let before = ["hashtable", "quicklist"].iter().any(|name| says(redis, name));
            is(line, "OBJECT ENCODING") && before && says(tern, "listpack")
        },
    },
    Difference {
        name: "encodings follow the value, not its history",
        reason: "Redis leaves a string raw after APPEND or SETRANGE and a set a hashtable after its last word is \
                 removed, and makes a sorted set a skiplist to SORT it; Tern derives the name from the value it stores",
        applies: |line, redis, tern| {
            let family = |v: &Value| match v.bytes() {
                Some(b"int" | b"embstr" | b"raw") => 1,
                Some(b"intset" | b"listpack" | b"hashtable" | b"skiplist") => 2,
                _ => 0,
            };
            is(line, "OBJECT ENCODING") && family(redis) == family(tern) && family(redis) != 0
        },
    },
    Difference {
        name: "scores have as few digits as tell them apart",
        reason: "as in Redis since 7.2; 7.0 writes 17 digits",
        applies: |line, redis, tern| {
            let is_of_scores =
                line.first().is_some_and(|name| name.starts_with('Z') || name.starts_with("BZ"));
            is_of_scores
                && (line.contains(&"WITHSCORES") || !line[0].contains("RANGE"))
                && same_scores(redis, tern)
        },
    },
    Difference {
        name: "LREM and LPOS refuse the lowest number",
        reason: "as Redis does since 7.2, before it looks at the key; 7.0 counts with its opposite, which is none",
        applies: |line, _, tern| {
            let refused =
                tern.bytes().is_some_and(|b| b.starts_with(b"ERR value is out of range, value must"));
            let lowest = line.contains(&"-9223372036854775808");
            let listed = is(line, "LREM") || is(line, "LPOS");
            listed && lowest && refused
        },
    },
    Difference {
        name: "error lines are UTF-8",
        reason: "an argument that an error line quotes is shown as UTF-8, as clients decode it; Redis copies its bytes",
        applies: |_, redis, tern| match (redis, tern) {
            (Value::Error(redis), Value::Error(tern)) => {
                String::from_utf8_lossy(redis).as_bytes() == tern.as_slice()
            }
            _ => false,
        },
    },
    Difference {
        name: "options are UTF-8",
        reason: "CONFIG SET refuses bytes that are not UTF-8 before it looks at the option",
        applies: |line, redis, tern| {
            let refused = tern.bytes().is_some_and(|b| b.ends_with(b"is not valid UTF-8"));
            is(line, "CONFIG SET") && redis.is_error() && tern.is_error() && refused
        },
    },
    Difference {
        name: "HELLO does all or nothing",
        reason: "all options are read before one is applied, as Redis does since 7.2: a wrong option fails before a \
                 wrong password",
        applies: |line, redis, tern| {
            let begins = |v: &Value, with: &[u8]| v.bytes().is_some_and(|b| b.starts_with(with));
            is(line, "HELLO")
                && begins(redis, b"WRONGPASS ")
                && begins(tern, b"ERR Syntax error in HELLO option")
        },
    },
    Difference {
        name: "an EXEC is encoded in one protocol",
        reason: "HELLO inside MULTI is done after the commands on keys, and changes the protocol for the whole reply of \
                 EXEC, not from its own element on: a reply in two protocols is of no use to a client",
        // Recognized by the queue of the EXEC: see `compare_exec`.
        applies: |_, _, _| false,
    },
    Difference {
        name: "WATCH sees a key that BITFIELD creates or XSETID changes",
        reason: "redis-server tells nobody of XSETID; and a BITFIELD whose writes all overflow (OVERFLOW FAIL) makes or lengthens its key, which Redis hides from \
                 clients that watch it; here WATCH notices what EXISTS and STRLEN show",
        // EXEC ran on one side only, so the sequence ends there: see `run::parting`.
        applies: |_, _, _| false,
    },
    Difference {
        name: "SORT fails for its own numbers only",
        reason: "redis-server does not clear errno before it reads a number, so a SORT fails for a number too large that an \
                 earlier command read",
        applies: |line, redis, tern| {
            let errno = redis.bytes().is_some_and(|b| b.ends_with(b"scores can't be converted into double"));
            (is(line, "SORT") || is(line, "SORT_RO")) && redis.is_error() && errno && tern.items().is_some()
        },
    },
    Difference {
        name: "DUMP writes in another way",
        reason: "Redis compresses strings and writes a hash table in its own order; `dump.rs` shows that what is dumped here \
                 is restored there and the other way round",
        applies: |line, redis, tern| {
            is(line, "DUMP") && matches!((redis, tern), (Value::Bulk(_), Value::Bulk(_)))
        },
    },
    Difference {
        name: "CLIENT KILL ID takes several ids",
        reason: "as CLIENT LIST does; Redis 7.0 takes one",
        applies: |line, redis, tern| {
            let ids = line.iter().filter(|word| word.parse::<u64>().is_ok()).count();
            let has_several = line.contains(&"ID") && ids > 1;
            is(line, "CLIENT KILL") && has_several && redis.is_error() && tern.int().is_some()
        },
    },
    Difference {
        name: "XREAD of what streams are there",
        reason: "as Redis since 7.4, which has the id + and names it where keys and ids are not as many",
        applies: |line, redis, tern| {
            let begins = |v: &Value, with: &[u8]| v.bytes().is_some_and(|b| b.starts_with(with));
            let unbalanced =
                begins(redis, b"ERR Unbalanced XREAD list") && begins(tern, b"ERR Unbalanced 'xread");
            (is(line, "XREAD") || is(line, "XREADGROUP"))
                && (unbalanced || line.contains(&"+") && redis.is_error())
        },
    },
    Difference {
        name: "scripts may name BLOCK",
        reason: "as in Redis since 7.2, a call does not wait there; 7.0 refuses the option",
        applies: |line, redis, tern| {
            let refused = redis.bytes().is_some_and(|b| b.ends_with(b"with BLOCK option from scripts"));
            line[0].starts_with("EVAL") && refused && tern.bytes() != redis.bytes()
        },
    },
    Difference {
        name: "a pause beyond the end of time is refused",
        reason: "Redis 7.0 adds the time to the largest number and pauses nothing",
        applies: |line, redis, tern| is(line, "CLIENT PAUSE") && !redis.is_error() && tern.is_error(),
    },
    Difference {
        name: "facts of one server",
        reason: "version, ids, addresses, clocks, the list of commands, the allocator",
        applies: |line, redis, tern| {
            let own = [
                "HELLO",
                "CLIENT ID",
                "CLIENT INFO",
                "CLIENT LIST",
                "INFO",
                "TIME",
                "COMMAND",
                "COMMAND COUNT",
                "COMMAND INFO",
                "MEMORY MALLOC-STATS",
                "SLOWLOG GET",
                "SLOWLOG LEN",
                "LATENCY HISTOGRAM",
                "LATENCY DOCTOR",
            ];
            let same = std::mem::discriminant(redis) == std::mem::discriminant(tern);
            let pattern = line.last().map(|word| word.as_bytes()).unwrap_or_default();
            let lists_others = is(line, "COMMAND LIST") && !LISTED.contains(&pattern);
            (own.iter().any(|name| is(line, name)) || lists_others) && same && !redis.is_error()
        },
    },
];

/// Commands whose replies have no order. For SORT this is the order of equal members and of unsorted ones:
/// `sort.rs` compares defined orders.
const UNORDERED: &[&str] = &[
    "SMEMBERS",
    "SINTER",
    "SUNION",
    "SDIFF",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "KEYS",
    "COMMAND LIST",
    "SORT",
    "SORT_RO",
];

/// Replies that say when a key or fields expire, by the server's own clock, and their unit in milliseconds. Those
/// called EXPIRETIME are times since the epoch.
const CLOCKED: [(&str, i64); 8] = [
    ("TTL", 1000),
    ("PTTL", 1),
    ("EXPIRETIME", 1000),
    ("PEXPIRETIME", 1),
    ("HTTL", 1000),
    ("HPTTL", 1),
    ("HEXPIRETIME", 1000),
    ("HPEXPIRETIME", 1),
];

/// Milliseconds since the epoch that only lines with an absolute expiry give a key: see `generate::expiry`.
pub const ABSOLUTE: std::ops::Range<i64> = 4_000_000_000_000..4_200_000_000_000;

/// Seconds that a server may take for work that no reply reports.
pub const PATIENCE: u64 = 30;

/// The result of comparing two replies to a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Comparison {
    /// They are the same.
    Same,
    /// A deliberate difference, by its index.
    Meant(usize),
    /// Neither.
    Differ,
}

/// Compares the replies to `argv`; `queued` are the lines that an EXEC ran. `apart`: milliseconds by which
/// expiries may differ.
pub fn compare(argv: &Argv, queued: &[Argv], redis: &Value, tern: &Value, apart: u64) -> Comparison {
    let line: Vec<String> = argv.iter().take(16).map(|a| String::from_utf8_lossy(a).to_uppercase()).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    if redis == tern
        || same_unordered(&line, redis, tern)
        || same_clock(&line, redis, tern, apart)
        || streams::same_clock(&line, redis, tern, apart)
    {
        return Comparison::Same;
    }
    if is(&line, "EXEC") {
        return compare_exec(queued, redis, tern, apart);
    }
    let meant = DELIBERATE.iter().position(|d| (d.applies)(&line, redis, tern));
    meant.map_or(Comparison::Differ, Comparison::Meant)
}

fn compare_exec(queued: &[Argv], redis: &Value, tern: &Value, apart: u64) -> Comparison {
    let (Value::Array(redis), Value::Array(tern)) = (redis, tern) else { return Comparison::Differ };
    if redis.len() != tern.len() || redis.len() != queued.len() {
        return Comparison::Differ;
    }
    let mut comparison = Comparison::Same;
    let hellos = queued.iter().position(|argv| argv[0].eq_ignore_ascii_case(b"HELLO"));
    let encoded = DELIBERATE.iter().position(|d| d.name.starts_with("an EXEC is encoded"));
    for (n, ((argv, redis), tern)) in queued.iter().zip(redis).zip(tern).enumerate() {
        if let (Some(which), true) = (encoded, hellos.is_some())
            && redis != tern
        {
            // The meaning is the same in either protocol; HELLO's own reply names the server.
            comparison = Comparison::Meant(which);
            let (redis, tern) = (in_resp2(redis), in_resp2(tern));
            if hellos == Some(n) || !matches!(compare(argv, &[], &redis, &tern, apart), Comparison::Differ) {
                continue;
            }
        }
        match compare(argv, &[], redis, tern, apart) {
            Comparison::Differ => return Comparison::Differ,
            Comparison::Meant(which) => comparison = Comparison::Meant(which),
            _ => {}
        }
    }
    comparison
}

/// A script's error without the lines of its places.
fn without_lines(error: &[u8]) -> String {
    let text = String::from_utf8_lossy(error);
    let mut parts = text.split("user_script:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
        text + rest.strip_prefix(": ").unwrap_or(rest)
    })
}

/// The number that a reply is.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(text) => text.parse().ok(),
        Value::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

/// Whether two replies are the same, or hold the same scores.
fn same_scores(redis: &Value, tern: &Value) -> bool {
    if redis == tern {
        return true;
    }
    match (redis, tern) {
        (Value::Array(redis), Value::Array(tern)) => {
            redis.len() == tern.len() && redis.iter().zip(tern).all(|(redis, tern)| same_scores(redis, tern))
        }
        (Value::Double(_), Value::Double(_)) | (Value::Bulk(_), Value::Bulk(_)) => {
            number(redis).is_some_and(|n| number(tern) == Some(n))
        }
        _ => false,
    }
}

/// The same reply in RESP2.
fn in_resp2(value: &Value) -> Value {
    let all = |items: &[Value]| Value::Array(items.iter().map(in_resp2).collect());
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) | Value::Map(items) => all(items),
        Value::Nil(_) => Value::Nil(b'_'),
        Value::Double(text) | Value::BigNumber(text) => Value::Bulk(text.clone().into_bytes()),
        Value::Bool(yes) => Value::Int((*yes).into()),
        Value::Verbatim(text) => Value::Bulk(text.get(4..).unwrap_or_default().to_vec()),
        Value::Simple(_) | Value::Error(_) | Value::Int(_) | Value::Bulk(_) => value.clone(),
    }
}

fn same_unordered(line: &[&str], redis: &Value, tern: &Value) -> bool {
    // A field stays with its value.
    let each = if is(line, "HGETALL") { 2 } else { 1 };
    let sorted = |v: &Value| {
        let mut items: Vec<Vec<Value>> = v.items()?.chunks(each).map(<[Value]>::to_vec).collect();
        items.sort();
        Some(items)
    };
    let same_kind = std::mem::discriminant(redis) == std::mem::discriminant(tern);
    UNORDERED.iter().any(|name| is(line, name))
        && same_kind
        && redis.items().is_some()
        && sorted(redis) == sorted(tern)
}

fn same_clock(line: &[&str], redis: &Value, tern: &Value, apart: u64) -> bool {
    let Some((name, unit)) = CLOCKED.iter().find(|(name, _)| is(line, name)) else { return false };
    let same = |redis: &Value, tern: &Value| {
        let (Some(a), Some(b)) = (redis.int(), tern.int()) else { return false };
        if a < 0 || b < 0 || name.ends_with("EXPIRETIME") && ABSOLUTE.contains(&a.saturating_mul(*unit)) {
            return a == b;
        }
        // Seconds are rounded: those of two times are up to a whole one further apart.
        a.abs_diff(b) <= apart.div_ceil(*unit as u64)
    };
    match (redis, tern) {
        (Value::Array(redis), Value::Array(tern)) => {
            redis.len() == tern.len() && redis.iter().zip(tern).all(|(redis, tern)| same(redis, tern))
        }
        (redis, tern) => same(redis, tern),
    }
}

/// Whether two expiry times in ms since the epoch, or -1 for a key without one, do not belong to the same
/// expiry.
pub fn times_differ(a: i64, b: i64, apart: u64) -> bool {
    a != b && (a < 0 || b < 0 || ABSOLUTE.contains(&a) || ABSOLUTE.contains(&b) || a.abs_diff(b) > apart)
}

fn is(line: &[&str], name: &str) -> bool {
    let words = name.split(' ');
    let count = words.clone().count();
    line.len() >= count
        && words.eq(line.iter().take(count).copied())
        && (name != "COMMAND" || line.len() == 1)
}

fn says(value: &Value, word: &str) -> bool {
    value.bytes() == Some(word.as_bytes())
}
