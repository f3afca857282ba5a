//! Waiting where memtables fill faster than tables are written (a stall, in RocksDB's terms), outside of RocksDB.
//!
//! A writer that waits inside of it holds the place of the one who writes. RocksDB's own recovery of a disk that was full wants that place to
//! write the memtables out, for which the writer waits: neither ever goes on, also when there is room again. So nobody waits inside:
//! RocksDB refuses what would have to wait (`no_slowdown`), and it is written again later. Where RocksDB only wants writers
//! to be slower, its options say that they need not be, and they are slowed down here: from the same numbers on, to the rate that it begins with.

use super::room;
use rocksdb::properties::{self as property, PropName};
use rocksdb::{DB, ErrorKind, Options, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Tables that are not compacted, from which on writers are slowed down, and stopped. RocksDB's own numbers.
const SLOW_TABLES: u64 = 20;
const STOP_TABLES: u64 = 36;
/// Bytes that wait for compaction, from which on writers are slowed down. RocksDB's own number.
const SLOW_BYTES: u64 = 64 << 30;
/// Bytes a second that are written meanwhile. RocksDB's own number.
const SLOW_RATE: u64 = 16 << 20;
/// Between two looks whether a write can go on.
const POLL: Duration = Duration::from_millis(1);
/// Looks in vain before a failure of RocksDB's own work counts: it tries again every five seconds.
const PATIENCE: u32 = 6000;

const MEMORY_FULL: &str = "memory is full of data that could not be written to disk: free disk space; see the file LOG in the data directory";

/// Nobody is slowed down inside of RocksDB; it only stops writers.
pub(super) fn set_options(o: &mut Options) {
    o.set_level_zero_slowdown_writes_trigger(STOP_TABLES as i32);
    o.set_level_zero_stop_writes_trigger(STOP_TABLES as i32);
    o.set_soft_pending_compaction_bytes_limit(0);
}

/// How writers stand to the tables. See the module.
pub(super) struct Stall {
    at_once: WriteOptions,
    /// What the last look was at: memtables and tables change together with this number.
    tables: AtomicU64,
    /// The next write may be refused, and be written again: a copy of it is kept.
    is_near: AtomicBool,
    /// Writers are slowed down.
    is_slow: AtomicBool,
    /// Errors of RocksDB's own work that writers have survived.
    errors: AtomicU64,
}

impl Stall {
    pub(super) fn new() -> Self {
        let mut at_once = WriteOptions::default();
        at_once.set_no_slowdown(true);
        let (tables, errors) = Default::default();
        // A directory that was opened may be full of tables.
        let (is_near, is_slow) = (AtomicBool::new(true), AtomicBool::new(false));
        Stall { at_once, tables, is_near, is_slow, errors }
    }

    /// Writes a batch, once there is a place for it.
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

    /// Whether RocksDB may soon stop writers, or has.
    pub(super) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    /// Waits until RocksDB takes writes. An error where it does not for long, and has failed at what would let it: with room it does that again
    /// by itself, and a database that is reopened would begin it anew.
    fn wait(&self, db: &DB) -> Result<(), String> {
        for polls in 0.. {
            if number(db, property::IS_WRITE_STOPPED) == 0 {
                break;
            }
            if polls >= PATIENCE
                && number(db, property::BACKGROUND_ERRORS) > self.errors.load(Ordering::Relaxed)
            {
                return Err(room::missing(db).unwrap_or_else(|| MEMORY_FULL.into()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// After a write, `tables` being RocksDB's number of the memtables and tables that there are.
    pub(super) fn look(&self, db: &DB, tables: u64) {
        if self.tables.swap(tables, Ordering::Relaxed) == tables {
            return;
        }
        let waiting = number(db, property::NUM_IMMUTABLE_MEM_TABLE);
        let fresh = db.property_value(property::num_files_at_level(0)).ok().flatten();
        let fresh = fresh.and_then(|n| n.parse::<u64>().ok()).unwrap_or(STOP_TABLES);
        let debt = number(db, property::ESTIMATE_PENDING_COMPACTION_BYTES);
        let is_slow = fresh >= SLOW_TABLES || debt >= SLOW_BYTES;
        // RocksDB also stops writers where it owes much more compaction.
        self.is_near.store(is_slow || waiting > 0 || fresh >= SLOW_TABLES / 2, Ordering::Relaxed);
        self.is_slow.store(is_slow, Ordering::Relaxed);
        self.errors.store(number(db, property::BACKGROUND_ERRORS), Ordering::Relaxed);
    }
}

/// How long the write of so many bytes is held back where writers are slowed down.
fn slowed_by(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 * 1_000_000 / SLOW_RATE)
}

/// What RocksDB says of itself by that name.
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

    /// Hazard: a write that was refused is lost, or written twice; or a look does not see the tables.
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
            // Without compaction RocksDB would stop here for good.
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
}
