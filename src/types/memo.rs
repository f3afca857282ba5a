//! What a transaction that has written nothing has read of one set, for the commands that ask again.
//!
//! A pipeline of SISMEMBER reads one record, one N and mostly one chunk with every command. Its transaction reads the same each time: only
//! own writes could change that, so a [`Memo`] answers as long as there are none. What it answers was read by this
//! transaction, serializably where the first asker wanted that; so no conflict is lost.
//!
//! It also has what all strings share that this transaction's replies are going to send.

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

/// Longest part of a string that is read before it is sent, and how many bytes all of a transaction are then, at most.
const SHORT: usize = 256 << 10;
const MOST: usize = 1 << 20;

/// See the module. Of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The key last opened for its members.
    opened: Mutex<Option<(Prefix, Slot)>>,
    /// The chunk last looked into.
    chunk: Mutex<Option<(Prefix, Oid, Row)>>,
    /// Bytes of strings that were read for replies.
    read: AtomicUsize,
    /// What keeps strings readable that are read while they are sent.
    holder: OnceCell<Holder>,
}

impl Memo {
    /// Whether a reply may hold `bytes` of a string, which then count. Few do, however many strings there are.
    pub(crate) fn may_hold(&self, bytes: usize) -> bool {
        bytes <= SHORT && self.read.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST
    }

    /// For strings that are read while they are sent. `most`: as for [`Holder::new`].
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

    /// Whether the chunk of `id` has it: what [`rows::locate`] finds.
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
