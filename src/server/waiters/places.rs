//! What may exist without a change of any key: the keys of a database that was swapped or flushed. Its place is watched
//! once for all of them, as long as anybody waits.

use super::{AT_ONCE, Key, PAUSE, PIECE, Ticket, Waiter, Waiters};
use crate::env::Clock;
use crate::store::{Version, Watch};
use std::sync::Arc;
use tokio::task::{AbortHandle, yield_now};

/// The watch of a database's place.
#[derive(Debug)]
pub(super) struct Place {
    /// The version from which it is watched.
    since: Version,
    task: AbortHandle,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waiters {
    /// Opens all keys of a database, because its place has changed: at once those of clients with few keys, then those of
    /// the others, one client after another.
    async fn place_changed(&self, db: u8) {
        let change = {
            let state = &mut *self.state.lock();
            state.places.remove(&db);
            state.changes += 1;
            state.changed.insert(db, state.changes);
            state.changes
        };
        self.open_all(db, change, false).await;
        let _walk = self.walk.lock().await;
        // So few walks wait for long, whatever is flushed in between: the last one opens everything.
        if self.state.lock().changed.get(&db) == Some(&change) {
            self.open_all(db, change, true).await;
        }
    }

    async fn open_all(&self, db: u8, change: u64, many: bool) {
        let clients: Vec<Arc<Waiter>> = {
            let state = self.state.lock();
            let is_one =
                |waiter: &&Arc<Waiter>| waiter.wanted.db == db && (waiter.keys.len() > PIECE) == many;
            state.clients.values().filter(is_one).cloned().collect()
        };
        let mut opened = 0;
        for waiter in clients {
            // After those with many keys that already wait for their turn.
            let _turn = if many { Some(self.turn_for_many().await) } else { None };
            for keys in waiter.keys.chunks(PIECE) {
                self.open_changed(keys, change);
                opened += keys.len();
                if opened >= PIECE {
                    opened = 0;
                    yield_now().await;
                }
            }
        }
    }

    fn open_changed(&self, keys: &[Key], change: u64) {
        let state = &mut *self.state.lock();
        for key in keys {
            if let Some(queue) = state.queues.get_mut(key).filter(|queue| queue.change < change) {
                queue.change = change;
                queue.open(key);
            }
        }
    }
}

impl Ticket {
    /// Whether the store watches the place of the database from `version` or earlier.
    pub(crate) fn place_is_watched(&self, version: Version) -> bool {
        let state = self.waiters.state.lock();
        state.places.get(&self.waiter.wanted.db).is_some_and(|place| place.since <= version)
    }

    /// The store watches the place of the database from `since`. Tell this before what it watches of the keys.
    pub(crate) fn watched_place(&self, since: Version, watch: Watch, clock: Clock) {
        let db = self.waiter.wanted.db;
        let mut state = self.waiters.state.lock();
        if state.places.get(&db).is_some_and(|place| place.since <= since) {
            return;
        }
        let waiters = Arc::downgrade(&self.waiters);
        let task = tokio::spawn(async move {
            let begun = clock.monotonic();
            _ = watch.await;
            if clock.monotonic().saturating_sub(begun) < AT_ONCE {
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(waiters) = waiters.upgrade() {
                // In a task of its own: this one ends with its watch.
                tokio::spawn(async move { waiters.place_changed(db).await });
            }
        });
        state.places.insert(db, Place { since, task: task.abort_handle() });
    }
}
