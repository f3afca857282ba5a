//! Reads of rows that lie near each other, or of many rows: hints for the embedded engine.

use super::{Read, StoreResult, Tx};
use bytes::Bytes;

/// What is read with a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Near<'a> {
    Nothing,
    /// See [`Tx::get_ahead`].
    Ahead(&'a [u8]),
    /// See [`Tx::get_among`].
    Among(usize),
}

impl Tx {
    /// A snapshot [`Tx::get`], one of many by which the rows from `key` to `end`, in either direction, will be read one
    /// after the other: the embedded engine reads some of the next ones at once.
    pub async fn get_ahead(&self, key: &[u8], end: &[u8]) -> StoreResult<Option<Bytes>> {
        if let Tx::Local(t) = self
            && let Some(found) = t.get_at_once(key, Read::Snapshot, Near::Ahead(end))
        {
            return found;
        }
        Box::pin(self.get_later(key, Read::Snapshot, Near::Ahead(end))).await
    }
    /// A [`Tx::get`], one of many of keys that differ in their last `tail` bytes only, where few rows exist: the embedded
    /// engine keeps these in memory, if they are asked for often, rather than what each look-up finds.
    pub async fn get_among(&self, key: &[u8], tail: usize, read: Read) -> StoreResult<Option<Bytes>> {
        if let Tx::Local(t) = self
            && let Some(found) = t.get_at_once(key, read, Near::Among(tail))
        {
            return found;
        }
        Box::pin(self.get_later(key, read, Near::Among(tail))).await
    }
    pub(super) async fn get_later(
        &self,
        key: &[u8],
        read: Read,
        near: Near<'_>,
    ) -> StoreResult<Option<Bytes>> {
        match self {
            Tx::Local(t) => t.get(key, read, near).await,
            Tx::Faulty(t) => t.get(key, read).await,
            #[cfg(feature = "fdb")]
            Tx::Fdb(t) => t.get(key, read).await,
        }
    }
    /// The values under `keys`, in order: like [`Tx::get`] of each, for many rows. The embedded engine looks them up
    /// together, and caches them outside its blocks only if they may be read `again` soon.
    pub async fn get_bulk(
        &self,
        keys: &[Vec<u8>],
        read: Read,
        again: bool,
    ) -> StoreResult<Vec<Option<Bytes>>> {
        if let Tx::Local(t) = self {
            return t.get_bulk(keys, read, again).await;
        }
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key, read).await?);
        }
        Ok(found)
    }
}
