//! The small encoding: the elements in the record, the first one first.
//!
//! ```text
//! (length u16 LE, bytes)*
//! ```

use crate::error::{Result, StoreError};
use crate::keyspace::packed::Packed;
use bytes::{BufMut, Bytes};
use std::ops::Range;

/// Most bytes in a record: each change writes all of them.
pub(super) const MAX_BYTES: usize = 4 << 10;

/// Bytes of an element in a record.
pub(super) fn size(element: &[u8]) -> usize {
    element.len() + 2
}

/// The record's payload: at most [`MAX_BYTES`].
pub(super) fn encode(elements: &[Bytes]) -> Bytes {
    let mut out = Vec::with_capacity(elements.iter().map(|element| size(element)).sum());
    for element in elements {
        out.put_u16_le(element.len() as u16);
        out.put_slice(element);
    }
    out.into()
}

/// The elements of a payload, which share its memory.
pub(super) fn decode(raw: &Bytes) -> Result<Vec<Bytes>> {
    let (mut rest, mut elements) = (&raw[..], Vec::with_capacity(raw.len() / 16));
    while !rest.is_empty() {
        elements.push(raw.slice_ref(next(&mut rest).ok_or_else(corrupt)?));
    }
    Ok(elements)
}

/// The elements at some indices.
pub(super) fn copied(raw: &[u8], range: Range<u64>) -> Result<Packed> {
    let (mut rest, mut index, mut out) = (raw, 0, Packed::default());
    while !rest.is_empty() && index < range.end {
        let element = next(&mut rest).ok_or_else(corrupt)?;
        if range.contains(&index) {
            out.push(element);
        }
        index += 1;
    }
    Ok(out)
}

/// The number of elements.
pub(super) fn len(raw: &[u8]) -> Result<u64> {
    let (mut rest, mut n) = (raw, 0);
    while !rest.is_empty() {
        next(&mut rest).ok_or_else(corrupt)?;
        n += 1;
    }
    Ok(n)
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk()?;
    let (element, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = behind;
    Some(element)
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a list record does not decode".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_round_trip(all in proptest::collection::vec(proptest::collection::vec(0..4u8, 0..5).prop_map(Bytes::from), 0..40)) {
            let raw = encode(&all);
            prop_assert_eq!(decode(&raw).unwrap(), all.clone());
            prop_assert_eq!(len(&raw).unwrap(), all.len() as u64);
            prop_assert!(copied(&raw, 3..7).unwrap().iter().eq(all.iter().skip(3).take(4)));
            prop_assert_eq!(raw.len(), all.iter().map(|element| size(element)).sum::<usize>());
            for cut in 1..raw.len() {
                let some = decode(&raw.slice(..cut));
                prop_assert!(some.map_or(true, |some| encode(&some).len() == cut));
            }
        }
    }
}
