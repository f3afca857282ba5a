//! Rows that a transaction has read ahead because it takes from one end of a range again and again.
//!
//! A batch of pops reads the first row of one range for each of them, and most of the time of a short read goes into
//! opening an iterator (of the 72 700 instructions of a ZPOPMIN, 43 000 went into such a read). So a read that goes on where
//! the one before it ended reads more rows than it needs, and keeps them for the next ones.
//!
//! Invariant: what is kept of `begin..end` is all that the transaction's snapshot has there. Its own writes are merged
//! over it as over the snapshot (`scan.rs`).

use super::directory::read_error;
use super::scan::Base;
use super::snapshot::SnapshotView;
use crate::error::StoreResult;
use crate::store::emptied::Emptied;
use crate::store::{RangeOptions, key_after};
use bytes::Bytes;

/// Rows that such a read takes at once, at first and at most, and the most bytes of them.
const LEAST: usize = 4;
const MOST: usize = 64;
const MOST_BYTES: usize = 16 << 10;
/// The most rows that are kept.
const KEPT: usize = 4 * MOST;

/// See the module. Keys are stored keys.
#[derive(Debug, Default)]
pub(super) struct Front {
    begin: Bytes,
    end: Bytes,
    /// In this order, or from the last to the first.
    reverse: bool,
    rows: Vec<(Bytes, Bytes)>,
    /// Rows to read next.
    step: usize,
}

/// Rows in `begin..end`, in the order of the read.
pub(super) struct Part<'a> {
    pub(super) begin: Bytes,
    pub(super) end: Bytes,
    rows: &'a [(Bytes, Bytes)],
}

impl Front {
    /// Whether a read is so short that it may be one of many.
    pub(super) fn is_for(options: RangeOptions) -> bool {
        (1..=Emptied::SHORT).contains(&options.limit)
    }

    /// What the snapshot has in the part of `begin..end` (not empty) where a read begins: never an empty part.
    pub(super) fn part(
        &mut self,
        view: &SnapshotView,
        (begin, end): (&Bytes, &Bytes),
        options: RangeOptions,
    ) -> StoreResult<Part<'_>> {
        let reverse = options.reverse;
        if !self.covers(begin, end, reverse)
            && let Err(e) = self.read(view, (begin, end), options)
        {
            *self = Front::default();
            return Err(e);
        }
        let (begin, end) = (begin.max(&self.begin).clone(), end.min(&self.end).clone());
        let is_before = |key: &Bytes| if reverse { *key >= end } else { *key < begin };
        let is_within = |key: &Bytes| if reverse { *key >= begin } else { *key < end };
        let from = self.rows.partition_point(|(key, _)| is_before(key));
        let to = self.rows.partition_point(|(key, _)| is_within(key));
        Ok(Part { rows: self.rows.get(from..to).unwrap_or_default(), begin, end })
    }

    fn covers(&self, begin: &Bytes, end: &Bytes, reverse: bool) -> bool {
        let is_begun = if reverse {
            self.begin < *end && *end <= self.end
        } else {
            self.begin <= *begin && *begin < self.end
        };
        self.reverse == reverse && is_begun
    }

    /// Reads some more rows, or from another place.
    fn read(
        &mut self,
        view: &SnapshotView,
        (begin, end): (&Bytes, &Bytes),
        RangeOptions { reverse, limit, .. }: RangeOptions,
    ) -> StoreResult<()> {
        let goes_on =
            self.reverse == reverse && if reverse { self.begin == *end } else { self.end == *begin };
        if goes_on {
            self.step = (2 * self.step).clamp(LEAST, MOST);
        } else {
            self.step = limit;
        }
        if !goes_on || self.rows.len() >= KEPT {
            let from = if reverse { end } else { begin };
            (self.begin, self.end, self.reverse) = (from.clone(), from.clone(), reverse);
            self.rows.clear();
        }
        let (mut left, mut bytes, mut last) = (self.step, 0, None);
        let mut rows = view.rows(begin, end, reverse);
        while let Some((key, value)) = rows.item() {
            let key = Bytes::copy_from_slice(key);
            bytes += key.len() + value.len();
            left -= 1;
            self.rows.push((key.clone(), Bytes::copy_from_slice(value)));
            if left == 0 || bytes >= MOST_BYTES {
                last = Some(key);
                break;
            }
            rows.step();
        }
        rows.status().map_err(read_error)?;
        match last {
            Some(last) if reverse => self.begin = last,
            None if reverse => self.begin = begin.clone(),
            Some(last) => self.end = key_after(&last).into(),
            None => self.end = end.clone(),
        }
        Ok(())
    }
}

impl Base for Part<'_> {
    fn item(&self) -> Option<(&[u8], &[u8])> {
        self.rows.first().map(|(key, value)| (&key[..], &value[..]))
    }
    fn step(&mut self) {
        self.rows = self.rows.split_first().map_or(&[], |(_, rest)| rest);
    }
}
