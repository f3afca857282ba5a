//! Stores that break their contract, each in one way.

use bytes::Bytes;
use tern::keyspace::keys::Prefix;
use tern::keyspace::record::{Ghost, Stored};
use tern::store::Read;
use tern::store::tamper::{Sight, Tamper};

/// The tag of a row below a database's prefix, or of a row of the store.
pub fn tag(key: &[u8]) -> u8 {
    match Prefix::of_row(key) {
        Some(prefix) => key.get(prefix.as_bytes().len()).copied().unwrap_or(0),
        None => key.first().copied().unwrap_or(0),
    }
}

/// Records are read without a conflict.
pub struct NoReadConflict;
impl Tamper for NoReadConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b'K' { Read::Snapshot } else { read }
    }
}

/// Where databases are is read without a conflict.
pub struct NoDirectoryConflict;
impl Tamper for NoDirectoryConflict {
    fn range(&self, begin: &[u8], read: Read) -> Read {
        if tag(begin) == b'd' { Read::Snapshot } else { read }
    }
    fn metadata(&self) -> Read {
        Read::Snapshot
    }
}

/// Version and number of a set's members are read without a conflict.
pub struct NoCountConflict;
impl Tamper for NoCountConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b'N' { Read::Snapshot } else { read }
    }
}

/// Whoever rewrites a set's chunk does not conflict with others who do.
pub struct NoChunkConflict;
impl Tamper for NoChunkConflict {
    fn notes(&self, begin: &[u8]) -> bool {
        const OID: usize = 16;
        let kind = Prefix::of_row(begin).and_then(|prefix| begin.get(prefix.as_bytes().len() + 1 + OID));
        !(tag(begin) == b'S' && kind == Some(&0))
    }
}

/// The answer kept under an id is looked for without a conflict.
pub struct NoReceiptConflict;
impl Tamper for NoReceiptConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b't' { Read::Snapshot } else { read }
    }
}

/// Whoever writes into a piece of a string does not see what the piece holds.
pub struct PieceUnseen;
impl Tamper for PieceUnseen {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        value.filter(|_| tag(key) != b'C')
    }
}

/// A version is published before the snapshot that belongs to it.
pub struct VersionBeforeSnapshot;
impl Tamper for VersionBeforeSnapshot {
    fn sight(&self) -> Sight {
        Sight::Torn
    }
}

/// After an unknown commit nobody looks whether it was applied.
pub struct LaneKeySkipped;
impl Tamper for LaneKeySkipped {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        value.filter(|_| tag(key) != b'l')
    }
}

/// WATCH compares whether a key is there, not its revision.
pub struct WatchWithoutRevision;
impl Tamper for WatchWithoutRevision {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        let value = value?;
        if tag(key) != b'K' {
            return Some(value);
        }
        let mut raw = value.to_vec();
        raw[3..11].fill(0);
        Some(raw.into())
    }
}

/// An absent key looks as if nobody had touched it since it was watched: what happens where ghosts are not broken.
pub struct GhostsForEver;
impl Tamper for GhostsForEver {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        let is_ghost = |raw: &Bytes| matches!(Stored::decode(raw), Ok(Stored::Ghost(_)));
        if tag(key) != b'K' || value.as_ref().is_some_and(|raw| !is_ghost(raw)) {
            return value;
        }
        Some(Ghost { revision: 0, expire_at: u64::MAX, swaps: 0 }.encode().into())
    }
}

/// Transactions begin at a version that is not the last one committed.
pub struct StaleReadVersion;
impl Tamper for StaleReadVersion {
    fn sight(&self) -> Sight {
        Sight::Older
    }
}

/// Commits are answered before they are done.
pub struct AnswerBeforeSync;
impl Tamper for AnswerBeforeSync {
    fn answers_early(&self) -> bool {
        true
    }
}
