//! HGETDEL, HGETEX and HSETEX: reads and writes of fields that also remove them or move their expiries.

use super::expiry::{Time, announce, fields_and_options, plain_fields};
use super::{FAST_WRITE, SETS, light_fields, limits, values};
use crate::commands::args::{ArgResult, Args};
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::config::Events;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::keyspace::Scope;
use crate::server::reply::Reply;
use crate::spec::{Group, KEY_CHANGED, KEY_RW, KeySpec, Row, one};
use crate::types::hash;
use crate::types::hash::expiry::{self, Edit};
use crate::types::object::{self, Slot};
use bytes::Bytes;

/// The commands of this file.
pub(crate) const COMMANDS: &[Command] = &[HGETDEL, HGETEX, HSETEX];

const WRONG_NUMBER: &str = "ERR invalid number of fields";

const TAKEN: &[KeySpec] = &[one(&["RW", "access", "delete"])];

const HGETDEL: Command = Command::new(
    Row::new(Group::Hash, "hgetdel", -5, "8.0.0")
        .flags(FAST_WRITE)
        .keys(TAKEN)
        .syntax("key FIELDS <fields: numfields field [field ...]>")
        .summary("Returns the values of fields of a hash and removes the fields."),
    handler!(hgetdel),
);

async fn hgetdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = open(&s, args.next()?).await?;
    edit_and_reply(cx, &s, slot, plain_fields(args)?, Some(Edit::Remove)).await
}

/// The key, unless it holds another type: that is checked before the options, as in Redis.
async fn open(s: &Scope<'_>, key: &Bytes) -> Result<Slot> {
    let slot = object::open_members(s, key).await?;
    slot.hash()?;
    Ok(slot)
}

const HGETEX: Command = Command::new(
    Row::new(Group::Hash, "hgetex", -5, "8.0.0")
        .flags(FAST_WRITE)
        .keys(KEY_CHANGED)
        .syntax(
            "key [expiration: EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds \
             | PERSIST] FIELDS <fields: numfields field [field ...]>",
        )
        .summary("Returns the values of fields of a hash, and sets or removes their expiries."),
    handler!(hgetex),
);

async fn hgetex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let s = cx.scope()?;
    let slot = open(&s, args.next()?).await?;
    let mut options = Options::of("hgetex", cx.now);
    let fields = fields_and_options(args, (1, 1, WRONG_NUMBER), |args| options.take(args))?;
    if options.keeps || options.only.is_some() {
        return Err(UNKNOWN.into());
    }
    let edit = match options.at {
        _ if options.persists => Some(Edit::Persist),
        Some(at) if at <= s.now => Some(Edit::Remove),
        Some(at) => Some(Edit::ExpireAt(at)),
        None => None,
    };
    edit_and_reply(cx, &s, slot, fields, edit).await
}

/// An option that only the other of the two commands has.
const UNKNOWN: ReplyError = ReplyError::new("ERR unknown argument");

/// Which of the fields must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum If {
    None,
    All,
}

/// The options of HGETEX and HSETEX, which are read alike.
struct Options {
    command: &'static str,
    now: u64,
    only: Option<If>,
    at: Option<u64>,
    persists: bool,
    keeps: bool,
}

impl Options {
    fn of(command: &'static str, now: u64) -> Self {
        Options { command, now, only: None, at: None, persists: false, keeps: false }
    }

    /// Takes one option. False if there is none.
    fn take(&mut self, args: &mut Args<'_>) -> ArgResult<bool> {
        let condition = match () {
            () if args.keyword("FNX") => Some(If::None),
            () if args.keyword("FXX") => Some(If::All),
            () => None,
        };
        if condition.is_some() {
            if self.only.is_some() {
                return Err(ReplyError::new("ERR Only one of FXX or FNX arguments can be specified"));
            }
            self.only = condition;
            return Ok(true);
        }
        if args.keyword("PERSIST") {
            self.exclude(self.at.is_some() || self.persists)?;
            self.persists = true;
        } else if args.keyword("KEEPTTL") {
            self.exclude(self.at.is_some() || self.keeps)?;
            self.keeps = true;
        } else if let Some(time) = time(args, self.command) {
            self.exclude(self.at.is_some() || self.persists || self.keeps)?;
            let raw = args.next().map_err(|_| ReplyError::new("ERR missing expire time"))?;
            self.at = Some(time.moment(raw, self.now)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn exclude(&self, others: bool) -> ArgResult<()> {
        let last = if self.command == "hgetex" { "PERSIST" } else { "KEEPTTL" };
        match others {
            true => Err(ReplyError::of(format!(
                "ERR Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified"
            ))),
            false => Ok(()),
        }
    }
}

/// The unit and base that a keyword names, if one follows.
fn time(args: &mut Args<'_>, command: &'static str) -> Option<Time> {
    let (seconds, absolute) = match () {
        () if args.keyword("EX") => (true, false),
        () if args.keyword("PX") => (false, false),
        () if args.keyword("EXAT") => (true, true),
        () if args.keyword("PXAT") => (false, true),
        () => return None,
    };
    Some(Time { command, seconds, absolute })
}

/// Returns the fields' values and edits the fields.
async fn edit_and_reply(
    cx: &Cx<'_>,
    s: &Scope<'_>,
    mut slot: Slot,
    fields: &[Bytes],
    edit: Option<Edit>,
) -> Result<Reply> {
    light_fields(cx, fields)?;
    let values = values(cx, s, slot.hash()?, fields).await?;
    let Some(edit) = edit else {
        return Ok(Reply::Array(values.into_iter().map(Reply::bulk_or_nil).collect()));
    };
    let (mut there, mut changed) = (Vec::new(), false);
    let decide = |_: &Bytes, field: expiry::Expiry| {
        there.push(field.is_some());
        changed |= match edit {
            Edit::Persist => field.flatten().is_some(),
            Edit::Keep => false,
            Edit::ExpireAt(_) | Edit::Remove => field.is_some(),
        };
        edit
    };
    expiry::edit(s, &mut slot, fields, decide).await?;
    if changed {
        let event = match edit {
            Edit::Persist => "hpersist",
            Edit::ExpireAt(_) | Edit::Keep => "hexpire",
            Edit::Remove => "hdel",
        };
        announce(s, &slot, event);
    }
    // A field that is named twice and removed has a value once.
    let replies = values.into_iter().zip(there).map(|(value, there)| value.filter(|_| there));
    Ok(Reply::Array(replies.map(Reply::bulk_or_nil).collect()))
}

const HSETEX: Command = Command::new(
    Row::new(Group::Hash, "hsetex", -6, "8.0.0")
        .flags(SETS)
        .keys(KEY_RW)
        .syntax(
            "key [condition: FNX | FXX] [expiration: EX seconds | PX milliseconds | EXAT unix-time-seconds \
             | PXAT unix-time-milliseconds | KEEPTTL] FIELDS <fields: numfields <data: field value> [field value ...]>",
        )
        .summary("Sets fields of a hash, with an expiry if one is given."),
    handler!(hsetex),
);

async fn hsetex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (s, key) = (cx.scope()?, args.next()?);
    let mut options = Options::of("hsetex", cx.now);
    let (pairs, _) = fields_and_options(args, (2, 1, WRONG_NUMBER), |args| options.take(args))?.as_chunks();
    if options.persists {
        return Err(UNKNOWN.into());
    }
    light_fields(cx, pairs.as_flattened())?;
    let mut slot = open(&s, key).await?;
    let names: Vec<Bytes> = pairs.iter().map(|[field, _]| field.clone()).collect();
    if let Some(only) = options.only {
        let found = expiry::expiries(&s, slot.hash()?, &names).await?;
        let is_met = match only {
            If::None => found.iter().all(Option::is_none),
            If::All => found.iter().all(Option::is_some),
        };
        if !is_met {
            return Ok(Reply::Int(0));
        }
    }
    if options.keeps {
        hash::set_values(&s, &mut slot, limits(cx), pairs).await?;
    } else {
        hash::set(&s, &mut slot, limits(cx), pairs).await?;
    }
    s.notify(Events::HASH, "hset", key);
    if let Some(at) = options.at {
        let (edit, event) =
            if at <= s.now { (Edit::Remove, "hdel") } else { (Edit::ExpireAt(at), "hexpire") };
        expiry::edit(&s, &mut slot, &names, |_, _| edit).await?;
        announce(&s, &slot, event);
    }
    Ok(Reply::Int(1))
}
