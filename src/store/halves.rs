//! What was asked for lately, bounded in bytes: in two halves, of which the older is dropped when the younger is full.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Questions that are remembered as asked once.
const ASKED_ONCE: usize = 8192;

/// Values, and the bytes that each takes.
type Half<K, V> = HashMap<K, (V, usize)>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Halves<K, V> {
    young: Half<K, V>,
    old: Half<K, V>,
    /// Bytes of the young ones, and the most.
    size: usize,
    most: usize,
    /// Hashes of what was asked for once, each at the place that it names.
    once: Vec<u64>,
}

/// Values to drop: drop them when no lock is held.
pub(crate) struct Outdated<K, V>(#[expect(dead_code, reason = "it is only dropped")] Half<K, V>);

impl<K: Eq + Hash, V: Clone> Halves<K, V> {
    /// `most`: bytes of a half.
    pub(crate) fn new(most: usize) -> Self {
        Halves { young: HashMap::new(), old: HashMap::new(), size: 0, most, once: Vec::new() }
    }

    /// The value under a key, which stays for that.
    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<(V, Outdated<K, V>)>
    where
        K: Borrow<Q>,
    {
        if let Some((found, _)) = self.young.get(key) {
            return Some((found.clone(), Outdated(Half::new())));
        }
        let (key, (found, bytes)) = self.old.remove_entry(key)?;
        let outdated = self.keep(key, found.clone(), bytes);
        Some((found, outdated))
    }

    /// Whether something with this hash was asked for lately; it is now.
    pub(crate) fn was_asked(&mut self, hash: u64) -> bool {
        self.once.resize(ASKED_ONCE, 0);
        let place = self.once.get_mut(hash as usize % ASKED_ONCE);
        place.is_some_and(|place| std::mem::replace(place, hash) == hash)
    }

    /// Keeps a value of so many bytes.
    pub(crate) fn keep(&mut self, key: K, value: V, bytes: usize) -> Outdated<K, V> {
        self.size += bytes;
        if let Some((_, before)) = self.young.insert(key, (value, bytes)) {
            self.size -= before;
        }
        if self.size <= self.most {
            return Outdated(Half::new());
        }
        self.size = 0;
        Outdated(std::mem::replace(&mut self.old, std::mem::take(&mut self.young)))
    }

    /// The number of values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Bytes of the young ones.
    #[cfg(test)]
    pub(crate) fn young_bytes(&self) -> usize {
        self.size
    }
}
