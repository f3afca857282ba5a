//! The value cache: values that were read or drained lately, a hash table in front of RocksDB.
//!
//! An entry says: at `version` the key had `value`, and no later commit that was drained wrote the key
//! (`drain.rs`). So it answers every reader at `version` or later that finds nothing about the key in its
//! recent layers. The rows of a layer are entered before views without it are published. A reader
//! at an older version is not answered.
//!
//! A reader enters what it found in its snapshot only if no row of the shard that was drained was committed
//! after its version (`written`); otherwise it could hide a newer value.
//!
//! Cleared ranges are kept in a list of up to [`MAX_CLEARED`]: an entry older than a clear that covers it is
//! invalid. When the list is full, each shard drops everything from before the newest of them (`floor`), before
//! the list is emptied. Readers check the list first and the shard second, so that they always see one or the
//! other.

use super::recent::Change;
use super::rows::{Found, Given, Rows};
use crate::store::{AT_ONCE, Version};
use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// A power of two.
const SHARDS: usize = 64;
/// The most shards that are locked together: about as many lines as a processor's core fetches at once.
const LOCKED: usize = 16;
/// Cleared ranges that every lookup compares with.
const MAX_CLEARED: usize = 64;
/// Longer values are not cached: reading them costs more than finding them.
const MAX_LEN: usize = 16 << 10;

/// See the module.
pub(super) struct ValueCache {
    shards: Vec<Mutex<Shard>>,
    cleared: ArcSwap<Vec<Cleared>>,
    /// Whether `cleared` has a range: set after the first was added, and false only after all were removed.
    has_cleared: AtomicBool,
}

struct Shard {
    entries: Rows,
    /// The last version that wrote a key of this shard.
    written: Version,
    /// Entries of earlier versions are invalid.
    floor: Version,
}

#[derive(Clone)]
struct Cleared {
    begin: Bytes,
    end: Bytes,
    version: Version,
}

impl Cleared {
    fn covers(&self, key: &[u8], entry: Found) -> bool {
        entry.version < self.version && self.begin[..] <= *key && *key < self.end[..]
    }
}

impl ValueCache {
    /// A cache of at most `bytes`; 0 disables it.
    pub(super) fn new(bytes: usize) -> Self {
        let shards = if bytes == 0 { 0 } else { SHARDS };
        let shard = |_| {
            let entries = Rows::new(bytes / SHARDS);
            Mutex::new(Shard { entries, written: 0, floor: 0 })
        };
        let (cleared, has_cleared) = Default::default();
        ValueCache { shards: (0..shards).map(shard).collect(), cleared, has_cleared }
    }

    /// Whether it keeps anything.
    pub(super) fn is_on(&self) -> bool {
        !self.shards.is_empty()
    }

    /// The value under `key` for a reader at `version`; None if the cache does not know.
    pub(super) fn get(&self, hash: u64, key: &[u8], version: Version) -> Option<Option<Bytes>> {
        let cleared = self.has_cleared.load(Ordering::Acquire).then(|| self.cleared.load());
        let mut shard = self.shard(hash)?.lock();
        let entry = shard.entries.find(hash, key)?;
        let known = entry.version <= version
            && entry.version >= shard.floor
            && !cleared.iter().any(|list| list.iter().any(|c| c.covers(key, entry)));
        if !known {
            return None;
        }
        Some(shard.entries.value(entry))
    }

    /// Loads what [`ValueCache::get`] reads for up to [`AT_ONCE`] hashes, except for those that have a bit in `known`.
    /// Returns a bit for each hash that a row may have.
    pub(super) fn touch(&self, hashes: &[u64], known: u64) -> u64 {
        if !self.is_on() || known.count_ones() as usize == hashes.len() {
            return 0;
        }
        let parts = hashes.chunks(LOCKED).enumerate();
        parts.fold(0, |found, (n, some)| {
            let first = n * LOCKED;
            found | self.touch_part(some, known >> first) << first
        })
    }

    /// As [`ValueCache::touch`], for up to [`LOCKED`] hashes.
    fn touch_part(&self, hashes: &[u64], known: u64) -> u64 {
        // Locked before anything is loaded: a processor that takes a lock waits for all that it has begun to load.
        let mut locked = [const { None }; SHARDS];
        let others = || hashes.iter().enumerate().filter(|(n, _)| known & 1 << n == 0);
        for (_, hash) in others() {
            let shard = shard_of(*hash);
            if let (Some(lock), Some(shard)) = (locked.get_mut(shard), self.shards.get(shard))
                && lock.is_none()
            {
                *lock = shard.try_lock();
            }
        }
        let shard = |hash: u64| -> Option<&Rows> { Some(&locked.get(shard_of(hash))?.as_ref()?.entries) };
        let (mut places, mut found, mut loaded) = ([None; LOCKED], 0, 0);
        for ((n, hash), place) in others().zip(&mut places) {
            *place = shard(*hash).and_then(|rows| rows.touch_slots(*hash));
            found |= u64::from(place.is_some()) << n;
        }
        for ((_, hash), place) in others().zip(places) {
            loaded += place.and_then(|at| shard(*hash)?.touch(at)).map_or(0, u32::from);
        }
        black_box(loaded);
        found
    }

    /// The newest value of `key` that was drained. Only for the committer, if no recent commit wrote the key.
    pub(super) fn newest(&self, hash: u64, key: &[u8]) -> Option<Option<Bytes>> {
        self.get(hash, key, Version::MAX)
    }

    /// Enters what a reader found in its snapshot of `version`.
    pub(super) fn read(&self, hash: u64, key: &[u8], version: Version, value: Option<&Bytes>) {
        let Some(shard) = self.shard(hash) else { return };
        if value.is_some_and(|v| v.len() > MAX_LEN) {
            return;
        }
        let mut shard = shard.lock();
        if shard.written <= version && shard.floor <= version {
            shard.entries.insert(hash, key, version, value.map(Given::from));
        }
    }

    /// Enters up to [`AT_ONCE`] last changes of a layer, and notes those that are not to be kept. Only while the layer is drained.
    pub(super) fn drained(&self, changes: &[Change<'_>]) {
        if !self.is_on() {
            return;
        }
        let mut hashes = [0; AT_ONCE];
        hashes.iter_mut().zip(changes).for_each(|(hash, change)| *hash = change.hash);
        self.touch(hashes.get(..changes.len()).unwrap_or_default(), 0);
        for change in changes {
            if change.kept {
                self.wrote(change.hash, change.key, change.version, change.value);
            } else {
                self.outdated(change.hash, change.version);
            }
        }
    }

    /// Enters what a commit of `version` left under `key`.
    fn wrote(&self, hash: u64, key: &[u8], version: Version, value: Option<Given<'_>>) {
        let Some(shard) = self.shard(hash) else { return };
        let mut shard = shard.lock();
        shard.written = shard.written.max(version);
        if value.is_some_and(|v| v.len() > MAX_LEN) {
            shard.entries.remove(hash);
        } else {
            shard.entries.insert(hash, key, version, value);
        }
    }

    /// Records that a commit of `version` wrote a key that is not entered.
    fn outdated(&self, hash: u64, version: Version) {
        let Some(shard) = self.shard(hash) else { return };
        let mut shard = shard.lock();
        shard.written = shard.written.max(version);
        shard.entries.remove(hash);
    }

    /// Records that a commit of `version` removed all keys in `begin..end`. Only while its layer is drained; the
    /// clears of a layer come in any order.
    pub(super) fn cleared(&self, begin: &Bytes, end: &Bytes, version: Version) {
        if self.shards.is_empty() {
            return;
        }
        let before = self.cleared.load();
        if before.len() >= MAX_CLEARED {
            return self.forget(before.iter().map(|c| c.version).fold(version, Version::max));
        }
        let mut list = Vec::with_capacity(before.len() + 1);
        list.extend(before.iter().cloned());
        list.push(Cleared { begin: begin.clone(), end: end.clone(), version });
        self.cleared.store(list.into());
        self.has_cleared.store(true, Ordering::Release);
    }

    /// Invalidates everything from before `version`, now and in future.
    pub(super) fn forget(&self, version: Version) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.floor = shard.floor.max(version);
        }
        self.cleared.store(Vec::new().into());
        self.has_cleared.store(false, Ordering::Release);
    }

    /// Approximate bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().entries.bytes() as u64).sum()
    }

    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        self.shards.get(shard_of(hash))
    }
}

/// The table inside uses the lowest 24 bits of a hash and the highest eight.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize & (SHARDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: &[u8] = b"key";

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn given(text: &'static str) -> Option<Given<'static>> {
        Some(Given::Slice(text.as_bytes()))
    }

    #[test]
    fn answers_only_readers_at_its_version_or_later() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 5, given("a"));
        assert_eq!(values.get(7, K, 4), None);
        assert_eq!(values.get(7, K, 5), Some(Some(bytes("a"))));
        values.wrote(7, K, 6, None);
        assert_eq!(values.get(7, K, 5), None);
        assert_eq!(values.get(7, K, 9), Some(None));
        assert_eq!(values.get(7, b"other", 9), None, "another key of the same hash");
    }

    #[test]
    fn rows_are_touched_by_their_hashes() {
        let hash = |n: u64| n << 56 | n << 40 | n;
        let values = ValueCache::new(1 << 20);
        (1..9).for_each(|n| values.wrote(hash(n), K, 5, given("a")));
        let asked: Vec<u64> = (5..20).map(hash).collect();
        assert_eq!(values.touch(&asked, 0), 0b1111);
        assert_eq!(values.touch(&asked, 0b101), 0b1010, "without those that are known");
        assert_eq!(ValueCache::new(0).touch(&asked, 0), 0);
        let busy = values.shard(hash(6)).unwrap().lock();
        assert_eq!(values.touch(&asked, 0), 0b1101, "without waiting");
        drop(busy);
    }

    #[test]
    fn a_late_reader_does_not_bury_a_newer_value() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 6, given("new"));
        values.read(7, K, 5, Some(&bytes("old")));
        assert_eq!(values.get(7, K, 6), Some(Some(bytes("new"))));
        values.read(8, b"neighbour", 5, Some(&bytes("old")));
        assert_eq!(values.get(8, b"neighbour", 6), None, "its shard was written after that reader's version");
        values.read(8, b"neighbour", 6, Some(&bytes("read")));
        assert_eq!(values.get(8, b"neighbour", 6), Some(Some(bytes("read"))));
    }

    #[test]
    fn what_is_outdated_answers_nobody() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 5, None);
        values.outdated(7, 6);
        assert_eq!(values.get(7, K, 6), None);
        values.read(7, K, 5, None);
        assert_eq!(values.get(7, K, 6), None, "read before it was written");
        values.read(7, K, 6, Some(&bytes("new")));
        assert_eq!(values.get(7, K, 6), Some(Some(bytes("new"))));
    }

    #[test]
    fn cleared_ranges_are_seen_also_after_many() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 5, given("a"));
        values.cleared(&bytes("ka"), &bytes("kz"), 6);
        assert_eq!(values.get(7, K, 5), None, "older than a clear that covers it");
        values.wrote(7, K, 6, given("b"));
        assert_eq!(
            values.get(7, K, 6),
            Some(Some(bytes("b"))),
            "written behind the clear of its transaction"
        );
        values.read(7, b"key", 6, Some(&bytes("b")));
        for n in 0..3 * MAX_CLEARED as u64 {
            values.cleared(&bytes("x"), &bytes("y"), 7 + n);
            assert!(values.cleared.load().len() <= MAX_CLEARED);
        }
        values.cleared(&bytes("ka"), &bytes("kz"), 1000);
        assert_eq!(values.get(7, K, 1000), None);
        values.read(7, K, 999, Some(&bytes("b")));
        assert_eq!(values.get(7, K, 1000), None, "read before the clear");
    }

    /// Hazard: a value that was cleared is back, once the list was emptied for the sake of an older clear: a layer
    /// tells its clears in the order of their keys.
    #[test]
    fn clears_come_in_any_order_and_all_count() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 500, given("a"));
        values.cleared(&bytes("ka"), &bytes("kz"), 1000);
        for n in 0..3 * MAX_CLEARED as u64 {
            values.cleared(&bytes("x"), &bytes("y"), 300 - n);
            assert_eq!(values.get(7, K, 2000), None, "{n}");
        }
    }

    #[test]
    fn forgets_what_a_reopening_may_have_lost() {
        let values = ValueCache::new(1 << 20);
        values.wrote(7, K, 5, given("lost"));
        values.forget(100);
        assert_eq!(values.get(7, K, 200), None);
        values.read(7, K, 5, Some(&bytes("lost")));
        assert_eq!(values.get(7, K, 200), None);
    }

    #[test]
    fn stays_in_its_bytes() {
        let values = ValueCache::new(1 << 20);
        for n in 0..20_000u64 {
            let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            values.wrote(hash, n.to_string().as_bytes(), 1 + n, given("0123456789"));
        }
        assert!(values.bytes() <= 1 << 20, "{}", values.bytes());
        assert!(values.bytes() > 1 << 18, "{}", values.bytes());
        assert_eq!(ValueCache::new(0).get(7, K, 1), None);
    }
}
