//! Write stalls (RocksDB's term): waiting, outside RocksDB, when memtables fill faster than they are flushed.
//!
//! A writer that waits inside RocksDB occupies the position of the current writer. RocksDB's own recovery
//! from a full disk needs that position to flush the memtables for which the writer waits: neither continues,
//! even after space is freed. So no writer waits inside: RocksDB rejects a write that would have to wait
//! (`no_slowdown`), and it is retried later. Nor does a flush wait inside, which RocksDB does if one more table would stop
//! writers: on a full disk that is for ever, and nobody is told. RocksDB's options disable its own slowdown of writers; they are
//! slowed down here instead, from the same thresholds on, to the rate that RocksDB begins with.

use super::room;
use rocksdb::properties::{self as property, PropName};
use rocksdb::{DB, ErrorKind, Options, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The number of uncompacted tables from which on writers are slowed down, and the number at which they stop.
/// RocksDB's own defaults.
const SLOW_TABLES: u64 = 20;
const STOP_TABLES: u64 = 36;
/// Bytes waiting for compaction from which on writers are slowed down. RocksDB's own default.
const SLOW_BYTES: u64 = 64 << 30;
/// Bytes written per second while slowed down. RocksDB's own default.
const SLOW_RATE: u64 = 16 << 20;
/// Interval between checks whether a write can continue.
const POLL: Duration = Duration::from_millis(1);
/// The number of failed checks before a background error of RocksDB counts: RocksDB retries every five
/// seconds.
const PATIENCE: u32 = 6000;

const MEMORY_FULL: &str = "memory is full of data that could not be written to disk: free disk space; see the file LOG in the data directory";

/// RocksDB never slows writers down; it only stops them.
pub(super) fn set_options(o: &mut Options) {
    o.set_level_zero_slowdown_writes_trigger(STOP_TABLES as i32);
    o.set_level_zero_stop_writes_trigger(STOP_TABLES as i32);
    o.set_soft_pending_compaction_bytes_limit(0);
}

/// The state of writers with respect to the tables. See the module.
pub(super) struct Stall {
    at_once: WriteOptions,
    /// RocksDB's version number of memtables and tables at the last check.
    tables: AtomicU64,
    /// The next write may be rejected and retried, so a copy of it is kept.
    is_near: AtomicBool,
    /// Writers are slowed down.
    is_slow: AtomicBool,
    /// The number of background errors that writers have survived.
    errors: AtomicU64,
    /// Tables are compacted. Until then their number stops nobody.
    compacts: AtomicBool,
}

impl Stall {
    pub(super) fn new() -> Self {
        let mut at_once = WriteOptions::default();
        at_once.set_no_slowdown(true);
        at_once.disable_wal(true);
        let (tables, errors, compacts) = Default::default();
        // A directory that was just opened may be full of tables.
        let (is_near, is_slow) = (AtomicBool::new(true), AtomicBool::new(false));
        Stall { at_once, tables, is_near, is_slow, errors, compacts }
    }

    /// Writes a batch once RocksDB accepts it.
    pub(super) fn write(&self, db: &DB, mut batch: WriteBatch) -> Result<(), String> {
        if self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(slowed_by(batch.size_in_bytes()));
        }
        let copy = self.is_near().then(|| batch.data().to_vec());
        loop {
            match (db.write_opt(batch, &self.at_once), &copy) {
                (Ok(()), _) => return Ok(()),
                (Err(e), Some(copy)) if e.kind() == ErrorKind::Incomplete => {
                    self.wait(db)?;
                    batch = WriteBatch::from_data(copy);
                }
                (Err(e), _) => return Err(e.into_string()),
            }
        }
    }

    /// Whether RocksDB has stopped writers, or may soon.
    pub(super) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    /// From now on tables are compacted.
    pub(super) fn begins_to_compact(&self) {
        self.compacts.store(true, Ordering::Relaxed);
    }

    /// Whether RocksDB has stopped writers, or would with one more table.
    fn is_stopped(&self, db: &DB) -> bool {
        let is_full = || self.compacts.load(Ordering::Relaxed) && fresh_tables(db) + 1 >= STOP_TABLES;
        number(db, property::IS_WRITE_STOPPED) > 0 || is_full()
    }

    /// Waits until RocksDB accepts writes and another table. Fails if it does not for a long time and its background work has
    /// failed: given room, RocksDB retries that on its own, and reopening the database would only start it
    /// again.
    pub(super) fn wait(&self, db: &DB) -> Result<(), String> {
        for polls in 0.. {
            if !self.is_stopped(db) {
                break;
            }
            if polls >= PATIENCE
                && let Some(trouble) = self.trouble(db)
            {
                return Err(trouble);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Why RocksDB accepts no writes, if its background work has failed.
    pub(super) fn trouble(&self, db: &DB) -> Option<String> {
        let has_failed = number(db, property::BACKGROUND_ERRORS) > self.errors.load(Ordering::Relaxed);
        (has_failed && self.is_stopped(db)).then(|| room::missing(db).unwrap_or_else(|| MEMORY_FULL.into()))
    }

    /// Called after a write; `tables` is RocksDB's current version number of memtables and tables.
    pub(super) fn look(&self, db: &DB, tables: u64) {
        if self.tables.swap(tables, Ordering::Relaxed) == tables {
            return;
        }
        let waiting = number(db, property::NUM_IMMUTABLE_MEM_TABLE);
        let fresh = fresh_tables(db);
        let debt = number(db, property::ESTIMATE_PENDING_COMPACTION_BYTES);
        let is_slow = fresh >= SLOW_TABLES || debt >= SLOW_BYTES;
        // RocksDB also stops writers if it owes much more compaction.
        self.is_near.store(is_slow || waiting > 0 || fresh >= SLOW_TABLES / 2, Ordering::Relaxed);
        self.is_slow.store(is_slow, Ordering::Relaxed);
        self.errors.store(number(db, property::BACKGROUND_ERRORS), Ordering::Relaxed);
    }
}

/// The number of tables that were not compacted.
fn fresh_tables(db: &DB) -> u64 {
    let fresh = db.property_value(property::num_files_at_level(0)).ok().flatten();
    fresh.and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// How long a write of `bytes` is delayed while writers are slowed down.
fn slowed_by(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 * 1_000_000 / SLOW_RATE)
}

/// RocksDB's property with this name.
pub(super) fn number(db: &DB, name: &PropName) -> u64 {
    db.property_int_value(name).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_slowed_down_writes_sixteen_megabytes_a_second() {
        assert_eq!(slowed_by(SLOW_RATE as usize / 4), Duration::from_millis(250));
        assert_eq!(slowed_by(0), Duration::ZERO);
    }

    /// Hazard: a rejected write is lost or written twice; or the check misses new tables.
    #[test]
    fn what_waited_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(64 << 10);
        options.set_max_write_buffer_number(2);
        options.set_disable_auto_compactions(true);
        set_options(&mut options);
        let (db, stall) = (DB::open(&options, dir.path()).unwrap(), Stall::new());
        let mut seen = [false; 2];
        for n in 0..4 * SLOW_TABLES as u32 {
            let mut batch = WriteBatch::default();
            (0..20).for_each(|part| batch.put([n, part].map(u32::to_be_bytes).concat(), [n as u8; 5000]));
            let before = db.latest_sequence_number();
            // Without compaction RocksDB would stop here forever.
            if number(&db, property::IS_WRITE_STOPPED) > 0 && seen[1] {
                break;
            }
            stall.write(&db, batch).unwrap();
            assert_eq!(db.latest_sequence_number(), before + 20);
            stall.look(&db, number(&db, property::CURRENT_SUPER_VERSION_NUMBER));
            seen[0] |= stall.is_near.load(Ordering::Relaxed);
            seen[1] |= stall.is_slow.load(Ordering::Relaxed);
        }
        assert_eq!(seen, [true; 2]);
    }

    /// Hazard: a flush waits inside RocksDB for a compaction that has no room, and no writer is ever answered.
    #[test]
    fn nobody_flushes_a_table_that_would_stop_writers() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_disable_auto_compactions(true);
        set_options(&mut options);
        let (db, stall) = (DB::open(&options, dir.path()).unwrap(), Stall::new());
        for n in 1..STOP_TABLES {
            assert!(!stall.is_stopped(&db), "{n}");
            db.put(n.to_be_bytes(), b"x").unwrap();
            db.flush().unwrap();
        }
        assert_eq!(fresh_tables(&db), STOP_TABLES - 1);
        assert!(!stall.is_stopped(&db), "as long as nothing is compacted");
        stall.begins_to_compact();
        assert!(stall.is_stopped(&db));
        assert_eq!(stall.trouble(&db), None, "compaction may do it");
        db.compact_range::<&[u8], &[u8]>(None, None);
        assert!(!stall.is_stopped(&db));
    }
}
