//! What a row does that its flags do not say, for those who run it.

use super::Row;
use bytes::Bytes;

/// What a command that runs in a transaction does to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that others must know of.
    None,
    /// Its first argument is the database from now on.
    Selects,
    /// Says whether there are replies.
    Mutes,
    /// All clients wait from now on.
    Pauses,
    /// ... and no longer: it runs while they wait.
    Resumes,
}

/// What a call leaves under a key, and may exceed a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Makes {
    /// Nothing large.
    Little,
    /// The sets behind the first key, intersected.
    Intersection,
    /// ... united.
    Union,
    /// ... subtracted from the first of them.
    Difference,
    /// The strings behind the second key, combined as the first argument says.
    Bits,
    /// The first key's set with members.
    Added,
    /// ... without members.
    Removed,
    /// The first key's value under the second, in the database of its options.
    Copy,
    /// The first key's value in the database that the second argument names.
    Move,
    /// What DUMP has made its third argument of.
    Restored,
    /// The first key's string with the second argument at its end.
    Appended,
    /// The first key's string with the third argument from the offset on that the second is.
    Patched,
}

/// Where a call says how many members or keys it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Nowhere.
    None,
    /// In its second argument.
    Second,
    /// Behind the last COUNT.
    Option,
}

impl Count {
    /// The argument of `argv` that says it.
    pub fn of(self, argv: &[Bytes]) -> Option<&Bytes> {
        match self {
            Count::None => None,
            Count::Second => argv.get(2),
            Count::Option => argv.windows(2).rev().find_map(|two| match two {
                [word, count] if word.eq_ignore_ascii_case(b"count") => Some(count),
                _ => None,
            }),
        }
    }
}

/// The channels of a call that a rule must allow. To unsubscribe is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// There are none.
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments, and they are patterns.
    Patterns,
}

impl Channels {
    /// Those of `argv`, and whether each is a pattern.
    pub fn of(self, argv: &[Bytes]) -> impl Iterator<Item = (&Bytes, bool)> {
        let range = match self {
            Channels::None => None,
            Channels::First => argv.get(1..2),
            Channels::All | Channels::Patterns => argv.get(1..),
        };
        range.unwrap_or_default().iter().map(move |channel| (channel, self == Channels::Patterns))
    }
}

/// Which arguments others must not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// None.
    None,
    /// All from this place on.
    From(usize),
    /// The two behind AUTH.
    Login,
    /// The values of options that are secret: names and values follow each other from the third argument on.
    Options,
    /// Those of the command line that begins at this place.
    Line(usize),
}

impl Row {
    /// The members that a call names, where it is about the membership of some.
    pub fn members<'a>(&self, argv: &'a [Bytes]) -> &'a [Bytes] {
        if self.names_members { argv.get(2..).unwrap_or_default() } else { &[] }
    }
}
