//! The file TERN-SYNCED: the length of each log, and of the manifest, at its last sync.
//!
//! A log that ends early looks the same in two cases: a loss of power took data that had not been synced or
//! acknowledged, or somebody truncated it or copied half of it, and acknowledged commits are gone. In the
//! first case the store must start, in the second it must not. A manifest that ends early names fewer tables,
//! and RocksDB removes the others. So the engine records what is on disk:
//!
//! ```text
//! TERN-SYNCED    tern-synced 1 M<manifest>:<bytes> <log>:<bytes> ... <xxh3-64 of what is in front, 16 hexadecimal digits>\n, spaces, to 512 bytes in all
//! ```
//!
//! Why it never records too much: a log's length is taken between two writes and before the sync that covers
//! it, and recorded afterwards; the manifest is synced here before its length, which is the end of its last
//! complete record, is recorded, and only if RocksDB has itself synced that much (a sync after one that failed
//! may succeed without what was lost). The file is one sector written in place, so it holds either the old or the
//! new record. It is synced when the store is opened and when it records the manifest's length. With log
//! lengths it is not synced, and written at most every [`PAUSE`]. So it may record too little: data synced in
//! that interval before a kill is not missed, nor is data in a log that has begun since. The next round of
//! the syncer, a second later, catches up.
//!
//! Without the file, or if it is damaged, nothing is compared: a loss of power never leaves it damaged.

use super::records::{BLOCK, SECTOR};
use super::{logs, records};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Not a name that RocksDB could take for one of its own files.
pub(super) const NAME: &str = "TERN-SYNCED";
const HEAD: &str = "tern-synced 1";
/// The most logs recorded. There are seldom more than four, and the older ones are soon in tables.
const LOGS: usize = 10;
/// The least time between two records of log lengths.
const PAUSE: Duration = Duration::from_millis(5);

/// Lengths of logs in bytes, by number.
pub(super) type Lengths = BTreeMap<u64, u64>;

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) logs: Lengths,
    /// The manifest's number and length.
    pub(super) manifest: Option<(u64, u64)>,
}

impl Known {
    /// Bytes of a log that are certainly on disk.
    pub(super) fn log(&self, number: u64) -> u64 {
        self.logs.get(&number).copied().unwrap_or_default()
    }

    /// Bytes of a manifest that are certainly on disk; None if nothing is known about this manifest.
    pub(super) fn manifest(&self, number: u64) -> Option<u64> {
        self.manifest.filter(|known| known.0 == number).map(|known| known.1)
    }
}

/// See the module.
pub(super) struct Synced {
    dir: PathBuf,
    file: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The contents of the file.
    recorded: Known,
    /// The manifest's number and length when last examined.
    manifest: Option<(u64, u64)>,
    /// When the lengths were last examined.
    looked: Option<Duration>,
    /// Whether there was a sync since.
    is_behind: bool,
}

impl Synced {
    /// For the open database in `dir`. Keeps what is known about logs that still exist.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let mut known = read(dir).unwrap_or_default();
        known.logs.retain(|number, _| logs::path(dir, *number).exists());
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(dir.join(NAME))?;
        let state = State { recorded: known.clone(), ..State::default() };
        let synced = Synced { dir: dir.to_path_buf(), file, state: Mutex::new(state) };
        synced.write(&known)?;
        synced.file.sync_all()?;
        File::open(dir)?.sync_all()?;
        synced.note_manifest(|| true);
        Ok(synced)
    }

    /// Syncs and records the manifest if it has grown. `is_synced`: whether RocksDB has synced all that it has
    /// written, asked once the length is known.
    pub(super) fn note_manifest(&self, is_synced: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        // If this fails, the file records too little, which is safe.
        let _ = self.try_note_manifest(&mut state, is_synced);
    }

    fn try_note_manifest(&self, state: &mut State, is_synced: impl FnOnce() -> bool) -> io::Result<()> {
        let name = std::fs::read_to_string(self.dir.join("CURRENT"))?;
        let path = self.dir.join(name.trim_end());
        let Some(number) = manifest_number(&name) else { return Ok(()) };
        let now = Some((number, std::fs::metadata(&path)?.len()));
        if state.manifest == now {
            return Ok(());
        }
        let file = File::open(&path)?;
        let whole = whole(&file, state.recorded.manifest(number).unwrap_or_default())?;
        if !is_synced() {
            return Ok(());
        }
        file.sync_data()?;
        let known = Known { manifest: Some((number, whole)), ..state.recorded.clone() };
        self.write(&known)?;
        (state.recorded, state.manifest) = (known, now);
        self.file.sync_data()
    }

    /// The lengths of `logs` now, while no write is in flight, for [`Synced::note`] after they are synced;
    /// None if they were recorded just before `now`.
    pub(super) fn look(&self, logs: impl Iterator<Item = u64>, now: Duration) -> Option<Lengths> {
        let mut state = self.state.lock();
        state.is_behind = state.looked.is_some_and(|looked| now.saturating_sub(looked) < PAUSE);
        if state.is_behind {
            return None;
        }
        state.looked = Some(now);
        let length =
            |number: u64| Some((number, std::fs::metadata(logs::path(&self.dir, number)).ok()?.len()));
        Some(logs.filter_map(length).collect())
    }

    /// Records these lengths as durable. They omit a log, up to `newest`, that has begun since they were
    /// taken.
    pub(super) fn note(&self, lengths: Lengths, newest: Option<u64>) {
        let mut state = self.state.lock();
        state.is_behind |= newest > lengths.last_key_value().map(|(number, _)| *number);
        // Two threads may sync at once.
        let logs = lengths
            .into_iter()
            .map(|(number, length)| (number, length.max(state.recorded.log(number))))
            .collect();
        let known = Known { logs, ..state.recorded };
        // If writing fails, the file records too little, which is safe.
        if state.recorded != known && self.write(&known).is_ok() {
            state.recorded = known;
        }
    }

    /// Whether more has been synced than was examined.
    pub(super) fn is_behind(&self) -> bool {
        self.state.lock().is_behind
    }

    fn write(&self, known: &Known) -> io::Result<()> {
        self.file.write_all_at(&line(known), 0)
    }
}

/// The end of the last complete record of a manifest. A record ends at `from`: earlier blocks are not read
/// again, because a manifest may grow for months.
fn whole(manifest: &File, from: u64) -> io::Result<u64> {
    let block = from / BLOCK as u64 * BLOCK as u64;
    let mut bytes = Vec::new();
    let mut rest = manifest;
    rest.seek(SeekFrom::Start(block))?;
    rest.read_to_end(&mut bytes)?;
    Ok(block + records::whole(&bytes, (from - block) as usize) as u64)
}

/// The number in a manifest's name, as it appears in the directory or in CURRENT.
pub(super) fn manifest_number(name: &str) -> Option<u64> {
    name.trim_end().strip_prefix("MANIFEST-")?.parse().ok()
}

fn line(known: &Known) -> Vec<u8> {
    let mut line = HEAD.to_owned();
    if let Some((number, length)) = known.manifest {
        line.push_str(&format!(" M{number}:{length}"));
    }
    let skipped = known.logs.len().saturating_sub(LOGS);
    for (number, length) in known.logs.iter().skip(skipped) {
        line.push_str(&format!(" {number}:{length}"));
    }
    let sum = xxh3_64(line.as_bytes());
    let mut line = format!("{line} {sum:016x}\n").into_bytes();
    line.resize(SECTOR, b' ');
    line
}

/// Reads the lengths last synced in `dir`; None if unknown.
pub(super) fn read(dir: &Path) -> Option<Known> {
    parse(&std::fs::read(dir.join(NAME)).ok()?)
}

fn parse(bytes: &[u8]) -> Option<Known> {
    let (line, sum) = std::str::from_utf8(bytes).ok()?.trim_end().rsplit_once(' ')?;
    if format!("{:016x}", xxh3_64(line.as_bytes())) != sum {
        return None;
    }
    let mut known = Known::default();
    for pair in line.strip_prefix(HEAD)?.split_ascii_whitespace() {
        let (number, length) = pair.split_once(':')?;
        let length = length.parse().ok()?;
        match number.strip_prefix('M') {
            Some(number) => known.manifest = Some((number.parse().ok()?, length)),
            None => drop(known.logs.insert(number.parse().ok()?, length)),
        }
    }
    Some(known)
}

/// For other modules' tests.
#[cfg(test)]
pub(super) fn write(dir: &Path, known: &Known) {
    std::fs::write(dir.join(NAME), line(known)).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(pairs: &[(u64, u64)]) -> Lengths {
        pairs.iter().copied().collect()
    }

    fn logs_of(dir: &Path) -> Lengths {
        read(dir).unwrap().logs
    }

    #[test]
    fn what_was_noted_is_read_and_damage_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(read(dir), None);
        std::fs::write(logs::path(dir, 4), [7; 100]).unwrap();
        let synced = Synced::open(dir).unwrap();
        let seen = synced.look([4, 9].into_iter(), Duration::ZERO).unwrap();
        assert_eq!(seen, lengths(&[(4, 100)]), "a log that is gone has no length");
        synced.note(seen, None);
        assert_eq!(logs_of(dir), lengths(&[(4, 100)]));
        synced.note(lengths(&[(4, 90)]), None);
        assert_eq!(logs_of(dir), lengths(&[(4, 100)]), "it was longer before");
        let many: Lengths = (0..40).map(|n| (u64::MAX - n, u64::MAX)).collect();
        synced.note(many.clone(), None);
        let whole = std::fs::read(dir.join(NAME)).unwrap();
        assert_eq!(whole.len(), SECTOR);
        assert_eq!(logs_of(dir), many.into_iter().skip(40 - LOGS).collect::<Lengths>());
        for at in 0..whole.trim_ascii_end().len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 3;
            std::fs::write(dir.join(NAME), &damaged).unwrap();
            assert_eq!(read(dir), None, "byte {at}");
        }
    }

    #[test]
    fn what_is_known_of_logs_that_are_there_outlives_an_open() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(logs::path(dir, 4), b"log").unwrap();
        Synced::open(dir).unwrap().note(lengths(&[(3, 5), (4, 3)]), None);
        drop(Synced::open(dir).unwrap());
        assert_eq!(logs_of(dir), lengths(&[(4, 3)]));
    }

    #[test]
    fn all_fits_into_a_sector() {
        let logs: Lengths = (0..20).map(|n| (u64::MAX - n, u64::MAX)).collect();
        let known = Known { logs, manifest: Some((u64::MAX, u64::MAX)) };
        let line = line(&known);
        assert_eq!((line.len(), parse(&line).unwrap().manifest), (SECTOR, known.manifest));
    }

    #[test]
    fn the_manifest_is_known_to_the_end_of_its_last_whole_record() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (log, one) = (records::tests::log(), records::tests::log().len() / 3);
        let manifest = |number: u64, length: usize| {
            let name = format!("MANIFEST-{number:06}");
            std::fs::write(dir.join(&name), &log[..length]).unwrap();
            std::fs::write(dir.join("CURRENT"), format!("{name}\n")).unwrap();
        };
        manifest(5, one);
        let synced = Synced::open(dir).unwrap();
        let known = || read(dir).unwrap();
        assert_eq!(known().manifest(5), Some(one as u64));
        for (length, whole) in [(one + 6, 1), (one + 500, 1), (2 * one, 2), (3 * one - 1, 2), (3 * one, 3)] {
            manifest(5, length);
            let before = known();
            synced.note_manifest(|| false);
            assert_eq!(known(), before, "RocksDB may not have synced it");
            synced.note_manifest(|| true);
            assert_eq!(known().manifest(5), Some(whole * one as u64), "{length} bytes");
        }
        synced.note(lengths(&[(4, 90)]), None);
        assert_eq!((known().manifest(5), known().log(4)), (Some(3 * one as u64), 90));
        manifest(8, 2 * one);
        synced.note_manifest(|| true);
        assert_eq!((known().manifest(5), known().manifest(8)), (None, Some(2 * one as u64)));
    }

    #[test]
    fn it_is_noted_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let synced = Synced::open(dir.path()).unwrap();
        let look = |ms| synced.look([].into_iter(), Duration::from_millis(ms)).is_some();
        assert_eq!([0, 4, 5, 9, 10].map(look), [true, false, true, false, true]);
        assert!(!synced.is_behind());
        assert!(!look(11) && synced.is_behind());
    }
}
