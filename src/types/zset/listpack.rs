//! The small encoding: members and scores in the record, in order.
//!
//! ```text
//! (length of the member u16 LE, member, score, 8 bytes)*
//! ```

use super::Entry;
use super::score::Score;
use crate::error::{Result, StoreError};
use bytes::{BufMut, Bytes};

/// Most bytes in a record: each change of a member writes all of them.
pub(super) const MAX_BYTES: usize = 4 << 10;

/// Bytes of an entry in a record.
pub(super) fn size((member, _): &Entry) -> usize {
    member.len() + 10
}

/// The record's payload: at most [`MAX_BYTES`].
pub(super) fn encode(entries: &[Entry]) -> Bytes {
    let mut out = Vec::with_capacity(entries.iter().map(size).sum());
    for (member, score) in entries {
        out.put_u16_le(member.len() as u16);
        out.put_slice(member);
        // As in Redis, whose listpacks hold integers.
        let score = if score.is_negative_zero() { Score::default() } else { *score };
        out.put_slice(&score.encode());
    }
    out.into()
}

/// The entries of a payload, which share its memory.
pub(super) fn decode(raw: &Bytes) -> Result<Vec<Entry>> {
    let (mut rest, mut entries) = (&raw[..], Vec::with_capacity(raw.len() / 16));
    while !rest.is_empty() {
        let (member, score) = next(&mut rest).ok_or_else(corrupt)?;
        entries.push((raw.slice_ref(member), score));
    }
    Ok(entries)
}

/// The number of members.
pub(super) fn len(raw: &[u8]) -> Result<u64> {
    let (mut rest, mut n) = (raw, 0);
    while !rest.is_empty() {
        next(&mut rest).ok_or_else(corrupt)?;
        n += 1;
    }
    Ok(n)
}

/// The score of a member.
pub(super) fn find(raw: &[u8], member: &[u8]) -> Result<Option<Score>> {
    let mut rest = raw;
    while !rest.is_empty() {
        let (name, score) = next(&mut rest).ok_or_else(corrupt)?;
        if name == member {
            return Ok(Some(score));
        }
    }
    Ok(None)
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Score)> {
    let (len, behind) = rest.split_first_chunk()?;
    let (member, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (score, behind) = behind.split_first_chunk::<8>()?;
    *rest = behind;
    Some((member, Score::decode(score)?))
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("a sorted set in its record does not decode".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_round_trip(entries in proptest::collection::vec((
            proptest::collection::vec(any::<u8>(), 0..20), any::<f64>()), 0..30)) {
            let entries: Vec<Entry> =
                entries.into_iter().filter_map(|(m, n)| Some((m.into(), Score::new(n)?))).collect();
            let raw = encode(&entries);
            prop_assert_eq!(decode(&raw).unwrap(), entries.clone());
            prop_assert_eq!(len(&raw).unwrap(), entries.len() as u64);
            prop_assert_eq!(raw.len(), entries.iter().map(size).sum::<usize>());
            for (member, _) in &entries {
                let first = entries.iter().find(|(name, _)| name == member).map(|(_, score)| *score);
                prop_assert_eq!(find(&raw, member).unwrap(), first);
            }
            for len in 1..raw.len() {
                let cut = decode(&raw.slice(..len));
                prop_assert!(cut.map_or(true, |some| encode(&some).len() == len));
            }
        }
    }
}
