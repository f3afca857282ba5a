//! Reads a string of any length in steps, with turns for other tasks in between. Bytes without a row (a
//! missing piece, the end of a short one) are returned as a number of zeroes: a string of 512 MB with one
//! byte in it costs one row.

use super::{PIECE, len};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{Pairs, RangeOptions, Read, Tx};
use crate::types::string::Str;
use bytes::Bytes;
use std::collections::VecDeque;
use tokio::task::yield_now;

/// Bytes of pieces read at once: 50 to 100 us.
pub(crate) const STEP: usize = 8 * PIECE;
/// Most zeroes written out before other tasks get a turn.
const MOST_ZEROES: u64 = 1 << 20;

/// The next part of a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stretch {
    /// These bytes, at least one.
    Bytes(Bytes),
    /// This many zeroes, at least one.
    Zeroes(u64),
}

impl Stretch {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Stretch::Bytes(bytes) => bytes.len() as u64,
            Stretch::Zeroes(n) => *n,
        }
    }
    /// True if it has no bytes; never the case for a stretch from a [`Walk`].
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See the module. A clone continues from the same place.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// None: everything is in `ahead`.
    rows: Option<(Prefix, Oid)>,
    /// The start of the next stretch, and the end of the last.
    at: u64,
    end: u64,
    /// Everything before this has been read: bytes not in `ahead` are zeroes.
    seen: u64,
    /// Places and bytes, ascending.
    ahead: VecDeque<(u64, Bytes)>,
    /// Bytes to request next.
    step: usize,
}

impl Walk {
    /// The bytes `start..end` of a string in database `db`, cut to its length.
    pub(crate) fn new(db: Prefix, value: &Str, start: u64, end: u64) -> Self {
        let end = end.min(len(value));
        let at = start.min(end);
        let mut walk = Walk { rows: None, at, end, seen: at, ahead: VecDeque::new(), step: STEP };
        match value {
            Str::Inline(b) | Str::Made { bytes: b, .. } => walk.push(0, b),
            Str::Pieces { oid, .. } => walk.rows = Some((db, *oid)),
        }
        walk
    }

    /// Reads only one piece first: for searches that hope to end there.
    pub(crate) fn hopeful(self) -> Self {
        Walk { step: 1, ..self }
    }

    /// The number of bytes left.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// The place of the next stretch in the string.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next stretch; None at the end. A failed read loses nothing. Every call must read the same string.
    pub(crate) async fn next(&mut self, tx: &Tx) -> StoreResult<Option<Stretch>> {
        loop {
            if let Some(stretch) = self.known() {
                return Ok(Some(stretch));
            }
            let Some((db, oid)) = self.rows.filter(|_| self.at < self.end) else { return Ok(None) };
            let from = db.piece(oid, super::piece_of(self.seen));
            let to = db.piece(oid, super::piece_of(self.end - 1) + 1);
            let opts = RangeOptions { bytes: self.step, ..RangeOptions::default() };
            let page = tx.get_range(&from, &to, opts, Read::Snapshot).await?;
            self.step = STEP;
            self.take(&page)?;
            if page.more {
                yield_now().await;
            }
        }
    }

    /// As [`Walk::next`], for a string whose rows have already been read.
    pub(crate) fn next_of(&mut self, rows: &[(u64, Bytes)]) -> Option<Stretch> {
        if self.seen < self.end {
            rows.iter().for_each(|(place, bytes)| self.push(*place, bytes));
            self.seen = self.end;
        }
        self.known()
    }

    /// The next stretch, if it has been read.
    fn known(&mut self) -> Option<Stretch> {
        let next = match self.ahead.front() {
            Some((place, _)) if *place > self.at => Stretch::Zeroes(*place - self.at),
            Some(_) => Stretch::Bytes(self.ahead.pop_front()?.1),
            None if self.seen > self.at => Stretch::Zeroes(self.seen - self.at),
            None => return None,
        };
        self.at += next.len();
        Some(next)
    }

    fn take(&mut self, page: &Pairs) -> StoreResult<()> {
        let Some((db, oid)) = self.rows else { return Ok(()) };
        let mut behind = self.end;
        for (row, bytes) in &page.pairs {
            let n = own_piece(db, oid, row, bytes)?;
            let place = u64::from(n) * PIECE as u64;
            self.push(place, bytes);
            behind = place + PIECE as u64;
        }
        self.seen = if page.more { behind.min(self.end) } else { self.end };
        Ok(())
    }

    /// Keeps the part of a row that is wanted and not yet read.
    fn push(&mut self, place: u64, bytes: &Bytes) {
        let (from, to) = (place.max(self.seen), (place + bytes.len() as u64).min(self.end));
        if from < to {
            self.ahead.push_back((from, bytes.slice((from - place) as usize..(to - place) as usize)));
        }
    }

    /// The rest, as one string.
    pub(crate) async fn collect(mut self, tx: &Tx) -> StoreResult<Bytes> {
        let mut out = Vec::new();
        while let Some(stretch) = self.next(tx).await? {
            out.reserve_exact(self.left() as usize + stretch.len() as usize);
            match stretch {
                Stretch::Bytes(bytes) if self.left() == 0 && out.is_empty() => return Ok(bytes),
                Stretch::Bytes(bytes) => out.extend_from_slice(&bytes),
                Stretch::Zeroes(n) => append_zeroes(&mut out, n).await,
            }
        }
        Ok(out.into())
    }

    /// The rest without zeroes: places and bytes.
    pub(crate) async fn collect_rows(mut self, tx: &Tx, most: usize) -> StoreResult<Vec<(u64, Bytes)>> {
        let (mut rows, mut held) = (Vec::new(), 0);
        while let Some(stretch) = self.next(tx).await? {
            if let Stretch::Bytes(bytes) = stretch {
                held += bytes.len();
                if held > most {
                    return Err(StoreError::ReplyTooLarge(held));
                }
                rows.push((self.at - bytes.len() as u64, bytes));
            }
        }
        Ok(rows)
    }
}

/// The number of a piece of `oid`, from its row. Even in a damaged store, pieces must ascend and not overlap:
/// otherwise more bytes would be returned than are left.
pub(super) fn own_piece(db: Prefix, oid: Oid, row: &[u8], bytes: &[u8]) -> StoreResult<u32> {
    let n = Prefix::decode_piece(row).filter(|n| db.piece(oid, *n) == row && bytes.len() <= PIECE);
    n.ok_or_else(|| StoreError::Corrupt("the row of a string piece has an invalid key".into()))
}

async fn append_zeroes(out: &mut Vec<u8>, mut n: u64) {
    while n > 0 {
        let some = n.min(MOST_ZEROES);
        out.resize(out.len() + some as usize, 0);
        n -= some;
        if n > 0 {
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rows: &[(Vec<u8>, usize)]) -> StoreResult<Vec<Stretch>> {
        let value = Str::Pieces { oid: Oid(7), len: 3 * PIECE as u64 };
        let mut walk = Walk::new(Prefix::from_number(1), &value, 0, u64::MAX);
        let pairs =
            rows.iter().map(|(row, len)| (Bytes::copy_from_slice(row), vec![1; *len].into())).collect();
        walk.take(&Pairs { pairs, more: false })?;
        Ok(std::iter::from_fn(|| walk.known()).collect())
    }

    /// Hazard: damaged rows hold more bytes than the string has; the number of bytes left then dropped below
    /// zero.
    #[test]
    fn rows_that_overlap_are_refused() {
        let row = |n| Prefix::from_number(1).piece(Oid(7), n);
        let lengths = |rows: &[(Vec<u8>, usize)]| -> StoreResult<Vec<u64>> {
            Ok(taken(rows)?.iter().map(Stretch::len).collect())
        };
        let piece = PIECE as u64;
        assert_eq!(lengths(&[(row(0), 5), (row(2), PIECE)]), Ok(vec![5, 2 * piece - 5, piece]));
        assert!(lengths(&[(row(0), PIECE + 1), (row(1), 1)]).is_err(), "too long");
        let longer = [row(0), vec![0, 0, 0, 0]].concat();
        assert!(lengths(&[(row(0), 5), (longer, 5)]).is_err(), "another row with the same number");
    }
}
