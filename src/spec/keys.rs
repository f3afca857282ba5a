//! Finds the keys of a command line.

use super::Row;
use super::words::atoi;
use bytes::Bytes;

/// The positions of a command's keys, in Redis' model (COMMAND's key specifications). Indexes count from the
/// name at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// How they are used, as COMMAND prints it: `RO`, `RW`, `OW`, `RM`, `access`, `update`, `insert`,
    /// `delete`.
    pub flags: &'static [&'static str],
    /// Index of the first key, or of the number of keys.
    pub begin: usize,
    /// How to find the others.
    pub find: FindKeys,
}

impl KeySpec {
    /// Whether these are keys: shard channels are found in the same way but are not keys.
    pub fn is_keys(&self) -> bool {
        !self.flags.contains(&"not_key")
    }
}

/// How keys follow the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindKeys {
    /// Up to `begin + last` (negative: from the end), every `step`-th argument.
    Range {
        /// Relative to the first key; -1 is the last argument.
        last: i32,
        /// 1 for every argument, 2 for key-value pairs.
        step: usize,
    },
    /// The argument at `begin` is their number; they follow it.
    Keynum {
        /// As in a range.
        step: usize,
    },
    /// Unknown until the command runs (SORT BY).
    Unknown,
    /// After the last STORE among SORT's options.
    Stored,
    /// After the last of this word, STORE or STOREDIST, among GEORADIUS' options from `begin` on. (COMMAND shows it as
    /// Redis does, which takes the first, although the command writes to the last.)
    After(&'static str),
    /// The first half of the arguments behind the option STREAMS of XREAD or XREADGROUP: the others are ids. (`begin` is
    /// what COMMAND shows, as Redis does; the command reads its options from the first argument on.)
    Streams,
}

impl KeySpec {
    /// The first key of a call.
    pub(crate) fn first<'a>(&self, argv: &'a [Bytes]) -> Option<&'a Bytes> {
        match self.find {
            FindKeys::Range { .. } | FindKeys::Unknown | FindKeys::Stored => argv.get(self.begin),
            FindKeys::After(word) => after(word, self.begin, argv).first(),
            FindKeys::Streams => streams(argv).0.first(),
            FindKeys::Keynum { .. } => argv.get(self.begin + 1),
        }
    }
}

/// One key read: GET, TTL, SCARD.
pub const KEY_RO: &[KeySpec] = &[one(&["RO", "access"])];
/// One key whose existence or metadata is read: TYPE.
pub const KEY_META: &[KeySpec] = &[one(&["RO"])];
/// One key that is read and changed.
pub const KEY_RW: &[KeySpec] = &[one(&["RW", "update"])];
/// One key whose new value depends on its old one.
pub const KEY_CHANGED: &[KeySpec] = &[one(&["RW", "access", "update"])];
/// One key that is removed and whose value is returned.
pub const KEY_TAKEN: &[KeySpec] = &[one(&["RW", "access", "delete"])];
/// One key that is overwritten.
pub const KEY_OW: &[KeySpec] = &[one(&["OW", "update"])];
/// All arguments are keys, which are read.
pub const KEYS_RO: &[KeySpec] = &[all(&["RO", "access"])];
/// All arguments are keys, which are removed.
pub const KEYS_RM: &[KeySpec] = &[all(&["RM", "delete"])];
/// Key-value pairs.
pub const PAIRS_OW: &[KeySpec] =
    &[KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Range { last: -1, step: 2 } }];

/// The first argument.
pub const fn one(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 1, find: FindKeys::Range { last: 0, step: 1 } }
}
/// All arguments.
pub const fn all(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 1, find: FindKeys::Range { last: -1, step: 1 } }
}

/// The keys in `argv` by the row's specifications. None if the number of keys is wrong.
pub fn keys_of<'a>(row: &Row, argv: &'a [Bytes]) -> Option<Vec<&'a Bytes>> {
    let mut keys = Vec::new();
    for spec in row.keys.iter().filter(|spec| spec.is_keys()) {
        keys.extend(keys_at(spec, argv)?);
    }
    Some(keys)
}

/// The keys that a call may write; empty if the number of keys is wrong. XREADGROUP writes what is about its keys, which
/// COMMAND and ACL rules take for read: a command that writes and names no key that it writes may write to any that it names.
pub fn written_keys<'a>(row: &Row, argv: &'a [Bytes]) -> Vec<&'a Bytes> {
    let reads = |spec: &KeySpec| spec.flags.contains(&"RO");
    let only_reads = row.keys.iter().all(reads);
    let writes = |spec: &&KeySpec| spec.is_keys() && (!reads(spec) || only_reads && row.is_write());
    let writes = row.keys.iter().filter(writes);
    writes.filter_map(|spec| keys_at(spec, argv)).flatten().collect()
}

/// The keys that a call waits for; empty if the number of keys is wrong.
pub fn waited_keys<'a>(row: &Row, argv: &'a [Bytes]) -> Vec<&'a Bytes> {
    row.keys.first().and_then(|spec| keys_at(spec, argv)).into_iter().flatten().collect()
}

/// As Redis finds it: arguments of other options are skipped, but not the argument of STORE.
fn stored(begin: usize, argv: &[Bytes]) -> &[Bytes] {
    let (mut at, mut found) = (begin + 1, &[][..]);
    while let Some(word) = argv.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("STORE") {
            found = argv.get(at + 1..at + 2).unwrap_or(found);
        }
        at += if is("LIMIT") { 3 } else { 1 + usize::from(is("BY") || is("GET")) };
    }
    found
}

/// The argument of the last option with this name, if any.
fn after<'a>(word: &str, begin: usize, argv: &'a [Bytes]) -> &'a [Bytes] {
    let (mut at, mut found) = (begin, &[][..]);
    while let Some(option) = argv.get(at) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is(word) {
            found = argv.get(at + 1..at + 2).unwrap_or(found);
        }
        at += if is("STORE") || is("STOREDIST") { 2 } else { 1 };
    }
    found
}

/// An option of XREAD or XREADGROUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOption {
    Block,
    Count,
    Claim,
    NoAck,
    Group,
    Streams,
    /// Anything else, which is an error.
    Unknown,
}

impl ReadOption {
    fn of(word: &[u8]) -> Self {
        match &word.to_ascii_uppercase()[..] {
            b"BLOCK" => Self::Block,
            b"COUNT" => Self::Count,
            b"CLAIM" => Self::Claim,
            b"NOACK" => Self::NoAck,
            b"GROUP" => Self::Group,
            b"STREAMS" => Self::Streams,
            _ => Self::Unknown,
        }
    }

    /// How many of `left` arguments are its own.
    fn args(self, left: usize) -> usize {
        match self {
            Self::NoAck | Self::Unknown => 0,
            Self::Block | Self::Count | Self::Claim => 1,
            Self::Group => 2,
            Self::Streams => left,
        }
    }
}

/// The options of XREAD or XREADGROUP behind the name, each with its arguments: fewer than it takes if the line ends.
/// STREAMS is the last one, with all that follow. Whoever looks for an option must find the one that the command finds, or
/// ACL rules do not see what it reads: so the commands, too, read their options here.
pub(crate) fn read_options(mut rest: &[Bytes]) -> impl Iterator<Item = (ReadOption, &[Bytes])> {
    std::iter::from_fn(move || {
        let (word, args) = rest.split_first()?;
        let option = ReadOption::of(word);
        let (own, behind) = args.split_at(option.args(args.len()).min(args.len()));
        rest = behind;
        Some((option, own))
    })
}

/// The arguments of the last option of this kind in a call of XREAD or XREADGROUP, the one that counts.
pub(crate) fn read_option(wanted: ReadOption, argv: &[Bytes]) -> Option<&[Bytes]> {
    let options = read_options(argv.get(1..).unwrap_or_default());
    options.filter(|(option, _)| *option == wanted).last().map(|(_, args)| args)
}

/// The keys and the ids of XREAD or XREADGROUP.
pub(crate) fn streams(argv: &[Bytes]) -> (&[Bytes], &[Bytes]) {
    let args = read_option(ReadOption::Streams, argv).unwrap_or_default();
    args.split_at(args.len() / 2)
}

/// The argument of the last BLOCK of XREAD or XREADGROUP.
pub(crate) fn block(argv: &[Bytes]) -> Option<&Bytes> {
    read_option(ReadOption::Block, argv)?.first()
}

/// The keys in `argv` by one specification. None if the number of keys is wrong.
pub fn keys_at<'a>(spec: &KeySpec, argv: &'a [Bytes]) -> Option<impl Iterator<Item = &'a Bytes> + use<'a>> {
    let (keys, step) = match spec.find {
        FindKeys::Range { last, step } => {
            let end = if last < 0 {
                argv.len().checked_sub(last.unsigned_abs() as usize - 1)?
            } else {
                spec.begin + last as usize + 1
            };
            (argv.get(spec.begin..end)?, step)
        }
        FindKeys::Unknown => (&[][..], 1),
        FindKeys::Stored => (stored(spec.begin, argv), 1),
        FindKeys::After(word) => (after(word, spec.begin, argv), 1),
        FindKeys::Streams => (streams(argv).0, 1),
        FindKeys::Keynum { step } => {
            // Parsed as Redis does at this point: the command itself rejects anything that is not a number.
            let n = usize::try_from(atoi(argv.get(spec.begin)?)).ok()?;
            (argv.get(spec.begin + 1..)?.get(..n.checked_mul(step)?)?, step)
        }
    };
    Some(keys.iter().step_by(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::table;

    /// The key that GEORADIUS writes to is among those that ACL rules must allow, however the options are arranged.
    #[test]
    fn the_key_that_georadius_writes_to_is_found() {
        for (options, wanted) in [
            ("", ""),
            ("ASC STORE a", "a"),
            ("store a STORE b", "b"),
            ("STORE a STOREDIST b", "a b"),
            ("STOREDIST a STORE b STOREDIST c COUNT 1", "b c"),
            ("STORE STORE", "STORE"),
            ("STOREDIST STORE STORE k", "k STORE"),
            ("STORE STOREDIST", "STOREDIST"),
        ] {
            let line = format!("GEORADIUS k 1 2 3 m {options}");
            let argv: Vec<Bytes> = line.split_whitespace().map(|word| Bytes::from(word.to_owned())).collect();
            let (row, _) = table().resolve(&argv).unwrap().unwrap();
            let found: Vec<&[u8]> = written_keys(row, &argv).into_iter().map(|key| &key[..]).collect();
            assert_eq!(found.join(&b' '), wanted.as_bytes(), "{line}");
        }
    }

    /// A key that is found elsewhere than where the command finds it escapes the rules of ACLs.
    #[test]
    fn keys_of_streams_are_found_where_the_commands_find_them() {
        for (line, wanted) in [
            ("XREADGROUP GROUP g c STREAMS a b > >", "a b"),
            ("XREADGROUP NOACK GROUP g c STREAMS a >", "a"),
            ("XREADGROUP COUNT 1 GROUP GROUP c STREAMS a >", "a"),
            ("XREADGROUP COUNT 1 GROUP NOACK STREAMS STREAMS a b > >", "a b"),
            ("XREADGROUP GROUP STREAMS STREAMS CLAIM 1 STREAMS a b > >", "a b"),
            ("XREADGROUP BLOCK 0 CLAIM 0 NOACK NOACK GROUP a b GROUP g c streams STREAMS >", "STREAMS"),
            ("XREAD COUNT STREAMS STREAMS a 0", "a"),
            ("XREAD STREAMS a STREAMS 0 0", "a STREAMS"),
        ] {
            let argv: Vec<Bytes> = line.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
            let (row, _) = table().resolve(&argv).unwrap().unwrap();
            let join = |keys: Vec<&Bytes>| keys.iter().map(|key| &key[..]).collect::<Vec<_>>().join(&b' ');
            assert_eq!(join(keys_of(row, &argv).unwrap()), wanted.as_bytes(), "{line}");
            assert_eq!(join(waited_keys(row, &argv)), wanted.as_bytes(), "{line}");
            let written = if row.is_write() { wanted } else { "" };
            assert_eq!(join(written_keys(row, &argv)), written.as_bytes(), "{line}");
            let first = row.keys.first().and_then(|spec| spec.first(&argv)).unwrap();
            assert_eq!(first, wanted.split(' ').next().unwrap(), "{line}");
        }
    }
}
