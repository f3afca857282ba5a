//! Hazard: bytes in the middle of a file change, and wrong data is served, or data is missing without an
//! error.
//!
//! Every file of a crashed directory is damaged on its own, at many places. A server on it may refuse to
//! start, naming the file (or the kind of file, where RocksDB does not say which table it read), or it may
//! answer commands that need the damaged data with an error; everything else it answers must be right.

use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{tern_check, tern_command, tern_in, try_start};
use crate::support::{env_number, say};
use crate::{ARGS, copy, files, name, noted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const STEPS: usize = 150;
/// Damaged places per file.
const PLACES: usize = 4;
/// Consecutive bytes that change.
const WIDTH: usize = 16;

/// The effect of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The server refuses to start and says why.
    Refused,
    /// Some command got an error that says so, and `tern check` reports it.
    Reported,
    /// Every read was right: the bytes were unused or had a copy.
    Harmless,
}

/// A directory with every kind of file: tables on more than one level, logs, and the files around them.
fn crashed(home: &Path) -> PathBuf {
    let dir = home.join("data");
    let args = [&ARGS[..], &["--appendfsync", "no", "--store-write-buffer-size", "512kb"]].concat();
    let mut server = tern_in(&dir, &args);
    let mut client = server.client();
    history::steps(&mut client, 1, STEPS / 3);
    assert!(server.terminate());
    let mut server = tern_in(&dir, &args);
    history::steps(&mut server.client(), STEPS / 3 + 1, STEPS);
    // The manifest grows with each table.
    let since = Instant::now();
    while noted(&dir)[&name(&manifest(&dir))] as u64 != manifest(&dir).metadata().unwrap().len() {
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", noted(&dir));
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    dir
}

fn manifest(dir: &Path) -> PathBuf {
    files(dir).into_iter().find(|file| kind(file) == "MANIFEST").unwrap()
}

fn kind(path: &Path) -> &'static str {
    let name = name(path);
    let kinds = ["MANIFEST", "OPTIONS", "CURRENT", "IDENTITY", "TERN-LOGS"];
    match name.rsplit_once('.') {
        Some((_, "sst")) => "sst",
        Some((_, "wal")) => "log",
        // A file that the kill caught before its rename.
        Some((_, "new")) => "other",
        _ => kinds.into_iter().find(|start| name.starts_with(start)).unwrap_or("other"),
    }
}

/// Changes some bytes; false if the file is too short for the place.
fn damage(path: &Path, at: f64, rng: &mut Rng) -> bool {
    let mut bytes = std::fs::read(path).unwrap();
    let from = (bytes.len() as f64 * at) as usize;
    let end = (from + WIDTH).min(bytes.len());
    bytes[from..end].iter_mut().for_each(|b| *b ^= (rng.below(255) + 1) as u8);
    std::fs::write(path, &bytes).unwrap();
    from < end
}

fn outcome(dir: &Path, file: &str) -> Result<Outcome, String> {
    let server = match try_start(tern_command(dir, &ARGS), &dir.with_extension("log")) {
        Ok(server) => server,
        Err(refused) => {
            let said = &refused.said;
            let named =
                said.contains(file) || file.ends_with(".sst") && said.contains("one of its tables (*.sst)");
            let clear = refused.status == Some(1) && named && said.contains("damaged");
            return if clear { Ok(Outcome::Refused) } else { Err(format!("unclear refusal: {refused:?}")) };
        }
    };
    let read = history::read(&mut server.client());
    let log = server.log();
    drop(server);
    // The check reads what no command has read yet.
    let (status, said) = tern_check(dir, &ARGS);
    let is_reported = matches!(status, Some(1 | 2)) && said.contains("corrupt data");
    match read {
        Ok(found) => {
            history::check(&found, STEPS, STEPS)?;
            match status {
                Some(0) => Ok(Outcome::Harmless),
                _ if is_reported => Ok(Outcome::Reported),
                _ => Err(format!("tern check: {said}")),
            }
        }
        Err(error) if !error.contains("corrupt data") && !log.contains("corrupt data") => {
            Err(format!("unclear error: {error}\n{log}"))
        }
        Err(_) if is_reported => Ok(Outcome::Reported),
        Err(_) => Err(format!("tern check: {said}")),
    }
}

#[test]
fn damaged_bytes_are_reported_and_never_served() {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("damaged bytes: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let home = tempfile::tempdir().unwrap();
    let sound = crashed(home.path());
    let mut outcomes = BTreeMap::<&str, BTreeMap<Outcome, usize>>::new();
    let newest = files(&sound).into_iter().rfind(|file| kind(file) == "log").unwrap();
    for file in files(&sound) {
        let kind = if file == newest { "newest log" } else { kind(&file) };
        let (kind, name) = (kind, file.file_name().unwrap().to_string_lossy().into_owned());
        for place in 0..if kind == "other" { 0 } else { PLACES } {
            // Not in the last fifth of a log, which has its last record: damage there looks like a write that a loss of power has
            // torn if the record ends in a zero, as it does if it says up to where the log before it was drained.
            let at = [0.5, 0.25].get(place).copied().unwrap_or_else(|| rng.below(1000) as f64 / 1250.0);
            let damaged = home.path().join("damaged");
            copy(&sound, &damaged);
            if damage(&damaged.join(&name), at, &mut rng) {
                let outcome = outcome(&damaged, &name).unwrap_or_else(|e| panic!("{name} at {at}: {e}"));
                *outcomes.entry(kind).or_default().entry(outcome).or_default() += 1;
            }
            std::fs::remove_dir_all(&damaged).unwrap();
        }
    }
    say(&format!("  {outcomes:?}"));
    for kind in ["sst", "newest log", "MANIFEST", "CURRENT"] {
        let seen = &outcomes[kind];
        assert!(
            seen.contains_key(&Outcome::Refused) || seen.contains_key(&Outcome::Reported),
            "{kind}: {seen:?}"
        );
    }
    // An older log may already be flushed and not removed yet.
    for kind in ["newest log", "MANIFEST", "CURRENT", "TERN-LOGS"] {
        assert!(!outcomes[kind].contains_key(&Outcome::Harmless), "{kind}: {:?}", outcomes[kind]);
    }
}

/// Hazard: a manifest whose last record has a wrong length looks as if it was being written. The tables that
/// the record names are gone then, and so may be the log that they were flushed from. (A manifest that really
/// was being written may end at a sector.)
#[test]
fn a_manifest_that_ends_inside_a_record_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let stopped = home.path().join("stopped");
    let mut server = tern_in(&stopped, &ARGS);
    history::steps(&mut server.client(), 1, STEPS);
    // One table and an empty log: no record continues after the missing part.
    assert!(server.terminate());
    drop(server);
    for sound in [crashed(home.path()), stopped] {
        let manifest = manifest(&sound);
        let name = name(&manifest);
        let whole = std::fs::read(&manifest).unwrap();
        let ends = record_ends(&whole);
        for eighths in 1..=8 {
            let inside = |length: &usize| !ends.contains(length) && !length.is_multiple_of(512);
            let length = (0..whole.len() * eighths / 8).rev().find(inside).unwrap();
            let damaged = home.path().join("damaged");
            copy(&sound, &damaged);
            std::fs::write(damaged.join(&name), &whole[..length]).unwrap();
            let outcome = outcome(&damaged, &name);
            assert_eq!(outcome, Ok(Outcome::Refused), "{length} of {} bytes of {sound:?}", whole.len());
            std::fs::remove_dir_all(&damaged).unwrap();
        }
    }
}

/// Hazard: a manifest cut off at the end of a record looks whole, and one that ends at a sector looks as if
/// it was being written; both name too few tables, and RocksDB removes the others. Bytes after a whole
/// manifest were never synced and mean nothing.
#[test]
fn a_manifest_that_ends_at_a_boundary_inside_its_synced_part_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let stopped = home.path().join("stopped");
    for run in 0..2 {
        let mut server = tern_in(&stopped, &ARGS);
        history::steps(&mut server.client(), run * STEPS / 2 + 1, (run + 1) * STEPS / 2);
        assert!(server.terminate());
    }
    let mut outcomes = BTreeMap::<_, usize>::new();
    for sound in [crashed(home.path()), stopped] {
        let manifest = manifest(&sound);
        let whole = std::fs::read(&manifest).unwrap();
        // A record of 400 bytes without its end.
        let begun = [&[7, 7, 7, 7, 144, 1, 1][..], &[7; 200]].concat();
        let ends = record_ends(&whole).into_iter().map(|end| (end, "a record"));
        let sectors = (0..=whole.len()).step_by(512).map(|end| (end, "a sector"));
        for (end, what) in ends.chain(sectors) {
            for (tail, bytes) in [("nothing", &[][..]), ("half a record", &begun), ("zeros", &[0; 600])] {
                let damaged = home.path().join("damaged");
                copy(&sound, &damaged);
                std::fs::write(damaged.join(name(&manifest)), [&whole[..end], bytes].concat()).unwrap();
                let wanted = if end == whole.len() { Outcome::Harmless } else { Outcome::Refused };
                let outcome = outcome(&damaged, &name(&manifest));
                assert_eq!(outcome, Ok(wanted), "{end} of {} bytes, {tail}: {sound:?}", whole.len());
                *outcomes.entry((what, tail, wanted)).or_default() += 1;
                std::fs::remove_dir_all(&damaged).unwrap();
            }
        }
    }
    say(&format!("  {outcomes:?}"));
    assert!(outcomes.contains_key(&("a sector", "nothing", Outcome::Refused)));
}

/// The ends of the records in a manifest of less than 32 KiB: checksum u32, length u16, kind u8, bytes.
fn record_ends(manifest: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(length) = manifest.get(ends[ends.len() - 1] + 4..).and_then(|rest| rest.first_chunk()) {
        ends.push(ends[ends.len() - 1] + 7 + usize::from(u16::from_le_bytes(*length)));
    }
    assert_eq!(ends.last(), Some(&manifest.len()));
    ends
}

/// RocksDB reads the properties of a table before it verifies their checksum, and blames the manifest for
/// wrong ones.
#[test]
fn a_table_is_not_mistaken_for_the_manifest() {
    let home = tempfile::tempdir().unwrap();
    let dir = crashed(home.path());
    let table = files(&dir).into_iter().find(|file| kind(file) == "sst").unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    // "rocksdb.comparator", which is now smaller than the property before it.
    let at = bytes.windows(15).position(|b| b == b"mparatorleveldb").unwrap();
    bytes[at] = b'a';
    std::fs::write(&table, &bytes).unwrap();
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(outcome(&dir, &name), Ok(Outcome::Refused));
    let refused = try_start(tern_command(&dir, &ARGS), &dir.with_extension("log")).err().unwrap();
    assert!(!refused.said.contains("MANIFEST"), "{}", refused.said);
}
