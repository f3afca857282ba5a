//! Sets whose readers walked over many deltas: `jobs::fold` takes those into their chunks.
//!
//! Writers fold what they remember having written. What is left (members that were added here and there over a wide range of ids, by
//! servers that have stopped) is found by whoever reads it, for only readers are slower for it.

use crate::keyspace::keys::{Oid, Prefix};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Sets that are remembered. Others are found again by their next readers.
const MOST: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unfolded(Mutex<BTreeMap<Oid, Prefix>>);

impl Unfolded {
    /// A set of database `db` has many deltas.
    pub(crate) fn note(&self, db: Prefix, oid: Oid) {
        let mut sets = self.0.lock();
        if sets.len() < MOST {
            sets.insert(oid, db);
        }
    }

    /// All of them; they are forgotten here.
    pub(crate) fn take(&self) -> BTreeMap<Oid, Prefix> {
        std::mem::take(&mut self.0.lock())
    }
}
