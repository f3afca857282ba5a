//! The format of idempotency records: the replies to commands that ran under a client's id.
//!
//! ```text
//! 02 | fingerprint u128 LE | ms u64 LE | db u8 | length u32 LE | reply, if it has at most INLINE_MAX bytes
//! ```
//! The first byte is the format's version; 01 marks idempotency records without an owner, whose fingerprints
//! need no secret. They are no longer looked up, and are removed by age. A longer reply follows in pieces of
//! [`PIECE`] bytes. `commands/reply_codec.rs` defines the bytes of the reply; they have a version of their
//! own.
//!
//! A row of the age index holds the facts that a sweep needs ([`Age`]):
//! ```text
//! 02 or 03 | size u32 LE                      of an idempotency record with an owner; 03: it has pieces
//! nothing, or 01                              of one without; 01: it has pieces
//! ```

use crate::error::StoreError;
use bytes::{BufMut, Bytes};

/// The longest reply in the row itself, in bytes.
pub(crate) const INLINE_MAX: usize = 16 * 1024;
/// The bytes of a piece.
pub(crate) const PIECE: usize = 32 * 1024;

const FORMAT: u8 = 2;
const FORMAT_WITHOUT_OWNER: u8 = 1;
const HEAD: usize = 30;
/// The bytes of an age index row's value.
const AGE: usize = 5;
/// The bytes of the keys of an idempotency record and of its age index row, without the id.
const ROW: usize = 19;
const AGE_ROW: usize = 26;

/// An idempotency record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Whether its id has an owner, and its fingerprint uses the secret.
    pub is_owned: bool,
    /// Identifies the command, its arguments, and the database that was selected.
    pub fingerprint: u128,
    /// When it ran, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The database that was selected afterwards.
    pub db: u8,
    /// The length of the whole reply in bytes.
    pub len: u32,
    /// The reply, if it is short; otherwise empty, with the reply in pieces.
    pub reply: Bytes,
}

impl IdempotencyRecord {
    /// Whether the reply is in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        self.len as usize > INLINE_MAX
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.reply.len());
        out.put_u8(if self.is_owned { FORMAT } else { FORMAT_WITHOUT_OWNER });
        out.put_u128_le(self.fingerprint);
        out.put_u64_le(self.at);
        out.put_u8(self.db);
        out.put_u32_le(self.len);
        out.put_slice(&self.reply);
        out
    }

    /// Parses the stored bytes; the reply shares memory with `raw`.
    pub fn decode(raw: &Bytes) -> Result<Self, StoreError> {
        Self::parse(raw).ok_or_else(|| {
            StoreError::Corrupt(format!("an idempotency record of {} bytes does not decode", raw.len()))
        })
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        let is_owned = match *raw.first()? {
            FORMAT => true,
            FORMAT_WITHOUT_OWNER => false,
            _ => return None,
        };
        let record = IdempotencyRecord {
            is_owned,
            fingerprint: u128::from_le_bytes(raw.get(1..17)?.try_into().ok()?),
            at: u64::from_le_bytes(raw.get(17..25)?.try_into().ok()?),
            db: *raw.get(25)?,
            len: u32::from_le_bytes(raw.get(26..HEAD)?.try_into().ok()?),
            reply: raw.slice(HEAD..),
        };
        let here = if record.has_pieces() { 0 } else { record.len as usize };
        (record.reply.len() == here).then_some(record)
    }
}

/// The value of a row of the age index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// Whether the reply is in pieces.
    pub has_pieces: bool,
    /// The size counted for its owner, in bytes; None if it has no owner.
    pub size: Option<u32>,
}

impl Age {
    /// The value for the idempotency record `of`, whose id has `id` bytes.
    pub(crate) fn new(of: &IdempotencyRecord, id: usize) -> Self {
        let size = of.is_owned.then(|| size(id, of.len as usize));
        Age { has_pieces: of.has_pieces(), size }
    }

    /// The stored bytes.
    pub fn encode(self) -> Vec<u8> {
        match self.size {
            Some(size) => [&[2 | u8::from(self.has_pieces)][..], &size.to_le_bytes()].concat(),
            None if self.has_pieces => vec![1],
            None => Vec::new(),
        }
    }

    /// Parses the stored bytes.
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let (has_pieces, size) = match raw {
            [] => (false, None),
            [1] => (true, None),
            [kind @ (2 | 3), size @ ..] => (*kind == 3, Some(u32::from_le_bytes(size.try_into().ok()?))),
            _ => return None,
        };
        Some(Age { has_pieces, size })
    }
}

/// The bytes of the rows of an idempotency record with an owner, keys and values, as counted for the bounds.
fn size(id: usize, reply: usize) -> u32 {
    let row = ROW + id + HEAD;
    let age = AGE_ROW + id + AGE;
    let pieces = if reply > INLINE_MAX { reply.div_ceil(PIECE) * (ROW + id + 2) } else { 0 };
    u32::try_from(row + age + pieces + reply).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(is_owned: bool, fingerprint: u128, at: u64, db: u8, reply in prop::collection::vec(any::<u8>(), 0..100)) {
            let r = IdempotencyRecord { is_owned, fingerprint, at, db, len: reply.len() as u32, reply: reply.into() };
            let raw = Bytes::from(r.encode());
            prop_assert_eq!(IdempotencyRecord::decode(&raw), Ok(r));
            for short in 0..raw.len() {
                prop_assert!(IdempotencyRecord::decode(&raw.slice(..short)).is_err());
            }
        }
        #[test]
        fn garbage_is_no_panic(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = IdempotencyRecord::decode(&raw.into());
        }
    }

    #[test]
    fn a_long_reply_is_elsewhere() {
        let len = INLINE_MAX as u32 + 1;
        let r = IdempotencyRecord { is_owned: true, fingerprint: 1, at: 2, db: 3, len, reply: Bytes::new() };
        assert_eq!(IdempotencyRecord::decode(&r.encode().into()), Ok(r));
    }

    #[test]
    fn the_bytes_are_these() {
        let reply = Bytes::from_static(b"x");
        let r = IdempotencyRecord { is_owned: true, fingerprint: 2, at: 3, db: 4, len: 1, reply };
        let mut want = vec![2, 2];
        want.extend([0; 15]);
        want.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, b'x']);
        assert_eq!(r.encode(), want);
        want[0] = 1;
        assert_eq!(IdempotencyRecord { is_owned: false, ..r.clone() }.encode(), want);
        let size = (19 + 16 + 30) + (26 + 16 + 5) + 1;
        let age = Age::new(&r, 16);
        assert_eq!(age, Age { has_pieces: false, size: Some(size) });
        assert_eq!(age.encode(), [2, size as u8, 0, 0, 0]);
    }
}
