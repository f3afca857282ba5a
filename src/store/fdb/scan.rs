//! Range reads: pages of the snapshot, overlaid with the transaction's own effects.
//!
//! Bounds are counted here, over keys without the namespace's prefix and after own writes, so that they mean
//! the same on every engine; the library counts more bytes per pair. Rows that it returns beyond a bound are
//! dropped, and conflict with nothing.

use super::count;
use super::reads::{Ask, Page};
use super::tx::FdbTx;
use crate::error::{StoreError, StoreResult};
use crate::store::emptied::Emptied;
use crate::store::writes::{Effect, Writes, apply_all};
use crate::store::{Pairs, RangeOptions, Read, key_after};
use bytes::Bytes;
use foundationdb::future::FdbValues;
use foundationdb::options::StreamingMode;
use foundationdb::{KeySelector, RangeOption};
use std::collections::BTreeMap;

/// Bytes of a page if the caller sets no limit: the most that the library returns in the mode
/// `StreamingMode::WantAll`.
const PAGE: usize = 80_000;

impl FdbTx {
    pub(in crate::store) async fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        read: Read,
    ) -> StoreResult<Pairs> {
        self.reading()?;
        if begin >= end {
            return Ok(Pairs::default());
        }
        let whole = (self.core.stored(begin), self.core.stored(end));
        let mut out = Collector {
            prefix: self.core.prefix.len(),
            bounds: Bounds::new(options),
            pairs: Pairs::default(),
        };
        let (begin, end) = self.state.lock().writes.trimmed(&whole.0, &whole.1, options.reverse);
        if begin < end {
            let (mut from, mut to) = (begin.clone(), end.clone());
            while from < to && !out.pairs.more {
                let stretch = match options.limit {
                    1..=Emptied::SHORT => self.state.lock().writes.stretch(&from, &to, options.reverse),
                    // Of a page of many rows, a round trip is worth more than those that are read in vain.
                    _ => (from.clone(), to.clone()),
                };
                self.collect(stretch.clone(), &mut out).await?;
                (from, to) = if options.reverse { (from, stretch.0) } else { (stretch.1, to) };
                (from, to) = self.state.lock().writes.trimmed(&from, &to, options.reverse);
            }
            let found = out.pairs.pairs.iter().map(|(key, _)| self.core.stored(key));
            self.state.lock().writes.has_read((&begin, &end), found, !out.pairs.more, options.reverse);
        }
        let Collector { pairs, .. } = out;
        if read == Read::Serializable {
            let last = pairs.pairs.last().filter(|_| pairs.more).map(|(key, _)| self.core.stored(key));
            let (begin, end) = up_to(whole, last, options.reverse);
            self.state.lock().reads.range(begin, end);
        }
        Ok(pairs)
    }

    /// Remembers none of the rows. Ranges with own writes are collected first.
    pub(in crate::store) async fn visit(
        &self,
        begin: &[u8],
        end: &[u8],
        options: RangeOptions,
        each: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StoreResult<bool> {
        let mut rest = (self.core.stored(begin), self.core.stored(end));
        if begin >= end || touches(&self.state.lock().writes, &rest) {
            let page = self.get_range(begin, end, options, Read::Snapshot).await?;
            page.pairs.iter().for_each(|(key, value)| each(key, value));
            return Ok(page.more);
        }
        let mut bounds = Bounds::new(options);
        loop {
            let found = self.fetch(&bounds.ask(rest.clone())).await?;
            for row in &found {
                let key = row.key().get(self.core.prefix.len()..).unwrap_or_default();
                each(key, row.value());
                if bounds.reached_by(key, row.value()) {
                    return Ok(true);
                }
            }
            if !found.more() {
                return Ok(false);
            }
            let last = found.iter().last().ok_or_else(no_progress)?;
            rest = behind(rest, last.key(), options.reverse);
        }
    }

    async fn collect(&self, mut rest: (Bytes, Bytes), out: &mut Collector) -> StoreResult<()> {
        loop {
            let Page { rows, more } = self.page(out.bounds.ask(rest.clone())).await?;
            let last = rows.last().map(|(key, _)| key.clone()).filter(|_| more);
            if more && last.is_none() {
                return Err(no_progress());
            }
            let reverse = out.bounds.options.reverse;
            let part = up_to(rest.clone(), last.clone(), reverse);
            let full = self.overlay(rows, &part, out);
            let Some(last) = last.filter(|_| !full) else { return Ok(()) };
            rest = behind(rest, &last, reverse);
        }
    }

    async fn page(&self, ask: Ask) -> StoreResult<Page> {
        if let Some(page) = self.state.lock().reads.page(&ask) {
            return Ok(page);
        }
        let found = self.fetch(&ask).await?;
        let page = Page { rows: rows(&found), more: found.more() };
        self.state.lock().reads.fetched_page(ask, &page);
        Ok(page)
    }

    async fn fetch(&self, ask: &Ask) -> StoreResult<FdbValues> {
        let mut option = RangeOption::from((
            KeySelector::first_greater_or_equal(&ask.begin[..]),
            KeySelector::first_greater_or_equal(&ask.end[..]),
        ));
        (option.limit, option.target_bytes, option.reverse) = (ask.limit, ask.bytes, ask.reverse);
        option.mode = if ask.bytes > PAGE { StreamingMode::Exact } else { StreamingMode::WantAll };
        count(&self.core.counters.ranges);
        self.reading()?.get_range(&option, 1, true).await.map_err(|e| self.read_failed(e))
    }

    /// Adds `rows`, which are all rows of the snapshot in `part`, overlaid with own writes. True if a bound
    /// is reached.
    fn overlay(&self, rows: Vec<(Bytes, Bytes)>, part: &(Bytes, Bytes), out: &mut Collector) -> bool {
        let state = self.state.lock();
        if !touches(&state.writes, part) {
            drop(state);
            return rows.into_iter().any(|(key, value)| out.push(&key, value));
        }
        let merged = merged(rows, &state.writes, part);
        drop(state);
        match out.bounds.options.reverse {
            false => merged.into_iter().any(|(key, value)| out.push(&key, value)),
            true => merged.into_iter().rev().any(|(key, value)| out.push(&key, value)),
        }
    }
}

fn touches(writes: &Writes, (begin, end): &(Bytes, Bytes)) -> bool {
    writes.between(begin, end).next().is_some() || writes.cleared.iter().any(|(b, e)| b < end && begin < e)
}

fn merged(
    rows: Vec<(Bytes, Bytes)>,
    writes: &Writes,
    (begin, end): &(Bytes, Bytes),
) -> BTreeMap<Bytes, Bytes> {
    let kept = rows.into_iter().filter(|(key, _)| writes.cleared.covering(key).is_none());
    let mut merged: BTreeMap<Bytes, Bytes> = kept.collect();
    for (key, op) in writes.between(begin, end) {
        let base = merged.remove(key);
        let value = match &op.effect {
            Effect::Set(value) => Some(value.clone()),
            Effect::Clear => None,
            Effect::Atomic(ops) => apply_all(base, ops),
        };
        if let Some(value) = value {
            merged.insert(key.clone(), value);
        }
    }
    merged
}

/// The part of a range that a read covered if it stopped at `last`.
fn up_to((begin, end): (Bytes, Bytes), last: Option<Bytes>, reverse: bool) -> (Bytes, Bytes) {
    match last {
        Some(last) if reverse => (last, end),
        Some(last) => (begin, key_after(&last).into()),
        None => (begin, end),
    }
}

/// A page's keys and values, copied into one buffer.
fn rows(page: &FdbValues) -> Vec<(Bytes, Bytes)> {
    let size = page.iter().map(|row| row.key().len() + row.value().len()).sum();
    let mut buffer = Vec::with_capacity(size);
    for row in page {
        buffer.extend_from_slice(row.key());
        buffer.extend_from_slice(row.value());
    }
    let mut rest = Bytes::from(buffer);
    let take = |row: &foundationdb::future::FdbKeyValue| {
        (rest.split_to(row.key().len()), rest.split_to(row.value().len()))
    };
    page.iter().map(take).collect()
}

/// The rest of a range after `last`.
fn behind((begin, end): (Bytes, Bytes), last: &[u8], reverse: bool) -> (Bytes, Bytes) {
    match reverse {
        true => (begin, Bytes::copy_from_slice(last)),
        false => (key_after(last).into(), end),
    }
}

fn no_progress() -> StoreError {
    StoreError::Unavailable("FoundationDB returned an empty page that is not the last".into())
}

/// The bounds of a range read, and how much it has returned.
struct Bounds {
    options: RangeOptions,
    rows: usize,
    bytes: usize,
}

impl Bounds {
    fn new(options: RangeOptions) -> Self {
        Bounds { options, rows: 0, bytes: 0 }
    }
    /// The read for the rest of the range.
    fn ask(&self, (begin, end): (Bytes, Bytes)) -> Ask {
        let RangeOptions { limit, bytes, reverse } = self.options;
        let left = bytes.saturating_sub(self.bytes);
        // An eighth more, because the library adds to the size of each pair: rather a pair too many than
        // another round trip.
        let bytes = if bytes > 0 { left + left / 8 + 64 } else { 0 };
        let limit = Some(limit.saturating_sub(self.rows)).filter(|n| *n > 0);
        Ask { begin, end, limit, bytes, reverse }
    }
    /// Counts a pair. True if it reaches a bound.
    fn reached_by(&mut self, key: &[u8], value: &[u8]) -> bool {
        let RangeOptions { limit, bytes, .. } = self.options;
        self.rows += 1;
        self.bytes += key.len() + value.len();
        (limit > 0 && self.rows >= limit) || (bytes > 0 && self.bytes >= bytes)
    }
}

struct Collector {
    prefix: usize,
    bounds: Bounds,
    pairs: Pairs,
}

impl Collector {
    /// True if a bound is reached.
    fn push(&mut self, stored: &Bytes, value: Bytes) -> bool {
        let key = stored.slice(self.prefix.min(stored.len())..);
        self.pairs.more = self.bounds.reached_by(&key, &value);
        self.pairs.pairs.push((key, value));
        self.pairs.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::writes::AtomicKind;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn part(begin: &str, end: &str) -> (Bytes, Bytes) {
        (bytes(begin), bytes(end))
    }

    fn written() -> Writes {
        let mut writes = Writes::default();
        writes.clear_range(bytes("d"), bytes("g")).unwrap();
        writes.set(bytes("e"), bytes("own"), true).unwrap();
        writes.clear(bytes("b")).unwrap();
        writes.atomic(bytes("c"), AtomicKind::Add, Bytes::from_static(&[1])).unwrap();
        writes
    }

    #[test]
    fn own_writes_lie_over_what_is_stored() {
        let stored = ["a", "b", "c", "d", "e", "f", "g"].map(|key| (bytes(key), Bytes::from_static(&[7])));
        let rows = merged(stored.into(), &written(), &part("a", "z"));
        let keys: Vec<_> = rows.keys().cloned().collect();
        assert_eq!(keys, ["a", "c", "e", "g"].map(bytes));
        assert_eq!([&rows[&bytes("c")], &rows[&bytes("e")]], [&Bytes::from_static(&[8]), &bytes("own")]);
        let none = merged(Vec::new(), &written(), &part("d", "e"));
        assert!(none.is_empty(), "what was written elsewhere is not in this part");
    }

    #[test]
    fn a_part_is_touched_by_what_was_written_or_cleared_in_it() {
        let touched = [("a", "b"), ("b", "c"), ("c", "d"), ("f", "g"), ("g", "z"), ("e\0", "f")];
        let touched = touched.map(|(begin, end)| touches(&written(), &part(begin, end)));
        assert_eq!(touched, [false, true, true, true, false, true]);
    }

    #[test]
    fn a_read_goes_on_where_it_stopped() {
        let whole = || part("a", "z");
        assert_eq!(up_to(whole(), None, false), whole());
        assert_eq!(up_to(whole(), Some(bytes("m")), false), part("a", "m\0"));
        assert_eq!(up_to(whole(), Some(bytes("m")), true), part("m", "z"));
        assert_eq!(behind(whole(), b"m", false), part("m\0", "z"));
        assert_eq!(behind(whole(), b"m", true), part("a", "m"));
    }

    #[test]
    fn bounds_count_rows_and_bytes_and_what_is_left() {
        let mut bounds = Bounds::new(RangeOptions { limit: 3, bytes: 100, reverse: false });
        assert!(!bounds.reached_by(b"key", &[0; 37]));
        let ask = bounds.ask(part("a", "z"));
        assert_eq!((ask.limit, ask.bytes), (Some(2), 60 + 7 + 64));
        assert!(!bounds.reached_by(b"k", b""));
        assert!(bounds.reached_by(b"k", b""), "three rows");
        let mut bounds = Bounds::new(RangeOptions { limit: 0, bytes: 40, reverse: true });
        assert!(bounds.reached_by(b"key", &[0; 37]), "forty bytes");
        let all = Bounds::new(RangeOptions::default()).ask(part("a", "z"));
        assert_eq!((all.limit, all.bytes, all.reverse), (None, 0, false));
    }
}
