//! OBJECT: how Redis would store a value.
//!
//! Derived from the value, except for short strings left by APPEND, SETRANGE or INCRBYFLOAT ([`Str::Made`]).
//! One thing that Redis knows and Tern does not: that the copy of a small integer is not shared (REFCOUNT).

use crate::commands::args::Args;
use crate::commands::binding::Command;
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::handler;
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::types::Value;

const OF_KEY: &[KeySpec] =
    &[KeySpec { flags: &["RO"], begin: 2, find: FindKeys::Range { last: 0, step: 1 } }];

/// The container.
pub(crate) const COMMANDS: &[Command] = &[OBJECT];

const SUBS: &[Command] = &[OBJECT_ENCODING, OBJECT_FREQ, OBJECT_HELP, OBJECT_IDLETIME, OBJECT_REFCOUNT];

const OBJECT: Command = Command::container(
    Row::new(Group::Generic, "object", -2, "2.2.3").summary("Inspects how values are stored."),
    SUBS,
);

/// The value under the key; None replies nil.
async fn value(cx: &Cx<'_>, mut args: Args<'_>) -> Result<Option<Value>> {
    let slot = cx.look_at(&cx.scope()?, args.next()?).await?;
    Ok(slot.record().map(|r| r.value.clone()))
}

const OBJECT_ENCODING: Command = Command::new(
    Row::new(Group::Generic, "encoding", 3, "2.2.3")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key")
        .summary("Returns the encoding of a value, in Redis' terms.")
        .tips(&["nondeterministic_output"]),
    handler!(encoding),
);

async fn encoding(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let value = value(cx, args).await?;
    Ok(value.map_or(Reply::Nil, |v| Reply::bulk_static(v.encoding())))
}

const OBJECT_REFCOUNT: Command = Command::new(
    Row::new(Group::Generic, "refcount", 3, "2.2.3")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key")
        .summary("Returns the number of references to a value.")
        .tips(&["nondeterministic_output"]),
    handler!(refcount),
);

async fn refcount(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(value(cx, args).await?.map_or(Reply::Nil, |v| Reply::Int(v.references())))
}

const OBJECT_IDLETIME: Command = Command::new(
    Row::new(Group::Generic, "idletime", 3, "2.2.3")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key")
        .summary("Returns a key's idle time: always 0, because access times are not kept.")
        .tips(&["nondeterministic_output"]),
    handler!(idletime),
);

async fn idletime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(value(cx, args).await?.map_or(Reply::Nil, |_| Reply::Int(0)))
}

const OBJECT_FREQ: Command = Command::new(
    Row::new(Group::Generic, "freq", 3, "4.0.0")
        .flags(Flags::READONLY)
        .keys(OF_KEY)
        .syntax("key")
        .summary("Returns an error: access frequencies are not kept.")
        .tips(&["nondeterministic_output"]),
    handler!(freq),
);

async fn freq(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    match value(cx, args).await? {
        None => Ok(Reply::Nil),
        Some(_) => Err(NO_LFU.into()),
    }
}

const NO_LFU: ReplyError = ReplyError::new(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
     between policies at runtime LRU and LFU data will take some time to adjust.",
);

const OBJECT_HELP: Command = Command::new(
    Row::new(Group::Generic, "help", 2, "6.2.0")
        .flags(Flags::LOADING.or(Flags::STALE))
        .summary("Lists the subcommands."),
    handler!(help),
);

async fn help(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(HELP.iter().map(|line| Reply::Simple((*line).into())).collect()))
}

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];
