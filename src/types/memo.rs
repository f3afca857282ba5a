//! Remembers what a transaction has read from one set, for commands that ask again.
//!
//! Every SISMEMBER of a pipeline reads one record, one N and one of a few chunks; an SADD of a known member does too, and an
//! SRANDMEMBER reads the sums of all weights. Their transaction would read the same each time: only its own writes could
//! change that, so what a [`Memo`] has noted holds until the next write. It was read by this transaction, serializably if the
//! first command needed that, so no conflict is lost.
//!
//! It also holds what all strings share that this transaction's replies will send.

use super::object::{self, Slot};
use super::set::chunk::Row;
use super::set::rows;
use super::set::sample::Sampler;
use super::string::stream::Holder;
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::OnceCell;

/// The longest part of a string that is read before it is sent, and the most bytes of all such parts in one
/// transaction.
const SHORT: usize = 256 << 10;
const MOST: usize = 1 << 20;
/// The most chunks that are held.
const MOST_CHUNKS: usize = 64;

/// See the module. One per transaction.
#[derive(Debug, Default)]
pub struct Memo {
    /// The last key opened for its members.
    opened: Noted<(Prefix, Slot)>,
    /// The last chunks read of one set, by their first ids.
    chunks: Noted<(Prefix, Oid, BTreeMap<u64, Row>)>,
    /// What the last random member was drawn with.
    sampler: Noted<(Prefix, Oid, Sampler)>,
    /// Bytes of strings read for replies.
    read: AtomicUsize,
    /// Keeps strings readable while they are sent.
    holder: OnceCell<Holder>,
}

/// What was read, and [`Tx::written`](crate::store::Tx::written) at that time.
#[derive(Debug)]
struct Noted<T>(Mutex<Option<(usize, T)>>);

impl<T> Default for Noted<T> {
    fn default() -> Self {
        Noted(Mutex::default())
    }
}

impl<T> Noted<T> {
    /// What `of` makes of it, unless the transaction has written since.
    fn look<R>(&self, s: &Scope<'_>, of: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        let noted = self.0.lock();
        let (written, noted) = noted.as_ref()?;
        if *written == s.tx.written() { of(noted) } else { None }
    }

    fn note(&self, s: &Scope<'_>, read: T) {
        self.change(s, |_| read);
    }

    /// Replaces what was noted; `by` gets it unless the transaction has written since.
    fn change(&self, s: &Scope<'_>, by: impl FnOnce(Option<T>) -> T) {
        let written = s.tx.written();
        let mut noted = self.0.lock();
        let before = noted.take().filter(|(at, _)| *at == written);
        *noted = Some((written, by(before.map(|(_, read)| read))));
    }
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
    pub async fn open_members(&self, s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
        let same = |(db, slot): &(Prefix, Slot)| (*db == s.db && slot.key == *key).then(|| slot.clone());
        if let Some(slot) = self.opened.look(s, same) {
            return Ok(slot);
        }
        let slot = object::open_members(s, key).await?;
        self.opened.note(s, (s.db, slot.clone()));
        Ok(slot)
    }

    /// Whether `id` is in the chunk that covers it, as found by [`rows::locate`].
    pub(crate) async fn chunk_has(&self, s: &Scope<'_>, oid: Oid, id: u64) -> Result<bool> {
        let has = self.chunks.look(s, |(db, of, rows)| {
            let (_, row) = rows.range(..=id).next_back().filter(|_| (*db, *of) == (s.db, oid))?;
            row.covers(id).then(|| row.contains(id))
        });
        match has {
            Some(has) => has,
            None => Box::pin(self.read_chunk(s, oid, id)).await,
        }
    }

    /// As [`Memo::chunk_has`], of a chunk that is not held yet.
    async fn read_chunk(&self, s: &Scope<'_>, oid: Oid, id: u64) -> Result<bool> {
        let row = rows::locate(s, oid, id).await?;
        let has = row.contains(id);
        self.chunks.change(s, |before| {
            let same = before.filter(|(db, of, rows)| (*db, *of) == (s.db, oid) && rows.len() < MOST_CHUNKS);
            let mut rows = same.map(|(_, _, rows)| rows).unwrap_or_default();
            rows.insert(row.first, row);
            (s.db, oid, rows)
        });
        has
    }

    /// Takes the sampler of this set that was kept last.
    pub(crate) fn take_sampler(&self, s: &Scope<'_>, oid: Oid) -> Option<Sampler> {
        self.sampler.look(s, |(db, of, _)| ((*db, *of) == (s.db, oid)).then_some(()))?;
        self.sampler.0.lock().take().map(|(_, (_, _, sampler))| sampler)
    }

    /// Keeps a sampler of this transaction for its next command.
    pub(crate) fn keep_sampler(&self, s: &Scope<'_>, oid: Oid, sampler: Sampler) {
        self.sampler.note(s, (s.db, oid, sampler));
    }
}
