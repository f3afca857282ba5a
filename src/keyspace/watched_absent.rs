//! The absent keys that this server's clients WATCH. The server keeps their ghosts (`lifecycle::watched`)
//! alive, and carries them along when a database is flushed or swapped. The exactness of WATCH does not
//! depend on this list.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Database number and key: FLUSHDB and SWAPDB change a database's prefix, but its watched keys stay with the
/// number.
pub(crate) type Name = (u8, Bytes);

/// The number of watchers of each name.
#[derive(Debug, Default)]
pub struct WatchedAbsent(Mutex<BTreeMap<Name, usize>>);

/// Keeps a name in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct AbsentGuard {
    keys: Arc<WatchedAbsent>,
    name: Name,
}

impl WatchedAbsent {
    /// Adds a watcher.
    pub(crate) fn watch(self: &Arc<Self>, db: u8, key: &Bytes) -> AbsentGuard {
        let name = (db, key.clone());
        *self.0.lock().entry(name.clone()).or_default() += 1;
        AbsentGuard { keys: self.clone(), name }
    }

    /// Up to `most` names after `after`, in order.
    pub fn names(&self, after: Option<&Name>, most: usize) -> Vec<Name> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.0.lock().range((from, Unbounded)).take(most).map(|(name, _)| name.clone()).collect()
    }

    /// Up to `most` keys of database `db`.
    pub(crate) fn of(&self, db: u8, most: usize) -> Vec<Bytes> {
        let keys = self.0.lock();
        let of_db = keys.range((db, Bytes::new())..).take_while(|((number, _), _)| *number == db);
        of_db.take(most).map(|((_, key), _)| key.clone()).collect()
    }
}

impl Drop for AbsentGuard {
    fn drop(&mut self) {
        let mut keys = self.keys.0.lock();
        if let Some(watchers) = keys.get_mut(&self.name) {
            *watchers -= 1;
            if *watchers == 0 {
                keys.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_while_somebody_watches() {
        let keys = Arc::new(WatchedAbsent::default());
        let key = Bytes::from_static(b"k");
        let guards = (keys.watch(1, &key), keys.watch(1, &key), keys.watch(2, &key));
        assert_eq!((keys.of(0, 9), keys.of(1, 9)), (vec![], vec![key.clone()]));
        drop(guards.0);
        assert_eq!(keys.names(None, 9), [(1, key.clone()), (2, key.clone())]);
        assert_eq!(keys.names(None, 1), [(1, key.clone())]);
        drop(guards.1);
        assert_eq!(keys.names(Some(&(1, key.clone())), 9), [(2, key.clone())]);
        assert_eq!(keys.of(1, 9), [key; 0]);
    }
}
