//! Rows that are going to be looked up are touched together.
//!
//! To look up one of very many rows is to wait for memory, five to seven times: for its slot in a table, then for the
//! row that the slot names, then for its key, then for its value. Look-ups that follow each other wait one after the
//! other. Those that are begun together wait together, because a processor fetches several lines at once; the look-ups
//! that follow find everything in its caches.

use super::{Tx, local};

/// Rows that are touched at once.
pub const AT_ONCE: usize = 64;

/// Collects rows to touch.
pub struct Touch<'t> {
    tx: &'t local::LocalTx,
    hashes: [u64; AT_ONCE],
    len: usize,
    known: usize,
}

impl Tx {
    /// Begins to touch rows. None if this store has no rows in this process.
    pub fn touch(&self) -> Option<Touch<'_>> {
        match self {
            Tx::Local(tx) => Some(Touch { tx, hashes: [0; AT_ONCE], len: 0, known: 0 }),
            Tx::Faulty(_) => None,
            #[cfg(feature = "fdb")]
            Tx::Fdb(_) => None,
        }
    }
}

impl Touch<'_> {
    /// Adds the row whose key has these parts.
    pub fn row(&mut self, key: &[&[u8]]) {
        if self.len == AT_ONCE {
            self.load();
        }
        if let Some(hash) = self.hashes.get_mut(self.len) {
            *hash = local::LocalTx::hash_of(key);
            self.len += 1;
        }
    }

    /// Touches the rows that were added. Returns how many of all are in memory (for tests). A single row is not touched:
    /// that would take as long as to look it up.
    pub fn finish(&mut self) -> usize {
        if self.len > 1 {
            self.load();
        }
        self.known
    }

    fn load(&mut self) {
        self.known += self.tx.touch(self.hashes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }
}
