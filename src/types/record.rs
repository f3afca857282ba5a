//! The record under a Redis key: type, encoding, revision, expiry, and the value or its location.
//!
//! ```text
//! 01 | tag u8 | flags u8 | revision u64 LE | [expiry ms u64 LE, if flags & 1] | payload
//! tags 1, 2, 6, 7 a string (string/record.rs)   tags 3, 4, 5 a set (set/record.rs)
//! tags 9, 10, 11, 20, 21 a hash (hash/record.rs)
//! tags 12, 13, 14 a list (list/record.rs)      tags 16, 17, 18 a sorted set (zset/record.rs)
//! tag 22 a stream (stream/record.rs)
//! tag 8 a ghost, always with an expiry: swaps u64 LE
//! ```
//! The first byte is the version of the format. Tags are never reused. A ghost is not a key: it marks that a
//! key has been absent since a client called WATCH on it (`lifecycle::watched`).

use super::Value;
use crate::error::StoreError;
use bytes::{Buf, BufMut, Bytes};

const FORMAT: u8 = 1;
const HAS_EXPIRY: u8 = 1;
/// The tag of a ghost; no type has it.
pub(crate) const GHOST: u8 = 8;
/// The contents of a key's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// A key.
    Record(Record),
    /// A mark of an absent key.
    Ghost(Ghost),
}

impl Stored {
    /// Decodes stored bytes; payloads are what is left of `raw`, without a copy.
    pub fn decode(raw: Bytes) -> Result<Self, StoreError> {
        let bytes = raw.len();
        let row = match raw.get(1) {
            Some(&GHOST) => Ghost::parse(&raw).map(Stored::Ghost),
            _ => Record::parse(raw).map(Stored::Record),
        };
        row.ok_or_else(|| StoreError::Corrupt(format!("a record of {bytes} bytes does not decode")))
    }
    /// The record, unless this is a ghost.
    pub fn into_record(self) -> Option<Record> {
        match self {
            Stored::Record(record) => Some(record),
            Stored::Ghost(_) => None,
        }
    }
    /// When the row may be removed, in milliseconds since the Unix epoch.
    pub fn expire_at(&self) -> Option<u64> {
        match self {
            Stored::Record(record) => record.expire_at,
            Stored::Ghost(ghost) => Some(ghost.expire_at),
        }
    }
}

impl Stored {
    /// The times at which the expiry index names the row: when it may be removed, and when the first of its
    /// value's elements may expire.
    pub fn times(&self) -> [Option<u64>; 2] {
        let due = match self {
            Stored::Record(record) => record.value.due(),
            Stored::Ghost(_) => None,
        };
        [self.expire_at(), due]
    }
}

/// The mark of an absent key that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ghost {
    /// Unique among all writes of this row.
    pub revision: u64,
    /// When it may be removed, in milliseconds since the Unix epoch.
    pub expire_at: u64,
    /// The number of swaps that its database's number had seen. A ghost that a later swap brings back is
    /// void.
    pub swaps: u64,
}

impl Ghost {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, GHOST, HAS_EXPIRY];
        out.put_u64_le(self.revision);
        out.put_u64_le(self.expire_at);
        out.put_u64_le(self.swaps);
        out
    }
    fn parse(raw: &[u8]) -> Option<Self> {
        let rest: &[u8; 24] = raw.strip_prefix(&[FORMAT, GHOST, HAS_EXPIRY])?.try_into().ok()?;
        let (numbers, _) = rest.as_chunks();
        let [revision, expire_at, swaps] = *numbers else { return None };
        let [revision, expire_at, swaps] = [revision, expire_at, swaps].map(u64::from_le_bytes);
        Some(Ghost { revision, expire_at, swaps })
    }
}

/// The decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Changes with every write of the record.
    pub revision: u64,
    /// Milliseconds since the Unix epoch; the key is gone when now >= this.
    pub expire_at: Option<u64>,
    /// The value.
    pub value: Value,
}

impl Record {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_slice(&[FORMAT, self.value.tag(), if self.expire_at.is_some() { HAS_EXPIRY } else { 0 }]);
        out.put_u64_le(self.revision);
        if let Some(ms) = self.expire_at {
            out.put_u64_le(ms);
        }
        self.value.encode(&mut out);
        out
    }

    fn parse(mut raw: Bytes) -> Option<Self> {
        let &[FORMAT, tag, flags @ 0..=HAS_EXPIRY] = raw.first_chunk::<3>()? else { return None };
        let revision = u64::from_le_bytes(raw.get(3..11)?.try_into().ok()?);
        let (expire_at, at) = if flags & HAS_EXPIRY == 0 {
            (None, 11)
        } else {
            (Some(u64::from_le_bytes(raw.get(11..19)?.try_into().ok()?)), 19)
        };
        raw.get(at..)?;
        raw.advance(at);
        let value = Value::decode(tag, raw)?;
        Some(Record { revision, expire_at, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::keys::Oid;
    use crate::types::set::SetRep;
    use crate::types::string::Str;

    #[test]
    fn round_trip() {
        for value in [
            Value::Str(Str::Inline(Bytes::from_static(b"abc"))),
            Value::Str(Str::Pieces { oid: Oid(7), len: 1 << 29 }),
            Value::Str(Str::Made { bytes: Bytes::from_static(b"12"), raw: true }),
            Value::Str(Str::Made { bytes: Bytes::from_static(b""), raw: false }),
            Value::Set(SetRep::Listpack(Bytes::from_static(b"\x01\x00a"))),
            Value::Set(SetRep::Chunked(Oid(u128::MAX))),
        ] {
            for expire_at in [None, Some(1)] {
                let r = Record { revision: 42, expire_at, value: value.clone() };
                assert_eq!(Stored::decode(r.encode().into()), Ok(Stored::Record(r)));
            }
        }
    }

    #[test]
    fn a_ghost_is_no_key() {
        let ghost = Ghost { revision: 42, expire_at: 7, swaps: 3 };
        let row = Stored::decode(ghost.encode().into()).unwrap();
        assert_eq!((row.expire_at(), row.clone()), (Some(7), Stored::Ghost(ghost)));
        assert_eq!(row.into_record(), None);
    }

    #[test]
    fn garbage_is_an_error() {
        for raw in
            [&b""[..], b"\x01", b"\x02\x01\x00aaaaaaaa", b"\x01\x63\x00aaaaaaaa", b"\x01\x01\x01aaaaaaaa"]
        {
            assert!(Stored::decode(Bytes::from_static(raw)).is_err());
        }
        let mut ghost = Ghost { revision: 42, expire_at: 7, swaps: 0 }.encode();
        ghost.push(0);
        assert!(Stored::decode(Bytes::from(ghost)).is_err(), "a long ghost");
        assert!(Stored::decode(Bytes::from_static(b"\x01\x08\x00aaaaaaaa")).is_err(), "a ghost for ever");
        let value = |value| Record { revision: 1, expire_at: None, value }.encode();
        for mut raw in [
            value(Value::Str(Str::Pieces { oid: Oid(7), len: 1 << 20 })),
            value(Value::Set(SetRep::Chunked(Oid(7)))),
        ] {
            raw.push(0);
            assert!(Stored::decode(Bytes::from(raw.clone())).is_err(), "too long");
            raw.pop();
            raw[2] |= 2;
            assert!(Stored::decode(Bytes::from(raw)).is_err(), "an unknown flag");
        }
    }
}
