//! What an opened database holds: its format, and the commits in the logs that RocksDB does not have.

use super::audit;
use super::cleared::Cleared;
use super::directory::{log_error, open_error, read_error};
use super::layout::{self, DRAINED, FORMAT, FORMAT_BEFORE, FORMAT_VALUE, METADATA, VERSION};
use super::logs;
use super::recent::{Layer, Readers, Written};
use super::records::{sequence, walk};
use super::wal::{self, Logged};
use crate::error::{StoreError, StoreResult};
use crate::store::Version;
use rocksdb::{DB, WriteOptions};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The state found in the database.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recovered {
    /// Last commit version.
    pub(super) version: Version,
    /// Last metadata version.
    pub(super) metadata_version: Version,
    /// The number of the new log.
    pub(super) log: u64,
}

/// Rejects a database that is not Tern's.
pub(super) fn check_format(db: &DB, dir: &Path) -> StoreResult<()> {
    match db.get(FORMAT).map_err(read_error)?.as_deref() {
        Some(FORMAT_VALUE) => Ok(()),
        // It was stopped: all of it is in tables.
        Some(FORMAT_BEFORE) => logs::forget(dir)
            .map_err(|e| StoreError::Unavailable(format!("cannot upgrade {}: {e}", dir.display())))
            .and_then(|()| mark(db, dir)),
        Some(other) => Err(StoreError::Corrupt(format!(
            "{} has format \"{}\"; this version reads \"{}\"",
            dir.display(),
            other.escape_ascii(),
            FORMAT_VALUE.escape_ascii()
        ))),
        None if db.latest_sequence_number() == 0 => mark(db, dir),
        None => {
            Err(StoreError::Corrupt(format!("{} holds a RocksDB database that is not Tern's", dir.display())))
        }
    }
}

/// Writes the format marker.
fn mark(db: &DB, dir: &Path) -> StoreResult<()> {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    let written = db.put_opt(FORMAT, FORMAT_VALUE, &options).and_then(|()| db.flush());
    written.map_err(|e| open_error(dir, None, &e))
}

/// The number in a row; 0 if there is none.
fn stored_number(db: &DB, row: &[u8]) -> StoreResult<u64> {
    let Some(bytes) = db.get(row).map_err(read_error)? else { return Ok(0) };
    let bytes = <[u8; 8]>::try_from(bytes.as_slice());
    bytes.map(u64::from_be_bytes).map_err(|_| StoreError::Corrupt("a version row is not 8 bytes".into()))
}

/// What the logs hold.
pub(super) struct Replayed {
    pub(super) recovered: Recovered,
    /// The commits of each log that RocksDB does not have, the oldest first.
    pub(super) layers: Vec<Layer>,
    pub(super) next_record: u64,
}

/// Reads the logs that RocksDB does not have. `is_known`: whether the manifest is known to be whole.
pub(super) fn replay(db: &DB, dir: &Path, is_known: bool) -> StoreResult<Replayed> {
    let drained = stored_number(db, DRAINED)?;
    let (mut layers, mut next_record) = (Vec::new(), 0);
    let mut recovered = Recovered {
        version: stored_number(db, VERSION)?,
        metadata_version: stored_number(db, METADATA)?,
        log: drained + 1,
    };
    for (number, path) in audit::logs(dir, drained + 1, is_known)? {
        // RocksDB may flush a part of a layer that is larger than its memtable.
        let bytes = File::open(&path).and_then(|log| log.sync_data()).and_then(|()| std::fs::read(&path));
        let bytes =
            bytes.map_err(|e| StoreError::Unavailable(format!("cannot read {}: {e}", path.display())))?;
        let (layer, mut unread) = (Layer::new(number, 0), None);
        walk(&bytes, &mut |at, record| {
            next_record = sequence(record).1;
            let applied = apply(record, &layer, &mut recovered);
            unread = applied.is_none().then_some(at);
            applied.is_some()
        });
        if let Some(at) = unread {
            let path = path.display();
            return Err(StoreError::Corrupt(format!("{path} has an unknown record at byte {at}")));
        }
        layers.push(layer);
    }
    // The last logs have no commits if nothing was written since they began, or nothing reached the disk. Then
    // the log before one of them may be missing.
    let used = layers.iter().rposition(Layer::is_used).map_or(0, |last| last + 1);
    let unused: Vec<PathBuf> = layers.drain(used..).map(|unused| logs::path(dir, unused.log)).collect();
    logs::unlist(dir, &unused).map_err(|e| log_error(dir, &e))?;
    for path in unused.iter().rev() {
        std::fs::remove_file(path).map_err(|e| log_error(dir, &e))?;
    }
    recovered.log = layers.last().map_or(drained, |last| last.log) + 1;
    audit::forget_logs(dir, drained + 1);
    Ok(Replayed { recovered, layers, next_record })
}

fn apply(record: &[u8], to: &Layer, recovered: &mut Recovered) -> Option<()> {
    let readers = Readers { oldest: Version::MAX, newest: Version::MAX };
    let last = wal::replay(record, &mut |version, logged| {
        let (key, value) = match logged {
            Logged::Set(key, value) => (key, Some(value)),
            Logged::Remove(key) => (key, None),
            Logged::Clear(begin, end) => return to.clear([Cleared { begin, end, version }].into_iter()),
            Logged::Bump => {
                to.committed(version, Some(version));
                return recovered.metadata_version = version;
            }
            Logged::Drained(_) => return,
        };
        let hash = layout::hash(&key);
        let written = Written { key: &key, hash, version, value: value.as_ref(), kept: false };
        to.enter([written].into_iter(), readers);
    })?;
    recovered.version = recovered.version.max(last);
    to.committed(recovered.version, None);
    Some(())
}
