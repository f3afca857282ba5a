//! The small encoding: fields and values in the record, in the order in which the fields came.
//!
//! ```text
//! (length of the field u16 LE, field, length of the value u16 LE, value)*
//! ```

use super::Pair;
use crate::error::{Result, StoreError};
use crate::keyspace::packed::Packed;
use crate::types::contents::Parts;
use bytes::{BufMut, Bytes};
use std::collections::HashMap;

/// Most bytes in a record: each change of a field writes all of them.
pub(super) const MAX_BYTES: usize = 4 << 10;
/// Comparisons up to which fields are looked up one by one.
const FEW: usize = 1024;

/// A field and its value in a record.
pub(super) type Slices<'a> = (&'a [u8], &'a [u8]);

/// Bytes of a pair in a record.
pub(super) fn size((field, value): Slices<'_>) -> usize {
    field.len() + value.len() + 4
}

/// The record's payload: at most [`MAX_BYTES`].
pub(super) fn encode(pairs: &[Slices<'_>]) -> Bytes {
    let mut out = Vec::with_capacity(pairs.iter().map(|pair| size(*pair)).sum());
    for (field, value) in pairs {
        for part in [field, value] {
            out.put_u16_le(part.len() as u16);
            out.put_slice(part);
        }
    }
    out.into()
}

/// The pairs of a payload.
pub(super) fn decode(raw: &[u8]) -> Result<Vec<Slices<'_>>> {
    let mut rest = raw;
    let mut pairs = Vec::with_capacity(raw.len() / 16);
    while !rest.is_empty() {
        pairs.push(next(&mut rest).ok_or_else(corrupt)?);
    }
    Ok(pairs)
}

/// The pairs of a payload, which share its memory.
pub(super) fn pairs(raw: &Bytes) -> Result<Vec<Pair>> {
    let pairs = decode(raw)?.into_iter();
    Ok(pairs.map(|(field, value)| [raw.slice_ref(field), raw.slice_ref(value)]).collect())
}

/// Adds these parts of the pairs of a payload to `out`.
pub(super) fn copy(raw: &[u8], parts: Parts, out: &mut Packed) -> Result<()> {
    let mut rest = raw;
    while !rest.is_empty() {
        let (field, value) = next(&mut rest).ok_or_else(corrupt)?;
        parts.push(field, value, out);
    }
    Ok(())
}

/// The number of fields.
pub(super) fn len(raw: &[u8]) -> Result<u64> {
    let (mut rest, mut n) = (raw, 0);
    while !rest.is_empty() {
        next(&mut rest).ok_or_else(corrupt)?;
        n += 1;
    }
    Ok(n)
}

/// The value of a field.
pub(super) fn find<'a>(raw: &'a [u8], field: &[u8]) -> Result<Option<&'a [u8]>> {
    let mut rest = raw;
    while !rest.is_empty() {
        let (name, value) = next(&mut rest).ok_or_else(corrupt)?;
        if name == field {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// `old` with `pairs` set; the last value of each field counts.
pub(super) fn grow<'a>(mut old: Vec<Slices<'a>>, pairs: &'a [Pair]) -> Vec<Slices<'a>> {
    if pairs.len() * (old.len() + pairs.len()) <= FEW {
        for [field, value] in pairs {
            match old.iter_mut().find(|(name, _)| *name == field) {
                Some(pair) => pair.1 = value,
                None => old.push((field, value)),
            }
        }
        return old;
    }
    let mut places: HashMap<&[u8], usize> =
        old.iter().enumerate().map(|(place, (field, _))| (*field, place)).collect();
    for [field, value] in pairs {
        match places.get(&field[..]).and_then(|place| old.get_mut(*place)) {
            Some(pair) => pair.1 = value,
            None => {
                places.insert(field, old.len());
                old.push((field, value));
            }
        }
    }
    old
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<Slices<'a>> {
    Some((part(rest)?, part(rest)?))
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk()?;
    let (part, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = behind;
    Some(part)
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a hash record does not decode".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn many(most: usize) -> impl Strategy<Value = Vec<Pair>> {
        let bytes = || proptest::collection::vec(0..4u8, 0..5).prop_map(Bytes::from);
        proptest::collection::vec((bytes(), bytes()).prop_map(|(field, value)| [field, value]), 0..most)
    }

    fn grown(old: &[Pair], new: &[Pair]) -> Bytes {
        encode(&grow(grow(Vec::new(), old), new))
    }

    proptest! {
        #[test]
        fn pairs_round_trip(all in many(60), more in many(60)) {
            let raw = grown(&all, &more);
            let mut model: Vec<Pair> = Vec::new();
            for [field, value] in all.iter().chain(&more) {
                match model.iter_mut().find(|pair| pair[0] == *field) {
                    Some(pair) => pair[1] = value.clone(),
                    None => model.push([field.clone(), value.clone()]),
                }
            }
            prop_assert_eq!(pairs(&raw).unwrap(), model.clone());
            prop_assert_eq!(len(&raw).unwrap(), model.len() as u64);
            prop_assert_eq!(raw.len(), decode(&raw).unwrap().into_iter().map(size).sum::<usize>());
            for [field, value] in &model {
                prop_assert_eq!(find(&raw, field).unwrap(), Some(&value[..]));
            }
            prop_assert_eq!(find(&raw, b"another").unwrap(), None);
            for len in 1..raw.len() {
                let cut = decode(&raw[..len]);
                prop_assert!(cut.map_or(true, |some| encode(&some).len() == len));
            }
        }
    }
}
