//! What is sent of a large object while it is read: see [`super::items`].

use crate::keyspace::keys::Oid;
use crate::keyspace::packed::Packed;
use crate::types::zset::Score;

/// What is sent of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// The fields of a hash, but those that had expired at the time of the command.
    Fields { parts: Parts, now: u64 },
    /// Elements of a list.
    Elements,
    /// Members of a sorted set.
    Ranked(Ranked),
    /// Entries of a stream.
    Entries {
        /// From the last to the first.
        reverse: bool,
        /// As long as these are so, the entries are unchanged.
        losses: Losses,
    },
}

/// What a stream has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Losses {
    /// How many entries were removed, if the number of those added is right.
    pub(crate) removed: u64,
    /// How often that number was set.
    pub(crate) resets: u64,
}

/// The parts of each field that a reply has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Fields and values in turn, a map.
    Pairs,
    /// Fields.
    Fields,
    /// Values.
    Values,
}

/// What a reply has of each member of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranked {
    /// From the last to the first.
    pub(crate) reverse: bool,
    /// Its score, too: the 8 bytes of the number, little-endian.
    pub(crate) with_scores: bool,
}

/// How the strings of a reply belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Not at all.
    Single,
    /// Fields and values in turn.
    Map,
    /// Members in turn with their scores, as [`Ranked`] has them.
    Scored,
    /// Entries of a stream: [`crate::types::stream::entry::sent`] reads them.
    Entries,
}

/// The rows that are sent.
#[derive(Debug)]
pub(crate) struct Span {
    /// The first row. From the last to the first: one past the last row.
    pub(crate) begin: Vec<u8>,
    /// Where they end. From the last to the first: the first row.
    pub(crate) end: Vec<u8>,
    /// The number of fields, elements or members.
    pub(crate) len: u64,
    /// Bytes of each, about.
    pub(crate) each: u64,
}

/// What is about to be sent.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The object id.
    pub(crate) oid: Oid,
    /// The revision of its record, and N.
    pub(crate) version: (u64, i128),
    /// What of it.
    pub(crate) contents: Contents,
    /// Its rows.
    pub(crate) span: Span,
}

impl Contents {
    /// The shape of the reply.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Contents::Fields { parts, .. } => parts.shape(),
            Contents::Elements => Shape::Single,
            Contents::Ranked(ranked) => ranked.shape(),
            Contents::Entries { .. } => Shape::Entries,
        }
    }
}

impl Parts {
    /// The shape of a reply that has them.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Parts::Pairs => Shape::Map,
            Parts::Fields | Parts::Values => Shape::Single,
        }
    }

    /// Adds them to a reply.
    pub(super) fn push(self, field: &[u8], value: &[u8], out: &mut Packed) {
        if self != Parts::Values {
            out.push(field);
        }
        if self != Parts::Fields {
            out.push(value);
        }
    }
}

impl Ranked {
    /// The shape of a reply that has them.
    pub(crate) fn shape(self) -> Shape {
        if self.with_scores { Shape::Scored } else { Shape::Single }
    }

    /// Adds a member to a reply.
    pub(crate) fn push(self, member: &[u8], score: Score, out: &mut Packed) {
        out.push(member);
        if self.with_scores {
            out.push(&score.number().to_le_bytes());
        }
    }
}

impl Shape {
    /// Strings of each field, element or member.
    pub fn strings(self) -> u64 {
        match self {
            Shape::Single | Shape::Entries => 1,
            Shape::Map | Shape::Scored => 2,
        }
    }
}
