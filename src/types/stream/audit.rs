//! Checks that a stream's rows fit its record, and those of its groups each other: [`super::entry`],
//! [`super::groups`], [`super::consumers`] and [`super::pending`] list the invariants.

use super::StreamRep;
use super::consumers::Consumer;
use super::entry::{self, Held};
use super::groups::Group;
use super::pending::Pending;
use crate::keyspace::keys::{Id, StreamRow, hash};
use crate::store::{RangeOptions, Rest};
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::object::Count;
use crate::types::string::{INLINE_MAX, PIECE};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

const PAGE: RangeOptions = RangeOptions { limit: 0, bytes: 1 << 18, reverse: false };
const NO_GROUP: &str = "a row of a stream belongs to no group";

/// The problems of a stream; `record` is the row of its record.
pub(super) async fn rows(auditor: &Auditor<'_>, rep: &StreamRep, record: &[u8]) -> Findings {
    let mut audit = Audit::new(auditor, rep);
    let mut rest = Rest::under(auditor.db.object_rows(StreamRep::ROW, rep.oid));
    while let Some(page) = auditor.view.next(&mut rest, PAGE).await? {
        page.iter().for_each(|(row, value)| audit.row(row, value));
    }
    audit.entries_done(record);
    audit.groups_done();
    Ok(audit.problems)
}

/// A long entry whose pieces are being read: the next one, and the bytes from it on.
struct Long {
    next: u32,
    left: u64,
}

/// Rows of pending entries of a consumer: their number, and the sum of the hashes of their ids.
#[derive(Default, PartialEq, Eq)]
struct Named {
    rows: u64,
    sum: u64,
}

impl Named {
    fn add(&mut self, id: Id) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash(&id.to_bytes()));
    }
}

/// What the rows of a group say of one of its consumers.
#[derive(Default)]
struct Tally {
    pending: Named,
    owned: Named,
    exists: bool,
    count: i64,
}

/// What the rows of a group say.
struct GroupTally {
    row: Bytes,
    count: Option<u64>,
    consumers: BTreeMap<u64, Tally>,
}

struct Audit<'a> {
    auditor: &'a Auditor<'a>,
    rep: StreamRep,
    /// The number of entries, and the first of them.
    len: u64,
    first: Id,
    /// Long entries by their ids.
    long: BTreeMap<Id, Long>,
    /// Groups by their numbers.
    groups: HashMap<u64, GroupTally>,
    problems: Vec<Problem>,
}

impl<'a> Audit<'a> {
    fn new(auditor: &'a Auditor<'a>, rep: &StreamRep) -> Self {
        let (len, first, long, groups) = (0, Id::MIN, BTreeMap::new(), HashMap::new());
        Audit { auditor, rep: *rep, len, first, long, groups, problems: Vec::new() }
    }

    /// Rows of groups come before those that name them by number, and entries before pieces.
    fn row(&mut self, row: &Bytes, value: &Bytes) {
        let what = match self.auditor.db.decode_stream_row(row) {
            Some(StreamRow::Entry(id)) => self.entry(id, value),
            Some(StreamRow::Piece(id, n)) => self.piece(id, n, value.len() as u64),
            Some(StreamRow::Group(_)) => self.group(row, value),
            Some(StreamRow::Pending(group, id)) => self.pending(group, id, value),
            Some(StreamRow::Owned(group, consumer, id)) => self.owned((group, consumer), id, value),
            Some(StreamRow::Consumer(group, _)) => self.consumer(group, value),
            Some(StreamRow::GroupCount(group)) => self.group_count(group, value),
            Some(StreamRow::ConsumerCount(group, consumer)) => self.consumer_count(group, consumer, value),
            None => Some("a row of a stream has an invalid key"),
        };
        self.problems.extend(what.map(|what| Problem::new(row, what)));
    }

    fn entry(&mut self, id: Id, value: &Bytes) -> Option<&'static str> {
        if self.len == 0 {
            self.first = id;
        }
        self.len += 1;
        let is_sound = match Held::decode(value) {
            Ok(Held::Inline(fields)) => {
                let n = entry::strings(&fields).filter(Result::is_ok).count();
                let decodes = n == entry::strings(&fields).count();
                decodes && n > 0 && n % 2 == 0 && fields.len() <= INLINE_MAX
            }
            Ok(Held::Pieces { len, fields }) => {
                self.long.insert(id, Long { next: 0, left: len });
                len > INLINE_MAX as u64 && fields > 0
            }
            Err(_) => false,
        };
        match () {
            () if !is_sound => Some("an entry of a stream does not decode"),
            () if id > self.rep.last => Some("an entry of a stream is behind its last id"),
            () => None,
        }
    }

    fn piece(&mut self, id: Id, n: u32, len: u64) -> Option<&'static str> {
        let Some(long) = self.long.get_mut(&id) else {
            return Some("a piece of a stream belongs to no entry");
        };
        let fits = n == long.next && len == long.left.min(PIECE as u64) && len > 0;
        (long.next, long.left) = (long.next.saturating_add(1), long.left.saturating_sub(len));
        (!fits).then_some("a piece does not fit its entry")
    }

    fn group(&mut self, row: &Bytes, value: &[u8]) -> Option<&'static str> {
        let Some(group) = Group::decode(value) else { return Some("a group of a stream does not decode") };
        let tally = GroupTally { row: row.clone(), count: None, consumers: BTreeMap::new() };
        let other = self.groups.insert(group.number, tally);
        other.map(|_| "two groups of a stream share their number")
    }

    fn tally(&mut self, group: u64, consumer: u64) -> Option<&mut Tally> {
        Some(self.groups.get_mut(&group)?.consumers.entry(consumer).or_default())
    }

    fn pending(&mut self, group: u64, id: Id, value: &[u8]) -> Option<&'static str> {
        let Some(pending) = Pending::decode(value) else {
            return Some("a pending entry of a stream does not decode");
        };
        let Some(tally) = self.tally(group, pending.consumer) else { return Some(NO_GROUP) };
        tally.pending.add(id);
        None
    }

    fn owned(&mut self, (group, consumer): (u64, u64), id: Id, value: &[u8]) -> Option<&'static str> {
        let Some(tally) = self.tally(group, consumer) else { return Some(NO_GROUP) };
        tally.owned.add(id);
        (!value.is_empty()).then_some("a row of a pending entry by consumer has a value")
    }

    fn consumer(&mut self, group: u64, value: &[u8]) -> Option<&'static str> {
        let Some(consumer) = Consumer::decode(value) else {
            return Some("a consumer of a stream does not decode");
        };
        let Some(tally) = self.tally(group, consumer.number) else { return Some(NO_GROUP) };
        let other = std::mem::replace(&mut tally.exists, true);
        other.then_some("two consumers of a group share their number")
    }

    fn group_count(&mut self, group: u64, value: &[u8]) -> Option<&'static str> {
        let Some(tally) = self.groups.get_mut(&group) else { return Some(NO_GROUP) };
        let Ok(count) = value.try_into() else {
            return Some("the number of a group's pending entries is not 16 bytes");
        };
        tally.count = Some(Count(i128::from_le_bytes(count)).cardinality());
        None
    }

    fn consumer_count(&mut self, group: u64, consumer: u64, value: &[u8]) -> Option<&'static str> {
        let Some(tally) = self.tally(group, consumer) else { return Some(NO_GROUP) };
        let Ok(count) = value.try_into() else {
            return Some("the number of a consumer's pending entries is not 8 bytes");
        };
        tally.count = i64::from_le_bytes(count);
        (!tally.exists).then_some("a number of pending entries belongs to no consumer")
    }

    /// Compares the entries with the record.
    fn entries_done(&mut self, record: &[u8]) {
        let StreamRep { oid, len, first, last, max_deleted, .. } = self.rep;
        let short = self.long.iter().filter(|(_, long)| long.left > 0);
        self.problems.extend(short.map(|(id, _)| {
            Problem::new(&self.auditor.db.entry(oid, *id), "a long entry of a stream lacks pieces")
        }));
        if (self.len, self.first) != (len, first) {
            let Audit { len: found, first: at, .. } = self;
            let what = format!(
                "the stream has {found} entries from {at} on, and its record says {len} from {first}"
            );
            self.problems.push(Problem::new(record, what));
        }
        if max_deleted > last {
            self.problems.push(Problem::new(record, "an entry behind the last id of a stream was deleted"));
        }
    }

    /// Compares the rows of pending entries with each other, and with their numbers.
    fn groups_done(&mut self) {
        let (db, oid) = (self.auditor.db, self.rep.oid);
        for (group, tally) in &self.groups {
            let pending: u64 = tally.consumers.values().map(|consumer| consumer.pending.rows).sum();
            match tally.count {
                None => self.problems.push(Problem::new(&tally.row, "a group of a stream has no count")),
                Some(count) if count != pending => {
                    let what = format!("the number of a group's pending entries is {count}, not {pending}");
                    self.problems.push(Problem::new(&db.group_count(oid, *group), what));
                }
                Some(_) => {}
            }
            for (consumer, Tally { pending, owned, exists, count }) in &tally.consumers {
                let what = match () {
                    () if pending != owned => {
                        "the pending entries of a consumer do not fit those of its group".to_owned()
                    }
                    () if !exists && pending.rows > 0 => "pending entries belong to no consumer".to_owned(),
                    () if u64::try_from(*count) != Ok(pending.rows) && *exists => {
                        let rows = pending.rows;
                        format!("the number of a consumer's pending entries is {count}, not {rows}")
                    }
                    () => continue,
                };
                self.problems.push(Problem::new(&db.consumer_count(oid, *group, *consumer), what));
            }
        }
    }
}
