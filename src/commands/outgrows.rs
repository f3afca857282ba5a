//! Which part of a call may exceed a transaction: for exec, which prebuilds it (`types::prebuilt`).

use crate::commands::bitmap;
use crate::commands::generic::moves;
pub(crate) use crate::commands::ranked::prebuild as prebuild_ranked;
pub(crate) use crate::commands::stream::add::large as large_entry;
use crate::error::SYNTAX;
use crate::spec::words::parse_i64;
use crate::spec::{Makes, Ranked, Row, written_keys};
use crate::types::hash::Pair;
use crate::types::list::End;
use crate::types::list::prebuild::Change as ListChange;
use crate::types::set::algebra::Op;
use crate::types::string::combine::BitOp;
use bytes::Bytes;

/// Members drawn, or keys listed, in about a millisecond.
const MANY: u64 = 1000;

/// The value that a call leaves under a key and that may exceed a transaction, by its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LargeResult<'a> {
    /// These sets, combined by a set operation.
    Combined(Op, &'a [Bytes]),
    /// These strings, combined by a bit operation.
    Bits(BitOp, &'a [Bytes]),
    /// This set, plus the call's [`members`].
    Added(&'a Bytes),
    /// This set, minus the call's [`members`].
    Removed(&'a Bytes),
    /// This hash, with these fields set and each followed by its value.
    FieldsSet(&'a Bytes, &'a [Pair]),
    /// This hash, without these fields.
    FieldsRemoved(&'a Bytes, &'a [Bytes]),
    /// This list after a change.
    ListChanged(&'a Bytes, ListChange<'a>),
    /// This stream with the entry that XADD's other arguments make.
    EntryAdded(&'a Bytes, &'a [Bytes]),
    /// What an operation leaves of sorted sets, which its arguments name.
    Ranked(Ranked, &'a [Bytes]),
    /// This key's value, in another database if one is named.
    Copied(&'a Bytes, Option<u8>),
    /// The value serialized in this payload.
    Restored(&'a Bytes),
}

/// The large result of a call. None if it is never large, or if the arguments are wrong.
pub(crate) fn large_result<'a>(row: &Row, argv: &'a [Bytes]) -> Option<LargeResult<'a>> {
    let key = argv.get(1)?;
    let sources = argv.get(2..)?;
    let database = |raw: &Bytes| u8::try_from(parse_i64(raw)?).ok();
    Some(match row.makes {
        Makes::Little | Makes::Appended | Makes::Patched => return None,
        Makes::Intersection => LargeResult::Combined(Op::Inter, sources),
        Makes::Union => LargeResult::Combined(Op::Union, sources),
        Makes::Difference => LargeResult::Combined(Op::Diff, sources),
        Makes::Bits => LargeResult::Bits(bitmap::operation(key)?, argv.get(3..)?),
        Makes::Added => LargeResult::Added(key),
        Makes::Removed => LargeResult::Removed(key),
        Makes::FieldsSet => match sources.as_chunks() {
            (pairs, []) => LargeResult::FieldsSet(key, pairs),
            _ => return None,
        },
        Makes::FieldsRemoved => LargeResult::FieldsRemoved(key, sources),
        Makes::PushedLeft => {
            LargeResult::ListChanged(key, ListChange::Push { end: End::Left, elements: sources })
        }
        Makes::PushedRight => {
            LargeResult::ListChanged(key, ListChange::Push { end: End::Right, elements: sources })
        }
        Makes::ElementSet => {
            let [index, element] = sources else { return None };
            let index = parse_i64(index)?;
            LargeResult::ListChanged(key, ListChange::Set { index, element })
        }
        Makes::Trimmed => {
            let [start, stop] = sources else { return None };
            LargeResult::ListChanged(key, ListChange::Trim(parse_i64(start)?, parse_i64(stop)?))
        }
        Makes::Inserted => {
            let [place, pivot, element] = sources else { return None };
            let before = place.eq_ignore_ascii_case(b"BEFORE");
            LargeResult::ListChanged(key, ListChange::Insert { before, pivot, element })
        }
        Makes::ElementsRemoved => {
            let [count, element] = sources else { return None };
            let count = parse_i64(count)?;
            LargeResult::ListChanged(key, ListChange::Remove { count, element })
        }
        Makes::EntryAdded => LargeResult::EntryAdded(key, sources),
        Makes::Ranked(operation @ (Ranked::Around | Ranked::AroundMember)) => {
            LargeResult::Ranked(operation, argv.get(1..).filter(|_| !written_keys(row, argv).is_empty())?)
        }
        Makes::Ranked(operation) => LargeResult::Ranked(operation, sources),
        Makes::Copy => {
            let options = moves::copy_options(argv.get(3..)?, |raw| database(raw).ok_or(SYNTAX));
            LargeResult::Copied(key, options.ok()?.0)
        }
        Makes::Move => LargeResult::Copied(key, Some(database(argv.get(2)?)?)),
        Makes::Restored => LargeResult::Restored(argv.get(3)?),
    })
}

/// The members that a call adds or removes.
pub(crate) fn members<'a>(row: &Row, argv: &'a [Bytes]) -> &'a [Bytes] {
    if matches!(row.makes, Makes::Added | Makes::Removed) { row.members(argv) } else { &[] }
}

/// Whether a call asks for so many members or keys that nothing should queue behind it.
pub(crate) fn asks_for_many(row: &Row, argv: &[Bytes]) -> bool {
    row.count.of(argv).and_then(|raw| parse_i64(raw)).is_some_and(|n| n.unsigned_abs() > MANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;
    use crate::spec::Entry;

    fn row(name: &str) -> &'static Entry {
        table().lookup(name.as_bytes()).unwrap()
    }

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|w| Bytes::copy_from_slice(w.as_bytes())).collect()
    }

    #[test]
    fn calls_that_ask_for_many() {
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
            assert_eq!(asks_for_many(row(std::str::from_utf8(&argv[0]).unwrap()), &argv), many, "{line}");
        }
    }

    #[test]
    fn large_results() {
        let copied = |line: &str| match large_result(row("copy"), &words(line)) {
            Some(LargeResult::Copied(key, db)) => Some((key.clone(), db)),
            _ => None,
        };
        let a = Bytes::from_static(b"a");
        assert_eq!(copied("copy a b"), Some((a.clone(), None)));
        assert_eq!(copied("copy a b replace db 3"), Some((a.clone(), Some(3))));
        assert_eq!(copied("copy a b db"), None);
        assert_eq!(large_result(row("move"), &words("move a 2")), Some(LargeResult::Copied(&a, Some(2))));
        assert_eq!(large_result(row("move"), &words("move a b")), None);
        let stored = words("sdiffstore d a b");
        assert_eq!(
            large_result(row("sdiffstore"), &stored),
            Some(LargeResult::Combined(Op::Diff, &stored[2..]))
        );
        assert_eq!(large_result(row("srem"), &words("srem a b")), Some(LargeResult::Removed(&a)));
        let set = words("hset a f v g w");
        let pairs = [[set[2].clone(), set[3].clone()], [set[4].clone(), set[5].clone()]];
        assert_eq!(large_result(row("hset"), &set), Some(LargeResult::FieldsSet(&a, &pairs)));
        assert_eq!(large_result(row("hset"), &set[..5]), None);
        assert_eq!(
            large_result(row("hdel"), &words("hdel a f g")),
            Some(LargeResult::FieldsRemoved(&a, &words("f g")))
        );
        assert_eq!(large_result(row("set"), &words("set a b")), None);
        assert_eq!(members(row("sadd"), &words("sadd a b c")).len(), 2);
        assert_eq!(members(row("srem"), &words("srem a b c")).len(), 2);
    }
}
