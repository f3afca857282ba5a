//! The file TERN-LOGS: which logs hold commits.
//!
//! RocksDB's manifest says up to which log everything is in tables, but not which logs follow: if one were
//! removed, the store would open without its commits, unnoticed. So the engine keeps its own list of logs:
//!
//! ```text
//! TERN-LOGS    tern-logs 1 <number> ... <xxh3-64 of what is in front, 16 hexadecimal digits>\n
//! ```
//!
//! A listed log that the manifest does not call flushed must exist (`audit.rs`). Why this is exact:
//!
//! * If every commit is synced, a log is listed before a commit in it is acknowledged; otherwise with the
//!   next round of the syncer, within about a second ([`Logs::note`]).
//! * It is listed once its directory entry is on disk, so a loss of power does not remove it.
//! * RocksDB removes a log only after the manifest that calls it flushed is on disk.
//!
//! Without the file (a directory of an earlier version, or a copy of only the database) nothing is compared.
//! The file is replaced as a whole.

use crate::error::{StoreError, StoreResult};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Not a name that RocksDB could take for one of its own files, as it does with everything that begins with
/// LOG.
pub(super) const NAME: &str = "TERN-LOGS";
const NEW: &str = "TERN-LOGS.new";
const HEAD: &str = "tern-logs 1";

/// The logs of an open database.
pub(super) struct Logs {
    dir: PathBuf,
    /// The number of the memtables and tables last seen by a write. Another memtable means another log.
    tables: AtomicU64,
    /// Another log may have begun since the list was written.
    outdated: AtomicBool,
    listed: Mutex<BTreeSet<u64>>,
}

impl Logs {
    /// Lists the logs of the open database in `dir`.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let (tables, outdated, listed) = (AtomicU64::new(0), AtomicBool::new(true), Mutex::default());
        let logs = Logs { dir: dir.to_path_buf(), tables, outdated, listed };
        logs.note()?;
        Ok(logs)
    }

    /// Called after each write; `tables` counts RocksDB's switches to other memtables or tables.
    pub(super) fn wrote(&self, tables: u64) {
        if self.tables.swap(tables, Ordering::AcqRel) != tables {
            self.outdated.store(true, Ordering::Release);
        }
    }

    /// The listed log that began last.
    pub(super) fn newest(&self) -> Option<u64> {
        self.listed.lock().last().copied()
    }

    /// Passes the numbers of the listed logs to `of`.
    pub(super) fn with_numbers<R>(&self, of: impl FnOnce(&mut dyn Iterator<Item = u64>) -> R) -> R {
        of(&mut self.listed.lock().iter().copied())
    }

    /// Updates the list if a log may have begun. Returns whether memtables or tables have changed.
    pub(super) fn note(&self) -> io::Result<bool> {
        if !self.outdated.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut listed = self.listed.lock();
        self.outdated.store(false, Ordering::Release);
        let listing = list(&self.dir, &mut listed);
        if listing.is_err() {
            self.outdated.store(true, Ordering::Release);
        }
        listing.map(|()| true)
    }
}

/// Writes the list if a log is not in `listed`.
fn list(dir: &Path, listed: &mut BTreeSet<u64>) -> io::Result<()> {
    let present = numbers(dir)?;
    if !present.is_subset(listed) {
        write(dir, &present)?;
        *listed = present;
    }
    Ok(())
}

/// The numbers of the existing logs.
fn numbers(dir: &Path) -> io::Result<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// The path of a log.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.log"))
}

fn write(dir: &Path, logs: &BTreeSet<u64>) -> io::Result<()> {
    let parent = File::open(dir)?;
    parent.sync_all()?;
    let mut line = HEAD.to_owned();
    for number in logs {
        line.push_str(&format!(" {number}"));
    }
    let sum = xxh3_64(line.as_bytes());
    let mut file = File::create(dir.join(NEW))?;
    file.write_all(format!("{line} {sum:016x}\n").as_bytes())?;
    file.sync_all()?;
    std::fs::rename(dir.join(NEW), dir.join(NAME))?;
    parent.sync_all()
}

/// Fails if a log that holds commits is missing; logs below `first` are flushed.
pub(super) fn check(dir: &Path, first: u64) -> StoreResult<()> {
    let file = dir.join(NAME);
    let unread = |e: io::Error| StoreError::Unavailable(format!("cannot read {}: {e}", file.display()));
    let listed = match std::fs::read(&file) {
        Ok(bytes) => parse(&bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unread(e)),
    };
    let present = numbers(dir).map_err(unread)?;
    let file = file.display();
    let Some(listed) = listed else {
        return Err(StoreError::Corrupt(format!(
            "{file} is damaged: its checksum does not match. It lists the logs that hold commits (*.log): if none of them was removed, delete \
             {file} and run tern check; otherwise replace the directory with a backup."
        )));
    };
    match listed.into_iter().find(|number| *number >= first && !present.contains(number)) {
        None => Ok(()),
        Some(missing) => Err(StoreError::Corrupt(format!(
            "{} is missing: according to {file} it holds commits, and according to the manifest they are not in the tables. Put it back, or \
             replace the directory with a backup; or give up these commits: remove {file}, then run tern check.",
            path(dir, missing).display()
        ))),
    }
}

fn parse(bytes: &[u8]) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (line, sum) = text.rsplit_once(' ')?;
    if format!("{:016x}", xxh3_64(line.as_bytes())) != sum {
        return None;
    }
    line.strip_prefix(HEAD)?.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &Path, number: u64, bytes: &[u8]) {
        std::fs::write(path(dir, number), bytes).unwrap();
    }

    #[test]
    fn a_log_of_the_list_that_is_not_flushed_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(check(dir, 0), Ok(()), "there is no list");
        [4, 7, 12].into_iter().for_each(|n| log(dir, n, b""));
        write(dir, &numbers(dir).unwrap()).unwrap();
        assert_eq!(check(dir, 0), Ok(()));
        std::fs::remove_file(path(dir, 7)).unwrap();
        for first in [0, 7] {
            let refused = check(dir, first).unwrap_err().to_string();
            assert!(refused.contains("000007.log is missing"), "{refused}");
        }
        assert_eq!(check(dir, 8), Ok(()), "it is flushed");
        log(dir, 7, b"");
        std::fs::remove_file(path(dir, 12)).unwrap();
        assert!(check(dir, 8).unwrap_err().to_string().contains("000012.log is missing"));
        assert_eq!(check(dir, 13), Ok(()));
    }

    #[test]
    fn a_list_that_is_damaged_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        log(dir, 4, b"");
        write(dir, &numbers(dir).unwrap()).unwrap();
        let whole = std::fs::read(dir.join(NAME)).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 3;
            std::fs::write(dir.join(NAME), &damaged).unwrap();
            let refused = check(dir, 0).unwrap_err().to_string();
            assert!(refused.contains("TERN-LOGS is damaged"), "byte {at}: {refused}");
            std::fs::write(dir.join(NAME), &whole[..at]).unwrap();
            assert!(check(dir, 0).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn another_log_is_noted_once_writes_may_go_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        log(dir, 4, b"one");
        let logs = Logs::open(dir).unwrap();
        let listed = || parse(&std::fs::read(dir.join(NAME)).unwrap()).unwrap();
        assert_eq!(listed(), [4]);
        logs.wrote(1);
        logs.note().unwrap();
        log(dir, 9, b"");
        logs.wrote(1);
        logs.note().unwrap();
        assert_eq!(listed(), [4], "no other memtable has begun");
        logs.wrote(2);
        logs.note().unwrap();
        assert_eq!(listed(), [4, 9]);
        // Compacted tables are no logs.
        std::fs::remove_file(dir.join(NAME)).unwrap();
        logs.wrote(3);
        logs.note().unwrap();
        assert!(!dir.join(NAME).exists());
    }
}
