//! Sorted set commands that wait until there is a member: BZPOPMIN, BZPOPMAX, BZMPOP.
//!
//! A handler does what its relative does that does not wait; it answers nil if there is no member. Who waits, and
//! runs it again, is `exec::waiting`. Inside a transaction nobody waits.

use super::pops::{pop_first, take};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::timeouts::{BLOCKS, TAKEN, TAKEN_NUMBERED, TIMEOUT, timeout};
use crate::error::{Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, Row, Waits};
use crate::types::object;
use crate::types::zset;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[BZMPOP, BZPOPMAX, BZPOPMIN];

const BZPOPMIN: Command = Command::new(
    Row::new(Group::SortedSet, "bzpopmin", -3, "5.0.0")
        .flags(BLOCKS.or(Flags::FAST))
        .keys(TAKEN)
        .syntax("key [key ...] timeout")
        .types(TIMEOUT)
        .waits(Waits::Last)
        .summary("Removes the member with the lowest score of the first of several sorted sets that has some; waits until one has."),
    handler!(bzpopmin),
);

async fn bzpopmin(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, false).await
}

const BZPOPMAX: Command = Command::new(
    Row::new(Group::SortedSet, "bzpopmax", -3, "5.0.0")
        .flags(BLOCKS.or(Flags::FAST))
        .keys(TAKEN)
        .syntax("key [key ...] timeout")
        .types(TIMEOUT)
        .waits(Waits::Last)
        .summary("Removes the member with the highest score of the first of several sorted sets that has some; waits until one has."),
    handler!(bzpopmax),
);

async fn bzpopmax(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, true).await
}

async fn pop(cx: &Cx<'_>, args: Args<'_>, reverse: bool) -> Result<Reply> {
    let Some((last, keys)) = args.rest().split_last() else { return Err(SYNTAX.into()) };
    timeout(last)?;
    let s = cx.scope()?;
    for key in keys {
        let mut slot = object::open_members(&s, key).await?;
        if slot.zset()?.is_some() {
            let entries = take(cx, &s, &mut slot, reverse, 1).await?;
            let parts =
                |(member, score): (_, zset::Score)| [Reply::Bulk(member), Reply::Double(score.number())];
            let key = std::iter::once(Reply::Bulk(key.clone()));
            return Ok(Reply::Array(key.chain(entries.into_iter().flat_map(parts)).collect()));
        }
    }
    Ok(Reply::NilArray)
}

const BZMPOP: Command = Command::new(
    Row::new(Group::SortedSet, "bzmpop", -5, "7.0.0")
        .flags(BLOCKS.or(Flags::MOVABLEKEYS))
        .keys(TAKEN_NUMBERED)
        .syntax("timeout numkeys key [key ...] <where: MIN | MAX> [COUNT count]")
        .types(TIMEOUT)
        .waits(Waits::First)
        .summary("Removes the lowest or the highest members of the first of several sorted sets that has some; waits until one has."),
    handler!(bzmpop),
);

async fn bzmpop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let wait = args.next()?;
    pop_first(cx, args, || timeout(wait).map(drop)).await
}
