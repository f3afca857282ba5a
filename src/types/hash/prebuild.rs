//! Builds hashes too large for a transaction, as [`crate::types::prebuilt`] describes.

use super::rows::{self, Content, Held, check_field};
use super::{HashRep, Pair, listpack};
use crate::error::Result;
use crate::keyspace::keys::{FieldRow, Oid, Prefix};
use crate::keyspace::{Keyspace, Scope};
use crate::store::{RangeOptions, Read, Rest};
use crate::types::Value;
use crate::types::contract::Type;
use crate::types::object::{self, Count, Slot};
use crate::types::prebuilt::{Builder, Object, Source};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

/// Bytes of fields and values that always fit into a transaction together with their rows.
const DIRECT: usize = 1 << 20;
/// Approximate bytes of an argument's row besides its own.
const ROOM: usize = 64;

/// Builds the hash of distinct fields in `db`, each with its value and its expiry. None if they may fit into a
/// record.
pub(crate) async fn whole<'a>(
    space: &Keyspace,
    db: Prefix,
    fields: impl Iterator<Item = (&'a Pair, Option<u64>)> + Clone + Send + Sync,
    lease_ms: u64,
) -> Result<Option<Object>> {
    let slices = || fields.clone().map(|([field, value], expire_at)| ((&field[..], &value[..]), expire_at));
    let bytes: usize = slices().map(|(pair, _)| listpack::size(pair)).sum();
    if bytes <= listpack::MAX_BYTES || slices().any(|((field, _), _)| check_field(field).is_err()) {
        return Ok(None);
    }
    let mut build = Build::new(space, db, Vec::new(), lease_ms);
    for (pair, expire_at) in slices() {
        build.add(pair, expire_at).await?;
    }
    build.done().await.map(Some)
}

/// Whether a call with these fields and values may exceed a transaction that changes a hash in place.
pub(crate) fn may_exceed(arguments: &[Bytes]) -> bool {
    arguments.iter().map(|argument| argument.len() + ROOM).sum::<usize>() > DIRECT
}

/// Builds the hash under `key` after a change: with fields set, and without others, even if it becomes empty.
/// None if the key holds another type, or a field cannot be: the command handles that.
pub(crate) async fn change(
    space: &Keyspace,
    db: Prefix,
    key: &Bytes,
    (set, removed): (&[Pair], &[Bytes]),
    lease_ms: u64,
) -> Result<Option<Object>> {
    let tx = space.store.begin();
    let s = space.scope(&tx, db);
    let slot = object::open(&s, key, Read::Snapshot).await?;
    let Ok(rep) = slot.hash() else { return Ok(None) };
    if set.iter().any(|[field, _]| check_field(field).is_err()) {
        return Ok(None);
    }
    let mut build = Build::new(space, db, vec![Source::of(&s, &slot).await?], lease_ms);
    build.changed = set.iter().map(|[field, _]| field).chain(removed).cloned().collect();
    match rep {
        None => {}
        Some(HashRep::Listpack(raw)) => {
            for [field, value] in listpack::pairs(raw)? {
                if !build.changed.contains(&field) {
                    build.add((&field, &value), None).await?;
                }
            }
        }
        Some(HashRep::Rows { oid, .. }) => build.keep(&s, *oid).await?,
    }
    let last: HashMap<&Bytes, &Bytes> = set.iter().map(|[field, value]| (field, value)).collect();
    for (field, value) in last {
        build.add((field, value), None).await?;
    }
    build.done().await.map(Some)
}

/// Makes the key hold its own hash with fields set or removed; the expiry stays. Returns the number of fields
/// added or removed. Conflict if the object is stale.
pub(crate) async fn put_changed(s: &Scope<'_>, slot: &mut Slot, built: &Object) -> Result<u64> {
    object::check_name(&slot.key)?;
    let before = match slot.hash()? {
        Some(HashRep::Rows { oid, .. }) => object::count(s, *oid, Read::Serializable).await?.cardinality(),
        rep => super::len(s, rep, Read::Serializable).await?,
    };
    built.take(s, s).await?;
    if built.is_empty() {
        object::remove(s, slot)?;
        object::discard_object(s, built.oid())?;
    } else {
        let expire_at = slot.expire_at();
        object::put(s, slot, Value::Hash(HashRep::prebuilt(built)), expire_at)?;
    }
    Ok(built.len().abs_diff(before))
}

/// Builds a copy in `to`, in transactions of its own: rows do not change place.
pub(super) async fn copy(
    s: &Scope<'_>,
    to: Prefix,
    oid: Oid,
    source: Source,
    lease_ms: u64,
) -> Result<Object> {
    let mut build = Build::new(s.space, to, vec![source], lease_ms);
    build.keep(s, oid).await?;
    build.done().await
}

/// A hash under construction.
struct Build<'a> {
    builder: Builder<'a>,
    space: &'a Keyspace,
    /// Fields of the source that it does not keep.
    changed: HashSet<Bytes>,
    fields: u64,
    /// The first expiry of a field.
    due: Option<u64>,
}

impl<'a> Build<'a> {
    fn new(space: &'a Keyspace, db: Prefix, sources: Vec<Source>, lease_ms: u64) -> Self {
        let builder = Builder::new(space, db, sources, lease_ms);
        Build { builder, space, changed: HashSet::new(), fields: 0, due: None }
    }

    async fn add(&mut self, pair: listpack::Slices<'_>, expire_at: Option<u64>) -> Result<()> {
        self.fields += 1;
        let (db, oid) = self.builder.place();
        for (key, bytes) in rows::rows_of(db, oid, self.space.fresh.stamp(), pair, expire_at) {
            self.builder.add(key, bytes.into_owned()).await?;
        }
        if let Some(at) = expire_at {
            self.expires(at);
            self.builder.add(db.field_expiry(oid, at, pair.0), Vec::new()).await?;
        }
        Ok(())
    }

    fn expires(&mut self, at: u64) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Adds what the hash `oid` has and the change does not concern, from one version of it.
    async fn keep(&mut self, s: &Scope<'_>, oid: Oid) -> Result<()> {
        let prefix = s.db.object_rows(HashRep::ROW, oid);
        let (own, mut rest) = (prefix.len(), Rest::under(prefix));
        let (db, new) = self.builder.place();
        let head = db.object_rows(HashRep::ROW, new);
        // Long values of fields that are not kept: their pieces come after all fields.
        let mut dropped = HashSet::new();
        while let Some((begin, end)) = rest.range() {
            let tx = self.space.store.begin();
            self.builder.check(&self.space.scope(&tx, s.db)).await?;
            let opts = RangeOptions { bytes: rows::PAGE, ..RangeOptions::default() };
            let page = tx.get_range(begin, end, opts, Read::Snapshot).await?;
            rest.pass(&page);
            for (row, bytes) in &page.pairs {
                let kept = match s.db.decode_hash_row(row) {
                    Some(FieldRow::Field(_, field)) if self.changed.contains(&field) => {
                        if let Content::Pieces { number, .. } = Held::decode(bytes)?.content {
                            dropped.insert(number);
                        }
                        false
                    }
                    Some(FieldRow::Field(..)) => {
                        self.fields += 1;
                        true
                    }
                    Some(FieldRow::Piece(number, _)) => !dropped.contains(&number),
                    Some(FieldRow::Expiry { field, .. }) if self.changed.contains(&field) => false,
                    Some(FieldRow::Expiry { at, .. }) => {
                        self.expires(at);
                        true
                    }
                    None => false,
                };
                if kept {
                    let key = [&head, row.get(own..).unwrap_or_default()].concat();
                    self.builder.add(key, bytes.to_vec()).await?;
                }
            }
        }
        Ok(())
    }

    async fn done(mut self) -> Result<Object> {
        let (db, oid) = self.builder.place();
        self.builder.add(db.count(oid), Count::step(self.fields.cast_signed()).to_vec()).await?;
        Ok(self.builder.finish(self.fields).await?.with_due(self.due))
    }
}
