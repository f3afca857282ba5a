//! The members of sorted sets that have come and gone in a transaction and that the counts above them do not show yet.
//!
//! A transaction of many commands moves each count once instead of once a command: hundreds of changes have the same
//! few ranges above them. Whoever reads counts in that transaction moves them first, and so does whoever commits it
//! (`types::zset::counts`). In a transaction without an [`Uncounted`] each change moves its counts itself.

use super::keys::{Oid, Prefix};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most places of one object that wait.
const MOST: usize = 2048;
/// Most bytes of places of one object that wait. Counts of long places have long rows.
const MOST_BYTES: usize = 64 << 10;

/// An object, in the database that its rows belong to.
pub(crate) type Of = (Prefix, Oid);
/// Places in order, and the number of members that have come to each, less those that have gone.
pub(crate) type Changes = BTreeMap<Vec<u8>, i64>;

/// See the module. One per transaction.
#[derive(Debug, Default)]
pub struct Uncounted {
    waiting: Mutex<BTreeMap<Of, Waiting>>,
    is_used: AtomicBool,
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    bytes: usize,
}

impl Uncounted {
    /// Adds changes to those that wait. Returns all of the object's that the caller is to count now, if they are many.
    pub(crate) fn add(&self, of: Of, changes: Changes) -> Option<Changes> {
        self.is_used.store(true, Ordering::Relaxed);
        let mut all = self.waiting.lock();
        let waiting = all.entry(of).or_default();
        for (place, n) in changes {
            waiting.bytes += place.len();
            let sum = waiting.changes.entry(place).or_insert(0);
            *sum += n;
        }
        let is_much = waiting.changes.len() > MOST || waiting.bytes > MOST_BYTES;
        if is_much { all.remove(&of).map(Waiting::into_changes) } else { None }
    }

    /// Takes what waits of an object.
    pub(crate) fn take(&self, of: Of) -> Option<Changes> {
        self.waiting.lock().remove(&of).map(Waiting::into_changes)
    }

    /// Takes what waits of all objects.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = (Of, Changes)> + use<> {
        std::mem::take(&mut *self.waiting.lock())
            .into_iter()
            .map(|(of, waiting)| (of, waiting.into_changes()))
    }

    /// Whether changes have waited.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Counts of changes that waited could not be moved.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether that was so.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl Waiting {
    /// Without the places that are as they were.
    fn into_changes(mut self) -> Changes {
        self.changes.retain(|_, n| *n != 0);
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_not_counted() {
        let (all, db) = (Uncounted::default(), Prefix::from_number(1));
        let of = |n| (db, Oid(n));
        let one = |place: u16, n| Changes::from([(place.to_be_bytes().to_vec(), n)]);
        assert_eq!(all.add(of(1), one(3, 1)), None);
        assert_eq!(all.add(of(1), one(4, -1)), None);
        assert_eq!(all.add(of(1), one(3, -1)), None);
        assert_eq!(all.add(of(2), one(3, 1)), None);
        assert_eq!(all.take(of(1)), Some(one(4, -1)));
        assert_eq!(all.take(of(1)), None);
        assert_eq!(all.take_all().collect::<Vec<_>>(), [(of(2), one(3, 1))]);
        assert_eq!(all.take_all().count(), 0);
    }

    #[test]
    fn many_do_not_wait() {
        let (all, of) = (Uncounted::default(), (Prefix::from_number(1), Oid(1)));
        let few = (0..MOST as u16).find_map(|n| all.add(of, Changes::from([(n.to_be_bytes().to_vec(), 1)])));
        assert_eq!(few, None);
        let many = all.add(of, Changes::from([(vec![0xff; 3], 1)])).unwrap();
        assert_eq!((many.len(), all.take(of)), (MOST + 1, None));
        let long = all.add(of, Changes::from([(vec![1; MOST_BYTES + 1], 1)]));
        assert!(long.is_some() && all.take_all().next().is_none());
    }
}
