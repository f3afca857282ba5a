//! Encodes replies for storage: their meaning, not their wire format, so that a client of either protocol
//! can be answered later.
//!
//! ```text
//! 01 | value
//! value: 00 Ok             01 Simple len utf8    02 Error len utf8    03 Int i64          04 Bulk len bytes
//!        05 Nil            06 NilArray           07 Array n value*    08 Set n value*     09 Map n (value value)*
//!        0a Double bits    0b Bool u8            0c Verbatim len b.   0d Push n value*    0e None
//!        0f Pairs n (value value)*    11 Keyed n (value value)*    10 Verbatim len bytes, format: three bytes (0c: txt)
//! ```
//! The first byte is the format's version; lengths and numbers of elements are u32, all numbers little-endian. Tags are never
//! reused.

use super::reply::{Drawn, Reply, Shape, TXT};
use crate::error::ReplyError;
use bytes::{Buf, BufMut, Bytes};

const FORMAT: u8 = 1;
/// The deepest nesting that is decoded. No command's reply has more than a few levels.
const MAX_DEPTH: usize = 64;

/// Encodes a reply. None if it has yet to be read ([`Reply::Members`], [`Reply::Items`], [`Reply::Long`]), or if only DEBUG
/// returns its kind.
pub fn encode(reply: &Reply) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(32);
    out.put_u8(FORMAT);
    put(&mut out, reply)?;
    Some(out)
}

/// Encodes the array of `replies`; None as for [`encode`].
pub(crate) fn encode_array(replies: &[Reply]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(32);
    out.put_u8(FORMAT);
    put_items(&mut out, 7, replies)?;
    Some(out)
}

fn put(out: &mut Vec<u8>, reply: &Reply) -> Option<()> {
    match reply {
        Reply::Ok => out.put_u8(0),
        Reply::Simple(s) => put_bytes(out, 1, s.as_bytes()),
        Reply::Error(e) => put_bytes(out, 2, e.0.as_bytes()),
        Reply::Int(n) => {
            out.put_u8(3);
            out.put_i64_le(*n);
        }
        Reply::Bulk(b) => put_bytes(out, 4, b),
        Reply::Nil => out.put_u8(5),
        Reply::NilArray => out.put_u8(6),
        Reply::Array(items) => put_items(out, 7, items)?,
        Reply::Packed(Shape::Single, strings) => {
            put_length(out, 7, strings.len());
            strings.iter().for_each(|string| put_bytes(out, 4, string));
        }
        Reply::Packed(shape, strings) => put(out, &Reply::unpacked(*shape, strings))?,
        Reply::Drawn(drawn) => put_drawn(out, drawn),
        Reply::Set(items) => put_items(out, 8, items)?,
        Reply::Members(_)
        | Reply::Items(_)
        | Reply::Long(_)
        | Reply::Dumped(_)
        | Reply::Several(_)
        | Reply::Message(_)
        | Reply::BigNumber(_)
        | Reply::Attributes(_)
        | Reply::Speaking(_) => return None,
        Reply::Map(pairs) => put_pairs(out, 9, pairs)?,
        Reply::Pairs(pairs) => put_pairs(out, 15, pairs)?,
        Reply::Keyed(pairs) => put_pairs(out, 17, pairs)?,
        Reply::Double(d) => {
            out.put_u8(10);
            out.put_u64_le(d.to_bits());
        }
        Reply::Bool(b) => out.put_slice(&[11, u8::from(*b)]),
        Reply::Verbatim(b, TXT) => put_bytes(out, 12, b),
        Reply::Verbatim(b, format) => {
            put_bytes(out, 16, b);
            out.put_slice(format);
        }
        Reply::Push(items) => put_items(out, 13, items)?,
        Reply::None => out.put_u8(14),
    }
    Some(())
}

/// Lengths fit: a reply is far below 4 GB.
fn put_length(out: &mut Vec<u8>, tag: u8, n: usize) {
    out.put_u8(tag);
    out.put_u32_le(n as u32);
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    put_length(out, tag, bytes.len());
    out.put_slice(bytes);
}

fn put_items(out: &mut Vec<u8>, tag: u8, items: &[Reply]) -> Option<()> {
    put_length(out, tag, items.len());
    items.iter().try_for_each(|item| put(out, item))
}

fn put_drawn(out: &mut Vec<u8>, drawn: &Drawn) {
    put_length(out, if drawn.with_values() { 15 } else { 7 }, drawn.len());
    for [field, value] in drawn.iter() {
        put_bytes(out, 4, field);
        if drawn.with_values() {
            put_bytes(out, 4, value);
        }
    }
}

fn put_pairs(out: &mut Vec<u8>, tag: u8, pairs: &[(Reply, Reply)]) -> Option<()> {
    put_length(out, tag, pairs.len());
    pairs.iter().try_for_each(|(key, value)| {
        put(out, key)?;
        put(out, value)
    })
}

/// Decodes a reply, whose strings share `raw`. None if [`encode`] did not write it.
pub fn decode(raw: &Bytes) -> Option<Reply> {
    let mut rest = raw.clone();
    if rest.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let reply = value(&mut rest, 0)?;
    rest.is_empty().then_some(reply)
}

fn value(raw: &mut Bytes, depth: usize) -> Option<Reply> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match raw.try_get_u8().ok()? {
        0 => Reply::Ok,
        1 => Reply::Simple(text(raw)?.into()),
        2 => Reply::Error(ReplyError(text(raw)?.into())),
        3 => Reply::Int(raw.try_get_i64_le().ok()?),
        4 => Reply::Bulk(bytes(raw)?),
        5 => Reply::Nil,
        6 => Reply::NilArray,
        7 => Reply::Array(items(raw, depth, value)?),
        8 => Reply::Set(items(raw, depth, value)?),
        9 => Reply::Map(items(raw, depth, pair)?),
        10 => Reply::Double(f64::from_bits(raw.try_get_u64_le().ok()?)),
        11 => Reply::Bool(match raw.try_get_u8().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        }),
        12 => Reply::Verbatim(bytes(raw)?, TXT),
        13 => Reply::Push(items(raw, depth, value)?),
        14 => Reply::None,
        15 => Reply::Pairs(items(raw, depth, pair)?),
        16 => {
            let text = bytes(raw)?;
            let format = *raw.first_chunk()?;
            raw.advance(format.len());
            Reply::Verbatim(text, format)
        }
        17 => Reply::Keyed(items(raw, depth, pair)?),
        _ => return None,
    })
}

fn pair(raw: &mut Bytes, depth: usize) -> Option<(Reply, Reply)> {
    Some((value(raw, depth)?, value(raw, depth)?))
}

fn bytes(raw: &mut Bytes) -> Option<Bytes> {
    let len = raw.try_get_u32_le().ok()? as usize;
    (len <= raw.len()).then(|| raw.split_to(len))
}

fn text(raw: &mut Bytes) -> Option<String> {
    String::from_utf8(bytes(raw)?.to_vec()).ok()
}

/// An element has at least one byte, so a wrong count cannot allocate more than there are bytes.
fn items<T>(raw: &mut Bytes, depth: usize, one: impl Fn(&mut Bytes, usize) -> Option<T>) -> Option<Vec<T>> {
    let n = raw.try_get_u32_le().ok()? as usize;
    if n > raw.len() {
        return None;
    }
    (0..n).map(|_| one(raw, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::packed::Packed;
    use proptest::prelude::*;

    fn any_bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
    }

    /// Every variant.
    fn any_reply() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            Just(Reply::Ok),
            Just(Reply::Nil),
            Just(Reply::NilArray),
            Just(Reply::None),
            ".{0,20}".prop_map(|s| Reply::Simple(s.into())),
            ".{0,20}".prop_map(|s| Reply::Error(ReplyError(s.into()))),
            any::<i64>().prop_map(Reply::Int),
            any_bytes().prop_map(Reply::Bulk),
            (any_bytes(), prop_oneof![Just(TXT), any::<[u8; 3]>()])
                .prop_map(|(text, format)| Reply::Verbatim(text, format)),
            any::<bool>().prop_map(Reply::Bool),
            any::<f64>().prop_filter("NaN is not equal to itself", |d| !d.is_nan()).prop_map(Reply::Double),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            let many = || prop::collection::vec(inner.clone(), 0..6);
            prop_oneof![
                many().prop_map(Reply::Array),
                many().prop_map(Reply::Set),
                many().prop_map(Reply::Push),
                prop::collection::vec((inner.clone(), inner.clone()), 0..6).prop_map(Reply::Map),
                prop::collection::vec((inner.clone(), inner.clone()), 0..6).prop_map(Reply::Pairs),
            ]
        })
    }

    proptest! {
        #[test]
        fn round_trip(reply in any_reply()) {
            prop_assert_eq!(decode(&encode(&reply).unwrap().into()), Some(reply));
        }
        #[test]
        fn packed_strings_are_encoded_as_an_array(strings in prop::collection::vec(any_bytes(), 0..5)) {
            let mut packed = Packed::default();
            strings.iter().for_each(|string| packed.push(string));
            prop_assert_eq!(encode(&Reply::Packed(Shape::Single, packed.into())), encode(&Reply::bulks(strings)));
        }
        #[test]
        fn an_array_is_encoded_as_one(replies in prop::collection::vec(any_reply(), 0..5)) {
            prop_assert_eq!(encode_array(&replies), encode(&Reply::Array(replies)));
        }
        #[test]
        fn what_is_cut_or_longer_is_refused(reply in any_reply(), cut: prop::sample::Index, more: u8) {
            let mut raw = encode(&reply).unwrap();
            let whole = Bytes::from(raw.clone());
            prop_assert_eq!(decode(&whole.slice(..cut.index(whole.len()))), None);
            raw.push(more);
            prop_assert_eq!(decode(&raw.into()), None);
        }
        #[test]
        fn garbage_is_no_panic(mut raw in prop::collection::vec(0u8..20, 0..60)) {
            let _ = decode(&Bytes::from(raw.clone()));
            if let Some(first) = raw.first_mut() {
                *first = FORMAT;
            }
            let _ = decode(&raw.into());
        }
    }

    #[test]
    fn nan_keeps_its_bits() {
        let raw = encode(&Reply::Double(f64::NAN)).unwrap();
        assert!(matches!(decode(&raw.into()), Some(Reply::Double(d)) if d.is_nan()));
    }

    #[test]
    fn nesting_has_an_end() {
        let mut raw = vec![FORMAT];
        for _ in 0..1_000_000 {
            raw.extend([7, 1, 0, 0, 0]);
        }
        raw.push(0);
        assert_eq!(decode(&raw.into()), None);
    }

    #[test]
    fn the_bytes_are_these() {
        let map = Reply::Map(vec![(Reply::bulk_static("k"), Reply::Int(-2))]);
        let raw = encode(&Reply::Array(vec![Reply::Ok, map, Reply::Bool(true)])).unwrap();
        let want = [
            1, 7, 3, 0, 0, 0, 0, 9, 1, 0, 0, 0, 4, 1, 0, 0, 0, b'k', 3, 254, 255, 255, 255, 255, 255, 255,
            255, 11, 1,
        ];
        assert_eq!(raw, want);
    }
}
