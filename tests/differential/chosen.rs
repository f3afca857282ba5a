//! Replies that the server chooses: SPOP, SRANDMEMBER, HRANDFIELD, ZRANDMEMBER, RANDOMKEY, pages of SCAN, SSCAN,
//! HSCAN and ZSCAN; and DBSIZE, which may count expired keys.
//!
//! In a transaction, redis-server runs [`lines`] in place of the line in the same EXEC, and [`is_valid`]
//! checks Tern's reply by their replies. They also remove what Tern popped, so later replies can be compared.

use crate::differences::number;
use crate::generate::{Argv, Kind};
use crate::run::members;
use crate::support::resp::Value;
use std::collections::BTreeSet;

/// A COUNT that walks over everything in one call of redis-server.
const ALL: &str = "10000000";
/// A key that no template names: SMEMBERS of it shows an empty set in the protocol of the connection.
const NOBODY: &str = "a key that is never made";
/// A member, a key, or a field with its value if the line asks for values.
pub type Element = (Vec<u8>, Option<Vec<u8>>);
/// The number of elements that SSCAN, HSCAN and ZSCAN may return at once because the value has a small form.
const SMALL: usize = 512;

/// The lines that redis-server runs in place of `argv`, to which Tern has answered `tern`.
pub fn lines(kind: Kind, argv: &Argv, tern: &Value) -> Vec<Argv> {
    let own = argv.clone();
    let of = |words: &[&[u8]]| words.iter().map(|w| w.to_vec()).collect::<Argv>();
    let with = |name: &str, members: Argv| [of(&[name.as_bytes(), &argv[1]]), members].concat();
    let chosen = members(tern).filter(|all| !all.is_empty());
    match (kind, chosen) {
        (Kind::Pop, Some(popped)) if wanted(argv).is_some() => {
            vec![of(&[b"SCARD", &argv[1]]), with("SREM", popped), of(&[b"SMEMBERS", NOBODY.as_bytes()])]
        }
        (Kind::Sample, _) => match elements(argv, tern).filter(|all| !all.is_empty()) {
            Some(sample) => vec![own, with(checked_by(argv), names(&sample))],
            None => vec![own],
        },
        (Kind::RandomKey, Some(key)) => vec![own, of(&[b"EXISTS", &key[0]])],
        (Kind::Count, _) => vec![own, of(&[b"KEYS", b"*"])],
        (Kind::Scan, _) if starts(argv) && tern.items().is_some() => {
            vec![own.clone(), [own, of(&[b"COUNT", ALL.as_bytes()])].concat()]
        }
        _ => vec![own],
    }
}

/// Whether redis-server could have given Tern's reply. None: the replies must be equal, or differ as other
/// lines may. `typed`: whether both use one protocol, so that an array is not a set.
pub fn is_valid(kind: Kind, argv: &Argv, redis: &[Value], tern: &Value, typed: bool) -> Option<bool> {
    let alike = |a: &Value, b: &Value| !typed || std::mem::discriminant(a) == std::mem::discriminant(b);
    match (kind, redis) {
        (Kind::Pop, [card, removed, empty]) => {
            let popped = members(tern)?;
            let form = if argv.len() == 2 { matches!(tern, Value::Bulk(_)) } else { alike(tern, empty) };
            let count = wanted(argv)?.min(usize::try_from(card.int()?).ok()?);
            Some(form && popped.len() == count && removed.int() == Some(count as i64))
        }
        (Kind::Sample, [sample, found]) => {
            let (ours, theirs) = (elements(argv, tern)?, elements(argv, sample)?);
            Some(
                alike(sample, tern)
                    && ours.len() == theirs.len()
                    && (may_repeat(argv) || unique(&ours))
                    && are_there(&ours, found),
            )
        }
        (Kind::RandomKey, [_, exists]) => Some(matches!(tern, Value::Bulk(_)) && *exists == Value::Int(1)),
        (Kind::Count, [all, live]) => {
            let (least, most) = (live.items()?.len() as i64, all.int()?);
            Some((least..=most).contains(&tern.int()?))
        }
        (Kind::Scan, [_, everything]) => {
            let (cursor, page) = page(argv, tern)?;
            let (_, everything) = self::page(argv, everything)?;
            let all: BTreeSet<_> = everything.into_iter().collect();
            let found: BTreeSet<_> = page.iter().cloned().collect();
            let whole = cursor != b"0" || found == all;
            Some(unique(&page) && found.is_subset(&all) && whole && page_fits(argv, &cursor, page.len()))
        }
        (Kind::Scan, [theirs]) if theirs.items().is_some() => {
            Some(alike(theirs, tern) && theirs.items()?.len() == tern.items()?.len())
        }
        _ => None,
    }
}

/// Whether a page of Tern's may have this length. SCAN never returns more than COUNT; the others neither,
/// except for small values.
pub fn page_fits(argv: &Argv, cursor: &[u8], length: usize) -> bool {
    let options = &argv[place(argv) + 1..];
    let word = |name: &str| {
        let pair = options.chunks(2).rfind(|pair| pair[0].eq_ignore_ascii_case(name.as_bytes()))?;
        Some(String::from_utf8_lossy(pair.get(1)?).into_owned())
    };
    let count: usize = word("COUNT").map_or(10, |n| n.parse().unwrap_or(usize::MAX));
    if argv[0].eq_ignore_ascii_case(b"SCAN") {
        return length <= count;
    }
    let ended = cursor == b"0";
    length <= count.max(if ended { SMALL } else { 0 })
        && (ended || word("MATCH").is_some() || length == count)
}

/// The position of the cursor in a line of SCAN or its relatives.
pub fn place(argv: &Argv) -> usize {
    if argv[0].eq_ignore_ascii_case(b"SCAN") { 1 } else { 2 }
}

/// Whether a walk begins with this line.
pub fn starts(argv: &Argv) -> bool {
    argv.get(place(argv)).is_some_and(|cursor| cursor == b"0")
}

/// The cursor and elements of a page.
pub fn page(argv: &Argv, value: &Value) -> Option<(Vec<u8>, Vec<Element>)> {
    let [cursor, items] = value.items()? else { return None };
    Some((cursor.bytes()?.to_vec(), elements(argv, items)?))
}

/// The elements of a reply, or of a page.
pub fn elements(argv: &Argv, value: &Value) -> Option<Vec<Element>> {
    let named = |name: &str| argv[0].eq_ignore_ascii_case(name.as_bytes());
    let scored = argv.len() > 3;
    let has_pairs =
        named("HSCAN") || named("ZSCAN") || (named("HRANDFIELD") || named("ZRANDMEMBER")) && scored;
    if !has_pairs {
        return Some(members(value)?.into_iter().map(|name| (name, None)).collect());
    }
    let items = value.items()?;
    let flat: Vec<&Value> = match items.first() {
        Some(Value::Array(_)) => items.iter().filter_map(Value::items).flatten().collect(),
        _ => items.iter().collect(),
    };
    let is_score = named("ZSCAN") || named("ZRANDMEMBER");
    let second = |value: &Value| match value {
        value if is_score => Some(number(value)?.to_string().into_bytes()),
        value => value.bytes().map(<[u8]>::to_vec),
    };
    let pair = |pair: &[&Value]| Some((pair[0].bytes()?.to_vec(), Some(second(pair.get(1)?)?)));
    flat.chunks(2).map(pair).collect()
}

/// The names of elements.
pub fn names(elements: &[Element]) -> Argv {
    elements.iter().map(|(name, _)| name.clone()).collect()
}

/// The command whose reply tells, for [`are_there`], which of several elements a key has.
pub fn checked_by(argv: &Argv) -> &'static str {
    match argv[0].to_ascii_uppercase().as_slice() {
        b"HRANDFIELD" => "HMGET",
        b"ZRANDMEMBER" => "ZMSCORE",
        _ => "SMISMEMBER",
    }
}

/// Whether all elements are there, with their values.
pub fn are_there(elements: &[Element], checked: &Value) -> bool {
    let is_there = |((_, value), found): (&Element, &Value)| match (value, found) {
        (Some(value), Value::Bulk(text)) => {
            value == text || number(found).is_some_and(|n| n.to_string().as_bytes() == value)
        }
        (Some(value), Value::Double(_)) => number(found).is_some_and(|n| n.to_string().as_bytes() == value),
        (None, found) => matches!(found, Value::Bulk(_) | Value::Double(_) | Value::Int(1)),
        (Some(_), _) => false,
    };
    checked.items().is_some_and(|found| found.len() == elements.len())
        && elements.iter().zip(checked.items().unwrap_or_default()).all(is_there)
}

/// Whether SRANDMEMBER, HRANDFIELD or ZRANDMEMBER may return an element twice.
pub fn may_repeat(argv: &Argv) -> bool {
    argv.get(2).is_some_and(|n| n.starts_with(b"-"))
}

/// Whether no element occurs twice.
pub fn unique<T: Ord>(all: &[T]) -> bool {
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}

/// The number of members that a SPOP requests. None: not a number that servers accept.
fn wanted(argv: &Argv) -> Option<usize> {
    let Some(count) = argv.get(2) else { return Some(1) };
    let n: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
    (n.to_string().as_bytes() == count.as_slice()).then_some(n)
}
