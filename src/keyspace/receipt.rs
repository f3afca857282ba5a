//! What is kept of a command that ran under a client's id.
//!
//! ```text
//! 01 | fingerprint u128 LE | ms u64 LE | db u8 | length u32 LE | reply, where it is at most INLINE_MAX bytes long
//! ```
//! The first byte is the format's version. A longer reply follows in pieces of [`PIECE`] bytes. What the bytes of the
//! reply mean is the business of `commands/reply_codec.rs`; they have a version of their own.

use crate::error::StoreError;
use bytes::{BufMut, Bytes};

/// Longest reply in the row itself, in bytes.
pub const INLINE_MAX: usize = 16 * 1024;
/// Bytes of a piece.
pub const PIECE: usize = 32 * 1024;

const FORMAT: u8 = 1;
const HEAD: usize = 30;

/// The row of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Names the command and its arguments, and the database that was selected.
    pub fingerprint: u128,
    /// When it ran, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The database that was selected afterwards.
    pub db: u8,
    /// Length of the whole reply in bytes.
    pub len: u32,
    /// The reply, where it is short; else empty, and it is in pieces.
    pub reply: Bytes,
}

impl Receipt {
    /// Whether the reply is in pieces.
    pub fn has_pieces(&self) -> bool {
        self.len as usize > INLINE_MAX
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.reply.len());
        out.put_u8(FORMAT);
        out.put_u128_le(self.fingerprint);
        out.put_u64_le(self.at);
        out.put_u8(self.db);
        out.put_u32_le(self.len);
        out.put_slice(&self.reply);
        out
    }

    /// Reads stored bytes; the reply stays shared with `raw`.
    pub fn decode(raw: &Bytes) -> Result<Self, StoreError> {
        Self::parse(raw).ok_or_else(|| StoreError::Corrupt(format!("receipt of {} bytes", raw.len())))
    }

    fn parse(raw: &Bytes) -> Option<Self> {
        if raw.first() != Some(&FORMAT) || raw.len() < HEAD {
            return None;
        }
        let receipt = Receipt {
            fingerprint: u128::from_le_bytes(raw.get(1..17)?.try_into().ok()?),
            at: u64::from_le_bytes(raw.get(17..25)?.try_into().ok()?),
            db: *raw.get(25)?,
            len: u32::from_le_bytes(raw.get(26..HEAD)?.try_into().ok()?),
            reply: raw.slice(HEAD..),
        };
        let here = if receipt.has_pieces() { 0 } else { receipt.len as usize };
        (receipt.reply.len() == here).then_some(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(fingerprint: u128, at: u64, db: u8, reply in prop::collection::vec(any::<u8>(), 0..100)) {
            let r = Receipt { fingerprint, at, db, len: reply.len() as u32, reply: reply.into() };
            let raw = Bytes::from(r.encode());
            prop_assert_eq!(Receipt::decode(&raw), Ok(r));
            for short in 0..raw.len() {
                prop_assert!(Receipt::decode(&raw.slice(..short)).is_err());
            }
        }
        #[test]
        fn garbage_is_no_panic(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Receipt::decode(&raw.into());
        }
    }

    #[test]
    fn a_long_reply_is_elsewhere() {
        let len = INLINE_MAX as u32 + 1;
        let r = Receipt { fingerprint: 1, at: 2, db: 3, len, reply: Bytes::new() };
        assert_eq!(Receipt::decode(&r.encode().into()), Ok(r));
    }

    #[test]
    fn the_bytes_are_these() {
        let r = Receipt { fingerprint: 2, at: 3, db: 4, len: 1, reply: Bytes::from_static(b"x") };
        let mut want = vec![1, 2];
        want.extend([0; 15]);
        want.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, b'x']);
        assert_eq!(r.encode(), want);
    }
}
