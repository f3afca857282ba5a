//! Commands about the expiries of a hash's fields: HEXPIRE, HTTL, HPERSIST and their relatives.

use super::FAST_WRITE;
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::string::set::invalid_expire;
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::{parse_i64, quoted};
use crate::spec::{Group, KEY_RO, KEY_RW, Row};
use crate::types::hash::expiry::{self, Edit};
use crate::types::object::{self, Slot};
use bytes::Bytes;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] =
    &[HEXPIRE, HEXPIREAT, HEXPIRETIME, HPERSIST, HPEXPIRE, HPEXPIREAT, HPEXPIRETIME, HPTTL, HTTL];

/// The last time at which a field can expire, in ms since the epoch: Redis keeps 46 bits.
const LATEST: u64 = (1 << 46) - 1;

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// The replies about a field, as in Redis.
const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const REFUSED: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

/// The unit and base of a time argument.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) command: &'static str,
    pub(super) seconds: bool,
    pub(super) absolute: bool,
}

impl Time {
    /// The time that an argument names, in ms since the epoch.
    pub(super) fn moment(self, raw: &[u8], now: u64) -> ArgResult<u64> {
        let amount = parse_i64(raw).ok_or(NOT_INTEGER)?;
        let amount =
            u64::try_from(amount).map_err(|_| ReplyError::new("ERR invalid expire time, must be >= 0"))?;
        let ms = if self.seconds { amount.checked_mul(1000) } else { Some(amount) };
        let base = if self.absolute { 0 } else { now };
        let at = ms.and_then(|ms| ms.checked_add(base)).filter(|at| *at <= LATEST);
        at.ok_or_else(|| invalid_expire(self.command))
    }
}

/// The fields behind FIELDS and their number, which end the call: for commands without other options.
pub(super) fn plain_fields(mut args: Args<'_>) -> ArgResult<&[Bytes]> {
    if !args.keyword("FIELDS") {
        return Err(ReplyError::new("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let number = args.next().ok().and_then(|raw| parse_i64(raw)).filter(|n| *n > 0);
    let number = number.ok_or(ReplyError::new(NOT_POSITIVE))?;
    if usize::try_from(number) != Ok(args.len()) {
        return Err(ReplyError::new("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(args.rest())
}

/// A positive number of fields; `wrong` is the error for another one.
fn number(args: &mut Args<'_>, wrong: &'static str) -> ArgResult<usize> {
    let number = args.next().ok().and_then(|raw| parse_i64(raw)).and_then(|n| i32::try_from(n).ok());
    number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0).ok_or(ReplyError::new(wrong))
}

/// Reads options and FIELDS with its number of fields, of `each` arguments, in any order. `option` takes one and
/// returns whether there was one. Fewer than `least` arguments behind FIELDS are an error of its own.
pub(super) fn fields_and_options<'a>(
    mut args: Args<'a>,
    (each, least, wrong): (usize, usize, &'static str),
    mut option: impl FnMut(&mut Args<'a>) -> ArgResult<bool>,
) -> ArgResult<&'a [Bytes]> {
    let mut fields = None;
    while !args.is_empty() {
        if !args.keyword("FIELDS") {
            if !option(&mut args)? {
                return Err(ReplyError::of(format!("ERR unknown argument: {}", quoted(args.next()?))));
            }
            continue;
        }
        if fields.is_some() {
            return Err(ReplyError::new("ERR FIELDS keyword specified multiple times"));
        }
        if args.len() < least {
            return Err(ReplyError::new("ERR FIELDS requires at least numfields and one field argument"));
        }
        let number = number(&mut args, wrong)?.saturating_mul(each);
        fields = Some(args.take(number).map_err(|_| ReplyError::new("ERR wrong number of arguments"))?);
    }
    fields.ok_or(ReplyError::new("ERR missing FIELDS argument"))
}

/// Publishes the events of a call that changed fields of an existing hash.
pub(super) fn announce(s: &Scope<'_>, slot: &Slot, event: &'static str) {
    s.notify(Events::HASH, event, &slot.key);
    if !slot.exists() {
        s.notify(Events::GENERIC, "del", &slot.key);
    }
}

/// The condition on a field's current expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Only {
    Always,
    Without,
    With,
    Later,
    Earlier,
}

impl Only {
    /// Takes a condition.
    fn parse(args: &mut Args<'_>) -> Option<Self> {
        match () {
            () if args.keyword("NX") => Some(Only::Without),
            () if args.keyword("XX") => Some(Only::With),
            () if args.keyword("GT") => Some(Only::Later),
            () if args.keyword("LT") => Some(Only::Earlier),
            () => None,
        }
    }

    /// A field without an expiry counts as one that never expires.
    fn allows(self, now: Option<u64>, to: u64) -> bool {
        match self {
            Only::Always => true,
            Only::Without => now.is_none(),
            Only::With => now.is_some(),
            Only::Later => now.is_some_and(|now| to > now),
            Only::Earlier => now.is_none_or(|now| to < now),
        }
    }
}

const HEXPIRE: Command = Command::new(
    Row::new(Group::Hash, "hexpire", -6, "7.4.0")
        .flags(FAST_WRITE)
        .keys(KEY_RW)
        .syntax("key seconds [condition: NX | XX | GT | LT] FIELDS <fields: numfields field [field ...]>")
        .summary("Makes fields of a hash expire after a number of seconds."),
    handler!(hexpire),
);

async fn hexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    expire(cx, args, Time { command: "hexpire", seconds: true, absolute: false }).await
}

const HPEXPIRE: Command = Command::new(
    Row::new(Group::Hash, "hpexpire", -6, "7.4.0")
        .flags(FAST_WRITE)
        .keys(KEY_RW)
        .syntax(
            "key milliseconds [condition: NX | XX | GT | LT] FIELDS <fields: numfields field [field ...]>",
        )
        .summary("Makes fields of a hash expire after a number of milliseconds."),
    handler!(hpexpire),
);

async fn hpexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    expire(cx, args, Time { command: "hpexpire", seconds: false, absolute: false }).await
}

const HEXPIREAT: Command = Command::new(
    Row::new(Group::Hash, "hexpireat", -6, "7.4.0")
        .flags(FAST_WRITE)
        .keys(KEY_RW)
        .syntax("key unix-time-seconds [condition: NX | XX | GT | LT] FIELDS <fields: numfields field [field ...]>")
        .summary("Makes fields of a hash expire at a Unix time in seconds."),
    handler!(hexpireat),
);

async fn hexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    expire(cx, args, Time { command: "hexpireat", seconds: true, absolute: true }).await
}

const HPEXPIREAT: Command = Command::new(
    Row::new(Group::Hash, "hpexpireat", -6, "7.4.0")
        .flags(FAST_WRITE)
        .keys(KEY_RW)
        .syntax(
            "key unix-time-milliseconds [condition: NX | XX | GT | LT] FIELDS <fields: numfields field [field ...]>",
        )
        .summary("Makes fields of a hash expire at a Unix time in milliseconds."),
    handler!(hpexpireat),
);

async fn hpexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    expire(cx, args, Time { command: "hpexpireat", seconds: false, absolute: true }).await
}

async fn expire(cx: &mut Cx<'_>, mut args: Args<'_>, time: Time) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, args.next()?).await?;
    slot.hash()?;
    let at = time.moment(args.next()?, cx.now)?;
    let mut conditions = Vec::new();
    let wrong = "ERR Parameter `numFields` should be greater than 0";
    let fields = fields_and_options(args, (1, 2, wrong), |args| {
        let condition = Only::parse(args);
        conditions.extend(condition);
        Ok(condition.is_some())
    })?;
    conditions.dedup();
    let only = match &conditions[..] {
        [] => Only::Always,
        [only] => *only,
        _ => return Err(ReplyError::new("ERR Multiple condition flags specified").into()),
    };
    super::light_fields(cx, fields)?;
    let (mut replies, mut done, mut removed) = (Vec::new(), false, false);
    let decide = |_: &Bytes, field: expiry::Expiry| {
        let (reply, edit) = match field {
            None => (NO_FIELD, Edit::Keep),
            Some(now) if !only.allows(now, at) => (REFUSED, Edit::Keep),
            Some(_) if at <= s.now => (REMOVED, Edit::Remove),
            Some(_) => (DONE, Edit::ExpireAt(at)),
        };
        (done, removed) = (done || reply == DONE, removed || reply == REMOVED);
        replies.push(Reply::Int(reply));
        edit
    };
    expiry::edit(&s, &mut slot, fields, decide).await?;
    if done || removed {
        announce(&s, &slot, if removed { "hdel" } else { "hexpire" });
    }
    Ok(Reply::Array(replies))
}

const HTTL: Command = Command::new(
    Row::new(Group::Hash, "httl", -5, "7.4.0")
        .flags(super::READS_FAST)
        .keys(KEY_RO)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Returns the remaining times to live of fields of a hash, in seconds.")
        .tips(&["nondeterministic_output"]),
    handler!(httl),
);

async fn httl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, seconds, false).await
}

const HPTTL: Command = Command::new(
    Row::new(Group::Hash, "hpttl", -5, "7.4.0")
        .flags(super::READS_FAST)
        .keys(KEY_RO)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Returns the remaining times to live of fields of a hash, in milliseconds.")
        .tips(&["nondeterministic_output"]),
    handler!(hpttl),
);

async fn hpttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, |ms| ms, false).await
}

const HEXPIRETIME: Command = Command::new(
    Row::new(Group::Hash, "hexpiretime", -5, "7.4.0")
        .flags(super::READS_FAST)
        .keys(KEY_RO)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Returns the times at which fields of a hash expire, in Unix seconds."),
    handler!(hexpiretime),
);

async fn hexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, seconds, true).await
}

const HPEXPIRETIME: Command = Command::new(
    Row::new(Group::Hash, "hpexpiretime", -5, "7.4.0")
        .flags(super::READS_FAST)
        .keys(KEY_RO)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Returns the times at which fields of a hash expire, in Unix milliseconds."),
    handler!(hpexpiretime),
);

async fn hpexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, |ms| ms, true).await
}

/// Rounded up, unlike the times of keys.
fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

async fn left(cx: &Cx<'_>, mut args: Args<'_>, unit: fn(u64) -> u64, absolute: bool) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = cx.look_up_members(&s, args.next()?).await?;
    let hash = slot.hash()?;
    let fields = plain_fields(args)?;
    let base = if absolute { 0 } else { cx.now };
    let reply = |field: expiry::Expiry| match field {
        None => NO_FIELD,
        Some(None) => NO_EXPIRY,
        Some(Some(at)) => unit(at.saturating_sub(base)).cast_signed(),
    };
    let expiries = expiry::expiries(&s, hash, fields).await?;
    Ok(Reply::Array(expiries.into_iter().map(|field| Reply::Int(reply(field))).collect()))
}

const HPERSIST: Command = Command::new(
    Row::new(Group::Hash, "hpersist", -5, "7.4.0")
        .flags(FAST_WRITE)
        .keys(KEY_RW)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Removes the expiries of fields of a hash."),
    handler!(hpersist),
);

async fn hpersist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open_members(&s, args.next()?).await?;
    slot.hash()?;
    let fields = plain_fields(args)?;
    super::light_fields(cx, fields)?;
    let (mut replies, mut done) = (Vec::new(), false);
    let decide = |_: &Bytes, field: expiry::Expiry| {
        let (reply, edit) = match field {
            None => (NO_FIELD, Edit::Keep),
            Some(None) => (NO_EXPIRY, Edit::Keep),
            Some(Some(_)) => (DONE, Edit::Persist),
        };
        done |= reply == DONE;
        replies.push(Reply::Int(reply));
        edit
    };
    expiry::edit(&s, &mut slot, fields, decide).await?;
    if done {
        announce(&s, &slot, "hpersist");
    }
    Ok(Reply::Array(replies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_with_46_bits() {
        let time = Time { command: "hpexpire", seconds: false, absolute: true };
        assert_eq!(time.moment(b"70368744177663", 5), Ok(LATEST));
        for (time, raw) in [
            (time, &b"70368744177664"[..]),
            (Time { seconds: true, ..time }, b"70368744178"),
            (Time { seconds: true, ..time }, b"9223372036854775807"),
            (Time { absolute: false, ..time }, b"70368744177663"),
        ] {
            assert_eq!(time.moment(raw, 5), Err(invalid_expire("hpexpire")));
        }
        assert!(time.moment(b"-1", 5).is_err() && time.moment(b"x", 5).is_err());
    }
}
