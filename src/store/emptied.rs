//! Ranges that a transaction has emptied row by row, so that its later reads begin behind them or jump over them.
//!
//! A batch that takes from the front of a queue clears a row for each element. Each take would walk over the rows that
//! those before it cleared: also if the batch puts a row back in front of them.
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
    /// So many own effects before a row that a read finds make a range.
    pub(super) const LONG: usize = 8;

    /// Reads of at most so many rows are short: they may be some of many.
    pub(super) const SHORT: usize = 16;

    /// So many own effects in a range are worth an iterator that begins behind it.
    pub(super) const WORTH: usize = 32;

    /// So many ranges are looked at: a read that jumps over none of them makes them one.
    const NEAR: usize = 8;

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

    /// The part of `begin..end` up to the next range that is worth a jump, in the direction of the read.
    pub(super) fn stretch(
        &self,
        begin: &Bytes,
        end: &Bytes,
        reverse: bool,
        is_worth: impl Fn(&Bytes, &Bytes) -> bool,
    ) -> (Bytes, Bytes) {
        let near = |(from, to): &(&Bytes, &Bytes)| is_worth(from, to);
        if reverse {
            let next = self.0.up_to(begin, end).take(Self::NEAR).find(near);
            (next.map_or(begin, |(_, behind)| behind).clone(), end.clone())
        } else {
            let next = self.0.from(begin, end).take(Self::NEAR).find(near);
            (begin.clone(), next.map_or(end, |(from, _)| from).clone())
        }
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
