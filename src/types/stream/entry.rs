//! The rows of entries.
//!
//! ```text
//! T <oid> 00 <id>        -> 00 | fields
//!                           01 | length u64 LE | number of fields u32 LE     a long entry, in pieces
//! T <oid> 01 <id><piece> -> at most 32 KiB of its fields
//! ```
//! The fields are strings, names and values in turn: the length of each as a number in base 128 (7 bits a byte, the lowest
//! first; the highest bit says that more follow), then its bytes. The record of the stream carries all conflicts, so that
//! rows are read as a snapshot.

use super::StreamRep;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, Oid, Prefix, StreamRow};
use crate::store::{RangeOptions, Read, Tx, prefix_end};
use crate::types::pieces;
use crate::types::string::{INLINE_MAX, PIECE};
use bytes::Bytes;

const INLINE: u8 = 0;
const PIECES: u8 = 1;
/// Approximate bytes of an entry's row besides the fields.
pub(crate) const ROW: u64 = 64;
/// Entries from which the size of all is estimated, and bytes of them.
const SAMPLE: RangeOptions = RangeOptions { limit: 64, bytes: 16 << 10, reverse: false };

/// An entry. One that was deleted has no fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: Id,
    /// The encoded fields.
    pub raw: Bytes,
}

impl Entry {
    /// An entry of names and values in turn.
    pub(crate) fn new(id: Id, fields: &[Bytes]) -> Self {
        Entry { id, raw: encode(fields) }
    }

    /// The names and values in turn, up to damage.
    pub(crate) fn strings(&self) -> impl Iterator<Item = &[u8]> {
        strings(&self.raw).map_while(Result::ok)
    }
}

/// The encoded fields of names and values in turn.
pub(crate) fn encode(fields: &[Bytes]) -> Bytes {
    let mut out = Vec::with_capacity(encoded_len(fields) as usize);
    for string in fields {
        let mut len = string.len();
        while len > 0x7f {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(string);
    }
    out.into()
}

/// Bytes of [`encode`]d fields.
pub(crate) fn encoded_len(fields: &[Bytes]) -> u64 {
    let of = |string: &Bytes| {
        string.len() as u64 + u64::from((64 - (string.len() as u64 | 1).leading_zeros()).div_ceil(7))
    };
    fields.iter().map(of).sum()
}

/// The strings of encoded fields. An error ends them.
pub(crate) fn strings(mut raw: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    std::iter::from_fn(move || {
        if raw.is_empty() {
            return None;
        }
        let Some((string, rest)) = split(raw) else {
            raw = &[];
            return Some(Err(StoreError::Corrupt("the fields of an entry do not decode".into()).into()));
        };
        raw = rest;
        Some(Ok(string))
    })
}

fn split(mut raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut len, mut shift) = (0_usize, 0);
    loop {
        let (byte, rest) = raw.split_first()?;
        raw = rest;
        len |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return raw.split_at_checked(len);
        }
        shift += 7;
    }
}

/// An entry as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// The encoded fields.
    Inline(Bytes),
    /// Their length, and the number of fields.
    Pieces {
        /// Bytes of the encoded fields.
        len: u64,
        /// The number of fields: names with their values.
        fields: u32,
    },
}

impl Held {
    /// Decodes a row.
    pub(crate) fn decode(raw: &Bytes) -> Result<Self> {
        Held::parse(raw)
            .ok_or_else(|| StoreError::Corrupt("an entry of a stream does not decode".into()).into())
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        let (kind, rest) = raw.split_first()?;
        match *kind {
            INLINE => Some(Held::Inline(raw.slice_ref(rest))),
            PIECES => {
                let (len, fields) = rest.split_first_chunk()?;
                let fields = u32::from_le_bytes(fields.try_into().ok()?);
                Some(Held::Pieces { len: u64::from_le_bytes(*len), fields })
            }
            _ => None,
        }
    }

    /// The row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Held::Inline(fields) => [&[INLINE], &fields[..]].concat(),
            Held::Pieces { len, fields } => {
                [&[PIECES][..], &len.to_le_bytes(), &fields.to_le_bytes()].concat()
            }
        }
    }

    /// Bytes of the encoded fields.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Held::Inline(fields) => fields.len() as u64,
            Held::Pieces { len, .. } => *len,
        }
    }

    /// Whether it is in pieces.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Held::Pieces { .. })
    }

    /// The encoded fields.
    pub(crate) async fn read(self, tx: &Tx, db: Prefix, oid: Oid, id: Id) -> Result<Bytes> {
        match self {
            Held::Inline(fields) => Ok(fields),
            Held::Pieces { len, .. } => pieces::read(tx, db.entry_pieces(oid, id), len).await,
        }
    }
}

/// The rows of an entry of encoded fields.
pub(crate) fn rows_of(
    db: Prefix,
    oid: Oid,
    id: Id,
    raw: &Bytes,
) -> impl Iterator<Item = (Vec<u8>, Bytes)> + use<> {
    let (held, pieces) = if raw.len() <= INLINE_MAX {
        (Held::Inline(raw.clone()), Bytes::new())
    } else {
        let fields = strings(raw).count() / 2;
        (Held::Pieces { len: raw.len() as u64, fields: fields as u32 }, raw.clone())
    };
    let row = (db.entry(oid, id), held.encode().into());
    let pieces = (0..pieces.len().div_ceil(PIECE)).map(move |n| {
        let piece = pieces.slice(n * PIECE..pieces.len().min((n + 1) * PIECE));
        (db.entry_piece(oid, id, n as u32), piece)
    });
    std::iter::once(row).chain(pieces)
}

/// The id and the row of an entry, from a pair of the store.
pub(crate) fn decode(db: Prefix, (row, raw): &(Bytes, Bytes)) -> Result<(Id, Held)> {
    match db.decode_stream_row(row) {
        Some(StreamRow::Entry(id)) => Ok((id, Held::decode(raw)?)),
        Some(
            StreamRow::Piece(..)
            | StreamRow::Group(_)
            | StreamRow::Pending(..)
            | StreamRow::Owned(..)
            | StreamRow::Consumer(..)
            | StreamRow::GroupCount(_)
            | StreamRow::ConsumerCount(..),
        )
        | None => Err(StoreError::Corrupt("a row of a stream has an invalid key".into()).into()),
    }
}

/// Removes the rows of an entry.
pub(crate) fn clear(s: &Scope<'_>, oid: Oid, id: Id, is_long: bool) -> Result<()> {
    s.tx.clear(&s.db.entry(oid, id))?;
    if is_long {
        let begin = s.db.entry_pieces(oid, id);
        s.tx.clear_range(&begin, &prefix_end(&begin))?;
    }
    Ok(())
}

/// Bytes of the fields of an entry, on an average of the first ones. 0 if there is none.
pub(crate) async fn size(s: &Scope<'_>, rep: &StreamRep) -> Result<u64> {
    average(s, rep, |raw| Ok(Held::decode(raw)?.len())).await
}

/// As [`size`], without the pieces of long entries.
pub(super) async fn row_size(s: &Scope<'_>, rep: &StreamRep) -> Result<u64> {
    average(s, rep, |raw| Ok(raw.len() as u64)).await
}

async fn average(s: &Scope<'_>, rep: &StreamRep, of: impl Fn(&Bytes) -> Result<u64>) -> Result<u64> {
    if rep.len == 0 {
        return Ok(0);
    }
    let (begin, end) = (s.db.entry(rep.oid, rep.first), s.db.entries_end(rep.oid));
    let page = s.tx.get_range(&begin, &end, SAMPLE, Read::Snapshot).await?;
    let mut bytes = 0_u64;
    for (_, raw) in &page.pairs {
        bytes = bytes.saturating_add(of(raw)?);
    }
    Ok(bytes / (page.pairs.len() as u64).max(1))
}

/// Approximate stored bytes of `n` entries of a stream, as far as the first ones tell.
pub(crate) async fn bytes(s: &Scope<'_>, rep: &StreamRep, n: u64) -> Result<u64> {
    let n = n.min(rep.len);
    if n == 0 {
        return Ok(0);
    }
    Ok(size(s, rep).await?.saturating_add(ROW).saturating_mul(n))
}

/// An entry of a reply, as [`super::sent::push`] wrote it: its id, and its encoded fields.
pub(crate) fn sent(raw: &[u8]) -> (Id, &[u8]) {
    raw.split_first_chunk().map_or((Id::MIN, raw), |(id, fields)| (Id::from_bytes(*id), fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_round_trip(lengths in proptest::collection::vec(0..300_usize, 0..9), long in 0..20_000_usize) {
            let of = |n: usize| Bytes::from(vec![n as u8; n]);
            let fields: Vec<Bytes> = lengths.into_iter().chain([long]).map(of).collect();
            let entry = Entry::new(Id::MIN, &fields);
            prop_assert_eq!(strings(&entry.raw).count(), fields.len());
            prop_assert_eq!(encoded_len(&fields), entry.raw.len() as u64);
            prop_assert!(entry.strings().eq(fields.iter().map(|string| &string[..])));
        }

        #[test]
        fn any_bytes_decode_or_fail(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let raw = Bytes::from(raw);
            let entry = Entry { id: Id::MIN, raw: raw.clone() };
            prop_assert!(entry.strings().map(<[u8]>::len).sum::<usize>() <= raw.len());
            _ = Held::parse(&raw);
        }
    }

    #[test]
    fn rows_decode() {
        for held in
            [Held::Inline(Bytes::from_static(b"\x01a\x01b")), Held::Pieces { len: 1 << 40, fields: 9 }]
        {
            assert_eq!(Held::decode(&held.encode().into()), Ok(held));
        }
        for raw in [&b""[..], b"\x02", b"\x01abc"] {
            assert!(Held::decode(&Bytes::from_static(raw)).is_err());
        }
    }
}
