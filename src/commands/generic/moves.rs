//! RENAME, RENAMENX, COPY, MOVE: move or copy a value to another key.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NO_SUCH_KEY, NOT_INTEGER, ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::keyspace::Scope;
use crate::lifecycle::copy;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Makes, Row, one};
use crate::store::Read;
use crate::types::object::Slot;
use crate::types::{Kind, Value};
use crate::types::{object, prebuilt};
use bytes::Bytes;

const fn second(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 2, find: FindKeys::Range { last: 0, step: 1 } }
}

const RENAMED: &[KeySpec] = &[one(&["RW", "access", "delete"]), second(&["OW", "update"])];
const RENAMED_NEW: &[KeySpec] = &[one(&["RW", "access", "delete"]), second(&["OW", "insert"])];
const COPIED: &[KeySpec] = &[one(&["RO", "access"]), second(&["OW", "update"])];

/// The weight of what is copied in the command's own transaction, for whose commit others wait: more is built beforehand.
const MOST_AT_ONCE: u64 = 1 << 20;

const SAME_OBJECT: ReplyError = ReplyError::new("ERR source and destination objects are the same");
const NOT_INT: ReplyError =
    ReplyError::new("ERR value is out of range, value must between -2147483648 and 2147483647");

pub(super) const RENAME: Command = Command::new(
    Row::new(Group::Generic, "rename", 3, "1.0.0")
        .flags(Flags::WRITE)
        .keys(RENAMED)
        .syntax("key newkey")
        .summary("Renames a key, replacing newkey if it exists."),
    handler!(rename),
);

async fn rename(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    match move_to(cx, args, false).await? {
        true => Ok(Reply::Ok),
        false => Err(NO_SUCH_KEY.into()),
    }
}

pub(super) const RENAMENX: Command = Command::new(
    Row::new(Group::Generic, "renamenx", 3, "1.0.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(RENAMED_NEW)
        .syntax("key newkey")
        .summary("Renames a key if newkey does not exist."),
    handler!(renamenx),
);

async fn renamenx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(move_to(cx, args, true).await?.into())
}

/// Moves the record; its object stays in place. True if the new name has the value now.
async fn move_to(cx: &Cx<'_>, mut args: Args<'_>, only_new: bool) -> Result<bool> {
    let (from, to) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut source = object::open(&s, from, Read::Serializable).await?;
    let Some(record) = source.record().cloned() else { return Err(NO_SUCH_KEY.into()) };
    if from == to {
        return Ok(!only_new);
    }
    let mut target = object::open(&s, to, Read::Serializable).await?;
    if only_new && target.exists() {
        return Ok(false);
    }
    object::check_name(to)?;
    object::take(&s, &mut source)?;
    put_new(&s, &mut target, record.value, record.expire_at)?;
    s.notify(Events::GENERIC, "rename_from", from);
    s.notify(Events::GENERIC, "rename_to", to);
    Ok(true)
}

/// Removes the old value first, as Redis does, so that the key always counts as new.
pub(super) fn put_new(s: &Scope<'_>, slot: &mut Slot, value: Value, expire_at: Option<u64>) -> Result<()> {
    if slot.exists() {
        s.notify(Events::NEW, "new", &slot.key);
    }
    object::put(s, slot, value, expire_at)
}

/// The number of an existing database, parsed as an `int`.
fn database(cx: &Cx<'_>, raw: &[u8]) -> ArgResult<u8> {
    let n = i32::try_from(parse_i64(raw).ok_or(NOT_INTEGER)?).map_err(|_| NOT_INT)?;
    existing_database(cx, n)
}

/// The number of an existing database.
pub(super) fn existing_database(cx: &Cx<'_>, n: i32) -> ArgResult<u8> {
    let db = u8::try_from(n).ok().filter(|db| cx.catalog.place(*db).is_some());
    db.ok_or(ReplyError::new("ERR DB index is out of range"))
}

/// The options after COPY's keys: the database, and whether REPLACE is given. Each option is checked in turn,
/// including each `database`.
pub(in crate::commands) fn copy_options(
    options: &[Bytes],
    database: impl Fn(&Bytes) -> ArgResult<u8>,
) -> ArgResult<(Option<u8>, bool)> {
    let mut args = Args::new(options);
    let (mut db, mut replace) = (None, false);
    while !args.is_empty() {
        if args.keyword("REPLACE") {
            replace = true;
        } else if args.keyword("DB") {
            db = Some(database(args.next()?)?);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok((db, replace))
}

pub(super) const COPY: Command = Command::new(
    Row::new(Group::Generic, "copy", -3, "6.2.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM).or(Flags::HEAVY))
        .keys(COPIED)
        .syntax("source destination [DB destination-db] [REPLACE]")
        .summary("Copies a value to another key.")
        .makes(Makes::Copy),
    handler!(copy),
);

async fn copy(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (from, to) = (args.next()?, args.next()?);
    let (db, replace) = copy_options(args.rest(), |raw| database(cx, raw))?;
    let db = db.unwrap_or(cx.client.db);
    if db == cx.client.db && from == to {
        return Err(SAME_OBJECT.into());
    }
    let (s, t) = (cx.scope()?, cx.scope_of(db)?);
    let source = cx.look_up(&s, from).await?;
    let Some(record) = source.record() else { return Ok(Reply::Int(0)) };
    let mut target = object::open(&t, to, Read::Serializable).await?;
    if target.exists() && !replace {
        return Ok(Reply::Int(0));
    }
    object::check_name(to)?;
    let value = copied(cx, &s, &t, &record.value).await?;
    put_new(&t, &mut target, value, record.expire_at)?;
    t.notify(Events::GENERIC, "copy_to", to);
    Ok(Reply::Int(1))
}

/// The copy of the value for `to`, made now or beforehand.
async fn copied(cx: &Cx<'_>, from: &Scope<'_>, to: &Scope<'_>, value: &Value) -> Result<Value> {
    match prebuilt::result(cx.prebuilt) {
        Some(built) => {
            built.take(from, to).await?;
            Ok(value.kind().prebuilt(built))
        }
        None => {
            let weight = value.weight(from).await?;
            cx.light(weight)?;
            // A string's pieces are few.
            if cx.may_prebuild && value.kind() != Kind::Str && weight > MOST_AT_ONCE {
                return Err(StoreError::TooLarge.into());
            }
            copy::value(from, to, value).await
        }
    }
}

pub(super) async fn r#move(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let db = database(cx, args.next()?)?;
    if db == cx.client.db {
        return Err(SAME_OBJECT.into());
    }
    let (s, t) = (cx.scope()?, cx.scope_of(db)?);
    let mut source = object::open(&s, key, Read::Serializable).await?;
    let Some(record) = source.record().cloned() else { return Ok(Reply::Int(0)) };
    let mut target = object::open(&t, key, Read::Serializable).await?;
    if target.exists() {
        return Ok(Reply::Int(0));
    }
    let value = copied(cx, &s, &t, &record.value).await?;
    object::remove(&s, &mut source)?;
    object::put(&t, &mut target, value, record.expire_at)?;
    s.notify(Events::GENERIC, "move_from", key);
    t.notify(Events::GENERIC, "move_to", key);
    Ok(Reply::Int(1))
}
