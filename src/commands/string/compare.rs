//! Commands that compare strings by bytes or digest: DELEX, DELIFEQ, DIGEST. SET's conditions are in
//! `set.rs`.

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::string::set::{When, digest};
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_RO, KEY_TAKEN, KeySpec, Row, Variable, one};
use crate::store::Read;
use crate::types::object::{self, Slot};

const COMPARED: &[KeySpec] = &[one(&["RW", "access", "delete", "variable_flags"])];

pub(super) const DELEX: Command = Command::new(
    Row::new(Group::String, "delex", -2, "8.4.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(COMPARED)
        .syntax(
            "key [condition: IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
        )
        .summary("Removes a key if its value or digest meets a condition.")
        .variable(Variable::Condition),
    handler!(delex),
);

/// Without a condition it removes a value of any type; with one, only a string.
async fn delex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    if args.len() == 1 || args.len() > 2 {
        return Err(ReplyError::new("ERR wrong number of arguments for 'delex' command").into());
    }
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let goes = slot.exists() && (args.is_empty() || compares(cx, &slot, &mut args).await?);
    Ok((goes && object::delete(&s, &mut slot)?).into())
}

/// DELEX's condition, which is parsed only if there is a string to compare, as in Redis.
async fn compares(cx: &Cx<'_>, slot: &Slot, args: &mut Args<'_>) -> Result<bool> {
    if slot.string().is_err() {
        return Err(ReplyError::new("ERR Key should be of string type if conditions are specified").into());
    }
    let unknown = ReplyError::new("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    When::comparison(args)?.ok_or(unknown)?.holds(cx, slot).await
}

pub(super) const DELIFEQ: Command = Command::new(
    Row::new(Group::String, "delifeq", 3, "9.0.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_TAKEN)
        .syntax("key value")
        .summary("Removes a key if it holds the given string: Valkey's name for DELEX with IFEQ."),
    handler!(delifeq),
);

/// Valkey's name for DELEX with IFEQ.
async fn delifeq(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, value) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    let goes = When::Equal(true, value).holds(cx, &slot).await?;
    Ok((goes && object::delete(&s, &mut slot)?).into())
}

pub(super) const DIGEST: Command = Command::new(
    Row::new(Group::String, "digest", 2, "8.4.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the XXH3 digest of a string in hex."),
    handler!(show_digest),
);

async fn show_digest(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(digest(&s, &slot).await?.map_or(Reply::Nil, Reply::text))
}
