//! Hazard: a file of the directory is gone, and a server starts on what is left as if that were all.
//!
//! Each log and each table of a directory is removed alone, and all logs together, after a kill and after a clean stop. A server refuses to
//! start and names the file; or the file meant nothing any more, and everything is there.

use crate::history;
use crate::support::say;
use crate::support::server::{tern_check, tern_command, tern_in, try_start};
use crate::{ARGS, copy, files};
use std::path::{Path, PathBuf};
use std::time::Duration;

const STEPS: usize = 150;

/// With tables, and some logs that are not flushed.
fn directory(dir: &Path, fsync: &str, stop: bool) {
    let args = [&ARGS[..], &["--appendfsync", fsync, "--store-write-buffer-size", "512kb"]].concat();
    let mut server = tern_in(dir, &args);
    history::steps(&mut server.client(), 1, STEPS);
    if fsync != "always" {
        // A log is known within about a second.
        std::thread::sleep(Duration::from_millis(2500));
    }
    if stop { assert!(server.terminate()) } else { server.kill() }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Whether a server on the directory without `removed` says which file it misses; else everything is there.
fn is_refused(sound: &Path, removed: &[PathBuf]) -> bool {
    let dir = sound.with_extension("without");
    copy(sound, &dir);
    removed.iter().for_each(|file| std::fs::remove_file(dir.join(name(file))).unwrap());
    let refused = match try_start(tern_command(&dir, &ARGS), &dir.with_extension("log")) {
        Err(refused) => {
            let named = removed.iter().any(|file| refused.said.contains(&name(file)));
            assert!(refused.status == Some(1) && named, "without {removed:?}: {refused:?}");
            let (status, said) = tern_check(&dir, &ARGS);
            assert!(status != Some(0), "tern check: {said}");
            true
        }
        Ok(server) => {
            let found = history::read(&mut server.client()).unwrap();
            history::judge(&found, STEPS, STEPS).unwrap_or_else(|e| panic!("without {removed:?}: {e}"));
            false
        }
    };
    std::fs::remove_dir_all(&dir).unwrap();
    refused
}

#[test]
fn a_store_that_misses_a_file_names_it_and_does_not_start_empty() {
    let home = tempfile::tempdir().unwrap();
    for (fsync, stop) in [("always", false), ("everysec", false), ("no", false), ("always", true)] {
        let dir = home.path().join(format!("{fsync}-{stop}"));
        directory(&dir, fsync, stop);
        let all = files(&dir);
        let logs: Vec<PathBuf> =
            all.iter().filter(|f| f.extension().is_some_and(|e| e == "log")).cloned().collect();
        let tables = all.iter().filter(|f| f.extension().is_some_and(|e| e == "sst"));
        assert!(!is_refused(&dir, &[]), "nothing is missing");
        let refused: Vec<bool> = logs.iter().map(|log| is_refused(&dir, std::slice::from_ref(log))).collect();
        say(&format!("  {fsync}, stopped: {stop}: {} logs, refused without: {refused:?}", logs.len()));
        assert_eq!(refused.last(), Some(&!stop), "without the newest log");
        assert_eq!(is_refused(&dir, &logs), !stop, "without any log");
        // One that was being written when the server was killed means nothing yet.
        let refused = tables.filter(|table| is_refused(&dir, std::slice::from_ref(table))).count();
        assert!(refused > 0 || !stop, "without a table: {all:?}");
    }
}

/// Whoever has read what is said can go on without what is gone.
#[test]
fn the_advice_of_a_refusal_helps() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let args = [&ARGS[..], &["--appendfsync", "always"]].concat();
    let mut server = tern_in(&dir, &args);
    history::steps(&mut server.client(), 1, 20);
    assert!(server.terminate());
    let mut server = tern_in(&dir, &args);
    history::steps(&mut server.client(), 21, 40);
    server.kill();
    let log = files(&dir).into_iter().rfind(|f| f.extension().is_some_and(|e| e == "log")).unwrap();
    std::fs::remove_file(&log).unwrap();
    let refused = try_start(tern_command(&dir, &ARGS), &home.path().join("log")).err().unwrap();
    for part in [name(&log), "is missing".into(), format!("remove {}", dir.join("TERN-LOGS").display())] {
        assert!(refused.said.contains(&part), "{part}: {refused:?}");
    }
    std::fs::remove_file(dir.join("TERN-LOGS")).unwrap();
    let (status, said) = tern_check(&dir, &ARGS);
    assert_eq!(status, Some(0), "{said}");
    let server = try_start(tern_command(&dir, &ARGS), &home.path().join("log")).unwrap();
    history::judge(&history::read(&mut server.client()).unwrap(), 20, 20).unwrap();
}
