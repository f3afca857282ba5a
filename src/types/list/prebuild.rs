//! Builds lists too large for a transaction, as [`crate::types::prebuilt`] describes. They are built from
//! position 0 on.

use super::rows::{self, Extent, Held};
use super::{End, ListRep, MOST_MOVED, MOST_READ, index_of, indices, listpack};
use crate::error::{Result, StoreError};
use crate::keyspace::keys::{ElementRow, Prefix};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Rest, Tx};
use crate::types::Value;
use crate::types::contract::Type;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{self, Builder, Object, Source};
use bytes::Bytes;
use std::ops::Range;
use std::slice;

/// Approximate bytes of an element's row besides the element, in a transaction.
const ROOM: u64 = 64;

/// Builds the list of `elements` in `db`. None if they may fit into a record.
pub(crate) async fn whole(
    space: &Keyspace,
    db: Prefix,
    elements: &[Bytes],
    lease_ms: u64,
) -> Result<Option<Object>> {
    if elements.iter().map(|element| listpack::size(element)).sum::<usize>() <= listpack::MAX_BYTES {
        return Ok(None);
    }
    let mut build = Build::new(space, db, Vec::new(), lease_ms);
    for element in elements {
        build.add(element).await?;
    }
    build.done().await.map(Some)
}

/// A change of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Elements pushed one after the other.
    Push { end: End, elements: &'a [Bytes] },
    /// An element at this index, negative ones from the end.
    Set { index: i64, element: &'a Bytes },
    /// The elements that a pair of numbers names, as LTRIM does.
    Trim(i64, i64),
    /// An element before or behind the first one that is the pivot.
    Insert { before: bool, pivot: &'a Bytes, element: &'a Bytes },
    /// Without elements that are this one, as LREM counts them.
    Remove { count: i64, element: &'a Bytes },
}

impl Change<'_> {
    /// Whether it may exceed a transaction that makes it in place.
    fn may_exceed(self, rep: Option<&ListRep>) -> bool {
        let long = |elements: &[Bytes]| {
            elements.iter().map(|element| element.len() as u64 + ROOM).sum::<u64>() > MOST_MOVED
        };
        let moves = match rep {
            Some(ListRep::Rows { extent, .. }) => {
                extent.bytes.saturating_add(extent.len.saturating_mul(ROOM)) > MOST_MOVED
            }
            Some(ListRep::Listpack(_)) | None => false,
        };
        match self {
            Change::Push { elements, .. } => long(elements),
            Change::Set { element, .. } => long(slice::from_ref(element)),
            Change::Trim(start, stop) => {
                let len = super::len(rep).unwrap_or(0);
                let kept = indices((start, stop), len);
                (kept.end - kept.start).min(len - (kept.end - kept.start)) > MOST_READ
            }
            Change::Insert { element, .. } => moves || long(slice::from_ref(element)),
            Change::Remove { .. } => moves,
        }
    }
}

/// Builds the list under `key` after a change, even if it becomes empty. None if there is nothing to change, or if the
/// change surely fits into a transaction: the command handles that.
pub(crate) async fn change(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    change: Change<'_>,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.list() else { return Ok(None) };
    if !change.may_exceed(rep) {
        return Ok(None);
    }
    let mut build = Build::new(space, db, vec![Source::of(&s, &slot).await?], lease_ms);
    let old = match rep {
        None => Old::Few(Vec::new()),
        Some(ListRep::Listpack(raw)) => Old::Few(listpack::decode(raw)?),
        Some(ListRep::Rows { extent, .. }) => Old::Rows(db, *extent),
    };
    let is_changed = build.rewrite(&old, change).await?;
    let object = build.done().await?;
    if is_changed {
        return Ok(Some(object));
    }
    prebuilt::abandon(space, &object).await?;
    Ok(None)
}

/// Makes the key hold its own list after a change; the expiry stays. Conflict if the object is stale. Returns the
/// new length.
pub(crate) async fn put_changed(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    built.take(s, s).await?;
    if built.is_empty() {
        object::remove(s, slot)?;
        object::discard_object(s, built.oid())?;
    } else {
        let expire_at = slot.expire_at();
        object::put(s, slot, Value::List(ListRep::prebuilt(built)), expire_at)?;
    }
    Ok(built.len())
}

/// Builds a copy in `to`.
pub(super) async fn copy(
    s: &Scope<'_>,
    to: Prefix,
    extent: &Extent,
    source: Source,
    lease_ms: u64,
) -> Result<Object> {
    let mut build = Build::new(s.space, to, vec![source], lease_ms);
    let old = Old::Rows(s.db, *extent);
    build.keep_all(&old, 0..extent.len).await?;
    build.done().await
}

/// The elements of the source.
enum Old {
    /// In the record.
    Few(Vec<Bytes>),
    /// In rows of this database.
    Rows(Prefix, Extent),
}

impl Old {
    fn len(&self) -> u64 {
        match self {
            Old::Few(elements) => elements.len() as u64,
            Old::Rows(_, extent) => extent.len,
        }
    }
}

/// Reads a list over several transactions, at one version of it.
struct Pass<'a> {
    old: &'a Old,
    /// The indices that are left.
    left: Range<u64>,
}

impl Pass<'_> {
    /// The next elements. None at the end. Fails with a conflict if the list has changed.
    async fn next(&mut self, build: &Build<'_>) -> Result<Option<Vec<Held>>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        match self.old {
            Old::Few(elements) => {
                let range = self.left.start as usize..self.left.end as usize;
                self.left.start = self.left.end;
                let some = elements.get(range).unwrap_or_default();
                Ok(Some(some.iter().cloned().map(Held::Inline).collect()))
            }
            Old::Rows(db, extent) => {
                let tx = build.begin(*db).await?;
                let range = (extent.at(self.left.start), extent.at(self.left.end));
                let page = rows::page(&tx, *db, extent.oid, range, (rows::PAGE, false)).await?;
                let last = page.elements.last().filter(|_| page.more);
                self.left.start = last.map_or(self.left.end, |(at, _)| extent.index(*at) + 1);
                Ok(Some(page.elements.into_iter().map(|(_, held)| held).collect()))
            }
        }
    }
}

/// A list under construction.
struct Build<'a> {
    builder: Builder<'a>,
    space: &'a Keyspace,
    extent: Extent,
}

impl<'a> Build<'a> {
    fn new(space: &'a Keyspace, db: Prefix, sources: Vec<Source>, lease_ms: u64) -> Self {
        let builder = Builder::new(space, db, sources, lease_ms);
        let extent = Extent::new(builder.place().1);
        Build { builder, space, extent }
    }

    /// A transaction that reads the source in `db`. Fails with a conflict if the source has changed.
    async fn begin(&self, db: Prefix) -> Result<Tx> {
        let tx = self.space.store.begin();
        self.builder.check(&self.space.scope(&tx, db)).await?;
        Ok(tx)
    }

    async fn add(&mut self, element: &Bytes) -> Result<()> {
        let (db, oid) = self.builder.place();
        let place = (self.extent.end(), self.space.fresh.stamp());
        let (held, rows) = rows::rows_of(db, oid, place, element);
        self.extent.append(&held);
        for (row, bytes) in rows {
            self.builder.add(row, bytes.into()).await?;
        }
        Ok(())
    }

    /// Adds an element of the source, with its pieces.
    async fn keep(&mut self, old: &Old, held: Held) -> Result<()> {
        let (db, oid) = self.builder.place();
        let (number, from, extent) = match (&held, old) {
            (Held::Pieces { number, .. }, Old::Rows(from, extent)) => (*number, *from, extent),
            (Held::Inline(element), _) => {
                let element = element.clone();
                return self.add(&element).await;
            }
            (Held::Pieces { .. }, Old::Few(_)) => {
                return Err(StoreError::Corrupt("a list in its record has pieces".into()).into());
            }
        };
        self.builder.add(db.element(oid, self.extent.end()), held.encode()).await?;
        self.extent.append(&held);
        let mut rest = Rest::under(from.element_pieces(extent.oid, number));
        while let Some((begin, end)) = rest.range() {
            let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
            // Writing those before may have taken longer than a transaction lives.
            let page = self.begin(from).await?.get_range(begin, end, opts, Read::Snapshot).await?;
            rest.pass(&page);
            for (row, bytes) in &page.pairs {
                if let Some(ElementRow::Piece(number, n)) = from.decode_list_row(row) {
                    self.builder.add(db.element_piece(oid, number, n), bytes.to_vec()).await?;
                }
            }
        }
        Ok(())
    }

    async fn keep_all(&mut self, old: &Old, range: Range<u64>) -> Result<()> {
        let mut pass = Pass { old, left: range };
        while let Some(page) = pass.next(self).await? {
            for held in page {
                self.keep(old, held).await?;
            }
        }
        Ok(())
    }

    /// Adds the elements of the source with a change. False if there is nothing to change.
    async fn rewrite(&mut self, old: &Old, change: Change<'_>) -> Result<bool> {
        let len = old.len();
        match change {
            Change::Push { end: End::Left, elements } => {
                for element in elements.iter().rev() {
                    self.add(element).await?;
                }
                self.keep_all(old, 0..len).await?;
            }
            Change::Push { end: End::Right, elements } => {
                self.keep_all(old, 0..len).await?;
                for element in elements {
                    self.add(element).await?;
                }
            }
            Change::Set { index, element } => {
                let Some(index) = index_of(index, len) else { return Ok(false) };
                self.keep_all(old, 0..index).await?;
                self.add(element).await?;
                self.keep_all(old, index + 1..len).await?;
            }
            Change::Trim(start, stop) => self.keep_all(old, indices((start, stop), len)).await?,
            Change::Insert { before, pivot, element } => {
                let Some(found) = self.find(old, pivot).await? else { return Ok(false) };
                let index = found + u64::from(!before);
                self.keep_all(old, 0..index).await?;
                self.add(element).await?;
                self.keep_all(old, index..len).await?;
            }
            Change::Remove { count, element } => return self.remove(old, count, element).await,
        }
        Ok(true)
    }

    /// Whether an element of the source is `wanted`.
    async fn is(&self, old: &Old, held: &Held, wanted: &[u8]) -> Result<bool> {
        match (held, old) {
            (Held::Pieces { len, .. }, Old::Rows(db, extent)) if *len == wanted.len() as u64 => {
                held.is(&self.begin(*db).await?, *db, extent.oid, wanted).await
            }
            (Held::Pieces { .. }, _) => Ok(false),
            (Held::Inline(element), _) => Ok(element == wanted),
        }
    }

    /// The index of the first element that is `wanted`.
    async fn find(&self, old: &Old, wanted: &[u8]) -> Result<Option<u64>> {
        let (mut pass, mut index) = (Pass { old, left: 0..old.len() }, 0);
        while let Some(page) = pass.next(self).await? {
            for held in page {
                if self.is(old, &held, wanted).await? {
                    return Ok(Some(index));
                }
                index += 1;
            }
        }
        Ok(None)
    }

    async fn remove(&mut self, old: &Old, count: i64, element: &[u8]) -> Result<bool> {
        let all = self.count(old, element).await?;
        let most = if count == 0 { all } else { count.unsigned_abs().min(all) };
        // Of the last ones, the first follows all others.
        let first = if count < 0 { all - most } else { 0 };
        let (mut pass, mut nth) = (Pass { old, left: 0..if all > 0 { old.len() } else { 0 } }, 0);
        while let Some(page) = pass.next(self).await? {
            for held in page {
                let is_wanted = self.is(old, &held, element).await?;
                if !is_wanted || !(first..first + most).contains(&nth) {
                    self.keep(old, held).await?;
                }
                nth += u64::from(is_wanted);
            }
        }
        Ok(all > 0)
    }

    async fn count(&self, old: &Old, wanted: &[u8]) -> Result<u64> {
        let (mut pass, mut n) = (Pass { old, left: 0..old.len() }, 0);
        while let Some(page) = pass.next(self).await? {
            for held in page {
                n += u64::from(self.is(old, &held, wanted).await?);
            }
        }
        Ok(n)
    }

    async fn done(self) -> Result<Object> {
        let Extent { len, bytes, long, .. } = self.extent;
        Ok(self.builder.finish(len).await?.with_sizes(bytes, long))
    }
}
