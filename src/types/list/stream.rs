//! The pieces of a reply that has many elements of a list: see [`crate::types::items`].

use super::rows;
use super::{ListRep, indices};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{Read, Tx};
use crate::types::contents::{Contents, Opening, Span};
use crate::types::object::{self, Slot};

/// Bytes of rows up to which elements are read at once for a reply.
const FEW: u64 = 64 << 10;

/// The elements that a pair of numbers names, as LRANGE does, of the list that `slot` holds in rows. None if they
/// are few or in the record.
pub(crate) async fn find(s: &Scope<'_>, slot: &Slot, numbers: (i64, i64)) -> Result<Option<Opening>> {
    let Some(ListRep::Rows { extent, .. }) = slot.list()? else { return Ok(None) };
    let range = indices(numbers, extent.len);
    let (len, each) = (range.end - range.start, extent.bytes / extent.len.max(1));
    // Where some elements are in pieces, the average says little.
    if len.saturating_mul(each + 32) <= FEW && extent.long == 0 || len == 0 {
        return Ok(None);
    }
    let Some(version) = object::version(s, slot, Read::Serializable).await? else { return Ok(None) };
    let [begin, end] = [range.start, range.end].map(|index| s.db.element(extent.oid, extent.at(index)));
    let span = Span { begin, end, len, each };
    Ok(Some(Opening { oid: extent.oid, version, contents: Contents::Elements, span }))
}

/// Adds about `bytes` of elements to `out`, at least one. Returns their number, and where the next piece begins.
/// Fails if they have more than `most` bytes.
pub(in crate::types) async fn read(
    (tx, db, oid): (&Tx, Prefix, Oid),
    range: (&[u8], &[u8]),
    (bytes, most): (usize, usize),
    out: &mut Packed,
) -> Result<(u64, Option<Vec<u8>>)> {
    let page = rows::page_between(tx, db, range, (bytes, false)).await?;
    let (mut n, mut last) = (0, None);
    for (position, held) in page.elements {
        let size = out.size() + held.len() as usize;
        if n > 0 && size > 2 * bytes {
            return Ok((n, Some(db.element(oid, position))));
        }
        if size > most {
            return Err(StoreError::ReplyTooLarge(size).into());
        }
        n += 1;
        last = Some(position);
        out.push(&rows::value(tx, db, oid, held).await?);
    }
    Ok((n, last.filter(|_| page.more).map(|last| db.element(oid, last + 1))))
}
