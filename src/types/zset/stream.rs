//! The pieces of a reply that has many members of a sorted set: see [`crate::types::items`].

use super::rows::{self, PAGE};
use super::{Pick, Places, ZsetRep, skipped};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{RangeOptions, Read, Tx, key_after};
use crate::types::contents::{Contents, Opening, Ranked, Span};
use crate::types::object::{self, Slot};

/// Members up to which a reply is read at once.
pub(crate) const FEW: u64 = if cfg!(test) { 64 } else { 8192 };
/// Members whose lengths stand for those of all.
const SAMPLE: usize = 8;

/// The members of a range of the sorted set that `slot` holds in rows, of which there are `len`. None if they are few
/// or in the record.
pub(crate) async fn find(
    s: &Scope<'_>,
    slot: &Slot,
    (places, pick, len): (&Places, Pick, u64),
    with_scores: bool,
) -> Result<Option<Opening>> {
    let Some(ZsetRep::Rows { oid, .. }) = slot.zset()?.filter(|_| len > FEW) else { return Ok(None) };
    let (oid, reverse) = (*oid, pick.reverse);
    let Some(version) = object::version(s, slot, Read::Serializable).await? else { return Ok(None) };
    let Some((places, rest)) = skipped(s, oid, places, pick).await? else { return Ok(None) };
    let [mut begin, mut end] = rows_of(s.db, oid, &places);
    let limit = rest.skip as usize + SAMPLE;
    let opts = RangeOptions { limit, reverse, ..RangeOptions::default() };
    let first = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?.pairs;
    if let Some((last, _)) = rest.skip.checked_sub(1).and_then(|n| first.get(n as usize)) {
        if reverse {
            end = last.to_vec();
        } else {
            begin = key_after(last);
        }
    }
    let sample = first.iter().skip(rest.skip as usize).map(|(row, _)| row.len() as u64);
    let each = sample.sum::<u64>() / SAMPLE as u64;
    // The side that is read first is the one that moves.
    let (begin, end) = if reverse { (end, begin) } else { (begin, end) };
    let contents = Contents::Ranked(Ranked { reverse, with_scores });
    Ok(Some(Opening { oid, version, contents, span: Span { begin, end, len, each } }))
}

/// The rows of a range: where they begin and end.
pub(crate) fn rows_of(db: Prefix, oid: Oid, places: &Places) -> [Vec<u8>; 2] {
    let end = places.end.as_ref().map_or_else(|| db.ranked_places_end(oid), |end| db.ranked_place(oid, end));
    [db.ranked_place(oid, &places.begin), end]
}

/// Adds about `bytes` of the `left` members to `out`, at least one. Returns their number, and where the next piece
/// begins. Fails if they have more than `most` bytes. In reverse, `from` is the end of the rest.
pub(in crate::types) async fn read(
    (tx, db): (&Tx, Prefix),
    (ranked, left): (Ranked, u64),
    (from, to): (&[u8], &[u8]),
    (bytes, most): (usize, usize),
    out: &mut Packed,
) -> Result<(u64, Option<Vec<u8>>)> {
    let range = if ranked.reverse { (to, from) } else { (from, to) };
    let limit = usize::try_from(left).unwrap_or(0);
    let opts = RangeOptions { limit, bytes: bytes.min(PAGE), reverse: ranked.reverse };
    let page = rows::page(tx, db, range, opts, Read::Snapshot).await?;
    for (member, score) in &page.entries {
        ranked.push(member, *score, out);
        if out.size() > most {
            return Err(StoreError::ReplyTooLarge(out.size()).into());
        }
    }
    let n = page.entries.len() as u64;
    Ok((n, page.next.filter(|_| n < left)))
}
