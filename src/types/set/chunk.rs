//! A chunk's bytes, and how chunks are cut.
//!
//! ```text
//! 02 | next u64 BE | treemap      a chunk's row: a serialized `RoaringTreemap`, and where the next chunk starts (0: nowhere)
//! 01 | treemap                    an intset's payload
//! ```
//! The first byte is the format's version. A row says itself which ids it is for: its own first id is in its key, and
//! chunks follow each other without a gap. So who has a chunk's row needs no other row to know that it is the right one.
//!
//! A chunk holds whole 2^16 containers. It is cut above 12 KiB into pieces of about 6 KiB; a container is never cut,
//! so a lone one may have a little over 8 KiB.

use super::view::{Array, View};
use crate::error::{Error, Result, StoreError};
use bytes::Bytes;
use roaring::RoaringTreemap;

const FORMAT: u8 = 1;
const ROW_FORMAT: u8 = 2;
/// A chunk of more bytes is cut.
pub const MAX_BYTES: usize = 12 << 10;
/// A chunk of fewer bytes joins its neighbour.
pub const MIN_BYTES: usize = 2 << 10;
/// Two chunks join where the result has no more bytes.
pub const JOINED_BYTES: usize = 8 << 10;
const PIECE_BYTES: usize = 6 << 10;

/// The first id of the container of `id`.
pub fn container(id: u64) -> u64 {
    id & !0xffff
}

/// A chunk's row as it is stored.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where the chunk starts.
    pub first: u64,
    /// Where the next one starts.
    pub next: Option<u64>,
    raw: Bytes,
}

impl Row {
    /// The row at `first`.
    pub fn new(first: u64, raw: Bytes) -> Result<Self> {
        let next = match raw.split_first_chunk::<9>() {
            Some((&[ROW_FORMAT, ref next @ ..], _)) => u64::from_be_bytes(*next),
            _ => return Err(corrupt(&raw)),
        };
        let next = match next {
            0 => None,
            next if next > first => Some(next),
            _ => return Err(corrupt(&raw)),
        };
        Ok(Row { first, next, raw })
    }
    /// The stored bytes of a chunk.
    pub fn encode(next: Option<u64>, ids: &RoaringTreemap) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(9 + ids.serialized_size());
        out.push(ROW_FORMAT);
        out.extend_from_slice(&next.unwrap_or(0).to_be_bytes());
        append(&mut out, ids)?;
        Ok(out)
    }
    /// The stored bytes of this one.
    pub fn bytes(&self) -> &[u8] {
        &self.raw
    }
    /// True where `id` belongs into this chunk.
    pub fn covers(&self, id: u64) -> bool {
        id >= self.first && self.next.is_none_or(|next| id < next)
    }
    /// Its members.
    pub fn ids(&self) -> Result<RoaringTreemap> {
        RoaringTreemap::deserialize_from(self.body()).map_err(|_| corrupt(&self.raw))
    }
    /// Whether `id` is among them.
    pub fn contains(&self, id: u64) -> Result<bool> {
        self.ask(|view| view.contains(id))
    }
    /// Their number.
    pub fn count(&self) -> Result<u64> {
        self.ask(|view| view.count())
    }
    /// Their containers, where all of them are arrays: the ids without their last 16 bits, and those.
    pub fn arrays(&self) -> Result<Option<Vec<(u64, Array<'_>)>>> {
        self.ask(View::arrays)
    }
    /// The member with `rank` smaller ones.
    pub fn select(&self, rank: u64) -> Result<Option<u64>> {
        self.ask(|view| view.select(rank))
    }
    /// Bytes of the members.
    pub fn size(&self) -> usize {
        self.body().len()
    }
    fn body(&self) -> &[u8] {
        self.raw.get(9..).unwrap_or_default()
    }
    fn ask<'a, T>(&'a self, question: impl FnOnce(View<'a>) -> Option<T>) -> Result<T> {
        View::new(self.body()).and_then(question).ok_or_else(|| corrupt(&self.raw))
    }
}

fn corrupt(raw: &[u8]) -> Error {
    StoreError::Corrupt(format!("set chunk of {} bytes", raw.len())).into()
}

fn append(out: &mut Vec<u8>, ids: &RoaringTreemap) -> Result<()> {
    Ok(ids.serialize_into(out).map_err(|e| StoreError::Corrupt(format!("chunk not written: {e}")))?)
}

/// An intset's payload.
pub fn encode(ids: &RoaringTreemap) -> Result<Bytes> {
    let mut out = Vec::with_capacity(1 + ids.serialized_size());
    out.push(FORMAT);
    append(&mut out, ids)?;
    Ok(out.into())
}

/// Reads an intset's payload.
pub fn decode(raw: &[u8]) -> Result<RoaringTreemap> {
    match raw.split_first() {
        Some((&FORMAT, body)) => RoaringTreemap::deserialize_from(body).map_err(|_| corrupt(raw)),
        _ => Err(corrupt(raw)),
    }
}

/// Cuts `ids`, the members from `first` on, into chunks: their first ids and members. The first piece starts at `first`
/// and is there even without members.
pub fn cut(first: u64, mut ids: RoaringTreemap) -> Vec<(u64, RoaringTreemap)> {
    ids.optimize();
    if ids.serialized_size() <= MAX_BYTES {
        return vec![(first, ids)];
    }
    let mut pieces: Vec<(u64, RoaringTreemap)> = Vec::new();
    let mut room = 0;
    for part in containers(&ids) {
        let bytes = part.serialized_size();
        match pieces.last_mut() {
            Some((_, piece)) if bytes <= room => {
                // A union counts both sides first. Where containers are small, a piece has hundreds of them.
                if part.len() <= FEW as u64 {
                    piece.extend(part);
                } else {
                    *piece |= part;
                }
                room -= bytes;
            }
            last => {
                let start = if last.is_none() { Some(first) } else { part.min().map(container) };
                pieces.push((start.unwrap_or(first), part));
                room = PIECE_BYTES.saturating_sub(bytes);
            }
        }
    }
    pieces
}

/// So many members of a container are copied one by one; more are cut out.
const FEW: usize = 256;

/// The containers of `ids`, each in a treemap of its own.
fn containers(ids: &RoaringTreemap) -> impl Iterator<Item = RoaringTreemap> {
    let mut iter = ids.iter().peekable();
    std::iter::from_fn(move || {
        let first = *iter.peek()?;
        let last = first | 0xffff;
        let few = Vec::from_iter(std::iter::from_fn(|| iter.next_if(|id| *id <= last)).take(FEW));
        let mut part = RoaringTreemap::new();
        if iter.peek().is_some_and(|id| *id <= last) {
            part.insert_range(container(first)..=last);
            part &= ids;
            let mut rest = ids.iter();
            rest.advance_to(last.saturating_add(1));
            iter = rest.peekable();
        } else {
            part.extend(few);
        }
        part.optimize();
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Stretches of ids: where they begin, how many, how far apart.
    fn stretches() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        proptest::collection::vec(
            (0u64..1 << 40, 1u64..9_000, prop_oneof![Just(1), Just(3), Just(70_000)]),
            0..8,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_hold_everything_once_and_in_size(stretches in stretches()) {
            let of = |(begin, n, step): &(u64, u64, u64)| (0..*n).map(move |k| begin + k * step).collect::<Vec<_>>();
            let ids: RoaringTreemap = stretches.iter().flat_map(of).collect();
            let pieces = cut(0, ids.clone());
            prop_assert_eq!(pieces[0].0, 0);
            let mut joined = RoaringTreemap::new();
            for (n, (first, piece)) in pieces.iter().enumerate() {
                let end = pieces.get(n + 1).map_or(u64::MAX, |(next, _)| *next);
                prop_assert!(container(*first) == *first && *first < end);
                prop_assert!(piece.iter().all(|id| id >= *first && id < end));
                let raw = Row::encode(Some(end), piece).unwrap();
                prop_assert!(raw.len() <= MAX_BYTES + 9, "{} bytes", raw.len());
                let row = Row::new(*first, raw.into()).unwrap();
                prop_assert_eq!((row.next, row.count().unwrap()), (Some(end), piece.len()));
                prop_assert!(row.covers(*first) && row.covers(end - 1) && !row.covers(end));
                prop_assert_eq!(&row.ids().unwrap(), piece);
                joined |= piece;
            }
            prop_assert_eq!(joined, ids);
        }
    }
}
