//! The large encoding: a row an element, at contiguous positions.
//!
//! ```text
//! K ... -> record of tag 12 or 13: oid | first i64 LE | length u64 LE | bytes u64 LE | long u64 LE
//! L <oid> 00 <position>      -> 00 | element
//!                               01 | length u64 LE | number u64 LE     a long element, in pieces
//! L <oid> 01 <number><piece> -> at most 32 KiB of it
//! ```
//! The elements are at the positions from `first` on, without gaps: any index is one row. A push or a pop writes
//! one row and the record, which each change rewrites. So the record carries all conflicts, and rows are read as
//! a snapshot. `long` counts the elements in pieces: where there are none, rows can be cleared without being
//! read. A moved element keeps its pieces, whose rows do not name its position.

use super::End;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{ElementRow, Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{RangeOptions, Read, Tx, prefix_end};
use crate::types::pieces;
use crate::types::string::{INLINE_MAX, PIECE};
use bytes::{BufMut, Bytes};
use std::ops::Range;
use tokio::task::coop::consume_budget;

const INLINE: u8 = 0;
const PIECES: u8 = 1;
/// Bytes requested by one range read.
pub(super) const PAGE: usize = 1 << 18;
/// Bytes of the record's payload.
const EXTENT: usize = 16 + 4 * 8;

/// Where a list's elements are, and how large they are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The object id.
    pub oid: Oid,
    /// The position of the first element.
    pub first: i64,
    /// The number of elements.
    pub len: u64,
    /// Bytes of all elements.
    pub bytes: u64,
    /// The number of elements in pieces.
    pub long: u64,
}

impl Extent {
    /// A list without elements.
    pub(super) fn new(oid: Oid) -> Self {
        Extent { oid, first: 0, len: 0, bytes: 0, long: 0 }
    }

    /// One past the last position.
    pub(super) fn end(&self) -> i64 {
        self.first.wrapping_add_unsigned(self.len)
    }

    /// The position of the element at `index`, which is below the length.
    pub(super) fn at(&self, index: u64) -> i64 {
        self.first.wrapping_add_unsigned(index)
    }

    /// The index of the element at a position.
    pub(super) fn index(&self, position: i64) -> u64 {
        position.wrapping_sub(self.first).cast_unsigned()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.oid.0);
        out.put_i64_le(self.first);
        [self.len, self.bytes, self.long].into_iter().for_each(|n| out.put_u64_le(n));
    }

    pub(super) fn decode(raw: &[u8]) -> Option<Self> {
        let (oid, numbers) = <&[u8; EXTENT]>::try_from(raw).ok()?.split_first_chunk::<16>()?;
        let (numbers, _) = numbers.as_chunks();
        let [first, len, bytes, long] = *numbers else { return None };
        let [len, bytes, long] = [len, bytes, long].map(u64::from_le_bytes);
        Some(Extent { oid: Oid::decode(oid)?, first: i64::from_le_bytes(first), len, bytes, long })
    }

    fn grow(&mut self, element: &Held) {
        self.bytes = self.bytes.saturating_add(element.len());
        self.long += u64::from(element.is_long());
    }

    /// Takes an element into account that was written behind the last one.
    pub(super) fn append(&mut self, element: &Held) {
        self.len += 1;
        self.grow(element);
    }

    fn shrink(&mut self, element: &Held) {
        self.bytes = self.bytes.saturating_sub(element.len());
        self.long = self.long.saturating_sub(u64::from(element.is_long()));
    }
}

/// An element as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// The element.
    Inline(Bytes),
    /// Its length in bytes, and the number of its pieces.
    Pieces { len: u64, number: u64 },
}

impl Held {
    /// Decodes a row.
    pub(super) fn decode(raw: &Bytes) -> Result<Self> {
        Held::parse(raw)
            .ok_or_else(|| StoreError::Corrupt("an element of a list does not decode".into()).into())
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        let (kind, rest) = raw.split_first()?;
        match *kind {
            INLINE => Some(Held::Inline(raw.slice_ref(rest))),
            PIECES => {
                let (len, number) = rest.split_first_chunk()?;
                let number = u64::from_le_bytes(number.try_into().ok()?);
                Some(Held::Pieces { len: u64::from_le_bytes(*len), number })
            }
            _ => None,
        }
    }

    /// The row.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Held::Inline(element) => [&[INLINE], &element[..]].concat(),
            Held::Pieces { len, number } => {
                [&[PIECES][..], &len.to_le_bytes(), &number.to_le_bytes()].concat()
            }
        }
    }

    /// Bytes of the element.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Held::Inline(element) => element.len() as u64,
            Held::Pieces { len, .. } => *len,
        }
    }

    /// The number of its pieces.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Held::Inline(_) => None,
            Held::Pieces { number, .. } => Some(*number),
        }
    }

    fn is_long(&self) -> bool {
        matches!(self, Held::Pieces { .. })
    }

    /// Whether it is `other`; reads pieces only if the lengths are the same.
    pub(super) async fn is(&self, tx: &Tx, db: Prefix, oid: Oid, other: &[u8]) -> Result<bool> {
        match self {
            Held::Inline(element) => Ok(element == other),
            Held::Pieces { len, .. } => {
                Ok(*len == other.len() as u64 && value(tx, db, oid, self.clone()).await? == other)
            }
        }
    }
}

/// The element itself.
pub(super) async fn value(tx: &Tx, db: Prefix, oid: Oid, held: Held) -> Result<Bytes> {
    let (len, number) = match held {
        Held::Inline(element) => return Ok(element),
        Held::Pieces { len, number } => (len, number),
    };
    pieces::read(tx, db.element_pieces(oid, number), len).await
}

/// The rows of an element. `number`: a fresh one, for a long element.
pub(super) fn rows_of(
    db: Prefix,
    oid: Oid,
    (position, number): (i64, u64),
    element: &Bytes,
) -> (Held, impl Iterator<Item = (Vec<u8>, Bytes)>) {
    let (held, pieces) = if element.len() <= INLINE_MAX {
        (Held::Inline(element.clone()), Bytes::new())
    } else {
        (Held::Pieces { len: element.len() as u64, number }, element.clone())
    };
    let row = (db.element(oid, position), held.encode().into());
    let pieces = (0..pieces.len().div_ceil(PIECE)).map(move |n| {
        let piece = pieces.slice(n * PIECE..pieces.len().min((n + 1) * PIECE));
        (db.element_piece(oid, number, n as u32), piece)
    });
    (held, std::iter::once(row).chain(pieces))
}

/// Writes an element at a position that has none.
pub(super) fn put(s: &Scope<'_>, extent: &mut Extent, position: i64, element: &Bytes) -> Result<()> {
    let number = if element.len() > INLINE_MAX { s.space.fresh.stamp() } else { 0 };
    let (held, rows) = rows_of(s.db, extent.oid, (position, number), element);
    for (row, bytes) in rows {
        s.tx.set(&row, &bytes)?;
    }
    extent.grow(&held);
    Ok(())
}

/// Puts an element before the first or behind the last.
fn push(s: &Scope<'_>, extent: &mut Extent, at_head: bool, element: &Bytes) -> Result<()> {
    if at_head {
        extent.first = extent.first.wrapping_sub(1);
    }
    extent.len += 1;
    let position = if at_head { extent.first } else { extent.at(extent.len - 1) };
    put(s, extent, position, element)
}

/// Puts elements before the first or behind the last, one after the other.
pub(super) async fn push_all(
    s: &Scope<'_>,
    extent: &mut Extent,
    at_head: bool,
    elements: &[Bytes],
) -> Result<()> {
    for element in elements {
        push(s, extent, at_head, element)?;
        consume_budget().await;
    }
    Ok(())
}

/// Removes the pieces of an element whose row goes.
pub(super) fn drop_pieces(s: &Scope<'_>, extent: &mut Extent, held: &Held) -> Result<()> {
    extent.shrink(held);
    if let Held::Pieces { number, .. } = held {
        let begin = s.db.element_pieces(extent.oid, *number);
        s.tx.clear_range(&begin, &prefix_end(&begin))?;
    }
    Ok(())
}

/// Removes the pieces of all elements but those with these numbers, which ascend.
pub(super) async fn drop_pieces_between(s: &Scope<'_>, oid: Oid, kept: &[u64]) -> Result<()> {
    let mut begin = s.db.element_pieces(oid, 0);
    for number in kept {
        let pieces = s.db.element_pieces(oid, *number);
        s.tx.clear_range(&begin, &pieces)?;
        begin = prefix_end(&pieces);
        consume_budget().await;
    }
    s.tx.clear_range(&begin, &s.db.element_pieces_end(oid))?;
    Ok(())
}

/// The element at `index`; None beyond the end.
pub(super) async fn get(s: &Scope<'_>, extent: &Extent, index: u64) -> Result<Option<Held>> {
    if index >= extent.len {
        return Ok(None);
    }
    let row = s.tx.get(&s.db.element(extent.oid, extent.at(index)), Read::Snapshot).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("a list lacks an element".into()))?;
    Held::decode(&row).map(Some)
}

/// The element at an end of a list that is not empty; the next reads are of those behind it.
pub(super) async fn get_end(s: &Scope<'_>, extent: &Extent, end: End) -> Result<Held> {
    let (at, to) = match end {
        End::Left => (extent.first, extent.end()),
        End::Right => (extent.at(extent.len - 1), extent.first),
    };
    let [at, to] = [at, to].map(|position| s.db.element(extent.oid, position));
    let row = s.tx.get_ahead(&at, &to).await?;
    Held::decode(&row.ok_or_else(|| StoreError::Corrupt("a list lacks an element".into()))?)
}

/// Elements in their order, or in the opposite one.
pub(super) struct Page {
    pub(super) elements: Vec<(i64, Held)>,
    /// Whether the range has more.
    pub(super) more: bool,
}

/// The elements at positions from `from` to before `to`, as many as fit into about `bytes` (0: any number).
pub(super) async fn page(
    tx: &Tx,
    db: Prefix,
    oid: Oid,
    (from, to): (i64, i64),
    sizes: (usize, bool),
) -> Result<Page> {
    page_between(tx, db, (&db.element(oid, from), &db.element(oid, to)), sizes).await
}

/// The elements between two rows, as [`page`].
pub(super) async fn page_between(
    tx: &Tx,
    db: Prefix,
    (begin, end): (&[u8], &[u8]),
    (bytes, reverse): (usize, bool),
) -> Result<Page> {
    let opts = RangeOptions { bytes, reverse, ..RangeOptions::default() };
    let page = tx.get_range(begin, end, opts, Read::Snapshot).await?;
    let element = |(row, raw): &(Bytes, Bytes)| match db.decode_list_row(row) {
        Some(ElementRow::Element(position)) => Ok((position, Held::decode(raw)?)),
        Some(ElementRow::Piece(..)) | None => {
            Err(StoreError::Corrupt("a row of a list has an invalid key".into()).into())
        }
    };
    Ok(Page { elements: page.pairs.iter().map(element).collect::<Result<_>>()?, more: page.more })
}

/// The elements at some indices of a list that has none in pieces. Fails if they have more than `most` bytes.
pub(super) async fn copied(s: &Scope<'_>, extent: &Extent, range: Range<u64>, most: usize) -> Result<Packed> {
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    let row = |index: u64| s.db.element(extent.oid, extent.at(index));
    let (mut out, mut is_sound) = (Packed::default(), true);
    loop {
        let (begin, end) = (row(range.start + out.len() as u64), row(range.end));
        let mut one = |_: &[u8], raw: &[u8]| match raw.split_first() {
            Some((&INLINE, element)) => out.push(element),
            Some(_) | None => is_sound = false,
        };
        let more = s.tx.visit(&begin, &end, opts, &mut one).await?;
        if out.size() > most {
            return Err(StoreError::ReplyTooLarge(out.size()).into());
        }
        if !more || !is_sound {
            break;
        }
    }
    if is_sound && out.len() as u64 == range.end - range.start {
        return Ok(out);
    }
    Err(StoreError::Corrupt("a list lacks elements".into()).into())
}
