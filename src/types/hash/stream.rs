//! The fields of a large hash, read while they are sent, as they were when the command ran.
//!
//! Unlike the ids of a set, rows of a hash change. A transaction lives for five seconds, and a client may take
//! an hour. So once a second a newer transaction takes over, as for long strings (`types::string::stream`):
//! * If the hash is unchanged (its record has the same revision, and N is the same, to which every change adds),
//!   the rest is read from the newer transaction. However slow the client, this takes no memory and pins no
//!   version.
//! * If it has changed, the rest is read from the older transaction at once and kept until it has been sent, up
//!   to the number of bytes that `client-output-buffer-limit` allows.
//!
//! If neither is possible (the rest cannot be read within the transaction's life, or exceeds the limit),
//! [`Fields::next`] fails, and the connection ends, because its reply has begun.
//!
//! A piece has about [`PIECE`] bytes, or one value that is longer.

use super::expiry;
use super::record::HashRep;
use super::rows::{self, PAGE};
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::dictionary::packed::Packed;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{Read, Store, Tx};
use crate::types::object::{self, Slot};
use crate::types::record::Stored;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// How long one version is used.
const REFRESH: Duration = Duration::from_secs(1);
/// Approximate bytes of fields and values in one piece.
const PIECE: usize = 64 << 10;

/// The parts of each field that a reply has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Fields and values in turn, a map.
    Pairs,
    /// Fields.
    Fields,
    /// Values.
    Values,
}

/// See the module. Clones share their progress: one of them is sent.
#[derive(Clone)]
pub struct Fields {
    parts: Parts,
    fields: u64,
    each: u64,
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    store: Store,
    /// Most bytes kept of a hash that has changed.
    most: usize,
    state: Mutex<State>,
    /// The task that moves to newer versions.
    keeper: OnceLock<AbortHandle>,
}

/// A hash at one version.
struct Source {
    db: Prefix,
    key: Bytes,
    oid: Oid,
    /// Revision and N, and the generation in which they do not come back.
    version: (u64, i128),
    generation: u64,
    /// The time of the command: fields that expire later are part of its reply.
    now: u64,
    parts: Parts,
}

struct State {
    unread: Unread,
    /// Fields returned so far.
    sent: u64,
}

enum Unread {
    /// This transaction, from this row on.
    Tx(Box<Tx>, Vec<u8>),
    /// Pieces that were kept.
    Kept(VecDeque<Packed>),
    Lost(StoreError),
}

impl Source {
    async fn is_unchanged(&self, tx: &Tx) -> Result<bool> {
        if tx.generation().await? != self.generation {
            return Ok(false);
        }
        let Some(raw) = tx.get(&self.db.record(&self.key), Read::Snapshot).await? else { return Ok(false) };
        let revision = Stored::decode(raw)?.into_record().map(|record| record.revision);
        let n = tx.get(&self.db.count(self.oid), Read::Snapshot).await?;
        let n = n.and_then(|raw| raw[..].try_into().ok()).map_or(0, i128::from_le_bytes);
        Ok(revision.map(|revision| (revision, n)) == Some(self.version))
    }

    /// Adds about `bytes` of fields and values to `out`, at least one field. Returns their number, and where the
    /// next piece begins. Fails if they have more than `most` bytes.
    async fn read(
        &self,
        tx: &Tx,
        begin: &[u8],
        (bytes, most): (usize, usize),
        out: &mut Packed,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let end = self.db.fields_end(self.oid);
        let page = rows::page(tx, self.db, (begin, &end), (0, bytes)).await?;
        let mut n = 0;
        for (_, field, held) in page.fields {
            if held.expire_at.is_some_and(|at| at <= self.now) {
                continue;
            }
            let value = if self.parts == Parts::Fields { 0 } else { held.len() as usize };
            let size = out.size() + field.len() + value;
            if n > 0 && size > 2 * bytes {
                return Ok((n, Some(self.db.field(self.oid, &field))));
            }
            if size > most {
                return Err(StoreError::ReplyTooLarge(size).into());
            }
            n += 1;
            if self.parts != Parts::Values {
                out.push(&field);
            }
            if self.parts != Parts::Fields {
                out.push(&rows::value(tx, self.db, self.oid, held).await?);
            }
        }
        Ok((n, page.next))
    }

    /// Everything from a row on, if it has at most `most` bytes.
    async fn rest(&self, tx: &Tx, begin: &[u8], most: usize) -> Result<VecDeque<Packed>> {
        let (mut pieces, mut bytes, mut next) = (VecDeque::new(), 0, Some(begin.to_vec()));
        while let Some(begin) = next {
            let mut piece = Packed::default();
            next = self.read(tx, &begin, (PAGE, most.saturating_sub(bytes)), &mut piece).await?.1;
            bytes += piece.size();
            if !piece.is_empty() {
                pieces.push_back(piece);
            }
            tokio::task::coop::consume_budget().await;
        }
        Ok(pieces)
    }
}

impl Shared {
    /// Moves to a newer version; if the store does not answer, the next call tries again.
    async fn refresh(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let Unread::Tx(old, begin) = &state.unread else { return Ok(()) };
        let new = self.store.begin();
        let is_unchanged = match self.source.is_unchanged(&new).await {
            // An embedded store is not reopened as long as an old transaction has it open.
            Err(_) if old.is_too_old().await && new.is_too_old().await => true,
            is_unchanged => is_unchanged?,
        };
        state.unread = if is_unchanged {
            Unread::Tx(new.into(), begin.clone())
        } else {
            match self.source.rest(old, begin, self.most).await {
                Ok(rest) => Unread::Kept(rest),
                Err(Error::Store(e @ (StoreError::TooOld | StoreError::ReplyTooLarge(_)))) => Unread::Lost(e),
                Err(e) => return Err(e),
            }
        };
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }
}

async fn keep(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Err(e) = shared.refresh().await {
            tracing::debug!(?e, "a hash that is being sent");
        }
    }
}

impl Fields {
    /// The fields of the hash that `slot` holds in rows. None if it must be read now: it is in its record, or
    /// this transaction has changed it. `each`: bytes of a field and its value, about; `most`: bytes to keep if it
    /// changes.
    pub(crate) async fn open(
        s: &Scope<'_>,
        slot: &Slot,
        parts: Parts,
        (each, most): (u64, usize),
    ) -> Result<Option<Self>> {
        let Some(HashRep::Rows { oid, due, .. }) = slot.hash()? else { return Ok(None) };
        let Some(version) = object::version(s, slot, Read::Serializable).await? else { return Ok(None) };
        let rows = object::Count(version.1).cardinality();
        let fields = rows.saturating_sub(expiry::expired(s, *oid, *due).await?);
        let generation = s.tx.generation().await?;
        let source =
            Source { db: s.db, key: slot.key.clone(), oid: *oid, version, generation, now: s.now, parts };
        let tx = s.tx.again().await?;
        if s.tx.is_write() && !source.is_unchanged(&tx).await? {
            return Ok(None);
        }
        let unread = Unread::Tx(tx.into(), s.db.fields_from(*oid, 0));
        let (state, store) = (Mutex::new(State { unread, sent: 0 }), s.space.store.clone());
        let shared = Arc::new(Shared { source, store, most, state, keeper: OnceLock::new() });
        let _ = shared.keeper.set(tokio::spawn(keep(Arc::downgrade(&shared))).abort_handle());
        Ok(Some(Fields { parts, fields, each, shared }))
    }

    /// Whether the reply is a map.
    pub(crate) fn is_map(&self) -> bool {
        self.parts == Parts::Pairs
    }

    /// The number of fields at the beginning.
    pub fn len(&self) -> u64 {
        self.fields
    }

    /// Bytes of all fields and values, about.
    pub(crate) fn size(&self) -> usize {
        self.fields.saturating_mul(self.each + 32) as usize
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Replaces the contents of `out` by the next piece; it is empty at the end. A failed read loses nothing.
    pub async fn next(&self, out: &mut Packed) -> Result<()> {
        out.clear();
        let mut state = self.shared.state.lock().await;
        let each = if self.is_map() { 2 } else { 1 };
        let (n, unread) = match &mut state.unread {
            Unread::Lost(e) => return Err(e.clone().into()),
            Unread::Kept(rest) => {
                *out = rest.pop_front().unwrap_or_default();
                (out.len() as u64 / each, None)
            }
            Unread::Tx(tx, begin) => loop {
                match self.shared.source.read(tx, begin, (PIECE, usize::MAX), out).await? {
                    (n, None) => break (n, Some(Unread::Kept(VecDeque::new()))),
                    (0, Some(next)) => *begin = next,
                    (n, Some(next)) => {
                        *begin = next;
                        break (n, None);
                    }
                }
            },
        };
        state.sent += n;
        if let Some(unread) = unread {
            state.unread = unread;
        }
        let is_over = matches!(&state.unread, Unread::Kept(rest) if rest.is_empty());
        if is_over && state.sent != self.fields || state.sent > self.fields {
            return Err(StoreError::Corrupt("the number of a hash's fields is wrong".into()).into());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fields").field("fields", &self.fields).finish_non_exhaustive()
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}
