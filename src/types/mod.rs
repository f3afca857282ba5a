//! The types of values, as operations on a transaction: one folder per type, and one fixed list of operations
//! that each type implements ([`contract`]). The door to a value is [`object`].
//!
//! To add a type: write its folder, implement [`contract::Type`] there, and add its line to the list below.
//! The compiler and `tests/tidy` check the rest. (A HyperLogLog is a string in Redis, and here.)

#[cfg(test)]
pub(crate) mod abacus;
pub(crate) mod audit;
pub(crate) mod contents;
pub(crate) mod contract;
mod cursor;
pub(crate) mod dumped;
pub mod hash;
pub mod hyperloglog;
pub mod items;
pub(crate) mod lease;
pub mod list;
pub mod memo;
pub mod object;
mod pieces;
pub mod prebuilt;
pub mod record;
mod refreshed;
pub mod set;
pub mod stream;
pub mod string;
pub mod zset;

use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::Read;
use audit::{Auditor, Findings};
use bytes::Bytes;
use contract::{Type, types};
use dumped::Dump;
use prebuilt::{Object, Source};

types! {
    Str(string::Str),
    Set(set::SetRep),
    Hash(hash::HashRep),
    List(list::ListRep),
    Zset(zset::ZsetRep),
    Stream(stream::StreamRep),
    #[cfg(test)] Abacus(abacus::Abacus),
}

/// A type, as the door opens it.
pub(crate) trait OneType: Type {
    /// The value, if it is of this type.
    fn of(value: &Value) -> Option<&Self>;
}

impl Kind {
    /// Whether an object of this type may have rows of `tag`.
    pub(crate) fn has_rows(self, tag: u8) -> bool {
        self.rows().contains(&tag) || tag == COUNTS && self.is_counted()
    }
}

/// The tag of the rows `N`, which several types use.
pub(crate) const COUNTS: u8 = b'N';

/// The tags of the rows of all objects, ascending.
pub(crate) fn object_tags() -> Vec<u8> {
    let mut tags: Vec<u8> = Kind::ALL.iter().flat_map(|kind| kind.rows()).copied().collect();
    tags.push(COUNTS);
    tags.sort_unstable();
    tags
}

impl Value {
    /// Decodes the bytes that [`Value::encode`] wrote under `tag`. None if they are damaged.
    pub(crate) fn decode(tag: u8, payload: Bytes) -> Option<Value> {
        Kind::ALL.iter().find(|kind| kind.tags().contains(&tag))?.decode(tag, payload)
    }

    /// The object whose row `N` counts the value's elements. None if the key exists whenever its record does.
    pub(crate) fn counter(&self) -> Option<Oid> {
        self.oid().filter(|_| self.kind().is_counted())
    }

    /// The answer to TYPE.
    pub(crate) fn type_name(&self) -> &'static str {
        self.kind().name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_tag_is_used_twice() {
        let mut tags = HashSet::from([record::GHOST]);
        assert!(Kind::ALL.iter().flat_map(|kind| kind.tags()).all(|tag| tags.insert(*tag)));
        let mut rows = HashSet::from(*b"KNXZ");
        assert!(Kind::ALL.iter().flat_map(|kind| kind.rows()).all(|tag| rows.insert(*tag)));
    }
}
