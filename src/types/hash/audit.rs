//! Checks that a hash's rows fit together: [`super::rows`] lists the invariants.

use super::HashRep;
use super::listpack::{self, MAX_BYTES};
use super::rows::{Content, Held};
use crate::keyspace::keys::{FieldRow, Oid, hash};
use crate::store::{RangeOptions, Rest};
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::object::Count;
use crate::types::string::PIECE;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

const PAGE: RangeOptions = RangeOptions { limit: 0, bytes: 1 << 18, reverse: false };

/// The problem of a hash in its record, if any.
pub(super) fn listpack(raw: &[u8], row: &[u8]) -> Vec<Problem> {
    let what = match listpack::decode(raw) {
        Err(_) => Some("a hash in its record does not decode"),
        Ok(pairs) => {
            let distinct = pairs.iter().map(|(field, _)| field).collect::<HashSet<_>>().len() == pairs.len();
            let sound = distinct && raw.len() <= MAX_BYTES && !pairs.is_empty();
            (!sound)
                .then_some("a hash in its record is empty, too large for a record, or holds a field twice")
        }
    };
    what.map(|what| Problem::new(row, what)).into_iter().collect()
}

/// The problems of a hash in rows.
pub(super) async fn rows(auditor: &Auditor<'_>, oid: Oid, due: Option<u64>) -> Findings {
    let (problems, long) = (Vec::new(), HashMap::new());
    let mut audit = Audit {
        auditor,
        oid,
        due,
        problems,
        fields: 0,
        long,
        expire: Expiring::default(),
        indexed: Expiring::default(),
    };
    let mut rest = Rest::under(auditor.db.object_rows(HashRep::ROW, oid));
    while let Some(page) = auditor.view.next(&mut rest, PAGE).await? {
        page.iter().for_each(|(row, value)| audit.row(row, value));
    }
    audit.done().await
}

/// A long value whose pieces are being read.
struct Long {
    /// The row of its field.
    row: Bytes,
    /// The next piece, and the bytes from it on.
    next: u32,
    left: u64,
}

/// Fields that expire: their number, and the sum of the hashes of their rows in the index.
#[derive(Default, PartialEq, Eq)]
struct Expiring {
    fields: u64,
    sum: u64,
}

impl Expiring {
    fn add(&mut self, row: &[u8]) {
        self.fields += 1;
        self.sum = self.sum.wrapping_add(hash(row));
    }
}

struct Audit<'a> {
    auditor: &'a Auditor<'a>,
    oid: Oid,
    /// No field expires before. None: no field expires.
    due: Option<u64>,
    problems: Vec<Problem>,
    fields: i128,
    /// Long values by number.
    long: HashMap<u64, Long>,
    /// By the fields' rows.
    expire: Expiring,
    /// By the index.
    indexed: Expiring,
}

impl Audit<'_> {
    fn row(&mut self, row: &Bytes, value: &Bytes) {
        let what = match self.auditor.db.decode_hash_row(row) {
            Some(FieldRow::Field(at, field)) if at == hash(&field) => self.field(row, &field, value),
            Some(FieldRow::Field(..)) => Some("a field of a hash is not where its hash is"),
            Some(FieldRow::Piece(number, n)) => self.piece(number, n, value.len() as u64),
            Some(FieldRow::Expiry { hash: at, field, .. }) if at == hash(&field) => {
                self.indexed.add(row);
                (!value.is_empty()).then_some("a row of the index of a hash's fields by expiry has a value")
            }
            Some(FieldRow::Expiry { .. }) | None => Some("a row of a hash has an invalid key"),
        };
        self.problems.extend(what.map(|what| Problem::new(row, what)));
    }

    fn field(&mut self, row: &Bytes, field: &[u8], value: &Bytes) -> Option<&'static str> {
        self.fields += 1;
        let Ok(held) = Held::decode(value) else { return Some("a field of a hash does not decode") };
        let mut what = None;
        if let Some(at) = held.expire_at {
            self.expire.add(&self.auditor.db.field_expiry(self.oid, at, field));
            let is_late = self.due.is_none_or(|due| at < due);
            what = is_late.then_some("a field of a hash expires before its record says that one does");
        }
        match held.content {
            Content::Inline(_) => what,
            Content::Pieces { len, number } => {
                let twice = self.long.insert(number, Long { row: row.clone(), next: 0, left: len }).is_some();
                what.or(twice.then_some("two fields of a hash share a long value"))
            }
        }
    }

    /// Fields come before pieces.
    fn piece(&mut self, number: u64, n: u32, len: u64) -> Option<&'static str> {
        let Some(long) = self.long.get_mut(&number) else {
            return Some("a piece of a hash belongs to no field");
        };
        let fits = n == long.next && len == long.left.min(PIECE as u64) && len > 0;
        (long.next, long.left) = (long.next.saturating_add(1), long.left.saturating_sub(len));
        (!fits).then_some("a piece does not fit its field's value")
    }

    async fn done(mut self) -> Findings {
        let short = self.long.values().filter(|long| long.left > 0);
        self.problems
            .extend(short.map(|long| Problem::new(&long.row, "a long value of a hash lacks pieces")));
        let row = self.auditor.db.count(self.oid);
        if self.expire != self.indexed {
            self.problems
                .push(Problem::new(&row, "the index of a hash's fields by expiry does not fit them"));
        }
        let raw = self.auditor.view.get(&row).await?;
        let what = match raw.as_deref().map(<[u8; 16]>::try_from) {
            Some(Err(_)) => Some("the field count is not 16 bytes".to_owned()),
            count => {
                let count = count.and_then(Result::ok).map_or(0, i128::from_le_bytes);
                let count = i128::from(Count(count).cardinality());
                (count != self.fields).then(|| format!("the field count is {count}, not {}", self.fields))
            }
        };
        self.problems.extend(what.map(|what| Problem::new(&row, what)));
        Ok(self.problems)
    }
}
