//! The RocksDB database: options, opening, and the few calls that the rest of the engine makes.
//!
//! Options and reasons: a single writer, so no concurrent memtable writes; bloom filters over whole keys (10
//! bits) and a filter over the memtable, because most reads are points; lz4; a hash index inside data blocks;
//! two background jobs, because the server's own threads need the cores; tables full of tombstones are
//! compacted, because range reads walk over them, and a memtable full of them is flushed; a read of many rows
//! mostly leaves a full block cache unchanged; a quiet info log. A log that ends in a torn record (a crash
//! while writing) can be opened, any other damage cannot: `audit.rs` decides, so RocksDB is told to stop at
//! an incomplete log.

use super::LocalOptions;
use super::layout::{self, FORMAT, FORMAT_VALUE, METADATA, VERSION};
use super::logs::{self, Logs};
use super::room;
use super::stall::{self, Stall, number};
use super::synced::{self, Lengths, Synced};
use crate::error::{StoreError, StoreResult};
use crate::store::Version;
use bytes::Bytes;
use rocksdb::properties as property;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, DataBlockIndexType, ErrorKind, LogLevel,
    Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// An open database. Dropping it closes it and releases the directory's lock.
pub(super) struct Engine {
    db: DB, // before `gone`: fields drop in this order
    newest: ReadOptions,
    gone: Gone,
    cache: BlockCache,
    stall: Stall,
    logs: Logs,
    synced: Synced,
}

/// Why the store is reopened before compaction starts.
const FLUSH_FAILED: &str = "memtables could not be written to tables; see the file LOG in the data directory";
/// A window of consecutive rows of a table, and the number of tombstones in it from which on the table is
/// compacted soon. Range reads walk over tombstones: after a set's deltas were folded nothing else is left,
/// and no later write would have them compacted.
const TOMBSTONES: (usize, usize) = (16 << 10, 8 << 10);
/// Tombstones and hidden rows that one step of a read may walk over in the memtable, about 2 ms: beyond it,
/// the memtable is flushed soon, and compacted as above. Not fewer, because the rest of the memtable is
/// flushed with them.
const HIDDEN: usize = 4 * TOMBSTONES.1;
/// The memtable's skip list remembers where it last inserted a row of this number of first bytes, and goes on
/// from there: the rows of a batch are in order. Saves a seventh of SET's CPU time with batches of 800.
const HINTED: usize = 3;
/// Dead entries that counting the rows of a cleared range may walk over.
const SKIPPED: u64 = 1000;

struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The cache of uncompressed blocks.
struct BlockCache {
    cache: Cache,
    capacity: usize,
    /// How often it was full when many rows were read.
    full: AtomicU64,
}

impl BlockCache {
    fn new(capacity: usize) -> Self {
        BlockCache { cache: Cache::new_hyper_clock_cache(capacity, 0), capacity, full: AtomicU64::new(0) }
    }

    /// Whether the blocks of a read of many rows should enter. Making room for a block costs as much as
    /// reading and decompressing it again, and most blocks leave before they are read again: so if the cache
    /// is full, one of eight such reads enters, for the sake of blocks that are read often. Chosen by a hash:
    /// otherwise it would always be the same parts of a reply.
    fn admits(&self) -> bool {
        self.cache.get_usage() < self.capacity / 8 * 7
            || layout::hash(&self.full.fetch_add(1, Ordering::Relaxed).to_be_bytes()).is_multiple_of(8)
    }
}

/// The state found in the database.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recovered {
    /// Last commit version.
    pub(super) version: Version,
    /// Last metadata version.
    pub(super) metadata_version: Version,
}

impl Engine {
    /// Opens or creates the database in `dir`. Rejects a database that is not Tern's or is in use.
    pub(super) fn open(dir: &Path, options: &LocalOptions) -> StoreResult<(Self, Recovered)> {
        refuse_headless(dir)?;
        let manifest = super::audit::mend(dir)?;
        let cache = BlockCache::new(options.block_cache);
        let db = database_options(options, &cache.cache)?;
        let db = DB::open(&db, dir).map_err(|e| open_error(dir, manifest, &e))?;
        let unlisted = |e| StoreError::Unavailable(format!("cannot list the logs of {}: {e}", dir.display()));
        let logs = Logs::open(dir).map_err(unlisted)?;
        let synced = Synced::open(dir).map_err(unlisted)?;
        let (newest, gone) = (ReadOptions::default(), Gone(Arc::default()));
        let engine = Engine { db, newest, gone, cache, stall: Stall::new(), logs, synced };
        engine.check_format(dir)?;
        let recovered =
            Recovered { version: engine.number(VERSION)?, metadata_version: engine.number(METADATA)? };
        Ok((engine, recovered))
    }

    /// Becomes true once the database is closed and its lock released.
    pub(super) fn gone(&self) -> Arc<AtomicBool> {
        self.gone.0.clone()
    }

    pub(super) fn db(&self) -> &DB {
        &self.db
    }

    /// The value under a stored key, copied once.
    pub(super) fn get(&self, stored: &[u8], options: &ReadOptions) -> StoreResult<Option<Bytes>> {
        match self.db.get_pinned_opt(stored, options) {
            Ok(found) => Ok(found.map(|v| Bytes::copy_from_slice(&v))),
            Err(e) => Err(read_error(e)),
        }
    }

    /// The values under stored keys, in order.
    pub(super) fn get_bulk<'k>(
        &self,
        stored: impl Iterator<Item = &'k Bytes>,
        options: &ReadOptions,
    ) -> StoreResult<Vec<Option<Bytes>>> {
        let found = self.db.multi_get_opt(stored, options);
        found.into_iter().map(|row| row.map(|v| v.map(Bytes::from)).map_err(read_error)).collect()
    }

    /// Whether the next [`Engine::get_bulk`] should enter the block cache.
    pub(super) fn keeps_bulk(&self) -> bool {
        self.cache.admits()
    }

    /// The newest value under a stored key. Only for the committer.
    pub(super) fn newest(&self, stored: &[u8]) -> StoreResult<Option<Bytes>> {
        self.get(stored, &self.newest)
    }

    /// Appends the newest keys in `begin..end` to `keys` while it has at most `most`; false if there are
    /// more, or too many dead entries to tell.
    pub(super) fn few_keys(&self, begin: &[u8], end: &[u8], most: usize, keys: &mut Vec<Bytes>) -> bool {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(begin);
        options.set_iterate_upper_bound(end);
        options.set_max_skippable_internal_keys(SKIPPED);
        let mut rows = self.db.raw_iterator_opt(options);
        rows.seek_to_first();
        while let Some(key) = rows.key() {
            if keys.len() >= most {
                return false;
            }
            keys.push(Bytes::copy_from_slice(key));
            rows.next();
        }
        rows.status().is_ok() && keys.len() <= most
    }

    /// False if the key is not in the database. Decided by filters and memory alone, so it may be true for an
    /// absent key.
    pub(super) fn may_have(&self, stored: &[u8]) -> bool {
        self.db.key_may_exist(stored)
    }

    /// Writes a batch to the log and the memtable. Waits for the disk only if memtables fill faster than they
    /// are flushed and tables are created faster than they are compacted.
    pub(super) fn write(&self, batch: WriteBatch) -> Result<(), String> {
        self.stall.write(&self.db, batch)?;
        let tables = number(&self.db, property::CURRENT_SUPER_VERSION_NUMBER);
        self.logs.wrote(tables);
        self.stall.look(&self.db, tables);
        Ok(())
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(&self) -> Result<(), String> {
        self.db.flush_wal(true).map_err(rocksdb::Error::into_string)?;
        self.list_logs()
    }

    /// Flushes the memtable, unless RocksDB would wait for compaction first.
    pub(super) fn flush(&self) -> Result<(), String> {
        if self.stall.is_near() {
            return Ok(());
        }
        self.db.flush().map_err(rocksdb::Error::into_string)
    }

    /// The log lengths that the next sync makes durable, for [`Engine::note_synced`] after it. Call it
    /// between two writes: otherwise half of a write could be included.
    pub(super) fn look_at_logs(&self, now: Duration) -> Option<Lengths> {
        self.logs.with_numbers(|numbers| self.synced.look(numbers, now))
    }

    /// Records durable log lengths: from now on a shorter log is reported as damage.
    pub(super) fn note_synced(&self, lengths: Lengths) {
        self.synced.note(lengths, self.logs.newest());
    }

    /// Whether more has been synced than was recorded.
    pub(super) fn has_synced_more(&self) -> bool {
        self.synced.is_behind()
    }

    /// Records new logs, so that a removed one is reported from now on, and the manifest, so that the removal
    /// of its tables is.
    pub(super) fn list_logs(&self) -> Result<(), String> {
        if self.logs.note().map_err(|e| format!("cannot update the list of logs: {e}"))? {
            self.synced.note_manifest();
        }
        Ok(())
    }

    /// Records the manifest's length, so that a truncated one is reported from now on.
    pub(super) fn note_manifest(&self) {
        self.synced.note_manifest();
    }

    /// Memory of memtables, their pinned predecessors, block cache and open tables, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        [property::SIZE_ALL_MEM_TABLES, property::BLOCK_CACHE_USAGE, property::ESTIMATE_TABLE_READERS_MEM]
            .into_iter()
            .map(|name| number(&self.db, name))
            .sum()
    }

    /// Starts compaction. Until then only writes take space, and RocksDB does not stop writers because of the
    /// number of tables. False if that has to wait, because memtables are being flushed.
    ///
    /// If a flush cannot sync the manifest, the table that it wrote must stay: the manifest may name it.
    /// RocksDB 11.8 keeps such files until it has written another manifest. But a change of options makes it
    /// forget them without writing one, and it removes them: then the database cannot be opened any more.
    /// So options change only while no flush runs, and not after one has failed, which is an error. (A flush
    /// that starts in the same millisecond may still fail. Nothing is locked against that: a commit that
    /// finds the committer busy runs on another thread, and a simulation of one seed is two histories.)
    pub(super) fn begin_to_compact(&self) -> Result<bool, String> {
        if number(&self.db, property::BACKGROUND_ERRORS) > 0 {
            return Err(FLUSH_FAILED.into());
        }
        let flushes = [property::NUM_RUNNING_FLUSHES, property::MEM_TABLE_FLUSH_PENDING];
        if flushes.into_iter().any(|name| number(&self.db, name) > 0) {
            return Ok(false);
        }
        let begun = self.db.set_options(&[("disable_auto_compactions", "false")]);
        begun.map(|()| true).map_err(rocksdb::Error::into_string)
    }

    /// Advice to the operator if a due compaction has no room on the disk.
    pub(super) fn missing_room(&self) -> Option<String> {
        room::missing(&self.db)
    }

    /// Bytes of memtables, which are flushed when the database is reopened, and of a manifest.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        number(&self.db, property::SIZE_ALL_MEM_TABLES) + (1 << 20)
    }

    /// Bytes of tables and log files.
    pub(super) fn disk_bytes(&self) -> u64 {
        number(&self.db, property::TOTAL_SST_FILES_SIZE) + log_bytes(self.db.path())
    }

    fn check_format(&self, dir: &Path) -> StoreResult<()> {
        match self.db.get(FORMAT).map_err(read_error)?.as_deref() {
            Some(FORMAT_VALUE) => Ok(()),
            Some(other) => Err(StoreError::Corrupt(format!(
                "{} has format \"{}\"; this version reads \"{}\"",
                dir.display(),
                other.escape_ascii(),
                FORMAT_VALUE.escape_ascii()
            ))),
            None if self.db.latest_sequence_number() == 0 => {
                let mut options = WriteOptions::default();
                options.set_sync(true);
                self.db.put_opt(FORMAT, FORMAT_VALUE, &options).map_err(|e| open_error(dir, None, &e))
            }
            None => Err(StoreError::Corrupt(format!(
                "{} holds a RocksDB database that is not Tern's",
                dir.display()
            ))),
        }
    }

    fn number(&self, row: &[u8]) -> StoreResult<u64> {
        let Some(bytes) = self.db.get(row).map_err(read_error)? else { return Ok(0) };
        let bytes = <[u8; 8]>::try_from(bytes.as_slice());
        bytes.map(u64::from_be_bytes).map_err(|_| StoreError::Corrupt("a version row is not 8 bytes".into()))
    }
}

/// Without CURRENT, RocksDB would start afresh and delete the existing tables.
fn refuse_headless(dir: &Path) -> StoreResult<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(StoreError::Unavailable(format!("{} is not a directory", dir.display())));
    }
    let is_ours = |name: String| {
        [logs::NAME, synced::NAME].contains(&&*name) || is_numbered(&name, "sst") || is_numbered(&name, "log")
    };
    if dir.join("CURRENT").exists() || !names(dir).any(is_ours) {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "{} holds a database whose file CURRENT is missing. Replace it with a backup.",
        dir.display()
    )))
}

pub(super) fn names(dir: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok())
}

fn is_numbered(name: &str, extension: &str) -> bool {
    name.split_once('.').is_some_and(|(n, e)| e == extension && n.parse::<u64>().is_ok())
}

fn log_bytes(dir: &Path) -> u64 {
    let logs = names(dir).filter(|n| is_numbered(n, "log"));
    logs.filter_map(|n| std::fs::metadata(dir.join(n)).ok()).map(|m| m.len()).sum()
}

/// `manifest`: where the manifest ends too early.
fn open_error(dir: &Path, manifest: Option<String>, e: &rocksdb::Error) -> StoreError {
    let text = e.as_ref();
    if text.contains("lock hold by current process") || text.contains("While lock file") {
        return StoreError::Unavailable(format!("{} is in use by another process", dir.display()));
    }
    match e.kind() {
        ErrorKind::Corruption => {
            let what = manifest.map_or_else(|| damage(text), |ends| format!("{ends} ({text})"));
            StoreError::Corrupt(format!("{} is damaged: {what}. Replace it with a backup.", dir.display()))
        }
        _ if text.contains("No space left") => StoreError::Unavailable(format!(
            "cannot open {}: {text}. Opening writes the contents of the logs to tables: free {} MB on that disk",
            dir.display(),
            (log_bytes(dir) >> 20) + 1
        )),
        _ => StoreError::Unavailable(format!("cannot open {}: {text}", dir.display())),
    }
}

/// RocksDB blames the manifest for every failure while it reads it, even of the tables that it opens then,
/// and does not always name the table. The manifest is known to be intact (`audit.rs`).
fn damage(text: &str) -> String {
    let blame = text.find(" The file ").filter(|_| text.ends_with(" may be corrupted."));
    let text = blame.and_then(|at| text.get(..at)).unwrap_or(text).trim_end();
    if blame.is_none() || text.contains(".sst") {
        return text.to_owned();
    }
    format!(
        "{text}, probably in one of its tables (*.sst): RocksDB does not say which, and the manifest's checksums match"
    )
}

/// Converts a failed read.
pub(super) fn read_error(e: rocksdb::Error) -> StoreError {
    match e.kind() {
        ErrorKind::Corruption => StoreError::Corrupt(e.into_string()),
        _ => StoreError::Unavailable(e.into_string()),
    }
}

fn database_options(options: &LocalOptions, cache: &Cache) -> StoreResult<Options> {
    let mut o = Options::default();
    o.create_if_missing(true);
    o.set_block_based_table_factory(&table_options(cache));
    o.set_write_buffer_size(options.write_buffer);
    o.set_max_write_buffer_number(3);
    o.set_memtable_whole_key_filtering(true);
    o.set_memtable_prefix_bloom_ratio(0.05);
    o.set_allow_concurrent_memtable_write(false);
    o.set_compression_type(DBCompressionType::Lz4);
    o.set_level_compaction_dynamic_level_bytes(true);
    o.set_max_background_jobs(2);
    o.set_disable_auto_compactions(true);
    let (window, tombstones) = TOMBSTONES;
    o.add_compact_on_deletion_collector_factory(window, tombstones, 0.0);
    o.set_max_open_files(512);
    o.set_bytes_per_sync(1 << 20);
    o.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    o.set_avoid_unnecessary_blocking_io(true);
    o.set_skip_stats_update_on_db_open(true);
    o.set_stats_dump_period_sec(0);
    o.set_stats_persist_period_sec(0);
    o.set_log_level(LogLevel::Warn);
    o.set_keep_log_file_num(2);
    o.set_max_log_file_size(1 << 20);
    stall::set_options(&mut o);
    // The binding has no methods for these options.
    o.get_options_from_string(format!(
        "memtable_op_scan_flush_trigger={HIDDEN};memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.{HINTED}"
    ))
    .map_err(read_error)
}

fn table_options(cache: &Cache) -> BlockBasedOptions {
    let mut t = BlockBasedOptions::default();
    t.set_block_cache(cache);
    t.set_bloom_filter(10.0, false);
    t.set_format_version(6);
    t.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    t.set_data_block_hash_ratio(0.75);
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Clock;
    use std::time::Duration;

    fn opened(dir: &Path) -> Engine {
        let engine = Engine::open(dir, &LocalOptions::new(Clock::System)).unwrap().0;
        assert!(engine.begin_to_compact().unwrap());
        engine
    }

    /// Hazard: a large reply evicts everything else from the cache; or frequently read blocks never enter it.
    #[test]
    fn one_in_eight_reads_of_many_rows_enters_a_full_cache() {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalOptions { block_cache: 1 << 20, ..LocalOptions::new(Clock::System) };
        let engine = Engine::open(dir.path(), &options).unwrap().0;
        let keys: Vec<Bytes> = (0..10_000_u32).map(|n| Bytes::copy_from_slice(&n.to_be_bytes())).collect();
        keys.iter().for_each(|key| engine.db().put(key, key.repeat(100)).unwrap());
        engine.db().flush().unwrap();
        assert!((0..100).all(|_| engine.keeps_bulk()), "there is room");
        engine.get_bulk(keys.iter(), &ReadOptions::default()).unwrap();
        let chosen = (0..8000).filter(|_| engine.keeps_bulk()).count();
        assert!((800..1200).contains(&chosen), "{chosen} of 8000");
    }

    /// Hazard: the list contains the log before its length was recorded, nothing more is written, and its
    /// missing end is never reported.
    #[test]
    fn a_log_that_has_begun_before_a_sync_is_noted_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalOptions { write_buffer: 64 << 10, ..LocalOptions::new(Clock::System) };
        let engine = Engine::open(dir.path(), &options).unwrap().0;
        let newest = || names(dir.path()).filter(|name| is_numbered(name, "log")).max().unwrap();
        let first = newest();
        for n in 0..10_000_u32 {
            let mut batch = WriteBatch::default();
            batch.put(n.to_be_bytes(), [7; 100]);
            engine.write(batch).unwrap();
            if newest() != first {
                break;
            }
        }
        let sync = |now| {
            let lengths = engine.look_at_logs(Duration::from_secs(now)).unwrap();
            engine.sync().unwrap();
            engine.note_synced(lengths);
            engine.has_synced_more()
        };
        let number = newest().trim_end_matches(".log").parse().unwrap();
        let length = dir.path().join(newest()).metadata().unwrap().len();
        assert!(length > 0, "{number}");
        assert!(sync(1), "nobody has looked at it");
        assert!(!sync(2));
        assert_eq!(synced::read(dir.path()).unwrap().log(number), length);
    }

    fn tables(engine: &Engine) -> u64 {
        engine.db().property_int_value(property::TOTAL_SST_FILES_SIZE).unwrap().unwrap()
    }

    /// Writes rows to a table and their tombstones to the memtable. Returns the table's size.
    fn remove_rows(engine: &Engine) -> u64 {
        let keys = || (0..2 * HIDDEN).map(|n| format!("row {n:08}"));
        keys().for_each(|key| engine.db().put(&key, key.as_bytes()).unwrap());
        engine.db().flush().unwrap();
        let full = tables(engine);
        keys().for_each(|key| engine.db().delete(key).unwrap());
        full
    }

    fn assert_compacted(engine: &Engine, full: u64) {
        let gone = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            tables(engine) < full / 10
        });
        assert!(gone, "{} of {full} bytes are left", tables(engine));
    }

    /// Hazard: a range read walks over removed rows forever if nobody writes there.
    #[test]
    fn removed_rows_are_compacted_away() {
        let dir = tempfile::tempdir().unwrap();
        let engine = opened(dir.path());
        let full = remove_rows(&engine);
        engine.db().flush().unwrap();
        assert_compacted(&engine, full);
    }

    /// Hazard: the same, with too few tombstones to fill the memtable.
    #[test]
    fn removals_that_a_read_walked_over_leave_the_memtable() {
        let dir = tempfile::tempdir().unwrap();
        let engine = opened(dir.path());
        let full = remove_rows(&engine);
        let mut rows = engine.db().raw_iterator();
        rows.seek("row ");
        assert!(!rows.valid());
        drop(rows);
        // One write notices, and the next one starts a new memtable.
        (0..2).for_each(|_| engine.db().put("another", "row").unwrap());
        assert_compacted(&engine, full);
    }
}
