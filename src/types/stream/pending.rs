//! Entries that were delivered to a consumer of a group, and not acknowledged yet.
//!
//! ```text
//! T <oid> 03 <group><id>           -> consumer u64 LE | delivered ms u64 LE | deliveries u64 LE
//! T <oid> 04 <group><consumer><id> -> empty
//! T <oid> 06 <group>               -> i128 LE   version << 64 | how many rows 03 the group has
//! T <oid> 07 <group><consumer>     -> i64 LE    how many rows 04 the consumer has
//! ```
//! Both rows of an entry come and go together. The counts are moved by atomic additions, so that changes of different
//! entries do not conflict; [`Ledger`] adds up those of one command. The rows 03 are read serializably: an entry is
//! acknowledged once, and claimed from whoever had it.
//!
//! Every change of a group, whichever of its rows it writes, moves the version ([`touch`]): a copy of the stream that is
//! built over several transactions is dropped if one of them has ([`version`]).

use super::groups::{PAGE, Place};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, Oid, StreamRow};
use crate::keyspace::reads;
use crate::store::{RangeOptions, Read, Rest, key_after, prefix_end};
use crate::types::object::Count;
use bytes::BufMut;
use std::collections::{BTreeMap, HashMap};
use tokio::task::coop::consume_budget;

/// The most entries of a group of which the times are compared.
pub(crate) const LOOKED: usize = 1 << 19;
/// Bytes of a row.
const ROW: usize = 8 + 8 + 8;
/// About the bytes of a row with its key.
const ENTRY: u64 = super::entry::ROW;

/// A pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The number of the consumer that has it.
    pub consumer: u64,
    /// When it was delivered last, in milliseconds since the Unix epoch.
    pub time: u64,
    /// How often it was delivered.
    pub count: u64,
}

impl Pending {
    /// The row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROW);
        [self.consumer, self.time, self.count].into_iter().for_each(|n| out.put_u64_le(n));
        out
    }

    /// Decodes a row. None if it is damaged.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let (numbers, _) = <&[u8; ROW]>::try_from(raw).ok()?.as_chunks();
        let [consumer, time, count] = *numbers else { return None };
        let [consumer, time, count] = [consumer, time, count].map(u64::from_le_bytes);
        Some(Pending { consumer, time, count })
    }

    fn of_row(raw: &[u8]) -> Result<Self> {
        let damaged = || StoreError::Corrupt("a pending entry of a stream does not decode".into()).into();
        Pending::decode(raw).ok_or_else(damaged)
    }

    /// Milliseconds since it was delivered last.
    pub(crate) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.time)
    }
}

/// An entry, if it is pending in a group.
pub(crate) async fn get(s: &Scope<'_>, at: Place, id: Id) -> Result<Option<Pending>> {
    let raw = s.tx.get(&s.db.pending(at.oid, at.group, id), Read::Serializable).await?;
    raw.map(|raw| Pending::of_row(&raw)).transpose()
}

/// Reads rows of entries that will be read one after the other, if that saves round trips.
pub(crate) async fn fetch(s: &Scope<'_>, at: Place, ids: impl Iterator<Item = Id>) -> Result<()> {
    Ok(reads::fetch(s.tx, ids.map(|id| s.db.pending(at.oid, at.group, id))).await?)
}

/// Changes of pending entries of a group, of which the counts are not written yet: [`Ledger::settle`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Ledger {
    at: Place,
    /// By consumer, how many more it has.
    moved: BTreeMap<u64, i64>,
    is_changed: bool,
}

impl Ledger {
    /// No changes.
    pub(crate) fn new(at: Place) -> Self {
        Ledger { at, moved: BTreeMap::new(), is_changed: false }
    }

    fn count(&mut self, consumer: u64, n: i64) {
        *self.moved.entry(consumer).or_default() += n;
    }

    /// Makes an entry pending, or changes one that was pending as `old` says.
    pub(crate) fn put(&mut self, s: &Scope<'_>, id: Id, old: Option<&Pending>, new: &Pending) -> Result<()> {
        let Place { oid, group } = self.at;
        self.is_changed = true;
        s.tx.set(&s.db.pending(oid, group, id), &new.encode())?;
        let before = old.map(|old| old.consumer);
        if before == Some(new.consumer) {
            return Ok(());
        }
        if let Some(before) = before {
            s.tx.clear(&s.db.owned(oid, group, before, id))?;
            self.count(before, -1);
        }
        s.tx.set(&s.db.owned(oid, group, new.consumer, id), &[])?;
        self.count(new.consumer, 1);
        Ok(())
    }

    /// An entry that was pending for a consumer no longer is.
    pub(crate) fn remove(&mut self, s: &Scope<'_>, id: Id, consumer: u64) -> Result<()> {
        let Place { oid, group } = self.at;
        s.tx.clear(&s.db.pending(oid, group, id))?;
        s.tx.clear(&s.db.owned(oid, group, consumer, id))?;
        self.is_changed = true;
        self.count(consumer, -1);
        Ok(())
    }

    /// Writes the counts.
    pub(crate) fn settle(self, s: &Scope<'_>) -> Result<()> {
        let Place { oid, group } = self.at;
        let all: i64 = self.moved.values().sum();
        if self.is_changed {
            s.tx.add(&s.db.group_count(oid, group), &Count::step(all))?;
        }
        for (consumer, n) in self.moved.into_iter().filter(|(_, n)| *n != 0) {
            s.tx.add(&s.db.consumer_count(oid, group, consumer), &n.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Moves the version of a group, for a change of its rows that leaves the number of its pending entries.
pub(crate) fn touch(s: &Scope<'_>, at: Place) -> Result<()> {
    Ok(s.tx.add(&s.db.group_count(at.oid, at.group), &Count::step(0))?)
}

/// A number that changes with every change of groups of a stream.
pub(super) async fn version(s: &Scope<'_>, oid: Oid, read: Read) -> Result<i128> {
    let counts = group_counts(s, oid, read).await?;
    let bytes =
        counts.iter().flat_map(|(group, count)| [&group.to_le_bytes()[..], &count.0.to_le_bytes()].concat());
    Ok(xxhash_rust::xxh3::xxh3_128(&bytes.collect::<Vec<u8>>()).cast_signed())
}

/// The number of pending entries of all groups of a stream.
pub(super) async fn total(s: &Scope<'_>, oid: Oid) -> Result<u64> {
    let counts = group_counts(s, oid, Read::Snapshot).await?;
    Ok(counts.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(count.cardinality())))
}

/// The rows that count the pending entries of groups, by their numbers.
async fn group_counts(s: &Scope<'_>, oid: Oid, read: Read) -> Result<Vec<(u64, Count)>> {
    let mut rest = Rest::of((s.db.group_counts(oid), s.db.group_counts_end(oid)));
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    let mut counts = Vec::new();
    while let Some(page) = rest.page(s.tx, opts, read).await? {
        for (row, raw) in &page {
            let Some(StreamRow::GroupCount(group)) = s.db.decode_stream_row(row) else {
                return Err(bad_count().into());
            };
            counts.push((group, decode_count(raw)?));
        }
    }
    Ok(counts)
}

fn decode_count(raw: &[u8]) -> Result<Count> {
    Ok(Count(i128::from_le_bytes(raw.try_into().map_err(|_| bad_count())?)))
}

/// Pending entries of a group, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Them.
    pub(crate) entries: Vec<(Id, Pending)>,
    /// Where to go on.
    pub(crate) next: Option<Id>,
}

/// The pending entries of a group in a span, `limit` at most (0: as many as a page holds); from its end if `reverse`.
pub(crate) async fn page(
    s: &Scope<'_>,
    at: Place,
    (from, to): (Id, Id),
    (limit, reverse): (usize, bool),
) -> Result<Page> {
    if from > to {
        return Ok(Page::default());
    }
    let [begin, end] = [from, to].map(|id| s.db.pending(at.oid, at.group, id));
    let opts = RangeOptions { limit, bytes: PAGE, reverse };
    let page = s.tx.get_range(&begin, &key_after(&end), opts, Read::Serializable).await?;
    let mut entries = Vec::with_capacity(page.pairs.len());
    for (row, raw) in &page.pairs {
        let Some(StreamRow::Pending(_, id)) = s.db.decode_stream_row(row) else {
            return Err(invalid().into());
        };
        entries.push((id, Pending::of_row(raw)?));
    }
    let last = entries.last().filter(|_| page.more).map(|(id, _)| *id);
    Ok(Page { next: last.and_then(|id| if reverse { id.previous() } else { id.next() }), entries })
}

fn invalid() -> StoreError {
    StoreError::Corrupt("a row of a pending entry has an invalid key".into())
}

/// A walk through the pending entries of a group or of one of its consumers, in the order of their ids.
pub(crate) struct Walk {
    at: Place,
    consumer: Option<u64>,
    page: std::vec::IntoIter<(Id, Pending)>,
    next: Option<Id>,
    to: Id,
    limit: usize,
}

impl Walk {
    /// Through a span of a group; reads `limit` entries at once (0: as many as a page holds).
    pub(crate) fn new(at: Place, (from, to): (Id, Id), limit: usize) -> Self {
        Walk { at, consumer: None, page: Vec::new().into_iter(), next: Some(from), to, limit }
    }

    /// Through those of a consumer.
    pub(crate) fn of(at: Place, consumer: u64, span: (Id, Id), limit: usize) -> Self {
        Walk { consumer: Some(consumer), ..Walk::new(at, span, limit) }
    }

    /// The next entry.
    pub(crate) async fn next(&mut self, s: &Scope<'_>) -> Result<Option<(Id, Pending)>> {
        loop {
            if let Some(entry) = self.page.next() {
                return Ok(Some(entry));
            }
            let Some(from) = self.next.take().filter(|from| *from <= self.to) else { return Ok(None) };
            let Page { entries, next } = match self.consumer {
                None => page(s, self.at, (from, self.to), (self.limit, false)).await?,
                Some(consumer) => self.page_of(s, consumer, from).await?,
            };
            (self.page, self.next) = (entries.into_iter(), next);
            consume_budget().await;
        }
    }

    async fn page_of(&self, s: &Scope<'_>, consumer: u64, from: Id) -> Result<Page> {
        let Owned { ids, next } = owned(s, self.at, consumer, from, self.limit).await?;
        let mut entries = Vec::with_capacity(ids.len());
        fetch(s, self.at, ids.iter().copied()).await?;
        for id in ids.into_iter().filter(|id| *id <= self.to) {
            if let Some(pending) = get(s, self.at, id).await? {
                entries.push((id, pending));
            }
            consume_budget().await;
        }
        Ok(Page { entries, next })
    }
}

/// When the pending entries of a group were delivered last, in the order of their ids. A snapshot of the first [`LOOKED`].
pub(crate) struct Times {
    begin: Vec<u8>,
    end: Vec<u8>,
    left: usize,
}

impl Times {
    /// Those of a group.
    pub(crate) fn new(s: &Scope<'_>, at: Place) -> Self {
        let begin = s.db.pending_of(at.oid, at.group);
        Times { end: prefix_end(&begin), begin, left: LOOKED }
    }

    /// The next ones. None at the end.
    pub(crate) async fn next(&mut self, s: &Scope<'_>) -> Result<Option<Vec<(u64, Id)>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let opts = RangeOptions { limit: self.left, bytes: PAGE, reverse: false };
        let page = s.tx.get_range(&self.begin, &self.end, opts, Read::Snapshot).await?;
        let mut times = Vec::with_capacity(page.pairs.len());
        for (row, raw) in &page.pairs {
            let Some(StreamRow::Pending(_, id)) = s.db.decode_stream_row(row) else {
                return Err(invalid().into());
            };
            times.push((Pending::of_row(raw)?.time, id));
        }
        match page.pairs.last() {
            Some((row, _)) if page.more => {
                self.begin = key_after(row);
                self.left -= times.len();
            }
            _ => self.left = 0,
        }
        consume_budget().await;
        Ok(Some(times))
    }
}

/// Ids of the pending entries of a consumer.
#[derive(Debug)]
pub(crate) struct Owned {
    /// Them.
    pub(crate) ids: Vec<Id>,
    /// Where to go on.
    pub(crate) next: Option<Id>,
}

/// The pending entries of a consumer from an id on, as [`page`].
pub(crate) async fn owned(s: &Scope<'_>, at: Place, consumer: u64, from: Id, limit: usize) -> Result<Owned> {
    let begin = s.db.owned(at.oid, at.group, consumer, from);
    let end = prefix_end(&s.db.owned_by(at.oid, at.group, consumer));
    let opts = RangeOptions { limit, bytes: PAGE, reverse: false };
    let page = s.tx.get_range(&begin, &end, opts, Read::Serializable).await?;
    let mut ids = Vec::with_capacity(page.pairs.len());
    for (row, _) in &page.pairs {
        let Some(StreamRow::Owned(_, _, id)) = s.db.decode_stream_row(row) else {
            return Err(invalid().into());
        };
        ids.push(id);
    }
    let next = ids.last().filter(|_| page.more).and_then(|id| id.next());
    Ok(Owned { ids, next })
}

/// The number of pending entries of a group.
pub(crate) async fn count(s: &Scope<'_>, at: Place, read: Read) -> Result<u64> {
    let raw = s.tx.get(&s.db.group_count(at.oid, at.group), read).await?;
    raw.map_or(Ok(0), |raw| Ok(decode_count(&raw)?.cardinality()))
}

/// The number of pending entries of a consumer.
pub(crate) async fn count_of(s: &Scope<'_>, at: Place, consumer: u64, read: Read) -> Result<u64> {
    let raw = s.tx.get(&s.db.consumer_count(at.oid, at.group, consumer), read).await?;
    raw.map_or(Ok(0), |raw| count_in(&raw))
}

fn count_in(raw: &[u8]) -> Result<u64> {
    let n = raw.try_into().ok().and_then(|raw| u64::try_from(i64::from_le_bytes(raw)).ok());
    n.ok_or_else(|| bad_count().into())
}

/// The numbers of pending entries of all consumers of a group that have had some, by their numbers. `weigh` is shown the
/// bytes read so far, and may fail.
pub(crate) async fn counts(
    s: &Scope<'_>,
    at: Place,
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<HashMap<u64, u64>> {
    let mut rest = Rest::under(s.db.consumer_counts(at.oid, at.group));
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    let mut counts = HashMap::new();
    while let Some(page) = rest.page(s.tx, opts, Read::Serializable).await? {
        for (row, raw) in &page {
            let Some(StreamRow::ConsumerCount(_, consumer)) = s.db.decode_stream_row(row) else {
                return Err(invalid().into());
            };
            counts.insert(consumer, count_in(raw)?);
        }
        weigh((counts.len() as u64).saturating_mul(ENTRY))?;
        consume_budget().await;
    }
    Ok(counts)
}

fn bad_count() -> StoreError {
    StoreError::Corrupt("a count of pending entries is invalid".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip(numbers in any::<(u64, u64, u64)>()) {
            let (consumer, time, count) = numbers;
            let pending = Pending { consumer, time, count };
            prop_assert_eq!(Pending::decode(&pending.encode()), Some(pending));
            prop_assert_eq!(Pending::decode(&pending.encode()[1..]), None);
        }
    }
}
