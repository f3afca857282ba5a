//! ZPOPMIN, ZPOPMAX and ZMPOP.

use super::{MOST_REMOVED, ROW, TAKEN, WRITES_FAST, remove, removed, with_scores};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::popped::{self, Popped};
use crate::error::{ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, Row};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::zset::{self, Entry};

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[ZMPOP, ZPOPMAX, ZPOPMIN];

const ZPOPMIN: Command = Command::new(
    Row::new(Group::SortedSet, "zpopmin", -2, "5.0.0")
        .flags(WRITES_FAST)
        .keys(TAKEN)
        .syntax("key [count]")
        .summary("Removes the members with the lowest scores, and returns them."),
    handler!(zpopmin),
);

async fn zpopmin(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, false).await
}

const ZPOPMAX: Command = Command::new(
    Row::new(Group::SortedSet, "zpopmax", -2, "5.0.0")
        .flags(WRITES_FAST)
        .keys(TAKEN)
        .syntax("key [count]")
        .summary("Removes the members with the highest scores, and returns them."),
    handler!(zpopmax),
);

async fn zpopmax(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop(cx, args, true).await
}

async fn pop(cx: &Cx<'_>, mut args: Args<'_>, reverse: bool) -> Result<Reply> {
    let key = args.next()?;
    let count = match args.is_empty() {
        true => None,
        false => Some(parse_i64(args.next()?).and_then(|n| u64::try_from(n).ok())),
    };
    args.end()?;
    let n = count.unwrap_or(Some(1)).ok_or(ReplyError::new("ERR value is out of range, must be positive"))?;
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, key).await?;
    let entries = take(cx, &s, &mut slot, reverse, n).await?;
    Ok(match count {
        Some(_) => with_scores(entries),
        None => match entries.into_iter().next() {
            Some((member, score)) => Reply::Array(vec![Reply::Bulk(member), Reply::Double(score.number())]),
            None => Reply::Array(Vec::new()),
        },
    })
}

/// Removes up to `n` members from an end, and announces that.
pub(super) async fn take(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    slot: &mut Slot,
    reverse: bool,
    n: u64,
) -> Result<Vec<Entry>> {
    let pick = zset::Pick { reverse, skip: 0, limit: n };
    let len = zset::len(s, slot.zset()?, Read::Snapshot).await?;
    cx.light(n.min(len).saturating_mul(ROW))?;
    if n < len && n > MOST_REMOVED {
        return Err(StoreError::TooLarge.into());
    }
    let entries = zset::range(s, slot.zset()?, &zset::Places::all(), pick, cx.most_kept()).await?;
    if remove(cx, s, slot, &entries).await? > 0 {
        removed(s, slot, if reverse { "zpopmax" } else { "zpopmin" });
    }
    Ok(entries)
}

const ZMPOP: Command = Command::new(
    Row::new(Group::SortedSet, "zmpop", -4, "7.0.0")
        .flags(Flags::WRITE.or(Flags::MOVABLEKEYS))
        .keys(popped::TAKEN)
        .syntax("numkeys key [key ...] <where: MIN | MAX> [COUNT count]")
        .summary("Removes the lowest or the highest members of the first of several sorted sets that has some, and returns them."),
    handler!(zmpop),
);

async fn zmpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    pop_first(cx, args, || Ok(())).await
}

/// ZMPOP, and BZMPOP behind its timeout, which `check` checks once the other arguments are right.
pub(super) async fn pop_first(
    cx: &Cx<'_>,
    mut args: Args<'_>,
    check: impl FnOnce() -> ArgResult<()> + Send,
) -> Result<Reply> {
    let Popped { keys, end: reverse, count } = popped::parse(&mut args, from_last)?;
    check()?;
    let s = cx.scope()?;
    for key in keys {
        let mut slot = object::open_members(&s, key).await?;
        if slot.zset()?.is_some() {
            let entries = take(cx, &s, &mut slot, reverse, count).await?;
            let pair = |(member, score): Entry| {
                Reply::Array(vec![Reply::Bulk(member), Reply::Double(score.number())])
            };
            let entries = Reply::Array(entries.into_iter().map(pair).collect());
            return Ok(Reply::Array(vec![Reply::Bulk(key.clone()), entries]));
        }
    }
    Ok(Reply::NilArray)
}

/// MIN or MAX.
fn from_last(args: &mut Args<'_>) -> ArgResult<bool> {
    match () {
        () if args.keyword("MIN") => Ok(false),
        () if args.keyword("MAX") => Ok(true),
        () => Err(SYNTAX),
    }
}
