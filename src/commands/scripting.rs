//! Scripts and functions. There are none, and what would bring one or run it is refused; what asks about them is answered.

use super::args::{Args, quoted};
use super::cx::Cx;
use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run};
use crate::error::{ReplyError, Result};
use crate::{handler, help};

const NO_SCRIPTS: Run = Run::Refuse("ERR scripts and functions are not supported by this server");

/// What Redis answers where nothing runs.
const NOTHING_RUNS: Run = Run::Refuse("NOTBUSY No scripts in execution right now.");

const WRITES: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Keynum { step: 1 } }];
const READS: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Keynum { step: 1 } }];

const SCRIPTING: Flags = Flags::NOSCRIPT.or(Flags::STALE).or(Flags::MOVABLEKEYS);

const BASE: Row = Row::of(Group::Scripting, NO_SCRIPTS);

/// A command that runs a script or a function.
const fn script(name: &'static str, reads: bool, since: &'static str, syntax: &'static str) -> Row {
    let flags = if reads { SCRIPTING.or(Flags::READONLY) } else { SCRIPTING };
    let keys = if reads { READS } else { WRITES };
    Row { keys, ..BASE.row(name, -3, flags, since, syntax, "Runs a script. There are none.") }
}

const SCRIPT: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const DIGEST: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";
const FUNCTION: &str = "function numkeys [key [key ...]] [arg [arg ...]]";

const OF_SCRIPTS: &str = "Manages scripts. There are none.";
const OF_FUNCTIONS: &str = "Manages functions. There are none.";

/// A subcommand of SCRIPT.
const fn of_script(name: &'static str, arity: i32, flags: Flags, syntax: &'static str) -> Row {
    BASE.row(name, arity, flags, "2.6.0", syntax, OF_SCRIPTS)
}

/// A subcommand of FUNCTION.
const fn of_function(name: &'static str, arity: i32, flags: Flags, syntax: &'static str) -> Row {
    BASE.row(name, arity, flags, "7.0.0", syntax, OF_FUNCTIONS)
}

const KILLS: Flags = Flags::NOSCRIPT.or(Flags::ALLOW_BUSY);

const SCRIPT_SUBS: &[Row] = &[
    Row { since: "3.2.0", ..of_script("debug", 3, Flags::NOSCRIPT, "<mode: YES | SYNC | NO>") },
    of_script("exists", -3, Flags::NOSCRIPT, "sha1 [sha1 ...]").run_by(handler!(exists)),
    of_script("flush", -2, Flags::NOSCRIPT, "[flush-type: ASYNC | SYNC]").run_by(handler!(script_flush)),
    help!("script", Group::Scripting, "5.0.0"),
    of_script("kill", 2, KILLS, "").run_by(NOTHING_RUNS),
    of_script("load", 3, Flags::NOSCRIPT.or(Flags::STALE), "script"),
];

const CHANGES: Flags = Flags::WRITE.or(Flags::NOSCRIPT);
const ADDS: Flags = CHANGES.or(Flags::DENYOOM);

const FUNCTION_SUBS: &[Row] = &[
    of_function("delete", 3, CHANGES, "library-name").run_by(Run::Refuse("ERR Library not found")),
    of_function("dump", 2, Flags::NOSCRIPT, ""),
    of_function("flush", -2, CHANGES, "[flush-type: ASYNC | SYNC]").run_by(handler!(function_flush)),
    help!("function", Group::Scripting, "7.0.0"),
    of_function("kill", 2, KILLS, "").run_by(NOTHING_RUNS),
    of_function("list", -2, Flags::NOSCRIPT, "[LIBRARYNAME library-name-pattern] [WITHCODE]")
        .run_by(handler!(function_list)),
    of_function("load", -3, ADDS, "[REPLACE] function-code"),
    of_function("restore", -3, ADDS, "serialized-value [policy: FLUSH | APPEND | REPLACE]"),
    of_function("stats", 2, KILLS, "").run_by(handler!(stats)),
];

/// Rows of this family.
pub const ROWS: &[Row] = &[
    script("eval", false, "2.6.0", SCRIPT),
    script("eval_ro", true, "7.0.0", SCRIPT),
    script("evalsha", false, "2.6.0", DIGEST),
    script("evalsha_ro", true, "7.0.0", DIGEST),
    script("fcall", false, "7.0.0", FUNCTION),
    script("fcall_ro", true, "7.0.0", FUNCTION),
    BASE.container("script", -2, "2.6.0", OF_SCRIPTS, SCRIPT_SUBS),
    BASE.container("function", -2, "7.0.0", OF_FUNCTIONS, FUNCTION_SUBS),
];

async fn exists(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(args.rest().iter().map(|_| Reply::Int(0)).collect()))
}

async fn script_flush(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    flush(args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")
}

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

/// No function runs, and there is no engine that could run one.
async fn stats(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    let none = (Reply::bulk_static("running_script"), Reply::Nil);
    Ok(Reply::Map(vec![none, (Reply::bulk_static("engines"), Reply::Map(Vec::new()))]))
}
