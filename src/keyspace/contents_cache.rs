//! What commands lately returned of objects that are in rows: for objects that are read more often than changed.
//!
//! An entry belongs to one version of an object. Neither object ids nor versions come back within a generation of
//! the store, so no entry is ever wrong; those of earlier versions are just not asked for again. What was not asked
//! for lately is dropped. Only what was asked for twice is kept: of objects that change before they are read again
//! there is nothing to keep.

use super::keys::Oid;
use super::packed::Packed;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each of the two halves: what was asked for lately, and what was asked for before that.
const HALF: usize = 8 << 20;
/// The most bytes of an entry. To read more takes much longer than to ask for it.
const MAX_ENTRY: usize = 64 << 10;
/// Approximate bytes of an entry besides its strings and its command.
const ENTRY: usize = 384;
/// Questions that are remembered as asked once.
const ASKED_ONCE: usize = 4096;

/// A command, and the version of an object that it was for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    /// The object id.
    pub(crate) oid: Oid,
    /// The revision of its record, and N.
    pub(crate) version: (u64, i128),
    /// The generation of the store.
    pub(crate) generation: u64,
    /// The command and its arguments, but for the key.
    pub(crate) command: Vec<u8>,
}

type Entries = HashMap<Asked, Arc<Packed>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ContentsCache(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: Entries,
    old: Entries,
    /// Bytes of the young ones.
    size: usize,
    /// Hashes of questions that were asked once, each at the place that it names.
    once: Vec<u64>,
}

impl ContentsCache {
    /// Drops everything.
    pub(crate) fn clear(&self) {
        // Dropped once the lock is free.
        let _all = std::mem::take(&mut *self.0.lock());
    }

    /// What a command returned.
    pub(crate) fn find(&self, asked: &Asked) -> Option<Arc<Packed>> {
        let mut halves = self.0.lock();
        if let Some(found) = halves.young.get(asked) {
            return Some(found.clone());
        }
        let (asked, found) = halves.old.remove_entry(asked)?;
        let outdated = halves.learn(asked, found.clone());
        drop(halves);
        drop(outdated);
        Some(found)
    }

    /// Records what a command returned, if it is not long and was asked for before.
    pub(crate) fn learn(&self, asked: Asked, mut found: Packed) -> Arc<Packed> {
        let mut hash = Xxh3::new();
        asked.hash(&mut hash);
        if found.held() > MAX_ENTRY || !self.0.lock().was_asked(hash.finish()) {
            return found.into();
        }
        found.shrink();
        let found = Arc::new(found);
        let outdated = self.0.lock().learn(asked, found.clone());
        drop(outdated);
        found
    }
}

impl Halves {
    /// Whether a question was asked lately; it is now.
    fn was_asked(&mut self, hash: u64) -> bool {
        self.once.resize(ASKED_ONCE, 0);
        let place = self.once.get_mut(hash as usize % ASKED_ONCE);
        place.is_some_and(|place| std::mem::replace(place, hash) == hash)
    }

    /// Returns entries to drop: others need not wait for that.
    fn learn(&mut self, asked: Asked, found: Arc<Packed>) -> Entries {
        self.size += found.held() + asked.command.len() + ENTRY;
        self.young.insert(asked, found);
        if self.size <= HALF {
            return Entries::new();
        }
        self.size = 0;
        std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(revision: u64) -> Asked {
        Asked { oid: Oid(7), version: (revision, 0), generation: 0, command: b"lrange".to_vec() }
    }

    fn of(text: &[u8]) -> Packed {
        let mut packed = Packed::default();
        packed.push(text);
        packed
    }

    #[test]
    fn only_the_same_question_is_answered() {
        let cache = ContentsCache::default();
        for is_kept in [false, true] {
            assert_eq!(*cache.learn(asked(1), of(b"one")), of(b"one"));
            assert_eq!(cache.find(&asked(1)), is_kept.then(|| of(b"one").into()));
        }
        for other in [
            asked(2),
            Asked { oid: Oid(8), ..asked(1) },
            Asked { version: (1, 1), ..asked(1) },
            Asked { generation: 1, ..asked(1) },
            Asked { command: b"lrang".to_vec(), ..asked(1) },
        ] {
            assert_eq!(cache.find(&other), None, "{other:?}");
        }
        cache.clear();
        assert_eq!(cache.find(&asked(1)), None);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let (cache, long) = (ContentsCache::default(), of(&[0; MAX_ENTRY / 2]));
        let learn = |n, found: &Packed| {
            cache.learn(asked(n), found.clone());
            cache.learn(asked(n), found.clone());
        };
        learn(0, &of(b"asked for"));
        let fit = HALF / (MAX_ENTRY / 2);
        for n in 1..=8 * fit {
            learn(n as u64, &long);
            assert_eq!(cache.find(&asked(0)), Some(of(b"asked for").into()));
            let halves = cache.0.lock();
            let kept = halves.young.len() + halves.old.len();
            assert!(
                kept >= n.min(fit * 9 / 10) && kept <= 2 * fit + 1,
                "{kept} after {n}, where {fit} fit into a half"
            );
        }
    }

    #[test]
    fn long_contents_are_not_kept() {
        let cache = ContentsCache::default();
        let fits = MAX_ENTRY - size_of::<usize>();
        for (n, bytes, is_kept) in [(1, fits, true), (2, fits + 1, false)] {
            cache.learn(asked(n), of(&vec![0; bytes]));
            cache.learn(asked(n), of(&vec![0; bytes]));
            assert_eq!(cache.find(&asked(n)).is_some(), is_kept, "{bytes}");
        }
    }
}
