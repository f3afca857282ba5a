//! Scripts, and functions of libraries.

mod functions;

use crate::commands::args::Args;
use crate::commands::binding::{Command, Named, Run, ScriptOp};
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::keyspace::scripts;
use crate::lua::{Source, hex, parse_hex, sha1};
use crate::server::reply::Reply;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::store::Read;
use crate::{handler, help};
use bytes::Bytes;
use std::sync::Arc;

const fn runs(named: Named, reads_only: bool) -> Run {
    Run::Script(ScriptOp { named, reads_only })
}

const NO_SUCH_SCRIPT: ReplyError = ReplyError::new("NOSCRIPT No matching script.");

/// Redis' reply if no script is running.
const NOTHING_RUNS: &str = "NOTBUSY No scripts in execution right now.";

const WRITTEN: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Keynum { step: 1 } }];
const READ: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Keynum { step: 1 } }];

/// What a script reads and writes is seen while it runs. So it goes through a lane, unless it only reads.
const RUNS: Flags = SCRIPTS.or(Flags::KEEPS);
const READS: Flags = SCRIPTS.or(Flags::READONLY);
const SCRIPTS: Flags = Flags::NOSCRIPT
    .or(Flags::STALE)
    .or(Flags::SKIP_MONITOR)
    .or(Flags::NO_MANDATORY_KEYS)
    .or(Flags::MOVABLEKEYS);
const RUNS_ONE: &str = "Runs a script in one transaction.";
const RUNS_A_FUNCTION: &str = "Runs a function in one transaction.";

const ARGS_OF_SCRIPT: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const ARGS_OF_DIGEST: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";
const ARGS_OF_FUNCTION: &str = "function numkeys [key [key ...]] [arg [arg ...]]";

const OF_SCRIPTS: &str = "Manages scripts.";

const KILLS: Flags = Flags::NOSCRIPT.or(Flags::ALLOW_BUSY);

const SCRIPT_SUBS: &[Command] = &[
    SCRIPT_DEBUG,
    SCRIPT_EXISTS,
    SCRIPT_FLUSH,
    help!("script", Group::Scripting, "5.0.0"),
    SCRIPT_KILL,
    SCRIPT_LOAD,
    SCRIPT_SHOW,
];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[EVAL, EVAL_RO, EVALSHA, EVALSHA_RO, FCALL, FCALL_RO, SCRIPT, functions::FUNCTION];

const SCRIPT_DEBUG: Command = Command::new(
    Row::new(Group::Scripting, "debug", 3, "3.2.0")
        .flags(Flags::NOSCRIPT)
        .syntax("<mode: YES | SYNC | NO>")
        .summary(OF_SCRIPTS),
    Run::Refuse("ERR this server has no debugger of scripts"),
);

const SCRIPT_KILL: Command = Command::new(
    Row::new(Group::Scripting, "kill", 2, "2.6.0")
        .flags(KILLS)
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    handler!(kill),
);

const SCRIPT_LOAD: Command = Command::new(
    Row::new(Group::Scripting, "load", 3, "2.6.0")
        .flags(Flags::NOSCRIPT.or(Flags::STALE).or(Flags::KEEPS))
        .syntax("script")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(load),
);

const EVAL: Command = Command::new(
    Row::new(Group::Scripting, "eval", -3, "2.6.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_SCRIPT)
        .summary(RUNS_ONE),
    runs(Named::Text, false),
);

const EVAL_RO: Command = Command::new(
    Row::new(Group::Scripting, "eval_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_SCRIPT)
        .summary(RUNS_ONE),
    runs(Named::Text, true),
);

const EVALSHA: Command = Command::new(
    Row::new(Group::Scripting, "evalsha", -3, "2.6.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_DIGEST)
        .summary(RUNS_ONE),
    runs(Named::Digest, false),
);

const EVALSHA_RO: Command = Command::new(
    Row::new(Group::Scripting, "evalsha_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_DIGEST)
        .summary(RUNS_ONE),
    runs(Named::Digest, true),
);

const FCALL: Command = Command::new(
    Row::new(Group::Scripting, "fcall", -3, "7.0.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_FUNCTION)
        .summary(RUNS_A_FUNCTION),
    runs(Named::Function, false),
);

const FCALL_RO: Command = Command::new(
    Row::new(Group::Scripting, "fcall_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_FUNCTION)
        .summary(RUNS_A_FUNCTION),
    runs(Named::Function, true),
);

const SCRIPT: Command =
    Command::container(Row::new(Group::Scripting, "script", -2, "2.6.0").summary(OF_SCRIPTS), SCRIPT_SUBS);

const SCRIPT_EXISTS: Command = Command::new(
    Row::new(Group::Scripting, "exists", -3, "2.6.0")
        .flags(Flags::NOSCRIPT)
        .syntax("sha1 [sha1 ...]")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
    handler!(exists),
);

async fn exists(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let epoch = scripts::epoch(cx.tx, Read::Snapshot).await?;
    let mut found = Vec::with_capacity(args.len());
    for name in args.rest() {
        found.push(Reply::from(match parse_hex(name) {
            Some(digest) if cx.server.scripts.find(&digest, epoch).is_some() => true,
            Some(digest) => scripts::header(cx.tx, &digest, Read::Serializable).await?.is_some(),
            None => false,
        }));
    }
    Ok(Reply::Array(found))
}

async fn load(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let text = args.next()?;
    let digest = sha1(text);
    let epoch = scripts::epoch(cx.tx, Read::Snapshot).await?;
    let source = match cx.server.scripts.find(&digest, epoch) {
        Some(known) => known,
        None => {
            let source = Arc::new(Source::parse(Bytes::copy_from_slice(text))?);
            cx.server.scripts.compile(&cx.server.env.clock, &digest, &source)?;
            source
        }
    };
    scripts::load(cx.tx, &digest, text, cx.now).await?;
    cx.server.scripts.learn(digest, &source, epoch);
    Ok(Reply::text(hex(&digest)))
}

const SCRIPT_SHOW: Command = Command::new(
    Row::new(Group::Scripting, "show", 3, "8.0.0")
        .flags(Flags::NOSCRIPT)
        .syntax("sha1")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_shards"]),
    handler!(show),
);

async fn show(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let digest = parse_hex(args.next()?).ok_or(NO_SUCH_SCRIPT)?;
    let epoch = scripts::epoch(cx.tx, Read::Snapshot).await?;
    if let Some(known) = cx.server.scripts.find(&digest, epoch) {
        return Ok(Reply::Bulk(known.text.clone()));
    }
    let (_, text) = scripts::find(cx.tx, &digest, Read::Snapshot).await?.ok_or(NO_SUCH_SCRIPT)?;
    Ok(Reply::Bulk(text))
}

async fn kill(cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    if cx.server.scripts.kill(false) {
        return Ok(Reply::Ok);
    }
    Err(ReplyError::new(NOTHING_RUNS).into())
}

const SCRIPT_FLUSH: Command = Command::new(
    Row::new(Group::Scripting, "flush", -2, "2.6.0")
        .flags(Flags::NOSCRIPT.or(Flags::KEEPS))
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(script_flush),
);

async fn script_flush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    let reply = flush(args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
    scripts::flush(cx.tx).await?;
    cx.server.scripts.forget();
    Ok(reply)
}

fn flush(mut args: Args<'_>, otherwise: &'static str) -> Result<Reply> {
    let known = args.is_empty() || args.keyword("ASYNC") || args.keyword("SYNC");
    if known && args.is_empty() { Ok(Reply::Ok) } else { Err(ReplyError::new(otherwise).into()) }
}
