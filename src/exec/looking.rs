//! How a client that waits ([`super::waiting`]) looks at its keys, a piece at a time.

use super::goal::Goal;
use crate::error::{Error, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Prefix, root};
use crate::server::Server;
use crate::server::waiters::{AT_ONCE, Invitation, Open, PAUSE, PIECE, Ticket};
use crate::store::{Read, Tx, Watch};
use crate::types::object::{self, Slot};
use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;

/// Watches that end at once so many times in a row do not watch; and who finds so many times in a row what the call then
/// does not get finds it again.
const MANY: u32 = 16;

/// A client that waits, as the one who looks at its keys.
pub(super) struct Looker {
    pub(super) ticket: Ticket,
    goal: Mutex<Arc<Goal>>,
    looks: Mutex<Looks>,
    /// By the monotonic clock, when a key may have something although nothing has changed.
    due: Mutex<Option<Duration>>,
}

/// How looking went.
#[derive(Debug, Default)]
struct Looks {
    /// When the store began to watch the keys.
    watched_at: Duration,
    /// Whether something was found instead. If the client looks again, its call has not got it.
    found: bool,
    /// How often in a row that ended at once, in vain.
    in_vain: u32,
}

impl Looker {
    pub(super) fn new(ticket: Ticket, goal: Goal) -> Arc<Self> {
        let (looks, due) = Default::default();
        Arc::new(Looker { ticket, goal: Mutex::new(goal.into()), looks, due })
    }

    /// Looks for something else from now on.
    pub(super) fn aim(&self, goal: Goal) {
        *self.goal.lock() = goal.into();
    }

    /// By the monotonic clock, when it is to look although nothing has changed.
    pub(super) fn due(&self) -> Option<Duration> {
        *self.due.lock()
    }

    /// Has it look at all keys again, if they are due.
    pub(super) fn look_if_due(&self, now: Duration) {
        let is_due = self.due.lock().take_if(|due| *due <= now).is_some();
        if is_due {
            self.ticket.open_all();
        }
    }

    /// Notes when the keys of some slots, which have nothing, are due.
    fn note_due(&self, server: &Server, s: &Scope<'_>, slots: &[Slot]) {
        let goal = self.goal.lock().clone();
        for slot in slots {
            if let Some(left) = goal.due(s, slot) {
                let at = server.env.clock.monotonic().saturating_add(left);
                let mut due = self.due.lock();
                *due = Some(due.map_or(at, |due| due.min(at)));
            }
        }
    }

    /// As [`Looker::find`]. Asks a store that does not answer again, as long as for a command. Rests if watches end at
    /// once, again and again: a store that refuses writes, or that has too many, ends them. Also if the call does not get
    /// what is found, again and again.
    pub(super) async fn find_patiently(self: Arc<Self>, server: Arc<Server>) -> Result<Option<Invitation>> {
        let clock = &server.env.clock;
        let began = clock.monotonic();
        let rests = {
            let looks = &mut *self.looks.lock();
            let is_vain =
                std::mem::take(&mut looks.found) || began.saturating_sub(looks.watched_at) < AT_ONCE;
            looks.in_vain = if is_vain { looks.in_vain + 1 } else { 0 };
            looks.in_vain > MANY
        };
        if rests {
            tokio::time::sleep(PAUSE).await;
        }
        loop {
            let found = self.find_in_turn(&server).await;
            self.looks.lock().watched_at = clock.monotonic();
            match found {
                Ok(Some(_)) => self.looks.lock().found = true,
                Err(Error::Store(e))
                    if (e.is_retryable() || e.is_away())
                        && clock.monotonic() < began + server.config.get().store_timeout() =>
                {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok(None) | Err(_) => {}
            }
            return found;
        }
    }

    async fn prefix(&self, server: &Server, tx: &Tx) -> Result<Prefix> {
        let place = server.space.catalog.load(tx).await?.place(self.ticket.wanted().db);
        let gone = || StoreError::Unavailable("the database catalog has not been read yet".into());
        Ok(place.ok_or_else(gone)?.prefix)
    }

    async fn slots(&self, s: &Scope<'_>, keys: impl Iterator<Item = &Bytes>) -> Result<Vec<Slot>> {
        try_join_all(keys.map(|key| object::open(s, key, Read::Snapshot))).await
    }

    /// The first of the keys that has something, and how many elements.
    async fn seen<'a>(&self, s: &Scope<'_>, slots: &'a [Slot]) -> Result<Option<(&'a Bytes, u64)>> {
        let (goal, kind) = (self.goal.lock().clone(), self.ticket.wanted().kind);
        for slot in slots {
            let elements = goal.seen(s, slot, kind).await?;
            if elements > 0 {
                return Ok(Some((&slot.key, elements)));
            }
        }
        Ok(None)
    }

    /// Whether those before it have yet to look. They may not even have heard yet that a key has something: watches
    /// of a cluster take a while. Then they hear it from this client.
    pub(super) async fn is_behind(&self, server: &Server) -> bool {
        if self.ticket.is_behind() {
            return true;
        }
        let keys = self.ticket.keys_of_others();
        if keys.is_empty() {
            return false;
        }
        let seen = async {
            for keys in keys.chunks(PIECE) {
                let tx = server.store.begin();
                let s = server.space.scope(&tx, self.prefix(server, &tx).await?);
                let slots = self.slots(&s, keys.iter()).await?;
                if let Some((key, _)) = self.seen(&s, &slots).await? {
                    return Ok(Some(key.clone()));
                }
                yield_now().await;
            }
            Result::Ok(None)
        };
        match seen.await {
            Ok(Some(key)) => self.ticket.open(&key),
            // They may have heard meanwhile.
            Ok(None) => {}
            // A store that does not answer says so to the call itself.
            Err(_) => return false,
        }
        self.ticket.is_behind()
    }

    /// As [`Looker::find`]. On the embedded store, where looking keeps a core busy, those with many open keys look one
    /// after another, while others run.
    async fn find_in_turn(&self, server: &Server) -> Result<Option<Invitation>> {
        let many = !server.store.prefers_prefetch() && self.ticket.opened() > PIECE;
        let _turn = if many { Some(server.waiters.turn_for_many().await) } else { None };
        self.find(server).await
    }

    /// Looks at the keys for which this client is responsible. None: none of them has anything, and the store watches
    /// them.
    async fn find(&self, server: &Server) -> Result<Option<Invitation>> {
        let mut keys = self.ticket.open_keys().into_iter();
        loop {
            let piece: Vec<Open> = keys.by_ref().take(PIECE).collect();
            if piece.is_empty() {
                return Ok(None);
            }
            if let Some(found) = self.find_among(server, piece).await? {
                return Ok(Some(found));
            }
            yield_now().await;
        }
    }

    async fn find_among(&self, server: &Server, keys: Vec<Open>) -> Result<Option<Invitation>> {
        let tx = server.store.begin();
        let prefix = self.prefix(server, &tx).await?;
        let s = server.space.scope(&tx, prefix);
        let slots = self.slots(&s, keys.iter().map(|open| &open.key)).await?;
        if let Some((key, elements)) = self.seen(&s, &slots).await? {
            return Ok(Some(Invitation::of(key.clone(), elements)));
        }
        self.note_due(server, &s, &slots);
        let version = tx.read_version().await?;
        let place = match self.ticket.place_is_watched(version) {
            true => None,
            false => Some(tx.watch(&root::database(self.ticket.wanted().db))?),
        };
        let goal = self.goal.lock().clone();
        let watch = |(open, slot): (Open, &Slot)| -> Result<_> {
            let mut watches = vec![tx.watch(&prefix.record(&open.key))?];
            if let Some(row) = goal.row(&s, slot) {
                watches.push(tx.watch(&row)?);
            }
            let emptied = slot.stored().map(|record| &record.value).filter(|_| !slot.exists());
            let emptied = emptied.filter(|value| Some(value.kind()) == self.ticket.wanted().kind);
            if let Some(oid) = emptied.and_then(|value| value.counter()) {
                watches.push(tx.watch(&prefix.count(oid))?);
            }
            Ok((open, watches))
        };
        let watches: Vec<(Open, Vec<Watch>)> =
            keys.into_iter().zip(&slots).map(watch).collect::<Result<_>>()?;
        tx.commit().await?;
        if let Some(place) = place {
            self.ticket.watched_place(version, place, server.env.clock.clone());
        }
        for (open, watches) in watches {
            self.ticket.watched(open, watches);
        }
        Ok(None)
    }
}
