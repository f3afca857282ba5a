//! A set's part of a record, and its implementation of the contract.
//!
//! ```text
//! tag 3 listpack: (len u16 LE, bytes)*   tag 4 intset: serialized RoaringTreemap of ids   tag 5 chunked: oid
//! ```

use super::{audit, chunked, members, prebuild};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Oid, Prefix};
use crate::store::Read;
use crate::types::audit::{Auditor, Findings, Problem};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{Object, Source};
use bytes::{BufMut, Bytes};

/// Approximate bytes per member of a chunked set: its share of a bitmap, of both dictionary rows and of their
/// keys.
const MEMBER: u64 = 48;

/// A set's members, or where they are. [`super::small`] decodes the payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetRep {
    /// Raw members.
    Listpack(Bytes),
    /// Serialized Roaring treemap of integer ids.
    Intset(Bytes),
    /// Chunks and deltas under the object id.
    Chunked(Oid),
}

impl Slot {
    /// The set, or WRONGTYPE.
    pub fn set(&self) -> Result<Option<&SetRep>> {
        self.of_type()
    }
}

impl Type for SetRep {
    const NAME: &'static str = "set";
    const TAGS: &'static [u8] = &[3, 4, 5];
    const ROWS: &'static [u8] = b"S";
    const COUNTED: bool = true;
    const OBJECTS: &'static str = "sets' objects";

    fn tag(&self) -> u8 {
        match self {
            SetRep::Listpack(_) => 3,
            SetRep::Intset(_) => 4,
            SetRep::Chunked(_) => 5,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SetRep::Listpack(bytes) | SetRep::Intset(bytes) => out.put_slice(bytes),
            SetRep::Chunked(oid) => out.put_u128(oid.0),
        }
    }

    fn decode(tag: u8, payload: Bytes) -> Option<Self> {
        match tag {
            3 => Some(SetRep::Listpack(payload)),
            4 => Some(SetRep::Intset(payload)),
            5 => Oid::decode(&payload).map(SetRep::Chunked),
            _ => None,
        }
    }

    fn oid(&self) -> Option<Oid> {
        match self {
            SetRep::Chunked(oid) => Some(*oid),
            SetRep::Listpack(_) | SetRep::Intset(_) => None,
        }
    }

    fn moved(&self, oid: Oid) -> Self {
        match self {
            SetRep::Chunked(_) => SetRep::Chunked(oid),
            SetRep::Listpack(_) | SetRep::Intset(_) => self.clone(),
        }
    }

    fn interned(&self) -> Option<Oid> {
        self.oid()
    }

    fn encoding(&self) -> &'static str {
        match self {
            SetRep::Listpack(_) => "listpack",
            SetRep::Intset(_) => "intset",
            SetRep::Chunked(_) => "hashtable",
        }
    }

    fn references(&self) -> i64 {
        1
    }

    /// 0: chunks are copied as they are.
    async fn weight(&self, _: &Scope<'_>) -> Result<u64> {
        Ok(0)
    }

    async fn len(&self, s: &Scope<'_>, read: Read) -> Result<u64> {
        match self {
            SetRep::Chunked(oid) => Ok(object::count(s, *oid, read).await?.cardinality()),
            SetRep::Listpack(_) | SetRep::Intset(_) => super::card(s, Some(self)).await,
        }
    }

    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        match self {
            SetRep::Listpack(bytes) | SetRep::Intset(bytes) => Ok(bytes.len() as u64),
            SetRep::Chunked(_) => Ok(Type::len(self, s, Read::Snapshot).await? * MEMBER),
        }
    }

    /// Built from its members, not its rows: meanwhile a fold may move members from one row to another.
    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        match self {
            SetRep::Chunked(oid) => {
                let ids = chunked::all(s, *oid).await?;
                prebuild::build(s.space, to, ids, vec![source], None, lease_ms).await.map(Some)
            }
            SetRep::Listpack(_) | SetRep::Intset(_) => Ok(None),
        }
    }

    fn prebuilt(object: &Object) -> Self {
        SetRep::Chunked(object.oid())
    }

    async fn dump(&self, s: &Scope<'_>, _: usize) -> Result<Dump> {
        let members = members(s, Some(self)).await?;
        Ok(match self {
            SetRep::Intset(_) => Dump::Integers(members),
            SetRep::Listpack(_) | SetRep::Chunked(_) => Dump::Set(members),
        })
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        match self {
            SetRep::Chunked(oid) => audit::chunked(auditor, *oid).await,
            SetRep::Listpack(_) | SetRep::Intset(_) => {
                Ok(audit::small(self).map(|what| Problem::new(row, what)).into_iter().collect())
            }
        }
    }
}
