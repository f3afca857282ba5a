//! Effects of a command that its flags do not express, as data for the code that runs it.

use super::Row;
use bytes::Bytes;

/// The effect of a command that runs in a transaction on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// No such effect.
    None,
    /// Its first argument becomes the selected database.
    Selects,
    /// It turns replies on or off.
    Mutes,
    /// From now on all clients wait.
    Pauses,
    /// It may close the connection that it came from.
    Closes,
    /// Clients no longer wait: it runs while they are paused.
    Resumes,
}

/// The outcome that a call leaves under a key, and that may exceed a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Makes {
    /// Nothing large.
    Little,
    /// The intersection of the sets after the first key.
    Intersection,
    /// Their union.
    Union,
    /// The first of them minus the others.
    Difference,
    /// The strings after the second key, combined by the operation in the first argument.
    Bits,
    /// The first key's set with members added.
    Added,
    /// The first key's set with members removed.
    Removed,
    /// The first key's hash with the fields set that follow it, each with its value.
    FieldsSet,
    /// The first key's hash without the fields that follow it.
    FieldsRemoved,
    /// The first key's list with the other arguments before its first element.
    PushedLeft,
    /// The first key's list with the other arguments behind its last element.
    PushedRight,
    /// The first key's list with the third argument at the index in the second.
    ElementSet,
    /// The elements of the first key's list whose indices the other arguments name.
    Trimmed,
    /// The first key's list with the fourth argument before or behind the third.
    Inserted,
    /// The first key's list without elements that are the third argument, as many as the second says.
    ElementsRemoved,
    /// The first key's stream with the entry behind the options that follow.
    EntryAdded,
    /// What an operation leaves of the sorted sets after the first key, which GEORADIUS names last instead.
    Ranked(Ranked),
    /// A copy of the first key's value under the second key, in the database that the options name.
    Copy,
    /// The first key's value in the database that the second argument names.
    Move,
    /// The value in the third argument, serialized by DUMP.
    Restored,
    /// The first key's string with the second argument appended.
    Appended,
    /// The first key's string, overwritten with the third argument from the offset in the second.
    Patched,
}

/// Whether a command waits until there is something to have, and for how long at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It does not wait.
    No,
    /// As long as its first argument says.
    First,
    /// As long as its last argument says.
    Last,
    /// As many milliseconds as its option BLOCK says, before STREAMS; not at all without it.
    Block,
}

/// The position of the number of members or keys that a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Nowhere.
    None,
    /// In its second argument.
    Second,
    /// After the last COUNT.
    Option,
}

impl Count {
    /// The argument of `argv` that states it.
    pub(crate) fn of(self, argv: &[Bytes]) -> Option<&Bytes> {
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

/// The channels of a call that an ACL rule must allow. Unsubscribing is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// No channels.
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments; they are patterns.
    Patterns,
}

impl Channels {
    /// The channels in `argv`, and whether each is a pattern.
    pub(crate) fn of(self, argv: &[Bytes]) -> impl Iterator<Item = (&Bytes, bool)> {
        let range = match self {
            Channels::None => None,
            Channels::First => argv.get(1..2),
            Channels::All | Channels::Patterns => argv.get(1..),
        };
        range.unwrap_or_default().iter().map(move |channel| (channel, self == Channels::Patterns))
    }
}

/// The arguments that must be hidden from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// None.
    None,
    /// All from this index on.
    From(usize),
    /// The two arguments after AUTH.
    Login,
    /// The values of secret options: names and values alternate from the third argument on.
    Options,
    /// Those of the command line that begins at this index.
    Line(usize),
}

/// The fields of the first key's hash that a call names, from its second argument on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// None.
    None,
    /// One.
    One,
    /// All arguments.
    All,
    /// Every second argument: values alternate with them.
    Alternate,
}

impl Fields {
    /// The fields in `argv`.
    pub(crate) fn of(self, argv: &[Bytes]) -> impl Iterator<Item = &Bytes> {
        let (end, step) = match self {
            Fields::None => (2, 1),
            Fields::One => (3, 1),
            Fields::All => (usize::MAX, 1),
            Fields::Alternate => (usize::MAX, 2),
        };
        argv.get(2..argv.len().min(end)).unwrap_or_default().iter().step_by(step)
    }
}

/// The members of the first key's sorted set that a call names, from its second argument on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scores {
    /// None.
    None,
    /// One.
    One,
    /// All arguments.
    All,
    /// After options, scores alternate with them.
    Given,
    /// One, after the number that is added to its score.
    Added,
}

/// What a call names of a stream's groups. Unless told otherwise its arguments begin with the key and the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InGroup {
    /// Nothing.
    None,
    /// A group.
    Name,
    /// A consumer behind it.
    Consumer,
    /// Pending entries behind it.
    Pending,
    /// Pending entries behind the word IDS and their number.
    Counted,
    /// A consumer, a time, and pending entries.
    Claimed,
    /// Its words are those of XREADGROUP.
    Delivered,
}

/// The words that may precede the scores of [`Scores::Given`].
const OPTIONS: [&str; 6] = ["NX", "XX", "GT", "LT", "CH", "INCR"];

impl Scores {
    /// The members in `argv`, each with the number that belongs to it.
    pub(crate) fn of(self, argv: &[Bytes]) -> Vec<(&Bytes, Option<&Bytes>)> {
        let args = argv.get(2..).unwrap_or_default();
        let alone = |count: usize| args.iter().take(count).map(|member| (member, None)).collect();
        let is_option =
            |word: &Bytes| OPTIONS.iter().any(|option| word.eq_ignore_ascii_case(option.as_bytes()));
        let options =
            if self == Scores::Given { args.iter().take_while(|arg| is_option(arg)).count() } else { 0 };
        match self {
            Scores::None => Vec::new(),
            Scores::One => alone(1),
            Scores::All => alone(usize::MAX),
            Scores::Given | Scores::Added => {
                let pairs = args.get(options..).unwrap_or_default().as_chunks::<2>().0;
                pairs.iter().map(|[number, member]| (member, Some(number))).collect()
            }
        }
    }
}

impl Row {
    /// The members that a call names, if it adds, removes or tests members.
    pub(crate) fn members<'a>(&self, argv: &'a [Bytes]) -> &'a [Bytes] {
        if self.names_members { argv.get(2..).unwrap_or_default() } else { &[] }
    }
}

/// An operation whose result is a sorted set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranked {
    /// The members of any.
    Union,
    /// The members of all.
    Intersection,
    /// The members of the first that no other has.
    Difference,
    /// A range of one.
    Range,
    /// The members of one within a distance from a place (GEORADIUS).
    Around,
    /// The same from a member (GEORADIUSBYMEMBER).
    AroundMember,
    /// The members of one in an area (GEOSEARCHSTORE).
    Search,
}
