//! The pieces of a reply that has all fields of a hash: see [`crate::types::items`].

use super::expiry;
use super::record::HashRep;
use super::rows;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{Read, Tx};
use crate::types::contents::{Contents, Opening, Parts, Span};
use crate::types::object::{self, Slot};

/// The fields of the hash that `slot` holds in rows. None if it is in its record. `each`: bytes of a field and its
/// value, about.
pub(crate) async fn find(s: &Scope<'_>, slot: &Slot, parts: Parts, each: u64) -> Result<Option<Opening>> {
    let Some(HashRep::Rows { oid, due, .. }) = slot.hash()? else { return Ok(None) };
    let Some(version) = object::version(s, slot, Read::Serializable).await? else { return Ok(None) };
    let rows = object::Count(version.1).cardinality();
    let len = rows.saturating_sub(expiry::expired(s, *oid, *due).await?);
    let span = Span { begin: s.db.fields_from(*oid, 0), end: s.db.fields_end(*oid), len, each };
    let contents = Contents::Fields { parts, now: s.now };
    Ok(Some(Opening { oid: *oid, version, contents, span }))
}

/// Adds about `bytes` of fields and values to `out`, at least one field. Returns their number, and where the next
/// piece begins. Fields that had expired at `now`, the time of the command, are left out. Fails if they have more
/// than `most` bytes.
pub(in crate::types) async fn read(
    (tx, db, oid): (&Tx, Prefix, Oid),
    (parts, now): (Parts, u64),
    range: (&[u8], &[u8]),
    (bytes, most): (usize, usize),
    out: &mut Packed,
) -> Result<(u64, Option<Vec<u8>>)> {
    let page = rows::page(tx, db, range, (0, bytes)).await?;
    let mut n = 0;
    for (_, field, held) in page.fields {
        if held.expire_at.is_some_and(|at| at <= now) {
            continue;
        }
        let value = if parts == Parts::Fields { 0 } else { held.len() as usize };
        let size = out.size() + field.len() + value;
        if n > 0 && size > 2 * bytes {
            return Ok((n, Some(db.field(oid, &field))));
        }
        if size > most {
            return Err(StoreError::ReplyTooLarge(size).into());
        }
        n += 1;
        match parts {
            Parts::Fields => out.push(&field),
            Parts::Pairs | Parts::Values => {
                parts.push(&field, &rows::value(tx, db, oid, held).await?, out);
            }
        }
    }
    Ok((n, page.next))
}
