//! A string's part of a record, and its implementation of the contract.
//!
//! ```text
//! tag 1 inline: the bytes          tag 2 in pieces: oid u128 BE, length u64 LE
//! tags 6 and 7 inline: raw and embstr, where SET would choose another encoding
//! ```

use super::{INLINE_MAX, PIECE, len, prebuild};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::spec::words::parse_i64;
use crate::store::{RangeOptions, Read, Rest};
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::Slot;
use crate::types::prebuilt::{Object, Source};
use bytes::{BufMut, Bytes};

/// The longest string in pieces, in bytes: the maximum of `proto-max-bulk-len`, plus a bit field that begins
/// in the last byte. Readers allocate memory for the stored length, so a damaged one must not be trusted.
const LONGEST: u64 = (512 << 20) + 8;
/// The longest string that Redis keeps in one allocation with its header.
const EMBSTR_MAX: usize = 44;
/// The longest text that Redis tries to parse as an integer.
const INT_MAX: usize = 20;
/// The integers that Redis shares; their reference count is C's `INT_MAX`.
const SHARED_INTS: std::ops::Range<i64> = 0..10_000;
/// One page of pieces in an audit.
const PAGE: RangeOptions = RangeOptions { limit: 1024, bytes: 1 << 18, reverse: false };

/// A string's bytes, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Str {
    /// In the record, at most 16 KiB.
    Inline(Bytes),
    /// Also in the record, but written by APPEND or SETRANGE (`raw`), or by INCRBYFLOAT (not `raw`): OBJECT
    /// ENCODING shows the difference.
    Made {
        /// The string.
        bytes: Bytes,
        /// Whether the encoding is `raw`; otherwise `embstr`.
        raw: bool,
    },
    /// In pieces under the object id; a missing piece is zeroes.
    Pieces {
        /// The object id of the pieces.
        oid: Oid,
        /// Length of the string in bytes.
        len: u64,
    },
}

impl Slot {
    /// The string, or WRONGTYPE.
    pub(crate) fn string(&self) -> Result<Option<&Str>> {
        self.of_type()
    }
}

impl Type for Str {
    const NAME: &'static str = "string";
    const TAGS: &'static [u8] = &[1, 2, 6, 7];
    const ROWS: &'static [u8] = b"C";
    const COUNTED: bool = false;
    const OBJECTS: &'static str = "strings' objects";

    fn tag(&self) -> u8 {
        match self {
            Str::Inline(_) => 1,
            Str::Pieces { .. } => 2,
            Str::Made { raw: true, .. } => 6,
            Str::Made { raw: false, .. } => 7,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Str::Inline(bytes) | Str::Made { bytes, .. } => out.put_slice(bytes),
            Str::Pieces { oid, len } => {
                out.put_u128(oid.0);
                out.put_u64_le(*len);
            }
        }
    }

    fn decode(tag: u8, payload: Bytes) -> Option<Self> {
        match tag {
            1 => Some(Str::Inline(payload)),
            2 => {
                let (head, len) = payload.split_last_chunk()?;
                let len = Some(u64::from_le_bytes(*len)).filter(|len| *len <= LONGEST)?;
                Some(Str::Pieces { oid: Oid::decode(head)?, len })
            }
            6 | 7 => Some(Str::Made { bytes: payload, raw: tag == 6 }),
            _ => None,
        }
    }

    fn oid(&self) -> Option<Oid> {
        match self {
            Str::Pieces { oid, .. } => Some(*oid),
            Str::Inline(_) | Str::Made { .. } => None,
        }
    }

    fn moved(&self, oid: Oid) -> Self {
        match self {
            Str::Pieces { len, .. } => Str::Pieces { oid, len: *len },
            Str::Inline(_) | Str::Made { .. } => self.clone(),
        }
    }

    fn interned(&self) -> Option<Oid> {
        None
    }

    fn encoding(&self) -> &'static str {
        match self {
            Str::Inline(bytes) if as_int(bytes).is_some() => "int",
            Str::Inline(bytes) | Str::Made { bytes, raw: false } if bytes.len() <= EMBSTR_MAX => "embstr",
            Str::Inline(_) | Str::Made { .. } | Str::Pieces { .. } => "raw",
        }
    }

    fn references(&self) -> i64 {
        match self {
            Str::Inline(bytes) if as_int(bytes).is_some_and(|n| SHARED_INTS.contains(&n)) => {
                i64::from(i32::MAX)
            }
            Str::Inline(_) | Str::Made { .. } | Str::Pieces { .. } => 1,
        }
    }

    async fn weight(&self, _: &Scope<'_>) -> Result<u64> {
        Ok(len(self))
    }

    async fn len(&self, _: &Scope<'_>, _: Read) -> Result<u64> {
        Ok(len(self))
    }

    async fn memory(&self, _: &Scope<'_>) -> Result<u64> {
        Ok(len(self))
    }

    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        match self {
            Str::Pieces { .. } => {
                prebuild::prebuild_copy(s.space, (s.db, to), source, self, lease_ms).await.map(Some)
            }
            Str::Inline(_) | Str::Made { .. } => Ok(None),
        }
    }

    fn prebuilt(object: &Object) -> Self {
        Str::Pieces { oid: object.oid(), len: object.len() }
    }

    async fn dump(&self, _: &Scope<'_>, _: usize) -> Result<Dump> {
        Ok(Dump::Str(self.clone()))
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        match self {
            Str::Inline(bytes) | Str::Made { bytes, .. } if bytes.len() > INLINE_MAX => {
                Ok(vec![Problem::new(
                    row,
                    format!("a string in its record is too long: {} bytes", bytes.len()),
                )])
            }
            Str::Inline(_) | Str::Made { .. } => Ok(Vec::new()),
            Str::Pieces { oid, len } => pieces(auditor, *oid, *len).await,
        }
    }
}

fn as_int(raw: &[u8]) -> Option<i64> {
    (raw.len() <= INT_MAX).then(|| parse_i64(raw))?
}

/// Audits the pieces of a string of `len` bytes: none may be longer than a piece or lie beyond the end.
async fn pieces(auditor: &Auditor<'_>, oid: Oid, len: u64) -> Findings {
    let (view, db) = (auditor.view, auditor.db);
    let (mut rest, mut problems) = (Rest::under(db.object_rows(b'C', oid)), Vec::new());
    while let Some(page) = view.next(&mut rest, PAGE).await? {
        for (row, bytes) in &page {
            let number = Prefix::decode_piece(row).filter(|_| row.len() == db.piece(oid, 0).len());
            let room = number.map(|n| len.saturating_sub(u64::from(n) * PIECE as u64).min(PIECE as u64));
            if room.is_none_or(|room| room == 0 || bytes.len() as u64 > room) {
                problems.push(Problem::new(row, format!("a piece does not fit its string of {len} bytes")));
            }
        }
    }
    Ok(problems)
}
