//! Hazard: TERN-SYNCED records what was synced, but can itself be lost, outdated, torn or another store's: a
//! server refuses to start on a sound store, or starts on one whose log has lost acknowledged data.

use crate::history;
use crate::missing::follow_advice;
use crate::support::resp::Client;
use crate::support::say;
use crate::support::server::{Server, assert_sound, tern_command, tern_in, try_start};
use crate::{ARGS, copy, files, name, noted};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const STEPS: usize = 120;
const POLICIES: [&str; 3] = ["always", "everysec", "no"];
const NAME: &str = "TERN-SYNCED";

fn server(dir: &Path, fsync: &str) -> Server {
    tern_in(dir, &[&ARGS[..], &["--appendfsync", fsync, "--store-write-buffer-size", "512kb"]].concat())
}

/// Waits until the note covers everything that is synced.
fn settle(dir: &Path, fsync: &str) {
    let since = Instant::now();
    let newest = || files(dir).into_iter().rfind(|f| f.extension().is_some_and(|e| e == "wal")).unwrap();
    let known = || noted(dir).get(&name(&newest())).copied().unwrap_or_default() as u64;
    while fsync != "no" && known() < newest().metadata().unwrap().len() {
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", noted(dir));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of steps that a server on the directory holds, at least `least`; or its refusal.
fn start(dir: &Path, least: usize) -> Result<usize, String> {
    let server =
        try_start(tern_command(dir, &ARGS), &dir.with_extension("log")).map_err(|refused| refused.said)?;
    let found = history::read(&mut server.client()).unwrap();
    history::check(&found, least, usize::MAX).unwrap_or_else(|e| panic!("{dir:?}: {e}"));
    history::step(&mut server.client(), found.0 + 1).unwrap();
    drop(server);
    assert_sound(dir, &ARGS);
    Ok(found.0)
}

/// States in which a disk may leave the note of a sound store. `old`: its earlier contents.
fn confused(new: &[u8], old: &[u8]) -> Vec<(&'static str, Option<Vec<u8>>)> {
    vec![
        ("as it is", Some(new.to_vec())),
        ("lost", None),
        ("empty", Some(Vec::new())),
        ("zeroed", Some(vec![0; new.len()])),
        ("cut off", Some(new[..new.len() / 20].to_vec())),
        ("torn", Some([&new[..24], &old[24..]].concat())),
        ("older", Some(old.to_vec())),
    ]
}

fn put(dir: &Path, note: Option<&[u8]>) {
    match note {
        Some(bytes) => std::fs::write(dir.join(NAME), bytes).unwrap(),
        None => std::fs::remove_file(dir.join(NAME)).unwrap(),
    }
}

#[test]
fn a_sound_store_starts_whatever_the_note_says() {
    let home = tempfile::tempdir().unwrap();
    let mut started = 0;
    for (fsync, stop) in POLICIES.into_iter().flat_map(|fsync| [(fsync, false), (fsync, true)]) {
        let dir = home.path().join(format!("{fsync}-{stop}"));
        let mut server = server(&dir, fsync);
        history::steps(&mut server.client(), 1, STEPS / 2);
        let old = std::fs::read(dir.join(NAME)).unwrap();
        history::steps(&mut server.client(), STEPS / 2 + 1, STEPS);
        if stop {
            let _ = server.client().send(&["SHUTDOWN"]);
            let since = Instant::now();
            while server.is_running() {
                assert!(since.elapsed() < Duration::from_secs(20), "SHUTDOWN");
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            server.kill();
        }
        let new = std::fs::read(dir.join(NAME)).unwrap();
        for (what, note) in confused(&new, &old) {
            let copied = home.path().join("copied");
            copy(&dir, &copied);
            put(&copied, note.as_deref());
            let there = start(&copied, STEPS).unwrap_or_else(|e| panic!("{what}, {fsync}, stop {stop}: {e}"));
            assert_eq!(there, STEPS, "{what}, {fsync}, stop {stop}");
            started += 1;
            std::fs::remove_dir_all(&copied).unwrap();
        }
        let moved = home.path().join("moved");
        let mut tern = Command::new(env!("CARGO_BIN_EXE_tern"));
        let place = |dir: &Path| format!("local:{}", dir.display());
        tern.args(["copy", "--from", &place(&dir), "--to", &place(&moved)]);
        assert!(tern.output().unwrap().status.success());
        assert_eq!(start(&moved, STEPS), Ok(STEPS), "tern copy");
        std::fs::remove_dir_all(&moved).unwrap();
    }
    say(&format!("  {started} started"));
}

/// The kernel writes the note back before the end of the log: the note claims more than the log has, so the
/// log has lost data.
#[test]
fn a_log_older_than_the_note_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for fsync in ["always", "everysec"] {
        let dir = home.path().join(fsync);
        let mut server = server(&dir, fsync);
        history::steps(&mut server.client(), 1, 10);
        settle(&dir, fsync);
        let old = home.path().join("old");
        copy(&dir, &old);
        history::steps(&mut server.client(), 11, 20);
        settle(&dir, fsync);
        server.kill();
        std::fs::copy(dir.join(NAME), old.join(NAME)).unwrap();
        let said = start(&old, 0).unwrap_err();
        assert!(said.contains(".wal is damaged at byte") && said.contains("had been synced"), "{said}");
        follow_advice(&old, &said);
        assert_eq!(start(&dir, 20), Ok(20));
        std::fs::remove_dir_all(&old).unwrap();
    }
}

/// All stores use the same numbers for logs and manifests. A note of another store is wrong: either that is
/// noticed, or it claims too little.
#[test]
fn the_note_of_another_store_hides_nothing() {
    let home = tempfile::tempdir().unwrap();
    let [small, large] = [10, STEPS].map(|steps| {
        let dir = home.path().join(steps.to_string());
        let mut server = tern_in(&dir, &[&ARGS[..], &["--appendfsync", "always"]].concat());
        history::steps(&mut server.client(), 1, steps);
        settle(&dir, "always");
        server.kill();
        (dir, steps)
    });
    let notes = [&small, &large].map(|(dir, _)| std::fs::read(dir.join(NAME)).unwrap());
    put(&small.0, Some(&notes[1]));
    put(&large.0, Some(&notes[0]));
    assert!(start(&small.0, small.1).unwrap_err().contains("had been synced"));
    assert_eq!(start(&large.0, large.1), Ok(STEPS));
}

/// A copy made by `cp`: of a stopped store it is complete; of a running one it holds a prefix with everything
/// acknowledged before, or is refused with advice that leads to one.
#[test]
fn a_copy_made_by_cp_starts_or_names_the_problem() {
    let home = tempfile::tempdir().unwrap();
    let (mut started, mut refused) = (0, 0);
    for fsync in POLICIES {
        let dir = home.path().join(fsync);
        let mut server = server(&dir, fsync);
        let mut sent = 0;
        for round in 0..4 {
            let copied = home.path().join(format!("{fsync}-{round}"));
            let before = sent + 20;
            history::steps(&mut server.client(), sent + 1, before);
            sent = while_copying(&dir, &copied, &mut server.client(), before);
            match start(&copied, before) {
                Ok(there) => {
                    assert!(there <= sent + 1, "{there} of {sent}");
                    started += 1;
                }
                Err(said) => {
                    assert!(said.contains("is damaged") || said.contains("is missing"), "{said}");
                    assert!(files(&copied).iter().any(|file| said.contains(&name(file))), "{said}");
                    refused += 1;
                }
            }
        }
        assert!(server.terminate());
        let copied = home.path().join(format!("{fsync}-stopped"));
        copy(&dir, &copied);
        assert_eq!(start(&copied, sent), Ok(sent));
    }
    say(&format!("  of running servers: {started} started, {refused} refused"));
}

/// Runs steps while the directory is copied file by file; returns the number of steps then.
fn while_copying(dir: &Path, to: &Path, client: &mut Client, mut sent: usize) -> usize {
    std::fs::create_dir_all(to).unwrap();
    for file in files(dir) {
        // `cp` complains about a file removed in the meantime.
        let _ = std::fs::copy(&file, to.join(name(&file)));
        history::steps(client, sent + 1, sent + 2);
        sent += 2;
    }
    sent
}
