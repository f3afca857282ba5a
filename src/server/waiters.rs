//! Who waits for which keys, on this server (BLPOP and its relatives): first come, first served.
//!
//! Each key has a queue for each kind of value that is waited for there: who waits for a list cannot tell who waits for
//! a sorted set that there is one. At a stream, each reader has its own, and each group of consumers ([`Whose`]). Its first waiter is responsible for it. Always, one of these things holds for a queue:
//! * the store watches its key and the place of its database, from a version at which there was nothing to have; or
//! * the place has changed, and the queue is about to be opened; or
//! * it is *open*: its first waiter looks, or was told to.
//!
//! What may exist without a change of any key is a database that was swapped or flushed. Its place is watched once for all of
//! its keys, from a version no later than any of theirs; when it changes, all of them are opened, those of one client after another.
//!
//! So a change is never missed: the watch fires, which opens the key; the first waiter looks, and either takes what
//! there is, or has the store watch again. If it takes something, or leaves in another way while the key is open, the
//! next one looks. Who comes while a key is open waits until those before it have looked.
//!
//! One after the other, each would wait for a commit. So who sees several elements *invites* the next ones in the
//! queue, as long as their calls run in the same lane: they take without looking, each once the one before it is on
//! its way, and share its commit.

mod places;

use super::watcher::{Watched, Watcher};
use crate::store::Watch;
use crate::types::Kind;
use bytes::Bytes;
use parking_lot::Mutex;
use places::Place;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedMutexGuard};

/// The turn of one who looks at many keys.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// Watches that end sooner than this do not watch.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(1);
/// The pause before asking a store again that did not answer, or that does not watch.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// What is waited for at some keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    /// The database of the keys.
    pub(crate) db: u8,
    /// The kind of value. None: nothing is.
    pub(crate) kind: Option<Kind>,
    /// Who else waits for the same.
    pub(crate) whose: Whose,
}

/// Those who wait for the same at a key take turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    /// All who wait for a kind of value.
    All,
    /// The consumers of the group with this name.
    Group(Bytes),
    /// This client alone.
    Client(u64),
}

/// A queue: a key, and what is waited for there.
pub(super) type Key = (Wanted, Bytes);

/// All waiters of a server.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// Held by whoever looks at many keys, or opens them, so that only one core at a time is busy with that.
    many: Arc<tokio::sync::Mutex<()>>,
    /// Held by whoever opens the keys of all clients with many keys.
    walk: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<Key, Queue>,
    /// How many queues there ever were.
    began: u64,
    /// The keys that have queues, by database, and how many each has.
    names: HashMap<(u8, Bytes), usize>,
    /// The watches of the places of databases.
    places: HashMap<u8, Place>,
    /// How often a place has changed, and the last change of each database's.
    changes: u64,
    changed: HashMap<u8, u64>,
    watcher: Watcher,
    /// By client id.
    clients: HashMap<u64, Arc<Waiter>>,
}

/// Those who wait for a key.
#[derive(Debug)]
struct Queue {
    waiters: VecDeque<Arc<Waiter>>,
    /// Whether the first one looks, or is going to.
    open: bool,
    /// Whether the first one's list of opened keys has it.
    listed: bool,
    /// How often it was opened: what was seen before the last time says nothing. Begins elsewhere for each queue of a key.
    times: u64,
    /// The change of its database's place that opened it last.
    change: u64,
    /// Whether somebody who came while it was open has to be called to look.
    has_new: bool,
    watched: Option<Watched>,
}

/// An open key for which a client is responsible, as it was when the client began to look.
#[derive(Debug)]
pub(crate) struct Open {
    /// The key.
    pub(crate) key: Bytes,
    times: u64,
}

/// Keys that one transaction looks at, or that are opened at once. Who waits for more waits for many.
pub(crate) const PIECE: usize = 128;

/// The most clients that are invited one after the other. Each looks for its place in the queue from its head.
const MOST_INVITED: u64 = 64;

/// What a client that waits does, or how CLIENT UNBLOCK has ended that: only while the client is asleep, so that whoever
/// was unblocked has got nothing.
const BEGINS: u8 = 0;
const LOOKS: u8 = 1;
const SLEEPS: u8 = 2;
const TIMED_OUT: u8 = 3;
const FAILED: u8 = 4;
const LEFT: u8 = 5;

/// A client that waits.
#[derive(Debug)]
struct Waiter {
    wanted: Wanted,
    keys: Vec<Key>,
    /// The keys that are open and for which it is responsible; and some that no longer are, until it asks for them. Changed
    /// while the state of all waiters is locked.
    opened: Mutex<Vec<Key>>,
    state: AtomicU8,
    /// Whether it has looked at all of its keys since it entered the queues.
    has_looked: AtomicBool,
    invitation: Mutex<Option<Invitation>>,
    bell: Notify,
    /// Rings when it no longer looks.
    settled: Notify,
}

impl Waiter {
    fn unblock(&self, how: Unblock) -> Option<bool> {
        let to = if how == Unblock::TimedOut { TIMED_OUT } else { FAILED };
        match self.state.compare_exchange(SLEEPS, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.bell.notify_one();
                Some(true)
            }
            Err(LOOKS) => None,
            Err(_) => Some(false),
        }
    }
}

/// There is something to have at a key for a client, and for so many behind it in the key's queue.
#[derive(Debug)]
pub(crate) struct Invitation {
    key: Bytes,
    others: u64,
}

impl Invitation {
    /// For the first of the queue, who sees so many elements at a key.
    pub(crate) fn of(key: Bytes, elements: u64) -> Self {
        Invitation { key, others: elements.saturating_sub(1).min(MOST_INVITED) }
    }
}

/// How CLIENT UNBLOCK ends the waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unblock {
    /// As if the time were over.
    TimedOut,
    /// With an error.
    Failed,
}

impl Queue {
    fn open(&mut self, key: &Key) {
        (self.open, self.watched) = (true, None);
        self.times += 1;
        if let Some(first) = self.waiters.front() {
            if !std::mem::replace(&mut self.listed, true) {
                first.opened.lock().push(key.clone());
            }
            first.bell.notify_one();
        }
    }

    /// Opens the key if a watch has fired and nobody has noticed yet.
    fn notice(&mut self, key: &Key) {
        if self.watched.as_ref().is_some_and(Watched::has_fired) {
            self.open(key);
        }
    }

    fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.waiters.front().is_some_and(|first| Arc::ptr_eq(first, waiter))
    }
}

impl State {
    fn enter(&mut self, waiter: &Arc<Waiter>) {
        for key in &waiter.keys {
            match self.queues.entry(key.clone()) {
                Entry::Occupied(mut queue) => {
                    queue.get_mut().notice(key);
                    queue.get_mut().waiters.push_back(waiter.clone());
                }
                Entry::Vacant(new) => {
                    let waiters = VecDeque::from([waiter.clone()]);
                    self.began += 1;
                    let (times, (change, has_new, watched)) = (self.began << 32, Default::default());
                    new.insert(Queue { waiters, open: true, listed: true, times, change, has_new, watched });
                    waiter.opened.lock().push(key.clone());
                    *self.names.entry((key.0.db, key.1.clone())).or_default() += 1;
                }
            }
        }
    }

    fn leave(&mut self, waiter: &Arc<Waiter>) {
        // It is for this place in the queue.
        *waiter.invitation.lock() = None;
        waiter.opened.lock().clear();
        for key in &waiter.keys {
            let Entry::Occupied(mut entry) = self.queues.entry(key.clone()) else { continue };
            let queue = entry.get_mut();
            let was_first = queue.is_first(waiter);
            let at = queue.waiters.iter().position(|other| Arc::ptr_eq(other, waiter));
            at.and_then(|at| queue.waiters.remove(at));
            if queue.waiters.is_empty() {
                entry.remove();
                if let Entry::Occupied(mut name) = self.names.entry((key.0.db, key.1.clone())) {
                    *name.get_mut() -= 1;
                    if *name.get() == 0 {
                        name.remove();
                    }
                }
            } else if was_first {
                queue.listed = false;
                if queue.open {
                    queue.open(key);
                }
            }
        }
    }
}

impl Waiters {
    /// Enters a client at the end of the queues of some keys. Do this before looking for the first time.
    pub(crate) fn enter(self: &Arc<Self>, client: u64, wanted: Wanted, keys: &[&Bytes]) -> Ticket {
        let mut seen = HashSet::with_capacity(keys.len());
        // Copies: they may be kept for long, and would keep a whole read buffer alive.
        let own = keys
            .iter()
            .filter(|key| seen.insert(**key))
            .map(|key| (wanted.clone(), Bytes::copy_from_slice(key)));
        let keys = own.collect();
        let waiter = Arc::new(Waiter {
            wanted,
            keys,
            opened: Mutex::default(),
            state: AtomicU8::new(BEGINS),
            has_looked: AtomicBool::new(false),
            invitation: Mutex::default(),
            bell: Notify::new(),
            settled: Notify::new(),
        });
        let mut state = self.state.lock();
        state.enter(&waiter);
        state.clients.insert(client, waiter.clone());
        drop(state);
        Ticket { waiters: self.clone(), client, waiter }
    }

    /// Ends the waiting of a client. False if it does not wait. None: it looks, and may get something just now.
    pub(crate) fn unblock(&self, client: u64, how: Unblock) -> Option<bool> {
        match self.state.lock().clients.get(&client) {
            Some(waiter) => waiter.unblock(how),
            None => Some(false),
        }
    }

    /// The same, once it no longer looks. Cancel safe.
    pub(crate) async fn unblock_settled(&self, client: u64, how: Unblock) -> bool {
        let waiter = self.state.lock().clients.get(&client).cloned();
        let Some(waiter) = waiter else { return false };
        loop {
            let mut settled = pin!(waiter.settled.notified());
            settled.as_mut().enable();
            if let Some(is_unblocked) = waiter.unblock(how) {
                return is_unblocked;
            }
            settled.await;
        }
    }

    /// The number of keys that clients wait for.
    pub(crate) fn keys(&self) -> usize {
        self.state.lock().names.len()
    }

    /// The turn of those who look at many keys, one after another.
    pub(crate) async fn turn_for_many(&self) -> Turn {
        self.many.clone().lock_owned().await
    }

    /// Forgets the task that waits for watches, if it has nothing to do.
    pub(super) fn end_watcher(&self, is_idle: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock();
        let ends = is_idle();
        if ends {
            state.watcher = Watcher::default();
        }
        ends
    }

    /// Opens a key because a watch has fired.
    pub(super) fn fire(&self, key: &Key) {
        if let Some(queue) = self.state.lock().queues.get_mut(key) {
            queue.open(key);
        }
    }
}

/// A client's places in the queues. Dropped: it has left them.
#[derive(Debug)]
pub(crate) struct Ticket {
    waiters: Arc<Waiters>,
    client: u64,
    waiter: Arc<Waiter>,
}

/// Lets a client's turn pass while it cannot take it.
#[derive(Debug)]
pub(crate) struct Aside {
    waiters: Arc<Waiters>,
    waiter: Arc<Waiter>,
}

impl Aside {
    /// Leaves the queues. They go on without the client until [`Ticket::enter_again`].
    pub(crate) fn step(&self) {
        self.waiters.state.lock().leave(&self.waiter);
    }
}

impl Ticket {
    /// Leaves the queues for good. May be called more than once.
    pub(crate) fn leave(&self) {
        if self.waiter.state.swap(LEFT, Ordering::AcqRel) == LEFT {
            return;
        }
        let mut state = self.waiters.state.lock();
        state.leave(&self.waiter);
        if state.clients.get(&self.client).is_some_and(|waiter| Arc::ptr_eq(waiter, &self.waiter)) {
            state.clients.remove(&self.client);
        }
        if state.queues.is_empty() {
            state.places.clear();
        }
        drop(state);
        self.waiter.settled.notify_waiters();
    }

    /// For a connection that may be stuck.
    pub(crate) fn aside(&self) -> Aside {
        Aside { waiters: self.waiters.clone(), waiter: self.waiter.clone() }
    }

    /// Enters the queues again, at their end, and has the client look as if it had just come.
    pub(crate) fn enter_again(&self) {
        self.waiter.has_looked.store(false, Ordering::Relaxed);
        self.waiters.state.lock().enter(&self.waiter);
        self.waiter.bell.notify_one();
    }

    /// What it waits for.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.waiter.wanted
    }

    fn key(&self, key: Bytes) -> Key {
        (self.waiter.wanted.clone(), key)
    }

    /// Whether the client has looked at all of its keys.
    pub(crate) fn has_looked(&self) -> bool {
        self.waiter.has_looked.load(Ordering::Relaxed)
    }

    /// Records that the client looks at all of its keys.
    pub(crate) fn looks(&self) {
        self.waiter.has_looked.store(true, Ordering::Relaxed);
    }

    /// Whether it has got an invitation.
    pub(crate) fn is_invited(&self) -> bool {
        self.waiter.invitation.lock().is_some()
    }

    /// The invitation that it has got.
    pub(crate) fn invitation(&self) -> Option<Invitation> {
        self.waiter.invitation.lock().take()
    }

    /// Passes an invitation on to the next one in the key's queue, if its call runs in the same lane, which its first
    /// key decides: in another one it could be faster.
    pub(crate) fn invite(&self, Invitation { key, others }: Invitation) {
        let Some(others) = others.checked_sub(1) else { return };
        let key = self.key(key);
        let state = self.waiters.state.lock();
        let queue = state.queues.get(&key).map(|queue| &queue.waiters).into_iter().flatten();
        let is_me = |other: &&Arc<Waiter>| Arc::ptr_eq(other, &self.waiter);
        let next = queue.take(MOST_INVITED as usize).skip_while(|other| !is_me(other)).nth(1);
        if let Some(next) = next.filter(|next| next.keys.first() == self.waiter.keys.first()) {
            *next.invitation.lock() = Some(Invitation { key: key.1, others });
            next.bell.notify_one();
        }
    }

    /// Whether those before it have yet to look. If so, it is called once they have.
    pub(crate) fn is_behind(&self) -> bool {
        let mut state = self.waiters.state.lock();
        let mut is_behind = false;
        for key in &self.waiter.keys {
            if let Some(queue) = state.queues.get_mut(key).filter(|q| q.open && !q.is_first(&self.waiter)) {
                (queue.has_new, is_behind) = (true, true);
            }
        }
        is_behind
    }

    /// The keys for which others are responsible.
    pub(crate) fn keys_of_others(&self) -> Vec<Bytes> {
        let state = self.waiters.state.lock();
        let is_anothers =
            |key: &&Key| state.queues.get(*key).is_some_and(|queue| !queue.is_first(&self.waiter));
        self.waiter.keys.iter().filter(is_anothers).map(|key| key.1.clone()).collect()
    }

    /// Opens a key that has something, although no watch has fired yet.
    pub(crate) fn open(&self, key: &Bytes) {
        let (key, mut state) = (self.key(key.clone()), self.waiters.state.lock());
        if let Some(queue) = state.queues.get_mut(&key).filter(|queue| !queue.open) {
            queue.open(&key);
        }
    }

    /// Opens all keys, because it may be that they have something.
    pub(crate) fn open_all(&self) {
        let state = &mut *self.waiters.state.lock();
        for key in &self.waiter.keys {
            if let Some(queue) = state.queues.get_mut(key).filter(|queue| !queue.open) {
                queue.open(key);
            }
        }
    }

    /// The open keys for which it is responsible: it must look, and call [`Ticket::watched`] or leave.
    pub(crate) fn open_keys(&self) -> Vec<Open> {
        let mut state = self.waiters.state.lock();
        let mut open = Vec::new();
        self.waiter.opened.lock().retain(|key| {
            let Some(queue) = state.queues.get_mut(key) else { return false };
            if queue.open {
                open.push(Open { key: key.1.clone(), times: queue.times });
            }
            queue.listed = queue.open;
            queue.open
        });
        open
    }

    /// The number of keys that [`Ticket::open_keys`] would return now, or more if they are few.
    pub(crate) fn opened(&self) -> usize {
        let opened = self.waiter.opened.lock().len();
        if opened > PIECE { self.open_keys().len() } else { opened }
    }

    /// The store watches this key from a version at which it had nothing.
    pub(crate) fn watched(&self, Open { key, times }: Open, watches: Vec<Watch>) {
        let (key, state) = (self.key(key), &mut *self.waiters.state.lock());
        let is_same = |queue: &&mut Queue| queue.times == times && queue.is_first(&self.waiter);
        let Some(queue) = state.queues.get_mut(&key).filter(is_same) else { return };
        queue.watched = Some(state.watcher.watch(key, watches, &self.waiters));
        queue.open = false;
        if std::mem::take(&mut queue.has_new) {
            let new = queue.waiters.iter().filter(|waiter| !waiter.has_looked.load(Ordering::Relaxed));
            new.for_each(|waiter| waiter.bell.notify_one());
        }
    }

    /// Marks the client as asleep.
    pub(crate) fn sleep(&self) {
        self.turn_to(SLEEPS);
    }

    /// Marks the client as looking, unless CLIENT UNBLOCK has ended its waiting.
    pub(crate) fn wake(&self) -> Option<Unblock> {
        let state = &self.waiter.state;
        match state.compare_exchange(SLEEPS, LOOKS, Ordering::AcqRel, Ordering::Acquire) {
            Err(TIMED_OUT) => Some(Unblock::TimedOut),
            Err(FAILED) => Some(Unblock::Failed),
            Ok(_) | Err(_) => None,
        }
    }

    /// Whether CLIENT UNBLOCK has ended its waiting.
    pub(crate) fn is_unblocked(&self) -> bool {
        self.waiter.state.load(Ordering::Acquire) >= TIMED_OUT
    }

    fn turn_to(&self, to: u8) {
        self.waiter.state.store(to, Ordering::Release);
        self.waiter.settled.notify_waiters();
    }

    /// Returns once there may be something to have, or CLIENT UNBLOCK was called. Cancel safe.
    pub(crate) async fn called(&self) {
        self.waiter.bell.notified().await;
    }

    /// Has the client look again.
    pub(crate) fn call(&self) {
        self.waiter.bell.notify_one();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}
