//! A sorted set's part of a record, and its implementation of the contract.
//!
//! ```text
//! tag 16 listpack: (length u16 LE, member, score)*
//! tag 17 rows: oid     tag 18 rows of a sorted set named listpack: oid
//! ```

use super::{Pick, Places, audit, prebuild, rows};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::{RangeOptions, Read};
use crate::types::audit::{Auditor, Findings};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{Object, Source};
use bytes::{BufMut, Bytes};

/// Members whose sizes MEMORY USAGE takes for all, as in Redis.
const SAMPLE: usize = 5;
/// Approximate bytes of a member's two rows besides its name, which both have.
const ROWS: u64 = 80;

/// A sorted set's members, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZsetRep {
    /// Members and scores.
    Listpack(Bytes),
    /// Rows under the object id.
    Rows {
        /// The object id.
        oid: Oid,
        /// Whether Redis would keep it in a listpack: it has not exceeded the options' limits.
        is_small: bool,
    },
}

impl ZsetRep {
    /// The tag of its rows.
    pub(super) const ROW: u8 = b'R';
}

impl Slot {
    /// The sorted set, or WRONGTYPE.
    pub fn zset(&self) -> Result<Option<&ZsetRep>> {
        self.of_type()
    }
}

impl Type for ZsetRep {
    const NAME: &'static str = "zset";
    const TAGS: &'static [u8] = &[16, 17, 18];
    const ROWS: &'static [u8] = &[Self::ROW];
    const COUNTED: bool = true;
    const OBJECTS: &'static str = "sorted sets' objects";

    fn tag(&self) -> u8 {
        match self {
            ZsetRep::Listpack(_) => 16,
            ZsetRep::Rows { is_small: false, .. } => 17,
            ZsetRep::Rows { is_small: true, .. } => 18,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ZsetRep::Listpack(bytes) => out.put_slice(bytes),
            ZsetRep::Rows { oid, .. } => out.put_u128(oid.0),
        }
    }

    fn decode(tag: u8, payload: Bytes) -> Option<Self> {
        match tag {
            16 => Some(ZsetRep::Listpack(payload)),
            17 | 18 => Some(ZsetRep::Rows { oid: Oid::decode(&payload)?, is_small: tag == 18 }),
            _ => None,
        }
    }

    fn oid(&self) -> Option<Oid> {
        match self {
            ZsetRep::Rows { oid, .. } => Some(*oid),
            ZsetRep::Listpack(_) => None,
        }
    }

    fn moved(&self, oid: Oid) -> Self {
        match self {
            ZsetRep::Rows { is_small, .. } => ZsetRep::Rows { oid, is_small: *is_small },
            ZsetRep::Listpack(_) => self.clone(),
        }
    }

    fn interned(&self) -> Option<Oid> {
        None
    }

    fn encoding(&self) -> &'static str {
        match self {
            ZsetRep::Listpack(_) | ZsetRep::Rows { is_small: true, .. } => "listpack",
            ZsetRep::Rows { is_small: false, .. } => "skiplist",
        }
    }

    fn references(&self) -> i64 {
        1
    }

    async fn weight(&self, s: &Scope<'_>) -> Result<u64> {
        match self {
            ZsetRep::Listpack(_) => Ok(0),
            ZsetRep::Rows { .. } => Ok(self.len(s, Read::Snapshot).await?.saturating_mul(ROWS)),
        }
    }

    async fn len(&self, s: &Scope<'_>, read: Read) -> Result<u64> {
        super::len(s, Some(self), read).await
    }

    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        let oid = match self {
            ZsetRep::Listpack(raw) => return Ok(raw.len() as u64),
            ZsetRep::Rows { oid, .. } => *oid,
        };
        let (begin, end) = (s.db.ranked_place(oid, &[]), s.db.ranked_places_end(oid));
        let opts = RangeOptions { limit: SAMPLE, ..RangeOptions::default() };
        let sample = rows::page(s.tx, s.db, (&begin, &end), opts, Read::Snapshot).await?.entries;
        let bytes: u64 = sample.iter().map(|(member, _)| 2 * member.len() as u64 + ROWS).sum();
        let members = object::count(s, oid, Read::Snapshot).await?.cardinality();
        Ok((bytes as f64 / sample.len().max(1) as f64 * members as f64) as u64)
    }

    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        match self {
            ZsetRep::Rows { oid, .. } => prebuild::copy(s, to, *oid, source, lease_ms).await.map(Some),
            ZsetRep::Listpack(_) => Ok(None),
        }
    }

    /// What exceeds a transaction exceeds Redis' limits.
    fn prebuilt(object: &Object) -> Self {
        ZsetRep::Rows { oid: object.oid(), is_small: false }
    }

    async fn dump(&self, s: &Scope<'_>, most: usize) -> Result<Dump> {
        Ok(Dump::Zset(super::range(s, Some(self), &Places::all(), Pick::ALL, most).await?))
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        match self {
            ZsetRep::Rows { oid, .. } => audit::rows(auditor, *oid).await,
            ZsetRep::Listpack(raw) => Ok(audit::listpack(raw, row)),
        }
    }
}
