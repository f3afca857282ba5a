//! Values in the terms of Redis' snapshot files: what DUMP writes and RESTORE reads, independent of the bytes
//! that encode it.

use super::string::Str;
use bytes::Bytes;

/// A value as DUMP writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dump {
    /// A string; a long one is read while it is written.
    Str(Str),
    /// A set of these members, in this order.
    Set(Vec<Bytes>),
    /// A set of these integers, ascending.
    Integers(Vec<Bytes>),
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
}
