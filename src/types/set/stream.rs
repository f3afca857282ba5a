//! The members of an answer as ids, read piece by piece while they are sent.
//!
//! The command's transaction found the ids, all of one version; an id's member never changes. So a piece is read in a short
//! transaction of its own, whenever the client has taken the one before: what is held is the bitmap and one piece, and
//! a client that does not read pins no snapshot. That the rows stay as long is [`crate::keyspace::streams`].

use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::packed::Packed;
use crate::keyspace::streams::Stream;
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::sync::Arc;

/// Bytes of members of a piece, about. On the embedded engine it is read on a worker thread, for a fraction of a millisecond;
/// over a network it costs a few round trips whatever its size.
const PIECE: usize = 64 << 10;
const REMOTE_PIECE: usize = 1 << 20;
/// A member counts as so many bytes at least.
const SHORTEST: usize = 16;
/// Ids that the first piece may use.
const FIRST: usize = 1024;

/// See the module. A clone begins where this one stands.
#[derive(Debug, Clone)]
pub struct Members {
    ids: Arc<RoaringTreemap>,
    /// Ids below it are done; None: all are.
    next: Option<u64>,
    raw: Vec<Bytes>,
    len: u64,
    /// Ids to take for the next piece: about as many as it will hold.
    ahead: usize,
    _running: Arc<Stream>,
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        (&self.ids, self.next, &self.raw) == (&other.ids, other.next, &other.raw)
    }
}

impl Members {
    /// The members of `ids`, and `raw`.
    pub(super) fn new(running: Stream, ids: RoaringTreemap, raw: Vec<Bytes>) -> Self {
        let len = ids.len() + raw.len() as u64;
        Members { next: ids.min(), ids: Arc::new(ids), raw, len, ahead: FIRST, _running: Arc::new(running) }
    }

    /// How many there were at the beginning.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True where there were none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all have been read.
    pub fn is_done(&self) -> bool {
        self.next.is_none() && self.raw.is_empty()
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.ids.serialized_size() + self.raw.iter().map(|m| m.len() + 16).sum::<usize>()
    }

    /// Reads the next piece into `out`, instead of what is there. Nothing is lost where it cannot be read.
    pub async fn read(&mut self, space: &Keyspace, out: &mut Packed) -> Result<()> {
        out.clear();
        let bytes = if space.store.prefers_prefetch() { REMOTE_PIECE } else { PIECE };
        let ids = self.ahead(self.ahead.min(bytes / SHORTEST));
        if ids.is_empty() {
            std::mem::take(&mut self.raw).iter().for_each(|member| out.push(member));
            return Ok(());
        }
        let tx = space.store.begin();
        space.ids.resolve_some(&tx, &ids, bytes, out).await?;
        self.ahead = out.len() * 2;
        self.next = ids.get(out.len()).copied().or_else(|| ids.last().and_then(|last| self.behind(*last)));
        Ok(())
    }

    /// The next ids, at most `n`.
    fn ahead(&self, n: usize) -> Vec<u64> {
        let Some(from) = self.next else { return Vec::new() };
        let mut ids = self.ids.iter();
        ids.advance_to(from);
        ids.take(n).collect()
    }

    /// The id that follows `id`.
    fn behind(&self, id: u64) -> Option<u64> {
        let mut ids = self.ids.iter();
        ids.advance_to(id.checked_add(1)?);
        ids.next()
    }
}
