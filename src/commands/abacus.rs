//! The commands of the type that exists in tests alone: see [`crate::types::abacus`].

use super::args::Args;
use super::binding::Command;
use super::cx::Cx;
use crate::error::Result;
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_RO, KeySpec, Row, one};
use crate::store::Read;
use crate::types::{abacus, object};

const CHANGED: &[KeySpec] = &[one(&["RW", "access", "update"])];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[AINCR, AGET];

const AINCR: Command = Command::new(
    Row::new(Group::Generic, "aincr", 3, "1.0.0")
        .flags(Flags::WRITE)
        .keys(CHANGED)
        .syntax("key name")
        .summary("Adds 1 to a number."),
    handler!(aincr),
);

async fn aincr(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open(&s, args.next()?, Read::Serializable).await?;
    Ok(Reply::Int(abacus::increment(&s, &mut slot, args.next()?).await?))
}

const AGET: Command = Command::new(
    Row::new(Group::Generic, "aget", 3, "1.0.0")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key name")
        .summary("Returns a number."),
    handler!(aget),
);

async fn aget(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(abacus::get(&s, &slot, args.next()?).await?.map_or(Reply::Nil, Reply::Int))
}
