//! Hazard: power is lost, and of what was written since the last sync some pages are on disk and others are not: the server loses
//! what it had called durable, shows half of a command, or skips one in the middle and goes on behind it.
//!
//! A server runs above `synced.c`, which knows how long each file was at its last sync. Copies of its directory are damaged behind that
//! point, in every way that a disk may: cut off, zeroed, pages missing in the middle. What starts on such a copy must hold a prefix
//! of the history that has every durable step; or it refuses to start and says why.

use crate::history;
use crate::support::rng::Rng;
use crate::support::server::{Server, assert_sound, tern_command, try_start};
use crate::support::{env_number, program, say, skipped};
use crate::{ARGS, copy, files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = 4096;
const ROUNDS: u64 = 2;

/// Bytes of each file that are synced; what is not named is not.
type Synced = BTreeMap<String, u64>;

fn shim(home: &Path) -> Option<PathBuf> {
    let Some(cc) = program("cc") else {
        skipped("torn writes: no C compiler", "apt-get install gcc");
        return None;
    };
    let library = home.join("synced.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/synced.c");
    let built = Command::new(cc)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(built.unwrap().success(), "synced.c does not compile");
    Some(library)
}

fn start(dir: &Path, shim: &Path, journal: &Path, buffer: &str) -> Server {
    let mut command = tern_command(dir, &[&ARGS[..], &["--store-write-buffer-size", buffer]].concat());
    command.env("LD_PRELOAD", shim).env("TERN_SYNCED", journal);
    try_start(command, &dir.with_extension("log")).unwrap_or_else(|e| panic!("{e:?}"))
}

fn journal_of(path: &Path) -> Synced {
    let text = std::fs::read_to_string(path).unwrap();
    let mut synced = Synced::new();
    for line in text.lines() {
        let (bytes, path) = line.split_once(' ').unwrap();
        let name = Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
        let length = synced.entry(name).or_default();
        *length = (*length).max(bytes.parse().unwrap());
    }
    synced
}

/// A crashed directory, and what is sure about it.
struct Crashed {
    dir: PathBuf,
    synced: Synced,
    /// Steps that were durable, and all that were sent.
    durable: usize,
    sent: usize,
}

/// Some steps are synced and answered, more are only answered, then the process is killed.
fn crash(home: &Path, shim: &Path, rng: &mut Rng, buffer: &str) -> Crashed {
    let (dir, journal) = (home.join("data"), home.join("synced"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut server = start(&dir, shim, &journal, buffer);
    let mut client = server.client();
    let fsync = |policy: &str| format!("CONFIG SET appendfsync {policy}");
    let first = 20 + rng.below(60);
    client.line(&fsync("no"));
    history::steps(&mut client, 1, first);
    client.line(&fsync("always"));
    let durable = first + 1 + rng.below(10);
    history::steps(&mut client, first + 1, durable);
    client.line(&fsync("no"));
    let sent = durable + 30 + rng.below(60);
    history::steps(&mut client, durable + 1, sent);
    server.kill();
    Crashed { dir, synced: journal_of(&journal), durable, sent }
}

/// What a loss of power leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The file ends where it was synced.
    All,
    /// It ends somewhere behind.
    Cut,
    /// It ends at a page.
    CutAtPage,
    /// From somewhere on there are zeros.
    Zeros,
    /// From a page on there are zeros.
    ZeroPages,
    /// It ends in zeros that nobody wrote.
    Longer,
    /// One page is missing, and what comes behind it is there.
    Hole,
    /// Every other page or so is missing.
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
    /// Whether a part is missing in front of a part that is there: only that may be refused. Where two logs had not been synced,
    /// the end of the first is in front of the second.
    fn leaves_a_hole(self, logs: usize) -> bool {
        matches!(self, Loss::Hole | Loss::Holes) || logs > 1 && self != Loss::Longer && self != Loss::All
    }

    /// `bytes` after the loss, of which the first `synced` are sure.
    fn of(self, mut bytes: Vec<u8>, synced: usize, rng: &mut Rng) -> Vec<u8> {
        let at = synced + rng.below(bytes.len() - synced + 1);
        let page = (at as u64 / PAGE * PAGE) as usize;
        let page = page.max(synced);
        match self {
            Loss::All => bytes.truncate(synced),
            Loss::Cut => bytes.truncate(at),
            Loss::CutAtPage => bytes.truncate(page),
            Loss::Zeros => bytes[at..].fill(0),
            Loss::ZeroPages => bytes[page..].fill(0),
            Loss::Longer => bytes.resize(bytes.len() + 100_000, 0),
            Loss::Hole => {
                let end = (page + PAGE as usize).min(bytes.len());
                bytes[page..end].fill(0);
            }
            Loss::Holes => {
                for from in (synced..bytes.len()).step_by(PAGE as usize) {
                    let end = (from + PAGE as usize).min(bytes.len());
                    bytes[from..end]
                        .iter_mut()
                        .for_each(|b| *b *= u8::from(rng.one_in(2)).max(u8::from(from == synced)));
                }
            }
        }
        bytes
    }
}

/// Damages everything in `dir` that was not synced; in how many logs.
fn lose(dir: &Path, synced: &Synced, loss: Loss, rng: &mut Rng) -> usize {
    let mut logs = 0;
    for path in files(dir) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".log") && !name.ends_with(".sst") && !name.starts_with("MANIFEST") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let sure = synced.get(&name).copied().unwrap_or_default() as usize;
        if sure >= bytes.len() {
            continue;
        }
        logs += usize::from(name.ends_with(".log"));
        std::fs::write(&path, loss.of(bytes, sure, rng)).unwrap();
    }
    logs
}

#[test]
fn what_was_synced_survives_every_loss_of_what_was_not() {
    let home = tempfile::tempdir().unwrap();
    let Some(shim) = shim(home.path()) else { return };
    let seed = env_number("TERN_SEED").unwrap_or_else(Rng::any_seed);
    let rounds = env_number("TERN_TORN_ROUNDS").unwrap_or(ROUNDS);
    say(&format!("torn writes: TERN_SEED={seed}, {rounds} rounds"));
    let mut rng = Rng::new(seed);
    let mut outcomes = BTreeMap::<(String, &str), usize>::new();
    for round in 0..rounds {
        let buffer = ["16mb", "256kb"][round as usize % 2];
        let room = tempfile::tempdir_in(home.path()).unwrap();
        let crashed = crash(room.path(), &shim, &mut rng, buffer);
        for loss in LOSSES {
            let torn = room.path().join("torn");
            copy(&crashed.dir, &torn);
            let logs = lose(&torn, &crashed.synced, loss, &mut rng);
            assert!(logs > 0, "nothing was unsynced");
            let outcome = judge(&torn, &crashed, loss.leaves_a_hole(logs));
            let outcome = outcome.unwrap_or_else(|e| panic!("round {round}, {loss:?}: {e}"));
            *outcomes.entry((format!("{loss:?}"), outcome)).or_default() += 1;
            std::fs::remove_dir_all(&torn).unwrap();
        }
    }
    say(&format!("  {outcomes:?}"));
}

fn judge(dir: &Path, crashed: &Crashed, may_refuse: bool) -> Result<&'static str, String> {
    let server = match try_start(tern_command(dir, &ARGS), &dir.with_extension("log")) {
        Ok(server) => server,
        Err(refused) if may_refuse => {
            let clear = refused.status == Some(1)
                && (refused.said.contains(".log") || refused.said.contains("MANIFEST"))
                && refused.said.contains("damaged");
            return if clear { Ok("refused") } else { Err(format!("an unclear refusal: {refused:?}")) };
        }
        // The manifest is a few hundred bytes: where zeros take the place of its last edit, an operator decides.
        Err(refused) if refused.said.contains("MANIFEST") && refused.said.contains("is damaged at byte") => {
            return Ok("manifest refused");
        }
        Err(refused) => return Err(format!("refused: {refused:?}")),
    };
    let found = history::read(&mut server.client())?;
    history::judge(&found, crashed.durable, crashed.sent)?;
    let mut client = server.client();
    history::step(&mut client, found.0 + 1)?;
    drop(server);
    assert_sound(dir, &ARGS);
    Ok(if found.0 == crashed.sent { "all there" } else { "a prefix" })
}
