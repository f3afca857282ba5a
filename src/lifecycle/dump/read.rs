//! Reads payloads. Every step may run out of bytes or find nonsense: then the payload is refused.

use super::crc;
use super::lzf::Unpacker;
use super::packed::{intset, listpack, listpack_within, ziplist, zipmap};
use super::streams::is_stream;
use super::{
    ENCODED, FOOTER, HASH, HASH_LISTPACK, HASH_LISTPACK_TIMES, HASH_LISTPACK_TIMES_EARLY, HASH_TIMES,
    HASH_TIMES_EARLY, HASH_ZIPLIST, HASH_ZIPMAP, INT8, INT16, INT32, INTSET, LENGTH32, LENGTH64, LIST,
    LIST_QUICKLIST, LIST_QUICKLIST2, LIST_ZIPLIST, LZF, NEWEST, SET, SET_LISTPACK, STRING, ZSET, ZSET_2,
    ZSET_LISTPACK, ZSET_ZIPLIST,
};
use crate::env::{aside, free};
use crate::types::Kind;
use crate::types::dumped::{Dumped, Field};
use crate::types::zset::{Entry, Score};
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// The bytes of a string to produce before yielding.
pub(super) const STEP: usize = 256 << 10;
/// The longest intset, listpack or ziplist, in bytes. Redis builds them from a few hundred members; those of a million
/// are still shorter.
const LONGEST_BLOB: usize = 16 << 20;
/// The members to read before yielding.
const AT_ONCE: usize = 256;
/// What an element costs besides its bytes.
pub(super) const ELEMENT_COST: usize = 32;
/// What a node of a quicklist holds: one element, or a packed list of some.
pub(super) const PLAIN_NODE: usize = 1;
pub(super) const PACKED_NODE: usize = 2;
/// Packed elements of more bytes are read aside.
pub(super) const LONG_BLOB: usize = 64 << 10;
/// The most members for which memory is reserved before they are read.
const MOST_RESERVED: usize = 1 << 16;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// An unknown version, or a wrong checksum.
    Checksum,
    /// A type that this server does not support, by its number.
    Type(u8),
    /// Malformed for its type.
    Format,
}

/// The value. Refuses one with a string longer than `longest` bytes, or with members, or fields and values,
/// that are longer together.
pub async fn decode(payload: &[u8], longest: usize) -> Result<Dumped, Refused> {
    let (kind, mut reader) = open(payload, longest).await?;
    let value = match kind {
        STRING => reader.string().await.map(Dumped::Str),
        SET => match reader.members(1).await {
            Some(members) => set(members).await,
            None => None,
        },
        INTSET => match reader.packed(intset).await {
            Some(members) => set(members).await,
            None => None,
        },
        SET_LISTPACK => match reader.packed(listpack).await {
            Some(members) => set(members).await,
            None => None,
        },
        LIST => reader.members(1).await.and_then(list),
        LIST_ZIPLIST => reader.packed(ziplist).await.and_then(list),
        LIST_QUICKLIST | LIST_QUICKLIST2 => reader.nodes(kind == LIST_QUICKLIST2).await.and_then(list),
        HASH => match reader.members(2).await {
            Some(items) => hash(items).await,
            None => None,
        },
        HASH_LISTPACK | HASH_ZIPLIST | HASH_ZIPMAP => {
            let form = match kind {
                HASH_LISTPACK => listpack,
                HASH_ZIPLIST => ziplist,
                _ => zipmap,
            };
            match reader.packed(form).await {
                Some(items) => hash(items).await,
                None => None,
            }
        }
        ZSET | ZSET_2 => reader.scored(kind == ZSET_2).await,
        ZSET_LISTPACK | ZSET_ZIPLIST => {
            let form = if kind == ZSET_LISTPACK { listpack } else { ziplist };
            match reader.packed(form).await {
                Some(items) => texts(items).await,
                None => None,
            }
        }
        HASH_TIMES | HASH_TIMES_EARLY | HASH_LISTPACK_TIMES | HASH_LISTPACK_TIMES_EARLY => {
            reader.fields(kind).await
        }
        kind if is_stream(kind) => reader.stream(kind).await.map(Dumped::Stream),
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
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST2 => Some(Kind::List),
        HASH | HASH_LISTPACK | HASH_ZIPLIST | HASH_ZIPMAP => Some(Kind::Hash),
        ZSET | ZSET_2 | ZSET_LISTPACK | ZSET_ZIPLIST => Some(Kind::Zset),
        HASH_TIMES | HASH_TIMES_EARLY | HASH_LISTPACK_TIMES | HASH_LISTPACK_TIMES_EARLY => Some(Kind::Hash),
        kind => is_stream(kind).then_some(Kind::Stream),
    }
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

pub(super) async fn body(payload: &[u8]) -> Option<&[u8]> {
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
            drop(different);
            free(members.len(), members);
            return None;
        }
        consume_budget().await;
    }
    (!members.is_empty()).then_some(())?;
    Some(Dumped::Set(members))
}

/// The list; None if it is empty.
fn list(elements: Vec<Bytes>) -> Option<Dumped> {
    (!elements.is_empty()).then_some(Dumped::List(elements))
}

/// The hash of fields and values in turn; None if it is empty or repeats a field.
async fn hash(items: Vec<Bytes>) -> Option<Dumped> {
    let parts = items.len();
    let pairs = pairs(&items).await;
    free(parts, items);
    pairs.map(Dumped::Hash)
}

async fn pairs(items: &[Bytes]) -> Option<Vec<[Bytes; 2]>> {
    let (items, rest) = items.as_chunks();
    let mut different: HashSet<&Bytes> = HashSet::with_capacity(items.len());
    let mut pairs = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        if !some.iter().all(|[field, _]| different.insert(field)) {
            return None;
        }
        pairs.extend_from_slice(some);
        consume_budget().await;
    }
    (!pairs.is_empty() && rest.is_empty()).then_some(pairs)
}

/// The field, its value and its time; 0: it does not expire. None if the time is none.
fn field(pair: [Bytes; 2], at: u64) -> Option<Field> {
    (at <= i64::MAX as u64).then_some((pair, Some(at).filter(|at| *at > 0)))
}

/// The hash; None if it is empty or repeats a field.
async fn fields(fields: Vec<Field>) -> Option<Dumped> {
    let mut different: HashSet<&Bytes> = HashSet::with_capacity(fields.len());
    for some in fields.chunks(AT_ONCE) {
        if !some.iter().all(|([field, _], _)| different.insert(field)) {
            return None;
        }
        consume_budget().await;
    }
    (!fields.is_empty()).then_some(())?;
    Some(Dumped::Fields(fields))
}

/// The sorted set of members and scores in turn, as text.
async fn texts(items: Vec<Bytes>) -> Option<Dumped> {
    let (pairs, rest) = items.as_chunks();
    let mut entries = Vec::with_capacity(pairs.len());
    for [member, text] in pairs {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let Some(score) = number.and_then(Score::new) else { break };
        entries.push((member.clone(), score));
        consume_budget().await;
    }
    let is_whole = rest.is_empty() && entries.len() == pairs.len();
    free(items.len(), items);
    zset(entries).await.filter(|_| is_whole)
}

/// The sorted set; None if it is empty or repeats a member.
async fn zset(entries: Vec<Entry>) -> Option<Dumped> {
    let mut different: HashSet<&Bytes> = HashSet::with_capacity(entries.len());
    let mut is_sound = !entries.is_empty();
    for some in entries.chunks(AT_ONCE) {
        is_sound &= some.iter().all(|(member, _)| different.insert(member));
        consume_budget().await;
    }
    drop(different);
    if !is_sound {
        free(entries.len(), entries);
        return None;
    }
    Some(Dumped::Zset(entries))
}

pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) longest: usize,
}

/// A length, or the encoding of a string.
enum Length {
    Bytes(u64),
    Encoded(u8),
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
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

    pub(super) fn plain_length(&mut self) -> Option<usize> {
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

    /// Members with their scores, as doubles or as text.
    async fn scored(&mut self, are_doubles: bool) -> Option<Dumped> {
        let n = self.plain_length()?;
        let (mut entries, mut bytes) = (Vec::with_capacity(n.min(MOST_RESERVED)), 0);
        for _ in 0..n {
            let member = self.string().await?;
            bytes += member.len();
            let number = if are_doubles { f64::from_le_bytes(self.array()?) } else { self.text_score()? };
            entries.push((member, Score::new(number).filter(|_| bytes <= self.longest)?));
        }
        zset(entries).await
    }

    pub(super) fn text_score(&mut self) -> Option<f64> {
        match self.array()? {
            [255] => Some(f64::NEG_INFINITY),
            [254] => Some(f64::INFINITY),
            [253] => None,
            [n] => std::str::from_utf8(self.take(n.into())?).ok()?.parse().ok(),
        }
    }

    /// Skips a string. Returns the bytes that it announces.
    pub(super) fn skip(&mut self) -> Option<usize> {
        match self.length()? {
            Length::Bytes(n) => {
                let n = usize::try_from(n).ok()?;
                self.take(n).map(|_| n)
            }
            Length::Encoded(LZF) => {
                let (packed, n) = (self.plain_length()?, self.plain_length()?);
                self.take(packed).map(|_| n)
            }
            Length::Encoded(INT8) => self.take(1).map(|_| 1),
            Length::Encoded(INT16) => self.take(2).map(|_| 2),
            Length::Encoded(INT32) => self.take(4).map(|_| 4),
            Length::Encoded(_) => None,
        }
    }

    fn number(&mut self) -> Option<i32> {
        Some(match self.length()? {
            Length::Encoded(INT8) => i8::from_le_bytes(self.array()?).into(),
            Length::Encoded(INT16) => i16::from_le_bytes(self.array()?).into(),
            Length::Encoded(INT32) => i32::from_le_bytes(self.array()?),
            Length::Bytes(_) | Length::Encoded(_) => return None,
        })
    }

    pub(super) async fn string(&mut self) -> Option<Bytes> {
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

    /// The elements of a whole value in one string of this form.
    async fn packed(&mut self, form: impl Fn(&[u8]) -> Option<Vec<Bytes>>) -> Option<Vec<Bytes>> {
        let longest = self.longest;
        self.longest = longest.min(LONGEST_BLOB);
        let blob = self.string().await?;
        self.longest = longest;
        if blob.len() > LONG_BLOB { aside(|| form(&blob)) } else { form(&blob) }
    }

    /// The elements of a list in nodes, each of which is a ziplist; or a listpack or an element, as the number before
    /// it says.
    async fn nodes(&mut self, with_kinds: bool) -> Option<Vec<Bytes>> {
        let mut elements = Vec::new();
        if self.add_nodes(with_kinds, &mut elements).await.is_some() {
            return Some(elements);
        }
        free(elements.len(), elements);
        None
    }

    async fn add_nodes(&mut self, with_kinds: bool, elements: &mut Vec<Bytes>) -> Option<()> {
        for _ in 0..self.plain_length()? {
            let kind = if with_kinds { self.plain_length()? } else { PACKED_NODE };
            let before = elements.len();
            match kind {
                PLAIN_NODE => elements.push(self.string().await.filter(|element| !element.is_empty())?),
                PACKED_NODE => {
                    let most = self.longest;
                    let form =
                        |blob: &[u8]| if with_kinds { listpack_within(blob, most) } else { ziplist(blob) };
                    elements.extend(self.packed(form).await?);
                }
                _ => return None,
            }
            // What they take in memory: packed ones can be many times more than their payload.
            let new = elements.get(before..).unwrap_or_default();
            let size: usize = new.iter().map(|element| element.len() + ELEMENT_COST).sum();
            self.longest = self.longest.checked_sub(size)?;
            consume_budget().await;
        }
        Some(())
    }

    /// A hash of which some fields expire, in one of its forms.
    async fn fields(&mut self, form: u8) -> Option<Dumped> {
        let is_early = matches!(form, HASH_TIMES_EARLY | HASH_LISTPACK_TIMES_EARLY);
        let first = if is_early { 0 } else { u64::from_le_bytes(self.array()?) };
        let mut all = Vec::new();
        if matches!(form, HASH_LISTPACK_TIMES | HASH_LISTPACK_TIMES_EARLY) {
            let items = self.packed(listpack).await?;
            let (triples, []) = items.as_chunks::<3>() else { return None };
            for [name, value, at] in triples {
                let at = std::str::from_utf8(at).ok()?.parse().ok()?;
                all.push(field([name.clone(), value.clone()], at)?);
            }
            return fields(all).await;
        }
        for n in 0..self.plain_length()? {
            let at = match self.plain_length()? as u64 {
                0 => 0,
                at if is_early => at,
                after => first.checked_add(after)?.checked_sub(1)?,
            };
            let mut pair = [Bytes::new(), Bytes::new()];
            for part in &mut pair {
                *part = self.string().await?;
                self.longest = self.longest.checked_sub(part.len())?;
            }
            all.push(field(pair, at)?);
            if n % AT_ONCE == 0 {
                consume_budget().await;
            }
        }
        fields(all).await
    }

    /// Strings, `each` for each of the elements whose number precedes them.
    async fn members(&mut self, each: usize) -> Option<Vec<Bytes>> {
        let count = self.plain_length()?.checked_mul(each)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn decoded(payload: &[u8], longest: usize) -> Result<Dumped, Refused> {
        decode(payload, longest).now_or_never().unwrap()
    }

    /// No input from others makes it panic, or reserve memory out of proportion to the input.
    #[test]
    fn hostile_payloads() {
        let mut rng = crate::env::Env::seeded(0, 13).rng();
        let seeds: [&[u8]; 12] = [
            b"\x18\xa0\x0f\x00\x00\x00\x00\x00\x00\x02\x00\x01a\x01b\x05\x01c\xc0\x05",
            b"\x00\xc3\x09@d\x01aa\xe0W\x00\x01aa",
            b"\x02\x03\x01a\x01b\xc0\x05",
            b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfb\xff\x01\x00,\x01",
            b"\x14\x0f\x0f\x00\x00\x00\x03\x00\x05\x01\x81a\x02\xc1\x00\x02\xff",
            b"\x04\x02\x01a\x01b\xc0\x05\x01c",
            b"\x10\x0d\x0d\x00\x00\x00\x02\x00\x81a\x02\xc1\x00\x02\xff",
            b"\x0d\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff",
            b"\x09\x08\x01\x01a\x02\x01bcx\xff",
            b"\x01\x03\x01a\x01b\x01a",
            b"\x0e\x01\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff",
            b"\x12\x02\x01\x03abc\x02\x0d\x0d\x00\x00\x00\x02\x00\x81a\x02\xc1\x00\x02\xff",
        ];
        let mut good = 0;
        for round in 0..40_000 {
            let mut payload = seeds[round % seeds.len()].to_vec();
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
                Ok(Dumped::List(elements)) => assert!(!elements.is_empty()),
                Ok(Dumped::Hash(pairs)) => assert!(!pairs.is_empty()),
                Ok(Dumped::Fields(fields)) => assert!(!fields.is_empty()),
                Ok(Dumped::Zset(entries)) => assert!(!entries.is_empty()),
                Ok(Dumped::Stream(_)) => panic!("a stream"),
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
            (&[6, 0], Refused::Type(6)),
            (&[3, 0], Refused::Format),
            (&[3, 1, 1, b'a', 253], Refused::Format),
            (&[3, 2, 1, b'a', 1, b'1', 1, b'a', 1, b'2'], Refused::Format),
            (&[5, 0], Refused::Format),
            (&[5, 1, 1, b'a', 0, 0, 0, 0, 0, 0, 0xf8, 0x7f], Refused::Format),
            (&[17, 0], Refused::Format),
            (&[1, 0], Refused::Format),
            (&[18, 0], Refused::Format),
            (&[18, 1, 1, 0], Refused::Format),
            (&[18, 1, 3, 1, b'a'], Refused::Format),
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

    /// Hazard: a small payload takes all memory, because each of its bytes becomes an element.
    #[test]
    fn elements_count() {
        // A listpack of 2-byte elements.
        let elements = 250_000;
        let mut listpack = vec![0, 0, 0, 0, 0xff, 0xff];
        listpack.extend([5, 1].repeat(elements));
        listpack.push(0xff);
        let size = (listpack.len() as u32).to_le_bytes();
        listpack[..4].copy_from_slice(&size);
        let of = |nodes: u8, longest| {
            let node = [&[2, 0x80][..], &(listpack.len() as u32).to_be_bytes(), &listpack].concat();
            let mut payload = [&[LIST_QUICKLIST2, nodes][..], &node.repeat(nodes.into()), &[10, 0]].concat();
            payload.extend(crc::crc64(&payload).to_le_bytes());
            decoded(&payload, longest)
        };
        assert!(matches!(of(2, 17 << 20), Ok(Dumped::List(all)) if all.len() == 2 * elements));
        assert_eq!(of(3, 17 << 20), Err(Refused::Format));
    }
}
