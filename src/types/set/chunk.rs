//! A chunk's bytes, and how chunks are cut.
//!
//! A chunk is `01` (the format's version) and a serialized `RoaringTreemap` of whole 2^16 containers. It is cut above
//! 12 KiB into pieces of about 6 KiB; a container is never cut, so a lone one may have a little over 8 KiB.

use crate::error::{Result, StoreError};
use bytes::Bytes;
use roaring::RoaringTreemap;

const FORMAT: u8 = 1;
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

/// The stored bytes of `ids`.
pub fn encode(ids: &RoaringTreemap) -> Result<Bytes> {
    let mut out = Vec::with_capacity(1 + ids.serialized_size());
    out.push(FORMAT);
    ids.serialize_into(&mut out).map_err(|e| StoreError::Corrupt(format!("chunk not written: {e}")))?;
    Ok(out.into())
}

/// Reads stored bytes.
pub fn decode(raw: &[u8]) -> Result<RoaringTreemap> {
    let corrupt = || StoreError::Corrupt(format!("set chunk of {} bytes", raw.len()));
    let body = match raw.split_first() {
        Some((&FORMAT, body)) => body,
        _ => return Err(corrupt().into()),
    };
    Ok(RoaringTreemap::deserialize_from(body).map_err(|_| corrupt())?)
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
                *piece |= part;
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

/// The containers of `ids`, each in a treemap of its own.
fn containers(ids: &RoaringTreemap) -> impl Iterator<Item = RoaringTreemap> {
    let mut iter = ids.iter();
    std::iter::from_fn(move || {
        let base = container(iter.next()?);
        let last = base | 0xffff;
        let mut part = RoaringTreemap::new();
        part.insert_range(base..=last);
        part &= ids;
        part.optimize();
        iter.advance_to(last.saturating_add(1));
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
                let raw = encode(piece).unwrap();
                prop_assert!(raw.len() <= MAX_BYTES + 1, "{} bytes", raw.len());
                prop_assert_eq!(&decode(&raw).unwrap(), piece);
                joined |= piece;
            }
            prop_assert_eq!(joined, ids);
        }
    }
}
