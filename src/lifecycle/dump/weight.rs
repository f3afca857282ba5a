//! What it costs to restore a payload, before it is decoded.

use super::read::{ELEMENT_COST, PACKED_NODE, PLAIN_NODE, Reader};
use super::streams::is_stream;
use super::{
    HASH, HASH_LISTPACK, HASH_LISTPACK_TIMES, HASH_LISTPACK_TIMES_EARLY, HASH_TIMES, HASH_TIMES_EARLY,
    HASH_ZIPLIST, HASH_ZIPMAP, INTSET, LIST, LIST_QUICKLIST, LIST_QUICKLIST2, LIST_ZIPLIST, SET,
    SET_LISTPACK, STRING, ZSET, ZSET_2, ZSET_LISTPACK, ZSET_ZIPLIST,
};

/// What a byte of packed elements costs, in bytes of a string.
const PACKED_COST: usize = 4;
/// A byte of packed elements that become a row each.
const PACKED_ROW_COST: usize = 16;
/// A weight that is too heavy for a lane in any case.
const ENOUGH: usize = 16 << 20;

/// The bytes to process for a payload: its own, or those that it announces if more, and what its elements cost
/// besides. The payload may be malformed.
pub fn weight(payload: &[u8]) -> u64 {
    payload.len().max(announced(payload)) as u64
}

/// What costs as much as a byte of a string.
fn announced(payload: &[u8]) -> usize {
    let Some((kind, rest)) = payload.split_first() else { return 0 };
    let mut reader = Reader { rest, longest: usize::MAX };
    let (packed, each) = match *kind {
        STRING => return reader.skip().unwrap_or(0),
        ZSET_LISTPACK
        | ZSET_ZIPLIST
        | INTSET
        | SET_LISTPACK
        | HASH_LISTPACK
        | HASH_ZIPLIST
        | HASH_ZIPMAP
        | HASH_LISTPACK_TIMES_EARLY => (true, 1),
        HASH_LISTPACK_TIMES => (reader.take(8).is_some(), 1),
        HASH_TIMES => (reader.take(8).is_none(), 3),
        HASH_TIMES_EARLY => (false, 3),
        HASH => (false, 2),
        SET | LIST => (false, 1),
        ZSET | ZSET_2 => return announced_scores(reader, *kind == ZSET_2),
        LIST_ZIPLIST => return reader.skip().unwrap_or(0).saturating_mul(PACKED_ROW_COST),
        LIST_QUICKLIST | LIST_QUICKLIST2 => return announced_nodes(reader, *kind == LIST_QUICKLIST2),
        kind if is_stream(kind) => return announced_entries(reader),
        _ => return 0,
    };
    if packed {
        return reader.skip().unwrap_or(0).saturating_mul(PACKED_COST);
    }
    let (count, mut bytes) = (reader.plain_length().unwrap_or(0), 0_usize);
    for nth in 0..count.saturating_mul(each) {
        // The time of a field is a length.
        let is_time = each == 3 && nth % 3 == 0;
        let size = if is_time { reader.plain_length().map(|_| 0) } else { reader.skip() };
        let Some(size) = size.filter(|_| bytes < ENOUGH) else { break };
        bytes = bytes.saturating_add(size).saturating_add(ELEMENT_COST);
    }
    bytes
}

/// As [`announced`], of a list in nodes.
fn announced_nodes(mut reader: Reader<'_>, with_kinds: bool) -> usize {
    let mut bytes = 0_usize;
    for _ in 0..reader.plain_length().unwrap_or(0) {
        let kind = if with_kinds { reader.plain_length() } else { Some(PACKED_NODE) };
        let cost = if kind == Some(PLAIN_NODE) { 1 } else { PACKED_ROW_COST };
        let Some(size) = reader.skip().filter(|_| bytes < ENOUGH) else { break };
        bytes = bytes.saturating_add(size.saturating_mul(cost)).saturating_add(ELEMENT_COST);
    }
    bytes
}

/// As [`announced`], of a stream: of its nodes, and of what follows them, in which a pending entry becomes two rows.
fn announced_entries(mut reader: Reader<'_>) -> usize {
    let mut bytes = 0_usize;
    for _ in 0..reader.plain_length().unwrap_or(0) {
        let size = reader.skip().and_then(|_| reader.skip());
        let Some(size) = size.filter(|_| bytes < ENOUGH) else { break };
        bytes = bytes.saturating_add(size.saturating_mul(PACKED_COST)).saturating_add(ELEMENT_COST);
    }
    bytes.saturating_add(reader.rest.len().saturating_mul(PACKED_COST))
}

/// As [`announced`], of members with their scores.
fn announced_scores(mut reader: Reader<'_>, are_doubles: bool) -> usize {
    let mut bytes = 0_usize;
    for _ in 0..reader.plain_length().unwrap_or(0) {
        let Some(size) = reader.skip().filter(|_| bytes < ENOUGH) else { break };
        let score = if are_doubles { reader.take(8).map(drop) } else { reader.text_score().map(drop) };
        bytes = bytes.saturating_add(size).saturating_add(2 * ELEMENT_COST);
        if score.is_none() {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::FOOTER;
    use super::*;

    /// What unpacks to much, or to many elements, is not as light as its payload.
    #[test]
    fn weights() {
        let long = b"\xc3\x05\x80\x00\x10\x00\x00packd";
        let tail = &[0; FOOTER][..];
        let weight = |parts: &[&[u8]]| super::weight(&[&parts.concat(), tail].concat());
        assert_eq!(weight(&[b"\x00\x03abc"]), 5 + FOOTER as u64);
        assert_eq!(weight(&[b"\x00", long]), 1 << 20);
        assert_eq!(weight(&[b"\x02\x02", long, long]), (2 << 20) + 2 * ELEMENT_COST as u64);
        assert_eq!(weight(&[b"\x04\x01\x01f", long]), (1 << 20) + 1 + 2 * ELEMENT_COST as u64);
        for packed in [
            &b"\x0b"[..],
            b"\x14",
            b"\x10",
            b"\x0d",
            b"\x09",
            b"\x11",
            b"\x0c",
            b"\x17",
            b"\x19\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(weight(&[packed, long]), (PACKED_COST << 20) as u64, "{packed:?}");
        }
        let scored = [&b"\x05\x02"[..], long, &[0; 8], long, &[0; 8]];
        assert_eq!(weight(&scored), (2 << 20) + 4 * ELEMENT_COST as u64);
        let texts = [&b"\x03\x02"[..], long, b"\x011", long, &[254]];
        assert_eq!(weight(&texts), (2 << 20) + 4 * ELEMENT_COST as u64);
        let times = weight(&[b"\x18\0\0\0\0\0\0\0\0\x01\x05\x01f", long]);
        assert_eq!(times, (1 << 20) + 1 + 3 * ELEMENT_COST as u64);
        let many = [&b"\x02\x80\xff\xff\xff\xff"[..], &b"\x01a".repeat(1000)].concat();
        assert_eq!(weight(&[&many]), 1000 * (1 + ELEMENT_COST as u64) + 10 * ELEMENT_COST as u64);
        for (packed, cost) in
            [(&b"\x0a"[..], 16 << 20), (b"\x0e\x01", (16 << 20) + 32), (b"\x12\x01\x02", (16 << 20) + 32)]
        {
            assert_eq!(weight(&[packed, long]), cost, "{packed:?}");
        }
        assert_eq!(weight(&[b"\x12\x01\x01", long]), (1 << 20) + 32);
        assert_eq!(super::weight(b""), 0);
    }
}
