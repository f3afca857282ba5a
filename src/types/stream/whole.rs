//! All of a stream at once, for DUMP and RESTORE.

use super::entry::Entry;
use crate::keyspace::keys::Id;
use bytes::Bytes;

/// All of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whole {
    /// The entries by ascending id. Their fields stay encoded, because each string on its own would take 32 bytes more.
    pub entries: Vec<Entry>,
    /// The id given last; none is higher.
    pub last: Id,
    /// The largest id of an entry that was deleted.
    pub max_deleted: Id,
    /// The number of entries ever added.
    pub added: u64,
    /// The groups, of different names.
    pub groups: Vec<WholeGroup>,
}

/// All of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeGroup {
    /// Its name.
    pub name: Bytes,
    /// The id of the last entry that was delivered.
    pub last: Id,
    /// How many entries were added up to that one. None: unknown.
    pub read: Option<u64>,
    /// The pending entries by ascending id.
    pub pending: Vec<WholePending>,
    /// The consumers, of different names.
    pub consumers: Vec<WholeConsumer>,
}

/// A pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholePending {
    /// The entry, which may have been deleted.
    pub id: Id,
    /// When it was delivered last, in milliseconds since the Unix epoch.
    pub time: u64,
    /// How often it was delivered.
    pub count: u64,
    /// The place of the consumer that has it among those of the group.
    pub consumer: usize,
}

/// A consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeConsumer {
    /// Its name.
    pub name: Bytes,
    /// When it last asked for something, in milliseconds since the Unix epoch.
    pub seen: u64,
    /// When it last got something.
    pub active: Option<u64>,
}
