//! EXPIRE and its relatives.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::commands::string::set::invalid_expire;
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{Flags, Group, KEY_RO, KEY_RW, Row};
use crate::store::Read;
use crate::types::object;

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[EXPIRE, EXPIREAT, EXPIRETIME, PERSIST, PEXPIRE, PEXPIREAT, PEXPIRETIME, PTTL, TTL];

/// The unit and base of a command's time argument.
#[derive(Clone, Copy)]
struct Time {
    command: &'static str,
    seconds: bool,
    absolute: bool,
}

/// Conditions on a key's current expiry.
#[derive(Debug, Clone, Copy, Default)]
struct Only {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Only {
    fn parse(args: &mut Args<'_>) -> ArgResult<Self> {
        let mut only = Only::default();
        while let Some(word) = args.peek() {
            if args.keyword("NX") {
                only.nx = true;
            } else if args.keyword("XX") {
                only.xx = true;
            } else if args.keyword("GT") {
                only.gt = true;
            } else if args.keyword("LT") {
                only.lt = true;
            } else {
                let word = quoted(word);
                return Err(ReplyError::of(format!("ERR Unsupported option {word}")));
            }
        }
        only.compatible()
    }

    fn compatible(self) -> ArgResult<Self> {
        if self.nx && (self.xx || self.gt || self.lt) {
            return Err(ReplyError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if self.gt && self.lt {
            return Err(ReplyError::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(self)
    }

    /// A key without an expiry counts as one that never expires.
    fn allow(self, now: Option<u64>, to: i64) -> bool {
        let now = now.map(|at| at as i64);
        !(self.nx && now.is_some()
            || self.xx && now.is_none()
            || self.gt && now.is_none_or(|now| to <= now)
            || self.lt && now.is_some_and(|now| to >= now))
    }
}

const EXPIRE: Command = Command::new(
    Row::new(Group::Generic, "expire", -3, "1.0.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_RW)
        .syntax("key seconds [NX | XX | GT | LT]")
        .summary("Makes a key expire after a number of seconds."),
    handler!(expire),
);

async fn expire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set(cx, args, Time { command: "expire", seconds: true, absolute: false }).await
}

const PEXPIRE: Command = Command::new(
    Row::new(Group::Generic, "pexpire", -3, "2.6.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_RW)
        .syntax("key milliseconds [NX | XX | GT | LT]")
        .summary("Makes a key expire after a number of milliseconds."),
    handler!(pexpire),
);

async fn pexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set(cx, args, Time { command: "pexpire", seconds: false, absolute: false }).await
}

const EXPIREAT: Command = Command::new(
    Row::new(Group::Generic, "expireat", -3, "1.2.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_RW)
        .syntax("key unix-time-seconds [NX | XX | GT | LT]")
        .summary("Makes a key expire at a Unix time in seconds."),
    handler!(expireat),
);

async fn expireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set(cx, args, Time { command: "expireat", seconds: true, absolute: true }).await
}

const PEXPIREAT: Command = Command::new(
    Row::new(Group::Generic, "pexpireat", -3, "2.6.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_RW)
        .syntax("key unix-time-milliseconds [NX | XX | GT | LT]")
        .summary("Makes a key expire at a Unix time in milliseconds."),
    handler!(pexpireat),
);

async fn pexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set(cx, args, Time { command: "pexpireat", seconds: false, absolute: true }).await
}

async fn set(cx: &mut Cx<'_>, mut args: Args<'_>, time: Time) -> Result<Reply> {
    let key = args.next()?;
    let mut amount = args;
    args.next()?;
    let only = Only::parse(&mut args)?;
    let at = moment(amount.int()?, time, cx.now)?;
    let s = cx.scope()?;
    let mut slot = object::open(&s, key, Read::Serializable).await?;
    if !slot.exists() || !only.allow(slot.expire_at(), at) {
        return Ok(Reply::Int(0));
    }
    match u64::try_from(at) {
        Ok(at) if at > cx.now => {
            object::set_expiry(&s, &mut slot, Some(at))?;
            s.notify(Events::GENERIC, "expire", key);
        }
        _ => object::delete(&s, &mut slot).map(|_| ())?,
    }
    Ok(Reply::Int(1))
}

/// Milliseconds since the epoch; negative values are in the past, only an overflow is rejected.
fn moment(amount: i64, time: Time, now: u64) -> ArgResult<i64> {
    let ms = if time.seconds { amount.checked_mul(1000) } else { Some(amount) };
    let base = if time.absolute { 0 } else { now as i64 };
    ms.and_then(|ms| ms.checked_add(base)).ok_or_else(|| invalid_expire(time.command))
}

const TTL: Command = Command::new(
    Row::new(Group::Generic, "ttl", 2, "1.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the remaining time to live of a key, in seconds.")
        .tips(&["nondeterministic_output"]),
    handler!(ttl),
);

async fn ttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, seconds, false).await
}

const PTTL: Command = Command::new(
    Row::new(Group::Generic, "pttl", 2, "2.6.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the remaining time to live of a key, in milliseconds.")
        .tips(&["nondeterministic_output"]),
    handler!(pttl),
);

async fn pttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, |ms| ms, false).await
}

const EXPIRETIME: Command = Command::new(
    Row::new(Group::Generic, "expiretime", 2, "7.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the time at which a key expires, in Unix seconds."),
    handler!(expiretime),
);

async fn expiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, seconds, true).await
}

const PEXPIRETIME: Command = Command::new(
    Row::new(Group::Generic, "pexpiretime", 2, "7.0.0")
        .flags(Flags::READONLY.or(Flags::FAST))
        .keys(KEY_RO)
        .syntax("key")
        .summary("Returns the time at which a key expires, in Unix milliseconds."),
    handler!(pexpiretime),
);

async fn pexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    left(cx, args, |ms| ms, true).await
}

/// Rounded to the nearest second.
fn seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

async fn left(cx: &Cx<'_>, mut args: Args<'_>, unit: fn(u64) -> u64, absolute: bool) -> Result<Reply> {
    let slot = cx.look_up(&cx.scope()?, args.next()?).await?;
    let base = if absolute { 0 } else { cx.now };
    Ok(Reply::Int(match slot.expire_at() {
        Some(at) => unit(at.saturating_sub(base)) as i64,
        None if slot.exists() => -1,
        None => -2,
    }))
}

const PERSIST: Command = Command::new(
    Row::new(Group::Generic, "persist", 2, "2.2.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_RW)
        .syntax("key")
        .summary("Removes the expiry of a key."),
    handler!(persist),
);

async fn persist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = object::open(&s, args.next()?, Read::Serializable).await?;
    let had = slot.expire_at().is_some();
    if had {
        object::set_expiry(&s, &mut slot, None)?;
        s.notify(Events::GENERIC, "persist", &slot.key);
    }
    Ok(had.into())
}
