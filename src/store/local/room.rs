//! Checks whether the disk has room to compact tables.
//!
//! A disk may have room for writes but not for compaction. RocksDB then accumulates new tables until it stops
//! writers, and reopening the database does not help: it starts the same compaction, which fills the disk
//! until it fails and leaves no room for the log meanwhile. So the store reports how much room is missing
//! and, after a failure, accepts no writes before that room exists (`reopen.rs`).

use super::stall::number;
use rocksdb::DB;
use rocksdb::properties as property;
use std::path::Path;

/// The number of new tables from which on they are compacted; RocksDB's own default.
const COMPACTED_TABLES: usize = 4;
const MB: u64 = 1 << 20;
/// Room for writes during a compaction, in addition to a log and a table for each memtable.
const MEANWHILE: u64 = 4 * MB;

/// The advice to the operator if a due compaction has no room on the disk.
pub(super) fn missing(db: &DB) -> Option<String> {
    let tables: Vec<_> = db.live_files().ok()?.iter().map(|table| (table.level, table.size as u64)).collect();
    let compaction = compaction_bytes(&tables)?;
    let needed = compaction + 2 * number(db, property::SIZE_ALL_MEM_TABLES) + MEANWHILE;
    advice(db.path(), needed, free_bytes(db.path())?)
}

/// The disk space that a compaction of the new tables takes before it removes its inputs: these tables and
/// the level below are rewritten, and RocksDB reserves a tenth more. None if they are too few to be
/// compacted. `tables`: level and size of each.
fn compaction_bytes(tables: &[(i32, u64)]) -> Option<u64> {
    if tables.iter().filter(|(level, _)| *level == 0).count() < COMPACTED_TABLES {
        return None;
    }
    let below = tables.iter().map(|(level, _)| *level).filter(|level| *level > 0).min();
    let inputs = tables.iter().filter(|(level, _)| *level == 0 || Some(*level) == below);
    let bytes: u64 = inputs.map(|(_, size)| size).sum();
    Some(bytes + bytes / 10)
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

fn advice(dir: &Path, needed: u64, free: u64) -> Option<String> {
    let more = needed.checked_sub(free).filter(|more| *more > 0)?;
    let [needed, free, more] = [needed.div_ceil(MB), free / MB, more.div_ceil(MB)];
    let dir = dir.display();
    Some(format!(
        "no room for compaction: it needs {needed} MB of free space in {dir}, but {free} MB are free. Free {more} MB more"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_enough() {
        let dir = Path::new("/data");
        assert_eq!(advice(dir, 5 * MB, 5 * MB), None);
        let said = advice(dir, 5 * MB + 1, 2 * MB).unwrap();
        assert!(
            said.contains("needs 6 MB of free space in /data, but 2 MB are free. Free 4 MB more"),
            "{said}"
        );
    }

    #[test]
    fn new_tables_and_the_level_below_are_written_anew() {
        let with = |new: usize| [vec![(0, 1); new], vec![(5, 100), (5, 200), (6, 9000)]].concat();
        assert_eq!(compaction_bytes(&with(3)), None);
        assert_eq!(compaction_bytes(&with(4)), Some(334));
        assert_eq!(compaction_bytes(&[(0, 7); 5]), Some(38), "there is no level below");
    }
}
