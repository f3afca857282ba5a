//! The file TERN-SYNCED: how long each log was at its last sync.
//!
//! A log that ends early looks alike whether a loss of power took what had not been synced, and nobody had been told of that; or somebody
//! has cut it off, or copied half of it, and commits are gone that were acknowledged. The one must start, the other must not. So the engine
//! writes down what is on the disk:
//!
//! ```text
//! TERN-SYNCED    tern-synced 1 <log>:<bytes> ... <xxh3-64 of what is in front, 16 hexadecimal digits>\n, spaces, to 512 bytes in all
//! ```
//! Why it never says too much: a length is taken between two writes and before the sync that covers it, and written after. It is one sector that is written in its
//! place, so it is the old one or the new one. It is not synced itself and written every [`PAUSE`] at most, so it may say less than is true:
//! what was synced in that time before a kill is not missed. The second's round of the syncer makes up for it.
//!
//! Without the file, or with one that is damaged, there is nothing to compare with.

use super::logs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Its name: not one that RocksDB could take for a file of its own.
pub(super) const NAME: &str = "TERN-SYNCED";
const HEAD: &str = "tern-synced 1";
/// What a disk writes as a whole.
pub(super) const SECTOR: usize = 512;
/// Logs that fit. There are seldom more than four, and the older ones are soon in tables.
const LOGS: usize = 11;
/// Between two notes.
const PAUSE: Duration = Duration::from_millis(5);

/// Bytes of logs, by number.
pub(super) type Lengths = BTreeMap<u64, u64>;

/// See the module.
pub(super) struct Synced {
    dir: PathBuf,
    file: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the file says.
    said: Lengths,
    /// When the lengths were looked at last.
    looked: Option<Duration>,
    /// There was a sync since.
    is_behind: bool,
}

impl Synced {
    /// Of the database in `dir`, which is open. What is known of logs that are still there stays.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let mut known = read(dir);
        known.retain(|number, _| logs::path(dir, *number).exists());
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(dir.join(NAME))?;
        let state = State { said: known.clone(), ..State::default() };
        let synced = Synced { dir: dir.to_path_buf(), file, state: Mutex::new(state) };
        synced.write(&known)?;
        Ok(synced)
    }

    /// The lengths of `logs` now, where no write is under way, for [`Synced::note`] once they are synced; None where it was noted a moment before `now`.
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

    /// These lengths are on the disk.
    pub(super) fn note(&self, lengths: Lengths) {
        let mut state = self.state.lock();
        // Two may sync at once.
        let known = |number: &u64| state.said.get(number).copied().unwrap_or_default();
        let lengths =
            lengths.into_iter().map(|(number, length)| (number, length.max(known(&number)))).collect();
        // Where it cannot be written it says less than is true.
        if state.said != lengths && self.write(&lengths).is_ok() {
            state.said = lengths;
        }
    }

    /// Whether more has been synced than was looked at.
    pub(super) fn is_behind(&self) -> bool {
        self.state.lock().is_behind
    }

    fn write(&self, lengths: &Lengths) -> io::Result<()> {
        self.file.write_all_at(&line(lengths), 0)
    }
}

fn line(lengths: &Lengths) -> Vec<u8> {
    let mut line = HEAD.to_owned();
    let skipped = lengths.len().saturating_sub(LOGS);
    for (number, length) in lengths.iter().skip(skipped) {
        line.push_str(&format!(" {number}:{length}"));
    }
    let sum = xxh3_64(line.as_bytes());
    let mut line = format!("{line} {sum:016x}\n").into_bytes();
    line.resize(SECTOR, b' ');
    line
}

/// What was synced of the logs in `dir`, as far as it is known.
pub(super) fn read(dir: &Path) -> Lengths {
    std::fs::read(dir.join(NAME)).ok().and_then(|bytes| parse(&bytes)).unwrap_or_default()
}

fn parse(bytes: &[u8]) -> Option<Lengths> {
    let (line, sum) = std::str::from_utf8(bytes).ok()?.trim_end().rsplit_once(' ')?;
    if format!("{:016x}", xxh3_64(line.as_bytes())) != sum {
        return None;
    }
    let pair = |pair: &str| {
        let (number, length) = pair.split_once(':')?;
        Some((number.parse().ok()?, length.parse().ok()?))
    };
    line.strip_prefix(HEAD)?.split_ascii_whitespace().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(pairs: &[(u64, u64)]) -> Lengths {
        pairs.iter().copied().collect()
    }

    #[test]
    fn what_was_noted_is_read_and_damage_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(read(dir), Lengths::new());
        std::fs::write(logs::path(dir, 4), [7; 100]).unwrap();
        let synced = Synced::open(dir).unwrap();
        let seen = synced.look([4, 9].into_iter(), Duration::ZERO).unwrap();
        assert_eq!(seen, lengths(&[(4, 100)]), "a log that is gone has no length");
        synced.note(seen);
        assert_eq!(read(dir), lengths(&[(4, 100)]));
        synced.note(lengths(&[(4, 90)]));
        assert_eq!(read(dir), lengths(&[(4, 100)]), "it was longer before");
        let many: Lengths = (0..40).map(|n| (u64::MAX - n, u64::MAX)).collect();
        synced.note(many.clone());
        let whole = std::fs::read(dir.join(NAME)).unwrap();
        assert_eq!(whole.len(), SECTOR);
        assert_eq!(read(dir), many.into_iter().skip(40 - LOGS).collect::<Lengths>());
        for at in 0..whole.trim_ascii_end().len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 3;
            std::fs::write(dir.join(NAME), &damaged).unwrap();
            assert_eq!(read(dir), Lengths::new(), "byte {at}");
        }
    }

    #[test]
    fn what_is_known_of_logs_that_are_there_outlives_an_open() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(logs::path(dir, 4), b"log").unwrap();
        Synced::open(dir).unwrap().note(lengths(&[(3, 5), (4, 3)]));
        drop(Synced::open(dir).unwrap());
        assert_eq!(read(dir), lengths(&[(4, 3)]));
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
