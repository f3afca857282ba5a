//! What ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE, ZRANGESTORE, GEOSEARCHSTORE and GEORADIUS leave under their destination.

use super::limits;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::store::Read;
use crate::types::object;
use crate::types::prebuilt;
use crate::types::zset::{self, Entry};
use bytes::Bytes;

/// The most members that are stored in one transaction if they can be prebuilt: others wait for its commit.
pub(super) const MOST_AT_ONCE: usize = 10_000;

/// Makes the key hold these members, or what was prebuilt; without any it goes.
pub(crate) async fn put(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    target: &Bytes,
    entries: Vec<Entry>,
    event: &'static str,
) -> Result<Reply> {
    let mut slot = object::open(s, target, Read::Serializable).await?;
    let existed = slot.exists();
    let n = match prebuilt::result(cx.prebuilt) {
        Some(built) => zset::prebuild::put(s, &mut slot, built).await?,
        None if cx.may_prebuild && entries.len() > MOST_AT_ONCE => return Err(StoreError::TooLarge.into()),
        None => zset::replace(s, &mut slot, limits(cx), entries).await?,
    };
    match n {
        0 if existed => s.notify(Events::GENERIC, "del", target),
        0 => {}
        _ => s.notify(Events::ZSET, event, target),
    }
    Ok(Reply::Int(n.cast_signed()))
}
