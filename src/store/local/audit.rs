//! Reads RocksDB's own files before it opens them, because it goes on where it must not, and stops where it need not:
//!
//! * a page of zeros in a log, where a record should begin, is skipped in silence with what follows it in its block; so is
//!   the end of a log that is missing while a later log goes on. What is found then is not what was ever there;
//! * a last write of which some pages reached the disk and others did not (a loss of power) is a checksum that does not match, and
//!   refused, as damage of what was synced would be.
//!
//! So: whole records behind a damaged place are **damage**: nothing is opened, the file and the place are named. Damage at the end with nothing behind it,
//! which is cut off or has zeros in it, is a **torn write** that nobody was told of: RocksDB drops it. Logs that the manifest says are
//! flushed do not count, for after a loss of power they can be there again in any state.
//!
//! RocksDB opens a manifest that is cut off without what was behind, and the logs that this told to be flushed are gone. An edit is one
//! write, of which a disk that is full or loses power keeps whole sectors. So a manifest that ends inside of a record and of a sector is
//! damaged: the record's length is wrong, or the file was copied in part. It also was longer once where the logs begin behind what it knows.
//!
//! ```text
//! log, manifest   blocks of 32 KiB; no header crosses a block's end (less than 7 bytes are left over)
//! fragment        crc32c u32, masked | length u16 | kind u8 | bytes          kind: 1 whole, 2 first, 3 middle, 4 last
//! a log's record  sequence number u64 | operations u32 | ...                 the next one's number is the sum of both
//! a manifest's    tagged fields; tag 2 is the first log that is not flushed, tag 4 the last sequence number
//! ```
//! A log that is not there, where the list of the logs says that there must be one, is missed before anything else (`logs.rs`). One that ends, or
//! is damaged, in front of what is known to have been synced of it (`synced.rs`) has no torn write: that is damage too.
//!
//! A log that is being written to looks like one with a torn end, so a directory in use is refused later, by its lock.

use super::synced::{Lengths, SECTOR};
use crate::error::{StoreError, StoreResult};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
/// From here on: what describes the file, not data.
const DESCRIPTION: u8 = 9;

/// Refuses what is damaged. Nothing is changed. Says where the manifest ends inside of a record: RocksDB was writing it, or its length
/// is wrong, and then what RocksDB looks for next is missing.
pub(super) fn audit(dir: &Path) -> StoreResult<Option<String>> {
    let current = dir.join("CURRENT");
    let Some(name) = read(&current)? else { return Ok(None) };
    let name = String::from_utf8(name).ok().and_then(|n| n.strip_suffix('\n').map(str::to_owned));
    let name = name.filter(|n| n.strip_prefix("MANIFEST-").is_some_and(|n| n.parse::<u64>().is_ok()));
    let Some(name) = name else {
        return Err(refusal(&current, 0, "it does not name a manifest", None));
    };
    let manifest = dir.join(&name);
    let Some(bytes) = read(&manifest)? else {
        return Err(refusal(&manifest, 0, "the file CURRENT names it, and it is missing", None));
    };
    let mut known = Some(Edit::default());
    let damage = walk(&bytes, &mut |_, raw| {
        known = known.and_then(|known| Some(known.max(edit(raw)?)));
        true
    });
    let logs = logs(dir, known.map_or(0, |known| known.log));
    let ends = match damage {
        Some(Damage { at, end: End::Cut }) if bytes.len() % SECTOR != 0 => {
            return Err(refusal(&manifest, at, "it ends inside of a record", None));
        }
        Some(Damage { at, end: End::Cut }) => Some(format!("{name} ends inside of its record at byte {at}")),
        Some(Damage { at, .. }) => return Err(refusal(&manifest, at, "a checksum does not match", None)),
        None => None,
    };
    let listed = known.map_or(Ok(()), |known| super::logs::check(dir, known.log));
    if damage.is_none() {
        listed.clone()?;
    }
    // A log is removed when the manifest says on the disk that it is flushed.
    if let Some((known, first)) = known.zip(first_sequence(&logs)?)
        && first > known.sequence.saturating_add(1)
    {
        let at = damage.map_or(bytes.len(), |damage| damage.at);
        return Err(refusal(&manifest, at, "something is missing there, for the logs begin later", None));
    }
    // A manifest without its end may not know that a log is flushed.
    listed?;
    // A log that is written to meanwhile can look odd once.
    let synced = super::synced::read(dir);
    audit_logs(&logs, &synced).or_else(|_| audit_logs(&logs, &synced))?;
    Ok(ends)
}

/// The first sequence number in the logs, if there is a record.
fn first_sequence(logs: &[PathBuf]) -> StoreResult<Option<u64>> {
    let mut first = None;
    for path in logs {
        walk(&read(path)?.unwrap_or_default(), &mut |_, record| {
            first = Some(sequence(record).0);
            false
        });
        if first.is_some() {
            break;
        }
    }
    Ok(first)
}

fn audit_logs(logs: &[PathBuf], synced: &Lengths) -> StoreResult<()> {
    let mut torn: Option<(&PathBuf, Damage)> = None;
    let mut next = None;
    for path in logs {
        let Some(bytes) = read(path)? else { continue };
        let (mut records, mut gap) = (0, None);
        let damage = walk(&bytes, &mut |at, record| {
            records += 1;
            let (sequence, after) = sequence(record);
            gap = gap.or(next.filter(|next| *next != sequence).map(|_| at));
            next = Some(after);
            gap.is_none()
        });
        if let Some(at) = gap {
            let (path, at) = torn.map_or((path, at), |(path, damage)| (path, damage.at));
            return Err(refusal(
                path,
                at,
                "what was written there is missing, and later records are not",
                logs.last(),
            ));
        }
        // A log that goes on where the whole records before it end shows that nothing is missing.
        torn = torn.filter(|_| records == 0);
        let sure = number(path).and_then(|number| synced.get(&number)).copied().unwrap_or_default();
        let at = damage.map_or(bytes.len(), |damage| damage.at);
        if (at as u64) < sure {
            let what = format!("{sure} bytes of it had been synced");
            return Err(refusal(path, at, &what, logs.last()));
        }
        match damage {
            Some(damage) if damage.end == End::GoesOn => {
                return Err(refusal(
                    path,
                    damage.at,
                    "a checksum does not match, and whole records are behind it",
                    logs.last(),
                ));
            }
            Some(damage) if damage.end == End::Wrong => {
                return Err(refusal(path, damage.at, "a checksum does not match", logs.last()));
            }
            Some(damage) => torn = torn.or(Some((path, damage))),
            None => {}
        }
    }
    if let Some((path, damage)) = torn.filter(|(_, damage)| damage.end == End::Zeros) {
        let (log, byte) = (path.display(), damage.at);
        tracing::warn!(%log, byte, "the log ends in a torn write: what had not been synced is gone");
    }
    Ok(())
}

fn read(path: &Path) -> StoreResult<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StoreError::Unavailable(format!("cannot read {}: {e}", path.display()))),
    }
}

/// The number of a log.
fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

/// Logs that are not flushed, in the order in which they were written.
fn logs(dir: &Path, first: u64) -> Vec<PathBuf> {
    let paths = super::engine::names(dir).map(|name| dir.join(name));
    let mut numbers: Vec<(u64, PathBuf)> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    numbers.retain(|(number, _)| *number >= first);
    numbers.sort();
    numbers.into_iter().map(|(_, path)| path).collect()
}

fn refusal(path: &Path, at: usize, what: &str, cut: Option<&PathBuf>) -> StoreError {
    let file = path.display();
    let advice = match cut {
        None => "Put a backup in the directory's place.".to_owned(),
        Some(last) if last == path => format!(
            "Put a backup in the directory's place; or go on without what was written behind: truncate -s {at} {file}, \
             remove the file TERN-SYNCED, then run tern check."
        ),
        Some(_) => format!(
            "Put a backup in the directory's place; or go on without what was written behind: truncate -s {at} {file}, \
             move the logs with higher numbers away, and the files TERN-LOGS and TERN-SYNCED, then run tern check."
        ),
    };
    StoreError::Corrupt(format!("{file} is damaged at byte {at}: {what}. {advice}"))
}

/// How a damaged file goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The file ends inside of the record, as the record's length has it.
    Cut,
    /// There are zeros in what is left of the file, and no other record.
    Zeros,
    /// No other record, and no zeros.
    Wrong,
    /// Other records.
    GoesOn,
}

/// The first record that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Damage {
    at: usize,
    end: End,
}

struct Fragment<'a> {
    kind: u8,
    bytes: &'a [u8],
    end: usize,
}

/// Gives each record and its place to `each`, until that returns false or a record is not whole.
fn walk(bytes: &[u8], each: &mut impl FnMut(usize, &[u8]) -> bool) -> Option<Damage> {
    let (mut at, mut open) = (0, None::<(usize, Vec<u8>)>);
    loop {
        at = header_at(at);
        if at >= bytes.len() {
            return open.map(|(at, _)| Damage { at, end: End::Cut });
        }
        let start = open.as_ref().map_or(at, |(start, _)| *start);
        let Some(fragment) = fragment(bytes, at) else {
            return Some(Damage { at: start, end: end_of(bytes, at) });
        };
        match (fragment.kind, &mut open) {
            (WHOLE, None) if !each(at, fragment.bytes) => return None,
            (WHOLE, None) => {}
            (FIRST, None) => open = Some((at, fragment.bytes.to_vec())),
            (MIDDLE | LAST, Some((_, record))) => record.extend_from_slice(fragment.bytes),
            (DESCRIPTION.., _) => {}
            _ => return Some(Damage { at: start, end: End::GoesOn }),
        }
        if fragment.kind == LAST
            && let Some((start, record)) = open.take()
            && !each(start, &record)
        {
            return None;
        }
        at = fragment.end;
    }
}

/// Where the next header can be.
fn header_at(at: usize) -> usize {
    let left = BLOCK - at % BLOCK;
    if left < HEADER { at + left } else { at }
}

/// The fragment at a place, if it is whole and right.
fn fragment(bytes: &[u8], at: usize) -> Option<Fragment<'_>> {
    let (crc, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let kind = *rest.first()?;
    let end = at + HEADER + length;
    // Recycled logs (kinds 5 to 8) are not written here.
    let known = matches!(kind, WHOLE..=LAST | DESCRIPTION..);
    if !known || end.div_ceil(BLOCK) != (at + 1).div_ceil(BLOCK) {
        return None;
    }
    let checked = rest.get(..=length)?;
    is_of(*crc, checked).then_some(Fragment { kind, bytes: checked.get(1..)?, end })
}

/// What there is from a fragment on that is not right.
fn end_of(bytes: &[u8], at: usize) -> End {
    for from in at + 1..bytes.len() {
        // Most bytes are no beginning of a record: that is seen before a checksum is computed.
        let begins = bytes.get(from + HEADER - 1).is_some_and(|kind| matches!(*kind, WHOLE | FIRST));
        if begins && fragment(bytes, from).is_some() {
            return End::GoesOn;
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let length =
        rest.get(4..).and_then(|l| l.first_chunk()).map_or(0, |l| usize::from(u16::from_le_bytes(*l)));
    let zeros = |sector: &[u8]| sector.iter().all(|b| *b == 0);
    // The checksum does not cover the length.
    let whole = rest
        .split_first_chunk()
        .zip(rest.get(HEADER - 1..))
        .is_some_and(|((crc, _), checked)| is_of(*crc, checked));
    if rest.len() < HEADER + length && !whole {
        End::Cut
    } else if rest.ends_with(&[0]) || rest.chunks(SECTOR).any(zeros) {
        End::Zeros
    } else {
        End::Wrong
    }
}

/// A record's sequence number, and the one that must follow.
fn sequence(record: &[u8]) -> (u64, u64) {
    let number = record.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    let count = record.get(8..12).and_then(|c| c.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n));
    (number, number.saturating_add(u64::from(count)))
}

/// What the manifest knows of the logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Edit {
    /// The first that is not flushed.
    log: u64,
    /// The last sequence number when this was written.
    sequence: u64,
}

impl Edit {
    fn max(self, other: Edit) -> Edit {
        Edit { log: self.log.max(other.log), sequence: self.sequence.max(other.sequence) }
    }
}

/// An edit of the manifest; None where a field is not known.
fn edit(raw: &[u8]) -> Option<Edit> {
    let (mut rest, mut found) = (raw, Edit::default());
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        match tag {
            2 => found.log = varint(&mut rest)?,
            4 => found.sequence = varint(&mut rest)?,
            3 | 9 | 10 | 200 | 203 | 300 => drop(varint(&mut rest)?),
            1 | 201 => text(&mut rest)?,
            5 => {
                varint(&mut rest)?;
                text(&mut rest)?;
            }
            6 => {
                varint(&mut rest)?;
                varint(&mut rest)?;
            }
            103 => new_table(&mut rest)?,
            202 => {}
            _ if tag & (1 << 13) != 0 => text(&mut rest)?,
            _ => return None,
        }
    }
    Some(found)
}

/// Level, number, size; smallest and largest key, then their sequence numbers; fields with tags until the tag 1.
fn new_table(rest: &mut &[u8]) -> Option<()> {
    for _ in 0..3 {
        varint(rest)?;
    }
    text(rest)?;
    text(rest)?;
    varint(rest)?;
    varint(rest)?;
    while varint(rest)? != 1 {
        text(rest)?;
    }
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Skips bytes with their length in front.
fn text(rest: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(varint(rest)?).ok()?;
    *rest = rest.get(length..)?;
    Some(())
}

/// The checksum of each byte.
static CRC: LazyLock<[u32; 256]> = LazyLock::new(|| {
    std::array::from_fn(|byte| {
        let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        (0..8).fold(byte as u32, |crc, _| bit(crc))
    })
});

/// Castagnoli's polynomial.
fn crc32c(bytes: &[u8]) -> u32 {
    let table = &*CRC;
    let step = |crc: u32, byte: &u8| {
        let at = usize::from((crc as u8) ^ byte);
        table.get(at).copied().unwrap_or_default() ^ crc >> 8
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Whether a stored checksum is that of these bytes. It is stored turned and shifted.
fn is_of(stored: [u8; 4], bytes: &[u8]) -> bool {
    u32::from_le_bytes(stored).wrapping_sub(0xA282_EAD8).rotate_left(15) == crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let checked = [&[kind][..], bytes].concat();
        [&masked(&checked)[..], &(bytes.len() as u16).to_le_bytes(), &checked].concat()
    }

    fn masked(bytes: &[u8]) -> [u8; 4] {
        crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
    }

    fn batch(sequence: u64, count: u32, fill: usize) -> Vec<u8> {
        [&sequence.to_le_bytes()[..], &count.to_le_bytes(), &vec![7; fill]].concat()
    }

    /// Three records of 1000 bytes or so.
    fn log() -> Vec<u8> {
        (0..3).flat_map(|n| record(WHOLE, &batch(n * 2, 2, 1000))).collect()
    }

    fn damage(bytes: &[u8]) -> Option<Damage> {
        walk(bytes, &mut |_, _| true)
    }

    fn at(at: usize, end: End) -> Option<Damage> {
        Some(Damage { at, end })
    }

    #[test]
    fn the_known_checksum() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert!(is_of(masked(b"123456789"), b"123456789"));
    }

    #[test]
    fn damage_at_the_end_and_in_the_middle_are_told_apart() {
        let (good, one) = (log(), log().len() / 3);
        assert_eq!(damage(&good), None);
        assert_eq!(damage(&good[..one * 3 - 1]), at(one * 2, End::Cut));
        assert_eq!(damage(&good[..one * 2 + 3]), at(one * 2, End::Cut));
        let changed = |from: usize, to: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[from..to].fill(value);
            damage(&bytes)
        };
        assert_eq!(changed(one * 2 + 500, one * 3, 0), at(one * 2, End::Zeros));
        assert_eq!(changed(one * 2 + 100, one * 2 + 110, 9), at(one * 2, End::Wrong));
        assert_eq!(changed(one, one * 2, 0), at(one, End::GoesOn));
        assert_eq!(changed(one + 5, one + 6, 9), at(one, End::GoesOn));
        assert_eq!(damage(&[good.clone(), vec![0; 9000]].concat()), at(one * 3, End::Zeros));
        assert_eq!(
            changed(one * 2 + 5, one * 2 + 6, 9),
            at(one * 2, End::Wrong),
            "whole, and its length is not"
        );
    }

    /// A directory with a manifest of `edits`, of which `length` bytes are left, and a log whose first number is `sequence`.
    fn manifest(
        edits: &[&[u8]],
        length: impl Fn(usize) -> usize,
        sequence: Option<u64>,
    ) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes: Vec<u8> = edits.iter().flat_map(|edit| record(WHOLE, edit)).collect();
        bytes.truncate(length(bytes.len()));
        std::fs::write(dir.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
        std::fs::write(dir.path().join("MANIFEST-000001"), bytes).unwrap();
        let log = sequence.map_or(Vec::new(), |sequence| record(WHOLE, &batch(sequence, 1, 10)));
        std::fs::write(dir.path().join("000003.log"), log).unwrap();
        dir
    }

    #[test]
    fn a_manifest_may_end_inside_of_a_record_only_where_a_sector_ends() {
        let long = [&[1, 0x80 | 100, 7][..], &[b'c'; 1000 - 28]].concat();
        let edits: [&[u8]; 2] = [&[2, 3, 4, 9], &long];
        let said = |length: usize| audit(manifest(&edits, |_| length, None).path());
        assert_eq!(said(11), Ok(None));
        assert_eq!(said(SECTOR), Ok(Some("MANIFEST-000001 ends inside of its record at byte 11".to_owned())));
        for length in [12, SECTOR - 1, SECTOR + 1, 11 + HEADER + long.len() - 1] {
            let refused = said(length).unwrap_err().to_string();
            assert!(refused.contains("MANIFEST-000001 is damaged at byte 11: it ends inside of a record"));
        }
    }

    #[test]
    fn logs_begin_where_the_manifest_ends() {
        let said = |edits: &[&[u8]], sequence| audit(manifest(edits, |all| all, Some(sequence)).path());
        assert_eq!(said(&[&[2, 3, 4, 9]], 10), Ok(None));
        assert_eq!(said(&[&[2, 3, 4, 9]], 4), Ok(None));
        assert_eq!(said(&[&[2, 3, 4, 9], &[4, 20]], 21), Ok(None));
        let refused = said(&[&[2, 3, 4, 9]], 11).unwrap_err().to_string();
        assert!(refused.contains("MANIFEST-000001 is damaged at byte 11: something is missing there"));
        assert_eq!(said(&[&[2, 3, 4, 9], &[77]], 11), Ok(None), "a field that is not known");
        let most = [&[4][..], &[0xff; 9], &[1]].concat();
        assert_eq!(said(&[&most], u64::MAX), Ok(None));
    }

    #[test]
    fn the_rest_of_a_torn_record_is_no_other_record() {
        let part = BLOCK - HEADER;
        let long =
            [record(FIRST, &batch(0, 1, part - 12)), record(MIDDLE, &vec![1; part]), record(LAST, b"end")]
                .concat();
        let mut records = Vec::new();
        assert_eq!(
            walk(&long, &mut |at, r| {
                records.push((at, r.len()));
                true
            }),
            None
        );
        assert_eq!(records, [(0, part * 2 + 3)]);
        let mut torn = long.clone();
        torn[4096..8192].fill(0);
        assert_eq!(damage(&torn), at(0, End::Zeros));
        torn.extend(record(WHOLE, b"another"));
        assert_eq!(damage(&torn), at(0, End::GoesOn));
        assert_eq!(damage(&long[..BLOCK + 100]), at(0, End::Cut));
        assert_eq!(damage(&long[..BLOCK]), at(0, End::Cut));
    }

    #[test]
    fn a_gap_between_logs_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = |n: u64| dir.path().join(format!("{n:06}.log"));
        let one = log().len() / 3;
        std::fs::write(path(4), log()).unwrap();
        std::fs::write(path(7), record(WHOLE, &batch(6, 1, 10))).unwrap();
        let paths = [path(4), path(7)];
        let audit_logs = |logs: &[PathBuf]| super::audit_logs(logs, &Lengths::new());
        assert_eq!(audit_logs(&paths), Ok(()));
        let said = |result: StoreResult<()>| result.unwrap_err().to_string();
        std::fs::write(path(4), &log()[..one * 2]).unwrap();
        assert!(said(audit_logs(&paths)).contains("000007.log is damaged at byte 0"));
        std::fs::write(path(4), &log()[..one * 3 - 8]).unwrap();
        assert!(said(audit_logs(&paths)).contains(&format!("000004.log is damaged at byte {}", one * 2)));
        assert_eq!(audit_logs(&paths[..1]), Ok(()), "nothing goes on behind it");
        assert_eq!(logs(dir.path(), 5), paths[1..]);
    }

    #[test]
    fn what_was_synced_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = super::super::logs::path(dir.path(), 4);
        let (one, whole) = (log().len() / 3, log().len());
        let said = |bytes: &[u8], synced: usize| {
            std::fs::write(&path, bytes).unwrap();
            audit_logs(std::slice::from_ref(&path), &[(4, synced as u64), (9, 1)].into())
        };
        let zeros = |from: usize| [&log()[..from], &vec![0; whole - from]].concat();
        for synced in [0, one, 2 * one, whole] {
            for length in 0..=whole {
                // The end of its last whole record.
                let end = length / one * one;
                assert_eq!(said(&log()[..length], synced).is_ok(), end >= synced, "{length} of {synced}");
            }
            for from in [1, one, one + 20, whole - 1] {
                let end = from / one * one;
                assert_eq!(said(&zeros(from), synced).is_ok(), end >= synced, "zeros from {from}, {synced}");
            }
        }
        let refused = said(&log()[..one + 5], 2 * one).unwrap_err().to_string();
        let wanted = format!("000004.log is damaged at byte {one}: {} bytes of it had been synced", 2 * one);
        assert!(refused.contains(&wanted), "{refused}");
        assert!(refused.contains("remove the file TERN-SYNCED"), "{refused}");
    }
}
