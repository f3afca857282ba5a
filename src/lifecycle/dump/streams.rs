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
    let first = stream.entries.first().map_or(Id::MIN, |(id, _)| *id);
    [stream.last, first, stream.max_deleted].into_iter().for_each(|id| put_id(&mut out, id));
    put_length(&mut out, stream.added);
    put_length(&mut out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| put_group(&mut out, group));
    finish(out)
}

/// The entries of each node.
fn nodes(mut entries: &[(Id, Vec<Bytes>)]) -> Vec<&[(Id, Vec<Bytes>)]> {
    let mut nodes = Vec::new();
    while !entries.is_empty() {
        let mut bytes = 0;
        let fits = |(_, fields): &&(Id, Vec<Bytes>)| {
            let is_first = bytes == 0;
            bytes += fields.iter().map(|part| part.len() + 2).sum::<usize>() + 8;
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

fn put_node(out: &mut Vec<u8>, entries: &[(Id, Vec<Bytes>)]) {
    let Some((master, names)) = entries.first() else { return };
    let names = || names.iter().step_by(2);
    let mut pack = Pack::default();
    [entries.len(), 0, names().len()].into_iter().for_each(|n| pack.number(n as i64));
    names().for_each(|name| pack.string(name));
    pack.number(0);
    for (id, fields) in entries {
        let is_same = fields.iter().step_by(2).eq(names());
        pack.number(if is_same { SAME_FIELDS } else { 0 });
        pack.number(id.ms.wrapping_sub(master.ms).cast_signed());
        pack.number(id.seq.wrapping_sub(master.seq).cast_signed());
        let n = fields.len() / 2;
        if is_same {
            fields.iter().skip(1).step_by(2).for_each(|value| pack.string(value));
        } else {
            pack.number(n as i64);
            fields.iter().for_each(|part| pack.string(part));
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
        free(stream.entries.len(), stream);
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
        let highest = stream.entries.last().map_or(Id::MIN, |(id, _)| *id).max(stream.max_deleted);
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

    async fn node(&mut self, entries: &mut Vec<(Id, Vec<Bytes>)>) -> Option<()> {
        let master = Id::from_bytes(self.string().await?[..].try_into().ok()?);
        let blob = self.string().await?;
        // What they take in memory can be many times more than their payload, which is as long as an entry may be.
        let read = || listpack_within(&blob, self.longest);
        let items = if blob.len() > LONG_BLOB { aside(read) } else { read() }?;
        let size: usize = items.iter().map(|item| item.len() + ELEMENT_COST).sum();
        self.longest = self.longest.checked_sub(size)?;
        let mut node = Node { items: items.into_iter(), master, names: Vec::new() };
        let (live, deleted) = (node.count()?, node.count()?);
        let n = node.count()?;
        node.names = node.strings(n)?;
        (node.number()? == 0).then_some(())?;
        let (mut was_live, mut was_deleted) = (0, 0);
        while node.items.len() > 0 {
            let entry = node.entry()?;
            let Some(fields) = entry.1 else {
                was_deleted += 1;
                continue;
            };
            was_live += 1;
            let follows = entries.last().is_none_or(|(last, _)| *last < entry.0) && entry.0 > Id::MIN;
            follows.then(|| entries.push((entry.0, fields)))?;
            consume_budget().await;
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
    let first = stream.entries.first().map_or(Id::MIN, |(id, _)| *id);
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
mod tests {
    use super::super::read::{Refused, decode, kind};
    use super::super::{crc, finish_as, weight};
    use super::*;
    use crate::types::Kind;
    use crate::types::dumped::Dumped;
    use futures_util::FutureExt;

    const LONGEST: usize = 1 << 20;

    /// Of redis-server 7.0.15: five entries of which two were deleted, a group of three consumers and three pending
    /// entries, and one of none.
    const SEVEN: &[u8] = b"\x13\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01@``\0\0\0%\0\x03\x01\x02\x01\x02\x01\x81a\x02\
        \x81b\x02\0\x01\x02\x01\0\x01\0\x01\x01\x01\x83two\x04\x05\x01\x03\x01\0\x01\x01\x01\x02\x01\x85three\x06\x05\x01\0\
        \x01\0\x01\x02\x01\x01\x01\x81c\x02\x81x\x02\x06\x01\x02\x01\x01\x01\xdf\xff\x02\xc1,\x02\x04\x01\x05\x01\x03\x01\
        \x02\x01\xdf\xff\x02\x05\x01\x05\x01\x05\x01\xff\x03\x07\0\x05\x01\x07\0\x05\x02\x01g\x06\0\x81\xff\xff\xff\xff\xff\
        \xff\xff\xff\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0h\xe5\xcf\x8b\x01\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\
        \xc8FU)\xa2\x01\0\0\x01\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\0\xc9FU)\xa2\x01\0\0\x01\x03\x05alice\xc8FU)\xa2\x01\0\0\
        \x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\x03bob\xc9FU)\xa2\x01\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\
        \0\0\x06\0\0\0\0\0\0\0\0\x04idle\xc8FU)\xa2\x01\0\0\0\x01h\x05\x03\x81\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x0a\0a\
        \xd9\xcbv\x19Z\x92\x0a";
    /// Of redis-server 8.6.3: three entries that two producers sent.
    const EIGHT: &[u8] = b"\x1a\x01\x10\0\0\x01\xa2)H\xca\x16\0\0\0\0\0\0\0\x0033\0\0\0\x14\0\x03\x01\0\x01\x01\x01\x81f\x02\
        \0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x02\x01\0\x01\x01\x01\x81v\x02\x04\x01\x02\x01\0\x01\x02\x01\x81v\x02\
        \x04\x01\xff\x03\x81\0\0\x01\xa2)H\xca\x16\x02\x81\0\0\x01\xa2)H\xca\x16\0\0\0\x03\0@d@d\x02\x05prod2\x02\x04iid1\
        \x81\0\0\x01\xa2)H\xca\x16\0\x04iid2\x81\0\0\x01\xa2)H\xca\x16\x01\x05prod3\x01\x04iid1\x81\0\0\x01\xa2)H\xca\x16\
        \x02\x03\x01\x0d\0>\x1b\x83\xda\xdfL\xb6c";

    fn decoded(payload: &[u8]) -> Result<Whole, Refused> {
        assert_eq!(kind(payload), Some(Kind::Stream));
        match decode(payload, LONGEST).now_or_never().unwrap()? {
            Dumped::Stream(stream) => Ok(stream),
            other => panic!("{other:?}"),
        }
    }

    fn strings(texts: &[&str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::from((*text).to_owned())).collect()
    }

    /// What [`SEVEN`] holds.
    fn seven() -> Whole {
        let of = |ms, seq, texts: &[&str]| (Id::new(ms, seq), strings(texts));
        let pending =
            |ms, seq, time, count, consumer| WholePending { id: Id::new(ms, seq), time, count, consumer };
        let consumer =
            |name: &str, seen| WholeConsumer { name: Bytes::from(name.to_owned()), seen, active: Some(seen) };
        let (at, later) = (1_795_989_784_264, 1_795_989_784_265);
        let group = |name: &'static str, last, pending, consumers| WholeGroup {
            name: name.into(),
            last,
            read: None,
            pending,
            consumers,
        };
        Whole {
            entries: vec![
                of(5, 1, &["a", "1", "b", "two"]),
                of(5, 3, &["c", "x"]),
                of(6, 0, &["a", "300", "b", "4"]),
            ],
            last: Id::new(7, 0),
            max_deleted: Id::new(7, 0),
            added: 5,
            groups: vec![
                group(
                    "g",
                    Id::new(6, 0),
                    vec![
                        pending(5, 1, 1_700_000_000_000, 7, 1),
                        pending(5, 3, at, 1, 0),
                        pending(6, 0, later, 1, 1),
                    ],
                    vec![consumer("alice", at), consumer("bob", later), consumer("idle", at)],
                ),
                group("h", Id::new(5, 3), vec![], vec![]),
            ],
        }
    }

    #[test]
    fn streams_are_those_of_redis() {
        assert_eq!(decoded(SEVEN), Ok(seven()));
        assert_eq!(decoded(&of_stream(&seven())), Ok(seven()));
        let eight = decoded(EIGHT).unwrap();
        let ids: Vec<u64> = eight.entries.iter().map(|(id, _)| id.seq).collect();
        assert_eq!((ids, eight.added, eight.groups.len()), (vec![0, 1, 2], 3, 0));
        assert!(eight.entries.iter().all(|(_, fields)| *fields == strings(&["f", "v"])));
        assert_eq!(decoded(&of_stream(&Whole::default())), Ok(Whole::default()));
    }

    /// Redis 5 counts nothing, and Redis 7.2 knows when a consumer was active.
    #[test]
    fn older_and_newer_forms() {
        let body = &SEVEN[..SEVEN.len() - 10];
        let head = body.windows(3).position(|bytes| bytes == b"\xff\x03\x07").unwrap() + 4;
        let (nodes, rest) = (&body[1..head], &body[head + 5..]);
        let groups =
            rest.windows(9).position(|bytes| bytes == b"\x81\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        // The first group's number of entries read is left out; the last one is of the group h.
        let five = [&[15][..], nodes, &rest[..groups], &rest[groups + 9..rest.len() - 11], &[0, 0]].concat();
        let mut want = seven();
        (want.max_deleted, want.added) = (Id::MIN, 3);
        assert_eq!(decoded(&finish_as(five, 9)), Ok(want));
        let mut stream = seven();
        stream.groups[0].pending.clear();
        stream.groups[0].consumers.truncate(1);
        stream.groups.truncate(1);
        let mut newer = of_stream(&stream);
        newer.truncate(newer.len() - 10);
        newer[0] = 21;
        // The number of the consumer's pending entries follows the time.
        let end = newer.len() - 1;
        newer.splice(end..end, [0xff; 8]);
        stream.groups[0].consumers[0].active = None;
        assert_eq!(decoded(&finish_as(newer.clone(), 11)), Ok(stream.clone()));
        // Nobody has an entry that was given back.
        newer[0] = 27;
        newer.push(0);
        let tail = [1, 2, 0, 0, 0];
        assert_eq!(decoded(&finish_as([&newer[..], &tail].concat(), 14)), Ok(stream));
        *newer.last_mut().unwrap() = 1;
        let given_back = [&newer[..], &[0; 16], &tail].concat();
        assert_eq!(decoded(&finish_as(given_back, 14)), Err(Refused::Format));
    }

    #[test]
    fn many_entries_come_back() {
        let mut stream =
            Whole { added: u64::MAX, last: Id::MAX, max_deleted: Id::new(9, 9), ..Whole::default() };
        for n in 0..1000_u64 {
            let fields = match n % 4 {
                0 => strings(&["name", "value"]),
                1 => strings(&["name", &n.to_string(), "", "-12"]),
                2 => strings(&["long", &"x".repeat(n as usize * 9)]),
                _ => strings(&["name", &"y".repeat(70)]),
            };
            stream.entries.push((Id::new(n * n, u64::MAX - n), fields));
        }
        assert!(decode(&of_stream(&stream), 100 << 20).now_or_never().unwrap() == Ok(Dumped::Stream(stream)));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert_eq!(decoded(&of_stream(&seven())), Ok(seven()));
        type Change = fn(&mut Whole);
        let changes: [(&str, Change); 10] = [
            ("an id twice", |s| s.entries[1].0 = s.entries[0].0),
            ("ids that descend", |s| s.entries.swap(0, 2)),
            ("the id 0-0", |s| s.entries[0].0 = Id::MIN),
            ("an entry without fields", |s| s.entries[1].1.clear()),
            ("a last id before that of an entry", |s| (s.last, s.max_deleted) = (Id::new(5, 9), Id::MIN)),
            ("a deleted id behind the last one", |s| s.max_deleted = Id::new(8, 0)),
            ("a group twice", |s| s.groups[1].name = "g".into()),
            ("a consumer twice", |s| s.groups[0].consumers[2].name = "bob".into()),
            ("a pending entry of nobody", |s| s.groups[0].pending[0].consumer = 9),
            ("a pending entry twice", |s| s.groups[0].pending[1].id = s.groups[0].pending[0].id),
        ];
        for (what, change) in changes {
            let mut stream = seven();
            change(&mut stream);
            assert_eq!(decoded(&of_stream(&stream)), Err(Refused::Format), "{what}");
        }
        assert_eq!(decoded(&finish(vec![15])), Err(Refused::Format));
    }

    /// Hazard: a small payload takes all memory, because it unpacks to names.
    #[test]
    fn names_count() {
        let (mut stream, name) = (seven(), |of: char| Bytes::from(of.to_string().repeat(LONGEST / 4)));
        stream.groups[0].name = name('g');
        stream.groups[1].name = name('h');
        stream.groups[0].consumers[0].name = name('c');
        assert_eq!(decoded(&of_stream(&stream)), Ok(stream.clone()));
        stream.groups[0].consumers[1].name = name('d');
        assert_eq!(decoded(&of_stream(&stream)), Err(Refused::Format));
        let mut groups = seven();
        let group = |n: usize| WholeGroup { name: n.to_string().into(), ..seven().groups[1].clone() };
        groups.groups = (0..10_000).map(group).collect();
        assert_eq!(decoded(&of_stream(&groups)), Err(Refused::Format));
    }

    /// No input from others makes it panic, or takes memory out of proportion to the input.
    #[test]
    fn hostile_streams() {
        let mut rng = crate::env::Env::seeded(0, 17).rng();
        let (mut good, seeds) = (0, [SEVEN, EIGHT]);
        for round in 0..40_000 {
            let seed = seeds[round % seeds.len()];
            let mut payload = seed[..seed.len() - 8].to_vec();
            for _ in 0..rng.below(3) {
                let at = rng.below(payload.len() as u64 - 2) as usize;
                payload[at] = rng.u64() as u8;
            }
            _ = weight(&payload);
            payload.extend(crc::crc64(&payload).to_le_bytes());
            if let Ok(Dumped::Stream(stream)) = decode(&payload, 10_000).now_or_never().unwrap() {
                // What is taken is written and read again, except for when a consumer was active.
                let again = decoded(&of_stream(&stream)).unwrap();
                assert_eq!((again.entries, again.last), (stream.entries, stream.last));
                good += 1;
            }
        }
        assert!(good > 10_000, "{good}");
        let longest = SEVEN.len();
        assert_eq!(decode(SEVEN, longest).now_or_never().unwrap(), Err(Refused::Format), "too many elements");
    }
}
