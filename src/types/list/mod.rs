//! Lists: two encodings, one set of operations.
//!
//! | where | when |
//! |---|---|
//! | in the record ([`listpack`]) | within the limit of the option `list-max-listpack-size`, and at most 4 KiB |
//! | a row an element ([`rows`]) | the rest |
//!
//! OBJECT ENCODING answers by the option's limit alone.
//!
//! Every change rewrites the record, so that it carries the conflicts of the whole list: operations that write
//! need a slot from a serializable open, and those that read see one version through it. What a push or a pop
//! costs does not depend on the length. A change in the middle moves the elements on the shorter side by rewriting
//! their rows; one that exceeds a transaction is prebuilt ([`prebuild`]).

mod audit;
pub(crate) mod edit;
mod listpack;
pub(crate) mod prebuild;
mod record;
mod rows;
pub(crate) mod stream;

use crate::config::Settings;
use crate::env::free;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::Oid;
use crate::keyspace::packed::Packed;
use crate::types::Value;
use crate::types::object::{self, Slot};
use bytes::Bytes;
pub use record::ListRep;
pub use rows::Extent;
use rows::Held;
use tokio::task::coop::consume_budget;

/// Bytes of rows that are moved in place. More is prebuilt.
const MOST_MOVED: u64 = 4 << 20;
/// Elements that LTRIM reads in one transaction. For more, the list is prebuilt.
const MOST_READ: u64 = 500_000;
/// Elements of which the rows are cleared one by one.
const FEW: u64 = 128;

/// The two ends of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before the first element.
    Left,
    /// Behind the last.
    Right,
}

/// The limit of the encoding listpack, as `list-max-listpack-size` states it: a number of elements, or -1 to -5
/// (and below) for 4 to 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub i64);

/// Bytes that a listpack takes besides its elements, and for each of them, at least.
const HEAD: u64 = 7;
const EACH: u64 = 2;
/// The most bytes of a listpack whose elements are counted.
const SAFE: u64 = 8 << 10;

impl Limit {
    /// The limit that the option sets.
    pub(crate) fn of(settings: &Settings) -> Self {
        Limit(settings.list_max_listpack_size)
    }

    fn allows(self, elements: u64, bytes: u64) -> bool {
        let size = HEAD + bytes + EACH * elements;
        match self.0 {
            n @ ..0 => size <= 4096 << n.saturating_add(1).unsigned_abs().min(4),
            n => elements <= n.cast_unsigned().max(1) && size <= SAFE,
        }
    }
}

/// Number of elements.
pub fn len(rep: Option<&ListRep>) -> Result<u64> {
    match rep {
        None => Ok(0),
        Some(ListRep::Listpack(raw)) => listpack::len(raw),
        Some(ListRep::Rows { extent, .. }) => Ok(extent.len),
    }
}

/// The index that a number names, negative ones from the end. None if it is beyond an end.
fn index_of(n: i64, len: u64) -> Option<u64> {
    let index = if n < 0 { len.checked_sub(n.unsigned_abs())? } else { n.cast_unsigned() };
    (index < len).then_some(index)
}

/// The indices from `start` to before the end that a pair of numbers names.
fn indices((start, stop): (i64, i64), len: u64) -> std::ops::Range<u64> {
    let from = if start < 0 { len.saturating_sub(start.unsigned_abs()) } else { start.cast_unsigned() };
    let to = if stop < 0 {
        // -1 is the last element.
        len.checked_sub(stop.unsigned_abs()).map_or(0, |last| last + 1)
    } else {
        stop.cast_unsigned().saturating_add(1).min(len)
    };
    from.min(to)..to
}

fn is_small(limit: Limit, elements: &[Bytes]) -> bool {
    limit.allows(elements.len() as u64, elements.iter().map(|element| element.len() as u64).sum())
}

/// A new list of elements.
pub(crate) async fn of(s: &Scope<'_>, limit: Limit, elements: &[Bytes]) -> Result<ListRep> {
    let is_small = is_small(limit, elements);
    let bytes: usize = elements.iter().map(|element| listpack::size(element)).sum();
    if is_small && bytes <= listpack::MAX_BYTES {
        return Ok(ListRep::Listpack(listpack::encode(elements)));
    }
    let mut extent = Extent::new(s.space.fresh.oid());
    rows::push_all(s, &mut extent, false, elements).await?;
    Ok(ListRep::Rows { extent, is_small })
}

fn put(s: &Scope<'_>, slot: &mut Slot, rep: ListRep) -> Result<()> {
    let expire_at = slot.expire_at();
    object::put(s, slot, Value::List(rep), expire_at)
}

/// Puts a list in rows, under the name that its size gives it: a list that was once too large keeps the name
/// quicklist until it has shrunk to half of the limit, as in Redis.
fn put_rows(s: &Scope<'_>, slot: &mut Slot, limit: Limit, extent: Extent, was_small: bool) -> Result<()> {
    let is_small = match was_small {
        true => limit.allows(extent.len, extent.bytes),
        false => limit.allows(extent.len * 2, extent.bytes * 2),
    };
    put(s, slot, ListRep::Rows { extent, is_small })
}

/// Pushes elements one after the other. Returns the new length.
pub async fn push(s: &Scope<'_>, slot: &mut Slot, limit: Limit, end: End, elements: &[Bytes]) -> Result<u64> {
    object::check_name(&slot.key)?;
    let mut old = match slot.list()? {
        None => Vec::new(),
        Some(ListRep::Listpack(raw)) => listpack::decode(raw)?,
        Some(ListRep::Rows { extent, is_small }) => {
            let (mut extent, is_small) = (*extent, *is_small);
            rows::push_all(s, &mut extent, end == End::Left, elements).await?;
            put_rows(s, slot, limit, extent, is_small)?;
            return Ok(extent.len);
        }
    };
    match end {
        End::Right => old.extend_from_slice(elements),
        End::Left => drop(old.splice(..0, elements.iter().rev().cloned())),
    }
    let list = of(s, limit, &old).await?;
    put(s, slot, list)?;
    Ok(old.len() as u64)
}

/// Removes up to `n` elements from an end; without the last one the key goes. Returns them in the order of their
/// removal.
pub async fn pop(s: &Scope<'_>, slot: &mut Slot, limit: Limit, end: End, n: u64) -> Result<Vec<Bytes>> {
    let raw = match slot.list()? {
        None => return Ok(Vec::new()),
        Some(ListRep::Rows { extent, is_small }) => {
            let (extent, is_small) = (*extent, *is_small);
            return pop_rows(s, slot, limit, (extent, is_small), end, n).await;
        }
        Some(ListRep::Listpack(raw)) => raw.clone(),
    };
    let mut elements = listpack::decode(&raw)?;
    let n = usize::try_from(n).unwrap_or(usize::MAX).min(elements.len());
    let popped = match end {
        End::Left => elements.drain(..n).collect(),
        End::Right => elements.split_off(elements.len() - n).into_iter().rev().collect(),
    };
    if elements.is_empty() {
        object::remove(s, slot)?;
    } else if n > 0 {
        put(s, slot, ListRep::Listpack(listpack::encode(&elements)))?;
    }
    Ok(popped)
}

async fn pop_rows(
    s: &Scope<'_>,
    slot: &mut Slot,
    limit: Limit,
    (mut extent, is_small): (Extent, bool),
    end: End,
    n: u64,
) -> Result<Vec<Bytes>> {
    let n = n.min(extent.len);
    if n == 0 {
        return Ok(Vec::new());
    }
    let range = match end {
        End::Left => 0..n,
        End::Right => extent.len - n..extent.len,
    };
    let held = match n {
        1 => vec![rows::get_end(s, &extent, end).await?],
        _ => held_in(s, &extent, range.clone()).await?,
    };
    let mut popped = Vec::with_capacity(held.len());
    for held in &held {
        popped.push(rows::value(s.tx, s.db, extent.oid, held.clone()).await?);
        consume_budget().await;
    }
    if end == End::Right {
        popped.reverse();
    }
    if n == extent.len {
        object::remove(s, slot)?;
        free(held.len(), held);
        return Ok(popped);
    }
    for held in &held {
        rows::drop_pieces(s, &mut extent, held)?;
        consume_budget().await;
    }
    clear(s, &extent, range)?;
    if end == End::Left {
        extent.first = extent.at(n);
    }
    extent.len -= n;
    free(held.len(), held);
    put_rows(s, slot, limit, extent, is_small)?;
    Ok(popped)
}

/// Bytes that a pop of `n` elements reads: where some are in pieces, those of its elements, else about as many as an
/// average says.
pub(crate) async fn bytes_at(s: &Scope<'_>, rep: &ListRep, end: End, n: u64) -> Result<u64> {
    let ListRep::Rows { extent, .. } = rep else { return Ok(0) };
    let n = n.min(extent.len);
    if extent.long == 0 {
        return Ok((extent.bytes / extent.len.max(1)).saturating_mul(n));
    }
    let range = if end == End::Left { 0..n } else { extent.len - n..extent.len };
    Ok(held_in(s, extent, range).await?.iter().map(Held::len).sum())
}

/// Clears the rows of elements, without their pieces.
fn clear(s: &Scope<'_>, extent: &Extent, range: std::ops::Range<u64>) -> Result<()> {
    if range.end - range.start > FEW {
        let row = |index| s.db.element(extent.oid, extent.at(index));
        return Ok(s.tx.clear_range(&row(range.start), &row(range.end))?);
    }
    for index in range {
        s.tx.clear(&s.db.element(extent.oid, extent.at(index)))?;
    }
    Ok(())
}

/// The elements at these indices, as their rows have them.
async fn held_in(s: &Scope<'_>, extent: &Extent, range: std::ops::Range<u64>) -> Result<Vec<Held>> {
    if range.end - range.start == 1 {
        return Ok(rows::get(s, extent, range.start).await?.into_iter().collect());
    }
    let mut held = Vec::new();
    let mut walk = Walk::new(extent, range.clone(), false);
    while let Some(page) = walk.next(s).await? {
        held.extend(page.into_iter().map(|(_, element)| element));
    }
    if held.len() as u64 != range.end - range.start {
        return Err(StoreError::Corrupt("a list lacks elements".into()).into());
    }
    Ok(held)
}

/// Elements of a range, page by page.
struct Walk {
    extent: Extent,
    from: i64,
    to: i64,
    reverse: bool,
}

impl Walk {
    fn new(extent: &Extent, range: std::ops::Range<u64>, reverse: bool) -> Self {
        Walk { extent: *extent, from: extent.at(range.start), to: extent.at(range.end), reverse }
    }

    /// The next elements with their positions; None at the end.
    async fn next(&mut self, s: &Scope<'_>) -> Result<Option<Vec<(i64, Held)>>> {
        if self.from >= self.to {
            return Ok(None);
        }
        let range = (self.from, self.to);
        let page = rows::page(s.tx, s.db, self.extent.oid, range, (rows::PAGE, self.reverse)).await?;
        let last = page.elements.last().filter(|_| page.more).map(|(position, _)| *position);
        match last {
            Some(last) if self.reverse => self.to = last,
            Some(last) => self.from = last + 1,
            None => self.from = self.to,
        }
        consume_budget().await;
        Ok(Some(page.elements))
    }
}

/// The elements that a pair of numbers names, as LRANGE does. Fails if they have more than `most` bytes.
pub async fn range(
    s: &Scope<'_>,
    rep: Option<&ListRep>,
    numbers: (i64, i64),
    most: usize,
) -> Result<Vec<Bytes>> {
    let Some(rep) = rep else { return Ok(Vec::new()) };
    slice(s, rep, indices(numbers, len(Some(rep))?), most).await
}

/// As [`range`]. None if the list has elements in pieces, which are too long to be copied.
pub(crate) async fn packed(
    s: &Scope<'_>,
    rep: Option<&ListRep>,
    numbers: (i64, i64),
    most: usize,
) -> Result<Option<Packed>> {
    let Some(rep) = rep else { return Ok(Some(Packed::default())) };
    let range = indices(numbers, len(Some(rep))?);
    Ok(match rep {
        ListRep::Listpack(raw) => Some(listpack::copied(raw, range)?),
        ListRep::Rows { extent, .. } if extent.long == 0 => Some(rows::copied(s, extent, range, most).await?),
        ListRep::Rows { .. } => None,
    })
}

/// The elements at some indices. Fails if they have more than `most` bytes.
pub(crate) async fn slice(
    s: &Scope<'_>,
    rep: &ListRep,
    range: std::ops::Range<u64>,
    most: usize,
) -> Result<Vec<Bytes>> {
    let extent = match rep {
        ListRep::Listpack(raw) => {
            let (from, n) = (range.start as usize, (range.end - range.start) as usize);
            return Ok(listpack::decode(raw)?.into_iter().skip(from).take(n).collect());
        }
        ListRep::Rows { extent, .. } => extent,
    };
    let mut walk = Walk::new(extent, range, false);
    let (mut elements, mut bytes) = (Vec::new(), 0);
    while let Some(page) = walk.next(s).await? {
        for (_, held) in page {
            bytes += held.len() as usize;
            if bytes > most {
                return Err(StoreError::ReplyTooLarge(bytes).into());
            }
            elements.push(rows::value(s.tx, s.db, extent.oid, held).await?);
            consume_budget().await;
        }
    }
    Ok(elements)
}

/// An element whose length is known.
#[derive(Debug)]
pub struct Found {
    oid: Oid,
    held: Held,
}

impl Found {
    /// Bytes of the element.
    pub(crate) fn len(&self) -> u64 {
        self.held.len()
    }

    /// The element.
    pub async fn read(self, s: &Scope<'_>) -> Result<Bytes> {
        rows::value(s.tx, s.db, self.oid, self.held).await
    }
}

/// The element at an index, negative ones from the end.
pub async fn find(s: &Scope<'_>, rep: &ListRep, n: i64) -> Result<Option<Found>> {
    let Some(index) = index_of(n, len(Some(rep))?) else { return Ok(None) };
    let (oid, held) = match rep {
        ListRep::Listpack(raw) => {
            let element = listpack::decode(raw)?.into_iter().nth(index as usize);
            (Oid(0), element.map(Held::Inline))
        }
        ListRep::Rows { extent, .. } => (extent.oid, rows::get(s, extent, index).await?),
    };
    Ok(held.map(|held| Found { oid, held }))
}

/// Replaces the element at an index. False if there is none.
pub async fn set(s: &Scope<'_>, slot: &mut Slot, limit: Limit, n: i64, element: &Bytes) -> Result<bool> {
    let Some(index) = index_of(n, len(slot.list()?)?) else { return Ok(false) };
    let raw = match slot.list()? {
        None => return Ok(false),
        Some(ListRep::Rows { extent, is_small }) => {
            let (mut extent, is_small) = (*extent, *is_small);
            if let Some(old) = rows::get(s, &extent, index).await? {
                rows::drop_pieces(s, &mut extent, &old)?;
            }
            let position = extent.at(index);
            rows::put(s, &mut extent, position, element)?;
            put_rows(s, slot, limit, extent, is_small)?;
            return Ok(true);
        }
        Some(ListRep::Listpack(raw)) => raw.clone(),
    };
    let mut elements = listpack::decode(&raw)?;
    if let Some(place) = elements.get_mut(index as usize) {
        *place = element.clone();
    }
    let list = of(s, limit, &elements).await?;
    put(s, slot, list)?;
    Ok(true)
}

/// The number of elements that a pair of numbers names, as LRANGE does.
pub(crate) fn count_in(rep: Option<&ListRep>, numbers: (i64, i64)) -> Result<u64> {
    let range = indices(numbers, len(rep)?);
    Ok(range.end - range.start)
}

/// Moves an element from an end to an end. Returns it.
pub async fn rotate(
    s: &Scope<'_>,
    slot: &mut Slot,
    limit: Limit,
    (from, to): (End, End),
) -> Result<Option<Bytes>> {
    let (mut extent, is_small) = match slot.list()? {
        None => return Ok(None),
        Some(ListRep::Rows { extent, is_small }) => (*extent, *is_small),
        Some(ListRep::Listpack(raw)) => {
            let mut elements = listpack::decode(raw)?;
            let place = if from == End::Left { 0 } else { elements.len() - 1 };
            let element = elements.remove(place);
            elements.insert(if to == End::Left { 0 } else { elements.len() }, element.clone());
            put(s, slot, ListRep::Listpack(listpack::encode(&elements)))?;
            return Ok(Some(element));
        }
    };
    let index = if from == End::Left { 0 } else { extent.len - 1 };
    let held = rows::get_end(s, &extent, from).await?;
    if from != to {
        let old = extent.at(index);
        let new = if to == End::Left { extent.first.wrapping_sub(1) } else { extent.end() };
        s.tx.set(&s.db.element(extent.oid, new), &held.encode())?;
        s.tx.clear(&s.db.element(extent.oid, old))?;
        extent.first = extent.first.wrapping_add(if to == End::Left { -1 } else { 1 });
    }
    let element = rows::value(s.tx, s.db, extent.oid, held).await?;
    put_rows(s, slot, limit, extent, is_small)?;
    Ok(Some(element))
}
