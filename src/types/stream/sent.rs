//! The pieces of a reply that has many entries of a stream: see [`crate::types::items`].
//!
//! An entry that is added changes nothing that is being sent. So what is sent has changed once an entry was removed: the
//! record says how many were added, and how many are left. XSETID may set the former: the record says how often it did.

use super::StreamRep;
use super::entry::{self, ROW};
use super::range::{self, PAGE, Span as Ids};
use super::trim;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, Oid, Prefix};
use crate::keyspace::packed::Packed;
use crate::store::{RangeOptions, Read, Tx, key_after};
use crate::types::contents::{Contents, Losses, Opening, Span};
use crate::types::object::{self, Slot};

/// Bytes of rows up to which entries are read at once for a reply.
pub(crate) const FEW: u64 = 64 << 10;

impl StreamRep {
    /// How many entries were removed.
    pub(crate) fn removed(&self) -> u64 {
        self.added.wrapping_sub(self.len)
    }

    /// As long as this is so, no entry was removed.
    pub(crate) fn losses(&self) -> Losses {
        Losses { removed: self.removed(), resets: self.resets }
    }
}

/// The first `count` entries of a span of the stream that `slot` holds, from its end if `reverse`.
/// `weigh` is shown the bytes read so far, and may fail.
pub(crate) async fn find(
    s: &Scope<'_>,
    slot: &Slot,
    (from, to): Ids,
    (count, reverse): (u64, bool),
    weigh: impl Fn(u64) -> Result<()>,
) -> Result<Option<Opening>> {
    let Some(rep) = slot.stream()? else { return Ok(None) };
    let most = count.min(rep.len);
    let each = if most == 0 { 0 } else { entry::bytes(s, rep, 1).await? };
    let Some((begin, end)) = range::rows(s, rep, (from, to)) else { return Ok(None) };
    let len = match from <= rep.first && to >= rep.last {
        true => most,
        false => trim::count(s, rep, (from, to), most, weigh).await?,
    };
    let Some(version) = object::version(s, slot, Read::Serializable).await? else { return Ok(None) };
    // The side that is read first is the one that moves.
    let (begin, end) = if reverse { (end, begin) } else { (begin, end) };
    let contents = Contents::Entries { reverse, losses: rep.losses() };
    Ok(Some(Opening { oid: rep.oid, version, contents, span: Span { begin, end, len, each } }))
}

/// Adds an entry to a reply, as [`entry::sent`] reads it.
pub(crate) fn push(id: Id, raw: &[u8], out: &mut Packed) {
    out.push(&[&id.to_bytes(), raw].concat());
}

/// Adds about `bytes` of the `left` entries to `out`, at least one. Returns their number, and where the next piece begins.
/// Fails if they have more than `most` bytes. In reverse, `from` is the end of the rest.
pub(in crate::types) async fn read(
    (tx, db, oid): (&Tx, Prefix, Oid),
    (reverse, left): (bool, u64),
    (from, to): (&[u8], &[u8]),
    (bytes, most): (usize, usize),
    out: &mut Packed,
) -> Result<(u64, Option<Vec<u8>>)> {
    let (begin, end) = if reverse { (to, from) } else { (from, to) };
    let limit = usize::try_from(left).unwrap_or(0);
    let opts = RangeOptions { limit, bytes: bytes.min(PAGE), reverse };
    let page = tx.get_range(begin, end, opts, Read::Snapshot).await?;
    let behind = |row: &[u8]| if reverse { row.to_vec() } else { key_after(row) };
    let (mut n, mut next) = (0, None);
    for pair in &page.pairs {
        let (id, held) = entry::decode(db, pair)?;
        let size = out.size() + (held.len() + ROW) as usize;
        if n > 0 && size > 2 * bytes {
            return Ok((n, next));
        }
        if size > most {
            return Err(StoreError::ReplyTooLarge(size).into());
        }
        n += 1;
        next = Some(behind(&pair.0));
        push(id, &held.read(tx, db, oid, id).await?, out);
    }
    Ok((n, next.filter(|_| page.more && n < left)))
}
