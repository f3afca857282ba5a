//! The fields of a large hash, the elements of a large list, the members of a large sorted set or the entries of a large
//! stream, read while they are sent, as they were when the command ran.
//!
//! Unlike the ids of a set, rows of these change. A transaction lives for five seconds, and a client may
//! take an hour. So once a second a newer transaction takes over, as for long strings (`types::string::stream`):
//! * If the object is unchanged (its record has the same revision, and N is the same, to which every change of a
//!   hash or sorted set adds; of a stream: no entry was removed), the rest is read from the newer transaction. However slow the client, this takes no memory and pins
//!   no version.
//! * If it has changed, the rest is read from the older transaction at once and kept until it has been sent, up
//!   to the number of bytes that `client-output-buffer-limit` allows.
//!
//! If neither is possible (the rest cannot be read within the transaction's life, or exceeds the limit),
//! [`Items::next`] fails, and the connection ends, because its reply has begun.
//!
//! A piece has about [`PIECE`] bytes, or one value that is longer.

use super::Value;
use super::contents::{Contents, Opening, Shape, Span};
use super::hash::stream as fields;
use super::list::stream as elements;
use super::object::Slot;
use super::record::Stored;
use super::refreshed::{Keeper, Refresh};
use super::stream::sent as entries;
use super::zset::stream as members;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{Read, Store, Tx};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;

/// Approximate bytes of a piece.
const PIECE: usize = 64 << 10;
/// Bytes of rows that are read at once to be kept.
const PAGE: usize = 1 << 18;

/// See the module. Clones share their progress: one of them is sent.
#[derive(Clone)]
pub struct Items {
    shape: Shape,
    len: u64,
    each: u64,
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    /// The number of fields, elements or members.
    len: u64,
    store: Store,
    /// Most bytes kept of an object that has changed.
    most: usize,
    state: Mutex<State>,
    _keeper: Keeper,
}

/// An object at one version.
struct Source {
    db: Prefix,
    key: Bytes,
    oid: Oid,
    /// Revision and N, and the generation in which they do not come back.
    version: (u64, i128),
    generation: u64,
    contents: Contents,
    /// Where its rows end.
    end: Vec<u8>,
}

struct State {
    unread: Unread,
    /// Fields or elements returned so far.
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
    /// Whether nothing that is sent has changed since.
    async fn is_unchanged(&self, tx: &Tx) -> Result<bool> {
        self.is_seen(tx, false).await
    }

    /// Whether the transaction sees the object as it was, or, unless `exactly`, with more entries of a stream.
    async fn is_seen(&self, tx: &Tx, exactly: bool) -> Result<bool> {
        if tx.generation().await? != self.generation {
            return Ok(false);
        }
        let Some(raw) = tx.get(&self.db.record(&self.key), Read::Snapshot).await? else { return Ok(false) };
        let Some(record) = Stored::decode(raw)?.into_record() else { return Ok(false) };
        if let (Contents::Entries { losses, .. }, Value::Stream(rep)) = (self.contents, &record.value)
            && !exactly
        {
            return Ok(rep.oid == self.oid && rep.losses() == losses);
        }
        let n = tx.get(&self.db.count(self.oid), Read::Snapshot).await?;
        let n = n.and_then(|raw| raw[..].try_into().ok()).map_or(0, i128::from_le_bytes);
        Ok((record.revision, n) == self.version)
    }

    /// The next piece of the `left` ones: see [`fields::read`], [`elements::read`], [`members::read`] and
    /// [`entries::read`].
    async fn read(
        &self,
        tx: &Tx,
        (begin, left): (&[u8], u64),
        sizes: (usize, usize),
        out: &mut Packed,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let (place, range) = ((tx, self.db, self.oid), (begin, &self.end[..]));
        match self.contents {
            Contents::Fields { parts, now } => fields::read(place, (parts, now), range, sizes, out).await,
            Contents::Elements => elements::read(place, range, sizes, out).await,
            Contents::Ranked(ranked) => members::read((tx, self.db), (ranked, left), range, sizes, out).await,
            Contents::Entries { reverse, .. } => {
                entries::read(place, (reverse, left), range, sizes, out).await
            }
        }
    }

    /// The `left` ones from a row on, if they have at most `most` bytes.
    async fn rest(&self, tx: &Tx, begin: &[u8], mut left: u64, most: usize) -> Result<VecDeque<Packed>> {
        let (mut pieces, mut bytes, mut next) = (VecDeque::new(), 0, Some(begin.to_vec()));
        while let Some(begin) = next {
            let (mut piece, sizes) = (Packed::default(), (PAGE, most.saturating_sub(bytes)));
            let (n, then) = self.read(tx, (&begin, left), sizes, &mut piece).await?;
            left = left.saturating_sub(n);
            next = then;
            bytes += piece.size();
            if !piece.is_empty() {
                pieces.push_back(piece);
            }
            tokio::task::coop::consume_budget().await;
        }
        Ok(pieces)
    }
}

impl Refresh for Shared {
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
            match self.source.rest(old, begin, self.len.saturating_sub(state.sent), self.most).await {
                Ok(rest) => Unread::Kept(rest),
                Err(Error::Store(e @ (StoreError::TooOld | StoreError::ReplyTooLarge(_)))) => Unread::Lost(e),
                Err(e) => return Err(e),
            }
        };
        Ok(())
    }
}

impl Items {
    /// What `opening` names, at the version that `slot` has. None if this transaction has changed it. `most`: bytes to
    /// keep if others change it.
    pub(crate) async fn open(
        s: &Scope<'_>,
        slot: &Slot,
        opening: Opening,
        most: usize,
    ) -> Result<Option<Self>> {
        let Opening { oid, version, contents, span } = opening;
        let generation = s.tx.generation().await?;
        let Span { begin, end, len, each } = span;
        let source = Source { db: s.db, key: slot.key.clone(), oid, version, generation, contents, end };
        let tx = s.tx.again().await?;
        // Entries that this transaction has added are not there yet.
        if s.tx.is_write() && !source.is_seen(&tx, true).await? {
            return Ok(None);
        }
        let state = Mutex::new(State { unread: Unread::Tx(tx.into(), begin), sent: 0 });
        let store = s.space.store.clone();
        let shared = Arc::new_cyclic(|shared| {
            let _keeper = Keeper::of(Weak::clone(shared));
            Shared { source, len, store, most, state, _keeper }
        });
        Ok(Some(Items { shape: contents.shape(), len, each, shared }))
    }

    /// The shape of the reply.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of fields, elements or members at the beginning.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of all of them, about.
    pub(crate) fn size(&self) -> usize {
        self.len.saturating_mul(self.each + 32) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces the contents of `out` by the next piece; it is empty at the end. A failed read loses nothing.
    pub async fn next(&self, out: &mut Packed) -> Result<()> {
        out.clear();
        let mut state = self.shared.state.lock().await;
        let (each, left) = (self.shape.strings(), self.len.saturating_sub(state.sent));
        let (n, unread) = match &mut state.unread {
            Unread::Lost(e) => return Err(e.clone().into()),
            Unread::Kept(rest) => {
                *out = rest.pop_front().unwrap_or_default();
                (out.len() as u64 / each, None)
            }
            Unread::Tx(tx, begin) => loop {
                match self.shared.source.read(tx, (begin, left), (PIECE, usize::MAX), out).await? {
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
        if is_over && state.sent != self.len || state.sent > self.len {
            return Err(StoreError::Corrupt(
                "the number of fields, elements, members or entries is wrong".into(),
            )
            .into());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Items {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items").field("len", &self.len).finish_non_exhaustive()
    }
}

impl PartialEq for Items {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}
