//! A list's part of a record, and its implementation of the contract.
//!
//! ```text
//! tag 12 listpack: (length u16 LE, bytes)*
//! tag 13 rows: extent     tag 14 rows of a list named listpack: extent      see `rows`
//! ```

use super::rows::Extent;
use super::{audit, prebuild};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::Read;
use crate::types::audit::{Auditor, Findings};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::Slot;
use crate::types::prebuilt::{Object, Source};
use bytes::{BufMut, Bytes};

/// Approximate bytes of an element's row besides the element.
const ROW: u64 = 32;

/// A list's elements, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRep {
    /// The elements.
    Listpack(Bytes),
    /// A row an element.
    Rows {
        /// Where they are.
        extent: Extent,
        /// Whether Redis would keep it in a listpack.
        is_small: bool,
    },
}

impl ListRep {
    /// The tag of its rows.
    pub(super) const ROW: u8 = b'L';
}

impl Slot {
    /// The list, or WRONGTYPE.
    pub fn list(&self) -> Result<Option<&ListRep>> {
        self.of_type()
    }
}

impl Type for ListRep {
    const NAME: &'static str = "list";
    const TAGS: &'static [u8] = &[12, 13, 14];
    const ROWS: &'static [u8] = &[Self::ROW];
    const COUNTED: bool = false;
    const OBJECTS: &'static str = "lists' objects";

    fn tag(&self) -> u8 {
        match self {
            ListRep::Listpack(_) => 12,
            ListRep::Rows { is_small: false, .. } => 13,
            ListRep::Rows { is_small: true, .. } => 14,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ListRep::Listpack(bytes) => out.put_slice(bytes),
            ListRep::Rows { extent, .. } => extent.encode(out),
        }
    }

    fn decode(tag: u8, payload: Bytes) -> Option<Self> {
        match tag {
            12 => Some(ListRep::Listpack(payload)),
            13 | 14 => Some(ListRep::Rows { extent: Extent::decode(&payload)?, is_small: tag == 14 }),
            _ => None,
        }
    }

    fn oid(&self) -> Option<Oid> {
        match self {
            ListRep::Rows { extent, .. } => Some(extent.oid),
            ListRep::Listpack(_) => None,
        }
    }

    fn moved(&self, oid: Oid) -> Self {
        match self {
            ListRep::Rows { extent, is_small } => {
                ListRep::Rows { extent: Extent { oid, ..*extent }, is_small: *is_small }
            }
            ListRep::Listpack(_) => self.clone(),
        }
    }

    fn interned(&self) -> Option<Oid> {
        None
    }

    fn encoding(&self) -> &'static str {
        match self {
            ListRep::Listpack(_) | ListRep::Rows { is_small: true, .. } => "listpack",
            ListRep::Rows { is_small: false, .. } => "quicklist",
        }
    }

    fn references(&self) -> i64 {
        1
    }

    async fn weight(&self, _: &Scope<'_>) -> Result<u64> {
        Ok(match self {
            ListRep::Listpack(_) => 0,
            ListRep::Rows { extent, .. } => extent.bytes.saturating_add(extent.len.saturating_mul(ROW)),
        })
    }

    async fn len(&self, _: &Scope<'_>, _: Read) -> Result<u64> {
        super::len(Some(self))
    }

    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        match self {
            ListRep::Listpack(raw) => Ok(raw.len() as u64),
            ListRep::Rows { .. } => self.weight(s).await,
        }
    }

    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        match self {
            ListRep::Rows { extent, .. } => prebuild::copy(s, to, extent, source, lease_ms).await.map(Some),
            ListRep::Listpack(_) => Ok(None),
        }
    }

    /// What exceeds a transaction exceeds Redis' limits. A list is built from position 0 on.
    fn prebuilt(object: &Object) -> Self {
        let (bytes, long) = object.sizes();
        let extent = Extent { oid: object.oid(), first: 0, len: object.len(), bytes, long };
        ListRep::Rows { extent, is_small: false }
    }

    async fn dump(&self, s: &Scope<'_>, most: usize) -> Result<Dump> {
        Ok(Dump::List(super::range(s, Some(self), (0, -1), most).await?))
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        match self {
            ListRep::Rows { extent, .. } => audit::rows(auditor, *extent, row).await,
            ListRep::Listpack(raw) => Ok(audit::listpack(raw, row)),
        }
    }
}
