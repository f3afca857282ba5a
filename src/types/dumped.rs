//! Values in the words of Redis' snapshot files: what DUMP writes and RESTORE reads, whatever bytes stand for
//! it.

use super::string::Str;
use bytes::Bytes;

/// What DUMP writes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dump {
    /// A string, which is read while it is written where it is long.
    Str(Str),
    /// A set of these members, in this order.
    Set(Vec<Bytes>),
    /// A set of these integers, ascending.
    Integers(Vec<Bytes>),
    /// Redis' files have no form for the type.
    Nothing,
}

/// What RESTORE reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dumped {
    /// A string.
    Str(Bytes),
    /// Different members, at least one.
    Set(Vec<Bytes>),
}
