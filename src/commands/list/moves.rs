//! Commands that move elements between lists, or take them from the first list that has some: LMOVE, RPOPLPUSH,
//! LMPOP.

use super::{GROWS, emptied, limit, open, popped, pushed, take, weigh_at};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::popped::{self, Popped};
use crate::config::Events;
use crate::error::{Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::types::list::{self, End};
use crate::types::object;
use bytes::Bytes;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[LMOVE, LMPOP, RPOPLPUSH];

const fn at(begin: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin, find: FindKeys::Range { last: 0, step: 1 } }
}

pub(super) const MOVED: &[KeySpec] = &[at(1, &["RW", "access", "delete"]), at(2, &["RW", "insert"])];

pub(super) fn end(args: &mut Args<'_>) -> ArgResult<End> {
    match () {
        () if args.keyword("LEFT") => Ok(End::Left),
        () if args.keyword("RIGHT") => Ok(End::Right),
        () => Err(SYNTAX),
    }
}

const LMOVE: Command = Command::new(
    Row::new(Group::List, "lmove", 5, "6.2.0")
        .flags(GROWS)
        .keys(MOVED)
        .syntax("source destination <wherefrom: LEFT | RIGHT> <whereto: LEFT | RIGHT>")
        .summary("Moves an element from an end of a list to an end of another."),
    handler!(lmove),
);

async fn lmove(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let keys = (args.next()?, args.next()?);
    let ends = (end(&mut args)?, end(&mut args)?);
    shift(cx, keys, ends).await
}

const RPOPLPUSH: Command = Command::new(
    Row::new(Group::List, "rpoplpush", 3, "1.2.0")
        .flags(GROWS)
        .keys(MOVED)
        .syntax("source destination")
        .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
        .summary("Moves the last element of a list before the first one of another."),
    handler!(rpoplpush),
);

async fn rpoplpush(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let keys = (args.next()?, args.next()?);
    shift(cx, keys, (End::Right, End::Left)).await
}

pub(super) async fn shift(
    cx: &Cx<'_>,
    (source, target): (&Bytes, &Bytes),
    (from, to): (End, End),
) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = open(&s, source).await?;
    if slot.list()?.is_none() {
        return Ok(Reply::Nil);
    }
    weigh_at(cx, &s, slot.list()?, from, 1).await?;
    if source == target {
        let element = list::rotate(&s, &mut slot, limit(cx), (from, to)).await?;
        s.notify(Events::LIST, pushed(to), target);
        s.notify(Events::LIST, popped(from), source);
        return Ok(Reply::bulk_or_nil(element));
    }
    let mut other = open(&s, target).await?;
    other.list()?;
    object::check_name(target)?;
    let elements = list::pop(&s, &mut slot, limit(cx), from, 1).await?;
    list::push(&s, &mut other, limit(cx), to, &elements).await?;
    s.notify(Events::LIST, pushed(to), target);
    s.notify(Events::LIST, popped(from), source);
    emptied(&s, &slot);
    Ok(Reply::bulk_or_nil(elements.into_iter().next()))
}

const LMPOP: Command = Command::new(
    Row::new(Group::List, "lmpop", -4, "7.0.0")
        .flags(Flags::WRITE.or(Flags::MOVABLEKEYS))
        .keys(popped::TAKEN)
        .syntax("numkeys key [key ...] <where: LEFT | RIGHT> [COUNT count]")
        .summary("Removes elements from the first of several lists that has some, and returns them."),
    handler!(lmpop),
);

async fn lmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop_first(cx, args, || Ok(())).await
}

/// LMPOP, and BLMPOP behind its timeout, which `check` checks once the other arguments are right.
pub(super) async fn pop_first(
    cx: &Cx<'_>,
    mut args: Args<'_>,
    check: impl FnOnce() -> ArgResult<()> + Send,
) -> Result<Reply> {
    let Popped { keys, end, count } = popped::parse(&mut args, end)?;
    check()?;
    let s = cx.scope()?;
    for key in keys {
        let mut slot = open(&s, key).await?;
        if slot.list()?.is_some() {
            let elements = take(cx, &s, &mut slot, end, count).await?;
            return Ok(Reply::Array(vec![Reply::Bulk(key.clone()), Reply::bulks(elements)]));
        }
    }
    Ok(Reply::NilArray)
}
