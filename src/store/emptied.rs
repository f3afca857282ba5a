//! Ranges that a transaction has emptied row by row, so that its later reads begin behind them.
//!
//! A batch that takes from the front of a queue clears a row for each element. Each take would walk over the rows that
//! those before it cleared.
//!
//! Invariant: in what the transaction sees, its snapshot under its own writes, these ranges have no row. The snapshot
//! does not change, so only an own write puts a row there; it cuts the range.

use super::key_after;
use super::writes::Ranges;
use bytes::Bytes;

/// See the module. Keys are in stored form.
#[derive(Debug, Default)]
pub(super) struct Emptied(Ranges);

impl Emptied {
    /// So many own effects before the first row that a read finds make a range.
    pub(super) const LONG: usize = 8;

    /// The part of `begin..end` that a read has to look at.
    pub(super) fn trimmed(&self, begin: &Bytes, end: &Bytes, reverse: bool) -> (Bytes, Bytes) {
        let (mut begin, mut end) = (begin.clone(), end.clone());
        if reverse {
            if let Some(before) = self.0.before(&end) {
                end = before.clone().max(begin.clone());
            }
        } else if let Some((_, behind)) = self.0.covering(&begin) {
            begin = behind.clone().min(end.clone());
        }
        (begin, end)
    }

    /// The transaction sees no row in `begin..end`.
    pub(super) fn add(&mut self, begin: Bytes, end: Bytes) {
        if begin < end {
            self.0.insert(begin, end);
        }
    }

    /// The transaction writes a row at `key`.
    #[inline]
    pub(super) fn cut(&mut self, key: &Bytes) {
        if !self.0.is_empty() {
            self.0.cut(key, || key_after(key).into());
        }
    }
}
