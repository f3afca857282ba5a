//! Commands that are refused by design, so that who sends one learns why: what moves data from server to server has nothing to do
//! where the store does that. Scripts do not exist, so what asks whether there are any is answered.

use super::args::Args;
use super::command::help_of;
use super::cx::Cx;
use super::reply::Reply;
use super::table::{FindKeys, Flags, Group, KeySpec, Row, Run};
use crate::error::{ReplyError, Result};
use crate::handler;

const NO_REPLICATION: Run = Run::Refuse(
    "ERR there is no replication between servers: the store replicates, and any server on it can be written to",
);
const NO_MIGRATE: Run = Run::Refuse(
    "ERR MIGRATE is not supported: servers on one store share its keys; tern copy moves a whole store, DUMP and RESTORE one key",
);

const NO_SCRIPTS: Run = Run::Refuse("ERR scripts and functions are not supported by this server");

const BASE: Row = Row {
    name: "",
    arity: 1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT),
    keys: &[],
    group: Group::Server,
    since: "",
    syntax: "",
    summary: "",
    run: NO_REPLICATION,
    subs: &[],
};
const STREAM: Flags = BASE.flags.or(Flags::NO_ASYNC_LOADING).or(Flags::NO_MULTI);

const MOVED: &[KeySpec] = &[
    KeySpec { flags: &["RW", "access", "delete"], begin: 3, find: FindKeys::Range { last: 0, step: 1 } },
    KeySpec { flags: &["RW", "access", "delete", "incomplete"], begin: 1, find: FindKeys::Unknown },
];

const WRITES: &[KeySpec] =
    &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Keynum { step: 1 } }];
const READS: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Keynum { step: 1 } }];

const SCRIPTING: Flags = Flags::NOSCRIPT.or(Flags::STALE).or(Flags::MOVABLEKEYS);

/// A command that runs a script or a function.
const fn script(name: &'static str, reads: bool, since: &'static str, syntax: &'static str) -> Row {
    Row {
        name,
        arity: -3,
        flags: if reads { SCRIPTING.or(Flags::READONLY) } else { SCRIPTING },
        keys: if reads { READS } else { WRITES },
        group: Group::Scripting,
        since,
        syntax,
        summary: "Runs a script. There are none.",
        run: NO_SCRIPTS,
        ..BASE
    }
}

const SCRIPT: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const DIGEST: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";
const FUNCTION: &str = "function numkeys [key [key ...]] [arg [arg ...]]";

/// A subcommand of SCRIPT.
const fn of_script(name: &'static str, arity: i32, flags: Flags, syntax: &'static str, run: Run) -> Row {
    let summary = "Manages scripts. There are none.";
    Row { name, arity, flags, group: Group::Scripting, since: "2.6.0", syntax, summary, run, ..BASE }
}

const SUBS: &[Row] = &[
    of_script("debug", 3, Flags::NOSCRIPT, "<YES | SYNC | NO>", NO_SCRIPTS),
    of_script("exists", -3, Flags::NOSCRIPT, "sha1 [sha1 ...]", handler!(exists)),
    of_script("flush", -2, Flags::NOSCRIPT, "[ASYNC | SYNC]", handler!(flush)),
    of_script("help", 2, Flags::LOADING.or(Flags::STALE), "", handler!(help)),
    of_script(
        "kill",
        2,
        Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
        "",
        Run::Refuse("NOTBUSY No scripts in execution right now."),
    ),
    of_script("load", 3, Flags::NOSCRIPT.or(Flags::STALE), "script", NO_SCRIPTS),
];

async fn exists(_cx: &mut Cx<'_>, args: Args<'_>) -> Result<Reply> {
    Ok(Reply::Array(args.rest().iter().map(|_| Reply::Int(0)).collect()))
}

async fn flush(_cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Reply> {
    let known = args.is_empty() || args.keyword("ASYNC") || args.keyword("SYNC");
    if known && args.is_empty() {
        return Ok(Reply::Ok);
    }
    Err(ReplyError::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option").into())
}

async fn help(_cx: &mut Cx<'_>, _args: Args<'_>) -> Result<Reply> {
    Ok(help_of("script"))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "migrate",
        arity: -6,
        flags: Flags::WRITE.or(Flags::MOVABLEKEYS),
        keys: MOVED,
        group: Group::Generic,
        since: "2.6.0",
        syntax: "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
        summary: "Moves keys to another server.",
        run: NO_MIGRATE,
        ..BASE
    },
    Row { name: "sync", flags: STREAM, since: "1.0.0", summary: "Asks for the stream of changes.", ..BASE },
    Row {
        name: "psync",
        arity: -3,
        flags: STREAM,
        since: "2.8.0",
        syntax: "replicationid offset",
        summary: "Asks for the stream of changes from an offset on.",
        ..BASE
    },
    Row {
        name: "replconf",
        arity: -1,
        flags: BASE.flags.or(Flags::LOADING).or(Flags::STALE).or(Flags::ALLOW_BUSY),
        since: "3.0.0",
        syntax: "[option value [option value ...]]",
        summary: "Tells a master about a replica.",
        ..BASE
    },
    Row {
        name: "failover",
        arity: -1,
        flags: BASE.flags.or(Flags::STALE),
        since: "6.2.0",
        syntax: "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        summary: "Makes a replica the master.",
        ..BASE
    },
    script("eval", false, "2.6.0", SCRIPT),
    script("eval_ro", true, "7.0.0", SCRIPT),
    script("evalsha", false, "2.6.0", DIGEST),
    script("evalsha_ro", true, "7.0.0", DIGEST),
    script("fcall", false, "7.0.0", FUNCTION),
    script("fcall_ro", true, "7.0.0", FUNCTION),
    Row { subs: SUBS, ..of_script("script", -2, Flags::NONE, "", Run::Container) },
];
