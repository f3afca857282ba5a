//! Keys of the rows of lists.
//!
//! ```text
//! L <oid> 00 <position i64 BE, sign flipped>    an element
//! L <oid> 01 <number u64 BE><piece u32 BE>      a piece of a long element
//! ```

use super::{Oid, Prefix};

const ELEMENT: u8 = 0;
const PIECE: u8 = 1;

/// What a row of a list is, by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementRow {
    /// An element, by its position.
    Element(i64),
    /// The number of a long element, and the number of the piece.
    Piece(u64, u32),
}

impl Prefix {
    /// The row of an element.
    pub fn element(&self, oid: Oid, position: i64) -> Vec<u8> {
        let mut k = self.list_row(oid, ELEMENT, 8);
        k.extend_from_slice(&(position.cast_unsigned() ^ 1 << 63).to_be_bytes());
        k
    }
    /// Where the pieces of a long element begin.
    pub(crate) fn element_pieces(&self, oid: Oid, number: u64) -> Vec<u8> {
        let mut k = self.list_row(oid, PIECE, 12);
        k.extend_from_slice(&number.to_be_bytes());
        k
    }
    /// Where the pieces of all elements end.
    pub(crate) fn element_pieces_end(&self, oid: Oid) -> Vec<u8> {
        self.list_row(oid, PIECE + 1, 0)
    }
    /// The row of a piece of a long element.
    pub fn element_piece(&self, oid: Oid, number: u64, piece: u32) -> Vec<u8> {
        let mut k = self.element_pieces(oid, number);
        k.extend_from_slice(&piece.to_be_bytes());
        k
    }
    fn list_row(&self, oid: Oid, kind: u8, more: usize) -> Vec<u8> {
        let mut k = self.of_object(b'L', oid, 1 + more);
        k.push(kind);
        k
    }
    /// What a row of a list is. None if it is none.
    pub fn decode_list_row(&self, row: &[u8]) -> Option<ElementRow> {
        let (kind, rest) = row.get(usize::from(self.len) + 17..)?.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        match *kind {
            ELEMENT => rest.is_empty().then_some(ElementRow::Element((number ^ 1 << 63).cast_signed())),
            PIECE => Some(ElementRow::Piece(number, u32::from_be_bytes(rest.try_into().ok()?))),
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
            mut positions in proptest::collection::vec(any::<i64>(), 1..20),
        ) {
            let (db, oid) = (Prefix::from_number(numbers.0), Oid(numbers.1));
            positions.sort_unstable();
            let rows: Vec<Vec<u8>> = positions.iter().map(|at| db.element(oid, *at)).collect();
            prop_assert!(rows.is_sorted());
            for (row, at) in rows.iter().zip(&positions) {
                prop_assert_eq!(db.decode_oid(row), Some(oid));
                prop_assert_eq!(db.decode_list_row(row), Some(ElementRow::Element(*at)));
            }
            let (number, piece) = (numbers.2, numbers.3);
            let row = db.element_piece(oid, number, piece);
            prop_assert!(db.element(oid, i64::MAX) < row && row.starts_with(&db.element_pieces(oid, number)));
            prop_assert_eq!(db.decode_list_row(&row), Some(ElementRow::Piece(number, piece)));
        }
    }
}
