//! DUMP's payload: a value in the format of Redis' snapshot files, so that it can move between the two.
//!
//! ```text
//! type u8 | value | RDB version u16 LE | CRC-64 of all before, u64 LE
//! ```
//! We write version 10 with the types that Redis 7.0 reads: string (0), list (1), hashtable set (2), hash (4),
//! sorted set (5), intset (11), stream (19); and version 12 with the hash of Redis 7.4 whose fields expire (24). Besides these, we read the
//! lists in ziplists and quicklists (10, 14, 18), the older sorted sets (3, 12, 17) and the zipmap, ziplist and listpack hash (9, 13, 16) of any
//! Redis, the listpack set (20) of Redis 7.2, and the listpack hash whose fields expire (25; 22 and 23 in early
//! versions of Redis 7.4), the streams (15, 21, 26, 27) of Redis 5, 7.2, 8.6 and 8.8, of every version up to [`NEWEST`]: these have not changed since Redis 2.6. Strings are
//! written uncompressed; compressed ones are read.
//!
//! Payloads are untrusted: no length reserves memory, and the decompressed size of a string is bounded by the
//! caller. A long string is never in memory as a whole: it is produced while it is sent ([`Payload`]), and
//! written while it is decompressed ([`prebuild`]).

mod crc;
mod libraries;
mod lzf;
mod packed;
mod prebuild;
mod read;
mod restore;
mod stream;
mod streams;
mod weight;

pub use libraries::{libraries, of_libraries};
pub use prebuild::prebuild;
pub use read::{Refused, decode, kind, scan};
pub use restore::{Encodings, check, restore, restore_prebuilt};
pub use stream::Payload;
pub use streams::of_stream;
pub use weight::weight;

use crate::types::dumped::Field;
use crate::types::zset::Entry;
use bytes::{BufMut, Bytes};

/// The version that we write.
const VERSION: u16 = 10;
/// The version that knows fields that expire.
const VERSION_TIMES: u16 = 12;
/// The highest version that we read: Valkey 9's.
const NEWEST: u16 = 80;
/// The bytes of version and checksum.
const FOOTER: usize = 10;

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
/// Scores as text.
const ZSET: u8 = 3;
const HASH: u8 = 4;
/// Scores as doubles.
const ZSET_2: u8 = 5;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const INTSET: u8 = 11;
const ZSET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
/// The streams of Redis 5, 7.0, 7.2, 8.6 and 8.8.
const STREAM: u8 = 15;
const STREAM_2: u8 = 19;
const STREAM_3: u8 = 21;
const STREAM_4: u8 = 26;
const STREAM_5: u8 = 27;
const HASH_LISTPACK: u8 = 16;
const ZSET_LISTPACK: u8 = 17;
const LIST_QUICKLIST2: u8 = 18;
const SET_LISTPACK: u8 = 20;
/// Fields that expire at their time, which precedes each; 0: it does not expire.
const HASH_TIMES_EARLY: u8 = 22;
/// A listpack of fields, values and times.
const HASH_LISTPACK_TIMES_EARLY: u8 = 23;
/// The first time (u64 LE); then as 22, but with times counted from it, plus one.
const HASH_TIMES: u8 = 24;
/// The first time (u64 LE); then as 23.
const HASH_LISTPACK_TIMES: u8 = 25;

/// Marks a length byte that instead says how the following string is encoded.
const ENCODED: u8 = 0xc0;
const INT8: u8 = 0;
const INT16: u8 = 1;
const INT32: u8 = 2;
const LZF: u8 = 3;
/// A length of 32 or 64 bits follows.
const LENGTH32: u8 = 0x80;
const LENGTH64: u8 = 0x81;

/// The payload of a string.
pub fn of_string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 32);
    out.push(STRING);
    put_string(&mut out, bytes);
    finish(out)
}

/// The payload of a set, with its members in this order.
pub fn of_set(members: &[Bytes]) -> Vec<u8> {
    let mut out = vec![SET];
    put_length(&mut out, members.len() as u64);
    members.iter().for_each(|member| put_string(&mut out, member));
    finish(out)
}

/// The payload of a list.
pub fn of_list(elements: &[Bytes]) -> Vec<u8> {
    let mut out = vec![LIST];
    put_length(&mut out, elements.len() as u64);
    elements.iter().for_each(|element| put_string(&mut out, element));
    finish(out)
}

/// The payload of a sorted set. Redis writes the last member first.
pub fn of_zset(entries: &[Entry]) -> Vec<u8> {
    let mut out = vec![ZSET_2];
    put_length(&mut out, entries.len() as u64);
    for (member, score) in entries.iter().rev() {
        put_string(&mut out, member);
        out.put_f64_le(score.number());
    }
    finish(out)
}

/// The payload of a set of integers, ascending.
pub fn of_integers(members: &[Bytes]) -> Vec<u8> {
    let number = |text: &Bytes| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let numbers: Vec<i64> = members.iter().filter_map(number).collect();
    let mut blob = Vec::with_capacity(8 + numbers.len() * 8);
    let width = numbers.iter().map(|n| width_of(*n)).max().unwrap_or(2);
    blob.put_u32_le(width as u32);
    blob.put_u32_le(numbers.len() as u32);
    for n in numbers {
        blob.extend(n.to_le_bytes().into_iter().take(width));
    }
    let mut out = vec![INTSET];
    put_string(&mut out, &blob);
    finish(out)
}

/// The payload of a hash, with its fields in this order.
pub fn of_hash(pairs: &[[Bytes; 2]]) -> Vec<u8> {
    let mut out = vec![HASH];
    put_length(&mut out, pairs.len() as u64);
    pairs.iter().flatten().for_each(|part| put_string(&mut out, part));
    finish(out)
}

/// The payload of a hash of which some fields expire, in this order.
pub fn of_fields(fields: &[Field]) -> Vec<u8> {
    let first = fields.iter().filter_map(|(_, at)| *at).min().unwrap_or(0);
    let mut out = vec![HASH_TIMES];
    out.put_u64_le(first);
    put_length(&mut out, fields.len() as u64);
    for (pair, at) in fields {
        put_length(&mut out, at.map_or(0, |at| at - first + 1));
        pair.iter().for_each(|part| put_string(&mut out, part));
    }
    finish_as(out, VERSION_TIMES)
}

/// The bytes that an intset needs for each of its numbers.
fn width_of(n: i64) -> usize {
    match () {
        () if i16::try_from(n).is_ok() => 2,
        () if i32::try_from(n).is_ok() => 4,
        () => 8,
    }
}

fn finish(out: Vec<u8>) -> Vec<u8> {
    finish_as(out, VERSION)
}

fn finish_as(mut out: Vec<u8>, version: u16) -> Vec<u8> {
    out.put_u16_le(version);
    out.put_u64_le(crc::crc64(&out));
    out
}

fn put_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.put_u16(length as u16 | 0x4000),
        0x4000..=0xffff_ffff => {
            out.push(LENGTH32);
            out.put_u32(length as u32);
        }
        _ => {
            out.push(LENGTH64);
            out.put_u64(length);
        }
    }
}

/// Appends a string: a short decimal integer as an integer, everything else as it is.
fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.len() <= 11);
    let number = text.and_then(|text| text.parse::<i32>().ok().filter(|n| n.to_string() == text));
    match number.map(|n| (n, i8::try_from(n), i16::try_from(n))) {
        Some((_, Ok(n), _)) => out.extend([ENCODED | INT8, n as u8]),
        Some((.., Ok(n))) => {
            out.push(ENCODED | INT16);
            out.put_i16_le(n);
        }
        Some((n, ..)) => {
            out.push(ENCODED | INT32);
            out.put_i32_le(n);
        }
        None => {
            put_length(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Kind;
    use crate::types::dumped::Dumped;
    use futures_util::FutureExt;

    fn decoded(payload: &[u8], longest: usize) -> Result<Dumped, Refused> {
        decode(payload, longest).now_or_never().unwrap()
    }

    const LONGEST: usize = 1 << 20;

    /// The replies of redis-server 7.0.15 to DUMP.
    #[test]
    fn payloads_are_those_of_redis() {
        for (text, payload) in STRINGS {
            assert_eq!(of_string(text.as_bytes()), *payload, "{text}");
        }
    }

    #[test]
    fn sets_are_those_of_redis() {
        let members = |texts: &[&str]| texts.iter().map(|t| Bytes::from((*t).to_owned())).collect::<Vec<_>>();
        let two: &[u8] =
            b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfb\xff\x01\x00,\x01\x0a\x00\x0f_z\x8e\xb5\x94\x09\xd2";
        assert_eq!(of_integers(&members(&["-5", "1", "300"])), two);
        let four: &[u8] = b"\x0b\x18\x04\x00\x00\x00\x04\x00\x00\x00\xfb\xff\xff\xff\x01\x00\x00\x00,\x01\x00\x00p\x11\x01\x00\x0a\x00C\xb4\xe3yU\xf8\x89\xe1";
        assert_eq!(of_integers(&members(&["-5", "1", "300", "70000"])), four);
        assert_eq!(of_set(&members(&["a"])), b"\x02\x01\x01a\x0a\x00b\x96\xe9~D\xd2\x1am");
        let eight: &[u8] = b"\x0b\xc3$0\x04\x08\x00\x00\x00\x05 \x03\x01\xfb\xff\x80\x00\x00\x01 \x0b@\x00\x00,\xa0\x08\x01p\x11\xa0\x08\x02\xf2\x05* \x09\x00\x00\x0a\x00x\xa7\x9f\x8d \xcd\x9e\x8b";
        let wide = members(&["-5", "1", "300", "70000", "5000000000"]);
        assert_eq!(decoded(eight, LONGEST), Ok(Dumped::Set(wide.clone())), "compressed");
        assert_eq!(decoded(&of_integers(&wide), LONGEST), Ok(Dumped::Set(wide)));
    }

    /// Those of redis-server 7.0.15, and those of earlier versions as it accepts them.
    #[test]
    fn hashes_are_those_of_redis() {
        let pairs = |pairs: &[[&str; 2]]| {
            pairs.iter().map(|pair| pair.map(|text| Bytes::from(text.to_owned()))).collect::<Vec<_>>()
        };
        let (x, two) = ("x".repeat(65), pairs(&[["a", "1"], ["b", "two"]]));
        for (payload, hash) in [
            (
                &b"\x10\x1a\x1a\x00\x00\x00\x06\x00\x81a\x02\x01\x01\x81b\x02\x83two\x04\x81c\x02\xde\xd4\x02\xff\x0a\x00;mN\xe6L\x99\xe9\xdc"[..],
                pairs(&[["a", "1"], ["b", "two"], ["c", "-300"]]),
            ),
            (
                b"\x04\x02\x01b\xc3\x09@A\x01xx\xe04\x00\x01xx\x01a\xc0\x01\x0a\x00FK\xdb\x9b\xe9Y\xc0)",
                pairs(&[["b", &x], ["a", "1"]]),
            ),
            (
                b"\x0d\x18\x18\x00\x00\x00\x12\x00\x00\x00\x04\x00\x00\x01a\x03\xf2\x02\x01b\x03\x03two\xff\x09\x00\xe1\x05\\\x8c\xbd\xfa\xb6\xd8",
                two.clone(),
            ),
            (b"\x09\x0f\x02\x01a\x01\x001\x01b\x03\x01two!\xff\x06\x00\xcbhNd\x8b\xc3\x80\x8d", two),
        ] {
            assert_eq!(decoded(payload, LONGEST), Ok(Dumped::Hash(hash.clone())));
            assert_eq!(kind(payload), Some(Kind::Hash));
            assert_eq!(decoded(&of_hash(&hash), LONGEST), Ok(Dumped::Hash(hash)));
        }
        let twice = pairs(&[["a", "1"], ["a", "1"]]);
        assert_eq!(decoded(&of_hash(&twice), LONGEST), Err(Refused::Format));
        assert_eq!(decoded(&of_hash(&[]), LONGEST), Err(Refused::Format));
    }

    #[test]
    fn hashes_with_fields_that_expire() {
        let field =
            |field: &str, value: &str, at| ([field, value].map(|text| Bytes::from(text.to_owned())), at);
        let fields = vec![field("a", "1", None), field("b", "two", Some(5000)), field("c", "", Some(4000))];
        let payload = of_fields(&fields);
        assert_eq!(payload[..9], [24, 0xa0, 0x0f, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decoded(&payload, LONGEST), Ok(Dumped::Fields(fields.clone())));
        let early = finish_as(b"\x16\x02\x00\x01a\xc0\x01\x80\x00\x00\x13\x88\x01b\x03two".to_vec(), 11);
        assert_eq!(decoded(&early, LONGEST), Ok(Dumped::Fields(fields[..2].to_vec())));
        // Listpacks: a, 1, 0, b, two, 5000.
        let entries = b"\x06\x00\x81a\x02\x01\x01\x00\x01\x81b\x02\x83two\x04\xf1\x88\x13\x03\xff";
        let total = (entries.len() + 4) as u32;
        let blob = [&total.to_le_bytes()[..], entries].concat();
        for head in [&[23][..], &[25, 0x88, 0x13, 0, 0, 0, 0, 0, 0]] {
            let payload = finish_as([head, &[blob.len() as u8][..], &blob[..]].concat(), 12);
            assert_eq!(decoded(&payload, LONGEST), Ok(Dumped::Fields(fields[..2].to_vec())));
            assert_eq!(kind(&payload), Some(Kind::Hash));
        }
        let twice = vec![fields[1].clone(), fields[1].clone()];
        assert_eq!(decoded(&of_fields(&twice), LONGEST), Err(Refused::Format));
        assert_eq!(decoded(&of_fields(&[]), LONGEST), Err(Refused::Format));
    }

    #[test]
    fn round_trips() {
        for length in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
            let bytes = vec![b'x'; length];
            assert_eq!(decoded(&of_string(&bytes), LONGEST), Ok(Dumped::Str(bytes.into())));
        }
        for n in [0i64, -1, 127, 128, -129, 32_767, 32_768, -32_769, i64::from(i32::MIN), 1 << 31, i64::MAX] {
            let text = Bytes::from(n.to_string());
            assert_eq!(decoded(&of_string(&text), LONGEST), Ok(Dumped::Str(text.clone())));
            let members = vec![text, Bytes::from_static(b"a")];
            assert_eq!(decoded(&of_set(&members), LONGEST), Ok(Dumped::Set(members)));
        }
        for text in ["01", "+1", "-0", "1 ", "", "2147483648"] {
            assert_eq!(decoded(&of_string(text.as_bytes()), LONGEST), Ok(Dumped::Str(text.into())));
        }
    }

    const STRINGS: &[(&str, &[u8])] = &[
        ("", b"\x00\x00\x0a\x00]\x9b\x5c@\x0f\x7f\xa2\xda"),
        ("1", b"\x00\xc0\x01\x0a\x00&x\xe7\xb6\xd1\x01\x11\xfc"),
        ("-129", b"\x00\xc1\x7f\xff\x0a\x00\x17`\x82(T\x80\x84\x80"),
        ("65536", b"\x00\xc2\x00\x00\x01\x00\x0a\x00\xc0\x0ak\xa7\x87a8\xda"),
        ("2147483648", b"\x00\x0a2147483648\x0a\x00\xe7\xb1)\xa3L\x1dv\xee"),
        ("-2147483648", b"\x00\xc2\x00\x00\x00\x80\x0a\x00\xc7O\x87>3U\x81\x87"),
        ("hello", b"\x00\x05hello\x0a\x00cr\xdfve4 \x0a"),
        ("01", b"\x00\x0201\x0a\x00l\xdd\xc4A\x14L}\xa4"),
    ];
}
