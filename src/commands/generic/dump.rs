//! DUMP and RESTORE: move values between this server and Redis.
//!
//! Payloads of any Redis can be restored here, and Tern's in Redis 7.0 and later. A payload that is broken, or
//! of a type that this server lacks, is rejected before anything is written. Idle times and frequencies
//! are parsed and ignored, because none are kept.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{Error, ReplyError, Result, SYNTAX, StoreError};
use crate::handler;
use crate::lifecycle::dump::{self, Encodings, Refused};
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{Flags, Group, KEY_RO, KeySpec, Makes, Row, one};
use crate::store::Read;
use crate::types::dumped::{Dump, Dumped};
use crate::types::object;
use crate::types::prebuilt::{self, Object};
use crate::types::{Kind, string};

const RESTORED: &[KeySpec] = &[one(&["OW", "update"])];
const OPTIONS: &str = "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]";

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] = &[DUMP, RESTORE, RESTORE_ASKING];

/// What an element of a payload weighs at least.
const ELEMENT: u64 = 64;

const TOO_LARGE: ReplyError = ReplyError::new(
    "ERR the value has more bytes than proto-max-bulk-len allows: COPY and `tern copy` move values of any size",
);

const DUMP: Command = Command::new(
    Row::new(Group::Generic, "dump", 2, "2.6.0")
        .flags(Flags::READONLY)
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns a value in serialized form, which RESTORE accepts here and in Redis.")
        .tips(&["nondeterministic_output"]),
    handler!(dump),
);

async fn dump(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up(&s, args.next()?).await?;
    let Some(record) = slot.record() else { return Ok(Reply::Nil) };
    let longest = cx.server.config.get().proto_max_bulk_len;
    // A long string is read while it is sent.
    if record.value.kind() != Kind::Str {
        let weight = record.value.weight(&s).await?;
        // Its weight is its bytes.
        if record.value.kind() == Kind::List && weight > longest as u64 {
            return Err(TOO_LARGE.into());
        }
        let elements = record.value.len(&s, Read::Snapshot).await?;
        cx.light(weight.max(elements.saturating_mul(ELEMENT)))?;
    }
    // Of some types, the weight is a guess.
    let value = match record.value.dump(&s, cx.lightest(longest)).await {
        Err(Error::Store(StoreError::ReplyTooLarge(bytes))) => {
            cx.light(bytes as u64)?;
            return Err(TOO_LARGE.into());
        }
        value => value?,
    };
    let payload = match value {
        Dump::Str(value) => return cx.dumped(&s, &slot, &value).await,
        Dump::Integers(members) => dump::of_integers(&members),
        Dump::Set(members) => dump::of_set(&members),
        Dump::Hash(pairs) => dump::of_hash(&pairs),
        Dump::Fields(fields) => dump::of_fields(&fields),
        Dump::List(elements) => dump::of_list(&elements),
        Dump::Zset(entries) => dump::of_zset(&entries),
        Dump::Stream(stream) => dump::of_stream(&stream),
        Dump::Nothing => return Err(no_form(record.value.type_name()).into()),
    };
    Ok(Reply::Bulk(payload.into()))
}

fn no_form(kind: &str) -> ReplyError {
    ReplyError::of(format!("ERR DUMP: Redis' RDB format cannot represent a value of type {kind}"))
}

#[derive(Debug, Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle: bool,
    frequency: bool,
}

impl RestoreOptions {
    fn parse(mut args: Args<'_>) -> ArgResult<Self> {
        let mut options = RestoreOptions::default();
        while !args.is_empty() {
            let followed = args.len() > 1;
            if args.keyword("REPLACE") {
                options.replace = true;
            } else if args.keyword("ABSTTL") {
                options.absolute = true;
            } else if followed && !options.frequency && args.keyword("IDLETIME") {
                options.idle = true;
                if args.int()? < 0 {
                    return Err(ReplyError::new("ERR Invalid IDLETIME value, must be >= 0"));
                }
            } else if followed && !options.idle && args.keyword("FREQ") {
                options.frequency = true;
                if !(0..=255).contains(&args.int()?) {
                    return Err(ReplyError::new("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }
}

const RESTORE: Command = Command::new(
    Row::new(Group::Generic, "restore", -4, "2.6.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM))
        .keys(RESTORED)
        .syntax(OPTIONS)
        .summary("Creates a key from a value that DUMP returned, here or in Redis.")
        .makes(Makes::Restored)
        .categories(&["dangerous"]),
    handler!(restore),
);

const RESTORE_ASKING: Command = Command::new(
    Row::new(Group::Server, "restore-asking", -4, "3.0.0")
        .flags(Flags::WRITE.or(Flags::DENYOOM).or(Flags::ASKING))
        .keys(RESTORED)
        .syntax(OPTIONS)
        .summary("RESTORE, as sent by tools that migrate slots of a Redis cluster.")
        .makes(Makes::Restored)
        .for_systems()
        .categories(&["keyspace", "dangerous"]),
    handler!(restore),
);

async fn restore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, ttl, payload) = (args.next()?, args.next()?, args.next()?);
    let options = RestoreOptions::parse(args)?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    if slot.exists() && !options.replace {
        return Err(ReplyError::new("BUSYKEY Target key name already exists.").into());
    }
    let expire_at = life(ttl, options.absolute, cx.now)?;
    let value = restored(cx, payload).await?;
    object::check_name(key)?;
    if expire_at.is_some_and(|at| at <= cx.now) {
        object::delete(&s, &mut slot)?;
        return Ok(Reply::Ok);
    }
    if slot.exists() {
        // As in Redis, so that the key counts as new.
        object::remove(&s, &mut slot)?;
    }
    match value {
        Restored::Built(built) => dump::restore_prebuilt(&s, &mut slot, payload, built, expire_at).await?,
        Restored::Read(value) => {
            let limits = Encodings::of(&cx.server.config.get());
            dump::restore(&s, &mut slot, value, limits, expire_at).await?
        }
    }
    s.notify(Events::GENERIC, "restore", key);
    Ok(Reply::Ok)
}

/// When the key expires, in ms since the epoch; 0 means never. A sum that a C `long long` cannot hold is in
/// the past, as in Redis.
fn life(raw: &[u8], absolute: bool, now: u64) -> ArgResult<Option<u64>> {
    let ttl = parse_i64(raw).ok_or(crate::error::NOT_INTEGER)?;
    if ttl < 0 {
        return Err(ReplyError::new("ERR Invalid TTL value, must be >= 0"));
    }
    let at = if absolute { ttl } else { ttl.wrapping_add(now as i64) };
    Ok((ttl > 0).then(|| u64::try_from(at).unwrap_or(0)))
}

/// The content of a payload.
enum Restored<'a> {
    Read(Dumped),
    /// It exceeds a transaction; it was checked when it was built.
    Built(&'a Object),
}

async fn restored<'a>(cx: &'a Cx<'_>, payload: &[u8]) -> Result<Restored<'a>> {
    if let Some(built) = prebuilt::result(cx.prebuilt) {
        return Ok(Restored::Built(built));
    }
    let (weight, longest) = (dump::weight(payload), cx.server.config.get().proto_max_bulk_len);
    cx.light(weight)?;
    if dump::kind(payload) == Some(Kind::Str) && weight > string::DIRECT_MAX as u64 {
        // What is sound was to be built.
        dump::scan(payload, longest).await.map_err(refused)?;
        return Err(StoreError::TooLarge.into());
    }
    let value = dump::decode(payload, longest).await.map_err(refused)?;
    dump::check(&value)?;
    Ok(Restored::Read(value))
}

fn refused(refused: Refused) -> ReplyError {
    match refused {
        Refused::Checksum => ReplyError::new("ERR DUMP payload version or checksum are wrong"),
        Refused::Format => ReplyError::new("ERR Bad data format"),
        Refused::Type(kind) => ReplyError::of(format!(
            "ERR the payload holds a value of RDB type {kind}, which this server does not support"
        )),
    }
}
