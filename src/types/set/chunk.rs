//! A chunk's bytes, and how chunks are cut.
//!
//! ```text
//! 02 | next u64 BE | treemap      a chunk's row: a serialized `RoaringTreemap`, and where the next chunk starts (0: nowhere)
//! 01 | treemap                    an intset's payload
//! ```
//! The first byte is the version of the format. A row tells which ids it covers: its key holds its first id,
//! and chunks follow each other without a gap. So a chunk's row alone shows whether it is the right one.
//!
//! A chunk holds whole containers of 2^16 ids. Above 12 KiB it is cut into pieces of about 6 KiB; a container
//! is never cut, so a lone one may take a little over 8 KiB.

use super::containers::Containers;
use super::view::{Part, TreemapView};
use crate::error::{Error, Result, StoreError};
use bytes::Bytes;
use roaring::RoaringTreemap;

const FORMAT: u8 = 1;
const ROW_FORMAT: u8 = 2;
/// A chunk with more bytes is cut.
pub(crate) const MAX_BYTES: usize = 12 << 10;
/// A chunk with fewer bytes joins its neighbour.
pub(crate) const MIN_BYTES: usize = 2 << 10;
/// Two chunks join only if the result has at most this many bytes.
pub(crate) const JOINED_BYTES: usize = 8 << 10;
const PIECE_BYTES: usize = 6 << 10;

/// The first id of the container of `id`.
pub(crate) fn container(id: u64) -> u64 {
    id & !0xffff
}

/// A chunk's row as it is stored.
#[derive(Debug, Clone)]
pub struct Row {
    /// The chunk's first id.
    pub first: u64,
    /// The next chunk's first id.
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
    /// The stored bytes of this row.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.raw
    }
    /// Whether `id` belongs to this chunk.
    pub fn covers(&self, id: u64) -> bool {
        id >= self.first && self.next.is_none_or(|next| id < next)
    }
    /// The members.
    pub fn ids(&self) -> Result<RoaringTreemap> {
        RoaringTreemap::deserialize_from(self.body()).map_err(|_| corrupt(&self.raw))
    }
    /// Whether `id` is a member.
    pub fn contains(&self, id: u64) -> Result<bool> {
        self.ask(|view| view.contains(id))
    }
    /// The number of members.
    pub fn count(&self) -> Result<u64> {
        self.ask(|view| view.count())
    }
    /// The containers.
    pub fn parts(&self) -> Result<Vec<Part<'_>>> {
        self.ask(TreemapView::parts)
    }
    /// The member with `rank` smaller ones.
    pub fn select(&self, rank: u64) -> Result<Option<u64>> {
        self.ask(|view| view.select(rank))
    }
    /// Bytes of the members.
    pub(crate) fn size(&self) -> usize {
        self.body().len()
    }
    fn body(&self) -> &[u8] {
        self.raw.get(9..).unwrap_or_default()
    }
    fn ask<'a, T>(&'a self, question: impl FnOnce(TreemapView<'a>) -> Option<T>) -> Result<T> {
        TreemapView::new(self.body()).and_then(question).ok_or_else(|| corrupt(&self.raw))
    }
}

fn corrupt(raw: &[u8]) -> Error {
    StoreError::Corrupt(format!("a set chunk of {} bytes does not decode", raw.len())).into()
}

fn append(out: &mut Vec<u8>, ids: &RoaringTreemap) -> Result<()> {
    Ok(ids
        .serialize_into(out)
        .map_err(|e| StoreError::Corrupt(format!("a set chunk cannot be serialized: {e}")))?)
}

/// An intset's payload.
pub(crate) fn encode(ids: &RoaringTreemap) -> Result<Bytes> {
    let mut out = Vec::with_capacity(1 + ids.serialized_size());
    out.push(FORMAT);
    append(&mut out, ids)?;
    Ok(out.into())
}

/// Reads an intset's payload.
pub(crate) fn decode(raw: &[u8]) -> Result<RoaringTreemap> {
    match raw.split_first() {
        Some((&FORMAT, body)) => RoaringTreemap::deserialize_from(body).map_err(|_| corrupt(raw)),
        _ => Err(corrupt(raw)),
    }
}

/// The members of a chunk to be written.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The chunk's first id.
    pub(crate) first: u64,
    /// Number of members.
    pub(crate) len: u64,
    treemap: Vec<u8>,
}

impl Piece {
    fn new(first: u64, ids: &RoaringTreemap) -> Result<Self> {
        let mut treemap = Vec::with_capacity(ids.serialized_size());
        append(&mut treemap, ids)?;
        Ok(Piece { first, len: ids.len(), treemap })
    }
    /// Bytes of the members.
    pub(crate) fn size(&self) -> usize {
        self.treemap.len()
    }
    /// This piece, with the members of the chunk after it.
    pub(crate) fn joined(&self, behind: &Row) -> Result<Self> {
        let mine = RoaringTreemap::deserialize_from(&self.treemap[..]).map_err(|_| corrupt(&self.treemap))?;
        Piece::new(self.first, &(mine | behind.ids()?))
    }
    /// The chunk's bytes for a chunk whose successor starts at `next`.
    pub fn encode(&self, next: Option<u64>) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.treemap.len());
        out.push(ROW_FORMAT);
        out.extend_from_slice(&next.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.treemap);
        out
    }
}

/// Cuts `ids`, the members from `first` on, into chunks. The first piece starts at `first` and exists even
/// without members.
pub fn cut(first: u64, mut ids: RoaringTreemap) -> Result<Vec<Piece>> {
    ids.optimize();
    let whole = Piece::new(first, &ids)?;
    if whole.size() <= MAX_BYTES {
        return Ok(vec![whole]);
    }
    let parts = TreemapView::new(&whole.treemap)
        .and_then(TreemapView::parts)
        .ok_or_else(|| corrupt(&whole.treemap))?;
    let mut pieces = Vec::new();
    let mut rest = &parts[..];
    while let Some(next) = rest.first() {
        let (mut bytes, mut half) = (0, None);
        let fits = |part: &&Part<'_>| {
            let bitmap =
                if half.replace(part.high >> 16) == Some(part.high >> 16) { 0 } else { BITMAP_BYTES };
            bytes += bitmap + HEAD_BYTES + part.raw.len();
            bytes <= PIECE_BYTES
        };
        let n = rest.iter().take_while(fits).count().max(1);
        let (here, behind) = rest.split_at_checked(n).unwrap_or((rest, &[]));
        let mut containers = Containers::with_capacity(PIECE_BYTES);
        here.iter().for_each(|part| containers.part(part));
        let start = if pieces.is_empty() { first } else { next.high << 16 };
        let len = here.iter().map(|part| u64::from(part.len)).sum();
        pieces.push(Piece { first: start, len, treemap: containers.into_bytes() });
        rest = behind;
    }
    Ok(pieces)
}

/// The start of a bitmap: the high half of its ids, its cookie, and the number of its containers.
const BITMAP_BYTES: usize = 12;
/// A container's head and offset.
const HEAD_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseResult;

    /// Stretches of ids: start, number, and distance.
    fn stretches() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        proptest::collection::vec(
            (0u64..1 << 40, 1u64..9_000, prop_oneof![Just(1), Just(3), Just(70_000)]),
            0..8,
        )
    }

    /// How much smaller a bitmap can be than `cut` takes it for, in bytes: with runs it has no count of its
    /// containers (4 bytes), and no offsets while there are fewer than four (12 bytes), but a byte that tells
    /// which are runs.
    const OVERESTIMATED: usize = 15;

    fn holds_everything_once_and_in_size(stretches: &[(u64, u64, u64)]) -> TestCaseResult {
        let of =
            |(begin, n, step): &(u64, u64, u64)| (0..*n).map(move |k| begin + k * step).collect::<Vec<_>>();
        let ids: RoaringTreemap = stretches.iter().flat_map(of).collect();
        let pieces = cut(0, ids.clone()).unwrap();
        prop_assert_eq!(pieces[0].first, 0);
        let mut joined = RoaringTreemap::new();
        let mut sizes = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let (first, end) = (piece.first, pieces.get(n + 1).map_or(u64::MAX, |next| next.first));
            prop_assert!(container(first) == first && first < end);
            let raw = piece.encode(Some(end));
            prop_assert!(raw.len() <= MAX_BYTES + 9, "{} bytes", raw.len());
            let row = Row::new(first, raw.into()).unwrap();
            prop_assert_eq!(
                (row.next, row.count().unwrap(), row.size()),
                (Some(end), piece.len, piece.size())
            );
            prop_assert!(row.covers(first) && row.covers(end - 1) && !row.covers(end));
            let here = row.ids().unwrap();
            prop_assert!(here.iter().all(|id| id >= first && id < end));
            // The bytes that Roaring itself would have written.
            let mut raw = Vec::new();
            here.serialize_into(&mut raw).unwrap();
            prop_assert_eq!(row.body(), &raw[..]);
            sizes.push(piece.size() + OVERESTIMATED * here.bitmaps().count());
            joined |= here;
        }
        prop_assert!(
            pieces.len() == 1 || sizes.windows(2).all(|two| two[0] + two[1] > PIECE_BYTES),
            "{sizes:?}"
        );
        prop_assert_eq!(joined, ids);
        Ok(())
    }

    #[test]
    fn a_piece_of_runs_may_be_smaller_than_estimated() {
        let stretches = [
            (0, 927, 70_000),
            (635_655_159_807, 5, 1),
            (639_950_323_712, 4, 1),
            (4_094_484_112, 8_561, 1),
            (648_539_988_060, 8_189, 1),
            (646_927_755_415, 3_842, 1),
            (635_118_625_468, 4_575, 70_000),
        ];
        holds_everything_once_and_in_size(&stretches).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_hold_everything_once_and_in_size(stretches in stretches()) {
            holds_everything_once_and_in_size(&stretches)?;
        }
    }
}
