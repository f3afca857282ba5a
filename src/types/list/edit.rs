//! LINSERT, LREM, LTRIM and LPOS: what looks for elements, or changes a list in its middle.
//!
//! In rows, a change moves the elements on its shorter side. Their rows are read and written again at other
//! positions; long elements keep their pieces.

use super::rows::{self, Extent, Held};
use super::{Limit, ListRep, MOST_MOVED, MOST_READ, Walk, clear, indices, listpack, of, put, put_rows};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::types::object::{self, Slot};
use bytes::Bytes;

/// The outcome of LINSERT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The key does not exist.
    NoKey,
    /// No element is the pivot.
    NoPivot,
    /// The new length.
    Length(u64),
}

/// Inserts an element before or behind the first one that is `pivot`.
pub async fn insert(
    s: &Scope<'_>,
    slot: &mut Slot,
    limit: Limit,
    (before, pivot): (bool, &Bytes),
    element: &Bytes,
) -> Result<Inserted> {
    let raw = match slot.list()? {
        None => return Ok(Inserted::NoKey),
        Some(ListRep::Rows { extent, is_small }) => {
            let (mut extent, is_small) = (*extent, *is_small);
            let Some(found) = find(s, &extent, pivot).await? else { return Ok(Inserted::NoPivot) };
            let index = found + u64::from(!before);
            let position = open_gap(s, &mut extent, index).await?;
            rows::put(s, &mut extent, position, element)?;
            put_rows(s, slot, limit, extent, is_small)?;
            return Ok(Inserted::Length(extent.len));
        }
        Some(ListRep::Listpack(raw)) => raw.clone(),
    };
    let mut elements = listpack::decode(&raw)?;
    let Some(found) = elements.iter().position(|element| element == pivot) else {
        return Ok(Inserted::NoPivot);
    };
    elements.insert(found + usize::from(!before), element.clone());
    let list = of(s, limit, &elements).await?;
    put(s, slot, list)?;
    Ok(Inserted::Length(elements.len() as u64))
}

/// The index of the first element that is `wanted`.
async fn find(s: &Scope<'_>, extent: &Extent, wanted: &[u8]) -> Result<Option<u64>> {
    let mut walk = Walk::new(extent, 0..extent.len, false);
    let mut index = 0;
    while let Some(page) = walk.next(s).await? {
        for (_, held) in page {
            if held.is(s.tx, s.db, extent.oid, wanted).await? {
                return Ok(Some(index));
            }
            index += 1;
        }
    }
    Ok(None)
}

/// Makes room for an element at `index`, whose position it returns: the elements on the shorter side move by one.
async fn open_gap(s: &Scope<'_>, extent: &mut Extent, index: u64) -> Result<i64> {
    let is_left = index <= extent.len / 2;
    let moved = if is_left { 0..index } else { index..extent.len };
    shift(s, extent, moved, if is_left { -1 } else { 1 }).await?;
    if is_left {
        extent.first = extent.first.wrapping_sub(1);
    }
    extent.len += 1;
    Ok(extent.at(index))
}

/// Writes elements again `by` positions further; their old rows stay, unless others are written there. Fails
/// if that exceeds what one transaction should move. The transaction reads its own writes: an element is read before
/// another takes its place.
async fn shift(s: &Scope<'_>, extent: &Extent, moved: std::ops::Range<u64>, by: i64) -> Result<()> {
    let mut walk = Walk::new(extent, moved, by > 0);
    let mut bytes = 0;
    while let Some(page) = walk.next(s).await? {
        for (position, held) in page {
            let row = held.encode();
            bytes += row.len() as u64 + 64;
            if bytes > MOST_MOVED {
                return Err(StoreError::TooLarge.into());
            }
            s.tx.set(&s.db.element(extent.oid, position.wrapping_add(by)), &row)?;
        }
    }
    Ok(())
}

/// Removes elements that are `element`: the first `count` of them, the last ones if it is negative, all if it
/// is 0. Without the last element the key goes. Returns the number removed.
pub async fn remove(
    s: &Scope<'_>,
    slot: &mut Slot,
    limit: Limit,
    count: i64,
    element: &Bytes,
) -> Result<u64> {
    let raw = match slot.list()? {
        None => return Ok(0),
        Some(ListRep::Rows { extent, is_small }) => {
            let (extent, is_small) = (*extent, *is_small);
            return remove_rows(s, slot, limit, (extent, is_small), count, element).await;
        }
        Some(ListRep::Listpack(raw)) => raw.clone(),
    };
    let mut elements = listpack::decode(&raw)?;
    let before = elements.len();
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut keep = |kept: &Bytes| {
        let goes = left > 0 && kept == element;
        left -= u64::from(goes);
        !goes
    };
    if count < 0 {
        elements.reverse();
    }
    elements.retain(&mut keep);
    if count < 0 {
        elements.reverse();
    }
    match before - elements.len() {
        0 => {}
        _ if elements.is_empty() => drop(object::remove(s, slot)?),
        _ => put(s, slot, ListRep::Listpack(listpack::encode(&elements)))?,
    }
    Ok((before - elements.len()) as u64)
}

async fn remove_rows(
    s: &Scope<'_>,
    slot: &mut Slot,
    limit: Limit,
    (mut extent, is_small): (Extent, bool),
    count: i64,
    element: &Bytes,
) -> Result<u64> {
    let gone = matches(s, &extent, count, element).await?;
    let (Some((first, _)), Some((last, _))) = (gone.first().cloned(), gone.last().cloned()) else {
        return Ok(0);
    };
    let n = gone.len() as u64;
    if n == extent.len {
        object::remove(s, slot)?;
        return Ok(n);
    }
    for (_, held) in &gone {
        rows::drop_pieces(s, &mut extent, held)?;
    }
    // The elements between the removed ones close up towards the longer side; the shorter side follows them.
    let is_left = last < extent.len - first - 1;
    let mut gone: Vec<u64> = gone.into_iter().map(|(index, _)| index).collect();
    if is_left {
        gone.reverse();
    }
    let (from, to) = if is_left { (0, last) } else { (first + 1, extent.len) };
    let mut walk = Walk::new(&extent, from..to, is_left);
    let (mut passed, mut bytes) = (0_usize, 0);
    while let Some(page) = walk.next(s).await? {
        for (position, held) in page {
            let index = extent.index(position);
            while gone.get(passed).is_some_and(|at| if is_left { *at > index } else { *at < index }) {
                passed += 1;
            }
            if gone.get(passed) == Some(&index) {
                continue;
            }
            let row = held.encode();
            bytes += row.len() as u64 + 64;
            if bytes > MOST_MOVED {
                return Err(StoreError::TooLarge.into());
            }
            let by = passed as i64;
            s.tx.set(&s.db.element(extent.oid, position.wrapping_add(if is_left { by } else { -by })), &row)?;
        }
    }
    if is_left {
        clear(s, &extent, 0..n)?;
        extent.first = extent.at(n);
    } else {
        clear(s, &extent, extent.len - n..extent.len)?;
    }
    extent.len -= n;
    put_rows(s, slot, limit, extent, is_small)?;
    Ok(n)
}

/// The elements that are `element`, as many as [`remove`] removes, with their indices, ascending.
async fn matches(s: &Scope<'_>, extent: &Extent, count: i64, element: &[u8]) -> Result<Vec<(u64, Held)>> {
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut walk = Walk::new(extent, 0..extent.len, count < 0);
    let mut found = Vec::new();
    'all: while let Some(page) = walk.next(s).await? {
        for (position, held) in page {
            if held.is(s.tx, s.db, extent.oid, element).await? {
                found.push((extent.index(position), held));
                if found.len() as u64 == most {
                    break 'all;
                }
            }
        }
    }
    if count < 0 {
        found.reverse();
    }
    Ok(found)
}

/// Keeps the elements that a pair of numbers names, as LTRIM does; without any the key goes. Reads the kept elements or
/// the others, whichever are fewer. Fails if these are more than one transaction can read.
pub async fn trim(s: &Scope<'_>, slot: &mut Slot, limit: Limit, numbers: (i64, i64)) -> Result<()> {
    let Some(rep) = slot.list()? else { return Ok(()) };
    let len = super::len(Some(rep))?;
    let kept = indices(numbers, len);
    if kept.is_empty() {
        return object::remove(s, slot).map(drop);
    }
    match rep.clone() {
        ListRep::Listpack(raw) => {
            let elements = listpack::decode(&raw)?;
            let kept = elements.get(kept.start as usize..kept.end as usize).unwrap_or_default();
            put(s, slot, ListRep::Listpack(listpack::encode(kept)))
        }
        ListRep::Rows { mut extent, is_small } => {
            let n = kept.end - kept.start;
            if n.min(len - n) > MOST_READ {
                return Err(StoreError::TooLarge.into());
            }
            if n <= len - n {
                keep_contents(s, &mut extent, kept.clone()).await?;
            }
            for gone in [0..kept.start, kept.end..len] {
                if n > len - n {
                    drop_contents(s, &mut extent, gone.clone()).await?;
                }
                clear(s, &extent, gone)?;
            }
            extent.first = extent.at(kept.start);
            extent.len = n;
            put_rows(s, slot, limit, extent, is_small)
        }
    }
}

/// Removes the pieces of the elements in a range, whose rows go. Takes their bytes off the extent.
async fn drop_contents(s: &Scope<'_>, extent: &mut Extent, gone: std::ops::Range<u64>) -> Result<()> {
    let mut walk = Walk::new(extent, gone, false);
    while let Some(page) = walk.next(s).await? {
        for (_, held) in page {
            rows::drop_pieces(s, extent, &held)?;
        }
    }
    Ok(())
}

/// Removes the pieces of the elements outside a range, whose rows go. The extent's bytes become those of the range.
async fn keep_contents(s: &Scope<'_>, extent: &mut Extent, kept: std::ops::Range<u64>) -> Result<()> {
    let (mut walk, mut bytes, mut numbers) = (Walk::new(extent, kept, false), 0, Vec::new());
    while let Some(page) = walk.next(s).await? {
        bytes += page.iter().map(|(_, held)| held.len()).sum::<u64>();
        numbers.extend(page.iter().filter_map(|(_, held)| held.number()));
    }
    if extent.long > numbers.len() as u64 {
        numbers.sort_unstable();
        rows::drop_pieces_between(s, extent.oid, &numbers).await?;
    }
    (extent.bytes, extent.long) = (bytes, numbers.len() as u64);
    Ok(())
}

/// The indices of the elements that are `wanted`, as LPOS asks for them: from the `rank`th one on (negative: from
/// the end), at most `most` of them (0: all), among the first `among` elements on the way (0: all).
pub async fn positions(
    s: &Scope<'_>,
    rep: Option<&ListRep>,
    wanted: &[u8],
    (rank, most, among): (i64, u64, u64),
) -> Result<Vec<u64>> {
    let mut search =
        Search { skip: rank.unsigned_abs().saturating_sub(1), most, left: among, found: Vec::new() };
    if among == 0 {
        search.left = u64::MAX;
    }
    match rep {
        None => {}
        Some(ListRep::Listpack(raw)) => {
            let elements: Vec<(u64, Bytes)> = (0..).zip(listpack::decode(raw)?).collect();
            let visit = |(index, element): &(u64, Bytes)| search.visit(*index, element == wanted);
            let _ = if rank < 0 { elements.iter().rev().all(visit) } else { elements.iter().all(visit) };
        }
        Some(ListRep::Rows { extent, .. }) => {
            let mut walk = Walk::new(extent, 0..extent.len, rank < 0);
            'all: while let Some(page) = walk.next(s).await? {
                for (position, held) in page {
                    let index = extent.index(position);
                    let is_wanted = held.is(s.tx, s.db, extent.oid, wanted).await?;
                    if !search.visit(index, is_wanted) {
                        break 'all;
                    }
                }
            }
        }
    }
    Ok(search.found)
}

struct Search {
    skip: u64,
    most: u64,
    left: u64,
    found: Vec<u64>,
}

impl Search {
    /// Takes one element into account. False if the search has ended.
    fn visit(&mut self, index: u64, is_wanted: bool) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if is_wanted && self.skip > 0 {
            self.skip -= 1;
        } else if is_wanted {
            self.found.push(index);
            return self.most == 0 || (self.found.len() as u64) < self.most;
        }
        true
    }
}
