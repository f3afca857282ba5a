//! Payloads of streams.
//!
//! ```text
//! number of nodes | nodes | number of entries | last id
//!   [19: first id | highest deleted id | entries ever added]
//!   number of groups | groups
//!   [26: two options, producers with the ids that they have sent, two counters]
//! node      its first id, a string of 16 bytes | a string: the listpack
//!             live, deleted, n, n fields, 0, then of each entry
//!             flags, ms and seq less those of the node, [n, n fields and values | n values], number of elements so far
//! group     name | last id | [19: entries read] | pending | consumers | [27: entries that nobody has]
//! pending   number | 16 bytes of id, time u64 LE, deliveries
//! consumer  name | time seen u64 LE | [21: time active i64 LE] | number | ids of 16 bytes
//! ```
//! Numbers are lengths, ids two of them where nothing else is said. Redis 5 writes 15, Redis 7.0 19, 7.2 21, 8.6 26, 8.8
//! 27. We write 19, which each of them reads from 7.0 on: it lacks the time when a consumer was active, which is then
//! the time when it was seen. Of 26, what producers have sent is dropped.

use super::packed::{Pack, listpack_within};
use super::read::{ELEMENT_COST, LONG_BLOB, Reader};
use super::{STREAM, STREAM_2, STREAM_3, STREAM_4, STREAM_5, finish, put_length, put_string};
use crate::env::{aside, free};
use crate::keyspace::keys::Id;
use crate::types::stream::entry::{Entry, ROW};
use crate::types::stream::whole::{Whole, WholeConsumer, WholeGroup, WholePending};
use bytes::{BufMut, Bytes};
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// The entries of a node, and about its bytes: what Redis does if it is not configured.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;
/// Flags of an entry.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// What a group or consumer costs besides its name.
const NAME_COST: usize = 4 * ELEMENT_COST;
/// An unknown number of entries, or no time.
const NONE: u64 = u64::MAX;

/// Whether a payload's type is a stream's.
pub(super) fn is_stream(form: u8) -> bool {
    matches!(form, STREAM | STREAM_2 | STREAM_3 | STREAM_4 | STREAM_5)
}

/// The payload of a stream.
pub fn of_stream(stream: &Whole) -> Vec<u8> {
    let mut out = vec![STREAM_2];
    let nodes = nodes(&stream.entries);
    put_length(&mut out, nodes.len() as u64);
    nodes.into_iter().for_each(|entries| put_node(&mut out, entries));
    put_length(&mut out, stream.entries.len() as u64);
    let first = stream.entries.first().map_or(Id::MIN, |entry| entry.id);
    [stream.last, first, stream.max_deleted].into_iter().for_each(|id| put_id(&mut out, id));
    put_length(&mut out, stream.added);
    put_length(&mut out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| put_group(&mut out, group));
    finish(out)
}

/// The entries of each node.
fn nodes(mut entries: &[Entry]) -> Vec<&[Entry]> {
    let mut nodes = Vec::new();
    while !entries.is_empty() {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let is_first = bytes == 0;
            bytes += entry.strings().map(|part| part.len() + 2).sum::<usize>() + 8;
            is_first || bytes <= NODE_BYTES
        };
        let n = entries.iter().take(NODE_ENTRIES).take_while(fits).count();
        let (node, rest) = entries.split_at(n);
        nodes.push(node);
        entries = rest;
    }
    nodes
}

fn put_id(out: &mut Vec<u8>, id: Id) {
    put_length(out, id.ms);
    put_length(out, id.seq);
}

fn put_node(out: &mut Vec<u8>, entries: &[Entry]) {
    let Some(first) = entries.first() else { return };
    let (master, names) = (first.id, || first.strings().step_by(2));
    let mut pack = Pack::default();
    [entries.len(), 0, names().count()].into_iter().for_each(|n| pack.number(n as i64));
    names().for_each(|name| pack.string(name));
    pack.number(0);
    for entry in entries {
        let (id, is_same) = (entry.id, entry.strings().step_by(2).eq(names()));
        pack.number(if is_same { SAME_FIELDS } else { 0 });
        pack.number(id.ms.wrapping_sub(master.ms).cast_signed());
        pack.number(id.seq.wrapping_sub(master.seq).cast_signed());
        let n = entry.strings().count() / 2;
        if is_same {
            entry.strings().skip(1).step_by(2).for_each(|value| pack.string(value));
        } else {
            pack.number(n as i64);
            entry.strings().for_each(|part| pack.string(part));
        }
        pack.number(elements(n, is_same));
    }
    put_plain(out, &master.to_bytes());
    put_plain(out, &pack.finish());
}

/// The number of elements that an entry of `n` fields has before it is written.
fn elements(n: usize, is_same: bool) -> i64 {
    (if is_same { n + 3 } else { 2 * n + 4 }) as i64
}

fn put_plain(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_group(out: &mut Vec<u8>, group: &WholeGroup) {
    put_string(out, &group.name);
    put_id(out, group.last);
    put_length(out, group.read.unwrap_or(NONE));
    put_length(out, group.pending.len() as u64);
    for pending in &group.pending {
        out.extend_from_slice(&pending.id.to_bytes());
        out.put_u64_le(pending.time);
        put_length(out, pending.count);
    }
    let mut owned: Vec<Vec<Id>> = vec![Vec::new(); group.consumers.len()];
    for pending in &group.pending {
        if let Some(owned) = owned.get_mut(pending.consumer) {
            owned.push(pending.id);
        }
    }
    put_length(out, group.consumers.len() as u64);
    for (consumer, owned) in group.consumers.iter().zip(owned) {
        put_string(out, &consumer.name);
        out.put_u64_le(consumer.seen);
        put_length(out, owned.len() as u64);
        owned.iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
    }
}

impl Reader<'_> {
    /// A stream, of one of its types. None if it is malformed, or contradicts itself.
    pub(super) async fn stream(&mut self, form: u8) -> Option<Whole> {
        let mut stream = Whole::default();
        if self.fill(form, &mut stream).await.is_some() && self.rest.is_empty() {
            return Some(stream);
        }
        free(stream.entries.len() + stream.groups.len(), stream);
        None
    }

    async fn fill(&mut self, form: u8, stream: &mut Whole) -> Option<()> {
        for _ in 0..self.plain_length()? {
            self.node(&mut stream.entries).await?;
        }
        let len = self.plain_length()?;
        stream.last = self.stream_id()?;
        (stream.max_deleted, stream.added) = match form {
            STREAM => (Id::MIN, len as u64),
            _ => {
                self.stream_id()?;
                (self.stream_id()?, self.plain_length()? as u64)
            }
        };
        let highest = stream.entries.last().map_or(Id::MIN, |entry| entry.id).max(stream.max_deleted);
        (len == stream.entries.len() && highest <= stream.last).then_some(())?;
        for _ in 0..self.plain_length()? {
            let group = self.group(form, stream).await?;
            stream.groups.push(group);
        }
        let names: HashSet<&Bytes> = stream.groups.iter().map(|group| &group.name).collect();
        (names.len() == stream.groups.len()).then_some(())?;
        if matches!(form, STREAM_4 | STREAM_5) { self.producers().await } else { Some(()) }
    }

    fn stream_id(&mut self) -> Option<Id> {
        Some(Id::new(self.plain_length()? as u64, self.plain_length()? as u64))
    }

    fn raw_id(&mut self) -> Option<Id> {
        Some(Id::from_bytes(self.take(16)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The name of a group or consumer.
    async fn name(&mut self) -> Option<Bytes> {
        let name = self.string().await?;
        self.longest = self.longest.checked_sub(name.len() + NAME_COST)?;
        Some(name)
    }

    async fn node(&mut self, entries: &mut Vec<Entry>) -> Option<()> {
        let master = Id::from_bytes(self.string().await?[..].try_into().ok()?);
        let blob = self.string().await?;
        // What they take in memory can be many times more than their payload, which is as long as an entry may be.
        let read = || listpack_within(&blob, self.longest);
        let items = if blob.len() > LONG_BLOB { aside(read) } else { read() }?;
        let mut node = Node { items: items.into_iter(), master, names: Vec::new() };
        let filled = self.entries(&mut node, entries).await;
        free(node.items.len() + node.names.len(), node);
        filled
    }

    /// The entries of a node.
    async fn entries(&mut self, node: &mut Node, entries: &mut Vec<Entry>) -> Option<()> {
        let (live, deleted) = (node.count()?, node.count()?);
        let n = node.count()?;
        node.names = node.strings(n)?;
        (node.number()? == 0).then_some(())?;
        let (mut was_live, mut was_deleted) = (0, 0);
        while node.items.len() > 0 {
            // Also for those that were deleted, of which a short payload may have millions.
            consume_budget().await;
            let (id, Some(fields)) = node.entry()? else {
                was_deleted += 1;
                continue;
            };
            was_live += 1;
            let follows = entries.last().is_none_or(|last| last.id < id) && id > Id::MIN;
            follows.then_some(())?;
            // Names that entries share in the payload are in memory once for each.
            let size = fields.iter().map(Bytes::len).sum::<usize>() + ROW as usize;
            self.longest = self.longest.checked_sub(size)?;
            entries.push(Entry::new(id, &fields));
        }
        ((live, deleted) == (was_live, was_deleted)).then_some(())
    }

    async fn group(&mut self, form: u8, stream: &Whole) -> Option<WholeGroup> {
        let (name, last) = (self.name().await?, self.stream_id()?);
        let read = match form {
            STREAM => distance(stream, last),
            _ => number_of(self.plain_length()? as u64)?,
        };
        let mut pending: Vec<WholePending> = Vec::new();
        for _ in 0..self.plain_length()? {
            let (id, time, count) = (self.raw_id()?, self.time()?, self.plain_length()? as u64);
            // None has a consumer yet.
            let one = WholePending { id, time, count, consumer: usize::MAX };
            pending.last().is_none_or(|last| last.id < id).then(|| pending.push(one))?;
            consume_budget().await;
        }
        let mut consumers = Vec::new();
        for consumer in 0..self.plain_length()? {
            let (name, seen) = (self.name().await?, self.time()?);
            let active = if matches!(form, STREAM | STREAM_2) { seen } else { self.time()? };
            consumers.push(WholeConsumer { name, seen, active: number_of(active)? });
            for _ in 0..self.plain_length()? {
                let id = self.raw_id()?;
                let at = pending.binary_search_by_key(&id, |one| one.id).ok()?;
                let one = pending.get_mut(at).filter(|one| one.consumer == usize::MAX)?;
                one.consumer = consumer;
                consume_budget().await;
            }
        }
        // Entries that were given back belong to nobody: this server has none.
        let given_back = if form == STREAM_5 { self.plain_length()? } else { 0 };
        let names: HashSet<&Bytes> = consumers.iter().map(|consumer| &consumer.name).collect();
        let is_sound = names.len() == consumers.len()
            && pending.iter().all(|one| one.consumer != usize::MAX)
            && given_back == 0;
        is_sound.then_some(WholeGroup { name, last, read, pending, consumers })
    }

    /// Skips what producers have sent.
    async fn producers(&mut self) -> Option<()> {
        let _options = (self.plain_length()?, self.plain_length()?);
        for _ in 0..self.plain_length()? {
            self.skip()?;
            for _ in 0..self.plain_length()? {
                self.skip()?;
                self.stream_id()?;
                consume_budget().await;
            }
        }
        let _counters = (self.plain_length()?, self.plain_length()?);
        Some(())
    }
}

/// A number or a time; None if it is none. Fails for one that Redis cannot have either.
fn number_of(n: u64) -> Option<Option<u64>> {
    (n == NONE || n <= i64::MAX as u64).then(|| Some(n).filter(|n| *n != NONE))
}

/// The number of entries up to `id`, in a stream from which none was ever removed. None: unknown.
fn distance(stream: &Whole, id: Id) -> Option<u64> {
    let first = stream.entries.first().map_or(Id::MIN, |entry| entry.id);
    match () {
        () if stream.added == 0 => Some(0),
        () if id == stream.last => Some(stream.added),
        () if id > stream.last => None,
        () if id < first => Some(0),
        () if id == first => Some(1),
        () => None,
    }
}

/// What is left of a listpack.
struct Node {
    items: std::vec::IntoIter<Bytes>,
    master: Id,
    /// The fields of entries that have these.
    names: Vec<Bytes>,
}

impl Node {
    fn number(&mut self) -> Option<i64> {
        std::str::from_utf8(&self.items.next()?).ok()?.parse().ok()
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn strings(&mut self, n: usize) -> Option<Vec<Bytes>> {
        let strings: Vec<Bytes> = self.items.by_ref().take(n).collect();
        (strings.len() == n).then_some(strings)
    }

    /// The next entry: its id, and its fields and values in turn unless it was deleted.
    fn entry(&mut self) -> Option<(Id, Option<Vec<Bytes>>)> {
        let (flags, ms, seq) = (self.number()?, self.number()?, self.number()?);
        let (ms, seq) = (self.master.ms.wrapping_add_signed(ms), self.master.seq.wrapping_add_signed(seq));
        let is_same = flags & SAME_FIELDS != 0;
        let n = if is_same { self.names.len() } else { self.count()? };
        let fields = if is_same {
            let values = self.strings(n)?;
            self.names.iter().cloned().zip(values).flat_map(|(name, value)| [name, value]).collect()
        } else {
            self.strings(n.checked_mul(2)?)?
        };
        let is_sound = self.number()? == elements(n, is_same) && n > 0;
        is_sound.then_some((Id::new(ms, seq), (flags & DELETED == 0).then_some(fields)))
    }
}

#[cfg(test)]
mod tests;
