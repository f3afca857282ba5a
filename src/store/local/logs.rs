//! The file TERN-LOGS: which logs hold commits.
//!
//! A row in the database says up to which log everything is in tables (`layout.rs`), but not which logs
//! follow: if one were removed, the store would open without its commits, unnoticed. So there is a list:
//!
//! ```text
//! TERN-LOGS    tern-logs 1 <number> ... <xxh3-64 of what is in front, 16 hexadecimal digits>\n
//! ```
//!
//! A listed log that is not drained must exist (`audit.rs`). Why this is exact:
//!
//! * If every commit is synced, a log is listed before a commit in it is acknowledged; otherwise with the
//!   next round of the syncer, within about a second ([`Logs::note`]).
//! * It is listed once its directory entry is on disk, so a loss of power does not remove it.
//! * A log is removed only after the tables with its commits, and the manifest that names them, are on disk.
//!
//! Without the file (a directory of an earlier version, or a copy of only the database) nothing is compared.
//! The file is replaced as a whole.

use crate::error::{StoreError, StoreResult};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Not a name that RocksDB could take for one of its own files, as it does with everything that begins with
/// LOG.
pub(super) const NAME: &str = "TERN-LOGS";
const NEW: &str = "TERN-LOGS.new";
const HEAD: &str = "tern-logs 1";

/// The logs of an open database.
pub(super) struct Logs {
    dir: PathBuf,
    /// Another log may have begun since the list was written.
    outdated: AtomicBool,
    listed: Mutex<BTreeSet<u64>>,
}

impl Logs {
    /// Lists the logs of the open database in `dir`.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let (outdated, listed) = (AtomicBool::new(true), Mutex::default());
        let logs = Logs { dir: dir.to_path_buf(), outdated, listed };
        logs.note()?;
        Ok(logs)
    }

    /// Another log has begun.
    pub(super) fn began(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    /// The listed log that began last.
    pub(super) fn newest(&self) -> Option<u64> {
        self.listed.lock().last().copied()
    }

    /// Passes the numbers of the listed logs to `of`.
    pub(super) fn with_numbers<R>(&self, of: impl FnOnce(&mut dyn Iterator<Item = u64>) -> R) -> R {
        of(&mut self.listed.lock().iter().copied())
    }

    /// Updates the list if a log has begun. Returns whether one has.
    pub(super) fn note(&self) -> io::Result<bool> {
        // Who comes while another is writing the list waits for it.
        let mut listed = self.listed.lock();
        if !self.outdated.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
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
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".wal")?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// Takes logs that are about to be removed from the list, if there is one.
pub(super) fn unlist(dir: &Path, removed: &[PathBuf]) -> io::Result<()> {
    if removed.is_empty() || !dir.join(NAME).exists() {
        return Ok(());
    }
    let mut kept = numbers(dir)?;
    kept.retain(|number| !removed.contains(&path(dir, *number)));
    write(dir, &kept)
}

/// Removes the list.
pub(super) fn forget(dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(dir.join(NAME)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::open(dir)?.sync_all(),
    }
}

/// The path of a log.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.wal"))
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

/// Fails if a log that holds commits is missing; logs below `first` are drained.
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
            "{file} is damaged: its checksum does not match. It lists the logs that hold commits (*.wal): if none of them was removed, delete \
             {file} and run tern check; otherwise replace the directory with a backup."
        )));
    };
    match listed.into_iter().find(|number| *number >= first && !present.contains(number)) {
        None => Ok(()),
        Some(missing) => Err(StoreError::Corrupt(format!(
            "{} is missing: according to {file} it holds commits, and they are not in the tables. Put it back, or \
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
            assert!(refused.contains("000007.wal is missing"), "{refused}");
        }
        assert_eq!(check(dir, 8), Ok(()), "it is flushed");
        log(dir, 7, b"");
        std::fs::remove_file(path(dir, 12)).unwrap();
        assert!(check(dir, 8).unwrap_err().to_string().contains("000012.wal is missing"));
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
        log(dir, 9, b"");
        assert!(!logs.note().unwrap());
        assert_eq!(listed(), [4], "nobody has begun another");
        logs.began();
        assert!(logs.note().unwrap());
        assert_eq!(listed(), [4, 9]);
    }
}
