//! A stream in the terms of Redis' snapshot files: read as a whole, and written as a whole.

use super::consumers::{self, Consumer};
use super::entry;
use super::groups::{self, Group, Place, check_name};
use super::pending::{self, Pending};
use super::range::Walk;
use super::whole::{Whole, WholeConsumer, WholeGroup, WholePending};
use super::{StreamRep, put};
use crate::error::{Result, StoreError};
use crate::keyspace::keys::{Id, Oid, Prefix};
use crate::keyspace::{Fresh, Scope};
use crate::store::{MAX_TRANSACTION, Read};
use crate::types::object::{Count, Slot};
use bytes::Bytes;
use std::collections::HashMap;
use tokio::task::coop::consume_budget;

/// Fails for what this store cannot hold.
pub(crate) fn check(stream: &Whole) -> Result<()> {
    let consumers = stream.groups.iter().flat_map(|group| &group.consumers);
    let names = consumers.map(|consumer| &consumer.name);
    names.chain(stream.groups.iter().map(|group| &group.name)).try_for_each(|name| check_name(name))
}

/// What is read has at most some bytes.
struct Size {
    bytes: u64,
    most: u64,
}

impl Size {
    /// Fails if these bytes and those before are too many.
    fn add(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.most {
            Err(StoreError::ReplyTooLarge(self.bytes as usize).into())
        } else {
            Ok(())
        }
    }
}

/// Reads all of a stream, if that has at most `most` bytes.
pub(super) async fn read(s: &Scope<'_>, rep: &StreamRep, most: usize) -> Result<Whole> {
    let mut size = Size { bytes: 0, most: most as u64 };
    let StreamRep { oid, last, max_deleted, added, .. } = *rep;
    let mut entries = Vec::new();
    let mut walk = Walk::new(s, rep, (Id::MIN, Id::MAX), false);
    while let Some(page) = walk.next(s, 0).await? {
        for (id, held) in page {
            size.add(held.len().saturating_add(entry::ROW))?;
            let entry = walk.read(s, id, held).await?;
            entry::strings(&entry.raw).try_for_each(|string| string.map(drop))?;
            entries.push(entry);
        }
    }
    let (mut names, mut all) = (Vec::new(), Vec::new());
    let add = |name: Bytes, group| {
        size.add(name.len() as u64 + entry::ROW)?;
        names.push((name, group));
        Ok(())
    };
    groups::each(s, oid, add).await?;
    for (name, group) in names {
        all.push(read_group(s, oid, (name, group), &mut size).await?);
    }
    Ok(Whole { entries, last, max_deleted, added, groups: all })
}

async fn read_group(
    s: &Scope<'_>,
    oid: Oid,
    (name, group): (Bytes, Group),
    size: &mut Size,
) -> Result<WholeGroup> {
    let at = Place { oid, group: group.number };
    let (mut places, mut consumers) = (HashMap::new(), Vec::new());
    let add = |name: Bytes, Consumer { number, seen, active }| {
        size.add(name.len() as u64 + entry::ROW)?;
        places.insert(number, consumers.len());
        consumers.push(WholeConsumer { name, seen, active });
        Ok(())
    };
    consumers::each(s, at, Read::Serializable, add).await?;
    let (mut pending, mut from) = (Vec::new(), Some(Id::MIN));
    while let Some(begin) = from {
        let page = pending::page(s, at, (begin, Id::MAX), (0, false)).await?;
        size.add(page.entries.len() as u64 * entry::ROW)?;
        for (id, Pending { consumer, time, count }) in page.entries {
            let nobodys = || StoreError::Corrupt("a pending entry has no consumer".into());
            let consumer = *places.get(&consumer).ok_or_else(nobodys)?;
            pending.push(WholePending { id, time, count, consumer });
        }
        from = page.next;
        consume_budget().await;
    }
    Ok(WholeGroup { name, last: group.last, read: group.read, pending, consumers })
}

impl Whole {
    /// What its record says, for rows under `oid`.
    pub(super) fn rep(&self, oid: Oid) -> StreamRep {
        let Whole { last, max_deleted, added, .. } = *self;
        let first = self.entries.first().map_or(Id::MIN, |entry| entry.id);
        StreamRep { oid, len: self.entries.len() as u64, first, last, max_deleted, added, resets: 0 }
    }

    /// Its rows under a new object id.
    pub(super) fn rows<'a>(
        &'a self,
        (db, oid): (Prefix, Oid),
        fresh: &'a Fresh,
    ) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + 'a {
        let entries = self.entries.iter().flat_map(move |entry| {
            entry::rows_of(db, oid, entry.id, &entry.raw).map(|(row, bytes)| (row, bytes.into()))
        });
        entries.chain(self.groups.iter().flat_map(move |group| group.rows((db, oid), fresh)))
    }
}

impl WholeGroup {
    fn rows<'a>(
        &'a self,
        (db, oid): (Prefix, Oid),
        fresh: &Fresh,
    ) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + 'a {
        let number = fresh.stamp();
        let mut counts = vec![0_i64; self.consumers.len()];
        for pending in &self.pending {
            if let Some(count) = counts.get_mut(pending.consumer) {
                *count += 1;
            }
        }
        let numbers: Vec<u64> = self.consumers.iter().map(|_| fresh.stamp()).collect();
        let group = Group { number, last: self.last, read: self.read };
        let group = [
            (db.group(oid, &self.name), group.encode()),
            (db.group_count(oid, number), Count::step(self.pending.len() as i64).to_vec()),
        ];
        let consumers = self.consumers.iter().zip(numbers.clone()).zip(counts);
        let consumers = consumers.flat_map(move |((consumer, own), count)| {
            let WholeConsumer { name, seen, active } = consumer;
            let row = Consumer { number: own, seen: *seen, active: *active }.encode();
            let count = (db.consumer_count(oid, number, own), count.to_le_bytes().to_vec());
            [(db.consumer(oid, number, name), row), count]
        });
        let pending = self.pending.iter().flat_map(move |pending| {
            let WholePending { id, time, count, consumer } = *pending;
            let consumer = numbers.get(consumer).copied().unwrap_or_default();
            let row = Pending { consumer, time, count }.encode();
            [(db.pending(oid, number, id), row), (db.owned(oid, number, consumer, id), Vec::new())]
        });
        group.into_iter().chain(consumers).chain(pending)
    }
}

/// Makes an absent key hold a stream that has passed [`check`].
pub(crate) async fn restore(s: &Scope<'_>, slot: &mut Slot, stream: &Whole) -> Result<()> {
    let oid = s.space.fresh.oid();
    for (row, bytes) in stream.rows((s.db, oid), &s.space.fresh) {
        s.tx.set(&row, &bytes)?;
        if s.tx.size() > MAX_TRANSACTION {
            return Err(StoreError::TooLarge.into());
        }
        consume_budget().await;
    }
    put(s, slot, stream.rep(oid))
}
