//! Copies a value to another key or database: COPY, and MOVE (rows carry their database's prefix, so they cannot just be
//! handed over).
//!
//! What is not in the record is copied row by row inside the command's transaction; where that is too small ([`StoreError::TooLarge`]),
//! [`stage`] builds the copy before.

use crate::error::{Result, StoreError};
use crate::keyspace::keys::Prefix;
use crate::keyspace::record::{SetRep, Str, Value};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{MAX_TRANSACTION, RangeOptions, Read, key_after};
use crate::types::object::{self, Count};
use crate::types::set::{chunked, stage as sets};
use crate::types::staged::{Object, Source};
use crate::types::string;
use bytes::Bytes;
use tokio::task::yield_now;

/// Rows read at once, in bytes.
const READ_AHEAD: usize = 256 << 10;

/// A value of its own, in `to`'s database, equal to `value` in `from`'s. Writes its rows.
pub async fn value(from: &Scope<'_>, to: &Scope<'_>, value: &Value) -> Result<Value> {
    let oid = to.space.fresh.oid();
    Ok(match value {
        Value::Str(Str::Pieces { oid: old, len }) => {
            let range = (from.db.piece(*old, 0), from.db.pieces_end(*old));
            rows(from, to, range, to.db.piece(oid, 0), size_of::<u32>()).await?;
            Value::Str(Str::Pieces { oid, len: *len })
        }
        Value::Set(SetRep::Chunked(old)) => {
            let Count(count) = object::count(from, *old, Read::Serializable).await?;
            to.tx.set(&to.db.count(oid), &count.to_le_bytes())?;
            let range = from.db.set_rows(*old);
            rows(from, to, range, to.db.chunk(oid, 0), 1 + size_of::<u64>()).await?;
            Value::Set(SetRep::Chunked(oid))
        }
        inline => inline.clone(),
    })
}

/// Builds in `to` what [`value`] would write there for the value under `key` in `from`. None where it has no rows of its own.
pub async fn stage(
    space: &Keyspace,
    (from, to): (Prefix, Prefix),
    key: &Bytes,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, from);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let source = Source::of(&s, &slot).await?;
    match slot.record().map(|r| &r.value) {
        Some(Value::Str(old @ Str::Pieces { .. })) => {
            string::stage_copy(space, (from, to), source, old, lease_ms).await.map(Some)
        }
        Some(Value::Set(SetRep::Chunked(oid))) => {
            let ids = chunked::all(&s, *oid).await?;
            sets::build(space, to, ids, vec![source], None, lease_ms).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// The value whose rows were built by [`stage`] from `value`.
pub fn staged(value: &Value, built: &Object) -> Value {
    match value {
        Value::Str(_) => Value::Str(Str::Pieces { oid: built.oid(), len: built.len() }),
        Value::Set(_) => Value::Set(SetRep::Chunked(built.oid())),
    }
}

/// Copies a range of an object's rows. `model` is a row of the new object; the last `own` bytes of a row are its own.
/// Serializable, because deltas of a set change without its record.
async fn rows(
    from: &Scope<'_>,
    to: &Scope<'_>,
    (mut begin, end): (Vec<u8>, Vec<u8>),
    model: Vec<u8>,
    own: usize,
) -> Result<()> {
    let head = model.get(..model.len().saturating_sub(own)).unwrap_or_default();
    let opts = RangeOptions { bytes: READ_AHEAD, ..RangeOptions::default() };
    loop {
        let page = from.tx.get_range(&begin, &end, opts, Read::Serializable).await?;
        for (row, bytes) in &page.pairs {
            let tail = row.len().checked_sub(own).and_then(|at| row.get(at..)).unwrap_or_default();
            to.tx.set(&[head, tail].concat(), bytes)?;
        }
        if to.tx.size() > MAX_TRANSACTION {
            return Err(StoreError::TooLarge.into());
        }
        match page.pairs.last() {
            Some((row, _)) if page.more => begin = key_after(row),
            _ => return Ok(()),
        }
        yield_now().await;
    }
}
