//! RocksDB's logs and manifests as bytes: their records, and the remains of an incomplete one.
//!
//! ```text
//! log, manifest   blocks of 32 KiB; no header crosses a block's end (less than 7 bytes are left over)
//! fragment        crc32c u32, masked | length u16 | kind u8 | bytes          kind: 1 whole, 2 first, 3 middle, 4 last
//! a log's record  sequence number u64 | operations u32 | ...                 the next one's number is the sum of both
//! a manifest's    tagged fields; tag 4 is the last sequence number
//! ```

use crc_fast::{CrcAlgorithm, checksum};

pub(super) const BLOCK: usize = 32 << 10;
pub(super) const HEADER: usize = 7;
pub(super) const WHOLE: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const MIDDLE: u8 = 3;
pub(super) const LAST: u8 = 4;
/// Kinds from here on describe the file and are not data.
const DESCRIPTION: u8 = 9;
/// The unit that a disk writes atomically.
pub(super) const SECTOR: usize = 512;

/// How a damaged file continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The file ends inside the record, according to the record's length.
    Cut,
    /// The rest of the file contains zeros, and no other record.
    Zeros,
    /// No other record follows, and no zeros.
    Wrong,
    /// Other records follow.
    GoesOn,
    /// Other records follow, after zeros at the start of this record or filling one of its sectors: a loss of
    /// power leaves this if the later data reached the disk first.
    Hole,
}

/// The first incomplete record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: usize,
    pub(super) end: End,
}

struct Fragment<'a> {
    kind: u8,
    bytes: &'a [u8],
    end: usize,
}

/// Passes each record and its position to `each`, until that returns false or a record is incomplete.
pub(super) fn walk(bytes: &[u8], each: &mut impl FnMut(usize, &[u8]) -> bool) -> Option<Damage> {
    let (mut at, mut open) = (0, None::<(usize, Vec<u8>)>);
    loop {
        at = header_at(at);
        if at >= bytes.len() {
            return open.map(|(at, _)| Damage { at, end: End::Cut });
        }
        let start = open.as_ref().map_or(at, |(start, _)| *start);
        let Some(fragment) = fragment(bytes, at) else {
            return Some(Damage { at: start, end: end_of(bytes, start, at) });
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

/// The position of the next possible header.
fn header_at(at: usize) -> usize {
    let left = BLOCK - at % BLOCK;
    if left < HEADER { at + left } else { at }
}

/// The fragment at a position, if it is complete and correct.
fn fragment(bytes: &[u8], at: usize) -> Option<Fragment<'_>> {
    let (crc, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let kind = *rest.first()?;
    let end = at + HEADER + length;
    // Recycled logs (kinds 5 to 8) are not used here.
    let known = matches!(kind, WHOLE..=LAST | DESCRIPTION..);
    if !known || end.div_ceil(BLOCK) != (at + 1).div_ceil(BLOCK) {
        return None;
    }
    let checked = rest.get(..=length)?;
    is_of(*crc, checked).then_some(Fragment { kind, bytes: checked.get(1..)?, end })
}

/// The sequence number and the count that begin each record.
const BATCH_HEAD: usize = 12;

/// Classifies the data from an incorrect fragment on, of a record that begins at `start`.
///
/// A fragment that ends behind the file was cut off, or its length is wrong. What follows its header are then its
/// own bytes, which a client chose and which may look like records: they count only if they are records up
/// to the end.
fn end_of(bytes: &[u8], start: usize, at: usize) -> End {
    let is_cut = is_cut(bytes.get(at..).unwrap_or_default(), BLOCK - at % BLOCK);
    for from in at + 1..bytes.len() {
        // Most bytes cannot begin a record: that is checked before computing a checksum.
        let begins = bytes.get(from + HEADER - 1).is_some_and(|kind| matches!(*kind, WHOLE | FIRST));
        let found = if begins { fragment(bytes, from) } else { None };
        if found.is_some_and(|f| !is_cut || f.bytes.len() >= BATCH_HEAD && whole(bytes, from) == bytes.len())
        {
            return if has_hole(bytes, start, from) { End::Hole } else { End::GoesOn };
        }
    }
    if is_cut {
        return End::Cut;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.ends_with(&[0]) || has_hole(bytes, start, bytes.len()) { End::Zeros } else { End::Wrong }
}

/// Whether `rest` is the beginning of a fragment that fits into the `room` left in its block.
fn is_cut(rest: &[u8], room: usize) -> bool {
    let Some((crc, behind)) = rest.split_first_chunk::<4>() else { return true };
    let Some((length, checked)) = behind.split_first_chunk::<2>() else { return true };
    let Some(kind) = checked.first() else { return true };
    let end = HEADER + usize::from(u16::from_le_bytes(*length));
    let is_kind = matches!(*kind, WHOLE..=LAST | DESCRIPTION..);
    // The checksum does not cover the length.
    is_kind && rest.len() < end && end <= room && !is_of(*crc, checked)
}

/// Whether a sector in `start..end` has only zeros; of the first sector, only the part after `start` counts.
fn has_hole(bytes: &[u8], start: usize, end: usize) -> bool {
    let ends = (start / SECTOR + 1..=end / SECTOR).map(|sector| sector * SECTOR);
    let sector = |end: usize| bytes.get(start.max(end - SECTOR)..end);
    ends.filter_map(sector).any(is_zero)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// The end of the last complete record, by lengths alone; a record ends at `from`. `bytes` begins at a
/// block boundary.
pub(super) fn whole(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut whole) = (from, from);
    loop {
        at = header_at(at);
        let header = bytes.get(at + 4..at + HEADER);
        let Some([low, high, kind]) = header.and_then(|header| header.first_chunk()) else { return whole };
        at += HEADER + usize::from(u16::from_le_bytes([*low, *high]));
        if at > bytes.len() {
            return whole;
        }
        if matches!(*kind, WHOLE | LAST) {
            whole = at;
        }
    }
}

/// A record's sequence number, and the number that must follow.
pub(super) fn sequence(record: &[u8]) -> (u64, u64) {
    let number = record.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    let count = record.get(8..12).and_then(|c| c.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n));
    (number, number.saturating_add(u64::from(count)))
}

/// The last sequence number at the time when an edit of the manifest was written, 0 if it does not say; None if
/// it has an unknown field.
pub(super) fn last_sequence(raw: &[u8]) -> Option<u64> {
    let (mut rest, mut found) = (raw, 0);
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        match tag {
            4 => found = varint(&mut rest)?,
            2 | 3 | 9 | 10 | 200 | 203 | 300 => drop(varint(&mut rest)?),
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

/// Level, number, size; smallest and largest key, then their sequence numbers; then tagged fields up to tag
/// 1.
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

pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
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

/// Skips length-prefixed bytes.
fn text(rest: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(varint(rest)?).ok()?;
    *rest = rest.get(length..)?;
    Some(())
}

/// Castagnoli's polynomial.
fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The checksum of a fragment as it is stored: rotated and offset. `checked`: its kind and its bytes.
pub(super) fn masked(checked: &[u8]) -> [u8; 4] {
    crc32c(checked).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

/// Whether a stored checksum is that of these bytes.
fn is_of(stored: [u8; 4], checked: &[u8]) -> bool {
    stored == masked(checked)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let checked = [&[kind][..], bytes].concat();
        [&masked(&checked)[..], &(bytes.len() as u16).to_le_bytes(), &checked].concat()
    }

    pub(in super::super) fn batch(sequence: u64, count: u32, fill: usize) -> Vec<u8> {
        [&sequence.to_le_bytes()[..], &count.to_le_bytes(), &vec![7; fill]].concat()
    }

    /// Three records of about 1000 bytes.
    pub(in super::super) fn log() -> Vec<u8> {
        (0..3).flat_map(|n| record(WHOLE, &batch(n * 2, 2, 1000))).collect()
    }

    fn damage(bytes: &[u8]) -> Option<Damage> {
        walk(bytes, &mut |_, _| true)
    }

    fn at(at: usize, end: End) -> Option<Damage> {
        Some(Damage { at, end })
    }

    #[test]
    fn records_are_counted_on_from_where_one_ends() {
        let (log, one) = (log(), log().len() / 3);
        assert_eq!([0, one, 3 * one].map(|from| whole(&log, from)), [3 * one; 3]);
        let later = [vec![0; BLOCK], log.clone()].concat();
        // The last bytes of a block are too few for a header.
        assert_eq!([BLOCK - 6, BLOCK, BLOCK + one].map(|from| whole(&later, from)), [BLOCK + 3 * one; 3]);
        assert_eq!(whole(&log[..2 * one + 7], one), 2 * one);
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
        assert_eq!(changed(one, one * 2, 0), at(one, End::Hole));
        assert_eq!(changed(one, SECTOR * 2, 0), at(one, End::Hole), "to the end of a sector");
        assert_eq!(changed(one, SECTOR * 2 - 1, 0), at(one, End::GoesOn));
        assert_eq!(changed(one + 1, SECTOR * 2, 0), at(one, End::GoesOn));
        assert_eq!(changed(SECTOR * 2, SECTOR * 3, 0), at(one, End::Hole), "a sector in the middle");
        assert_eq!(changed(SECTOR * 2 + 1, SECTOR * 3, 0), at(one, End::GoesOn));
        assert_eq!(changed(one + 5, one + 6, 9), at(one, End::GoesOn));
        for planted in [record(WHOLE, b""), record(FIRST, b""), record(WHOLE, &batch(9, 1, 0))] {
            let mut last = batch(6, 2, 500);
            last.extend([planted, vec![7; 500]].concat());
            let long = [good.clone(), record(WHOLE, &last)].concat();
            assert_eq!(
                damage(&long[..long.len() - 1]),
                at(one * 3, End::Cut),
                "what is cut off looks like a record"
            );
        }
        assert_eq!(damage(&[good.clone(), vec![0; 9000]].concat()), at(one * 3, End::Zeros));
        assert_eq!(
            changed(one * 2 + 5, one * 2 + 6, 9),
            at(one * 2, End::Wrong),
            "whole, and its length is not"
        );
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
        assert_eq!(damage(&torn), at(0, End::Hole));
        assert_eq!(damage(&long[..BLOCK + 100]), at(0, End::Cut));
        assert_eq!(damage(&long[..BLOCK]), at(0, End::Cut));
    }
}
