//! One constructor per kind of key, and one decoder where rows are scanned. Tag bytes are never reused.
//!
//! Order matters: `K` rows sort by hash, so a cursor of SCAN is a hash; `X` rows sort by time; `S 00` rows by
//! first id. Root tags are ASCII letters (< 0x80); database prefixes start at 0x80, so that both share one
//! key space.

mod elements;
mod fields;
mod ranked;
pub mod scripts;
mod streams;

use crate::store::prefix_end;
use bytes::Bytes;
pub use elements::ElementRow;
pub use fields::FieldRow;
pub(crate) use fields::MAX_FIELD;
pub use ranked::RankedRow;
pub(crate) use ranked::{MAX_RANKED, place};
pub(crate) use streams::MAX_NAME;
pub use streams::{Id, StreamRow};
use xxhash_rust::xxh3::xxh3_64;

/// The longest Redis key in bytes: the `X` row of a key must stay below the store's 10 kB.
pub const MAX_REDIS_KEY: usize = 8 * 1024;
/// The longest member in bytes that is itself part of a dictionary key; longer ones are found by their hash.
pub(crate) const MAX_INLINE_MEMBER: usize = 512;
/// The number of shards of the key counter, of the expiry index and of the age index of idempotency records
/// (a power of two).
pub const SHARDS: u8 = 16;

/// The name of the rows of an object: a set, a hash, a long string. Never reused.
// Aligned like a pointer, so that values, which every command holds, need no padding.
#[repr(Rust, packed(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid(pub u128);

impl Oid {
    /// Parses its 16 bytes.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        Some(Oid(u128::from_be_bytes(raw.try_into().ok()?)))
    }
}

/// The short prefix of a database: 2 to 5 bytes; the first is 0x80 + the number of bytes that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    len: u8,
    bytes: [u8; 5],
}

impl Prefix {
    /// The prefix of an allocated number (below 2^32). Prefix-free: the first byte states the length.
    pub fn from_number(n: u32) -> Self {
        let be = n.to_be_bytes();
        let skip = be.iter().take(3).take_while(|b| **b == 0).count();
        let mut bytes = [0u8; 5];
        let tail = be.iter().skip(skip);
        let len = 4 - skip;
        for (to, from) in bytes.iter_mut().skip(1).zip(tail) {
            *to = *from;
        }
        if let Some(first) = bytes.first_mut() {
            *first = 0x80 + len as u8;
        }
        Prefix { len: len as u8 + 1, bytes }
    }
    /// Parses the stored bytes. A number has exactly one encoding: a second one would be a second place for
    /// the same database.
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let first = *raw.first()?;
        if raw.len() > 5 || usize::from(first.checked_sub(0x80)?) + 1 != raw.len() {
            return None;
        }
        let mut bytes = [0u8; 5];
        for (to, from) in bytes.iter_mut().zip(raw) {
            *to = *from;
        }
        Some(Prefix { len: raw.len() as u8, bytes }).filter(|p| Prefix::from_number(p.number()) == *p)
    }
    /// The prefix at the start of a database's row.
    pub fn of_row(row: &[u8]) -> Option<Self> {
        let len = usize::from(row.first()?.checked_sub(0x80)?) + 1;
        Prefix::decode(row.get(..len)?)
    }
    /// The number that the prefix encodes.
    pub fn number(&self) -> u32 {
        self.as_bytes().iter().skip(1).fold(0, |n, byte| n << 8 | u32::from(*byte))
    }
    /// The bytes that every key of the database starts with.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
    fn key(&self, tag: u8, capacity: usize) -> Vec<u8> {
        let mut k = Vec::with_capacity(6 + capacity);
        k.extend_from_slice(self.as_bytes());
        k.push(tag);
        k
    }
    /// `K <hash><key>`: the record of a Redis key.
    pub fn record(&self, key: &[u8]) -> Vec<u8> {
        let mut k = self.record_from(hash(key));
        k.extend_from_slice(key);
        k
    }
    /// Passes the parts of [`Prefix::record`] to `f`. It allocates nothing.
    pub(crate) fn with_record<R>(&self, key: &[u8], f: impl FnOnce(&[&[u8]]) -> R) -> R {
        f(&[self.as_bytes(), b"K", &hash(key).to_be_bytes(), key])
    }
    /// `K <hash>`: where the records of `hash` begin. Also the beginning of a scan.
    pub fn record_from(&self, hash: u64) -> Vec<u8> {
        let mut k = self.key(b'K', 40);
        k.extend_from_slice(&hash.to_be_bytes());
        k
    }
    /// One past all records.
    pub(crate) fn records_end(&self) -> Vec<u8> {
        self.key(b'K' + 1, 0)
    }
    /// The hash and the Redis key of a `K` row.
    pub fn decode_record(&self, row: &Bytes) -> Option<(u64, Bytes)> {
        let at = usize::from(self.len) + 1;
        let hash = row.get(at..at + 8)?;
        Some((u64::from_be_bytes(hash.try_into().ok()?), row.slice(at + 8..)))
    }
    fn of_object(&self, tag: u8, oid: Oid, more: usize) -> Vec<u8> {
        let mut k = self.key(tag, 16 + more);
        k.extend_from_slice(&oid.0.to_be_bytes());
        k
    }
    /// `<tag><oid>`: where an object's rows of one kind (`C`, `H`, `L`, `N`, `R`, `S` or `T`) begin.
    pub fn object_rows(&self, tag: u8, oid: Oid) -> Vec<u8> {
        self.of_object(tag, oid, 0)
    }
    /// The range of all rows with a tag.
    pub(crate) fn tagged(&self, tag: u8) -> (Vec<u8>, Vec<u8>) {
        (self.key(tag, 0), self.key(tag + 1, 0))
    }
    /// The object of a row (`C`, `H`, `L`, `N`, `R`, `S` or `T`).
    pub fn decode_oid(&self, row: &[u8]) -> Option<Oid> {
        let at = usize::from(self.len) + 1;
        Some(Oid(u128::from_be_bytes(row.get(at..at + 16)?.try_into().ok()?)))
    }
    /// `N <oid>`: the version and the cardinality of a set or a hash.
    pub fn count(&self, oid: Oid) -> Vec<u8> {
        self.of_object(b'N', oid, 0)
    }
    /// `C <oid><n>`: piece `n` of a long string.
    pub fn piece(&self, oid: Oid, n: u32) -> Vec<u8> {
        let mut k = self.of_object(b'C', oid, 4);
        k.extend_from_slice(&n.to_be_bytes());
        k
    }
    /// The number of a piece, from its row.
    pub fn decode_piece(row: &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(*row.last_chunk()?))
    }
    /// One past all pieces of a long string.
    pub(crate) fn pieces_end(&self, oid: Oid) -> Vec<u8> {
        prefix_end(&self.object_rows(b'C', oid))
    }
    /// `S <oid> 00 <id>`: a Roaring chunk that starts at `first`.
    pub fn chunk(&self, oid: Oid, first: u64) -> Vec<u8> {
        self.set_row(oid, 0, first)
    }
    /// `S <oid> 01 <id>`: a delta.
    pub fn delta(&self, oid: Oid, id: u64) -> Vec<u8> {
        self.set_row(oid, 1, id)
    }
    fn set_row(&self, oid: Oid, kind: u8, id: u64) -> Vec<u8> {
        let mut k = self.of_object(b'S', oid, 9);
        k.push(kind);
        k.extend_from_slice(&id.to_be_bytes());
        k
    }
    /// `S <oid> 02 <bucket>`: the sum of the sampling weights of a bucket's chunks.
    pub fn weight_sum(&self, oid: Oid, bucket: u8) -> Vec<u8> {
        self.set_row(oid, 2, u64::from(bucket))
    }
    /// `S <oid> 10+bucket <first id>`: the sampling weight of a chunk.
    pub fn weight(&self, oid: Oid, bucket: u8, first: u64) -> Vec<u8> {
        self.set_row(oid, 0x10 + bucket, first)
    }
    /// The range of all `S` rows of a set: chunks, deltas, weights.
    pub fn set_rows(&self, oid: Oid) -> (Vec<u8>, Vec<u8>) {
        let begin = self.object_rows(b'S', oid);
        let end = prefix_end(&begin);
        (begin, end)
    }
    /// One past all rows of one kind of a set: chunks (0), deltas (1), sums (2), weights (0x10 + bucket).
    pub fn set_rows_end(&self, oid: Oid, kind: u8) -> Vec<u8> {
        let mut k = self.of_object(b'S', oid, 1);
        k.push(kind + 1);
        k
    }
    /// The id at the end of a chunk's or a delta's key.
    pub fn decode_id(row: &[u8]) -> Option<u64> {
        let at = row.len().checked_sub(8)?;
        Some(u64::from_be_bytes(row.get(at..)?.try_into().ok()?))
    }
    /// `X <shard><ms><hash><key>`: the expiry index row of a key.
    pub fn expiry(&self, ms: u64, key: &[u8]) -> Vec<u8> {
        let hash = hash(key);
        let mut k = self.expiry_from(shard(hash), ms);
        k.extend_from_slice(&hash.to_be_bytes());
        k.extend_from_slice(key);
        k
    }
    /// `X <shard><ms>`: where the rows of a shard begin that expire at `ms`.
    pub fn expiry_from(&self, shard: u8, ms: u64) -> Vec<u8> {
        let mut k = self.key(b'X', 60);
        k.push(shard);
        k.extend_from_slice(&ms.to_be_bytes());
        k
    }
    /// The expiry time in ms and the Redis key of an `X` row.
    pub fn decode_expiry(&self, row: &Bytes) -> Option<(u64, Bytes)> {
        let at = usize::from(self.len) + 2;
        let ms = u64::from_be_bytes(row.get(at..at + 8)?.try_into().ok()?);
        row.get(at + 16..)?;
        Some((ms, row.slice(at + 16..)))
    }
    /// `Z <shard>`: the number of keys in a shard.
    pub fn key_count(&self, shard: u8) -> Vec<u8> {
        let mut k = self.key(b'Z', 1);
        k.push(shard);
        k
    }
}

/// The hash that orders Redis keys.
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The shard of a key's counter and expiry row.
pub fn shard(hash: u64) -> u8 {
    (hash >> 60) as u8 & (SHARDS - 1)
}

/// The owner of IDEMPOTENT ids, derived from the user's name and the store's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub [u8; 16]);

/// The name of an idempotency record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyName<'a> {
    /// None: from an earlier version, whose ids had no owner.
    pub owner: Option<Owner>,
    /// The client's id.
    pub id: &'a [u8],
}

/// Rows of the root.
pub mod root {
    use super::{IdempotencyName, Oid, Owner, Prefix};
    use bytes::Bytes;

    /// `d <db>`: the prefix of a database.
    pub fn database(db: u8) -> [u8; 2] {
        [b'd', db]
    }
    /// `a <window>`: how many numbers were taken from the allocator's window that starts at `start`.
    pub(crate) fn window(start: u32) -> [u8; 5] {
        tagged(b'a', start)
    }
    /// `r <candidate>`: exists if the number is taken.
    pub(crate) fn candidate(number: u32) -> [u8; 5] {
        tagged(b'r', number)
    }
    fn tagged(tag: u8, n: u32) -> [u8; 5] {
        let [a, b, c, d] = n.to_be_bytes();
        [tag, a, b, c, d]
    }
    /// Passes the parts of [`forward`] to `f`. None if the member is long.
    pub(crate) fn with_forward<R>(member: &[u8], f: impl FnOnce(&[&[u8]]) -> R) -> Option<R> {
        (member.len() <= super::MAX_INLINE_MEMBER).then(|| f(&[&[b'f', 0], member]))
    }

    /// `f 00 <member>`: the id of a member of at most [`super::MAX_INLINE_MEMBER`] bytes. `f 01 <xxh3-128>`:
    /// the ids of the longer members with that hash.
    pub fn forward(member: &[u8]) -> Vec<u8> {
        let mut k = Vec::with_capacity(2 + member.len().min(super::MAX_INLINE_MEMBER));
        if member.len() <= super::MAX_INLINE_MEMBER {
            k.extend_from_slice(&[b'f', 0]);
            k.extend_from_slice(member);
        } else {
            k.extend_from_slice(&[b'f', 1]);
            k.extend_from_slice(&xxhash_rust::xxh3::xxh3_128(member).to_be_bytes());
        }
        k
    }
    /// `q <shard>`: the next free block of member ids.
    pub fn lease(shard: u8) -> [u8; 2] {
        [b'q', shard]
    }
    /// `b <id>`: the member of an id.
    pub fn member(id: u64) -> [u8; 9] {
        named(b'b', id)
    }
    /// Distinguishes a group's key from that of its first id.
    pub(crate) const GROUP_TAIL: u8 = 0x10;
    /// `b <first> 10`: the members of a group of ids.
    pub fn members(first: u64) -> [u8; 10] {
        let [b, i0, i1, i2, i3, i4, i5, i6, i7] = member(first);
        [b, i0, i1, i2, i3, i4, i5, i6, i7, GROUP_TAIL]
    }
    /// `l <instance><lane>`: the last batch that a lane committed.
    pub fn lane(instance: u64, lane: u16) -> Vec<u8> {
        let mut k = lanes_of(instance).to_vec();
        k.extend_from_slice(&lane.to_be_bytes());
        k
    }
    /// `l <instance>`: the common prefix of the rows of a server's lanes.
    pub fn lanes_of(instance: u64) -> [u8; 9] {
        named(b'l', instance)
    }
    /// The range of all lanes' rows.
    pub fn lanes() -> (Vec<u8>, Vec<u8>) {
        (vec![b'l'], vec![b'l' + 1])
    }
    /// The server of a lane's row.
    pub fn decode_lane(row: &[u8]) -> Option<u64> {
        decode_named(b'l', row)
    }
    /// `m 02`: the store's secret.
    pub fn secret() -> [u8; 2] {
        [b'm', 2]
    }
    /// `m 01`: exists while a copy into this store is unfinished.
    pub fn half_copied() -> [u8; 2] {
        [b'm', 1]
    }
    /// Whether a row is data: not a server's own, nor a message, nor the marker of a copy.
    pub fn is_data(row: &[u8]) -> bool {
        !matches!(row.first(), Some(b'i' | b'l' | b'p')) && row != half_copied()
    }
    /// `p 00 <instance>`: a server that listens to messages.
    pub fn listener(instance: u64) -> [u8; 10] {
        let [a, b, c, d, e, f, g, h] = instance.to_be_bytes();
        [b'p', 0, a, b, c, d, e, f, g, h]
    }
    /// The range of all servers that listen.
    pub(crate) fn listeners() -> ([u8; 2], [u8; 2]) {
        ([b'p', 0], [b'p', 1])
    }
    /// `p 01`: changes with every row of messages.
    pub fn bell() -> [u8; 2] {
        [b'p', 1]
    }
    /// `p 02`: the last row of messages that was collected.
    pub fn collected() -> [u8; 2] {
        [b'p', 2]
    }
    /// `p 03`: the common prefix of rows of messages; a stamp and a number follow.
    pub fn messages() -> [u8; 2] {
        [b'p', 3]
    }
    /// One past all rows of messages.
    pub(crate) fn messages_end() -> [u8; 2] {
        [b'p', 4]
    }
    /// `p 04`: changes with every fence.
    pub(crate) fn fence_bell() -> [u8; 2] {
        [b'p', 4]
    }
    /// `p 05 <instance><slot>`: the keys that a server has fenced.
    pub(crate) fn fence(instance: u64, slot: u16) -> Vec<u8> {
        let mut k = fences_of(instance).to_vec();
        k.extend_from_slice(&slot.to_be_bytes());
        k
    }
    /// `p 05 <instance>`: the common prefix of the rows of a server's fences.
    pub(crate) fn fences_of(instance: u64) -> [u8; 10] {
        let [a, b, c, d, e, f, g, h] = instance.to_be_bytes();
        [b'p', 5, a, b, c, d, e, f, g, h]
    }
    /// The range of all fences.
    pub(crate) fn fences() -> (Vec<u8>, Vec<u8>) {
        (vec![b'p', 5], vec![b'p', 6])
    }
    /// Where the messages committed after `version` begin.
    pub(crate) fn messages_after(version: u64) -> Vec<u8> {
        let mut k = messages().to_vec();
        k.extend_from_slice(&version.saturating_add(1).to_be_bytes());
        k
    }
    /// The commit version and the whole stamp of a row of messages.
    pub fn decode_message(row: &[u8]) -> Option<(u64, &[u8])> {
        let stamp = row.strip_prefix(&messages())?.get(..10)?;
        (row.len() == 16).then_some((u64::from_be_bytes(*stamp.first_chunk()?), stamp))
    }
    /// `i <instance>`: a server's heartbeat.
    pub fn instance(instance: u64) -> [u8; 9] {
        named(b'i', instance)
    }
    /// The range of all servers' rows.
    pub(crate) fn instances() -> (Vec<u8>, Vec<u8>) {
        (vec![b'i'], vec![b'i' + 1])
    }
    /// The server of this row.
    pub fn decode_instance(row: &[u8]) -> Option<u64> {
        decode_named(b'i', row)
    }
    fn named(tag: u8, n: u64) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = n.to_be_bytes();
        [tag, a, b, c, d, e, f, g, h]
    }
    fn decode_named(tag: u8, row: &[u8]) -> Option<u64> {
        Some(u64::from_be_bytes(*row.strip_prefix(&[tag])?.first_chunk()?))
    }
    /// `t 00 <owner><length><id>`: the idempotency record of the command under a user's id. `t <length><id>`:
    /// the same in a store of an earlier version, whose ids had no owner. The length makes the rows
    /// prefix-free; ids have 16 to 255 bytes.
    pub fn idempotency_record(of: IdempotencyName<'_>) -> Vec<u8> {
        let mut k = Vec::with_capacity(of.id.len() + 22);
        k.push(b't');
        if let Some(Owner(owner)) = of.owner {
            k.push(0);
            k.extend_from_slice(&owner);
        }
        k.push(of.id.len() as u8);
        k.extend_from_slice(of.id);
        k
    }
    /// The name of an idempotency record behind `t`, and the bytes that follow it.
    pub fn decode_idempotency(row: &[u8]) -> Option<(IdempotencyName<'_>, &[u8])> {
        let rest = row.strip_prefix(b"t")?;
        let (owner, rest) = match rest.strip_prefix(&[0]) {
            Some(rest) => {
                let (owner, rest) = rest.split_first_chunk()?;
                (Some(Owner(*owner)), rest)
            }
            None => (None, rest),
        };
        let (len, rest) = rest.split_first()?;
        let (id, rest) = rest.split_at_checked(usize::from(*len))?;
        Some((IdempotencyName { owner, id }, rest))
    }
    /// The idempotency record's row and `<n>`: piece `n` of a long reply.
    pub fn idempotency_piece(of: IdempotencyName<'_>, n: u16) -> Vec<u8> {
        let mut k = idempotency_record(of);
        k.extend_from_slice(&n.to_be_bytes());
        k
    }
    /// One past all pieces of a long reply.
    pub(crate) fn idempotency_pieces_end(of: IdempotencyName<'_>) -> Vec<u8> {
        let mut k = idempotency_record(of);
        k.extend_from_slice(&[0xff; 3]);
        k
    }
    /// The range of all idempotency records that have an owner.
    pub fn owned_idempotency_records() -> ([u8; 2], [u8; 2]) {
        ([b't', 0], [b't', 1])
    }
    /// `t 01 <owner>`: the bytes that a user's idempotency records take.
    pub fn idempotency_size(of: Owner) -> Vec<u8> {
        [&[b't', 1][..], &of.0].concat()
    }
    /// `t 02`: the bytes that all users' idempotency records take.
    pub fn all_idempotency_size() -> [u8; 2] {
        [b't', 2]
    }
    /// `u <shard><ms><owner><id>`: the age index row of an id that was used at `ms`.
    pub fn idempotency_age(ms: u64, of: IdempotencyName<'_>) -> Vec<u8> {
        let mut k = idempotency_ages_from(super::shard(super::hash(of.id)), ms);
        if let Some(Owner(owner)) = of.owner {
            k.extend_from_slice(&owner);
        }
        k.extend_from_slice(of.id);
        k
    }
    /// `u <shard><ms>`: where the rows of a shard begin that were used at `ms`.
    pub(crate) fn idempotency_ages_from(shard: u8, ms: u64) -> Vec<u8> {
        let mut k = Vec::with_capacity(60);
        k.extend_from_slice(&[b'u', shard]);
        k.extend_from_slice(&ms.to_be_bytes());
        k
    }
    /// The time in ms and the name of an age index row. `is_owned`: whether its idempotency record has an
    /// owner, according to the row's value.
    pub fn decode_idempotency_age(row: &[u8], is_owned: bool) -> Option<(u64, IdempotencyName<'_>)> {
        let ms = u64::from_be_bytes(row.get(2..10)?.try_into().ok()?);
        let rest = row.get(10..)?;
        let (owner, id) = match rest.split_first_chunk() {
            Some((owner, id)) if is_owned => (Some(Owner(*owner)), id),
            None if is_owned => return None,
            _ => (None, rest),
        };
        Some((ms, IdempotencyName { owner, id }))
    }
    /// `e 00`: the collector's state.
    pub fn collector() -> [u8; 2] {
        [b'e', 0]
    }
    /// `e 01 <first id>`: the candidates in a block of ids.
    pub fn candidates(first: u64) -> [u8; 10] {
        in_collection(1, first)
    }
    /// The range of all candidates' rows.
    pub fn all_candidates() -> ([u8; 2], [u8; 2]) {
        ([b'e', 1], [b'e', 2])
    }
    /// `e 02 <prefix><oid>`: a set that was made while the collector looks for members.
    pub fn made(db: Prefix, oid: Oid) -> Vec<u8> {
        [&[b'e', 2], db.as_bytes(), &oid.0.to_be_bytes()].concat()
    }
    /// The range of all sets made.
    pub fn all_made() -> ([u8; 2], [u8; 2]) {
        ([b'e', 2], [b'e', 3])
    }
    /// The database and the object of a set made.
    pub fn decode_made(row: &[u8]) -> Option<(Prefix, Oid)> {
        let rest = row.strip_prefix(b"e\x02")?;
        let prefix = Prefix::of_row(rest)?;
        let oid = rest.get(prefix.as_bytes().len()..)?.try_into().ok()?;
        Some((prefix, Oid(u128::from_be_bytes(oid))))
    }
    /// `e 03 <instance>`: the epoch up to which a server's replies need no removed member.
    pub fn streamed(instance: u64) -> [u8; 10] {
        in_collection(3, instance)
    }
    /// The range of all servers' epochs.
    pub(crate) fn all_streamed() -> ([u8; 2], [u8; 2]) {
        ([b'e', 3], [b'e', 4])
    }
    /// `e 04 <id>`: a candidate that was given to a set.
    pub fn revived(id: u64) -> [u8; 10] {
        in_collection(4, id)
    }
    /// The range of all revived ids.
    pub fn all_revived() -> ([u8; 2], [u8; 2]) {
        ([b'e', 4], [b'e', 5])
    }
    fn in_collection(kind: u8, n: u64) -> [u8; 10] {
        let [a, b, c, d, e, f, g, h] = n.to_be_bytes();
        [b'e', kind, a, b, c, d, e, f, g, h]
    }
    /// The number behind the kind in a row of the collector.
    pub fn decode_in_collection(row: &[u8]) -> Option<u64> {
        Some(u64::from_be_bytes(row.strip_prefix(b"e")?.get(1..)?.try_into().ok()?))
    }
    /// The target of a garbage row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Garbage {
        /// All rows of an object that no record points to.
        Object(Prefix, Oid),
        /// All rows of a database that was flushed.
        Database(Prefix),
        /// An object under construction: garbage once its builder is dead or its lease has run out, according
        /// to the row's value (`lifecycle::reclaim`). The builder removes the row in the transaction that
        /// swaps the object in.
        Building(Prefix, Oid),
    }
    /// `g <kind>...`.
    pub fn garbage(g: Garbage) -> Vec<u8> {
        let mut k = vec![b'g'];
        let (kind, prefix, oid) = match g {
            Garbage::Object(p, o) => (1, p, Some(o)),
            Garbage::Database(p) => (2, p, None),
            Garbage::Building(p, o) => (3, p, Some(o)),
        };
        k.push(kind);
        k.extend_from_slice(prefix.as_bytes());
        if let Some(o) = oid {
            k.extend_from_slice(&o.0.to_be_bytes());
        }
        k
    }
    /// The range of all garbage rows.
    pub fn garbage_range() -> ([u8; 1], [u8; 1]) {
        ([b'g'], [b'g' + 1])
    }
    /// Parses a garbage row's key.
    pub fn decode_garbage(row: &Bytes) -> Option<Garbage> {
        let kind = *row.get(1)?;
        let len = usize::from(row.get(2)?.checked_sub(0x80)?) + 1;
        let prefix = Prefix::decode(row.get(2..2 + len)?)?;
        let oid = || Some(Oid(u128::from_be_bytes(row.get(2 + len..)?.try_into().ok()?)));
        match kind {
            1 => Some(Garbage::Object(prefix, oid()?)),
            2 if row.len() == 2 + len => Some(Garbage::Database(prefix)),
            3 => Some(Garbage::Building(prefix, oid()?)),
            _ => None,
        }
    }
}
