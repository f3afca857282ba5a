//! Rows of a range in order: those of recent layers, and under them RocksDB's.
//!
//! A key is shown as the newest layer that knows it shows it; what a layer removed or cleared is not
//! shown from below. Layers are read in pages, so that no lock is held between two rows. A long run of removed rows is
//! walked over once: see `gaps.rs`.

use super::cleared::Cleared;
use super::gaps::Gaps;
use super::pages::Cursor;
use super::recent::{Layer, Shown};
use crate::store::{Version, key_after};
use bytes::Bytes;
use rocksdb::DBRawIterator;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound::{self, Excluded, Included};
use std::sync::Arc;

/// Rows of the first page of a layer, and of the largest; each is twice as large as the one before.
const FIRST_PAGE: usize = 16;
const LARGEST_PAGE: usize = 512;
/// A run of so many removed rows is recorded as a gap. Gaps are looked for at each [`LOOKS`]-th row of a run; to jump
/// over one counts as [`JUMP`] rows, so that adjacent ones are joined.
const LONG: usize = 32;
const LOOKS: usize = 8;
const JUMP: usize = 16;

/// The rows that a reader wants: those in `begin..end`, as of `version`.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) begin: Bytes,
    pub(super) end: Bytes,
    pub(super) version: Version,
    pub(super) reverse: bool,
}

impl Part {
    pub(super) fn new(begin: &[u8], end: &[u8], version: Version, reverse: bool) -> Self {
        let [begin, end] = [begin, end].map(Bytes::copy_from_slice);
        Part { begin, end, version, reverse }
    }

    /// Without the gap that the read would begin in.
    pub(super) fn trimmed(mut self, gaps: &Gaps) -> Self {
        if self.reverse {
            if let Some((begin, _)) = gaps.before(&self.end, self.version) {
                self.end = begin.max(self.begin.clone());
            }
        } else if let Some((_, end)) = gaps.at(&self.begin, self.version) {
            self.begin = end.min(self.end.clone());
        }
        self
    }
}

/// Where RocksDB's rows come from.
pub(super) enum Under<'a> {
    Engine(DBRawIterator<'a>),
    Page(Cursor),
}

impl Under<'_> {
    fn seek_to_first(&mut self) {
        match self {
            Under::Engine(rows) => rows.seek_to_first(),
            Under::Page(rows) => rows.seek_to_first(),
        }
    }
    fn seek_to_last(&mut self) {
        match self {
            Under::Engine(rows) => rows.seek_to_last(),
            Under::Page(rows) => rows.seek_to_last(),
        }
    }
    fn seek(&mut self, key: &[u8]) {
        match self {
            Under::Engine(rows) => rows.seek(key),
            Under::Page(rows) => rows.seek(key),
        }
    }
    fn seek_for_prev(&mut self, key: &[u8]) {
        match self {
            Under::Engine(rows) => rows.seek_for_prev(key),
            Under::Page(rows) => rows.seek_for_prev(key),
        }
    }
    fn next(&mut self) {
        match self {
            Under::Engine(rows) => rows.next(),
            Under::Page(rows) => rows.next(),
        }
    }
    fn prev(&mut self) {
        match self {
            Under::Engine(rows) => rows.prev(),
            Under::Page(rows) => rows.prev(),
        }
    }
    fn item(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Under::Engine(rows) => rows.item(),
            Under::Page(rows) => rows.item(),
        }
    }
    fn key(&self) -> Option<&[u8]> {
        self.item().map(|(key, _)| key)
    }
    fn valid(&self) -> bool {
        match self {
            Under::Engine(rows) => rows.valid(),
            Under::Page(rows) => rows.item().is_some(),
        }
    }
    fn status(&self) -> Result<(), rocksdb::Error> {
        match self {
            Under::Engine(rows) => rows.status(),
            Under::Page(_) => Ok(()),
        }
    }
}

/// An iterator over the rows of a range. See the module.
pub(super) struct Rows<'a> {
    base: Under<'a>,
    /// Whether RocksDB has no more rows. It is not asked again then.
    is_at_end: bool,
    recent: Vec<Source>,
    part: Part,
    gaps: &'a Gaps,
    run: Run,
    head: Head,
    /// How many more rows that are not shown may follow each other.
    patience: usize,
}

/// The rows that were walked over since the last one that is shown.
#[derive(Default)]
struct Run {
    first: Option<Bytes>,
    /// Whether a row of the part was shown before them.
    is_inside: bool,
    walked: usize,
    /// [`Run::walked`], and the gaps in the run.
    weight: usize,
}

/// Where the current row is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Base,
    /// At the front of the page of this source.
    Recent(usize),
    End,
}

/// A layer, and the part of it that is being read.
struct Source {
    layer: Arc<Layer>,
    version: Version,
    /// What it clears of the whole range: apart and in order.
    cleared: Vec<Cleared>,
    page: VecDeque<Shown>,
    /// The rest of the range behind the page.
    rest: (Bound<Bytes>, Bound<Bytes>),
    more: bool,
    most: usize,
    /// Its rows that were not shown so far.
    walked: usize,
}

impl<'a> Rows<'a> {
    /// The rows of a part. `base` is bounded by it; `layers`: the newest first. It ends after `patience` rows of recent
    /// layers that are not shown.
    pub(super) fn open(
        mut base: Under<'a>,
        layers: &[Arc<Layer>],
        part: Part,
        gaps: &'a Gaps,
        patience: usize,
    ) -> Self {
        if part.reverse {
            base.seek_to_last()
        } else {
            base.seek_to_first()
        }
        let used = layers.iter().filter(|layer| layer.is_used());
        let recent = used.map(|layer| Source::new(layer.clone(), &part)).collect();
        let (run, head) = (Run::default(), Head::End);
        let mut rows = Rows { base, is_at_end: false, recent, part, gaps, run, head, patience };
        rows.settle();
        rows
    }

    /// The current row; None at the end, or after an error.
    pub(super) fn item(&self) -> Option<(&[u8], &[u8])> {
        match self.head {
            Head::Base => self.base.item(),
            Head::Recent(n) => {
                let (key, value) = self.recent.get(n)?.page.front()?;
                Some((key, value.as_ref()?))
            }
            Head::End => None,
        }
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.item().map(|(key, _)| key)
    }

    /// Goes to the next row.
    pub(super) fn step(&mut self) {
        match self.head {
            Head::Base => self.step_base(),
            Head::Recent(n) => self.leave(n),
            Head::End => return,
        }
        self.settle();
    }

    /// Moves out of `begin..end`, in which the current row is.
    pub(super) fn jump(&mut self, begin: &[u8], end: &[u8]) {
        self.jump_base(begin, end);
        self.jump_recent(begin, end);
        self.settle();
    }

    /// Whether it ended because it was out of patience.
    pub(super) fn gave_up(&self) -> bool {
        self.patience == 0
    }

    /// What went wrong, if a row could not be read.
    pub(super) fn status(&self) -> Result<(), rocksdb::Error> {
        self.base.status()
    }

    fn step_base(&mut self) {
        if self.part.reverse { self.base.prev() } else { self.base.next() }
    }

    fn jump_base(&mut self, begin: &[u8], end: &[u8]) {
        if !self.base.valid() {
            return;
        }
        if !self.part.reverse {
            return self.base.seek(end);
        }
        self.base.seek_for_prev(begin);
        if self.base.key() == Some(begin) {
            self.base.prev();
        }
    }

    fn jump_recent(&mut self, begin: &[u8], end: &[u8]) {
        let reverse = self.part.reverse;
        self.recent.iter_mut().for_each(|source| source.jump(begin, end, reverse));
    }

    /// Finds the next row to show, from the current positions on.
    fn settle(&mut self) {
        self.find();
        if self.run.walked > 0 {
            if self.run.weight >= LONG && !self.gave_up() && self.base.status().is_ok() {
                self.record_run();
            }
            self.run = Run::default();
        }
        self.run.is_inside = true;
    }

    fn find(&mut self) {
        if self.recent.is_empty() {
            self.head = if self.base.valid() { Head::Base } else { Head::End };
            return;
        }
        loop {
            let n = self.first_recent();
            self.skip_cleared();
            let base = if self.is_at_end { None } else { self.base.key() };
            if base.is_none() && !self.is_at_end {
                // After an error there may be rows of RocksDB that are not seen.
                if self.base.status().is_err() {
                    self.head = Head::End;
                    return;
                }
                self.is_at_end = true;
            }
            let front = n.and_then(|n| Some((n, self.recent.get(n)?.page.front()?)));
            let Some((n, (key, value))) = front else {
                self.head = if base.is_some() { Head::Base } else { Head::End };
                return;
            };
            let order = match base {
                Some(base) if self.part.reverse => base.cmp(key),
                Some(base) => key[..].cmp(base),
                None => Ordering::Less,
            };
            let shadowed = self.recent.iter().take(n).any(|newer| newer.clears(key));
            let shows = value.is_some() && !shadowed;
            match order {
                Ordering::Greater => {
                    self.head = Head::Base;
                    return;
                }
                Ordering::Equal => self.step_base(),
                Ordering::Less => {}
            }
            if shows {
                self.head = Head::Recent(n);
                return;
            }
            self.walk_over(n);
            self.patience -= 1;
            if self.patience == 0 {
                self.head = Head::End;
                return;
            }
        }
    }

    /// Moves RocksDB's position out of cleared ranges.
    fn skip_cleared(&mut self) {
        if self.is_at_end || self.recent.iter().all(|source| source.cleared.is_empty()) {
            return;
        }
        while let Some(key) = self.base.key() {
            let cleared = self.recent.iter().find_map(|source| source.clear_of(key)).cloned();
            let Some(Cleared { begin, end, .. }) = cleared else { return };
            self.jump_base(&begin, &end);
        }
    }

    /// The source whose front comes first; the newest of those of the same key.
    fn first_recent(&mut self) -> Option<usize> {
        let reverse = self.part.reverse;
        self.recent.iter_mut().for_each(|source| source.fill(reverse));
        let fronts = self.recent.iter().enumerate().filter_map(|(n, source)| Some((n, source.front()?)));
        let first =
            fronts.min_by(|(_, one), (_, other)| if reverse { other.cmp(one) } else { one.cmp(other) });
        first.map(|(n, _)| n)
    }

    /// Goes behind the front of a source, which is not shown.
    fn walk_over(&mut self, n: usize) {
        let Some(source) = self.recent.get_mut(n) else { return };
        source.walked += 1;
        source.layer.walked(source.walked);
        let Some(key) = source.front().cloned() else { return };
        self.leave(n);
        let run = &mut self.run;
        run.first.get_or_insert_with(|| key.clone());
        run.walked += 1;
        run.weight += 1;
        if !run.walked.is_multiple_of(LOOKS) {
            return;
        }
        let (gaps, version) = (self.gaps, self.part.version);
        let behind =
            if self.part.reverse { gaps.before(&key, version) } else { gaps.at(&key_after(&key), version) };
        if let Some((begin, end)) = behind {
            self.run.weight += JUMP;
            self.jump_recent(&begin, &end);
            if self.base.key().is_some_and(|at| begin[..] <= *at && *at < end[..]) {
                self.jump_base(&begin, &end);
            }
        }
    }

    /// Records the run before the current position.
    fn record_run(&self) {
        let Part { begin, end, version, reverse } = &self.part;
        let (next, first) = (self.key(), self.run.first.as_deref().filter(|_| self.run.is_inside));
        if *reverse {
            let begin = next.map_or_else(|| begin.to_vec(), key_after);
            let end = first.map_or_else(|| end.to_vec(), key_after);
            self.gaps.record(&begin, &end, *version);
        } else {
            self.gaps.record(first.unwrap_or(begin), next.unwrap_or(end), *version);
        }
    }

    /// Goes behind the front of a source, in all sources that have its key.
    fn leave(&mut self, n: usize) {
        let Some((key, _)) = self.recent.get_mut(n).and_then(|source| source.page.pop_front()) else {
            return;
        };
        for (_, source) in self.recent.iter_mut().enumerate().filter(|(other, _)| *other != n) {
            if source.front() == Some(&key) {
                source.page.pop_front();
            }
        }
    }
}

impl Source {
    fn new(layer: Arc<Layer>, Part { begin, end, version, .. }: &Part) -> Self {
        let version = *version;
        let cleared = layer.cleared(begin, end, version);
        let rest = (Included(begin.clone()), Excluded(end.clone()));
        Source {
            layer,
            version,
            cleared,
            page: VecDeque::new(),
            rest,
            more: true,
            most: FIRST_PAGE,
            walked: 0,
        }
    }

    fn clears(&self, key: &[u8]) -> bool {
        self.clear_of(key).is_some()
    }

    fn clear_of(&self, key: &[u8]) -> Option<&Cleared> {
        let before = self.cleared.partition_point(|c| c.begin[..] <= *key);
        self.cleared.get(before.checked_sub(1)?).filter(|c| c.covers(key))
    }

    /// The key at its position, once the page is filled.
    fn front(&self) -> Option<&Bytes> {
        self.page.front().map(|(key, _)| key)
    }

    /// Reads on if the page is empty.
    fn fill(&mut self, reverse: bool) {
        while self.page.is_empty() && self.more {
            let (from, to) = &self.rest;
            let range = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
            let last = self.layer.page(range, reverse, self.version, self.most, &mut self.page);
            self.more = last.is_some();
            if let Some(last) = last {
                let bound = if reverse { &mut self.rest.1 } else { &mut self.rest.0 };
                *bound = Excluded(last);
            }
            self.most = (2 * self.most).min(LARGEST_PAGE);
        }
    }

    fn jump(&mut self, begin: &[u8], end: &[u8], reverse: bool) {
        let is_inside = |key: &[u8]| if reverse { key >= begin } else { key < end };
        while self.page.front().is_some_and(|(key, _)| is_inside(key)) {
            self.page.pop_front();
        }
        if !self.page.is_empty() {
            return;
        }
        // The rest may begin inside, too.
        let bound = if reverse { &mut self.rest.1 } else { &mut self.rest.0 };
        let (Included(at) | Excluded(at)) = &*bound else { return };
        let is_before = if reverse { at[..] > *begin } else { at[..] < *end };
        if is_before {
            *bound = if reverse {
                Excluded(Bytes::copy_from_slice(begin))
            } else {
                Included(Bytes::copy_from_slice(end))
            };
        }
    }
}

#[cfg(test)]
mod tests;
