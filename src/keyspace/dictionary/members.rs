//! Rows `b`: the members of ids.
//!
//! ```text
//! b <id BE>          the member
//! b <first BE> 10    16 ids from `first`, a multiple of 16: 16 lengths (u16 BE, ff ff: removed) | members
//! ```
//! Members interned together have consecutive ids; each 16 of them that fill a group share a row. The design
//! has only the first kind of row. With it, half of the rows that a load writes, and all that a large reply
//! reads, had 70 bytes each; measured in `bench/results`. A group is written whole by the transaction that
//! interns it, or not at all, so no two writers ever share one, and an id's member is in one of two places.
//! Only the collector of the dictionary changes rows: it removes members that nothing asks for any more, and
//! a group's row with the last of them.

use super::forward;
use crate::error::{StoreError, StoreResult};
use crate::keyspace::keys::root;
use crate::keyspace::reads::get_many;
use crate::store::{RangeOptions, Read, Tx};
use bytes::Bytes;
use futures_util::future::try_join;
use roaring::RoaringTreemap;

/// The number of ids in a group.
pub(crate) const GROUP: u64 = 16;
/// The most bytes of the members of one group.
const GROUP_BYTES: usize = 8 << 10;
const LENGTHS: usize = 2 * GROUP as usize;
/// The length of a member that was removed.
const REMOVED: u16 = u16::MAX;
/// This many members or more are looked up together.
const MANY: usize = 16;
/// The bytes of rows that one range read asks for.
const PAGE: usize = 1 << 18;

/// The first id of the group of `id`.
pub fn group(id: u64) -> u64 {
    id & !(GROUP - 1)
}

/// Writes the rows of new ids (ascending) and their members, without write conflicts: no other transaction
/// has these ids.
pub(super) fn write(tx: &Tx, ids: &[u64], members: &[&Bytes]) -> StoreResult<()> {
    let (mut ids, mut members) = (ids, members);
    while let (Some(id), Some(member)) = (ids.first(), members.first()) {
        let n = match packed(ids, members) {
            Some(row) => {
                tx.set_without_conflict(&root::members(*id), &row)?;
                GROUP as usize
            }
            None => {
                tx.set_without_conflict(&root::member(*id), member)?;
                1
            }
        };
        (ids, members) = (ids.get(n..).unwrap_or_default(), members.get(n..).unwrap_or_default());
    }
    Ok(())
}

/// The row of the first ids, if they form a group.
fn packed(ids: &[u64], members: &[&Bytes]) -> Option<Vec<u8>> {
    let (ids, members) = (ids.get(..GROUP as usize)?, members.get(..GROUP as usize)?);
    let (first, last) = (ids.first()?, ids.last()?);
    let bytes: usize = members.iter().map(|m| m.len()).sum();
    if group(*first) != *first || last - first != GROUP - 1 || bytes > GROUP_BYTES {
        return None;
    }
    let mut row = Vec::with_capacity(LENGTHS + bytes);
    members.iter().for_each(|m| row.extend_from_slice(&(m.len() as u16).to_be_bytes()));
    members.iter().for_each(|m| row.extend_from_slice(m));
    Some(row)
}

/// The ids and members of a row; None if it is malformed.
pub fn entries<'a>(key: &[u8], value: &'a [u8]) -> Option<Entries<'a>> {
    let (&first, tail) = key.strip_prefix(b"b")?.split_first_chunk::<8>()?;
    let id = u64::from_be_bytes(first);
    match tail {
        [] => Some(Entries { id, own: Some(value), lengths: &[], rest: &[] }),
        [root::GROUP_TAIL] if group(id) == id => {
            let (lengths, rest) = value.split_at_checked(LENGTHS)?;
            let lengths = lengths.as_chunks::<2>().0;
            let bytes: usize = lengths.iter().map(|len| bytes_of(*len).unwrap_or(0)).sum();
            (bytes == rest.len()).then_some(Entries { id, own: None, lengths, rest })
        }
        _ => None,
    }
}

/// The number of bytes of the member with this length; None if it was removed.
fn bytes_of(len: [u8; 2]) -> Option<usize> {
    Some(u16::from_be_bytes(len)).filter(|len| *len != REMOVED).map(usize::from)
}

/// The ids and members of one row, ascending.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    /// The id of the next member, unless that was removed.
    id: u64,
    /// The member of an id that has a row to itself.
    own: Option<&'a [u8]>,
    lengths: &'a [[u8; 2]],
    /// The members of `lengths`.
    rest: &'a [u8],
}

impl Entries<'_> {
    /// One past the last id that the row can hold.
    fn end(&self) -> u64 {
        self.id + if self.own.is_some() { 1 } else { self.lengths.len() as u64 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(member) = self.own.take() {
            return Some((self.id, member));
        }
        loop {
            let (len, lengths) = self.lengths.split_first()?;
            let id = self.id;
            (self.id, self.lengths) = (id + 1, lengths);
            if let Some(len) = bytes_of(*len) {
                let (member, rest) = self.rest.split_at_checked(len)?;
                self.rest = rest;
                return Some((id, member));
            }
        }
    }
}

/// The position of the member of `id` in its group's row.
fn place(row: &[u8], id: u64) -> Option<std::ops::Range<usize>> {
    let lengths = row.get(..LENGTHS)?.as_chunks::<2>().0;
    let mut places = lengths.iter().map(|len| bytes_of(*len)).scan(LENGTHS, |end, len| {
        let start = *end;
        *end += len.unwrap_or(0);
        Some(len.map(|_| start..*end))
    });
    places.nth((id % GROUP) as usize)?.filter(|range| range.end <= row.len())
}

/// The member of `id`, from its group's row or from a row of its own.
pub fn found(id: u64, group: Option<Bytes>, own: Option<Bytes>) -> Option<Bytes> {
    match group {
        Some(row) => place(&row, id).map(|range| row.slice(range)),
        None => own,
    }
}

/// The members of `ids`; None for ids that were never interned. `again`: see [`Tx::get_bulk`]. Snapshot.
pub(super) async fn read(tx: &Tx, ids: &[u64], again: bool) -> StoreResult<Vec<Option<Bytes>>> {
    if tx.prefers_prefetch() {
        let groups: Vec<[u8; 10]> = ids.iter().map(|id| root::members(group(*id))).collect();
        let own: Vec<[u8; 9]> = ids.iter().map(|id| root::member(*id)).collect();
        let (groups, own) =
            try_join(get_many(tx, &groups, Read::Snapshot), get_many(tx, &own, Read::Snapshot)).await?;
        let rows = ids.iter().zip(groups.into_iter().zip(own));
        return Ok(rows.map(|(id, (group, own))| found(*id, group, own)).collect());
    }
    if ids.len() >= MANY {
        return read_together(tx, ids, again).await;
    }
    let mut out = Vec::with_capacity(ids.len());
    for id in ids {
        out.push(match tx.get(&root::members(group(*id)), Read::Snapshot).await? {
            None => tx.get(&root::member(*id), Read::Snapshot).await?,
            group => found(*id, group, None),
        });
    }
    Ok(out)
}

/// Like [`read`], with bulk reads. Neighbours that share a row read it once.
async fn read_together(tx: &Tx, ids: &[u64], again: bool) -> StoreResult<Vec<Option<Bytes>>> {
    let shared: Vec<&[u64]> = ids.chunk_by(|a, b| group(*a) == group(*b)).collect();
    let keys: Vec<Vec<u8>> =
        shared.iter().filter_map(|ids| Some(root::members(group(*ids.first()?)).to_vec())).collect();
    let rows = tx.get_bulk(&keys, Read::Snapshot, again).await?;
    let mut out = Vec::with_capacity(ids.len());
    let mut alone = Vec::new();
    for (ids, row) in shared.into_iter().zip(rows) {
        for id in ids {
            match &row {
                Some(_) => out.push(found(*id, row.clone(), None)),
                None => {
                    alone.push((out.len(), *id));
                    out.push(None);
                }
            }
        }
    }
    let keys: Vec<Vec<u8>> = alone.iter().map(|(_, id)| root::member(*id).to_vec()).collect();
    for ((at, _), row) in alone.into_iter().zip(tx.get_bulk(&keys, Read::Snapshot, again).await?) {
        if let Some(place) = out.get_mut(at) {
            *place = row;
        }
    }
    Ok(out)
}

/// The ids from `from` up to `to` that have a member, for one page of rows, and where the next page begins.
/// Snapshot.
pub(crate) async fn present(tx: &Tx, from: u64, to: u64) -> StoreResult<(Vec<u64>, Option<u64>)> {
    let (mut ids, mut sound, mut end) = (Vec::new(), true, from);
    let mut each = |key: &[u8], row: &[u8]| {
        let Some(found) = entries(key, row) else {
            sound = false;
            return;
        };
        end = found.end();
        ids.extend(found.map(|(id, _)| id).filter(|id| (from..to).contains(id)));
    };
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    let more = tx.visit(&root::member(group(from)), &root::member(to), opts, &mut each).await?;
    if sound {
        Ok((ids, more.then_some(end)))
    } else {
        Err(StoreError::Corrupt("a row of members does not decode".into()))
    }
}

/// The result of [`remove`].
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// The number of members removed.
    pub(crate) count: u64,
    /// The id to continue from; None if all are done.
    pub(crate) next: Option<u64>,
}

/// Removes the members of `ids` and their rows `f`, for one page of rows. The other members of their groups
/// stay. Nothing else may change these rows `b`: they are read as snapshots.
pub(crate) async fn remove(tx: &Tx, ids: &RoaringTreemap) -> StoreResult<Removed> {
    let (Some(first), Some(last)) = (ids.min(), ids.max()) else { return Ok(Removed::default()) };
    let opts = RangeOptions { bytes: PAGE, ..RangeOptions::default() };
    let (begin, end) = (root::member(group(first)), root::member(last + 1));
    let page = tx.get_range(&begin, &end, opts, Read::Snapshot).await?;
    let mut removed = Removed::default();
    for (key, row) in &page.pairs {
        let all = entries(key, row)
            .ok_or_else(|| StoreError::Corrupt("a row of members does not decode".into()))?;
        removed.next = Some(all.end()).filter(|_| page.more);
        let (gone, kept): (Vec<_>, Vec<_>) = all.partition(|(id, _)| ids.contains(*id));
        if gone.is_empty() {
            continue;
        }
        for (id, member) in &gone {
            forward::remove(tx, *id, &row.slice_ref(member)).await?;
        }
        removed.count += gone.len() as u64;
        match kept.is_empty() {
            true => tx.clear_bulk(key)?,
            false => tx.set_without_conflict(key, &repacked(&kept))?,
        }
    }
    Ok(removed)
}

/// The row of a group's remaining members.
fn repacked(kept: &[(u64, &[u8])]) -> Vec<u8> {
    let mut lengths = [REMOVED; GROUP as usize];
    for (id, member) in kept {
        if let Some(len) = lengths.get_mut((id % GROUP) as usize) {
            *len = member.len() as u16;
        }
    }
    let mut row = Vec::with_capacity(LENGTHS + kept.iter().map(|(_, member)| member.len()).sum::<usize>());
    lengths.iter().for_each(|len| row.extend_from_slice(&len.to_be_bytes()));
    kept.iter().for_each(|(_, member)| row.extend_from_slice(member));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_leaves_the_others() {
        let words = members(16, 7);
        let key = root::members(16);
        let row = packed(&(16..32).collect::<Vec<_>>(), &words.iter().collect::<Vec<_>>()).unwrap();
        let left: Vec<(u64, &[u8])> =
            entries(&key, &row).unwrap().filter(|(id, _)| ![16, 19, 31].contains(id)).collect();
        let some = repacked(&left);
        assert_eq!(Vec::from_iter(entries(&key, &some).unwrap()), left);
        assert_eq!(entries(&key, &some).unwrap().end(), 32);
        for id in 16..32 {
            let member = found(id, Some(some.clone().into()), None);
            let want = left.iter().any(|(kept, _)| *kept == id).then(|| words[id as usize - 16].clone());
            assert_eq!(member, want, "{id}");
        }
        assert!(some.len() < row.len());
    }

    fn members(n: usize, len: usize) -> Vec<Bytes> {
        (0..n).map(|n| Bytes::from(format!("{n:0len$}"))).collect()
    }

    #[test]
    fn a_group_is_whole_aligned_and_not_long() {
        let words = members(16, 10);
        let words: Vec<&Bytes> = words.iter().collect();
        let ids: Vec<u64> = (32..48).collect();
        assert!(packed(&ids, &words).is_some());
        assert!(packed(&ids[1..], &words).is_none(), "fifteen");
        assert!(packed(&(33..49).collect::<Vec<_>>(), &words).is_none(), "not aligned");
        let mut torn = ids.clone();
        torn[15] = 100;
        assert!(packed(&torn, &words).is_none(), "not neighbours");
        let long = members(16, 600);
        assert!(packed(&ids, &long.iter().collect::<Vec<_>>()).is_none(), "too many bytes");
    }

    #[test]
    fn what_is_packed_is_found() {
        let mut words = members(16, 7);
        words[3] = Bytes::new();
        let row =
            Bytes::from(packed(&(16..32).collect::<Vec<_>>(), &words.iter().collect::<Vec<_>>()).unwrap());
        let all = Vec::from_iter(entries(&root::members(16), &row).unwrap());
        for (n, word) in words.iter().enumerate() {
            assert_eq!(all[n], (16 + n as u64, &word[..]));
            assert_eq!(found(16 + n as u64, Some(row.clone()), None).as_ref(), Some(word));
        }
    }

    #[test]
    fn damage_is_no_row() {
        let words = members(16, 7);
        let row = packed(&(16..32).collect::<Vec<_>>(), &words.iter().collect::<Vec<_>>()).unwrap();
        let long = [&row[..], b"x"].concat();
        for damaged in [&row[..row.len() - 1], &row[..20], &[], &long] {
            assert!(entries(&root::members(16), damaged).is_none());
        }
        assert!(entries(&root::members(17), &row).is_none(), "not a group's first id");
        assert!(entries(b"b\0\0\0\0\0\0\0\x10?", &row).is_none());
        assert_eq!(found(31, Some(Bytes::copy_from_slice(&row[..row.len() - 1])), None), None);
        let own = entries(&root::member(17), b"own").map(Vec::from_iter);
        assert_eq!(own, Some(vec![(17, &b"own"[..])]));
    }
}
