//! The files of a data directory, and what to say if it cannot be opened.

use super::{logs, synced};
use crate::error::{StoreError, StoreResult};
use rocksdb::ErrorKind;
use std::path::Path;

/// Without CURRENT, RocksDB would start afresh and delete the existing tables.
pub(super) fn refuse_headless(dir: &Path) -> StoreResult<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(StoreError::Unavailable(format!("{} is not a directory", dir.display())));
    }
    let is_ours = |name: String| {
        [logs::NAME, synced::NAME].contains(&&*name) || is_numbered(&name, "sst") || is_numbered(&name, "wal")
    };
    if dir.join("CURRENT").exists() || !names(dir).any(is_ours) {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "{} holds a database whose file CURRENT is missing. Replace it with a backup.",
        dir.display()
    )))
}

/// The format before kept commits in RocksDB's logs, which are not checked any more.
pub(super) fn refuse_unstopped(dir: &Path) -> StoreResult<()> {
    let holds_commits = |name: &String| {
        is_numbered(name, "log") && std::fs::metadata(dir.join(name)).is_ok_and(|log| log.len() > 0)
    };
    let is_older = dir.join(logs::NAME).exists() && !names(dir).any(|name| is_numbered(&name, "wal"));
    if !is_older || !names(dir).any(|name| holds_commits(&name)) {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!(
        "{} was written by an earlier version of Tern that was not stopped (it was killed): start it once with that version and stop it with \
         SHUTDOWN, so that this version can read it",
        dir.display()
    )))
}

pub(super) fn names(dir: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok())
}

pub(super) fn is_numbered(name: &str, extension: &str) -> bool {
    name.split_once('.').is_some_and(|(n, e)| e == extension && n.parse::<u64>().is_ok())
}

pub(super) fn log_bytes(dir: &Path) -> u64 {
    let logs = names(dir).filter(|n| is_numbered(n, "wal"));
    logs.filter_map(|n| std::fs::metadata(dir.join(n)).ok()).map(|m| m.len()).sum()
}

/// The name of the manifest.
fn current(dir: &Path) -> Option<String> {
    Some(std::fs::read_to_string(dir.join("CURRENT")).ok()?.trim_end().to_owned())
}

/// `manifest`: where the manifest ends too early.
pub(super) fn open_error(dir: &Path, manifest: Option<String>, e: &rocksdb::Error) -> StoreError {
    let text = e.as_ref();
    if text.contains("lock hold by current process") || text.contains("While lock file") {
        return StoreError::Unavailable(format!("{} is in use by another process", dir.display()));
    }
    match e.kind() {
        ErrorKind::Corruption => {
            let missing = || text.contains("No such file").then(|| current(dir)).flatten();
            let missing = || missing().map(|manifest| format!("{manifest} names a file that is missing"));
            let ends = manifest.or_else(missing);
            let what = ends.map_or_else(|| damage(text), |ends| format!("{ends} ({text})"));
            StoreError::Corrupt(format!("{} is damaged: {what}. Replace it with a backup.", dir.display()))
        }
        _ if text.contains("No space left") => StoreError::Unavailable(format!(
            "cannot open {}: {text}: free {} MB on that disk",
            dir.display(),
            (log_bytes(dir) >> 20) + 2
        )),
        _ => StoreError::Unavailable(format!("cannot open {}: {text}", dir.display())),
    }
}

/// A new log or the notes about logs could not be written.
pub(super) fn log_error(dir: &Path, e: &std::io::Error) -> StoreError {
    let advice = match e.kind() {
        std::io::ErrorKind::StorageFull => ": free 2 MB on that disk",
        _ => "",
    };
    StoreError::Unavailable(format!("cannot write the logs of {}: {e}{advice}", dir.display()))
}

/// What the logs hold could not be moved to tables.
pub(super) fn unmoved(dir: &Path, text: &str) -> StoreError {
    let advice = match text.contains("No space left") {
        true => format!(
            ". Opening writes the contents of the logs to tables: free {} MB on that disk",
            (log_bytes(dir) >> 20) + 1
        ),
        false => String::new(),
    };
    StoreError::Unavailable(format!("cannot open {}: {text}{advice}", dir.display()))
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
