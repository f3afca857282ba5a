//! Short ranges of RocksDB's rows that are read again and again, kept in memory: the counts of sorted sets, for one.
//!
//! They belong to one snapshot of RocksDB ([`super::snapshot::Layers`]), and go with it. So they are never out of
//! date: what was committed since is in recent layers, which are merged over a page as over RocksDB (`merged.rs`).
//!
//! A subspace, which is all rows whose keys begin alike, is kept for those who look for single rows in it: mostly for rows that do not exist.
//! The value cache would have to hold each of these.
//!
//! A range is kept from the second time that it is asked for. Ranges that are not asked for any more make room for others.

use super::directory::read_error;
use super::layout;
use crate::error::StoreResult;
use crate::store::halves::Halves;
use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{DBRawIterator, ErrorKind, ReadOptions};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of each of the two halves: what was asked for lately, and what was asked for before that.
const HALF: usize = 8 << 20;
/// The same for subspaces.
const HALF_SUBSPACES: usize = 4 << 20;
/// The most bytes of a page. For more, reading takes much longer than the search for the first row, which a page saves.
pub(super) const MAX_PAGE: usize = 32 << 10;
/// The same for a subspace, which is read for the sake of one row.
pub(super) const MAX_SUBSPACE: usize = 4 << 10;
/// The most removed rows between two rows of a page.
const MOST_REMOVED: u64 = 64;
/// Approximate bytes of a page besides its rows.
const OVERHEAD: usize = 256;

/// The rows of a range, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    bytes: Vec<u8>,
    /// Where the key and the value of each row end in `bytes`.
    ends: Vec<(u32, u32)>,
}

impl Page {
    /// For the iterator of [`Page::read`]: it gives up among removed rows, which other reads jump over (`gaps.rs`).
    pub(super) fn options() -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_max_skippable_internal_keys(MOST_REMOVED);
        options
    }

    /// All rows that an iterator finds with [`Page::options`]. None: they are more than `most` bytes, too many to keep.
    pub(super) fn read(mut rows: DBRawIterator<'_>, most: usize) -> StoreResult<Option<Self>> {
        let mut page = Page::default();
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            page.push(key, value);
            if page.held() > most {
                return Ok(None);
            }
            rows.next();
        }
        match rows.status() {
            Err(e) if e.kind() == ErrorKind::Incomplete => Ok(None),
            Err(e) => Err(read_error(e)),
            Ok(()) => {
                page.bytes.shrink_to_fit();
                page.ends.shrink_to_fit();
                Ok(Some(page))
            }
        }
    }

    /// Adds a row behind the others.
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end_of_key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((end_of_key, self.bytes.len() as u32));
    }

    /// Bytes of memory that it needs.
    fn held(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<(u32, u32)>()
    }

    fn row(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let (key, value) = *self.ends.get(at)?;
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let part = |from: u32, to: u32| self.bytes.get(from as usize..to as usize);
        Some((part(begin, key)?, part(key, value)?))
    }

    /// The value under a key.
    pub(super) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.row(self.before(key)).filter(|(at, _)| *at == key).map(|(_, value)| value)
    }

    /// The number of rows with keys before this one.
    fn before(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.row(middle).is_some_and(|(at, _)| at < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// A place among the rows of a page, moved as an iterator of RocksDB.
#[derive(Debug)]
pub(super) struct Cursor {
    page: Arc<Page>,
    /// None: before the first row.
    at: Option<usize>,
}

impl Cursor {
    pub(super) fn new(page: Arc<Page>) -> Self {
        Cursor { page, at: None }
    }

    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.page.row(self.at?)
    }

    pub(super) fn seek_to_first(&mut self) {
        self.at = Some(0);
    }

    pub(super) fn seek_to_last(&mut self) {
        self.at = self.page.ends.len().checked_sub(1);
    }

    /// To the first row at this key or behind it.
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.at = Some(self.page.before(key));
    }

    /// To the last row at this key or before it.
    pub(super) fn seek_for_prev(&mut self, key: &[u8]) {
        let before = self.page.before(key);
        let is_there = self.page.row(before).is_some_and(|(at, _)| at == key);
        self.at = if is_there { Some(before) } else { before.checked_sub(1) };
    }

    pub(super) fn next(&mut self) {
        self.at = self.at.map(|at| at + 1);
    }

    pub(super) fn prev(&mut self) {
        self.at = self.at.and_then(|at| at.checked_sub(1));
    }
}

/// What is read: begin and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    begin: Bytes,
    end: Bytes,
    hash: u64,
}

impl Range {
    pub(super) fn new(begin: &Bytes, end: &Bytes) -> Self {
        let hash = layout::hash(begin) ^ layout::hash(end).rotate_left(1);
        Range { begin: begin.clone(), end: end.clone(), hash }
    }
}

impl Hash for Range {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A page of a range. None: its rows are too many to keep.
type Kept = Option<Arc<Page>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Pages {
    ranges: Mutex<Halves<Range, Kept>>,
    /// By what their keys begin with.
    subspaces: Mutex<Halves<Box<[u8]>, Kept>>,
}

impl Default for Pages {
    fn default() -> Self {
        Pages { ranges: Mutex::new(Halves::new(HALF)), subspaces: Mutex::new(Halves::new(HALF_SUBSPACES)) }
    }
}

/// What is known of a range.
pub(super) enum Known {
    Kept(Kept),
    /// It was asked for lately: [`Pages::keep`] it.
    Wanted,
    Unknown,
}

impl Pages {
    pub(super) fn find(&self, range: &Range) -> Known {
        find(&self.ranges, range, range.hash)
    }

    pub(super) fn keep(&self, range: Range, page: Option<Page>) -> Kept {
        let bytes = range.begin.len() + range.end.len();
        keep(&self.ranges, range, bytes, page)
    }

    /// As [`Pages::find`], of the rows whose keys begin with `prefix`.
    pub(super) fn find_subspace(&self, prefix: &[u8]) -> Known {
        find(&self.subspaces, prefix, layout::hash(prefix))
    }

    pub(super) fn keep_subspace(&self, prefix: &[u8], page: Option<Page>) -> Kept {
        keep(&self.subspaces, prefix.into(), prefix.len(), page)
    }
}

fn find<K, Q>(halves: &Mutex<Halves<K, Kept>>, key: &Q, hash: u64) -> Known
where
    K: Eq + Hash + Borrow<Q>,
    Q: Eq + Hash + ?Sized,
{
    let mut halves = halves.lock();
    if let Some((found, outdated)) = halves.find(key) {
        drop(halves);
        drop(outdated);
        return Known::Kept(found);
    }
    if halves.was_asked(hash) { Known::Wanted } else { Known::Unknown }
}

/// `bytes`: of the key.
fn keep<K: Eq + Hash>(halves: &Mutex<Halves<K, Kept>>, key: K, bytes: usize, page: Option<Page>) -> Kept {
    let page = page.map(Arc::new);
    let held = page.as_ref().map_or(0, |page| page.held());
    let outdated = halves.lock().keep(key, page.clone(), bytes + OVERHEAD + held);
    drop(outdated);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocksdb::DB;

    fn page(keys: &[&str]) -> Arc<Page> {
        let mut page = Page::default();
        keys.iter().for_each(|key| page.push(key.as_bytes(), format!("of {key}").as_bytes()));
        Arc::new(page)
    }

    fn at(cursor: &Cursor) -> Option<&str> {
        let (key, value) = cursor.item()?;
        assert_eq!(value, [b"of ", key].concat());
        std::str::from_utf8(key).ok()
    }

    #[test]
    fn a_cursor_moves_as_an_iterator() {
        let mut cursor = Cursor::new(page(&["b", "d", "f"]));
        assert_eq!(at(&cursor), None);
        for (key, behind, before) in [
            ("a", Some("b"), None),
            ("b", Some("b"), Some("b")),
            ("c", Some("d"), Some("b")),
            ("f", Some("f"), Some("f")),
            ("g", None, Some("f")),
        ] {
            cursor.seek(key.as_bytes());
            assert_eq!(at(&cursor), behind, "{key}");
            cursor.seek_for_prev(key.as_bytes());
            assert_eq!(at(&cursor), before, "{key}");
            let value = cursor.page.value(key.as_bytes());
            assert_eq!(value.is_some(), behind == before, "{key}");
            assert!(value.is_none_or(|value| value == format!("of {key}").as_bytes()));
        }
        cursor.seek_to_first();
        let mut seen = Vec::new();
        while let Some(key) = at(&cursor) {
            seen.push(key.to_owned());
            cursor.next();
        }
        assert_eq!(seen, ["b", "d", "f"]);
        cursor.seek_to_last();
        assert_eq!(at(&cursor), Some("f"));
        (0..3).for_each(|_| cursor.prev());
        assert_eq!(at(&cursor), None);
        let mut empty = Cursor::new(page(&[]));
        empty.seek_to_last();
        assert_eq!(at(&empty), None);
        empty.seek_to_first();
        assert_eq!(at(&empty), None);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let pages = Pages::default();
        let range = |n: u64| Range::new(&Bytes::from(n.to_be_bytes().to_vec()), &Bytes::new());
        assert!(matches!(pages.find(&range(0)), Known::Unknown));
        assert!(matches!(pages.find(&range(0)), Known::Wanted));
        pages.keep(range(0), Arc::into_inner(page(&["a"])));
        let fit = HALF as u64 / MAX_PAGE as u64;
        for n in 1..=8 * fit {
            let mut long = Page::default();
            long.push(&[0; MAX_PAGE], b"");
            pages.keep(range(n), Some(long));
            assert!(matches!(pages.find(&range(0)), Known::Kept(Some(_))));
            let halves = pages.ranges.lock();
            assert!(halves.len() <= 2 * fit as usize + 1);
        }
        assert!(matches!(pages.find(&range(1)), Known::Unknown));
    }

    /// Hazard: a page of the front of a queue is read anew after each drain, over all that was taken from the queue.
    #[test]
    fn what_hides_among_removed_rows_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let db = DB::open_default(dir.path()).unwrap();
        let read = || Page::read(db.raw_iterator_opt(Page::options()), MAX_PAGE).unwrap();
        (0..100).for_each(|n: u8| db.put([n], b"x").unwrap());
        assert_eq!(read().unwrap().ends.len(), 100);
        for (removed, rows) in [(20, Some(80)), (90, None)] {
            (0..removed).for_each(|n: u8| db.delete([n]).unwrap());
            assert_eq!(read().map(|page| page.ends.len()), rows, "{removed}");
        }
    }

    #[test]
    fn what_is_too_long_is_remembered() {
        let (pages, range) = (Pages::default(), Range::new(&b"a"[..].into(), &b"b"[..].into()));
        (0..2).for_each(|_| assert_eq!(pages.keep(range.clone(), None), None));
        assert!(matches!(pages.find(&range), Known::Kept(None)));
        assert_eq!(pages.ranges.lock().young_bytes(), OVERHEAD + 2, "once");
    }
}
