//! Builds sorted sets too large for a transaction, as [`crate::types::prebuilt`] describes.

use super::counts::{self, NewCounts};
use super::rows::{self, check_member, place_of, rows_of};
use super::{Entry, Score, listpack, sort};
use crate::env::aside;
use crate::error::Result;
use crate::keyspace::keys::{Oid, Prefix};
use crate::keyspace::{Fresh, Keyspace, Scope};
use crate::store::{RangeOptions, Read};
use crate::types::Kind;
use crate::types::object::{self, Count, Slot};
use crate::types::prebuilt::{Builder, Object, Source};

/// Puts what was built in the place of the key's value, without expiry. Returns its length.
pub(crate) async fn put(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    object::check_name(&slot.key)?;
    built.take(s, s).await?;
    object::put(s, slot, Kind::Zset.prebuilt(built), None)?;
    Ok(built.len())
}

/// Builds the sorted set of distinct members in `db`, which come from `sources`. None if they may fit into a record.
pub(crate) async fn whole(
    space: &Keyspace,
    db: Prefix,
    mut entries: Vec<Entry>,
    sources: Vec<Source>,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let bytes: usize = entries.iter().map(listpack::size).sum();
    if bytes <= listpack::MAX_BYTES || entries.iter().any(|(member, _)| check_member(member).is_err()) {
        return Ok(None);
    }
    aside(|| sort(&mut entries));
    let mut build = Build::new(space, db, sources, lease_ms);
    for entry in &entries {
        build.add(entry).await?;
    }
    build.done().await.map(Some)
}

/// Builds a copy in `to`, in transactions of its own: places do not change rows.
pub(super) async fn copy(
    s: &Scope<'_>,
    to: Prefix,
    oid: Oid,
    source: Source,
    lease_ms: u64,
) -> Result<Object> {
    let mut build = Build::new(s.space, to, vec![source], lease_ms);
    let (mut begin, end) = (s.db.ranked_place(oid, &[]), s.db.ranked_places_end(oid));
    let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
    loop {
        let tx = s.space.store.begin();
        let page = rows::page(&tx, s.db, (&begin, &end), opts, Read::Snapshot).await?;
        build.builder.check(&s.space.scope(&tx, s.db)).await?;
        for entry in &page.entries {
            build.add(entry).await?;
        }
        match page.next {
            Some(next) => begin = next,
            None => return build.done().await,
        }
    }
}

/// A sorted set under construction, whose members come in order.
struct Build<'a> {
    builder: Builder<'a>,
    members: u64,
    counts: NewCounts,
    fresh: &'a Fresh,
}

impl<'a> Build<'a> {
    fn new(space: &'a Keyspace, db: Prefix, sources: Vec<Source>, lease_ms: u64) -> Self {
        let builder = Builder::new(space, db, sources, lease_ms);
        Build { builder, members: 0, counts: NewCounts::default(), fresh: &space.fresh }
    }

    async fn add(&mut self, (member, score): &(bytes::Bytes, Score)) -> Result<()> {
        let (db, oid) = self.builder.place();
        for (key, bytes) in rows_of(db, oid, member, *score) {
            self.builder.add(key, bytes).await?;
        }
        for (level, place, count) in self.counts.push(&place_of(*score, member)) {
            let bytes = counts::encode(count, self.fresh.revision()).to_vec();
            self.builder.add(db.ranked_boundary(oid, level, &place), bytes).await?;
        }
        self.members += 1;
        Ok(())
    }

    async fn done(mut self) -> Result<Object> {
        let (db, oid) = self.builder.place();
        for (level, place, count) in std::mem::take(&mut self.counts).finish() {
            let bytes = counts::encode(count, self.fresh.revision()).to_vec();
            self.builder.add(db.ranked_boundary(oid, level, &place), bytes).await?;
        }
        self.builder.add(db.count(oid), Count::step(self.members as i64).to_vec()).await?;
        Ok(self.builder.finish(self.members).await?)
    }
}
