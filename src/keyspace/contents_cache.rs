//! What commands lately returned of objects that are in rows: for objects that are read more often than changed.
//!
//! An entry belongs to one version of an object. Neither object ids nor versions come back within a generation of
//! the store, so no entry is ever wrong; those of earlier versions are just not asked for again. What was not asked
//! for lately is dropped. Only what was asked for twice is kept: of objects that change before they are read again
//! there is nothing to keep.

use super::keys::Oid;
use super::packed::Packed;
use crate::store::halves::Halves;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each of the two halves: what was asked for lately, and what was asked for before that.
const HALF: usize = 8 << 20;
/// The most bytes of an entry. To read more takes much longer than to ask for it.
const MAX_ENTRY: usize = 64 << 10;
/// Approximate bytes of an entry besides its strings and its command.
const ENTRY: usize = 384;

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

/// See the module.
#[derive(Debug)]
pub(crate) struct ContentsCache(Mutex<Entries>);

type Entries = Halves<Asked, Arc<Packed>>;

impl Default for ContentsCache {
    fn default() -> Self {
        ContentsCache(Mutex::new(Entries::new(HALF)))
    }
}

impl ContentsCache {
    /// Drops everything.
    pub(crate) fn clear(&self) {
        // Dropped once the lock is free.
        let _all = std::mem::replace(&mut *self.0.lock(), Entries::new(HALF));
    }

    /// What a command returned.
    pub(crate) fn find(&self, asked: &Asked) -> Option<Arc<Packed>> {
        let (found, outdated) = self.0.lock().find(asked)?;
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
        let bytes = found.held() + asked.command.len() + ENTRY;
        let outdated = self.0.lock().keep(asked, found.clone(), bytes);
        drop(outdated);
        found
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
            let kept = halves.len();
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
