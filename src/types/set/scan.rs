//! SSCAN: stateless, in the order of ids.
//!
//! The cursor is the smallest id not yet returned, so any server goes on from it, whatever was added, removed or
//! folded in between: a member that is there all the time is returned exactly once. Small sets are answered at once,
//! as Redis answers its small encodings.

use super::{Set, rows};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::record::SetRep;
use bytes::Bytes;

/// About `count` members from `cursor` on, and the next cursor: 0 at the end.
pub async fn scan(
    s: &Scope<'_>,
    rep: Option<&SetRep>,
    cursor: u64,
    count: usize,
) -> Result<(u64, Vec<Bytes>)> {
    let oid = match Set::of(rep)? {
        Set::Small(small) => return Ok((0, small.members())),
        Set::Chunked(oid) => oid,
    };
    let mut ids: Vec<u64> = Vec::new();
    let mut at = Some(cursor);
    while let Some(lo) = at.filter(|_| ids.len() < count) {
        let stretch = rows::stretch(s, oid, lo, None, 1).await?;
        let all = stretch.ids()?;
        let mut found = all.iter();
        ids.extend(found.by_ref().take(count - ids.len()));
        at = found.next().or(stretch.next);
    }
    Ok((at.unwrap_or(0), s.space.ids.resolve(s.tx, &ids).await?))
}
