//! Strings: at most [`INLINE_MAX`] bytes in the record, longer ones in pieces of [`PIECE`] bytes.
//!
//! Piece n holds the bytes from n * PIECE on. A missing piece, and what a piece lacks at its end, is zeroes: SETRANGE far
//! behind the end writes one piece. Nothing is stored behind the length in the record, because a string never gets
//! shorter under its object id: SET takes a new one.
//!
//! Why 32 KiB: APPEND and SETRANGE of a few bytes rewrite one piece, so pieces want to be small; 512 MB read whole
//! want few rows; the store's limit is 100 kB a value. At 32 KiB a small write costs at most twice the inline limit, and
//! the largest string has 16 384 rows.
//!
//! Every change goes through `object::put`, which writes the record. So whoever has read the record serializably needs
//! no conflict on the pieces, and reads them as snapshot.
//!
//! A value too large for a transaction is built first, see [`stage`].

pub mod bits;
mod stage;

pub use stage::{stage, stage_change, stage_copy};

use super::object::{self, Slot};
use super::staged::{Staged, overlay};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::record::{Str, Value};
use crate::store::{RangeOptions, Read, key_after};
use bytes::Bytes;

/// Longest string in the record, in bytes.
pub const INLINE_MAX: usize = 16 * 1024;
/// Bytes of a piece. At least [`INLINE_MAX`], so that an inline value becomes the begin of piece 0.
pub const PIECE: usize = 32 * 1024;
/// Most bytes that one command writes without staging: leaves room for others in the transaction.
pub const DIRECT_MAX: usize = 8_000_000;
/// Bytes read at once.
const READ_AHEAD: usize = 1 << 20;

/// Length in bytes.
pub fn len(value: &Str) -> u64 {
    match value {
        Str::Inline(b) | Str::Made { bytes: b, .. } => b.len() as u64,
        Str::Pieces { len, .. } => *len,
    }
}

/// The bytes of a string that is in the record.
pub fn inline(value: &Str) -> Option<&Bytes> {
    match value {
        Str::Inline(b) | Str::Made { bytes: b, .. } => Some(b),
        Str::Pieces { .. } => None,
    }
}

/// The whole string.
pub async fn read(s: &Scope<'_>, value: &Str) -> Result<Bytes> {
    read_range(s, value, 0, len(value)).await
}

/// The bytes `start..end`, cut to the string's length. Reads only the pieces that hold them.
pub async fn read_range(s: &Scope<'_>, value: &Str, start: u64, end: u64) -> Result<Bytes> {
    let end = end.min(len(value));
    let start = start.min(end);
    match value {
        Str::Inline(b) | Str::Made { bytes: b, .. } => Ok(b.slice(start as usize..end as usize)),
        Str::Pieces { oid, .. } => read_pieces(s, *oid, start, end).await,
    }
}

async fn read_pieces(s: &Scope<'_>, oid: Oid, start: u64, end: u64) -> Result<Bytes> {
    let mut out = vec![0; (end - start) as usize];
    let mut from = s.db.piece(oid, piece_of(start));
    let to = s.db.piece(oid, piece_of(end.saturating_sub(1)) + 1);
    let opts = RangeOptions { bytes: READ_AHEAD, ..RangeOptions::default() };
    loop {
        let page = s.tx.get_range(&from, &to, opts, Read::Snapshot).await?;
        for (row, bytes) in &page.pairs {
            let n = Prefix::decode_piece(row).ok_or_else(|| StoreError::Corrupt("row of a piece".into()))?;
            place(&mut out, start, u64::from(n) * PIECE as u64, bytes);
        }
        match page.pairs.last() {
            Some((row, _)) if page.more => from = key_after(row),
            _ => return Ok(out.into()),
        }
    }
}

fn piece_of(offset: u64) -> u32 {
    (offset / PIECE as u64) as u32
}

/// Copies the part of `bytes` (they stand at `at`) that lies in `out` (its first byte stands at `start`).
fn place(out: &mut [u8], start: u64, at: u64, bytes: &[u8]) {
    let skip = start.saturating_sub(at) as usize;
    let to = at.saturating_sub(start) as usize;
    let (Some(from), Some(into)) = (bytes.get(skip..), out.get_mut(to..)) else { return };
    let n = from.len().min(into.len());
    if let (Some(from), Some(into)) = (from.get(..n), into.get_mut(..n)) {
        into.copy_from_slice(from);
    }
}

/// Writes the whole string. A value that was staged is swapped in; another one over [`DIRECT_MAX`] is
/// [`StoreError::TooLarge`]. `slot` as for [`object::put`].
pub async fn write(
    s: &Scope<'_>,
    staged: &[Staged],
    slot: &mut Slot,
    value: &Bytes,
    expire_at: Option<u64>,
) -> Result<()> {
    object::check_name(&slot.key)?;
    if value.len() <= INLINE_MAX {
        return object::put(s, slot, Value::Str(Str::Inline(value.clone())), expire_at);
    }
    let oid = match stage::adopt(s, staged, value).await? {
        Some(found) => found.oid(),
        None => write_new(s, value)?,
    };
    let len = value.len() as u64;
    object::put(s, slot, Value::Str(Str::Pieces { oid, len }), expire_at)
}

fn write_new(s: &Scope<'_>, value: &[u8]) -> Result<Oid> {
    check_direct(value)?;
    let oid = s.space.fresh.oid();
    for (n, _, part) in cuts(0, value) {
        s.tx.set(&s.db.piece(oid, n), part)?;
    }
    Ok(oid)
}

fn check_direct(bytes: &[u8]) -> Result<()> {
    if bytes.len() > DIRECT_MAX { Err(StoreError::TooLarge.into()) } else { Ok(()) }
}

/// Writes `patch` at `offset`, zeroes between the old end and it; the expiry stays. The new length in bytes. A missing
/// key counts as the empty string; the caller has checked type and largest length.
pub async fn set_range(
    s: &Scope<'_>,
    staged: &[Staged],
    slot: &mut Slot,
    offset: u64,
    patch: &Bytes,
) -> Result<u64> {
    object::check_name(&slot.key)?;
    let old = slot.string()?.cloned().unwrap_or(Str::Inline(Bytes::new()));
    let expire_at = slot.expire_at();
    let new_len = len(&old).max(offset + patch.len() as u64);
    let value = match (&old, stage::adopt(s, staged, patch).await?) {
        (_, Some(found)) => Str::Pieces { oid: found.oid(), len: found.len() },
        (Str::Inline(b) | Str::Made { bytes: b, .. }, None) if new_len <= INLINE_MAX as u64 => {
            Str::Made { bytes: overlay(b, offset as usize, patch).into(), raw: true }
        }
        (_, None) => Str::Pieces { oid: patch_pieces(s, &old, offset, patch).await?, len: new_len },
    };
    object::put(s, slot, Value::Str(value), expire_at)?;
    Ok(new_len)
}

async fn patch_pieces(s: &Scope<'_>, old: &Str, offset: u64, patch: &[u8]) -> Result<Oid> {
    check_direct(patch)?;
    let oid = match old {
        Str::Pieces { oid, .. } => *oid,
        Str::Inline(b) | Str::Made { bytes: b, .. } => {
            let oid = s.space.fresh.oid();
            s.tx.set(&s.db.piece(oid, 0), b)?;
            oid
        }
    };
    for (n, at, part) in cuts(offset, patch) {
        stage::write_piece(s.tx, &s.db.piece(oid, n), at, part).await?;
    }
    Ok(oid)
}

/// Cuts bytes that stand at `offset` at the borders of pieces: piece number, place in the piece, bytes.
fn cuts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u32, usize, &[u8])> {
    let at = (offset % PIECE as u64) as usize;
    let (head, tail) = bytes.split_at_checked(PIECE - at).unwrap_or((bytes, &[]));
    let first = piece_of(offset);
    let rest = (first + 1..).zip(tail.chunks(PIECE)).map(|(n, part)| (n, 0, part));
    (!head.is_empty()).then_some((first, at, head)).into_iter().chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_the_borders_of_pieces() {
        let bytes = vec![7; 2 * PIECE];
        let of = |offset, len: usize| -> Vec<(u32, usize, usize)> {
            cuts(offset, &bytes[..len]).map(|(n, at, part)| (n, at, part.len())).collect()
        };
        assert_eq!(of(0, 0), []);
        assert_eq!(of(0, PIECE), [(0, 0, PIECE)]);
        assert_eq!(of(PIECE as u64, 1), [(1, 0, 1)]);
        assert_eq!(of(5, PIECE), [(0, 5, PIECE - 5), (1, 0, 5)]);
        assert_eq!(of(1, 2 * PIECE), [(0, 1, PIECE - 1), (1, 0, PIECE), (2, 0, 1)]);
    }
}
