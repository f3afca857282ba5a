//! Keys that were absent when a client WATCHed them.
//!
//! A record's revision shows every change of a key that stays. A key that was absent at WATCH, was created and removed
//! again, and is absent at EXEC, leaves no trace in the store. Redis aborts that EXEC, so creations of such keys are
//! counted here while somebody watches.
//!
//! **Limit: one process.** On a cluster a creation *and* removal by another server in between is not seen (a creation alone
//! is, whoever made it); the transaction is still strictly serializable, since its premise (the key is absent) holds when it runs.
//!
//! What was weighed for a cluster:
//! * a row that every creator of a key reads, to learn whether somebody watches: costs each creation a read, for what
//!   hardly any client does;
//! * the store's watches: they may miss a value that changed and changed back, which is the very case;
//! * a count of births beside each shard's number of keys (`Z`, to which every creation adds anyhow, in two halves as `N` has
//!   them): free, and nothing is missed, but every creation in the shard aborts. With 10 000 of them a second in 16 shards
//!   and 5 ms from WATCH to EXEC that is 95 of 100 EXECs: who takes locks so would live-lock under others' load. 2^16
//!   counters instead are a row and an atomic add more for each creation;
//! * the read version of WATCH as EXEC's: exact, but only for five seconds.
//! * **Ghosts** would be exact and free for everybody else. WATCH of an absent key writes a record of no type with a revision
//!   into the key's own row, in a transaction of its own. Who creates the key reads that row anyhow and marks its
//!   record as watched; who removes a marked record leaves a ghost with a new revision where it would have left nothing;
//!   EXEC compares revisions. A ghost that is cleared too early makes an EXEC answer nil that need not have, never the
//!   opposite: so ghosts can go by age, through the expiry index, and need neither leases nor clocks that agree. The price:
//!   a commit for each WATCH of an absent key, a mark in the record's format, counters and scans that pass over ghosts,
//!   and FLUSHDB between WATCH and EXEC answers nil where Redis runs. Not built so far.
//!
//! A creation counts when it is attempted: an attempt that is not committed may abort an EXEC, which its client repeats.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Database number and key: FLUSHDB and SWAPDB give a database another prefix, its watched keys stay its own.
type Name = (u8, Bytes);

#[derive(Debug, Default)]
struct Entry {
    watchers: usize,
    creations: u64,
}

/// Creations of watched absent keys.
#[derive(Debug, Default)]
pub struct AbsentKeys {
    /// Number of entries: writers look no further while it is 0.
    watched: AtomicUsize,
    entries: Mutex<HashMap<Name, Entry>>,
}

/// Keeps a key's creations counted until it is dropped.
#[derive(Debug)]
pub struct AbsentGuard {
    keys: Arc<AbsentKeys>,
    name: Name,
}

impl AbsentKeys {
    /// Counts creations of `key` from now on. To be called before the key is read.
    pub fn watch(self: &Arc<Self>, db: u8, key: &Bytes) -> AbsentGuard {
        let name = (db, key.clone());
        let mut entries = self.entries.lock();
        entries.entry(name.clone()).or_default().watchers += 1;
        self.watched.store(entries.len(), Ordering::SeqCst);
        AbsentGuard { keys: self.clone(), name }
    }

    /// A write creates `key`.
    pub fn created(&self, db: u8, key: &Bytes) {
        if self.watched.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(entry) = self.entries.lock().get_mut(&(db, key.clone())) {
            entry.creations += 1;
        }
    }

    /// Creations of `key` so far; 0 where nobody watches it.
    pub fn creations(&self, db: u8, key: &Bytes) -> u64 {
        if self.watched.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        self.entries.lock().get(&(db, key.clone())).map_or(0, |e| e.creations)
    }
}

impl Drop for AbsentGuard {
    fn drop(&mut self) {
        let mut entries = self.keys.entries.lock();
        if let Some(entry) = entries.get_mut(&self.name) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                entries.remove(&self.name);
            }
        }
        self.keys.watched.store(entries.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_while_watched() {
        let keys = Arc::new(AbsentKeys::default());
        let (db, key) = (1, Bytes::from_static(b"k"));
        keys.created(db, &key);
        assert_eq!(keys.creations(db, &key), 0);
        let guards = (keys.watch(db, &key), keys.watch(db, &key));
        keys.created(db, &key);
        keys.created(2, &key);
        drop(guards.0);
        assert_eq!(keys.creations(db, &key), 1);
        drop(guards.1);
        assert_eq!(keys.creations(db, &key), 0);
        assert_eq!(keys.entries.lock().len(), 0);
    }
}
