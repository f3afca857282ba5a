//! The large encoding: two rows a member, and counts above them.
//!
//! ```text
//! K ... -> record of tag 16 or 17: oid
//! N <oid>                       -> version | number of members, as for hashes
//! R <oid> 00 <hash><member>     -> score, 8 bytes
//! R <oid> 01 <score><member>    -> empty, or 00: the score is -0
//! R <oid> 02 ...                -> counts, see `counts`
//! ```
//! A command whose answer depends on certain members reads their rows serializably; one whose answer depends on the
//! order of others reads the places between serializably, or N if it depends on a rank.

use super::Entry;
use super::counts::{self, Counts, NewCounts};
use super::score::Score;
use crate::error::{Error, ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{MAX_RANKED, Oid, Prefix, RankedRow, place};
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Tx, key_after};
use crate::types::object::Count;
use bytes::Bytes;
use std::collections::BTreeMap;
use tokio::task::coop::consume_budget;

/// Bytes requested by one range read.
pub(super) const PAGE: usize = 1 << 18;
/// The value of a place whose score is -0.
const NEGATIVE_ZERO: &[u8] = &[0];

/// Fails for a name that no member can have.
pub(crate) fn check_member(member: &[u8]) -> Result<()> {
    if member.len() > MAX_RANKED {
        let error = format!("ERR a member of a sorted set has at most {MAX_RANKED} bytes");
        return Err(ReplyError::of(error).into());
    }
    Ok(())
}

fn corrupt() -> Error {
    StoreError::Corrupt("a row of a sorted set does not decode".into()).into()
}

fn score(raw: &[u8]) -> Result<Score> {
    Score::decode(raw).ok_or_else(corrupt)
}

/// The place of a member.
pub(super) fn place_of(score: Score, member: &[u8]) -> Vec<u8> {
    place(score.sortable(), member)
}

/// The scores of members, None for those that are absent. A name that is too long is absent.
pub(super) async fn scores(
    s: &Scope<'_>,
    oid: Oid,
    members: &[Bytes],
    read: Read,
) -> Result<Vec<Option<Score>>> {
    let possible = members.iter().filter(|member| member.len() <= MAX_RANKED);
    let keys: Vec<Vec<u8>> = possible.map(|member| s.db.ranked_member(oid, member)).collect();
    let mut rows = get_many(s.tx, &keys, read).await?.into_iter();
    let found = |member: &Bytes| {
        let row = if member.len() <= MAX_RANKED { rows.next().flatten() } else { None };
        row.map(|raw| score(&raw)).transpose()
    };
    members.iter().map(found).collect()
}

/// The rows of a member.
pub(super) fn rows_of(db: Prefix, oid: Oid, member: &[u8], score: Score) -> [(Vec<u8>, Vec<u8>); 2] {
    let sign = if score.is_negative_zero() { NEGATIVE_ZERO } else { &[] };
    [
        (db.ranked_member(oid, member), score.encode().to_vec()),
        (db.ranked_place(oid, &place_of(score, member)), sign.to_vec()),
    ]
}

/// What becomes of a member.
#[derive(Debug, Clone)]
pub struct Change {
    /// The member.
    pub member: Bytes,
    /// The score that it has. None: it is absent.
    pub from: Option<Score>,
    /// The score that it gets. None: it goes.
    pub to: Option<Score>,
}

/// Changes members, each named once. The caller has read their scores serializably, and announces the change.
pub(super) async fn change(s: &Scope<'_>, oid: Oid, changes: &[Change]) -> Result<()> {
    let (mut moved, mut grown) = (BTreeMap::new(), 0);
    for Change { member, from, to } in changes {
        let places = [from, to].map(|score| score.map(|score| place_of(score, member)));
        let [old, new] = &places;
        if let Some(score) = to {
            for (row, value) in rows_of(s.db, oid, member, *score) {
                s.tx.set(&row, &value)?;
            }
        } else {
            s.tx.clear(&s.db.ranked_member(oid, member))?;
        }
        if old != new {
            if let Some(old) = old {
                s.tx.clear(&s.db.ranked_place(oid, old))?;
                *moved.entry(old.clone()).or_insert(0) -= 1;
            }
            if let Some(new) = new {
                *moved.entry(new.clone()).or_insert(0) += 1;
            }
        }
        grown += i64::from(to.is_some()) - i64::from(from.is_some());
        consume_budget().await;
    }
    s.tx.add(&s.db.count(oid), &Count::step(grown))?;
    Counts::new(s, oid).change(moved).await
}

/// Writes the rows of a new object; the entries are distinct and in order.
pub(super) async fn create(s: &Scope<'_>, entries: &[Entry]) -> Result<Oid> {
    let (oid, mut new) = (s.space.fresh.oid(), NewCounts::default());
    let set = |(level, place, count): (u8, Vec<u8>, i64)| -> Result<()> {
        let row = counts::encode(count, s.space.fresh.revision());
        Ok(s.tx.set(&s.db.ranked_boundary(oid, level, &place), &row)?)
    };
    for (member, score) in entries {
        for (row, value) in rows_of(s.db, oid, member, *score) {
            s.tx.set(&row, &value)?;
        }
        new.push(&place_of(*score, member)).into_iter().try_for_each(set)?;
        consume_budget().await;
    }
    new.finish().try_for_each(set)?;
    s.tx.add(&s.db.count(oid), &Count::step(entries.len() as i64))?;
    Ok(oid)
}

/// Members in the order of their places, or in reverse.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    /// Where the rest begins (in reverse: ends). None if there is none.
    pub(super) next: Option<Vec<u8>>,
}

/// The members whose places are between two rows, up to `limit` (0: any number) and about `bytes`.
pub(super) async fn page(
    tx: &Tx,
    db: Prefix,
    (begin, end): (&[u8], &[u8]),
    opts: RangeOptions,
    read: Read,
) -> Result<Page> {
    let rows = tx.get_range(begin, end, opts, read).await?;
    let entry = |(row, value): &(Bytes, Bytes)| match db.decode_ranked_row(row) {
        Some(RankedRow::Place(sortable, member)) => {
            let score = Score::from_sortable(sortable).ok_or_else(corrupt)?;
            let score = if value.is_empty() { Some(score) } else { Score::new(-0.0) };
            Ok((member, score.ok_or_else(corrupt)?))
        }
        Some(RankedRow::Member(..) | RankedRow::Boundary(..)) | None => Err(corrupt()),
    };
    let last = rows.pairs.last().filter(|_| rows.more).map(|(row, _)| row);
    let next = last.map(|row| if opts.reverse { row.to_vec() } else { key_after(row) });
    Ok(Page { entries: rows.pairs.iter().map(entry).collect::<Result<_>>()?, next })
}
