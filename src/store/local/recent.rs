//! The rows of recent commits, in memory: what RocksDB does not have yet.
//!
//! ```text
//! commit -> log (wal.rs) -> the newest layer here       OK is said
//! a full layer -> RocksDB (drain.rs) -> its log is removed
//! ```
//!
//! A layer holds the commits of one log. It has a table by hash, because most rows are written and read
//! as points, the order of its keys for range reads ([`order`](super::order)), and the ranges that were cleared. A row that
//! is written again keeps its place; its earlier values stay as long as a snapshot may read them. Keys and short
//! values are copied into memory of the layer ([`arena`](super::arena)).
//!
//! Invariants: there is one writer, the committer; a layer that is no longer the newest never changes;
//! a reader sees rows of its version and older ones, so the writer may add rows before it publishes them.
//!
//! Why not RocksDB's memtable: it keeps every write of a key until it is flushed, and its skip list took 4300
//! of the 15 700 instructions of a SET (`bench/results/2026-11-25-redis-benchmark.md`).

use super::arena::{Arena, Place, Room};
use super::cleared::{Cleared, Clears};
use super::order::Order;
use super::rows::Given;
use super::steps::Steps;
use crate::store::effects::Identity;
use crate::store::{AT_ONCE, Version};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// No cell, no row.
const NONE: u32 = u32::MAX;
/// Approximate bytes of a row besides its key and value: the row, its slot in the table and in the order.
const ROW: usize = 160;
/// Approximate bytes of an earlier value besides the value.
const CELL: usize = 48;
/// New rows that are put in order at once at the latest: three to six milliseconds. Fewer at a time take
/// longer together.
const UNORDERED: usize = if cfg!(test) { 100 } else { 16_384 };
/// The most cleared ranges: a reader of an older version looks through all of them.
const MOST_CLEARED: usize = 4096;
/// Removed rows that one range read may walk over before the layer should be followed by another one: RocksDB
/// forgets them.
const MOST_WALKED: usize = 32_768;

/// What a row holds.
#[derive(Debug, Default)]
enum Value {
    /// Nothing: it was removed.
    #[default]
    Removed,
    Short(Room),
    Long(Box<Bytes>),
}

/// A value for readers of `version` and later.
#[derive(Debug)]
struct Cell {
    version: Version,
    value: Value,
    /// The place of the value before it.
    older: u32,
    /// Whether it is likely to be read soon.
    kept: bool,
}

impl Cell {
    /// The bytes of its value, twice: RocksDB holds a copy while a layer is moved to a table.
    fn length(&self) -> usize {
        2 * match &self.value {
            Value::Removed => 0,
            Value::Short(room) => room.length(),
            Value::Long(value) => value.len(),
        }
    }
}

#[derive(Debug)]
struct Row {
    key: Place,
    key_length: u32,
    /// The place of another row of the same hash.
    next: u32,
    newest: Cell,
}

/// A row that a commit writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) key: &'a Bytes,
    pub(super) hash: u64,
    pub(super) version: Version,
    pub(super) value: Option<&'a Bytes>,
    /// Whether it is likely to be read soon.
    pub(super) kept: bool,
}

/// A row as the last commit leaves it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) version: Version,
    pub(super) value: Option<Given<'a>>,
    pub(super) kept: bool,
}

/// The oldest and the newest version of the snapshots that may be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readers {
    pub(super) oldest: Version,
    pub(super) newest: Version,
}

/// What a snapshot shows of a key: its value, or that it has none.
pub(super) type Shown = (Bytes, Option<Bytes>);

/// See the module.
#[derive(Debug)]
pub(super) struct Layer {
    /// The number of its log.
    pub(super) log: u64,
    rows: RwLock<Rows>,
    /// Readers of versions before it see nothing of the layer.
    since: Version,
    /// False until it holds a row or a cleared range.
    is_used: AtomicBool,
    /// A range read walked over more than [`MOST_WALKED`] of its rows in vain.
    is_tedious: AtomicBool,
    bytes: AtomicUsize,
    /// The last commit version and metadata version, 0 if there is none.
    version: AtomicU64,
    metadata_version: AtomicU64,
}

#[derive(Debug, Default)]
struct Rows {
    /// Places of rows by hash.
    table: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    rows: Vec<Row>,
    arena: Arena,
    /// Of the first `ordered` rows.
    order: Order,
    ordered: usize,
    /// Earlier values, and the places among them that are free.
    older: Vec<Cell>,
    free: Vec<u32>,
    cleared: Clears,
    bytes: usize,
}

impl Layer {
    /// An empty layer for the commits of `log`, whose versions are `since` and later.
    pub(super) fn new(log: u64, since: Version) -> Self {
        let (rows, is_used, is_tedious, bytes, version, metadata_version) = Default::default();
        Layer { log, rows, since, is_used, is_tedious, bytes, version, metadata_version }
    }

    /// The first version that it may hold.
    pub(super) fn since(&self) -> Version {
        self.since
    }

    /// A range read has walked over `rows` of its rows without showing one.
    pub(super) fn walked(&self, rows: usize) {
        if rows > MOST_WALKED {
            self.is_tedious.store(true, Ordering::Relaxed);
        }
    }

    /// Records the version of a commit, after its rows were entered.
    pub(super) fn committed(&self, version: Version, metadata_version: Option<Version>) {
        self.is_used.store(true, Ordering::Release);
        self.version.store(version, Ordering::Release);
        if let Some(version) = metadata_version {
            self.metadata_version.store(version, Ordering::Release);
        }
    }

    /// The last commit version and the last metadata version; 0 if there is none.
    pub(super) fn last(&self) -> (Version, Version) {
        (self.version.load(Ordering::Acquire), self.metadata_version.load(Ordering::Acquire))
    }

    /// Whether a commit was entered.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Approximate bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of its keys and their last values: at most what they take in a table.
    pub(super) fn contents(&self) -> u64 {
        let rows = self.rows.read();
        let row = |row: &Row| row.key_length as usize + row.newest.length() / 2;
        rows.rows.iter().map(|r| row(r) as u64).sum()
    }

    /// Whether it should be followed by another one.
    pub(super) fn is_full(&self, most: usize) -> bool {
        self.bytes() >= most
            || self.is_tedious.load(Ordering::Relaxed)
            || self.is_used() && self.rows.read().cleared.len() >= MOST_CLEARED
    }

    /// Enters cleared ranges. They precede the rows of their commit.
    pub(super) fn clear(&self, ranges: impl Iterator<Item = Cleared>) {
        let mut rows = self.rows.write();
        for range in ranges {
            rows.bytes += 2 * (range.begin.len() + range.end.len() + CELL);
            rows.cleared.add(range);
            self.is_used.store(true, Ordering::Release);
        }
        self.bytes.store(rows.held(), Ordering::Relaxed);
    }

    /// Enters rows.
    pub(super) fn enter<'a>(&self, written: impl Iterator<Item = Written<'a>>, readers: Readers) {
        let mut rows = self.rows.write();
        for row in written {
            rows.enter(row, readers);
        }
        if !rows.rows.is_empty() {
            self.is_used.store(true, Ordering::Release);
        }
        self.bytes.store(rows.held(), Ordering::Relaxed);
    }

    /// What it shows of a key at `version`; None: nothing.
    pub(super) fn get(&self, hash: u64, key: &[u8], version: Version) -> Option<Option<Bytes>> {
        if !self.is_used() {
            return None;
        }
        let rows = self.rows.read();
        let cell = rows.place(hash, key).and_then(|(_, row)| rows.cell(&row.newest, version));
        let cleared = rows.cleared.at(key, version);
        match cell {
            Some(cell) if cell.version >= cleared => Some(rows.value(cell)),
            _ => (cleared > 0).then_some(None),
        }
    }

    /// Loads what [`Layer::get`] reads for up to [`AT_ONCE`] hashes, except for those that have a bit in `known`. Returns a
    /// bit for each hash that it has found.
    pub(super) fn touch(&self, hashes: &[u64], known: u64) -> u64 {
        if !self.is_used() {
            return 0;
        }
        let rows = self.rows.read();
        let (mut places, mut found) = ([NONE; AT_ONCE], 0);
        for (n, (hash, slot)) in hashes.iter().zip(&mut places).enumerate() {
            if known & 1 << n == 0
                && let Some(place) = rows.table.get(hash)
            {
                *slot = *place;
                found |= 1 << n;
            }
        }
        rows.load(&places);
        found
    }

    /// Appends to `page` what it shows at `version` of up to `most` of its keys from `from` to `to`, in order,
    /// or backwards. Returns the last key that it looked at if there may be more.
    pub(super) fn page(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        version: Version,
        most: usize,
        page: &mut impl Extend<Shown>,
    ) -> Option<Bytes> {
        if !self.is_used() || is_empty(from, to) {
            return None;
        }
        let rows = self.in_order();
        let cleared = rows.cleared.as_of(version);
        let key_of = |place| rows.key_at(place);
        let mut places = rows.order.range(from, to, &key_of);
        let mut last = None;
        for _ in 0..most {
            let place = if reverse { places.next_back()? } else { places.next()? };
            let row = rows.rows.get(place as usize)?;
            if let Some(shown) = rows.shown(row, version, &cleared) {
                page.extend([(Bytes::copy_from_slice(rows.key(row)), shown)]);
            }
            last = Some(row);
        }
        last.map(|row| Bytes::copy_from_slice(rows.key(row)))
    }

    /// The rows, once their order has all of them.
    fn in_order(&self) -> RwLockReadGuard<'_, Rows> {
        let rows = self.rows.read();
        if rows.is_in_order() {
            return rows;
        }
        drop(rows);
        self.put_in_order()
    }

    /// As [`Layer::in_order`], for one who has seen that rows are missing. Somebody may have entered them since: whoever only
    /// waits to write keeps all readers out, and while a layer is drained that is for long.
    fn put_in_order(&self) -> RwLockReadGuard<'_, Rows> {
        let rows = self.rows.upgradable_read();
        if rows.is_in_order() {
            return RwLockUpgradableReadGuard::downgrade(rows);
        }
        let mut rows = RwLockUpgradableReadGuard::upgrade(rows);
        rows.put_in_order();
        RwLockWriteGuard::downgrade(rows)
    }

    /// The parts of `begin..end` that are cleared at `version`: apart and in order.
    pub(super) fn cleared(&self, begin: &[u8], end: &[u8], version: Version) -> Vec<Cleared> {
        if !self.is_used() {
            return Vec::new();
        }
        self.rows.read().cleared.within(begin, end, version)
    }

    /// Passes the last change of every key to `of`, in order, up to [`AT_ONCE`] at a time; those that a later clear covers are
    /// removals. For a layer that is no longer the newest: until all are passed, nothing can be entered.
    pub(super) fn each(&self, of: &mut dyn FnMut(&[Change<'_>]) -> Result<(), String>) -> Result<(), String> {
        let rows = self.in_order();
        let key_of = |place| rows.key_at(place);
        let mut places = rows.order.range(Bound::Unbounded, Bound::Unbounded, &key_of);
        loop {
            let some: Vec<u32> = places.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            rows.load(&some);
            let some = some.iter().filter_map(|place| rows.rows.get(*place as usize));
            of(&some.map(|row| rows.change(row)).collect::<Vec<_>>())?;
        }
    }

    /// All that is cleared: ranges apart and in order.
    pub(super) fn all_cleared(&self) -> Vec<Cleared> {
        self.rows.read().cleared.parts()
    }
}

/// Whether no key lies between these bounds: the ordered map panics if they are crossed.
fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

impl Rows {
    /// Approximate bytes in memory. Values that grow leave rooms that no other value takes.
    fn held(&self) -> usize {
        self.bytes.max(self.arena.held())
    }

    fn key(&self, row: &Row) -> &[u8] {
        self.arena.bytes(row.key, row.key_length as usize)
    }

    fn key_at(&self, place: u32) -> &[u8] {
        self.rows.get(place as usize).map_or(&[], |row| self.key(row))
    }

    fn value(&self, cell: &Cell) -> Option<Bytes> {
        self.bytes(cell).map(Given::shared)
    }

    fn bytes<'a>(&'a self, cell: &'a Cell) -> Option<Given<'a>> {
        match &cell.value {
            Value::Removed => None,
            Value::Short(room) => Some(Given::Slice(self.arena.value(*room))),
            Value::Long(value) => Some(Given::Shared(value)),
        }
    }

    /// Loads rows, their keys and values, all at once.
    fn load(&self, places: &[u32]) {
        let mut loaded = 0;
        for row in places.iter().filter_map(|place| self.rows.get(*place as usize)) {
            let (key, value) = (self.key(row), self.bytes(&row.newest));
            let bytes = [key.first(), key.last(), value.as_ref().and_then(|value| value.first())];
            loaded += bytes.into_iter().flatten().map(|byte| u32::from(*byte)).sum::<u32>();
        }
        black_box(loaded);
    }

    fn change<'a>(&'a self, row: &'a Row) -> Change<'a> {
        let (key, newest) = (self.key(row), &row.newest);
        let (hash, cleared) = (super::layout::hash(key), self.cleared.at(key, Version::MAX));
        if newest.version >= cleared {
            Change { key, hash, version: newest.version, value: self.bytes(newest), kept: newest.kept }
        } else {
            Change { key, hash, version: cleared, value: None, kept: false }
        }
    }

    fn is_in_order(&self) -> bool {
        self.ordered == self.rows.len()
    }

    fn put_in_order(&mut self) {
        let Rows { order, rows, arena, ordered, .. } = self;
        let key_of = |place: u32| {
            rows.get(place as usize).map_or(&[][..], |row| arena.bytes(row.key, row.key_length as usize))
        };
        order.add((*ordered as u32, rows.len() as u32), &key_of);
        *ordered = rows.len();
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<(u32, &Row)> {
        let mut place = *self.table.get(&hash)?;
        loop {
            let row = self.rows.get(place as usize)?;
            if self.key(row) == key {
                return Some((place, row));
            }
            place = row.next;
        }
    }

    /// The value for readers of `version`.
    fn cell<'a>(&'a self, newest: &'a Cell, version: Version) -> Option<&'a Cell> {
        let mut cell = newest;
        while cell.version > version {
            cell = self.older.get(cell.older as usize)?;
        }
        Some(cell)
    }

    fn shown(&self, row: &Row, version: Version, cleared: &Steps) -> Option<Option<Bytes>> {
        let cell = self.cell(&row.newest, version)?;
        let is_cleared = cleared.newest_at(self.key(row)) > cell.version;
        Some(if is_cleared { None } else { self.value(cell) })
    }

    fn enter(&mut self, written: Written<'_>, readers: Readers) {
        let Written { key, hash, version, value, kept } = written;
        let value = match value {
            None => Value::Removed,
            Some(value) => match self.arena.put(value) {
                Some(room) => Value::Short(room),
                None => Value::Long(Box::new(value.clone())),
            },
        };
        let newest = Cell { version, value, older: NONE, kept };
        let length = newest.length();
        let known = self.place(hash, key).map(|(place, _)| place as usize);
        let Some((place, row)) = known.and_then(|place| Some((place, self.rows.get_mut(place)?))) else {
            let place = self.rows.len() as u32;
            self.bytes += key.len() + length + ROW;
            let next = self.table.insert(hash, place).unwrap_or(NONE);
            let (key, key_length) = (self.arena.keep(key), key.len() as u32);
            self.rows.push(Row { key, key_length, next, newest });
            if self.rows.len() - self.ordered >= UNORDERED {
                self.put_in_order();
            }
            return;
        };
        self.bytes += length;
        let before = std::mem::replace(&mut row.newest, newest);
        let older = self.keep(before, version, readers);
        if let Some(row) = self.rows.get_mut(place) {
            row.newest.older = older;
        }
    }

    /// Keeps what snapshots may read of a value that ends at version `until`, and of those before it. Returns
    /// the place of the last one.
    fn keep(&mut self, cell: Cell, until: Version, readers: Readers) -> u32 {
        let older = cell.older;
        if until <= readers.oldest || cell.version <= readers.oldest {
            self.give_up(older);
        }
        if until <= readers.oldest {
            self.bytes = self.bytes.saturating_sub(cell.length());
            self.drop_value(cell.value);
            return NONE;
        }
        let older = if cell.version <= readers.oldest { NONE } else { older };
        if cell.version > readers.newest {
            self.bytes = self.bytes.saturating_sub(cell.length());
            self.drop_value(cell.value);
            return older;
        }
        // The one before is read until this one begins; those before that, until it begins.
        let before = self.older.get(older as usize).filter(|before| before.version <= readers.oldest);
        if let Some(stale) = before.map(|before| before.older).filter(|stale| *stale != NONE) {
            self.give_up(stale);
            if let Some(before) = self.older.get_mut(older as usize) {
                before.older = NONE;
            }
        }
        self.bytes += CELL;
        let cell = Cell { older, ..cell };
        let free = self.free.pop();
        match free.and_then(|place| Some((place, self.older.get_mut(place as usize)?))) {
            Some((place, free)) => {
                *free = cell;
                place
            }
            None => {
                self.older.push(cell);
                (self.older.len() - 1) as u32
            }
        }
    }

    /// Frees an earlier value and those before it.
    fn give_up(&mut self, mut place: u32) {
        while let Some(cell) = self.older.get_mut(place as usize) {
            let freed = CELL + cell.length();
            let value = std::mem::take(&mut cell.value);
            self.free.push(place);
            place = std::mem::replace(&mut cell.older, NONE);
            self.bytes = self.bytes.saturating_sub(freed);
            self.drop_value(value);
        }
    }

    fn drop_value(&mut self, value: Value) {
        if let Value::Short(room) = value {
            self.arena.free(room);
        }
    }
}

#[cfg(test)]
mod tests;
