//! Sets whose readers passed over many deltas: `jobs::fold` folds those into their chunks.
//!
//! Writers fold the deltas that they remember writing. The rest (members added here and there over a wide
//! range of ids, by servers that have stopped) is found by readers, because only they are slowed down by it.

use crate::keyspace::keys::{Oid, Prefix};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The most sets remembered. The next readers find the others again.
const MOST: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unfolded(Mutex<BTreeMap<Oid, Prefix>>);

impl Unfolded {
    /// Notes that a set of database `db` has many deltas.
    pub(crate) fn note(&self, db: Prefix, oid: Oid) {
        let mut sets = self.0.lock();
        if sets.len() < MOST {
            sets.insert(oid, db);
        }
    }

    /// Returns all sets and forgets them.
    pub(crate) fn take(&self) -> BTreeMap<Oid, Prefix> {
        std::mem::take(&mut self.0.lock())
    }
}
