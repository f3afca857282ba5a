//! XADD: ids, and new entries.

use super::StreamRep;
use super::entry;
use crate::error::{ReplyError, Result};
use crate::keyspace::Scope;
use crate::keyspace::keys::Id;
use bytes::Bytes;

/// The id is not larger than the last one.
pub(crate) const NOT_LARGER: ReplyError =
    ReplyError::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const EXHAUSTED: ReplyError =
    ReplyError::new("ERR The stream has exhausted the last possible ID, unable to add more items");

/// The id that a new entry is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The time now, or the id behind the last one if that is larger.
    Now,
    /// The first number of a time that is left.
    At(u64),
    /// This one.
    This(Id),
}

/// The id of the entry behind `last`, at the time `now`.
pub(crate) fn id(last: Id, wanted: Wanted, now: u64) -> Result<Id> {
    let behind = last.next().ok_or(EXHAUSTED)?;
    let id = match wanted {
        Wanted::Now => behind.max(Id::new(now, 0)),
        Wanted::At(ms) if ms == last.ms && behind.ms == ms => behind,
        Wanted::At(ms) => Id::new(ms, 0),
        Wanted::This(id) => id,
    };
    if id > last { Ok(id) } else { Err(NOT_LARGER.into()) }
}

/// Writes an entry behind all others.
pub(crate) fn append(s: &Scope<'_>, rep: &mut StreamRep, id: Id, fields: &[Bytes]) -> Result<()> {
    let raw = entry::encode(fields);
    for (row, bytes) in entry::rows_of(s.db, rep.oid, id, &raw) {
        s.tx.set(&row, &bytes)?;
    }
    count(rep, id);
    Ok(())
}

/// Takes an entry into account that was written behind all others.
pub(crate) fn count(rep: &mut StreamRep, id: Id) {
    if rep.len == 0 {
        rep.first = id;
    }
    rep.len += 1;
    note(rep, id);
}

/// Takes an entry into account that was added and removed at once.
pub(crate) fn note(rep: &mut StreamRep, id: Id) {
    rep.last = id;
    rep.added = rep.added.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow() {
        let (small, large) = (Id::new(5, 7), Id::new(5, u64::MAX));
        for (last, wanted, now, expected) in [
            (small, Wanted::Now, 9, Some(Id::new(9, 0))),
            (small, Wanted::Now, 5, Some(Id::new(5, 8))),
            (small, Wanted::Now, 1, Some(Id::new(5, 8))),
            (large, Wanted::Now, 1, Some(Id::new(6, 0))),
            (small, Wanted::At(5), 0, Some(Id::new(5, 8))),
            (small, Wanted::At(6), 0, Some(Id::new(6, 0))),
            (small, Wanted::At(4), 0, None),
            (large, Wanted::At(5), 0, None),
            (Id::MIN, Wanted::At(0), 0, Some(Id::new(0, 1))),
            (small, Wanted::This(small), 0, None),
            (small, Wanted::This(large), 0, Some(large)),
            (Id::MAX, Wanted::Now, 0, None),
            (Id::MAX, Wanted::At(u64::MAX), 0, None),
        ] {
            assert_eq!(id(last, wanted, now).ok(), expected, "{last} {wanted:?}");
        }
    }
}
