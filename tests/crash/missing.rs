//! Hazard: a file of the directory, or its end, is missing, and a server starts with the rest as if it were
//! complete.
//!
//! Each log and each table of a directory is removed on its own, and all logs together, after a kill and
//! after a clean stop. A server either refuses to start and names the file, or the file was no longer needed
//! and everything is there. Logs are also cut off anywhere.

use crate::history;
use crate::support::say;
use crate::support::server::{tern_check, tern_command, tern_in, try_start};
use crate::{ARGS, copy, files, name, noted};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const STEPS: usize = 150;

/// A directory with tables and some unflushed logs.
fn directory(dir: &Path, fsync: &str, stop: bool) {
    let args = [&ARGS[..], &["--appendfsync", fsync, "--store-write-buffer-size", "512kb"]].concat();
    let mut server = tern_in(dir, &args);
    history::steps(&mut server.client(), 1, STEPS);
    // The note covers a log and its synced length within about a second.
    std::thread::sleep(Duration::from_millis(2500));
    if stop { assert!(server.terminate()) } else { server.kill() }
}

/// Whether a server on the directory without `removed` refuses to start and names it; otherwise everything
/// must be there.
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
            history::check(&found, STEPS, STEPS).unwrap_or_else(|e| panic!("without {removed:?}: {e}"));
            false
        }
    };
    std::fs::remove_dir_all(&dir).unwrap();
    refused
}

#[test]
fn a_store_with_a_missing_file_names_it_and_does_not_start_empty() {
    let home = tempfile::tempdir().unwrap();
    for (fsync, stop) in [("always", false), ("everysec", false), ("no", false), ("always", true)] {
        let dir = home.path().join(format!("{fsync}-{stop}"));
        directory(&dir, fsync, stop);
        let all = files(&dir);
        let logs: Vec<PathBuf> =
            all.iter().filter(|f| f.extension().is_some_and(|e| e == "wal")).cloned().collect();
        let tables = all.iter().filter(|f| f.extension().is_some_and(|e| e == "sst"));
        assert!(!is_refused(&dir, &[]), "no file is missing");
        let refused: Vec<bool> = logs.iter().map(|log| is_refused(&dir, std::slice::from_ref(log))).collect();
        say(&format!("  {fsync}, stopped: {stop}: {} logs, refused without: {refused:?}", logs.len()));
        assert_eq!(refused.last(), Some(&!stop), "without the newest log");
        assert_eq!(is_refused(&dir, &logs), !stop, "without any log");
        // A log that was being written at the kill need not exist yet.
        let refused = tables.filter(|table| is_refused(&dir, std::slice::from_ref(table))).count();
        assert!(refused > 0 || !stop, "without a table: {all:?}");
    }
}

/// The lengths to which a log of `length` bytes is cut.
fn lengths(length: u64) -> [u64; 7] {
    [0, 1, 7, length / 3, length / 2, length - 100, length - 1]
}

#[test]
fn a_log_cut_off_in_its_synced_part_is_named() {
    let home = tempfile::tempdir().unwrap();
    for fsync in ["always", "everysec", "no"] {
        let dir = home.path().join(fsync);
        directory(&dir, fsync, false);
        let logs: Vec<PathBuf> =
            files(&dir).into_iter().filter(|f| f.extension().is_some_and(|e| e == "wal")).collect();
        let newest = logs.last().unwrap();
        let copied = home.path().join("cut");
        let mut started = 0;
        for log in &logs {
            for left in lengths(log.metadata().unwrap().len()) {
                copy(&dir, &copied);
                let cut = copied.join(name(log));
                std::fs::File::options().write(true).open(&cut).unwrap().set_len(left).unwrap();
                match try_start(tern_command(&copied, &ARGS), &copied.with_extension("log")) {
                    Err(refused) => {
                        // The oldest log may already be in tables but not removed yet.
                        assert!(refused.status == Some(1) && refused.said.contains(".wal"), "{refused:?}");
                        let synced = refused.said.contains("had been synced");
                        assert!(fsync == "no" || log != newest || synced, "{fsync}, {left}: {refused:?}");
                        if synced {
                            assert!(refused.said.contains(&name(log)), "{refused:?}");
                            follow_advice(&copied, &refused.said);
                        }
                    }
                    Ok(server) => {
                        let found = history::read(&mut server.client()).unwrap();
                        let least = if fsync == "no" { 0 } else { STEPS };
                        history::check(&found, least, STEPS)
                            .unwrap_or_else(|e| panic!("{fsync}, {left} bytes of {}: {e}", log.display()));
                        started += 1;
                    }
                }
                std::fs::remove_dir_all(&copied).unwrap();
            }
        }
        say(&format!("  {fsync}: {} logs, cut at 7 places each: {started} servers started", logs.len()));
    }
}

/// Cuts the log where the refusal says so, and starts.
pub fn follow_advice(dir: &Path, said: &str) {
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "truncate").unwrap_or_else(|| panic!("no advice: {said}"));
    let (length, file) = (words[at + 2], words[at + 3].trim_end_matches(','));
    assert!(file.starts_with(&dir.display().to_string()) && said.contains("TERN-SYNCED"), "{said}");
    let log = std::fs::File::options().write(true).open(file).unwrap();
    log.set_len(length.parse().unwrap()).unwrap();
    std::fs::remove_file(dir.join("TERN-SYNCED")).unwrap();
    if said.contains("move away the logs with higher numbers") {
        let higher = files(dir).into_iter().filter(|f| f.extension().is_some_and(|e| e == "wal"));
        higher.filter(|f| f.as_path() > Path::new(file)).for_each(|f| std::fs::remove_file(f).unwrap());
        std::fs::remove_file(dir.join("TERN-LOGS")).unwrap();
    }
    let (status, said) = tern_check(dir, &ARGS);
    assert_eq!(status, Some(0), "{said}");
    let server = try_start(tern_command(dir, &ARGS), &dir.with_extension("log")).unwrap();
    history::check(&history::read(&mut server.client()).unwrap(), 0, STEPS).unwrap();
}

/// A server that continues writes after the hole, or to a file without a name.
#[test]
fn a_log_cut_off_or_removed_under_a_server_is_named_at_the_next_start() {
    let home = tempfile::tempdir().unwrap();
    for eighths in [None, Some(0), Some(1), Some(4), Some(7)] {
        let dir = home.path().join(format!("{eighths:?}"));
        let mut server = tern_in(&dir, &[&ARGS[..], &["--appendfsync", "always"]].concat());
        history::steps(&mut server.client(), 1, 40);
        let log = files(&dir).into_iter().rfind(|f| f.extension().is_some_and(|e| e == "wal")).unwrap();
        let length = || log.metadata().unwrap().len();
        let since = Instant::now();
        while noted(&dir)[&name(&log)] as u64 != length() {
            assert!(since.elapsed() < Duration::from_secs(20), "{:?}", noted(&dir));
            std::thread::sleep(Duration::from_millis(20));
        }
        match eighths {
            None => std::fs::remove_file(&log).unwrap(),
            Some(eighths) => {
                let cut = length() * eighths / 8;
                std::fs::File::options().write(true).open(&log).unwrap().set_len(cut).unwrap();
            }
        }
        history::steps(&mut server.client(), 41, 80);
        let found = history::read(&mut server.client()).unwrap();
        history::check(&found, 80, 80).unwrap();
        server.kill();
        let said = try_start(tern_command(&dir, &ARGS), &home.path().join("log")).err().unwrap().said;
        assert!(said.contains(&name(&log)), "{eighths:?}: {said}");
        match eighths {
            None => assert!(said.contains("is missing"), "{said}"),
            // The file is empty.
            Some(0) => assert!(said.contains("is damaged at byte 0"), "{said}"),
            Some(_) => follow_advice(&dir, &said),
        }
    }
}

/// An operator who follows the message can continue without the lost data.
#[test]
fn following_the_advice_of_a_refusal_starts_the_server() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let args = [&ARGS[..], &["--appendfsync", "always"]].concat();
    let mut server = tern_in(&dir, &args);
    history::steps(&mut server.client(), 1, 20);
    assert!(server.terminate());
    let mut server = tern_in(&dir, &args);
    history::steps(&mut server.client(), 21, 40);
    server.kill();
    let log = files(&dir).into_iter().rfind(|f| f.extension().is_some_and(|e| e == "wal")).unwrap();
    std::fs::remove_file(&log).unwrap();
    let refused = try_start(tern_command(&dir, &ARGS), &home.path().join("log")).err().unwrap();
    for part in [name(&log), "is missing".into(), format!("remove {}", dir.join("TERN-LOGS").display())] {
        assert!(refused.said.contains(&part), "{part}: {refused:?}");
    }
    std::fs::remove_file(dir.join("TERN-LOGS")).unwrap();
    let (status, said) = tern_check(&dir, &ARGS);
    assert_eq!(status, Some(0), "{said}");
    let server = try_start(tern_command(&dir, &ARGS), &home.path().join("log")).unwrap();
    history::check(&history::read(&mut server.client()).unwrap(), 20, 20).unwrap();
}
