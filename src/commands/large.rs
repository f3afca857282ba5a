//! What of a call may exceed a transaction: for exec, which prepares it before the call runs (`types::staged`).

use super::args::parse_i64;
use super::bitmaps;
use super::keys_moves;
use crate::error::SYNTAX;
use crate::types::set::algebra::Op;
use crate::types::string::combine::BitOp;
use bytes::Bytes;

/// Members that are drawn, or keys that are listed, in about a millisecond.
const MANY: u64 = 1000;

/// What a call leaves under a key, and what that is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// These sets, combined.
    Combined(Op, &'a [Bytes]),
    /// These strings, combined.
    Bits(BitOp, &'a [Bytes]),
    /// This set, with the call's [`members`].
    Added(&'a Bytes),
    /// This set, without the call's [`members`].
    Removed(&'a Bytes),
    /// This key's value, in another database where one is named.
    Copied(&'a Bytes, Option<u8>),
    /// What DUMP has made this of.
    Restored(&'a Bytes),
}

/// What a call of the command `name` leaves. None where that is never large, or the arguments are wrong.
pub fn outcome<'a>(name: &str, argv: &'a [Bytes]) -> Option<Outcome<'a>> {
    let key = argv.get(1)?;
    let sources = argv.get(2..)?;
    let database = |raw: &Bytes| u8::try_from(parse_i64(raw)?).ok();
    Some(match name {
        "sinterstore" => Outcome::Combined(Op::Inter, sources),
        "sunionstore" => Outcome::Combined(Op::Union, sources),
        "sdiffstore" => Outcome::Combined(Op::Diff, sources),
        "bitop" => Outcome::Bits(bitmaps::operation(key)?, argv.get(3..)?),
        "sadd" => Outcome::Added(key),
        "srem" => Outcome::Removed(key),
        "copy" => {
            let options = keys_moves::copy_options(argv.get(3..)?, |raw| database(raw).ok_or(SYNTAX));
            Outcome::Copied(key, options.ok()?.0)
        }
        "restore" | "restore-asking" => Outcome::Restored(argv.get(3)?),
        "move" => Outcome::Copied(key, Some(database(argv.get(2)?)?)),
        _ => return None,
    })
}

/// The members that a call of the command `name` adds or removes.
pub fn members<'a>(name: &str, argv: &'a [Bytes]) -> &'a [Bytes] {
    if matches!(name, "sadd" | "srem") { argv.get(2..).unwrap_or_default() } else { &[] }
}

/// Whether a call of the command `name` asks for so many members, or keys, that nothing should queue behind it.
pub fn asks_for_many(name: &str, argv: &[Bytes]) -> bool {
    let count = match name {
        "spop" | "srandmember" => argv.get(2),
        "scan" | "sscan" => argv.windows(2).rev().find_map(|two| match two {
            [word, count] if word.eq_ignore_ascii_case(b"count") => Some(count),
            _ => None,
        }),
        _ => None,
    };
    count.and_then(|raw| parse_i64(raw)).is_some_and(|n| n.unsigned_abs() > MANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()
    }

    #[test]
    fn who_asks_for_many() {
        for (line, many) in [
            ("spop k", false),
            ("spop k 1000", false),
            ("spop k 1001", true),
            ("srandmember k -1000000", true),
            ("srandmember k -9223372036854775808", true),
            ("srandmember k x", false),
            ("scan 0 count 10", false),
            ("scan 0 MATCH a COUNT 100000", true),
            ("sscan k 0 count 5000", true),
            ("get k 5000", false),
        ] {
            let argv = words(line);
            assert_eq!(asks_for_many(std::str::from_utf8(&argv[0]).unwrap(), &argv), many, "{line}");
        }
    }

    #[test]
    fn outcomes() {
        let copied = |line: &str| match outcome("copy", &words(line)) {
            Some(Outcome::Copied(key, db)) => Some((key.clone(), db)),
            _ => None,
        };
        let a = Bytes::from_static(b"a");
        assert_eq!(copied("copy a b"), Some((a.clone(), None)));
        assert_eq!(copied("copy a b replace db 3"), Some((a.clone(), Some(3))));
        assert_eq!(copied("copy a b db"), None);
        assert_eq!(outcome("move", &words("move a 2")), Some(Outcome::Copied(&a, Some(2))));
        assert_eq!(outcome("move", &words("move a b")), None);
        let stored = words("sdiffstore d a b");
        assert_eq!(outcome("sdiffstore", &stored), Some(Outcome::Combined(Op::Diff, &stored[2..])));
        assert_eq!(outcome("srem", &words("srem a b")), Some(Outcome::Removed(&a)));
        assert_eq!(outcome("set", &words("set a b")), None);
        assert_eq!(members("sadd", &words("sadd a b c")).len(), 2);
        assert_eq!(members("srem", &words("srem a b c")).len(), 2);
    }
}
