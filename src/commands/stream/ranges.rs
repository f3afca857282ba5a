//! Commands that read entries by their ids: XLEN, XRANGE, XREVRANGE.

use super::{READS, Size, ids, read_entries};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_META, KEY_RO, Row};

/// XLEN.
pub(super) const XLEN: Command = Command::new(
    Row::new(Group::Stream, "xlen", 2, "5.0.0")
        .flags(READS.or(Flags::FAST))
        .keys(KEY_META)
        .syntax("key")
        .summary("Returns the number of entries of a stream."),
    handler!(xlen),
);

async fn xlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    Ok(Reply::Int(slot.stream()?.map_or(0, |rep| rep.len.cast_signed())))
}

/// XRANGE.
pub(super) const XRANGE: Command = Command::new(
    Row::new(Group::Stream, "xrange", -4, "5.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key start end [COUNT count]")
        .types(&[("start", "string"), ("end", "string")])
        .summary("Returns the entries of a stream between two ids."),
    handler!(xrange),
);

async fn xrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    between(cx, args, false).await
}

/// XREVRANGE.
pub(super) const XREVRANGE: Command = Command::new(
    Row::new(Group::Stream, "xrevrange", -4, "5.0.0")
        .flags(READS)
        .keys(KEY_RO)
        .syntax("key end start [COUNT count]")
        .types(&[("start", "string"), ("end", "string")])
        .summary("Returns the entries of a stream between two ids, from the last to the first."),
    handler!(xrevrange),
);

async fn xrevrange(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    between(cx, args, true).await
}

async fn between(cx: &Cx<'_>, mut args: Args<'_>, reverse: bool) -> Result<Reply> {
    let (key, one, other) = (args.next()?, args.next()?, args.next()?);
    let span = if reverse { ids::span(other, one)? } else { ids::span(one, other)? };
    let mut count = u64::MAX;
    while !args.is_empty() {
        if args.len() == 1 || !args.keyword("COUNT") {
            return Err(SYNTAX.into());
        }
        count = u64::try_from(args.int()?).unwrap_or(0);
    }
    let s = cx.scope()?;
    let slot = cx.look_up(&s, key).await?;
    match slot.stream()? {
        None => Ok(Reply::Array(Vec::new())),
        Some(_) if count == 0 => Ok(Reply::NilArray),
        Some(_) => read_entries(cx, &s, &slot, span, (count, reverse), &mut Size::default()).await,
    }
}
