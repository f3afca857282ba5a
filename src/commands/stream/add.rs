//! XADD.

use super::options::{Form, Options};
use super::{GROWS_FAST, ids, open};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::{Events, Settings};
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::{Group, KEY_RW, Makes, Row};
use crate::types::contract::Type;
use crate::types::object::{self, Slot};
use crate::types::prebuilt;
use crate::types::stream::add::{self, Wanted};
use crate::types::stream::entry::{self, ROW};
use crate::types::stream::prebuild::New;
use crate::types::stream::trim::{Nodes, Threshold, Trim, removed, trim};
use crate::types::stream::{self, Id, StreamRep};
use bytes::Bytes;

/// XADD.
pub(super) const XADD: Command = Command::new(
    Row::new(Group::Stream, "xadd", -5, "5.0.0")
        .flags(GROWS_FAST)
        .keys(KEY_RW)
        .syntax(
            "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
        )
        .tips(&["nondeterministic_output"])
        .makes(Makes::EntryAdded)
        .summary("Adds an entry behind all others of a stream; creates it if the key does not exist."),
    handler!(xadd),
);

const TOO_SMALL: ReplyError = ReplyError::new("ERR The ID specified in XADD must be greater than 0-0");
const WRONG_NUMBER: ReplyError = ReplyError::new("ERR wrong number of arguments for 'xadd' command");

async fn xadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let options = Options::parse(&mut args, Form::Add, &cx.server.config.get())?;
    let (wanted, fields) = entry_of(args)?;
    let s = cx.scope()?;
    let mut slot = open(&s, key).await?;
    let mut rep = match slot.stream()? {
        Some(rep) => *rep,
        None if options.only_existing => return Ok(Reply::Nil),
        None => StreamRep::new(s.space.fresh.oid()),
    };
    object::check_name(key)?;
    let mut id = add::id(rep.last, wanted, s.now)?;
    cx.light(fields.iter().map(|field| field.len() as u64 + ROW).sum())?;
    let mut gone = 0;
    if let Some(built) = prebuilt::result(cx.prebuilt) {
        built.take(&s, &s).await?;
        rep = StreamRep::prebuilt(built);
        id = rep.last;
        if let Some(how) = options.trim {
            gone = trim(&s, &mut rep, &how, |_| Ok(())).await?;
        }
        return put(&s, &mut slot, (rep, id), gone);
    }
    match options.trim {
        None => add::append(&s, &mut rep, id, fields)?,
        Some(how) => {
            let len = rep.len;
            gone = trim(&s, &mut rep, &around(how, (id, fields)), |bytes| cx.light(bytes)).await?;
            if gone == len && how.removes_last(id) && !stream::has_groups(&s, &rep, &how).await? {
                gone += 1;
                add::note(&mut rep, id);
            } else {
                add::append(&s, &mut rep, id, fields)?;
            }
        }
    }
    put(&s, &mut slot, (rep, id), gone)
}

/// Writes the record, and publishes what has happened.
fn put(s: &Scope<'_>, slot: &mut Slot, (rep, id): (StreamRep, Id), gone: u64) -> Result<Reply> {
    stream::put(s, slot, rep)?;
    s.notify(Events::STREAM, "xadd", &slot.key);
    removed(s, "xtrim", &slot.key, gone);
    Ok(Reply::text(id.to_string()))
}

/// The id and the fields of the new entry.
fn entry_of(mut args: Args<'_>) -> ArgResult<(Wanted, &[Bytes])> {
    let wanted = ids::wanted(args.next().map_err(|_| WRONG_NUMBER)?)?;
    let fields = args.rest();
    match () {
        () if fields.is_empty() || !fields.len().is_multiple_of(2) => Err(WRONG_NUMBER),
        () if wanted == Wanted::This(Id::MIN) => Err(TOO_SMALL),
        () => Ok((wanted, fields)),
    }
}

/// The entry that a call makes, by the arguments behind its key, if they are right.
pub(crate) fn large(args: &[Bytes]) -> Option<New<'_>> {
    let mut args = Args::new(args);
    let Options { only_existing, .. } = Options::parse(&mut args, Form::Add, &Settings::default()).ok()?;
    let (wanted, fields) = entry_of(args).ok()?;
    Some(New { wanted, fields, only_existing })
}

/// What is removed before an entry with the largest id is added, so that `trim` is met with it.
fn around(trim: Trim, (id, fields): (Id, &[Bytes])) -> Trim {
    let behind = (!trim.removes_last(id)).then(|| entry::encoded_len(fields));
    let nodes = trim.nodes.map(|nodes| Nodes { behind, ..nodes });
    let threshold = match trim.threshold {
        Threshold::Length(len) => Threshold::Length(len.saturating_sub(1)),
        from @ Threshold::From(_) => from,
    };
    Trim { threshold, nodes, ..trim }
}
