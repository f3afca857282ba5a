//! Remembers what a transaction without writes has read from one set, for commands that ask again.
//!
//! Every SISMEMBER of a pipeline reads one record, one N and usually one chunk. Their transaction would read
//! the same each time: only its own writes could change that, so a [`Memo`] answers until there are any. Its
//! answers were read by this transaction, serializably if the first command needed that, so no conflict is
//! lost.
//!
//! It also holds what all strings share that this transaction's replies will send.

use super::object::{self, Slot};
use super::set::chunk::Row;
use super::set::rows;
use super::string::stream::Holder;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::OnceCell;

/// The longest part of a string that is read before it is sent, and the most bytes of all such parts in one
/// transaction.
const SHORT: usize = 256 << 10;
const MOST: usize = 1 << 20;

/// See the module. One per transaction.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The last key opened for its members.
    opened: Mutex<Option<(Prefix, Slot)>>,
    /// The last chunk read.
    chunk: Mutex<Option<(Prefix, Oid, Row)>>,
    /// Bytes of strings read for replies.
    read: AtomicUsize,
    /// Keeps strings readable while they are sent.
    holder: OnceCell<Holder>,
}

impl Memo {
    /// Whether a reply may hold `bytes` of a string in memory. They count towards the transaction's limit.
    pub(crate) fn may_hold(&self, bytes: usize) -> bool {
        bytes <= SHORT && self.read.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST
    }

    /// The holder for strings that are read while they are sent. `most`: as for [`Holder::new`].
    pub(crate) async fn holder(&self, s: &Scope<'_>, most: usize) -> Result<&Holder> {
        Ok(self.holder.get_or_try_init(|| Holder::new(s.space.store.clone(), s.tx, most)).await?)
    }

    /// As [`object::open_members`].
    pub(crate) async fn open_members(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        if s.tx.is_write() {
            return object::open_members(s, key).await;
        }
        if let Some((db, slot)) = &*self.opened.lock()
            && *db == s.db
            && slot.key == *key
        {
            return Ok(slot.clone());
        }
        let slot = object::open_members(s, key).await?;
        *self.opened.lock() = Some((s.db, slot.clone()));
        Ok(slot)
    }

    /// Whether `id` is in the chunk that covers it, as found by [`rows::locate`].
    pub(crate) async fn chunk_has(&self, s: &Scope<'_>, oid: Oid, id: u64) -> Result<bool> {
        if s.tx.is_write() {
            return rows::locate(s, oid, id).await?.contains(id);
        }
        if let Some((db, of, row)) = &*self.chunk.lock()
            && (*db, *of) == (s.db, oid)
            && row.covers(id)
        {
            return row.contains(id);
        }
        let row = rows::locate(s, oid, id).await?;
        let has = row.contains(id);
        *self.chunk.lock() = Some((s.db, oid, row));
        has
    }
}
