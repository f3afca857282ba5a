//! Stores that break their contract, each in one way.

use super::record::WATCHING;
use super::witness::unit_of;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use tern::keyspace::keys::Prefix;
use tern::store::Read;
use tern::store::tamper::{Sight, Tamper};
use tern::types::record::{Ghost, Stored};

/// The tag of a row below a database's prefix, or of a row of the store.
pub fn tag(key: &[u8]) -> u8 {
    match Prefix::of_row(key) {
        Some(prefix) => key.get(prefix.as_bytes().len()).copied().unwrap_or(0),
        None => key.first().copied().unwrap_or(0),
    }
}

/// The kind of a row of an object, which follows the object's id.
pub fn kind(key: &[u8]) -> Option<u8> {
    const OID: usize = 16;
    key.get(Prefix::of_row(key)?.as_bytes().len() + 1 + OID).copied()
}

/// Records are read without a conflict.
pub struct NoReadConflict;
impl Tamper for NoReadConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b'K' { Read::Snapshot } else { read }
    }
}

/// The catalog of databases is read without a conflict.
pub struct NoDirectoryConflict;
impl Tamper for NoDirectoryConflict {
    fn range(&self, begin: &[u8], read: Read) -> Read {
        if tag(begin) == b'd' { Read::Snapshot } else { read }
    }
    fn metadata(&self) -> Read {
        Read::Snapshot
    }
}

/// The version and number of a set's members are read without a conflict.
pub struct NoCountConflict;
impl Tamper for NoCountConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b'N' { Read::Snapshot } else { read }
    }
}

/// Rewriting a set's chunk does not conflict with other writers of it.
pub struct NoChunkConflict;
impl Tamper for NoChunkConflict {
    fn notes(&self, begin: &[u8]) -> bool {
        !(tag(begin) == b'S' && kind(begin) == Some(0))
    }
}

/// The reply kept under an id is looked up without a conflict.
pub struct NoIdempotencyConflict;
impl Tamper for NoIdempotencyConflict {
    fn read(&self, key: &[u8], read: Read) -> Read {
        if tag(key) == b't' { Read::Snapshot } else { read }
    }
}

/// A write into a piece of a string does not see the piece's contents.
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

/// An unknown commit counts as not applied.
pub struct LaneKeySkipped;
impl Tamper for LaneKeySkipped {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        value.filter(|_| tag(key) != b'l')
    }
}

/// WATCH compares only whether a key exists, not its revision.
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

/// Offsets in a record: the flags, the revision and the optional expiry; the value follows.
const FLAGS: usize = 2;
const REVISION: Range<usize> = 3..11;
const EXPIRY: Range<usize> = 11..19;

fn has_expiry(raw: &[u8]) -> bool {
    raw[FLAGS] & 1 > 0
}

/// The fault in an EXEC's comparison of a watched key.
#[derive(Clone, Copy)]
enum Amiss {
    Conflict,
    Expiry,
}

/// Breaks the comparison of an EXEC's watched key and no other read of that key. The comparison is the first
/// read after the transaction first reads the EXEC's mark (`record.rs`). What is read as a snapshot does not
/// count: a prefetch reads the mark and the calls' keys in any order, before anything is compared.
pub struct Compared {
    amiss: Amiss,
    of_one: Mutex<Comparing>,
}

/// The state of one transaction.
#[derive(Default)]
struct Comparing {
    /// The unit of the EXEC whose mark was read last.
    last: Option<usize>,
    is_next: bool,
    /// The unit is the WATCH itself.
    watches: bool,
    row: Option<Vec<u8>>,
}

impl Compared {
    /// The watched key is read without a conflict.
    pub fn without_conflict() -> Arc<Self> {
        Self::amiss(Amiss::Conflict)
    }
    /// An expired watched key counts as alive while its row exists.
    pub fn at_no_time() -> Arc<Self> {
        Self::amiss(Amiss::Expiry)
    }
    fn amiss(amiss: Amiss) -> Arc<Self> {
        Arc::new(Compared { amiss, of_one: Mutex::default() })
    }
}

impl Tamper for Compared {
    fn of_one(&self) -> Option<Arc<dyn Tamper>> {
        Some(Self::amiss(self.amiss))
    }
    fn read(&self, key: &[u8], read: Read) -> Read {
        if read == Read::Snapshot {
            return read;
        }
        let mut one = self.of_one.lock().unwrap();
        if let Some(unit) = unit_of(key) {
            one.watches |= unit >= WATCHING && unit.is_multiple_of(2);
            one.is_next = unit > WATCHING && one.last.replace(unit) != Some(unit) && !one.watches;
        } else if tag(key) == b'K' && std::mem::take(&mut one.is_next) {
            one.row = Some(key.to_vec());
            return if matches!(self.amiss, Amiss::Conflict) { Read::Snapshot } else { read };
        }
        read
    }
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        let is_compared = self.of_one.lock().unwrap().row.take_if(|row| row == key).is_some();
        match (self.amiss, value) {
            (Amiss::Expiry, Some(raw)) if is_compared && has_expiry(&raw) => {
                let mut raw = raw.to_vec();
                raw[EXPIRY].fill(0xFF);
                Some(raw.into())
            }
            (Amiss::Expiry | Amiss::Conflict, value) => value,
        }
    }
}

/// PERSIST leaves a key its old revision.
#[derive(Default)]
pub struct PersistUnseen(Mutex<BTreeMap<Vec<u8>, Lasting>>);

/// The values shown for a row.
struct Lasting {
    revision: Vec<u8>,
    value: Vec<u8>,
}

impl Tamper for PersistUnseen {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        let value = value?;
        if tag(key) != b'K' || unit_of(key).is_some() {
            return Some(value);
        }
        let (mut raw, expires) = (value.to_vec(), has_expiry(&value));
        let begin = if expires { EXPIRY.end } else { REVISION.end };
        let mut all = self.0.lock().unwrap();
        if let Some(before) = all.get(key).filter(|before| before.value == raw[begin..])
            && !expires
        {
            raw[REVISION].copy_from_slice(&before.revision);
        }
        let shown = Lasting { revision: raw[REVISION].to_vec(), value: raw[begin..].to_vec() };
        all.insert(key.to_vec(), shown);
        Some(raw.into())
    }
}

/// An absent key looks unchanged since it was watched, as if ghosts never broke.
pub struct GhostsForEver;
impl Tamper for GhostsForEver {
    fn answer(&self, key: &[u8], _: Read, value: Option<Bytes>) -> Option<Bytes> {
        let is_ghost = |raw: &Bytes| matches!(Stored::decode(raw.clone()), Ok(Stored::Ghost(_)));
        if tag(key) != b'K' || value.as_ref().is_some_and(|raw| !is_ghost(raw)) {
            return value;
        }
        Some(Ghost { revision: 0, expire_at: u64::MAX, swaps: 0 }.encode().into())
    }
}

/// Transactions begin at a version older than the last commit.
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
