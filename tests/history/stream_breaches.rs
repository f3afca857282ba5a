//! Stores that break their contract about streams.

use super::breaches::{kind, tag};
use tern::store::Read;
use tern::store::tamper::Tamper;

/// The tag of a stream's rows, and the kinds of those of an entry, of a group and of what is pending there.
const STREAM: u8 = b'T';
const ENTRY: u8 = 0;
const GROUP: u8 = 2;
const PENDING: u8 = 3;
/// How the row begins that whoever removes an object writes.
const GARBAGE_OBJECT: [u8; 2] = [b'g', 1];

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

/// Who delivers or claims entries does not conflict with those who add or delete them.
pub struct NoEntryConflict;
impl Tamper for NoEntryConflict {
    fn notes(&self, begin: &[u8]) -> bool {
        !(tag(begin) == STREAM && kind(begin) == Some(ENTRY))
    }
}

/// Commands on groups do not conflict with the removal of the stream.
pub struct NoLifeConflict;
impl Tamper for NoLifeConflict {
    fn notes(&self, begin: &[u8]) -> bool {
        !begin.starts_with(&GARBAGE_OBJECT)
    }
}
