//! Reads entries by their ids.

use super::StreamRep;
use super::entry::{self, Entry, Held};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::Id;
use crate::store::{RangeOptions, Read, key_after};
use tokio::task::coop::consume_budget;

/// Bytes requested by one range read.
pub(super) const PAGE: usize = 1 << 18;

/// The ids from the first to the second, both included.
pub type Span = (Id, Id);

/// The rows of a span of a stream that may have entries. None if it has none.
pub(super) fn rows(s: &Scope<'_>, rep: &StreamRep, (from, to): Span) -> Option<(Vec<u8>, Vec<u8>)> {
    let (from, to) = (from.max(rep.first), to.min(rep.last));
    (rep.len > 0 && from <= to).then(|| (s.db.entry(rep.oid, from), key_after(&s.db.entry(rep.oid, to))))
}

/// A walk through the entries of a span.
pub(crate) struct Walk {
    rows: Option<(Vec<u8>, Vec<u8>)>,
    reverse: bool,
    rep: StreamRep,
    /// Bytes of a page.
    bytes: usize,
}

impl Walk {
    /// From the first entry of the span to the last, or the other way.
    pub(crate) fn new(s: &Scope<'_>, rep: &StreamRep, span: Span, reverse: bool) -> Self {
        Walk { rows: rows(s, rep, span), reverse, rep: *rep, bytes: PAGE }
    }

    /// The next entries, `limit` at most (0: as many as a page holds). None at the end.
    pub(crate) async fn next(&mut self, s: &Scope<'_>, limit: usize) -> Result<Option<Vec<(Id, Held)>>> {
        let Some((begin, end)) = self.rows.take() else { return Ok(None) };
        let opts = RangeOptions { limit, bytes: self.bytes, reverse: self.reverse };
        let page = s.tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
        if let Some((row, _)) = page.pairs.last().filter(|_| page.more) {
            self.rows = Some(if self.reverse { (begin, row.to_vec()) } else { (key_after(row), end) });
        }
        consume_budget().await;
        let entries = page.pairs.iter().map(|pair| entry::decode(s.db, pair)).collect::<Result<Vec<_>>>()?;
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// The fields of an entry that it found.
    pub(crate) async fn read(&self, s: &Scope<'_>, id: Id, held: Held) -> Result<Entry> {
        Ok(Entry { id, raw: held.read(s.tx, s.db, self.rep.oid, id).await? })
    }
}

/// The first `count` entries of a span, from its end if `reverse`. `weigh` is shown the bytes of each before it is read,
/// and may fail.
pub(crate) async fn read(
    s: &Scope<'_>,
    rep: &StreamRep,
    span: Span,
    (count, reverse): (u64, bool),
    mut weigh: impl FnMut(u64) -> Result<()>,
) -> Result<Vec<Entry>> {
    let (mut walk, mut found) = (Walk::new(s, rep, span, reverse), Vec::new());
    read_while(s, &mut walk, count, &mut found, |bytes| weigh(bytes).map(|()| true)).await?;
    Ok(found)
}

/// As [`read`]. None if they have more than `most` bytes.
pub(crate) async fn few(
    s: &Scope<'_>,
    rep: &StreamRep,
    span: Span,
    (count, reverse): (u64, bool),
    most: u64,
) -> Result<Option<Vec<Entry>>> {
    let mut walk = Walk { bytes: most as usize, ..Walk::new(s, rep, span, reverse) };
    let (mut found, mut bytes) = (Vec::new(), 0_u64);
    let fits = |of_one| {
        bytes = bytes.saturating_add(of_one);
        Ok(bytes <= most)
    };
    Ok(read_while(s, &mut walk, count, &mut found, fits).await?.then_some(found))
}

/// Appends the next `count` entries to `found`. False if it ended because of `goes_on`, which is shown the bytes of each.
async fn read_while(
    s: &Scope<'_>,
    walk: &mut Walk,
    count: u64,
    found: &mut Vec<Entry>,
    mut goes_on: impl FnMut(u64) -> Result<bool>,
) -> Result<bool> {
    loop {
        let left = count - found.len() as u64;
        if left == 0 {
            return Ok(true);
        }
        let limit = usize::try_from(left).unwrap_or(0);
        let Some(page) = walk.next(s, limit).await? else { return Ok(true) };
        for (id, held) in page {
            if !goes_on(held.len().saturating_add(entry::ROW))? {
                return Ok(false);
            }
            found.push(walk.read(s, id, held).await?);
        }
    }
}

/// An entry as its row has it. None if there is none of that id.
pub(crate) async fn find(s: &Scope<'_>, rep: &StreamRep, id: Id) -> Result<Option<Held>> {
    if rep.len == 0 || id < rep.first || id > rep.last {
        return Ok(None);
    }
    let row = s.tx.get(&s.db.entry(rep.oid, id), Read::Snapshot).await?;
    row.map(|raw| Held::decode(&raw)).transpose()
}

/// An entry. None if there is none of that id.
pub(crate) async fn get(s: &Scope<'_>, rep: &StreamRep, id: Id) -> Result<Option<Entry>> {
    let Some(held) = find(s, rep, id).await? else { return Ok(None) };
    Ok(Some(Entry { id, raw: held.read(s.tx, s.db, rep.oid, id).await? }))
}

/// The id of the first entry of a span, or of the last one.
pub(crate) async fn end(s: &Scope<'_>, rep: &StreamRep, span: Span, last: bool) -> Result<Option<Id>> {
    let page = Walk::new(s, rep, span, last).next(s, 1).await?;
    Ok(page.and_then(|page| page.first().map(|(id, _)| *id)))
}
