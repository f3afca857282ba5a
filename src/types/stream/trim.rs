//! XTRIM, XDEL and XSETID: what removes entries.
//!
//! A trimmed stream loses its first entries: however many, two ranges of rows are cleared, and the record says where
//! the rest begins. The new beginning is looked for from the nearer end.

use super::StreamRep;
use super::entry::{self, Held};
use super::range::{self, Walk};
use super::record::put;
use super::references::{Policy, References};
use crate::error::Result;
use crate::keyspace::keys::{Id, Oid, StreamRow};
use crate::keyspace::{Scope, reads};
use crate::store::{RangeOptions, key_after, prefix_end};
use crate::types::object::Slot;
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::coop::consume_budget;

/// Entries of which the rows are cleared one by one.
const FEW: u64 = 128;
/// Ids that are too many for a lane, and how many entries each may have for a walk to be faster than a search.
const MANY: usize = 16 << 10;
const SPARSE: u64 = 16;
/// Bytes of entries that a walk may pass in any case, and those that it passes in the time of a search.
const PASSED_AT_ONCE: u64 = 64 << 20;
const SEARCH: u64 = 16 << 10;
/// Entries that ACKED leaves before it gives up.
const PASSED: u64 = 1 << 18;
/// Rows that one read passes.
const PAGE: RangeOptions = RangeOptions { limit: 4096, bytes: 1 << 18, reverse: false };
/// Entries of a node whose number the options do not limit.
const NODE: u64 = 100;

/// The entries that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// The last ones, this number.
    Length(u64),
    /// Those of this id and larger ones.
    From(Id),
}

/// Redis removes only whole nodes of its own representation if it may choose (`~`), and not too many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    /// The most entries of a node (0: any number).
    pub entries: u64,
    /// The most bytes of a node (0: any number).
    pub bytes: u64,
    /// The most entries to remove (0: any number).
    pub limit: u64,
    /// The bytes of an entry that is about to be added, and stays. It counts as the stream's last one.
    pub behind: Option<u64>,
}

impl Nodes {
    /// Entries of a node, if an entry has `size` bytes.
    fn each(&self, size: u64) -> u64 {
        let each = if self.entries == 0 { NODE } else { self.entries };
        if self.bytes == 0 { each } else { each.min((self.bytes / size.max(1)).max(1)) }
    }
}

/// What XTRIM or XADD removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// What stays.
    pub threshold: Threshold,
    /// None: exactly.
    pub nodes: Option<Nodes>,
    /// What happens to the references of groups.
    pub policy: Policy,
}

impl Trim {
    /// Whether an entry with the largest id is removed, if all others are.
    pub(crate) fn removes_last(&self, id: Id) -> bool {
        match self.threshold {
            Threshold::Length(len) => len == 0,
            Threshold::From(from) => id < from,
        }
    }
}

/// Removes the first entries of a stream. Returns their number. The caller writes the record. `weigh` is shown the bytes
/// to be read before anything is written, and may fail.
pub(crate) async fn trim(
    s: &Scope<'_>,
    rep: &mut StreamRep,
    trim: &Trim,
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<u64> {
    let mut n = match trim.threshold {
        Threshold::Length(len) => rep.len.saturating_sub(len),
        Threshold::From(from) => before(s, rep, from, &weigh).await?,
    };
    if let (Some(nodes), 1..) = (&trim.nodes, n) {
        n = whole(s, rep, nodes, (n, trim.policy)).await?;
    }
    if n == 0 {
        return Ok(0);
    }
    match trim.policy {
        Policy::Keep => remove_first(s, rep, n, &weigh).await?,
        Policy::Delete => {
            let mut references = References::load(s, rep.oid, &weigh).await?;
            weigh(references.bytes(n))?;
            let left = rep.len - n;
            let last = match left < n {
                true => nth(s, rep, left, true).await?,
                false => nth(s, rep, n - 1, false).await?,
            };
            references.delete_in(s, rep, (rep.first, last.unwrap_or(rep.last))).await?;
            references.settle(s)?;
            remove_first(s, rep, n, &weigh).await?;
        }
        Policy::Acked => return remove_acked(s, rep, (trim, n), &weigh).await,
    }
    Ok(n)
}

/// As many of the first `n` entries as make up whole nodes, within the limit. Where references are regarded, Redis trims
/// inside of the last node, too, if all of it is within the limit.
async fn whole(s: &Scope<'_>, rep: &StreamRep, nodes: &Nodes, (n, policy): (u64, Policy)) -> Result<u64> {
    let is_exact = policy != Policy::Keep || n == rep.len + u64::from(nodes.behind.is_some());
    // Of the first node some entries may be gone: nodes are counted from the stream's first entry ever.
    let whole = |n: u64, each: u64| {
        let gone = rep.removed() % each;
        (n.saturating_add(gone) / each * each).saturating_sub(gone)
    };
    // Most streams have entries of one size: their first ones are read once for each node.
    if nodes.behind.is_some_and(|size| !is_exact && whole(n, nodes.each(size)) == 0) {
        return Ok(0);
    }
    let each = if nodes.bytes > 0 { nodes.each(entry::size(s, rep).await?) } else { nodes.each(0) };
    let limit = if nodes.limit == 0 { u64::MAX } else { nodes.limit };
    // The last node may be smaller.
    let most = if rep.len <= limit { rep.len } else { whole(limit, each) };
    Ok(if is_exact { n.min(most) } else { whole(n.min(most), each) })
}

/// The number of entries before an id.
async fn before(s: &Scope<'_>, rep: &StreamRep, id: Id, weigh: impl Fn(u64) -> Result<()>) -> Result<u64> {
    if rep.len == 0 || id <= rep.first {
        return Ok(0);
    }
    if id > rep.last {
        return Ok(rep.len);
    }
    let (ahead, behind) = halves(s, rep, id);
    count_rows(s, rep, (ahead, Some(behind)), u64::MAX, weigh).await
}

/// The rows of the entries before an id, and those of the others.
fn halves(s: &Scope<'_>, rep: &StreamRep, id: Id) -> (Count, Count) {
    let [first, id, last] = [rep.first, id, rep.last].map(|id| s.db.entry(rep.oid, id));
    (Count::new(first, id.clone()), Count::new(id, key_after(&last)))
}

/// The number of some rows, up to `most`; `others`: all other rows of entries, which are counted at the same time, because their
/// number tells it as well. `weigh` is shown the bytes read so far.
async fn count_rows(
    s: &Scope<'_>,
    rep: &StreamRep,
    (mut rows, mut others): (Count, Option<Count>),
    most: u64,
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<u64> {
    loop {
        rows.go_on(s, most).await?;
        if rows.is_over || rows.n >= most {
            return Ok(rows.n);
        }
        let mut passed = rows.n;
        if let Some(others) = &mut others {
            others.go_on(s, u64::MAX).await?;
            if others.is_over {
                return Ok(rep.len.saturating_sub(others.n).min(most));
            }
            passed += others.n;
        }
        weigh(passed.saturating_mul(entry::ROW))?;
    }
}

/// Counts rows.
struct Count {
    begin: Vec<u8>,
    end: Vec<u8>,
    reverse: bool,
    n: u64,
    /// The row counted last.
    last: Vec<u8>,
    is_over: bool,
}

impl Count {
    fn new(begin: Vec<u8>, end: Vec<u8>) -> Self {
        Count { begin, end, reverse: false, n: 0, last: Vec::new(), is_over: false }
    }

    /// Passes the next rows, up to `most` in all.
    async fn go_on(&mut self, s: &Scope<'_>, most: u64) -> Result<()> {
        let left = usize::try_from(most - self.n).unwrap_or(usize::MAX);
        let opts = RangeOptions { limit: PAGE.limit.min(left), reverse: self.reverse, ..PAGE };
        let (n, last) = (&mut self.n, &mut self.last);
        let mut each = |row: &[u8], _: &[u8]| {
            *n += 1;
            last.clear();
            last.extend_from_slice(row);
        };
        let more = s.tx.visit(&self.begin, &self.end, opts, &mut each).await?;
        self.is_over = !more;
        match self.reverse {
            true => self.end.clone_from(&self.last),
            false => self.begin = key_after(&self.last),
        }
        consume_budget().await;
        Ok(())
    }
}

/// The id of the `nth` entry, counted from 0, from an end.
async fn nth(s: &Scope<'_>, rep: &StreamRep, nth: u64, reverse: bool) -> Result<Option<Id>> {
    let end = key_after(&s.db.entry(rep.oid, rep.last));
    let mut count = Count { reverse, ..Count::new(s.db.entry(rep.oid, rep.first), end) };
    while count.n <= nth {
        if count.is_over {
            return Ok(None);
        }
        count.go_on(s, nth + 1).await?;
    }
    Ok(match s.db.decode_stream_row(&count.last) {
        Some(StreamRow::Entry(id)) => Some(id),
        _ => None,
    })
}

/// How many entries of a span there are, up to `most`. `weigh` is shown the bytes read so far.
pub(crate) async fn count(
    s: &Scope<'_>,
    rep: &StreamRep,
    (from, to): range::Span,
    most: u64,
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<u64> {
    let Some((begin, end)) = range::rows(s, rep, (from, to)) else { return Ok(0) };
    let (rows, others) = match () {
        () if from <= rep.first && to >= rep.last => return Ok(rep.len.min(most)),
        () if to >= rep.last => {
            let (ahead, behind) = halves(s, rep, from);
            (behind, Some(ahead))
        }
        () if from <= rep.first => match to.next() {
            Some(next) => {
                let (ahead, behind) = halves(s, rep, next);
                (ahead, Some(behind))
            }
            None => return Ok(rep.len.min(most)),
        },
        () => (Count::new(begin, end), None),
    };
    count_rows(s, rep, (rows, others), most, weigh).await
}

/// The first `n` entries.
async fn first(s: &Scope<'_>, rep: &StreamRep, n: u64) -> Result<Vec<(Id, Held)>> {
    let mut walk = Walk::new(s, rep, (Id::MIN, Id::MAX), false);
    let mut found = Vec::new();
    while let left @ 1.. = n - found.len() as u64 {
        match walk.next(s, usize::try_from(left).unwrap_or(0)).await? {
            Some(page) => found.extend(page),
            None => break,
        }
    }
    Ok(found)
}

async fn remove_first(
    s: &Scope<'_>,
    rep: &mut StreamRep,
    n: u64,
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    let left = rep.len - n;
    if n <= FEW {
        let mut entries = first(s, rep, n + u64::from(left > 0)).await?.into_iter();
        for (id, held) in entries.by_ref().take(n as usize) {
            entry::clear(s, rep.oid, id, held.is_long())?;
        }
        rep.first = entries.next().map_or(Id::MIN, |(id, _)| id);
    } else {
        weigh(n.min(left).saturating_mul(entry::ROW))?;
        let new = match left {
            0 => None,
            _ if left <= n => nth(s, rep, left - 1, true).await?,
            _ => nth(s, rep, n, false).await?,
        };
        let begin = s.db.entry(rep.oid, rep.first);
        let end = new.map_or_else(|| s.db.entries_end(rep.oid), |id| s.db.entry(rep.oid, id));
        s.tx.clear_range(&begin, &end)?;
        let begin = s.db.entry_pieces(rep.oid, rep.first);
        let end = new.map_or_else(|| s.db.entry_pieces_end(rep.oid), |id| s.db.entry_pieces(rep.oid, id));
        s.tx.clear_range(&begin, &end)?;
        rep.first = new.unwrap_or(Id::MIN);
    }
    rep.len = left;
    Ok(())
}

/// Removes entries that no group refers to, from the first on: exactly as many as exceed the threshold, or those among the
/// first `n`. Of entries that groups refer to, only so many are passed.
async fn remove_acked(
    s: &Scope<'_>,
    rep: &mut StreamRep,
    (trim, n): (&Trim, u64),
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<u64> {
    let references = References::load(s, rep.oid, &weigh).await?;
    let (old, mut walk) = (*rep, Walk::new(s, rep, (Id::MIN, Id::MAX), false));
    let (mut gone, mut seen, mut limit) = (Vec::new(), 0, FEW as usize);
    'all: while let Some(page) = walk.next(s, limit).await? {
        let (Some((from, _)), Some((to, _))) = (page.first(), page.last()) else { break };
        if *from > references.delivered() || seen - gone.len() as u64 > PASSED {
            break;
        }
        weigh(references.bytes(seen + page.len() as u64))?;
        let needed = references.pending(s, (*from, *to)).await?;
        limit = 0;
        for (id, held) in page {
            let is_over = match trim.threshold {
                _ if trim.nodes.is_some() => seen == n,
                Threshold::Length(_) => gone.len() as u64 == n,
                Threshold::From(from) => id >= from,
            };
            if is_over {
                break 'all;
            }
            if id <= references.delivered() && !needed.contains(&id) {
                gone.push(Found { index: seen, id, is_long: held.is_long() });
            }
            seen += 1;
        }
    }
    references.settle(s)?;
    clear_runs(s, rep.oid, &gone)?;
    rep.len -= gone.len() as u64;
    begin_again(s, rep, gone.first().is_some_and(|found| found.id == old.first)).await?;
    Ok(gone.len() as u64)
}

/// An entry that goes.
struct Found {
    /// Its place among the entries that were read.
    index: u64,
    id: Id,
    is_long: bool,
}

/// Removes the rows of entries, which ascend: those of many neighbours at once.
fn clear_runs(s: &Scope<'_>, oid: Oid, gone: &[Found]) -> Result<()> {
    for run in gone.chunk_by(|one, next| one.index + 1 == next.index) {
        match (run.first(), run.last()) {
            (Some(first), Some(last)) if run.len() as u64 > FEW => {
                let end = key_after(&s.db.entry(oid, last.id));
                s.tx.clear_range(&s.db.entry(oid, first.id), &end)?;
                let end = prefix_end(&s.db.entry_pieces(oid, last.id));
                s.tx.clear_range(&s.db.entry_pieces(oid, first.id), &end)?;
            }
            _ => run.iter().try_for_each(|found| entry::clear(s, oid, found.id, found.is_long))?,
        }
    }
    Ok(())
}

/// Removes the entries of very many ids, which a walk finds faster. Returns their ids, which ascend.
async fn sweep(s: &Scope<'_>, rep: &StreamRep, ids: &[Id]) -> Result<Vec<Id>> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let (Some(from), Some(to)) = (sorted.first(), sorted.last()) else { return Ok(Vec::new()) };
    let mut walk = Walk::new(s, rep, (*from, *to), false);
    let (mut wanted, mut index, mut gone) = (sorted.iter().copied().peekable(), 0, Vec::new());
    while let Some(page) = walk.next(s, 0).await? {
        for (id, held) in page {
            while wanted.next_if(|wanted| *wanted < id).is_some() {}
            if wanted.next_if_eq(&id).is_some() {
                gone.push(Found { index, id, is_long: held.is_long() });
            }
            index += 1;
        }
    }
    clear_runs(s, rep.oid, &gone)?;
    Ok(gone.into_iter().map(|found| found.id).collect())
}

/// Finds the first entry again, if it has gone.
async fn begin_again(s: &Scope<'_>, rep: &mut StreamRep, has_gone: bool) -> Result<()> {
    if rep.len == 0 {
        rep.first = Id::MIN;
    } else if has_gone {
        rep.first = range::end(s, rep, (rep.first, Id::MAX), false).await?.unwrap_or(Id::MIN);
    }
    Ok(())
}

/// Whether a walk through `len` entries of about `size` bytes finds `n` of them faster than a search for each: it reads
/// the fields of all.
fn is_walk_faster(n: u64, len: u64, size: u64) -> bool {
    let each = size.saturating_add(entry::ROW);
    let passed = len.saturating_mul(each);
    let searched = n.saturating_mul(each.saturating_add(SEARCH));
    n > len / SPARSE && passed <= searched.max(PASSED_AT_ONCE)
}

/// Removes the entries of some ids. Returns which of the ids had one.
pub(crate) async fn delete(s: &Scope<'_>, slot: &mut Slot, ids: &[Id]) -> Result<Vec<bool>> {
    let Some(old) = slot.stream()?.copied() else { return Ok(vec![false; ids.len()]) };
    let mut rep = old;
    let walks =
        ids.len() > MANY && is_walk_faster(ids.len() as u64, old.len, entry::row_size(s, &old).await?);
    let gone = match walks {
        true => {
            let mut gone: HashSet<Id> = sweep(s, &old, ids).await?.into_iter().collect();
            ids.iter().map(|id| gone.remove(id)).collect()
        }
        false => pick(s, &old, ids).await?,
    };
    let mut has_first = false;
    for (id, _) in ids.iter().zip(&gone).filter(|(_, is_gone)| **is_gone) {
        rep.len -= 1;
        rep.max_deleted = rep.max_deleted.max(*id);
        has_first |= *id == old.first;
    }
    if rep != old {
        begin_again(s, &mut rep, has_first).await?;
        put(s, slot, rep)?;
    }
    Ok(gone)
}

/// Removes the entries of some ids, one by one. Returns which of the ids had one.
async fn pick(s: &Scope<'_>, rep: &StreamRep, ids: &[Id]) -> Result<Vec<bool>> {
    let mut gone = Vec::with_capacity(ids.len());
    for some in ids.chunks(FEW as usize) {
        reads::fetch(s.tx, some.iter().map(|id| s.db.entry(rep.oid, *id))).await?;
        for id in some {
            let found = range::find(s, rep, *id).await?;
            gone.push(found.is_some());
            if let Some(held) = found {
                entry::clear(s, rep.oid, *id, held.is_long())?;
            }
            consume_budget().await;
        }
    }
    Ok(gone)
}

/// The key as a name in an event, if entries were removed.
pub(crate) fn removed(s: &Scope<'_>, event: &'static str, key: &Bytes, n: u64) {
    if n > 0 {
        s.notify(crate::config::Events::STREAM, event, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::fixtures::World;
    use crate::store::Read;
    use crate::types::object;
    use std::cell::Cell;

    #[test]
    fn many_ids_are_searched_where_a_walk_would_read_more() {
        for (n, len, size, walks) in [
            (20_000, 300_000, 10, true),
            (20_000, 400_000, 10, false),
            (20_000, 300_000, 10_000, false),
            (200_000, 300_000, 10_000, true),
            (20_000, 20_000, 16_000, true),
            (20_000, 6_000, 10_000, true),
        ] {
            assert_eq!(is_walk_faster(n, len, size), walks, "{n} of {len} of {size} bytes");
        }
    }

    /// Hazard: a reply that begins near an end of a stream counts all of it before.
    #[tokio::test]
    async fn spans_are_counted_from_the_nearer_end() {
        const MANY: u64 = 20_000;
        let w = World::new().await;
        w.add_entries("k", MANY).await;
        let tx = w.server.store.begin();
        let s = w.server.space.scope(&tx, w.db);
        let slot = object::open(&s, &Bytes::from_static(b"k"), Read::Snapshot).await.unwrap();
        let rep = *slot.stream().unwrap().unwrap();
        assert_eq!(rep.len, MANY);
        let page = PAGE.limit as u64;
        let id = |n: u64| Id::new(n, 0);
        for (from, to, most, is_near) in [
            (id(5), Id::MAX, u64::MAX, true),
            (id(5), Id::MAX, 15_000, true),
            (id(MANY - 5), Id::MAX, u64::MAX, true),
            (Id::MIN, id(5), u64::MAX, true),
            (Id::MIN, id(MANY - 5), u64::MAX, true),
            (Id::MIN, id(MANY - 1), 3, true),
            (Id::MIN, Id::MAX, u64::MAX, true),
            (id(10_000), Id::MAX, u64::MAX, false),
            (id(10_000), Id::MAX, 9_000, false),
            (Id::MIN, id(10_000), u64::MAX, false),
            (id(5), id(MANY - 5), u64::MAX, false),
            (id(MANY), Id::MAX, u64::MAX, true),
            (id(MANY + 1), Id::MAX, u64::MAX, true),
        ] {
            let seen = Cell::new(0);
            let weigh = |bytes| {
                seen.set(bytes);
                Ok(())
            };
            let n = count(&s, &rep, (from, to), most, weigh).await.unwrap();
            let wanted = (from.ms.max(1)..=to.ms.min(MANY)).count() as u64;
            assert_eq!(n, wanted.min(most), "{from} {to}");
            assert_eq!(seen.get() <= 2 * page * entry::ROW, is_near, "{from} {to}");
        }
    }
}
