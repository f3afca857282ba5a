//! The members of an answer as ids, read piece by piece while they are sent.
//!
//! The command's transaction found the ids, all at one version; an id's member never changes. So each piece
//! is read in a short transaction of its own once the client has taken the one before: memory holds the
//! bitmap and one piece, and a slow client pins no snapshot. [`crate::keyspace::sending`] keeps the rows for
//! that long. If the store has lost commits meanwhile, an id may belong to another member: such a reply is
//! cut off.
//!
//! Over a network the next piece is read while the client takes the current one ([`Pieces`]), so store,
//! server and client work at the same time, and one more piece is held. Pieces read within `REFRESH` share
//! one read version, which is requested once.

use crate::error::{ReplyError, Result};
use crate::keyspace::dictionary::resolve::resolve_some;
use crate::keyspace::packed::Packed;
use crate::keyspace::sending::SendingGuard;
use crate::store::{Store, Version};
use bytes::Bytes;
use roaring::RoaringTreemap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Approximate bytes of members in one piece. On the embedded engine a worker thread reads it in a fraction
/// of a millisecond; over a network it costs a few round trips, whatever its size.
const PIECE: usize = 64 << 10;
const REMOTE_PIECE: usize = 1 << 20;
/// How long one read version is used for pieces.
const REFRESH: Duration = Duration::from_secs(1);
/// Each member counts as at least this many bytes.
const SHORTEST: usize = 16;
/// Most ids read for the first piece.
const FIRST: usize = 1024;

/// The task that reads ahead has panicked, or the runtime is shutting down.
const LOST: ReplyError = ReplyError::new("ERR internal error: the rest of a reply is lost");

/// See the module: a client cannot get an error in the middle of a reply.
const ANOTHER_GENERATION: ReplyError =
    ReplyError::new("ERR the store has lost its last commits, and with them members of this reply");
/// The members to read.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    /// These ids, ascending.
    Ids(Arc<RoaringTreemap>),
    /// These ids, in this order, with repetitions.
    Drawn(Arc<[u64]>),
    /// The members at these places of the list.
    Picked(Arc<[Bytes]>, Arc<[u16]>),
}

/// See the module. A clone starts where this one stands.
#[derive(Debug, Clone)]
pub struct Members {
    source: Source,
    /// Ids below it, or places before it, are done; None: everything is done.
    next: Option<u64>,
    raw: Vec<Bytes>,
    len: u64,
    /// Whether the answer is a set, without duplicates.
    as_set: bool,
    /// Ids to read for the next piece: about as many as it can hold.
    ahead: usize,
    /// The read version of the last piece, and when it was requested.
    version: Option<(Version, Duration)>,
    /// The store's generation when the ids were found.
    generation: u64,
    running: Arc<SendingGuard>,
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        (&self.source, self.next, &self.raw) == (&other.source, other.next, &other.raw)
    }
}

impl Members {
    /// The members of `ids`, found in `generation` of the store, and `raw`.
    pub(super) fn new(running: SendingGuard, generation: u64, ids: RoaringTreemap, raw: Vec<Bytes>) -> Self {
        let (len, next) = (ids.len() + raw.len() as u64, ids.min());
        Members { raw, ..Self::of(running, generation, Source::Ids(Arc::new(ids)), next, len) }
    }

    /// The members of `ids`, in this order. `as_set`: the answer is a set, and no id comes twice.
    pub(super) fn drawn(running: SendingGuard, generation: u64, ids: Vec<u64>, as_set: bool) -> Self {
        let len = ids.len() as u64;
        let next = (len > 0).then_some(0);
        Members { as_set, ..Self::of(running, generation, Source::Drawn(ids.into()), next, len) }
    }

    /// The members at `places` of `members`.
    pub(super) fn picked(running: SendingGuard, members: Vec<Bytes>, places: Vec<u16>) -> Self {
        let len = places.len() as u64;
        let source = Source::Picked(members.into(), places.into());
        Members { as_set: false, ..Self::of(running, 0, source, (len > 0).then_some(0), len) }
    }

    fn of(running: SendingGuard, generation: u64, source: Source, next: Option<u64>, len: u64) -> Self {
        let (ahead, version, running) = (FIRST, None, Arc::new(running));
        Members { source, next, raw: Vec::new(), len, as_set: true, ahead, version, generation, running }
    }

    /// Whether the answer is a set.
    pub(crate) fn is_set(&self) -> bool {
        self.as_set
    }

    /// The number of members at the beginning.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether all members have been read.
    pub(crate) fn is_done(&self) -> bool {
        self.next.is_none() && self.raw.is_empty()
    }

    /// Bytes held in memory.
    pub(crate) fn held(&self) -> usize {
        let ids = match &self.source {
            Source::Ids(ids) => ids.serialized_size(),
            Source::Drawn(ids) => size_of_val(&ids[..]),
            Source::Picked(members, places) => {
                members.iter().map(Bytes::len).sum::<usize>() + size_of_val(&places[..])
            }
        };
        ids + self.raw.iter().map(|m| m.len() + 16).sum::<usize>()
    }

    /// Replaces the contents of `out` by the next piece. A failed read loses nothing.
    async fn read(&mut self, store: &Store, out: &mut Packed) -> Result<()> {
        out.clear();
        let bytes = if store.prefers_prefetch() { REMOTE_PIECE } else { PIECE };
        if self.pick(bytes, out) {
            return Ok(());
        }
        let ids = self.ahead(self.ahead.min(bytes / SHORTEST));
        if ids.is_empty() {
            std::mem::take(&mut self.raw).iter().for_each(|member| out.push(member));
            return Ok(());
        }
        let now = self.running.now();
        let version = self.version.take().filter(|(_, since)| now.saturating_sub(*since) < REFRESH);
        let tx = version.map_or_else(|| store.begin(), |(version, _)| store.begin_at(version));
        if tx.generation().await? != self.generation {
            return Err(ANOTHER_GENERATION.into());
        }
        resolve_some(&tx, &ids, bytes, out).await?;
        self.version = Some((tx.read_version().await?, version.map_or(now, |(_, since)| since)));
        self.ahead = out.len() * 2;
        self.next = self.behind(&ids, out.len());
        Ok(())
    }

    /// Puts about `bytes` of members into `out`, if they are in memory.
    fn pick(&mut self, bytes: usize, out: &mut Packed) -> bool {
        let (Source::Picked(members, places), Some(from)) = (&self.source, self.next) else { return false };
        let rest = places.get(from as usize..).unwrap_or_default();
        for member in rest.iter().filter_map(|place| members.get(usize::from(*place))) {
            out.push(member);
            if out.size() + out.len() * SHORTEST >= bytes {
                break;
            }
        }
        let next = from + out.len() as u64;
        self.next = (next < places.len() as u64 && !out.is_empty()).then_some(next);
        true
    }

    /// The next ids, at most `n`.
    fn ahead(&self, n: usize) -> Vec<u64> {
        match (&self.source, self.next) {
            (Source::Ids(ids), Some(from)) => {
                let mut ids = ids.iter();
                ids.advance_to(from);
                ids.take(n).collect()
            }
            (Source::Drawn(ids), Some(from)) => {
                ids.get(from as usize..).unwrap_or_default().iter().take(n).copied().collect()
            }
            (Source::Picked(..), _) | (_, None) => Vec::new(),
        }
    }

    /// The place to continue after the first `n` of `ids`, the ids that were next.
    fn behind(&self, ids: &[u64], n: usize) -> Option<u64> {
        match &self.source {
            Source::Ids(all) => ids.get(n).copied().or_else(|| {
                let mut all = all.iter();
                all.advance_to(ids.last()?.checked_add(1)?);
                all.next()
            }),
            Source::Drawn(all) => self.next.map(|from| from + n as u64).filter(|at| *at < all.len() as u64),
            Source::Picked(..) => None,
        }
    }
}

/// [`Members`] on their way to a client: see the module.
#[derive(Debug)]
pub struct Pieces {
    /// None while the members are in `ahead`.
    unread: Option<Members>,
    /// The task that reads the next piece; dropping this ends it.
    ahead: JoinSet<(Members, Packed, Result<()>)>,
    /// A buffer to reuse for the next piece.
    spare: Packed,
}

impl Pieces {
    /// All of `members`.
    pub fn new(members: Members) -> Self {
        Pieces { unread: Some(members), ahead: JoinSet::new(), spare: Packed::default() }
    }

    /// Whether the last piece has been returned.
    pub fn is_done(&self) -> bool {
        self.unread.as_ref().is_some_and(Members::is_done)
    }

    /// Replaces the contents of `out` by the next piece. A failed read loses nothing.
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
