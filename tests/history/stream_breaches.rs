//! Stores that break their contract about streams.

use super::breaches::{kind, tag};
use tern::store::Read;
use tern::store::tamper::Tamper;

/// The tag of a stream's rows, and the kinds of those of a group and of what is pending there.
const STREAM: u8 = b'T';
const GROUP: u8 = 2;
const PENDING: u8 = 3;

/// Groups are read without a conflict.
pub struct NoGroupConflict;
impl Tamper for NoGroupConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == STREAM && kind(key) == Some(GROUP) { Read::Snapshot } else { read }
    }
}

/// Entries that are pending are read without a conflict.
pub struct NoPendingConflict;
impl Tamper for NoPendingConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == STREAM && kind(key) == Some(PENDING) { Read::Snapshot } else { read }
    }
}
