//! Builds streams too large for a transaction, as [`crate::types::prebuilt`] describes.

use super::StreamRep;
use super::add::{self, Wanted};
use super::entry;
use super::whole::Whole;
use crate::error::Result;
use crate::keyspace::keys::Prefix;
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Rest};
use crate::types::contract::Type;
use crate::types::object;
use crate::types::prebuilt::{Builder, Object, STEP, Source};
use bytes::Bytes;

/// Bytes of an entry that is written in the transaction of its command. More is prebuilt.
const MOST: usize = 4 << 20;
/// Approximate bytes of a string besides its own.
const ROOM: usize = 8;

/// Builds a stream in `db`.
pub(crate) async fn whole(
    space: &Keyspace,
    db: Prefix,
    stream: &Whole,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let mut builder = Builder::new(space, db, Vec::new(), lease_ms);
    let place = builder.place();
    for (row, bytes) in stream.rows(place, &space.fresh) {
        builder.add(row, bytes).await?;
    }
    let rep = stream.rep(place.1);
    Ok(Some(builder.finish(rep.len).await?.with_history(rep.history())))
}

/// Builds a copy in `to`, row by row: groups and consumers keep their numbers, which only have to differ within a
/// stream.
pub(super) async fn copy(
    s: &Scope<'_>,
    to: Prefix,
    rep: &StreamRep,
    source: Source,
    lease_ms: u64,
) -> Result<Object> {
    let mut builder = Builder::new(s.space, to, vec![source], lease_ms);
    copy_rows(&mut builder, s, rep).await?;
    Ok(builder.finish(rep.len).await?.with_history(rep.history()))
}

async fn copy_rows(builder: &mut Builder<'_>, s: &Scope<'_>, rep: &StreamRep) -> Result<()> {
    let (db, oid) = builder.place();
    let (head, prefix) = (db.object_rows(StreamRep::ROW, oid), s.db.object_rows(StreamRep::ROW, rep.oid));
    let (own, mut rest) = (prefix.len(), Rest::under(prefix));
    let opts = RangeOptions { bytes: STEP, ..RangeOptions::default() };
    while let Some((begin, end)) = rest.range() {
        let tx = s.space.store.begin();
        builder.check(&s.space.scope(&tx, s.db)).await?;
        let page = tx.get_range(begin, end, opts, Read::Snapshot).await?;
        rest.pass(&page);
        for (row, bytes) in &page.pairs {
            let row = [&head, row.get(own..).unwrap_or_default()].concat();
            builder.add(row, bytes.to_vec()).await?;
        }
    }
    Ok(())
}

/// An entry that XADD is to add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New<'a> {
    /// Its id.
    pub(crate) wanted: Wanted,
    /// Its names and values in turn.
    pub(crate) fields: &'a [Bytes],
    /// Whether the stream must exist.
    pub(crate) only_existing: bool,
}

/// Builds the stream under `key` with an entry that may exceed a transaction. None if it surely does not, or cannot be
/// added: the command handles that.
pub(crate) async fn addition(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    new: New<'_>,
    lease_ms: u64,
) -> Result<Option<Object>> {
    if new.fields.iter().map(|string| string.len() + ROOM).sum::<usize>() <= MOST {
        return Ok(None);
    }
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let old = match slot.stream() {
        Ok(None) if new.only_existing => return Ok(None),
        Ok(old) => old.copied(),
        Err(_) => return Ok(None),
    };
    let mut builder = Builder::new(space, db, vec![Source::of(&s, &slot).await?], lease_ms);
    let (_, oid) = builder.place();
    let mut rep = old.map_or_else(|| StreamRep::new(oid), |old| old.moved(oid));
    let Ok(id) = add::id(rep.last, new.wanted, s.now) else { return Ok(None) };
    if let Some(old) = old {
        copy_rows(&mut builder, &s, &old).await?;
    }
    let raw = entry::encode(new.fields);
    for (row, bytes) in entry::rows_of(db, oid, id, &raw) {
        builder.add(row, bytes.into()).await?;
    }
    add::count(&mut rep, id);
    Ok(Some(builder.finish(rep.len).await?.with_history(rep.history())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Runner;
    use crate::error::StoreError;
    use crate::exec::fixtures::{World, call};
    use crate::server::ClientState;
    use crate::server::reply::Reply;
    use crate::store::Tx;
    use crate::types::object;
    use bytes::Bytes;

    async fn answer(world: &World, tx: &Tx, line: &str) -> Reply {
        let mut client = ClientState::new(Default::default(), true);
        let (now, rng) = (world.env.timeline.now(), world.env.rng());
        let mut runner = Runner::new(&world.server, tx, now, rng).await.unwrap();
        runner.call(&call(line), &mut client, &[]).await.unwrap().unwrap()
    }

    async fn apply(world: &World, line: &str) {
        let tx = world.server.store.begin();
        let reply = answer(world, &tx, line).await;
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        tx.commit().await.unwrap();
    }

    async fn built(world: &World) -> Object {
        let tx = world.server.store.begin();
        let s = world.server.space.scope(&tx, world.db);
        let slot = object::open(&s, &Bytes::from_static(b"k"), Read::Snapshot).await.unwrap();
        let source = Source::of(&s, &slot).await.unwrap();
        copy(&s, world.db, slot.stream().unwrap().unwrap(), source, 60_000).await.unwrap()
    }

    /// The group g has delivered 1-0 and 2-0 to the consumer c.
    const SETUP: [&str; 6] = [
        "xadd k 1-0 a b",
        "xadd k 2-0 a b",
        "xadd k 3-0 a b",
        "xgroup create k g 0",
        "xgroup create k h 0",
        "xreadgroup group g c count 2 streams k >",
    ];

    /// Hazard: a copy has one part of a group as it was before a change, and another as it was after.
    #[tokio::test]
    async fn a_copy_is_of_one_moment() {
        for (change, is_stale) in [
            ("xadd k 4-0 a b", true),
            ("xdel k 1-0", true),
            ("xack k g 1-0", true),
            ("xreadgroup group g c count 1 streams k >", true),
            ("xreadgroup group g c noack streams k >", true),
            ("xreadgroup group g new streams k 0", true),
            ("xclaim k g c 0 1-0 retrycount 7", true),
            ("xclaim k g d 0 1-0", true),
            ("xautoclaim k g c 0 0 justid", true),
            ("xgroup createconsumer k g d", true),
            ("xgroup delconsumer k g c", true),
            ("xgroup setid k g 0", true),
            ("xgroup create k new 0", true),
            ("xgroup destroy k h", true),
            ("xackdel k g ids 1 1-0", true),
            ("xdelex k acked ids 1 3-0", false),
            ("xpending k g", false),
            ("xack k g 9-0", false),
        ] {
            let world = World::new().await;
            for line in SETUP {
                apply(&world, line).await;
            }
            let (space, object) = (&world.server.space, built(&world).await);
            let tx = space.store.begin();
            let s = space.scope(&tx, world.db);
            assert!(object.try_take(&s, &s).await.unwrap(), "{change}");
            apply(&world, change).await;
            let done = tx.commit().await.map(|_| ());
            assert_eq!(done, if is_stale { Err(StoreError::Conflict) } else { Ok(()) }, "{change}");
            if is_stale {
                let tx = space.store.begin();
                let s = space.scope(&tx, world.db);
                assert!(!object.try_take(&s, &s).await.unwrap(), "{change}");
            }
        }
    }
}
