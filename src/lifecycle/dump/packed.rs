//! Values that Redis packs into one string: intset, listpack, and of earlier versions ziplist and zipmap.
//! What is malformed is None.

use super::read::ELEMENT_COST;
use crate::spec::words::parse_i64;
use bytes::{BufMut, Bytes};

/// Width and number of the integers, then the integers, ascending; all little-endian.
pub(super) fn intset(blob: &[u8]) -> Option<Vec<Bytes>> {
    let (width, rest) = blob.split_first_chunk()?;
    let (count, numbers) = rest.split_first_chunk()?;
    let width = usize::try_from(u32::from_le_bytes(*width)).ok().filter(|w| [2, 4, 8].contains(w))?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    if numbers.len() != count.checked_mul(width)? {
        return None;
    }
    let numbers: Vec<i64> = numbers.chunks_exact(width).map(signed).collect();
    let ascending = numbers.is_sorted_by(|a, b| a < b);
    ascending.then(|| numbers.iter().map(|n| Bytes::from(n.to_string())).collect())
}

/// A little-endian integer of at most eight bytes.
fn signed(raw: &[u8]) -> i64 {
    let unused = 64 - 8 * raw.len().min(8) as u32;
    let bits = raw.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    if unused == 64 { 0 } else { (bits << unused).cast_signed() >> unused }
}

/// Total bytes (u32 LE), number of entries (u16 LE; 65535: or more), entries, an end mark. Each entry is
/// followed by its length, so that the list can be read from the end.
pub(super) fn listpack(blob: &[u8]) -> Option<Vec<Bytes>> {
    listpack_within(blob, usize::MAX)
}

/// As [`listpack`]. None, too, if its elements take more than about `most` bytes in memory.
pub(super) fn listpack_within(blob: &[u8], mut most: usize) -> Option<Vec<Bytes>> {
    let (total, rest) = blob.split_first_chunk()?;
    let (count, mut entries) = rest.split_first_chunk()?;
    if usize::try_from(u32::from_le_bytes(*total)).ok()? != blob.len() {
        return None;
    }
    let mut members = Vec::new();
    while entries.first()? != &0xff {
        let (member, size) = entry(entries)?;
        let (_, behind) = entries.split_at_checked(size)?;
        let back = back_length(size);
        entries = behind.strip_prefix(back.as_slice())?;
        most = most.checked_sub(member.len() + ELEMENT_COST)?;
        members.push(member);
    }
    let count = usize::from(u16::from_le_bytes(*count));
    let counted = count == members.len() || count == 0xffff && members.len() > count;
    (entries.len() == 1 && counted).then_some(members)
}

/// An entry's value and the bytes of its encoding.
fn entry(raw: &[u8]) -> Option<(Bytes, usize)> {
    let number = |n: i64, size| Some((Bytes::from(n.to_string()), size));
    let string = |begin: usize, length: usize| {
        let bytes = raw.get(begin..begin.checked_add(length)?)?;
        Some((Bytes::copy_from_slice(bytes), begin + length))
    };
    let (first, rest) = raw.split_first()?;
    let second = || rest.first().copied().map(usize::from);
    let low = |bits: u8| usize::from(first & bits);
    match *first {
        0..0x80 => number((*first).into(), 1),
        0x80..0xc0 => string(1, low(0x3f)),
        0xc0..0xe0 => {
            let n = (low(0x1f) << 8 | second()?) as i64;
            number(if n >= 1 << 12 { n - (1 << 13) } else { n }, 2)
        }
        0xe0..0xf0 => string(2, low(0x0f) << 8 | second()?),
        0xf0 => string(5, u32::from_le_bytes(*rest.first_chunk()?) as usize),
        0xf1 => number(signed(rest.get(..2)?), 3),
        0xf2 => number(signed(rest.get(..3)?), 4),
        0xf3 => number(signed(rest.get(..4)?), 5),
        0xf4 => number(signed(rest.get(..8)?), 9),
        _ => None,
    }
}

/// An entry's size in groups of seven bits, the highest first; all but the first have the top bit set. From
/// two groups on, Redis uses one more if the size has all bits of its groups set.
fn back_length(size: usize) -> Vec<u8> {
    let groups = match size {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let group = |n: u32| (size >> (7 * n) & 0x7f) as u8 | if n + 1 == groups { 0 } else { 0x80 };
    (0..groups).rev().map(group).collect()
}

/// A listpack under construction: its entries, and their number.
#[derive(Default)]
pub(super) struct Pack {
    body: Vec<u8>,
    n: usize,
}

impl Pack {
    /// Appends an integer, in the shortest form.
    pub(super) fn number(&mut self, n: i64) {
        let begin = self.body.len();
        match n {
            0..128 => self.body.push(n as u8),
            -4096..4096 => self.body.put_u16(n as u16 & 0x1fff | 0xc000),
            _ => {
                let (mark, width) = match () {
                    () if i16::try_from(n).is_ok() => (0xf1, 2),
                    () if (-(1 << 23)..1 << 23).contains(&n) => (0xf2, 3),
                    () if i32::try_from(n).is_ok() => (0xf3, 4),
                    () => (0xf4, 8),
                };
                self.body.push(mark);
                self.body.extend(n.to_le_bytes().into_iter().take(width));
            }
        }
        self.close(begin);
    }

    /// Appends a string; that of a decimal integer as an integer.
    pub(super) fn string(&mut self, bytes: &[u8]) {
        if let Some(n) = parse_i64(bytes) {
            return self.number(n);
        }
        let (begin, length) = (self.body.len(), bytes.len());
        match length {
            0..0x40 => self.body.push(0x80 | length as u8),
            0x40..0x1000 => self.body.put_u16(0xe000 | length as u16),
            _ => {
                self.body.push(0xf0);
                self.body.put_u32_le(length as u32);
            }
        }
        self.body.extend_from_slice(bytes);
        self.close(begin);
    }

    fn close(&mut self, begin: usize) {
        self.body.extend(back_length(self.body.len() - begin));
        self.n += 1;
    }

    /// The listpack.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut blob = Vec::with_capacity(self.body.len() + 7);
        blob.put_u32_le(self.body.len() as u32 + 7);
        blob.put_u16_le(u16::try_from(self.n).unwrap_or(u16::MAX));
        blob.extend(self.body);
        blob.push(0xff);
        blob
    }
}

/// Total bytes (u32 LE), offset of the last entry (u32 LE), number of entries (u16 LE; 65535: or more),
/// entries, an end mark. Each entry begins with the length of the one before. Redis up to 6.2.
pub(super) fn ziplist(blob: &[u8]) -> Option<Vec<Bytes>> {
    let (total, rest) = blob.split_first_chunk()?;
    let (tail, rest) = rest.split_first_chunk()?;
    let (count, mut entries) = rest.split_first_chunk()?;
    if usize::try_from(u32::from_le_bytes(*total)).ok()? != blob.len() {
        return None;
    }
    let (mut items, mut before, mut last) = (Vec::new(), 0, blob.len() - entries.len());
    while entries.first()? != &0xff {
        last = blob.len() - entries.len();
        let (length, rest) = ziplist_length(entries)?;
        let (item, size) = ziplist_entry(rest)?;
        if length != before {
            return None;
        }
        before = entries.len() - rest.len() + size;
        entries = entries.get(before..)?;
        items.push(item);
    }
    let count = usize::from(u16::from_le_bytes(*count));
    let counted = count == items.len() || count == 0xffff && items.len() > count;
    let tail = usize::try_from(u32::from_le_bytes(*tail)).ok()?;
    (entries.len() == 1 && counted && tail == last).then_some(items)
}

/// A length of one byte, or of four (LE) behind 254; and what follows.
fn ziplist_length(raw: &[u8]) -> Option<(usize, &[u8])> {
    match raw.split_first()? {
        (254, rest) => {
            let (length, rest) = rest.split_first_chunk()?;
            Some((u32::from_le_bytes(*length) as usize, rest))
        }
        (255, _) => None,
        (length, rest) => Some((usize::from(*length), rest)),
    }
}

/// An entry's value and the bytes of its encoding.
fn ziplist_entry(raw: &[u8]) -> Option<(Bytes, usize)> {
    let number = |n: i64, size| Some((Bytes::from(n.to_string()), size));
    let string = |begin: usize, length: usize| {
        let bytes = raw.get(begin..begin.checked_add(length)?)?;
        Some((Bytes::copy_from_slice(bytes), begin + length))
    };
    let (first, rest) = raw.split_first()?;
    match *first {
        0..0x40 => string(1, (*first).into()),
        0x40..0x80 => string(2, u16::from_be_bytes([first & 0x3f, *rest.first()?]).into()),
        0x80..0xc0 => string(5, u32::from_be_bytes(*rest.first_chunk()?) as usize),
        0xc0 => number(signed(rest.get(..2)?), 3),
        0xd0 => number(signed(rest.get(..4)?), 5),
        0xe0 => number(signed(rest.get(..8)?), 9),
        0xf0 => number(signed(rest.get(..3)?), 4),
        0xfe => number(signed(rest.get(..1)?), 2),
        0xf1..0xfe => number(i64::from(first & 0xf) - 1, 1),
        _ => None,
    }
}

/// Number of pairs (u8; 254: or more), fields and values with their lengths, an end mark. A value's length is
/// followed by the number of unused bytes behind it. Redis up to 2.4.
pub(super) fn zipmap(blob: &[u8]) -> Option<Vec<Bytes>> {
    let (count, mut rest) = blob.split_first()?;
    let mut items = Vec::new();
    while rest.first()? != &0xff {
        let (length, behind) = ziplist_length(rest)?;
        let (field, behind) = behind.split_at_checked(length)?;
        let (length, behind) = ziplist_length(behind)?;
        let (unused, behind) = behind.split_first()?;
        let (value, behind) = behind.split_at_checked(length)?;
        rest = behind.get(usize::from(*unused)..)?;
        items.extend([field, value].map(Bytes::copy_from_slice));
    }
    let counted = usize::from(*count) == items.len() / 2 || *count >= 254;
    (rest.len() == 1 && counted).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(entries: &[&[u8]]) -> Vec<u8> {
        let mut body = Vec::new();
        for entry in entries {
            body.extend_from_slice(entry);
            body.extend(back_length(entry.len()));
        }
        let mut blob = ((body.len() + 7) as u32).to_le_bytes().to_vec();
        blob.extend((entries.len() as u16).to_le_bytes());
        blob.extend(body);
        blob.push(0xff);
        blob
    }

    #[test]
    fn listpacks() {
        let long = [&[0xe0 | 1, 0x2c][..], &[b'x'; 300]].concat();
        let entries: [&[u8]; 9] = [
            &[5],
            &[0x81, b'a'],
            &[0xc1, 0x00],
            &[0xdf, 0xff],
            &long,
            &[0xf1, 0x00, 0x80],
            &[0xf2, 0, 0, 1],
            &[0xf3, 0xff, 0xff, 0xff, 0xff],
            &[0xf4, 0, 0, 0, 0, 0, 0, 0, 0x80],
        ];
        let texts: Vec<String> = listpack(&pack(&entries))
            .unwrap()
            .iter()
            .map(|m| String::from_utf8_lossy(m).chars().take(20).collect())
            .collect();
        let x = "x".repeat(20);
        assert_eq!(texts, ["5", "a", "256", "-1", &x, "-32768", "65536", "-1", "-9223372036854775808"]);
        let whole = pack(&entries);
        for cut in 0..whole.len() {
            assert_eq!(listpack(&whole[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn a_pack_is_read_as_it_was_written() {
        let mut pack = Pack::default();
        let edges = [0, 127, 128, 4095, 4096, 1 << 15, 1 << 23, 1 << 31, i64::MAX];
        let numbers: Vec<i64> = edges.iter().flat_map(|n| [*n, n - 1, -n, -n - 1]).collect();
        numbers.iter().for_each(|n| pack.number(*n));
        let texts = ["", "a", "007", "-0", "9223372036854775808", "-12"].map(str::to_owned);
        let long = [63, 64, 127, 4095, 4096, 16_383, 70_000].map(|n| "x".repeat(n));
        let strings = || texts.iter().chain(&long);
        strings().for_each(|text| pack.string(text.as_bytes()));
        let blob = pack.finish();
        let want = Vec::from_iter(numbers.iter().map(i64::to_string).chain(strings().cloned()));
        assert!(listpack(&blob).unwrap() == want);
        assert!(listpack(&Pack::default().finish()).unwrap().is_empty());
        let mut many = Pack::default();
        (0..70_000).for_each(|n| many.number(n % 7));
        assert_eq!(listpack(&many.finish()).unwrap().len(), 70_000);
    }

    #[test]
    fn ziplists() {
        let entries: [&[u8]; 9] = [
            b"\x01a",
            b"\xf1",
            b"\xfd",
            b"\xfe\xff",
            b"\xc0\x00\x80",
            b"\xf0\x00\x00\x01",
            b"\xd0\xff\xff\xff\xff",
            b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
            &[&[0x41, 0x2c][..], &[b'x'; 300]].concat(),
        ];
        let (mut body, mut before, mut last) = (Vec::new(), 0, 0);
        for entry in entries.iter().chain(&[&b"\x01z"[..]]) {
            last = body.len() + 10;
            match u8::try_from(before).ok().filter(|length| *length < 254) {
                Some(length) => body.push(length),
                None => body.extend([&[254][..], &u32::try_from(before).unwrap().to_le_bytes()].concat()),
            }
            body.extend_from_slice(entry);
            before = body.len() + 10 - last;
        }
        let mut blob = (body.len() as u32 + 11).to_le_bytes().to_vec();
        blob.extend((last as u32).to_le_bytes());
        blob.extend(10u16.to_le_bytes());
        blob.extend(body);
        blob.push(0xff);
        let texts: Vec<String> = ziplist(&blob)
            .unwrap()
            .iter()
            .map(|m| String::from_utf8_lossy(m).chars().take(20).collect())
            .collect();
        let x = "x".repeat(20);
        let want = ["a", "0", "12", "-1", "-32768", "65536", "-1", "-9223372036854775808", &x, "z"];
        assert_eq!(texts, want);
        for cut in 0..blob.len() {
            assert_eq!(ziplist(&blob[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn zipmaps() {
        let blob = b"\x02\x01a\x02\x01bcx\x00\x00\x00\xff";
        let items = zipmap(blob).unwrap();
        assert_eq!(items, ["a", "bc", "", ""].map(Bytes::from));
        for cut in 0..blob.len() {
            assert_eq!(zipmap(&blob[..cut]), None, "{cut} bytes");
        }
    }
}
