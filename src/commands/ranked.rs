//! Builds sorted sets that commands store and that may exceed a transaction.

use super::args::Args;
use super::geo::search;
use super::zset as zsets;
use crate::error::Result;
use crate::keyspace::catalog::Catalog;
use crate::keyspace::keys::Prefix;
use crate::keyspace::{Keyspace, Scope};
use crate::spec::Ranked;
use crate::types::prebuilt::{Object, Source};
use crate::types::zset;
use bytes::Bytes;

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
        Ranked::Range => zsets::of_key(&s, Args::new(args)).await?,
        Ranked::Union | Ranked::Intersection | Ranked::Difference => {
            zsets::of_keys(&s, operation, Args::new(args)).await?
        }
        Ranked::Around | Ranked::AroundMember | Ranked::Search => {
            search::of_call(&s, operation, Args::new(args)).await?
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
