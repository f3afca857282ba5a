//! The large encoding: a row a field, ordered by the field's hash.
//!
//! ```text
//! H <oid> 00 <hash u64 BE><field>          -> 00 | value
//!                                             01 | length u64 LE | number u64 LE      a long value, in pieces
//!                                             02 or 03 | expiry ms u64 LE | the same  a field that expires
//! H <oid> 01 <number u64 BE><piece u32 BE> -> at most 32 KiB of it
//! H <oid> 02 <expiry ms BE><hash><field>   -> empty                                   see `expiry`
//! ```
//! The row carries the conflicts of (hash, field): two servers that change different fields never conflict. A
//! decision that depends on a field reads its row serializably; its pieces are read as a snapshot, because a
//! value that is written gets pieces of its own under a new number. N counts the fields, and each change adds
//! to its version.
//!
//! Ordered by hash, because HSCAN then needs no state, and a seek to a random hash is a draw.

use super::Pair;
use super::listpack::Slices;
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{FieldRow, MAX_FIELD, Oid, Prefix};
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Tx, key_after, prefix_end};
use crate::types::object::Count;
use crate::types::pieces;
use crate::types::string::{INLINE_MAX, PIECE};
use bytes::{BufMut, Bytes};
use std::borrow::Cow;
use std::collections::BTreeMap;

const INLINE: u8 = 0;
const PIECES: u8 = 1;
/// This bit marks a field that expires.
const EXPIRES: u8 = 2;
/// Bytes requested by one range read.
pub(super) const PAGE: usize = 1 << 18;

/// What a field's row holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// When the field expires, in milliseconds since the Unix epoch.
    pub(super) expire_at: Option<u64>,
    /// Its value.
    pub(super) content: Content,
}

/// A field's value as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// The value.
    Inline(Bytes),
    /// Its length in bytes, and the number of its pieces.
    Pieces { len: u64, number: u64 },
}

impl Held {
    /// Decodes a row.
    pub(super) fn decode(raw: &Bytes) -> Result<Self> {
        Held::parse(raw).ok_or_else(|| StoreError::Corrupt("a field of a hash does not decode".into()).into())
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        let (kind, mut rest) = raw.split_first()?;
        let mut expire_at = None;
        if kind & EXPIRES != 0 {
            let (ms, behind) = rest.split_first_chunk()?;
            (expire_at, rest) = (Some(u64::from_le_bytes(*ms)), behind);
        }
        let content = match kind & !EXPIRES {
            INLINE => Content::Inline(raw.slice_ref(rest)),
            PIECES => {
                let (len, number) = rest.split_first_chunk()?;
                let number = u64::from_le_bytes(number.try_into().ok()?);
                Content::Pieces { len: u64::from_le_bytes(*len), number }
            }
            _ => return None,
        };
        Some(Held { expire_at, content })
    }

    /// The row.
    pub(super) fn encode(&self) -> Vec<u8> {
        match &self.content {
            Content::Inline(value) => inline(value, self.expire_at),
            Content::Pieces { len, number } => in_pieces(*len, *number, self.expire_at),
        }
    }

    /// Bytes of the value.
    pub(super) fn len(&self) -> u64 {
        match &self.content {
            Content::Inline(value) => value.len() as u64,
            Content::Pieces { len, .. } => *len,
        }
    }

    /// Whether the field exists: it has not expired.
    pub(super) fn is_alive(&self, s: &Scope<'_>) -> Result<bool> {
        match self.expire_at {
            Some(at) => Ok(s.life.is_alive(at, s.now)?),
            None => Ok(true),
        }
    }
}

/// The row's content, if the field exists.
pub(super) fn alive(s: &Scope<'_>, held: Option<Held>) -> Result<Option<Held>> {
    match held {
        Some(held) if held.is_alive(s)? => Ok(Some(held)),
        Some(_) | None => Ok(None),
    }
}

fn head(kind: u8, expire_at: Option<u64>, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + room);
    match expire_at {
        Some(at) => {
            out.push(kind | EXPIRES);
            out.put_u64_le(at);
        }
        None => out.push(kind),
    }
    out
}

fn inline(value: &[u8], expire_at: Option<u64>) -> Vec<u8> {
    let mut out = head(INLINE, expire_at, value.len());
    out.put_slice(value);
    out
}

fn in_pieces(len: u64, number: u64, expire_at: Option<u64>) -> Vec<u8> {
    let mut out = head(PIECES, expire_at, 16);
    out.put_u64_le(len);
    out.put_u64_le(number);
    out
}

/// Fails for a name that no field can have.
pub(crate) fn check_field(field: &[u8]) -> Result<()> {
    if field.len() > MAX_FIELD {
        return Err(ReplyError::of(format!("ERR a field of a hash has at most {MAX_FIELD} bytes")).into());
    }
    Ok(())
}

/// The row of a field, which is absent if the name is too long. The field may have expired ([`alive`]).
pub(super) async fn get_held(s: &Scope<'_>, oid: Oid, field: &[u8]) -> Result<Option<Held>> {
    if field.len() > MAX_FIELD {
        return Ok(None);
    }
    s.tx.get(&s.db.field(oid, field), Read::Serializable).await?.as_ref().map(Held::decode).transpose()
}

/// As [`get_held`], for each of `fields`.
pub(super) async fn get_all_held(s: &Scope<'_>, oid: Oid, fields: &[&Bytes]) -> Result<Vec<Option<Held>>> {
    if let [field] = fields {
        return Ok(vec![get_held(s, oid, field).await?]);
    }
    let possible = fields.iter().filter(|field| field.len() <= MAX_FIELD);
    let keys: Vec<Vec<u8>> = possible.map(|field| s.db.field(oid, field)).collect();
    let mut rows = get_many(s.tx, &keys, Read::Serializable).await?.into_iter();
    let held = |field: &&Bytes| {
        let row = if field.len() <= MAX_FIELD { rows.next().flatten() } else { None };
        row.as_ref().map(Held::decode).transpose()
    };
    fields.iter().map(held).collect()
}

/// The value itself.
pub(super) async fn value(tx: &Tx, db: Prefix, oid: Oid, held: Held) -> Result<Bytes> {
    let (len, number) = match held.content {
        Content::Inline(value) => return Ok(value),
        Content::Pieces { len, number } => (len, number),
    };
    pieces::read(tx, db.field_pieces(oid, number), len).await
}

/// What [`put`] does to the number of fields.
#[derive(Default)]
struct Grown {
    /// Fields that did not exist, or had expired.
    new: u64,
    /// Fields that had no row.
    rows: i64,
}

/// Sets fields; the last value of each counts. Their expiries stay if `keeps_expiry`. Returns the number of
/// new ones. The caller has checked the fields ([`check_field`]), and announces the change.
pub(super) async fn put(s: &Scope<'_>, oid: Oid, pairs: &[Pair], keeps_expiry: bool) -> Result<u64> {
    let mut grown = Grown::default();
    if let [[field, value]] = pairs {
        let old = get_held(s, oid, field).await?;
        overwrite(s, oid, old, (field, value), keeps_expiry, &mut grown)?;
    } else {
        let last: BTreeMap<&Bytes, &Bytes> = pairs.iter().map(|[field, value]| (field, value)).collect();
        let fields: Vec<&Bytes> = last.keys().copied().collect();
        let held = get_all_held(s, oid, &fields).await?;
        for ((field, value), old) in last.into_iter().zip(held) {
            overwrite(s, oid, old, (field, value), keeps_expiry, &mut grown)?;
        }
    }
    s.tx.add(&s.db.count(oid), &Count::step(grown.rows))?;
    Ok(grown.new)
}

fn overwrite(
    s: &Scope<'_>,
    oid: Oid,
    old: Option<Held>,
    pair: Slices<'_>,
    keeps_expiry: bool,
    grown: &mut Grown,
) -> Result<()> {
    let is_alive = match &old {
        Some(held) => held.is_alive(s)?,
        None => false,
    };
    grown.new += u64::from(!is_alive);
    grown.rows += i64::from(old.is_none());
    let kept = old.as_ref().and_then(|held| held.expire_at).filter(|_| keeps_expiry && is_alive);
    replace(s, oid, old, pair, kept)
}

/// Writes the rows of a new object; the fields are distinct.
pub(super) fn create(s: &Scope<'_>, pairs: &[Slices<'_>]) -> Result<Oid> {
    let oid = s.space.fresh.oid();
    for pair in pairs {
        replace(s, oid, None, *pair, None)?;
    }
    s.tx.add(&s.db.count(oid), &Count::step(pairs.len() as i64))?;
    Ok(oid)
}

/// Removes fields that have rows, with what these hold. The caller has read them serializably.
pub(super) fn remove(s: &Scope<'_>, oid: Oid, gone: BTreeMap<&Bytes, Held>) -> Result<()> {
    let n = gone.len() as i64;
    for (field, held) in gone {
        drop_pieces(s, oid, &held)?;
        drop_expiry(s, oid, field, &held, None)?;
        s.tx.clear(&s.db.field(oid, field))?;
    }
    Ok(s.tx.add(&s.db.count(oid), &Count::step(-n))?)
}

/// Gives a field another expiry, or none. The caller has read its row serializably, and moves N.
pub(super) fn set_expiry(s: &Scope<'_>, oid: Oid, field: &[u8], old: Held, to: Option<u64>) -> Result<()> {
    drop_expiry(s, oid, field, &old, to)?;
    if let Some(at) = to {
        s.tx.set(&s.db.field_expiry(oid, at, field), &[])?;
    }
    Ok(s.tx.set(&s.db.field(oid, field), &Held { expire_at: to, ..old }.encode())?)
}

/// Writes a field; the row of its expiry exists if it keeps that.
fn replace(s: &Scope<'_>, oid: Oid, old: Option<Held>, pair: Slices<'_>, kept: Option<u64>) -> Result<()> {
    if let Some(old) = old {
        drop_pieces(s, oid, &old)?;
        drop_expiry(s, oid, pair.0, &old, kept)?;
    }
    let number = if pair.1.len() > INLINE_MAX { s.space.fresh.stamp() } else { 0 };
    for (row, bytes) in rows_of(s.db, oid, number, pair, kept) {
        s.tx.set(&row, &bytes)?;
    }
    Ok(())
}

fn drop_pieces(s: &Scope<'_>, oid: Oid, held: &Held) -> Result<()> {
    if let Content::Pieces { number, .. } = held.content {
        let begin = s.db.field_pieces(oid, number);
        s.tx.clear_range(&begin, &prefix_end(&begin))?;
    }
    Ok(())
}

fn drop_expiry(s: &Scope<'_>, oid: Oid, field: &[u8], old: &Held, kept: Option<u64>) -> Result<()> {
    if let Some(at) = old.expire_at.filter(|at| kept != Some(*at)) {
        s.tx.clear(&s.db.field_expiry(oid, at, field))?;
    }
    Ok(())
}

/// The rows of a field, without that of its expiry. `number`: a fresh one, for a long value.
pub(super) fn rows_of(
    db: Prefix,
    oid: Oid,
    number: u64,
    (field, value): Slices<'_>,
    expire_at: Option<u64>,
) -> impl Iterator<Item = (Vec<u8>, Cow<'_, [u8]>)> {
    let (row, pieces) = if value.len() <= INLINE_MAX {
        (inline(value, expire_at), &[][..])
    } else {
        (in_pieces(value.len() as u64, number, expire_at), value)
    };
    let pieces = (0..).zip(pieces.chunks(PIECE));
    let pieces = pieces.map(move |(n, piece)| (db.field_piece(oid, number, n), piece.into()));
    std::iter::once((db.field(oid, field), row.into())).chain(pieces)
}

/// A field, its hash, and what its row holds.
pub(super) type Found = (u64, Bytes, Held);

/// Fields in the order of their rows.
pub(super) struct Page {
    pub(super) fields: Vec<Found>,
    /// Where the next page begins. None at the end.
    pub(super) next: Option<Vec<u8>>,
}

/// The fields between two rows, including those that have expired, up to `limit` (0: any number) and about
/// `bytes` (0: any number). A snapshot read: whoever depends on all of them reads N serializably.
pub(super) async fn page(
    tx: &Tx,
    db: Prefix,
    (begin, end): (&[u8], &[u8]),
    (limit, bytes): (usize, usize),
) -> Result<Page> {
    let opts = RangeOptions { limit, bytes, reverse: false };
    let rows = tx.get_range(begin, end, opts, Read::Snapshot).await?;
    let next = rows.pairs.last().filter(|_| rows.more).map(|(row, _)| key_after(row));
    let field = |(row, raw): &(Bytes, Bytes)| match db.decode_hash_row(row) {
        Some(FieldRow::Field(hash, name)) => Ok((hash, name, Held::decode(raw)?)),
        Some(FieldRow::Piece(..) | FieldRow::Expiry { .. }) | None => {
            Err(Error::from(StoreError::Corrupt("a row of a hash has an invalid key".into())))
        }
    };
    Ok(Page { fields: rows.pairs.iter().map(field).collect::<Result<_>>()?, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let (db, oid) = (Prefix::from_number(7), Oid(9));
        for (len, rows) in [(0, 1), (INLINE_MAX, 1), (INLINE_MAX + 1, 2), (3 * PIECE, 4), (3 * PIECE + 1, 5)]
        {
            let (value, expire_at) = (vec![b'x'; len], (len % 2 == 1).then_some(1 << 40));
            let written: Vec<_> = rows_of(db, oid, 5, (b"field", &value), expire_at).collect();
            assert_eq!(written.len(), rows, "{len}");
            let held = Held::decode(&written[0].1.to_vec().into()).unwrap();
            assert_eq!(held.len(), len as u64);
            let pieces: Vec<u8> = written[1..].iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
            assert_eq!((held.expire_at, &held.encode()[..]), (expire_at, &written[0].1[..]));
            match held.content {
                Content::Inline(bytes) => assert!(bytes == value && pieces.is_empty()),
                Content::Pieces { number, .. } => assert!(number == 5 && pieces == value),
            }
        }
        for raw in [&b""[..], b"\x02", b"\x01", &[2; 8], &[4; 20], &[3; 24], &[1; 16], &[1; 18]] {
            assert!(Held::decode(&Bytes::copy_from_slice(raw)).is_err(), "{raw:?}");
        }
    }
}
