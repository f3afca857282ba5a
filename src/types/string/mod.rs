//! Strings: up to [`INLINE_MAX`] bytes in the record, longer ones in pieces of [`PIECE`] bytes.
//!
//! Piece n holds the bytes from n * PIECE on. A missing piece is zeroes, and so is the missing end of a short
//! one: SETRANGE far beyond the end writes one piece. Nothing is stored beyond the length in the record,
//! because a string never gets shorter under its object id: SET takes a new one.
//!
//! Why 32 KiB: APPEND and SETRANGE of a few bytes rewrite one piece, which calls for small pieces; reading
//! 512 MB whole calls for few rows; and the store's limit is 100 kB a value. At 32 KiB a small write costs at
//! most twice the inline limit, and the largest string has 16 384 rows.
//!
//! Every change goes through `object::put`, which writes the record. So after reading the record
//! serializably, a transaction needs no conflict on the pieces and reads them as a snapshot.
//!
//! A value too large for a transaction is built first, see [`prebuild`]. A long one is read in steps
//! ([`walk`]) and sent as it is read ([`stream`]).

pub(crate) mod bits;
pub(crate) mod combine;
mod prebuild;
mod record;
pub(crate) mod stream;
pub mod walk;

pub use prebuild::{Writing, prebuild, prebuild_change};
pub use record::Str;

use super::object::{self, Slot};
use super::prebuilt::{Prebuilt, overlay};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::types::Value;
use bytes::Bytes;
use tokio::task::coop::consume_budget;
use walk::{STEP, Stretch, Walk};
use xxhash_rust::xxh3::Xxh3;

/// The longest string kept in the record, in bytes.
pub const INLINE_MAX: usize = 16 * 1024;
/// Bytes of a piece. At least [`INLINE_MAX`], so that an inline value becomes the beginning of piece 0.
pub const PIECE: usize = 32 * 1024;
/// Most bytes that one command writes without prebuilding: this leaves room for others in the transaction.
pub(crate) const DIRECT_MAX: usize = 8_000_000;
/// Zeroes for comparing and hashing.
static ZEROES: [u8; STEP] = [0; STEP];

/// Length in bytes.
pub(crate) fn len(value: &Str) -> u64 {
    match value {
        Str::Inline(b) | Str::Made { bytes: b, .. } => b.len() as u64,
        Str::Pieces { len, .. } => *len,
    }
}

/// The bytes of a string that is stored in the record.
pub(crate) fn inline(value: &Str) -> Option<&Bytes> {
    match value {
        Str::Inline(b) | Str::Made { bytes: b, .. } => Some(b),
        Str::Pieces { .. } => None,
    }
}

/// The whole string.
pub(crate) async fn read(s: &Scope<'_>, value: &Str) -> Result<Bytes> {
    read_range(s, value, 0, len(value)).await
}

/// The bytes `start..end`, cut to the string's length. Reads only the pieces that hold them.
pub(crate) async fn read_range(s: &Scope<'_>, value: &Str, start: u64, end: u64) -> Result<Bytes> {
    Ok(Walk::new(s.db, value, start, end).collect(s.tx).await?)
}

/// Whether the string equals `bytes`. Reads it only if the lengths match.
pub(crate) async fn equals(s: &Scope<'_>, value: &Str, mut bytes: &[u8]) -> Result<bool> {
    let mut walk = Walk::new(s.db, value, 0, len(value));
    let mut equal = len(value) == bytes.len() as u64;
    while equal && let Some(stretch) = walk.next(s.tx).await? {
        let Some((head, rest)) = bytes.split_at_checked(stretch.len() as usize) else { return Ok(false) };
        equal = match stretch {
            Stretch::Bytes(stored) => *stored == *head,
            Stretch::Zeroes(_) => are_zeroes(head).await,
        };
        bytes = rest;
    }
    Ok(equal)
}

/// Whether a piece, or a shorter part, is all zeroes.
fn is_zero(piece: &[u8]) -> bool {
    ZEROES.starts_with(piece)
}

async fn are_zeroes(bytes: &[u8]) -> bool {
    for part in bytes.chunks(ZEROES.len()) {
        if !is_zero(part) {
            return false;
        }
        consume_budget().await;
    }
    true
}

/// The string's 64-bit XXH3.
pub(crate) async fn digest(s: &Scope<'_>, value: &Str) -> Result<u64> {
    let mut walk = Walk::new(s.db, value, 0, len(value));
    let mut hash = Xxh3::new();
    while let Some(stretch) = walk.next(s.tx).await? {
        match stretch {
            Stretch::Bytes(bytes) => hash.update(&bytes),
            Stretch::Zeroes(mut n) => {
                while n > 0 {
                    let some = n.min(ZEROES.len() as u64);
                    hash.update(ZEROES.get(..some as usize).unwrap_or_default());
                    n -= some;
                    consume_budget().await;
                }
            }
        }
    }
    Ok(hash.digest())
}

fn piece_of(offset: u64) -> u32 {
    (offset / PIECE as u64) as u32
}

/// Writes the whole string. A prebuilt value is swapped in; any other over [`DIRECT_MAX`] fails with
/// [`StoreError::TooLarge`]. `slot` as for [`object::put`].
pub async fn write(
    s: &Scope<'_>,
    prebuilt: &[Prebuilt],
    slot: &mut Slot,
    value: &Bytes,
    expire_at: Option<u64>,
) -> Result<()> {
    object::check_name(&slot.key)?;
    if value.len() <= INLINE_MAX {
        return object::put(s, slot, Value::Str(Str::Inline(value.clone())), expire_at);
    }
    Box::pin(write_pieces(s, prebuilt, slot, value, expire_at)).await
}

async fn write_pieces(
    s: &Scope<'_>,
    prebuilt: &[Prebuilt],
    slot: &mut Slot,
    value: &Bytes,
    expire_at: Option<u64>,
) -> Result<()> {
    let oid = match prebuild::adopt(s, prebuilt, value).await? {
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

/// Writes `patch` at `offset`, with zeroes between the old end and `offset`; the expiry stays. Returns the
/// new length in bytes. A missing key counts as the empty string; the caller has checked the type and the
/// largest length.
pub async fn set_range(
    s: &Scope<'_>,
    prebuilt: &[Prebuilt],
    slot: &mut Slot,
    offset: u64,
    patch: &Bytes,
) -> Result<u64> {
    object::check_name(&slot.key)?;
    let old = slot.string()?.cloned().unwrap_or(Str::Inline(Bytes::new()));
    let expire_at = slot.expire_at();
    let new_len = len(&old).max(offset + patch.len() as u64);
    let value = match (&old, prebuild::adopt(s, prebuilt, patch).await?) {
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
        prebuild::write_piece(s.tx, &s.db.piece(oid, n), at, part).await?;
    }
    Ok(oid)
}

/// Splits the bytes at `offset` at piece borders: piece number, place in the piece, bytes.
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
