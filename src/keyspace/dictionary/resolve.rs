//! From ids back to members.
//!
//! Ids are cut into runs: neighbours are read as one range of the rows `b` ([`members`]), others as points.
//! On a networked engine, several runs are read concurrently.

use super::ids::{FIRST_INTEGER, integer_text};
use super::interner::Interner;
use super::members::{self, entries, group};
use crate::error::{Result, StoreError};
use crate::keyspace::keys::root;
use crate::keyspace::packed::Packed;
use crate::keyspace::reads::FEW;
use crate::store::{RangeOptions, Tx, key_after};
use bytes::Bytes;
use futures_util::future::try_join_all;

/// A range read may pass over this many rows for each one wanted, plus [`SLACK`] rows.
const GAP: u64 = 4;
const SLACK: u64 = 16;
/// Shorter runs of neighbours are read as points.
const SHORTEST: usize = 8;
/// The most ids in one range read, and in one group of point reads.
const LONGEST: usize = 1024;
const POINTS: usize = 128;
/// The number of runs read concurrently over a network.
const AT_ONCE: usize = 16;
/// The bytes of one part of a long result that is wanted whole.
const PART: usize = 1 << 18;

#[derive(Debug, PartialEq, Clone, Copy)]
enum Run<'a> {
    /// Nothing to read.
    Integers(&'a [u64]),
    /// Ascending, with small gaps: one range read.
    Near(&'a [u64]),
    /// Point reads.
    Far(&'a [u64]),
}

impl<'a> Run<'a> {
    /// The first run of `ids`, which must not be empty.
    fn first(ids: &'a [u64]) -> Self {
        let integers = ids.iter().take_while(|id| **id >= FIRST_INTEGER).count().min(LONGEST);
        if integers > 0 {
            return Run::Integers(head(ids, integers));
        }
        let near = neighbours(ids);
        if near >= SHORTEST {
            return Run::Near(head(ids, near));
        }
        let mut far = near;
        while far < POINTS
            && let Some((_, rest)) = ids.split_at_checked(far)
            && let near @ 1..SHORTEST = neighbours(rest)
        {
            far += near;
        }
        Run::Far(head(ids, far))
    }

    fn ids(self) -> &'a [u64] {
        match self {
            Run::Integers(ids) | Run::Near(ids) | Run::Far(ids) => ids,
        }
    }

    /// Appends the members of this run to `out`; a range read stops once they reach `bytes`. `again`: see [`Tx::get_bulk`].
    async fn read(self, tx: &Tx, again: bool, bytes: usize, out: &mut Packed) -> Result<()> {
        match self {
            Run::Integers(ids) => {
                ids.iter().filter_map(|id| integer_text(*id)).for_each(|text| out.push(&text));
                Ok(())
            }
            Run::Near(ids) => read_range(tx, ids, bytes, out).await,
            Run::Far(ids) => read_points(tx, ids, again, out).await,
        }
    }
}

fn head(ids: &[u64], n: usize) -> &[u64] {
    ids.get(..n).unwrap_or(ids)
}

/// The number of leading ids that are so close together that one range read is cheapest.
fn neighbours(ids: &[u64]) -> usize {
    let Some(first) = ids.first().filter(|id| **id < FIRST_INTEGER) else { return 0 };
    let near = |(n, pair): &(usize, &[u64])| matches!(pair, [a, b] if b > a && *b < FIRST_INTEGER && b - first <= GAP * (*n as u64 + 1) + SLACK);
    ids.windows(2).enumerate().take_while(near).take(LONGEST - 1).count() + 1
}

impl Interner {
    /// The members of `ids`, in order. An id that was never interned means corrupt data.
    pub async fn resolve(&self, tx: &Tx, ids: &[u64]) -> Result<Vec<Bytes>> {
        let mut out = Vec::with_capacity(ids.len());
        let mut part = Packed::default();
        while let Some((_, rest)) = ids.split_at_checked(out.len()).filter(|(_, rest)| !rest.is_empty()) {
            part.clear();
            resolve_some(tx, rest, PART, &mut part).await?;
            out.extend(part.iter().map(Bytes::copy_from_slice));
        }
        Ok(out)
    }
}

/// Puts the members of the first of `ids` into `out`, which is empty: at least one if `ids` has any, and few
/// more than make up `bytes`.
pub async fn resolve_some(tx: &Tx, ids: &[u64], bytes: usize, out: &mut Packed) -> Result<()> {
    let at_once = if tx.prefers_prefetch() { AT_ONCE } else { 1 };
    let (again, mut rest) = (ids.len() <= FEW, ids);
    while !rest.is_empty() && out.size() < bytes {
        let (group, after) = runs(rest, at_once);
        rest = after;
        let left = bytes - out.size();
        match group[..] {
            [run] => run.read(tx, again, left, out).await?,
            _ => side_by_side(tx, &group, again, left, out).await?,
        }
        if out.len() + rest.len() < ids.len() {
            break;
        }
    }
    Ok(())
}

/// The first runs of `ids`, at most `n`, and the remaining ids.
fn runs(mut ids: &[u64], n: usize) -> (Vec<Run<'_>>, &[u64]) {
    let mut runs = Vec::with_capacity(n);
    while runs.len() < n && !ids.is_empty() {
        let run = Run::first(ids);
        ids = ids.get(run.ids().len()..).unwrap_or_default();
        runs.push(run);
    }
    (runs, ids)
}

/// Reads runs concurrently; stops after the first that was not read to its end.
async fn side_by_side(tx: &Tx, runs: &[Run<'_>], again: bool, bytes: usize, out: &mut Packed) -> Result<()> {
    let each = runs.iter().map(|run| async move {
        let mut members = Packed::default();
        run.read(tx, again, bytes, &mut members).await.map(|()| members)
    });
    for (run, members) in runs.iter().zip(try_join_all(each).await?) {
        let whole = members.len() == run.ids().len();
        members.iter().for_each(|member| out.push(member));
        if !whole {
            break;
        }
    }
    Ok(())
}

async fn read_points(tx: &Tx, ids: &[u64], again: bool, out: &mut Packed) -> Result<()> {
    for (id, member) in ids.iter().zip(members::read(tx, ids, again).await?) {
        out.push(&member.ok_or_else(|| unknown(*id))?);
    }
    Ok(())
}

async fn read_range(tx: &Tx, ids: &[u64], bytes: usize, out: &mut Packed) -> Result<()> {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(()) };
    let opts = RangeOptions { bytes, ..RangeOptions::default() };
    let (mut begin, end) = (root::member(group(*first)).to_vec(), root::member(last + 1));
    let mut wanted = ids.iter().copied().peekable();
    let (mut found, mut more) = (0, true);
    // Rows in front of the first wanted id, in its group, may use up the bytes of a page.
    while more && found == 0 {
        let mut at = Vec::new();
        let mut each = |key: &[u8], row: &[u8]| {
            for (id, member) in entries(key, row).into_iter().flatten() {
                if wanted.next_if_eq(&id).is_some() {
                    out.push(member);
                    found += 1;
                }
            }
            if found == 0 {
                at = key_after(key);
            }
        };
        more = tx.visit(&begin, &end, opts, &mut each).await?;
        begin = at;
    }
    let missing = ids.get(found).filter(|_| !more);
    missing.map_or(Ok(()), |id| Err(unknown(*id).into()))
}

fn unknown(id: u64) -> StoreError {
    StoreError::Corrupt(format!("no member for id {id:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(ids: &[u64]) -> Vec<Run<'_>> {
        super::runs(ids, ids.len()).0
    }

    #[test]
    fn neighbours_are_read_as_ranges() {
        let near: Vec<u64> = (10..20).collect();
        assert_eq!(runs(&near), [Run::Near(&near)]);
        let mixed: Vec<u64> = [1, 500].into_iter().chain(600..610).chain([5, 700]).collect();
        assert_eq!(runs(&mixed), [Run::Far(&mixed[..2]), Run::Near(&mixed[2..12]), Run::Far(&mixed[12..])]);
        assert_eq!(runs(&[3, 2, 1]), [Run::Far(&[3, 2, 1])]);
        assert_eq!(runs(&[]), []);
        // Gaps add up: a large one among small ones does not end a run.
        let uneven: Vec<u64> = (0..400).flat_map(|n| [n * 9, n * 9 + 1, n * 9 + 2]).collect();
        assert_eq!(runs(&uneven).len(), 2);
        let sparse: Vec<u64> = (0..200).map(|n| n * 100).collect();
        assert_eq!(runs(&sparse), [Run::Far(&sparse[..POINTS]), Run::Far(&sparse[POINTS..])]);
    }

    #[test]
    fn integers_are_runs_of_their_own() {
        let ids: Vec<u64> = (0..10).chain(FIRST_INTEGER..FIRST_INTEGER + 9).chain([4]).collect();
        assert_eq!(runs(&ids), [Run::Near(&ids[..10]), Run::Integers(&ids[10..19]), Run::Far(&ids[19..])]);
    }

    #[test]
    fn runs_have_an_end() {
        let ids: Vec<u64> = (0..3000).collect();
        let lengths: Vec<usize> = runs(&ids).iter().map(|run| run.ids().len()).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 3000 - 2 * LONGEST]);
    }
}
