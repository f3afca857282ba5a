//! COMMAND INFO: a row in Redis' ten elements.

use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KeySpec, Row};

/// Flags in the order that Redis prints them.
const WORDS: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// Categories in the order that Redis prints them, also of what this server does not have.
pub(super) const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Categories beyond those that flags and group give.
const MORE_CATEGORIES: &[(&str, &[&str])] = &[
    ("asking", &["connection"]),
    ("client|kill", &["dangerous"]),
    ("client|list", &["dangerous"]),
    ("command", &["connection"]),
    ("dbsize", &["keyspace"]),
    ("flushall", &["keyspace", "dangerous"]),
    ("flushdb", &["keyspace", "dangerous"]),
    ("info", &["dangerous"]),
    ("keys", &["dangerous"]),
    ("lastsave", &["admin", "dangerous"]),
    ("migrate", &["dangerous"]),
    ("readonly", &["connection"]),
    ("readwrite", &["connection"]),
    ("restore", &["dangerous"]),
    ("restore-asking", &["keyspace", "dangerous"]),
    ("role", &["admin", "dangerous"]),
    ("sort", &["set", "sortedset", "list", "dangerous"]),
    ("sort_ro", &["set", "sortedset", "list", "dangerous"]),
    ("swapdb", &["keyspace", "dangerous"]),
    ("trimslots", &["keyspace", "dangerous"]),
    ("wait", &["connection"]),
    ("waitaof", &["connection"]),
];

/// What a cluster client may want to know about a command: where to send it and how to combine the answers.
const TIPS: &[(&[&str], &[&str])] = &[
    (&["keys"], &["request_policy:all_shards", "nondeterministic_output_order"]),
    (&["dbsize"], &["request_policy:all_shards", "response_policy:agg_sum"]),
    (
        &[
            "flushall",
            "flushdb",
            "function|delete",
            "function|flush",
            "function|load",
            "function|restore",
            "memory|purge",
            "ping",
        ],
        &["request_policy:all_shards", "response_policy:all_succeeded"],
    ),
    (
        &["function|stats", "info", "memory|doctor", "memory|malloc-stats", "memory|stats"],
        &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ),
    (&["slowlog|get"], &["request_policy:all_nodes", "nondeterministic_output"]),
    (&["slowlog|len"], &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    (&["slowlog|reset"], &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    (
        &["latency|doctor", "latency|graph", "latency|histogram", "latency|history", "latency|latest"],
        &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ),
    (&["latency|reset"], &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    (&["script|exists"], &["request_policy:all_shards", "response_policy:agg_logical_and"]),
    (&["script|flush", "script|load"], &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    (&["function|kill", "script|kill"], &["request_policy:all_shards", "response_policy:one_succeeded"]),
    (&["migrate"], &["nondeterministic_output"]),
    (&["randomkey"], &["request_policy:all_shards", "nondeterministic_output"]),
    (&["wait", "waitaof"], &["request_policy:all_shards", "response_policy:agg_min"]),
    (&["del", "exists", "touch", "unlink"], &["request_policy:multi_shard", "response_policy:agg_sum"]),
    (&["mget"], &["request_policy:multi_shard"]),
    (&["mset", "msetex"], &["request_policy:multi_shard", "response_policy:all_succeeded"]),
    (&["msetnx"], &["request_policy:multi_shard", "response_policy:agg_min"]),
    (&["client|setinfo", "config|set"], &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    (&["hotkeys|get"], &["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    (&["hotkeys|reset", "hotkeys|start", "hotkeys|stop"], &["request_policy:special"]),
    (&["scan"], &["nondeterministic_output", "request_policy:special"]),
    (
        &[
            "command",
            "command|docs",
            "command|info",
            "command|list",
            "function|list",
            "module|list",
            "sdiff",
            "sinter",
            "smembers",
            "sunion",
        ],
        &["nondeterministic_output_order"],
    ),
    (
        &[
            "client|info",
            "client|list",
            "cluster|bumpepoch",
            "cluster|count-failure-reports",
            "cluster|getkeysinslot",
            "cluster|info",
            "cluster|links",
            "cluster|nodes",
            "cluster|replicas",
            "cluster|shards",
            "cluster|slaves",
            "cluster|slots",
            "dump",
            "lastsave",
            "object|encoding",
            "object|freq",
            "object|idletime",
            "object|refcount",
            "pttl",
            "spop",
            "srandmember",
            "sscan",
            "time",
            "ttl",
        ],
        &["nondeterministic_output"],
    ),
];

/// The ten elements of a row that is shown as `label`.
pub(super) fn info_of(label: &str, row: &Row) -> Reply {
    let (first, last, step) = row.keys.first().map_or((0, 0, 0), |_| legacy_range(row.keys));
    let categories = categories(label, row).into_iter().map(|c| format!("@{c}"));
    let subs = row.subs.iter().map(|sub| info_of(&format!("{label}|{}", sub.name), sub)).collect();
    Reply::Array(vec![
        Reply::text(label),
        Reply::Int(row.arity.into()),
        flag_words(WORDS.iter().filter(|(flag, _)| row.flags.has(*flag)).map(|(_, word)| *word)),
        Reply::Int(first),
        Reply::Int(last),
        Reply::Int(step),
        Reply::Set(categories.map(|c| Reply::Simple(c.into())).collect()),
        Reply::Set(tips(label).iter().map(|tip| Reply::bulk_static(tip)).collect()),
        Reply::Set(row.keys.iter().map(key_spec).collect()),
        if row.subs.is_empty() { Reply::Set(Vec::new()) } else { Reply::Array(subs) },
    ])
}

/// A set of simple strings.
pub(super) fn flag_words<'a>(words: impl Iterator<Item = &'a str>) -> Reply {
    Reply::Set(words.map(|w| Reply::Simple(w.to_owned().into())).collect())
}

fn tips(label: &str) -> &'static [&'static str] {
    TIPS.iter().find(|(labels, _)| labels.contains(&label)).map_or(&[], |(_, tips)| tips)
}

/// ACL categories of a row, without `@`.
pub(super) fn categories(label: &str, row: &Row) -> Vec<&'static str> {
    let group = match row.group {
        _ if !row.subs.is_empty() => None,
        Group::String => Some("string"),
        Group::Bitmap => Some("bitmap"),
        Group::HyperLogLog => Some("hyperloglog"),
        Group::Set => Some("set"),
        Group::Generic => {
            Some("keyspace").filter(|_| !["sort", "sort_ro", "wait", "waitaof"].contains(&label))
        }
        Group::Connection => Some("connection"),
        Group::Transactions => Some("transaction"),
        Group::Scripting => Some("scripting"),
        Group::Pubsub => Some("pubsub").filter(|_| row.flags.has(Flags::PUBSUB)),
        Group::Server | Group::Cluster => None,
    };
    let has = |flag, word| row.flags.has(flag).then_some(word);
    let implied = [
        has(Flags::WRITE, "write"),
        has(Flags::READONLY, "read").filter(|_| row.group != Group::Scripting),
        has(Flags::ADMIN, "admin"),
        has(Flags::ADMIN, "dangerous"),
        has(Flags::BLOCKING, "blocking"),
        Some(if row.flags.has(Flags::FAST) { "fast" } else { "slow" }),
        group,
    ];
    // Subcommands of COMMAND are of its kind.
    let name = if label.starts_with("command|") { "command" } else { label };
    let more = MORE_CATEGORIES.iter().filter(|(n, _)| *n == name).flat_map(|(_, more)| more.iter().copied());
    let all: Vec<_> = implied.into_iter().flatten().chain(more).collect();
    CATEGORIES.iter().copied().filter(|c| all.contains(c)).collect()
}

/// First key, last key and step, as clients before key specifications read them: one range over all that are ranges.
fn legacy_range(keys: &[KeySpec]) -> (i64, i64, i64) {
    let mut range: Option<(i64, i64, i64)> = None;
    for spec in keys {
        let FindKeys::Range { last, step } = spec.find else { continue };
        let first = spec.begin as i64;
        let last = if last < 0 { i64::from(last) } else { first + i64::from(last) };
        range = Some(match range {
            None => (first, last, step as i64),
            // Only specifications that continue each other make one range.
            Some((begin, end, _)) if end >= 0 && end + 1 == first => (begin, last, 1),
            Some(range) => range,
        });
    }
    range.unwrap_or_default()
}

fn map(pairs: Vec<(&'static str, Reply)>) -> Reply {
    Reply::Map(pairs.into_iter().map(|(key, value)| (Reply::bulk_static(key), value)).collect())
}

fn key_spec(spec: &KeySpec) -> Reply {
    let (kind, numbers) = match spec.find {
        FindKeys::Range { last, step } => {
            ("range", vec![("lastkey", i64::from(last)), ("keystep", step as i64), ("limit", 0)])
        }
        FindKeys::Keynum { step } => {
            ("keynum", vec![("keynumidx", 0), ("firstkey", 1), ("keystep", step as i64)])
        }
        FindKeys::Unknown | FindKeys::Stored => ("unknown", vec![]),
    };
    let (begin, index) = match spec.find {
        FindKeys::Unknown | FindKeys::Stored => ("unknown", vec![]),
        _ => ("index", vec![("index", Reply::Int(spec.begin as i64))]),
    };
    let numbers = numbers.into_iter().map(|(name, n)| (name, Reply::Int(n))).collect();
    map(vec![
        ("flags", flag_words(spec.flags.iter().copied())),
        ("begin_search", map(vec![("type", Reply::bulk_static(begin)), ("spec", map(index))])),
        ("find_keys", map(vec![("type", Reply::bulk_static(kind)), ("spec", map(numbers))])),
    ])
}
