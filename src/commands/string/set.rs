//! SET and its relatives: conditions, expiry, the old value.

use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{NOT_INTEGER, ReplyError, Result, SYNTAX};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::words::parse_i64;
use crate::spec::{FindKeys, Flags, Group, KEY_CHANGED, KEY_OW, KEY_TAKEN, KeySpec, Row, Variable, one};
use crate::store::Read;
use crate::types::object::{self, Slot};
use crate::types::string;
use bytes::Bytes;

const NUMBERED: &[KeySpec] =
    &[KeySpec { flags: &["OW", "update"], begin: 1, find: FindKeys::Keynum { step: 2 } }];

const WRITES: Flags = Flags::WRITE.or(Flags::DENYOOM);
const WRITES_FAST: Flags = WRITES.or(Flags::FAST);
const SET_KEY: &[KeySpec] = &[one(&["RW", "access", "update", "variable_flags"])];
const INSERTED: &[KeySpec] = &[one(&["OW", "insert"])];

/// The unit and base of a time argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Ex,
    Px,
    ExAt,
    PxAt,
}

/// The new expiry of the key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ttl<'a> {
    /// The default: SET removes it, GETEX keeps it.
    #[default]
    Default,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT, PXAT.
    Set(Unit, &'a Bytes),
}

impl<'a> Ttl<'a> {
    /// Parses one option into `self`; false if the next argument is no such option. An option may be
    /// repeated, and the last one counts; two different options are a syntax error.
    pub(super) fn option(&mut self, args: &mut Args<'a>, own: (&str, Ttl<'a>)) -> ArgResult<bool> {
        if args.keyword(own.0) {
            return self.become_if(matches!(self, Ttl::Default) || *self == own.1, own.1);
        }
        for (word, unit) in [("EX", Unit::Ex), ("PX", Unit::Px), ("EXAT", Unit::ExAt), ("PXAT", Unit::PxAt)] {
            if args.keyword(word) {
                let free = match self {
                    Ttl::Default => true,
                    Ttl::Set(old, _) => *old == unit,
                    _ => false,
                };
                let amount = args.next()?;
                return self.become_if(free, Ttl::Set(unit, amount));
            }
        }
        Ok(false)
    }

    fn become_if(&mut self, allowed: bool, to: Ttl<'a>) -> ArgResult<bool> {
        if !allowed {
            return Err(SYNTAX);
        }
        *self = to;
        Ok(true)
    }

    /// Whether it contains a time.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Ttl::Set(..))
    }

    /// When a key with this option expires: None if it contains no time.
    pub(super) fn resolve(self, now: u64, command: &str) -> ArgResult<Option<u64>> {
        match self {
            Ttl::Set(unit, amount) => moment(unit, amount, now, command).map(Some),
            _ => Ok(None),
        }
    }
}

/// The moment in ms since the epoch. Fails for a value that is no integer, not positive, or too large.
fn moment(unit: Unit, amount: &Bytes, now: u64, command: &str) -> ArgResult<u64> {
    let amount = parse_i64(amount).ok_or(NOT_INTEGER)?;
    let ms = match unit {
        Unit::Ex | Unit::ExAt => amount.checked_mul(1000),
        Unit::Px | Unit::PxAt => Some(amount),
    };
    let base = if matches!(unit, Unit::Ex | Unit::Px) { now as i64 } else { 0 };
    let at = ms.filter(|_| amount > 0).and_then(|ms| ms.checked_add(base));
    at.map(|at| at as u64).ok_or_else(|| invalid_expire(command))
}

/// The error for a time at which no key can expire.
pub(in crate::commands) fn invalid_expire(command: &str) -> ReplyError {
    ReplyError::of(format!("ERR invalid expire time in '{command}' command"))
}

/// The condition for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When<'a> {
    Always,
    Absent,
    Present,
    /// The bytes are equal (`true`) or not; a missing key is equal to nothing.
    Equal(bool, &'a Bytes),
    /// The same for the XXH3 digest in hex.
    Digest(bool, &'a Bytes),
}

impl<'a> When<'a> {
    /// Parses NX or XX; None if the next argument is neither.
    pub(super) fn existence(args: &mut Args<'a>) -> Option<Self> {
        match () {
            () if args.keyword("NX") => Some(When::Absent),
            () if args.keyword("XX") => Some(When::Present),
            () => None,
        }
    }

    /// Parses a comparison with its operand; None if the next argument is no comparison.
    pub(super) fn comparison(args: &mut Args<'a>) -> ArgResult<Option<Self>> {
        Ok(Some(match () {
            () if args.keyword("IFEQ") => When::Equal(true, args.next()?),
            () if args.keyword("IFNE") => When::Equal(false, args.next()?),
            () if args.keyword("IFDEQ") => When::Digest(true, args.next()?),
            () if args.keyword("IFDNE") => When::Digest(false, args.next()?),
            () => return Ok(None),
        }))
    }

    fn option(&mut self, args: &mut Args<'a>) -> ArgResult<bool> {
        let to = match When::existence(args) {
            Some(when) => when,
            None => match When::comparison(args)? {
                Some(when) => when,
                None => return Ok(false),
            },
        };
        // If the same condition is repeated, the last one counts.
        let again = match (&*self, &to) {
            (When::Equal(a, _), When::Equal(b, _)) | (When::Digest(a, _), When::Digest(b, _)) => a == b,
            (have, to) => have == to,
        };
        if *self != When::Always && !again {
            return Err(SYNTAX);
        }
        *self = to;
        Ok(true)
    }

    /// Whether it holds for the value of `slot`.
    pub(super) async fn holds(&self, cx: &Cx<'_>, slot: &Slot) -> Result<bool> {
        Ok(match self {
            When::Always => true,
            When::Absent => !slot.exists(),
            When::Present => slot.exists(),
            When::Equal(want, bytes) => Box::pin(equals(cx, slot, bytes)).await? == *want,
            When::Digest(want, hex) => Box::pin(has_digest(cx, slot, hex, *want)).await?,
        })
    }
}

/// Whether the value of `slot` has these bytes. A missing key has none.
async fn equals(cx: &Cx<'_>, slot: &Slot, bytes: &Bytes) -> Result<bool> {
    let Some(value) = slot.string()? else { return Ok(false) };
    cx.light(string::len(value))?;
    string::equals(&cx.scope()?, value, bytes).await
}

/// Whether the value of `slot` has this digest, or, if that is not wanted, has another one.
async fn has_digest(cx: &Cx<'_>, slot: &Slot, hex: &Bytes, want: bool) -> Result<bool> {
    cx.light(slot.string()?.map_or(0, string::len))?;
    let Some(digest) = digest(&cx.scope()?, slot).await? else { return Ok(!want) };
    // Redis checks only its length, and only if it has something to compare it with.
    if hex.len() != 16 {
        return Err(ReplyError::new("ERR must be exactly 16 hexadecimal characters").into());
    }
    Ok(hex.eq_ignore_ascii_case(digest.as_bytes()) == want)
}

/// DIGEST's reply: the 64-bit XXH3 in hex. None if the key does not exist.
pub(super) async fn digest(s: &Scope<'_>, slot: &Slot) -> Result<Option<String>> {
    let Some(value) = slot.string()? else { return Ok(None) };
    Ok(Some(format!("{:016x}", string::digest(s, value).await?)))
}

pub(super) const SET: Command = Command::new(
    Row::new(Group::String, "set", -3, "1.0.0")
        .flags(WRITES)
        .keys(SET_KEY)
        .syntax(
            "key value [condition: NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest \
             | IFDNE ifdne-digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
        )
        .summary("Sets a string, optionally with conditions and an expiry.")
        .variable(Variable::Conditions),
    handler!(set),
);

async fn set(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, value) = (args.next()?, args.next()?);
    let (mut when, mut ttl, mut get) = (When::Always, Ttl::Default, false);
    while !args.is_empty() {
        if args.keyword("GET") {
            get = true;
        } else if !when.option(&mut args)? && !ttl.option(&mut args, ("KEEPTTL", Ttl::Keep))? {
            return Err(SYNTAX.into());
        }
    }
    let expiry = ttl.resolve(cx.now, "set")?;
    let s = cx.scope()?;
    let mut slot =
        if get { cx.look_up(&s, key).await? } else { object::open(&s, key, Read::Serializable).await? };
    let old = if get { cx.bulk(&s, &slot).await? } else { Reply::Nil };
    let holds = when.holds(cx, &slot).await?;
    if holds {
        let expiry = if ttl == Ttl::Keep { slot.expire_at() } else { expiry };
        store(cx, &mut slot, value, expiry, ttl.is_time()).await?;
    }
    Ok(match (get, holds) {
        (true, _) => old,
        (false, true) => Reply::Ok,
        (false, false) => Reply::Nil,
    })
}

/// Writes the value; with an expiry in the past, no key remains. `timed`: the command set this expiry.
pub(super) async fn store(
    cx: &Cx<'_>,
    slot: &mut Slot,
    value: &Bytes,
    expiry: Option<u64>,
    timed: bool,
) -> Result<()> {
    let s = cx.scope()?;
    let past = expiry.is_some_and(|at| at <= cx.now);
    if past {
        // Redis creates the key and lets it expire: clients that WATCH it must notice.
        object::clear_ghost(&s, slot)?;
        object::remove(&s, slot)?;
    } else {
        string::write(&s, cx.prebuilt, slot, value, expiry).await?;
    }
    s.notify(Events::STRING, "set", &slot.key);
    if timed {
        s.notify(Events::GENERIC, "expire", &slot.key);
    }
    if past {
        s.notify(Events::EXPIRED, "expired", &slot.key);
    }
    Ok(())
}

pub(super) const SETNX: Command = Command::new(
    Row::new(Group::String, "setnx", 3, "1.0.0")
        .flags(WRITES_FAST)
        .keys(INSERTED)
        .syntax("key value")
        .summary("Sets a string if the key does not exist.")
        .deprecated("2.6.12", "SET with NX"),
    handler!(setnx),
);

async fn setnx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, value) = (args.next()?, args.next()?);
    let mut slot = object::open(&cx.scope()?, key, Read::Serializable).await?;
    let absent = !slot.exists();
    if absent {
        store(cx, &mut slot, value, None, false).await?;
    }
    Ok(absent.into())
}

pub(super) const SETEX: Command = Command::new(
    Row::new(Group::String, "setex", 4, "2.0.0")
        .flags(WRITES)
        .keys(KEY_OW)
        .syntax("key seconds value")
        .summary("Sets a string that expires after a number of seconds.")
        .deprecated("2.6.12", "SET with EX"),
    handler!(setex),
);

async fn setex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set_expiring(cx, args, Unit::Ex, "setex").await
}

pub(super) const PSETEX: Command = Command::new(
    Row::new(Group::String, "psetex", 4, "2.6.0")
        .flags(WRITES)
        .keys(KEY_OW)
        .syntax("key milliseconds value")
        .summary("Sets a string that expires after a number of milliseconds.")
        .deprecated("2.6.12", "SET with PX"),
    handler!(psetex),
);

async fn psetex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    set_expiring(cx, args, Unit::Px, "psetex").await
}

async fn set_expiring(cx: &mut Cx<'_>, mut args: Args<'_>, unit: Unit, command: &str) -> Result<Reply> {
    let (key, amount, value) = (args.next()?, args.next()?, args.next()?);
    let expiry = moment(unit, amount, cx.now, command)?;
    let mut slot = object::open(&cx.scope()?, key, Read::Serializable).await?;
    store(cx, &mut slot, value, Some(expiry), true).await?;
    Ok(Reply::Ok)
}

pub(super) const GETSET: Command = Command::new(
    Row::new(Group::String, "getset", 3, "1.0.0")
        .flags(WRITES_FAST)
        .keys(KEY_CHANGED)
        .syntax("key value")
        .summary("Sets a string and returns the previous one.")
        .deprecated("6.2.0", "SET with GET"),
    handler!(getset),
);

async fn getset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (key, value) = (args.next()?, args.next()?);
    let s = cx.scope()?;
    let mut slot = cx.look_up(&s, key).await?;
    let old = cx.bulk(&s, &slot).await?;
    store(cx, &mut slot, value, None, false).await?;
    Ok(old)
}

pub(super) const GETDEL: Command = Command::new(
    Row::new(Group::String, "getdel", 2, "6.2.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_TAKEN)
        .syntax("key")
        .summary("Returns a string and removes its key."),
    handler!(getdel),
);

async fn getdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let mut slot = cx.look_up(&s, args.next()?).await?;
    let old = cx.bulk(&s, &slot).await?;
    object::delete(&s, &mut slot)?;
    Ok(old)
}

pub(super) const GETEX: Command = Command::new(
    Row::new(Group::String, "getex", -2, "6.2.0")
        .flags(Flags::WRITE.or(Flags::FAST))
        .keys(KEY_CHANGED)
        .syntax(
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
             unix-time-milliseconds | PERSIST]",
        )
        .summary("Returns a string and changes its expiry."),
    handler!(getex),
);

async fn getex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let key = args.next()?;
    let mut ttl = Ttl::Default;
    while !args.is_empty() {
        if !ttl.option(&mut args, ("PERSIST", Ttl::Persist))? {
            return Err(SYNTAX.into());
        }
    }
    let s = cx.scope()?;
    let mut slot = cx.look_up(&s, key).await?;
    let value = cx.bulk(&s, &slot).await?;
    if value == Reply::Nil {
        return Ok(value);
    }
    let expiry = ttl.resolve(cx.now, "getex")?;
    match expiry {
        Some(at) if at <= cx.now => object::delete(&s, &mut slot).map(|_| ())?,
        None if ttl != Ttl::Persist || slot.expire_at().is_none() => {}
        at => {
            s.notify(Events::GENERIC, if at.is_some() { "expire" } else { "persist" }, key);
            object::set_expiry(&s, &mut slot, at)?;
        }
    }
    Ok(value)
}

/// Pairs and options of MSETEX.
type Pairs<'a> = (&'a [Bytes], When<'a>, Ttl<'a>);

fn msetex_arguments<'a>(mut args: Args<'a>) -> ArgResult<Pairs<'a>> {
    // Redis parses a C int.
    let number = parse_i64(args.next()?).and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0);
    let number =
        number.and_then(|n| usize::try_from(n).ok()).ok_or(ReplyError::new("ERR invalid numkeys value"))?;
    let pairs = number.checked_mul(2).and_then(|n| args.take(n).ok());
    let pairs = pairs.ok_or(ReplyError::new("ERR wrong number of key-value pairs"))?;
    let (mut when, mut ttl) = (When::Always, Ttl::Default);
    while !args.is_empty() {
        match When::existence(&mut args) {
            Some(to) if when == When::Always || when == to => when = to,
            None if ttl.option(&mut args, ("KEEPTTL", Ttl::Keep))? => {}
            _ => return Err(SYNTAX),
        }
    }
    Ok((pairs, when, ttl))
}

pub(super) const MSETEX: Command = Command::new(
    Row::new(Group::String, "msetex", -4, "8.4.0")
        .flags(WRITES.or(Flags::MOVABLEKEYS))
        .keys(NUMBERED)
        .syntax(
            "numkeys <data: key value> [key value ...] [NX | XX] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        )
        .summary("Sets several strings with one expiry: all of them or none.")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    handler!(msetex),
);

/// All pairs or none: NX requires that none of the keys exists, XX that all do.
async fn msetex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let (pairs, when, ttl) = msetex_arguments(args)?;
    let expiry = ttl.resolve(cx.now, "msetex")?;
    let pairs = || pairs.chunks_exact(2).filter_map(|pair| pair.first().zip(pair.get(1)));
    let s = cx.scope()?;
    for (key, _) in pairs() {
        let slot = object::open(&s, key, Read::Serializable).await?;
        if !when.holds(cx, &slot).await? {
            return Ok(Reply::Int(0));
        }
    }
    pairs().try_for_each(|(key, _)| object::check_name(key))?;
    for (key, value) in pairs() {
        let mut slot = object::open(&s, key, Read::Serializable).await?;
        let expiry = if ttl == Ttl::Keep { slot.expire_at() } else { expiry };
        store(cx, &mut slot, value, expiry, ttl.is_time()).await?;
    }
    Ok(Reply::Int(1))
}
