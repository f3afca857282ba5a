//! Checks that every object has exactly one owner: a record, or a garbage row.
//!
//! Rows of objects name no key, so the owners are gathered from the records, in the order of object ids and
//! at most [`WINDOW`] at a time: then the objects' rows in that stretch of ids are walked, and the records
//! are read again for the next stretch. The rows of one object are adjacent, so a large object is skipped,
//! not read.
//!
//! Gathering spans several versions while servers write, and RENAME may move an object meanwhile. So an
//! object that seems to have no owner, or two, is only a candidate: the records are read again for it, at one
//! version if possible, and otherwise [`SCANS`] times.

use super::database::{is_garbage, is_live};
use super::{Checker, PAGE};
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{RangeOptions, Rest, key_after, prefix_end};
use crate::types::audit::{AuditView, Problem};
use crate::types::record::Stored;
use crate::types::{COUNTS, Kind, object_tags};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The most owners held at once.
pub(crate) const WINDOW: usize = 1 << 20;
/// The number of times all records are read for candidates, if they cannot be read at one version.
const SCANS: usize = 3;
/// The most candidates read again.
const CANDIDATES: usize = 10_000;
/// The page size for object rows: small, because most of a large object's rows are skipped.
const STEP: RangeOptions = RangeOptions { limit: 0, bytes: 16 << 10, reverse: false };

/// The owners of a stretch of object ids.
pub(super) struct Owners {
    from: Oid,
    to: Option<Oid>,
    kinds: BTreeMap<Oid, Kind>,
    twice: Vec<Oid>,
    capacity: usize,
}

impl Owners {
    /// The owners of objects from `from` on, as many as are held at once.
    pub(super) fn from(from: Oid) -> Self {
        Owners { from, to: None, kinds: BTreeMap::new(), twice: Vec::new(), capacity: WINDOW }
    }

    /// Adds a record's object.
    pub(super) fn note(&mut self, record: &Bytes) {
        let Some((oid, kind)) =
            object_of(record).filter(|(oid, _)| *oid >= self.from && self.to.is_none_or(|to| *oid < to))
        else {
            return;
        };
        if self.kinds.insert(oid, kind).is_some() {
            self.twice.push(oid);
        }
        if self.kinds.len() > self.capacity
            && let Some(middle) = self.kinds.keys().nth(self.capacity / 2).copied()
        {
            self.kinds.split_off(&middle);
            self.to = Some(middle);
        }
    }

    /// Walks over all objects of `db`; call it when the owners of the first stretch have been noted.
    pub(super) async fn walk(mut self, checker: &mut Checker<'_>, db: Prefix) -> StoreResult<()> {
        loop {
            self.stretch(checker, db).await?;
            let Some(from) = self.to else { return Ok(()) };
            self = Owners { capacity: self.capacity, ..Owners::from(from) };
            gather(checker, db, &mut |record| self.note(record)).await?;
        }
    }

    async fn stretch(&mut self, checker: &mut Checker<'_>, db: Prefix) -> StoreResult<()> {
        let mut candidates: BTreeMap<Oid, Vec<u8>> = BTreeMap::new();
        for oid in std::mem::take(&mut self.twice) {
            candidates.insert(oid, Vec::new());
        }
        for tag in object_tags() {
            self.tag(checker, db, tag, &mut candidates).await?;
        }
        if candidates.is_empty() { Ok(()) } else { confirm(checker, db, candidates).await }
    }

    async fn tag(
        &self,
        checker: &mut Checker<'_>,
        db: Prefix,
        tag: u8,
        candidates: &mut BTreeMap<Oid, Vec<u8>>,
    ) -> StoreResult<()> {
        // Only rows without an id sort before the first object.
        let (all, _) = db.tagged(tag);
        let mut begin = if self.from == Oid(0) { all } else { db.object_rows(tag, self.from) };
        let end = self.to.map_or_else(|| db.tagged(tag).1, |to| db.object_rows(tag, to));
        loop {
            let view = checker.view().await?;
            let page = view.page(&begin, &end, STEP).await?;
            let mut last = None;
            for (row, _) in &page.pairs {
                let Some(oid) = db.decode_oid(row) else {
                    checker.add_problems([Problem::new(row, "the row of an object has no valid object id")]);
                    continue;
                };
                if tag == COUNTS && row[..] != db.count(oid)[..] {
                    checker.add_problems([Problem::new(row, "the row of a member count has an invalid key")]);
                }
                if last.replace(oid) != Some(oid) {
                    let owner = self.kinds.get(&oid).copied().filter(|kind| kind.has_rows(tag));
                    checker.count(owner.or(usual(tag)).map_or("other objects", Kind::objects), 1);
                    if owner.is_none() && candidates.len() < CANDIDATES {
                        candidates.entry(oid).or_insert_with(|| row.to_vec());
                    }
                }
            }
            match (page.pairs.last(), last) {
                (Some((row, _)), _) if page.more && tag == COUNTS => begin = key_after(row),
                (Some(_), Some(oid)) if page.more => begin = prefix_end(&db.object_rows(tag, oid)),
                (Some((row, _)), None) if page.more => begin = key_after(row),
                _ => return Ok(()),
            }
        }
    }
}

/// The first type whose objects have rows of `tag`.
fn usual(tag: u8) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|kind| kind.has_rows(tag))
}

/// The object of a record, and its type.
fn object_of(record: &Bytes) -> Option<(Oid, Kind)> {
    let value = Stored::decode(record.clone()).ok()?.into_record()?.value;
    Some((value.oid()?, value.kind()))
}

/// Reads all records of `db`. Returns the view if all were read in one.
async fn gather(
    checker: &mut Checker<'_>,
    db: Prefix,
    note: &mut (dyn FnMut(&Bytes) + Send),
) -> StoreResult<Option<AuditView>> {
    let mut rest = Rest::of(db.tagged(b'K'));
    let mut view = checker.view().await?;
    let mut one = true;
    while let Some((begin, end)) = rest.range() {
        let page = match view.page(begin, end, PAGE).await {
            Err(StoreError::TooOld) => {
                (view, one) = (checker.view().await?, false);
                continue;
            }
            page => page?,
        };
        page.pairs.iter().for_each(|(_, record)| note(record));
        rest.pass(&page);
    }
    Ok(one.then_some(view))
}

/// Reports those of `candidates` (an object and one of its rows, or no row if it had two owners) that are
/// confirmed.
async fn confirm(
    checker: &mut Checker<'_>,
    db: Prefix,
    mut candidates: BTreeMap<Oid, Vec<u8>>,
) -> StoreResult<()> {
    for scan in 1..=SCANS {
        let mut owned: BTreeMap<Oid, Vec<Kind>> = BTreeMap::new();
        let mut note = |record: &Bytes| {
            if let Some((oid, kind)) = object_of(record).filter(|(oid, _)| candidates.contains_key(oid)) {
                owned.entry(oid).or_default().push(kind);
            }
        };
        let whole = gather(checker, db, &mut note).await?;
        let view = if let Some(view) = &whole { view } else { &checker.view().await? };
        let mut confirmed = BTreeMap::new();
        for (oid, row) in candidates {
            let owners = owned.get(&oid).map_or(&[][..], Vec::as_slice);
            if let Some(what) = recheck(view, db, oid, &row, owners).await? {
                confirmed.insert(oid, (row, what));
            }
        }
        if whole.is_some() || scan == SCANS {
            let name =
                |oid: Oid, row: Vec<u8>| if row.is_empty() { db.object_rows(COUNTS, oid) } else { row };
            checker.add_problems(
                confirmed.into_iter().map(|(oid, (row, what))| Problem { row: name(oid, row), what }),
            );
            return Ok(());
        }
        candidates = confirmed.into_iter().map(|(oid, (row, _))| (oid, row)).collect();
    }
    Ok(())
}

async fn recheck(
    view: &AuditView,
    db: Prefix,
    oid: Oid,
    row: &[u8],
    owners: &[Kind],
) -> StoreResult<Option<String>> {
    if owners.len() > 1 {
        return Ok(Some(format!("{} keys share one object", owners.len())));
    }
    let tag = row.get(db.as_bytes().len()).copied();
    let fits = |kind: &Kind| tag.is_some_and(|tag| kind.has_rows(tag));
    if row.is_empty() || owners.iter().any(fits) {
        return Ok(None);
    }
    let begin = db.object_rows(tag.unwrap_or(COUNTS), oid);
    let opts = RangeOptions { limit: 1, ..RangeOptions::default() };
    let there = !view.page(&begin, &prefix_end(&begin), opts).await?.pairs.is_empty();
    if !there || !is_live(view, db).await? || is_garbage(view, db, oid).await? {
        return Ok(None);
    }
    Ok(Some(
        "rows of an object that belongs to no key and is not listed as garbage: they are never removed"
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Value;
    use crate::types::record::Record;
    use crate::types::set::SetRep;

    fn record(oid: u128) -> Bytes {
        let value = Value::Set(SetRep::Chunked(Oid(oid)));
        Record { revision: 1, expire_at: None, value }.encode().into()
    }

    #[test]
    fn owners_are_held_in_stretches() {
        let (mut from, mut seen) = (Oid(0), Vec::new());
        loop {
            let mut owners = Owners { capacity: 10, ..Owners::from(from) };
            (0..100).for_each(|n| owners.note(&record((n * 37) % 100)));
            assert!(owners.kinds.len() <= 10 && owners.twice.is_empty());
            seen.extend(owners.kinds.keys().map(|oid| oid.0));
            let Some(to) = owners.to else { break };
            from = to;
        }
        assert_eq!(seen, Vec::from_iter(0..100));
    }

    #[test]
    fn two_owners_are_noticed() {
        let mut owners = Owners::from(Oid(0));
        [1, 2, 1].into_iter().for_each(|n| owners.note(&record(n)));
        assert_eq!(owners.twice, [Oid(1)]);
    }
}
