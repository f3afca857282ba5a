//! A stream's record, and its implementation of the contract.
//!
//! ```text
//! tag 22: oid | length u64 LE | first id | last id | largest deleted id | entries added u64 LE | resets u64 LE
//! ```

use super::{audit, dump, entry, pending, prebuild};
use crate::error::Result;
use crate::keyspace::Scope;
use crate::keyspace::keys::{Id, Oid, Prefix};
use crate::store::Read;
use crate::types::audit::{Auditor, Findings};
use crate::types::contract::Type;
use crate::types::dumped::Dump;
use crate::types::object::{self, Slot};
use crate::types::prebuilt::{History, Object, Source};
use bytes::{BufMut, Bytes};

/// Bytes of the record's payload.
const PAYLOAD: usize = 16 + 8 + 3 * 16 + 2 * 8;

/// Approximate bytes of both rows of a pending entry.
const PENDING: u64 = 160;

/// What the record of a stream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRep {
    /// The object id.
    pub oid: Oid,
    /// The number of entries.
    pub len: u64,
    /// The id of the first entry: rows before it were removed, and are slow to pass. 0-0 if there is none.
    pub first: Id,
    /// The id given last, whether or not its entry is left.
    pub last: Id,
    /// The largest id of an entry that was deleted.
    pub max_deleted: Id,
    /// The number of entries ever added.
    pub added: u64,
    /// How often XSETID has set that number to another one, or the last id to a smaller one.
    pub resets: u64,
}

impl StreamRep {
    /// The tag of its rows.
    pub(super) const ROW: u8 = b'T';

    /// A stream without entries.
    pub fn new(oid: Oid) -> Self {
        StreamRep { oid, len: 0, first: Id::MIN, last: Id::MIN, max_deleted: Id::MIN, added: 0, resets: 0 }
    }

    /// What a prebuilt copy of it has besides its rows.
    pub(crate) fn history(&self) -> History {
        let StreamRep { first, last, max_deleted, added, .. } = *self;
        History { first, last, max_deleted, added }
    }
}

impl Slot {
    /// The stream, or WRONGTYPE.
    pub fn stream(&self) -> Result<Option<&StreamRep>> {
        self.of_type()
    }
}

/// Writes the record of a stream; the key's expiry stays.
pub(crate) fn put(s: &Scope<'_>, slot: &mut Slot, rep: StreamRep) -> Result<()> {
    let expire_at = slot.expire_at();
    object::put(s, slot, rep.into(), expire_at)
}

impl Type for StreamRep {
    const NAME: &'static str = "stream";
    const TAGS: &'static [u8] = &[22];
    const ROWS: &'static [u8] = &[Self::ROW];
    const COUNTED: bool = false;
    const OBJECTS: &'static str = "streams' objects";

    fn tag(&self) -> u8 {
        22
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.oid.0);
        out.put_u64_le(self.len);
        [self.first, self.last, self.max_deleted].iter().for_each(|id| out.put_slice(&id.to_bytes()));
        [self.added, self.resets].iter().for_each(|n| out.put_u64_le(*n));
    }

    fn decode(_: u8, payload: Bytes) -> Option<Self> {
        let raw: &[u8; PAYLOAD] = payload[..].try_into().ok()?;
        let (oid, rest) = raw.split_first_chunk::<16>()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (rest, resets) = rest.split_last_chunk()?;
        let (ids, added) = rest.split_last_chunk()?;
        let (ids, _) = ids.as_chunks();
        let [first, last, max_deleted] = *ids else { return None };
        let [first, last, max_deleted] = [first, last, max_deleted].map(Id::from_bytes);
        let [len, added, resets] = [*len, *added, *resets].map(u64::from_le_bytes);
        Some(StreamRep { oid: Oid::decode(oid)?, len, first, last, max_deleted, added, resets })
    }

    fn oid(&self) -> Option<Oid> {
        Some(self.oid)
    }

    fn moved(&self, oid: Oid) -> Self {
        StreamRep { oid, ..*self }
    }

    fn interned(&self) -> Option<Oid> {
        None
    }

    async fn aside(&self, s: &Scope<'_>, read: Read) -> Result<i128> {
        pending::version(s, self.oid, read).await
    }

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn references(&self) -> i64 {
        1
    }

    async fn weight(&self, s: &Scope<'_>) -> Result<u64> {
        let pending = pending::total(s, self.oid).await?.saturating_mul(PENDING);
        Ok(entry::bytes(s, self, self.len).await?.saturating_add(pending))
    }

    async fn len(&self, _: &Scope<'_>, _: Read) -> Result<u64> {
        Ok(self.len)
    }

    async fn memory(&self, s: &Scope<'_>) -> Result<u64> {
        self.weight(s).await
    }

    async fn prebuild(
        &self,
        s: &Scope<'_>,
        to: Prefix,
        source: Source,
        lease_ms: u64,
    ) -> Result<Option<Object>> {
        prebuild::copy(s, to, self, source, lease_ms).await.map(Some)
    }

    fn prebuilt(object: &Object) -> Self {
        let History { first, last, max_deleted, added } = object.history();
        StreamRep { oid: object.oid(), len: object.len(), first, last, max_deleted, added, resets: 0 }
    }

    async fn dump(&self, s: &Scope<'_>, most: usize) -> Result<Dump> {
        Ok(Dump::Stream(dump::read(s, self, most).await?))
    }

    async fn audit(&self, auditor: &Auditor<'_>, row: &[u8]) -> Findings {
        audit::rows(auditor, self, row).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Value;
    use crate::types::record::{Record, Stored};

    #[test]
    fn a_record_round_trips() {
        let (first, last, max_deleted) = (Id::new(1, 2), Id::new(u64::MAX, 4), Id::new(5, u64::MAX));
        let rep = StreamRep { oid: Oid(7), len: 3, first, last, max_deleted, added: u64::MAX, resets: 8 };
        let record = Record { revision: 1, expire_at: None, value: Value::Stream(rep) };
        let mut raw = record.encode();
        assert_eq!(Stored::decode(raw.clone().into()), Ok(Stored::Record(record)));
        raw.push(0);
        assert!(Stored::decode(raw.clone().into()).is_err(), "too long");
        raw.truncate(raw.len() - 2);
        assert!(Stored::decode(raw.into()).is_err(), "too short");
    }
}
