//! A hash's part of a record, and its implementation of the contract.
//!
//! ```text
//! tag 9 listpack: (length u16 LE, bytes)*, field and value in turn
//! tag 10 rows: oid     tag 11 rows of a hash named listpack: oid
//! tag 20, 21: the same, with fields that expire: oid | due ms u64 LE
//! ```

use super::{audit, expiry, prebuild, rows};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::Read;
use crate::types::audit::{Auditor, Findings};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{Object, Source};
use bytes::{BufMut, Bytes};

/// Fields whose sizes MEMORY USAGE takes for all, as in Redis.
const SAMPLE: usize = 5;
/// Approximate bytes of a field's row besides its name and value.
const ROW: u64 = 32;

/// A hash's fields, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashRep {
    /// Fields and values.
    Listpack(Bytes),
    /// A row a field under the object id.
    Rows {
        /// The object id.
        oid: Oid,
        /// Whether Redis would keep it in a listpack: it has not exceeded the options' limits.
        is_small: bool,
        /// A time before which none of its fields expires. None if no field expires. See `expiry`.
        due: Option<u64>,
    },
}

impl HashRep {
    /// The tag of its rows.
    pub(super) const ROW: u8 = b'H';
}

impl Slot {
    /// The hash, or WRONGTYPE.
    pub fn hash(&self) -> Result<Option<&HashRep>> {
        self.of_type()
    }
}

impl Type for HashRep {
    const NAME: &'static str = "hash";
    const TAGS: &'static [u8] = &[9, 10, 11, 20, 21];
    const ROWS: &'static [u8] = &[Self::ROW];
    const COUNTED: bool = true;
    const OBJECTS: &'static str = "hashes' objects";

    fn tag(&self) -> u8 {
        match self {
            HashRep::Listpack(_) => 9,
            HashRep::Rows { is_small: false, due: None, .. } => 10,
            HashRep::Rows { is_small: true, due: None, .. } => 11,
            HashRep::Rows { is_small: false, due: Some(_), .. } => 20,
            HashRep::Rows { is_small: true, due: Some(_), .. } => 21,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            HashRep::Listpack(bytes) => out.put_slice(bytes),
            HashRep::Rows { oid, due, .. } => {
                out.put_u128(oid.0);
                due.iter().for_each(|due| out.put_u64_le(*due));
            }
        }
    }

    fn decode(tag: u8, payload: Bytes) -> Option<Self> {
        match tag {
            9 => Some(HashRep::Listpack(payload)),
            10 | 11 => Some(HashRep::Rows { oid: Oid::decode(&payload)?, is_small: tag == 11, due: None }),
            20 | 21 => {
                let (oid, due) = payload.split_first_chunk::<16>()?;
                let due = Some(u64::from_le_bytes(due.try_into().ok()?));
                Some(HashRep::Rows { oid: Oid::decode(oid)?, is_small: tag == 21, due })
            }
            _ => None,
        }
    }

    fn oid(&self) -> Option<Oid> {
        match self {
            HashRep::Rows { oid, .. } => Some(*oid),
            HashRep::Listpack(_) => None,
        }
    }

    fn moved(&self, oid: Oid) -> Self {
        match self {
            HashRep::Rows { is_small, due, .. } => HashRep::Rows { oid, is_small: *is_small, due: *due },
            HashRep::Listpack(_) => self.clone(),
        }
    }

    fn interned(&self) -> Option<Oid> {
        None
    }

    fn due(&self) -> Option<u64> {
        match self {
            HashRep::Rows { due, .. } => *due,
            HashRep::Listpack(_) => None,
        }
    }

    async fn has_any(&self, s: &Scope<'_>, n: u64, read: Read) -> Result<bool> {
        expiry::has_any(s, self, n, read).await
    }

    fn encoding(&self) -> &'static str {
        match self {
            HashRep::Rows { is_small: true, due: Some(_), .. } => "listpackex",
            HashRep::Listpack(_) | HashRep::Rows { is_small: true, due: None, .. } => "listpack",
            HashRep::Rows { is_small: false, .. } => "hashtable",
        }
    }

    fn references(&self) -> i64 {
        1
    }

    async fn weight(&self, s: &Scope<'_>) -> Result<u64> {
        match self {
            HashRep::Listpack(_) => Ok(0),
            HashRep::Rows { .. } => Ok(self.len(s, Read::Snapshot).await?.saturating_mul(ROW)),
        }
    }

    async fn len(&self, s: &Scope<'_>, read: Read) -> Result<u64> {
        super::len(s, Some(self), read).await
    }

    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        let oid = match self {
            HashRep::Listpack(raw) => return Ok(raw.len() as u64),
            HashRep::Rows { oid, .. } => *oid,
        };
        let (begin, end) = (s.db.fields_from(oid, 0), s.db.fields_end(oid));
        let sample = rows::page(s.tx, s.db, (&begin, &end), (SAMPLE, 0)).await?.fields;
        let bytes: u64 = sample.iter().map(|(_, field, held)| field.len() as u64 + held.len() + ROW).sum();
        let fields = object::count(s, oid, Read::Snapshot).await?.cardinality();
        Ok((bytes as f64 / sample.len().max(1) as f64 * fields as f64) as u64)
    }

    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        match self {
            HashRep::Rows { oid, .. } => prebuild::copy(s, to, *oid, source, lease_ms).await.map(Some),
            HashRep::Listpack(_) => Ok(None),
        }
    }

    /// What exceeds a transaction exceeds Redis' limits.
    fn prebuilt(object: &Object) -> Self {
        HashRep::Rows { oid: object.oid(), is_small: false, due: object.due() }
    }

    async fn dump(&self, s: &Scope<'_>, most: usize) -> Result<Dump> {
        match self.due() {
            None => Ok(Dump::Hash(super::all(s, Some(self), true, most).await?)),
            Some(_) => Ok(Dump::Fields(super::all_fields(s, self, most).await?)),
        }
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        match self {
            HashRep::Rows { oid, due, .. } => audit::rows(auditor, *oid, *due).await,
            HashRep::Listpack(raw) => Ok(audit::listpack(raw, row)),
        }
    }
}
