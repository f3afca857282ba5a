//! Hazard: a sync fails, the next one succeeds, and the data of the first never reaches the disk: kernels
//! mark pages that they could not write as clean, and drop them. The server continues, and acknowledged
//! writes are gone, at once or after the next power failure.
//!
//! One sync of a file of each kind fails while a server works: the unsynced bytes become zeros at once, or
//! stay readable until the power fails. Everything acknowledged must be there: while the server lives, after
//! a kill, and after a loss of all unsynced data.

use crate::ARGS;
use crate::disk::Disk;
use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{Server, assert_sound, tern_command, try_start};
use crate::support::{env_number, say};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kinds of files whose sync fails.
const KINDS: [&str; 5] = [".wal", ".sst", "MANIFEST", "TERN-LOGS", "TERN-SYNCED"];
const MODES: [&str; 2] = ["gone", "kept"];
/// How soon writes must resume.
const RECOVERY: Duration = Duration::from_secs(30);

/// The number of steps stored once writes have resumed. `least`: the number acknowledged.
fn recovered(server: &Server, least: usize, most: usize) -> usize {
    let since = Instant::now();
    while server.client().line("SET more v").is_error() {
        assert!(since.elapsed() < RECOVERY, "writes stay refused\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = history::read(&mut server.client()).unwrap();
    history::check(&found, least, most).unwrap_or_else(|e| panic!("{e}\n{}", server.log()));
    found.0
}

/// Runs steps until a sync has failed, and some more; returns how many are stored, and whether a client got
/// an error. With `always` no acknowledged step is missing.
fn steps(disk: &Disk, server: &Server, from: usize, always: bool) -> (usize, bool) {
    let (mut n, mut heard, mut left) = (from, false, None);
    let since = Instant::now();
    let mut client = server.client();
    while left != Some(0) {
        // Some files are synced once a second.
        assert!(n < from + 5000 || since.elapsed() < RECOVERY, "such a file must be synced");
        left = left.map(|left: usize| left - 1).or(disk.has_failed().then_some(20));
        match history::step(&mut client, n + 1) {
            Ok(()) => n += 1,
            Err(e) => {
                assert!(e.contains("MISCONF") || e.contains("commit result unknown"), "{e}");
                n = recovered(server, if always { n } else { 0 }, n + 1);
                (client, heard) = (server.client(), true);
            }
        }
    }
    (n, heard)
}

/// Starts a server on what a power failure leaves.
fn after(disk: &Disk, to: &Path, least: usize, most: usize, whole: bool) -> Result<(), String> {
    disk.after_a_loss(
        to,
        || whole,
        |name, mut bytes, sure| {
            bytes.truncate(if whole || name == "TERN-SYNCED" { bytes.len() } else { sure });
            bytes
        },
    );
    let server =
        try_start(tern_command(to, &ARGS), &to.with_extension("log")).map_err(|e| format!("{e:?}"))?;
    history::check(&history::read(&mut server.client())?, least, most)?;
    drop(server);
    assert_sound(to, &ARGS);
    Ok(())
}

#[test]
fn acknowledged_writes_survive_a_failed_sync() {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("failed syncs: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let mut heard_of = BTreeMap::<&str, usize>::new();
    for (kind, mode) in KINDS.into_iter().flat_map(|kind| MODES.map(|mode| (kind, mode))) {
        let room = tempfile::tempdir().unwrap();
        let Some(disk) = Disk::new(room.path()) else { return };
        let policy = ["always", "everysec"][usize::from(rng.one_in(3))];
        let mut server = disk.start(&["--appendfsync", policy, "--store-write-buffer-size", "256kb"]);
        let first = 1 + rng.below(60);
        history::steps(&mut server.client(), 1, first);
        disk.fail_a_sync(kind, mode);
        let (there, heard) = steps(&disk, &server, first, policy == "always");
        *heard_of.entry(kind).or_default() += usize::from(heard);
        server.kill();
        let least = if policy == "always" { there } else { 0 };
        for whole in [true, false] {
            let to = room.path().join(format!("after-{whole}"));
            after(&disk, &to, least, there, whole)
                .unwrap_or_else(|e| panic!("{kind} {mode}, {policy}, all that was written: {whole}: {e}"));
        }
    }
    say(&format!("  clients heard of it: {heard_of:?}"));
    // Not of each kind: a commit whose sync has failed is resolved once the store is open again, often before its client is
    // told anything.
    assert!(heard_of.values().sum::<usize>() > 0, "{heard_of:?}");
}
