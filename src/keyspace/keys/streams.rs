//! Keys of the rows of streams, and the ids of their entries.
//!
//! ```text
//! T <oid> 00 <id>                                      an entry
//! T <oid> 01 <id><piece u32 BE>                        a piece of a long entry
//! T <oid> 02 <name>                                    a group
//! T <oid> 03 <group u64 BE><id>                        a pending entry of a group
//! T <oid> 04 <group u64 BE><consumer u64 BE><id>       the same, by consumer
//! T <oid> 05 <group u64 BE><name>                      a consumer
//! T <oid> 06 <group u64 BE>                            the number of pending entries of a group, and its version
//! T <oid> 07 <group u64 BE><consumer u64 BE>           the number of pending entries of a consumer
//! ```
//! An id is `ms u64 BE, seq u64 BE`, so that rows sort as ids do. Groups and consumers are named by numbers that
//! no other has had.

use super::{Oid, Prefix};
use bytes::Bytes;

/// The longest name of a group or consumer in bytes: its row must stay below the store's 10 kB.
pub(crate) const MAX_NAME: usize = 8 * 1024;

const ENTRY: u8 = 0;
const PIECE: u8 = 1;
const GROUP: u8 = 2;
const PENDING: u8 = 3;
const OWNED: u8 = 4;
const CONSUMER: u8 = 5;
const GROUP_COUNT: u8 = 6;
const CONSUMER_COUNT: u8 = 7;

/// The id of an entry of a stream: a time in milliseconds since the Unix epoch, and a number within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id {
    /// The time.
    pub ms: u64,
    /// The number.
    pub seq: u64,
}

impl Id {
    /// `0-0`: before the ids of all entries.
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    /// The largest id.
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// The id of these numbers.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Id { ms, seq }
    }
    /// Its 16 bytes, which sort as ids do.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
    /// The id of 16 bytes.
    pub fn from_bytes(raw: [u8; 16]) -> Self {
        let n = u128::from_be_bytes(raw);
        Id { ms: (n >> 64) as u64, seq: n as u64 }
    }
    /// The id of a slice of 16 bytes.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        Some(Id::from_bytes(raw.try_into().ok()?))
    }
    /// The next id. None behind the largest.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }
    /// The id before it. None before the smallest.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// What a row of a stream is, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamRow {
    /// An entry.
    Entry(Id),
    /// A long entry, and the number of the piece.
    Piece(Id, u32),
    /// A group, by its name.
    Group(Bytes),
    /// A pending entry of a group, by its number.
    Pending(u64, Id),
    /// A pending entry of a group and a consumer, by their numbers.
    Owned(u64, u64, Id),
    /// A consumer of a group, by its name.
    Consumer(u64, Bytes),
    /// How many entries are pending in a group.
    GroupCount(u64),
    /// How many entries are pending for a consumer of a group.
    ConsumerCount(u64, u64),
}

impl Prefix {
    /// The row of an entry.
    pub fn entry(&self, oid: Oid, id: Id) -> Vec<u8> {
        self.stream_row(oid, ENTRY, &[&id.to_bytes()])
    }
    /// One past the rows of all entries.
    pub fn entries_end(&self, oid: Oid) -> Vec<u8> {
        self.stream_row(oid, ENTRY + 1, &[])
    }
    /// Where the pieces of a long entry begin.
    pub(crate) fn entry_pieces(&self, oid: Oid, id: Id) -> Vec<u8> {
        self.stream_row(oid, PIECE, &[&id.to_bytes()])
    }
    /// The row of a piece of a long entry.
    pub fn entry_piece(&self, oid: Oid, id: Id, piece: u32) -> Vec<u8> {
        self.stream_row(oid, PIECE, &[&id.to_bytes(), &piece.to_be_bytes()])
    }
    /// One past the pieces of all entries.
    pub(crate) fn entry_pieces_end(&self, oid: Oid) -> Vec<u8> {
        self.stream_row(oid, PIECE + 1, &[])
    }
    /// The row of a group.
    pub fn group(&self, oid: Oid, name: &[u8]) -> Vec<u8> {
        self.stream_row(oid, GROUP, &[name])
    }
    /// One past the rows of all groups.
    pub fn groups_end(&self, oid: Oid) -> Vec<u8> {
        self.stream_row(oid, GROUP + 1, &[])
    }
    /// The row of a pending entry of a group.
    pub fn pending(&self, oid: Oid, group: u64, id: Id) -> Vec<u8> {
        self.stream_row(oid, PENDING, &[&group.to_be_bytes(), &id.to_bytes()])
    }
    /// Where the pending entries of a group begin.
    pub(crate) fn pending_of(&self, oid: Oid, group: u64) -> Vec<u8> {
        self.stream_row(oid, PENDING, &[&group.to_be_bytes()])
    }
    /// The row of a pending entry of a group, by consumer.
    pub fn owned(&self, oid: Oid, group: u64, consumer: u64, id: Id) -> Vec<u8> {
        self.stream_row(oid, OWNED, &[&group.to_be_bytes(), &consumer.to_be_bytes(), &id.to_bytes()])
    }
    /// Where the pending entries of all consumers of a group begin.
    pub(crate) fn owned_in(&self, oid: Oid, group: u64) -> Vec<u8> {
        self.stream_row(oid, OWNED, &[&group.to_be_bytes()])
    }
    /// Where the pending entries of a consumer begin.
    pub(crate) fn owned_by(&self, oid: Oid, group: u64, consumer: u64) -> Vec<u8> {
        self.stream_row(oid, OWNED, &[&group.to_be_bytes(), &consumer.to_be_bytes()])
    }
    /// The row of a consumer. Of an empty name: where the consumers of a group begin.
    pub fn consumer(&self, oid: Oid, group: u64, name: &[u8]) -> Vec<u8> {
        self.stream_row(oid, CONSUMER, &[&group.to_be_bytes(), name])
    }
    /// The row that counts the pending entries of a group.
    pub fn group_count(&self, oid: Oid, group: u64) -> Vec<u8> {
        self.stream_row(oid, GROUP_COUNT, &[&group.to_be_bytes()])
    }
    /// Where those of all groups begin.
    pub(crate) fn group_counts(&self, oid: Oid) -> Vec<u8> {
        self.stream_row(oid, GROUP_COUNT, &[])
    }
    /// One past those of all groups.
    pub(crate) fn group_counts_end(&self, oid: Oid) -> Vec<u8> {
        self.stream_row(oid, GROUP_COUNT + 1, &[])
    }
    /// The row that counts the pending entries of a consumer.
    pub fn consumer_count(&self, oid: Oid, group: u64, consumer: u64) -> Vec<u8> {
        self.stream_row(oid, CONSUMER_COUNT, &[&group.to_be_bytes(), &consumer.to_be_bytes()])
    }
    /// Where those of all consumers of a group begin.
    pub(crate) fn consumer_counts(&self, oid: Oid, group: u64) -> Vec<u8> {
        self.stream_row(oid, CONSUMER_COUNT, &[&group.to_be_bytes()])
    }
    fn stream_row(&self, oid: Oid, kind: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut k = self.of_object(b'T', oid, 1 + parts.iter().map(|part| part.len()).sum::<usize>());
        k.push(kind);
        parts.iter().for_each(|part| k.extend_from_slice(part));
        k
    }
    /// What a row of a stream is. None if it is none.
    pub fn decode_stream_row(&self, row: &[u8]) -> Option<StreamRow> {
        let (kind, rest) = row.get(usize::from(self.len) + 17..)?.split_first()?;
        let number = |raw: &[u8]| Some(u64::from_be_bytes(raw.try_into().ok()?));
        match *kind {
            ENTRY => Some(StreamRow::Entry(Id::decode(rest)?)),
            PIECE => {
                let (id, piece) = rest.split_first_chunk()?;
                Some(StreamRow::Piece(Id::from_bytes(*id), u32::from_be_bytes(piece.try_into().ok()?)))
            }
            GROUP => Some(StreamRow::Group(Bytes::copy_from_slice(rest))),
            PENDING => {
                let (group, id) = rest.split_at_checked(8)?;
                Some(StreamRow::Pending(number(group)?, Id::decode(id)?))
            }
            OWNED => {
                let (group, rest) = rest.split_at_checked(8)?;
                let (consumer, id) = rest.split_at_checked(8)?;
                Some(StreamRow::Owned(number(group)?, number(consumer)?, Id::decode(id)?))
            }
            CONSUMER => {
                let (group, name) = rest.split_at_checked(8)?;
                Some(StreamRow::Consumer(number(group)?, Bytes::copy_from_slice(name)))
            }
            GROUP_COUNT => Some(StreamRow::GroupCount(number(rest)?)),
            CONSUMER_COUNT => {
                let (group, consumer) = rest.split_at_checked(8)?;
                Some(StreamRow::ConsumerCount(number(group)?, number(consumer)?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> impl Strategy<Value = Id> {
        any::<(u64, u64)>().prop_map(|(ms, seq)| Id::new(ms, seq))
    }

    proptest! {
        #[test]
        fn rows_round_trip_in_order(
            numbers in any::<(u32, u128, u64, u64, u32)>(),
            mut ids in proptest::collection::vec(id(), 1..20),
            name in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let (db, oid) = (Prefix::from_number(numbers.0), Oid(numbers.1));
            let (group, consumer, piece) = (numbers.2, numbers.3, numbers.4);
            ids.sort_unstable();
            prop_assert!(ids.iter().map(|id| db.entry(oid, *id)).is_sorted());
            prop_assert!(ids.iter().map(|id| db.pending(oid, group, *id)).is_sorted());
            let name = Bytes::from(name);
            for id in ids {
                prop_assert_eq!(Id::decode(&id.to_bytes()), Some(id));
                prop_assert_eq!(id.next().and_then(Id::previous).unwrap_or(id), id);
                let rows = [
                    (db.entry(oid, id), StreamRow::Entry(id)),
                    (db.entry_piece(oid, id, piece), StreamRow::Piece(id, piece)),
                    (db.group(oid, &name), StreamRow::Group(name.clone())),
                    (db.pending(oid, group, id), StreamRow::Pending(group, id)),
                    (db.owned(oid, group, consumer, id), StreamRow::Owned(group, consumer, id)),
                    (db.consumer(oid, group, &name), StreamRow::Consumer(group, name.clone())),
                    (db.group_count(oid, group), StreamRow::GroupCount(group)),
                    (db.consumer_count(oid, group, consumer), StreamRow::ConsumerCount(group, consumer)),
                ];
                prop_assert!(rows.is_sorted_by_key(|(row, _)| row.clone()));
                for (row, what) in rows {
                    prop_assert_eq!(db.decode_oid(&row), Some(oid));
                    prop_assert_eq!(db.decode_stream_row(&row), Some(what));
                }
                prop_assert!(db.entry(oid, id) < db.entries_end(oid));
                prop_assert!(db.entry_piece(oid, id, piece).starts_with(&db.entry_pieces(oid, id)));
                prop_assert!(db.entry_piece(oid, id, piece) < db.entry_pieces_end(oid));
                prop_assert!(db.group(oid, &name) < db.groups_end(oid));
                prop_assert!(db.pending(oid, group, id).starts_with(&db.pending_of(oid, group)));
                prop_assert!(db.owned(oid, group, consumer, id).starts_with(&db.owned_by(oid, group, consumer)));
                prop_assert!(db.owned(oid, group, consumer, id).starts_with(&db.owned_in(oid, group)));
                prop_assert!(db.consumer_count(oid, group, consumer).starts_with(&db.consumer_counts(oid, group)));
            }
        }
    }
}
