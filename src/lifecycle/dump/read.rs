//! Reads payloads. Every step may run out of bytes or find nonsense: then the payload is refused.

use super::crc;
use super::lzf::Unpacker;
use super::{
    ENCODED, FOOTER, INT8, INT16, INT32, INTSET, LENGTH32, LENGTH64, LZF, NEWEST, SET, SET_LISTPACK, STRING,
};
use crate::types::Kind;
use crate::types::dumped::Dumped;
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// The bytes of a string to produce before yielding.
pub(super) const STEP: usize = 256 << 10;
/// The longest intset or listpack, in bytes. Redis builds them from a few hundred members; those of a million
/// are still shorter.
const LONGEST_BLOB: usize = 16 << 20;
/// The members to read before yielding.
const AT_ONCE: usize = 256;
/// The most members for which memory is reserved before they are read.
const MOST_RESERVED: usize = 1 << 16;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// An unknown version, or a wrong checksum.
    Checksum,
    /// A type that is neither string nor set, by its number.
    Type(u8),
    /// Malformed for its type.
    Format,
}

/// The value. Refuses one with a string longer than `longest` bytes, or with a set whose members are longer
/// together.
pub async fn decode(payload: &[u8], longest: usize) -> Result<Dumped, Refused> {
    let (kind, mut reader) = open(payload, longest).await?;
    let value = match kind {
        STRING => reader.string().await.map(Dumped::Str),
        SET => match reader.members().await {
            Some(members) => set(members).await,
            None => None,
        },
        INTSET | SET_LISTPACK => {
            let blob = reader.blob().await;
            let members = blob.and_then(|blob| if kind == INTSET { intset(&blob) } else { listpack(&blob) });
            match members {
                Some(members) => set(members).await,
                None => None,
            }
        }
        other => return Err(Refused::Type(other)),
    };
    value.filter(|_| reader.rest.is_empty()).ok_or(Refused::Format)
}

/// The type of a payload's value; the payload may be malformed. None: a type that this server does not
/// support.
pub fn kind(payload: &[u8]) -> Option<Kind> {
    match *payload.first()? {
        STRING => Some(Kind::Str),
        SET | INTSET | SET_LISTPACK => Some(Kind::Set),
        _ => None,
    }
}

/// The bytes to process for a payload: its own, or the announced bytes of its string if more. The payload may
/// be malformed.
pub fn weight(payload: &[u8]) -> u64 {
    let string = || {
        let (STRING, rest) = payload.split_first().map(|(kind, rest)| (*kind, rest))? else { return None };
        let mut reader = Reader { rest, longest: usize::MAX };
        match reader.length()? {
            Length::Encoded(LZF) => reader.plain_length().and_then(|_| reader.plain_length()),
            Length::Bytes(_) | Length::Encoded(_) => None,
        }
    };
    payload.len().max(string().unwrap_or(0)) as u64
}

/// The bytes of a string, produced on demand.
pub(super) enum Parts<'a> {
    Plain(&'a [u8]),
    Packed(Unpacker<'a>),
}

impl Parts<'_> {
    /// The next bytes, about `step` of them; empty at the end. None if the string is malformed.
    pub(super) fn next(&mut self, step: usize) -> Option<&[u8]> {
        match self {
            Parts::Plain(bytes) => {
                let (part, rest) = bytes.split_at(step.min(bytes.len()));
                *bytes = rest;
                Some(part)
            }
            Parts::Packed(unpacker) => unpacker.next(step),
        }
    }
}

/// The string of at most `longest` bytes in a payload, and its length. None: a value of another type, or a
/// number.
pub(super) async fn parts(payload: &[u8], longest: usize) -> Result<Option<(Parts<'_>, usize)>, Refused> {
    let (kind, mut reader) = open(payload, longest).await?;
    if kind != STRING {
        return Ok(None);
    }
    let parts = reader.parts().ok_or(Refused::Format)?;
    if reader.rest.is_empty() { Ok(parts) } else { Err(Refused::Format) }
}

/// Validates a payload's string, if it holds one, without keeping it.
pub async fn scan(payload: &[u8], longest: usize) -> Result<(), Refused> {
    let Some((mut parts, _)) = parts(payload, longest).await? else { return Ok(()) };
    while !parts.next(STEP).ok_or(Refused::Format)?.is_empty() {
        consume_budget().await;
    }
    Ok(())
}

/// The type's number and the bytes behind it. [`Refused::Checksum`] if the version or the checksum is wrong.
async fn open(payload: &[u8], longest: usize) -> Result<(u8, Reader<'_>), Refused> {
    let body = body(payload).await.ok_or(Refused::Checksum)?;
    let (kind, rest) = body.split_first().ok_or(Refused::Format)?;
    Ok((*kind, Reader { rest, longest }))
}

async fn body(payload: &[u8]) -> Option<&[u8]> {
    let (body, footer) = payload.split_at_checked(payload.len().checked_sub(FOOTER)?)?;
    let (version, checksum) = footer.split_first_chunk::<2>()?;
    let (summed, _) = payload.split_at_checked(payload.len() - checksum.len())?;
    if u16::from_le_bytes(*version) > NEWEST {
        return None;
    }
    let right = u64::from_le_bytes(checksum.try_into().ok()?) == crc::of(summed).await;
    right.then_some(body)
}

/// The set; None if it is empty or repeats a member.
async fn set(members: Vec<Bytes>) -> Option<Dumped> {
    let mut different: HashSet<&Bytes> = HashSet::with_capacity(members.len());
    for some in members.chunks(AT_ONCE) {
        if !some.iter().all(|member| different.insert(member)) {
            return None;
        }
        consume_budget().await;
    }
    (!members.is_empty()).then_some(())?;
    Some(Dumped::Set(members))
}

struct Reader<'a> {
    rest: &'a [u8],
    longest: usize,
}

/// A length, or the encoding of a string.
enum Length {
    Bytes(u64),
    Encoded(u8),
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn length(&mut self) -> Option<Length> {
        let [first] = self.array()?;
        Some(match first {
            LENGTH32 => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            LENGTH64 => Length::Bytes(u64::from_be_bytes(self.array()?)),
            0..0x40 => Length::Bytes(first.into()),
            0x40..0x80 => {
                let [second] = self.array()?;
                Length::Bytes(u16::from_be_bytes([first & 0x3f, second]).into())
            }
            ENCODED.. => Length::Encoded(first & 0x3f),
            _ => return None,
        })
    }

    fn plain_length(&mut self) -> Option<usize> {
        match self.length()? {
            Length::Bytes(n) => usize::try_from(n).ok(),
            Length::Encoded(_) => None,
        }
    }

    /// The bytes of a string that is not a number. `Some(None)`: it is a number, and nothing of it was read.
    fn parts(&mut self) -> Option<Option<(Parts<'a>, usize)>> {
        let before = self.rest;
        Some(Some(match self.length()? {
            Length::Bytes(n) => {
                let n = usize::try_from(n).ok().filter(|n| *n <= self.longest)?;
                (Parts::Plain(self.take(n)?), n)
            }
            Length::Encoded(LZF) => {
                let (packed, length) = (self.plain_length()?, self.plain_length()?);
                let length = Some(length).filter(|n| *n <= self.longest)?;
                (Parts::Packed(Unpacker::new(self.take(packed)?, length)), length)
            }
            Length::Encoded(_) => {
                self.rest = before;
                return Some(None);
            }
        }))
    }

    fn number(&mut self) -> Option<i32> {
        Some(match self.length()? {
            Length::Encoded(INT8) => i8::from_le_bytes(self.array()?).into(),
            Length::Encoded(INT16) => i16::from_le_bytes(self.array()?).into(),
            Length::Encoded(INT32) => i32::from_le_bytes(self.array()?),
            Length::Bytes(_) | Length::Encoded(_) => return None,
        })
    }

    async fn string(&mut self) -> Option<Bytes> {
        let Some((mut parts, length)) = self.parts()? else {
            return self.number().map(|n| Bytes::from(n.to_string()));
        };
        // Decompression produces at most 88 times its input: no length reserves more than the input can fill.
        let mut out = Vec::with_capacity(length.min(STEP));
        loop {
            match parts.next(STEP)? {
                [] => return Some(out.into()),
                part => out.extend_from_slice(part),
            }
            if length > STEP {
                consume_budget().await;
            }
        }
    }

    /// A string that holds a whole set.
    async fn blob(&mut self) -> Option<Bytes> {
        self.longest = self.longest.min(LONGEST_BLOB);
        self.string().await
    }

    async fn members(&mut self) -> Option<Vec<Bytes>> {
        let count = self.plain_length()?;
        // Each member takes at least one byte.
        let mut members = Vec::with_capacity(count.min(self.rest.len()).min(MOST_RESERVED));
        for n in 0..count {
            let member = self.string().await?;
            self.longest = self.longest.checked_sub(member.len())?;
            members.push(member);
            if n % AT_ONCE == 0 {
                consume_budget().await;
            }
        }
        Some(members)
    }
}

/// Width and number of the integers, then the integers, ascending; all little-endian.
fn intset(blob: &[u8]) -> Option<Vec<Bytes>> {
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
fn listpack(blob: &[u8]) -> Option<Vec<Bytes>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn decoded(payload: &[u8], longest: usize) -> Result<Dumped, Refused> {
        decode(payload, longest).now_or_never().unwrap()
    }

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

    /// No input from others makes it panic, or reserve memory out of proportion to the input.
    #[test]
    fn hostile_payloads() {
        let mut rng = crate::env::Env::seeded(0, 13).rng();
        let listpack = pack(&[&[5], &[0x81, b'a'], &[0xc1, 0x00]]);
        let seeds: [&[u8]; 4] = [
            b"\x00\xc3\x09@d\x01aa\xe0W\x00\x01aa",
            b"\x02\x03\x01a\x01b\xc0\x05",
            b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfb\xff\x01\x00,\x01",
            &[&[20, listpack.len() as u8], &listpack[..]].concat(),
        ];
        let mut good = 0;
        for round in 0..40_000 {
            let mut payload = seeds[round % 4].to_vec();
            for _ in 0..rng.below(3) {
                let at = rng.below(payload.len() as u64) as usize;
                payload[at] = rng.u64() as u8;
            }
            payload.truncate(payload.len() - rng.below(8).saturating_sub(5) as usize);
            payload.extend(10u16.to_le_bytes());
            payload.extend(crc::crc64(&payload).to_le_bytes());
            match decoded(&payload, 1000) {
                Ok(Dumped::Str(s)) => assert!(s.len() <= 1000),
                Ok(Dumped::Set(members)) => assert!(!members.is_empty()),
                Err(_) => continue,
            }
            good += 1;
        }
        assert!(good > 10_000, "{good}");
    }

    #[test]
    fn refused() {
        let sealed = |body: &[u8], version: u16| {
            let mut payload = [body, &version.to_le_bytes()].concat();
            payload.extend(crc::crc64(&payload).to_le_bytes());
            payload
        };
        for (body, why) in [
            (&[][..], Refused::Format),
            (&[1, 0], Refused::Type(1)),
            (&[0, 1], Refused::Format),
            (&[0, 1, b'a', b'b'], Refused::Format),
            (&[0, 0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Refused::Format),
            (&[0, 0xc4, 0], Refused::Format),
            (&[2, 0], Refused::Format),
            (&[2, 2, 1, b'a', 1, b'a'], Refused::Format),
            (&[2, 0x80, 0xff, 0xff, 0xff, 0xff], Refused::Format),
        ] {
            assert_eq!(decoded(&sealed(body, 10), 1000), Err(why), "{body:?}");
        }
        assert_eq!(decoded(&sealed(&[0, 1, b'a'], 81), 1000), Err(Refused::Checksum));
        assert!(decoded(&sealed(&[0, 1, b'a'], 12), 1000).is_ok(), "a newer Redis");
        assert_eq!(decoded(&sealed(&[0, 2, b'a', b'b'], 10), 1), Err(Refused::Format), "too long");
        let mut broken = sealed(&[0, 1, b'a'], 10);
        broken[2] = b'b';
        assert_eq!(decoded(&broken, 1000), Err(Refused::Checksum));
        assert_eq!(decoded(b"short", 1000), Err(Refused::Checksum));
    }
}
