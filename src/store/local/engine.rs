//! The RocksDB database: options, opening, and the few calls that the rest of the engine makes.
//!
//! Commits are written to the log (`wal.rs`) and stay in memory (`recent.rs`). RocksDB's own log is not used:
//! a full layer is written to a memtable and flushed at once (`drain.rs`).
//!
//! Options and reasons: a single writer, so no concurrent memtable writes; bloom filters over whole keys (10
//! bits), because most reads are points; lz4; a hash index inside data blocks; two background jobs, because
//! the server's own threads need the cores; tables full of tombstones are compacted, because range reads walk
//! over them; a read of many rows mostly leaves a full block cache unchanged; a quiet info log. A memtable is
//! larger than any layer, and is not flushed when the database is closed: nothing flushes half of one.

use super::LocalOptions;
use super::cleared::Cleared;
use super::directory::{
    log_bytes, log_error, open_error, read_error, refuse_headless, refuse_unstopped, unmoved,
};
use super::gaps::Gaps;
use super::layout::{self, DRAINED, METADATA, VERSION};
use super::logs::{self, Logs};
use super::recent::{Change, Layer};
use super::replay::{Recovered, check_format, replay};
use super::room;
use super::stall::{self, Stall, number};
use super::synced::{Lengths, Synced};
use super::wal::{Log, Record};
use crate::error::StoreResult;
use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::properties as property;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, LogLevel, Options, ReadOptions,
    WriteBatch,
};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// An open database. Dropping it closes it and releases the directory's lock.
pub(super) struct Engine {
    db: DB, // before `gone`: fields drop in this order
    gone: Gone,
    cache: BlockCache,
    gaps: Gaps,
    stall: Stall,
    log: Mutex<Log>,
    logs: Logs,
    synced: Synced,
    /// Held while a memtable is flushed, and while options change.
    flushing: Mutex<()>,
    /// The last log whose layer is in the memtable or in tables.
    taken: AtomicU64,
    /// Why a log could not be synced. Held while logs are synced.
    sync_failed: Mutex<Option<String>>,
}

/// Why the store is reopened before compaction starts.
const FLUSH_FAILED: &str = "memtables could not be written to tables; see the file LOG in the data directory";
/// A window of consecutive rows of a table, and the number of tombstones in it from which on the table is
/// compacted soon. Range reads walk over tombstones: after a set's deltas were folded nothing else is left,
/// and no later write would have them compacted.
const TOMBSTONES: (usize, usize) = (16 << 10, 8 << 10);
/// The memtable's skip list remembers where it last inserted a row of this number of first bytes, and goes on
/// from there: the rows of a layer are written in order.
const HINTED: usize = 3;
/// How long a close waits for RocksDB's jobs.
const CLOSE: Duration = Duration::from_millis(200);
/// Rows of a layer, and their bytes, that are written at once.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 256 << 10;
/// The least memtable size in bytes, and how many times a layer's it is.
const MEMTABLE: (usize, usize) = (64 << 20, 4);

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

impl Engine {
    /// Opens or creates the database in `dir`. Rejects a database that is not Tern's or is in use.
    pub(super) fn open(dir: &Path, options: &LocalOptions) -> StoreResult<(Self, Recovered)> {
        refuse_headless(dir)?;
        refuse_unstopped(dir)?;
        let manifest = super::audit::mend(dir)?;
        let cache = BlockCache::new(options.block_cache);
        let db = database_options(options, &cache.cache)?;
        let db = DB::open(&db, dir).map_err(|e| open_error(dir, manifest.ends, &e))?;
        let unlisted = |e| log_error(dir, &e);
        // Before anything is written: RocksDB has begun another manifest. And before a new log is created, of which
        // nothing is known.
        let synced = Synced::open(dir).map_err(unlisted)?;
        check_format(&db, dir)?;
        let found = replay(&db, dir, manifest.is_known)?;
        let log = Log::create(dir, found.recovered.log, found.next_record).map_err(unlisted)?;
        let logs = Logs::open(dir).map_err(unlisted)?;
        let (log, gone) = (Mutex::new(log), Gone(Arc::default()));
        let (gaps, flushing, taken, sync_failed) = Default::default();
        let engine = Engine {
            db,
            gone,
            cache,
            gaps,
            stall: Stall::new(),
            log,
            logs,
            synced,
            flushing,
            taken,
            sync_failed,
        };
        // What was read from a log may never reach the disk from there.
        for layer in found.layers {
            engine.take(&layer, &mut |_| Ok(())).map_err(|e| unmoved(dir, &e))?;
            engine.forget_log(layer.log);
        }
        Ok((engine, found.recovered))
    }

    /// Becomes true once the database is closed and its lock released.
    pub(super) fn gone(&self) -> Arc<AtomicBool> {
        self.gone.0.clone()
    }

    pub(super) fn db(&self) -> &DB {
        &self.db
    }

    pub(super) fn gaps(&self) -> &Gaps {
        &self.gaps
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

    /// False if the key is not in the database. Decided by filters and memory alone, so it may be true for an
    /// absent key.
    pub(super) fn may_have(&self, stored: &[u8]) -> bool {
        self.db.key_may_exist(stored)
    }

    /// Appends a record to the log. After an error the database must be opened again.
    pub(super) fn append(&self, record: Record) -> Result<(), String> {
        self.log.lock().append(record).map_err(|e| format!("cannot write the log: {e}"))
    }

    /// Begins another log and returns its number.
    pub(super) fn turn(&self) -> Result<u64, String> {
        let mut log = self.log.lock();
        log.turn().map_err(|e| format!("cannot create a log: {e}"))?;
        self.logs.began();
        Ok(log.number)
    }

    /// Bytes of the log that is being written.
    pub(super) fn log_length(&self) -> usize {
        self.log.lock().length
    }

    /// Makes everything written to logs so far durable.
    pub(super) fn sync(&self) -> Result<(), String> {
        let log = self.log.lock();
        let (earlier, current) = (log.unsynced_earlier(), log.current());
        drop(log);
        self.sync_files(earlier, Some(&current))?;
        self.list_logs()
    }

    /// Makes the logs before the newest one durable.
    pub(super) fn sync_earlier(&self) -> Result<(), String> {
        let earlier = self.log.lock().unsynced_earlier();
        self.sync_files(earlier, None)
    }

    /// After a failed sync the kernel may forget what it could not write, and the next sync succeeds. So none
    /// does, whoever saw the failure.
    fn sync_files(&self, earlier: Vec<Arc<File>>, current: Option<&Arc<File>>) -> Result<(), String> {
        let mut failed = self.sync_failed.lock();
        if let Some(failure) = failed.as_ref() {
            return Err(failure.clone());
        }
        for file in earlier.iter().chain(current) {
            file.sync_data().map_err(|e| failed.insert(format!("cannot sync the log: {e}")).clone())?;
        }
        drop(failed);
        self.log.lock().synced(&earlier);
        Ok(())
    }

    /// Moves a layer to a table. Waits while tables are created faster than they are compacted.
    /// `of`: is passed the changes while they are written, and may end that with an error.
    pub(super) fn take(
        &self,
        layer: &Layer,
        of: &mut dyn FnMut(&[Change<'_>]) -> Result<(), String>,
    ) -> Result<(), String> {
        // If only the flush failed before, the memtable has the rows.
        if self.taken.load(Ordering::Acquire) < layer.log {
            self.write(layer, of)?;
            self.taken.store(layer.log, Ordering::Release);
        }
        self.flush()
    }

    fn write(
        &self,
        layer: &Layer,
        of: &mut dyn FnMut(&[Change<'_>]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for Cleared { begin, end, .. } in layer.all_cleared() {
            batch.delete_range(begin, end);
        }
        layer.each(&mut |changes| {
            of(changes)?;
            for Change { key, value, .. } in changes {
                match value {
                    Some(value) => batch.put(key, &**value),
                    None if self.may_have(key) => batch.delete(key),
                    None => {}
                }
                if batch.len() >= BATCH || batch.size_in_bytes() >= BATCH_BYTES {
                    self.stall.write(&self.db, std::mem::take(&mut batch))?;
                }
            }
            Ok(())
        })?;
        let (version, metadata) = layer.last();
        batch.put(DRAINED, layer.log.to_be_bytes());
        for (row, version) in [(VERSION, version), (METADATA, metadata)] {
            if version > 0 {
                batch.put(row, version.to_be_bytes());
            }
        }
        self.stall.write(&self.db, batch)
    }

    fn flush(&self) -> Result<(), String> {
        self.stall.wait(&self.db)?;
        let _flushing = self.flushing.lock();
        self.db.flush().map_err(rocksdb::Error::into_string)?;
        self.look();
        Ok(())
    }

    fn look(&self) {
        self.stall.look(&self.db, number(&self.db, property::CURRENT_SUPER_VERSION_NUMBER));
    }

    /// Removes a log whose commits were flushed.
    pub(super) fn forget_log(&self, drained: u64) {
        self.note_manifest();
        self.log.lock().drained(self.db.latest_sequence_number());
        // If it stays, the next open removes it.
        let _ = std::fs::remove_file(logs::path(self.db.path(), drained));
    }

    /// Why RocksDB accepts no writes, if its background work has failed.
    pub(super) fn trouble(&self) -> Option<String> {
        self.stall.trouble(&self.db)
    }

    /// Whether RocksDB stops writers, or may soon.
    pub(super) fn is_near_stall(&self) -> bool {
        self.look();
        self.stall.is_near()
    }

    /// The log lengths that the next sync makes durable, for [`Engine::note_synced`] after it. Call it
    /// between two writes: otherwise half of a write could be included.
    pub(super) fn look_at_logs(&self, now: Duration) -> Option<Lengths> {
        let log = self.log.lock();
        if log.is_torn {
            return None;
        }
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
        let noted = self.logs.note().map_err(|e| {
            let failure = format!("cannot update the list of logs: {e}");
            self.sync_failed.lock().insert(failure).clone()
        })?;
        if noted {
            self.note_manifest();
        }
        Ok(())
    }

    /// Records the manifest's length, so that a truncated one is reported from now on. Not while RocksDB may be
    /// writing to it, nor after it has failed: if it could not sync the manifest, the next sync may succeed
    /// without what was lost. (A job counts its failure before it ends.)
    pub(super) fn note_manifest(&self) {
        self.synced.note_manifest(|| !self.has_jobs() && number(&self.db, property::BACKGROUND_ERRORS) == 0);
    }

    /// The same for the last time: waits a moment for the jobs to end.
    pub(super) fn note_manifest_at_close(&self) {
        for _ in 0..CLOSE.as_millis() {
            if !self.has_jobs() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.note_manifest();
    }

    fn has_jobs(&self) -> bool {
        let running = [property::NUM_RUNNING_FLUSHES, property::NUM_RUNNING_COMPACTIONS];
        running.into_iter().any(|name| number(&self.db, name) > 0)
    }

    /// Memory of memtables, their pinned predecessors, block cache and open tables, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        [property::SIZE_ALL_MEM_TABLES, property::BLOCK_CACHE_USAGE, property::ESTIMATE_TABLE_READERS_MEM]
            .into_iter()
            .map(|name| number(&self.db, name))
            .sum()
    }

    /// Starts compaction. Until then only writes take space, and RocksDB does not stop writers because of the
    /// number of tables. False if that has to wait, because a memtable is being flushed.
    ///
    /// If a flush cannot sync the manifest, the table that it wrote must stay: the manifest may name it.
    /// RocksDB 11.8 keeps such files until it has written another manifest. But a change of options makes it
    /// forget them without writing one, and it removes them: then the database cannot be opened any more.
    /// So options change only while no flush runs, and not after one has failed, which is an error.
    pub(super) fn begin_to_compact(&self) -> Result<bool, String> {
        let Some(_flushing) = self.flushing.try_lock() else { return Ok(false) };
        if number(&self.db, property::BACKGROUND_ERRORS) > 0 {
            return Err(FLUSH_FAILED.into());
        }
        let flushes = [property::NUM_RUNNING_FLUSHES, property::MEM_TABLE_FLUSH_PENDING];
        if flushes.into_iter().any(|name| number(&self.db, name) > 0) {
            return Ok(false);
        }
        let begun = self.db.set_options(&[("disable_auto_compactions", "false")]);
        begun.map_err(rocksdb::Error::into_string)?;
        self.stall.begins_to_compact();
        Ok(true)
    }

    /// Advice to the operator if a due compaction has no room on the disk.
    pub(super) fn missing_room(&self) -> Option<String> {
        room::missing(&self.db)
    }

    /// Bytes of tables and log files.
    pub(super) fn disk_bytes(&self) -> u64 {
        number(&self.db, property::TOTAL_SST_FILES_SIZE) + log_bytes(self.db.path())
    }
}

fn database_options(options: &LocalOptions, cache: &Cache) -> StoreResult<Options> {
    let mut o = Options::default();
    o.create_if_missing(true);
    o.set_block_based_table_factory(&table_options(cache));
    let (least, times) = MEMTABLE;
    o.set_write_buffer_size((times * options.write_buffer).max(least));
    o.set_max_write_buffer_number(3);
    o.set_allow_concurrent_memtable_write(false);
    o.set_compression_type(DBCompressionType::Lz4);
    o.set_level_compaction_dynamic_level_bytes(true);
    o.set_max_background_jobs(2);
    o.set_disable_auto_compactions(true);
    let (window, tombstones) = TOMBSTONES;
    o.add_compact_on_deletion_collector_factory(window, tombstones, 0.0);
    o.set_max_open_files(512);
    o.set_bytes_per_sync(1 << 20);
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
        "avoid_flush_during_shutdown=true;memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.{HINTED}"
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
    use super::super::directory::{is_numbered, names};
    use super::super::synced;
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
        let engine = Engine::open(dir.path(), &LocalOptions::new(Clock::System)).unwrap().0;
        let newest = || names(dir.path()).filter(|name| is_numbered(name, "wal")).max().unwrap();
        let write = || {
            let mut record = Record::new(0);
            record.set(b"key", &[7; 100]);
            engine.append(record).unwrap();
        };
        write();
        engine.turn().unwrap();
        write();
        let sync = |now| {
            let lengths = engine.look_at_logs(Duration::from_secs(now)).unwrap();
            engine.sync().unwrap();
            engine.note_synced(lengths);
            engine.has_synced_more()
        };
        let number = newest().trim_end_matches(".wal").parse().unwrap();
        let length = dir.path().join(newest()).metadata().unwrap().len();
        assert!(length > 0, "{number}");
        assert!(sync(1), "nobody has looked at it");
        assert!(!sync(2));
        assert_eq!(synced::read(dir.path()).unwrap().log(number), length);
    }

    /// Hazard: a log that began before a loss of power is there, the one before it is not, and later opens take
    /// that for damage.
    #[test]
    fn the_next_log_follows_the_last_one_with_commits() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Engine::open(dir.path(), &LocalOptions::new(Clock::System)).unwrap();
        for commits in [true, false] {
            let (engine, found) = open();
            let next = found.log + u64::from(commits);
            if commits {
                let mut record = Record::new(found.version);
                record.next();
                record.set(b"key", b"value");
                engine.append(record).unwrap();
            }
            drop(engine);
            File::create(logs::path(dir.path(), next + 1)).unwrap();
            let (engine, found) = open();
            assert_eq!(found.log, next);
            assert!(!logs::path(dir.path(), next + 1).exists());
            assert_eq!(engine.db().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    }

    fn tables(engine: &Engine) -> u64 {
        engine.db().property_int_value(property::TOTAL_SST_FILES_SIZE).unwrap().unwrap()
    }

    /// Writes rows to a table and their tombstones to the memtable. Returns the table's size.
    fn remove_rows(engine: &Engine) -> u64 {
        let keys = || (0..8 * TOMBSTONES.1).map(|n| format!("row {n:08}"));
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
}
