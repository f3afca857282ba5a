//! The table of keys and their readers. Ordered by the hash of the names, so that evicting in that order
//! evicts at random.

use crate::env::aside;
use crate::keyspace::keys::hash;
use crate::store::Version;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Overhead in bytes of a name, and of a client that has read it.
const NAME: usize = 96;
const READER: usize = 32;

/// The number of names that take a while to drop.
const MANY: usize = 1024;
/// The number of clients of a name from which on clients that have left are removed.
const CROWD: usize = 64;

/// The clients that have read a key, by id, each with a version that its first read saw or was later than.
pub(super) type Readers = BTreeMap<u64, Version>;

/// Readers by the hash and the name of a key.
#[derive(Debug, Default)]
pub(super) struct Table {
    keys: BTreeMap<(u64, Bytes), Readers>,
    items: usize,
    /// Bytes of the names themselves.
    text: usize,
    /// The position at which to evict next.
    next: u64,
}

impl Table {
    /// The number of names.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of pairs of a name and a client.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text + self.keys.len() * NAME + self.items * READER
    }

    /// Records that client `id` reads `key`, at `version` or later. If a name has many clients, those that
    /// are no longer `there` are removed.
    pub(super) fn add(
        &mut self,
        key: &Bytes,
        (id, version): (u64, Version),
        there: impl Fn(u64) -> bool,
    ) -> bool {
        let at = (hash(key), key.clone());
        let ids = match self.keys.get_mut(&at) {
            Some(ids) => ids,
            // Copied: the name may be a slice of a buffer.
            None => {
                self.text += key.len();
                self.keys.entry((at.0, Bytes::copy_from_slice(key))).or_default()
            }
        };
        // The client may still cache what it read before.
        let before = ids.len();
        ids.entry(id).or_insert(version);
        let is_new = ids.len() > before;
        self.items += usize::from(is_new);
        if ids.len() >= CROWD && ids.len().is_power_of_two() {
            let before = ids.len();
            ids.retain(|id, _| there(*id));
            self.items -= before - ids.len();
        }
        is_new
    }

    /// Removes a name. Returns its readers.
    pub(super) fn take(&mut self, key: &Bytes) -> Option<Readers> {
        let ids = self.keys.remove(&(hash(key), key.clone()))?;
        self.items -= ids.len();
        self.text -= key.len();
        Some(ids)
    }

    /// Restores some of the readers that [`Table::take`] returned.
    pub(super) fn put_back(&mut self, key: &Bytes, ids: Readers) {
        if !ids.is_empty() {
            self.items += ids.len();
            self.text += key.len();
            self.keys.insert((hash(key), Bytes::copy_from_slice(key)), ids);
        }
    }

    /// Drops the table; a large one aside.
    pub(super) fn discard(self) {
        if self.len() > MANY {
            aside(|| drop(self));
        }
    }

    /// Evicts the next name, in a circle.
    pub(super) fn pop(&mut self) -> Option<(Bytes, Readers)> {
        let from = (self.next, Bytes::new());
        let at = self.keys.range(from..).next().or_else(|| self.keys.iter().next())?.0.clone();
        self.next = at.0;
        let ids = self.take(&at.1)?;
        Some((at.1, ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u64) -> Bytes {
        Bytes::from(format!("key:{n}"))
    }

    #[test]
    fn names_and_clients_are_counted() {
        let mut table = Table::default();
        for n in 0..10 {
            table.add(&name(n % 5), (n, 10 + n), |_| true);
            table.add(&name(n % 5), (n, 20 + n), |_| true);
        }
        assert_eq!((table.len(), table.items()), (5, 10));
        assert_eq!(table.bytes(), 5 * "key:0".len() + 5 * NAME + 10 * READER);
        assert_eq!(table.take(&name(3)), Some([(3, 13), (8, 18)].into()));
        assert_eq!(table.take(&name(3)), None);
        assert_eq!((table.len(), table.items()), (4, 8));
        table.put_back(&name(3), [(8, 18)].into());
        assert_eq!((table.len(), table.items()), (5, 9));
        let popped: std::collections::BTreeSet<Bytes> =
            std::iter::from_fn(|| table.pop()).map(|(key, _)| key).collect();
        assert_eq!(popped, (0..5).map(name).collect());
        assert_eq!((table.len(), table.items(), table.bytes()), (0, 0, 0));
    }

    #[test]
    fn clients_that_have_left_do_not_crowd_a_name() {
        let mut table = Table::default();
        for id in 0..100_000 {
            assert!(table.add(&name(0), (id, 0), |other| other % 1000 == 0));
        }
        assert!(!table.add(&name(0), (0, 1), |_| true));
        assert!(table.items() < 300, "{}", table.items());
        let ids = table.take(&name(0)).unwrap_or_default();
        assert!((0..99_000).step_by(1000).all(|id| ids.contains_key(&id)), "who is there is remembered");
    }
}
