//! Range reads: merges the snapshot's rows with the transaction's own effects, in either direction.
//!
//! A read stops as soon as it reaches a bound (`more`), without checking whether a row follows: the check
//! could walk over any number of tombstones, and would make the read conflict with rows that it does not
//! return.

use super::directory::read_error;
use super::front::Front;
use super::layout;
use super::merged::Rows;
use super::snapshot::SnapshotView;
use crate::error::StoreResult;
use crate::store::effects::Between;
use crate::store::writes::{Effect, Op, Writes, apply_all};
use crate::store::{Pairs, RangeOptions, key_after};
use bytes::Bytes;
use std::cmp::Ordering;

/// Returns the pairs in `begin..end` (stored keys, `begin < end`), with user keys.
pub(super) fn scan(
    view: &SnapshotView,
    own: Option<(&mut Writes, &mut Option<Box<Front>>)>,
    begin: &Bytes,
    end: &Bytes,
    options: RangeOptions,
) -> StoreResult<Pairs> {
    let reverse = options.reverse;
    let mut out = Collector { options, bytes: 0, pairs: Pairs::default() };
    let Some((writes, front)) = own else {
        let mut rows = view.rows(begin, end, reverse);
        copy(&mut rows, &mut out);
        rows.status().map_err(read_error)?;
        return Ok(out.pairs);
    };
    let (begin, end) = writes.trimmed(begin, end, reverse);
    if begin < end {
        // Only an iterator jumps over what was cleared.
        let is_short = Front::is_for(options) && writes.cleared.is_empty();
        let (mut from, mut to) = (begin.clone(), end.clone());
        while from < to && !out.pairs.more {
            let stretch = writes.stretch(&from, &to, reverse);
            // What is kept is what lies behind all that was emptied.
            let is_last = stretch == (from.clone(), to.clone());
            let (begin, end) = if is_short && is_last {
                let mut part = front.get_or_insert_default().part(view, (&from, &to), options)?;
                let own = Own::new(writes.between(&part.begin, &part.end), reverse);
                merge(&mut part, writes, own, &mut out);
                (part.begin, part.end)
            } else {
                let (begin, end) = stretch;
                let mut rows = view.rows(&begin, &end, reverse);
                merge(&mut rows, writes, Own::new(writes.between(&begin, &end), reverse), &mut out);
                rows.status().map_err(read_error)?;
                (begin, end)
            };
            (from, to) = if reverse { (from, begin) } else { (end, to) };
            (from, to) = writes.trimmed(&from, &to, reverse);
        }
        let found = out.pairs.pairs.iter().map(|(key, _)| layout::stored(key));
        writes.has_read((&begin, &end), found, !out.pairs.more, reverse);
    }
    Ok(out.pairs)
}

/// Passes the pairs in `begin..end` (stored keys, `begin < end`) to `each`, with user keys.
pub(super) fn visit(
    view: &SnapshotView,
    begin: &[u8],
    end: &[u8],
    options: RangeOptions,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> StoreResult<Visited> {
    visit_rows(view.rows(begin, end, options.reverse), options, each)
}

/// What was visited.
pub(super) struct Visited {
    pub(super) rows: usize,
    /// The last key, if a bound ended the read there.
    pub(super) full_at: Option<Vec<u8>>,
}

/// Passes the pairs of `rows` to `each`, as [`visit`].
pub(super) fn visit_rows(
    mut rows: Rows<'_>,
    options: RangeOptions,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> StoreResult<Visited> {
    let (mut seen, mut bytes) = (0, 0);
    while let Some((stored, value)) = rows.item() {
        let key = stored.get(1..).unwrap_or_default();
        each(key, value);
        seen += 1;
        bytes += key.len() + value.len();
        if is_full(options, seen, bytes) {
            return Ok(Visited { rows: seen, full_at: Some(key.to_vec()) });
        }
        rows.step();
    }
    rows.status().map_err(read_error)?;
    Ok(Visited { rows: seen, full_at: None })
}

/// Whether this number of pairs and bytes reaches a bound.
fn is_full(options: RangeOptions, pairs: usize, bytes: usize) -> bool {
    (options.limit > 0 && pairs >= options.limit) || (options.bytes > 0 && bytes >= options.bytes)
}

fn copy(rows: &mut Rows<'_>, out: &mut Collector) {
    while let Some((key, value)) = rows.item() {
        if out.push(key, Bytes::copy_from_slice(value)) {
            return;
        }
        rows.step();
    }
}

/// Rows of the snapshot, in the order of the read.
pub(super) trait Base {
    fn item(&self) -> Option<(&[u8], &[u8])>;
    fn step(&mut self);
    /// Skips the keys in `begin..end`, one of which is the current one.
    fn jump(&mut self, begin: &[u8], end: &[u8]) {
        while self.item().is_some_and(|(key, _)| begin <= key && key < end) {
            self.step();
        }
    }
}

impl Base for Rows<'_> {
    fn item(&self) -> Option<(&[u8], &[u8])> {
        Rows::item(self)
    }
    fn step(&mut self) {
        Rows::step(self);
    }
    fn jump(&mut self, begin: &[u8], end: &[u8]) {
        Rows::jump(self, begin, end);
    }
}

fn merge(rows: &mut impl Base, writes: &Writes, mut own: Own<'_>, out: &mut Collector) {
    loop {
        let side = match (rows.item().map(|(key, _)| key), own.head) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(row), Some((key, _))) if own.reverse => key.as_ref().cmp(row),
            (Some(row), Some((key, _))) => row.cmp(key),
        };
        let full = match side {
            Ordering::Less => take_row(rows, writes, out),
            Ordering::Greater => own.take().is_some_and(|(key, op)| out.resolved(key, op, None)),
            Ordering::Equal => {
                let base = rows.item().map(|(_, value)| Bytes::copy_from_slice(value));
                rows.step();
                own.take().is_some_and(|(key, op)| out.resolved(key, op, base))
            }
        };
        if full {
            return;
        }
    }
}

/// Takes the row under the iterator, unless it lies in a cleared range: then skips the whole range.
fn take_row(rows: &mut impl Base, writes: &Writes, out: &mut Collector) -> bool {
    let Some((key, value)) = rows.item() else { return false };
    if let Some((begin, end)) = writes.cleared.covering(key) {
        rows.jump(begin, end);
        return false;
    }
    let full = out.push(key, Bytes::copy_from_slice(value));
    rows.step();
    full
}

struct Own<'a> {
    rest: Between<'a>,
    head: Option<(&'a Bytes, &'a Op)>,
    reverse: bool,
}

impl<'a> Own<'a> {
    fn new(rest: Between<'a>, reverse: bool) -> Self {
        let mut own = Own { rest, head: None, reverse };
        own.take();
        own
    }
    fn take(&mut self) -> Option<(&'a Bytes, &'a Op)> {
        let next = if self.reverse { self.rest.next_back() } else { self.rest.next() };
        std::mem::replace(&mut self.head, next)
    }
}

struct Collector {
    options: RangeOptions,
    bytes: usize,
    pairs: Pairs,
}

impl Collector {
    /// True if a bound is reached.
    fn push(&mut self, stored: &[u8], value: Bytes) -> bool {
        let key = layout::user(stored);
        self.bytes += key.len() + value.len();
        self.pairs.pairs.push((key, value));
        self.pairs.more = is_full(self.options, self.pairs.pairs.len(), self.bytes);
        self.pairs.more
    }
    fn resolved(&mut self, key: &[u8], op: &Op, base: Option<Bytes>) -> bool {
        let value = match &op.effect {
            Effect::Set(value) => Some(value.clone()),
            Effect::Clear => None,
            Effect::Atomic(ops) => apply_all(base, ops),
        };
        value.is_some_and(|value| self.push(key, value))
    }
}

/// The part of `begin..end` that a read covered: up to the last pair if a bound ended it.
pub(super) fn returned(begin: Bytes, end: Bytes, pairs: &Pairs, reverse: bool) -> (Bytes, Bytes) {
    match pairs.pairs.last() {
        Some((last, _)) if pairs.more && reverse => (layout::stored(last), end),
        Some((last, _)) if pairs.more => (begin, layout::stored(&key_after(last))),
        _ => (begin, end),
    }
}
