//! Hazard: the embedded engine's directory suffers a power failure, a full disk, damaged bytes, missing
//! rights or a second server, and acknowledged data is lost, or wrong data is served without an error.
//!
//! SIGKILL is tested in `tests/kill.rs` and `tests/store_soak.rs`. Every test here ends with `tern check`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod corrupt;
mod disk;
mod entries;
mod full;
mod gate;
mod history;
mod missing;
mod noted;
mod refused;
mod room;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod torn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs on the embedded engine even if the other tests use another one.
const ARGS: [&str; 2] = ["--store", "local"];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// Copies a directory of files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    files(from)
        .iter()
        .for_each(|file| assert!(std::fs::copy(file, to.join(file.file_name().unwrap())).is_ok()));
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The contents of TERN-SYNCED: the number of synced bytes of each file.
fn noted(dir: &Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(dir.join("TERN-SYNCED")).unwrap();
    let pairs = text.split_ascii_whitespace().filter_map(|word| word.split_once(':'));
    let name = |number: &str| match number.strip_prefix('M') {
        Some(number) => format!("MANIFEST-{number:0>6}"),
        None => format!("{number:0>6}.wal"),
    };
    pairs.map(|(number, length)| (name(number), length.parse().unwrap())).collect()
}
