//! Hazard: power fails, and files created, renamed or removed since their directory was synced are missing,
//! or are back: the server misses a file, finds one that it had removed, or reads an outdated list; it
//! refuses to start, or serves what is left.
//!
//! A server is killed or stopped, and its directory is rebuilt from the synced entries and some of the later
//! ones, each file at least as long as it was synced. A server starts on it and holds everything durable.

use crate::ARGS;
use crate::disk::Disk;
use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{assert_sound, tern_command, try_start};
use crate::support::{env_number, say};
use std::path::Path;

const ROUNDS: u64 = 3;
/// Losses per directory.
const LOSSES: usize = 6;

/// Runs steps on a server that is restarted once or twice; returns the minimum number of durable steps and
/// the number sent.
fn history_on(disk: &Disk, rng: &mut Rng) -> (usize, usize) {
    let (mut durable, mut sent) = (0, 0);
    for _ in 0..1 + rng.below(3) {
        let policy = ["always", "everysec", "no"][rng.below(3)];
        let buffer = ["16mb", "256kb", "256kb"][rng.below(3)];
        let mut server = disk.start(&["--appendfsync", policy, "--store-write-buffer-size", buffer]);
        // An open moves the contents of the logs into tables.
        durable = history::read(&mut server.client()).unwrap().0;
        let more = 10 + rng.below(120);
        history::steps(&mut server.client(), sent + 1, sent + more);
        sent += more;
        if policy == "always" {
            durable = sent;
        }
        if rng.one_in(3) {
            assert!(server.terminate());
            durable = sent;
        } else {
            server.kill();
        }
    }
    (durable, sent)
}

/// Simulates one loss and starts a server; returns the number of lost entries, or what is wrong.
fn lose(disk: &Disk, to: &Path, rng: &mut Rng, (durable, sent): (usize, usize)) -> Result<usize, String> {
    // This many of eight entries are durable.
    let (stays, cut) = (rng.below(8), rng.one_in(2));
    let mut coin = Rng::new(rng.next());
    let lost = disk.after_a_loss(
        to,
        || rng.below(8) < stays,
        |name, mut bytes, sure| {
            // It is one sector, overwritten in place.
            if name != "TERN-SYNCED" {
                bytes.truncate(if cut { sure + coin.below(bytes.len() - sure + 1) } else { sure });
            }
            bytes
        },
    );
    let server =
        try_start(tern_command(to, &ARGS), &to.with_extension("log")).map_err(|e| format!("{e:?}"))?;
    history::check(&history::read(&mut server.client())?, durable, sent)?;
    drop(server);
    assert_sound(to, &ARGS);
    Ok(lost)
}

#[test]
fn unsynced_directory_entries_may_be_lost() {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    let rounds = env_number("TERN_ENTRIES_ROUNDS").unwrap_or(ROUNDS);
    say(&format!("lost entries: TERN_SEED={seed}, {rounds} rounds"));
    let (mut rng, mut lost) = (Rng::new(seed), 0);
    // In some rounds all entries happen to be synced at the end: then more are created.
    for round in 0..10 * rounds {
        if round >= rounds && lost > 0 {
            break;
        }
        let room = tempfile::tempdir().unwrap();
        let Some(disk) = Disk::new(room.path()) else { return };
        let steps = history_on(&disk, &mut rng);
        for loss in 0..LOSSES {
            let to = room.path().join(format!("loss-{loss}"));
            let outcome = lose(&disk, &to, &mut rng, steps);
            lost += outcome.unwrap_or_else(|e| panic!("round {round}, loss {loss}, {steps:?}: {e}"));
            std::fs::remove_dir_all(&to).unwrap();
        }
    }
    say(&format!("  {lost} entries lost"));
    assert!(lost > 0, "no entry was lost in any round");
}

/// The test above detects a server whose directory is never synced.
#[test]
fn a_directory_that_is_never_synced_is_noticed() {
    let mut rng = Rng::new(7);
    let room = tempfile::tempdir().unwrap();
    let Some(mut disk) = Disk::new(room.path()) else { return };
    disk.forgets_entries = true;
    let mut server = disk.start(&["--appendfsync", "always"]);
    history::steps(&mut server.client(), 1, 50);
    server.kill();
    let wrong = (0..LOSSES).filter(|loss| {
        let to = room.path().join(format!("loss-{loss}"));
        lose(&disk, &to, &mut rng, (50, 50)).is_err()
    });
    assert!(wrong.count() > 0);
}
