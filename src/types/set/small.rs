//! The encodings stored in the record: listpack (raw members in insertion order) and intset (Roaring bytes).
//!
//! A listpack is `(length u16 LE, bytes)*`. Growth follows Redis 7.2: a set of integers is an intset up to
//! [`MAX_INTS`], then a hashtable; any other member makes it a listpack if the result has at most
//! [`MAX_RAW`] members of at most [`MAX_RAW_LEN`] bytes, else a hashtable. No set converts back.
//! An integer outside -2^61 to 2^61 - 1 does not fit an intset here: it has no id of its own.

use super::chunk;
use crate::error::{Result, StoreError};
use crate::keyspace::dictionary::ids::{FIRST_INTEGER, integer_id, integer_text};
use crate::types::set::SetRep;
use bytes::{BufMut, Bytes};
use roaring::RoaringTreemap;
use std::collections::HashSet;

/// Most members of an intset.
pub(crate) const MAX_INTS: usize = 512;
/// Most members of a listpack.
pub(crate) const MAX_RAW: usize = 128;
/// Longest member of a listpack in bytes.
pub(crate) const MAX_RAW_LEN: usize = 64;

/// The members of a set stored in its record.
#[derive(Debug, Clone, PartialEq)]
pub enum Small {
    /// Ids of integers.
    Ints(RoaringTreemap),
    /// Distinct members in insertion order.
    Raw(Vec<Bytes>),
}

/// The result of adding members to a small set.
#[derive(Debug, PartialEq)]
pub(crate) enum Grown {
    /// Still small.
    Small(Small),
    /// All members, distinct, for a chunked set.
    Large(Vec<Bytes>),
}

impl Small {
    /// Decodes a record's payload; None for a chunked set.
    pub fn decode(rep: &SetRep) -> Result<Option<Self>> {
        match rep {
            SetRep::Listpack(raw) => Ok(Some(Small::Raw(decode_raw(raw)?))),
            SetRep::Intset(raw) => Ok(Some(Small::Ints(chunk::decode(raw)?))),
            SetRep::Chunked(_) => Ok(None),
        }
    }
    /// The record's payload.
    pub fn encode(&self) -> Result<SetRep> {
        Ok(match self {
            Small::Ints(ids) => SetRep::Intset(chunk::encode(ids)?),
            Small::Raw(members) => SetRep::Listpack(encode_raw(members)),
        })
    }
    /// An empty set in the encoding with which a set of these members begins. None: a hashtable from the
    /// start.
    fn start(members: &[Bytes]) -> Option<Self> {
        let first_is_int = members.first().is_some_and(|m| integer_id(m).is_some());
        match members.len() {
            ..=MAX_INTS if first_is_int => Some(Small::Ints(RoaringTreemap::new())),
            ..=MAX_RAW => Some(Small::Raw(Vec::new())),
            _ => None,
        }
    }
    /// Number of members.
    pub fn len(&self) -> usize {
        match self {
            Small::Ints(ids) => ids.len() as usize,
            Small::Raw(members) => members.len(),
        }
    }
    /// True if it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether `member` is in the set.
    pub fn contains(&self, member: &[u8]) -> bool {
        match self {
            Small::Ints(ids) => integer_id(member).is_some_and(|id| ids.contains(id)),
            Small::Raw(members) => members.iter().any(|m| m == member),
        }
    }
    /// All members: integers ascending, others in insertion order.
    pub fn members(&self) -> Vec<Bytes> {
        match self {
            Small::Ints(ids) => ids.iter().filter_map(integer_text).collect(),
            Small::Raw(members) => members.clone(),
        }
    }
    /// The member at `rank` of [`Small::members`].
    pub fn nth(&self, rank: u64) -> Option<Bytes> {
        match self {
            Small::Ints(ids) => ids.select(rank).and_then(integer_text),
            Small::Raw(members) => members.get(rank as usize).cloned(),
        }
    }
    /// Removes `member`. Returns true if it was in the set.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Small::Ints(ids) => integer_id(member).is_some_and(|id| ids.remove(id)),
            Small::Raw(members) => {
                let at = members.iter().position(|m| m == member);
                at.map(|at| members.remove(at)).is_some()
            }
        }
    }
    /// Adds one member. False if it does not fit this encoding.
    fn insert(&mut self, member: &Bytes) -> bool {
        match self {
            Small::Ints(ids) => match integer_id(member) {
                Some(id) => {
                    ids.insert(id);
                    ids.len() <= MAX_INTS as u64
                }
                None if ids.len() < MAX_RAW as u64 && member.len() <= MAX_RAW_LEN => {
                    let mut members = self.members();
                    members.push(member.clone());
                    *self = Small::Raw(members);
                    true
                }
                None => false,
            },
            Small::Raw(members) if members.contains(member) => true,
            Small::Raw(members) if members.len() < MAX_RAW && member.len() <= MAX_RAW_LEN => {
                members.push(member.clone());
                true
            }
            Small::Raw(_) => false,
        }
    }
}

/// Whether a set that gets `n` members like `members` may stay small in [`grow`]. If false, it surely does
/// not.
pub(crate) fn may_be_small<'a>(n: usize, members: impl IntoIterator<Item = &'a Bytes>) -> bool {
    n <= MAX_INTS && members.into_iter().all(|m| m.len() <= MAX_RAW_LEN)
}

/// Adds `members` to a set, or to a new one if `set` is None.
pub(crate) fn grow(set: Option<Small>, members: &[Bytes]) -> Grown {
    let too_many = match &set {
        Some(Small::Ints(_)) => members.len() > MAX_INTS,
        Some(Small::Raw(_)) => members.len() > MAX_RAW,
        None => false,
    };
    let before = set.as_ref().map(Small::members).unwrap_or_default();
    let fits = match set.or_else(|| Small::start(members)) {
        Some(mut grown) if !too_many => members.iter().all(|m| grown.insert(m)).then_some(grown),
        _ => None,
    };
    match fits {
        Some(grown) => Grown::Small(grown),
        None => Grown::Large(distinct(before.iter().chain(members))),
    }
}

/// The encoding that Redis gives a set built at once from its members (*STORE).
pub(crate) fn rebuild(members: &[Bytes]) -> Option<Small> {
    if members.len() <= MAX_INTS
        && let Some(ids) = members.iter().map(|m| integer_id(m)).collect::<Option<RoaringTreemap>>()
    {
        return Some(Small::Ints(ids));
    }
    let fits = members.len() <= MAX_RAW && members.iter().all(|m| m.len() <= MAX_RAW_LEN);
    fits.then(|| Small::Raw(members.to_vec()))
}

/// True if all ids are integers, and few enough for an intset.
pub(crate) fn is_intset(ids: &RoaringTreemap) -> bool {
    ids.len() <= MAX_INTS as u64 && ids.min().is_none_or(|id| id >= FIRST_INTEGER)
}

fn distinct<'a>(members: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let mut seen = HashSet::new();
    members.filter(|m| seen.insert(*m)).cloned().collect()
}

fn encode_raw(members: &[Bytes]) -> Bytes {
    let mut out = Vec::with_capacity(members.iter().map(|m| m.len() + 2).sum());
    for m in members {
        out.put_u16_le(m.len() as u16);
        out.put_slice(m);
    }
    out.into()
}

fn decode_raw(raw: &Bytes) -> Result<Vec<Bytes>> {
    let mut members = Vec::new();
    let mut at = 0;
    while let Some([lo, hi]) = raw.get(at..at + 2) {
        let end = at + 2 + usize::from(u16::from_le_bytes([*lo, *hi]));
        if end > raw.len() {
            break;
        }
        members.push(raw.slice(at + 2..end));
        at = end;
    }
    if at == raw.len() {
        Ok(members)
    } else {
        Err(StoreError::Corrupt("a listpack set does not decode".into()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn listpacks_round_trip(members in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..70), 0..40)) {
            let members: Vec<Bytes> = members.into_iter().map(Bytes::from).collect();
            prop_assert_eq!(decode_raw(&encode_raw(&members)).unwrap(), members);
        }
    }

    #[test]
    fn cut_bytes_are_an_error() {
        let raw = encode_raw(&[Bytes::from_static(b"abc")]);
        for len in 1..raw.len() {
            assert!(decode_raw(&raw.slice(..len)).is_err());
            assert!(chunk::decode(&raw.slice(..len)).is_err());
        }
    }

    #[test]
    fn members_at_the_limits() {
        let words = |n: usize| (0..n).map(|n| Bytes::from(format!("w{n}"))).collect::<Vec<_>>();
        let ints = |n: usize| (0..n).map(|n| Bytes::from(n.to_string())).collect::<Vec<_>>();
        assert!(matches!(grow(None, &words(128)), Grown::Small(Small::Raw(_))));
        assert!(matches!(grow(None, &words(129)), Grown::Large(m) if m.len() == 129));
        assert!(matches!(grow(None, &ints(512)), Grown::Small(Small::Ints(_))));
        assert!(matches!(grow(None, &ints(513)), Grown::Large(m) if m.len() == 513));
        let Grown::Small(set) = grow(None, &ints(127)) else { panic!() };
        assert!(matches!(grow(Some(set.clone()), &words(1)), Grown::Small(Small::Raw(m)) if m.len() == 128));
        assert!(matches!(grow(Some(set), &words(2)), Grown::Large(m) if m.len() == 129));
        assert!(rebuild(&ints(512)).is_some() && rebuild(&ints(513)).is_none());
        assert!(rebuild(&words(128)).is_some() && rebuild(&words(129)).is_none());
    }
}
