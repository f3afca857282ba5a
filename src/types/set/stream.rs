//! The members of an answer as ids, read piece by piece while they are sent.
//!
//! The command's transaction found the ids, all of one version; an id's member never changes. So a piece is read in a short
//! transaction of its own, whenever the client has taken the one before: what is held is the bitmap and one piece, and
//! a client that does not read pins no snapshot. That the rows stay as long is [`crate::keyspace::streams`].
//!
//! Over a network the next piece is read while the client takes one ([`Pieces`]): so the store, this server and the client
//! work at once, and one piece more is held. Pieces of one moment are read at one version, which is asked for once.

use crate::error::{ReplyError, Result};
use crate::keyspace::packed::Packed;
use crate::keyspace::resolve::resolve_some;
use crate::keyspace::streams::Stream;
use crate::store::{Store, Version};
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes of members of a piece, about. On the embedded engine it is read on a worker thread, for a fraction of a millisecond;
/// over a network it costs a few round trips whatever its size.
const PIECE: usize = 64 << 10;
const REMOTE_PIECE: usize = 1 << 20;
/// How long pieces are read at one version.
const REFRESH: Duration = Duration::from_secs(1);
/// A member counts as so many bytes at least.
const SHORTEST: usize = 16;
/// Ids that the first piece may use.
const FIRST: usize = 1024;

/// The task that reads ahead has panicked, or the runtime ends.
const LOST: ReplyError = ReplyError::new("ERR internal error: the rest of a reply is lost");

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
    /// What the last piece was read at, and when that was asked for.
    version: Option<(Version, Duration)>,
    running: Arc<Stream>,
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
        Members {
            next: ids.min(),
            ids: Arc::new(ids),
            raw,
            len,
            ahead: FIRST,
            version: None,
            running: Arc::new(running),
        }
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
    async fn read(&mut self, store: &Store, out: &mut Packed) -> Result<()> {
        out.clear();
        let bytes = if store.prefers_prefetch() { REMOTE_PIECE } else { PIECE };
        let ids = self.ahead(self.ahead.min(bytes / SHORTEST));
        if ids.is_empty() {
            std::mem::take(&mut self.raw).iter().for_each(|member| out.push(member));
            return Ok(());
        }
        let now = self.running.now();
        let version = self.version.take().filter(|(_, since)| now.saturating_sub(*since) < REFRESH);
        let tx = version.map_or_else(|| store.begin(), |(version, _)| store.begin_at(version));
        resolve_some(&tx, &ids, bytes, out).await?;
        self.version = Some((tx.read_version().await?, version.map_or(now, |(_, since)| since)));
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

/// [`Members`] on their way to a client: see the module.
#[derive(Debug)]
pub struct Pieces {
    /// None while they are in `ahead`.
    unread: Option<Members>,
    /// The task that reads the next piece; it ends with this.
    ahead: JoinSet<(Members, Packed, Result<()>)>,
    /// Memory for it.
    spare: Packed,
}

impl Pieces {
    /// All of `members`.
    pub fn new(members: Members) -> Self {
        Pieces { unread: Some(members), ahead: JoinSet::new(), spare: Packed::default() }
    }

    /// Whether the last piece has been given.
    pub fn is_done(&self) -> bool {
        self.unread.as_ref().is_some_and(Members::is_done)
    }

    /// Puts the next piece into `out`, instead of what is there. Nothing is lost where it cannot be read.
    pub async fn next(&mut self, store: &Store, out: &mut Packed) -> Result<()> {
        let (members, read) = match self.unread.take() {
            Some(mut members) => {
                let read = members.read(store, out).await;
                (members, read)
            }
            None => {
                let Some(Ok((members, piece, read))) = self.ahead.join_next().await else {
                    return Err(LOST.into());
                };
                self.spare = std::mem::replace(out, piece);
                (members, read)
            }
        };
        if read.is_ok() && store.prefers_prefetch() && !members.is_done() {
            self.read_ahead(store.clone(), members);
        } else {
            self.unread = Some(members);
        }
        read
    }

    fn read_ahead(&mut self, store: Store, mut members: Members) {
        let mut piece = std::mem::take(&mut self.spare);
        self.ahead.spawn(async move {
            let read = members.read(&store, &mut piece).await;
            (members, piece, read)
        });
    }
}
