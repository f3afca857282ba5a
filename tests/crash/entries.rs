//! Hazard: power is lost, and files that were made, renamed or removed since their directory was synced are not, or are again: the server misses
//! a file that it has, finds one that it had removed, or reads the list of yesterday; it refuses to start, or serves what is left.
//!
//! A server is killed or stopped, and its directory is put together from the entries that were synced and some of the later ones, each
//! file as long as it was synced, or longer. A server starts on it and holds all that was durable.

use crate::ARGS;
use crate::disk::Disk;
use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{assert_sound, tern_command, try_start};
use crate::support::{env_number, say};
use std::path::Path;

const ROUNDS: u64 = 3;
/// Losses of one directory.
const LOSSES: usize = 6;

/// Steps on a server that is restarted once or twice; how many are durable at least, and how many were sent.
fn history_on(disk: &Disk, rng: &mut Rng) -> (usize, usize) {
    let (mut durable, mut sent) = (0, 0);
    for _ in 0..1 + rng.below(3) {
        let policy = ["always", "everysec", "no"][rng.below(3)];
        let buffer = ["16mb", "256kb", "256kb"][rng.below(3)];
        let mut server = disk.start(&["--appendfsync", policy, "--store-write-buffer-size", buffer]);
        // What an open finds in the logs is in tables.
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

/// One loss, and what a server makes of it: how many entries were lost, or what is wrong.
fn lose(disk: &Disk, to: &Path, rng: &mut Rng, (durable, sent): (usize, usize)) -> Result<usize, String> {
    // Of eight entries so many are on the disk.
    let (stays, cut) = (rng.below(8), rng.one_in(2));
    let mut coin = Rng::new(rng.next());
    let lost = disk.after_a_loss(
        to,
        || rng.below(8) < stays,
        |name, mut bytes, sure| {
            // It is one sector, written in its place.
            if name != "TERN-SYNCED" {
                bytes.truncate(if cut { sure + coin.below(bytes.len() - sure + 1) } else { sure });
            }
            bytes
        },
    );
    let server =
        try_start(tern_command(to, &ARGS), &to.with_extension("log")).map_err(|e| format!("{e:?}"))?;
    history::judge(&history::read(&mut server.client())?, durable, sent)?;
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
    // In some rounds all entries were synced at the end: then more are made.
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
    assert!(lost > 0, "nothing was lost");
}

/// What the test above would say of a server whose directory is never synced.
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
