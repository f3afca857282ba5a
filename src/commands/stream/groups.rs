//! XGROUP: the groups of a stream, and their consumers.

use super::ids;
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{FindKeys, Flags, Group as Family, KeySpec, Row};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::stream::groups::{self, Group, Place};
use crate::types::stream::{Id, StreamRep, consumers, put};
use crate::{handler, help};
use bytes::Bytes;

/// The container.
pub(crate) const COMMANDS: &[Command] = &[XGROUP];

const SUBS: &[Command] = &[
    XGROUP_CREATE,
    XGROUP_CREATECONSUMER,
    XGROUP_DELCONSUMER,
    XGROUP_DESTROY,
    help!("xgroup", Family::Stream, "5.0.0"),
    XGROUP_SETID,
];

const XGROUP: Command = Command::container(
    Row::new(Family::Stream, "xgroup", -2, "5.0.0").summary("Manages the consumer groups of a stream."),
    SUBS,
);

const fn second(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 2, find: FindKeys::Range { last: 0, step: 1 } }
}

const INSERTED: &[KeySpec] = &[second(&["RW", "insert"])];
const UPDATED: &[KeySpec] = &[second(&["RW", "update"])];
const DELETED: &[KeySpec] = &[second(&["RW", "delete"])];
/// A stream that a subcommand reads.
pub(super) const READ: &[KeySpec] = &[second(&["RO", "access"])];

const NO_KEY: ReplyError = ReplyError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);
const BUSY: ReplyError = ReplyError::new("BUSYGROUP Consumer Group name already exists");
const BAD_READ: ReplyError = ReplyError::new("ERR value for ENTRIESREAD must be positive or -1");

/// The most arguments of XGROUP CREATE behind its name.
const MOST_OPTIONS: usize = 6;
/// Arguments of SETID.
const MOST_OF_SETID: usize = 5;

/// The error of a subcommand whose group does not exist.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> ReplyError {
    let (key, group) = (quoted(key), quoted(group));
    ReplyError::of(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The options of CREATE and SETID.
#[derive(Debug, Default)]
struct Options {
    makes_stream: bool,
    read: Option<u64>,
}

impl Options {
    fn parse(args: &mut Args<'_>, creates: bool) -> ArgResult<Self> {
        let mut options = Options::default();
        while !args.is_empty() {
            if creates && args.keyword("MKSTREAM") {
                options.makes_stream = true;
            } else if args.len() > 1 && args.keyword("ENTRIESREAD") {
                options.read = match args.int()? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| BAD_READ)?),
                };
            } else {
                return Err(args.no_such_form());
            }
        }
        Ok(options)
    }

    /// As Redis 8: no more than the stream ever had.
    fn read_of(&self, rep: &StreamRep) -> Option<u64> {
        self.read.map(|read| read.min(rep.added))
    }
}

/// The stream, of which the last id matters.
async fn whole(s: &Scope<'_>, key: &Bytes) -> Result<(Slot, Option<StreamRep>)> {
    let slot = object::open(s, key, Read::Serializable).await?;
    let rep = slot.stream()?.copied();
    Ok((slot, rep))
}

/// The stream, of which the groups matter.
async fn of_groups(s: &Scope<'_>, key: &Bytes) -> Result<StreamRep> {
    let slot = groups::open(s, key).await?;
    Ok(*slot.stream()?.ok_or(NO_KEY)?)
}

/// A group of the stream, whichever entries it has delivered.
async fn group_of(s: &Scope<'_>, key: &Bytes, name: &[u8]) -> Result<Place> {
    let oid = of_groups(s, key).await?.oid;
    let group = groups::find_alive(s, oid, name).await?.ok_or_else(|| no_group(key, name))?;
    Ok(Place { oid, group: group.number })
}

const XGROUP_CREATE: Command = Command::new(
    Row::new(Family::Stream, "create", -5, "5.0.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM))
        .keys(INSERTED)
        .syntax("key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]")
        .types(&[("entries-read", "integer"), ("id", "string")])
        .summary("Creates a group, which begins behind an entry; perhaps the stream, too."),
    handler!(create),
);

async fn create(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let is_long = args.len() > MOST_OPTIONS;
    let (key, name, raw) = (args.next()?, args.next()?, args.next()?);
    let options = Options::parse(&mut args, true)?;
    let s = cx.scope()?;
    let (mut slot, rep) = whole(&s, key).await?;
    if rep.is_none() && !options.makes_stream {
        return Err(NO_KEY.into());
    }
    if is_long {
        return Err(args.no_such_form().into());
    }
    let last = match &raw[..] {
        b"$" => rep.map_or(Id::MIN, |rep| rep.last),
        raw => ids::parse(raw, 0)?,
    };
    groups::check_name(name)?;
    let rep = match rep {
        Some(rep) => rep,
        None => {
            let rep = StreamRep::new(s.space.fresh.oid());
            put(&s, &mut slot, rep)?;
            rep
        }
    };
    if groups::find(&s, rep.oid, name).await?.is_some() {
        return Err(BUSY.into());
    }
    let group = Group { number: s.space.fresh.stamp(), last, read: options.read_of(&rep) };
    groups::put(&s, rep.oid, name, &group)?;
    s.notify(Events::STREAM, "xgroup-create", key);
    Ok(Reply::Ok)
}

const XGROUP_SETID: Command = Command::new(
    Row::new(Family::Stream, "setid", -5, "5.0.0")
        .flags(Flags::WRITE)
        .keys(UPDATED)
        .syntax("key group <id | $> [ENTRIESREAD entries-read]")
        .types(&[("entries-read", "integer"), ("id", "string")])
        .summary("Sets the entry behind which a group goes on."),
    handler!(set_id),
);

async fn set_id(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let has_one = args.len() <= MOST_OF_SETID;
    let (key, name, raw) = (args.next()?, args.next()?, args.next()?);
    let options = Options::parse(&mut args, false)?;
    let s = cx.scope()?;
    let rep = whole(&s, key).await?.1.ok_or(NO_KEY)?;
    let group = groups::find(&s, rep.oid, name).await?.ok_or_else(|| no_group(key, name))?;
    if !has_one {
        return Err(args.no_such_form().into());
    }
    let last = match &raw[..] {
        b"$" => rep.last,
        raw => ids::parse_any(raw, 0)?,
    };
    groups::put(&s, rep.oid, name, &Group { last, read: options.read_of(&rep), ..group })?;
    s.notify(Events::STREAM, "xgroup-setid", key);
    Ok(Reply::Ok)
}

const XGROUP_DESTROY: Command = Command::new(
    Row::new(Family::Stream, "destroy", 4, "5.0.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key group")
        .summary("Removes a group with its consumers and pending entries. Returns 1, or 0 if there is none."),
    handler!(destroy),
);

async fn destroy(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, name) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let oid = of_groups(&s, key).await?.oid;
    let Some(group) = groups::find(&s, oid, name).await? else { return Ok(Reply::Int(0)) };
    groups::destroy(&s, oid, name, group.number)?;
    s.notify(Events::STREAM, "xgroup-destroy", key);
    Ok(Reply::Int(1))
}

const XGROUP_CREATECONSUMER: Command = Command::new(
    Row::new(Family::Stream, "createconsumer", 5, "6.2.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM))
        .keys(INSERTED)
        .syntax("key group consumer")
        .summary("Creates a consumer of a group. Returns 1, or 0 if there is one of that name."),
    handler!(create_consumer),
);

async fn create_consumer(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, group, name) = (args.next()?, args.next()?, args.next()?);
    let s = cx.scope()?;
    let at = group_of(&s, key, group).await?;
    Ok(consumers::create(&s, key, at, name).await?.into())
}

const XGROUP_DELCONSUMER: Command = Command::new(
    Row::new(Family::Stream, "delconsumer", 5, "5.0.0")
        .flags(Flags::WRITE)
        .keys(DELETED)
        .syntax("key group consumer")
        .summary("Removes a consumer of a group with its pending entries. Returns the number of these."),
    handler!(delete_consumer),
);

async fn delete_consumer(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, group, name) = (args.next()?, args.next()?, args.next()?);
    let s = cx.scope()?;
    let at = group_of(&s, key, group).await?;
    let Some(consumer) = consumers::find(&s, at, name).await? else { return Ok(Reply::Int(0)) };
    let weigh = |bytes| cx.light(bytes);
    let n = consumers::remove(&s, at, name, &consumer, weigh).await?;
    s.notify(Events::STREAM, "xgroup-delconsumer", key);
    Ok(Reply::Int(n.cast_signed()))
}
