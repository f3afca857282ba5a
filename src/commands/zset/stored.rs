//! What ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE and ZRANGESTORE leave under their destination.

use super::{algebra, limits, ranges};
use crate::commands::args::Args;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::Result;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::keys::Prefix;
use crate::keyspace::{Keyspace, Scope};
use crate::server::reply::Reply;
use crate::spec::Ranked;
use crate::store::Read;
use crate::types::object;
use crate::types::prebuilt::{self, Object, Source};
use crate::types::zset::{self, Entry};
use bytes::Bytes;

/// Makes the key hold these members, or what was prebuilt; without any it goes.
pub(super) async fn put(
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
        None => zset::replace(s, &mut slot, limits(cx), entries).await?,
    };
    match n {
        0 if existed => s.notify(Events::GENERIC, "del", target),
        0 => {}
        _ => s.notify(Events::ZSET, event, target),
    }
    Ok(Reply::Int(n.cast_signed()))
}

/// Builds, in `db`, what an operation leaves of the sorted sets that the arguments after its destination name. None if
/// it may fit into a record, or if the arguments are wrong.
pub(crate) async fn prebuild(
    space: &Keyspace,
    catalog: &Catalog,
    db: Prefix,
    operation: Ranked,
    args: &[Bytes],
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = Scope { round: catalog.round, ..space.scope(&tx, db) };
    let made = match operation {
        Ranked::Range => ranges::of_key(&s, Args::new(args)).await?,
        Ranked::Union | Ranked::Intersection | Ranked::Difference => {
            algebra::of_keys(&s, operation, Args::new(args)).await?
        }
    };
    let Some((slots, entries)) = made else { return Ok(None) };
    let mut sources = Vec::with_capacity(slots.len());
    for slot in &slots {
        sources.push(Source::of(&s, slot).await?);
    }
    drop(slots);
    drop(tx);
    zset::prebuild::whole(space, db, entries, sources, lease_ms).await
}
