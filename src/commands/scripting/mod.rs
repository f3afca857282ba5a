//! Scripts and functions. Tern has none: commands that would load or run one are refused, queries about them
//! are answered.

use crate::commands::args::Args;
use crate::commands::binding::{Command, Run};
use crate::commands::cx::Cx;
use crate::error::{ReplyError, Result};
use crate::server::reply::Reply;
use crate::spec::words::quoted;
use crate::spec::{FindKeys, Flags, Group, KeySpec, Row};
use crate::{handler, help};

const NO_SCRIPTS: Run = Run::Refuse(
    "ERR this server does not support scripts and functions. Instead: DELEX key IFEQ token releases a lock, \
     INCREX key UBOUND 100 ENX EX 60 limits a rate, WATCH and MULTI run commands together",
);

/// Redis' reply if no script is running.
const NOTHING_RUNS: Run = Run::Refuse("NOTBUSY No scripts in execution right now.");

const WRITTEN: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Keynum { step: 1 } }];
const READ: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Keynum { step: 1 } }];

const RUNS: Flags = Flags::NOSCRIPT.or(Flags::STALE).or(Flags::MOVABLEKEYS);
const READS: Flags = RUNS.or(Flags::READONLY);
const NONE_RUNS: &str = "Runs a script. Not supported.";

const ARGS_OF_SCRIPT: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const ARGS_OF_DIGEST: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";
const ARGS_OF_FUNCTION: &str = "function numkeys [key [key ...]] [arg [arg ...]]";

const OF_SCRIPTS: &str = "Manages scripts. Not supported.";
const OF_FUNCTIONS: &str = "Manages functions. Not supported.";

const KILLS: Flags = Flags::NOSCRIPT.or(Flags::ALLOW_BUSY);

const SCRIPT_SUBS: &[Command] = &[
    SCRIPT_DEBUG,
    SCRIPT_EXISTS,
    SCRIPT_FLUSH,
    help!("script", Group::Scripting, "5.0.0"),
    SCRIPT_KILL,
    SCRIPT_LOAD,
];

const CHANGES: Flags = Flags::WRITE.or(Flags::NOSCRIPT);
const ADDS: Flags = CHANGES.or(Flags::DENYOOM);

const FUNCTION_SUBS: &[Command] = &[
    FUNCTION_DELETE,
    FUNCTION_DUMP,
    FUNCTION_FLUSH,
    help!("function", Group::Scripting, "7.0.0"),
    FUNCTION_KILL,
    FUNCTION_LIST,
    FUNCTION_LOAD,
    FUNCTION_RESTORE,
    FUNCTION_STATS,
];

/// The commands of this family.
pub(crate) const COMMANDS: &[Command] =
    &[EVAL, EVAL_RO, EVALSHA, EVALSHA_RO, FCALL, FCALL_RO, SCRIPT, FUNCTION];

const SCRIPT_DEBUG: Command = Command::new(
    Row::new(Group::Scripting, "debug", 3, "3.2.0")
        .flags(Flags::NOSCRIPT)
        .syntax("<mode: YES | SYNC | NO>")
        .summary(OF_SCRIPTS),
    NO_SCRIPTS,
);

const SCRIPT_KILL: Command = Command::new(
    Row::new(Group::Scripting, "kill", 2, "2.6.0")
        .flags(KILLS)
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    NOTHING_RUNS,
);

const SCRIPT_LOAD: Command = Command::new(
    Row::new(Group::Scripting, "load", 3, "2.6.0")
        .flags(Flags::NOSCRIPT.or(Flags::STALE))
        .syntax("script")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    NO_SCRIPTS,
);

const FUNCTION_DELETE: Command = Command::new(
    Row::new(Group::Scripting, "delete", 3, "7.0.0")
        .flags(CHANGES)
        .syntax("library-name")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Run::Refuse("ERR Library not found"),
);

const FUNCTION_DUMP: Command = Command::new(
    Row::new(Group::Scripting, "dump", 2, "7.0.0").flags(Flags::NOSCRIPT).summary(OF_FUNCTIONS),
    NO_SCRIPTS,
);

const FUNCTION_KILL: Command = Command::new(
    Row::new(Group::Scripting, "kill", 2, "7.0.0")
        .flags(KILLS)
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    NOTHING_RUNS,
);

const FUNCTION_LOAD: Command = Command::new(
    Row::new(Group::Scripting, "load", -3, "7.0.0")
        .flags(ADDS)
        .syntax("[REPLACE] function-code")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    NO_SCRIPTS,
);

const FUNCTION_RESTORE: Command = Command::new(
    Row::new(Group::Scripting, "restore", -3, "7.0.0")
        .flags(ADDS)
        .syntax("serialized-value [policy: FLUSH | APPEND | REPLACE]")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    NO_SCRIPTS,
);

const EVAL: Command = Command::new(
    Row::new(Group::Scripting, "eval", -3, "2.6.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_SCRIPT)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const EVAL_RO: Command = Command::new(
    Row::new(Group::Scripting, "eval_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_SCRIPT)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const EVALSHA: Command = Command::new(
    Row::new(Group::Scripting, "evalsha", -3, "2.6.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_DIGEST)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const EVALSHA_RO: Command = Command::new(
    Row::new(Group::Scripting, "evalsha_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_DIGEST)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const FCALL: Command = Command::new(
    Row::new(Group::Scripting, "fcall", -3, "7.0.0")
        .flags(RUNS)
        .keys(WRITTEN)
        .syntax(ARGS_OF_FUNCTION)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const FCALL_RO: Command = Command::new(
    Row::new(Group::Scripting, "fcall_ro", -3, "7.0.0")
        .flags(READS)
        .keys(READ)
        .syntax(ARGS_OF_FUNCTION)
        .summary(NONE_RUNS),
    NO_SCRIPTS,
);

const SCRIPT: Command =
    Command::container(Row::new(Group::Scripting, "script", -2, "2.6.0").summary(OF_SCRIPTS), SCRIPT_SUBS);

const FUNCTION: Command = Command::container(
    Row::new(Group::Scripting, "function", -2, "7.0.0").summary(OF_FUNCTIONS),
    FUNCTION_SUBS,
);

const SCRIPT_EXISTS: Command = Command::new(
    Row::new(Group::Scripting, "exists", -3, "2.6.0")
        .flags(Flags::NOSCRIPT)
        .syntax("sha1 [sha1 ...]")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
    handler!(exists),
);

async fn exists(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(args.rest().iter().map(|_| Reply::Int(0)).collect()))
}

const SCRIPT_FLUSH: Command = Command::new(
    Row::new(Group::Scripting, "flush", -2, "2.6.0")
        .flags(Flags::NOSCRIPT)
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary(OF_SCRIPTS)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    handler!(script_flush),
);

async fn script_flush(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush(args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")
}

const FUNCTION_FLUSH: Command = Command::new(
    Row::new(Group::Scripting, "flush", -2, "7.0.0")
        .flags(CHANGES)
        .syntax("[flush-type: ASYNC | SYNC]")
        .summary(OF_FUNCTIONS)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    handler!(function_flush),
);

async fn function_flush(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    if args.len() > 1 {
        return Err(args.no_such_form().into());
    }
    flush(args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
}

fn flush(mut args: Args<'_>, otherwise: &'static str) -> Result<Reply> {
    let known = args.is_empty() || args.keyword("ASYNC") || args.keyword("SYNC");
    if known && args.is_empty() { Ok(Reply::Ok) } else { Err(ReplyError::new(otherwise).into()) }
}

const FUNCTION_LIST: Command = Command::new(
    Row::new(Group::Scripting, "list", -2, "7.0.0")
        .flags(Flags::NOSCRIPT)
        .syntax("[LIBRARYNAME library-name-pattern] [WITHCODE]")
        .summary(OF_FUNCTIONS)
        .tips(&["nondeterministic_output_order"]),
    handler!(function_list),
);

async fn function_list(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let (mut name, mut code) = (false, false);
    while let Some(word) = args.peek() {
        if !code && args.keyword("WITHCODE") {
            code = true;
        } else if !name && args.keyword("LIBRARYNAME") {
            args.next().map_err(|_| ReplyError::new("ERR library name argument was not given"))?;
            name = true;
        } else {
            let word = quoted(word);
            return Err(ReplyError::of(format!("ERR Unknown argument {word}")).into());
        }
    }
    Ok(Reply::Array(Vec::new()))
}

const FUNCTION_STATS: Command = Command::new(
    Row::new(Group::Scripting, "stats", 2, "7.0.0").flags(KILLS).summary(OF_FUNCTIONS).tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ]),
    handler!(stats),
);

/// No function is running, and no engine could run one.
async fn stats(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let none = (Reply::bulk_static("running_script"), Reply::Nil);
    Ok(Reply::Map(vec![none, (Reply::bulk_static("engines"), Reply::Map(Vec::new()))]))
}
