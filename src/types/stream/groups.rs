//! Groups of consumers: a row a group.
//!
//! ```text
//! T <oid> 02 <name> -> number u64 LE | last delivered id | entries read i64 LE (-1: unknown)
//! ```
//! # Conflicts
//! Commands on groups leave the record alone, and XADD rewrites it: so they read it as a snapshot. Three conflicts take the
//! place of a serializable read.
//! * *The object's life*: whatever removes a value from its key writes, or declares that it writes, the garbage row of the
//!   object ([`object::remove`], [`object::take`]). [`open`] conflicts with that.
//! * *A group's life*: destroying a group clears the rows of its pending entries, all of which begin with its number. [`find_alive`]
//!   conflicts with that, and not with what changes the group's row: so acknowledgements and deliveries do not conflict.
//!   A number that was destroyed is never written to afterwards, and no other group gets it.
//! * *A group's place*: whoever depends on the last delivered id reads the row serializably ([`find`]). Deliveries rewrite
//!   it. XCLAIM conflicts with readers of it if it makes entries pending, or pending for longer: who claims those that were
//!   delivered longest ago looks for them in a snapshot ([`super::claim`]), and every other change of times makes an entry
//!   younger.
//!
//! Who delivers new entries also conflicts with the removal of those that it found, and with XADD if it found fewer than it
//! may deliver ([`super::claim::deliver`]): otherwise what XADD adds comes behind them, and neither misses anything of the
//! other. So the answer is that of one moment: all that it read is as it was in its snapshot when it commits, except for
//! numbers of the record, of which it uses only how many entries were added up to the last one that it delivers.

use super::StreamRep;
use super::pending;
use crate::error::{ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, MAX_NAME, Oid, StreamRow, root, root::Garbage};
use crate::store::{RangeOptions, Read, Rest, key_after, prefix_end};
use crate::types::object::{self, Slot};
use bytes::{BufMut, Bytes};
use tokio::task::coop::consume_budget;

/// Bytes requested by one range read.
pub(super) const PAGE: usize = 1 << 18;
/// Bytes of a group's row.
const ROW: usize = 8 + 16 + 8;

const NAME_TOO_LONG: ReplyError =
    ReplyError::new("ERR the name of a consumer group or consumer is longer than 8192 bytes");

/// What the row of a group says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Names its rows; no other group has had it.
    pub number: u64,
    /// The id of the last entry that was delivered.
    pub last: Id,
    /// How many entries were added up to that one. None: unknown.
    pub read: Option<u64>,
}

/// A group of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The stream.
    pub(crate) oid: Oid,
    /// The number of the group.
    pub(crate) group: u64,
}

impl Group {
    /// The row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROW);
        out.put_u64_le(self.number);
        out.put_slice(&self.last.to_bytes());
        // XSETID can make a stream say of any number that it had so many.
        out.put_i64_le(self.read.map_or(-1, |read| i64::try_from(read).unwrap_or(i64::MAX)));
        out
    }

    /// Decodes a row. None if it is damaged.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let (number, rest) = <&[u8; ROW]>::try_from(raw).ok()?.split_first_chunk()?;
        let (last, read) = rest.split_first_chunk()?;
        let read = match i64::from_le_bytes(read.try_into().ok()?) {
            -1 => None,
            read => Some(u64::try_from(read).ok()?),
        };
        Some(Group { number: u64::from_le_bytes(*number), last: Id::from_bytes(*last), read })
    }

    fn of_row(raw: &[u8]) -> Result<Self> {
        Group::decode(raw)
            .ok_or_else(|| StoreError::Corrupt("a group of a stream does not decode".into()).into())
    }

    /// Takes the delivery of an entry of the stream into account. As Redis 8 does it: what the group knows of the entries
    /// before the first one may be wrong.
    pub(super) fn advance(&mut self, rep: &StreamRep, id: Id) {
        if id <= self.last {
            return;
        }
        self.read = match self.read {
            Some(read) if self.last >= rep.first && !has_tombstones(rep, self.last) => read.checked_add(1),
            read if rep.added == 0 => read,
            _ => added_up_to(rep, id),
        };
        self.last = id;
    }

    /// The number of entries of the stream that were not delivered yet. None: unknown. As Redis 8 does it: negative if
    /// XGROUP SETID was told so.
    pub(crate) fn lag(&self, rep: &StreamRep) -> Option<i64> {
        let behind = |read: u64| rep.added.cast_signed().wrapping_sub(read.cast_signed());
        if rep.added == 0 || rep.len == 0 {
            return Some(0);
        }
        if self.last < rep.first && rep.max_deleted < rep.first {
            return Some(rep.len.cast_signed());
        }
        match self.read {
            Some(read) if !has_tombstones(rep, self.last) => Some(behind(read)),
            _ => added_up_to(rep, self.last).map(behind),
        }
    }
}

/// Whether entries of an id or behind it were deleted.
fn has_tombstones(rep: &StreamRep, from: Id) -> bool {
    rep.len > 0 && rep.max_deleted != Id::MIN && from <= rep.max_deleted
}

/// How many entries were added up to an id. None: unknown.
fn added_up_to(rep: &StreamRep, id: Id) -> Option<u64> {
    if rep.added == 0 {
        return Some(0);
    }
    if rep.len == 0 && id <= rep.last {
        return Some(rep.added);
    }
    if id != Id::MIN && id < rep.max_deleted {
        return None;
    }
    let has_gaps = rep.max_deleted != Id::MIN && rep.max_deleted >= rep.first;
    match () {
        () if id == rep.last => Some(rep.added),
        () if id > rep.last || has_gaps => None,
        () if id < rep.first => Some(rep.added.wrapping_sub(rep.len)),
        () if id == rep.first => Some(rep.added.wrapping_sub(rep.len).wrapping_add(1)),
        () => None,
    }
}

/// Fails for a name that no group or consumer can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME { Err(NAME_TOO_LONG.into()) } else { Ok(()) }
}

/// Opens a key for a command on groups of a stream, which depends on the record only as the module says. Everything that
/// is not a stream is read serializably.
pub(crate) async fn open(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    let slot = object::open(s, key, Read::Snapshot).await?;
    let Ok(Some(rep)) = slot.stream() else { return object::open(s, key, Read::Serializable).await };
    let life = root::garbage(Garbage::Object(s.db, rep.oid));
    s.tx.add_read_conflict(&life, &key_after(&life))?;
    Ok(slot)
}

/// A group, for a command that depends on its last delivered id.
pub(crate) async fn find(s: &Scope<'_>, oid: Oid, name: &[u8]) -> Result<Option<Group>> {
    read(s, oid, name, Read::Serializable).await
}

/// A group, for a command that depends on its number alone. If there is none, that is a serializable read.
pub(crate) async fn find_alive(s: &Scope<'_>, oid: Oid, name: &[u8]) -> Result<Option<Group>> {
    let Some(group) = read(s, oid, name, Read::Snapshot).await? else { return find(s, oid, name).await };
    let life = s.db.pending_of(oid, group.number);
    s.tx.add_read_conflict(&life, &key_after(&life))?;
    Ok(Some(group))
}

/// A group, for reading ahead. A snapshot.
pub(super) async fn ahead(s: &Scope<'_>, oid: Oid, name: &[u8]) -> Result<Option<Group>> {
    read(s, oid, name, Read::Snapshot).await
}

async fn read(s: &Scope<'_>, oid: Oid, name: &[u8], read: Read) -> Result<Option<Group>> {
    if name.len() > MAX_NAME {
        return Ok(None);
    }
    let raw = s.tx.get(&s.db.group(oid, name), read).await?;
    raw.map(|raw| Group::of_row(&raw)).transpose()
}

/// Passes all groups of a stream, by name, to `take`, whose error ends it: there may be more than memory holds.
pub(crate) async fn each(
    s: &Scope<'_>,
    oid: Oid,
    mut take: impl FnMut(Bytes, Group) -> Result<()>,
) -> Result<()> {
    let mut rest = Rest::of((s.db.group(oid, &[]), s.db.groups_end(oid)));
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    while let Some(page) = rest.page(s.tx, opts, Read::Serializable).await? {
        for (row, raw) in &page {
            let Some(StreamRow::Group(name)) = s.db.decode_stream_row(row) else {
                return Err(StoreError::Corrupt("a row of a group has an invalid key".into()).into());
            };
            take(name, Group::of_row(raw)?)?;
        }
        consume_budget().await;
    }
    Ok(())
}

/// Whether a stream has groups.
pub(super) async fn exist(s: &Scope<'_>, oid: Oid) -> Result<bool> {
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let page = s.tx.get_range(&s.db.group(oid, &[]), &s.db.groups_end(oid), opts, Read::Serializable).await?;
    Ok(!page.pairs.is_empty())
}

/// Writes the row of a group.
pub(crate) fn put(s: &Scope<'_>, oid: Oid, name: &[u8], group: &Group) -> Result<()> {
    check_name(name)?;
    s.tx.set(&s.db.group(oid, name), &group.encode())?;
    pending::touch(s, Place { oid, group: group.number })
}

/// Removes a group with all its consumers and pending entries, however many.
pub(crate) fn destroy(s: &Scope<'_>, oid: Oid, name: &[u8], number: u64) -> Result<()> {
    s.tx.clear(&s.db.group(oid, name))?;
    clear_pending(s, oid, number)?;
    for begin in [s.db.consumer(oid, number, &[]), s.db.consumer_counts(oid, number)] {
        s.tx.clear_range(&begin, &prefix_end(&begin))?;
    }
    Ok(s.tx.clear(&s.db.group_count(oid, number))?)
}

/// Clears the rows of all pending entries of a group.
pub(super) fn clear_pending(s: &Scope<'_>, oid: Oid, number: u64) -> Result<()> {
    for begin in [s.db.pending_of(oid, number), s.db.owned_in(oid, number)] {
        s.tx.clear_range(&begin, &prefix_end(&begin))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn id(ms: u64) -> Id {
        Id::new(ms, 0)
    }

    fn stream(len: u64, ids: [u64; 3], added: u64) -> StreamRep {
        let [first, last, max_deleted] = ids.map(id);
        StreamRep { oid: Oid(1), len, first, last, max_deleted, added, resets: 0 }
    }

    proptest! {
        #[test]
        fn rows_round_trip(numbers in any::<(u64, u64, u64)>(), read in proptest::option::of(0..=i64::MAX as u64)) {
            let group = Group { number: numbers.0, last: Id::new(numbers.1, numbers.2), read };
            prop_assert_eq!(Group::decode(&group.encode()), Some(group));
        }
    }

    #[test]
    fn damaged_rows_do_not_decode() {
        let mut raw = Group { number: 1, last: id(2), read: None }.encode();
        raw.push(0);
        assert_eq!(Group::decode(&raw), None);
        raw.truncate(ROW - 1);
        assert_eq!(Group::decode(&raw), None);
        raw.push(0x80);
        assert_eq!(Group::decode(&raw), None, "a negative number of entries");
    }

    #[test]
    fn a_group_knows_how_far_it_is_behind() {
        let group = |last, read| Group { number: 1, last: id(last), read };
        let whole = stream(5, [1, 5, 0], 5);
        let trimmed = stream(3, [3, 5, 2], 5);
        let holed = stream(4, [1, 5, 3], 5);
        for (rep, group, lag) in [
            (stream(0, [0, 0, 0], 0), group(0, None), Some(0)),
            (stream(0, [0, 5, 5], 5), group(2, None), Some(0)),
            (whole, group(0, None), Some(5)),
            (whole, group(0, Some(0)), Some(5)),
            (whole, group(1, None), Some(4)),
            (whole, group(2, None), None),
            (whole, group(2, Some(2)), Some(3)),
            (whole, group(5, None), Some(0)),
            (whole, group(6, None), None),
            (whole, group(2, Some(9)), Some(-4)),
            (trimmed, group(1, Some(1)), Some(3)),
            (trimmed, group(3, None), Some(2)),
            (holed, group(2, Some(2)), None),
            (holed, group(4, Some(4)), Some(1)),
            (holed, group(5, None), Some(0)),
        ] {
            assert_eq!(group.lag(&rep), lag, "{rep:?} {group:?}");
        }
    }
}
