//! Builds strings too large for a transaction, as [`crate::types::prebuilt`] describes.

use super::walk::{Stretch, Walk};
use super::{DIRECT_MAX, PIECE, cuts, len};
use crate::error::{Error, Result, StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{Read, Tx};
use crate::types::object;
use crate::types::prebuilt::{Builder, Object, Prebuilt, Row, Source, lay_over};
use crate::types::string::Str;
use bytes::Bytes;
use std::borrow::Cow;

/// Bytes written by one transaction of a build.
const STEP: usize = 64 * PIECE;
/// The longest possible string: pieces have 32-bit numbers. The configured limit is far below.
const LONGEST: u64 = PIECE as u64 * u32::MAX as u64;

/// Builds `value` (SET, MSET, GETSET and so on) in database `db`. `lease_ms`: as for [`Builder::new`].
pub async fn prebuild(space: &Keyspace, db: Prefix, value: &Bytes, lease_ms: u64) -> Result<Prebuilt> {
    let mut builder = Builder::new(space, db, Vec::new(), lease_ms);
    write(&mut builder, 0, value).await?;
    Ok(Prebuilt::Argument(value.clone(), builder.done(value.len() as u64)))
}

/// Builds the string under `key` with `patch` written at `offset` (None: at its end), for an APPEND or
/// SETRANGE whose argument exceeds a transaction. None if the key holds no string or the result is too long:
/// let the command handle that. Fails with [`StoreError::Conflict`] if the string changed meanwhile.
pub async fn prebuild_change(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    offset: Option<u64>,
    patch: &Bytes,
    lease_ms: u64,
) -> Result<Option<Prebuilt>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let Ok(old) = slot.string() else { return Ok(None) };
    let old = old.cloned().unwrap_or(Str::Inline(Bytes::new()));
    let offset = offset.unwrap_or_else(|| len(&old));
    let new_len = len(&old).max(offset.saturating_add(patch.len() as u64));
    if new_len > LONGEST {
        return Ok(None);
    }
    let mut builder = Builder::new(space, db, vec![Source::of(&s, &slot).await?], lease_ms);
    copy_old(space, db, &mut builder, &old).await?;
    write(&mut builder, offset, patch).await?;
    Ok(Some(Prebuilt::Argument(patch.clone(), builder.done(new_len))))
}

/// Builds a copy in `to` of the long string `old` in `from`. Fails with [`StoreError::Conflict`] if it
/// changed meanwhile.
pub(crate) async fn prebuild_copy(
    space: &Keyspace,
    (from, to): (Prefix, Prefix),
    source: Source,
    old: &Str,
    lease_ms: u64,
) -> Result<Object> {
    let mut builder = Builder::new(space, to, vec![source], lease_ms);
    copy_old(space, from, &mut builder, old).await?;
    Ok(builder.done(len(old)))
}

/// Copies the string in `db` while it is unchanged: otherwise the object could not be taken over.
async fn copy_old(space: &Keyspace, db: Prefix, builder: &mut Builder<'_>, old: &Str) -> Result<()> {
    let mut walk = Walk::new(db, old, 0, len(old));
    while walk.left() > 0 {
        let tx = space.store.begin();
        builder.check(&space.scope(&tx, db)).await?;
        let (mut parts, mut held) = (Vec::new(), 0);
        while held < STEP {
            let at = walk.at();
            match walk.next(&tx).await? {
                None => break,
                Some(Stretch::Zeroes(_)) => {}
                Some(Stretch::Bytes(bytes)) => {
                    held += bytes.len();
                    parts.push((at, bytes));
                }
            }
        }
        let (db, oid) = builder.place();
        let rows = parts.iter().flat_map(|(at, bytes)| cuts(*at, bytes));
        builder.write(&Vec::from_iter(rows.map(|(n, at, bytes)| piece(db, oid, n, at, bytes)))).await?;
    }
    Ok(())
}

/// A string built from bytes as they arrive.
pub struct Writing<'a> {
    builder: Builder<'a>,
    /// Bytes in whole pieces so far, and the bytes after them.
    whole: u64,
    part: Vec<u8>,
    /// Pieces not written yet.
    pieces: Vec<(u32, Vec<u8>)>,
}

impl<'a> Writing<'a> {
    /// An empty string in database `db`. `lease_ms`: as for [`Builder::new`].
    pub(crate) fn new(space: &'a Keyspace, db: Prefix, lease_ms: u64) -> Self {
        let builder = Builder::new(space, db, Vec::new(), lease_ms);
        Writing { builder, whole: 0, part: Vec::new(), pieces: Vec::new() }
    }

    /// Appends bytes.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> StoreResult<()> {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at((PIECE - self.part.len()).min(bytes.len()));
            self.part.extend_from_slice(head);
            bytes = rest;
            if self.part.len() == PIECE {
                self.end_piece();
            }
            if self.pieces.len() >= STEP / PIECE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// A piece of zeroes needs no row.
    fn end_piece(&mut self) {
        let piece = std::mem::take(&mut self.part);
        let n = super::piece_of(self.whole);
        self.whole += piece.len() as u64;
        if !super::is_zero(&piece) {
            self.pieces.push((n, piece));
        }
    }

    async fn flush(&mut self) -> StoreResult<()> {
        let (db, oid) = self.builder.place();
        let pieces = std::mem::take(&mut self.pieces);
        let row = |(n, piece): (u32, Vec<u8>)| Row { key: db.piece(oid, n), at: None, bytes: piece.into() };
        self.builder.write(&Vec::from_iter(pieces.into_iter().map(row))).await
    }

    /// The finished object.
    pub(crate) async fn done(mut self) -> StoreResult<Object> {
        self.end_piece();
        self.flush().await?;
        Ok(self.builder.done(self.whole))
    }
}

async fn write(builder: &mut Builder<'_>, mut offset: u64, bytes: &[u8]) -> StoreResult<()> {
    let (db, oid) = builder.place();
    for part in bytes.chunks(STEP) {
        let row = |(n, at, bytes): (u32, usize, _)| piece(db, oid, n, at, bytes);
        builder.write(&Vec::from_iter(cuts(offset, part).map(row))).await?;
        offset += part.len() as u64;
    }
    Ok(())
}

fn piece(db: Prefix, oid: Oid, n: u32, at: usize, bytes: &[u8]) -> Row<'_> {
    let at = (bytes.len() < PIECE).then_some(at);
    Row { key: db.piece(oid, n), at, bytes: Cow::Borrowed(bytes) }
}

/// Writes bytes into a piece at `at`; reads the old piece unless they cover it.
pub(super) async fn write_piece(tx: &Tx, row: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
    if bytes.len() == PIECE { tx.set(row, bytes) } else { lay_over(tx, row, at, bytes).await }
}

/// Takes over the prebuilt string for `argument`; the caller writes the record. None if no valid object was
/// prebuilt and the argument fits into the transaction. If it does not fit, a stale object fails with
/// [`StoreError::Conflict`]: prebuild again, then run again.
pub(super) async fn adopt<'a>(
    s: &Scope<'_>,
    prebuilt: &'a [Prebuilt],
    argument: &Bytes,
) -> Result<Option<&'a Object>> {
    let is_same = |built: &Bytes| built.as_ptr() == argument.as_ptr() && built.len() == argument.len();
    let found = prebuilt.iter().find_map(|prebuilt| match prebuilt {
        Prebuilt::Argument(built, object) if is_same(built) => Some(object),
        Prebuilt::Argument(..) | Prebuilt::Result(_) | Prebuilt::Ids(_) => None,
    });
    match found {
        None => Ok(None),
        Some(object) if object.try_take(s, s).await? => Ok(Some(object)),
        Some(_) if argument.len() > DIRECT_MAX => Err(Error::Store(StoreError::Conflict)),
        Some(_) => Ok(None),
    }
}
