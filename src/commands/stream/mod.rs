//! Stream commands.

pub(crate) mod add;
mod ahead;
mod claims;
mod deletions;
mod deliveries;
mod groups;
pub(crate) mod ids;
mod info;
mod options;
mod pending;
mod ranges;
mod read;
#[cfg(test)]
mod tests;
mod trim;

use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result, StoreError};
use crate::keyspace::Scope;
use crate::keyspace::packed::Packed;
use crate::lifecycle::idempotency::MAX_REPLY;
use crate::server::reply::{Reply, Shape};
use crate::spec::{Flags, KeySpec, one};
use crate::store::Read;
use crate::types::items::Items;
use crate::types::object::{self, Slot};
use crate::types::stream::Id;
use crate::types::stream::entry::{Entry, ROW, strings};
use crate::types::stream::range::{self, Span};
use crate::types::stream::sent::{self, FEW};
use bytes::Bytes;

const READS: Flags = Flags::READONLY;
const GROWS: Flags = Flags::WRITE.or(Flags::DENYOOM);
const GROWS_FAST: Flags = GROWS.or(Flags::FAST);
const WRITES_FAST: Flags = Flags::WRITE.or(Flags::FAST);

const KEY_DELETED: &[KeySpec] = &[one(&["RW", "delete"])];

/// The commands on entries.
pub(crate) const COMMANDS: &[Command] = &[
    add::XADD,
    trim::XDEL,
    ranges::XLEN,
    ranges::XRANGE,
    read::XREAD,
    deliveries::XREADGROUP,
    ranges::XREVRANGE,
    trim::XSETID,
    trim::XTRIM,
];

pub(crate) use ahead::ahead;
pub(crate) use claims::COMMANDS as CLAIMS;
pub(crate) use deletions::COMMANDS as DELETIONS;
pub(crate) use groups::COMMANDS as GROUPS;
pub(crate) use info::COMMANDS as INFO;
pub(crate) use pending::COMMANDS as PENDING;

/// The reply of an id.
fn id_reply(id: Id) -> Reply {
    Reply::text(id.to_string())
}

/// Opens a key for a command that changes its entries.
async fn open(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    object::open(s, key, Read::Serializable).await
}

/// The reply of entries. One without fields was deleted.
fn entries(found: &[Entry]) -> Reply {
    let mut packed = Packed::default();
    found.iter().for_each(|entry| sent::push(entry.id, &entry.raw, &mut packed));
    Reply::Packed(Shape::Entries, packed.into())
}

/// The reply of an entry's fields.
fn fields(entry: &Entry) -> Result<Reply> {
    let mut packed = Packed::default();
    for string in strings(&entry.raw) {
        packed.push(string?);
    }
    packed.shrink();
    Ok(Reply::Packed(Shape::Single, packed.into()))
}

const TOO_LARGE: ReplyError = ReplyError::new(
    "ERR the reply has more bytes than client-output-buffer-limit and proto-max-bulk-len allow: ask for less at once",
);

/// What the description of an entry, a group or a consumer takes in memory, about.
const ITEM: u64 = 256;

/// The bytes of a reply that is in memory as a whole.
#[derive(Default)]
struct Size(u64);

impl Size {
    /// Adds a group or consumer of this name.
    fn add_named(&mut self, cx: &Cx<'_>, name: &[u8]) -> Result<()> {
        self.add(cx, name.len() as u64 + ITEM)
    }

    /// Adds bytes that are about to be read. Fails if they are too many, or would keep other units waiting.
    fn add(&mut self, cx: &Cx<'_>, bytes: u64) -> Result<()> {
        self.0 = self.0.saturating_add(bytes);
        let most = cx.most_kept().min(cx.server.config.get().proto_max_bulk_len);
        match () {
            () if !cx.may_stream && self.0 > MAX_REPLY as u64 => {
                Err(StoreError::ReplyTooLarge(self.0 as usize).into())
            }
            () if self.0 > most as u64 => Err(TOO_LARGE.into()),
            () => cx.light(self.0),
        }
    }
}

/// The reply of the first `count` entries of a span, from its end if `reverse`. Many are read while they are sent.
async fn read_entries(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    slot: &Slot,
    span: Span,
    which: (u64, bool),
    size: &mut Size,
) -> Result<Reply> {
    let Some(rep) = slot.stream()? else { return Ok(entries(&[])) };
    if cx.may_stream {
        if let Some(few) = range::few(s, rep, span, which, FEW).await? {
            few.iter().try_for_each(|entry| size.add(cx, entry.raw.len() as u64 + ROW))?;
            return Ok(entries(&few));
        }
        if let Some(found) = sent::find(s, slot, span, which, |bytes| cx.light(bytes)).await?
            && let Some(items) = Items::open(s, slot, found, cx.most_kept()).await?
        {
            return Ok(Reply::Items(items.into()));
        }
    }
    Ok(entries(&range::read(s, rep, span, which, |bytes| size.add(cx, bytes)).await?))
}
