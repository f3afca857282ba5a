//! ZSCAN: stateless, in the order of the members' hashes, as HSCAN.

use super::record::ZsetRep;
use super::score::Score;
use super::{Entry, listpack};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, RankedRow};
use crate::store::{RangeOptions, Read, key_after};
use crate::types::cursor::{self, group, start};
use crate::types::object;

/// Bytes requested by one range read.
const PAGE: usize = 1 << 18;
/// The most members of a sorted set named listpack that are returned at once, if it is in rows.
const SMALL: usize = 1024;

/// A page of about `count` members with their scores, and the next cursor.
pub(crate) async fn scan(
    s: &Scope<'_>,
    rep: Option<&ZsetRep>,
    (cursor, count): (u64, usize),
) -> Result<(u64, Vec<Entry>)> {
    let (oid, count) = match rep {
        None => return Ok((0, Vec::new())),
        Some(ZsetRep::Listpack(raw)) => return Ok((0, listpack::decode(raw)?)),
        Some(ZsetRep::Rows { oid, is_small: true }) => (*oid, count.max(SMALL)),
        Some(ZsetRep::Rows { oid, is_small: false }) => (*oid, count),
    };
    let Some(from) = start(cursor.saturating_sub(1)) else { return Ok((0, Vec::new())) };
    // In a transaction that writes, every change of the sorted set conflicts.
    object::count(s, oid, Read::Serializable).await?;
    let (begin, end) = (s.db.ranked_members_from(oid, from), s.db.ranked_members_end(oid));
    let (mut found, more) = page(s, (&begin, &end), count.saturating_add(1)).await?;
    let mut next = 0;
    if more.is_some()
        && let Some(last) = found.last().map(|(hash, _)| group(*hash))
    {
        if found.first().is_some_and(|(hash, _)| group(*hash) == last) {
            found = whole_group(s, oid, last).await?;
            next = cursor::of(last + 1);
        } else {
            found.retain(|(hash, _)| group(*hash) != last);
            next = cursor::of(last);
        }
    }
    Ok((next, found.into_iter().map(|(_, entry)| entry).collect()))
}

/// Members by their hashes, and where the rest begins.
async fn page(
    s: &Scope<'_>,
    (begin, end): (&[u8], &[u8]),
    limit: usize,
) -> Result<(Vec<(u64, Entry)>, Option<Vec<u8>>)> {
    let opts = RangeOptions { limit, bytes: PAGE, reverse: false };
    let rows = s.tx.get_range(begin, end, opts, Read::Snapshot).await?;
    let corrupt = || StoreError::Corrupt("a member of a sorted set does not decode".into());
    let mut found = Vec::with_capacity(rows.pairs.len());
    for (row, raw) in &rows.pairs {
        let Some(RankedRow::Member(hash, member)) = s.db.decode_ranked_row(row) else {
            return Err(corrupt().into());
        };
        found.push((hash, (member, Score::decode(raw).ok_or_else(corrupt)?)));
    }
    Ok((found, rows.pairs.last().filter(|_| rows.more).map(|(row, _)| key_after(row))))
}

/// All members of a group, however many.
async fn whole_group(s: &Scope<'_>, oid: Oid, group: u64) -> Result<Vec<(u64, Entry)>> {
    let at = |group| {
        start(group).map_or_else(|| s.db.ranked_members_end(oid), |hash| s.db.ranked_members_from(oid, hash))
    };
    let (mut begin, end) = (at(group), at(group + 1));
    let mut all = Vec::new();
    loop {
        let (found, next) = page(s, (&begin, &end), 0).await?;
        all.extend(found);
        match next {
            Some(next) => begin = next,
            None => return Ok(all),
        }
    }
}
