//! Hazard: power fails, and some of the pages written since the last sync are on disk while others are not:
//! the server loses durable data, shows half of a command, or skips one in the middle and continues after it.
//!
//! The server runs above `synced.c`, which knows how long each file was at its last sync. Copies of its
//! directory are damaged after that point, in every way a disk may: cut off, zeroed, pages missing in the
//! middle. A server starts on each copy and holds a prefix of the history with every durable step. If a
//! single byte before that point is lost too, none starts.

use crate::disk::Disk;
use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{assert_sound, tern_command, try_start};
use crate::support::{env_number, say};
use crate::{ARGS, copy, files};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PAGE: usize = 4096;
const ROUNDS: u64 = 2;

/// The known facts about a crashed directory.
struct Crashed {
    /// The number of synced bytes of each file; files not listed have none.
    synced: BTreeMap<String, usize>,
    /// Contents of TERN-SYNCED at some moments. The file is not synced, so a power failure may leave any of
    /// them.
    noted: Vec<Vec<u8>>,
    /// The number of durable steps, and of all steps sent.
    durable: usize,
    sent: usize,
}

/// Some steps are synced and acknowledged, more are only acknowledged, then the process is killed.
fn crash(disk: &Disk, rng: &mut Rng, buffer: &str) -> Crashed {
    let mut server = disk.start(&["--store-write-buffer-size", buffer]);
    let mut client = server.client();
    let mut noted = Vec::new();
    let mut note = || noted.push(std::fs::read(disk.dir().join("TERN-SYNCED")).unwrap());
    let fsync = |policy: &str| format!("CONFIG SET appendfsync {policy}");
    let first = 20 + rng.below(60);
    note();
    client.line(&fsync("no"));
    history::steps(&mut client, 1, first);
    client.line(&fsync("always"));
    let durable = first + 1 + rng.below(10);
    history::steps(&mut client, first + 1, durable);
    note();
    client.line(&fsync("no"));
    let sent = durable + 30 + rng.below(60);
    history::steps(&mut client, durable + 1, sent);
    server.kill();
    note();
    let lengths = disk.synced();
    let of = |file: &Path| lengths.get(&file.metadata().unwrap().ino()).copied().unwrap_or_default() as usize;
    let synced = files(&disk.dir()).iter().map(|file| (crate::name(file), of(file))).collect();
    Crashed { synced, noted, durable, sent }
}

/// The remains of unsynced bytes after a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The file ends where it was synced.
    All,
    /// It ends somewhere after that.
    Cut,
    /// It ends at a page.
    CutAtPage,
    /// It is zero from some byte on.
    Zeros,
    /// It is zero from some page on.
    ZeroPages,
    /// It ends in zeros that were never written.
    Longer,
    /// One page is missing; the pages after it are there.
    Hole,
    /// About every other page is missing.
    Holes,
}

const LOSSES: [Loss; 8] = [
    Loss::All,
    Loss::Cut,
    Loss::CutAtPage,
    Loss::Zeros,
    Loss::ZeroPages,
    Loss::Longer,
    Loss::Hole,
    Loss::Holes,
];

impl Loss {
    /// `bytes` after the loss; the first `synced` of them are durable.
    fn of(self, mut bytes: Vec<u8>, synced: usize, rng: &mut Rng) -> Vec<u8> {
        let at = synced + rng.below(bytes.len() - synced + 1);
        let page = (at / PAGE * PAGE).max(synced);
        match self {
            Loss::All => bytes.truncate(synced),
            Loss::Cut => bytes.truncate(at),
            Loss::CutAtPage => bytes.truncate(page),
            Loss::Zeros => bytes[at..].fill(0),
            Loss::ZeroPages => bytes[page..].fill(0),
            Loss::Longer => bytes.resize(bytes.len() + 100_000, 0),
            Loss::Hole => {
                let end = (page / PAGE * PAGE + PAGE).min(bytes.len());
                bytes[page..end].fill(0);
            }
            Loss::Holes => {
                for page in (synced / PAGE * PAGE..bytes.len()).step_by(PAGE).filter(|_| rng.one_in(2)) {
                    let end = (page + PAGE).min(bytes.len());
                    bytes[page.max(synced)..end].fill(0);
                }
            }
        }
        bytes
    }
}

/// Damages all unsynced data in `dir`; returns the number of logs damaged.
fn lose(dir: &Path, synced: &BTreeMap<String, usize>, loss: Loss, rng: &mut Rng) -> usize {
    let mut logs = 0;
    for path in files(dir) {
        let name = crate::name(&path);
        if !name.ends_with(".wal") && !name.ends_with(".sst") && !name.starts_with("MANIFEST") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let sure = synced[&name];
        if sure >= bytes.len() {
            continue;
        }
        logs += usize::from(name.ends_with(".wal"));
        std::fs::write(&path, loss.of(bytes, sure, rng)).unwrap();
    }
    logs
}

#[test]
fn synced_data_survives_every_loss_of_unsynced_data() {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    let rounds = env_number("TERN_TORN_ROUNDS").unwrap_or(ROUNDS);
    say(&format!("torn writes: TERN_SEED={seed}, {rounds} rounds"));
    let mut rng = Rng::new(seed);
    let mut outcomes = BTreeMap::<(String, &str), usize>::new();
    for round in 0..rounds {
        let buffer = ["16mb", "256kb"][round as usize % 2];
        let room = tempfile::tempdir().unwrap();
        let Some(disk) = Disk::new(room.path()) else { return };
        let crashed = crash(&disk, &mut rng, buffer);
        for loss in LOSSES {
            let torn = room.path().join("torn");
            copy(&disk.dir(), &torn);
            let logs = lose(&torn, &crashed.synced, loss, &mut rng);
            assert!(logs > 0, "no round had unsynced data");
            let noted = rng.below(crashed.noted.len());
            std::fs::write(torn.join("TERN-SYNCED"), &crashed.noted[noted]).unwrap();
            let outcome = check(&torn, &crashed);
            let outcome = outcome.unwrap_or_else(|e| panic!("round {round}, {loss:?}, note {noted}: {e}"));
            *outcomes.entry((format!("{loss:?}"), outcome)).or_default() += 1;
            std::fs::remove_dir_all(&torn).unwrap();
        }
    }
    say(&format!("  {outcomes:?}"));
}

fn check(dir: &Path, crashed: &Crashed) -> Result<&'static str, String> {
    let server = try_start(tern_command(dir, &ARGS), &dir.with_extension("log"))
        .map_err(|refused| format!("refused: {refused:?}"))?;
    let found = history::read(&mut server.client())?;
    history::check(&found, crashed.durable, crashed.sent)?;
    let mut client = server.client();
    history::step(&mut client, found.0 + 1)?;
    drop(server);
    assert_sound(dir, &ARGS);
    Ok(if found.0 == crashed.sent { "all there" } else { "a prefix" })
}

/// The server is not too lenient: if a byte that it knows to be synced is missing, it does not start.
#[test]
fn a_loss_of_synced_data_is_refused() {
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    say(&format!("losses of what was synced: TERN_SEED={seed}"));
    let mut rng = Rng::new(seed);
    let room = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(room.path()) else { return };
    let crashed = crash(&disk, &mut rng, "16mb");
    let mut refused = 0;
    for (name, sure) in crate::noted(&disk.dir()) {
        assert!((100..=crashed.synced[&name]).contains(&sure), "{name}: {sure} bytes");
        let bytes = std::fs::read(disk.dir().join(&name)).unwrap();
        let anywhere = rng.below(sure - 50);
        let places = [0, anywhere, sure - 50].into_iter();
        let losses = places.flat_map(|at| [(at, at), (at, (at + PAGE).min(sure)), (at, bytes.len())]);
        for (from, to) in losses.chain([(sure - 1, sure - 1)]) {
            let torn = room.path().join("torn");
            copy(&disk.dir(), &torn);
            let mut rest = bytes.clone();
            if from == to {
                rest.truncate(from)
            } else {
                rest[from..to].fill(0)
            }
            std::fs::write(torn.join(&name), rest).unwrap();
            let said = try_start(tern_command(&torn, &ARGS), &torn.with_extension("log"));
            let said =
                said.err().unwrap_or_else(|| panic!("{name} without {from}..{to} must not be served")).said;
            assert!(said.contains(&name) && said.contains("is damaged at byte"), "{from}..{to}: {said}");
            refused += 1;
            std::fs::remove_dir_all(&torn).unwrap();
        }
    }
    say(&format!("  {refused} refused"));
}
