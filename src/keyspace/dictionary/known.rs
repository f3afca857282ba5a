//! The ids that have a member, collected by one reader of the whole dictionary.

use super::ids::FIRST_INTEGER;
use roaring::RoaringTreemap;

/// One past the last id of an integer.
pub(crate) const INTEGERS_END: u64 = 0b11 << 62;

/// Interned ids that have a member.
#[derive(Debug, Default)]
pub(crate) struct KnownIds(RoaringTreemap);

impl KnownIds {
    /// Adds an id.
    pub(crate) fn insert(&mut self, id: u64) {
        self.0.insert(id);
    }
    /// Those of `ids` that are interned but not known.
    pub(crate) fn missing(&self, ids: &RoaringTreemap) -> RoaringTreemap {
        let mut missing = ids - &self.0;
        missing.remove_range(FIRST_INTEGER..INTEGERS_END);
        missing
    }
}
