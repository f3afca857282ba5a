//! The layout of RocksDB's single key space.
//!
//! ```text
//! 00 'format'      what wrote this directory            "tern-local 2"
//! 00 'drained'     the last log whose commits are here  u64, big-endian
//! 00 'version'     the last commit version of those     u64, big-endian
//! 00 'metadata'    their last metadata version          u64, big-endian
//! 01 <user key>    the user's value
//! ```
//!
//! Why a prefix and not a second column family: one flush makes a whole layer of commits durable. The
//! byte costs nothing on disk (keys are delta-encoded) and one short copy per read. Inside the engine all
//! keys are *stored* keys, with the prefix; only `tx.rs` sees both.

use bytes::Bytes;

/// The format that this version of the engine reads and writes.
pub(super) const FORMAT_VALUE: &[u8] = b"tern-local 2";
/// The format before it, which this version upgrades.
pub(super) const FORMAT_BEFORE: &[u8] = b"tern-local 1";
/// The row of the format marker.
pub(super) const FORMAT: &[u8] = b"\0format";
/// The row of the last drained log.
pub(super) const DRAINED: &[u8] = b"\0drained";
/// The row of the last commit version.
pub(super) const VERSION: &[u8] = b"\0version";
/// The row of the metadata version.
pub(super) const METADATA: &[u8] = b"\0metadata";

const USER: u8 = 1;
const INLINE: usize = 256;

/// Runs `f` with the stored form of `key`; short keys are built on the stack.
pub(super) fn with_stored<R>(key: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [USER; INLINE];
    match buffer.get_mut(..=key.len()).and_then(<[u8]>::split_first_mut) {
        Some((_, rest)) => {
            rest.copy_from_slice(key);
            f(buffer.get(..=key.len()).unwrap_or_default())
        }
        None => f(&stored(key)),
    }
}

/// The same, for a key in parts.
pub(super) fn with_stored_parts<R>(parts: &[&[u8]], f: impl FnOnce(&[u8]) -> R) -> R {
    let (mut buffer, mut end) = ([USER; INLINE], 1);
    for part in parts {
        let Some(place) = buffer.get_mut(end..end + part.len()) else { return f(&stored(&parts.concat())) };
        place.copy_from_slice(part);
        end += part.len();
    }
    f(buffer.get(..end).unwrap_or_default())
}

/// The stored form of a user's key.
pub(super) fn stored(key: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(key.len() + 1);
    bytes.push(USER);
    bytes.extend_from_slice(key);
    bytes.into()
}

/// The stored form of a user's key, and a value. If the value is short, in one allocation.
pub(super) fn stored_row(key: &[u8], value: &[u8]) -> (Bytes, Bytes) {
    if value.len() > INLINE {
        return (stored(key), Bytes::copy_from_slice(value));
    }
    let mut bytes = Vec::with_capacity(1 + key.len() + value.len());
    bytes.push(USER);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    let mut value = Bytes::from(bytes);
    (value.split_to(1 + key.len()), value)
}

/// The user's key of a stored one.
pub(super) fn user(stored: &[u8]) -> Bytes {
    Bytes::copy_from_slice(stored.get(1..).unwrap_or_default())
}

pub(super) use crate::store::writes::hash;
