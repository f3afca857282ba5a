//! Checks that a list's rows fit its extent: [`super::rows`] lists the invariants.

use super::ListRep;
use super::listpack::{self, MAX_BYTES};
use super::rows::{Extent, Held};
use crate::keyspace::keys::ElementRow;
use crate::store::{RangeOptions, Rest};
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::string::PIECE;
use bytes::Bytes;
use std::collections::HashMap;

const PAGE: RangeOptions = RangeOptions { limit: 0, bytes: 1 << 18, reverse: false };

/// The problem of a list in its record, if any.
pub(super) fn listpack(raw: &Bytes, row: &[u8]) -> Vec<Problem> {
    let what = match listpack::decode(raw) {
        Err(_) => Some("a list in its record does not decode"),
        Ok(elements) => {
            let sound = raw.len() <= MAX_BYTES && !elements.is_empty();
            (!sound).then_some("a list in its record is empty or too large for a record")
        }
    };
    what.map(|what| Problem::new(row, what)).into_iter().collect()
}

/// The problems of a list in rows; `record` is the row that holds its extent.
pub(super) async fn rows(auditor: &Auditor<'_>, extent: Extent, record: &[u8]) -> Findings {
    let found = Extent { len: 0, bytes: 0, long: 0, ..extent };
    let mut audit = Audit { auditor, extent, found, long: HashMap::new(), problems: Vec::new() };
    let mut rest = Rest::under(auditor.db.object_rows(ListRep::ROW, extent.oid));
    while let Some(page) = auditor.view.next(&mut rest, PAGE).await? {
        page.iter().for_each(|(row, value)| audit.row(row, value));
    }
    let short = audit.long.values().filter(|long| long.left > 0);
    audit.problems.extend(short.map(|long| Problem::new(&long.row, "a long element of a list lacks pieces")));
    if audit.found != extent || extent.len == 0 {
        let what = format!("the list has {:?}, and its record says {extent:?}", audit.found);
        audit.problems.push(Problem::new(record, what));
    }
    Ok(audit.problems)
}

/// A long element whose pieces are being read.
struct Long {
    row: Bytes,
    /// The next piece, and the bytes from it on.
    next: u32,
    left: u64,
}

struct Audit<'a> {
    auditor: &'a Auditor<'a>,
    extent: Extent,
    /// What the rows make of it.
    found: Extent,
    /// Long elements by number.
    long: HashMap<u64, Long>,
    problems: Vec<Problem>,
}

impl Audit<'_> {
    fn row(&mut self, row: &Bytes, value: &Bytes) {
        let what = match self.auditor.db.decode_list_row(row) {
            Some(ElementRow::Element(position)) => self.element(row, position, value),
            Some(ElementRow::Piece(number, n)) => self.piece(number, n, value.len() as u64),
            None => Some("a row of a list has an invalid key"),
        };
        self.problems.extend(what.map(|what| Problem::new(row, what)));
    }

    fn element(&mut self, row: &Bytes, position: i64, value: &Bytes) -> Option<&'static str> {
        let fits = position == self.extent.at(self.found.len);
        self.found.len += 1;
        let Ok(held) = Held::decode(value) else { return Some("an element of a list does not decode") };
        self.found.bytes += held.len();
        if let Held::Pieces { len, number } = held {
            self.found.long += 1;
            if self.long.insert(number, Long { row: row.clone(), next: 0, left: len }).is_some() {
                return Some("two elements of a list share their pieces");
            }
        }
        (!fits).then_some("an element of a list is not where the one before it ends")
    }

    /// Elements come before pieces.
    fn piece(&mut self, number: u64, n: u32, len: u64) -> Option<&'static str> {
        let Some(long) = self.long.get_mut(&number) else {
            return Some("a piece of a list belongs to no element");
        };
        let fits = n == long.next && len == long.left.min(PIECE as u64) && len > 0;
        (long.next, long.left) = (long.next.saturating_add(1), long.left.saturating_sub(len));
        (!fits).then_some("a piece does not fit its element")
    }
}
