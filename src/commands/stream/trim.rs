//! Commands that remove entries or set what the record says: XDEL, XTRIM, XSETID.

use super::options::{Form, Options};
use super::{GROWS_FAST, KEY_DELETED, WRITES_FAST, ids, open};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NO_SUCH_KEY, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{Flags, Group, KEY_RW, Row};
use crate::types::stream::entry::ROW;
use crate::types::stream::range;
use crate::types::stream::trim::{delete, removed, trim};
use crate::types::stream::{self, Id};

/// XDEL.
pub(super) const XDEL: Command = Command::new(
    Row::new(Group::Stream, "xdel", -3, "5.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_DELETED)
        .syntax("key id [id ...]")
        .summary("Removes entries from a stream."),
    handler!(xdel),
);

async fn xdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    if slot.stream()?.is_none() {
        return Ok(Reply::Int(0));
    }
    let ids = args.rest().iter().map(|raw| ids::parse(raw, 0)).collect::<ArgResult<Vec<Id>>>()?;
    cx.light(ids.len() as u64 * ROW)?;
    let gone = delete(&s, &mut slot, &ids).await?.into_iter().filter(|is_gone| *is_gone).count();
    removed(&s, "xdel", key, gone as u64);
    Ok(Reply::Int(gone as i64))
}

/// XTRIM.
pub(super) const XTRIM: Command = Command::new(
    Row::new(Group::Stream, "xtrim", -4, "5.0.0")
        .flags(Flags::WRITE)
        .keys(KEY_DELETED)
        .syntax("key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]")
        .tips(&["nondeterministic_output"])
        .summary("Removes the first entries of a stream."),
    handler!(xtrim),
);

async fn xtrim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let options = Options::parse(&mut args, Form::Trim, &cx.server.config.get())?;
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    let (Some(rep), Some(how)) = (slot.stream()?, options.trim) else { return Ok(Reply::Int(0)) };
    let mut rep = *rep;
    let gone = trim(&s, &mut rep, &how, |bytes| cx.light(bytes)).await?;
    if gone > 0 {
        stream::put(&s, &mut slot, rep)?;
        removed(&s, "xtrim", key, gone);
    }
    Ok(Reply::Int(gone.cast_signed()))
}

/// XSETID.
pub(super) const XSETID: Command = Command::new(
    Row::new(Group::Stream, "xsetid", -3, "5.0.0")
        .flags(GROWS_FAST)
        .keys(KEY_RW)
        .syntax("key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]")
        .types(&[("entries-added", "integer")])
        .summary("Sets the last id of a stream, and what it says of its past."),
    handler!(xsetid),
);

const NEGATIVE: ReplyError = ReplyError::new("ERR entries_added must be positive");
const BELOW_DELETED: ReplyError =
    ReplyError::new("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
const BELOW_OLD_DELETED: ReplyError =
    ReplyError::new("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
const BELOW_TOP: ReplyError =
    ReplyError::new("ERR The ID specified in XSETID is smaller than the target stream top item");
const BELOW_LENGTH: ReplyError =
    ReplyError::new("ERR The entries_added specified in XSETID is smaller than the target stream length");

async fn xsetid(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, id) = (args.next()?, ids::parse(args.next()?, 0)?);
    let (mut added, mut max_deleted) = (None, None);
    while !args.is_empty() {
        let followed = args.len() > 1;
        match () {
            () if followed && args.keyword("ENTRIESADDED") => {
                added = Some(u64::try_from(args.int()?).map_err(|_| NEGATIVE)?);
            }
            () if followed && args.keyword("MAXDELETEDID") => {
                let deleted = ids::parse(args.next()?, 0)?;
                if id < deleted {
                    return Err(BELOW_DELETED.into());
                }
                max_deleted = Some(deleted).filter(|id| *id != Id::MIN);
            }
            () => return Err(SYNTAX.into()),
        }
    }
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    let Some(rep) = slot.stream()?.copied() else { return Err(NO_SUCH_KEY.into()) };
    if id < rep.max_deleted {
        return Err(BELOW_OLD_DELETED.into());
    }
    if let Some(top) = range::end(&s, &rep, (Id::MIN, Id::MAX), true).await? {
        if id < top {
            return Err(BELOW_TOP.into());
        }
        if added.is_some_and(|added| added < rep.len) {
            return Err(BELOW_LENGTH.into());
        }
    }
    let (added, max_deleted) = (added.unwrap_or(rep.added), max_deleted.unwrap_or(rep.max_deleted));
    let resets = rep.resets.wrapping_add(u64::from(added != rep.added || id < rep.last));
    stream::put(&s, &mut slot, stream::StreamRep { last: id, added, max_deleted, resets, ..rep })?;
    s.notify(Events::STREAM, "xsetid", key);
    Ok(Reply::Ok)
}
