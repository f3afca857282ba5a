//! Keys of the rows of hashes.
//!
//! ```text
//! H <oid> 00 <hash u64 BE><field>             a field
//! H <oid> 01 <number u64 BE><piece u32 BE>    a piece of a long value
//! H <oid> 02 <ms BE><hash u64 BE><field>      a field that expires
//! ```
//! Fields sort by their hash, then by name; those that expire also by their expiry.

use super::{Oid, Prefix, hash};
use bytes::Bytes;

/// The longest field of a hash in bytes: its row must stay below the store's 10 kB.
pub(crate) const MAX_FIELD: usize = 8 * 1024;

const FIELD: u8 = 0;
const PIECE: u8 = 1;
const EXPIRY: u8 = 2;

/// What a row of a hash is, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldRow {
    /// A field, and its hash according to the row.
    Field(u64, Bytes),
    /// The number of a long value, and the number of the piece.
    Piece(u64, u32),
    /// A field that expires.
    Expiry {
        /// When, in milliseconds since the Unix epoch.
        at: u64,
        /// The field's hash according to the row.
        hash: u64,
        /// Its name.
        field: Bytes,
    },
}

impl Prefix {
    /// The row of a field.
    pub fn field(&self, oid: Oid, field: &[u8]) -> Vec<u8> {
        let mut k = self.hash_row(oid, FIELD, 8 + field.len());
        k.extend_from_slice(&hash(field).to_be_bytes());
        k.extend_from_slice(field);
        k
    }
    /// Where the fields of `hash` begin.
    pub(crate) fn fields_from(&self, oid: Oid, hash: u64) -> Vec<u8> {
        let mut k = self.hash_row(oid, FIELD, 8);
        k.extend_from_slice(&hash.to_be_bytes());
        k
    }
    /// One past all fields.
    pub(crate) fn fields_end(&self, oid: Oid) -> Vec<u8> {
        self.hash_row(oid, FIELD + 1, 0)
    }
    /// Where the pieces of a long value begin.
    pub(crate) fn field_pieces(&self, oid: Oid, number: u64) -> Vec<u8> {
        let mut k = self.hash_row(oid, PIECE, 12);
        k.extend_from_slice(&number.to_be_bytes());
        k
    }
    /// The row of a piece of a long value.
    pub fn field_piece(&self, oid: Oid, number: u64, piece: u32) -> Vec<u8> {
        let mut k = self.field_pieces(oid, number);
        k.extend_from_slice(&piece.to_be_bytes());
        k
    }
    /// The row of a field that expires at `ms`.
    pub fn field_expiry(&self, oid: Oid, ms: u64, field: &[u8]) -> Vec<u8> {
        let mut k = self.hash_row(oid, EXPIRY, 16 + field.len());
        k.extend_from_slice(&ms.to_be_bytes());
        k.extend_from_slice(&hash(field).to_be_bytes());
        k.extend_from_slice(field);
        k
    }
    /// Where the rows of the fields begin that expire at `ms` or later.
    pub(crate) fn field_expiries_from(&self, oid: Oid, ms: u64) -> Vec<u8> {
        let mut k = self.hash_row(oid, EXPIRY, 8);
        k.extend_from_slice(&ms.to_be_bytes());
        k
    }
    /// One past the rows of all fields that expire.
    pub(crate) fn field_expiries_end(&self, oid: Oid) -> Vec<u8> {
        self.hash_row(oid, EXPIRY + 1, 0)
    }
    fn hash_row(&self, oid: Oid, kind: u8, more: usize) -> Vec<u8> {
        let mut k = self.of_object(b'H', oid, 1 + more);
        k.push(kind);
        k
    }
    /// What a row of a hash is. None if it is none.
    pub fn decode_hash_row(&self, row: &Bytes) -> Option<FieldRow> {
        let at = usize::from(self.len) + 17;
        let (kind, rest) = row.get(at..)?.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        match *kind {
            FIELD => Some(FieldRow::Field(number, row.slice(at + 9..))),
            PIECE => Some(FieldRow::Piece(number, u32::from_be_bytes(rest.try_into().ok()?))),
            EXPIRY => {
                let hash = u64::from_be_bytes(*rest.first_chunk()?);
                Some(FieldRow::Expiry { at: number, hash, field: row.slice(at + 17..) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip_in_order(
            numbers in any::<(u32, u128, u64, u32)>(),
            fields in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..20),
        ) {
            let (db, oid) = (Prefix::from_number(numbers.0), Oid(numbers.1));
            let (first, end) = (db.fields_from(oid, 0), db.fields_end(oid));
            let mut rows = Vec::new();
            for field in fields {
                let row = db.field(oid, &field);
                prop_assert!(first <= row && row < end && db.fields_from(oid, hash(&field)) <= row);
                prop_assert_eq!(db.decode_oid(&row), Some(oid));
                let decoded = db.decode_hash_row(&row.clone().into());
                prop_assert_eq!(decoded, Some(FieldRow::Field(hash(&field), field.clone().into())));
                rows.push((row, (hash(&field), field)));
            }
            rows.sort();
            prop_assert!(rows.is_sorted_by_key(|(_, sorted)| sorted.clone()));
            let (number, piece) = (numbers.2, numbers.3);
            let row = db.field_piece(oid, number, piece);
            prop_assert!(end <= row && row.starts_with(&db.field_pieces(oid, number)));
            let decoded = db.decode_hash_row(&row.into());
            prop_assert_eq!(decoded, Some(FieldRow::Piece(number, piece)));
            let row = db.field_expiry(oid, number, b"field");
            prop_assert!(db.field_expiries_from(oid, number) < row && row < db.field_expiries_end(oid));
            let (hash, field) = (hash(b"field"), Bytes::from_static(b"field"));
            let decoded = db.decode_hash_row(&row.into());
            prop_assert_eq!(decoded, Some(FieldRow::Expiry { at: number, hash, field }));
        }
    }
}
