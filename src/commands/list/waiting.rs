//! List commands that wait until there is an element: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP.
//!
//! A handler does what its relative does that does not wait; it answers nil if there is no element. Who waits, and
//! runs it again, is `exec::waiting`. Inside a transaction nobody waits.

use super::moves::{MOVED, end, pop_first, shift};
use super::{GROWS, open, take};
use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::timeouts::{BLOCKS, TAKEN, TAKEN_NUMBERED, TIMEOUT, timeout};
use crate::error::{Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, Row, Waits};
use crate::types::list::End;

const BLOCKS_AND_GROWS: Flags = GROWS.or(Flags::BLOCKING);

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[BLMOVE, BLMPOP, BLPOP, BRPOP, BRPOPLPUSH];

const BLPOP: Command = Command::new(
    Row::new(Group::List, "blpop", -3, "2.0.0")
        .flags(BLOCKS)
        .keys(TAKEN)
        .syntax("key [key ...] timeout")
        .types(TIMEOUT)
        .waits(Waits::Last)
        .summary(
            "Removes the first element of the first of several lists that has some; waits until one has.",
        ),
    handler!(blpop),
);

async fn blpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, End::Left).await
}

const BRPOP: Command = Command::new(
    Row::new(Group::List, "brpop", -3, "2.0.0")
        .flags(BLOCKS)
        .keys(TAKEN)
        .syntax("key [key ...] timeout")
        .types(TIMEOUT)
        .waits(Waits::Last)
        .summary(
            "Removes the last element of the first of several lists that has some; waits until one has.",
        ),
    handler!(brpop),
);

async fn brpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, End::Right).await
}

async fn pop(cx: &Cx<'_>, args: Args<'_>, end: End) -> Result<Reply> {
    let Some((last, keys)) = args.rest().split_last() else { return Err(SYNTAX.into()) };
    timeout(last)?;
    let s = cx.scope()?;
    for key in keys {
        let mut slot = open(&s, key).await?;
        if slot.list()?.is_some() {
            let element = take(cx, &s, &mut slot, end, 1).await?;
            return Ok(Reply::bulks(std::iter::once(key.clone()).chain(element)));
        }
    }
    Ok(Reply::NilArray)
}

const BLMOVE: Command = Command::new(
    Row::new(Group::List, "blmove", 6, "6.2.0")
        .flags(BLOCKS_AND_GROWS)
        .keys(MOVED)
        .syntax("source destination <wherefrom: LEFT | RIGHT> <whereto: LEFT | RIGHT> timeout")
        .types(TIMEOUT)
        .waits(Waits::Last)
        .summary("Moves an element from an end of a list to an end of another; waits until there is one."),
    handler!(blmove),
);

async fn blmove(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let keys = (args.next()?, args.next()?);
    let ends = (end(&mut args)?, end(&mut args)?);
    timeout(args.next()?)?;
    shift(cx, keys, ends).await
}

const BRPOPLPUSH: Command = Command::new(
    Row::new(Group::List, "brpoplpush", 4, "2.2.0")
        .flags(BLOCKS_AND_GROWS)
        .keys(MOVED)
        .syntax("source destination timeout")
        .types(TIMEOUT)
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
        .waits(Waits::Last)
        .summary(
            "Moves the last element of a list before the first one of another; waits until there is one.",
        ),
    handler!(brpoplpush),
);

async fn brpoplpush(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let keys = (args.next()?, args.next()?);
    timeout(args.next()?)?;
    shift(cx, keys, (End::Right, End::Left)).await
}

const BLMPOP: Command = Command::new(
    Row::new(Group::List, "blmpop", -5, "7.0.0")
        .flags(BLOCKS.or(Flags::MOVABLEKEYS))
        .keys(TAKEN_NUMBERED)
        .syntax("timeout numkeys key [key ...] <where: LEFT | RIGHT> [COUNT count]")
        .types(TIMEOUT)
        .waits(Waits::First)
        .summary("Removes elements from the first of several lists that has some; waits until one has."),
    handler!(blmpop),
);

async fn blmpop(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let wait = args.next()?;
    pop_first(cx, args, || timeout(wait).map(drop)).await
}
