//! The reads of a transaction: the values, so that no key is fetched twice, not even by two concurrent
//! readers, and the read conflicts.
//!
//! All reads of the library's transaction are snapshot reads; conflict ranges are kept here and handed over
//! at commit. So a transaction without writes pays nothing for them, and a key that is read often is passed
//! once.

use crate::store::key_after;
use crate::store::writes::{RANGE, conflict_size};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The longest page to remember: in rows, or in bytes of their keys and values.
const KEPT_ROWS: usize = 128;
const KEPT_BYTES: usize = 1 << 16;

/// A range read: its bounds, the most rows and bytes, and its direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) begin: Bytes,
    pub(super) end: Bytes,
    /// None: no limit.
    pub(super) limit: Option<usize>,
    /// 0: as many as the library chooses.
    pub(super) bytes: usize,
    pub(super) reverse: bool,
}

/// The snapshot's rows in a range, or in its first part.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) rows: Vec<(Bytes, Bytes)>,
    /// More rows may follow.
    pub(super) more: bool,
}

/// See the module. Keys are stored keys.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pages: BTreeMap<Ask, Page>,
    values: BTreeMap<Bytes, Option<Bytes>>,
    /// Begins and ends of ranges whose rows are all in `values`.
    covered: BTreeMap<Bytes, Bytes>,
    /// Keys that are being fetched. The holder of the lock fetches; the others then find the value.
    coming: BTreeMap<Bytes, Arc<Mutex<()>>>,
    points: BTreeSet<Bytes>,
    ranges: Vec<(Bytes, Bytes)>,
    size: usize,
}

impl Reads {
    /// The snapshot's value of `key`, if known.
    pub(super) fn value(&self, key: &[u8]) -> Option<Option<Bytes>> {
        match self.values.get(key) {
            Some(value) => Some(value.clone()),
            None => self.covered_from(key).filter(|end| key < &end[..]).map(|_| None),
        }
    }

    /// The end of the last completely read range that begins at or before `begin`.
    fn covered_from(&self, begin: &[u8]) -> Option<&Bytes> {
        let before = (Bound::Unbounded, Bound::Included(begin));
        self.covered.range::<[u8], _>(before).next_back().map(|(_, end)| end)
    }

    /// The lock under which `key` is fetched.
    pub(super) fn turn(&mut self, key: &Bytes) -> Arc<Mutex<()>> {
        self.coming.entry(key.clone()).or_default().clone()
    }
    /// Remembers the snapshot's value.
    pub(super) fn fetched(&mut self, key: Bytes, value: Option<Bytes>) {
        self.coming.remove(&key);
        self.values.insert(key, value);
    }
    /// The result of an equal range read, or of a part of a range whose rows are known.
    pub(super) fn page(&self, ask: &Ask) -> Option<Page> {
        self.pages.get(ask).cloned().or_else(|| self.part(ask))
    }

    /// What is known to be the beginning of a range is an answer if it has as many rows as are asked for.
    fn part(&self, ask: &Ask) -> Option<Page> {
        let covered = self.covered_from(&ask.begin).filter(|end| ask.begin < **end && !ask.reverse)?;
        let is_whole = ask.end <= *covered;
        let end = if is_whole { &ask.end } else { covered };
        let inside = self.values.range(ask.begin.clone()..end.clone());
        let mut inside = inside.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        let most = ask.limit.unwrap_or(usize::MAX);
        let rows: Vec<_> = inside.by_ref().take(most).collect();
        let more = !is_whole || inside.next().is_some();
        (is_whole || rows.len() == most).then_some(Page { rows, more })
    }

    /// Remembers a range read's result if it is small: a long scan is not repeated. What was read completely,
    /// be it the first part of the range, also answers point reads in it.
    pub(super) fn fetched_page(&mut self, ask: Ask, page: &Page) {
        let size = || page.rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if page.rows.len() > KEPT_ROWS && size() > KEPT_BYTES {
            return;
        }
        let end = match page.rows.last() {
            _ if !page.more => Some(ask.end.clone()),
            Some((last, _)) if !ask.reverse => Some(key_after(last).into()),
            _ => None,
        };
        if let Some(whole) = end {
            self.values.extend(page.rows.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
            let end = self.covered.entry(ask.begin.clone()).or_default();
            *end = whole.max(std::mem::take(end));
        }
        self.pages.insert(ask, page.clone());
    }
    /// Adds a read conflict on `key`.
    pub(super) fn point(&mut self, key: &Bytes) {
        if self.points.insert(key.clone()) {
            self.size += conflict_size(key.len());
        }
    }
    /// Adds a read conflict on `begin..end`.
    pub(super) fn range(&mut self, begin: Bytes, end: Bytes) {
        if end.split_last() == Some((&0, &begin[..])) {
            return self.point(&begin);
        }
        self.size += begin.len() + end.len() + RANGE;
        self.ranges.push((begin, end));
    }
    /// The keys with read conflicts.
    pub(super) fn points(&self) -> impl Iterator<Item = &Bytes> {
        self.points.iter()
    }
    /// The ranges with read conflicts.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.ranges.iter()
    }
    /// Bytes of all read conflicts.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(begin: &str, end: &str, limit: Option<usize>) -> Ask {
        let [begin, end] = [begin, end].map(|key| Bytes::copy_from_slice(key.as_bytes()));
        Ask { begin, end, limit, bytes: 0, reverse: false }
    }

    #[test]
    fn a_page_is_answered_by_the_known_beginning_of_its_range() {
        let row = |key: &'static str| (Bytes::from(key), Bytes::from("value"));
        let mut reads = Reads::default();
        let rows = vec![row("b"), row("c"), row("e")];
        reads.fetched_page(ask("a", "z", Some(3)), &Page { rows, more: true });
        let found = |ask: Ask| {
            let page = reads.page(&ask)?;
            let keys: Vec<String> =
                page.rows.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
            Some((keys.concat(), page.more))
        };
        let known = |keys: &str, more| Some((keys.to_owned(), more));
        assert_eq!(found(ask("b", "z", Some(2))), known("bc", true));
        assert_eq!(found(ask("bb", "z", Some(2))), known("ce", true));
        assert_eq!(found(ask("a", "e", None)), known("bc", false));
        assert_eq!(found(ask("a", "e", Some(2))), known("bc", false));
        assert_eq!(found(ask("c", "c\\0", Some(2))), known("c", false));
        for unknown in
            [ask("c", "z", Some(3)), ask("a", "z", None), ask("f", "z", Some(1)), ask("A", "c", Some(1))]
        {
            assert_eq!(found(unknown.clone()), None, "{unknown:?}");
        }
        assert_eq!(found(Ask { reverse: true, ..ask("a", "e", Some(1)) }), None);
    }
}
