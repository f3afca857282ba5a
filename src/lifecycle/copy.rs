//! Copies a value to another key or database: COPY, and MOVE (rows carry their database's prefix, so they
//! cannot simply be renamed).
//!
//! The rows of an object are copied one by one inside the command's transaction. If they do not fit
//! ([`StoreError::TooLarge`]), [`prebuild`] builds the copy beforehand.

use crate::error::{Result, StoreError};
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{MAX_TRANSACTION, RangeOptions, Read, Rest};
use crate::types::Value;
use crate::types::object::{self, Count};
use crate::types::prebuilt::{Object, Source};
use crate::types::zset;
use bytes::Bytes;
use tokio::task::yield_now;

/// The bytes of rows per read.
const READ_AHEAD: usize = 256 << 10;

/// A new value in `to`'s database, equal to `value` in `from`'s. Writes its rows.
pub(crate) async fn value(from: &Scope<'_>, to: &Scope<'_>, value: &Value) -> Result<Value> {
    let Some(old) = value.oid() else { return Ok(value.clone()) };
    let new = to.space.fresh.oid();
    if value.counter().is_some() {
        let Count(count) = object::count(from, old, Read::Serializable).await?;
        to.tx.set(&to.db.count(new), &count.to_le_bytes())?;
    }
    // What is copied has all that this transaction has changed.
    zset::settle(from, old).await?;
    for tag in value.kind().rows() {
        rows(from, to, *tag, (old, new)).await?;
    }
    Ok(value.moved(new))
}

/// Builds in `to` the rows that [`value`] would write there for the value under `key` in `from`. None if it
/// has no rows of its own.
pub(crate) async fn prebuild(
    space: &Keyspace,
    (from, to): (Prefix, Prefix),
    key: &Bytes,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, from);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let source = Source::of(&s, &slot).await?;
    match slot.record() {
        Some(record) => record.value.prebuild(&s, to, source, lease_ms).await,
        None => Ok(None),
    }
}

/// Copies the rows of one tag from one object to another. Reads serializably, because an object's rows may
/// change without its record.
async fn rows(from: &Scope<'_>, to: &Scope<'_>, tag: u8, (old, new): (Oid, Oid)) -> Result<()> {
    let (head, prefix) = (to.db.object_rows(tag, new), from.db.object_rows(tag, old));
    let (own, mut rest) = (prefix.len(), Rest::under(prefix));
    let opts = RangeOptions { bytes: READ_AHEAD, ..RangeOptions::default() };
    while let Some(page) = rest.page(from.tx, opts, Read::Serializable).await? {
        for (row, bytes) in &page {
            to.tx.set(&[&head, row.get(own..).unwrap_or_default()].concat(), bytes)?;
        }
        if to.tx.size() > MAX_TRANSACTION {
            return Err(StoreError::TooLarge.into());
        }
        if rest.range().is_some() {
            yield_now().await;
        }
    }
    Ok(())
}
