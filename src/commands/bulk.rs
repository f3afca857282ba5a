//! Strings as replies: a command reads short ones itself; long ones are read while they are sent.

use crate::commands::cx::Cx;
use crate::error::{Result, StoreError};
use crate::keyspace::Scope;
use crate::lifecycle::dump::{self, Payload};
use crate::lifecycle::idempotency::MAX_REPLY;
use crate::server::reply::Reply;
use crate::types::object::Slot;
use crate::types::string;
use crate::types::string::Str;
use crate::types::string::stream::Long;

impl Cx<'_> {
    /// The string under a key, or nil.
    pub(super) async fn bulk(&self, s: &Scope<'_>, slot: &Slot) -> Result<Reply> {
        match slot.string()? {
            None => Ok(Reply::Nil),
            Some(value) => self.bulk_range(s, slot, value, (0, string::len(value))).await,
        }
    }

    /// The bytes `start..end` of `value`, the value of `slot`.
    pub(super) async fn bulk_range(
        &self,
        s: &Scope<'_>,
        slot: &Slot,
        value: &Str,
        range: (u64, u64),
    ) -> Result<Reply> {
        if let Some(bytes) = string::inline(value) {
            let end = (range.1 as usize).min(bytes.len());
            return Ok(Reply::Bulk(bytes.slice((range.0 as usize).min(end)..end)));
        }
        Box::pin(self.bulk_in_pieces(s, slot, value, range)).await
    }

    async fn bulk_in_pieces(
        &self,
        s: &Scope<'_>,
        slot: &Slot,
        value: &Str,
        range: (u64, u64),
    ) -> Result<Reply> {
        Ok(match self.long(s, slot, value, range).await? {
            Some(long) => Reply::Long(Box::new(long)),
            None => Reply::Bulk(string::read_range(s, value, range.0, range.1).await?),
        })
    }

    /// DUMP's reply for `value`, the value of `slot`.
    pub(super) async fn dumped(&self, s: &Scope<'_>, slot: &Slot, value: &Str) -> Result<Reply> {
        Ok(match self.long(s, slot, value, (0, string::len(value))).await? {
            Some(long) => Reply::Dumped(Box::new(Payload::new(long))),
            None => Reply::Bulk(dump::of_string(&string::read(s, value).await?).into()),
        })
    }

    /// None if it must be read now: a reply kept under a client's id has to fit there.
    async fn long(
        &self,
        s: &Scope<'_>,
        slot: &Slot,
        value: &Str,
        (start, end): (u64, u64),
    ) -> Result<Option<Long>> {
        let bytes = end.min(string::len(value)).saturating_sub(start) as usize;
        if string::inline(value).is_some() {
            return Ok(None);
        }
        if !self.may_stream {
            return if bytes > MAX_REPLY { Err(StoreError::ReplyTooLarge(bytes).into()) } else { Ok(None) };
        }
        if self.memo.may_hold(bytes) {
            return Ok(None);
        }
        Ok(Some(self.memo.holder(s, self.most_kept()).await?.open(s, slot, value, (start, end)).await?))
    }
}
