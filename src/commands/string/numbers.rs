//! Arithmetic on strings.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::float::{self, LongDouble};
use crate::config::Events;
use crate::error::{NOT_FLOAT, NOT_INTEGER, ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, KEY_CHANGED, Row};
use crate::store::Read;
use crate::types::Value;
use crate::types::object::{self, Slot};
use crate::types::string;
use crate::types::string::Str;
use bytes::Bytes;

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const WRITES_FAST: Flags = WRITES.or(Flags::FAST);

const OVERFLOW: ReplyError = ReplyError::new("ERR increment or decrement would overflow");

pub(super) const INCR: Command = Command::new(
    Row::new(Group::String, "incr", 2, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key")
        .summary("Adds one to an integer."),
    handler!(incr),
);

async fn incr(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    add(cx, args.next()?, 1).await
}

pub(super) const DECR: Command = Command::new(
    Row::new(Group::String, "decr", 2, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key")
        .summary("Subtracts one from an integer."),
    handler!(decr),
);

async fn decr(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    add(cx, args.next()?, -1).await
}

pub(super) const INCRBY: Command = Command::new(
    Row::new(Group::String, "incrby", 3, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key increment")
        .summary("Adds an integer to an integer."),
    handler!(incrby),
);

async fn incrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, by) = (args.next()?, args.int()?);
    add(cx, key, by).await
}

pub(super) const DECRBY: Command = Command::new(
    Row::new(Group::String, "decrby", 3, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key decrement")
        .summary("Subtracts an integer from an integer."),
    handler!(decrby),
);

async fn decrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, by) = (args.next()?, args.int()?);
    let by = by.checked_neg().ok_or(ReplyError::new("ERR decrement would overflow"))?;
    add(cx, key, by).await
}

async fn add(cx: &Cx<'_>, key: &Bytes, by: i64) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = match short(&slot)? {
        None => 0,
        Some(raw) => raw.and_then(|raw| parse_i64(raw)).ok_or(NOT_INTEGER)?,
    };
    let new = old.checked_add(by).ok_or(OVERFLOW)?;
    let text = Bytes::from(itoa::Buffer::new().format(new).to_owned());
    let expiry = slot.expire_at();
    object::put(&s, &mut slot, Value::Str(Str::Inline(text)), expiry)?;
    s.notify(Events::STRING, "incrby", key);
    Ok(Reply::Int(new))
}

/// The bytes of a string that may be a number: `Some(None)` if it is longer than any number.
fn short(slot: &Slot) -> Result<Option<Option<&Bytes>>> {
    Ok(slot.string()?.map(string::inline))
}

pub(super) const INCRBYFLOAT: Command = Command::new(
    Row::new(Group::String, "incrbyfloat", 3, "2.6.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key increment")
        .summary("Adds a floating-point number to a number.")
        .types(&[("increment", "double")]),
    handler!(incrbyfloat),
);

async fn incrbyfloat(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, by) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let old = match short(&slot)? {
        None => LongDouble::ZERO,
        Some(raw) => raw.and_then(|raw| float::parse(raw)).ok_or(NOT_FLOAT)?,
    };
    let by = float::parse(by).ok_or(NOT_FLOAT)?;
    let new = old.plus(by).ok_or(ReplyError::new("ERR increment would produce NaN or Infinity"))?;
    let text = Bytes::from(new.to_fixed());
    let expiry = slot.expire_at();
    object::put(&s, &mut slot, Value::Str(Str::Made { bytes: text.clone(), raw: false }), expiry)?;
    s.notify(Events::STRING, "incrbyfloat", key);
    Ok(Reply::Bulk(text))
}
