//! HINCRBY and HINCRBYFLOAT.

use super::{SETS, limits};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::float::{self, LongDouble};
use crate::config::Events;
use crate::error::{NOT_FLOAT, ReplyError, Result};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Fields, Group, KEY_CHANGED, Row};
use crate::types::hash::{self, Found, HashRep};
use crate::types::object;
use bytes::Bytes;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[HINCRBY, HINCRBYFLOAT];

const HINCRBY: Command = Command::new(
    Row::new(Group::Hash, "hincrby", 4, "2.0.0")
        .flags(SETS)
        .keys(KEY_CHANGED)
        .syntax("key field increment")
        .fields(Fields::One)
        .summary("Adds an integer to the value of a field; 0 if there is none."),
    handler!(hincrby),
);

async fn hincrby(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, field, by) = (args.next()?, args.next()?, args.int()?);
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let old = match number(&s, slot.hash()?, field).await? {
        None => 0,
        Some(raw) => parse_i64(&raw).ok_or(ReplyError::new("ERR hash value is not an integer"))?,
    };
    let new = old.checked_add(by).ok_or(ReplyError::new("ERR increment or decrement would overflow"))?;
    hash::set_values(&s, &mut slot, limits(cx), &[[field.clone(), new.to_string().into()]]).await?;
    s.notify(Events::HASH, "hincrby", key);
    Ok(Reply::Int(new))
}

/// The value of a field; a long one, which is no number, as an empty string.
async fn number(s: &Scope<'_>, rep: Option<&HashRep>, field: &Bytes) -> Result<Option<Bytes>> {
    Ok(hash::find(s, rep, field).await?.map(|found| match found {
        Found::Here(value) => value,
        Found::Long(_) => Bytes::new(),
    }))
}

const HINCRBYFLOAT: Command = Command::new(
    Row::new(Group::Hash, "hincrbyfloat", 4, "2.6.0")
        .flags(SETS)
        .keys(KEY_CHANGED)
        .syntax("key field increment")
        .fields(Fields::One)
        .summary("Adds a floating-point number to the value of a field; 0 if there is none.")
        .types(&[("increment", "double")]),
    handler!(hincrbyfloat),
);

async fn hincrbyfloat(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, field, by) = (args.next()?, args.next()?, args.next()?);
    let by = float::parse(by).ok_or(NOT_FLOAT)?;
    if !by.is_finite() {
        return Err(ReplyError::new("ERR value is NaN or Infinity").into());
    }
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let old = match number(&s, slot.hash()?, field).await? {
        None => LongDouble::ZERO,
        Some(raw) => float::parse(&raw).ok_or(ReplyError::new("ERR hash value is not a float"))?,
    };
    let new = old.plus(by).ok_or(ReplyError::new("ERR increment would produce NaN or Infinity"))?;
    let text = Bytes::from(new.to_fixed());
    hash::set_values(&s, &mut slot, limits(cx), &[[field.clone(), text.clone()]]).await?;
    s.notify(Events::HASH, "hincrbyfloat", key);
    Ok(Reply::Bulk(text))
}
