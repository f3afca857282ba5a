//! COMMAND INFO: a row in Redis' ten elements.

use crate::server::reply::Reply;
use crate::spec::{Entry, FindKeys, Flags, KeySpec, categories};

/// Flags in Redis' order.
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
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// The ten elements of a row.
pub(super) fn info_of(row: &Entry) -> Reply {
    let (first, last, step) = row.keys.first().map_or((0, 0, 0), |_| legacy_range(row.keys));
    let categories = categories(row).into_iter().map(|c| format!("@{c}"));
    let subs = row.subs.iter().map(|sub| info_of(sub)).collect();
    Reply::Array(vec![
        Reply::text(row.label.clone()),
        Reply::Int(row.arity.into()),
        flag_words(WORDS.iter().filter(|(flag, _)| row.flags.has(*flag)).map(|(_, word)| *word)),
        Reply::Int(first),
        Reply::Int(last),
        Reply::Int(step),
        Reply::Set(categories.map(|c| Reply::Simple(c.into())).collect()),
        Reply::Set(row.tips.iter().map(|tip| Reply::bulk_static(tip)).collect()),
        Reply::Set(row.keys.iter().map(key_spec).collect()),
        if row.subs.is_empty() { Reply::Set(Vec::new()) } else { Reply::Array(subs) },
    ])
}

/// A set of simple strings.
pub(super) fn flag_words<'a>(words: impl Iterator<Item = &'a str>) -> Reply {
    Reply::Set(words.map(|w| Reply::Simple(w.to_owned().into())).collect())
}

/// First key, last key and step, for clients that predate key specifications: one range over all
/// specifications that are ranges.
fn legacy_range(keys: &[KeySpec]) -> (i64, i64, i64) {
    let mut range: Option<(i64, i64, i64)> = None;
    for spec in keys {
        let FindKeys::Range { last, step } = spec.find else { continue };
        let first = spec.begin as i64;
        let last = if last < 0 { i64::from(last) } else { first + i64::from(last) };
        range = Some(match range {
            None => (first, last, step as i64),
            // Only specifications that continue each other form one range.
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
        FindKeys::After(_) => ("range", vec![("lastkey", 0), ("keystep", 1), ("limit", 0)]),
        FindKeys::Streams => ("range", vec![("lastkey", -1), ("keystep", 1), ("limit", 2)]),
        FindKeys::Unknown | FindKeys::Stored => ("unknown", vec![]),
    };
    let (begin, index) = match spec.find {
        FindKeys::Unknown | FindKeys::Stored => ("unknown", vec![]),
        FindKeys::After(word) => (
            "keyword",
            vec![("keyword", Reply::bulk_static(word)), ("startfrom", Reply::Int(spec.begin as i64))],
        ),
        FindKeys::Streams => (
            "keyword",
            vec![("keyword", Reply::bulk_static("STREAMS")), ("startfrom", Reply::Int(spec.begin as i64))],
        ),
        FindKeys::Range { .. } | FindKeys::Keynum { .. } => {
            ("index", vec![("index", Reply::Int(spec.begin as i64))])
        }
    };
    let numbers = numbers.into_iter().map(|(name, n)| (name, Reply::Int(n))).collect();
    map(vec![
        ("flags", flag_words(spec.flags.iter().copied())),
        ("begin_search", map(vec![("type", Reply::bulk_static(begin)), ("spec", map(index))])),
        ("find_keys", map(vec![("type", Reply::bulk_static(kind)), ("spec", map(numbers))])),
    ])
}
