//! A map of names to numbers, only in tests: it proves that a type consists of its folder, its commands and a
//! few lines that register it.
//!
//! ```text
//! tag 200: oid        Q <oid><name> -> i64 LE        a number
//! ```

mod tests;

use super::audit::{Auditor, Findings, Problem};
use super::contract::Type;
use super::dumped::Dump;
use super::object::{self, Count, Slot};
use super::prebuilt::{Builder, Object, Source};
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{RangeOptions, Read, prefix_end};
use bytes::{BufMut, Bytes};

const TAG: u8 = b'Q';

/// The object id of the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abacus(Oid);

fn row(db: Prefix, oid: Oid, name: &[u8]) -> Vec<u8> {
    [&db.object_rows(TAG, oid), name].concat()
}

fn number(raw: &[u8]) -> Result<i64> {
    Ok(raw
        .try_into()
        .map(i64::from_le_bytes)
        .map_err(|_| StoreError::Corrupt("a row of an abacus is not a number".into()))?)
}

/// Adds 1 to the number under `name`.
pub(crate) async fn increment(s: &Scope<'_>, slot: &mut Slot, name: &[u8]) -> Result<i64> {
    let oid = match slot.of_type()? {
        Some(Abacus(oid)) => *oid,
        None => {
            let oid = s.space.fresh.oid();
            object::put(s, slot, Abacus(oid).into(), None)?;
            oid
        }
    };
    let row = row(s.db, oid, name);
    let old = s.tx.get(&row, Read::Serializable).await?;
    s.tx.add(&s.db.count(oid), &Count::step(i64::from(old.is_none())))?;
    let new = old.map_or(Ok(0), |raw| number(&raw))? + 1;
    s.tx.set(&row, &new.to_le_bytes())?;
    s.changed(&slot.key);
    Ok(new)
}

/// The number under `name`.
pub(crate) async fn get(s: &Scope<'_>, slot: &Slot, name: &[u8]) -> Result<Option<i64>> {
    let Some(Abacus(oid)) = slot.of_type()? else { return Ok(None) };
    let raw = s.tx.get(&row(s.db, *oid, name), Read::Serializable).await?;
    raw.map(|raw| number(&raw)).transpose()
}

impl Type for Abacus {
    const NAME: &'static str = "abacus";
    const TAGS: &'static [u8] = &[200];
    const ROWS: &'static [u8] = &[TAG];
    const COUNTED: bool = true;
    const OBJECTS: &'static str = "abaci";

    fn tag(&self) -> u8 {
        200
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.0.0);
    }
    fn decode(_: u8, payload: Bytes) -> Option<Self> {
        Oid::decode(&payload).map(Abacus)
    }
    fn oid(&self) -> Option<Oid> {
        Some(self.0)
    }
    fn moved(&self, oid: Oid) -> Self {
        Abacus(oid)
    }
    fn interned(&self) -> Option<Oid> {
        None
    }
    fn encoding(&self) -> &'static str {
        "rows"
    }
    fn references(&self) -> i64 {
        1
    }
    async fn weight(&self, _: &Scope<'_>) -> Result<u64> {
        Ok(0)
    }
    async fn len(&self, s: &Scope<'_>, read: Read) -> Result<u64> {
        Ok(object::count(s, self.0, read).await?.cardinality())
    }
    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        Ok(self.len(s, Read::Snapshot).await? * 32)
    }
    async fn prebuild(&self, s: &Scope<'_>, to: Prefix, of: Source, lease: u64) -> Result<Option<Object>> {
        let (begin, mut builder) =
            (s.db.object_rows(TAG, self.0), Builder::new(s.space, to, vec![of], lease));
        let rows =
            s.tx.get_range(&begin, &prefix_end(&begin), RangeOptions::default(), Read::Snapshot).await?;
        let (db, oid) = builder.place();
        for (key, value) in &rows.pairs {
            builder.add(row(db, oid, key.get(begin.len()..).unwrap_or_default()), value.to_vec()).await?;
        }
        let len = rows.pairs.len();
        builder.add(db.count(oid), Count::step(len as i64).to_vec()).await?;
        Ok(Some(builder.finish(len as u64).await?))
    }
    fn prebuilt(object: &Object) -> Self {
        Abacus(object.oid())
    }
    async fn dump(&self, _: &Scope<'_>, _: usize) -> Result<Dump> {
        Ok(Dump::Nothing)
    }
    async fn audit(&self, auditor: &Auditor<'_>, _: &[u8]) -> Findings {
        let begin = auditor.db.object_rows(TAG, self.0);
        let page = auditor.view.page(&begin, &prefix_end(&begin), RangeOptions::default()).await?;
        let bad = page.pairs.iter().filter(|(_, value)| value.len() != 8);
        Ok(bad.map(|(row, _)| Problem::new(row, "a row of an abacus is not a number")).collect())
    }
}
