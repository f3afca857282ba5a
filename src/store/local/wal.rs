//! The log of commits: one file a layer of recent rows (`recent.rs`).
//!
//! ```text
//! 000007.wal    records as in RocksDB's logs (records.rs), one per batch of transactions:
//! record        sequence number u64 | 1 u32 | version before the batch u64 | changes      little-endian
//! changes       00                                     another transaction begins: the next version
//!               01 <key length> <value length> key value     a row is written
//!               02 <key length> key                          a row is removed
//!               03 <length> <length> begin end               a range is cleared, before the rows of its transaction
//!               04                                     the metadata version becomes this version
//!               05 <sequence number>                   a log was drained, up to this number of RocksDB's
//! lengths       7 bits a byte, the lowest first
//! ```
//!
//! Sequence numbers continue from one log to the next, so that a gap shows (`audit.rs`). A log is begun before
//! the commits of its layer and never appended to after the database was closed. `logs.rs` lists the
//! logs, `synced.rs` keeps what is known to be on disk.

use super::logs;
use super::records::{BLOCK, FIRST, HEADER, LAST, MIDDLE, WHOLE, masked};
use crate::store::Version;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a record in front of its changes.
const HEAD: usize = 20;
const NEXT: u8 = 0;
const SET: u8 = 1;
const REMOVE: u8 = 2;
const CLEAR: u8 = 3;
const BUMP: u8 = 4;
const DRAINED: u8 = 5;

/// A record while it is being collected.
pub(super) struct Record(Vec<u8>);

impl Record {
    /// An empty record of a batch after version `before`.
    pub(super) fn new(before: Version) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(&[0; HEAD]);
        if let Some(to) = bytes.get_mut(HEAD - 8..HEAD) {
            to.copy_from_slice(&before.to_le_bytes());
        }
        Record(bytes)
    }
    /// Another transaction begins.
    pub(super) fn next(&mut self) {
        self.0.push(NEXT);
    }
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        self.change(SET, &[key, value]);
    }
    pub(super) fn remove(&mut self, key: &[u8]) {
        self.change(REMOVE, &[key]);
    }
    pub(super) fn clear(&mut self, begin: &[u8], end: &[u8]) {
        self.change(CLEAR, &[begin, end]);
    }
    pub(super) fn bump(&mut self) {
        self.0.push(BUMP);
    }

    /// Notes that RocksDB has a whole log, in its rows up to this sequence number.
    pub(super) fn drained(&mut self, sequence: u64) {
        self.0.push(DRAINED);
        self.number(sequence);
    }

    fn change(&mut self, kind: u8, parts: &[&[u8]]) {
        self.0.push(kind);
        parts.iter().for_each(|part| self.number(part.len() as u64));
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// A change that a record holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Logged {
    Set(Bytes, Bytes),
    Remove(Bytes),
    Clear(Bytes, Bytes),
    Bump,
    Drained(u64),
}

/// Passes the changes of a record, with their versions, to `each`. Returns the last version; None if the
/// record is not one.
pub(super) fn replay(record: &[u8], each: &mut impl FnMut(Version, Logged)) -> Option<Version> {
    let mut version = u64::from_le_bytes(*record.get(HEAD - 8..HEAD)?.first_chunk()?);
    let mut rest = record.get(HEAD..)?;
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        let change = match *kind {
            NEXT => {
                version += 1;
                continue;
            }
            SET => {
                let [key, value] = lengths(&mut rest)?;
                Logged::Set(part(&mut rest, key)?, part(&mut rest, value)?)
            }
            REMOVE => {
                let [key] = lengths(&mut rest)?;
                Logged::Remove(part(&mut rest, key)?)
            }
            CLEAR => {
                let [begin, end] = lengths(&mut rest)?;
                Logged::Clear(part(&mut rest, begin)?, part(&mut rest, end)?)
            }
            BUMP => Logged::Bump,
            DRAINED => Logged::Drained(super::records::varint(&mut rest)?),
            _ => return None,
        };
        each(version, change);
    }
    Some(version)
}

fn lengths<const N: usize>(rest: &mut &[u8]) -> Option<[usize; N]> {
    let mut lengths = [0; N];
    for length in &mut lengths {
        *length = usize::try_from(super::records::varint(rest)?).ok()?;
    }
    Some(lengths)
}

fn part(rest: &mut &[u8], length: usize) -> Option<Bytes> {
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Bytes::copy_from_slice(part))
}

/// The log that is being written, and earlier ones that are not synced yet.
pub(super) struct Log {
    dir: PathBuf,
    pub(super) number: u64,
    file: Arc<File>,
    pub(super) length: usize,
    /// The number of the next record.
    sequence: u64,
    unsynced: Vec<Arc<File>>,
    buffer: Vec<u8>,
    /// To be noted in the next record: see [`Record::drained`].
    drained: Option<u64>,
    /// It may end with a part of a record.
    pub(super) is_torn: bool,
}

impl Log {
    /// Creates a log in `dir`.
    pub(super) fn create(dir: &Path, number: u64, sequence: u64) -> io::Result<Self> {
        let file = Arc::new(create(dir, number)?);
        let (dir, unsynced, buffer) = (dir.to_path_buf(), Vec::new(), Vec::new());
        Ok(Log { dir, number, file, length: 0, sequence, unsynced, buffer, drained: None, is_torn: false })
    }

    /// Appends a record. After an error, a part of it may be there if the file cannot be truncated either: nothing
    /// is appended any more.
    pub(super) fn append(&mut self, mut record: Record) -> io::Result<()> {
        if std::mem::replace(&mut self.is_torn, true) {
            return Err(io::Error::other("an earlier write failed"));
        }
        if let Some(sequence) = self.drained.take() {
            record.drained(sequence);
        }
        let mut record = record.0;
        let numbers = [&self.sequence.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
        if let Some(to) = record.get_mut(..numbers.len()) {
            to.copy_from_slice(&numbers);
        }
        self.buffer.clear();
        fragment(self.length, &record, &mut self.buffer);
        // Not appended: if somebody has cut the file off, the hole shows.
        if let Err(e) = self.file.write_all_at(&self.buffer, self.length as u64) {
            let _ = self.file.set_len(self.length as u64);
            return Err(e);
        }
        self.length += self.buffer.len();
        self.sequence += 1;
        self.is_torn = false;
        self.buffer.shrink_to(BLOCK);
        Ok(())
    }

    /// RocksDB has a whole log, in its rows up to this sequence number. The next record notes it.
    pub(super) fn drained(&mut self, sequence: u64) {
        self.drained = Some(sequence);
    }

    /// Begins another log.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let file = Arc::new(create(&self.dir, self.number + 1)?);
        self.unsynced.push(std::mem::replace(&mut self.file, file));
        self.number += 1;
        self.length = 0;
        Ok(())
    }

    /// The earlier logs whose sync, with that of [`Log::current`], makes everything written so far durable; the
    /// oldest first.
    pub(super) fn unsynced_earlier(&self) -> Vec<Arc<File>> {
        self.unsynced.clone()
    }

    /// The log that is being written.
    pub(super) fn current(&self) -> Arc<File> {
        self.file.clone()
    }

    /// These files, which were earlier logs then, were synced. The log that was being written then may have
    /// got more records since.
    pub(super) fn synced(&mut self, files: &[Arc<File>]) {
        self.unsynced.retain(|file| !files.iter().any(|synced| Arc::ptr_eq(file, synced)));
    }
}

fn create(dir: &Path, number: u64) -> io::Result<File> {
    File::options().write(true).create_new(true).open(logs::path(dir, number))
}

/// Appends a record to `to` as fragments, for a file of `length` bytes.
fn fragment(length: usize, record: &[u8], to: &mut Vec<u8>) {
    let (mut rest, mut begun) = (record, false);
    loop {
        let left = BLOCK - (length + to.len()) % BLOCK;
        if left < HEADER {
            to.extend(std::iter::repeat_n(0, left));
            continue;
        }
        let (bytes, after) = rest.split_at(rest.len().min(left - HEADER));
        let kind = match (begun, after.is_empty()) {
            (false, true) => WHOLE,
            (false, false) => FIRST,
            (true, false) => MIDDLE,
            (true, true) => LAST,
        };
        let start = to.len();
        to.extend_from_slice(&[0; HEADER - 3]);
        to.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        to.push(kind);
        to.extend_from_slice(bytes);
        let sum = masked(to.get(start + HEADER - 1..).unwrap_or_default());
        if let Some(place) = to.get_mut(start..start + sum.len()) {
            place.copy_from_slice(&sum);
        }
        (rest, begun) = (after, true);
        if rest.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::{sequence, walk};
    use super::*;

    fn key(n: usize) -> Bytes {
        format!("key {n}").into()
    }

    /// Hazard: what is read back differs from what was written, at any length and place in a block.
    #[test]
    fn records_of_any_length_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), 7, 40).unwrap();
        let lengths = [0, 1, 127, 128, 20_000, BLOCK - 60, BLOCK, 3 * BLOCK + 5, 9, 16_384];
        let lengths: Vec<usize> = (0..BLOCK * 2).step_by(331).chain(lengths).collect();
        for (n, length) in lengths.iter().enumerate() {
            let mut record = Record::new(n as u64);
            record.next();
            record.clear(b"a", b"b");
            record.set(&key(n), &vec![n as u8; *length]);
            record.next();
            record.bump();
            record.remove(&key(n));
            log.append(record).unwrap();
        }
        log.turn().unwrap();
        log.append(Record::new(9)).unwrap();
        let bytes = std::fs::read(logs::path(dir.path(), 7)).unwrap();
        let mut n = 0;
        let damage = walk(&bytes, &mut |_, record| {
            let version = n as u64;
            assert_eq!(sequence(record), (40 + version, 41 + version));
            let mut changes = Vec::new();
            let last = replay(record, &mut |version, change| changes.push((version, change)));
            assert_eq!(last, Some(version + 2));
            let value = vec![n as u8; lengths[n]].into();
            let wanted = [
                (version + 1, Logged::Clear("a".into(), "b".into())),
                (version + 1, Logged::Set(key(n), value)),
                (version + 2, Logged::Bump),
                (version + 2, Logged::Remove(key(n))),
            ];
            assert_eq!(changes, wanted, "{n}");
            n += 1;
            true
        });
        assert_eq!((damage, n), (None, lengths.len()));
        let next = std::fs::read(logs::path(dir.path(), 8)).unwrap();
        let mut numbers = Vec::new();
        walk(&next, &mut |_, record| {
            numbers.push(sequence(record).0);
            true
        });
        assert_eq!(numbers, [40 + lengths.len() as u64]);
    }

    #[test]
    fn what_is_no_record_is_not_replayed() {
        let mut record = Record::new(5);
        record.next();
        record.set(b"key", b"value");
        let bytes = record.0;
        assert_eq!(replay(&bytes, &mut |_, _| ()), Some(6));
        for length in (0..HEAD).chain(HEAD + 2..bytes.len()) {
            assert_eq!(replay(&bytes[..length], &mut |_, _| ()), None, "{length}");
        }
        assert_eq!(replay(&[&bytes[..], &[77]].concat(), &mut |_, _| ()), None);
    }

    /// Hazard: the log that is written while it is synced, and ended meanwhile, is never synced again.
    #[test]
    fn an_earlier_log_is_synced_once_and_the_current_one_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), 1, 0).unwrap();
        log.turn().unwrap();
        let (earlier, current) = (log.unsynced_earlier(), log.current());
        assert_eq!(earlier.len(), 1);
        log.append(Record::new(0)).unwrap();
        log.turn().unwrap();
        log.synced(&earlier);
        let left = log.unsynced_earlier();
        assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &current));
        log.synced(&left);
        assert!(log.unsynced_earlier().is_empty());
    }
}
