//! The consumers of a group: a row a consumer.
//!
//! ```text
//! T <oid> 05 <group><name> -> number u64 LE | seen ms u64 LE | active ms i64 LE (-1: never)
//! ```
//! Whoever gives a consumer entries reads its row serializably and rewrites it. Whoever takes entries from it reads their
//! rows serializably. So a consumer that was removed is never given anything afterwards.

use super::groups::{self, PAGE, Place, check_name};
use super::pending::{self, Ledger};
use crate::config::Events;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, MAX_NAME, StreamRow};
use crate::store::{RangeOptions, Read, Rest, key_after, prefix_end};
use crate::types::object::Count;
use bytes::{BufMut, Bytes};
use tokio::task::coop::consume_budget;

/// Bytes of the rows of a pending entry, about.
const PENDING: u64 = 128;
/// Pending entries of which the rows are cleared one by one.
const FEW: u64 = 4096;
/// Bytes of a consumer's row.
const ROW: usize = 8 + 8 + 8;

/// What the row of a consumer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    /// Names its rows; no other consumer of the group has had it.
    pub number: u64,
    /// When it last asked for something, in milliseconds since the Unix epoch.
    pub seen: u64,
    /// When it last got something.
    pub active: Option<u64>,
}

impl Consumer {
    /// The row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROW);
        out.put_u64_le(self.number);
        out.put_u64_le(self.seen);
        out.put_i64_le(self.active.map_or(-1, u64::cast_signed));
        out
    }

    /// Decodes a row. None if it is damaged.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let (numbers, _) = <&[u8; ROW]>::try_from(raw).ok()?.as_chunks();
        let [number, seen, active] = *numbers else { return None };
        let active = match i64::from_le_bytes(active) {
            -1 => None,
            active => Some(u64::try_from(active).ok()?),
        };
        Some(Consumer { number: u64::from_le_bytes(number), seen: u64::from_le_bytes(seen), active })
    }

    fn of_row(raw: &[u8]) -> Result<Self> {
        let damaged = || StoreError::Corrupt("a consumer of a stream does not decode".into()).into();
        Consumer::decode(raw).ok_or_else(damaged)
    }
}

/// A consumer of a group; a serializable read.
pub(crate) async fn find(s: &Scope<'_>, at: Place, name: &[u8]) -> Result<Option<Consumer>> {
    if name.len() > MAX_NAME {
        return Ok(None);
    }
    let raw = s.tx.get(&s.db.consumer(at.oid, at.group, name), Read::Serializable).await?;
    raw.map(|raw| Consumer::of_row(&raw)).transpose()
}

/// Writes the row of a consumer.
pub(crate) fn put(s: &Scope<'_>, at: Place, name: &[u8], consumer: &Consumer) -> Result<()> {
    check_name(name)?;
    s.tx.set(&s.db.consumer(at.oid, at.group, name), &consumer.encode())?;
    pending::touch(s, at)
}

/// A consumer that has asked for something now, or is to be created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// What its row is to say.
    pub(crate) consumer: Consumer,
    is_new: bool,
}

impl Asked {
    /// The consumer of that name. Writes nothing.
    pub(crate) async fn find(s: &Scope<'_>, at: Place, name: &[u8]) -> Result<Self> {
        check_name(name)?;
        Ok(match find(s, at, name).await? {
            Some(consumer) => Asked { consumer: Consumer { seen: s.now, ..consumer }, is_new: false },
            None => {
                let consumer = Consumer { number: s.space.fresh.stamp(), seen: s.now, active: None };
                Asked { consumer, is_new: true }
            }
        })
    }

    /// Writes its row, and announces a new one of the stream under `key`. Returns whether it is new.
    pub(crate) fn write(self, s: &Scope<'_>, key: &Bytes, at: Place, name: &[u8]) -> Result<bool> {
        put(s, at, name, &self.consumer)?;
        if self.is_new {
            s.notify(Events::STREAM, "xgroup-createconsumer", key);
        }
        Ok(self.is_new)
    }
}

/// Creates a consumer of the stream under `key`. False if there is one of that name.
pub(crate) async fn create(s: &Scope<'_>, key: &Bytes, at: Place, name: &[u8]) -> Result<bool> {
    let asked = Asked::find(s, at, name).await?;
    if asked.is_new { asked.write(s, key, at, name) } else { Ok(false) }
}

/// Passes all consumers of a group, by name, to `take`, whose error ends it: there may be more than memory holds.
pub(crate) async fn each(
    s: &Scope<'_>,
    at: Place,
    read: Read,
    mut take: impl FnMut(Bytes, Consumer) -> Result<()>,
) -> Result<()> {
    let mut rest = Rest::under(s.db.consumer(at.oid, at.group, &[]));
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(s.tx, opts, read).await? {
        for (row, raw) in &page {
            let Some(StreamRow::Consumer(_, name)) = s.db.decode_stream_row(row) else {
                return Err(StoreError::Corrupt("a row of a consumer has an invalid key".into()).into());
            };
            take(name, Consumer::of_row(raw)?)?;
        }
        consume_budget().await;
    }
    Ok(())
}

/// Removes a consumer with its pending entries. Returns their number. Those of the only consumer that has some are cleared
/// at once, however many. `weigh` is shown the bytes of the rows that are to be cleared one by one, and may fail.
pub(crate) async fn remove(
    s: &Scope<'_>,
    at: Place,
    name: &[u8],
    consumer: &Consumer,
    weigh: impl FnOnce(u64) -> Result<()>,
) -> Result<u64> {
    let n = pending::count_of(s, at, consumer.number, Read::Serializable).await?;
    if n > 0 && n == pending::count(s, at, Read::Serializable).await? {
        groups::clear_pending(s, at.oid, at.group)?;
        s.tx.add(&s.db.group_count(at.oid, at.group), &Count::step(0_i64.wrapping_sub_unsigned(n)))?;
    } else if n > 0 {
        // Where they are cleared in runs, those of all consumers are passed.
        let passed = if n > FEW { pending::count(s, at, Read::Serializable).await? } else { n };
        weigh(passed.saturating_mul(PENDING))?;
        match n > FEW {
            true => clear_runs(s, at, consumer.number, n).await?,
            false => clear_each(s, at, consumer.number).await?,
        }
    }
    s.tx.clear(&s.db.consumer_count(at.oid, at.group, consumer.number))?;
    s.tx.clear(&s.db.consumer(at.oid, at.group, name))?;
    pending::touch(s, at)?;
    Ok(n)
}

/// Clears the rows of a consumer's pending entries, one by one.
async fn clear_each(s: &Scope<'_>, at: Place, consumer: u64) -> Result<()> {
    let (mut ledger, mut from) = (Ledger::new(at), Some(Id::MIN));
    while let Some(begin) = from {
        let page = pending::owned(s, at, consumer, begin, 0).await?;
        page.ids.into_iter().try_for_each(|id| ledger.remove(s, id, consumer))?;
        from = page.next;
        consume_budget().await;
    }
    ledger.settle(s)
}

/// Clears the rows of the `n` pending entries of a consumer: at once those between which no other consumer has one.
async fn clear_runs(s: &Scope<'_>, at: Place, consumer: u64, n: u64) -> Result<()> {
    let clear = |(from, to): (Id, Id)| {
        let [from, to] = [from, to].map(|id| s.db.pending(at.oid, at.group, id));
        s.tx.clear_range(&from, &key_after(&to))
    };
    let first = pending::owned(s, at, consumer, Id::MIN, 1).await?.ids.first().copied();
    let mut walk = pending::Walk::new(at, (first.unwrap_or(Id::MIN), Id::MAX), 0);
    let (mut left, mut run) = (n, None::<(Id, Id)>);
    while left > 0
        && let Some((id, pending)) = walk.next(s).await?
    {
        if pending.consumer == consumer {
            run = Some((run.map_or(id, |(from, _)| from), id));
            left -= 1;
        } else if let Some(run) = run.take() {
            clear(run)?;
        }
    }
    run.map_or(Ok(()), clear)?;
    let owned = s.db.owned_by(at.oid, at.group, consumer);
    s.tx.clear_range(&owned, &prefix_end(&owned))?;
    Ok(s.tx.add(&s.db.group_count(at.oid, at.group), &Count::step(0_i64.wrapping_sub_unsigned(n)))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip(number in any::<u64>(), seen in any::<u64>(), active in proptest::option::of(0..=i64::MAX as u64)) {
            let consumer = Consumer { number, seen, active };
            prop_assert_eq!(Consumer::decode(&consumer.encode()), Some(consumer));
            prop_assert_eq!(Consumer::decode(&consumer.encode()[1..]), None);
        }
    }
}
