//! Values in the terms of Redis' snapshot files: what DUMP writes and RESTORE reads, independent of the bytes
//! that encode it.

use super::stream::whole::Whole;
use super::string::Str;
use super::zset::Entry;
use bytes::Bytes;

/// A field of a hash with its value, and when it expires: in milliseconds since the Unix epoch.
pub type Field = ([Bytes; 2], Option<u64>);

/// A value as DUMP writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dump {
    /// A string; a long one is read while it is written.
    Str(Str),
    /// A set of these members, in this order.
    Set(Vec<Bytes>),
    /// A set of these integers, ascending.
    Integers(Vec<Bytes>),
    /// A hash of these fields and values.
    Hash(Vec<[Bytes; 2]>),
    /// A hash of these fields, of which some expire.
    Fields(Vec<Field>),
    /// A list of these elements.
    List(Vec<Bytes>),
    /// A sorted set of these members, in order.
    Zset(Vec<Entry>),
    /// A stream.
    Stream(Whole),
    /// Redis' files have no format for the type.
    Nothing,
}

/// A value as RESTORE reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dumped {
    /// A string.
    Str(Bytes),
    /// Distinct members, at least one.
    Set(Vec<Bytes>),
    /// Distinct fields with their values, at least one.
    Hash(Vec<[Bytes; 2]>),
    /// Distinct fields, at least one; some expire, perhaps in the past.
    Fields(Vec<Field>),
    /// Elements, at least one.
    List(Vec<Bytes>),
    /// Distinct members, at least one, in any order.
    Zset(Vec<Entry>),
    /// A stream, which may be empty.
    Stream(Whole),
}
